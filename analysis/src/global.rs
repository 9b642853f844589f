// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF on identical CPUs: sufficient tests, and how late jobs can be when they are late.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use crate::sporadic::{Sporadic, Verdict, ratio, utilization};

fn int(n: usize) -> BigRational {
    BigRational::from_integer(BigInt::from(n))
}

/// Σδ ≤ m − (m − 1)·max δ with densities δ = C / min(D, T). Any deadlines.
///
/// Source: Goossens, Funk and Baruah 2003, theorem 5 (utilizations); with densities Bertogna, Cirinei and Lipari 2005,
/// theorem 4.
pub fn gfb(tasks: &[Sporadic], cpus: usize) -> Verdict {
    let Some(most) = tasks.iter().map(Sporadic::density).max() else { return Verdict::Schedulable };
    let sum = tasks.iter().fold(BigRational::zero(), |sum, task| sum + task.density());
    let limit = int(cpus) - int(cpus.saturating_sub(1)) * &most;
    Verdict::sufficient(cpus > 0 && most <= BigRational::one() && sum <= limit)
}

/// Work of `other` in the window of a job of `me` that it can delay: jobs with deadlines inside, aligned with the window's end.
fn interference(me: &Sporadic, other: &Sporadic) -> u64 {
    let whole = me.deadline.checked_sub(other.deadline).map_or(0, |rest| rest / other.period + 1);
    let begun = me.deadline.saturating_sub(whole.saturating_mul(other.period));
    whole.saturating_mul(other.wcet).saturating_add(other.wcet.min(begun))
}

/// For each task: what others can put in its way, no more than D − C + 1 of each, leaves no room for a miss. Deadlines within
/// periods.
///
/// Source: Bertogna, Cirinei and Lipari 2005, theorem 6, for whole units of time.
pub fn bcl(tasks: &[Sporadic], cpus: usize) -> Verdict {
    if cpus == 0 || tasks.iter().any(|task| task.deadline > task.period) {
        return Verdict::sufficient(tasks.is_empty());
    }
    let fits = |(k, me): (usize, &Sporadic)| {
        let Some(slack) = me.deadline.checked_sub(me.wcet) else { return false };
        // A miss needs more than `slack` units in which all CPUs are busy with others.
        let most = slack + 1;
        let sum: u128 = tasks
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != k)
            .map(|(_, other)| u128::from(interference(me, other).min(most)))
            .sum();
        sum < u128::from(most) * cpus as u128
    };
    Verdict::sufficient(tasks.iter().enumerate().all(fits))
}

