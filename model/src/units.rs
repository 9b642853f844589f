// SPDX-License-Identifier: GPL-2.0-only
//! Durations and percentages as people write them, without rounding.
//!
//! A duration is a decimal number directly followed by `ns`, `us` (or `µs`), `ms`, `s`, `min` or `h`; it must be
//! a whole number of nanoseconds. A percentage is a decimal number followed by `%`, kept as an exact rational.

use num_rational::Ratio;
use thiserror::Error;

/// An exact fraction of one CPU (or of anything else); 1 is the whole.
pub type Fraction = Ratio<u64>;

/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SEC: u64 = 1_000_000_000;
/// Nanoseconds in an hour, the longest period or duration Onbeat accepts.
pub const HOUR: u64 = 3600 * SEC;

/// Units from the largest to the smallest, so that printing picks the first that divides or fits.
const UNITS: [(&str, u64); 6] =
    [("h", HOUR), ("min", 60 * SEC), ("s", SEC), ("ms", MS), ("us", US), ("ns", 1)];

/// Why a text is not a duration or a percentage. The text after the semicolon says what to write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Nothing was given.
    #[error("an empty text is not a {0}; write for example {1}")]
    Empty(&'static str, &'static str),
    /// A number without a unit.
    #[error("\"{0}\" has no unit; add one of ns, us, ms, s, min, h, as in \"{0}ms\"")]
    NoUnit(String),
    /// A unit nobody knows.
    #[error("\"{0}\" ends in the unknown unit \"{1}\"; use one of ns, us, ms, s, min, h")]
    UnknownUnit(String, String),
    /// The part before the unit is not a decimal number.
    #[error("\"{0}\" is not a {1}; write a decimal number and a unit, for example {2}")]
    NotANumber(String, &'static str, &'static str),
    /// A sign in front.
    #[error("\"{0}\" is negative; write a value of zero or more")]
    Negative(String),
    /// More digits than nanoseconds can hold.
    #[error("\"{0}\" is finer than a nanosecond; drop the digits below 1ns")]
    TooFine(String),
    /// Larger than can be represented.
    #[error("\"{0}\" is too large; the longest time Onbeat accepts is 1h")]
    TooLarge(String),
    /// A percentage with more digits than an exact fraction can hold.
    #[error("\"{0}\" has too many digits; use at most 6 before and 9 after the point")]
    TooLong(String),
}

/// Parses a duration such as `41.7ms`, `25us` or `1s` to nanoseconds.
///
/// # Errors
/// Says what is wrong with the text; see [`UnitError`].
pub fn parse_duration(text: &str) -> Result<u64, UnitError> {
    const WHAT: &str = "duration";
    const LIKE: &str = "\"41.7ms\"";
    let t = text.trim();
    let shown = || clip(t);
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    if t.is_empty() {
        return Err(UnitError::Empty(WHAT, LIKE));
    }
    if t.starts_with('-') {
        return Err(UnitError::Negative(shown()));
    }
    let (whole, fraction) =
        decimal(number).ok_or_else(|| UnitError::NotANumber(shown(), WHAT, LIKE))?;
    let scale = match unit.trim_start() {
        "" => return Err(UnitError::NoUnit(shown())),
        "µs" | "μs" => US, // micro sign and Greek mu
        u => match UNITS.iter().find(|(name, _)| *name == u) {
            Some((_, scale)) => *scale,
            None => return Err(UnitError::UnknownUnit(shown(), clip(u))),
        },
    };
    let too_large = || UnitError::TooLarge(shown());
    let whole: u64 = parse_digits(whole).ok_or_else(too_large)?;
    // The largest unit, an hour, has 36 * 10^11 ns: no digit past the twelfth can be whole nanoseconds.
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 12 {
        return Err(UnitError::TooFine(shown()));
    }
    let numerator = u128::from(parse_digits(fraction).ok_or_else(too_large)?) * u128::from(scale);
    let denominator = 10u128.pow(fraction.len() as u32);
    if !numerator.is_multiple_of(denominator) {
        return Err(UnitError::TooFine(shown()));
    }
    let small = u64::try_from(numerator / denominator).map_err(|_| too_large())?;
    whole.checked_mul(scale).and_then(|w| w.checked_add(small)).ok_or_else(too_large)
}

