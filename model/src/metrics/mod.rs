// SPDX-License-Identifier: GPL-2.0-only
//! What the events of a run amount to; the only place where that is computed. docs/events.md defines every figure.
//!
//! A *counted* job is one that completed, or whose deadline lies at or before the horizon. A job that was released but
//! whose deadline nobody saw says nothing, so it is left out.

mod frames;
mod jobs;
mod owed;
mod usage;

use serde::{Deserialize, Serialize};

pub use frames::{SecondFps, least_in_window};

use crate::event::{Event, EventKind, NONE};
use crate::run::{Class, Run};
use crate::units::{MS, SEC, US};

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
    /// Least number of completions of any one task in any one-second window; `None` if no task lasts a second.
    pub worst_fps: Option<u32>,
    /// Mean over all tasks and whole seconds of the completions in that second. This and every other mean over the
    /// tasks is `None` if their periods differ: it would be a figure of none of them.
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
    pub worst_fps: Option<u32>,
    pub mean_fps: f64,
    pub fps_sd: f64,
    pub tardiness_mean_ms: f64,
    pub tardiness_p99_ms: f64,
    pub tardiness_max_ms: f64,
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

/// The jobs of each task, by their index, for comparison.
pub(crate) fn jobs_of(run: &Run) -> Vec<Vec<jobs::Job>> {
    let of_tasks = jobs::collect(&run.events, run.tasks.len()).0;
    of_tasks.into_iter().map(|of| of.jobs).collect()
}

/// The figures of a run.
pub fn metrics(run: &Run) -> Metrics {
    detailed(run).0
}

/// The figures of a run and of each of its tasks, in the order of `run.tasks`.
pub fn detailed(run: &Run) -> (Metrics, Vec<TaskMetrics>) {
    let sorted;
    let events: &[Event] = if run.events.is_sorted_by_key(|e| e.time) {
        &run.events
    } else {
        let mut copy = run.events.clone();
        copy.sort_by_key(|e| e.time);
        sorted = copy;
        &sorted
    };
    let mut collector = Collector::of(events, run.tasks.len());
    events.iter().for_each(|e| collector.take(e));
    collector.finish(run)
}

/// Figures, event by event, of a run whose events nobody wants to keep. They may only be of the kinds that the
/// simulator's detail of jobs has, as they come there: an event may tell of an earlier time than those before it.
pub struct Collector<'e> {
    events: &'e [Event],
    jobs: jobs::Collector,
    usage: usage::Collector<'e>,
}

impl Collector<'static> {
    /// For `tasks` tasks.
    pub fn new(tasks: usize) -> Self {
        Self::of(&[], tasks)
    }
}

impl<'e> Collector<'e> {
    /// The same, of these events, in ascending order of time.
    fn of(events: &'e [Event], tasks: usize) -> Self {
        let (jobs, usage) = (jobs::Collector::new(tasks), usage::Collector::new(events, tasks));
        Self { events, jobs, usage }
    }

    /// Takes the next event.
    pub fn take(&mut self, e: &Event) {
        // One pass for both: the events of a long run do not fit into a cache.
        self.jobs.take(e);
        self.usage.take(e);
    }

    /// The figures of the run and of each of its tasks; it need not have its events.
    pub fn finish(self, run: &Run) -> (Metrics, Vec<TaskMetrics>) {
        let usage = self.usage.finish(run.horizon_ns);
        figures(run, self.events, self.jobs.finish(), usage)
    }
}

