// SPDX-License-Identifier: GPL-2.0-only
//! Execution times of jobs, the same in every world and on every machine.
//!
//! Random work of copy c of entry i is drawn from ChaCha8 keyed by the task set's seed, stream (i, c): adding a task or
//! a job changes no other. A task's threads beside the first, and best-effort loads, have streams of their own under
//! other keys, as have generators. Only integer arithmetic and `libm` are used, so no platform's mathematics library
//! shows.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::taskset::{
    Arrivals, BestEffortLoad, GRACE, Generators, Sleeper, TaskCopy, TaskSet, Work,
};
use crate::units::US;

/// The endless sequence of execution times (ns, at least 1) of one task.
#[derive(Debug, Clone)]
pub struct WorkGen<'w> {
    work: &'w Work,
    rng: ChaCha8Rng,
    job: usize,
    /// What it plays of a pool, and from which frame on.
    reel: (&'w [u64], usize),
}

impl<'w> WorkGen<'w> {
    /// The generator of copy `copy` of entry `entry`; `None` for work whose length only running it can tell.
    pub fn new(work: &'w Work, seed: u64, entry: usize, copy: u32) -> Option<Self> {
        Self::keyed(work, [seed, 0], entry, copy)
    }

    /// As [`WorkGen::new`], under a key of its own for each `more`.
    fn keyed(work: &'w Work, [seed, more]: [u64; 2], entry: usize, copy: u32) -> Option<Self> {
        if !work.is_replayable() {
            return None;
        }
        let rng = |more: u64, copy: u32| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&seed.to_le_bytes());
            key[8..16].copy_from_slice(&more.to_le_bytes());
            let mut rng = ChaCha8Rng::from_seed(key);
            rng.set_stream((entry as u64) << 32 | u64::from(copy));
            rng
        };
        let mut own = Self { work, rng: rng(more, copy), job: 0, reel: (&[], 0) };
        if let Work::Pool { reels, .. } = work {
            let mut shuffled = Self { rng: rng(POOL + more, 0), ..own.clone() };
            let reel = &reels[shuffled.drawn(reels.len(), copy as usize)];
            own.reel = (reel, own.below(reel.len() as u64 - 1) as usize);
        }
        Some(own)
    }

    /// Which of `n` is at place `at` when they are shuffled again and again (Fisher and Yates; Durstenfeld, "Algorithm
    /// 235: random permutation", 1964).
    fn drawn(&mut self, n: usize, at: usize) -> usize {
        let mut order: Vec<usize> = (0..n).collect();
        for _ in 0..=at / n {
            for i in 0..n {
                order.swap(i, i + self.below((n - 1 - i) as u64) as usize);
            }
        }
        order[at % n]
    }

    /// Uniform in [0, span], by multiplication: its bias is below 2⁻⁶⁴ · span.
    fn below(&mut self, span: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * (u128::from(span) + 1)) >> 64) as u64
    }

    /// Uniform in (0, 1] with 53 bits, never 0, so that its logarithm is finite.
    fn unit(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed, with this mean.
    fn exponential(&mut self, mean: u64) -> f64 {
        -(mean as f64) * libm::log(self.unit())
    }

    /// Draws until the value lies in [1 µs, max]. The task-set file's rules keep the chance of each draw above one
    /// in ten, so the bound on the tries is only there against a hand-made `Work`.
    fn truncated(&mut self, max: u64, mut draw: impl FnMut(&mut Self) -> f64) -> u64 {
        for _ in 0..1000 {
            let x = draw(self);
            if x >= US as f64 && x <= max as f64 {
                return libm::round(x) as u64;
            }
        }
        max.max(1)
    }
}

impl Iterator for WorkGen<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let job = self.job;
        self.job += 1;
        Some(match *self.work {
            Work::Constant(ns) => ns,
            Work::Uniform(low, high) => low + self.below(high.saturating_sub(low)),
            // Box and Muller (1958); the second value of each pair is not used, to keep draws independent of history.
            Work::Normal { mean, sd, max } => self.truncated(max, |g| {
                let radius = libm::sqrt(-2.0 * libm::log(g.unit()));
                let angle = 2.0 * std::f64::consts::PI * g.unit();
                mean as f64 + sd as f64 * radius * libm::cos(angle)
            }),
            Work::Exponential { mean, max } => self.truncated(max, |g| g.exponential(mean)),
            Work::Trace { start, ref values, .. } => {
                values[(start % values.len() + job % values.len()) % values.len()]
            }
            Work::Pool { .. } => self.reel.0[(self.reel.1 + job) % self.reel.0.len()],
            Work::Movie { .. } | Work::Program(_) => return None,
        })
    }
}

