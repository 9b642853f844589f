// SPDX-License-Identifier: GPL-2.0-only
//! The budget of a program that nobody has measured: inferred from the CPU time of its last jobs, and kept up to date.
//!
//! A *job* here is the work of one period as the scheduler notes it (`core/ob_work.h`). The budget is the greater of
//! two quantiles, a little raised: of the jobs of the last seconds, which has seen scenes come and go, and of the last
//! few jobs, which sees a scene come. Feedback from what a program is seen to need, by quantiles, is that of LFS++
//! (Cucinotta, Abeni, Palopoli and Lipari, "A robust mechanism for adaptive scheduling of multimedia applications",
//! 2011) and AQuoSA (Palopoli, Cucinotta, Marzario and Lipari, "AQuoSA: adaptive quality of service architecture",
//! 2009). docs/auto.md has the rule, its constants, and what it reaches.
//!
//! Nothing here reads a clock or asks anybody: the command and the simulator tell it what was seen.

use std::collections::VecDeque;

pub mod watch;

/// How long jobs are remembered, ns: longer than most scenes, so that the next one like it finds its budget there.
pub const MEMORY: u64 = 12_000_000_000;
/// Jobs that are remembered, at most.
const JOBS: usize = 4096;
/// The part of the remembered jobs that the budget is enough for.
pub const QUANTILE: f64 = 0.99;
/// The last few jobs, of which all but [`FEW_OVER`] must fit.
const FEW: usize = 5;
const FEW_OVER: usize = 0;
/// The budget is so much above the quantile.
pub const MARGIN: f64 = 0.10;
/// And by so much more, divided by the number of jobs that are known: what a few jobs say is not much.
const UNKNOWN: f64 = 3.0;
/// So many jobs in a row, without a pause, may be one long one and others that it delayed, ...
const SPIKE: u32 = 3;
/// ... and no more are counted.
const MERGED: u32 = 100;
/// A program that uses up its budget and does not sleep any more shows nothing of its jobs: it gets so much more at
/// each look.
const HUNGRY: f64 = 1.5;
/// A budget is lowered only by at least this part of it, so that it is not changed at each look.
const STEP_DOWN: f64 = 0.04;
/// And raised by at least this.
const STEP_UP: f64 = 0.01;
/// A program that has not worked for so long, ns, is taken to pause, and keeps this part of its budget.
const PAUSE: u64 = 10_000_000_000;
const PAUSED: f64 = 0.25;

/// What was seen of a program since the look before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen<'a> {
    /// When, by any clock, ns.
    pub at: u64,
    /// CPU time of the jobs that have ended since, oldest first, ns; and how many periods in a row went without a
    /// pause for it: of several, only the sum is known.
    pub jobs: &'a [(u64, u32)],
    /// How often its budget has been used up since.
    pub exhausted: u64,
}

/// Keeps the budget of one program.
#[derive(Debug, Clone)]
pub struct Controller {
    period: u64,
    budget: u64,
    least: u64,
    most: u64,
    /// When each was seen, and its CPU time, ns.
    jobs: VecDeque<(u64, u64)>,
    /// When it was last seen to work.
    worked: u64,
    /// The budget before it paused.
    before: Option<u64>,
    /// The same, in order, for quantiles.
    sorted: Vec<u64>,
}

impl Controller {
    /// Of a program with this period and, to begin with, this budget; both, and the least and greatest budget it may
    /// have, in ns.
    pub fn new(period: u64, budget: u64, least: u64, most: u64) -> Self {
        let most = most.max(least);
        Self {
            period,
            budget: budget.clamp(least, most),
            least,
            most,
            jobs: VecDeque::new(),
            worked: 0,
            before: None,
            sorted: Vec::new(),
        }
    }

    /// The budget that it holds to be right, ns.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// More than that cannot be had, ns; for now, or for good.
    pub fn limit(&mut self, most: u64) {
        self.most = most.max(self.least);
        self.budget = self.budget.min(self.most);
    }

