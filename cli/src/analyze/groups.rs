// SPDX-License-Identifier: GPL-2.0-only
//! Whether the budgets of a set's groups are enough for their members.

use std::fmt::Write;

use onbeat_analysis::groups::Instant;
use onbeat_analysis::groups::judge::{Judgement, groups};
use onbeat_model::policy::{Order, Policy, Server};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::format_duration;
use serde_json::{Value, json};

/// What is said of parts of a set, and under which policies.
pub type Under<T> = Vec<(Vec<String>, Vec<T>)>;

/// What `judge` says under Onbeat's own among the policies of `set`, alike ones in one; if there are none, under none.
pub fn under<T: PartialEq>(
    set: &TaskSet,
    judge: impl Fn(Option<(Order, Server)>) -> Vec<T>,
) -> Under<T> {
    let mut all: Under<T> = Vec::new();
    let own = set.policies.iter().filter_map(|policy| match policy {
        Policy::Core { order, server } => Some((policy.to_string(), Some((*order, *server)))),
        _ => None,
    });
    let mut own: Vec<_> = own.collect();
    if own.is_empty() {
        own.push((String::new(), None));
    }
    for (name, played) in own {
        let said = judge(played);
        match all.iter_mut().find(|(_, other)| *other == said) {
            _ if said.is_empty() => {}
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], said)),
        }
    }
    all
}

/// What is said of the groups, and under which of the set's policies.
pub struct Judged(Under<Judgement>);

impl Judged {
    /// Under Onbeat's own among the policies of `set`; if there are none groups have what they say themselves.
    pub fn of(set: &TaskSet) -> Self {
        Self(under(set, |played| groups(set, played)))
    }

    /// For people.
    pub fn table(&self, set: &TaskSet) -> String {
        let mut text = String::new();
        for (policies, said) in &self.0 {
            let under = policies.join(", ");
            let under = if under.is_empty() { under } else { format!(" under {under}") };
            let _ = writeln!(text, "\ngroups{under}, each provided that it gets its budget:");
            let names = said.iter().map(|one| {
                let depth = set.within(one.group).count() - 1;
                format!("{:depth$}{}", "", set.groups[one.group].name)
            });
            let names: Vec<String> = names.collect();
            let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
            let heads = ["order", "rule", "budget", "deadline", "period"];
            let _ = write!(text, "{:<width$}", "group");
            let heads = heads.iter().chain(&["least", "within", "asked", "there"]);
            for head in heads {
                let _ = write!(text, " {head:>10}");
            }
            let _ = writeln!(text, "  fits");
            for (name, one) in names.iter().zip(said) {
                let _ = writeln!(text, "{name:<width$}{}", row(set, one));
            }
        }
        text
    }

    /// For machines.
    pub fn object(&self, set: &TaskSet) -> Value {
        let one = |one: &Judgement| {
            let group = &set.groups[one.group];
            json!({
                "group": group.name,
                "in": group.parent.map(|parent| &set.groups[parent].name),
                "order": one.order.map(|order| order.name()),
                "rule": one.rule.map(|rule| rule.name()),
                "budget_ns": group.budget,
                "deadline_ns": group.deadline,
                "period_ns": group.period,
                "fits": one.fits,
                "why": one.why,
                "least_budget_ns": one.least,
                "interval_ns": one.binds.map(|binds| binds.at),
                "demand_ns": one.binds.map(|binds| short(binds.demand)),
                "supply_ns": one.binds.map(|binds| binds.supply),
                "member": one.member,
            })
        };
        let under = |(policies, said): &(Vec<String>, Vec<Judgement>)| {
            let policies: Vec<&String> = policies.iter().filter(|name| !name.is_empty()).collect();
            json!({"policies": policies, "groups": said.iter().map(one).collect::<Value>()})
        };
        self.0.iter().map(under).collect()
    }
}

/// As a number of JSON.
pub fn short(demand: u128) -> u64 {
    u64::try_from(demand).unwrap_or(u64::MAX)
}

/// The cells of one group but for its name.
fn row(set: &TaskSet, one: &Judgement) -> String {
    let group = &set.groups[one.group];
    let time = |ns: Option<u64>| ns.map_or("-".into(), format_duration);
    let binds = |what: fn(Instant) -> u64| time(one.binds.map(what));
    let cells = [
        one.order.map_or("-", |order| order.name()).to_string(),
        one.rule.map_or("-", |rule| rule.name()).to_string(),
        format_duration(group.budget),
        format_duration(group.deadline),
        format_duration(group.period),
        time(one.least),
        binds(|instant| instant.at),
        binds(|instant| short(instant.demand)),
        binds(|instant| instant.supply),
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
    if let Some(member) = &one.member {
        let word = if one.fits == Some(true) { "least to spare" } else { "late" };
        let _ = write!(text, ", {word}: {member}");
    }
    if let Some(why) = &one.why {
        let _ = write!(text, ": {why}");
    }
    text
}
