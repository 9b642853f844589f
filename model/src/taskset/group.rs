// SPDX-License-Identifier: GPL-2.0-only
//! `[[group]]` entries: reservations that serve reservations.

use std::iter::successors;

use serde::{Deserialize, Serialize};

mod budgets;
mod division;

pub(super) use budgets::divide;
use budgets::{inherit, only_orders, portion};
pub use division::Division;

use super::parse::{cpu_list, plain_name};
use super::table::{At, Fault, Table, fault};
use super::{CpuSet, Purse, TaskEntry, TaskSet, limits, purse, sets};
use crate::policy::{Key, Policy, Server};
use crate::units::clip;

const GROUP: [&str; 11] = [
    "name", "in", "order", "budget", "weight", "period", "deadline", "rule", "cpus", "purse", "set",
];

/// Where the budget of a group comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Portion {
    /// From the file.
    #[default]
    Budget,
    /// It is its part, by this weight, of what the group around it leaves ([`limits::WEIGHT`]).
    Weight(u64),
    /// The same with [`limits::WEIGHT_USUAL`], and nothing enforces it: the group has what the one around it has for
    /// it, and only orders its members.
    Orders,
}

impl Portion {
    fn is_budget(&self) -> bool {
        *self == Self::Budget
    }

    /// How much of what is divided it gets beside others; `None`: it has a budget of its own.
    pub fn weight(self) -> Option<u64> {
        match self {
            Self::Budget => None,
            Self::Weight(weight) => Some(weight),
            Self::Orders => Some(limits::WEIGHT_USUAL),
        }
    }
}

/// A reservation that serves those of its members: tasks, and groups that are part of it. Times in ns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name; no other group and no task has it.
    pub name: String,
    /// Index in [`TaskSet::groups`] of the group that it is part of, which comes before it; `None` = of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// In what order its members are served; `None` = that of the policy that is played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Key>,
    /// What all members together get per period, at least 1; at most period and deadline.
    pub budget: u64,
    /// Where that comes from.
    #[serde(default, skip_serializing_if = "Portion::is_budget")]
    pub portion: Portion,
    /// Its period.
    pub period: u64,
    /// Its relative deadline.
    pub deadline: u64,
    /// What enforces its budget; `None` = the server of the policy that is played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Server>,
    /// CPUs its members may use, ascending; `None` = those of the group it is part of, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
    /// Index of the purse it takes from, too, in [`TaskSet::purses`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purse: Option<usize>,
    /// Index of the set that is to serve it in [`TaskSet::sets`]; `None` = as [`TaskSet::part_of_group`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<usize>,
}

impl TaskSet {
    /// The group and those it is part of, from the innermost to the outermost.
    pub fn within(&self, group: usize) -> impl Iterator<Item = usize> {
        within(&self.groups, group)
    }

    /// CPUs that members of the group may use, a bit for each.
    pub fn group_cpus(&self, group: usize) -> u64 {
        cpus_of(&self.groups, group, self.cpus)
    }
}

fn within(groups: &[Group], group: usize) -> impl Iterator<Item = usize> {
    successors(Some(group), |group| groups[*group].parent)
}

/// CPUs that members of `group` may use, a bit for each.
pub(super) fn cpus_of(groups: &[Group], group: usize, cpus: u32) -> u64 {
    let list = within(groups, group).find_map(|group| groups[group].cpus.as_ref());
    list.map_or(u64::MAX >> (u64::BITS - cpus), |list| list.iter().fold(0, |mask, c| mask | 1 << c))
}

/// A group as it stands in the file.
struct Entry<'a> {
    at: usize,
    group: Group,
    inside: Option<At<&'a str>>,
    budget_at: usize,
    cpus_at: usize,
}

