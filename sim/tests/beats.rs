// SPDX-License-Identifier: GPL-2.0-only
//! Rhythms are told of programs that have one, and of no others: twenty kinds of programs, as their wake-ups are noted
//! by the core and judged by the model.

use onbeat_core::ffi::{OB_BEAT_AT, OB_BEAT_LEVELS, OB_BEAT_UNIT, OB_BEAT_WAKES, ob_beats};
use onbeat_core::ffi::{onbeat_beat_slept, onbeat_beat_woke};
use onbeat_model::beat::{Rhythm, Wake, rhythm};
use onbeat_model::event::EventKind;
use onbeat_model::policy::CORE;
use onbeat_model::run::Run;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::simulate;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

mod kinds;

use kinds::{OTHERS, Play, RHYTHMIC, Thread};

/// What the thresholds were chosen by; others, from [`HELD_BACK`] on, were not.
const THREADS: u64 = 150;
const HELD_BACK: u64 = 1_000_000;

/// Random numbers of the usual distributions.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// From 0 up to 1.
    pub fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly between two.
    pub fn within(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.part()
    }

    /// A whole number below `most`.
    pub fn below(&mut self, most: usize) -> usize {
        (self.0.next_u64() % most as u64) as usize
    }

    /// Of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.part()).ln()
    }

    /// Of median 1.
    pub fn log_normal(&mut self, sigma: f64) -> f64 {
        let (a, b) = (1.0 - self.part(), self.part());
        (sigma * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// The rhythm of a thread, as the service would find it at the end.
fn found(thread: &Thread) -> Option<Rhythm> {
    let mut beats = ob_beats::default();
    for (slept, woke, used) in &thread.sleeps {
        // SAFETY: plain data.
        unsafe {
            onbeat_beat_slept(&mut beats, ns(*slept));
            onbeat_beat_woke(&mut beats, ns(*woke), ns(*used));
        }
    }
    // Nothing wraps here: the lower bits are all of the CPU time that is used within a ring.
    let wake = |word: u64| Wake {
        at: word >> OB_BEAT_AT << OB_BEAT_UNIT,
        used: (word & ((1 << OB_BEAT_AT) - 1)) << OB_BEAT_UNIT,
    };
    let ring = |level: usize| {
        let count = beats.count[level];
        let from = count.saturating_sub(OB_BEAT_WAKES);
        (from..count)
            .map(|i| wake(beats.wake[level][i as usize % OB_BEAT_WAKES as usize]))
            .collect()
    };
    let series: Vec<Vec<Wake>> = (0..OB_BEAT_LEVELS as usize).map(ring).collect();
    rhythm(&series, ns(thread.now))
}

/// Of how many threads of a kind what is told is right.
fn right(play: Play, kind: usize, first: u64, threads: u64) -> u64 {
    let judged = |seed: u64| {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed << 8 | kind as u64));
        let mut thread = Thread::new(&mut dice);
        let periods = play(&mut dice, &mut thread);
        match found(&thread) {
            None => periods.is_empty(),
            Some(is) => periods.iter().any(|p| (is.period_ns as f64 / 1e6 / p - 1.0).abs() < 0.15),
        }
    };
    (first..first + threads).filter(|seed| judged(*seed)).count() as u64
}

/// Parts of the threads with a rhythm, and of those without, of which what is told is right; prints those of each kind.
fn parts(first: u64, threads: u64) -> [f64; 2] {
    [&RHYTHMIC, &OTHERS].map(|kinds| {
        let all = kinds.iter().enumerate().map(|(i, (name, play))| {
            let right = right(*play, i, first, threads);
            println!("{:6.2} %  {name}", 100.0 * right as f64 / threads as f64);
            right
        });
        all.sum::<u64>() as f64 / (10 * threads) as f64
    })
}

fn hold(parts: [f64; 2]) {
    let [found, silent] = parts;
    assert!(found >= 0.98, "rhythms that were found: {found}");
    assert!(silent >= 0.98, "threads without a rhythm of which none was told: {silent}");
}

#[test]
fn rhythms_are_found_and_none_is_told_where_there_is_none() {
    hold(parts(0, THREADS));
}

#[test]
fn so_it_is_with_threads_that_no_threshold_was_chosen_by() {
    hold(parts(HELD_BACK, THREADS));
}

/// The figures of docs/run.md.
#[test]
#[ignore = "a minute; for the figures"]
fn of_ten_thousand_threads_of_each_kind() {
    hold(parts(2 * HELD_BACK, 10_000));
}

