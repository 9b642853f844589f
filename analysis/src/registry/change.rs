// SPDX-License-Identifier: GPL-2.0-only
//! What would make a test accept a set that it does not: more CPUs, or smaller budgets.

use std::cmp::Ordering;

use super::Test;
use crate::sporadic::{Sporadic, Verdict, compare_utilization};

/// The least number of CPUs, more than `cpus` and at most `most`, with which `test` accepts the set.
pub fn cpus_needed(test: &Test, tasks: &[Sporadic], cpus: usize, most: usize) -> Option<usize> {
    if test.one_cpu {
        return None;
    }
    (cpus + 1..=most).find(|m| (test.run)(tasks, *m).verdict == Verdict::Schedulable)
}

/// The largest scale of all execution times, in thousandths, with which `test` accepts the set. Found by halving: for
/// heuristics that are not monotonic it is one such scale.
pub fn scale_that_fits(test: &Test, tasks: &[Sporadic], cpus: usize) -> Option<u64> {
    let scaled = |scale: u64| -> Vec<Sporadic> {
        let of = |t: &Sporadic| (u128::from(t.wcet) * u128::from(scale) / 1000).max(1);
        tasks.iter().map(|t| Sporadic { wcet: of(t).min(u64::MAX.into()) as u64, ..*t }).collect()
    };
    // Beyond what all CPUs have, or a task before its deadline, nothing fits.
    let possible = |scale: u64| {
        let tasks = scaled(scale);
        let alone = tasks.iter().all(|t| t.wcet <= t.deadline);
        alone && compare_utilization(&tasks, cpus as u64) != Ordering::Greater
    };
    let fits = |scale: u64| {
        possible(scale) && (test.run)(&scaled(scale), cpus).verdict == Verdict::Schedulable
    };
    let (mut low, mut high) = if fits(1000) { (1000, 2000) } else { (1, 1000) };
    if !fits(low) {
        return None;
    }
    while high > 1000 && high < SCALE_MOST && fits(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Scales, in thousandths, that nobody looks beyond.
const SCALE_MOST: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn the_change_that_is_proposed_makes_it_fit() {
        let tasks = vec![Sporadic::implicit(2000, 3000); 3];
        let test = find("p-edf-ff").unwrap();
        assert_eq!(cpus_needed(test, &tasks, 2, 8), Some(3));
        // Two of them must share a CPU: 3/4 of 2/3 is a half.
        assert_eq!(scale_that_fits(test, &tasks, 2), Some(750));
    }
}
