// SPDX-License-Identifier: GPL-2.0-only
//! The figures of a run and of its tasks. docs/events.md defines each.

use serde::{Deserialize, Serialize};

use super::{Causes, LateJob, SecondFps};
use crate::run::Class;

/// Figures of a whole run. Tasks of class best-effort enter only `best_effort_*` and `tasks`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Counted jobs.
    pub jobs: u64,
    /// Released jobs, counted or not.
    pub released: u64,
    /// Counted jobs that finished after their deadline or not at all.
    pub misses: u64,
    /// Of those, how many neither finished nor were given up.
    pub unfinished: u64,
    /// Of `misses`, how many were given up at their deadlines; they have no response time and no tardiness.
    pub aborted: u64,
    /// `misses / jobs`; 0 without jobs.
    pub miss_ratio: f64,
    /// Counted jobs that the reservation owed: given exactly its budget in each period, the task would have finished
    /// them by their deadlines.
    pub owed: u64,
    /// Of those, how many finished after their deadline or not at all: broken promises.
    pub owed_late: u64,
    /// Of those, how many were given up.
    pub owed_aborted: u64,
    /// Greatest tardiness of an owed job, ms.
    pub owed_tardiness_max_ms: f64,
    /// Why counted jobs were late: how many of `misses` have which cause. Empty if nothing tells.
    #[serde(skip_serializing_if = "Causes::is_empty")]
    pub late_causes: Causes,
    /// Least number of completions of any one task in any one-second window; `None` if no task lasts a second.
    pub worst_fps: Option<u32>,
    /// Mean over all tasks and whole seconds of the completions in that second; `None` if there is no whole second.
    /// This and every other mean over the tasks is `None` if their periods differ: it would be a figure of none of
    /// them.
    pub mean_fps: Option<f64>,
    /// Population standard deviation over the same samples.
    pub fps_sd: Option<f64>,
    /// Mean tardiness of counted jobs, punctual ones included, ms.
    pub tardiness_mean_ms: Option<f64>,
    /// 99th percentile (nearest rank) of the same, ms.
    pub tardiness_p99_ms: f64,
    /// Maximum of the same, ms.
    pub tardiness_max_ms: f64,
    /// Mean response time of counted jobs, ms.
    pub response_mean_ms: Option<f64>,
    /// 99th percentile (nearest rank) of the response time, ms.
    pub response_p99_ms: f64,
    /// Maximum response time, ms.
    pub response_max_ms: f64,
    /// Mean over the tasks of their mean relative jitter, ms: difference of response times of successive jobs.
    pub jitter_mean_ms: Option<f64>,
    /// Greatest relative jitter, ms.
    pub jitter_max_ms: f64,
    /// CPU time of best-effort tasks over the length of the run.
    pub best_effort_cpus: f64,
    /// The least of the same over the whole seconds of the run; `None` if nobody counted them.
    pub best_effort_least_cpus: Option<f64>,
    /// CPU time of all other tasks over the length of the run.
    pub reserved_cpus: f64,
    /// CPU time of a job that finished, on average, µs: what it does, and what the kernel does in its name.
    pub cpu_per_job_us: Option<f64>,
    /// Preemptions per counted job.
    pub preemptions: f64,
    /// Migrations per counted job.
    pub migrations: f64,
    /// Times a budget was used up.
    pub exhaustions: u64,
    /// Times a budget was replenished.
    pub replenishments: u64,
    /// Times a hard reservation had to wait.
    pub throttles: u64,
    /// Number of donations (FCBS).
    pub donations: u64,
    /// Times a thread waited for a resource that another held.
    pub blocks: u64,
    /// For how long in all, ms.
    pub blocked_ms: f64,
    /// And at most, ms.
    pub blocked_max_ms: f64,
    /// Times a best-effort load woke and ran.
    pub wakes: u64,
    /// Mean time from waking to running of all best-effort loads, ms.
    pub wake_mean_ms: f64,
    /// 99th percentile (nearest rank) of the same, ms.
    pub wake_p99_ms: f64,
    /// Maximum of the same, ms.
    pub wake_max_ms: f64,
    /// Budget donated in all, ms.
    pub donated_ms: f64,
    /// Bonus given in all, ms.
    pub bonus_ms: f64,
    /// Time the best-effort share held a CPU, ms.
    pub share_ms: f64,
    /// Events that were lost; figures are lower bounds if this is not 0.
    pub lost_events: u64,
    /// Events that contradict the others (a completion without release, a job released twice) and were not used.
    pub anomalies: u64,
    /// Length of the run, s.
    pub seconds: f64,
    /// Second by second: least, mean and deviation of frames over the tasks; empty if their periods differ.
    pub fps_per_second: Vec<SecondFps>,
}

/// Figures of one task; the words as in [`Metrics`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each field is documented in `Metrics`
pub struct TaskMetrics {
    pub name: String,
    /// Index of its entry in the task-set file; tasks of one entry are alike.
    #[serde(default)]
    pub entry: u32,
    pub class: Class,
    pub period_ms: f64,
    pub budget_ms: f64,
    pub jobs: u64,
    pub released: u64,
    pub misses: u64,
    pub unfinished: u64,
    #[serde(default)]
    pub aborted: u64,
    pub miss_ratio: f64,
    #[serde(default)]
    pub owed: u64,
    #[serde(default)]
    pub owed_late: u64,
    #[serde(default)]
    pub owed_aborted: u64,
    #[serde(default)]
    pub owed_tardiness_max_ms: f64,
    #[serde(default, skip_serializing_if = "Causes::is_empty")]
    pub late_causes: Causes,
    /// The first late jobs, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_jobs: Vec<LateJob>,
    pub worst_fps: Option<u32>,
    pub mean_fps: Option<f64>,
    pub fps_sd: Option<f64>,
    pub tardiness_mean_ms: f64,
    pub tardiness_p99_ms: f64,
    pub tardiness_max_ms: f64,
    /// Its bounds in the task-set file: [`crate::taskset::Bound`], ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_tardiness_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_expected_ms: Option<f64>,
    pub response_mean_ms: f64,
    pub response_p99_ms: f64,
    pub response_max_ms: f64,
    pub jitter_mean_ms: f64,
    pub jitter_max_ms: f64,
    /// CPU time, ms.
    pub cpu_ms: f64,
    /// Total, not per job.
    pub preemptions: u64,
    /// Total, not per job.
    pub migrations: u64,
    pub exhaustions: u64,
    pub throttles: u64,
    /// Budget given to others, ms.
    pub donated_ms: f64,
    /// Budget received from others, ms.
    pub received_ms: f64,
    #[serde(default)]
    pub blocks: u64,
    #[serde(default)]
    pub blocked_ms: f64,
    #[serde(default)]
    pub blocked_max_ms: f64,
    #[serde(default)]
    pub wakes: u64,
    #[serde(default)]
    pub wake_mean_ms: f64,
    #[serde(default)]
    pub wake_p99_ms: f64,
    #[serde(default)]
    pub wake_max_ms: f64,
}
