// SPDX-License-Identifier: GPL-2.0-only
//! The measure of the promise: which jobs a reservation owed to their tasks. docs/events.md has the definition.

use std::collections::BTreeSet;

use super::jobs::{Jobs, Segment};
use crate::event::{Event, EventKind};
use crate::run::{Run, TaskInfo, World};

/// What must be left of the window's budget at the end of an owed job where a kernel enforces budgets, ns: they hold to
/// within that (docs/run.md).
const GRAIN: u64 = crate::numbers::OWED_GRAIN;

/// What a task would get from a CPU of its own that gives it exactly its budget in each period: the pair of deadline
/// and budget of a constant bandwidth server. Times in ns.
#[derive(Debug, Clone, Copy)]
struct Dedicated {
    budget: u64,
    period: u64,
    /// Relative, at most the period.
    deadline: u64,
    /// The end of the present window, 0 before the first.
    end: u64,
    /// What is left of the budget in it.
    left: u64,
}

impl Dedicated {
    /// `None` for a task that has no reservation.
    fn of(task: &TaskInfo) -> Option<Self> {
        let (budget, period) = (task.budget, task.period);
        let deadline = task.deadline.min(period);
        let some = budget > 0 && deadline > 0;
        some.then_some(Self { budget, period, deadline, end: 0, left: 0 })
    }

    /// A job is released. `idle`: all earlier ones had finished by then.
    fn release(&mut self, now: u64, idle: bool) {
        let ahead = u128::from(self.end.saturating_sub(now)) * u128::from(self.budget);
        let spare = u128::from(self.left) * u128::from(self.deadline);
        if self.end < now || idle && spare >= ahead {
            (self.end, self.left) = (now.saturating_add(self.deadline), self.budget);
        } else if self.end == now {
            self.left = 0; // the window is over, and whoever has just used it up waits for the next
        }
    }

    /// Gives `work` to the jobs released so far.
    fn serve(&mut self, work: u64) {
        if work <= self.left {
            self.left -= work;
            return;
        }
        let short = work - self.left;
        let windows = short.div_ceil(self.budget);
        self.end = self.end.saturating_add(windows.saturating_mul(self.period));
        // Less than a budget is left after a window that was needed.
        self.left = match short % self.budget {
            0 => 0,
            part => self.budget - part,
        };
    }

    /// The end of the window in which `work` more would be done.
    fn done_by(mut self, work: u64) -> u64 {
        self.serve(work);
        self.end
    }
}

/// Owed jobs of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owed {
    pub jobs: u64,
    pub late: u64,
    /// Of the late ones, those that were given up.
    pub aborted: u64,
    /// ns.
    pub tardiness_max: u64,
}

/// How exactly budgets are enforced in that world, ns.
fn grain(world: World, budget: u64) -> u64 {
    match world {
        World::Sim => 0,
        World::Lab | World::Live => GRAIN.min(budget / 20),
    }
}

/// Which jobs of task `index`, in their order, were owed. `total`: CPU time of the task in the run, ns.
pub(super) fn owed(run: &Run, events: &[Event], index: usize, of: &Jobs, total: u64) -> Owed {
    let (jobs, mut segments) = (&of.jobs, &of.segments[..]);
    let mut owed = Owed::default();
    let Some(mut server) = run.tasks.get(index).and_then(Dedicated::of) else { return owed };
    let spare = grain(run.world, server.budget);
    // Programs that do not know their own CPU time are measured by the switches.
    let blind = jobs.iter().any(|job| job.finish().is_some() && job.used == 0);
    let service = if blind { Service::of(events, index as u32) } else { Service::default() };
    let mut before = Some(0); // when the last job finished, if it did
    let mut rest = total;
    for (i, job) in jobs.iter().enumerate() {
        let idle = i == 0 || before.is_some_and(|finish| finish < job.release);
        server.release(job.release, idle);
        let work = match job.finish() {
            _ if job.aborted || job.finish().is_some() && job.used > 0 => Some(job.used),
            Some(finish) => service.between(before.unwrap_or(0), finish),
            // It wants more than it has had, and who is still short of what was due by now was owed that.
            // It waits for a resource, and who comes after it waits for that.
            None if job.waits => return owed,
            None if job.deadline <= run.horizon_ns => Some(rest.saturating_add(1)),
            None => return owed,
        };
        before = job.ended();
        let Some(work) = work else { continue };
        let mut had = 0;
        while let Some((Segment { time, used, .. }, more)) =
            segments.split_first().filter(|(next, _)| next.job <= job.index)
        {
            if *used == u64::MAX {
                return owed; // nobody knows what followed what
            }
            // What it did before it slept is done, and waking is as good as a release.
            server.serve(used.saturating_sub(had));
            server.release(*time, true);
            (had, segments) = (had.max(*used), more);
        }
        rest = rest.saturating_sub(work);
        let work = work.saturating_sub(had);
        // Who was given up wanted more, too.
        let wanted = work.saturating_add(job.aborted.into());
        if !job.waits && server.done_by(wanted.saturating_add(spare)) <= job.deadline {
            let tardiness = job.ended().unwrap_or(run.horizon_ns).saturating_sub(job.deadline);
            owed.jobs += 1;
            owed.late += u64::from(tardiness > 0 || job.finish().is_none());
            owed.aborted += u64::from(job.aborted);
            owed.tardiness_max = owed.tardiness_max.max(tardiness);
        }
        server.serve(work);
    }
    owed
}

