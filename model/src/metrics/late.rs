// SPDX-License-Identifier: GPL-2.0-only
//! Why a job was late, as far as the events tell: what took most of the time between its release and its end.
//! docs/events.md defines each cause.

mod history;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::jobs::{Job, Jobs};
use super::owed::Owed;
use super::sample::ms;
use crate::event::{Event, EventKind};
use crate::run::{Class, Run, TaskInfo, World};
use history::{History, Is};

/// Late jobs of a task that are listed one by one, the latest; of the others there are the counts.
const LISTED: usize = 10;

/// What made a job late. Where two took as long, the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its budget, or that of the jobs before it, was used up: it waited for the next one, or went on behind others.
    Budget,
    /// It has no reservation, and its own work takes longer than there was time.
    Work,
    /// It slept in the midst of the job, or waited for a resource.
    Blocked,
    /// Another task that is no best effort had the CPU.
    Reservation,
    /// Best effort had the CPU.
    BestEffort,
    /// Nobody had the CPU whom the scheduler serves: somebody of a real-time class, or a thread of the kernel's own.
    RealTime,
    /// It had the CPU but did not get on: interrupts, or the time of another virtual machine.
    Interrupt,
    /// The events do not tell.
    Unknown,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 8] = [
        Self::Budget,
        Self::Work,
        Self::Blocked,
        Self::Reservation,
        Self::BestEffort,
        Self::RealTime,
        Self::Interrupt,
        Self::Unknown,
    ];

    /// Those that the core tells apart, in the order of its `enum ob_cause` (core/ob_types.h).
    pub const OF_CORE: [Cause; 6] = [
        Self::Budget,
        Self::Blocked,
        Self::Reservation,
        Self::BestEffort,
        Self::RealTime,
        Self::Unknown,
    ];

    /// In words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::Budget => "budget spent",
            Self::Work => "more work than time",
            Self::Blocked => "blocked on its own",
            Self::Reservation => "another reservation",
            Self::BestEffort => "best effort",
            Self::RealTime => "real-time class",
            Self::Interrupt => "interrupts or stolen",
            Self::Unknown => "not known",
        }
    }
}

/// How many late jobs have which cause.
pub type Causes = BTreeMap<Cause, u64>;

/// From the core's counts, by the number of the cause.
pub fn of_core(counts: &[u32]) -> Causes {
    let all = Cause::OF_CORE.into_iter().zip(counts.iter().map(|count| u64::from(*count)));
    all.filter(|(_, count)| *count > 0).collect()
}

