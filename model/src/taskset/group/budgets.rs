// SPDX-License-Identifier: GPL-2.0-only
//! Budgets of groups: those of the file, and those that are a part of what the group around leaves.

use super::{Division, Entry, Group, Portion, cpus_of, within};
use crate::rank::Servers;
use crate::taskset::table::{At, Fault, Table, fault};
use crate::taskset::task::check_budget;
use crate::taskset::{TaskEntry, limits};
use crate::units::{clip, format_duration};

/// The budget of a group, 0 as long as it is not known, and where it comes from.
pub(super) fn portion(
    t: &Table<'_, '_>,
    name: &str,
    inside: bool,
) -> Result<(u64, Portion), Fault> {
    let name = clip(name);
    let budget = t.duration("budget", 1, limits::TIME)?;
    let weight = t.integer("weight", 1, limits::WEIGHT as i64)?;
    match (budget, weight) {
        (Some(_), Some(weight)) => {
            let reason = format!("the group \"{name}\" has a budget and a weight");
            let remedy = "leave one out: a weight is for a part of what others' budgets leave";
            fault(weight.at, reason, remedy)
        }
        (Some(budget), None) => Ok((budget.value, Portion::Budget)),
        (None, Some(weight)) if !inside => {
            let reason = format!("the group \"{name}\" has a weight, but is in no other group");
            let remedy =
                "give it budget and period, or name the group whose budget is divided: in = \"…\"";
            fault(weight.at, reason, remedy)
        }
        (None, Some(weight)) => Ok((0, Portion::Weight(weight.value as u64))),
        (None, None) if !inside => {
            let reason = format!("the group \"{name}\" has no budget and is in no other group");
            let remedy = "give it budget and period, or put it into another: in = \"…\"";
            fault(t.at, reason, remedy)
        }
        (None, None) => Ok((0, Portion::Orders)),
    }
}

/// A group that only orders names a rule.
pub(super) fn only_orders<T>(at: usize, name: &str) -> Result<T, Fault> {
    let reason = format!("the group \"{}\" has a rule, but no budget to enforce", clip(name));
    fault(at, reason, "add a weight or a budget, or leave rule out: then it only orders")
}

/// The group with period and deadline of the one around it, which is among `before`, where it has none itself.
pub(super) fn inherit(entry: &Entry<'_>, before: &[Group]) -> Result<Group, Fault> {
    let mut group = entry.group.clone();
    let around = group.parent.map(|parent| &before[parent]);
    let (period, deadline) = match (group.period, around) {
        (0, Some(around)) => (around.period, around.deadline),
        (period, _) => (period, period),
    };
    group.period = period;
    group.deadline = if group.deadline == 0 { deadline } else { group.deadline };
    if group.portion == Portion::Budget {
        let budget = At { at: entry.budget_at, value: group.budget };
        check_budget(&budget, period, group.deadline)?;
    }
    Ok(group)
}

/// Gives groups without a budget their parts, those around others first, and looks whether members ask for more than
/// their groups could give. `drawn`: best effort's servers in a group.
pub(in crate::taskset) fn divide(
    top: &Table<'_, '_>,
    groups: &mut [Group],
    (tasks, drawn): (&[TaskEntry], Option<(usize, Servers)>),
    cpus: u32,
) -> Result<(), Fault> {
    for i in 0..groups.len() {
        let Some(parent) = groups[i].parent else { continue };
        match groups[i].portion {
            Portion::Budget => {
                let asked = (groups[i].budget, groups[i].period);
                let limiting = limiting(groups, parent);
                check_load(at(top, &groups[i].name, "budget"), asked, groups, limiting, cpus)?;
            }
            Portion::Weight(_) | Portion::Orders => {
                groups[i].budget = part(top, groups, (i, parent), tasks, drawn)?;
            }
        }
    }
    let list = top.value("task").and_then(|list| list.get_ref().as_array());
    for (i, task) in tasks.iter().enumerate() {
        let (Some(group), Some(budget)) = (task.group, task.budget) else { continue };
        let at = list.and_then(|list| list.get(i)?.get_ref().get("budget"));
        let at = at.map_or(0, |budget| budget.span().start);
        check_load(at, (budget, task.period), groups, limiting(groups, group), cpus)?;
    }
    if let Some((group, servers)) = drawn {
        let at = top.value("best_effort").map_or(0, |table| table.span().start);
        let all = (servers.budget * u64::from(servers.count), servers.period);
        check_load(at, all, groups, limiting(groups, group), cpus)?;
    }
    Ok(())
}

