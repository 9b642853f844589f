// SPDX-License-Identifier: GPL-2.0-only
//! A TOML table that knows where it stands: every read names the key, its line, what is wrong and what to write.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::units::{self, Fraction, UnitError, clip, format_duration};

/// What is wrong at a byte of the file, and what to do.
pub(super) struct Fault {
    pub at: usize,
    pub reason: String,
    pub remedy: String,
}

/// A fault as result, in one expression.
pub(super) fn fault<T>(
    at: usize,
    reason: impl Into<String>,
    remedy: impl Into<String>,
) -> Result<T, Fault> {
    Err(Fault { at, reason: reason.into(), remedy: remedy.into() })
}

/// A table with the byte where it begins and a name for messages (`[[task]]`, `work`, …).
pub(super) struct Table<'a, 'i> {
    entries: &'a DeTable<'i>,
    pub at: usize,
    pub what: &'static str,
}

/// A value and the byte where it stands.
pub(super) struct At<T> {
    pub at: usize,
    pub value: T,
}

type Value<'i> = Spanned<DeValue<'i>>;

impl<'a, 'i> Table<'a, 'i> {
    /// The table, after checking that every key in it is a known one.
    pub fn new(
        entries: &'a DeTable<'i>,
        at: usize,
        what: &'static str,
        known: &[&'static str],
    ) -> Result<Self, Fault> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let remedy = match super::nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("the keys here are {}", known.join(", ")),
                };
                let reason = format!("unknown key \"{}\" in {what}", clip(name));
                return fault(key.span().start, reason, remedy);
            }
        }
        Ok(Self { entries, at, what })
    }

    pub fn value(&self, key: &str) -> Option<&'a Value<'i>> {
        self.entries.get(key)
    }

    /// Where a key's value stands, or the table, if it has none.
    pub fn at_key(&self, key: &str) -> usize {
        self.value(key).map_or(self.at, |value| value.span().start)
    }

    /// The tables of a list, each of which begins with `what`, `[[task]]`, say; none if the key is not there.
    pub fn tables(
        &self,
        key: &'static str,
        what: &'static str,
        known: &'a [&'static str],
    ) -> Result<impl ExactSizeIterator<Item = Result<Table<'a, 'i>, Fault>> + use<'a, 'i>, Fault>
    {
        let list = match self.value(key) {
            None => &[][..],
            Some(list) => match list.get_ref().as_array() {
                Some(list) => &list[..],
                None => {
                    let reason = format!("{key} must be a list of tables");
                    return fault(
                        list.span().start,
                        reason,
                        format!("write {what} with two brackets"),
                    );
                }
            },
        };
        Ok(list.iter().map(move |item| match item.get_ref().as_table() {
            Some(t) => Table::new(t, item.span().start, what, known),
            None => wrong_type(item, key, "a table", &format!("{what} on a line of its own")),
        }))
    }

    /// A value that must be there; `like` shows how to write it.
    pub fn required<T>(&self, key: &str, like: &str, got: Option<At<T>>) -> Result<At<T>, Fault> {
        match got {
            Some(value) => Ok(value),
            None => {
                let reason = format!("{} has no \"{key}\"", self.what);
                fault(self.at, reason, format!("add {key} = {like}"))
            }
        }
    }

    pub fn string(&self, key: &str) -> Result<Option<At<&'a str>>, Fault> {
        self.value(key).map(|v| string(v, key)).transpose()
    }

    pub fn boolean(&self, key: &str) -> Result<Option<bool>, Fault> {
        let Some(v) = self.value(key) else { return Ok(None) };
        match v.get_ref().as_bool() {
            Some(b) => Ok(Some(b)),
            None => wrong_type(v, key, "true or false", "true"),
        }
    }

    /// An integer within limits.
    pub fn integer(&self, key: &str, min: i64, max: i64) -> Result<Option<At<i64>>, Fault> {
        self.value(key).map(|v| integer(v, key, min, max)).transpose()
    }

    /// A duration in ns within limits.
    pub fn duration(&self, key: &str, min: u64, max: u64) -> Result<Option<At<u64>>, Fault> {
        self.value(key).map(|v| duration(v, key, min, max)).transpose()
    }

    /// How often a second something comes, as the time between, ns.
    pub fn rate(&self, key: &str) -> Result<Option<At<u64>>, Fault> {
        let Some(v) = self.value(key) else { return Ok(None) };
        let number = match (v.get_ref().as_integer(), v.get_ref().as_float()) {
            (Some(whole), _) => whole.as_str(),
            (None, Some(number)) => number.as_str(),
            (None, None) => return wrong_type(v, key, "a number", "24"),
        };
        let at = v.span().start;
        match number.parse().ok().and_then(units::period_of) {
            Some(value) => Ok(Some(At { at, value })),
            None => fault(
                at,
                format!("{key} = {} is outside 0.001 to 1000000", clip(number)),
                format!("choose {key} between them, such as 24 or 59.94"),
            ),
        }
    }

    pub fn percent(&self, key: &str) -> Result<Option<At<Fraction>>, Fault> {
        let Some(v) = self.value(key) else { return Ok(None) };
        if !v.get_ref().is_str() {
            return wrong_type(v, key, "a percentage in quotes", "\"5%\"");
        }
        let text = string(v, key)?;
        match units::parse_percent(text.value) {
            Ok(value) => Ok(Some(At { at: text.at, value })),
            Err(e) => unit_fault(text.at, key, &e),
        }
    }

    pub fn array(&self, key: &str, like: &str) -> Result<Option<At<&'a DeArray<'i>>>, Fault> {
        let Some(v) = self.value(key) else { return Ok(None) };
        match v.get_ref().as_array() {
            Some(value) => Ok(Some(At { at: v.span().start, value })),
            None => wrong_type(v, key, "a list", like),
        }
    }

    /// A table inside this one.
    pub fn table(
        &self,
        key: &str,
        what: &'static str,
        like: &str,
        known: &[&'static str],
    ) -> Result<Option<Table<'a, 'i>>, Fault> {
        let Some(v) = self.value(key) else { return Ok(None) };
        match v.get_ref().as_table() {
            Some(t) => Table::new(t, v.span().start, what, known).map(Some),
            None => wrong_type(v, key, "a table", like),
        }
    }
}