    /// It was told another budget is in force, ns: what was asked for did not fit.
    pub fn has(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// The program has another period and, to begin with, this budget: what was seen before says nothing.
    pub fn restart(&mut self, period: u64, budget: u64, most: u64) {
        *self = Self { worked: self.worked, ..Self::new(period, budget, self.least, most) };
    }

    /// Looks at what was seen; the new budget if it is to be another one, ns.
    pub fn look(&mut self, seen: &Seen<'_>) -> Option<u64> {
        if self.worked == 0 || !seen.jobs.is_empty() || seen.exhausted > 0 {
            self.worked = seen.at;
        }
        for (work, periods) in seen.jobs {
            self.note(seen.at, *work, *periods);
        }
        let old = seen.at.saturating_sub(MEMORY);
        while self.jobs.len() > JOBS || self.jobs.front().is_some_and(|(at, _)| *at < old) {
            self.jobs.pop_front();
        }
        let wanted = self.wanted(seen)?.clamp(self.least as f64, self.most as f64);
        let budget = self.budget as f64;
        if wanted > budget * (1.0 + STEP_UP) || wanted < budget * (1.0 - STEP_DOWN) {
            self.budget = wanted as u64;
            return Some(self.budget);
        }
        None
    }

    /// Notes jobs of `periods` periods that took `work` together. A few of them are taken to be one that took long and
    /// delayed usual ones, many to be all alike.
    fn note(&mut self, at: u64, work: u64, periods: u32) {
        let n = u64::from(periods.clamp(1, MERGED));
        let usual = self.usual().min(work / n);
        let long = work - (n - 1) * usual;
        let (first, others) = if periods <= SPIKE && long <= self.period {
            (long, usual)
        } else {
            (work / n, work / n)
        };
        self.jobs.push_back((at, first));
        self.jobs.extend((1..n).map(|_| (at, others)));
    }

    /// The median of the last few jobs; 0: there is none.
    fn usual(&mut self) -> u64 {
        self.sorted.clear();
        self.sorted.extend(self.jobs.iter().rev().take(2 * FEW).map(|(_, job)| *job));
        let middle = self.sorted.len() / 2;
        if self.sorted.is_empty() { 0 } else { *self.sorted.select_nth_unstable(middle).1 }
    }

    /// What it should have, ns.
    fn wanted(&mut self, seen: &Seen<'_>) -> Option<f64> {
        let budget = self.budget as f64;
        let hungry = seen.exhausted > 0 && seen.jobs.is_empty();
        let paused = seen.at.saturating_sub(self.worked) >= PAUSE.max(20 * self.period);
        if paused {
            let before = *self.before.get_or_insert(self.budget);
            return Some(before as f64 * PAUSED);
        }
        if let Some(before) = self.before.take() {
            return Some(before as f64);
        }
        if hungry {
            return Some(budget * HUNGRY);
        }
        if seen.jobs.is_empty() {
            return None;
        }
        if self.jobs.len() < FEW {
            // Too few to lower it by; enough to raise it.
            let most = self.jobs.iter().map(|(_, job)| *job).max()? as f64;
            return (most > budget).then_some(most * HUNGRY);
        }
        let jobs = self.jobs.iter().map(|(_, job)| *job);
        self.sorted.clear();
        self.sorted.extend(jobs.clone().rev().take(FEW));
        self.sorted.sort_unstable();
        let few = self.sorted[FEW - 1 - FEW_OVER];
        self.sorted.clear();
        self.sorted.extend(jobs);
        let rank = ((self.sorted.len() as f64 * QUANTILE) as usize).min(self.sorted.len() - 1);
        let (_, quantile, _) = self.sorted.select_nth_unstable(rank);
        let margin = 1.0 + MARGIN + UNKNOWN / self.jobs.len() as f64;
        Some((*quantile).max(few) as f64 * margin)
    }
}
