// SPDX-License-Identifier: GPL-2.0-only
//! The `[[task]]` tables of a file.

use std::path::Path;

use num_rational::Ratio;

use super::parse::{cpu_list, plain_name};
use super::table::{At, Fault, Table, fault};
use super::{
    CpuSet, Group, Purse, TaskEntry, bound, frames, group, limits, purse, rank, sections, sets,
    waits, work,
};
use crate::units::format_duration;

const TASK: [&str; 27] = [
    "name",
    "count",
    "period",
    "fps",
    "deadline",
    "budget",
    "offset",
    "stagger",
    "affinity",
    "marks",
    "user",
    "value",
    "class",
    "group",
    "purse",
    "set",
    "threads",
    "sections",
    "abort",
    "bound",
    "priority",
    "jitter",
    "blocking",
    "overhead",
    "frames_from",
    "queue",
    "work",
];

/// All of them, and the names of what they lock.
pub(super) fn read(
    folder: &Path,
    top: &Table<'_, '_>,
    cpus: u32,
    duration: u64,
    (groups, purses, sets): (&[Group], &[Purse], &[CpuSet]),
) -> Result<(Vec<TaskEntry>, Vec<String>), Fault> {
    let mut tasks: Vec<TaskEntry> = Vec::new();
    let mut resources = Vec::new();
    let mut total = groups.len() as u64;
    for t in top.tables("task", "[[task]]", &TASK)? {
        let t = t?;
        let mut task = task(folder, &t, cpus, duration)?;
        task.group = group::of_task(&t, &task, groups, cpus)?;
        task.purse = purse::of(&t, purses)?;
        task.sections = sections::read(&t, &task, &mut resources)?;
        task.set = sets::of(&t, sets)?;
        if tasks.iter().any(|other| other.name == task.name) {
            let at = t.at_key("name");
            let reason = format!("two tasks are called \"{}\"", task.name);
            return fault(at, reason, "give each [[task]] its own name, or use count");
        }
        if let Some(group) = groups.iter().find(|group| task.may_be_called(&group.name)) {
            let at = t.at_key("name");
            let reason = format!("a task and a group are called \"{}\"", group.name);
            return fault(at, reason, "give each its own name");
        }
        if let Some(name) = tasks.iter().find_map(|other| clash(other, &task)) {
            let at = t.at_key("name");
            let reason = format!("two tasks would be called \"{name}\", one of them by its count");
            return fault(at, reason, "rename one of them");
        }
        total += u64::from(task.count) * u64::from(task.threads);
        if total > limits::TASKS {
            let at = t.value("threads").or(t.value("count")).map_or(t.at, |v| v.span().start);
            let what = if groups.is_empty() { "tasks" } else { "tasks and groups" };
            let what = what.replace("tasks", if task.threads > 1 { "threads" } else { "tasks" });
            let reason = format!("the file asks for {total} {what} or more");
            return fault(at, reason, format!("keep to {} in all", limits::TASKS));
        }
        tasks.push(task);
    }
    frames::read(top, &TASK, &mut tasks, &mut resources)?;
    waits::check(top, &tasks)?;
    Ok((tasks, resources))
}

/// The name that copies of both would have.
fn clash(a: &TaskEntry, b: &TaskEntry) -> Option<String> {
    let copy_of = |many: &TaskEntry, one: &TaskEntry| {
        (one.count == 1 && many.has_copy(&one.name)).then(|| one.name.clone())
    };
    copy_of(a, b).or_else(|| copy_of(b, a))
}

impl TaskEntry {
    /// Whether one of several copies is called so.
    fn has_copy(&self, name: &str) -> bool {
        let number = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
        let copy = number.and_then(|n| n.parse::<u32>().ok().filter(|copy| copy.to_string() == n));
        self.count > 1 && copy.is_some_and(|copy| copy < self.count)
    }

    /// Whether the entry or a copy is called so.
    fn may_be_called(&self, name: &str) -> bool {
        self.name == name || self.has_copy(name)
    }
}

