// SPDX-License-Identifier: GPL-2.0-only
//! A thousand threads bound to one CPU, beside a tiny reservation that spins there and one that has all but the share
//! of best effort: the kernel's watchdog, which throws out a scheduler that keeps a thread waiting for 10 s (here), is
//! not woken, and the reservation gets its budget. Needs QEMU and a fetched kernel
//! (`make setup`).

mod guest;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::DirEntry;
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
    assert_eq!(facts()["silent"], "0", "threads that have had no turn in so long");
}

#[test]
fn a_reservation_of_nearly_all_of_that_cpu_has_its_budget_beside_the_crowd() {
    let had: f64 = facts()["had"].parse().unwrap();
    // To the period that is under way.
    assert!(had >= 0.935, "{had} of the CPU in place of 0.94");
}

// In the guest.

/// How often each thread of this process, but for its first, which waits, has had a CPU. (To get to its loop one needs
/// several turns of 20 us.)
fn turns() -> HashMap<OsString, u64> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap());
    let turns = |thread: DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap();
        (thread.file_name(), text.split_whitespace().nth(2).unwrap().parse().unwrap())
    };
    let first = std::process::id().to_string();
    threads.map(turns).filter(|(thread, _)| **thread != *first).collect()
}

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
    for _ in 0..CROWD {
        let member = || {
            pin(0);
            burn()
        };
        std::thread::Builder::new().stack_size(32 << 10).spawn(member).unwrap();
    }
    pin(1);
    let begin = Instant::now();
    let used = || consumed(&[steady]);
    let before = used();
    let first = turns();
    while begin.elapsed() < SPAN && state() == "enabled" {
        std::thread::sleep(Duration::from_millis(500));
    }
    fact("state", state());
    fact("had", (used() - before) as f64 / begin.elapsed().as_nanos() as f64);
    let last = turns();
    assert!(first.len() > CROWD, "{} threads", first.len());
    fact("silent", first.iter().filter(|(thread, turns)| last[*thread] == **turns).count());
    kill(&[spinner, steady]);
    std::process::exit(0);
}