/// Execution times (ns) of all jobs the task releases within the set's duration; `None` for movies and programs.
pub fn execution_times(set: &TaskSet, task: &TaskCopy<'_>) -> Option<Vec<u64>> {
    thread_times(set, task, 0)
}

/// The same of one of its threads, which draws its own; of the first it is [`execution_times`].
pub fn thread_times(set: &TaskSet, task: &TaskCopy<'_>, thread: u32) -> Option<Vec<u64>> {
    let jobs = usize::try_from(task.jobs).ok()?;
    let key = [set.seed, thread.into()];
    // Who shows frames plays the movie that is decoded.
    let entry = match (&task.spec.work, task.spec.frames) {
        (Work::Pool { .. }, Some(frames)) => frames.decoder,
        _ => task.entry,
    };
    let generator = WorkGen::keyed(&task.spec.work, key, entry, task.copy)?;
    Some(generator.take(jobs).collect())
}

/// Keys of best-effort loads: above those of threads.
const LOADS: u64 = 1 << 32;
/// Keys by which pools are shuffled: above those.
const POOL: u64 = 1 << 48;
/// Keys of generators, of times and of gaps.
const GENERATORS: [u64; 2] = [2 << 32, (2 << 32) + 1];

/// A sequence that only draws.
const DRAWS: Work = Work::Constant(1);

/// When bursts come, ns from the beginning, ascending, and what each takes, ns.
pub type Bursts = (Vec<u64>, Vec<u64>);

/// The bursts of a sleeper, as long as late jobs are waited for.
pub fn bursts(set: &TaskSet, sleeper: &Sleeper<'_>) -> Bursts {
    match *sleeper {
        Sleeper::Load { index, load, copy } => of_load(set, index, load, copy),
        Sleeper::Generator { of, number, .. } => of_generator(set, &of, number),
    }
}

/// The times at which gaps of these lengths end, until `end`.
fn one_after_another(mut gap: impl FnMut() -> u64, end: u64) -> Vec<u64> {
    let mut last = 0u64;
    let next = std::iter::repeat_with(|| {
        last = last.saturating_add(gap());
        last
    });
    next.take_while(|time| *time < end).collect()
}

/// Draws of a generator beyond its limits become these: where Kenna et al. say that times are limited, only that agrees
/// with the throughput their figures show.
fn of_generator(set: &TaskSet, of: &Generators, number: u32) -> Bursts {
    let draws = |key: u64| WorkGen::keyed(&DRAWS, [set.seed, key], 0, number).expect("no program");
    let [mut times, mut gaps] = GENERATORS.map(draws);
    let gap = || (gaps.exponential(of.gap) as u64).clamp(1, of.longest_gap);
    let arrivals = one_after_another(gap, set.duration + GRACE);
    let time = |_: &u64| (times.exponential(of.mean) as u64).clamp(of.least, of.most);
    let times = arrivals.iter().map(time).collect();
    (arrivals, times)
}

