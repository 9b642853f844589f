// SPDX-License-Identifier: GPL-2.0-only
//! Whether the purses of a set make those wait that take from them.

use std::fmt::Write;

use onbeat_analysis::groups::purses::{Judgement, purses};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::format_duration;
use serde_json::{Value, json};

use super::groups::{Under, short, under};

/// What is said of the purses, and under which of the set's policies.
pub struct Judged(Under<Judgement>);

impl Judged {
    /// Under Onbeat's own among the policies of `set`.
    pub fn of(set: &TaskSet) -> Self {
        Self(under(set, |played| purses(set, played)))
    }

    /// For people.
    pub fn table(&self, set: &TaskSet) -> String {
        let mut text = String::new();
        for (policies, said) in &self.0 {
            let under = policies.join(", ");
            let under = if under.is_empty() { under } else { format!(" under {under}") };
            let _ = writeln!(
                text,
                "\npurses{under}, provided that all have their budgets in time otherwise:"
            );
            let width = said.iter().map(|one| set.purses[one.purse].name.len()).max();
            let width = width.unwrap_or(0).max(5);
            let _ = write!(text, "{:<width$}", "purse");
            for head in ["period", "in it", "asked", "there", "least"] {
                let _ = write!(text, " {head:>10}");
            }
            let _ = writeln!(text, "  fits");
            for one in said {
                let _ = writeln!(text, "{:<width$}{}", set.purses[one.purse].name, row(set, one));
            }
        }
        text
    }

    /// For machines.
    pub fn object(&self, set: &TaskSet) -> Value {
        let one = |one: &Judgement| {
            let purse = &set.purses[one.purse];
            json!({
                "purse": purse.name,
                "in": purse.parent.map(|parent| &set.purses[parent].name),
                "period_ns": purse.period,
                "budget_ns": purse.segments.iter().map(|s| s.budget).sum::<u64>(),
                "asked": one.asked,
                "there": one.there,
                "fits": one.fits,
                "why": why(one),
                "least_budget_ns": one.least,
                "from_ns": one.short.map(|s| s.from),
                "until_ns": one.short.map(|s| s.until),
                "demand_ns": one.short.map(|s| short(s.taken)),
                "supply_ns": one.short.map(|s| short(s.there)),
            })
        };
        let under = |(policies, said): &(Vec<String>, Vec<Judgement>)| {
            let policies: Vec<&String> = policies.iter().filter(|name| !name.is_empty()).collect();
            json!({"policies": policies, "purses": said.iter().map(one).collect::<Value>()})
        };
        self.0.iter().map(under).collect()
    }
}

/// The cells of one purse but for its name.
fn row(set: &TaskSet, one: &Judgement) -> String {
    let purse = &set.purses[one.purse];
    let percent = |load: f64| format!("{:.2}%", 100.0 * load);
    let cells = [
        format_duration(purse.period),
        format_duration(purse.segments.iter().map(|s| s.budget).sum()),
        percent(one.asked),
        percent(one.there),
        one.least.map_or("-".into(), format_duration),
    ];
    let mut text = String::new();
    for cell in cells {
        let _ = write!(text, " {cell:>10}");
    }
    text += match one.fits {
        Some(true) => "  yes",
        Some(false) => "  no",
        None => "  ?",
    };
    if let Some(why) = why(one) {
        let _ = write!(text, ", {why}");
    }
    text
}

/// Why it does not fit or is not proven to, and what to change.
fn why(one: &Judgement) -> Option<String> {
    if one.fits == Some(true) {
        return None;
    }
    if let Some(why) = &one.why {
        return Some(why.clone());
    }
    let asks = match one.fits {
        Some(false) => "in the long run budgets ask for more than is in it".to_owned(),
        _ => {
            let part = one.short?;
            format!(
                "from {} until {} of a cycle {} may be taken, and {} is there",
                format_duration(part.from),
                format_duration(part.until),
                format_duration(short(part.taken)),
                format_duration(short(part.there))
            )
        }
    };
    let least = one.least.map(|least| {
        format!("; make it {} for all of each cycle, or lower budgets", format_duration(least))
    });
    Some(asks + &least.unwrap_or_default())
}