fn figures(
    run: &Run,
    events: &[Event],
    (jobs, anomalies): (Vec<jobs::Jobs>, u64),
    mut usage: usage::Usage,
) -> (Metrics, Vec<TaskMetrics>) {
    let seconds = run.horizon_ns as f64 / SEC as f64;
    let mut total = Metrics { seconds, anomalies, lost_events: usage.lost, ..Metrics::default() };
    let mut all = Sample::default();
    let mut values = Values::with_capacity(jobs.iter().map(|of| of.jobs.len()).sum());
    let mut wakes = Vec::new();
    let mut completions = Vec::new();
    let mut curves = Vec::new();
    let mut fps = Moments::default();
    let (mut jitter_sum, mut jitter_tasks) = (0.0, 0u64);
    let mut tasks = Vec::with_capacity(run.tasks.len());
    let mut periods = run.tasks.iter().filter(|t| t.class != Class::BestEffort).map(|t| t.period);
    let first = periods.next();
    let alike = periods.all(|period| Some(period) == first);
    let (mut best_effort_ns, mut reserved_ns) = (0u64, 0u64);
    for (i, info) in run.tasks.iter().enumerate() {
        let (mut sample, earlier) = (Sample::default(), values.len());
        sample.take(&jobs[i].jobs, run.horizon_ns, &mut values);
        let span = frames::span(&jobs[i].jobs, info.period, run.horizon_ns);
        frames::completions(&jobs[i].jobs, &mut completions);
        let worst = span.and_then(|(a, b)| least_in_window(&completions, a, b, SEC));
        let curve = span.map_or_else(Vec::new, |(a, b)| frames::by_second(&completions, a, b));
        let mut task_fps = Moments::default();
        curve.iter().for_each(|n| task_fps.add(f64::from(*n)));
        let used = &mut usage.tasks[i];
        let count = used.wakes.len();
        wakes.extend_from_slice(&used.wakes);
        let wake = summary(&mut used.wakes, count);
        let stats = values.stats(&earlier);
        let owed = owed::owed(run, events, i, &jobs[i], used.cpu_ns);
        tasks.push(TaskMetrics {
            name: info.name.clone(),
            entry: info.entry,
            class: info.class,
            period_ms: ms(info.period),
            budget_ms: ms(info.budget),
            jobs: sample.jobs,
            released: sample.released,
            misses: sample.misses,
            unfinished: sample.unfinished,
            aborted: sample.aborted,
            miss_ratio: ratio(sample.misses, sample.jobs),
            owed: owed.jobs,
            owed_late: owed.late,
            owed_aborted: owed.aborted,
            owed_tardiness_max_ms: ms(owed.tardiness_max),
            worst_fps: worst,
            mean_fps: task_fps.mean(),
            fps_sd: task_fps.sd(),
            tardiness_mean_ms: stats.tardiness.0,
            tardiness_p99_ms: stats.tardiness.1,
            tardiness_max_ms: stats.tardiness.2,
            response_mean_ms: stats.response.0,
            response_p99_ms: stats.response.1,
            response_max_ms: stats.response.2,
            jitter_mean_ms: sample.jitter_mean(),
            jitter_max_ms: ms(sample.jitter_max),
            cpu_ms: ms(used.cpu_ns),
            preemptions: used.preemptions,
            migrations: used.migrations,
            exhaustions: used.exhaustions,
            throttles: used.throttles,
            donated_ms: ms(used.donated),
            received_ms: ms(used.received),
            blocks: used.blocks,
            blocked_ms: ms(used.blocked),
            blocked_max_ms: ms(used.blocked_max),
            wakes: count as u64,
            wake_mean_ms: wake.0,
            wake_p99_ms: wake.1,
            wake_max_ms: wake.2,
        });
        if info.class == Class::BestEffort {
            best_effort_ns = best_effort_ns.saturating_add(used.cpu_ns);
            values.forget(&earlier);
            continue;
        }
        reserved_ns = reserved_ns.saturating_add(used.cpu_ns);
        total.worst_fps = [total.worst_fps, worst].into_iter().flatten().min();
        total.owed += owed.jobs;
        total.owed_late += owed.late;
        total.owed_aborted += owed.aborted;
        total.blocks += used.blocks;
        total.blocked_ms += ms(used.blocked);
        total.blocked_max_ms = total.blocked_max_ms.max(ms(used.blocked_max));
        total.owed_tardiness_max_ms = total.owed_tardiness_max_ms.max(ms(owed.tardiness_max));
        total.preemptions += used.preemptions as f64;
        total.migrations += used.migrations as f64;
        if sample.jitter_count > 0 {
            jitter_sum += sample.jitter_mean();
            jitter_tasks += 1;
        }
        fps.merge(&task_fps);
        curves.push(curve);
        all.append(&sample);
    }
    let stats = values.stats(&Lengths::default());
    total.jobs = all.jobs;
    total.released = all.released;
    total.misses = all.misses;
    total.unfinished = all.unfinished;
    total.aborted = all.aborted;
    total.wakes = wakes.len() as u64;
    let count = wakes.len();
    (total.wake_mean_ms, total.wake_p99_ms, total.wake_max_ms) = summary(&mut wakes, count);
    total.miss_ratio = ratio(all.misses, all.jobs);
    let mean = |value: f64| alike.then_some(value);
    (total.mean_fps, total.fps_sd) = (mean(fps.mean()), mean(fps.sd()));
    (_, total.tardiness_p99_ms, total.tardiness_max_ms) = stats.tardiness;
    (_, total.response_p99_ms, total.response_max_ms) = stats.response;
    total.tardiness_mean_ms = mean(stats.tardiness.0);
    total.response_mean_ms = mean(stats.response.0);
    let finished = all.jobs - all.unfinished - all.aborted;
    total.cpu_per_job_us = mean(per(all.used as f64, finished) / US as f64);
    total.jitter_mean_ms = mean(per(jitter_sum, jitter_tasks));
    total.jitter_max_ms = ms(all.jitter_max);
    total.preemptions = per(total.preemptions, all.jobs);
    total.migrations = per(total.migrations, all.jobs);
    let per_second =
        |ns: u64| if run.horizon_ns == 0 { 0.0 } else { ns as f64 / run.horizon_ns as f64 };
    total.best_effort_cpus = per_second(best_effort_ns);
    total.reserved_cpus = per_second(reserved_ns);
    total.exhaustions = usage.count(EventKind::Exhaust);
    total.replenishments = usage.count(EventKind::Replenish);
    total.throttles = usage.count(EventKind::Throttle);
    total.donations = usage.count(EventKind::Donate);
    total.donated_ms = ms(usage.donated);
    total.bonus_ms = ms(usage.bonus_given);
    total.share_ms = ms(usage.share_ns);
    total.fps_per_second = if alike { frames::over_tasks(&curves) } else { Vec::new() };
    (total, tasks)
}

