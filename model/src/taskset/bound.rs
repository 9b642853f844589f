// SPDX-License-Identifier: GPL-2.0-only
//! `bound` of a task: by how much analysis says that it is late at most, to be shown beside what a run measures.

use serde::{Deserialize, Serialize};

use super::limits;
use super::table::{Fault, Table, fault};

/// Bounds on tardiness under EDF-HSB, ns (Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on
/// multiprocessors: are analysis-based schedulers really worth it?", 2011).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Equation 1: of any job within the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tardiness: Option<u64>,
    /// Equation 2: of the mean of all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
}

/// Reads the bound of a task; `reserved`: it has a budget.
pub(super) fn read(t: &Table<'_, '_>, reserved: bool) -> Result<Option<Bound>, Fault> {
    const LIKE: &str = "{ tardiness = \"189ms\", expected = \"274ms\" }";
    let Some(b) = t.table("bound", "bound", LIKE, &["tardiness", "expected"])? else {
        return Ok(None);
    };
    let time = |key| Ok(b.duration(key, 0, limits::TIME)?.map(|d| d.value));
    let bound = Bound { tardiness: time("tardiness")?, expected: time("expected")? };
    if bound.tardiness.is_none() && bound.expected.is_none() {
        return fault(b.at, "bound says nothing", format!("write bound = {LIKE}, or leave it out"));
    }
    if !reserved {
        let reason = "a task has a bound, but no budget, so nothing bounds how late it is";
        return fault(b.at, reason, "add a budget, or leave bound out");
    }
    Ok(Some(bound))
}

#[cfg(test)]
mod tests {
    use super::super::samples::beside_a_task;
    use super::*;
    use crate::units::MS;

    #[test]
    fn a_bound_is_read_and_one_that_means_nothing_is_refused() {
        let of = |more: &str| beside_a_task(more).map(|set| set.tasks[0].bound);
        let bound = Bound { tardiness: Some(7 * MS), expected: None };
        assert_eq!(of("budget = \"5ms\"\nbound = { tardiness = \"7ms\" }\n"), Ok(Some(bound)));
        for (more, word) in [
            ("budget = \"5ms\"\nbound = {}", "says nothing"),
            ("bound = { expected = \"7ms\" }", "no budget"),
            ("budget = \"5ms\"\nbound = { mean = \"7ms\" }", "unknown key \"mean\""),
        ] {
            assert!(of(more).unwrap_err().contains(word), "{more}");
        }
    }
}
