// SPDX-License-Identifier: GPL-2.0-only
//! Fixed priorities: exact response times.

use std::cmp::Ordering;
use std::ops::Range;

use super::{STEPS, fixed_point};
use crate::sporadic::{Load, Sporadic, Verdict, compare_utilization};

/// Tasks in the order of their priorities, the most important first, and the level of each: the smaller the more
/// important. Who comes first among equals nobody can tell beforehand: schedulers go by who was there.
///
/// Rate monotonic: by period; deadline monotonic: by deadline.
pub fn by_priority(
    tasks: &[Sporadic],
    level: impl Fn(&Sporadic) -> u64,
) -> (Vec<Sporadic>, Vec<u64>) {
    let mut tasks = tasks.to_vec();
    tasks.sort_by_key(&level);
    let levels = tasks.iter().map(level).collect();
    (tasks, levels)
}

/// A level for each of `n` tasks: no two are equal.
pub fn strict(n: usize) -> Vec<u64> {
    (0..n as u64).collect()
}

/// The tasks at the level of the i-th.
pub(crate) fn equals(levels: &[u64], i: usize) -> Range<usize> {
    levels.partition_point(|l| *l < levels[i])..levels.partition_point(|l| *l <= levels[i])
}

/// Longest response time of each of `tasks`, the most important first, whatever the order among equal `levels`; `None`
/// where there is no bound, or none within reach.
///
/// Source: Joseph and Pandya 1986; for deadlines beyond periods Lehoczky 1990, theorem 1. Equals count as more
/// important.
pub fn response_times(tasks: &[Sporadic], levels: &[u64]) -> Vec<Option<u64>> {
    let mut over = vec![false; tasks.len()];
    let (mut load, mut end) = (Load::default(), 0);
    for (i, over) in over.iter_mut().enumerate() {
        let upto = equals(levels, i).end;
        tasks[end..upto].iter().for_each(|task| load.add(task));
        end = upto;
        *over = load.left(1) == 0 && compare_utilization(&tasks[..upto], 1) == Ordering::Greater;
    }
    let time = |i: usize| {
        let upto = equals(levels, i).end;
        if over[i] { None } else { response_time(&tasks[i], &[&tasks[..i], &tasks[i + 1..upto]]) }
    };
    (0..tasks.len()).map(time).collect()
}

/// How long `own` work takes under interference by tasks `above`, from `start` on.
fn window(own: u64, start: u64, above: &[&[Sporadic]]) -> Option<u64> {
    fixed_point(STEPS, own.max(start), |w| {
        above.iter().flat_map(|part| part.iter()).try_fold(own, |sum, other| {
            sum.checked_add(w.div_ceil(other.period).checked_mul(other.wcet)?)
        })
    })
}

/// Of `me` under interference by tasks `above`; all together they fit a CPU.
fn response_time(me: &Sporadic, above: &[&[Sporadic]]) -> Option<u64> {
    let (mut longest, mut end) = (0, 0);
    for job in 0..u64::from(STEPS) {
        let own = (job + 1).checked_mul(me.wcet)?;
        end = window(own, end, above)?;
        longest = longest.max(end - job * me.period);
        // The level's busy period ends before the next release.
        if end <= (job + 1).checked_mul(me.period)? {
            return Some(longest);
        }
    }
    None
}

/// Whether every response time is within its deadline, whatever the deadlines: exact. Where levels are equal
/// [`Verdict::Unknown`] if it depends on the order among equals, or may.
pub fn exact(tasks: &[Sporadic], levels: &[u64]) -> Verdict {
    if compare_utilization(tasks, 1) == Ordering::Greater {
        return Verdict::Unschedulable;
    }
    let times = response_times(tasks, levels);
    let late = |i: &usize| times[*i].is_none_or(|time| time > tasks[*i].deadline);
    let mut all = (0..tasks.len()).filter(late).peekable();
    if all.peek().is_none() {
        Verdict::Schedulable
    } else if all.any(|i| is_late_in_any_order(tasks, levels, i)) {
        Verdict::Unschedulable
    } else {
        Verdict::Unknown
    }
}

