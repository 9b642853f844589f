// SPDX-License-Identifier: GPL-2.0-only
//! Global scheduling on identical CPUs: one queue, the m most important jobs run. Sufficient tests for EDF and for
//! fixed priorities, and how late jobs can be when they are late.
//!
//! The hard tests are for whole units of time: parameters, releases and execution times. Where a miss needs "more
//! than D − C" of interference, they say D − C + 1, and that 1 is the unit.
//!
//! None is the best: what one accepts another may not. [`union::any`] asks them all.

pub mod bak;
pub mod bar;
pub mod bcl;
mod exact;
pub mod ff_dbf;
pub mod fixed;
pub mod gel;
pub mod gfb;
pub mod hsb;
pub mod rta;
pub mod tardiness;
pub mod union;

#[cfg(test)]
pub(crate) mod oracle;
#[cfg(test)]
mod tests;

use crate::sporadic::Sporadic;

/// Times up to this, ns about five hours, are taken by the tests that multiply three of them in 128 bits.
const LONGEST: u64 = 1 << 44;
/// Tasks and CPUs up to this, likewise.
const MOST: usize = 1 << 14;

/// Pairs of tasks looked at until a test gives up; at least one look at every pair of 10,000 tasks.
fn work(tasks: &[Sporadic]) -> u64 {
    let n = tasks.len().min(MOST) as u64;
    5_000_000 + n * n
}

/// A fixed point is looked for in steps of at least this part of the deadline. Near it each step is the m-th part of
/// the one before, and with times in ns there would be thousands; any r with f(r) ≤ r is a bound, so the price is that
/// much precision.
const PARTS: u64 = 4096;

/// The next candidate after `r`, for which f(r) = `next` > r; `most` is the last.
fn step(r: u64, next: u64, deadline: u64, most: u64) -> u64 {
    next.max(r.saturating_add(deadline / PARTS)).min(most)
}

/// Takes `n` from what is left, or gives up.
fn spend(left: &mut u64, n: usize) -> Option<()> {
    *left = left.checked_sub(n as u64)?;
    Some(())
}

/// Each job can be done by itself before its deadline and its successor, and its deadline is not after its period.
fn constrained(tasks: &[Sporadic]) -> bool {
    tasks.iter().all(|task| task.wcet <= task.deadline && task.deadline <= task.period)
}

/// Few and short enough that products of three times fit 128 bits.
fn small(tasks: &[Sporadic], cpus: usize) -> bool {
    let short = |task: &Sporadic| task.wcet.max(task.deadline).max(task.period) <= LONGEST;
    cpus <= MOST && tasks.len() <= MOST && tasks.iter().all(short)
}