/// An item of a list as table; `like` shows how to write the list.
pub(super) fn of<'a, 'i>(
    item: &'a Value<'i>,
    what: &'static str,
    like: &str,
    known: &[&'static str],
) -> Result<Table<'a, 'i>, Fault> {
    match item.get_ref().as_table() {
        Some(t) => Table::new(t, item.span().start, what, known),
        None => wrong_type(item, what, "a table", &like[1..like.len() - 1]),
    }
}

pub(super) fn string<'a>(v: &'a Value<'_>, key: &str) -> Result<At<&'a str>, Fault> {
    match v.get_ref().as_str() {
        Some(value) => Ok(At { at: v.span().start, value }),
        None => wrong_type(v, key, "a text in quotes", "\"…\""),
    }
}

pub(super) fn integer(v: &Value<'_>, key: &str, min: i64, max: i64) -> Result<At<i64>, Fault> {
    let at = v.span().start;
    let Some(i) = v.get_ref().as_integer() else {
        return wrong_type(v, key, "a whole number", &min.max(1).to_string());
    };
    match i64::from_str_radix(i.as_str(), i.radix()) {
        Ok(value) if (min..=max).contains(&value) => Ok(At { at, value }),
        _ => fault(
            at,
            format!("{key} = {} is outside {min} to {max}", clip(i.as_str())),
            format!("choose {key} between {min} and {max}"),
        ),
    }
}

pub(super) fn duration(v: &Value<'_>, key: &str, min: u64, max: u64) -> Result<At<u64>, Fault> {
    if let Some(number) = v.get_ref().as_integer() {
        let number = clip(number.as_str());
        let reason = format!("{key} = {number} has no unit");
        return fault(v.span().start, reason, format!("write {key} = \"{number}ms\", say"));
    }
    if !v.get_ref().is_str() {
        return wrong_type(v, key, "a duration in quotes", "\"41.7ms\"");
    }
    let text = string(v, key)?;
    let value = match units::parse_duration(text.value) {
        Ok(value) => value,
        // Zero, which the message would allow, is not enough.
        Err(UnitError::Negative(shown)) if min > 0 => {
            let low = format_duration(min);
            return fault(
                text.at,
                format!("{key}: \"{shown}\" is negative"),
                format!("choose at least {low}"),
            );
        }
        Err(e) => return unit_fault(text.at, key, &e),
    };
    let (low, high) = (format_duration(min), format_duration(max));
    let shown = clip(text.value);
    if value == 0 && min > 0 {
        return fault(text.at, format!("{key} is zero"), format!("choose at least {low}"));
    }
    if value < min {
        let reason = format!("{key} = {shown} is below the smallest allowed, {low}");
        return fault(text.at, reason, format!("choose at least {low}"));
    }
    if value > max {
        let reason = format!("{key} = {shown} is above the largest allowed, {high}");
        return fault(text.at, reason, format!("choose at most {high}"));
    }
    Ok(At { at: text.at, value })
}

pub(super) fn wrong_type<T>(
    v: &Value<'_>,
    key: &str,
    wanted: &str,
    like: &str,
) -> Result<T, Fault> {
    let got = v.get_ref().type_str();
    let reason = format!("{key} must be {wanted}, not a TOML {got}");
    fault(v.span().start, reason, format!("write {key} = {like}"))
}

/// Unit errors carry their remedy after a semicolon.
fn unit_fault<T>(at: usize, key: &str, error: &units::UnitError) -> Result<T, Fault> {
    let text = error.to_string();
    let (reason, remedy) = text.split_once("; ").unwrap_or((&text, "see docs/task-set.md"));
    fault(at, format!("{key}: {reason}"), remedy)
}
