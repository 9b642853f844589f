// SPDX-License-Identifier: GPL-2.0-only
//! How the budget of a group is divided among those of its members that have none of their own.

/// A group's budget, and who has a part of it. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    period: u64,
    asked: u128,
    left: u128,
    weights: u64,
}

impl Division {
    /// `budget` in every `period`, less what members with budgets of their own, at least 1, ask for: each a budget, its
    /// period and how many there are of it. The rest is for members whose weights are `weights` together.
    pub fn new(
        (budget, period): (u64, u64),
        asked: impl Iterator<Item = (u64, u64, u64)>,
        weights: u64,
    ) -> Self {
        // Rounded so that all together never have more than there is.
        let in_period = |(budget, every, count): (u64, u64, u64)| {
            let scaled = u128::from(budget) * u128::from(period);
            scaled.div_ceil(u128::from(every.max(1))) * u128::from(count)
        };
        let asked: u128 = asked.map(in_period).sum();
        let left = u128::from(budget).saturating_sub(asked);
        Self { period: period.max(1), asked, left, weights: weights.max(1) }
    }

    /// The budget in every `period` of who has this weight, rounded down; 0 if nothing is left.
    pub fn part(&self, weight: u64, period: u64) -> u64 {
        let part = self.left * u128::from(weight) * u128::from(period)
            / (u128::from(self.weights) * u128::from(self.period));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// What those with budgets ask for in the group's period.
    pub fn asked(&self) -> u64 {
        u64::try_from(self.asked).unwrap_or(u64::MAX)
    }
}
