// SPDX-License-Identifier: GPL-2.0-only
//! Response times under global scheduling by the work that others can have in windows of any length.

use super::bcl::{by_slack, interference};
use super::tardiness::Supply;
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

/// r = C + ⌊(Σ min(W(r), r − C + 1) + T(r)) / m⌋ of task `me`, the least or a little more; `None` beyond its deadline.
/// T is what is `taken` of all CPUs together in a window, and grows with it.
fn fixed_point(
    me: &Sporadic,
    cpus: usize,
    left: &mut u64,
    taken: Taken<'_>,
    others: impl Iterator<Item = (Sporadic, u64, u64)> + Clone,
) -> Option<u64> {
    let mut f = |r: u64| {
        let (mut sum, mut n) = (taken(r), 1);
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

/// What others than the tasks take of all CPUs together in a window of a length.
type Taken<'a> = &'a dyn Fn(u64) -> u128;

/// Nobody else is there.
const NOTHING: Taken<'static> = &|_| 0;

/// Of `cpus` CPUs that are there as `supply` says.
fn taken(supply: Supply, cpus: usize) -> impl Fn(u64) -> u128 {
    move |l| cpus as u128 * supply.missing(l)
}

/// Longest response times under global EDF, all within deadlines; `None` if that cannot be told. Deadlines within
/// periods.
///
/// Source: Bertogna and Cirinei 2007, theorem 6.
pub fn edf(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    edf_less(tasks, cpus, NOTHING)
}

/// The same on CPUs that are there in part. While a job waits each CPU serves another one, or is not there, whichever
/// it is: so what is taken of all CPUs counts as one more task, whose jobs may be served by several at once.
pub fn edf_on(tasks: &[Sporadic], cpus: usize, supply: Supply) -> Option<Vec<u64>> {
    edf_less(tasks, cpus, &taken(supply, cpus))
}

fn edf_less(tasks: &[Sporadic], cpus: usize, taken: Taken<'_>) -> Option<Vec<u64>> {
    by_slack(tasks, cpus, |k, slack, left| {
        let me = &tasks[k];
        let others = tasks.iter().zip(slack).enumerate().filter(|(i, _)| *i != k);
        let others =
            others.map(|(_, (task, slack))| (*task, *slack, interference(me, task, *slack)));
        fixed_point(me, cpus, left, taken, others)
    })
}

/// As [`edf_on`], in whatever order jobs are served, EDZL's among them, as long as no CPU that is there idles or serves
/// others while one waits.
///
/// Source: Bertogna and Cirinei 2007, theorem 4.
pub fn any_order_on(tasks: &[Sporadic], cpus: usize, supply: Supply) -> Option<Vec<u64>> {
    by_slack(tasks, cpus, |k, slack, left| {
        let others = tasks.iter().zip(slack).enumerate().filter(|(i, _)| *i != k);
        let others = others.map(|(_, (task, slack))| (*task, *slack, u64::MAX));
        fixed_point(&tasks[k], cpus, left, &taken(supply, cpus), others)
    })
}

/// Longest response time of a job of `me`, in any order as before, beside `others` that each keep a CPU all the time;
/// `None` beyond its deadline. Where others are fewer than CPUs, m − n are theirs never: it waits while all of these
/// are not there at a time.
pub fn beside(me: &Sporadic, others: usize, cpus: usize, supply: Supply) -> Option<u64> {
    if others >= cpus || !constrained(&[*me]) {
        return None;
    }
    let always = Sporadic { wcet: 1, deadline: 1, period: 1 };
    let others = std::iter::repeat_n((always, 0, u64::MAX), others);
    fixed_point(me, cpus, &mut work(&[*me]), &taken(supply, cpus), others)
}

/// Longest response times under global fixed priorities, the most important first, whatever the order among equal
/// `levels`; none for the first task whose bound is beyond its deadline and for all after it. Deadlines within periods.
///
/// Source: Bertogna and Cirinei 2007, theorem 7. Equals count as more important, done at their deadlines.
pub fn fixed(tasks: &[Sporadic], levels: &[u64], cpus: usize) -> Vec<Option<u64>> {
    fixed_less(tasks, levels, cpus, NOTHING)
}

/// The same on CPUs that are there in part, as under [`edf_on`].
pub fn fixed_on(
    tasks: &[Sporadic],
    levels: &[u64],
    cpus: usize,
    supply: Supply,
) -> Vec<Option<u64>> {
    fixed_less(tasks, levels, cpus, &taken(supply, cpus))
}

fn fixed_less(
    tasks: &[Sporadic],
    levels: &[u64],
    cpus: usize,
    taken: Taken<'_>,
) -> Vec<Option<u64>> {
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
        bounds[i] = fixed_point(me, cpus, &mut left, taken, others);
        let Some(time) = bounds[i] else {
            // What was said of its equals rests on its being in time.
            bounds[all].fill(None);
            break;
        };
        above.push((*me, me.deadline - time, u64::MAX));
    }
    bounds
}
