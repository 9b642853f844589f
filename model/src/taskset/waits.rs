// SPDX-License-Identifier: GPL-2.0-only
//! What only analysis knows of a task: its fixed priority, and what delays a job beside the jobs that go before it. No
//! world plays these: simulator and lab release jobs on time, and nobody waits there but at `sections`.

use serde::{Deserialize, Serialize};

use super::limits;
use super::table::{Fault, Table, fault};

/// Keys of a task that `onbeat analyze` alone uses; times in ns, up to [`limits::TIME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits {
    /// Fixed priority, from 1, which goes first, to [`limits::PRIORITY`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Release jitter: by how much a job may be released after its arrival, from which its deadline counts.
    #[serde(default)]
    pub jitter: u64,
    /// Longest time for which less urgent jobs can keep a job waiting, as the protocol for its resources allows.
    #[serde(default)]
    pub blocking: u64,
    /// CPU time of each job that no budget counts: switches, interrupts.
    #[serde(default)]
    pub overhead: u64,
}

impl Waits {
    /// The keys that are there, in words; `None` if there are none.
    pub fn named(&self) -> Option<String> {
        let there = [
            ("priority", self.priority.is_some()),
            ("jitter", self.jitter > 0),
            ("blocking", self.blocking > 0),
            ("overhead", self.overhead > 0),
        ];
        let keys: Vec<&str> = there.into_iter().filter(|(_, is)| *is).map(|(key, _)| key).collect();
        (!keys.is_empty()).then(|| keys.join(", "))
    }
}

/// Reads them; `reserved`: the task has a budget.
pub(super) fn read(t: &Table<'_, '_>, reserved: bool) -> Result<Waits, Fault> {
    let time = |key| Ok(t.duration(key, 0, limits::TIME)?.map_or(0, |d| d.value));
    let priority = t.integer("priority", 1, i64::from(limits::PRIORITY))?;
    let waits = Waits {
        priority: priority.map(|p| p.value as u32),
        jitter: time("jitter")?,
        blocking: time("blocking")?,
        overhead: time("overhead")?,
    };
    let key =
        ["priority", "jitter", "blocking", "overhead"].into_iter().find(|k| t.value(k).is_some());
    match key.filter(|_| !reserved) {
        Some(key) => {
            let reason = format!("a task has {key}, but no budget, so analysis leaves it out");
            fault(t.at_key(key), reason, format!("add a budget, or leave {key} out"))
        }
        None => Ok(waits),
    }
}

/// Either all tasks with a budget have a priority or none.
pub(super) fn check(top: &Table<'_, '_>, tasks: &[super::TaskEntry]) -> Result<(), Fault> {
    let mut reserved = tasks.iter().enumerate().filter(|(_, task)| task.budget.is_some());
    if tasks.iter().all(|task| task.waits.priority.is_none()) {
        return Ok(());
    }
    let Some((index, task)) = reserved.find(|(_, task)| task.waits.priority.is_none()) else {
        return Ok(());
    };
    let list = top.value("task").and_then(|list| list.get_ref().as_array());
    let at = list.and_then(|list| list.get(index)).map_or(0, |t| t.span().start);
    let reason = format!("other tasks have a priority, and {} has none", task.name);
    fault(at, reason, "add priority = 1, say (1 goes first), or leave all priorities out")
}

#[cfg(test)]
mod tests {
    use super::super::samples::beside_a_task;
    use super::*;
    use crate::units::MS;

    #[test]
    fn what_analysis_alone_uses_is_read_and_needs_a_budget() {
        let of = |more: &str| beside_a_task(more).map(|set| set.tasks[0].waits);
        let all = "priority = 3\njitter = \"1ms\"\nblocking = \"2ms\"\noverhead = \"3ms\"\n";
        let waits = Waits { priority: Some(3), jitter: MS, blocking: 2 * MS, overhead: 3 * MS };
        assert_eq!(of(&format!("budget = \"5ms\"\n{all}")), Ok(waits));
        assert_eq!(waits.named().unwrap(), "priority, jitter, blocking, overhead");
        assert_eq!(Waits::default().named(), None);
        assert!(of("jitter = \"1ms\"\n").unwrap_err().contains("has jitter, but no budget"));
        assert!(of("budget = \"5ms\"\npriority = 0\n").unwrap_err().contains("between 1 and"));
        assert!(of("budget = \"5ms\"\noverhead = \"2h\"\n").unwrap_err().contains("at most"));
    }

    #[test]
    fn a_priority_of_some_tasks_only_is_refused() {
        let other = "budget = \"5ms\"\n[[task]]\nname = \"other\"\nperiod = \"9ms\"\nbudget = \"1ms\"\npriority = 1\n\
                     work = { constant = \"1ms\" }\n";
        let error = beside_a_task(other).unwrap_err();
        assert!(error.contains("has none") && error.contains("1 goes first"), "{error}");
    }
}
