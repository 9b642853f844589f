// SPDX-License-Identifier: GPL-2.0-only
//! Slack that is lent: to whom it goes among those who are late.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0};

use crate::common::reservation;

const MS: u64 = 1_000_000;

/// How late at most, in ms, a movie of 16 ms in 40 is that needs a whole CPU for 400 ms from `first` ms on, beside a
/// loop of 20 ms in 100 that has not slept since 0.
fn late_beside_a_loop(kind: usize, first: u64) -> u64 {
    let mut core = Core::new(1, 1, 0, 0, 2, 0);
    for (i, (budget, period)) in [(20, 100), (16, 40)].into_iter().enumerate() {
        core.init_task(i, 1, NICE_0);
        core.reserve(i, &reservation(budget * MS, period * MS, kind as u32, ffi::OB_ORDER_EDF));
    }
    let movie = Load::Jobs {
        first: first * MS,
        period: 40 * MS,
        delays: Vec::new(),
        deadline: 40 * MS,
        times: vec![40 * MS; 10],
        marks: false,
    };
    let mut engine =
        Engine::new(core, 1, vec![Load::Endless, movie], Overheads::default(), Detail::Jobs);
    engine.run(0, (first + 5_000) * MS);
    let ends = engine.finish().into_iter().filter(|e| e.kind() == Some(EventKind::Complete));
    let ends: Vec<u64> = ends.filter(|e| e.task == 1).map(|e| e.time / MS).collect();
    assert_eq!(ends.len(), 10);
    (0..).zip(ends).map(|(n, end)| end.saturating_sub(first + 40 * (n + 1))).max().unwrap_or(0)
}

#[test]
fn who_never_sleeps_is_the_first_of_the_late_for_ten_seconds_only() {
    let servers = onbeat_core::server_policies();
    for name in ["cbs-slack", "cbs-predict"] {
        let kind = servers.iter().position(|server| *server == name).unwrap();
        // The loop fell behind first and has all slack, so 16 of 40 ms are the movie's: 400 ms take a second.
        let soon = late_beside_a_loop(kind, 5_000);
        assert!((500..=620).contains(&soon), "{name}: {soon} ms");
        // The movie has it, so 80 of 100 ms are the movie's: they take half a second.
        let later = late_beside_a_loop(kind, 12_000);
        assert!((60..=140).contains(&later), "{name}: {later} ms");
    }
}
