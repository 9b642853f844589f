// SPDX-License-Identifier: GPL-2.0-only
//! The rhythm of a thread, inferred from its last wake-ups.
//!
//! A rhythm is a period from one wake-up to the next, give or take. Wake-ups that divide a span of time at random would
//! also now and then be as regular as that; how seldom follows from the spread of the distances (M. Greenwood, "The
//! statistical study of infectious diseases", 1946; P. A. P. Moran, "The random division of an interval", 1947). A
//! rhythm is told only where that is very seldom.
//!
//! The wake-ups come in several series ([`Wake`], `core/ob_beat.h`): all of them, and those after longer sleeps only,
//! in which what a thread sleeps within a job does not show.

use serde::{Deserialize, Serialize};

/// A wake-up of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// When, ns.
    pub at: u64,
    /// CPU time that the thread had used by then, ns.
    pub used: u64,
}

/// A thread's rhythm; times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rhythm {
    /// From one job to the next, [`SHORTEST`] to [`LONGEST`].
    pub period_ns: u64,
    /// How far to trust it, 0 to 1: the part of the wake-ups that it explains, less their spread, less what a short
    /// history leaves open.
    pub confidence: f64,
    /// CPU time of a period, on average.
    pub used_ns: u64,
    /// CPU time of the period that took most.
    pub used_max_ns: u64,
    /// Periods that were looked at.
    pub periods: u32,
}

/// No period is shorter, ns: with 20 % of jitter, one of 5 ms may look like this.
pub const SHORTEST: u64 = 4_000_000;
/// No period is longer, ns; likewise of 1 s.
pub const LONGEST: u64 = 1_250_000_000;

/// Random wake-ups may look like a rhythm in one of e^this looks: in one of 36,000. This and what follows are chosen by
/// the threads of `sim/tests/beats.rs`.
const SELDOM: f64 = 10.5;
/// A rhythm's distances spread by no more than this, their standard deviation as a part of the period.
const SPREAD: f64 = 0.22;
/// Distances by which a rhythm is known at least.
const STEPS: usize = 6;
/// Distances that outlast most jobs.
const LONG: usize = 9;
/// How far from where it is expected a wake-up is looked for, as a part of the period.
const WINDOW: f64 = 0.45;
/// Spreads below this are not told apart: clocks and timers have their own.
const GRAIN: f64 = 0.01;
/// By so much, of that logarithm, a rhythm is the less seldom for each wake-up that is not in step, ...
const EXTRA: f64 = 1.0;
/// ... for each that is missing, ...
const MISSED: f64 = 4.0;
/// ... and if there are wake-ups before it: it may then begin where that suits it best.
const BEFORE: f64 = 2.0;
/// A rhythm that has been silent for so many periods is over.
const SILENT: f64 = 2.5;

/// The rhythm in `series`, each in order of time, from the one with all wake-ups to that of the longest sleeps; `now`
/// by the same clock. A series that does not go up is looked at as far back as it does.
pub fn rhythm(series: &[Vec<Wake>], now: u64) -> Option<Rhythm> {
    let mut chosen: Option<Chain> = None;
    for (level, wakes) in series.iter().enumerate() {
        let Some(chain) = best(wakes, now) else { continue };
        // Where all wake-ups are in step there is no more to a job, nor where it goes on so long after the last of the
        // longer sleeps: that was before the rhythm changed. Else a job is what longer sleeps lie between.
        let longer = series[level + 1..]
            .iter()
            .filter_map(|wakes| Some(wakes.last()?.at))
            .max()
            .unwrap_or(0);
        let last = chain.is_whole() || chain.is_since(longer);
        chosen = Some(chain);
        if last {
            break;
        }
    }
    chosen.map(|chain| chain.rhythm())
}

/// From one wake-up of a chain to the one before it.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Distance, ns; where a wake-up is missing in between, half of that.
    distance: f64,
    /// CPU time, likewise, ns.
    used: f64,
    /// A wake-up is missing.
    missed: bool,
    /// Wake-ups in between that are not in step.
    extra: usize,
}

/// Wake-ups at equal distances, from the last one back.
#[derive(Debug, Clone)]
struct Chain {
    steps: Vec<Step>,
    missed: usize,
    extra: usize,
    /// Wake-ups before its first.
    before: usize,
    mean: f64,
    /// Standard deviation of the distances, as a part of their mean.
    spread: f64,
    /// Logarithm of how seldom random wake-ups look like this, negated.
    seldom: f64,
    /// Its first wake-up, ns.
    first: u64,
}

/// The most significant chain in one series.
fn best(wakes: &[Wake], now: u64) -> Option<Chain> {
    let from = (1..wakes.len()).rev().find(|i| wakes[*i].at <= wakes[i - 1].at).unwrap_or(0);
    let wakes = &wakes[from..];
    let last = wakes.last()?.at;
    // Differences only: clocks may have any origin.
    let back: Vec<(f64, f64)> =
        wakes.iter().rev().map(|w| ((last - w.at) as f64, w.used as f64)).collect();
    let silent = now.saturating_sub(last) as f64;
    let candidates = candidates(&back);
    let looks = (candidates.len().max(1) as f64).ln();
    candidates
        .into_iter()
        .filter_map(|period| chain(last, &back, period))
        // Once more, by the period that was found.
        .filter_map(|first| chain(last, &back, first.mean))
        .filter(|chain| silent <= SILENT * chain.mean && chain.seldom - looks >= SELDOM)
        .max_by(|a, b| a.seldom.total_cmp(&b.seldom))
}

