// SPDX-License-Identifier: GPL-2.0-only
//! How arguments that several verbs have are read.

use onbeat_kernel::machine::parse_cpus;
use onbeat_model::units::{HOUR, MS, parse_duration, period_of};

/// Nanoseconds.
pub type Time = u64;

/// CPUs by their numbers. (A plain list would be an option that may be given several times.)
#[derive(Debug, Clone)]
pub struct Cpus(pub Vec<u32>);

/// A time such as `41.7ms`.
///
/// # Errors
/// It is none; says what to write.
pub fn duration(text: &str) -> Result<Time, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// A time between two looks, such as `2s`.
///
/// # Errors
/// It is none, or one at which nobody could look; says what to write.
pub fn interval(text: &str) -> Result<Time, String> {
    let interval = duration(text)?;
    let bounds = 100 * MS..=HOUR;
    bounds
        .contains(&interval)
        .then_some(interval)
        .ok_or_else(|| "write a time from 100ms to 1h, such as 2s".into())
}

/// CPUs such as `0-3,6`.
///
/// # Errors
/// They are none; says what to write.
pub fn cpus(text: &str) -> Result<Cpus, String> {
    parse_cpus(text).map(Cpus)
}

/// CPU time in each period: so much, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// ns.
    Time(Time),
    /// Per cent of the period.
    Percent(f64),
}

impl Budget {
    /// Of a period of so many ns, ns; at least 1.
    pub fn of(self, period: Time) -> Time {
        match self {
            Self::Time(time) => time,
            Self::Percent(percent) => ((period as f64 * percent / 100.0).round() as Time).max(1),
        }
    }
}

/// A budget such as `25ms` or `60%`.
///
/// # Errors
/// It is none; says what to write.
pub fn budget(text: &str) -> Result<Budget, String> {
    let Some(number) = text.strip_suffix('%') else { return duration(text).map(Budget::Time) };
    match number.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Budget::Percent(percent)),
        _ => Err("write a part of the period above 0% and up to 100%, such as 60%".into()),
    }
}

/// The period of something that comes so often a second, ns.
///
/// # Errors
/// It comes less than once in an hour, or more often than a million times a second; says what to write.
pub fn rate(text: &str) -> Result<Time, String> {
    text.parse().ok().and_then(period_of).ok_or_else(|| {
        "write how often a second, from 0.001 to 1000000, such as 24 or 59.94".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_times_or_parts_of_the_period() {
        assert_eq!(budget("25ms").unwrap().of(41_000_000), 25_000_000);
        assert_eq!(budget("60%").unwrap().of(40_000_000), 24_000_000);
        assert_eq!(budget("0.001%").unwrap().of(1_000), 1);
        for wrong in ["0%", "-1%", "101%", "%", "NaN%", "inf%", "25", ""] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_become_periods() {
        assert_eq!(rate("24").unwrap(), 41_666_667);
        assert_eq!(rate("1000").unwrap(), 1_000_000);
        for wrong in ["0", "-24", "1e9", "NaN", "inf", "24fps", ""] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