fn task(folder: &Path, t: &Table<'_, '_>, cpus: u32, duration: u64) -> Result<TaskEntry, Fault> {
    let name = t.required("name", "\"movie\"", t.string("name")?)?;
    let name = plain_name(&name, "name")?;
    let count = t.integer("count", 1, limits::TASKS as i64)?.map_or(1, |c| c.value as u32);
    let period = period(t)?;
    let deadline = t.duration("deadline", 1, limits::TIME)?.map_or(period, |d| d.value);
    let budget = budget(t, period)?;
    if let Some(b) = &budget {
        check_budget(b, period, deadline)?;
    }
    let offset = t.duration("offset", 0, limits::TIME)?;
    let stagger = t.duration("stagger", 0, limits::TIME)?.map_or(0, |s| s.value);
    let (offset_at, offset) = offset.map_or((t.at, 0), |o| (o.at, o.value));
    // Both are at most an hour and there are at most 1000 copies: no overflow.
    let last = offset + stagger * u64::from(count - 1);
    if last >= duration {
        let reason = format!(
            "the last copy is first released at {}, after the end at {}",
            format_duration(last),
            format_duration(duration)
        );
        return fault(offset_at, reason, "lower offset or stagger, or lengthen duration");
    }
    let value = t.integer("value", 1, limits::VALUE as i64)?;
    if let (Some(value), None) = (&value, &budget) {
        let reason = "a task has a value, but no budget, so nobody chooses it";
        return fault(value.at, reason, "add a budget, or leave value out");
    }
    let work = work::work(folder, t)?;
    let marks = t.boolean("marks")?.unwrap_or(false);
    let threads = sections::threads(t, budget.is_some(), marks, &work)?;
    let budget_given = budget.is_some();
    Ok(TaskEntry {
        name,
        count,
        period,
        deadline,
        budget: budget.map(|b| b.value),
        offset,
        stagger,
        affinity: cpu_list(t, "affinity", cpus)?,
        marks,
        user: t.string("user")?.map(|u| plain_name(&u, "user")).transpose()?,
        value: value.map(|v| v.value as u64),
        class: rank::of_task(t, budget_given)?,
        group: None,
        purse: None,
        threads,
        sections: Vec::new(),
        abort: sections::abort(t, &work)?,
        frames: None,
        set: None,
        bound: bound::read(t, budget_given)?,
        waits: waits::read(t, budget_given)?,
        work,
    })
}

/// Time between releases: `period`, or of `fps` so many a second, to the nearest ns.
fn period(t: &Table<'_, '_>) -> Result<u64, Fault> {
    let period = t.duration("period", limits::PERIOD_MIN, limits::TIME)?;
    let (period, rate) = match (period, t.rate("fps")?) {
        (Some(_), Some(rate)) => {
            return fault(rate.at, "a task has both period and fps", "leave one of them out");
        }
        given => given,
    };
    t.required("period", "\"41ms\"", period.or(rate)).map(|period| period.value)
}

/// CPU time per period: a time, or per cent of the period, to the nearest ns.
fn budget(t: &Table<'_, '_>, period: u64) -> Result<Option<At<u64>>, Fault> {
    let text = t.value("budget").and_then(|value| value.get_ref().as_str());
    if !text.is_some_and(|text| text.trim_end().ends_with('%')) {
        return t.duration("budget", 1, limits::TIME);
    }
    let part = t.percent("budget")?;
    if let Some(none) = part.as_ref().filter(|part| *part.value.numer() == 0) {
        return fault(none.at, "budget is zero", "choose more than 0%");
    }
    Ok(part.map(|At { at, value }| {
        let ns =
            Ratio::new(u128::from(*value.numer()) * u128::from(period), u128::from(*value.denom()));
        At { at, value: ns.round().to_integer().clamp(1, u128::from(u64::MAX)) as u64 }
    }))
}

/// It is at most period and deadline.
pub(super) fn check_budget(budget: &At<u64>, period: u64, deadline: u64) -> Result<(), Fault> {
    for (word, limit) in [("period", period), ("deadline", deadline)] {
        if budget.value > limit {
            let (q, l) = (format_duration(budget.value), format_duration(limit));
            let reason = format!("the budget {q} is above the {word} {l}");
            return fault(budget.at, reason, format!("lower it to {l} or less"));
        }
    }
    Ok(())
}
