// SPDX-License-Identifier: GPL-2.0-only
//! What an interrupt CPU gains: 4 + 1 CPUs with and without one, beside a device that interrupts all the time. The
//! table of docs/run.md; takes some minutes:
//! `cargo test --release -p onbeat-kernel --test interrupts -- --ignored the_table --nocapture`

mod guest;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use guest::{Facts, Machine, fact, finish, part, scheduler, signal, start};
use onbeat_client::{Params, Service};
use onbeat_kernel::machine::monotonic;
use onbeat_lab::Flavour;
use onbeat_model::event::{EVENT_BYTES, Event, EventKind};
use onbeat_model::protocol::{Request, Response};
use onbeat_model::units::{MS, US};

/// In the guest's environment: options of the scheduler.
const OPTIONS: &str = "OPTIONS";
/// CPUs that serve reservations.
const SERVING: usize = 4;
const WAKES: u64 = 1000;
const WAKE_PERIOD: u64 = 5 * MS;
const BUDGET: u64 = 2 * MS;
const PERIOD: u64 = 10 * MS;
const EVENTS: &str = "/tmp/events";
/// Appears once all have their reservations.
const GO: &str = "/tmp/go";

fn facts(options: &str) -> Facts {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let mut machine = Machine::of_this_test(Flavour::Plain, SERVING as u32 + 1, &[program]);
    machine.spec.env.push((OPTIONS.into(), options.into()));
    machine.facts().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
#[ignore = "takes minutes"]
fn the_table() {
    let (without, with) = (facts("--cpus=0-3"), facts("--interrupt-cpu=4"));
    println!("{:<24} {:>10} {:>10}", "", "without", "with");
    for (name, value) in &without {
        println!("{name:<24} {value:>10} {:>10}", with[name]);
    }
    let number = |facts: &Facts, name: &str| facts[name].parse::<f64>().unwrap();
    assert!(number(&without, "device-per-s") > 100.0, "the device is idle");
    assert!(number(&with, "device-per-s") < 1.0, "its interrupts still come to those that serve");
}

// In the guest.

fn wait_for_go() {
    while !Path::new(GO).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Wakes each period and looks how late it is, us.
#[test]
#[ignore = "the guest's side"]
fn waker() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    wait_for_go();
    let mut at = monotonic();
    let mut late = Vec::new();
    for _ in 0..WAKES {
        at += WAKE_PERIOD;
        let time = libc::timespec {
            tv_sec: (at / 1_000_000_000) as i64,
            tv_nsec: (at % 1_000_000_000) as i64,
        };
        // SAFETY: the time is plain data.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &time,
                std::ptr::null_mut(),
            )
        };
        late.push((monotonic() - at).to_string());
    }
    println!("LATE {}", late.join(","));
}

/// Takes all that its reservation gives.
#[test]
#[ignore = "the guest's side"]
fn greedy() {
    wait_for_go();
    let end = monotonic() + WAKES * WAKE_PERIOD;
    while monotonic() < end {}
}

/// Has the serial line interrupt, as fast as it can.
#[test]
#[ignore = "the guest's side"]
fn writer() {
    let mut line = fs::OpenOptions::new().write(true).open("/dev/ttyS0").unwrap();
    wait_for_go();
    loop {
        line.write_all(&[b'.'; 256]).unwrap();
    }
}

/// Interrupts on the CPUs that serve: of devices, and of their own timers.
fn interrupts() -> (u64, u64) {
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let (mut device, mut timers) = (0, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().trim_end_matches(':').to_string();
        let counts: u64 = words.take(SERVING).filter_map(|n| n.parse::<u64>().ok()).sum();
        match name.parse::<u32>() {
            Ok(_) => device += counts,
            Err(_) if name == "LOC" => timers += counts,
            Err(_) => (),
        }
    }
    (device, timers)
}

