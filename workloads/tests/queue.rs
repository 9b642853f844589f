// SPDX-License-Identifier: GPL-2.0-only
//! The frame queue between a decoder and a display of any speed, in a time of its own.

use onbeat_workloads::play::queue::{frames, queue};
use onbeat_workloads::play::tally::{Tally, next_instant};
use proptest::prelude::*;
use std::collections::BTreeSet;

const PERIOD: u64 = 1000;

/// A frame the decoder takes so long for; `None`: it is damaged and never comes.
fn costs() -> impl Strategy<Value = Vec<Option<u64>>> {
    let cost = prop_oneof![3 => 0..PERIOD, 1 => 0..4 * PERIOD];
    proptest::collection::vec(proptest::option::weighted(0.9, cost), 1..60)
}

/// A decoder that begins a job in every period once the queue has been filled, as the player does.
struct Decoder {
    jobs: Vec<(u64, Option<u64>)>,
    filled: usize,
}

impl Decoder {
    fn new(costs: &[Option<u64>], length: usize) -> Self {
        let mut done = 0;
        let job = |(number, cost): (usize, &Option<u64>)| {
            let release = (number as u64).saturating_sub(length as u64 + 1) * PERIOD;
            let early = number <= length;
            done = if early { 0 } else { release.max(done) + cost.unwrap_or(PERIOD / 2) };
            (done, cost.map(|_| number as u64))
        };
        Self { jobs: costs.iter().enumerate().map(job).collect(), filled: 0 }
    }
}

proptest! {
    #[test]
    fn every_frame_that_is_due_is_either_displayed_once_or_dropped(
        costs in costs(),
        length in 1usize..6,
        sloth in proptest::collection::vec(prop_oneof![3 => 0..PERIOD / 4, 1 => 0..5 * PERIOD], 60),
    ) {
        let due = costs.len() as u64;
        let count = frames(length as u64, 1, 1000).unwrap();
        let (mut writer, mut reader) = queue(vec![(); count]);
        let mut decoder = Decoder::new(&costs, length);
        let mut tally = Tally::new(0, PERIOD);
        let (mut now, mut instant, mut shown, mut late) = (0, 0, BTreeSet::new(), 0);
        let mut there = BTreeSet::new();
        while instant < due {
            now = now.max(instant * PERIOD);
            while let Some((done, number)) = decoder.jobs.get(decoder.filled) {
                if *done > now {
                    break;
                }
                if let Some(number) = number {
                    let Some(()) = writer.blank() else { break };
                    writer.push(*number, ());
                    there.insert(*number);
                }
                decoder.filled += 1;
            }
            // The newest that has come, is due, and is newer than what is on the screen.
            let newer = |n: &&u64| shown.last().is_none_or(|last| *n > last);
            let expected = there.range(..=instant).rev().find(newer).copied();
            let got = reader.newest(instant);
            prop_assert_eq!(got.map(|(number, ())| number), expected);
            now += sloth[instant as usize];
            if let Some((number, ())) = got {
                tally.shown(number, now);
                prop_assert!(shown.insert(number), "shown twice");
                late += u64::from(now > (number + 1) * PERIOD);
                reader.give_back(());
            }
            instant = next_instant(instant, now, PERIOD, due);
        }
        tally.finish(due);
        let dropped = (0..due).filter(|number| !shown.contains(number)).count() as u64;
        prop_assert_eq!(tally.due(), due);
        prop_assert_eq!((tally.displayed, tally.dropped), (shown.len() as u64, dropped));
        prop_assert_eq!(tally.late, late);
        prop_assert!(shown.last().is_none_or(|last| *last < due));
    }

    /// Tardiness is measured from the end of the job's period, as in `onbeat provision`.
    #[test]
    fn a_queue_as_long_as_decode_jobs_are_late_has_every_frame_in_time(
        tardiness in proptest::collection::vec(prop_oneof![Just(0), 0..=3 * PERIOD], 1..60),
    ) {
        let length = 3;
        let (mut writer, mut reader) = queue(vec![(); frames(length, 1, 1000).unwrap()]);
        let mut done: Vec<u64> = (0u64..).zip(&tardiness).map(|(number, late)| {
            // Jobs after the first that fill the queue are released a period after the other.
            number.checked_sub(length + 1).map_or(0, |job| (job + 1) * PERIOD + late)
        }).collect();
        // Jobs end in their order.
        for i in 1..done.len() {
            done[i] = done[i].max(done[i - 1]);
        }
        let mut next = 0;
        for instant in 0..tardiness.len() as u64 {
            while next < done.len() && done[next] <= instant * PERIOD {
                writer.blank().expect("a queue of that length has a frame to decode into");
                writer.push(next as u64, ());
                next += 1;
            }
            // The display may take all of its period to show the one before.
            if instant > 0 {
                reader.give_back(());
            }
            prop_assert_eq!(reader.newest(instant), Some((instant, ())));
        }
    }
}
