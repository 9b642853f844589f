// SPDX-License-Identifier: GPL-2.0-only
//! Groups: whether the budget of a group on one CPU is enough for its members; purses: whether they make anybody wait.
//! docs/analysis.md explains the tests.

pub mod edf;
pub mod fixed;
pub mod judge;
#[cfg(test)]
mod oracle;
pub mod purses;

/// Looks at members until a test is given up, some tenths of a second.
const WORK: u64 = 20_000_000;

/// What a group gets at least: Q in each P, within D of when that begins, D ≤ P; wherever in that time. Times in ns, at
/// least 1.
///
/// Source: Shin and Lee, "Periodic resource model for compositional real-time guarantees", 2003, for D = P. A server
/// with D < P that has its budget at the beginning of one period and before the deadline of the next is without for
/// P + D − 2Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Q, at most D.
    pub budget: u64,
    /// P.
    pub period: u64,
    /// D, at most P.
    pub deadline: u64,
}

impl Supply {
    /// Q every P with relative deadline D; later ones count as the period, as Onbeat serves them.
    pub fn new(budget: u64, period: u64, deadline: u64) -> Self {
        let deadline = deadline.min(period).max(1);
        Self { budget: budget.min(deadline), period, deadline }
    }

    /// How long there may be nothing.
    pub fn blackout(&self) -> u64 {
        self.period + self.deadline - 2 * self.budget
    }

    /// sbf(t): the least there is in any interval of length t.
    pub fn within(&self, t: u64) -> u64 {
        let Some(rest) = t.checked_sub(self.blackout()) else { return 0 };
        rest / self.period * self.budget + (rest % self.period).min(self.budget)
    }

    /// The shortest interval in which there is that much; `None` if beyond 2⁶⁴ ns.
    pub fn until(&self, amount: u128) -> Option<u64> {
        let Some(less) = amount.checked_sub(1) else { return Some(0) };
        let (whole, rest) = (less / u128::from(self.budget), less % u128::from(self.budget) + 1);
        let periods = whole.checked_mul(self.period.into())?;
        u64::try_from(periods.checked_add(rest)?.checked_add(self.blackout().into())?).ok()
    }

    /// The last time before `t` at which sbf begins to grow.
    fn grows_before(&self, t: u64) -> Option<u64> {
        let rest = t.checked_sub(self.blackout() + 1)?;
        Some(self.blackout() + rest / self.period * self.period)
    }
}

/// Whether members get by with a supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All are in time, whatever happens; under fixed priorities with what binds.
    Fits(Option<Instant>),
    /// In the long run members ask for more than there is.
    Overload,
    /// There may be less than is asked for.
    Short(Instant),
    /// Not found out within [`WORK`].
    Unknown,
}

/// Demand and supply in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// Length of the interval, ns.
    pub at: u64,
    /// What members may ask for in it, ns.
    pub demand: u128,
    /// What there is at least, ns.
    pub supply: u64,
    /// The member it is about, by its place among those that were tested, under fixed priorities.
    pub member: Option<usize>,
}

impl Fit {
    /// Whether that is proven.
    pub fn fits(&self) -> bool {
        matches!(self, Fit::Fits(_))
    }
}

#[cfg(test)]
mod tests {
    use super::oracle::{Pattern, least_supplies};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_supply_of_3_every_5_is_that_of_shin_and_lee() {
        // Nothing for 2(5 − 3), then 3 ticks that count of each 5.
        let supply = Supply::new(3, 5, 5);
        let all: Vec<u64> = (0..=14).map(|t| supply.within(t)).collect();
        assert_eq!(all, [0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 5, 6, 6, 6]);
    }

    #[test]
    fn a_whole_cpu_supplies_all_of_its_time() {
        let supply = Supply::new(7, 7, 7);
        assert!((0..30).all(|t| supply.within(t) == t && supply.until(t.into()) == Some(t)));
    }

    fn any_supply() -> impl Strategy<Value = Supply> {
        (1u64..=8, 0u64..8, 0u64..8).prop_map(|(period, earlier, less)| {
            let deadline = period - earlier % period;
            Supply { budget: deadline - less % deadline, period, deadline }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn no_pattern_supplies_less_and_the_worst_one_just_that(
            supply in any_supply(), seed in any::<u64>(),
        ) {
            let any = least_supplies(&Pattern::drawn(supply, seed).ticks(), 40);
            let worst = least_supplies(&Pattern::worst(supply).ticks(), 40);
            for t in 0..40 {
                prop_assert!(any[t] >= supply.within(t as u64), "{} {:?}", t, supply);
                prop_assert_eq!(worst[t], supply.within(t as u64), "{} {:?}", t, supply);
            }
        }

        #[test]
        fn until_is_the_first_time_at_which_there_is_that_much(supply in any_supply(), amount in 0u64..40) {
            let first = (0..).find(|t| supply.within(*t) >= amount);
            prop_assert_eq!(supply.until(amount.into()), first);
        }

        #[test]
        fn what_grows_before_is_the_last_start_of_growth(supply in any_supply(), t in 0u64..60) {
            let flat = |s: u64| s == 0 || supply.within(s) == supply.within(s - 1);
            let grows = |s: &u64| supply.within(*s + 1) > supply.within(*s) && flat(*s);
            let last = (0..t).rev().find(grows);
            if supply.budget < supply.period {
                prop_assert_eq!(supply.grows_before(t), last);
            }
        }
    }
}
