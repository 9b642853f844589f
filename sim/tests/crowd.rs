// SPDX-License-Identifier: GPL-2.0-only
//! Crowds of best-effort threads on one CPU: each has its turn before the kernel's watchdog ends the scheduler (10
//! s), with nothing reserved, beside a full reservation and beside one that spins on nothing.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::others::Others;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// What the watchdog takes, less some.
const WATCHDOG: u64 = 9 * S;

/// The longest that one of `crowd` endless threads of one CPU waits in 30 s, ns, beside a reservation of budget and
/// period under `policy` whose program never sleeps, in
/// whatever order.
fn longest_wait(crowd: usize, beside: Option<(u64, u64)>, policy: &str) -> u64 {
    let under = |order| longest_wait_under(order, crowd, beside, policy);
    Others::ALL.iter().map(|order| under(*order)).max().unwrap()
}

/// The same with best effort in that order.
fn longest_wait_under(
    order: Others,
    crowd: usize,
    beside: Option<(u64, u64)>,
    policy: &str,
) -> u64 {
    let mut core = Core::new(1, 1, 50, MS, crowd + 1, 1 << 14);
    core.among_others(order.number());
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy);
    let mut loads = Vec::new();
    core.init_task(0, 1, onbeat_sim::NICE_0);
    if let Some((budget, period)) = beside {
        core.reserve(
            0,
            &Reservation {
                budget,
                period,
                deadline: period,
                cpus: 1,
                domain: 0,
                kind: kind.expect("a policy") as u32,
                order: ffi::OB_ORDER_EDZL,
                marks: false,
                apart: false,
                split: None,
            },
        );
    }
    loads.push(Load::Jobs {
        first: 0,
        period: 100 * S,
        delays: Vec::new(),
        deadline: 100 * S,
        times: vec![if beside.is_some() { 60 * S } else { MS }],
        marks: false,
    });
    for i in 0..crowd {
        core.init_task(i + 1, 1, onbeat_sim::NICE_0);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, 1, loads, Overheads::default(), Detail::All);
    let end = engine.run(30 * S, 30 * S);
    let mut since = vec![0; crowd + 1];
    let mut longest = 0;
    for event in engine.finish().iter().filter(|e| (e.task as usize) <= crowd) {
        let since = &mut since[event.task as usize];
        match event.kind() {
            Some(EventKind::Run) => longest = longest.max(event.time - *since),
            Some(EventKind::Stop) => *since = event.time,
            _ => (),
        }
    }
    // The first is the reservation's, or the best-effort thread that has gone.
    longest.max(since[1..].iter().map(|s| end - s).max().unwrap_or(0))
}

#[test]
fn ten_thousand_threads_have_their_turns_where_nothing_is_reserved() {
    let longest = longest_wait(10_000, None, "cbs");
    assert!(longest < WATCHDOG, "{longest} ns");
}

#[test]
fn thousands_have_their_turns_in_the_share_that_a_full_reservation_leaves() {
    for policy in ["cbs-hard", "cbs", "cbs-slack", "cbs-predict"] {
        let longest = longest_wait(3_000, Some((19 * MS, 20 * MS)), policy);
        assert!(longest < WATCHDOG, "{policy}: {longest} ns");
    }
}

#[test]
fn hundreds_have_their_turns_beside_a_tiny_reservation_that_spins() {
    for policy in ["cbs-hard", "cbs", "cbs-slack", "cbs-predict"] {
        let longest = longest_wait(700, Some((50_000, 3600 * S)), policy);
        assert!(longest < WATCHDOG, "{policy}: {longest} ns");
    }
}
