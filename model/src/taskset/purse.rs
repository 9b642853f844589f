// SPDX-License-Identifier: GPL-2.0-only
//! `[[purse]]` entries: budgets that reservations share wherever they stand.

use serde::{Deserialize, Serialize};

use super::parse::plain_name;
use super::table::{self, At, Fault, Table, fault};
use super::{TaskSet, limits};
use crate::policy::Policy;
use crate::units::{clip, format_duration};

const PURSE: [&str; 5] = ["name", "in", "period", "budget", "segments"];
const SEGMENT: [&str; 3] = ["budget", "from", "until"];

/// CPU time that reservations share, whatever group they are in; who finds it empty sleeps. Times in ns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purse {
    /// Its name; no other purse has it.
    pub name: String,
    /// Index in [`TaskSet::purses`] of the purse that it is part of, which comes before it; `None` = of none. What is
    /// taken counts in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Of its cycles, the first of which begins with the run.
    pub period: u64,
    /// What is in it, 1 to 4 amounts; what expires first is spent first.
    pub segments: Vec<Segment>,
}

/// An amount of CPU time, available from one instant of a cycle until another. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The amount, at least 1.
    pub budget: u64,
    /// Since when in each cycle.
    pub from: u64,
    /// Until when; later than `from`, at most the period.
    pub until: u64,
}

/// All purses of the file, sound but for who uses them.
pub(super) fn read(top: &Table<'_, '_>) -> Result<Vec<Purse>, Fault> {
    let tables = top.tables("purse", "[[purse]]", &PURSE)?;
    if tables.len() > limits::PURSES {
        let reason = format!("the file has {} purses", tables.len());
        return fault(top.at_key("purse"), reason, format!("keep to {}", limits::PURSES));
    }
    let mut purses: Vec<Purse> = Vec::new();
    for t in tables {
        let t = t?;
        let purse = purse(&t, &purses)?;
        purses.push(purse);
    }
    Ok(purses)
}

fn purse(t: &Table<'_, '_>, before: &[Purse]) -> Result<Purse, Fault> {
    let name = t.required("name", "\"disk\"", t.string("name")?)?;
    if before.iter().any(|other| other.name == name.value) {
        let reason = format!("two purses are called \"{}\"", clip(name.value));
        return fault(name.at, reason, "give each [[purse]] its own name");
    }
    let period = t.duration("period", limits::PERIOD_MIN, limits::TIME)?;
    let period = t.required("period", "\"100ms\"", period)?.value;
    let budget = t.duration("budget", 1, limits::TIME)?;
    let segments = match (budget, t.array("segments", "[{ budget = \"10ms\" }]")?) {
        (Some(budget), None) => vec![Segment { budget: budget.value, from: 0, until: period }],
        (None, Some(list)) => segments(&list, period)?,
        (Some(budget), Some(_)) => {
            let reason = "a purse has budget and segments";
            return fault(
                budget.at,
                reason,
                "leave one out: budget is one segment of a whole period",
            );
        }
        (None, None) => {
            let reason = format!("the purse \"{}\" has nothing in it", clip(name.value));
            return fault(t.at, reason, "add budget = \"10ms\", or segments");
        }
    };
    let parent = t.string("in")?.map(|asked| find(&asked, before)).transpose()?;
    Ok(Purse { name: plain_name(&name, "name")?, parent, period, segments })
}

fn segments(list: &At<&toml::de::DeArray<'_>>, period: u64) -> Result<Vec<Segment>, Fault> {
    if list.value.is_empty() || list.value.len() > limits::SEGMENTS {
        let reason = format!("a purse has {} segments", list.value.len());
        return fault(list.at, reason, format!("give it 1 to {}", limits::SEGMENTS));
    }
    let mut segments = Vec::new();
    for item in list.value.iter() {
        let like = "[{ budget = \"10ms\", until = \"20ms\" }]";
        let t = table::of(item, "a segment", like, &SEGMENT)?;
        let budget = t.duration("budget", 1, limits::TIME)?;
        let budget = t.required("budget", "\"10ms\"", budget)?.value;
        let from = t.duration("from", 0, limits::TIME)?.map_or(0, |from| from.value);
        let until = t.duration("until", 1, limits::TIME)?;
        let (at, until) = until.map_or((t.at, period), |until| (until.at, until.value));
        if until > period || until <= from {
            let show = format_duration;
            let reason = format!("a segment lasts from {} until {}", show(from), show(until));
            let remedy =
                format!("end it later than it begins, and by the period, {}", show(period));
            return fault(at, reason, remedy);
        }
        segments.push(Segment { budget, from, until });
    }
    Ok(segments)
}

/// The purse of this name among those that come `before`.
fn find(asked: &At<&str>, before: &[Purse]) -> Result<usize, Fault> {
    if let Some(index) = before.iter().position(|purse| purse.name == asked.value) {
        return Ok(index);
    }
    let names = before.iter().map(|purse| purse.name.as_str());
    let remedy = match super::nearest(asked.value, names) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "add a [[purse]] of that name above the line that names it".into(),
    };
    fault(asked.at, format!("there is no purse \"{}\" so far", clip(asked.value)), remedy)
}