/// States mean, 99th percentile and maximum, given in ns, in us.
fn figures(name: &str, mut all: Vec<i64>) {
    all.sort_unstable();
    let us = |ns: i64| format!("{:.1}", ns as f64 / US as f64);
    fact(&format!("{name}-count"), all.len());
    fact(&format!("{name}-mean-us"), us(all.iter().sum::<i64>() / all.len() as i64));
    fact(&format!("{name}-p99-us"), us(all[all.len() * 99 / 100]));
    fact(&format!("{name}-max-us"), us(all[all.len() - 1]));
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let options = std::env::var(OPTIONS).unwrap();
    let scheduler =
        scheduler(&["--policy", "g-edzl+cbs-hard", "--events", EVENTS, options.as_str()]);
    let mut service = Service::connect().unwrap();
    let mut reserved = |name: &str, params: &Params| -> Vec<(Child, u32)> {
        let one = |_| {
            let child = start(&mut part(name));
            let grant = service.reserve(child.id(), name, params).unwrap();
            (child, grant.id)
        };
        (0..SERVING).map(one).collect()
    };
    let wakers = reserved("waker", &Params::new(MS, WAKE_PERIOD));
    let greedy = reserved("greedy", &Params::new(BUDGET, PERIOD));
    let writer = start(&mut part("writer"));
    std::thread::sleep(Duration::from_millis(500));
    let (before, begin) = (interrupts(), monotonic());
    fs::write(GO, "").unwrap();
    let mut late = Vec::new();
    for (waker, _) in wakers {
        let words = finish(waker).1;
        let list = words.split_once("LATE ").unwrap_or_else(|| panic!("{words}")).1;
        late.extend(list.lines().next().unwrap().split(',').map(|n| n.parse::<i64>().unwrap()));
    }
    let (after, took) = (interrupts(), (monotonic() - begin) as f64 / 1e9);
    signal(&writer, libc::SIGKILL);
    finish(writer);
    let servers: Vec<u32> = greedy.iter().map(|(_, id)| *id).collect();
    greedy.into_iter().for_each(|(child, _)| drop(finish(child)));
    let Response::Stats { counters } = service.ask(&Request::Stats).unwrap() else { panic!() };
    signal(&scheduler, libc::SIGTERM);
    let (status, words) = finish(scheduler);
    assert!(status.success(), "{words}");
    fact("device-per-s", format!("{:.1}", (after.0 - before.0) as f64 / took));
    fact("timers-per-s", format!("{:.1}", (after.1 - before.1) as f64 / took));
    fact("timer-late-max-us", counters["timer_late_max_ns"] / US);
    fact("events-lost", counters["events_lost"]);
    figures("wake", late);
    let bytes = fs::read(EVENTS).unwrap();
    let all: Vec<Event> =
        bytes.chunks_exact(EVENT_BYTES).map(|b| Event::from_bytes(b.try_into().unwrap())).collect();
    let (mut over, mut back) = (Vec::new(), Vec::new());
    for server in servers {
        budgets(&all, server, &mut over, &mut back);
    }
    figures("overrun", over);
    figures("replenish", back);
}

/// What each budget of `server` was overrun by, and how late it came back, ns.
fn budgets(all: &[Event], server: u32, over: &mut Vec<i64>, back: &mut Vec<i64>) {
    let mut running: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut budget, mut used, mut due) = (None, 0i64, None);
    for e in all.iter().filter(|e| e.server == server) {
        match e.kind() {
            Some(EventKind::Run) => drop(running.insert(e.cpu, e.time)),
            Some(EventKind::Stop) => {
                used += running.remove(&e.cpu).map_or(0, |since| (e.time - since) as i64);
            }
            Some(EventKind::Throttle) => due = Some(e.b as i64),
            Some(EventKind::Replenish) => {
                if let (Some(due), Some(budget)) = (due, budget) {
                    over.push(used - budget);
                    back.push(e.time as i64 - due);
                }
                (budget, used, due) = (Some(e.a as i64), 0, None);
            }
            _ => (),
        }
    }
}
