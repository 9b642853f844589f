// SPDX-License-Identifier: GPL-2.0-only
//! Turns and patience on one CPU: each thread of a reservation gets its turns, and whoever wants to run does within
//! seconds, whatever the policy makes of the others. (The kernel ends a scheduler that keeps a thread waiting for 10
//! s.)

use std::path::Path;

use crate::common::reservation;
use crate::common::shell::{Part, endless, play};
use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::policy::CORE;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::{Core, simulate};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// `OB_PATIENCE`, and what may run before who has lost it.
const PATIENT: u64 = 3_100 * MS;

/// One CPU, `tasks` tasks, a share for best effort.
fn core(tasks: usize, share: u32) -> Core {
    let mut core = Core::new(1, 1, share, MS, tasks, 0);
    (0..tasks).for_each(|i| core.init_task(i, 1, onbeat_sim::NICE_0));
    core
}

fn kinds() -> std::ops::Range<u32> {
    0..onbeat_core::server_policies().len() as u32
}

fn kind(name: &str) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == name).unwrap() as u32
}

#[test]
fn siblings_share_evenly_though_each_is_interrupted_before_its_turn_is_over() {
    for kind in kinds() {
        let mut core = core(4, 0);
        core.reserve(0, &reservation(80 * MS, 100 * MS, kind, ffi::OB_ORDER_RM));
        core.join(1, 0);
        core.join(2, 0);
        // Turns are 4 ms; this one comes every 2 ms.
        core.reserve(3, &reservation(200 * US, 2 * MS, kind, ffi::OB_ORDER_RM));
        let often = Part { first: 0, work: 100 * US, period: 2 * MS };
        let got = play(core, &[endless(0), endless(0), endless(0), often], 1000 * MS);
        let most = got[..3].iter().map(|g| g.had).max().unwrap();
        let least = got[..3].iter().map(|g| g.had).min().unwrap();
        assert!(most - least <= 8 * MS, "kind {kind}: {got:?}");
        assert!(least > 200 * MS, "kind {kind}: {got:?}");
    }
}

#[test]
fn threads_of_a_hard_reservation_that_rests_for_long_run_within_seconds_and_little_beyond_its_budget()
 {
    for siblings in [2, 3, 70, 1000] {
        for hogs in [0, 3] {
            let mut core = core(siblings + hogs, 50);
            let tiny = reservation(50 * US, 8_000 * MS, kind("cbs-hard"), ffi::OB_ORDER_EDF);
            core.reserve(0, &tiny);
            (1..siblings).for_each(|i| core.join(i, 0));
            let got = play(core, &vec![endless(0); siblings + hogs], 60_000 * MS);
            let longest = got[..siblings].iter().map(|g| g.waited).max().unwrap();
            assert!(longest <= 9_500 * MS, "{siblings} beside {hogs}: {longest}");
            // A slice of best effort every 3 s, and the budgets.
            let total: u64 = got[..siblings].iter().map(|g| g.had).sum();
            let most = siblings as u64 * 21 * 4 * MS + 8 * 50 * US;
            assert!(total <= most, "{siblings} beside {hogs}: {total}");
        }
    }
}

#[test]
fn siblings_share_evenly_though_their_budget_ends_with_a_turn() {
    for kind in kinds() {
        for budget in 1..6 {
            let mut core = core(3, 0);
            core.reserve(0, &reservation(budget * MS, 20 * MS, kind, ffi::OB_ORDER_EDF));
            core.join(1, 0);
            core.join(2, 0);
            let got = play(core, &[endless(0); 3], 6_000 * MS);
            let total: u64 = got.iter().map(|g| g.had).sum();
            let least = got.iter().map(|g| g.had).min().unwrap();
            assert!(least * 4 > total, "kind {kind}, {budget} ms: {got:?}");
        }
    }
}

#[test]
fn a_crowd_in_a_small_reservation_takes_turns_short_enough_for_all_to_run_within_seconds() {
    for kind in kinds() {
        let mut core = core(41, 0);
        core.reserve(0, &reservation(3 * MS, 300 * MS, kind, ffi::OB_ORDER_EDF));
        (1..40).for_each(|i| core.join(i, 0));
        core.reserve(40, &reservation(9_900 * US, 10 * MS, kind, ffi::OB_ORDER_EDF));
        let mut parts = vec![endless(0); 40];
        parts.push(Part { first: 0, work: 9_900 * US, period: 10 * MS });
        let got = play(core, &parts, 30_000 * MS);
        assert!(got[..40].iter().all(|g| g.waited < 9_000 * MS), "kind {kind}: {got:?}");
    }
}

#[test]
fn every_sibling_gets_a_turn_when_their_reservation_has_lost_its_patience() {
    // Kind 0 has no server: the first reservation never ends, and is before the other for ever.
    let mut core = core(6, 0);
    core.reserve(0, &reservation(MS, 10 * MS, 0, ffi::OB_ORDER_RM));
    core.reserve(1, &reservation(MS, 100 * MS, 0, ffi::OB_ORDER_RM));
    (2..6).for_each(|i| core.join(i, 1));
    let got = play(core, &[endless(0); 6], 5_000 * MS);
    assert!(got[1..6].iter().all(|g| g.had >= 4 * MS), "{got:?}");
    assert!(got[0].had > 4_800 * MS, "{got:?}");
}

