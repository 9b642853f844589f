// SPDX-License-Identifier: GPL-2.0-only
//! Programs that mark their jobs: what a mark begins, and what it does not.

use onbeat_analysis::plan::Split;
use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::metrics::metrics;
use onbeat_model::policy::{CORE, Order};
use onbeat_model::taskset::{Overheads, TaskSet};
use onbeat_sim::{Core, Detail, Engine, Load, NOBODY, Reservation, simulate};

const MS: u64 = 1_000_000;

/// First release, execution times, period and deadline in ms; the first execution time is the budget.
type Job<'a> = (u64, &'a [u64], u64, u64);

/// When each job of the tasks ends, in ms, on one CPU under EDF. Every task marks its jobs.
fn ends(kind: usize, tasks: &[Job]) -> Vec<Vec<u64>> {
    let mut core = Core::new(1, 1, 0, 0, tasks.len(), 0);
    let mut loads = Vec::new();
    for (i, (first, works, period, deadline)) in tasks.iter().enumerate() {
        core.init_task(i, 1, onbeat_sim::NICE_0);
        core.reserve(
            i,
            &Reservation {
                budget: works[0] * MS,
                period: period * MS,
                deadline: deadline * MS,
                cpus: 1,
                domain: 0,
                kind: kind as u32,
                order: ffi::OB_ORDER_EDF,
                marks: true,
                apart: false,
                split: None,
            },
        );
        loads.push(Load::Jobs {
            first: first * MS,
            period: period * MS,
            delays: Vec::new(),
            deadline: deadline * MS,
            times: works.iter().map(|ms| ms * MS).collect(),
            marks: true,
        });
    }
    let mut engine = Engine::new(core, 1, loads, Overheads::default(), Detail::Jobs);
    engine.run(0, 10_000 * MS);
    let mut ends = vec![Vec::new(); tasks.len()];
    for event in engine.finish() {
        if event.kind() == Some(EventKind::Complete) {
            ends[event.task as usize].push(event.time / MS);
        }
    }
    ends
}

#[test]
fn who_marks_and_sleeps_has_the_deadline_of_the_release_not_of_the_mark() {
    for (kind, server) in onbeat_core::server_policies().iter().enumerate() {
        // The first task's second job is due at 20, the second task's at 15: that goes on at 10.
        let ends = ends(kind, &[(0, &[3, 3], 10, 10), (9, &[5], 100, 6)]);
        assert_eq!(ends, [vec![3, 17], vec![14]], "{server:?}");
    }
}

#[test]
fn a_job_that_ends_when_the_next_is_released_does_not_lend_it_its_deadline() {
    for (kind, server) in onbeat_core::server_policies().iter().enumerate() {
        // The first task is never asleep; its second job, due at 20, does not go before one due at 16.
        let ends = ends(kind, &[(0, &[10, 3], 10, 10), (11, &[2], 100, 5)]);
        assert_eq!(ends, [vec![10, 15], vec![13]], "{server:?}");
    }
}

#[test]
fn what_a_program_does_while_it_starts_up_gives_its_first_job_no_deadline() {
    for (kind, server) in onbeat_core::server_policies().iter().enumerate() {
        let mut core = Core::new(1, 1, 0, 0, 1, 0);
        core.init_task(0, 1, onbeat_sim::NICE_0);
        core.reserve(
            0,
            &Reservation {
                budget: 5 * MS,
                period: 10 * MS,
                deadline: 8 * MS,
                cpus: 1,
                domain: 0,
                kind: kind as u32,
                order: ffi::OB_ORDER_EDF,
                marks: true,
                apart: false,
                split: None,
            },
        );
        core.ready(0, 0);
        runs(&mut core, 0, 0, MS);
        core.sleep(0, MS);
        core.ready(0, 500 * MS);
        assert_eq!(core.server(0).s, 508 * MS, "{server:?}");
    }
}

/// Two CPUs, one reservation of 10 in 20 ms split evenly over both, in windows of 10 ms.
fn split() -> Core {
    let mut core = Core::new(2, 2, 0, 0, 1, 0);
    core.init_task(0, 0b11, onbeat_sim::NICE_0);
    let shares = vec![(0, 5 * MS), (1, 5 * MS)];
    core.reserve(
        0,
        &Reservation {
            budget: 10 * MS,
            period: 20 * MS,
            deadline: 20 * MS,
            cpus: 1,
            domain: 0,
            kind: ffi::OB_KIND_CBS,
            order: ffi::OB_ORDER_EDF,
            marks: true,
            apart: false,
            split: Some(Split { window: 10 * MS, postponed: false, shares }),
        },
    );
    core
}

