// SPDX-License-Identifier: GPL-2.0-only
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
    let (jobs, late, aborted) = (m.owed, m.owed_late, m.owed_aborted);
    Owed { jobs, late, aborted, tardiness_max, ..Owed::default() }
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
    assert_eq!(starved, Owed { jobs: 1, late: 1, tardiness_max: 190 * MS, ..Owed::default() });
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
    assert_eq!(waited(&[wait(EventKind::Block), wait(EventKind::Unblock)], given_up(3)), (1, 1));
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
