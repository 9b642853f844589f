// SPDX-License-Identifier: GPL-2.0-only
//! Response times under global scheduling by the work that others can have in windows of any length.

use super::bcl::{by_slack, interference};
use super::{constrained, spend, step, work};
use crate::one_cpu::fixed::equals;
use crate::sporadic::Sporadic;

/// Most work of `other`, whose jobs are done `slack` before their deadlines, in a window of length `l`: a job that is
/// done as late as it may be at the window's begin, then all as early as they may be.
///
/// Source: Bertogna and Cirinei 2007, equations 4 and 8.
fn workload(other: &Sporadic, slack: u64, l: u64) -> u64 {
    let far = l.saturating_add(other.deadline - other.wcet - slack);
    let whole = far / other.period;
    whole.saturating_mul(other.wcet).saturating_add(other.wcet.min(far % other.period))
}

/// r = C + ⌊Σ min(W(r), r − C + 1) / m⌋ of task `me`, the least or a little more; `None` beyond its deadline.
fn fixed_point(
    me: &Sporadic,
    cpus: usize,
    left: &mut u64,
    others: impl Iterator<Item = (Sporadic, u64, u64)> + Clone,
) -> Option<u64> {
    let mut f = |r: u64| {
        let (mut sum, mut n) = (0, 1);
        for (other, slack, most) in others.clone() {
            n += 1;
            sum += u128::from(workload(&other, slack, r).min(most).min(r - me.wcet + 1));
        }
        spend(left, n)?;
        Some(u128::from(me.wcet) + sum / cpus as u128)
    };
    // Where f(D) is within D it is a bound itself, as f grows with r: none above it need be looked at.
    let most = f(me.deadline)?.min(me.deadline.into()) as u64;
    let mut r = me.wcet;
    loop {
        let next = f(r)?;
        if next <= u128::from(r) {
            return Some(r);
        }
        if r >= most {
            return None;
        }
        r = step(r, next.min(u64::MAX.into()) as u64, me.deadline, most);
    }
}

/// Longest response times under global EDF, all within deadlines; `None` if that cannot be told. Deadlines within
/// periods.
///
/// Source: Bertogna and Cirinei 2007, theorem 6.
pub fn edf(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    by_slack(tasks, cpus, |k, slack, left| {
        let me = &tasks[k];
        let others = tasks.iter().zip(slack).enumerate().filter(|(i, _)| *i != k);
        let others =
            others.map(|(_, (task, slack))| (*task, *slack, interference(me, task, *slack)));
        fixed_point(me, cpus, left, others)
    })
}

/// Longest response times under global fixed priorities, the most important first, whatever the order among equal
/// `levels`; none for the first task whose bound is beyond its deadline and for all after it. Deadlines within periods.
///
/// Source: Bertogna and Cirinei 2007, theorem 7. Equals count as more important, done at their deadlines.
pub fn fixed(tasks: &[Sporadic], levels: &[u64], cpus: usize) -> Vec<Option<u64>> {
    let mut bounds = vec![None; tasks.len()];
    if cpus == 0 || !constrained(tasks) {
        return bounds;
    }
    let mut left = work(tasks);
    let mut above: Vec<(Sporadic, u64, u64)> = Vec::with_capacity(tasks.len());
    for (i, me) in tasks.iter().enumerate() {
        let all = equals(levels, i);
        let beside = all.clone().filter(|j| *j != i).map(|j| (tasks[j], 0, u64::MAX));
        let others = above[..all.start].iter().copied().chain(beside);
        bounds[i] = fixed_point(me, cpus, &mut left, others);
        let Some(time) = bounds[i] else {
            // What was said of its equals rests on its being in time.
            bounds[all].fill(None);
            break;
        };
        above.push((*me, me.deadline - time, u64::MAX));
    }
    bounds
}