/// All groups of the file, sound but for their members.
pub(super) fn read(
    top: &Table<'_, '_>,
    cpus: u32,
    purses: &[Purse],
    sets: &[CpuSet],
) -> Result<Vec<Group>, Fault> {
    let tables = top.tables("group", "[[group]]", &GROUP)?;
    if tables.len() > limits::GROUPS {
        let reason = format!("the file has {} groups", tables.len());
        return fault(top.at_key("group"), reason, format!("keep to {}", limits::GROUPS));
    }
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for t in tables {
        let t = t?;
        let entry = entry(&t, cpus, purses, sets)?;
        if entries.iter().any(|other| other.group.name == entry.group.name) {
            let at = t.at_key("name");
            let reason = format!("two groups are called \"{}\"", entry.group.name);
            return fault(at, reason, "give each [[group]] its own name");
        }
        entries.push(entry);
    }
    let entries = sorted(entries)?;
    let mut groups: Vec<Group> = Vec::with_capacity(entries.len());
    for entry in &entries {
        let group = inherit(entry, &groups)?;
        let cpus_at = (entry.cpus_at, "cpus", group.cpus.as_deref());
        group.parent.map_or(Ok(()), |parent| check_cpus(cpus_at, &groups, parent, cpus))?;
        groups.push(group);
    }
    Ok(groups)
}

fn entry<'a>(
    t: &Table<'a, '_>,
    cpus: u32,
    purses: &[Purse],
    sets: &[CpuSet],
) -> Result<Entry<'a>, Fault> {
    let name = t.required("name", "\"video\"", t.string("name")?)?;
    let inside = t.string("in")?;
    let (budget, portion) = portion(t, name.value, inside.is_some())?;
    let period = t.duration("period", limits::PERIOD_MIN, limits::TIME)?;
    let period = match inside {
        None => Some(t.required("period", "\"20ms\"", period)?),
        Some(_) => period,
    };
    let deadline = t.duration("deadline", 1, limits::TIME)?;
    let rule = part(t, "rule")?;
    if portion == Portion::Orders && rule.is_some() {
        return only_orders(t.at_key("rule"), name.value);
    }
    Ok(Entry {
        at: t.at,
        inside,
        budget_at: t.at_key("budget"),
        cpus_at: t.at_key("cpus"),
        group: Group {
            name: plain_name(&name, "name")?,
            parent: None,
            order: part(t, "order")?,
            budget,
            portion,
            // 0 as long as it is that of the group around it.
            period: period.map_or(0, |period| period.value),
            deadline: deadline.map_or(0, |deadline| deadline.value),
            // One that goes on with later deadlines, and so stands where its bandwidth has it and never rests.
            rule: if portion == Portion::Orders { Some(Server::Cbs) } else { rule },
            cpus: cpu_list(t, "cpus", cpus)?,
            purse: purse::of(t, purses)?,
            set: sets::of(t, sets)?,
        },
    })
}

/// An order or a rule by its name.
fn part<T: std::str::FromStr>(t: &Table<'_, '_>, key: &str) -> Result<Option<T>, Fault>
where
    T::Err: std::fmt::Display,
{
    let Some(text) = t.string(key)? else { return Ok(None) };
    text.value.parse().map(Some).or_else(|e: T::Err| {
        let all = e.to_string();
        let (reason, remedy) = all.split_once("; ").unwrap_or((&all, "see docs/task-set.md"));
        fault(text.at, reason, remedy)
    })
}

