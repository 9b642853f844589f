// SPDX-License-Identifier: GPL-2.0-only
//! Budgets that change while they are in force: from the next period on, and nobody else feels it.

use onbeat_model::policy::Server;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation, SHARE_QUANTUM};

const MS: u64 = 1_000_000;

/// Reservations of these budgets every 10 ms on one CPU, each for a thread that never sleeps.
fn hogs(budgets: &[u64], server: &str) -> Engine {
    let mut core = Core::new(1, 1, 0, SHARE_QUANTUM, budgets.len(), 1 << 14);
    let kind = Server::ALL.iter().position(|s| s.name() == server).unwrap() as u32;
    let mut loads = Vec::new();
    for (i, budget) in budgets.iter().enumerate() {
        core.init_task(i, 1, NICE_0);
        let (period, deadline) = (10 * MS, 10 * MS);
        let (budget, split) = (*budget, None);
        let at = Reservation {
            budget,
            period,
            deadline,
            cpus: 1,
            domain: 0,
            kind,
            order: 0,
            marks: false,
            split,
        };
        core.reserve(i, &at);
        loads.push(Load::Endless);
    }
    Engine::new(core, 1, loads, Overheads::default(), Detail::All)
}

#[test]
fn a_hard_budget_that_changes_is_had_from_the_next_period_on_and_a_neighbour_feels_nothing() {
    let mut engine = hogs(&[2 * MS, 3 * MS], "cbs-hard");
    let used = |engine: &Engine| [0, 1].map(|i| engine.core().server(i).consumed);
    let mut until = 0;
    let mut periods = |engine: &mut Engine, count: u64| {
        let before = used(engine);
        until += count * 10 * MS;
        engine.run(until, until);
        let after = used(engine);
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(periods(&mut engine, 10), [20 * MS, 30 * MS]);
    engine.change(|core, now| core.resize(0, 5 * MS, now));
    let [first, other] = periods(&mut engine, 10);
    // The one it is in may be of the old budget.
    assert!((47 * MS..=50 * MS).contains(&first) && other == 30 * MS, "{first} {other}");
    assert_eq!(periods(&mut engine, 10), [50 * MS, 30 * MS]);
    engine.change(|core, now| core.resize(0, MS, now));
    let [first, other] = periods(&mut engine, 10);
    assert!((10 * MS..=14 * MS).contains(&first) && other == 30 * MS, "{first} {other}");
    assert_eq!(periods(&mut engine, 10), [10 * MS, 30 * MS]);
}

#[test]
fn what_lends_counts_with_its_new_budget() {
    for server in ["cbs-slack", "cbs-predict"] {
        let mut engine = hogs(&[2 * MS, 3 * MS], server);
        engine.run(100 * MS, 100 * MS);
        let pledged = |engine: &Engine| {
            let sv = engine.core().server(0);
            // SAFETY: a domain of the engine's core.
            (sv.share, unsafe { (*sv.domain).bandwidth })
        };
        let before = pledged(&engine);
        engine.change(|core, now| core.resize(0, 4 * MS, now));
        let after = pledged(&engine);
        assert!(
            after.0 > before.0 && after.1 - after.0 == before.1 - before.0,
            "{before:?} {after:?}"
        );
        engine.change(|core, now| core.resize(0, 2 * MS, now));
        assert_eq!(pledged(&engine), before);
        engine.run(200 * MS, 200 * MS);
    }
}
