// SPDX-License-Identifier: GPL-2.0-only
//! Global fixed priorities with limited carry-in.

use super::{constrained, spend, step, work};
use crate::one_cpu::fixed::equals;
use crate::sporadic::Sporadic;

/// Most work of a task in a window of length `l` that begins with a release of it, or with none of its jobs left.
///
/// Source: Guan, Stigge, Yi and Yu 2009, equation 5.
fn fresh(task: &Sporadic, l: u64) -> u64 {
    (l / task.period).saturating_mul(task.wcet).saturating_add(task.wcet.min(l % task.period))
}

/// The same if a job of it, answered within `response`, is under way when the window begins.
///
/// Source: Guan, Stigge, Yi and Yu 2009, equation 6.
fn carried(task: &Sporadic, response: u64, l: u64) -> u64 {
    let rest = l.saturating_sub(task.wcet);
    let head = (rest % task.period).saturating_sub(task.period - response).min(task.wcet - 1);
    (rest / task.period + 1).saturating_mul(task.wcet).saturating_add(head)
}

/// Longest response times, the most important task first, whatever the order among equal `levels`; none for the first
/// whose bound is beyond its deadline and for all after it. Deadlines within periods.
///
/// The window is stretched back to where a CPU was last without more important work: then only m − 1 tasks
/// were under way. On one CPU that is exact.
///
/// Source: Guan, Stigge, Yi and Yu 2009, theorem 3, after Baruah 2007.
pub fn guan(tasks: &[Sporadic], levels: &[u64], cpus: usize) -> Vec<Option<u64>> {
    let mut bounds = vec![None; tasks.len()];
    if cpus == 0 || !constrained(tasks) {
        return bounds;
    }
    let mut left = work(tasks);
    let mut more = Vec::with_capacity(tasks.len());
    for k in 0..tasks.len() {
        let all = equals(levels, k);
        let above = tasks.iter().zip(&bounds).take(all.start).map(|(task, bound)| (task, *bound));
        // Equals may be done no sooner than their deadlines.
        let beside = all.clone().filter(|j| *j != k).map(|j| (&tasks[j], None));
        bounds[k] = response(&tasks[k], cpus, above.chain(beside), &mut left, &mut more);
        if bounds[k].is_none() {
            // What was said of its equals rests on its being in time.
            bounds[all].fill(None);
            break;
        }
    }
    bounds
}

fn response<'a>(
    me: &Sporadic,
    cpus: usize,
    others: impl Iterator<Item = (&'a Sporadic, Option<u64>)> + Clone,
    left: &mut u64,
    more: &mut Vec<u64>,
) -> Option<u64> {
    let mut l = me.wcet;
    loop {
        let most = l - me.wcet + 1;
        let mut sum = 0;
        more.clear();
        for (task, bound) in others.clone() {
            let least = fresh(task, l).min(most);
            sum += u128::from(least);
            let with = carried(task, bound.unwrap_or(task.deadline), l).min(most);
            more.push(with.saturating_sub(least));
        }
        spend(left, 2 * more.len() + 1)?;
        if more.len() >= cpus {
            more.select_nth_unstable_by(cpus - 1, |a, b| b.cmp(a));
        }
        sum += more.iter().take(cpus - 1).map(|x| u128::from(*x)).sum::<u128>();
        let next = u128::from(me.wcet) + sum / cpus as u128;
        if next <= u128::from(l) {
            return Some(l);
        }
        if next > u128::from(me.deadline) {
            return None;
        }
        l = step(l, next as u64, me.deadline, me.deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::early;
    use super::*;
    use crate::one_cpu::fixed::strict;
    use proptest::prelude::*;

    /// The largest of all releases of the job under way: done in time, later ones as soon as they are released.
    fn carried_by_trial(task: &Sporadic, response: u64, l: u64) -> u64 {
        let begun = |ago: u64| {
            let head = (response - ago).min(task.wcet - 1).min(l);
            head + l.checked_sub(task.period - ago).map_or(0, |rest| fresh(task, rest))
        };
        (1..response).map(begun).max().unwrap_or(0).max(fresh(task, l))
    }

    /// The definition: the least window in which no choice of m − 1 tasks that carry work in fills all CPUs.
    fn every_choice(tasks: &[Sporadic], cpus: usize, above: &[u64]) -> Option<u64> {
        let me = &tasks[above.len()];
        (me.wcet..=me.deadline).find(|l| {
            let most = l - me.wcet + 1;
            let choices = 0..1u32 << above.len();
            choices.filter(|set| (set.count_ones() as usize) < cpus).all(|set| {
                let sum: u64 = (0..above.len())
                    .map(|i| match set >> i & 1 {
                        0 => fresh(&tasks[i], *l).min(most),
                        _ => carried_by_trial(&tasks[i], above[i], *l).min(most),
                    })
                    .sum();
                me.wcet + sum / cpus as u64 <= *l
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn bounds_are_those_of_the_definition(
            tasks in early(), cpus in 1usize..=4,
        ) {
            let mut above = Vec::new();
            for bound in guan(&tasks, &strict(tasks.len()), cpus) {
                prop_assert_eq!(bound, every_choice(&tasks, cpus, &above));
                let Some(bound) = bound else { break };
                above.push(bound);
            }
        }
    }
}