/// `3 budget spent, 1 real-time class`; empty for none.
pub fn in_words(causes: &Causes) -> String {
    let mut all: Vec<_> = causes.iter().map(|(cause, count)| (*count, *cause)).collect();
    all.sort_by_key(|(count, cause)| (std::cmp::Reverse(*count), *cause));
    let one = |(count, cause): (u64, Cause)| format!("{count} {}", cause.words());
    all.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A job that was late, unfinished or given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateJob {
    /// Its index.
    pub job: u64,
    /// When it was released, ms from the run's origin.
    pub release_ms: f64,
    /// By how much it was late at its end, or is at the horizon, ms; 0 if it was given up.
    pub tardiness_ms: f64,
    /// Why.
    pub cause: Cause,
    /// The task that had the CPU longest meanwhile, if that is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Late jobs of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Late {
    /// Of all.
    pub causes: Causes,
    /// The latest ones, in the order of their release.
    pub jobs: Vec<LateJob>,
}

/// The late jobs of each task and why they were; empty where events do not tell who ran.
pub(super) fn late(run: &Run, events: &[Event], jobs: &[Jobs], owed: &[Owed]) -> Vec<Late> {
    let mut all = vec![Late::default(); run.tasks.len()];
    let is_late = |of: &Jobs| of.jobs.iter().any(|job| tardiness(job, run.horizon_ns).is_some());
    let wanted: Vec<bool> = run
        .tasks
        .iter()
        .zip(jobs)
        .map(|(task, of)| task.class != Class::BestEffort && is_late(of))
        .collect();
    let known = || events.iter().any(|e| e.kind == EventKind::Run as u32);
    if !wanted.contains(&true) || !known() {
        return all;
    }
    let history = History::of(events, &wanted);
    for (index, late) in all.iter_mut().enumerate().filter(|(index, _)| wanted[*index]) {
        *late = of_task(run, &history, index, &jobs[index].jobs, &owed[index].late_jobs);
    }
    all
}

/// By how much a job was late, if it was, ns.
fn tardiness(job: &Job, horizon: u64) -> Option<u64> {
    let late = match job.finish() {
        Some(finish) => finish > job.deadline,
        None => job.aborted || job.deadline <= horizon,
    };
    late.then(|| job.ended().unwrap_or(horizon).saturating_sub(job.deadline))
}

/// `owed`: the indices of late jobs that were owed, ascending.
fn of_task(run: &Run, history: &History, index: usize, jobs: &[Job], owed: &[u64]) -> Late {
    let mut late = Late::default();
    // When those before had ended, and why they were late, if they were.
    let mut before: (u64, Option<Why>) = (0, None);
    for job in jobs {
        let end = job.ended().unwrap_or(run.horizon_ns);
        let why = tardiness(job, run.horizon_ns).map(|by| {
            let owed = owed.binary_search(&job.index).is_ok();
            let why = why(run, history, index, job, &before, owed);
            *late.causes.entry(why.cause).or_default() += 1;
            list(&mut late.jobs, ms(by), || LateJob {
                job: job.index,
                release_ms: ms(job.release),
                tardiness_ms: ms(by),
                cause: why.cause,
                by: why.by.map(|task| run.tasks[task as usize].name.clone()),
            });
            why
        });
        if end >= before.0 {
            before = (end, why);
        }
    }
    late
}

/// Lists a late job if it is among the latest.
fn list(listed: &mut Vec<LateJob>, by_ms: f64, job: impl FnOnce() -> LateJob) {
    if listed.len() == LISTED {
        let least = (0..LISTED).min_by(|a, b| {
            listed[*a].tardiness_ms.total_cmp(&listed[*b].tardiness_ms).then(b.cmp(a))
        });
        match least {
            Some(least) if listed[least].tardiness_ms < by_ms => drop(listed.remove(least)),
            _ => return,
        }
    }
    listed.push(job());
}

/// Why a job was late.
#[derive(Debug, Clone, Copy)]
struct Why {
    cause: Cause,
    by: Option<u32>,
}

/// What took how long.
#[derive(Debug, Default)]
struct Spent {
    /// By [`Cause`], ns.
    causes: BTreeMap<Cause, u64>,
    /// By other tasks, ns.
    others: BTreeMap<u32, u64>,
    /// It ran, ns.
    ran: u64,
}

impl Spent {
    fn add(&mut self, cause: Cause, ns: u64) {
        *self.causes.entry(cause).or_default() += ns;
    }
}

/// An `owed` job needed no more than its budget: whom it waited for was not to go before it.
fn why(
    run: &Run,
    history: &History,
    index: usize,
    job: &Job,
    before: &(u64, Option<Why>),
    owed: bool,
) -> Why {
    let task = &run.tasks[index];
    let end = job.ended().unwrap_or(run.horizon_ns);
    let begin = job.release.max(before.0).min(end);
    let mut spent = Spent::default();
    let postponed = job.deadline.saturating_add(task.period / 2);
    for span in history.spans(index, begin, end) {
        let length = span.until - span.from;
        match span.is {
            Is::Runs => spent.ran += length,
            Is::Sleeps => spent.add(Cause::Blocked, length),
            Is::Rests => spent.add(Cause::Budget, length),
            Is::Waits | Is::Spent => {
                // Whose deadline was put off waits for that, whoever of those that are served has the CPU.
                let later = span.is == Is::Spent || task.budget > 0 && span.deadline > postponed;
                let behind = later && !owed;
                let Some(cpu) = span.cpu else {
                    spent.add(Cause::Unknown, length);
                    continue;
                };
                history.held(cpu, span.from, span.until, |holder, ns| {
                    let cause = match holder.and_then(|task| run.tasks.get(task as usize)) {
                        _ if behind && holder.is_some() => Cause::Budget,
                        Some(other) if other.class == Class::BestEffort => Cause::BestEffort,
                        Some(_) => Cause::Reservation,
                        None if holder.is_some() => Cause::BestEffort,
                        None if run.world == World::Sim => Cause::Unknown,
                        None => Cause::RealTime,
                    };
                    spent.add(cause, ns);
                    if let Some(task) = holder.filter(|_| cause == Cause::Reservation) {
                        *spent.others.entry(task).or_default() += ns;
                    }
                });
            }
        }
    }
    own(task, job, owed, &mut spent);
    // Jobs before it took from its time what they were late themselves: for their reason.
    let inherited = begin.saturating_sub(job.release);
    let earlier = match before.1 {
        Some(why) => why,
        None => Why { cause: if task.budget > 0 { Cause::Budget } else { Cause::Work }, by: None },
    };
    if inherited > 0 {
        spent.add(earlier.cause, inherited);
        if let Some(by) = earlier.by {
            *spent.others.entry(by).or_default() += inherited;
        }
    }
    if owed {
        let others = spent.causes.iter().filter(|(cause, _)| **cause != Cause::Budget);
        let others: u64 = others.map(|(_, ns)| ns).sum();
        if others >= end.saturating_sub(job.deadline) {
            spent.causes.remove(&Cause::Budget);
        }
    }
    let most = spent.causes.iter().filter(|(_, ns)| **ns > 0);
    let cause =
        most.max_by_key(|(cause, ns)| (**ns, std::cmp::Reverse(**cause))).map(|most| *most.0);
    let cause = cause.unwrap_or(Cause::Unknown);
    let by = spent.others.iter().max_by_key(|(_, ns)| **ns).map(|(task, _)| *task);
    Why { cause, by: by.filter(|_| cause == Cause::Reservation) }
}

/// What the job's own work has to do with it.
fn own(task: &TaskInfo, job: &Job, owed: bool, spent: &mut Spent) {
    // What it has measured itself, if it has.
    let work = if job.ended().is_some() && job.used > 0 { job.used } else { spent.ran };
    spent.add(Cause::Interrupt, spent.ran.saturating_sub(work));
    if task.budget == 0 {
        spent.add(Cause::Work, work.saturating_sub(job.deadline.saturating_sub(job.release)));
    } else if work > task.budget && !owed {
        // Who needs more than is reserved is owed nothing: others that went first had the right to.
        let others = [Cause::Reservation, Cause::BestEffort];
        let waited: u64 = others.iter().filter_map(|cause| spent.causes.remove(cause)).sum();
        spent.add(Cause::Budget, waited + (work - task.budget));
    }
}

#[cfg(test)]
mod tests;
