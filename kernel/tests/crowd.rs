// SPDX-License-Identifier: GPL-2.0-only
//! A thousand threads bound to one CPU, beside a tiny reservation that spins there and one that has all but the share
//! of best effort: the kernel's watchdog, which throws out a scheduler that keeps a thread waiting for 10 s (here), is
//! not woken, and the reservation gets its budget. Needs QEMU and a fetched kernel
//! (`make setup`).

mod guest;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guest::{Facts, burn, child, consumed, fact, kill, pin, scheduler, state};
use onbeat_client::{Params, Service};

const CROWD: usize = 1000;
/// More than the watchdog takes.
const SPAN: Duration = Duration::from_secs(13);

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
}

#[test]
fn a_crowd_bound_to_one_cpu_beside_a_tiny_reservation_that_spins_does_not_eject_the_scheduler() {
    assert_eq!(facts()["state"], "enabled", "{:?}", facts());
    assert_eq!(facts()["silent"], "0", "threads that never ran");
}

#[test]
fn a_reservation_of_nearly_all_of_that_cpu_has_its_budget_beside_the_crowd() {
    let had: f64 = facts()["had"].parse().unwrap();
    // To the period that is under way.
    assert!(had >= 0.935, "{had} of the CPU in place of 0.94");
}

// In the guest.

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let _scheduler = scheduler(&[]);
    let spinner = child(|| {
        pin(0);
        burn()
    });
    let tiny = Params::new(50_000, 3_600_000_000_000);
    Service::connect().unwrap().reserve(spinner as u32, "tiny", &tiny).unwrap();
    let steady = child(|| {
        pin(0);
        burn()
    });
    let params = Params::new(37_600_000, 40_000_000).on_cpus(vec![0]);
    Service::connect().unwrap().reserve(steady as u32, "steady", &params).unwrap();
    let turns: &'static [AtomicU64] =
        (0..CROWD).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    for turn in turns {
        let member = move || {
            pin(0);
            loop {
                turn.fetch_add(1, Relaxed);
            }
        };
        std::thread::Builder::new().stack_size(32 << 10).spawn(member).unwrap();
    }
    pin(1);
    let begin = Instant::now();
    let used = || consumed(&[steady]);
    let before = used();
    while begin.elapsed() < SPAN && state() == "enabled" {
        std::thread::sleep(Duration::from_millis(500));
    }
    fact("state", state());
    fact("had", (used() - before) as f64 / begin.elapsed().as_nanos() as f64);
    fact("silent", turns.iter().filter(|t| t.load(Relaxed) == 0).count());
    kill(&[spinner, steady]);
    std::process::exit(0);
}
