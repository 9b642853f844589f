// SPDX-License-Identifier: GPL-2.0-only
//! Fixed priorities: exact response times.

use std::cmp::Ordering;

use super::{STEPS, fixed_point};
use crate::sporadic::{Load, Sporadic, Verdict, compare_utilization};

/// Rate-monotonic order: shortest period first, equals as they stand.
pub fn rate_monotonic(tasks: &[Sporadic]) -> Vec<Sporadic> {
    let mut tasks = tasks.to_vec();
    tasks.sort_by_key(|task| task.period);
    tasks
}

/// Deadline-monotonic order: shortest relative deadline first, equals as they stand.
pub fn deadline_monotonic(tasks: &[Sporadic]) -> Vec<Sporadic> {
    let mut tasks = tasks.to_vec();
    tasks.sort_by_key(|task| task.deadline);
    tasks
}

/// Longest response time of each of `tasks`, the most important first; `None` where there is no bound, or none
/// within reach.
///
/// Source: Joseph and Pandya 1986; for deadlines beyond periods Lehoczky 1990, theorem 1.
pub fn response_times(tasks: &[Sporadic]) -> Vec<Option<u64>> {
    let mut load = Load::default();
    let time = |(i, task): (usize, &Sporadic)| {
        let upto = &tasks[..=i];
        load.add(task);
        let over = load.left(1) == 0 && compare_utilization(upto, 1) == Ordering::Greater;
        if over { None } else { response_time(upto) }
    };
    tasks.iter().enumerate().map(time).collect()
}

/// Of the last, under interference of the others; all together they fit a CPU.
fn response_time(tasks: &[Sporadic]) -> Option<u64> {
    let (me, above) = tasks.split_last()?;
    let (mut longest, mut end) = (0, 0);
    for job in 0..u64::from(STEPS) {
        let own = (job + 1).checked_mul(me.wcet)?;
        end = fixed_point(STEPS, own.max(end), |w| {
            above.iter().try_fold(own, |sum, other| {
                sum.checked_add(w.div_ceil(other.period).checked_mul(other.wcet)?)
            })
        })?;
        longest = longest.max(end - job * me.period);
        // The level's busy period ends before the next release.
        if end <= (job + 1).checked_mul(me.period)? {
            return Some(longest);
        }
    }
    None
}

/// Exact for any deadlines: every response time within its deadline. `tasks` with the most important first.
pub fn exact(tasks: &[Sporadic]) -> Verdict {
    let times = response_times(tasks);
    let misses = |(time, task): (&Option<u64>, &Sporadic)| time.is_some_and(|t| t > task.deadline);
    if times.iter().zip(tasks).any(misses) || compare_utilization(tasks, 1) == Ordering::Greater {
        Verdict::Unschedulable
    } else if times.iter().any(Option::is_none) {
        Verdict::Unknown
    } else {
        Verdict::Schedulable
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounds::{hyperbolic, liu_layland};
    use super::super::oracle::{few_tasks, few_that_fit, fixed_response_times};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn response_times_of_1_4_1_5_3_9_3_18_are_1_2_7_18() {
        let tasks = [(1, 4), (1, 5), (3, 9), (3, 18)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(response_times(&tasks), [Some(1), Some(2), Some(7), Some(18)]);
        assert_eq!(exact(&tasks), Verdict::Schedulable);
    }

    #[test]
    fn harmonic_periods_fill_a_cpu_beyond_the_bounds() {
        let tasks = [(1, 2), (1, 4), (2, 8)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(exact(&tasks), Verdict::Schedulable);
        assert_eq!(hyperbolic(&tasks), Verdict::Unknown);
    }

    #[test]
    fn the_hyperbolic_bound_accepts_what_liu_and_layland_do_not() {
        // U = 0.83 > 0.8284, but 1.5 · 1.33 ≤ 2.
        let tasks = [(1, 2), (1, 3)].map(|(c, t)| Sporadic::implicit(c, t));
        assert_eq!(liu_layland(&tasks), Verdict::Unknown);
        assert_eq!(hyperbolic(&tasks), Verdict::Schedulable);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn response_times_are_those_of_the_synchronous_release(tasks in few_that_fit()) {
            let tasks = rate_monotonic(&tasks);
            let seen: Vec<_> = fixed_response_times(&tasks).into_iter().map(Some).collect();
            prop_assert_eq!(response_times(&tasks), seen);
        }

        #[test]
        fn what_a_bound_accepts_the_exact_test_accepts(tasks in few_tasks()) {
            let tasks = rate_monotonic(&tasks);
            for bound in [liu_layland, hyperbolic] {
                if bound(&tasks) == Verdict::Schedulable {
                    prop_assert_eq!(exact(&tasks), Verdict::Schedulable);
                }
            }
            if liu_layland(&tasks) == Verdict::Schedulable {
                prop_assert_eq!(hyperbolic(&tasks), Verdict::Schedulable);
            }
        }
    }
}
