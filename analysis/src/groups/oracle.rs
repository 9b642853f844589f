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
        let mut state = seed;
        let mut ticks = Vec::new();
        for _ in 0..PERIODS {
            let mut left = budget;
            for tick in 0..period {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let must = tick < deadline && left == deadline - tick;
                let has = left > 0 && tick < deadline && (must || state >> 63 == 1);
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

/// Whether a job is late when `ticks` from `from` on serve tasks, each of which releases jobs from its offset on as fast
/// as it may.
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
