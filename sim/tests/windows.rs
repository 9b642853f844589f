// SPDX-License-Identifier: GPL-2.0-only
//! Split reservations (EDF-WM, EDF-WMR) in cases small enough to follow by hand. That accepted sets are in time is
//! tried in accepted.rs.

use onbeat_analysis::plan::Split;
use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation};

const MS: u64 = 1_000_000;
/// Period of all, ns.
const PERIOD: u64 = 30 * MS;

/// Two CPUs: task 0 has 20 of 30 ms of CPU 0, task 1 the same of CPU 1, task 2 has 10 ms in the first half of its
/// period on CPU 0 and 10 ms in the second half on CPU 1.
fn play(server: &str, postponed: bool, times: [&[u64]; 3], delays: &[u64]) -> Vec<Event> {
    play_with(20, server, postponed, times, delays)
}

/// The same with another budget of task 0, ms.
fn play_with(
    first: u64,
    server: &str,
    postponed: bool,
    times: [&[u64]; 3],
    delays: &[u64],
) -> Vec<Event> {
    let kind = onbeat_core::server_policies().iter().position(|n| *n == server).unwrap() as u32;
    let mut core = Core::new(2, 2, 0, 0, 3, 1 << 14);
    let mut loads = Vec::new();
    for (i, times) in times.into_iter().enumerate() {
        core.init_task(i, 3, onbeat_sim::NICE_0);
        let shares = vec![(0, 10 * MS), (1, 10 * MS)];
        let reservation = Reservation {
            budget: if i == 0 { first * MS } else { 20 * MS },
            period: PERIOD,
            deadline: PERIOD,
            cpus: 3,
            domain: u32::from(i == 1),
            kind,
            order: ffi::OB_ORDER_EDF,
            marks: false,
            apart: false,
            split: (i == 2).then_some(Split { window: 15 * MS, postponed, shares }),
        };
        core.reserve(i, &reservation);
        loads.push(Load::Jobs {
            first: 0,
            period: PERIOD,
            delays: if i == 2 { delays.to_vec() } else { Vec::new() },
            deadline: PERIOD,
            times: times.iter().map(|ms| ms * MS).collect(),
            marks: false,
        });
    }
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::All);
    engine.run(0, 1000 * MS);
    engine.finish()
}

/// Where and when task 2 ran: CPU, begin and end in ms.
fn ran(events: &[Event]) -> Vec<(u32, f64, f64)> {
    let (mut since, mut spans) = (None, Vec::new());
    for event in events.iter().filter(|e| e.task == 2) {
        let at = event.time as f64 / MS as f64;
        match event.kind() {
            Some(EventKind::Run) => since = Some((event.cpu, at)),
            Some(EventKind::Stop) => spans.extend(since.take().map(|(cpu, from)| (cpu, from, at))),
            _ => (),
        }
    }
    spans
}

#[test]
fn edf_wm_goes_on_as_soon_as_a_share_is_used_up_and_edf_wmr_when_its_window_ends() {
    let times: [&[u64]; 3] = [&[20], &[5], &[20]];
    // The window's deadline is earlier than the others': it runs first on CPU 0.
    assert_eq!(ran(&play("cbs", false, times, &[])), [(0, 0.0, 10.0), (1, 10.0, 20.0)]);
    assert_eq!(ran(&play("cbs", true, times, &[])), [(0, 0.0, 10.0), (1, 15.0, 25.0)]);
}

#[test]
fn a_share_that_is_used_up_is_fed_by_who_ends_early_under_fcbs_only() {
    // Task 0 ends at 12 ms and leaves 18 ms of budget: under FCBS task 2 goes on until its window ends.
    let times: [&[u64]; 3] = [&[2], &[5], &[16]];
    assert_eq!(ran(&play("cbs", true, times, &[])), [(0, 0.0, 10.0), (1, 15.0, 21.0)]);
    assert_eq!(
        ran(&play("fcbs", true, times, &[])),
        [(0, 0.0, 10.0), (0, 12.0, 15.0), (1, 15.0, 18.0)]
    );
}

#[test]
fn who_was_fed_and_has_used_that_up_waits_again() {
    // Task 0 leaves 2 ms at 12 ms; the window ends at 15 ms.
    let times: [&[u64]; 3] = [&[2], &[5], &[16]];
    let spans = ran(&play_with(4, "fcbs", true, times, &[]));
    assert_eq!(spans, [(0, 0.0, 10.0), (0, 12.0, 14.0), (1, 15.0, 19.0)]);
}

#[test]
fn a_job_that_needs_more_than_its_budget_goes_on_in_the_windows_of_the_next_period() {
    let times: [&[u64]; 3] = [&[20], &[5], &[25]];
    let postponed = ran(&play("cbs-hard", true, times, &[]));
    assert_eq!(postponed, [(0, 0.0, 10.0), (1, 15.0, 25.0), (0, 30.0, 35.0)]);
    // A soft one need not wait for them, but for CPU 0.
    let soft = ran(&play("cbs", false, times, &[]));
    assert_eq!(soft, [(0, 0.0, 10.0), (1, 10.0, 20.0), (0, 30.0, 35.0)]);
}

#[test]
fn a_job_that_comes_a_little_early_begins_at_home_with_the_deadline_of_its_time() {
    // Released at 0.2 ms and at 30 ms, which is 0.2 ms before its next cycle.
    let times: [&[u64]; 3] = [&[20, 20], &[20, 20], &[18, 12]];
    let events = play("cbs", true, times, &[MS / 5, 0]);
    let second: Vec<_> = ran(&events).into_iter().filter(|(_, from, _)| *from >= 30.0).collect();
    assert_eq!(second[0], (0, 30.0, 40.0), "{second:?}");
    let given =
        |e: &&Event| e.kind() == Some(EventKind::Replenish) && e.server == 2 && e.time == PERIOD;
    // 30.2 ms, when the cycle would begin, and a window.
    assert_eq!(events.iter().find(given).unwrap().b, PERIOD + MS / 5 + 15 * MS);
}

#[test]
fn a_bonus_does_not_keep_a_split_reservation_on_a_cpu_beyond_its_share() {
    // Task 0 leaves 18 of its 20 ms at 2, when nobody is there; task 2 comes at 3.
    for server in ["fcbs", "fcbs-lag"] {
        let events = play(server, false, [&[2], &[2], &[20]], &[3 * MS]);
        assert_eq!(ran(&events), [(0, 3.0, 13.0), (1, 13.0, 23.0)], "{server}");
    }
}

#[test]
fn who_woke_late_in_a_window_has_all_of_its_budget_in_every_period_from_then_on() {
    // Its cycles begin at 20 ms. It sleeps at once and wakes at 30 ms, for longer than the run lasts.
    for (server, postponed) in
        [("cbs", true), ("cbs", false), ("cbs-hard", true), ("cbs-hard", false)]
    {
        let busy = [20; 40];
        let spans = ran(&play(server, postponed, [&busy, &busy, &[1, 2000]], &[20 * MS, 0]));
        let had = |from: f64, to: f64| -> f64 {
            spans.iter().map(|(_, a, b)| (b.min(to) - a.max(from)).max(0.0)).sum()
        };
        // No less than a budget in any two periods, and one in each on average.
        for from in (30..900).step_by(30).map(f64::from) {
            assert!(had(from, from + 60.0) >= 20.0, "{server} {postponed} from {from}: {spans:?}");
        }
        assert!(had(30.0, 930.0) >= 29.0 * 20.0, "{server} {postponed}: {spans:?}");
    }
}
