// SPDX-License-Identifier: GPL-2.0-only
//! Threads bound to a CPU that cannot give them what they have reserved fall behind for ever. Once they are free they may
//! not make up for all of it at the expense of others.

mod common;

use common::policy;
use onbeat_core::ffi;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 20 * MS;
/// Of the two that never sleep, and of the one with jobs; 1.7 of 1.9 CPUs.
const BUDGETS: [u64; 3] = [12 * MS, 12 * MS, 10 * MS];
const WORK: u64 = 9_900_000;

/// By how much the one with jobs was late, ns, when two others, bound to a CPU for eight seconds, are free again.
fn late_beside(name: &str) -> u64 {
    let policy = policy(name);
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    let order = if name.starts_with("g-edzl") { ffi::OB_ORDER_EDZL } else { ffi::OB_ORDER_EDF };
    let mut core = Core::new(2, policy.order.domains(2, 1), 50, MS, 4, 1 << 14);
    for (i, budget) in BUDGETS.into_iter().enumerate() {
        core.init_task(i, if i < 2 { 1 } else { 3 }, NICE_0);
        let terms = Reservation {
            budget,
            period: PERIOD,
            deadline: PERIOD,
            cpus: 3,
            domain: 0,
            kind: kind.unwrap() as u32,
            order,
            marks: false,
            split: None,
        };
        core.reserve(i, &terms);
    }
    core.init_task(3, 3, NICE_0);
    let jobs = 1000;
    let (delays, times) = (vec![0; jobs], vec![WORK; jobs]);
    let with_jobs =
        Load::Jobs { first: 0, period: PERIOD, delays, deadline: PERIOD, times, marks: false };
    let loads = vec![Load::Endless, Load::Endless, with_jobs, Load::Endless];
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::All);
    engine.run(0, 8_000 * MS);
    assert_eq!(engine.core().server(2).misses, 0, "{name}: it has the other CPU");
    engine.change(|core, now| {
        core.affinity(0, 3, now);
        core.affinity(1, 3, now);
    });
    engine.run(0, 16_000 * MS);
    engine.core().server(2).tardiness_max
}

#[test]
fn who_was_bound_to_a_full_cpu_and_is_free_again_makes_nobody_late() {
    for server in ["cbs", "cbs-hard", "cbs-slack", "cbs-predict"] {
        assert_eq!(late_beside(&format!("g-edzl+{server}")), 0, "{server}");
    }
}

#[test]
fn where_lateness_is_kept_for_long_it_does_so_these_neighbours_are_hostile() {
    // Global EDF isolates nobody, and keeps deadlines for the sake of its bounds.
    assert!(late_beside("g-edf+cbs-hard") > 1000 * MS);
}
