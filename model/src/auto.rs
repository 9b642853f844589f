// SPDX-License-Identifier: GPL-2.0-only
//! The budget of a program that nobody has measured: inferred from the CPU time of its last jobs, and kept up to date.
//!
//! A *job* here is the work of one period as the scheduler notes it (`core/ob_work.h`). The budget is the greater of
//! two quantiles, a little raised: of the jobs of the last seconds, and of the last few jobs, which sees a scene come.
//! A scene that is over is forgotten soon, unless the program has shown that such scenes come back. Feedback from what
//! a program is seen to need, by quantiles, is that of LFS++ (Cucinotta, Abeni, Palopoli and Lipari, "A robust
//! mechanism for adaptive scheduling of multimedia applications", 2011) and AQuoSA (Palopoli, Cucinotta, Marzario and
//! Lipari, "AQuoSA: adaptive quality of service architecture", 2009). docs/auto.md has the rule, its constants, and
//! what it reaches.
//!
//! Nothing here reads a clock or asks anybody: the command and the simulator tell it what was seen.

use std::collections::VecDeque;

pub mod watch;

/// How long jobs count, ns, so that less is reserved soon once they take less; but so many periods at least.
const MEMORY: u64 = 2_500_000_000;
const MEMORY_PERIODS: usize = 20;
/// How long they count once the program has gone back to what it needed before: longer than most scenes, so that the
/// next one like it finds its budget there.
const LONG_MEMORY: u64 = 12_000_000_000;
/// For so long after it has last gone back, ns.
const RETURNS: u64 = 60_000_000_000;
/// Jobs that are remembered, at most.
const JOBS: usize = 4096;
/// The part of the remembered jobs that the budget is enough for.
pub const QUANTILE: f64 = 0.99;
/// The last few jobs, all of which must fit.
const FEW: usize = 5;
/// The budget is so much above the quantile.
pub const MARGIN: f64 = 0.10;
/// And by so much more, divided by the number of jobs that are known: what a few jobs say is not much.
const UNKNOWN: f64 = 3.0;
/// So many jobs in a row, without a pause, may be one long one and others that it delayed, ...
const SPIKE: u32 = 3;
/// ... and no more are counted.
const MERGED: u32 = 100;
/// How often somebody looks, at best, ns.
pub const LOOK: u64 = 50_000_000;
/// A program that uses up its budget and does not sleep any more shows nothing of its jobs: it gets so much more at
/// each look.
const HUNGRY: f64 = 2.0;
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
    /// When each was seen, and its CPU time, ns: those that may count.
    jobs: VecDeque<(u64, u64)>,
    /// Until when jobs count for long, by the program's going back to what it needed before.
    returns: u64,
    /// When jobs were last noted, and whether the budget has been used up since.
    noted: u64,
    starved: bool,
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
            returns: 0,
            noted: 0,
            starved: false,
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
        let long = LONG_MEMORY.max(MEMORY_PERIODS as u64 * self.period);
        let old = seen.at.saturating_sub(long);
        while self.jobs.len() > JOBS || self.jobs.front().is_some_and(|(at, _)| *at < old) {
            self.jobs.pop_front();
        }
        self.starved |= seen.exhausted > 0;
        if !seen.jobs.is_empty() {
            self.note_all(seen);
        }
        let wanted = self.wanted(seen)?.clamp(self.least as f64, self.most as f64);
        let budget = self.budget as f64;
        if wanted > budget * (1.0 + STEP_UP) || wanted < budget * (1.0 - STEP_DOWN) {
            self.budget = wanted as u64;
            return Some(self.budget);
        }
        None
    }

    /// Notes the jobs, and whether the program goes back to what it did before: they need more than was enough of late,
    /// and not more than was enough before that.
    fn note_all(&mut self, seen: &Seen<'_>) {
        let (known, recent) = (self.jobs.len(), self.recent(seen.at));
        let (long, short) = (self.enough(known), self.enough(recent));
        for (work, periods) in seen.jobs {
            self.note(seen.at, *work, *periods);
        }
        let most = self.quantile(self.jobs.len() - known, 1.0);
        if recent >= MEMORY_PERIODS / 2 && short < most && most <= long {
            self.returns = seen.at + RETURNS;
        }
        (self.noted, self.starved) = (seen.at, false);
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
        // A job is noted when the next one begins, and one that took a little too long with the next one.
        let quiet = seen.at.saturating_sub(self.noted);
        let hungry = self.starved && quiet + LOOK >= 2 * self.period;
        let paused = seen.at.saturating_sub(self.worked) >= PAUSE.max(20 * self.period);
        if paused {
            let before = *self.before.get_or_insert(self.budget);
            return Some(before as f64 * PAUSED);
        }
        if let Some(before) = self.before.take() {
            return Some(before as f64);
        }
        let known = self.jobs.len();
        if hungry {
            self.starved = false;
            // What was enough before it may be again.
            let before = if known < FEW { 0.0 } else { self.enough(known) };
            return Some((budget * HUNGRY).max(before));
        }
        if seen.jobs.is_empty() {
            return None;
        }
        let few = self.quantile(FEW.min(known), 1.0);
        if known < FEW {
            // Too few to lower it by; enough to raise it.
            return (few > budget).then_some(few * HUNGRY);
        }
        let count = if seen.at < self.returns { known } else { self.recent(seen.at) };
        Some(self.enough(count).max(few * self.margin()))
    }

    /// How many jobs count while the program has not shown that scenes come back.
    fn recent(&self, now: u64) -> usize {
        let old = now.saturating_sub(MEMORY.max(MEMORY_PERIODS as u64 * self.period));
        self.jobs.len() - self.jobs.partition_point(|(at, _)| *at < old)
    }

    fn margin(&self) -> f64 {
        1.0 + MARGIN + UNKNOWN / self.jobs.len().max(1) as f64
    }

    /// The budget that is enough for the last `n` jobs, ns.
    fn enough(&mut self, n: usize) -> f64 {
        self.quantile(n, QUANTILE) * self.margin()
    }

    /// What this part of the last `n` jobs needed at most, ns; 0: of none.
    fn quantile(&mut self, n: usize, part: f64) -> f64 {
        self.sorted.clear();
        self.sorted.extend(self.jobs.iter().rev().take(n).map(|(_, job)| *job));
        if self.sorted.is_empty() {
            return 0.0;
        }
        let rank = ((n as f64 * part) as usize).min(n - 1);
        *self.sorted.select_nth_unstable(rank).1 as f64
    }
}
