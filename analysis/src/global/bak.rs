// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF by the load of busy intervals.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};

use super::exact::{densest, density, int, order};
use super::{small, spend, work};
use crate::sporadic::{Sporadic, Verdict, ratio};

/// Sums of this many fractions are done exactly when floating point leaves them open.
const EXACT: usize = 64;

/// For each task k there is a λ ≥ C/min(D, T) such that intervals before a miss of k, as long as their load stays above
/// m − (m − 1)·λ, get no more than that from all tasks. Any deadlines. λ is tried at the task's own density and where
/// the loads of others change their form.
///
/// Sums are floating point with a bound on their error; those it leaves open are done again as rationals, for up
/// to 64 tasks.
///
/// Source: Baker 2003, theorem 12; for all λ and deadlines after periods Baker 2005, as in Baruah and Baker 2008,
/// theorem 2.
pub fn bak(tasks: &[Sporadic], cpus: usize) -> Verdict {
    let Some(most) = densest(tasks) else { return Verdict::Schedulable };
    if cpus == 0 || most.0 > most.1 || !small(tasks, cpus) {
        return Verdict::Unknown;
    }
    let mut lambdas: Vec<(u64, u64)> = tasks.iter().map(|t| (t.wcet, t.period)).collect();
    lambdas.extend(tasks.iter().filter(|t| t.deadline > t.period).map(|t| (t.wcet, t.deadline)));
    lambdas.sort_unstable_by(|a, b| order(*a, *b));
    lambdas.dedup_by(|a, b| order(*a, *b).is_eq());
    let mut left = work(tasks);
    let mut fits = |me: &Sporadic| {
        let own = density(me);
        let larger = lambdas.partition_point(|l| order(*l, own).is_le());
        std::iter::once(own).chain(lambdas[larger..].iter().copied()).any(|lambda| {
            spend(&mut left, tasks.len()).is_some() && holds(tasks, cpus, me.deadline, lambda)
        })
    };
    Verdict::sufficient(tasks.iter().all(&mut fits))
}

/// Whether one of the two conditions holds for a window of at least `d`.
fn holds(tasks: &[Sporadic], cpus: usize, d: u64, lambda: (u64, u64)) -> bool {
    let l = lambda.0 as f64 / lambda.1 as f64;
    let m = cpus as f64;
    let (mut to_one, mut to_rest, mut error) = (0.0, 0.0, 0.0);
    for task in tasks {
        let (part, size) = share(task, d, lambda, l);
        to_one += part.min(1.0);
        to_rest += part.min(1.0 - l);
        error += size + 1.0;
    }
    // Some thirty roundings of 2⁻⁵³ for each term, and those of adding n of them.
    let error = (error + m) * (32 + tasks.len()) as f64 * f64::EPSILON;
    if to_one + error < m - (m - 1.0) * l || to_rest + error < m * (1.0 - l) {
        return true;
    }
    let open = to_one - error <= m - (m - 1.0) * l || to_rest - error < m * (1.0 - l);
    open && tasks.len() <= EXACT && holds_exactly(tasks, cpus, d, lambda)
}

/// β of a task, and the largest number met on the way.
fn share(task: &Sporadic, d: u64, lambda: (u64, u64), l: f64) -> (f64, f64) {
    let (c, u, d) = (task.wcet as f64, task.wcet as f64 / task.period as f64, d as f64);
    if order((task.wcet, task.period), lambda).is_le() {
        let more = u * task.period.saturating_sub(task.deadline) as f64 / d;
        return (u + more, u + more);
    }
    if order(lambda, (task.wcet, task.deadline)).is_ge() {
        return (u, u);
    }
    (u + (c - l * task.deadline as f64) / d, u + (c + l * task.deadline as f64) / d)
}

fn holds_exactly(tasks: &[Sporadic], cpus: usize, d: u64, lambda: (u64, u64)) -> bool {
    let (l, one) = (ratio(lambda.0, lambda.1), BigRational::one());
    let (mut to_one, mut to_rest) = (BigRational::zero(), BigRational::zero());
    for task in tasks {
        let u = task.utilization();
        let part = if u <= l {
            &u + &u * ratio(task.period.saturating_sub(task.deadline), d)
        } else if l >= ratio(task.wcet, task.deadline) {
            u
        } else {
            let head = ratio(task.wcet, 1) - &l * BigInt::from(task.deadline);
            u + head / BigInt::from(d)
        };
        to_one += part.clone().min(one.clone());
        to_rest += part.min(&one - &l);
    }
    to_one <= int(cpus) - int(cpus - 1) * &l || to_rest < int(cpus) * (one - l)
}

#[cfg(test)]
mod tests {
    use super::super::oracle::sets_around;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn floating_point_says_what_rationals_say(tasks in sets_around(), cpus in 1usize..=4) {
            for me in &tasks {
                for l in &tasks {
                    let lambda = (l.wcet, l.period);
                    prop_assert_eq!(
                        holds(&tasks, cpus, me.deadline, lambda),
                        holds_exactly(&tasks, cpus, me.deadline, lambda)
                    );
                }
            }
        }
    }
}
