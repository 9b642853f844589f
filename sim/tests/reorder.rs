// SPDX-License-Identifier: GPL-2.0-only
//! Best effort whose order changes while it waits: nobody is lost, nobody starves, nobody gains.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, SHARE_QUANTUM};
use proptest::collection::vec;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Some that never sleep, of these weights, and some that sleep much; each so often the next order is in force.
fn play(cpus: u32, weights: &[u64], sleepers: usize, every: u64, end: u64) -> Vec<u64> {
    let all = u64::MAX >> (64 - cpus);
    let room = weights.len() + sleepers;
    let mut core = Core::new(cpus, 1, 50, SHARE_QUANTUM, room, 1 << 14);
    let mut loads = Vec::new();
    for (i, weight) in weights.iter().enumerate() {
        core.init_task(i, all, *weight);
        loads.push(Load::Endless);
    }
    for i in 0..sleepers {
        core.init_task(weights.len() + i, all, onbeat_sim::NICE_0);
        let period = (10 + 7 * i as u64) * MS;
        loads.push(Load::Jobs {
            first: i as u64 * MS,
            period,
            delays: Vec::new(),
            deadline: period,
            times: vec![MS; (end / period) as usize],
            marks: false,
        });
    }
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::Jobs);
    let mut now = 0;
    for turn in 1.. {
        now += every;
        if now > end {
            break;
        }
        engine.run(now, now);
        let order = turn % ffi::OB_OTHERS_COUNT;
        engine.change(|core, _| core.reorder(order, 3));
    }
    engine.run(end, end);
    let mut had = vec![0; room];
    for event in engine.finish().iter().filter(|e| e.kind() == Some(EventKind::Usage)) {
        had[event.task as usize] = event.a;
    }
    had
}

proptest! {
    #[test]
    fn who_never_sleeps_keeps_its_part_but_for_a_slice_with_each_change(
        weights in vec(prop_oneof![Just(1024u64), Just(335), Just(3121)], 2..8),
        sleepers in 0..4usize,
        every in 200..1000u64,
    ) {
        let end = 4000 * MS;
        let had = play(1, &weights, sleepers, every * MS + 12_345, end);
        let (sum, total): (u64, u64) =
            (weights.iter().sum(), had[..weights.len()].iter().sum());
        for (weight, had) in weights.iter().zip(&had) {
            let part = total * weight / sum;
            // Some slices of everybody, and with each change what who was behind by more than a slice of its time
            // loses.
            let each = ffi::OB_SLICE as u64 * weight / 1024;
            let least = (part - part / 20).saturating_sub(16 * MS + end / (every * MS) * each);
            prop_assert!(*had >= least, "{had} of {total} for {weight} of {sum}");
        }
    }

    #[test]
    fn who_sleeps_much_is_served_all_the_same(
        hogs in 1..30usize, sleepers in 1..4usize, every in 10..100u64, cpus in 1..4u32,
    ) {
        let end = 3000 * MS;
        let had = play(cpus, &vec![1024; hogs], sleepers, every * MS, end);
        for (i, had) in had[hogs..].iter().enumerate() {
            // What it asks for, or the part of one of equal weight, whatever is less; the last job may be under way.
            let asks = end / (10 + 7 * i as u64);
            let part = end * u64::from(cpus) / (hogs + sleepers) as u64;
            let least = asks.min(part) * 7 / 10;
            prop_assert!(*had + 2 * MS >= least, "sleeper {i} had {had} of {least}");
        }
    }
}
