// SPDX-License-Identifier: GPL-2.0-only
//! How few jobs could be late: what a scheduler that knows the future can do at best.
//!
//! A mixed-integer program with fluid service between releases and deadlines, in stretches of time; docs/limit.md
//! writes it out. Two figures come out, and the truth lies between them: [`Limit::bound`], below which no scheduler
//! gets, and [`Limit::found`], which a clairvoyant schedule reaches.

mod crowds;
mod jobs;
mod program;
mod search;

use std::time::Duration;

use onbeat_model::taskset::TaskSet;
use thiserror::Error;

/// Of which machine and scheduler the limit is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// CPUs that are left to the tasks in the long run, above 0, at most the set's; see [`capacity`].
    pub capacity: f64,
    /// How much later than its share best-effort work may be served, ns for each CPU.
    pub lag: u64,
    /// Whether each task must get what its reservation owes it.
    pub guarantee: bool,
    /// How long to search.
    pub time_limit: Duration,
}

/// The limit of a task set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Jobs that count.
    pub jobs: u64,
    /// No scheduler has fewer late jobs.
    pub bound: u64,
    /// Late jobs of a schedule that was found, if one was in time.
    pub found: Option<u64>,
    /// Some part of the search was ended by the time limit: with more of it both may come nearer to each other.
    pub timed_out: bool,
}

/// Why there is no limit.
#[derive(Debug, Error)]
pub enum LimitError {
    /// Its work is only known when it has run.
    #[error(
        "task {0:?} decodes a movie or runs a program, whose work nobody knows beforehand; \
         give it a constant, a distribution or a recorded trace"
    )]
    RealProgram(String),
    /// Its jobs are more than work in a row.
    #[error(
        "task {0:?} has several threads, sections, aborts or a queue of frames, and the limit is known only without; \
         leave them out"
    )]
    Shared(String),
    /// Nothing has a deadline.
    #[error("no task releases a job, so none can be late; add a [[task]] with period and work")]
    NoJobs,
    /// The budgets are too large.
    #[error(
        "the reservations need {0:.2} CPUs and {1:.2} are left for them, so nobody can keep them all; \
         lower budgets, or ask with --no-guarantee"
    )]
    Overcommitted(f64, f64),
}

/// What the search is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Jobs done, of those that count, in the present pass.
    pub jobs: u64,
    /// How many there are.
    pub of: u64,
    /// The present pass: 0 looks for a schedule, the others prove bounds.
    pub pass: usize,
}

/// CPUs that are left to the tasks: all, less the shares that the best-effort processes can use, one CPU each. Tasks
/// without a reservation may use that share, too, so beside them nothing is taken off.
pub fn capacity(set: &TaskSet) -> f64 {
    let share = set.best_effort_share;
    let shared = set.tasks.iter().any(|task| task.budget.is_none());
    let users = if shared { 0.0 } else { f64::from(set.best_effort_count().min(set.cpus)) };
    f64::from(set.cpus) - users * *share.numer() as f64 / *share.denom() as f64
}

/// Computes the limit.
///
/// # Errors
/// [`LimitError`]. Running out of time is no error: bound and schedule are then further apart.
pub fn limit(
    set: &TaskSet,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Limit, LimitError> {
    search::search(set, options, progress)
}

#[cfg(test)]
mod tests;
