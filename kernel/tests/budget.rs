// SPDX-License-Identifier: GPL-2.0-only
//! How exactly budgets are enforced. A greedy program has a hard reservation of 5 ms in every 20 ms
//! beside other greedy ones without, and notes by its own clock when it ran. The guest's time is
//! counted instructions, so the figures are exact. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use guest::{Facts, Machine, burn, fact, finish, part, pin, scheduler, signal, start};
use onbeat_client::{Params, Service};
use onbeat_lab::Flavour;
use onbeat_model::event::{EVENT_BYTES, Event, EventKind};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const BUDGET: u64 = 5 * MS;
const PERIOD: u64 = 20 * MS;
const PERIODS: u64 = 60;
/// In the guest's environment: hogs on all CPUs.
const ALL_BUSY: &str = "ALL_BUSY";
/// A pause this long is the wait for the next budget, and no interrupt.
const PAUSE: u64 = 3 * MS;
/// And one this long is a turn of a kernel thread, no interrupt of the program's own time.
const TURN: u64 = 30 * US;

/// Figures of a guest with `cpus` CPUs, all of them `busy` or only the one with the reservation.
fn figures(flavour: Flavour, cpus: u32, busy: bool) -> Facts {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let mut machine = Machine::of_this_test(flavour, cpus, &[program]);
    if busy {
        machine.spec.env.push((ALL_BUSY.into(), "1".into()));
    }
    let facts = machine.facts().unwrap_or_else(|e| panic!("{e}"));
    for (name, value) in &facts {
        println!("{flavour:?}, {cpus} CPUs: {name} {value}");
    }
    facts
}

/// Overruns are at most `most` ns, by the program's clock and by the scheduler's log, and what was
/// taken too much comes off later budgets.
fn holds_to(most: u64, facts: &Facts) {
    let number = |name: &str| facts[name].parse::<i64>().unwrap();
    let most = most as i64;
    assert!(number("budgets") >= PERIODS as i64 - 5, "{facts:?}");
    assert!(number("own-overrun-max") <= most, "{facts:?}");
    assert!(number("logged-overrun-max") <= most, "{facts:?}");
    // One that always got less would be cheated: short of the budget only by what it pays back, and by
    // what its own clock does not show of getting on and off the CPU.
    assert!(number("own-overrun-min") >= -2 * most, "{facts:?}");
    assert!(number("own-drift").abs() <= most, "{facts:?}");
}

#[test]
fn on_one_cpu_no_budget_is_overrun_by_more_than_50_us() {
    holds_to(50 * US, &figures(Flavour::Plain, 1, true));
}

#[test]
fn on_one_of_four_cpus_no_budget_is_overrun_by_more_than_50_us() {
    holds_to(50 * US, &figures(Flavour::Plain, 4, false));
}

/// The lab's busy CPUs take turns of 20 us on one of the host's: an interrupt waits for three of them at
/// most, and so does the switch that follows if the CPU's turn ends in between; 9 us are its own.
#[test]
fn on_four_cpus_of_a_quarter_of_the_speed_no_budget_is_overrun_by_more_than_130_us() {
    holds_to(130 * US, &figures(Flavour::Plain, 4, true));
}

/// There the clock that looks each 100 us is late by as much; then the interrupt, what it does and the switch may wait
/// for three turns each, and 40 us are their own. Rarely more than one of them does: builds of the same rules, and
/// boots of one build, have had 115 to 297 us.
#[test]
fn on_four_cpus_of_a_quarter_of_the_speed_with_preempt_rt_no_budget_is_overrun_by_more_than_320_us()
{
    let facts = figures(Flavour::Rt, 4, true);
    holds_to(320 * US, &facts);
    let number = |name: &str| facts[name].parse::<i64>().unwrap();
    assert!(number("logged-overrun-ninth-decile") <= 200 * US as i64, "{facts:?}");
    assert!(number("own-drift").abs() <= 160 * US as i64, "{facts:?}");
}

// In the guest.

