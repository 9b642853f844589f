// SPDX-License-Identifier: GPL-2.0-only
//! `sections` of a task: what a job locks, from which point of its execution on, and for how long; `threads` and
//! `abort`.

use serde::{Deserialize, Serialize};

use super::parse::plain_name;
use super::table::{self, At, Fault, Table, fault};
use super::{TaskEntry, Work, limits};
use crate::units::{clip, format_duration};

/// A resource is held while a thread executes this part of its job. Times in ns of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Index in [`super::TaskSet::resources`].
    pub resource: usize,
    /// So much the thread has executed of its job when it asks for the resource.
    pub from: u64,
    /// So much it executes then until it releases it, at least 1.
    pub length: u64,
}

/// What a thread does at a point of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Execution of the job at which it does it, ns.
    pub at: u64,
    /// Index of the resource.
    pub resource: usize,
    /// It asks for it; else it releases it.
    pub lock: bool,
}

impl Section {
    /// Where it ends, ns of execution.
    pub fn until(&self) -> u64 {
        self.from + self.length
    }

    /// What a thread with these properly nested sections, outer ones first, does one after the other. At the same point
    /// it releases before it asks, inner resources before outer ones.
    pub fn steps(sections: &[Section]) -> Vec<Step> {
        let mut steps = Vec::with_capacity(2 * sections.len());
        let mut open: Vec<&Section> = Vec::new();
        let release = |s: &Section| Step { at: s.until(), resource: s.resource, lock: false };
        for section in sections {
            while let Some(last) = open.pop_if(|last| last.until() <= section.from) {
                steps.push(release(last));
            }
            steps.push(Step { at: section.from, resource: section.resource, lock: true });
            open.push(section);
        }
        steps.extend(open.into_iter().rev().map(release));
        steps
    }
}

/// The sections of a task, properly nested, outer ones first. Names that `resources` lacks are added to it.
pub(super) fn read(
    t: &Table<'_, '_>,
    task: &TaskEntry,
    resources: &mut Vec<String>,
) -> Result<Vec<Section>, Fault> {
    const LIKE: &str = "[{ resource = \"bus\", from = \"1ms\", length = \"2ms\" }]";
    let Some(list) = t.array("sections", LIKE)? else { return Ok(Vec::new()) };
    if list.value.len() > limits::SECTIONS {
        let reason = format!("a task has {} sections", list.value.len());
        return fault(list.at, reason, format!("keep to {}", limits::SECTIONS));
    }
    let Some(longest) = task.work.longest() else {
        let reason = "a task has sections, but only its program knows how far it is";
        return fault(list.at, reason, "leave them out, or give it a constant or a distribution");
    };
    let mut sections: Vec<At<Section>> = Vec::new();
    for item in list.value.iter() {
        let s = table::of(item, "a section", LIKE, &["resource", "from", "length"])?;
        sections.push(At { at: s.at, value: section(&s, longest, resources)? });
    }
    // Stable: of two that are alike the first in the file is the outer one.
    sections.sort_by_key(|s| (s.value.from, u64::MAX - s.value.length));
    nested(&sections, resources)?;
    Ok(sections.into_iter().map(|s| s.value).collect())
}

fn section(s: &Table<'_, '_>, longest: u64, resources: &mut Vec<String>) -> Result<Section, Fault> {
    let name = plain_name(&s.required("resource", "\"bus\"", s.string("resource")?)?, "resource")?;
    let from = s.duration("from", 0, limits::TIME)?.map_or(0, |from| from.value);
    let length = s.duration("length", 1, limits::TIME)?;
    let length = s.required("length", "\"2ms\"", length)?;
    if from + length.value > longest {
        let (end, longest) = (format_duration(from + length.value), format_duration(longest));
        let reason =
            format!("a section ends at {end} of execution, and no job is longer than {longest}");
        return fault(length.at, reason, "shorten it, or lengthen the work");
    }
    let resource = resources.iter().position(|known| *known == name).unwrap_or_else(|| {
        resources.push(name);
        resources.len() - 1
    });
    Ok(Section { resource, from, length: length.value })
}