/// The purse that a task or a group takes from.
pub(super) fn of(t: &Table<'_, '_>, purses: &[Purse]) -> Result<Option<usize>, Fault> {
    t.string("purse")?.map(|asked| find(&asked, purses)).transpose()
}

/// Each purse is somebody's, each task that has one has a reservation, and the policies that are played know purses.
pub(super) fn check(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let tables = |key: &str| top.value(key).and_then(|list| list.get_ref().as_array());
    let at = |key: &str, i: usize| {
        tables(key).and_then(|list| list.get(i)).map_or(0, |t| t.span().start)
    };
    if let Some(i) = set.tasks.iter().position(|task| task.purse.is_some() && task.budget.is_none())
    {
        let reason = format!("the task \"{}\" has a purse, but no budget", set.tasks[i].name);
        return fault(at("task", i), reason, "add budget = \"5ms\", or leave purse out");
    }
    let mut used = vec![false; set.purses.len()];
    let users = set.tasks.iter().map(|t| t.purse).chain(set.groups.iter().map(|g| g.purse));
    for purse in users.flatten() {
        used[purse] = true;
    }
    // Those that are part of others come after these.
    for i in (0..used.len()).rev() {
        if let (true, Some(parent)) = (used[i], set.purses[i].parent) {
            used[parent] = true;
        }
    }
    if let Some(i) = used.iter().position(|used| !used) {
        let reason = format!("nobody takes from the purse \"{}\"", set.purses[i].name);
        let remedy =
            format!("add purse = \"{}\" to a task or group, or leave it out", set.purses[i].name);
        return fault(at("purse", i), reason, remedy);
    }
    let splits =
        set.policies.iter().find(|p| matches!(p, Policy::Core { order, .. } if order.splits()));
    match splits.filter(|_| !set.purses.is_empty()) {
        Some(policy) => {
            let reason = format!("{policy} splits reservations, and those have no purses");
            let at = top.value("policies").map_or(0, |v| v.span().start);
            fault(at, reason, "play another policy, say \"p-edf+cbs\"")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::taskset::TaskSet;

    const TASK: &str = "[[task]]\nname = \"t\"\nperiod = \"20ms\"\nbudget = \"5ms\"\nwork = { constant = \"5ms\" }\n";

    fn parse(purses: &str, of_task: &str) -> Result<TaskSet, String> {
        let text = format!("cpus = 1\nduration = \"1s\"\n{purses}{TASK}{of_task}");
        TaskSet::from_bytes(text.as_bytes(), Path::new("x.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_purse_of_two_segments_inside_another_is_read_and_written_back() {
        let purses = "[[purse]]\nname = \"all\"\nperiod = \"1s\"\nbudget = \"100ms\"\n[[purse]]\nname = \"some\"\n\
                      in = \"all\"\nperiod = \"100ms\"\n\
                      segments = [{ budget = \"5ms\", until = \"20ms\" }, { budget = \"7ms\", from = \"10ms\" }]\n";
        let set = parse(purses, "purse = \"some\"\n").unwrap();
        let (early, late) = (
            Segment { budget: 5_000_000, from: 0, until: 20_000_000 },
            Segment { budget: 7_000_000, from: 10_000_000, until: 100_000_000 },
        );
        assert_eq!(set.purses[1].segments, [early, late]);
        assert_eq!((set.purses[1].parent, set.tasks[0].purse), (Some(0), Some(1)));
        assert_eq!(
            TaskSet::from_bytes(set.to_toml().as_bytes(), Path::new("x.toml")).unwrap(),
            set
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_line_and_remedy() {
        let purse = |rest: &str| format!("[[purse]]\nname = \"p\"\nperiod = \"1s\"\n{rest}\n");
        let uses = "purse = \"p\"\n";
        let five = format!("segments = [{}]", "{ budget = \"1ms\" }, ".repeat(5));
        for (purses, of_task, says) in [
            (purse("budget = \"1ms\""), "", "nobody takes from the purse \"p\""),
            (purse(""), uses, "has nothing in it"),
            (
                purse("budget = \"1ms\"\nsegments = [{ budget = \"1ms\" }]"),
                uses,
                "budget and segments",
            ),
            (purse("budget = \"0ms\""), uses, "zero"),
            (purse("segments = []"), uses, "0 segments"),
            (purse(&five), uses, "5 segments"),
            (
                purse("segments = [{ budget = \"1ms\", from = \"5ms\", until = \"5ms\" }]"),
                uses,
                "from 5ms until 5ms",
            ),
            (purse("segments = [{ budget = \"1ms\", until = \"2s\" }]"), uses, "by the period, 1s"),
            (purse("budget = \"1ms\"\nin = \"p\""), uses, "no purse \"p\" so far"),
            (purse("budget = \"1ms\"\nin = \"q\""), uses, "no purse \"q\" so far"),
            (purse("budget = \"1ms\"").repeat(2), uses, "two purses"),
            (
                purse("budget = \"1ms\"").replace("\"p\"", "\"pp\""),
                "purse = \"ppp\"\n",
                "did you mean \"pp\"",
            ),
            (format!("policies = [\"edf-wm+cbs\"]\n{}", purse("budget = \"1ms\"")), uses, "splits"),
        ] {
            let error = parse(&purses, of_task).unwrap_err();
            assert!(error.contains(says) && error.contains("x.toml:"), "{purses}: {error}");
        }
    }
}