/// With parents found, and in the order of depth.
fn sorted(mut entries: Vec<Entry<'_>>) -> Result<Vec<Entry<'_>>, Fault> {
    let mut parents = Vec::with_capacity(entries.len());
    for entry in &entries {
        let Some(inside) = &entry.inside else {
            parents.push(None);
            continue;
        };
        let parent = entries.iter().position(|other| other.group.name == inside.value);
        if parent.is_none() {
            let names = entries.iter().map(|other| other.group.name.as_str());
            return unknown(inside, names);
        }
        parents.push(parent);
    }
    // No group is deeper than there are groups, unless it is in itself.
    let depth = |i: usize| successors(Some(i), |i| parents[*i]).take(entries.len() + 1).count();
    let depths: Vec<usize> = (0..entries.len()).map(depth).collect();
    for (entry, depth) in entries.iter().zip(&depths) {
        let at = entry.inside.as_ref().map_or(entry.at, |inside| inside.at);
        let name = &entry.group.name;
        if *depth > entries.len() {
            let reason = format!("the group \"{name}\" is in itself, or in one that is");
            return fault(at, reason, "leave out \"in\" at the outermost group");
        }
        if *depth > limits::GROUP_DEPTH {
            let reason = format!("the group \"{name}\" is {depth} groups deep");
            return fault(at, reason, format!("nest at most {} groups", limits::GROUP_DEPTH));
        }
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|i| depths[*i]);
    let mut place = vec![0; entries.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    for (entry, parent) in entries.iter_mut().zip(&parents) {
        entry.group.parent = parent.map(|parent| place[parent]);
    }
    let mut entries: Vec<Option<Entry<'_>>> = entries.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|old| entries[old].take()).collect())
}

/// The group of this name, by its index.
pub(super) fn named(asked: &At<&str>, groups: &[Group]) -> Result<usize, Fault> {
    let found = groups.iter().position(|group| group.name == asked.value);
    found.map_or_else(|| unknown(asked, groups.iter().map(|group| group.name.as_str())), Ok)
}

fn unknown<'a, T>(
    asked: &At<&str>,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<T, Fault> {
    let remedy = match super::nearest(asked.value, names.clone()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if names.clone().next().is_none() => "add a [[group]] of that name".into(),
        None => format!("the groups here are {}", names.collect::<Vec<_>>().join(", ")),
    };
    fault(asked.at, format!("there is no group \"{}\"", clip(asked.value)), remedy)
}

/// The CPUs of a member are among those of its group.
fn check_cpus(
    (at, key, list): (usize, &str, Option<&[u32]>),
    groups: &[Group],
    group: usize,
    cpus: u32,
) -> Result<(), Fault> {
    let mask = cpus_of(groups, group, cpus);
    let Some(cpu) = list.into_iter().flatten().find(|cpu| mask >> **cpu & 1 == 0) else {
        return Ok(());
    };
    let reason =
        format!("{key} names CPU {cpu}, which is none of the group's, {}", groups[group].name);
    let few: Vec<String> =
        (0..cpus).filter(|c| mask >> c & 1 == 1).map(|c| c.to_string()).collect();
    fault(at, reason, format!("use CPUs of {}", few.join(", ")))
}

/// The group a task is part of.
pub(super) fn of_task(
    t: &Table<'_, '_>,
    task: &TaskEntry,
    groups: &[Group],
    cpus: u32,
) -> Result<Option<usize>, Fault> {
    let Some(asked) = t.string("group")? else { return Ok(None) };
    let group = named(&asked, groups)?;
    if task.budget.is_none() {
        let reason = format!("the task \"{}\" is in a group, but has no budget", task.name);
        return fault(asked.at, reason, "add budget = \"5ms\", or leave group out");
    }
    let affinity = (t.at_key("affinity"), "affinity", task.affinity.as_deref());
    check_cpus(affinity, groups, group, cpus)?;
    Ok(Some(group))
}

/// No group is empty, and the policies that are played know groups.
pub(super) fn check(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    if set.groups.is_empty() {
        return Ok(());
    }
    let tables = top.value("group").and_then(|list| list.get_ref().as_array());
    for table in tables.into_iter().flat_map(|tables| tables.iter()) {
        let name = table.get_ref().get("name").and_then(|name| name.get_ref().as_str());
        let among = |group| set.within(group).any(|g| Some(set.groups[g].name.as_str()) == name);
        let servers = set.servers_of_group().map(|(group, _)| group);
        if !set.tasks.iter().filter_map(|task| task.group).chain(servers).any(among) {
            let reason =
                format!("the group \"{}\" has no task in it or below", name.unwrap_or_default());
            let remedy = "put a [[task]] or best effort's servers into it, or leave it out";
            return fault(table.span().start, reason, remedy);
        }
    }
    let list = top.value("policies").and_then(|list| list.get_ref().as_array());
    for (i, policy) in set.policies.iter().enumerate() {
        let at = list.and_then(|list| list.get(i)).map_or(0, |item| item.span().start);
        let Policy::Core { order, server } = policy else { continue };
        if order.splits() {
            let reason = format!("{policy} splits reservations, and groups cannot be split");
            return fault(at, reason, "play another policy, say \"p-edf+cbs-hard\"");
        }
        if !server.enforces() {
            let reason = format!("{policy} enforces no budgets, which groups need");
            return fault(at, reason, format!("add a server to it, say \"{policy}+cbs-hard\""));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
