// SPDX-License-Identifier: GPL-2.0-only
//! What the tests of groups are tested by: ticks in which a group has the CPU or has it not.

use crate::groups::Supply;
use crate::sporadic::Sporadic;

/// In which ticks of its periods a server has the CPU.
pub struct Pattern(Vec<bool>);

/// Periods of a pattern.
const PERIODS: u64 = 60;

impl Pattern {
    /// At the very beginning of the first period, at the very end of the time that all later ones have.
    pub fn worst(supply: Supply) -> Self {
        let Supply { budget, period, deadline } = supply;
        let has = |tick: u64| match (tick / period, tick % period) {
            (0, tick) => tick < budget,
            (_, tick) => tick >= deadline - budget && tick < deadline,
        };
        Self((0..PERIODS * period).map(has).collect())
    }

    /// Anywhere before each deadline.
    pub fn drawn(supply: Supply, seed: u64) -> Self {
        let Supply { budget, period, deadline } = supply;
        let mut numbers = Numbers(seed);
        let mut ticks = Vec::new();
        for _ in 0..PERIODS {
            let mut left = budget;
            for tick in 0..period {
                let must = tick < deadline && left == deadline - tick;
                let has = left > 0 && tick < deadline && (must || numbers.within(0, 1) == 1);
                left -= u64::from(has);
                ticks.push(has);
            }
        }
        Self(ticks)
    }

    pub fn ticks(self) -> Vec<bool> {
        self.0
    }
}

/// The least that any interval of each length below `longest` has, by counting.
pub fn least_supplies(ticks: &[bool], longest: usize) -> Vec<u64> {
    let count =
        |from: usize, length: usize| ticks[from..from + length].iter().filter(|t| **t).count();
    let least = |length| (0..=ticks.len() - longest).map(|from| count(from, length)).min();
    (0..longest).map(|length| least(length).unwrap_or(0) as u64).collect()
}

/// How a queue is ordered: the least first, by (task, absolute deadline).
pub type By = fn(&[Sporadic], usize, u64) -> u64;

/// Earliest deadline first.
pub fn edf(_: &[Sporadic], _: usize, due: u64) -> u64 {
    due
}

/// The tasks are in the order of their priorities.
pub fn as_they_stand(_: &[Sporadic], task: usize, _: u64) -> u64 {
    task as u64
}

/// Whether a job is late when `ticks` from `from` on serve tasks, each of which releases jobs from its offset on as
/// fast as it may.
pub fn misses(tasks: &[Sporadic], offsets: &[u64], ticks: &[bool], from: usize, by: By) -> bool {
    let mut jobs: Vec<(u64, usize, u64)> = Vec::new(); // due, task, left
    for (now, has) in ticks[from..].iter().enumerate() {
        let now = now as u64;
        for (i, task) in tasks.iter().enumerate() {
            if now >= offsets[i] && (now - offsets[i]).is_multiple_of(task.period) {
                jobs.push((now + task.deadline, i, task.wcet));
            }
        }
        if *has
            && let Some(first) =
                (0..jobs.len()).min_by_key(|j| (by(tasks, jobs[*j].1, jobs[*j].0), *j))
        {
            jobs[first].2 -= 1;
        }
        jobs.retain(|job| job.2 > 0);
        if jobs.iter().any(|job| job.0 <= now + 1) {
            return true;
        }
    }
    false
}

/// Numbers that look random, from a seed.
pub struct Numbers(pub u64);

impl Numbers {
    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        let Self(state) = self;
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (*state >> 33) % (high - low + 1)
    }
}

/// A group in a group: a constant bandwidth server that waits for its next budget, by the rules of Onbeat's core.
pub struct Inner {
    pub supply: Supply,
    pub deadline: u64,
    pub left: u64,
    pub rests: bool,
    /// Whether it may begin anew between its deadline and its next budget.
    pub anew: bool,
}

impl Inner {
    fn rests_until(&self) -> u64 {
        self.deadline - self.supply.deadline + self.supply.period
    }

    fn begin(&mut self, now: u64) {
        let Supply { budget, deadline, .. } = self.supply;
        (self.left, self.deadline, self.rests) = (budget, now + deadline, false);
    }

    pub fn tick(&mut self, now: u64) {
        if self.rests && now >= self.rests_until() {
            let next = self.deadline + self.supply.period;
            (self.left, self.deadline, self.rests) = (self.supply.budget, next, false);
        }
    }

    pub fn wake(&mut self, now: u64) {
        let Supply { budget, deadline, .. } = self.supply;
        let over = self.deadline <= now && (!self.rests || self.anew);
        let spares = || self.left * deadline >= self.deadline.saturating_sub(now) * budget;
        if over || (!self.rests && spares()) {
            self.begin(now);
        }
    }
}

/// As [`misses`], under EDF, of `tasks` and of `inside`, which a group of `supply` serves that is one of the members.
/// Releases are apart by a few ticks more than they must, and jobs take less than they may, by `numbers`.
pub fn nested_misses(
    tasks: &[Sporadic],
    inside: &[Sporadic],
    supply: Supply,
    ticks: &[bool],
    mut numbers: Numbers,
) -> bool {
    let all: Vec<&Sporadic> = tasks.iter().chain(inside).collect();
    let mut next: Vec<u64> = all.iter().map(|_| numbers.within(0, 6)).collect();
    let mut jobs: Vec<(u64, usize, u64)> = Vec::new(); // due, task, left
    let anew = numbers.within(0, 1) == 1;
    let mut inner = Inner { supply, deadline: 0, left: 0, rests: false, anew };
    let group_first = numbers.within(0, 1) == 1;
    for (now, has) in ticks.iter().enumerate() {
        let now = now as u64;
        inner.tick(now);
        let slept = jobs.iter().all(|job| job.1 < tasks.len());
        for (i, task) in all.iter().enumerate() {
            if now == next[i] {
                jobs.push((now + task.deadline, i, numbers.within(1, task.wcet)));
                next[i] += task.period + numbers.within(0, 2) * numbers.within(0, 2);
            }
        }
        if slept && jobs.iter().any(|job| job.1 >= tasks.len()) {
            inner.wake(now);
        }
        let of = |inside: bool| {
            let those = (0..jobs.len()).filter(|j| (jobs[*j].1 >= tasks.len()) == inside);
            those.min_by_key(|j| jobs[*j].0)
        };
        let (own, theirs) = (of(false), of(true).filter(|_| !inner.rests));
        let to_group = match (own, theirs) {
            (Some(own), Some(_)) => {
                let due = jobs[own].0;
                inner.deadline < due || (inner.deadline == due && group_first)
            }
            _ => own.is_none(),
        };
        let chosen = if to_group { theirs } else { own };
        if let Some(chosen) = chosen.filter(|_| *has) {
            jobs[chosen].2 -= 1;
            if to_group {
                inner.left -= 1;
                inner.rests = inner.left == 0;
            }
        }
        jobs.retain(|job| job.2 > 0);
        if jobs.iter().any(|job| job.0 <= now + 1) {
            return true;
        }
    }
    false
}
