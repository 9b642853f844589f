// SPDX-License-Identifier: GPL-2.0-only
//! Each cause by an example that has it and no other.

use super::super::detailed;
use super::*;
use crate::event::NONE;
use crate::metrics::tests::{run, task};
use crate::units::MS;

/// Reserved `a` with 4 ms in 10 ms, reserved `b`, best-effort `c`; on one CPU.
fn tasks() -> Vec<TaskInfo> {
    let a = TaskInfo { budget: 4 * MS, ..task("a", Class::Reserved, 10 * MS) };
    let b = TaskInfo { budget: 4 * MS, ..task("b", Class::Reserved, 10 * MS) };
    vec![a, b, task("c", Class::BestEffort, 0)]
}

fn on(ms: u64, kind: EventKind, a: u64, b: u64, task: u32) -> Event {
    Event::new(ms * MS, kind, a, b).on(0).of(task).by(if task < 2 { task } else { NONE })
}

fn ran(from: u64, until: u64, reason: StopReason, task: u32) -> [Event; 2] {
    // A server's deadline is some time after the job's, as a thread wakes after its release.
    let deadline = (from / 10 * 10 + 11) * MS;
    let run = on(from, EventKind::Run, deadline, MS, task);
    [run, on(until, EventKind::Stop, reason as u64, 0, task)]
}

use crate::event::StopReason::{self, Preempted, Slept};

/// A job of `a` from 0 on, due at 10 ms; it ends so late after so much work.
fn job(end: u64, work: u64) -> Vec<Event> {
    vec![
        Event::new(0, EventKind::Release, 0, 10 * MS).of(0),
        on(0, EventKind::Activate, 4 * MS, 11 * MS, 0),
        Event::new(end * MS, EventKind::Complete, 0, work * MS).of(0),
    ]
}

/// What `a` was late for in that run of 30 ms.
fn cause_in(world: World, events: Vec<Event>) -> (Causes, Vec<LateJob>) {
    let mut events = events;
    events.sort_by_key(|e| e.time);
    let mut run = run(tasks(), events, 30 * MS);
    run.world = world;
    let (all, mut tasks) = detailed(&run);
    let a = tasks.swap_remove(0);
    assert_eq!(a.late_causes.values().sum::<u64>(), a.misses, "each has one");
    assert_eq!(all.late_causes, a.late_causes, "none else was late");
    (a.late_causes, a.late_jobs)
}

fn only(cause: Cause) -> Causes {
    [(cause, 1)].into()
}

#[test]
fn who_waits_for_the_next_budget_is_late_for_the_budget() {
    let mut events = job(13, 5);
    events.extend(ran(0, 4, Preempted, 0));
    events.push(on(4, EventKind::Exhaust, 0, 10 * MS, 0));
    events.push(on(4, EventKind::Throttle, 0, 11 * MS, 0));
    events.extend(ran(4, 12, Slept, 2));
    events.push(on(11, EventKind::Replenish, 4 * MS, 21 * MS, 0));
    events.extend(ran(12, 13, Slept, 0));
    let (causes, jobs) = cause_in(World::Lab, events);
    assert_eq!(causes, only(Cause::Budget));
    assert_eq!((jobs[0].job, jobs[0].tardiness_ms, &jobs[0].by), (0, 3.0, &None));
}

#[test]
fn who_goes_on_behind_others_with_a_later_deadline_is_late_for_the_budget() {
    let mut events = job(13, 5);
    events.extend(ran(0, 4, Preempted, 0));
    events.push(on(4, EventKind::Exhaust, 0, 11 * MS, 0));
    events.push(on(4, EventKind::Replenish, 4 * MS, 21 * MS, 0));
    events.extend(ran(4, 12, Slept, 1));
    events.extend(ran(12, 13, Slept, 0));
    assert_eq!(cause_in(World::Lab, events).0, only(Cause::Budget));
}

#[test]
fn who_just_runs_longer_than_the_budget_is_late_for_the_budget() {
    let mut events = job(12, 12);
    events.extend(ran(0, 12, Slept, 0));
    assert_eq!(cause_in(World::Sim, events).0, only(Cause::Budget));
}

#[test]
fn who_is_within_the_budget_and_waits_for_another_is_late_for_that_one_by_name() {
    let mut events = job(13, 3);
    events.extend(ran(0, 10, Slept, 1));
    events.extend(ran(10, 13, Slept, 0));
    let (causes, jobs) = cause_in(World::Lab, events);
    assert_eq!(causes, only(Cause::Reservation));
    assert_eq!(jobs[0].by.as_deref(), Some("b"));
}

#[test]
fn who_waits_for_best_effort_of_the_run_or_of_a_stranger_is_late_for_that() {
    for holder in [2, NONE] {
        let mut events = job(13, 3);
        events.extend(ran(0, 10, Slept, holder));
        events.extend(ran(10, 13, Slept, 0));
        assert_eq!(cause_in(World::Lab, events).0, only(Cause::BestEffort));
    }
}

#[test]
fn where_nobody_has_the_cpu_on_a_kernel_somebody_of_a_real_time_class_has_it() {
    let mut events = job(13, 3);
    events.extend(ran(0, 1, Preempted, 0));
    events.extend(ran(11, 13, Slept, 0));
    assert_eq!(cause_in(World::Lab, events.clone()).0, only(Cause::RealTime));
    assert_eq!(cause_in(World::Sim, events).0, only(Cause::Unknown), "there are none");
}

