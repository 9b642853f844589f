// SPDX-License-Identifier: GPL-2.0-only
//! Sufficient tests for rate-monotonic priorities with deadlines at the ends of periods.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, pow};

use crate::sporadic::{Sporadic, Verdict, ratio, utilization};

fn implicit(tasks: &[Sporadic]) -> bool {
    tasks.iter().all(|task| task.deadline >= task.period)
}

/// U ≤ n(2^(1/n) − 1), compared without roots: (U/n + 1)^n ≤ 2. Needs D ≥ T.
///
/// Source: Liu and Layland 1973, theorem 5.
pub fn liu_layland(tasks: &[Sporadic]) -> Verdict {
    let n = tasks.len();
    if n == 0 {
        return Verdict::Schedulable;
    }
    let each = utilization(tasks) * ratio(1, n as u64) + BigRational::one();
    Verdict::sufficient(implicit(tasks) && pow(each, n) <= two())
}

/// Π(U_i + 1) ≤ 2. Needs D ≥ T. Accepts whatever Liu and Layland's bound does, and more.
///
/// Source: Bini, Buttazzo and Buttazzo 2003, theorem 1.
pub fn hyperbolic(tasks: &[Sporadic]) -> Verdict {
    let product = tasks.iter().fold(BigRational::one(), |product, task| {
        product * (task.utilization() + BigRational::one())
    });
    Verdict::sufficient(implicit(tasks) && product <= two())
}

fn two() -> BigRational {
    BigRational::from_integer(BigInt::from(2))
}
