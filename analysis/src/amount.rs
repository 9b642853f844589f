// SPDX-License-Identifier: GPL-2.0-only
//! Parts of CPUs in whole units of 2⁻⁸⁰, so that a sum of a thousand costs a thousand additions whatever the periods.
//!
//! Loads are rounded down and offers up: what fits exactly always fits here. What is too much by less than a unit
//! for each load fits, too; with 1024 loads that is U ≤ 1 + 2⁻⁷⁰. The demand of any interval shorter than 2⁷⁰ ns,
//! 37 000 years, then exceeds it by less than 1 ns, which, times being whole, is not at all: for all that long the
//! verdict is exact.

use onbeat_model::units::Fraction;

/// A part of one CPU, or of several, in units of 2⁻⁸⁰.
pub type Amount = u128;

/// Bits after the point.
const BITS: u32 = 80;
/// One CPU.
pub const WHOLE: Amount = 1 << BITS;

#[cfg(test)]
thread_local! {
    /// How often a load was worked out.
    pub(crate) static DIVISIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// a / b, rounded down; b at least 1. What is beyond 2⁴⁷ CPUs counts as that.
pub fn floor(a: u64, b: u64) -> Amount {
    #[cfg(test)]
    DIVISIONS.with(|n| n.set(n.get() + 1));
    let (a, b) = (u128::from(a), u128::from(b));
    if (a / b) >> 47 != 0 {
        return WHOLE << 47;
    }
    // 64 bits at a time, so that nothing overflows.
    let high = (a % b) << 64;
    let low = (high % b) << (BITS - 64);
    ((a / b) << BITS) + ((high / b) << (BITS - 64)) + low / b
}

/// As [`floor`].
pub fn of(fraction: Fraction) -> Amount {
    floor(*fraction.numer(), *fraction.denom())
}

/// The greatest whole budget whose load over `over`, at least 1, is no more than `room`; at most `over`.
pub fn budget(room: Amount, over: u64) -> u64 {
    if room >= WHOLE {
        return over;
    }
    // ⌊B·2⁸⁰ / over⌋ ≤ room means B·2⁸⁰ < (room + 1)·over; the product has up to 144 bits.
    let (high, low) = ((room + 1) >> 64, (room + 1) & u128::from(u64::MAX));
    let over = u128::from(over);
    let (low, high) = ((low * over), high * over);
    let (sum, rest) = (high + (low >> 64), low & u128::from(u64::MAX));
    let (whole, part) = (sum >> (BITS - 64), sum & ((1 << (BITS - 64)) - 1));
    let exact = rest == 0 && part == 0;
    (whole - u128::from(exact && whole > 0)) as u64
}

/// The least whole period over which `budget` is a load of no more than `room`; `None` if it is beyond `most`.
pub fn period(budget: u64, room: Amount, most: u64) -> Option<u64> {
    if floor(budget, most) > room {
        return None;
    }
    let (mut low, mut high) = (0, most); // too short, long enough
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if floor(budget, middle) > room { low = middle } else { high = middle }
    }
    Some(high)
}

/// The simplest fraction of those at most `slack` units below; for people: what is exact in theory is exact again.
pub fn below(amount: Amount, slack: usize) -> Fraction {
    between(amount.saturating_sub(slack as u128), amount)
}

/// The simplest fraction of those at most `slack` units above.
pub fn above(amount: Amount, slack: usize) -> Fraction {
    between(amount, amount + slack as u128)
}

fn between(low: Amount, high: Amount) -> Fraction {
    let (n, d) = simplest((low, WHOLE), (high, WHOLE));
    match (u64::try_from(n), u64::try_from(d)) {
        (Ok(n), Ok(d)) => Fraction::new(n, d),
        // A billionth too little.
        _ => Fraction::new((((high >> 32) * 1_000_000_000) >> (BITS - 32)) as u64, 1_000_000_000),
    }
}

/// The fraction with the least denominator from `low` to `high`, by their continued fractions.
fn simplest(low: (u128, u128), high: (u128, u128)) -> (u128, u128) {
    let whole = low.0 / low.1;
    let rest = low.0 % low.1;
    if rest == 0 {
        return (whole, 1);
    }
    if whole < high.0 / high.1 {
        return (whole + 1, 1);
    }
    let (n, d) = simplest((high.1, high.0 % high.1), (low.1, rest));
    (whole * n + d, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_rational::BigRational;
    use num_traits::ToPrimitive;
    use proptest::prelude::*;

    #[test]
    fn the_longest_times_do_not_overflow() {
        assert_eq!(floor(u64::MAX, 1), WHOLE << 47);
        assert_eq!(floor(u64::MAX, u64::MAX), WHOLE);
        assert_eq!(budget(WHOLE - 1, u64::MAX), u64::MAX - 1);
        assert_eq!(budget(0, u64::MAX), 0);
        assert_eq!(period(1, 0, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn loads_are_rounded_down_and_what_fits_is_the_most(
            a in 0u64.., b in 1u64.., room in 1u128..WHOLE,
        ) {
            let exact = BigRational::new(a.into(), b.into()) * num_bigint::BigInt::from(WHOLE);
            let exact = exact.floor().to_integer().to_u128().unwrap_or(u128::MAX);
            prop_assert_eq!(floor(a, b), exact.min(WHOLE << 47));
            let most = budget(room, b);
            prop_assert!(floor(most, b) <= room && floor(most + 1, b) > room);
            let budget = a >> 22;
            match period(budget, room, u64::MAX) {
                Some(p) => prop_assert!(floor(budget, p) <= room && (p == 1 || floor(budget, p - 1) > room)),
                None => prop_assert!(floor(budget, u64::MAX) > room),
            }
        }

        // Loads were rounded down by up to a unit each, and so the room that they leave is above what is exact.
        #[test]
        fn simple_fractions_are_found_again(n in 0u64..1 << 32, d in 1u64..1 << 32, off in 1u128..2000) {
            prop_assert_eq!(above(floor(n, d), 1), Fraction::new(n, d));
            prop_assert_eq!(below(floor(n, d) + off, 2000), Fraction::new(n, d));
        }
    }
}