#[test]
fn nor_does_a_used_up_budget_take_these_turns_away() {
    for (kind, budget, threads) in [("cbs", 1, 2), ("cbs", 3, 4), ("fcbs", 1, 2)] {
        let mut core = core(threads + 1, 0);
        core.reserve(0, &reservation(5 * MS, 10 * MS, self::kind(kind), ffi::OB_ORDER_RM));
        core.reserve(1, &reservation(budget * MS, 100 * MS, self::kind(kind), ffi::OB_ORDER_RM));
        (2..=threads).for_each(|i| core.join(i, 1));
        let got = play(core, &vec![endless(0); threads + 1], 30_000 * MS);
        assert!(got.iter().all(|g| g.waited < 2 * PATIENT), "{kind} {budget} ms: {got:?}");
    }
}

#[test]
fn whoever_used_idle_time_is_served_within_seconds_when_others_come() {
    for kind in kinds() {
        for order in [ffi::OB_ORDER_EDF, ffi::OB_ORDER_EDZL, ffi::OB_ORDER_RM] {
            // Alone for 30 s it has pushed a soft server's deadline 270 s ahead.
            let mut core = core(2, 0);
            core.reserve(0, &reservation(MS, 10 * MS, kind, order));
            core.reserve(1, &reservation(5 * MS, 10 * MS, kind, order));
            let got = play(core, &[endless(0), endless(30_000 * MS)], 90_000 * MS);
            assert!(got.iter().all(|g| g.waited < PATIENT), "kind {kind}, order {order}: {got:?}");
        }
    }
}

#[test]
fn who_is_urgent_and_passes_a_baton_does_not_stay_so_for_ever() {
    let mut core = core(3, 0);
    core.reserve(0, &reservation(MS, 10 * MS, 0, ffi::OB_ORDER_RM));
    core.reserve(1, &reservation(MS, 100 * MS, 0, ffi::OB_ORDER_RM));
    core.join(2, 1);
    // Its two threads are awake in turns, so that its job never ends.
    let first = Part { first: 0, work: 110 * US, period: 200 * US };
    let second = Part { first: 100 * US, ..first };
    let got = play(core, &[endless(0), first, second], 30_000 * MS);
    assert!(got.iter().all(|g| g.waited < 2 * PATIENT), "{got:?}");
}

#[test]
fn kernel_threads_that_wake_each_other_do_not_keep_best_effort_waiting() {
    let mut core = core(4, 50);
    core.reserve(0, &reservation(10 * MS, 10 * MS, 0, ffi::OB_ORDER_EDF));
    core.kernel_thread(1);
    core.kernel_thread(2);
    let first = Part { first: 0, work: 60 * US, period: 100 * US };
    let got =
        play(core, &[endless(0), first, Part { first: 50 * US, ..first }, endless(0)], 30_000 * MS);
    assert!(got.iter().all(|g| g.waited < PATIENT + 1_000 * MS), "{got:?}");
}

/// When two loops that reserve nothing have taken turns on one CPU, ns.
fn changes(ticks: &str) -> Vec<u64> {
    let text = format!(
        r#"
        cpus = 1
        duration = "1s"
        best_effort_share = "5%"
        best_effort = {{ count = 2, order = "berate" }}
        [overheads]
        {ticks}
        [[task]]
        name = "seldom"
        period = "900ms"
        offset = "800ms"
        work = {{ constant = "10us" }}
        "#
    );
    let set = TaskSet::from_bytes(text.as_bytes(), Path::new("ticks.toml")).unwrap();
    let run = simulate(&set, CORE.iter().find(|p| p.name == "g-edf").unwrap()).unwrap();
    let loops = run.events.iter().filter(|e| e.kind() == Some(EventKind::Run) && e.task > 0);
    let times: Vec<u64> =
        loops.map(|e| e.time).filter(|t| (100 * MS..790 * MS).contains(t)).collect();
    assert!(times.len() > 60, "{ticks}: {times:?}");
    times
}

#[test]
fn a_turn_of_best_effort_ends_with_the_first_tick_after_three_and_a_half_ms_where_there_are_ticks()
{
    let spans = |times: &[u64]| -> Vec<u64> { times.windows(2).map(|w| w[1] - w[0]).collect() };
    for (tick, phase, span) in [(4_000, 1_300, 4_000), (1_000, 700, 4_000), (10_000, 0, 10_000)] {
        let times = changes(&format!("tick = \"{tick}us\"\ntick_phase = \"{phase}us\""));
        assert!(times.iter().all(|t| t % (tick * US) == phase * US), "{tick}: {times:?}");
        assert!(spans(&times).iter().all(|s| *s == span * US), "{tick}: {times:?}");
    }
    // Else after 4 ms, whenever it began; or who runs goes on for another turn.
    let spans = spans(&changes(""));
    assert!(spans.iter().all(|s| s.is_multiple_of(4 * MS)), "{spans:?}");
}