#[test]
fn who_has_the_cpu_and_does_not_get_on_is_late_for_interrupts() {
    let mut events = job(13, 3);
    events.extend(ran(0, 13, Slept, 0));
    assert_eq!(cause_in(World::Lab, events).0, only(Cause::Interrupt));
}

#[test]
fn who_sleeps_in_the_midst_of_a_job_is_late_for_itself() {
    let mut events = job(13, 3);
    events.extend(ran(0, 1, Slept, 0));
    events.push(on(1, EventKind::Idle, 3 * MS, 11 * MS, 0));
    events.push(on(11, EventKind::Activate, 4 * MS, 21 * MS, 0));
    events.extend(ran(11, 13, Slept, 0));
    assert_eq!(cause_in(World::Lab, events).0, only(Cause::Blocked));
}

#[test]
fn who_has_no_reservation_is_late_for_its_work_if_that_is_more_than_there_was_time() {
    let mut events = job(13, 13);
    events.extend(ran(0, 13, Slept, 0));
    let mut run = run(tasks(), events, 30 * MS);
    run.tasks[0].budget = 0;
    run.tasks[0].class = Class::Periodic;
    run.sort_events();
    assert_eq!(detailed(&run).1[0].late_causes, only(Cause::Work));
}

#[test]
fn a_job_that_earlier_ones_made_late_has_their_cause() {
    let mut events = job(19, 3);
    events.push(Event::new(10 * MS, EventKind::Release, 1, 20 * MS).of(0));
    events.push(Event::new(21 * MS, EventKind::Complete, 1, 2 * MS).of(0));
    events.extend(ran(0, 16, Slept, 1));
    events.extend(ran(16, 21, Slept, 0));
    let (causes, jobs) = cause_in(World::Lab, events);
    assert_eq!(causes, [(Cause::Reservation, 2)].into());
    assert_eq!(jobs[1].by.as_deref(), Some("b"));
}

#[test]
fn an_unfinished_job_counts_up_to_the_horizon_and_one_given_up_until_then() {
    let mut events = job(0, 0);
    events.retain(|e| e.kind != EventKind::Complete as u32);
    events.extend(ran(0, 1, Preempted, 0));
    assert_eq!(cause_in(World::Lab, events.clone()).0, only(Cause::RealTime));
    events.push(Event::new(10 * MS, EventKind::Abort, 0, MS).of(0));
    let (causes, jobs) = cause_in(World::Lab, events);
    assert_eq!((causes, jobs[0].tardiness_ms), (only(Cause::RealTime), 0.0));
}

#[test]
fn where_nobody_noted_who_ran_there_are_no_causes() {
    let (_, tasks) = detailed(&run(tasks(), job(13, 3), 30 * MS));
    assert_eq!((tasks[0].misses, tasks[0].late_causes.len()), (1, 0));
}

#[test]
fn only_the_latest_jobs_are_listed_and_all_are_counted() {
    let mut events = Vec::new();
    for j in 0..25 {
        // Number 22 is late by 2 ms, all others by one.
        let due = j * 10 + if j == 22 { 1 } else { 2 };
        let release = Event::new(j * 10 * MS, EventKind::Release, j, due * MS).of(0);
        events
            .extend([release, Event::new((j * 10 + 3) * MS, EventKind::Complete, j, 3 * MS).of(0)]);
        events.extend(ran(j * 10, j * 10 + 3, Slept, 0));
    }
    events.sort_by_key(|e| e.time);
    let (_, all) = detailed(&run(tasks(), events, 300 * MS));
    assert_eq!((all[0].misses, all[0].late_jobs.len()), (25, LISTED));
    assert_eq!(all[0].late_causes.values().sum::<u64>(), 25);
    let listed: Vec<u64> = all[0].late_jobs.iter().map(|job| job.job).collect();
    assert_eq!(listed, (0..9).chain([22]).collect::<Vec<_>>());
}

#[test]
fn in_words_the_most_frequent_comes_first() {
    let causes = [(Cause::RealTime, 3), (Cause::Budget, 1), (Cause::Work, 1)].into();
    assert_eq!(in_words(&causes), "3 real-time class, 1 budget spent, 1 more work than time");
    assert_eq!(in_words(&Causes::new()), "");
}

proptest::proptest! {
    #[test]
    fn whatever_the_events_each_late_job_has_one_cause(
        raw in proptest::collection::vec((0u64..40, 1u32..27, 0u32..4, 0u32..3, 0u64..30, 0u64..40), 0..60),
    ) {
        let event = |(time, kind, cpu, task, a, b): (u64, u32, u32, u32, u64, u64)| {
            let kind = EventKind::from_u32(kind).expect("one of all");
            // A release's deadline is not before it.
            let b = if kind == EventKind::Release { time + b } else { b };
            Event::new(time, kind, a, b).on(cpu).of(task).by(task)
        };
        let events: Vec<Event> = raw.into_iter().map(event).collect();
        let known = events.iter().any(|e| e.kind == EventKind::Run as u32);
        let (all, tasks) = detailed(&run(tasks(), events, 45));
        for t in tasks.iter().filter(|t| t.class != Class::BestEffort && known) {
            proptest::prop_assert_eq!(t.late_causes.values().sum::<u64>(), t.misses);
        }
        proptest::prop_assert!(!known || all.late_causes.values().sum::<u64>() == all.misses);
    }
}
