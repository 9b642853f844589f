// SPDX-License-Identifier: GPL-2.0-only
//! The measure of the promise: which jobs a reservation owed to their tasks. docs/events.md has the definition.

use std::collections::BTreeSet;

use super::jobs::{Jobs, Segment};
use crate::event::{Event, EventKind};
use crate::run::{Class, Run, TaskInfo, World};

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
    /// `None` for a task that has no reservation, or one that depends on others'.
    fn of(task: &TaskInfo) -> Option<Self> {
        let (budget, period) = (task.budget, task.period);
        let deadline = task.deadline.min(period);
        let some = budget > 0 && deadline > 0 && task.class != Class::Member;
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owed {
    pub jobs: u64,
    pub late: u64,
    /// Indices of the late ones, ascending.
    pub late_jobs: Vec<u64>,
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
            let late = tardiness > 0 || job.finish().is_none();
            owed.late += u64::from(late);
            owed.late_jobs.extend(late.then_some(job.index));
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
mod tests;