const EVENTS: &str = "/tmp/events";
/// Appears once the reservation is made.
const GO: &str = "/tmp/go";

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Never sleeps, and says when it ran: begin and end of every stretch between two long pauses, and
/// what shorter pauses took of it.
#[test]
#[ignore = "the guest's side"]
fn greedy() {
    while !Path::new(GO).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = now() + (PERIODS + 1) * PERIOD;
    let (mut begin, mut last) = (now(), now());
    let mut others = 0;
    let mut stretches = Vec::with_capacity(1000);
    while last < end {
        let at = now();
        if at - last > PAUSE {
            stretches.push((begin + others, last));
            (begin, others) = (at, 0);
        } else if at - last > TURN {
            others += at - last;
        }
        last = at;
    }
    let list: Vec<_> = stretches.iter().map(|(b, e)| format!("{b} {e}")).collect();
    println!("RAN {}", list.join(","));
}

#[test]
#[ignore = "the guest's side"]
fn hog() {
    burn();
}

/// Those it may use.
fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let scheduler = scheduler(&["--policy", "g-edzl+cbs-hard", "--events", EVENTS]);
    let greedy = start(&mut part("greedy"));
    let busy = std::env::var_os(ALL_BUSY).is_some();
    let mut params = Params::new(BUDGET, PERIOD);
    if !busy {
        params = params.on_cpus(vec![0]);
        pin(0); // the hogs inherit it
    }
    let grant = Service::connect().unwrap().reserve(greedy.id(), "greedy", &params).unwrap();
    let hogs: Vec<Child> = (0..2 * cpus()).map(|_| start(&mut part("hog"))).collect();
    // They have begun.
    std::thread::sleep(Duration::from_millis(300));
    fs::write(GO, "").unwrap();
    let words = finish(greedy).1;
    for hog in hogs {
        signal(&hog, libc::SIGKILL);
        finish(hog);
    }
    signal(&scheduler, libc::SIGTERM);
    let (status, said) = finish(scheduler);
    assert!(status.success(), "{said}");
    own_clock(&words);
    log(grant.id);
}

/// What the program itself saw of its budgets.
fn own_clock(words: &str) {
    let list = words.split_once("RAN ").unwrap_or_else(|| panic!("{words}")).1;
    let list = list.lines().next().unwrap();
    let ran: Vec<u64> = list
        .split(',')
        .map(|pair| {
            let (begin, end) = pair.split_once(' ').unwrap();
            end.parse::<u64>().unwrap() - begin.parse::<u64>().unwrap()
        })
        .collect();
    // The first budget was begun before it looked at the clock.
    let ran = &ran[1..];
    let over: Vec<i64> = ran.iter().map(|r| *r as i64 - BUDGET as i64).collect();
    fact("budgets", ran.len());
    fact("own-overrun-max", over.iter().max().unwrap());
    fact("own-overrun-min", over.iter().min().unwrap());
    // On average: overruns are paid back.
    fact("own-drift", over.iter().sum::<i64>() / over.len() as i64);
}

/// What the scheduler's log says: CPU time from one budget given to the next, beyond that budget.
fn log(server: u32) {
    let bytes = fs::read(EVENTS).unwrap();
    let all = bytes.chunks_exact(EVENT_BYTES).map(|b| Event::from_bytes(b.try_into().unwrap()));
    let mut running: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut budget, mut used, mut throttled) = (None, 0i64, false);
    let mut over = Vec::new();
    for e in all.filter(|e| e.server == server) {
        match e.kind() {
            Some(EventKind::Run) => drop(running.insert(e.cpu, e.time)),
            Some(EventKind::Stop) => {
                used += running.remove(&e.cpu).map_or(0, |since| (e.time - since) as i64);
            }
            Some(EventKind::Throttle) => throttled = true,
            Some(EventKind::Replenish) => {
                over.extend(budget.filter(|_| throttled).map(|b: i64| used - b));
                (budget, used, throttled) = (Some(e.a as i64), 0, false);
            }
            _ => (),
        }
    }
    over.sort_unstable();
    fact("logged-throttles", over.len());
    fact("logged-overrun-ninth-decile", over[over.len() * 9 / 10]);
    fact("logged-overrun-max", over.iter().max().unwrap());
    fact("logged-overrun-mean", over.iter().sum::<i64>() / over.len() as i64);
}
