// SPDX-License-Identifier: GPL-2.0-only
//! BeRate among best effort, nothing reserved: who sleeps between jobs meets deadlines that its part allows, without
//! being told of; nobody gains by looking so, and parts are as weights.

mod common;

use common::shell::{Part, endless, play};
use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Others;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, NOBODY};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Jobs in which it becomes known what a thread needs.
const UNKNOWN: u64 = 10;

fn core(order: Others, cpus: u32, weights: &[u64]) -> Core {
    let mut core = Core::new(cpus, 1, 50, MS, weights.len(), 1 << 14);
    core.among_others(order.number());
    let all = (1 << cpus) - 1;
    weights.iter().enumerate().for_each(|(i, weight)| core.init_task(i, all, *weight));
    core
}

/// A periodic thread: period, and execution times of its jobs, ns. Its deadline is the period.
struct Periodic {
    first: u64,
    period: u64,
    times: Vec<u64>,
}

/// Jobs that vary as frames do, evenly between `least` and `most` thousandths of `mean`.
fn times(jobs: u64, mean: u64, least: u64, most: u64) -> Vec<u64> {
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
fn late(order: Others, cpus: u32, periodic: &[Periodic], loops: &[u64]) -> Vec<f64> {
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
fn late_of_one(order: Others, period: u64, permille: u64, loops: &[u64]) -> f64 {
    let times = times(2000, period * permille / 1000, 900, 1100);
    late(order, 1, &[Periodic { first: 333 * US, period, times }], loops)[0]
}

/// Its part beside so many loops is more than a quarter.
#[test]
fn a_quarter_of_a_cpu_is_had_in_time_beside_loops_for_periods_of_20_to_40_ms() {
    for loops in [1, 2] {
        for period in [20 * MS, 30 * MS, 40 * MS] {
            let loops = vec![NICE_0; loops];
            let [fair, berate] =
                [Others::Fair, Others::Berate].map(|order| late_of_one(order, period, 250, &loops));
            println!("{} ms beside {}: fair {fair}, berate {berate}", period / MS, loops.len());
            assert_eq!(berate, 0.0, "{} ms beside {}", period / MS, loops.len());
        }
    }
}

/// Its jobs vary, and one in three asks for more than a quarter.
#[test]
fn what_needs_nearly_all_of_its_part_is_seldom_late() {
    let loops = [NICE_0; 3];
    for period in [20 * MS, 30 * MS, 40 * MS] {
        let [fair, berate] =
            [Others::Fair, Others::Berate].map(|order| late_of_one(order, period, 240, &loops));
        println!("{} ms beside 3: fair {fair}, berate {berate}", period / MS);
        assert!(berate <= 0.01 && berate <= fair / 10.0, "{} ms: {berate}", period / MS);
    }
}

/// The paper's: period ms, permille of a CPU each, how many, loops and their weight.
#[test]
fn the_papers_experiments_miss_few_deadlines() {
    for (period, permille, count, loops) in [
        (40, 450, 1, vec![NICE_0]),
        (40, 225, 2, vec![NICE_0; 2]),
        (30, 225, 2, vec![NICE_0; 2]),
        (40, 225, 1, vec![NICE_0; 3]),
        (30, 600, 1, vec![NICE_0 / 2]),
    ] {
        let periodic: Vec<Periodic> = (0..count)
            .map(|i| Periodic {
                first: (333 + 7777 * i) * US,
                period: period * MS,
                times: times(2000, period * MS * permille / 1000, 900, 1100),
            })
            .collect();
        let [fair, berate] =
            [Others::Fair, Others::Berate].map(|order| late(order, 1, &periodic, &loops));
        println!("{count} of {permille} in {period} ms: fair {fair:?}, berate {berate:?}");
        assert!(berate.iter().all(|late| *late <= 0.003), "{berate:?}");
    }
}

#[test]
fn on_two_cpus_too() {
    let periodic = [20, 30, 40].map(|period| Periodic {
        first: period * 100 * US,
        period: period * MS,
        times: times(2000, period * MS / 4, 900, 1100),
    });
    let [fair, berate] =
        [Others::Fair, Others::Berate].map(|order| late(order, 2, &periodic, &[NICE_0; 3]));
    println!("2 CPUs: fair {fair:?}, berate {berate:?}");
    assert!(berate.iter().all(|late| *late == 0.0), "{berate:?}");
}

#[test]
fn parts_over_some_seconds_are_as_weights_within_two_per_cent() {
    for weights in [
        [1024, 1024, 1024],
        [1024, 335, 110],
        [9548, 1024, 1024],
        [1024, 820, 655],
        [1024, 1024, 15],
    ] {
        let span = 20 * SECOND;
        let got = play(core(Others::Berate, 1, &weights), &[endless(0); 3], span);
        let sum: u64 = weights.iter().sum();
        for (got, weight) in got.iter().zip(weights) {
            let part = span as f64 * weight as f64 / sum as f64;
            let off = (got.had as f64 - part).abs();
            assert!(off <= 0.02 * part, "{weights:?}: {} in place of {part} ns", got.had);
        }
    }
}

#[test]
fn a_sleeper_among_them_leaves_parts_as_weights() {
    // It asks for a tenth, less than its part.
    let weights = [1024, 1024, 512, 256];
    let sleeper = Part { first: 0, work: 2 * MS, period: 20 * MS };
    let got = play(
        core(Others::Berate, 1, &weights),
        &[sleeper, endless(0), endless(0), endless(0)],
        20 * SECOND,
    );
    assert!(got[0].had >= 1998 * MS, "{got:?}");
    let rest = (20 * SECOND - got[0].had) as f64;
    for (got, weight) in got[1..].iter().zip(&weights[1..]) {
        let part = rest * *weight as f64 / 1792.0;
        assert!((got.had as f64 - part).abs() <= 0.02 * part, "{} of {part}", got.had);
    }
}

/// Of 500 some sleep, some are of the greatest niceness and some of the least. A round of all takes 2 s in turns of
/// 4 ms; after 3 s of patience who has waited for longest is next.
#[test]
fn nobody_starves_among_500() {
    let weights: Vec<u64> = (0..500).map(|i| [NICE_0, 15, 9548, NICE_0, 335][i % 5]).collect();
    let part = |i: u64| match i % 3 {
        0 => Part { first: i * 77 * US, work: 3 * MS, period: 40 * MS },
        _ => endless(i * US),
    };
    let parts: Vec<Part> = (0..500).map(part).collect();
    let got = play(core(Others::Berate, 1, &weights), &parts, 20 * SECOND);
    let longest = got.iter().map(|g| g.waited).max().unwrap();
    assert!(longest <= 6 * SECOND, "{longest} ns");
    assert!(got.iter().all(|g| g.had > 0));
}

/// What a thread of one CPU had in each of 9 seconds, beside three loops, that runs for the next of `works` and sleeps
/// for the next of `pauses`, again and again, us.
fn had_by_a_liar(works: &[u64], pauses: &[u64]) -> Vec<u64> {
    let mut core = core(Others::Berate, 1, &[NICE_0; 4]);
    (0..4).for_each(|i| core.ready(i, 0));
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
    had.truncate(9);
    had.split_off(1)
}

/// Beside three loops a quarter of a second is its part. More than that a thread may have once, by the paper's rule
/// and ours: the slice that it begins behind the others, and what it gets by one deadline before that expires, which
/// is twice what it used to need, or a slice.
#[test]
fn a_thread_that_looks_periodic_has_no_more_in_a_second_than_its_part_and_one_expiration() {
    for (works, pauses) in [
        // Little, until it counts as quick, and then much.
        (vec![100, 100, 100, 100, 100, 100, 20_000], vec![100]),
        (vec![50, 8_000], vec![50, 10]),
        (vec![1_000, 1_000, 100_000], vec![1_000]),
        (vec![3_400], vec![1]),
        (vec![300], vec![10]),
        (vec![20_000, 40_000], vec![100]),
        (vec![100, 100, 100, 100, 400_000], vec![5_000, 5_000, 5_000, 5_000, 300_000]),
    ] {
        let most_burst = works.iter().max().unwrap().min(&50_000) * US;
        let had = had_by_a_liar(&works, &pauses);
        let most = 250 * MS + 4 * MS + (2 * most_burst).max(4 * MS);
        assert!(had.iter().all(|had| *had <= most), "{works:?}, {pauses:?}: {had:?} ns");
        // Over time there is nothing to be gained.
        let (sum, part) = (had.iter().sum::<u64>(), 250 * MS * had.len() as u64);
        assert!(sum <= part + most - 250 * MS, "{works:?}, {pauses:?}: {sum} of {part} ns");
    }
}
