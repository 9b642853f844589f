// SPDX-License-Identifier: GPL-2.0-only
//! What the events of a run amount to; the only place where that is computed. docs/events.md defines every figure.
//!
//! A *counted* job is one that completed, or whose deadline lies at or before the horizon. A job that was released but
//! whose deadline nobody saw says nothing, so it is left out.

mod figures;
mod frames;
mod jobs;
mod late;
mod over_time;
mod owed;
mod sample;
mod usage;

pub use figures::{Metrics, TaskMetrics};
pub use frames::{SecondFps, least_in_window};
pub use late::{Cause, Causes, LateJob, in_words, of_core};
pub use over_time::tardiness_over_time;

pub(crate) use sample::Moments;
use sample::{Lengths, Sample, Values, ms, summary};

use crate::event::{Event, EventKind, NONE};
use crate::run::{Class, Run};
use crate::units::{SEC, US};

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
    let owed = |i: usize| owed::owed(run, events, i, &jobs[i], usage.tasks[i].cpu_ns);
    let owed: Vec<_> = (0..run.tasks.len()).map(owed).collect();
    let mut late = late::late(run, events, &jobs, &owed);
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
        let owed = &owed[i];
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
            late_causes: std::mem::take(&mut late[i].causes),
            late_jobs: std::mem::take(&mut late[i].jobs),
            worst_fps: worst,
            mean_fps: task_fps.both().map(|fps| fps.0),
            fps_sd: task_fps.both().map(|fps| fps.1),
            tardiness_mean_ms: stats.tardiness.0,
            tardiness_p99_ms: stats.tardiness.1,
            tardiness_max_ms: stats.tardiness.2,
            bound_tardiness_ms: None,
            bound_expected_ms: None,
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
        for (cause, count) in &tasks[i].late_causes {
            *total.late_causes.entry(*cause).or_default() += count;
        }
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
    (total.mean_fps, total.fps_sd) = fps.both().filter(|_| alike).unzip();
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
    total.best_effort_least_cpus = usage.least_second.map(|ns| ns as f64 / SEC as f64);
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

fn ratio(part: u64, whole: u64) -> f64 {
    per(part as f64, whole)
}

fn per(total: f64, jobs: u64) -> f64 {
    if jobs == 0 { 0.0 } else { total / jobs as f64 }
}

#[cfg(test)]
mod tests;
