// SPDX-License-Identifier: GPL-2.0-only
//! What the service's work is where it holds as many reservations as there can be. Needs QEMU and a fetched kernel
//! (`make setup`), and minutes: `cargo test --release --workspace --test many -- --ignored status`.

mod guest;

use std::time::{Duration, Instant};

use guest::{child, consumed, fact, finish, kill, scheduler, signal};
use onbeat_client::{Params, Service};
use onbeat_model::protocol::{Request, Response};

const US: u64 = 1_000;
const SECOND: u64 = 1_000_000 * US;
const ALL: usize = 1024;
/// Requests that are timed together.
const TIMES: u64 = 10;

#[test]
#[ignore = "takes minutes"]
fn status_of_1024_reservations_of_odd_periods_takes_the_service_less_than_30_million_instructions()
{
    let facts = guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"));
    assert_eq!(facts["held"], ALL.to_string());
    let us = |name: &str| facts[name].parse::<u64>().unwrap();
    // In the lab one takes a nanosecond; of processors of today 20 ms have more than twice as many.
    assert!(us("status-us") < 30_000, "{facts:?}");
    // Nor does the last one cost more.
    assert!(us("last-us") < 20_000, "{facts:?}");
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let program = scheduler(&[]);
    let used = || consumed(&[program.id() as i32]) / US;
    let mut service = Service::connect().unwrap();
    let pids: Vec<i32> =
        (0..ALL).map(|_| child(|| std::thread::sleep(Duration::from_secs(10_000)))).collect();
    let (begin, mut last) = (Instant::now(), 0);
    for (i, pid) in pids.iter().enumerate() {
        let before = used();
        // Periods near an hour that have nothing in common.
        let period = 3400 * SECOND + (i as u64 * 7_919 + 1) * 24_593;
        service.reserve(*pid as u32, "many", &Params::new(50 * US + i as u64, period)).unwrap();
        last = used() - before;
    }
    fact("made-in-s", begin.elapsed().as_secs());
    fact("last-us", last);
    let before = used();
    for _ in 0..TIMES {
        let answer = service.ask(&Request::Status).unwrap();
        let Response::Status { reservations, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(reservations.len(), ALL);
    }
    fact("status-us", (used() - before) / TIMES);
    fact("held", ALL);
    kill(&pids);
    signal(&program, libc::SIGTERM);
    finish(program);
}