/// Whether the i-th or an equal is late after a synchronous release, whoever of the equals comes first.
fn is_late_in_any_order(tasks: &[Sporadic], levels: &[u64], i: usize) -> bool {
    let equals = equals(levels, i);
    let above = &tasks[..equals.start];
    if response_time(&tasks[i], &[above]).is_some_and(|time| time > tasks[i].deadline) {
        return true;
    }
    // The first jobs of all equals are done no sooner than this; one of them is the last.
    let all = tasks[equals.clone()].iter().try_fold(0u64, |sum, t| sum.checked_add(t.wcet));
    let last = all.and_then(|own| window(own, 0, &[above]));
    let latest = tasks[equals].iter().map(|task| task.deadline).max();
    last.zip(latest).is_some_and(|(last, latest)| last > latest)
}

#[cfg(test)]
mod tests {
    use super::super::bounds::{hyperbolic, liu_layland};
    use super::super::oracle::{few_tasks, few_that_fit, fixed_response_times, longest_responses};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn response_times_of_1_4_1_5_3_9_3_18_are_1_2_7_18() {
        let tasks = [(1, 4), (1, 5), (3, 9), (3, 18)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(response_times(&tasks, &strict(4)), [Some(1), Some(2), Some(7), Some(18)]);
        assert_eq!(exact(&tasks, &strict(4)), Verdict::Schedulable);
    }

    #[test]
    fn harmonic_periods_fill_a_cpu_beyond_the_bounds() {
        let tasks = [(1, 2), (1, 4), (2, 8)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(exact(&tasks, &strict(3)), Verdict::Schedulable);
        assert_eq!(hyperbolic(&tasks), Verdict::Unknown);
    }

    #[test]
    fn the_hyperbolic_bound_accepts_what_liu_and_layland_do_not() {
        // U = 0.83 > 0.8284, but 1.5 · 1.33 ≤ 2.
        let tasks = [(1, 2), (1, 3)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(liu_layland(&tasks), Verdict::Unknown);
        assert_eq!(hyperbolic(&tasks), Verdict::Schedulable);
    }

    #[test]
    fn an_equal_that_was_there_first_is_waited_for() {
        let task = |wcet, deadline| Sporadic { wcet, deadline, period: 10 };
        let of = |tasks: &[Sporadic]| exact(tasks, &vec![10; tasks.len()]);
        assert_eq!(response_times(&[task(2, 10), task(3, 10)], &[10, 10]), [Some(5), Some(5)]);
        assert_eq!(of(&[task(2, 10), task(3, 10)]), Verdict::Schedulable);
        // In time if it comes first, late if it does not.
        assert_eq!(of(&[task(2, 2), task(3, 10)]), Verdict::Unknown);
        assert_eq!(exact(&[task(2, 2), task(3, 10)], &strict(2)), Verdict::Schedulable);
        // One of the two must be the last.
        assert_eq!(of(&[task(3, 5), task(3, 5)]), Verdict::Unschedulable);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn response_times_are_those_of_the_synchronous_release(tasks in few_that_fit()) {
            let (tasks, _) = by_priority(&tasks, |t| t.period);
            let seen: Vec<_> = fixed_response_times(&tasks).into_iter().map(Some).collect();
            prop_assert_eq!(response_times(&tasks, &strict(tasks.len())), seen);
        }

        #[test]
        fn equals_that_are_served_as_they_come_answer_within_their_bounds(tasks in few_that_fit(), step in 0u64..24) {
            let (tasks, levels) = by_priority(&tasks, |t| t.period);
            let bounds = response_times(&tasks, &levels);
            let offsets: Vec<u64> =
                tasks.iter().enumerate().map(|(i, t)| (step * (2 * i as u64 + 1)) % t.period).collect();
            let seen = longest_responses(&tasks, &offsets, 240, |i, _| levels[i]);
            for (bound, seen) in bounds.iter().zip(seen) {
                prop_assert!(bound.unwrap() >= seen, "{:?} {}", bounds, seen);
            }
        }

        #[test]
        fn what_a_bound_accepts_the_exact_test_accepts(tasks in few_tasks()) {
            let (tasks, levels) = by_priority(&tasks, |t| t.period);
            for bound in [liu_layland, hyperbolic] {
                if bound(&tasks) == Verdict::Schedulable {
                    prop_assert_eq!(exact(&tasks, &levels), Verdict::Schedulable);
                }
            }
            if liu_layland(&tasks) == Verdict::Schedulable {
                prop_assert_eq!(hyperbolic(&tasks), Verdict::Schedulable);
            }
        }
    }
}
