// SPDX-License-Identifier: GPL-2.0-only
//! Periodic threads of best effort, of which nobody is told, beside loops: how many of their jobs are late.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Others;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, NOBODY};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
/// Jobs in which it becomes known what a thread needs.
const UNKNOWN: u64 = 10;

/// CPUs without reservations, threads of these weights in this order.
pub fn core(order: Others, cpus: u32, weights: &[u64]) -> Core {
    let mut core = Core::new(cpus, 1, 50, MS, weights.len(), 1 << 14);
    core.among_others(order.number());
    let all = (1 << cpus) - 1;
    weights.iter().enumerate().for_each(|(i, weight)| core.init_task(i, all, *weight));
    core
}

/// A periodic thread: period, and execution times of its jobs, ns. Its deadline is the period.
pub struct Periodic {
    pub first: u64,
    pub period: u64,
    pub times: Vec<u64>,
}

/// Jobs that vary as frames do, evenly between `least` and `most` thousandths of `mean`.
pub fn times(jobs: u64, mean: u64, least: u64, most: u64) -> Vec<u64> {
    let mut random = 88172645463325252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        mean * (least + random % (most - least + 1)) / 1000
    };
    (0..jobs).map(|_| next()).collect()
}

/// The part of the jobs of each periodic thread that are late on `cpus` CPUs beside loops of these weights.
pub fn late(order: Others, cpus: u32, periodic: &[Periodic], loops: &[u64]) -> Vec<f64> {
    let weights: Vec<u64> = periodic.iter().map(|_| NICE_0).chain(loops.iter().copied()).collect();
    let load = |p: &Periodic| Load::Jobs {
        first: p.first,
        period: p.period,
        delays: Vec::new(),
        deadline: p.period,
        times: p.times.clone(),
        marks: false,
    };
    let loads = periodic.iter().map(load).chain(loops.iter().map(|_| Load::Endless)).collect();
    let core = core(order, cpus, &weights);
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::Jobs);
    engine.run(0, 1000 * SECOND);
    let events = engine.finish();
    let rate = |(i, p): (usize, &Periodic)| {
        let done = |e: &&Event| e.kind() == Some(EventKind::Complete) && e.task as usize == i;
        let known = |e: &&Event| e.a >= UNKNOWN;
        let due = |job: u64| p.first + (job + 1) * p.period;
        let on_time =
            events.iter().filter(done).filter(known).filter(|e| e.time <= due(e.a)).count();
        1.0 - on_time as f64 / (p.times.len() as u64 - UNKNOWN) as f64
    };
    periodic.iter().enumerate().map(rate).collect()
}

/// The same of one thread that needs `permille` of a CPU, in jobs that vary by a tenth of that, on one CPU.
pub fn late_of_one(order: Others, period: u64, permille: u64, loops: &[u64]) -> f64 {
    let times = times(2000, period * permille / 1000, 900, 1100);
    late(order, 1, &[Periodic { first: 333 * US, period, times }], loops)[0]
}

/// What a thread of one CPU had in each of ten seconds, beside so many loops, that runs for the next of `works` and
/// sleeps for the next of `pauses`, again and again, us.
pub fn had_by_a_liar(order: Others, loops: usize, works: &[u64], pauses: &[u64]) -> Vec<u64> {
    let mut core = core(order, 1, &vec![NICE_0; loops + 1]);
    (0..=loops).for_each(|i| core.ready(i, 0));
    let (mut now, mut runs, mut wake) = (0, NOBODY, u64::MAX);
    let (mut step, mut left, mut had) = (0, works[0] * US, vec![0; 10]);
    while now < 10 * SECOND {
        if wake <= now {
            core.ready(0, now);
            wake = u64::MAX;
        }
        if core.timer(0) <= now {
            core.tick(0, now);
        }
        let _ = core.take_kick();
        let next = core.pick(0, runs, now);
        if next != runs {
            if runs != NOBODY {
                core.stop(0, ffi::OB_STOP_PREEMPTED, now);
                core.ready(runs, now);
            }
            core.run(0, next, now);
            runs = next;
        }
        let mut then = core.timer(0).max(now + 1).min(now + 4 * MS).min(wake.max(now + 1));
        if runs == 0 {
            then = then.min(now + left);
        }
        core.charge(runs, then - now);
        if runs == 0 {
            had[(now / SECOND) as usize] += then - now;
            left -= then - now;
        }
        now = then;
        if runs == 0 && left == 0 {
            core.stop(0, ffi::OB_STOP_SLEPT, now);
            core.sleep(0, now);
            wake = now + pauses[step % pauses.len()] * US;
            step += 1;
            left = works[step % works.len()] * US;
            runs = NOBODY;
        }
    }
    had
}
