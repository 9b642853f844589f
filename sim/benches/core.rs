// SPDX-License-Identifier: GPL-2.0-only
//! What the core costs natively, by the number of reservations that wait.
//!
//! Prints one JSON object: ns of CPU time for a job's whole way through the core (ready, pick,
//! run, stop, sleep) and for a budget that runs out (tick, pick, stop, ready, run), the least of
//! several measurements, for it is the one least disturbed.

use onbeat_core::ffi;
use onbeat_sim::{Core, NOBODY, Reservation};
use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 5] = [1, 10, 100, 1000, 10_000];
const ROUNDS: u64 = 20_000;
const RUNS: usize = 9;
const BUDGET: u64 = 1_000_000;
/// From one job to the next, ns; a quarter of a budget is used in it.
const TURN: u64 = 4 * BUDGET;

/// One CPU and `n` reservations whose tasks all wait, released one after the other.
fn waiting(n: usize, kind: u32) -> (Core, u64) {
    let mut core = Core::new(1, 1, 0, 0, n, 0);
    // Every job gets its turn before its deadline; the order of deadlines is that of release.
    let period = n as u64 * 2 * TURN;
    for i in 0..n {
        core.init_task(i, 1, onbeat_sim::NICE_0);
        core.reserve(
            i,
            &Reservation {
                budget: BUDGET,
                period,
                deadline: period,
                cpus: 1,
                domain: 0,
                kind,
                order: ffi::OB_ORDER_EDF,
                marks: false,
                apart: false,
                split: None,
            },
        );
    }
    let mut now = 0;
    for i in 0..n {
        now += 100;
        core.ready(i, now);
        while core.take_kick().is_some() {}
    }
    (core, now)
}

/// Jobs: the first in line runs for a while and ends; its task is released again at once.
fn jobs(core: &mut Core, now: &mut u64) {
    for _ in 0..ROUNDS {
        let task = core.pick(0, NOBODY, *now);
        core.run(0, task, *now);
        *now += BUDGET / 4;
        core.stop(0, ffi::OB_STOP_SLEPT, *now);
        core.sleep(task, *now);
        *now += TURN - BUDGET / 4;
        core.ready(task, *now);
        while core.take_kick().is_some() {}
    }
}

/// Budgets: the first in line uses its budget up and goes behind those with earlier deadlines.
fn budgets(core: &mut Core, now: &mut u64) {
    let mut running = core.pick(0, NOBODY, *now);
    core.run(0, running, *now);
    for _ in 0..ROUNDS {
        *now = core.timer(0).max(*now);
        core.tick(0, *now);
        while core.take_kick().is_some() {}
        if core.alarm_at() <= *now {
            core.alarm(*now);
        }
        let next = core.pick(0, running, *now);
        if next == running {
            continue;
        }
        core.stop(0, ffi::OB_STOP_PREEMPTED, *now);
        core.ready(running, *now);
        running = next;
        core.run(0, running, *now);
        while core.take_kick().is_some() {}
    }
    core.stop(0, ffi::OB_STOP_PREEMPTED, *now);
    core.ready(running, *now);
}

fn least(n: usize, kind: u32, load: fn(&mut Core, &mut u64)) -> f64 {
    let (mut core, mut now) = waiting(n, kind);
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let begin = cpu_time();
        load(&mut core, &mut now);
        best = best.min((cpu_time() - begin) as f64 / ROUNDS as f64);
    }
    best
}

/// CPU time this thread has used, ns.
fn cpu_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn main() {
    let mut rows = Vec::new();
    for (kind, server) in onbeat_core::server_policies().iter().enumerate() {
        let policy = if server.is_empty() { "g-edf".into() } else { format!("g-edf+{server}") };
        for n in SIZES {
            let job = least(n, kind as u32, jobs);
            // Only soft servers go on at once when their budget is used up.
            let soft = !matches!(*server, "" | "cbs-hard");
            let budget = soft.then(|| least(n, kind as u32, budgets));
            eprintln!("core: {policy}, {n} waiting: job {job:.0} ns, budget {budget:.0?} ns");
            rows.push(serde_json::json!({
                "policy": policy, "waiting": n, "job_ns": job, "budget_ns": budget,
            }));
        }
    }
    println!("{}", serde_json::json!({ "core": rows }));
}