/// Each lies within those that are open where it begins, and none of these holds its resource already.
fn nested(sections: &[At<Section>], resources: &[String]) -> Result<(), Fault> {
    let mut open: Vec<&Section> = Vec::new();
    for At { at, value: section } in sections {
        while open.pop_if(|last| last.until() <= section.from).is_some() {}
        let name = |s: &Section| &resources[s.resource];
        if let Some(outer) = open.last().filter(|outer| outer.until() < section.until()) {
            let reason = format!(
                "the section of \"{}\" begins within that of \"{}\" and ends after it",
                name(section),
                name(outer)
            );
            return fault(*at, reason, "let the inner section end first, or begin later");
        }
        if open.iter().any(|outer| outer.resource == section.resource) {
            let reason = format!("a job asks for \"{}\", which it holds already", name(section));
            return fault(*at, reason, "remove the inner section");
        }
        open.push(section);
    }
    Ok(())
}

/// How many threads a task has. Several need what joins them: a reservation, whose job ends when all of them sleep.
pub(super) fn threads(
    t: &Table<'_, '_>,
    reserved: bool,
    marks: bool,
    work: &Work,
) -> Result<u32, Fault> {
    let Some(threads) = t.integer("threads", 1, limits::THREADS as i64)? else { return Ok(1) };
    let why = match (threads.value, reserved, marks) {
        (1, ..) => None,
        (_, false, _) => Some(("no budget that they could share", "add a budget, or use count")),
        (_, _, true) => Some((
            "marks, and who of them marks the end of a job is not told",
            "leave marks out: the job ends when the last thread sleeps",
        )),
        _ if !work.is_replayable() => Some((
            "work that makes its threads itself",
            "leave threads out, or give it a constant, a distribution or a trace",
        )),
        _ => None,
    };
    match why {
        Some((what, remedy)) => {
            fault(threads.at, format!("a task of several threads has {what}"), remedy)
        }
        None => Ok(threads.value as u32),
    }
}

/// Whether jobs are given up at their deadlines.
pub(super) fn abort(t: &Table<'_, '_>, work: &Work) -> Result<bool, Fault> {
    let Some(abort) = t.string("abort")? else { return Ok(false) };
    if abort.value != "at-deadline" {
        let reason = format!("jobs cannot be aborted \"{}\"", clip(abort.value));
        return fault(abort.at, reason, "write abort = \"at-deadline\", or leave it out");
    }
    if !work.is_replayable() {
        let reason = "a task aborts jobs whose length only the program knows";
        return fault(abort.at, reason, "leave abort out, or give it a constant or a distribution");
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::TaskSet;
    use super::super::samples::beside_a_task;
    use super::*;

    fn parse(sections: &str) -> Result<TaskSet, String> {
        beside_a_task(&format!("sections = [{sections}]"))
    }

    fn one(resource: &str, from: u64, length: u64) -> String {
        format!("{{ resource = \"{resource}\", from = \"{from}ms\", length = \"{length}ms\" }}")
    }

    #[test]
    fn steps_release_inner_before_outer_and_release_before_they_ask() {
        // In the file in no order: b within a, c within a up to its end, and d right after a.
        let all = [one("d", 4, 1), one("c", 2, 2), one("a", 0, 4), one("b", 0, 2)].join(", ");
        let set = parse(&all).unwrap();
        let name = |s: &Step| (s.at / 1_000_000, s.lock, set.resources[s.resource].as_str());
        let steps = Section::steps(&set.tasks[0].sections);
        let steps: Vec<_> = steps.iter().map(name).collect();
        let wanted = [
            (0, true, "a"),
            (0, true, "b"),
            (2, false, "b"),
            (2, true, "c"),
            (4, false, "c"),
            (4, false, "a"),
            (4, true, "d"),
            (5, false, "d"),
        ];
        assert_eq!(steps, wanted);
    }

    #[test]
    fn sections_that_cross_that_hold_twice_and_that_no_job_comes_to_the_end_of_are_refused() {
        let cases = [
            ([one("a", 0, 2), one("b", 1, 2)], "begins within that of \"a\""),
            ([one("a", 0, 3), one("a", 1, 1)], "holds already"),
            ([one("a", 0, 1), one("b", 3, 3)], "no job is longer than 5ms"),
        ];
        for (sections, reason) in cases {
            let error = parse(&sections.join(", ")).unwrap_err();
            assert!(error.starts_with("x.toml:7: ") && error.contains(reason), "{error}");
        }
        assert!(parse("{ resource = \"a\" }").unwrap_err().contains("add length"));
        assert!(parse("3").unwrap_err().contains("must be a table"));
    }
}
