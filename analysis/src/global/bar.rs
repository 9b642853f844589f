// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF by demand in windows that begin with a CPU free.

use super::exact::load_high;
use super::{constrained, small, spend, work};
use crate::sporadic::{Sporadic, Verdict};

/// For each job: in the window from when a CPU was last free until its deadline, the others' demand leaves it its time.
/// At most m − 1 tasks carry work into that window. Deadlines within periods, U < m.
///
/// Source: Baruah 2007, theorem 2, for whole units of time.
pub fn bar(tasks: &[Sporadic], cpus: usize) -> Verdict {
    if cpus == 0 || !constrained(tasks) || !small(tasks, cpus) {
        return Verdict::sufficient(tasks.is_empty());
    }
    let mut left = work(tasks);
    let mut more = Vec::with_capacity(tasks.len());
    let mut fits = |k| fits(tasks, cpus, k, &mut left, &mut more).is_some();
    Verdict::sufficient((0..tasks.len()).all(&mut fits))
}

/// `None` if a job of task `k` can miss, or that takes too long to tell.
fn fits(
    tasks: &[Sporadic],
    cpus: usize,
    k: usize,
    left: &mut u64,
    more: &mut Vec<u64>,
) -> Option<()> {
    let end = longest(tasks, cpus, k)?;
    let mut l = tasks[k].deadline;
    while l <= end {
        spend(left, 2 * tasks.len())?;
        l = next(tasks, cpus, k, l, more)?;
    }
    Some(())
}

/// The longest window in which a job of task `k` can miss; `None` if there is no end to them.
///
/// Source: Baruah 2007, equation 9: m·(L − C + 1) ≤ U·L + Σ(T − D)·u + the m − 1 largest C, with U and the fractions
/// rounded up.
fn longest(tasks: &[Sporadic], cpus: usize, k: usize) -> Option<u64> {
    let free = ((cpus as u128) << 64).checked_sub(load_high(tasks)).filter(|free| *free > 0)?;
    let mut times: Vec<u64> = tasks.iter().map(|task| task.wcet).collect();
    if cpus < times.len() {
        times.select_nth_unstable_by(cpus - 1, |a, b| b.cmp(a));
    }
    let carried: u128 = times.iter().take(cpus - 1).map(|c| u128::from(*c)).sum();
    let early = |t: &Sporadic| {
        (u128::from(t.period - t.deadline) * u128::from(t.wcet)).div_ceil(u128::from(t.period))
    };
    let early: u128 = tasks.iter().map(early).sum();
    let work = carried + early + cpus as u128 * u128::from(tasks[k].wcet - 1);
    // At most 2⁶⁰, as there are at most 2¹⁴ tasks and CPUs.
    u64::try_from((work << 64) / free).ok()
}

/// The next window to look at after one of length `l`; `None` if a job of task `k` can miss in this one.
fn next(tasks: &[Sporadic], cpus: usize, k: usize, l: u64, more: &mut Vec<u64>) -> Option<u64> {
    let me = &tasks[k];
    let most = l - me.wcet + 1;
    let (mut sum, mut cut, mut step) = (0u128, 0u128, u64::MAX);
    more.clear();
    for (i, task) in tasks.iter().enumerate() {
        let (whole, rest) = (l / task.period, l % task.period);
        let begun = task.wcet.min(rest);
        let due = rest >= task.deadline;
        step =
            step.min(if due { task.period - rest + task.deadline } else { task.deadline - rest });
        let with = u128::from(whole) * u128::from(task.wcet) + u128::from(begun);
        let least = if due { with } else { with - u128::from(begun) };
        // Its own earlier jobs all run before its release.
        let (own, limit) = if i == k { (me.wcet, l - me.deadline) } else { (0, most) };
        let least = least - u128::from(own);
        let with = (with - u128::from(own)).min(u128::from(limit));
        cut += u128::from(least > u128::from(limit));
        let least = least.min(u128::from(limit));
        sum += least;
        more.push((with - least) as u64);
    }
    if more.len() >= cpus {
        more.select_nth_unstable_by(cpus - 1, |a, b| b.cmp(a));
    }
    sum += more.iter().take(cpus - 1).map(|x| u128::from(*x)).sum::<u128>();
    let room = (cpus as u128 * u128::from(most)).checked_sub(sum).filter(|room| *room > 0)?;
    // Until the next deadline the sum grows only by the tasks that are cut off at the window's length and by the m − 1
    // that carry work in, each as fast as the window; the room grows by m.
    let faster = cut.saturating_sub(1);
    if faster > 0 {
        step = step.min(u64::try_from(room.div_ceil(faster)).unwrap_or(u64::MAX));
    }
    l.checked_add(step)
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{early, sets};
    use super::*;
    use proptest::prelude::*;

    /// Whether windows of task `k` up to `end` leave room, term by term as in the paper; all, or those that end with a
    /// deadline.
    fn windows(tasks: &[Sporadic], cpus: usize, k: usize, end: u64, all: bool) -> bool {
        let me = &tasks[k];
        let due = |l: u64| {
            tasks.iter().any(|t| l >= t.deadline && (l - t.deadline).is_multiple_of(t.period))
        };
        (0..end).filter(|a| all || due(a + me.deadline)).all(|a| {
            let l = a + me.deadline;
            let most = l - me.wcet + 1;
            let terms = tasks.iter().enumerate().map(|(i, t)| {
                let dbf = l.checked_sub(t.deadline).map_or(0, |x| (x / t.period + 1) * t.wcet);
                let with = l / t.period * t.wcet + t.wcet.min(l % t.period);
                let (own, limit) = if i == k { (t.wcet, a) } else { (0, most) };
                ((dbf - own).min(limit), (with - own).min(limit))
            });
            let mut all: Vec<(u64, u64)> = terms.collect();
            all.sort_by_key(|(least, with)| std::cmp::Reverse(with - least));
            let sum: u64 =
                all.iter().enumerate().map(|(i, x)| if i + 1 < cpus { x.1 } else { x.0 }).sum();
            sum < cpus as u64 * most
        })
    }

    fn every_window(tasks: &[Sporadic], cpus: usize, end: u64) -> bool {
        (0..tasks.len()).all(|k| windows(tasks, cpus, k, end, true))
    }

    #[test]
    fn windows_that_end_with_deadlines_are_not_enough() {
        let tasks = [(4, 14, 15), (13, 15, 20), (6, 9, 12), (16, 16, 16), (12, 12, 13)]
            .map(|(wcet, deadline, period)| Sporadic { wcet, deadline, period });
        let (mut left, mut more) = (u64::MAX, Vec::new());
        assert!(windows(&tasks, 4, 2, 60, false) && !windows(&tasks, 4, 2, 60, true));
        assert_eq!(fits(&tasks, 4, 2, &mut left, &mut more), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn windows_that_are_passed_over_decide_nothing(tasks in prop_oneof![sets(), early()], cpus in 1usize..=5) {
            if bar(&tasks, cpus) == Verdict::Schedulable {
                prop_assert!(every_window(&tasks, cpus, 400));
            } else if constrained(&tasks) && load_high(&tasks) < (cpus as u128) << 64 {
                prop_assert!(!every_window(&tasks, cpus, 2000));
            }
        }
    }
}
