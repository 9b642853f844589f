// SPDX-License-Identifier: GPL-2.0-only
//! A CPU that goes, and threads that may run nowhere else.

use onbeat_core::ffi;
use onbeat_sim::{Core, NOBODY, Reservation};

use crate::common::reservation;

const MS: u64 = 1_000_000;

/// Two CPUs in one domain; task 0, with a reservation, and task 1, without, may use CPU 1 only.
fn system(kind: usize) -> Core {
    let mut core = Core::new(2, 1, 50, MS, 2, 0);
    core.init_task(0, 0b10, onbeat_sim::NICE_0);
    core.init_task(1, 0b10, onbeat_sim::NICE_0);
    core.reserve(
        0,
        &Reservation {
            cpus: 0b10,
            ..reservation(10 * MS, 20 * MS, kind as u32, ffi::OB_ORDER_EDF)
        },
    );
    core
}

#[test]
fn a_thread_that_waits_for_a_cpu_that_goes_is_given_to_the_others_to_put_there() {
    for kind in 0..onbeat_core::server_policies().len() {
        for task in [0, 1] {
            let mut core = system(kind);
            core.ready(task, 0);
            while core.take_kick().is_some() {}
            core.online(1, false, MS);
            // The shell's part: who is told to pick looks for stranded threads first.
            assert_eq!(core.take_kick(), Some(0), "task {task}");
            assert!(core.strands(), "task {task}");
            assert_eq!(core.pick(0, NOBODY, MS), NOBODY, "it may not run there");
        }
    }
}

#[test]
fn when_the_cpu_comes_back_such_a_thread_runs_there_and_has_its_reservation_again() {
    for kind in 0..onbeat_core::server_policies().len() {
        let mut core = system(kind);
        core.ready(0, 0);
        core.online(1, false, MS);
        core.online(1, true, 2 * MS);
        assert_eq!(core.pick(1, NOBODY, 2 * MS), 0);
        core.run(1, 0, 2 * MS);
        core.stop(1, ffi::OB_STOP_SLEPT, 3 * MS);
        core.sleep(0, 3 * MS);
        // A best-effort thread waits, too: the reservation goes first, and its timer is set.
        core.ready(1, 4 * MS);
        core.ready(0, 4 * MS);
        assert_eq!(core.pick(1, NOBODY, 4 * MS), 0);
        core.run(1, 0, 4 * MS);
        let enforced = !onbeat_core::server_policies()[kind].is_empty();
        assert_eq!(core.timer(1) <= 15 * MS, enforced, "kind {kind}");
    }
}
