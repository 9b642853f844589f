// SPDX-License-Identifier: GPL-2.0-only
//! Counts and times of jobs, and what they amount to.

use super::jobs;
use crate::units::MS;

/// What counted jobs amount to, without their times.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) jobs: u64,
    pub(super) released: u64,
    pub(super) misses: u64,
    pub(super) unfinished: u64,
    pub(super) aborted: u64,
    /// CPU time of finished jobs, ns.
    pub(super) used: u64,
    pub(super) jitter_sum: u128,
    pub(super) jitter_count: u64,
    pub(super) jitter_max: u64,
}

impl Sample {
    pub(super) fn take(&mut self, jobs: &[jobs::Job], horizon: u64, values: &mut Values) {
        let mut previous: Option<u64> = None;
        for job in jobs {
            self.released += 1;
            // An unfinished job will finish at the horizon at the earliest: lower bounds.
            let end = match job.finish() {
                Some(finish) => finish,
                // It will never finish.
                None if job.aborted => {
                    self.jobs += 1;
                    self.misses += 1;
                    self.aborted += 1;
                    continue;
                }
                None if job.deadline <= horizon => {
                    self.unfinished += 1;
                    horizon
                }
                None => continue,
            };
            let response = end.saturating_sub(job.release);
            if job.finish().is_none() || end > job.deadline {
                self.misses += 1;
            }
            self.jobs += 1;
            values.response.push(response);
            if end > job.deadline {
                values.tardiness.push(end - job.deadline);
            }
            if job.finish().is_none() {
                continue;
            }
            self.used = self.used.saturating_add(job.used);
            if let Some(before) = previous.replace(response) {
                let jitter = response.abs_diff(before);
                self.jitter_sum += u128::from(jitter);
                self.jitter_count += 1;
                self.jitter_max = self.jitter_max.max(jitter);
            }
        }
    }

    pub(super) fn append(&mut self, other: &Sample) {
        self.jobs += other.jobs;
        self.released += other.released;
        self.misses += other.misses;
        self.unfinished += other.unfinished;
        self.aborted += other.aborted;
        self.used = self.used.saturating_add(other.used);
        self.jitter_sum += other.jitter_sum;
        self.jitter_count += other.jitter_count;
        self.jitter_max = self.jitter_max.max(other.jitter_max);
    }

    pub(super) fn jitter_mean(&self) -> f64 {
        if self.jitter_count == 0 {
            return 0.0;
        }
        self.jitter_sum as f64 / self.jitter_count as f64 / MS as f64
    }
}

/// Times of counted jobs, ns, of all tasks one after another: those of one task are a part, those of all the whole.
pub(super) struct Values {
    pub(super) response: Vec<u64>,
    /// Of late jobs only: most have none.
    pub(super) tardiness: Vec<u64>,
}

/// How much was in [`Values`].
#[derive(Default)]
pub(super) struct Lengths {
    pub(super) response: usize,
    pub(super) tardiness: usize,
}

impl Values {
    pub(super) fn with_capacity(jobs: usize) -> Self {
        Self { response: Vec::with_capacity(jobs), tardiness: Vec::new() }
    }

    pub(super) fn len(&self) -> Lengths {
        Lengths { response: self.response.len(), tardiness: self.tardiness.len() }
    }

    pub(super) fn forget(&mut self, from: &Lengths) {
        self.response.truncate(from.response);
        self.tardiness.truncate(from.tardiness);
    }

    /// Of all since then; puts them into another order.
    pub(super) fn stats(&mut self, from: &Lengths) -> Stats {
        let response = &mut self.response[from.response..];
        let jobs = response.len();
        Stats {
            response: summary(response, jobs),
            tardiness: summary(&mut self.tardiness[from.tardiness..], jobs),
        }
    }
}

/// Mean, 99th percentile and maximum, ms.
pub(super) struct Stats {
    pub(super) tardiness: (f64, f64, f64),
    pub(super) response: (f64, f64, f64),
}

/// Mean, 99th percentile and maximum of `n` values, of which those that are not given are 0.
pub(super) fn summary(values: &mut [u64], n: usize) -> (f64, f64, f64) {
    let Some(max) = values.iter().max().copied() else { return (0.0, 0.0, 0.0) };
    let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
    // Nearest rank: the smallest value that at least 99 % of all do not exceed.
    let rank = (n as u64 * 99).div_ceil(100) as usize - 1;
    let p99 = match rank.checked_sub(n - values.len()) {
        Some(rank) => *values.select_nth_unstable(rank).1,
        None => 0,
    };
    (sum as f64 / n as f64 / MS as f64, ms(p99), ms(max))
}

/// Mean and deviation of small whole numbers, exact until the end whatever the order.
#[derive(Default, Clone, Copy)]
pub(crate) struct Moments {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(crate) fn add(&mut self, x: f64) {
        self.n += 1.0;
        self.sum += x;
        self.squares += x * x;
    }

    pub(super) fn merge(&mut self, other: &Moments) {
        self.n += other.n;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.n == 0.0 { 0.0 } else { self.sum / self.n }
    }

    /// Mean and deviation; none of nothing.
    pub(super) fn both(&self) -> Option<(f64, f64)> {
        (self.n > 0.0).then(|| (self.mean(), self.sd()))
    }

    pub(crate) fn sd(&self) -> f64 {
        if self.n == 0.0 {
            return 0.0;
        }
        (self.squares / self.n - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}
