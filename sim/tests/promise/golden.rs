// SPDX-License-Identifier: GPL-2.0-only
//! Golden logs: what every policy does with some hundreds of random sets, as one checksum of its event logs: they say
//! that the core still does the same. A log that moves is no fault by itself, but its reason belongs into the commit.
//! `GOLDEN=write cargo test --release --workspace --test promise golden` notes the new ones.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use onbeat_model::policy::{CORE, CorePolicy, Splits};
use onbeat_sim::{Detail, Load};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::events;
use crate::sets::{self, Set};

/// Sets under each policy.
const SETS: u64 = 200;

/// Moves releases and stretches periods by some ns, each by others, so that no two things happen at once: which of them
/// goes first is nobody's promise.
fn without_ties(mut set: Set, seed: u64) -> Set {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut some = || random.next_u64() % 997 + 1;
    for task in &mut set.tasks {
        let (later, longer) = (some(), some());
        task.period += longer;
        for thread in &mut task.threads {
            if let Load::Jobs { first, period, deadline, times, .. } = thread {
                *first += later + some();
                *period += longer;
                *deadline += longer;
                times.iter_mut().for_each(|time| *time += some());
            }
        }
    }
    set
}

fn set(policy: &CorePolicy, seed: u64) -> Set {
    // Where reservations may be split some are.
    let set = match policy.order.splits() && seed % 2 == 1 {
        true => sets::split(seed, policy.order.splits == Splits::Postponed, true),
        false => sets::whole(seed, false, true),
    };
    without_ties(set, seed)
}

fn checksum(policy: &CorePolicy) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for seed in 5_000_000..5_000_000 + SETS {
        let (events, end) = events(&set(policy, seed), policy, Detail::All);
        events.iter().for_each(|event| sum.update(&event.to_bytes()));
        sum.update(&end.to_le_bytes());
    }
    sum.finalize()
}

#[test]
fn golden_logs_are_the_same() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/promise/golden.txt");
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = CORE.chunks(CORE.len().div_ceil(workers));
    let sums: Vec<u32> = std::thread::scope(|scope| {
        let of =
            |part: &'static [CorePolicy]| move || part.iter().map(checksum).collect::<Vec<_>>();
        let threads: Vec<_> = parts.map(|part| scope.spawn(of(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a worker")).collect()
    });
    let mut now = String::new();
    for (policy, sum) in CORE.iter().zip(sums) {
        writeln!(now, "{} {sum:08x}", policy.name).expect("a text takes all");
    }
    if std::env::var_os("GOLDEN").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let then = fs::read_to_string(&file).unwrap();
    let moved: Vec<&str> = now.lines().filter(|line| !then.lines().any(|l| l == *line)).collect();
    assert!(moved.is_empty() && now.lines().count() == then.lines().count(), "moved: {moved:?}");
}