/// The first of the group and those around it that limits what its members get.
fn limiting(groups: &[Group], group: usize) -> usize {
    within(groups, group).find(|g| groups[*g].portion != Portion::Orders).unwrap_or(group)
}

/// Where a key of the group of this name stands, or the group, if it has none.
fn at(top: &Table<'_, '_>, name: &str, key: &str) -> usize {
    let tables = top.value("group").and_then(|list| list.get_ref().as_array());
    let named = |t: &&toml::Spanned<toml::de::DeValue<'_>>| {
        t.get_ref().get("name").and_then(|n| n.get_ref().as_str()) == Some(name)
    };
    let Some(table) = tables.and_then(|tables| tables.iter().find(named)) else { return 0 };
    table.get_ref().get(key).map_or(table.span().start, |value| value.span().start)
}

/// What group `i` gets of the budget of `parent`: by weight of what the budgets of the other members leave.
fn part(
    top: &Table<'_, '_>,
    groups: &[Group],
    (i, parent): (usize, usize),
    tasks: &[TaskEntry],
    drawn: Option<(usize, Servers)>,
) -> Result<u64, Fault> {
    let (group, around) = (&groups[i], &groups[parent]);
    let inside = || groups.iter().filter(|group| group.parent == Some(parent));
    let own = inside().filter(|group| group.portion == Portion::Budget);
    let own = own.map(|group| (group.budget, group.period, 1));
    let of_tasks = tasks.iter().filter(|task| task.group == Some(parent));
    let of_tasks = of_tasks.map(|t| (t.budget.unwrap_or(0), t.period, u64::from(t.count)));
    let drawn = drawn.filter(|(group, _)| *group == parent);
    let drawn = drawn.map(|(_, s)| (s.budget, s.period, u64::from(s.count)));
    let weights = inside().filter_map(|group| group.portion.weight()).sum();
    let whole = (around.budget, around.period);
    let division = Division::new(whole, own.chain(of_tasks).chain(drawn), weights);
    let mine = division.part(group.portion.weight().unwrap_or(0), group.period);
    let show = format_duration;
    if mine == 0 {
        let reason = format!(
            "nothing is left for the group \"{}\": \"{}\", which it is in, has {} every {}, and the budgets there \
             ask for {} of that",
            group.name,
            around.name,
            show(around.budget),
            show(around.period),
            show(division.asked())
        );
        let remedy = format!("lower these budgets, or raise that of \"{}\"", around.name);
        return fault(at(top, &group.name, "weight"), reason, remedy);
    }
    if mine > group.deadline {
        let reason = format!(
            "the part of the group \"{}\" is {}, above its deadline {}",
            group.name,
            show(mine),
            show(group.deadline)
        );
        let remedy = format!("raise the deadline to {} or more, or leave it out", show(mine));
        return fault(at(top, &group.name, "deadline"), reason, remedy);
    }
    Ok(mine)
}

/// A member of budget Q every P is no more than all CPUs of its group could give it.
fn check_load(
    at: usize,
    (budget, period): (u64, u64),
    groups: &[Group],
    group: usize,
    cpus: u32,
) -> Result<(), Fault> {
    let of = &groups[group];
    let wide = u128::from(cpus_of(groups, group, cpus).count_ones());
    let offered = wide * u128::from(of.budget) * u128::from(period);
    if u128::from(budget) * u128::from(of.period) <= offered {
        return Ok(());
    }
    let most = (offered / u128::from(of.period)) as u64;
    let reason = format!(
        "{} every {} is more than its group \"{}\" has, {} every {}",
        format_duration(budget),
        format_duration(period),
        of.name,
        format_duration(of.budget),
        format_duration(of.period)
    );
    let lower = format!("lower it to {} or less, or ", format_duration(most));
    let lower = if most == 0 { "" } else { &lower };
    fault(at, reason, format!("{lower}raise the group's budget"))
}

#[cfg(test)]
mod tests;