/// To which task each server belongs, as far as the events tell: from any event that names both.
pub fn server_tasks(events: &[Event]) -> std::collections::BTreeMap<u32, u32> {
    let mut map = std::collections::BTreeMap::new();
    let mut seen = [false; 1024]; // most servers have small numbers; ask the map only once for those
    for e in events {
        if e.server == NONE || e.task == NONE || e.kind == EventKind::Donate as u32 {
            continue;
        }
        match seen.get_mut(e.server as usize) {
            Some(seen) if *seen => continue,
            Some(seen) => *seen = true,
            None => {}
        }
        map.entry(e.server).or_insert(e.task);
    }
    map
}

/// What counted jobs amount to, without their times.
#[derive(Default)]
struct Sample {
    jobs: u64,
    released: u64,
    misses: u64,
    unfinished: u64,
    aborted: u64,
    /// CPU time of finished jobs, ns.
    used: u64,
    jitter_sum: u128,
    jitter_count: u64,
    jitter_max: u64,
}

/// Times of counted jobs, ns, of all tasks one after another: those of one task are a part, those of all the whole.
struct Values {
    response: Vec<u64>,
    /// Of late jobs only: most have none.
    tardiness: Vec<u64>,
}

/// How much was in [`Values`].
#[derive(Default)]
struct Lengths {
    response: usize,
    tardiness: usize,
}

impl Values {
    fn with_capacity(jobs: usize) -> Self {
        Self { response: Vec::with_capacity(jobs), tardiness: Vec::new() }
    }

    fn len(&self) -> Lengths {
        Lengths { response: self.response.len(), tardiness: self.tardiness.len() }
    }

    fn forget(&mut self, from: &Lengths) {
        self.response.truncate(from.response);
        self.tardiness.truncate(from.tardiness);
    }