/// CPU time of a task by time: at each switch how much it had had, and on how many CPUs it went on running.
#[derive(Debug, Default)]
struct Service {
    steps: Vec<(u64, u64, u64)>,
}

impl Service {
    fn of(events: &[Event], task: u32) -> Self {
        let mut steps: Vec<(u64, u64, u64)> = Vec::new();
        let mut running = BTreeSet::new();
        for e in events.iter().filter(|e| e.task == task) {
            let _ = match e.kind() {
                Some(EventKind::Run) => running.insert(e.cpu),
                Some(EventKind::Stop) => running.remove(&e.cpu),
                _ => continue,
            };
            let had = steps.last().map_or(0, |step| had(step, e.time));
            steps.push((e.time, had, running.len() as u64));
        }
        Self { steps }
    }

    /// CPU time in that span; `None` if no switch is known.
    fn between(&self, from: u64, to: u64) -> Option<u64> {
        let until = |time: u64| {
            let at = self.steps.partition_point(|step| step.0 <= time);
            at.checked_sub(1).map_or(0, |i| had(&self.steps[i], time))
        };
        (!self.steps.is_empty()).then(|| until(to).saturating_sub(until(from)))
    }
}

/// What had been had by `time`, not before the step.
fn had(&(since, had, cpus): &(u64, u64, u64), time: u64) -> u64 {
    had.saturating_add((time - since).saturating_mul(cpus))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, task};
    use super::*;
    use crate::run::Class;
    use crate::units::MS;
    use proptest::prelude::*;

    /// A task of 4 ms every 10 ms.
    fn info() -> TaskInfo {
        TaskInfo { budget: 4 * MS, ..task("a", Class::Reserved, 10 * MS) }
    }

    /// Jobs: release, work and finish, ms; all have 10 ms.
    fn judged(jobs: &[(f64, f64, Option<f64>)], world: World, info: TaskInfo) -> Owed {
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let mut events = Vec::new();
        for (i, (release, work, finish)) in (0..).zip(jobs) {
            let r = ns(*release);
            events.push(Event::new(r, EventKind::Release, i, r + info.deadline).of(0));
            if let Some(finish) = finish {
                events.push(Event::new(ns(*finish), EventKind::Complete, i, ns(*work)).of(0));
            }
        }
        let had = jobs.iter().map(|job| ns(job.1)).sum();
        events.push(Event::new(200 * MS, EventKind::Usage, had, 0).of(0));
        let mut run = run(vec![info], events, 200 * MS);
        run.world = world;
        let (m, tasks) = super::super::detailed(&run);
        assert_eq!((m.owed, m.owed_late), (tasks[0].owed, tasks[0].owed_late));
        let tardiness_max = (m.owed_tardiness_max_ms * 1e6).round() as u64;
        Owed { jobs: m.owed, late: m.owed_late, aborted: m.owed_aborted, tardiness_max }
    }

    fn sim(jobs: &[(f64, f64, Option<f64>)]) -> (u64, u64) {
        let owed = judged(jobs, World::Sim, info());
        (owed.jobs, owed.late)
    }

    #[test]
    fn a_job_of_the_budget_is_owed_and_one_of_a_nanosecond_more_is_not() {
        assert_eq!(sim(&[(0.0, 4.0, Some(10.000_001))]), (1, 1));
        assert_eq!(sim(&[(0.0, 4.0, Some(10.0))]), (1, 0));
        assert_eq!(sim(&[(0.0, 4.000_001, Some(11.0))]), (0, 0));
        let late = judged(&[(0.0, 4.0, Some(13.0))], World::Sim, info());
        assert_eq!(late.tardiness_max, 3 * MS);
    }

    #[test]
    fn backlog_is_worked_off_from_later_windows_before_the_next_job_is_owed() {
        // 9 ms of work: windows of 4, 4 and 1 ms; job 1 (2 ms) fits the third window, which ends 10 ms after its
        // deadline; job 2 (1 ms) fits what is left of it, and is owed by 30 ms; job 3 has a window of its own.
        let late = Some(150.0);
        let jobs = [(0.0, 9.0, late), (10.0, 2.0, late), (20.0, 1.0, late), (30.0, 4.0, late)];
        assert_eq!(sim(&jobs[..1]), (0, 0));
        assert_eq!(sim(&jobs[..2]), (0, 0));
        assert_eq!(sim(&jobs[..3]), (1, 1));
        assert_eq!(sim(&jobs), (2, 2));
        // A nanosecond more, and job 2 is not.
        let more = [jobs[0], jobs[1], (20.0, 1.000_001, late), jobs[3]];
        assert_eq!(sim(&more), (0, 0));
    }

    #[test]
    fn what_a_window_gives_before_a_release_is_lost() {
        // Nothing is saved up from the window of job 0, nor from the pause after it.
        let jobs = [(0.0, 1.0, Some(1.0)), (50.0, 5.0, Some(70.0)), (60.0, 3.0, Some(75.0))];
        assert_eq!(sim(&jobs), (2, 1));
    }

    #[test]
    fn a_late_start_begins_a_window_of_its_own_only_where_the_servers_rule_says_so() {
        // Job 0 ends in its second window, 10 to 20 ms, with 3 ms left. Job 1 comes at 12 ms: 3 ms until 20 ms are
        // less than 4 in 10, so it goes on in that window, and is not done by 22 ms.
        let job = |finish| [(0.0, 5.0, Some(finish)), (12.0, 4.0, Some(30.0))];
        assert_eq!(sim(&job(11.0)), (0, 0));
        // At 13 ms what is left is enough for 7 ms: a new window begins, unless there is still something to do.
        let job = |finish| [(0.0, 5.0, Some(finish)), (13.0, 4.0, Some(30.0))];
        assert_eq!(sim(&job(11.0)), (1, 1));
        assert_eq!(sim(&job(14.0)), (0, 0));
    }

    #[test]
    fn a_job_that_starved_was_owed_and_one_that_used_up_its_share_was_not() {
        let starved = judged(&[(0.0, 3.0, None)], World::Sim, info());
        assert_eq!(starved, Owed { jobs: 1, late: 1, aborted: 0, tardiness_max: 190 * MS });
        assert_eq!(sim(&[(0.0, 4.0, None)]), (0, 0));
        // Two jobs that wait behind it: what it got is worth windows up to 20 ms.
        assert_eq!(sim(&[(0.0, 4.0, None), (10.0, 0.0, None), (20.0, 0.0, None)]), (2, 2));
        assert_eq!(sim(&[(0.0, 8.0, None), (10.0, 0.0, None)]), (0, 0));
    }

    #[test]
    fn who_has_no_reservation_is_owed_nothing() {
        let jobs = [(0.0, 1.0, Some(90.0))];
        let none = |t: TaskInfo| judged(&jobs, World::Sim, t).jobs;
        assert_eq!(none(TaskInfo { budget: 0, ..info() }), 0);
        assert_eq!(none(TaskInfo { period: 0, ..info() }), 0);
        assert_eq!(none(info()), 1);
    }

    #[test]
    fn a_deadline_before_the_period_ends_ends_the_windows() {
        let short = TaskInfo { deadline: 6 * MS, ..info() };
        // The second window of job 0 ends at 16 ms, which is job 1's deadline, too.
        let jobs = [(0.0, 5.0, Some(12.0)), (10.0, 3.0, Some(17.0))];
        assert_eq!((judged(&jobs, World::Sim, short).jobs), 1);
    }

    #[test]
    fn a_deadline_after_the_period_owes_more_than_one_budget() {
        let long = TaskInfo { deadline: 20 * MS, ..info() };
        assert_eq!(judged(&[(0.0, 8.0, Some(25.0))], World::Sim, long.clone()).late, 1);
        assert_eq!(judged(&[(0.0, 8.1, Some(25.0))], World::Sim, long).jobs, 0);
    }

    #[test]
    fn on_a_kernel_a_job_within_50_us_of_the_budget_is_not_owed_and_nothing_adds_up() {
        let lab = |work| judged(&[(0.0, work, Some(11.0))], World::Lab, info()).jobs;
        assert_eq!((lab(3.95), lab(3.951), lab(4.0)), (1, 0, 0));
        let jobs = [(0.0, 3.96, Some(4.0)), (10.0, 3.96, Some(14.0)), (20.0, 3.95, Some(24.0))];
        assert_eq!(judged(&jobs, World::Live, info()).jobs, 1);
    }

    #[test]
    fn work_that_a_program_cannot_tell_is_taken_from_the_switches() {
        let job = |i: u64, kind, t: u64, b| Event::new(t * MS, kind, i, b * MS).of(0);
        let on = |t: u64, kind, cpu| Event::new(t * MS, kind, 0, 0).of(0).on(cpu);
        let events = |second: u64| {
            vec![
                job(0, EventKind::Release, 0, 10),
                on(0, EventKind::Run, 0),
                on(1, EventKind::Run, 1),
                on(2, EventKind::Stop, 0),
                on(second, EventKind::Stop, 1),
                job(0, EventKind::Complete, 12, 0),
            ]
        };
        let late = |second| super::super::metrics(&run(vec![info()], events(second), 50 * MS));
        assert_eq!((late(3).owed_late, late(4).owed_late), (1, 0)); // 2 + 2 ms; 2 + 3 ms
        let unknown = events(3).into_iter().filter(|e| e.kind() != Some(EventKind::Run));
        let unknown = unknown.filter(|e| e.kind() != Some(EventKind::Stop)).collect();
        assert_eq!(super::super::metrics(&run(vec![info()], unknown, 50 * MS)).owed, 0);
    }

    /// One job of 4 ms, due at 10 ms, that ends at 20 ms, with what happened to it meanwhile.
    fn waited(more: &[Event], end: Event) -> (u64, u64) {
        let mut events = vec![Event::new(0, EventKind::Release, 0, 10 * MS).of(0)];
        events.extend_from_slice(more);
        events.push(end);
        events.push(Event::new(200 * MS, EventKind::Usage, 4 * MS, 0).of(0));
        let m = super::super::metrics(&run(vec![info()], events, 200 * MS));
        (m.owed, m.owed_late)
    }

    #[test]
    fn a_job_that_waited_for_a_resource_is_judged_from_when_it_went_on() {
        let end = Event::new(20 * MS, EventKind::Complete, 0, 4 * MS).of(0);
        let on = |ms: u64, used: u64| Event::new(ms * MS, EventKind::Segment, 0, used).of(0);
        assert_eq!(waited(&[], end), (1, 1));
        // Going on at 2 ms with 2 of 4 ms in 8 left, it keeps its window; at 6 ms the rest of 2 ms would be enough for
        // 5, so that a new one begins, which ends after the deadline.
        assert_eq!(waited(&[on(2, 2 * MS)], end), (1, 1));
        assert_eq!(waited(&[on(6, 2 * MS)], end), (0, 0));
        // Of several threads nobody knows.
        assert_eq!(waited(&[on(2, u64::MAX)], end), (0, 0));
    }

    #[test]
    fn a_job_that_is_given_up_was_owed_unless_it_had_its_share_or_waited_for_a_resource() {
        let given_up = |used: u64| Event::new(10 * MS, EventKind::Abort, 0, used * MS).of(0);
        let wait = |kind| Event::new(9 * MS, kind, 0, 0).of(0);
        assert_eq!(waited(&[], given_up(3)), (1, 1));
        assert_eq!(waited(&[], given_up(4)), (0, 0));
        assert_eq!(waited(&[wait(EventKind::Block)], given_up(3)), (0, 0));
        assert_eq!(
            waited(&[wait(EventKind::Block), wait(EventKind::Unblock)], given_up(3)),
            (1, 1)
        );
    }

    proptest! {
        /// The definition, window by window, for jobs released a period apart.
        #[test]
        fn windows_of_a_periodic_task_agree_with_adding_them_up(
            work in proptest::collection::vec(1u64..12, 1..30),
        ) {
            let mut owed = 0;
            let mut taken = vec![0; 1000];
            for (i, w) in work.iter().enumerate() {
                let mut rest = *w;
                let mut window = i;
                loop {
                    let part = rest.min(4 - taken[window]);
                    taken[window] += part;
                    rest -= part;
                    if rest == 0 { break; }
                    window += 1;
                }
                owed += u64::from(window <= i);
            }
            let ms = |i: usize| i as f64 * 10.0;
            let jobs: Vec<_> =
                (0..).zip(&work).map(|(i, w)| (ms(i), *w as f64, Some(ms(i) + 1.0))).collect();
            // Finished far too early for a machine, or far too late: the same jobs are owed.
            let longer: Vec<_> = jobs.iter().map(|j| (j.0, j.1, Some(1900.0))).collect();
            prop_assert_eq!(sim(&jobs), (owed, 0));
            prop_assert_eq!(sim(&longer), (owed, owed));
        }
    }
}