fn of_load(set: &TaskSet, index: usize, load: &BestEffortLoad, copy: u32) -> Bursts {
    let end = set.duration + GRACE;
    let arrivals: Vec<u64> = match load.arrivals {
        Arrivals::Periodic => (0..end).step_by(load.period as usize).collect(),
        Arrivals::Poisson => {
            let key = [set.seed, LOADS + 1];
            let mut random = WorkGen::keyed(&DRAWS, key, index, copy).expect("no program");
            one_after_another(|| random.exponential(load.period) as u64, end)
        }
    };
    let times = WorkGen::keyed(&load.work, [set.seed, LOADS], index, copy);
    let times = times.map_or_else(Vec::new, |times| times.take(arrivals.len()).collect());
    (arrivals, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(work: &Work, seed: u64, entry: usize, copy: u32, n: usize) -> Vec<u64> {
        WorkGen::new(work, seed, entry, copy).unwrap().take(n).collect()
    }

    const NORMAL: Work = Work::Normal { mean: 15_000_000, sd: 5_000_000, max: 20_000_000 };
    const EXPONENTIAL: Work = Work::Exponential { mean: 15_000_000, max: 45_000_000 };

    #[test]
    fn the_sequences_are_these_on_every_machine() {
        // Recorded once; a change here changes every published result.
        assert_eq!(first(&Work::Uniform(5, 30), 1, 0, 0, 5), UNIFORM_SEQUENCE);
        assert_eq!(first(&NORMAL, 1, 0, 0, 3), NORMAL_SEQUENCE);
        assert_eq!(first(&EXPONENTIAL, 1, 2, 3, 3), EXPONENTIAL_SEQUENCE);
    }
    const UNIFORM_SEQUENCE: [u64; 5] = [14, 12, 25, 28, 27];
    const NORMAL_SEQUENCE: [u64; 3] = [13066444, 17901425, 16789333];
    const EXPONENTIAL_SEQUENCE: [u64; 3] = [8932106, 6056848, 5511713];

    #[test]
    fn seed_entry_and_copy_each_change_the_sequence() {
        let work = Work::Uniform(1, u64::MAX);
        let all = [
            first(&work, 1, 0, 0, 4),
            first(&work, 2, 0, 0, 4),
            first(&work, 1, 1, 0, 4),
            first(&work, 1, 0, 1, 4),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn uniform_reaches_both_ends_and_nothing_beyond() {
        let values = first(&Work::Uniform(5, 8), 7, 0, 0, 1000);
        assert_eq!(values.iter().min(), Some(&5));
        assert_eq!(values.iter().max(), Some(&8));
        assert!(first(&Work::Uniform(9, 9), 7, 0, 0, 10).iter().all(|v| *v == 9));
    }

    #[test]
    fn truncated_draws_stay_inside_and_keep_their_middle() {
        for (work, max, mean) in
            [(&NORMAL, 20_000_000, 13_500_000), (&EXPONENTIAL, 45_000_000, 12_640_000)]
        {
            let values = first(work, 3, 0, 0, 100_000);
            assert!(values.iter().all(|v| (US..=max).contains(v)));
            let got = values.iter().sum::<u64>() / values.len() as u64;
            // Means of the truncated distributions, worked out by hand; 1 % is above ten standard errors.
            assert!(got.abs_diff(mean) < mean / 100, "{got} instead of {mean}");
        }
    }

    #[test]
    fn traces_start_where_told_and_go_round() {
        let work = Work::Trace { path: "t".into(), start: 2, values: vec![10, 20, 30].into() };
        assert_eq!(first(&work, 1, 0, 0, 5), [30, 10, 20, 30, 10]);
    }

    #[test]
    fn copies_play_different_movies_of_a_pool_and_a_display_the_one_that_is_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let lines =
            |unit: u64| (1..=5).map(move |m| format!("m{m},{},{}\n", unit * m, unit * m + 9));
        std::fs::write(folder.path().join("d.csv"), lines(100).collect::<String>()).unwrap();
        std::fs::write(folder.path().join("s.csv"), lines(10).collect::<String>()).unwrap();
        let task = |name: &str, more: &str| {
            format!(
                "[[task]]\nname = \"{name}\"\ncount = 7\nperiod = \"1s\"\nwork = {{ pool = {more}\n"
            )
        };
        let text = |seed: u64| {
            let (decode, show) = (task("d", "\"d.csv\" }"), task("s", "\"s.csv\" }"));
            let tie = "frames_from = \"d\"\nqueue = 1";
            format!("cpus = 1\nduration = \"4s\"\nseed = {seed}\n{decode}{show}{tie}\n")
        };
        let mut orders = std::collections::BTreeSet::new();
        for seed in 1..=10 {
            let set =
                TaskSet::from_bytes(text(seed).as_bytes(), &folder.path().join("x.toml")).unwrap();
            let times: Vec<_> = set.copies().map(|c| execution_times(&set, &c).unwrap()).collect();
            let movie = |times: &[u64], unit: u64| times.iter().min().unwrap() / (unit * 1_000_000);
            let decoded: Vec<u64> = times[..7].iter().map(|t| movie(t, 100)).collect();
            let shown: Vec<u64> = times[7..].iter().map(|t| movie(t, 10)).collect();
            assert_eq!(decoded, shown);
            let mut first = decoded[..5].to_vec();
            first.sort_unstable();
            assert_eq!(first, [1, 2, 3, 4, 5], "none twice while some are left");
            assert!(times[0][0] != times[0][1] && times[0][..2] == times[0][2..], "it goes round");
            orders.insert(decoded);
        }
        assert!(orders.len() > 5, "{orders:?}");
    }

    #[test]
    fn threads_and_loads_draw_from_streams_of_their_own() {
        let text = "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"1ms\"\n\
                    threads = 2\nwork = { uniform = [\"1ns\", \"1h\"] }\n[[best_effort.load]]\nname = \"b\"\n\
                    period = \"1ms\"\narrivals = \"poisson\"\nwork = { uniform = [\"1ns\", \"1h\"] }\n";
        let set = TaskSet::from_bytes(text.as_bytes(), "x".as_ref()).unwrap();
        let copy = set.copies().next().unwrap();
        let (first, second) = (thread_times(&set, &copy, 0), thread_times(&set, &copy, 1));
        assert_eq!(first, execution_times(&set, &copy));
        let (arrivals, times) = bursts(&set, &set.sleepers().next().unwrap());
        assert!(first != second && first.unwrap()[..] != times[..100]);
        // 2000 are expected in the 2 s; five standard deviations are 224.
        assert!((1776..2224).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted() && times.len() == arrivals.len());
        // Of a Poisson process e^-1 of the gaps are longer than the mean: 736, five deviations are 108.
        let long = arrivals.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count();
        assert!((628..844).contains(&long), "{long}");
    }

    #[test]
    fn generators_ask_for_what_their_limits_say_and_each_has_a_sequence_of_its_own() {
        let text = "cpus = 1\nduration = \"30min\"\nbest_effort = { generators = 2 }\n";
        let mut set = TaskSet::from_bytes(text.as_bytes(), "x".as_ref()).unwrap();
        let of = set.generators().unwrap();
        let draw = |set: &TaskSet| -> Vec<_> { set.sleepers().map(|s| bursts(set, &s)).collect() };
        let drawn = draw(&set);
        assert!(drawn[0] != drawn[1]);
        for (arrivals, times) in &drawn {
            assert_eq!(arrivals.len(), times.len());
            assert!(times.iter().all(|t| (of.least..=of.most).contains(t)));
            let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(gaps.clone().all(|gap| gap <= of.longest_gap));
            // e^-2 of the gaps are cut, and 1 - e^-0.2 of the times are the least; of some 20,800 five standard
            // deviations are 0.012 and 0.013.
            let n = times.len() as f64;
            let cut = gaps.filter(|gap| *gap == of.longest_gap).count() as f64 / n;
            let least = times.iter().filter(|t| **t == of.least).count() as f64 / n;
            assert!((cut - 0.1353).abs() < 0.012, "{cut}");
            assert!((least - 0.1813).abs() < 0.013, "{least}");
            // A time deviates by 9.6 ms, a gap by 62 ms: five standard errors of the means are 0.34 and 2.2 ms.
            let mean = times.iter().sum::<u64>() as f64 / n;
            assert!((mean - of.mean_time()).abs() < 0.34e6, "{mean}");
            let gap = arrivals[arrivals.len() - 1] as f64 / n;
            assert!((gap - of.mean_gap()).abs() < 2.2e6, "{gap}");
        }
        set.seed += 1;
        assert!(draw(&set)[0] != drawn[0]);
    }

    #[test]
    fn movies_and_programs_have_no_known_length() {
        assert!(WorkGen::new(&Work::Program(vec!["x".into()]), 1, 0, 0).is_none());
        assert!(WorkGen::new(&Work::Movie { path: "m".into(), size: None }, 1, 0, 0).is_none());
    }
}