    /// Of all since then; puts them into another order.
    fn stats(&mut self, from: &Lengths) -> Stats {
        let response = &mut self.response[from.response..];
        let jobs = response.len();
        Stats {
            response: summary(response, jobs),
            tardiness: summary(&mut self.tardiness[from.tardiness..], jobs),
        }
    }
}

/// Mean, 99th percentile and maximum, ms.
struct Stats {
    tardiness: (f64, f64, f64),
    response: (f64, f64, f64),
}

impl Sample {
    fn take(&mut self, jobs: &[jobs::Job], horizon: u64, values: &mut Values) {
        let mut previous: Option<u64> = None;
        for job in jobs {
            self.released += 1;
            // An unfinished job will finish at the horizon at the earliest: lower bounds.
            let end = match job.finish() {
                Some(finish) => finish,
                // It will never finish.
                None if job.aborted => {
                    self.jobs += 1;
                    self.misses += 1;
                    self.aborted += 1;
                    continue;
                }
                None if job.deadline <= horizon => {
                    self.unfinished += 1;
                    horizon
                }
                None => continue,
            };
            let response = end.saturating_sub(job.release);
            if job.finish().is_none() || end > job.deadline {
                self.misses += 1;
            }
            self.jobs += 1;
            values.response.push(response);
            if end > job.deadline {
                values.tardiness.push(end - job.deadline);
            }
            if job.finish().is_none() {
                continue;
            }
            self.used = self.used.saturating_add(job.used);
            if let Some(before) = previous.replace(response) {
                let jitter = response.abs_diff(before);
                self.jitter_sum += u128::from(jitter);
                self.jitter_count += 1;
                self.jitter_max = self.jitter_max.max(jitter);
            }
        }
    }

    fn append(&mut self, other: &Sample) {
        self.jobs += other.jobs;
        self.released += other.released;
        self.misses += other.misses;
        self.unfinished += other.unfinished;
        self.aborted += other.aborted;
        self.used = self.used.saturating_add(other.used);
        self.jitter_sum += other.jitter_sum;
        self.jitter_count += other.jitter_count;
        self.jitter_max = self.jitter_max.max(other.jitter_max);
    }

    fn jitter_mean(&self) -> f64 {
        if self.jitter_count == 0 {
            return 0.0;
        }
        self.jitter_sum as f64 / self.jitter_count as f64 / MS as f64
    }
}

/// Mean, 99th percentile and maximum of `n` values, of which those that are not given are 0.
fn summary(values: &mut [u64], n: usize) -> (f64, f64, f64) {
    let Some(max) = values.iter().max().copied() else { return (0.0, 0.0, 0.0) };
    let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
    // Nearest rank: the smallest value that at least 99 % of all do not exceed.
    let rank = (n as u64 * 99).div_ceil(100) as usize - 1;
    let p99 = match rank.checked_sub(n - values.len()) {
        Some(rank) => *values.select_nth_unstable(rank).1,
        None => 0,
    };
    (sum as f64 / n as f64 / MS as f64, ms(p99), ms(max))
}

/// Mean and deviation of small whole numbers, exact until the end whatever the order.
#[derive(Default, Clone, Copy)]
pub(crate) struct Moments {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(crate) fn add(&mut self, x: f64) {
        self.n += 1.0;
        self.sum += x;
        self.squares += x * x;
    }

    fn merge(&mut self, other: &Moments) {
        self.n += other.n;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.n == 0.0 { 0.0 } else { self.sum / self.n }
    }

    pub(crate) fn sd(&self) -> f64 {
        if self.n == 0.0 {
            return 0.0;
        }
        (self.squares / self.n - self.mean() * self.mean()).max(0.0).sqrt()
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}

fn ratio(part: u64, whole: u64) -> f64 {
    per(part as f64, whole)
}

fn per(total: f64, jobs: u64) -> f64 {
    if jobs == 0 { 0.0 } else { total / jobs as f64 }
}

#[cfg(test)]
mod tests;
