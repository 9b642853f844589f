// SPDX-License-Identifier: GPL-2.0-only
//! Why a reservation does not fit, and what would.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Fraction, HOUR, clip, format_duration, format_percent};

/// How the paragraph of a [`Refusal`] begins: who sees only the output of a program knows it by that.
pub const DOES_NOT_FIT: &str = "the reservation does not fit";

/// What the runner says when the kernel's own admission test rejects a set.
pub const DEADLINE_REFUSES: &str = "SCHED_DEADLINE refuses it: all budgets together are too much";

/// Why a reservation does not fit, and what would. Displays as a paragraph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One sentence: which limit is exceeded.
    pub reason: String,
    /// Budget asked for, ns.
    pub budget_ns: u64,
    /// Period asked for, ns.
    pub period_ns: u64,
    /// Utilization asked for, of one CPU.
    pub asked: Fraction,
    /// Greatest utilization that would be granted now under the same conditions.
    pub free: Fraction,
    /// What holds the rest, greatest share first.
    pub holders: Vec<Holder>,
    /// Nearest values that fit.
    pub nearest: Nearest,
}

/// One who holds CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Reservation, or "best-effort share", "SCHED_DEADLINE tasks" and the like.
    pub name: String,
    /// CPUs' worth of time it holds.
    pub utilization: Fraction,
}

/// The nearest values that would be granted, each with the other value as asked; `None` where none would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Nearest {
    /// Greatest budget with the period asked for, ns.
    pub budget_ns: Option<u64>,
    /// Shortest period with the budget asked for, ns.
    pub period_ns: Option<u64>,
}

impl Nearest {
    /// The same, rounded to what people like to read, on the side that fits.
    pub fn rounded(self) -> Self {
        Self {
            budget_ns: self.budget_ns.map(|b| b / grain(b) * grain(b)),
            period_ns: self.period_ns.map(|p| p.next_multiple_of(grain(p)).min(HOUR)),
        }
    }
}

/// What a time is rounded to for people: to three digits, or to four if these say it exactly.
fn grain(ns: u64) -> u64 {
    let digit = |n: u32| 10_u64.pow((ns.max(1).ilog10() + 1).saturating_sub(n));
    if ns.is_multiple_of(digit(4)) { digit(4) } else { digit(3) }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |x: Fraction| approximate_percent(x);
        let (budget, period) = (format_duration(self.budget_ns), format_duration(self.period_ns));
        writeln!(f, "{DOES_NOT_FIT}: {}", self.reason)?;
        writeln!(f, "  asked: {budget} every {period}, {} of a CPU", percent(self.asked))?;
        writeln!(f, "  free:  {} of a CPU, for one reservation", percent(self.free))?;
        if !self.holders.is_empty() {
            writeln!(f, "  held on all CPUs together (100% is one CPU):")?;
            for h in &self.holders {
                writeln!(f, "    {:>8}  {}", percent(h.utilization), clip(&h.name))?;
            }
        }
        match (self.nearest.budget_ns, self.nearest.period_ns) {
            (Some(b), Some(p)) => {
                let (b, p) = (format_duration(b), format_duration(p));
                write!(f, "  would fit: a budget of {b} every {period}, or {budget} every {p}")
            }
            (Some(b), None) => {
                write!(f, "  would fit: a budget of {} every {period}", format_duration(b))
            }
            (None, Some(p)) => write!(f, "  would fit: {budget} every {}", format_duration(p)),
            (None, None) => write!(f, "  nothing would fit until another reservation is released"),
        }
    }
}

/// The exact percentage if it is short, else rounded down to hundredths and marked as such.
fn approximate_percent(x: Fraction) -> String {
    let exact = format_percent(x);
    if exact.len() <= 7 && !exact.contains('/') {
        return exact;
    }
    let hundredths = u128::from(*x.numer()) * 10_000 / u128::from(*x.denom());
    format!("~{}.{:02}%", hundredths / 100, hundredths % 100)
}
