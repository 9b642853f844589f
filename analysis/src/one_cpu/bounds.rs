// SPDX-License-Identifier: GPL-2.0-only
//! Sufficient tests for rate-monotonic priorities with deadlines at the ends of periods.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, pow};

use crate::sporadic::{Load, Sporadic, Verdict, ratio, utilization};

/// Fractions of more tasks than this are too long to be multiplied: who is that near to the bound is not accepted.
const TASKS_EXACT: usize = 64;

fn implicit(tasks: &[Sporadic]) -> bool {
    tasks.iter().all(|task| task.deadline >= task.period)
}

/// U ≤ n(2^(1/n) − 1), compared without roots where it is near: (U/n + 1)^n ≤ 2. Needs D ≥ T.
///
/// Source: Liu and Layland 1973, theorem 5.
pub fn liu_layland(tasks: &[Sporadic]) -> Verdict {
    let n = tasks.len();
    if n == 0 {
        return Verdict::Schedulable;
    }
    let bound = n as f64 * (std::f64::consts::LN_2 / n as f64).exp_m1();
    // Both sides are off by far less than the billionth that decides.
    let u = 1.0 - Load::of(tasks).left(1) as f64 / (1u128 << 64) as f64;
    let fits = if u < bound - 1e-9 {
        true
    } else if u > bound + 1e-9 || n > TASKS_EXACT {
        false
    } else {
        let each = utilization(tasks) * ratio(1, n as u64) + BigRational::one();
        pow(each, n) <= two()
    };
    Verdict::sufficient(implicit(tasks) && fits)
}

/// Π(U_i + 1) ≤ 2. Needs D ≥ T. Accepts whatever Liu and Layland's bound does, and more.
///
/// Source: Bini, Buttazzo and Buttazzo 2003, theorem 1.
pub fn hyperbolic(tasks: &[Sporadic]) -> Verdict {
    let product = tasks
        .iter()
        .fold(1.0, |product, task| product * (1.0 + task.wcet as f64 / task.period as f64));
    // Each factor and each product is off by 2⁻⁵³ of itself.
    let off = 1e-9 + tasks.len() as f64 * 1e-15;
    let fits = if product < 2.0 - off {
        true
    } else if product > 2.0 + off || tasks.len() > TASKS_EXACT {
        false
    } else {
        let product = tasks.iter().fold(BigRational::one(), |product, task| {
            product * (task.utilization() + BigRational::one())
        });
        product <= two()
    };
    Verdict::sufficient(implicit(tasks) && fits)
}

fn two() -> BigRational {
    BigRational::from_integer(BigInt::from(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_a_bound_is_accepted_and_a_little_more_is_not() {
        // (1 + 1/3)(1 + 1/2) = 2 and (1 + 1/1) = 2.
        let on =
            [Sporadic::implicit(1_000_000_000_000, 3_000_000_000_000), Sporadic::implicit(1, 2)];
        assert_eq!(hyperbolic(&on), Verdict::Schedulable);
        let beyond = [Sporadic { wcet: on[0].wcet + 1, ..on[0] }, on[1]];
        assert_eq!(hyperbolic(&beyond), Verdict::Unknown);
        assert_eq!(liu_layland(&[Sporadic::implicit(5, 5)]), Verdict::Schedulable);
        // 2(√2 − 1) = 0.82842712474619…
        let of = |wcet| [Sporadic::implicit(wcet, 10_000_000_000_000), Sporadic::implicit(4, 10)];
        assert_eq!(liu_layland(&of(4_284_271_247_461)), Verdict::Schedulable);
        assert_eq!(liu_layland(&of(4_284_271_247_463)), Verdict::Unknown);
    }

    #[test]
    fn a_thousand_tasks_near_the_bounds_get_an_answer_at_once() {
        let primes = (20_000_000u64..).step_by(12_347).take(1000);
        let tasks: Vec<_> = primes.map(|t| Sporadic::implicit(t * 693 / 1_000_000, t)).collect();
        assert_eq!(liu_layland(&tasks), Verdict::Schedulable);
        assert_eq!(hyperbolic(&tasks), Verdict::Schedulable);
    }
}