/// Runs its task on `cpu` from `from` to `to`.
fn runs(core: &mut Core, cpu: u32, from: u64, to: u64) {
    assert_eq!(core.pick(cpu, NOBODY, from), 0);
    core.run(cpu, 0, from);
    core.tick(cpu, to);
    core.stop(cpu, ffi::OB_STOP_PREEMPTED, to);
}

#[test]
fn a_cycle_that_a_mark_began_early_begins_whole_when_its_job_comes() {
    for (sleeps_until, used_up) in
        [(20 * MS, true), (24 * MS, true), (20 * MS, false), (24 * MS, false)]
    {
        let mut core = split();
        core.ready(0, 0);
        runs(&mut core, 0, 0, 5 * MS);
        core.ready(0, 13 * MS);
        let end = if used_up { 18 * MS } else { 19 * MS };
        runs(&mut core, 1, if used_up { 13 * MS } else { 18 * MS }, end);
        // The cycle of 20 ms begins when the last share is used up; no sooner, for a mark is no sleep.
        core.mark(0, end);
        assert_eq!(core.server(0).windows.cycle, if used_up { 20 * MS } else { 0 });
        core.sleep(0, end);
        core.ready(0, sleeps_until);
        let server = core.server(0);
        assert_eq!(
            (server.windows.cycle, server.windows.leg, server.e),
            (sleeps_until, 0, 5 * MS as i64)
        );
        assert_eq!(server.s, sleeps_until + 10 * MS);
    }
}

#[test]
fn a_second_job_in_the_same_cycle_gets_no_budget_of_its_own() {
    let mut core = split();
    core.ready(0, 0);
    runs(&mut core, 0, 0, 2 * MS);
    core.mark(0, 2 * MS);
    core.sleep(0, 2 * MS);
    core.ready(0, 4 * MS);
    let server = core.server(0);
    assert_eq!((server.windows.cycle, server.windows.leg, server.e), (0, 0, 3 * MS as i64));
    // And a whole window for what is left: in less it would be more than its CPU was tested for.
    assert_eq!((server.s, server.shift), (14 * MS, 4 * MS));
}

/// Owed jobs that are late, in a set of two tasks on one CPU.
fn owed_late(policy: &str, tasks: &[(u64, u64, &str, bool)], seed: u64) -> u64 {
    let mut text = format!("cpus = 1\nduration = \"3s\"\nseed = {seed}\n");
    for (i, (period, budget, work, marks)) in tasks.iter().enumerate() {
        text += &format!(
            "[[task]]\nname = \"{i}\"\nperiod = \"{period}ns\"\nbudget = \"{budget}ns\"\nmarks = {marks}\n\
             work = {work}\n"
        );
    }
    let set = TaskSet::from_bytes(text.as_bytes(), "set.toml".as_ref()).unwrap();
    let policy = CORE.iter().find(|p| p.name == policy).unwrap();
    let run = simulate(&set, policy).unwrap();
    metrics(&run).owed_late
}

#[test]
fn who_is_behind_and_marks_a_job_is_late_for_nobody_but_itself() {
    // A mark that began a new pair, less than Q/P from when the last one did, made these late by 798 and 111 ms.
    let first = [
        (1_601_000_000, 284_275_132, "{ constant = \"341130158ns\" }", true),
        (70_956_000, 54_809_181, "{ constant = \"164427544ns\" }", false),
    ];
    let second = [
        (4_578_000, 2_886_752, "{ constant = \"2886752ns\" }", false),
        (4_896_000, 1_563_924, "{ uniform = [\"1ns\", \"3127849ns\"] }", true),
    ];
    // What was left of a budget at a mark went to who had run dry, and was missing in the next job: 15 ms late.
    let third = [
        (28_566_000, 16_036_676, "{ constant = \"19244011ns\" }", true),
        (29_064_000, 11_280_019, "{ uniform = [\"1ns\", \"22560038ns\"] }", true),
    ];
    for policy in CORE.iter().filter(|p| p.order == Order::PARTITIONED_EDF && p.server.isolates()) {
        for (tasks, seed) in [(first, 315309921), (second, 315309921), (third, 1)] {
            assert_eq!(owed_late(policy.name, &tasks, seed), 0, "{}", policy.name);
        }
    }
}
