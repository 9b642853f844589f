// SPDX-License-Identifier: GPL-2.0-only
//! Programs that mark their jobs: what a mark begins, and what it does not.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation};

const MS: u64 = 1_000_000;

/// First release, execution times, period and deadline in ms; the first execution time is the budget.
type Job<'a> = (u64, &'a [u64], u64, u64);

/// When each job of the tasks ends, in ms, on one CPU under EDF. Every task marks its jobs.
fn ends(kind: usize, tasks: &[Job]) -> Vec<Vec<u64>> {
    let mut core = Core::new(1, 1, 0, 0, tasks.len(), 0);
    let mut loads = Vec::new();
    for (i, (first, works, period, deadline)) in tasks.iter().enumerate() {
        core.init_task(i, 1, 100);
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
