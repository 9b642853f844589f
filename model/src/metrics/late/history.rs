// SPDX-License-Identifier: GPL-2.0-only
//! Who had which CPU when, and what some tasks did meanwhile, from the events of the scheduler.

use std::collections::BTreeMap;

use super::super::server_tasks;
use crate::event::{Event, EventKind, NONE, StopReason};

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// It runs.
    Runs,
    /// It sleeps.
    Sleeps,
    /// Its budget is used up, and it waits for the next.
    Rests,
    /// It could run, and somebody else has the CPU.
    Waits,
    /// The same, but without a budget: others go first.
    Spent,
}

/// What a task did for a while; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from: u64,
    pub until: u64,
    pub is: Is,
    /// Its server's deadline, 0: it has none.
    pub deadline: u64,
    /// The CPU that it ran on next, or last.
    pub cpu: Option<u32>,
}

/// What a task does from an instant on.
#[derive(Debug, Clone, Copy)]
struct Step {
    time: u64,
    is: Is,
    deadline: u64,
    cpu: Option<u32>,
}

/// A task while its events are gone through.
#[derive(Debug, Clone)]
struct Task {
    steps: Vec<Step>,
    /// CPUs that its threads run on.
    on: Vec<u32>,
    asleep: bool,
    /// No budget is left until the next, ...
    spent: bool,
    /// ... and the rule is to wait for that.
    rests: bool,
    deadline: u64,
}

impl Task {
    fn new() -> Self {
        Self {
            steps: Vec::new(),
            on: Vec::new(),
            asleep: true,
            spent: false,
            rests: false,
            deadline: 0,
        }
    }

    fn take(&mut self, e: &Event, kind: EventKind) {
        match kind {
            EventKind::Run => {
                self.on.push(e.cpu);
                self.asleep = false;
                self.deadline = e.a;
            }
            EventKind::Stop => {
                self.on.retain(|cpu| *cpu != e.cpu);
                let reason = StopReason::from_u64(e.a);
                self.asleep = matches!(reason, Some(StopReason::Slept | StopReason::Exited));
                self.rests |= reason == Some(StopReason::Throttled);
            }
            EventKind::Activate => {
                (self.asleep, self.spent, self.rests, self.deadline) = (false, false, false, e.b);
            }
            EventKind::Replenish | EventKind::Restore => {
                (self.spent, self.rests, self.deadline) = (false, false, e.b);
            }
            EventKind::Exhaust => self.spent = true,
            EventKind::Throttle => self.rests = true,
            _ => return,
        }
        let is = match self {
            Self { on, .. } if !on.is_empty() => Is::Runs,
            Self { asleep: true, .. } => Is::Sleeps,
            Self { rests: true, .. } => Is::Rests,
            Self { spent: true, .. } => Is::Spent,
            _ => Is::Waits,
        };
        let cpu = if kind == EventKind::Run { Some(e.cpu) } else { None };
        self.steps.push(Step { time: e.time, is, deadline: self.deadline, cpu });
    }

    /// Fills in where it ran next, or last.
    fn finish(&mut self) {
        let mut next = None;
        for step in self.steps.iter_mut().rev() {
            let here = step.cpu;
            step.cpu = here.or(next);
            next = here.or(next);
        }
        let mut last = None;
        for step in &mut self.steps {
            step.cpu = step.cpu.or(last);
            last = step.cpu;
        }
    }
}

/// All of it.
#[derive(Debug)]
pub struct History {
    tasks: Vec<Task>,
    /// By CPU: from when on who has it, `None`: nobody.
    cpus: BTreeMap<u32, Vec<(u64, Option<u32>)>>,
}

impl History {
    /// Of these events, in ascending order of time, what tasks do that are `wanted`.
    pub fn of(events: &[Event], wanted: &[bool]) -> Self {
        let owners = server_tasks(events);
        let mut history = Self { tasks: vec![Task::new(); wanted.len()], cpus: BTreeMap::new() };
        for e in events {
            let Some(kind) = e.kind() else { continue };
            match kind {
                EventKind::Run => history.note(e, Some(e.task)),
                EventKind::Stop => history.note(e, None),
                _ => (),
            }
            let task = if e.task == NONE { owners.get(&e.server).copied() } else { Some(e.task) };
            let Some(task) = task.map(|task| task as usize) else { continue };
            if wanted.get(task) == Some(&true) {
                history.tasks[task].take(e, kind);
            }
        }
        history.tasks.iter_mut().for_each(Task::finish);
        history
    }

    fn note(&mut self, e: &Event, holder: Option<u32>) {
        self.cpus.entry(e.cpu).or_default().push((e.time, holder));
    }

    /// What task `index` did in that time. Before its first event it slept.
    pub fn spans(&self, index: usize, from: u64, until: u64) -> impl Iterator<Item = Span> {
        let steps = &self.tasks[index].steps;
        let first = steps.partition_point(|step| step.time <= from);
        let asleep = Step { time: 0, is: Is::Sleeps, deadline: 0, cpu: None };
        let at = move |i: usize| i.checked_sub(1).map_or(asleep, |i| steps[i]);
        let end = move |i: usize| steps.get(i).map_or(u64::MAX, |step| step.time);
        (first..=steps.len())
            .take_while(move |i| at(*i).time < until)
            .map(move |i| Span {
                from: at(i).time.max(from),
                until: end(i).min(until),
                is: at(i).is,
                deadline: at(i).deadline,
                cpu: at(i).cpu,
            })
            .filter(|span| span.from < span.until)
    }

    /// Tells `take` who had a CPU in that time, and for how long, ns.
    pub fn held(&self, cpu: u32, from: u64, until: u64, mut take: impl FnMut(Option<u32>, u64)) {
        let Some(steps) = self.cpus.get(&cpu) else { return };
        let first = steps.partition_point(|step| step.0 <= from);
        let (mut since, mut holder) = (from, first.checked_sub(1).and_then(|i| steps[i].1));
        for (time, next) in steps[first..].iter().take_while(|step| step.0 < until) {
            take(holder, time - since);
            (since, holder) = (*time, *next);
        }
        take(holder, until.saturating_sub(since));
    }
}
