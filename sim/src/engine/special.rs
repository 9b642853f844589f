// SPDX-License-Identifier: GPL-2.0-only
//! What few tasks have, beside the tasks of the engine, so that the others pay a comparison for it: several threads,
//! sections, aborts, queues of frames.

use std::collections::VecDeque;

use onbeat_model::event::{Event, EventKind};
use onbeat_model::taskset::{Section, Step};

use super::Engine;
use super::frames::QueueEnd;
use crate::locks::{Locks, Wait};
use crate::releases::Releases;

/// All that is special.
#[derive(Default)]
pub(super) struct Special {
    pub threads: Vec<Thread>,
    pub locks: Locks,
    /// When a job is given up next: threads that abort, by number among all.
    aborts: Option<Releases>,
    /// Threads that wait for each other, for ever.
    pub deadlock: Option<Vec<Stuck>>,
}

/// A thread with something special.
pub(super) struct Thread {
    /// The task whose thread it is, in the events.
    pub task: usize,
    /// What it locks and unlocks in a job.
    pub steps: Box<[Step]>,
    /// The next one of these in its job.
    pub next: usize,
    /// Execution of its job at the last stop and at the next one, ns: a step, or the end.
    pub done: u64,
    pub goal: u64,
    /// Its jobs are given up at their deadlines.
    pub aborts: bool,
    /// It passes frames on, or shows them.
    pub queue: Option<QueueEnd>,
    /// Jobs that the task's threads have begun and not all ended, from `first` on; with its first thread, if it has
    /// several.
    pub team: Option<Box<Team>>,
}

/// Jobs of several threads, in each of which every thread has a part.
pub(super) struct Team {
    threads: usize,
    first: usize,
    jobs: VecDeque<Parts>,
    /// A thread has waited for a resource.
    pub blocked: bool,
}

/// What is known of a job.
struct Parts {
    left: usize,
    used: u64,
    aborted: bool,
}

/// One of those that wait for each other: its task and job, what it waits for, and the next one, which holds that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Task.
    pub task: usize,
    /// Index of its job.
    pub job: usize,
    /// Index of the resource.
    pub resource: usize,
    /// Task that holds it.
    pub holder: usize,
}

impl Special {
    /// When the next job is given up, ns; u64::MAX: none is.
    pub fn next_abort(&self) -> u64 {
        self.aborts.as_ref().map_or(u64::MAX, Releases::next)
    }

    /// Whose job is given up next.
    pub fn first_abort(&self) -> usize {
        self.aborts.as_ref().map_or(0, Releases::first)
    }

    /// The job of task `i` is given up at `time`, ns; u64::MAX: not any more.
    pub fn abort_at(&mut self, i: usize, time: u64) {
        if let Some(aborts) = &mut self.aborts {
            aborts.set(i, time);
        }
    }
}

impl Engine {
    pub(super) fn special(&mut self, i: usize) -> &mut Thread {
        let at = *self.tasks[i].special.get_or_insert_with(|| {
            self.special.threads.push(Thread {
                task: i,
                steps: Box::default(),
                next: 0,
                done: 0,
                goal: 0,
                aborts: false,
                queue: None,
                team: None,
            });
            self.special.threads.len() as u32 - 1
        });
        &mut self.special.threads[at as usize]
    }

    /// These tasks, which are under one reservation and have the same releases, are threads of the first: each job of
    /// it is one of each of them, and done when all are.
    pub fn team(&mut self, threads: &[usize]) {
        let task = threads[0];
        for thread in threads {
            self.special(*thread).task = task;
        }
        let team = Team { threads: threads.len(), first: 0, jobs: VecDeque::new(), blocked: false };
        self.special(task).team = Some(Box::new(team));
    }

    /// Jobs of task or thread `i` have these sections, properly nested, outer ones first.
    pub fn sections(&mut self, i: usize, sections: &[Section]) {
        let resources = sections.iter().map(|s| s.resource + 1).max().unwrap_or(0);
        let threads = self.tasks.len();
        self.special.locks.reserve(resources, threads);
        self.special(i).steps = Section::steps(sections).into();
    }

    /// Jobs of task or thread `i` are given up at their deadlines.
    pub fn abort_at_deadlines(&mut self, i: usize) {
        let threads = self.tasks.len();
        self.special.aborts.get_or_insert_with(|| Releases::new(threads));
        self.special(i).aborts = true;
    }

    /// Jobs that wait for each other, for ever, if there are any: the simulation has ended with them.
    pub fn deadlock(&self) -> Option<&[Stuck]> {
        self.special.deadlock.as_deref()
    }

    /// The task whose thread `i` is.
    pub(super) fn task_of(&self, i: usize) -> usize {
        self.tasks[i].special.map_or(i, |at| self.special.threads[at as usize].task)
    }

    /// The threads of `i`'s task, if it has several.
    pub(super) fn team_of(&mut self, i: usize) -> Option<&mut Team> {
        let at = self.tasks[self.task_of(i)].special?;
        self.special.threads[at as usize].team.as_deref_mut()
    }

    /// Notes `circle`, which ends the simulation.
    pub(super) fn stuck(&mut self, circle: &[Wait]) {
        let one = |w: &Wait| Stuck {
            task: self.task_of(w.thread),
            job: self.tasks[w.thread].job,
            resource: w.resource,
            holder: self.task_of(w.holder),
        };
        // The first one ends it.
        let circle = circle.iter().map(one).collect();
        self.special.deadlock.get_or_insert(circle);
    }

    /// What thread `i` used in all, and once for a task of several, with the first of them.
    pub(super) fn usage(&mut self, i: usize) {
        if self.task_of(i) != i {
            return;
        }
        let several = self.team_of(i).is_some();
        let of = |t: &super::Task| (t.executed, t.preemptions, t.migrations);
        let mut sum = of(&self.tasks[i]);
        for other in (i + 1..self.tasks.len()).filter(|_| several) {
            if self.task_of(other) == i {
                let more = of(&self.tasks[other]);
                sum = (sum.0 + more.0, sum.1 + more.1, sum.2 + more.2);
            }
        }
        let counts = u64::from(sum.1) << 32 | u64::from(sum.2);
        self.events.push(Event::new(self.now, EventKind::Usage, sum.0, counts).of(i as u32));
    }
}

impl Thread {
    /// The next step, if it is at that point of the job.
    pub fn take_step(&mut self, at: u64) -> Option<Step> {
        let step = self.steps.get(self.next).filter(|step| step.at == at).copied();
        self.next += usize::from(step.is_some());
        step
    }
}

impl Team {
    /// A thread begins its part of job `job`: whether it is the first.
    pub fn begin(&mut self, job: usize) -> bool {
        let first = job - self.first == self.jobs.len();
        if first {
            self.jobs.push_back(Parts { left: self.threads, used: 0, aborted: false });
        }
        first
    }

    /// A thread has ended its part of job `job` after `used` ns: if it is the last, what all have used, and whether one
    /// was given up.
    pub fn end(&mut self, job: usize, used: u64, aborted: bool) -> Option<(u64, bool)> {
        let parts = &mut self.jobs[job - self.first];
        parts.left -= 1;
        parts.used += used;
        parts.aborted |= aborted;
        if parts.left > 0 {
            return None;
        }
        // Each thread does its jobs in their order, so this is the first that is left.
        self.first += 1;
        self.jobs.pop_front().map(|all| (all.used, all.aborted))
    }
}
