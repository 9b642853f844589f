// SPDX-License-Identifier: GPL-2.0-only
//! What the answers of the tests do not say.

use std::fmt::Write;

use onbeat_model::taskset::{Overheads, TaskEntry, TaskSet};
use onbeat_model::units::{Fraction, format_duration, format_percent};

/// How long jobs of a task may take, ns, and its budget, if they may take more than that.
pub fn beyond_budget(task: &TaskEntry) -> Option<(u64, u64)> {
    let longest = task.work.longest()? * u64::from(task.threads);
    task.budget.filter(|budget| longest > *budget).map(|budget| (longest, budget))
}

/// What the answers do not say; `tested`: those of tests are among them.
pub fn remarks(set: &TaskSet, tested: bool) -> String {
    let mut text = String::new();
    if tested
        && let Some(ranks) = set.policies.iter().find(|p| p.order().is_some_and(|o| o.key.ranks()))
    {
        let _ = writeln!(
            text,
            "\nThe tests know no classes: under {ranks}, where hard ones go before soft ones, none of their answers \
             holds.\nAsk with --admit {ranks}, which says what is admitted and how late soft ones can be."
        );
    }
    text += &ignored(set);
    let beyond: Vec<&str> =
        set.tasks.iter().filter(|t| t.deadline > t.period).map(|t| t.name.as_str()).collect();
    if !beyond.is_empty() {
        let _ = writeln!(
            text,
            "\nDue after the next release: {}. Onbeat's EDF serves such jobs as if due at the ends of their \
             periods, and the\nverdict counts them so; tests count them as they are, or so with --admit.",
            beyond.join(", ")
        );
    }
    for task in &set.tasks {
        if let Some((longest, budget)) = beyond_budget(task) {
            let _ = writeln!(
                text,
                "\nJobs of {} take up to {}, more than their budget of {}: the answers hold only \
                 for jobs within it.",
                task.name,
                format_duration(longest),
                format_duration(budget)
            );
        }
    }
    let Overheads { wake, tick, tick_phase, .. } = set.overheads;
    if wake > 0 {
        let _ = writeln!(
            text,
            "\nThat threads wake up to {0} late (`wake` under `[overheads]`) is not counted: add jitter = \"{0}\" to \
             each task.",
            format_duration(wake)
        );
    }
    if set.overheads != (Overheads { wake, tick, tick_phase, ..Overheads::default() }) {
        text += "\nThe costs of `[overheads]` are not counted, which `onbeat sim` charges: add to each task as \
                 `overhead` what a\n\
                 job of it may pay, a dispatch and a preemption for each that may come before it.\n";
    }
    if tested && *set.best_effort_share.numer() > 0 {
        let _ = writeln!(
            text,
            "\nThe tests count whole CPUs, but `onbeat sim`, `lab` and `run` keep {} of each for best-effort work,\n\
             which some policies let delay a job by {piece} more. Before you rely on an answer, divide budgets by\n\
             {} and shorten deadlines by {piece}, or set best_effort_share = \"0%\".",
            format_percent(set.best_effort_share),
            format_percent(Fraction::from_integer(1) - set.best_effort_share),
            piece = format_duration(onbeat_sim::SHARE_QUANTUM)
        );
    }
    text
}

/// What policies of the set that are not Onbeat's own make of groups, purses and sets of CPUs.
fn ignored(set: &TaskSet) -> String {
    crate::playable::ignored(set, &set.policies)
        .map_or(String::new(), |what| format!("\n{what}.\n"))
}