/// Periods worth a look: medians of the distances of wake-ups so many apart, of the newest and of all.
fn candidates(back: &[(f64, f64)]) -> Vec<f64> {
    let mut all = Vec::new();
    for apart in 1..=4 {
        for newest in [6, 11, back.len()] {
            let part = &back[..newest.min(back.len())];
            let mut distances: Vec<f64> =
                part.windows(apart + 1).map(|w| w[apart].0 - w[0].0).collect();
            if distances.len() >= 2 {
                distances.sort_by(f64::total_cmp);
                all.push(distances[distances.len() / 2]);
            }
        }
    }
    all.retain(|p| (SHORTEST as f64..=LONGEST as f64).contains(p));
    all.sort_by(f64::total_cmp);
    all.dedup_by(|a, b| (*a - *b).abs() < 0.02 * *b);
    all
}

/// The chain of about `period` through wake-ups `back` from the last one, if it can be a rhythm's: as far back as makes
/// it most significant, for another rhythm may have been before.
fn chain(last: u64, back: &[(f64, f64)], period: f64) -> Option<Chain> {
    let mut steps: Vec<Step> = Vec::with_capacity(back.len());
    let (mut here, mut best): (_, Option<Chain>) = (0, None);
    while let Some((next, times)) = next(back, here, period) {
        steps.push(Step {
            distance: (back[next].0 - back[here].0) / times,
            used: (back[here].1 - back[next].1).max(0.0) / times,
            missed: times > 1.0,
            extra: next - here - 1,
        });
        here = next;
        let chain = Chain::of(&steps, back.len() - 1 - here, last - back[here].0 as u64);
        if chain.as_ref().map(|c| c.seldom) > best.as_ref().map(|c| c.seldom) {
            best = chain;
        }
    }
    best
}

/// The wake-up that is nearest to one period before wake-up `here`, or else to two; and how many that are.
fn next(back: &[(f64, f64)], here: usize, period: f64) -> Option<(usize, f64)> {
    [1.0, 2.0].into_iter().find_map(|times| {
        let off = |j: &usize| (back[*j].0 - back[here].0 - times * period).abs();
        let near = (here + 1..back.len()).filter(|j| off(j) <= WINDOW * period);
        Some((near.min_by(|a, b| off(a).total_cmp(&off(b)))?, times))
    })
}

impl Chain {
    /// Of these steps, if they can be a rhythm's.
    fn of(steps: &[Step], before: usize, first: u64) -> Option<Self> {
        let n = steps.len();
        let extra = |steps: &[Step]| steps.iter().map(|s| s.extra).sum::<usize>();
        let missed = steps.iter().filter(|s| s.missed).count();
        let (new, old) = (extra(&steps[..n / 2]), extra(&steps[n / 2..]));
        // Of late more than before: the rhythm was another one.
        if n < STEPS || new + old > n || 4 * missed > n || new > 2 * old + 2 {
            return None;
        }
        let count = n as f64;
        let mean = steps.iter().map(|s| s.distance).sum::<f64>() / count;
        let square = |s: &Step| (s.distance / mean - 1.0).powi(2);
        let spread = (steps.iter().map(square).sum::<f64>() / count).sqrt();
        if spread > SPREAD || !(SHORTEST as f64..=LONGEST as f64).contains(&mean) {
            return None;
        }
        let extra = new + old;
        // A choice among so many ways to leave out wake-ups, or to do without them.
        let chosen = count * (1.0 + extra as f64 / count).ln()
            + EXTRA * extra as f64
            + MISSED * missed as f64
            + if before > 0 { BEFORE } else { 0.0 };
        let seldom = -regular_by_chance(n, spread.max(GRAIN)) - chosen;
        Some(Self { steps: steps.into(), missed, extra, before, mean, spread, seldom, first })
    }

    /// Whether it takes in nearly all wake-ups that are known.
    fn is_whole(&self) -> bool {
        let n = self.steps.len();
        4 * self.extra <= n && 2 * self.before <= n
    }

    /// Whether it is long, and all of it comes after `at`, or nearly all.
    fn is_since(&self, at: u64) -> bool {
        self.steps.len() >= LONG && self.first as f64 + 2.5 * self.mean >= at as f64
    }

    fn rhythm(&self) -> Rhythm {
        let n = self.steps.len() as f64;
        let explained = n / (n + (self.extra + self.missed) as f64);
        Rhythm {
            period_ns: self.mean as u64,
            confidence: explained * (1.0 - self.spread) * n / (n + 1.0),
            used_ns: (self.steps.iter().map(|s| s.used).sum::<f64>() / n) as u64,
            used_max_ns: self.steps.iter().fold(0.0, |a: f64, s| a.max(s.used)) as u64,
            periods: self.steps.len() as u32 + self.missed as u32,
        }
    }
}

/// Logarithm of the probability that `n` parts, at least 2, into which random points divide a span deviate by no more
/// than `spread` > 0: points of a simplex that are in a ball around its middle, by their volumes. Where the ball is the
/// larger one, more than 0.
fn regular_by_chance(n: usize, spread: f64) -> f64 {
    let dimensions = n - 1;
    // Of the unit ball: V(d) = V(d - 2) 2 pi / d, V(0) = 1, V(1) = 2.
    let mut ball = if dimensions.is_multiple_of(2) { 0.0 } else { std::f64::consts::LN_2 };
    for d in (2 + dimensions % 2..=dimensions).step_by(2) {
        ball += (std::f64::consts::TAU / d as f64).ln();
    }
    let factorial: f64 = (1..=dimensions).map(|k| (k as f64).ln()).sum();
    let count = n as f64;
    ball + dimensions as f64 * (spread / count.sqrt()).ln() + factorial - count.ln() / 2.0
}

#[cfg(test)]
mod tests;
