// SPDX-License-Identifier: GPL-2.0-only
//! Sporadic tasks as the tests see them.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

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
