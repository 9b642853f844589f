// SPDX-License-Identifier: GPL-2.0-only
//! Earliest deadline first: exact.

use std::cmp::Ordering;

use super::{STEPS, busy_period, fixed_point};
use crate::sporadic::{Load, Sporadic, Verdict, compare_utilization};

/// Looks at a task until response times are given up: a second or two.
const WORK: u64 = 300_000_000;

/// h(t): execution time of all jobs that are released and due within t of a synchronous release.
///
/// Source: Baruah, Rosier and Howell 1990.
pub fn demand(tasks: &[Sporadic], t: u64) -> u128 {
    let of = |task: &Sporadic| match t.checked_sub(task.deadline) {
        Some(rest) => (u128::from(rest / task.period) + 1) * u128::from(task.wcet),
        None => 0,
    };
    tasks.iter().map(of).sum()
}

/// The latest absolute deadline before `t` after a synchronous release.
pub(crate) fn deadline_before(tasks: &[Sporadic], t: u64) -> Option<u64> {
    let of = |task: &Sporadic| {
        let rest = t.checked_sub(task.deadline + 1)?;
        Some(rest / task.period * task.period + task.deadline)
    };
    tasks.iter().filter_map(of).max()
}

/// Up to where deadlines must be looked at, U being at most 1; `None` if out of reach.
fn horizon(tasks: &[Sporadic], steps: u32) -> Option<u64> {
    // Baruah et al. 1990, in the form of Zhang and Burns 2009, theorem 4; rounded up, which only looks further.
    let left = Load::of(tasks).left(1);
    let far = (left > 0).then(|| {
        let late: u128 = tasks
            .iter()
            .filter(|task| task.deadline < task.period)
            .map(|task| {
                let gap = u128::from(task.period - task.deadline);
                (u128::from(task.wcet) * gap).div_ceil(u128::from(task.period))
            })
            .sum();
        let far = u64::try_from(late).ok()? as u128;
        let far = u64::try_from((far << 64).div_ceil(left)).ok()?;
        let longest = tasks.iter().map(|task| task.deadline.saturating_sub(task.period)).max()?;
        Some(far.max(longest))
    });
    let far = far.flatten();
    // The busy period ends sooner where much of the CPU is left; its recurrence is long where little is.
    let slow = far.is_some() && left < 1 << 60;
    let busy = if slow { None } else { busy_period(tasks, steps) };
    match (busy, far) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Exact for any deadlines: quick processor-demand analysis walks backward from the horizon, demand by
/// demand, and visits few of the deadlines. [`Verdict::Unknown`] only for sets with U (nearly) 1 whose busy period is
/// out of reach.
///
/// Source: Zhang and Burns 2009, theorem 5.
pub fn qpa(tasks: &[Sporadic]) -> Verdict {
    match violation(tasks, STEPS) {
        Ok(None) => Verdict::Schedulable,
        Ok(Some(_)) => Verdict::Unschedulable,
        Err(()) => Verdict::Unknown,
    }
}

/// A time up to which more is demanded than there is, 0 if that is because U > 1; `None`: no such time. `Err`: not
/// found out in so many steps.
pub(crate) fn violation(tasks: &[Sporadic], steps: u32) -> Result<Option<u64>, ()> {
    if compare_utilization(tasks, 1) == Ordering::Greater {
        return Ok(Some(0));
    }
    violation_within(tasks, steps)
}

/// The same where U ≤ 1 is known.
pub(crate) fn violation_within(tasks: &[Sporadic], steps: u32) -> Result<Option<u64>, ()> {
    if tasks.iter().all(|task| task.deadline >= task.period) {
        return Ok(None);
    }
    let horizon = horizon(tasks, steps).ok_or(())?;
    let first = tasks.iter().map(|task| task.deadline).min().unwrap_or(0);
    let Some(mut t) = deadline_before(tasks, horizon.saturating_add(1)) else { return Ok(None) };
    for _ in 0..steps {
        let h = demand(tasks, t);
        if h > u128::from(t) {
            return Ok(Some(t));
        }
        if h <= u128::from(first) {
            return Ok(None);
        }
        t = match deadline_before(tasks, t) {
            _ if h < u128::from(t) => h as u64,
            Some(before) => before,
            None => return Ok(None),
        };
    }
    Err(())
}

/// Longest response time of each task, whatever the releases; `None` where it has no bound, or one out of reach; for
/// hundreds of tasks that is most of them.
///
/// Source: Spuri 1996, theorems 2 and 3: some response is longest in a busy period that all others begin
/// synchronously, at a release at which a deadline coincides with another's.
pub fn response_times(tasks: &[Sporadic]) -> Vec<Option<u64>> {
    if compare_utilization(tasks, 1) == Ordering::Greater {
        return vec![None; tasks.len()];
    }
    let busy = busy_period(tasks, STEPS);
    let mut left = WORK;
    (0..tasks.len()).map(|i| response_time(tasks, i, busy?, &mut left)).collect()
}

fn response_time(tasks: &[Sporadic], i: usize, busy: u64, left: &mut u64) -> Option<u64> {
    let me = tasks[i];
    let mut releases: Vec<u64> = Vec::new();
    for other in tasks {
        let mut due = other.deadline;
        while due < busy.saturating_add(me.deadline) {
            releases.extend(due.checked_sub(me.deadline));
            if releases.len() > STEPS as usize {
                return None;
            }
            due = due.checked_add(other.period)?;
        }
    }
    releases.sort_unstable();
    releases.dedup();
    let mut longest = me.wcet;
    for a in releases {
        let end = busy_until(tasks, i, a, left)?;
        longest = longest.max(end.saturating_sub(a));
    }
    Some(longest)
}

/// End of the busy period of jobs due no later than the job that task `i` releases at `a`.
fn busy_until(tasks: &[Sporadic], i: usize, a: u64, left: &mut u64) -> Option<u64> {
    let me = tasks[i];
    let due = a.checked_add(me.deadline)?;
    let own = (a / me.period + 1).checked_mul(me.wcet)?;
    fixed_point(STEPS, own, |w| {
        *left = left.checked_sub(tasks.len() as u64)?;
        let mut sum = own;
        for (j, other) in tasks.iter().enumerate() {
            if j == i || other.deadline > due {
                continue;
            }
            // At least one even in an empty busy period: all begin together.
            let released = w.div_ceil(other.period).max(1);
            let in_time = (due - other.deadline) / other.period + 1;
            sum = sum.checked_add(released.min(in_time).checked_mul(other.wcet)?)?;
        }
        Some(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{edf_response_times, edf_without_misses, few_tasks, few_that_fit};
    use super::*;
    use proptest::prelude::*;

    fn task(wcet: u64, deadline: u64, period: u64) -> Sporadic {
        Sporadic { wcet, deadline, period }
    }

    #[test]
    fn nine_tasks_of_a_ninth_fit_one_cpu_and_a_tenth_does_not() {
        let mut tasks = vec![task(1, 9, 9); 9];
        assert_eq!(qpa(&tasks), Verdict::Schedulable);
        tasks.push(task(1, 1_000_000_007, 1_000_000_007));
        assert_eq!(qpa(&tasks), Verdict::Unschedulable);
    }

    #[test]
    fn response_times_of_2_4_and_3_12_are_2_and_7() {
        let tasks = [Sporadic::implicit(2, 4), Sporadic::implicit(3, 12)];
        assert_eq!(response_times(&tasks), [Some(2), Some(7)]);
    }

    #[test]
    fn an_overloaded_cpu_bounds_no_response() {
        assert_eq!(response_times(&[task(2, 3, 3), task(2, 3, 3)]), [None, None]);
    }

    #[test]
    fn a_full_cpu_with_incommensurable_periods_is_answered() {
        // U = 1 and one constrained deadline; common multiple of the periods: 2 · 3 · 5 · 7 · 11 · 13.
        let tasks = [task(15015, 30000, 30030), task(1, 2, 2)];
        assert_eq!(qpa(&tasks), Verdict::Unschedulable);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_qpa_says_is_what_happens(tasks in few_tasks()) {
            let verdict = qpa(&tasks);
            prop_assert_ne!(verdict, Verdict::Unknown);
            prop_assert_eq!(verdict == Verdict::Schedulable, edf_without_misses(&tasks));
        }

        #[test]
        fn no_response_is_longer_than_its_bound(tasks in few_that_fit()) {
            let bounds = response_times(&tasks);
            let seen = edf_response_times(&tasks);
            for (bound, seen) in bounds.iter().zip(seen) {
                prop_assert!(bound.unwrap() >= seen, "{:?} {}", bounds, seen);
            }
        }
    }
}
