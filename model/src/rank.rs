// SPDX-License-Identifier: GPL-2.0-only
//! Ranks of reservations, and the servers that serve best effort among the soft ones, where the order ranks
//! (EDF-HSB: Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are analysis-based
//! schedulers really worth it?", section 3).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Fraction, HOUR, MS, clip, format_duration, parse_duration};

/// What a reservation is to others: its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// Never late: on one CPU, before all that are soft.
    Hard,
    /// Late by no more than a bound.
    #[default]
    Soft,
}

impl Rank {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Rank::Hard => "hard",
            Rank::Soft => "soft",
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "hard" => Ok(Rank::Hard),
            "soft" => Ok(Rank::Soft),
            _ => Err(format!("there is no class \"{}\"; write hard or soft", clip(text))),
        }
    }
}

/// The servers of best effort: each serves one thread of it at a time for `budget` every `period`; ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// How many, at most [`crate::numbers::CPUS`].
    pub count: u32,
    /// CPU time of one in each period, at most the period.
    pub budget: u64,
    /// At least 1.
    pub period: u64,
}

impl Servers {
    /// Budget and period where nobody says.
    pub const BUDGET: u64 = 5 * MS;
    /// As [`Servers::BUDGET`].
    pub const PERIOD: u64 = 50 * MS;

    /// One for each CPU.
    pub fn each(cpus: u32) -> Self {
        Self { count: cpus, budget: Self::BUDGET, period: Self::PERIOD }
    }

    /// Whether the values make sense by themselves.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        if self.count > crate::numbers::CPUS {
            return Err(format!(
                "{} servers are too many; give at most {}",
                self.count,
                crate::numbers::CPUS
            ));
        }
        if self.budget == 0 || self.budget > self.period || self.period > HOUR {
            return Err(format!(
                "{self}: the budget is from 1ns to the period, and that is at most 1h"
            ));
        }
        Ok(())
    }

    /// What best effort gets by them in the long run, in CPUs.
    pub fn rate(&self) -> Fraction {
        Fraction::new(self.budget, self.period) * u64::from(self.count)
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (budget, period) = (format_duration(self.budget), format_duration(self.period));
        write!(f, "{}:{budget}:{period}", self.count)
    }
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{}\" is no COUNT:BUDGET:PERIOD; write 4:5ms:50ms", clip(text));
        let [count, budget, period] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let time = |text| parse_duration(text).map_err(|e| e.to_string());
        let (budget, period) = (time(budget)?, time(period)?);
        let count: u32 = count.parse().map_err(|_| wrong())?;
        let servers = Self { count, budget, period };
        servers.check().map(|()| servers)
    }
}

/// What of each CPU stays best effort's own share where servers serve it: who is bound to a CPU full of hard
/// reservations is served by that alone, and the kernel ends a scheduler that keeps anybody waiting for 10 s.
pub const FLOOR: Fraction = Fraction::new_raw(1, 100);
