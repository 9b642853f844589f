// SPDX-License-Identifier: GPL-2.0-only
//! The jobs of a task set as the limit sees them: when they come, what they need, what their reservation owes.

use onbeat_model::taskset::{GRACE, TaskCopy, TaskSet};
use onbeat_model::workgen::execution_times;

use super::LimitError;

/// One job. Work is counted from the task's first job on, since jobs of a task are served in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    /// Release, ns.
    pub release: u64,
    /// Deadline, ns.
    pub deadline: u64,
    /// Work of this job and all before, ns: it is complete once its task has had that much.
    pub through: u64,
    /// Work of this job, ns.
    pub work: u64,
    /// Service that the task's reservation alone would have given it by the job's deadline, ns.
    pub owed: u64,
    /// Whether its lateness counts.
    pub counted: bool,
}

/// The jobs of one task in order of release.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Budget, ns; 0 without a reservation.
    pub budget: u64,
    /// The time in which the budget is given, ns: the shorter of period and relative deadline.
    pub window: u64,
    /// What the reservation alone would have given by the end of each job's period, ns.
    pub given: Vec<u64>,
}

impl Stream {
    fn new(set: &TaskSet, copy: &TaskCopy<'_>) -> Option<Self> {
        let spec = copy.spec;
        let times = execution_times(set, copy)?;
        let budget = spec.budget.unwrap_or(0);
        let (mut through, mut had) = (0, 0);
        let mut given = Vec::with_capacity(times.len());
        let mut jobs = Vec::with_capacity(times.len());
        for (j, work) in times.into_iter().enumerate() {
            through += work;
            had += budget.min(through - had);
            given.push(had);
            let release = copy.release(j as u64);
            let deadline = release + spec.deadline;
            let counted = deadline <= set.duration + GRACE;
            jobs.push(Job { release, deadline, through, work, owed: 0, counted });
        }
        // A deadline beyond the period leaves the reservation several periods for the job.
        let periods = (spec.deadline / spec.period).max(1);
        for (j, job) in jobs.iter_mut().enumerate() {
            let at = usize::try_from(periods - 1).map_or(usize::MAX, |more| j.saturating_add(more));
            let beyond = (at as u64).saturating_sub(given.len() as u64 - 1);
            let by_then = given[at.min(given.len() - 1)];
            job.owed = by_then.saturating_add(beyond.saturating_mul(budget)).min(job.through);
        }
        Some(Self { jobs, budget, window: spec.period.min(spec.deadline), given })
    }

    /// Work of all jobs before job `j`, ns.
    pub fn before(&self, j: usize) -> u64 {
        self.jobs.get(j).map_or_else(|| self.total(), |job| job.through - job.work)
    }

    /// Work of all jobs, ns.
    pub fn total(&self) -> u64 {
        self.jobs.last().map_or(0, |job| job.through)
    }

    /// What the reservation would have given until `time` (ns) if it gave its budget evenly, ns.
    pub fn evenly(&self, time: u64) -> f64 {
        let begun = self.jobs.partition_point(|job| job.release < time);
        let Some(j) = begun.checked_sub(1) else { return 0.0 };
        let before = if j == 0 { 0 } else { self.given[j - 1] };
        let part = (time - self.jobs[j].release) as f64 / self.window as f64;
        before as f64 + (self.given[j] - before) as f64 * part.min(1.0)
    }
}

/// All tasks of the set that release jobs.
///
/// # Errors
/// The work of a task is not known beforehand, or there is none.
pub(super) fn streams(set: &TaskSet) -> Result<Vec<Stream>, LimitError> {
    let mut all = Vec::new();
    for copy in set.copies() {
        if copy.spec.threads > 1
            || !copy.spec.sections.is_empty()
            || copy.spec.abort
            || copy.spec.frames.is_some()
        {
            return Err(LimitError::Shared(copy.name()));
        }
        let program = || LimitError::RealProgram(copy.name());
        let stream = Stream::new(set, &copy).ok_or_else(program)?;
        if !stream.jobs.is_empty() {
            all.push(stream);
        }
    }
    if all.is_empty() { Err(LimitError::NoJobs) } else { Ok(all) }
}
