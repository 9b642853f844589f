// SPDX-License-Identifier: GPL-2.0-only
//! Sporadic tasks as the tests see them.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

use crate::amount::{self, Amount, WHOLE};

/// A sporadic task (Mok 1983): at least `period` between releases, each job done `deadline` after its release. All
/// times in one unit, ns where they come from a task-set file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sporadic {
    /// Longest execution time of a job, at least 1.
    pub wcet: u64,
    /// Relative deadline, at least 1.
    pub deadline: u64,
    /// Least time between releases, at least 1.
    pub period: u64,
}

impl Sporadic {
    /// One whose deadline is its period.
    pub fn implicit(wcet: u64, period: u64) -> Self {
        Self { wcet, deadline: period, period }
    }

    /// What a constant bandwidth server of budget Q, period P and relative deadline D may ask of its CPU: Q in every
    /// min(D, P), for with a new job it may begin anew after its deadline.
    pub fn served(budget: u64, period: u64, deadline: u64) -> Self {
        Self::implicit(budget, deadline.min(period).max(1))
    }

    /// C / T.
    pub fn utilization(&self) -> BigRational {
        ratio(self.wcet, self.period)
    }

    /// C / min(D, T).
    pub fn density(&self) -> BigRational {
        ratio(self.wcet, self.deadline.min(self.period))
    }
}

/// a / b, exactly; `b` is not 0.
pub(crate) fn ratio(a: u64, b: u64) -> BigRational {
    BigRational::new(BigInt::from(a), BigInt::from(b))
}

/// ΣC/T in units of 2⁻⁶⁴, rounded down, and of how many tasks: no more than as many units too small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    floor: u128,
    tasks: u64,
}

impl Load {
    /// Of these tasks.
    pub fn of(tasks: &[Sporadic]) -> Self {
        tasks.iter().fold(Self::default(), |mut load, task| {
            load.add(task);
            load
        })
    }

    /// One more task.
    pub fn add(&mut self, task: &Sporadic) {
        let part = (u128::from(task.wcet) << 64) / u128::from(task.period);
        self.floor = self.floor.saturating_add(part);
        self.tasks += 1;
    }

    /// What is perhaps left of `whole` CPUs, in units of 2⁻⁶⁴; 0 if surely nothing is.
    pub(crate) fn left_at_most(self, whole: u64) -> u128 {
        (u128::from(whole) << 64).saturating_sub(self.floor)
    }

    /// What is surely left of `whole` CPUs, in units of 2⁻⁶⁴; 0 if perhaps nothing is.
    pub(crate) fn left(self, whole: u64) -> u128 {
        (u128::from(whole) << 64).saturating_sub(self.floor.saturating_add(self.tasks.into()))
    }
}

/// Whether ΣC/T is more than 1, by a unit of 2⁻⁸⁰ for each task at least: for 37 000 years no demand shows less
/// (`amount`).
pub(crate) fn overloaded(tasks: &[Sporadic]) -> bool {
    tasks.iter().map(|task| amount::floor(task.wcet, task.period)).sum::<Amount>() > WHOLE
}

/// Whether ΣC/T is less than, equal to or more than `whole`: exactly, and quickly unless it is very near.
pub fn compare_utilization(tasks: &[Sporadic], whole: u64) -> Ordering {
    let load = Load::of(tasks);
    if load.left(whole) > 0 {
        Ordering::Less
    } else if load.floor > u128::from(whole) << 64 {
        Ordering::Greater
    } else {
        utilization(tasks).cmp(&BigRational::from_integer(whole.into()))
    }
}

/// Sum of C / T.
pub fn utilization(tasks: &[Sporadic]) -> BigRational {
    tasks.iter().fold(BigRational::zero(), |sum, task| sum + task.utilization())
}

/// What a test says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// No job is ever late.
    Schedulable,
    /// Some legal sequence of releases makes a job late. Only exact tests say so.
    Unschedulable,
    /// The test cannot tell: it is only sufficient, or gave up at its limit of work.
    Unknown,
}

impl Verdict {
    /// Of a test that is only sufficient.
    pub(crate) fn sufficient(schedulable: bool) -> Self {
        if schedulable { Verdict::Schedulable } else { Verdict::Unknown }
    }
}
