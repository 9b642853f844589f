// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF by interference in the window of a job.

use super::tardiness::Supply;
use super::{constrained, spend, work};
use crate::sporadic::{Sporadic, Verdict};

/// Most work of `other`, whose jobs are done `slack` before their deadlines, that can delay a job of `me`: jobs with
/// deadlines inside of its window, the last deadlines aligned.
///
/// Source: Bertogna, Cirinei and Lipari 2005, lemma 4; with slack 2009, theorem 8.
pub(super) fn interference(me: &Sporadic, other: &Sporadic, slack: u64) -> u64 {
    let whole = me.deadline.checked_sub(other.deadline).map_or(0, |rest| rest / other.period + 1);
    let begun = me.deadline.saturating_sub(whole.saturating_mul(other.period));
    whole.saturating_mul(other.wcet).saturating_add(other.wcet.min(begun.saturating_sub(slack)))
}

/// By when a job of task `k` is done if others have at least these slacks; `None` if that is after its deadline.
fn response(tasks: &[Sporadic], cpus: u128, k: usize, slack: &[u64]) -> Option<u64> {
    let me = &tasks[k];
    // A miss needs more than D − C units in which all CPUs are busy with others.
    let most = me.deadline - me.wcet + 1;
    let full = cpus * u128::from(most);
    let mut sum = 0;
    for (i, other) in tasks.iter().enumerate() {
        if i != k {
            sum += u128::from(interference(me, other, slack[i]).min(most));
            if sum >= full {
                return None;
            }
        }
    }
    Some(me.wcet + (sum / cpus) as u64)
}

/// For each task: what others can put in its way, no more than D − C + 1 of each, leaves no room for a miss. Deadlines
/// within periods.
///
/// Source: Bertogna, Cirinei and Lipari 2005, theorem 6, for whole units of time.
pub fn bcl(tasks: &[Sporadic], cpus: usize) -> Verdict {
    if cpus == 0 || !constrained(tasks) {
        return Verdict::sufficient(tasks.is_empty());
    }
    let slack = vec![0; tasks.len()];
    let fits = |k| response(tasks, cpus as u128, k, &slack).is_some();
    Verdict::sufficient((0..tasks.len()).all(fits))
}

/// [`bcl`] on CPUs that are there in part. While a job waits each CPU serves another one or is not there, so what is
/// not there of all counts as one more task, which may be served by several at once. It asks for deadlines a period
/// apart only, not for releases: soft servers that go on early have these, too.
pub fn bcl_on(tasks: &[Sporadic], cpus: usize, supply: Supply) -> Verdict {
    let fits = |k: usize| {
        let me = &tasks[k];
        let most = u128::from(me.deadline - me.wcet + 1);
        let others = (0..tasks.len()).filter(|i| *i != k);
        let sum: u128 = others.map(|i| most.min(interference(me, &tasks[i], 0).into())).sum();
        sum + cpus as u128 * supply.missing(me.deadline) < cpus as u128 * most
    };
    Verdict::sufficient(constrained(tasks) && (0..tasks.len()).all(fits))
}

/// [`bcl`], again and again: a job that is done before its deadline carries less work into windows of others.
///
/// Source: Bertogna, Cirinei and Lipari 2009, section 5; Bertogna and Cirinei 2007, figure 3.
pub fn bcl_iterative(tasks: &[Sporadic], cpus: usize) -> Verdict {
    let bounds = by_slack(tasks, cpus, |k, slack, left| {
        spend(left, tasks.len())?;
        response(tasks, cpus as u128, k, slack)
    });
    Verdict::sufficient(bounds.is_some())
}

/// Response bounds that hold together: `response` tells task k's from lower bounds on the slack of all, which begin at
/// 0 and grow as long as some bound gets shorter. All are within deadlines, or `None`. Deadlines within periods.
pub(super) fn by_slack(
    tasks: &[Sporadic],
    cpus: usize,
    response: impl Fn(usize, &[u64], &mut u64) -> Option<u64>,
) -> Option<Vec<u64>> {
    if cpus == 0 || !constrained(tasks) {
        return tasks.is_empty().then(Vec::new);
    }
    let mut left = work(tasks);
    let mut slack = vec![0; tasks.len()];
    let mut bounds = vec![0; tasks.len()];
    loop {
        let (mut all, mut more) = (true, false);
        for (k, task) in tasks.iter().enumerate() {
            match response(k, &slack, &mut left) {
                Some(time) => {
                    bounds[k] = time;
                    more |= task.deadline - time > slack[k];
                    slack[k] = slack[k].max(task.deadline - time);
                }
                None => all = false,
            }
        }
        if all {
            return Some(bounds);
        }
        if !more || left == 0 {
            return None;
        }
    }
}
