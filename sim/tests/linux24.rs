// SPDX-License-Identifier: GPL-2.0-only
//! Linux 2.4's scheduler in the simulator is the one that Banachowski and Brandt describe, and shows what they say of
//! it: what an epoch gives, what sleepers keep, and whom ticks bill.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Linux24;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn events(like: Linux24, cpus: u32, loads: Vec<(Load, i32)>, span: u64) -> Vec<Event> {
    let mut core = Core::new(cpus, 1, 50, MS, loads.len(), 1 << 14);
    core.like_linux24(like);
    for (i, (_, nice)) in loads.iter().enumerate() {
        core.init_task(i, (1 << cpus) - 1, NICE_0);
        core.nice(i, *nice);
    }
    let loads = loads.into_iter().map(|(load, _)| load).collect();
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::All);
    engine.run(span, span);
    engine.finish()
}

fn jobs(first: u64, period: u64, times: Vec<u64>) -> (Load, i32) {
    let load =
        Load::Jobs { first, period, delays: Vec::new(), deadline: period, times, marks: false };
    (load, 0)
}

fn had(events: &[Event], task: u32) -> u64 {
    let used = |e: &&Event| e.kind() == Some(EventKind::Usage) && e.task == task;
    events.iter().find(used).map_or(0, |e| e.a)
}

/// Quanta are `(20 − nice)` / 4 + 1 ticks of 10 ms, and `(20 − nice)` · 2 + 1 ticks of 1.25 ms; nice 10 is half of
/// nice 0, says the paper.
#[test]
fn parts_of_loops_are_what_an_epoch_gives_them() {
    for (like, quanta) in [(Linux24::Hz100, [6, 3]), (Linux24::Hz800, [41, 21])] {
        let span = 20 * SECOND;
        let events = events(like, 1, vec![(Load::Endless, 0), (Load::Endless, 10)], span);
        let epoch = quanta.iter().sum::<u64>() * SECOND / like.hz();
        for (task, quantum) in (0..).zip(quanta) {
            let part = span * quantum / quanta.iter().sum::<u64>();
            assert!(had(&events, task).abs_diff(part) <= epoch, "{like:?}: task {task}");
        }
    }
}

/// Half of what is left is carried over, so a counter c goes to c / 2 + q: to 81 ticks where q is 41, to 11 where it is
/// 6. Nobody is compared with who runs before that is used up.
#[test]
fn who_has_slept_for_long_runs_for_nearly_two_quanta_at_once() {
    for (like, ticks) in [(Linux24::Hz100, 11), (Linux24::Hz800, 81)] {
        let loads = vec![(Load::Endless, 0), jobs(5 * SECOND, SECOND, vec![SECOND / 2])];
        let events = events(like, 1, loads, 6 * SECOND);
        let of = |kind: EventKind| {
            events.iter().find(move |e| e.kind() == Some(kind) && e.task == 1).map(|e| e.time)
        };
        let ran = of(EventKind::Stop).unwrap() - of(EventKind::Run).unwrap();
        assert_eq!(ran, ticks * SECOND / like.hz(), "{like:?}");
    }
}

/// Etsion, Tsafrir and Feitelson, "Effects of clock resolution on the scheduling of real-time and interactive
/// processes", 2001, whom the paper cites.
#[test]
fn who_sleeps_before_each_tick_is_billed_nothing_and_has_more_than_its_part() {
    let tick = SECOND / 100;
    let loads = vec![(Load::Endless, 0), jobs(SECOND, tick, vec![tick * 9 / 10; 900])];
    let events = events(Linux24::Hz100, 1, loads, 10 * SECOND);
    assert!(had(&events, 1) > 8 * SECOND, "{} ns", had(&events, 1));
}

#[test]
fn a_sleeper_wakes_with_the_tick_after_its_timer() {
    let events = events(Linux24::Hz100, 1, vec![jobs(3 * MS, 40 * MS, vec![MS; 3])], SECOND);
    let runs = events.iter().filter(|e| e.kind() == Some(EventKind::Run)).map(|e| e.time / MS);
    // 3, 43 and 83 ms.
    assert_eq!(runs.collect::<Vec<_>>(), [10, 50, 90]);
}

#[test]
fn who_wakes_has_an_idle_cpu_at_once_and_loops_are_spread_over_all() {
    let loads = vec![(Load::Endless, 0), jobs(0, 20 * MS, vec![10 * MS; 100])];
    let events = events(Linux24::Hz800, 2, loads, 2 * SECOND);
    assert_eq!((had(&events, 0), had(&events, 1)), (2 * SECOND, SECOND));
    let late = |e: &&Event| e.kind() == Some(EventKind::Complete) && e.time > (e.a + 1) * 20 * MS;
    assert_eq!(events.iter().filter(late).count(), 0);
    let events = self::events(Linux24::Hz800, 2, vec![(Load::Endless, 0); 4], 20 * SECOND);
    for task in 0..4 {
        let part = 10 * SECOND;
        assert!(had(&events, task).abs_diff(part) <= part / 20, "{}", had(&events, task));
    }
}

#[test]
fn the_same_run_has_the_same_events_and_a_stop_after_each_run() {
    let loads =
        || vec![(Load::Endless, 0), jobs(MS, 30 * MS, vec![7 * MS; 60]), (Load::Endless, 5)];
    let once = events(Linux24::Hz800, 1, loads(), 2 * SECOND);
    assert_eq!(once, events(Linux24::Hz800, 1, loads(), 2 * SECOND));
    let turns = once.iter().filter_map(|e| match e.kind() {
        Some(EventKind::Run) => Some((true, e.task)),
        Some(EventKind::Stop) => Some((false, e.task)),
        _ => None,
    });
    let turns: Vec<_> = turns.collect();
    for pair in turns.chunks_exact(2) {
        assert_eq!(pair, [(true, pair[0].1), (false, pair[0].1)]);
    }
    let preempted =
        |e: &&Event| e.kind() == Some(EventKind::Stop) && e.a == ffi::OB_STOP_PREEMPTED as u64;
    assert!(once.iter().any(|e| preempted(&e)));
}