/// `count` periods of `p` ms, each up to a fifth shorter or longer.
fn beats(dice: &mut Dice, thread: &mut Thread, p: f64, count: u32) {
    for _ in 0..count {
        let next = thread.now + p * dice.within(0.8, 1.2);
        thread.run(0.1 * p);
        thread.until(next);
    }
}

#[test]
fn ten_periods_of_5_to_1000_ms_with_a_fifth_of_jitter_are_enough() {
    let mut missed = 0;
    for seed in 0..400u32 {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed.into()));
        let mut thread = Thread::new(&mut dice);
        let p = 5.0 * 200f64.powf(f64::from(seed) / 399.0);
        beats(&mut dice, &mut thread, p, 10);
        let is = found(&thread).is_some_and(|r| (r.period_ns as f64 / 1e6 / p - 1.0).abs() < 0.15);
        missed += u32::from(!is);
    }
    assert!(missed <= 4, "{missed} of 400 were not found");
}

#[test]
fn ten_periods_after_a_change_the_rhythm_before_it_is_forgotten() {
    let (mut missed, mut old) = (0, 0);
    for seed in 0..400 {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let mut thread = Thread::new(&mut dice);
        let [before, after] = [0, 1].map(|_| 5.0 * 200f64.powf(dice.part()));
        beats(&mut dice, &mut thread, before, 40);
        beats(&mut dice, &mut thread, after, 10);
        let told = found(&thread).map(|r| r.period_ns as f64 / 1e6);
        let is = |p: f64| told.is_some_and(|told| (told / p - 1.0).abs() < 0.2);
        missed += u32::from(!is(after));
        old += u32::from(is(before) && !is(after));
    }
    assert!(
        missed <= 12 && old <= 6,
        "of 400 {missed} were not found, of {old} of these the old rhythm was told"
    );
}

#[test]
fn cpu_time_of_a_period_is_told_and_a_rhythm_that_has_ended_is_not() {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(1));
    let mut thread = Thread::new(&mut dice);
    for i in 0..20 {
        let next = thread.now + 40.0;
        // Two pieces of a job, with a wait in between.
        thread.run(3.0);
        thread.sleep(2.0);
        thread.run(if i == 12 { 15.0 } else { 5.0 });
        thread.until(next);
    }
    let told = found(&thread).unwrap();
    assert!(told.period_ns.abs_diff(40_000_000) < 100_000, "{told:?}");
    assert!(told.used_max_ns.abs_diff(18_000_000) < 10_000, "{told:?}");
    assert!(told.used_ns > 8_000_000 && told.used_ns < 9_000_000, "{told:?}");
    assert!(told.confidence > 0.9, "{told:?}");
    thread.now += 200.0;
    assert_eq!(found(&thread), None);
}

/// What its tasks did in a run of the simulator: who is released while its last job goes on, does not sleep.
fn threads(run: &Run) -> Vec<Thread> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let thread = |task: usize| {
        let (mut sleeps, mut since, mut used, mut left) = (vec![], None, 0.0, 0u32);
        for event in run.events.iter().filter(|e| e.task as usize == task) {
            match event.kind() {
                Some(EventKind::Release) => {
                    if let (0, Some(since)) = (left, since) {
                        sleeps.push((since, ms(event.time), used));
                    }
                    left += 1;
                }
                Some(EventKind::Complete) => {
                    (since, left) = (Some(ms(event.time)), left - 1);
                    used += ms(event.b);
                }
                _ => (),
            }
        }
        Thread { sleeps, now: ms(run.horizon_ns), used }
    };
    (0..run.tasks.len()).map(thread).collect()
}

#[test]
fn tasks_of_a_simulated_run_beat_with_the_periods_of_their_file() {
    let set = "name = \"beats\"\ncpus = 1\nduration = \"3s\"\nseed = 5\npolicies = [\"g-edf+cbs-hard\"]\n\
        [best_effort]\ncount = 1\n\
        [[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"3ms\"\nwork = { constant = \"2ms\" }\n\
        [[task]]\nname = \"b\"\nperiod = \"41ms\"\nbudget = \"12ms\"\n\
        work = { normal = { mean = \"8.3ms\", sd = \"2ms\", max = \"12ms\" } }\n";
    let set = TaskSet::from_bytes(set.as_bytes(), "beats.toml".as_ref()).unwrap();
    let policy = CORE.iter().find(|p| p.name == "g-edf+cbs-hard").unwrap();
    let run = simulate(&set, policy).unwrap();
    for (thread, info) in threads(&run).iter().zip(&run.tasks) {
        let told = found(thread);
        // The busy best effort has none.
        let period = told.map_or(0, |told| told.period_ns);
        assert!(period.abs_diff(info.period) * 100 <= info.period, "{}: {told:?}", info.name);
    }
}