/// Most by which jobs of each task miss their deadlines; `None` if the CPUs or one CPU is over-utilized. Deadlines are the
/// ends of periods.
///
/// Source: Devi and Anderson 2005, theorem 1: x = (ΣE − min C) / (m − ΣU) over the ⌈U⌉ − 1 largest, tardiness x + C.
/// Exact rationals, rounded up.
pub fn tardiness(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    let used = utilization(tasks);
    if used > int(cpus) || tasks.iter().any(|task| task.utilization() > BigRational::one()) {
        return None;
    }
    let least = tasks.iter().map(|task| task.wcet).min().unwrap_or(0);
    // Λ = ⌈U⌉ − 1 tasks can be ahead of a job that waits.
    let ahead = used.ceil().to_integer() - BigInt::one();
    let ahead = usize::try_from(&ahead).unwrap_or(0);
    if ahead == 0 {
        return Some(vec![0; tasks.len()]);
    }
    let mut times: Vec<u64> = tasks.iter().map(|task| task.wcet).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    let mut loads: Vec<BigRational> = tasks.iter().map(Sporadic::utilization).collect();
    loads.sort_by(|a, b| b.cmp(a));
    let work: u128 = times.iter().take(ahead).map(|c| u128::from(*c)).sum();
    let load = loads.iter().take(ahead).fold(BigRational::zero(), |sum, u| sum + u);
    let rest = int(cpus) - load;
    if !rest.is_positive() {
        return None;
    }
    let work = BigRational::from_integer(BigInt::from(work) - BigInt::from(least));
    let x = (work / rest).max(BigRational::zero());
    let late = |task: &Sporadic| {
        let bound = (&x + ratio(task.wcet, 1)).ceil().to_integer();
        u64::try_from(&bound).ok()
    };
    tasks.iter().map(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(list: &[(u64, u64)]) -> Vec<Sporadic> {
        list.iter().map(|(c, t)| Sporadic::implicit(*c, *t)).collect()
    }

    /// Misses and greatest tardiness under global EDF in steps of one unit.
    fn run(tasks: &[Sporadic], cpus: usize, offsets: &[u64], end: u64) -> (u64, Vec<u64>) {
        let mut jobs: Vec<(u64, usize, u64)> = Vec::new(); // deadline, task, left
        let mut late = vec![0; tasks.len()];
        for now in 0..end {
            for (i, task) in tasks.iter().enumerate() {
                if now >= offsets[i] && (now - offsets[i]).is_multiple_of(task.period) {
                    jobs.push((now + task.deadline, i, task.wcet));
                }
            }
            // One CPU for a task at a time: its earlier job first.
            jobs.sort();
            let mut running: Vec<usize> = Vec::new();
            for job in &mut jobs {
                if running.len() < cpus && !running.contains(&job.1) {
                    running.push(job.1);
                    job.2 -= 1;
                    if job.2 == 0 {
                        late[job.1] = late[job.1].max((now + 1).saturating_sub(job.0));
                    }
                }
            }
            jobs.retain(|job| job.2 > 0);
        }
        for (deadline, task, _) in jobs {
            late[task] = late[task].max(end.saturating_sub(deadline));
        }
        (late.iter().filter(|l| **l > 0).count() as u64, late)
    }

    #[test]
    fn three_tasks_of_two_thirds_are_late_by_at_most_2_on_two_cpus() {
        let tasks = of(&[(2, 3); 3]);
        assert_eq!(gfb(&tasks, 2), Verdict::Unknown);
        assert!(run(&tasks, 2, &[0, 0, 0], 60).0 > 0);
        let bound = tardiness(&tasks, 2).unwrap();
        assert!(bound.iter().all(|late| *late <= 2), "{bound:?}");
        assert_eq!(bcl(&tasks, 3), Verdict::Schedulable);
    }

    #[test]
    fn a_heavy_task_among_others_has_a_bound_on_two_cpus_and_none_on_one() {
        let tasks = of(&[(80, 100), (33, 66), (7, 10)]);
        assert!(tardiness(&tasks, 2).is_some());
        assert_eq!(tardiness(&tasks, 1), None);
    }

    fn sets() -> impl Strategy<Value = Vec<Sporadic>> {
        let task = (prop::sample::select(vec![3u64, 4, 5, 6, 8, 10]), 1u64..=6, 0u64..=3);
        let task = task.prop_map(|(period, wcet, less)| Sporadic {
            wcet: wcet.min(period),
            deadline: period.saturating_sub(less).max(1),
            period,
        });
        prop::collection::vec(task, 2..=6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_accepted_set_misses_a_deadline(
            tasks in sets(), cpus in 1usize..=4, offsets in prop::collection::vec(0u64..10, 6),
        ) {
            for test in [gfb, bcl] {
                if test(&tasks, cpus) == Verdict::Schedulable {
                    prop_assert_eq!(run(&tasks, cpus, &[0; 6], 300).0, 0);
                    prop_assert_eq!(run(&tasks, cpus, &offsets, 300).0, 0);
                }
            }
        }

        #[test]
        fn nobody_is_later_than_the_bound(
            tasks in sets(), cpus in 1usize..=4, offsets in prop::collection::vec(0u64..10, 6),
        ) {
            let tasks: Vec<_> = tasks.iter().map(|t| Sporadic::implicit(t.wcet, t.period)).collect();
            if let Some(bound) = tardiness(&tasks, cpus) {
                for offsets in [vec![0; 6], offsets] {
                    let (_, late) = run(&tasks, cpus, &offsets, 500);
                    for (late, bound) in late.iter().zip(&bound) {
                        prop_assert!(late <= bound, "{late} {bound}");
                    }
                }
            }
        }
    }
}