/// Parses a percentage such as `5%` or `33.3%` to an exact fraction (`1/20`, `333/1000`).
///
/// # Errors
/// Says what is wrong with the text; see [`UnitError`].
pub fn parse_percent(text: &str) -> Result<Fraction, UnitError> {
    const WHAT: &str = "percentage";
    const LIKE: &str = "\"5%\"";
    let t = text.trim();
    let not = || UnitError::NotANumber(clip(t), WHAT, LIKE);
    if t.is_empty() {
        return Err(UnitError::Empty(WHAT, LIKE));
    }
    if t.starts_with('-') {
        return Err(UnitError::Negative(clip(t)));
    }
    let number = t.strip_suffix('%').ok_or_else(not)?.trim_end();
    let (whole, fraction) = decimal(number).ok_or_else(not)?;
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if whole.len() > 6 || fraction.len() > 9 {
        return Err(UnitError::TooLong(clip(t)));
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let parts = parse_digits(whole).zip(parse_digits(fraction)).ok_or_else(not)?;
    Ok(Ratio::new(parts.0 * scale + parts.1, 100 * scale))
}

/// The period of something that comes so often a second, to the nearest ns; `None`: less than once in an hour, or more
/// than a million times a second.
pub fn period_of(rate: f64) -> Option<u64> {
    (1.0 / 3600.0..=1e6).contains(&rate).then(|| (1e9 / rate).round() as u64)
}

/// Prints nanoseconds exactly, in the largest unit from seconds down that leaves at most three digits after the
/// point (`41.7ms`, `90s`, `1.5us`), else in nanoseconds. [`parse_duration`] reads it back to the same value.
pub fn format_duration(ns: u64) -> String {
    if ns == 0 {
        return "0s".into();
    }
    for (name, scale) in &UNITS[2..] {
        if ns >= *scale && (ns % scale).is_multiple_of((scale / 1000).max(1)) {
            let thousandths = if *scale == 1 { 0 } else { ns % scale / (scale / 1000) };
            let digits = format!("{thousandths:03}");
            let digits = digits.trim_end_matches('0');
            let point = if digits.is_empty() { "" } else { "." };
            return format!("{}{point}{digits}{name}", ns / scale);
        }
    }
    format!("{ns}ns")
}

/// Prints a fraction as a percentage: exactly where it is a decimal of at most nine digits (`60%`, `0.125%`),
/// else as a fraction of a percent (`100/9%`, which [`parse_percent`] does not read).
pub fn format_percent(fraction: Fraction) -> String {
    let numerator = u128::from(*fraction.numer()) * 100;
    let denominator = u128::from(*fraction.denom());
    for digits in 0..=9u32 {
        let scaled = numerator * 10u128.pow(digits);
        if scaled.is_multiple_of(denominator) {
            let value = scaled / denominator;
            let scale = 10u128.pow(digits);
            return match digits {
                0 => format!("{value}%"),
                _ => {
                    let width = digits as usize;
                    format!("{}.{:0width$}%", value / scale, value % scale)
                }
            };
        }
    }
    let percent = Ratio::new(numerator, denominator);
    format!("{}/{}%", percent.numer(), percent.denom())
}

/// Splits `12.5` into `("12", "5")`; digits must end it.
fn decimal(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let ends = text.ends_with(|c: char| c.is_ascii_digit());
    (ends && digits(whole) && digits(fraction)).then_some((whole, fraction))
}

fn parse_digits(digits: &str) -> Option<u64> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

/// Keeps error messages short and printable whatever the input was.
pub fn clip(text: &str) -> String {
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut out: String = text.chars().take(40).map(printable).collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_exact() {
        for (text, ns) in [
            ("41.7ms", 41_700_000),
            ("25us", 25_000),
            ("25µs", 25_000),
            ("1s", SEC),
            ("0ms", 0),
            ("0.1us", 100),
            (" 1.5 h ", HOUR + HOUR / 2),
            ("2min", 120 * SEC),
            (".5s", SEC / 2),
            ("7ns", 7),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn bad_durations_say_what_to_write() {
        for (text, part) in [
            ("", "write for example"),
            ("41.7", "has no unit"),
            ("5 fortnights", "unknown unit \"fortnights\""),
            ("ms", "write a decimal number and a unit"),
            ("1.2.3ms", "write a decimal number"),
            ("95.ms", "write a decimal number"),
            ("-5ms", "is negative"),
            ("0.5ns", "finer than a nanosecond"),
            ("0.0000000001s", "finer than a nanosecond"),
            ("99999999999999999999s", "too large"),
            ("18446744073710s", "too large"),
            ("9999999h", "too large"),
            ("inf", "write a decimal number"),
            ("1e3ms", "unknown unit"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn percentages_are_exact_rationals() {
        assert_eq!(parse_percent("5%"), Ok(Ratio::new(1, 20)));
        assert_eq!(parse_percent("33.3%"), Ok(Ratio::new(333, 1000)));
        assert_eq!(parse_percent("100%"), Ok(Ratio::new(1, 1)));
        assert_eq!(format_percent(Ratio::new(1, 8)), "12.5%");
        assert_eq!(format_percent(Ratio::new(1, 9)), "100/9%");
        for text in ["", "5", "%", "5.%", "-1%", "5%%", "1234567%", "0.1234567891%"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_durations_read_back_the_same(ns in any::<u64>()) {
            prop_assert_eq!(parse_duration(&format_duration(ns)), Ok(ns));
        }

        #[test]
        fn printed_percentages_read_back_the_same(a in 0u64..10_000, digits in 0u32..6) {
            let fraction = Ratio::new(a, 10u64.pow(digits));
            prop_assert_eq!(parse_percent(&format_percent(fraction)), Ok(fraction));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_percent(&text));
        }
    }
}
