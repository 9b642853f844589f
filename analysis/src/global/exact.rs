// SPDX-License-Identifier: GPL-2.0-only
//! Sums of fractions compared exactly, at the price of integers: a bracket of 2⁻⁶⁴ for each term decides nearly
//! always, and only ties are added up as rationals.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::sporadic::{Sporadic, ratio};

/// Ties whose sum has a longer denominator than this, bits, are left open: thousands of periods without common factors.
const LONG: u64 = 4096;

/// Σ a / b in units of 2⁻⁶⁴, each term rounded down; at most one unit a term is missing.
fn floor_sum(terms: impl Iterator<Item = (u64, u64)>) -> u128 {
    terms.fold(0, |sum: u128, (a, b)| sum.saturating_add((u128::from(a) << 64) / u128::from(b)))
}

/// Σ a / b; `None` if too long.
fn sum(terms: impl Iterator<Item = (u64, u64)>) -> Option<BigRational> {
    let mut sum = BigRational::zero();
    for (a, b) in terms {
        sum += ratio(a, b);
        if sum.denom().bits() > LONG {
            return None;
        }
    }
    Some(sum)
}

/// Whether Σ a / b ≤ `limit`; `None` for ties that are too long.
pub fn at_most(
    terms: impl Iterator<Item = (u64, u64)> + Clone,
    limit: &BigRational,
) -> Option<bool> {
    let low = floor_sum(terms.clone());
    let scaled: BigRational = limit * (BigInt::one() << 64u32);
    // A limit below 0 is below every sum; one beyond 2⁶⁴ is as good as that.
    let scaled = scaled.floor().to_integer();
    if scaled.is_negative() {
        return Some(false);
    }
    let limit_low = scaled.to_u128().unwrap_or(u128::MAX);
    if low > limit_low {
        return Some(false);
    }
    if low.saturating_add(terms.clone().count() as u128) <= limit_low {
        return Some(true);
    }
    sum(terms).map(|sum| sum <= *limit)
}

/// C / T of each.
pub fn loads(tasks: &[Sporadic]) -> impl Iterator<Item = (u64, u64)> + Clone {
    tasks.iter().map(|task| (task.wcet, task.period))
}

/// ΣC / T in units of 2⁻⁶⁴, rounded up.
pub fn load_high(tasks: &[Sporadic]) -> u128 {
    let up = |(a, b): (u64, u64)| (u128::from(a) << 64).div_ceil(u128::from(b));
    loads(tasks).fold(0, |sum: u128, load| sum.saturating_add(up(load)))
}

/// ⌈ΣC / T⌉, or one more for ties that are too long.
pub fn load_ceiling(tasks: &[Sporadic]) -> u128 {
    let low = floor_sum(loads(tasks));
    let high = load_high(tasks);
    let (a, b) = (low.div_ceil(1 << 64), high.div_ceil(1 << 64));
    // On an integer the rest that was cut off decides.
    if a == b && !low.is_multiple_of(1 << 64) {
        return a;
    }
    sum(loads(tasks)).and_then(|sum| sum.ceil().to_integer().to_u128()).unwrap_or(b)
}

/// C / min(D, T) of a task as a fraction, to be compared by [`larger`].
pub fn density(task: &Sporadic) -> (u64, u64) {
    (task.wcet, task.deadline.min(task.period))
}

/// Order of two fractions.
pub fn order(a: (u64, u64), b: (u64, u64)) -> std::cmp::Ordering {
    (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
}

/// The largest C / min(D, T).
pub fn densest(tasks: &[Sporadic]) -> Option<(u64, u64)> {
    tasks.iter().map(density).max_by(|a, b| order(*a, *b))
}

/// An integer as a rational.
pub fn int(n: usize) -> BigRational {
    BigRational::from_integer(BigInt::from(n))
}
