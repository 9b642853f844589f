// SPDX-License-Identifier: GPL-2.0-only
//! What jobs share and the tests know nothing of: resources, and a reservation for several threads. No answer is better
//! than one that promises too much.

use std::fmt;

use anyhow::{Result, bail};
use onbeat_analysis::registry::Test;
use onbeat_model::taskset::TaskSet;

/// No job ever waits for a resource or a frame: no two threads use the same.
///
/// # Errors
/// Some do. Without a protocol a job waits for others as long as anybody delays these, so that no test knows a bound.
pub fn no_waiting(set: &TaskSet) -> Result<()> {
    if let Some(task) = set.tasks.iter().find(|task| task.frames.is_some()) {
        bail!(
            "jobs of {} wait for frames, and the tests know no bound on that: they would promise too much; leave \
             frames_from and queue out, or try `onbeat sim`",
            task.name
        );
    }
    for (resource, name) in set.resources.iter().enumerate() {
        let uses = |task: &&onbeat_model::taskset::TaskEntry| {
            task.sections.iter().any(|s| s.resource == resource)
        };
        let users: Vec<_> = set.tasks.iter().filter(uses).collect();
        let threads: u32 = users.iter().map(|task| task.count * task.threads).sum();
        if threads > 1 {
            let names: Vec<&str> = users.iter().map(|task| task.name.as_str()).collect();
            bail!(
                "jobs of {} wait for each other at the resource \"{name}\", and the tests know no bound on that: they \
                 would promise too much; leave the sections out, or try `onbeat sim`",
                names.join(", ")
            );
        }
    }
    Ok(())
}

/// Tests that do not hold for a set. Displays as a sentence.
#[derive(Debug)]
pub struct Dropped {
    /// Their names.
    pub tests: Vec<&'static str>,
    /// Why.
    pub why: String,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Not asked: {}: {}.", self.tests.join(", "), self.why)
    }
}

/// Those of the tests that hold for this set, and the others, if there are any: where a reservation serves several
/// threads only those hold under which it is served on one CPU, so that they run one after the other.
///
/// # Errors
/// None does, or one that was `asked` for does not.
pub fn one_after_the_other(
    set: &TaskSet,
    tests: Vec<&'static Test>,
    asked: bool,
) -> Result<(Vec<&'static Test>, Option<Dropped>)> {
    let Some(task) = set.tasks.iter().find(|task| task.threads > 1) else {
        return Ok((tests, None));
    };
    let holds = |test: &Test| set.cpus == 1 || test.name.starts_with("p-");
    let why = format!(
        "the threads of {} may run on several CPUs at a time, and only the tests of partitioned policies (p-…) hold \
         then",
        task.name
    );
    if let Some(test) = tests.iter().find(|test| asked && !holds(test)) {
        bail!("{}: {why}; leave --test {0} out", test.name);
    }
    let (kept, dropped): (Vec<&Test>, Vec<&Test>) = tests.into_iter().partition(|test| holds(test));
    if kept.is_empty() {
        bail!("{why}; try `onbeat sim`");
    }
    let tests: Vec<&str> = dropped.iter().map(|test| test.name).collect();
    Ok((kept, (!tests.is_empty()).then_some(Dropped { tests, why })))
}
