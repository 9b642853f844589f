// SPDX-License-Identifier: GPL-2.0-only
//! Budgets that change while they are in force: from the next period on, and nobody else feels it.

use onbeat_model::event::EventKind;
use onbeat_model::policy::Server;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation, SHARE_QUANTUM};

use crate::common::reservation;

const MS: u64 = 1_000_000;

/// Reservations of these budgets every 10 ms on one CPU, each for a thread that never sleeps.
fn hogs(budgets: &[u64], server: &str) -> Engine {
    let mut core = Core::new(1, 1, 0, SHARE_QUANTUM, budgets.len(), 1 << 14);
    let kind = Server::ALL.iter().position(|s| s.name() == server).unwrap() as u32;
    let mut loads = Vec::new();
    for (i, budget) in budgets.iter().enumerate() {
        core.init_task(i, 1, NICE_0);
        core.reserve(i, &reservation(*budget, 10 * MS, kind, 0));
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

/// A thread whose jobs take just its budget, one that never sleeps and whose budget changes at random, and one that
/// always wants more than its own: of `jobs` of the first how many are late.
fn late_while_another_shrinks_and_grows(server: &str, seed: u64, jobs: usize) -> usize {
    let mut random = seed;
    let mut below = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let kind = Server::ALL.iter().position(|s| s.name() == server).unwrap() as u32;
    let periods = [(4 + below(20)) * MS, (4 + below(20)) * MS, (4 + below(20)) * MS];
    // Together they want all of the CPU.
    let parts = [300 + below(300), 200 + below(150)];
    let budget = |i: usize, part: u64| (periods[i] * part / 1000).max(1);
    let budgets = [budget(0, parts[0]), budget(1, parts[1]), budget(2, 1000 - parts[0] - parts[1])];
    let first = below(20) * MS;
    let mut core = Core::new(1, 1, 0, SHARE_QUANTUM, 3, 1 << 14);
    let mut loads = Vec::new();
    for (i, (budget, period)) in budgets.into_iter().zip(periods).enumerate() {
        core.init_task(i, 1, NICE_0);
        core.reserve(i, &reservation(budget, period, kind, 0));
        loads.push(Load::Endless);
    }
    loads[0] = Load::Jobs {
        first,
        period: periods[0],
        delays: Vec::new(),
        deadline: periods[0],
        times: vec![budgets[0]; jobs],
        marks: false,
    };
    let mut engine = Engine::new(core, 1, loads, Overheads::default(), Detail::Jobs);
    let (mut now, end) = (0, periods[0] * (jobs as u64 + 2) + 20 * MS);
    while now < end {
        now += below(3 * periods[1]) + 1;
        engine.run(now, end);
        let budget = (budgets[1] * below(1001) / 1000).max(MS / 10).min(budgets[1]);
        engine.change(|core, now| core.resize(1, budget, now));
    }
    let events = engine.finish();
    let done = events.iter().filter(|e| e.kind() == Some(EventKind::Complete) && e.task == 0);
    let due = |job: u64| first + (job + 1) * periods[0];
    jobs - done.filter(|e| e.time <= due(e.a)).count()
}

#[test]
fn nobody_is_late_while_a_neighbour_s_budget_shrinks_and_grows_and_another_takes_slack() {
    for server in ["cbs-hard", "cbs", "cbs-slack", "cbs-predict"] {
        for seed in 1..300 {
            let late = late_while_another_shrinks_and_grows(server, seed * 0x9e37_79b9, 50);
            assert_eq!(late, 0, "{server}, seed {seed}");
        }
    }
}

/// 2 ms in 20 by a deadline of 5 ms, used up at once: the next comes at 20 ms, for whatever period.
#[test]
fn who_rests_has_its_next_deadline_no_sooner_for_a_shorter_period() {
    for server in ["cbs-hard", "cash"] {
        let kind = Server::ALL.iter().position(|s| s.name() == server).unwrap() as u32;
        let mut core = Core::new(1, 1, 0, SHARE_QUANTUM, 2, 1 << 14);
        core.init_task(0, 1, NICE_0);
        let of = reservation(2 * MS, 20 * MS, kind, 0);
        core.reserve(0, &Reservation { deadline: 5 * MS, ..of });
        core.init_task(1, 1, NICE_0);
        let loads = vec![Load::Endless, Load::Endless];
        let mut engine = Engine::new(core, 1, loads, Overheads::default(), Detail::All);
        engine.run(10 * MS, 10 * MS);
        engine.change(|core, now| core.resize_to(0, 2 * MS, 12 * MS, now));
        engine.run(20 * MS + MS / 2, 20 * MS + MS / 2);
        assert_eq!(engine.core().server(0).s, 25 * MS, "{server}");
        engine.run(32 * MS + MS / 2, 32 * MS + MS / 2);
        assert_eq!(engine.core().server(0).s, 37 * MS, "{server}");
    }
}
