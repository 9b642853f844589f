// SPDX-License-Identifier: GPL-2.0-only
//! The event loop: releases, completions and the core's own timers in order of time.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::taskset::Overheads;
use onbeat_model::units::SEC;

use crate::core::{Core, NOBODY};
use crate::load::{Kind, Load, Work};
use crate::record::Record;
use crate::releases::Releases;
use special::Special;
pub use special::Stuck;

mod frames;
mod jobs;
mod sections;
mod special;

/// Time slice of best-effort work, ns; and where ticks end it, the kernel shell's.
const SLICE: u64 = ffi::OB_SLICE as u64;
const SLICE_TICKS: u64 = ffi::OB_SLICE_TICKS as u64;

/// How much a simulation records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Nothing but the counters.
    Counters,
    /// Releases, completions and usage: what metrics need.
    Jobs,
    /// Every event of the core, for traces and comparison.
    All,
}

struct Task {
    work: Work,
    /// It pays for what it has, in slices: it has no reservation, or never sleeps.
    best_effort: bool,
    /// What few tasks have; its number among [`Engine::special`].
    special: Option<u32>,
    /// The present or next job, when it is released, and its absolute deadline.
    job: usize,
    release: u64,
    due: u64,
    remaining: u64,
    executed: u64,
    cpu: u32,
    preemptions: u32,
    migrations: u32,
    ran_before: bool,
    /// When it woke, if that is noted and it has not run since; else u64::MAX.
    woke: u64,
}

#[derive(Clone, Copy)]
struct Cpu {
    task: usize,
    /// When the task on it began (or begins) to make progress.
    start: u64,
    /// It changes over to its task until then; u64::MAX: it does not.
    switch: u64,
    /// It was told to pick again meanwhile.
    again: bool,
    /// When its job ends if nothing comes between; u64::MAX while none makes progress.
    finish: u64,
    /// When its best-effort slice is over; u64::MAX: there is none.
    slice: u64,
}

/// When the first CPU has something to do, by what it is; u64::MAX: none has.
struct Due {
    switch: u64,
    finish: u64,
    /// The core's timer of a CPU, or the end of a slice.
    timer: u64,
}

/// A simulation in progress.
pub struct Engine {
    core: Core,
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    releases: Releases,
    special: Special,
    overheads: Overheads,
    detail: Detail,
    events: Record,
    now: u64,
    /// Tasks that have jobs left.
    unfinished: usize,
    /// Jobs completed so far.
    pub completed: u64,
    /// The first job that was completed after its deadline: task and job.
    pub late: Option<(usize, usize)>,
    /// End with that job.
    pub stop_when_late: bool,
    /// When the second ends whose best effort is counted, u64::MAX: none is; what best effort had before it, ns.
    second: (u64, u64),
}

/// More events than this, 40 bytes each, are a mistake rather than a trace.
const EVENTS_MOST: usize = 20_000_000;

impl Engine {
    /// A simulation of `loads` on `core`, whose task `i` has load `i`; all tasks sleep.
    pub fn new(
        core: Core,
        cpus: u32,
        loads: Vec<Load>,
        overheads: Overheads,
        detail: Detail,
    ) -> Self {
        let tasks: Vec<Task> = loads
            .into_iter()
            .enumerate()
            .map(|(i, load)| (i, Work::new(load)))
            .map(|(i, work)| Task {
                best_effort: !core.reserved(i) || work.kind != Kind::Jobs,
                special: None,
                release: work.release(0),
                due: work.due(work.release(0)),
                work,
                job: 0,
                remaining: 0,
                executed: 0,
                cpu: 0,
                preemptions: 0,
                migrations: 0,
                ran_before: false,
                woke: u64::MAX,
            })
            .collect();
        let mut releases = Releases::new(tasks.len());
        for (i, t) in tasks.iter().enumerate() {
            if t.work.kind == Kind::Endless || t.work.jobs() > 0 {
                releases.set(i, t.wakes(i, overheads.wake));
            }
        }
        let has_jobs = |t: &&Task| t.work.kind == Kind::Jobs && t.work.jobs() > 0;
        let unfinished = tasks.iter().filter(has_jobs).count();
        let counted = tasks.iter().any(|t| t.work.kind != Kind::Jobs) && detail != Detail::Counters;
        let second = (if counted { SEC } else { u64::MAX }, 0);
        let idle = Cpu {
            task: NOBODY,
            start: 0,
            switch: u64::MAX,
            again: false,
            finish: u64::MAX,
            slice: u64::MAX,
        };
        Engine {
            core,
            tasks,
            cpus: vec![idle; cpus as usize],
            releases,
            special: Special::default(),
            overheads,
            detail,
            events: Record::default(),
            now: 0,
            unfinished,
            completed: 0,
            late: None,
            stop_when_late: false,
            second,
        }
    }

    /// Runs until no job is left, at least until `least`, at most until `most`. Returns when.
    pub fn run(&mut self, least: u64, most: u64) -> u64 {
        self.run_into(least, most, None)
    }

    /// The same; of [`Detail::Jobs`], events are passed on as they come, and not kept: to `take`, if it is there.
    pub fn run_into(
        &mut self,
        least: u64,
        most: u64,
        mut take: Option<&mut dyn FnMut(&Event)>,
    ) -> u64 {
        while self.events.len() <= EVENTS_MOST {
            let due = self.due();
            let cpus = due.switch.min(due.finish).min(due.timer);
            let next = self.core.alarm_at().min(self.releases.next()).min(cpus);
            let next = next.min(self.special.next_abort());
            if next >= most
                || next.max(self.now) > least && self.unfinished == 0
                || self.stop_when_late && self.late.is_some()
                || self.special.deadlock.is_some()
            {
                break;
            }
            let next = next.max(self.now);
            if next > self.second.0 {
                self.seconds(next);
            }
            self.now = next;
            self.step(&due);
            if self.core.nearly_full() || self.detail == Detail::Jobs && self.events.batched() {
                match &mut take {
                    Some(take) => self.events.pass(take),
                    None => self.events.take(|events| self.core.drain(events)),
                }
            }
        }
        if self.special.deadlock.is_none() {
            let end = if self.unfinished == 0 { self.now.max(least) } else { most };
            self.seconds(end);
            self.now = end;
        }
        self.now
    }

    /// Notes what best effort has had in each second that ends by `until`, before which nothing else happens.
    fn seconds(&mut self, until: u64) {
        while self.second.0 <= until {
            let (end, before) = self.second;
            let others = self.tasks.iter().filter(|t| t.work.kind != Kind::Jobs);
            let done: u64 = others.map(|t| t.executed).sum();
            let runs = |c: &&Cpu| c.task != NOBODY && self.tasks[c.task].work.kind != Kind::Jobs;
            let on = self.cpus.iter().filter(runs).map(|c| end.saturating_sub(c.start));
            let had = done + on.sum::<u64>();
            let event = Event::new(end, EventKind::BestEffort, had - before, end / SEC - 1);
            self.events.push(event);
            self.second = (end + SEC, had);
        }
    }

    /// Does all that is due by now, of which the CPUs had `due` before.
    fn step(&mut self, due: &Due) {
        // Each may make more due for those after it.
        let switches = due.switch <= self.now;
        if switches {
            self.switches();
        }
        let completions = switches || due.finish <= self.now;
        if completions {
            self.completions();
        }
        if completions || due.timer <= self.now {
            self.timers();
        }
        if self.core.alarm_at() <= self.now {
            self.core.alarm(self.now);
            self.settle();
        }
        if self.special.next_abort() <= self.now {
            self.aborts();
        }
        self.wakeups();
    }

    fn due(&self) -> Due {
        let mut due = Due { switch: u64::MAX, finish: u64::MAX, timer: u64::MAX };
        for (c, of_core) in self.cpus.iter().zip(self.core.cpus()) {
            let runs = c.task != NOBODY && c.switch == u64::MAX;
            due.switch = due.switch.min(c.switch);
            due.finish = due.finish.min(c.finish);
            due.timer = due.timer.min(if runs { of_core.timer.min(c.slice) } else { u64::MAX });
        }
        due
    }

    fn switches(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].switch <= self.now {
                self.begin(cpu);
                if std::mem::take(&mut self.cpus[cpu].again) {
                    self.pick(cpu);
                }
                self.settle();
            }
        }
    }

    fn completions(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].finish <= self.now {
                self.complete(cpu);
                self.settle();
            }
        }
    }

    fn timers(&mut self) {
        for cpu in 0..self.cpus.len() {
            let c = self.cpus[cpu];
            if c.task == NOBODY || c.switch != u64::MAX {
                continue;
            }
            if self.core.timer(cpu as u32) <= self.now {
                self.core.tick(cpu as u32, self.now);
            }
            if c.slice <= self.now {
                self.pick(cpu);
            }
            self.settle();
        }
    }

    fn wakeups(&mut self) {
        while self.releases.next() <= self.now {
            let i = self.releases.first();
            self.releases.clear(i);
            if self.tasks[i].work.kind == Kind::Bursts {
                self.tasks[i].woke = self.now;
            }
            self.begin_job(i);
            if !self.waits_for_frames(i) {
                self.core.wakes(i, self.now);
                self.settle();
            }
        }
    }

    /// Carries out what the core has asked for until it asks no more.
    fn settle(&mut self) {
        while let Some(cpu) = self.core.take_kick() {
            self.pick(cpu as usize);
        }
    }

    /// Books the service that the task on `cpu` has had so far.
    fn progress(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        let ran = self.now.saturating_sub(c.start);
        if c.task == NOBODY || ran == 0 {
            return;
        }
        c.start = self.now;
        let t = &mut self.tasks[c.task];
        t.remaining -= ran.min(t.remaining);
        t.executed += ran;
        if t.best_effort {
            self.core.charge(c.task, ran);
        }
    }

    /// `cpu` asks the core what to run, as the kernel does in its dispatch callback.
    fn pick(&mut self, cpu: usize) {
        let now = self.now;
        if self.cpus[cpu].switch != u64::MAX {
            self.cpus[cpu].again = true;
            return;
        }
        self.progress(cpu);
        let prev = self.cpus[cpu].task;
        let next = self.core.pick(cpu as u32, prev, now);
        let slices = next != NOBODY && self.tasks[next].best_effort;
        let slice = if slices { self.turn_ends(now) } else { u64::MAX };
        if next == prev {
            self.cpus[cpu].slice = slice;
            return;
        }
        if prev != NOBODY {
            self.core.stop(cpu as u32, ffi::OB_STOP_PREEMPTED, now);
            self.tasks[prev].preemptions += 1;
            self.core.ready(prev, now);
        }
        self.cpus[cpu] = Cpu {
            task: next,
            start: u64::MAX,
            switch: now,
            again: false,
            finish: u64::MAX,
            slice: u64::MAX,
        };
        if next == NOBODY {
            self.cpus[cpu].switch = u64::MAX;
            return;
        }
        let t = &mut self.tasks[next];
        let mut cost = self.overheads.dispatch;
        if prev != NOBODY {
            cost += self.overheads.preemption;
        }
        if t.ran_before && t.cpu != cpu as u32 {
            t.migrations += 1;
            cost += self.overheads.migration;
        }
        t.ran_before = true;
        t.cpu = cpu as u32;
        self.cpus[cpu].switch = now + cost;
        if cost == 0 {
            self.begin(cpu);
        }
    }

    /// When a turn of best effort ends that begins `now`.
    fn turn_ends(&self, now: u64) -> u64 {
        let Overheads { tick, tick_phase, .. } = self.overheads;
        match tick {
            0 => now + SLICE,
            _ => (now + SLICE_TICKS + tick - 1 - tick_phase) / tick * tick + tick_phase,
        }
    }

    /// The task that `cpu` has changed over to begins to run: the change is nobody's service, as in
    /// the kernel, where it lies between `stopping` and `running`.
    fn begin(&mut self, cpu: usize) {
        let now = self.now;
        let turn_ends = self.turn_ends(now);
        let c = &mut self.cpus[cpu];
        let t = &self.tasks[c.task];
        let slices = t.best_effort;
        c.switch = u64::MAX;
        c.start = now;
        c.finish = now + t.remaining;
        c.slice = if slices { turn_ends } else { u64::MAX };
        self.core.run(cpu as u32, c.task, now);
        if t.woke != u64::MAX {
            self.woken(cpu);
        }
    }

    /// A job that is not done although its deadline has passed, or one that was done too late.
    pub fn missed(&self) -> Option<(usize, usize)> {
        let overdue = |(i, t): (usize, &Task)| {
            let late = t.work.kind == Kind::Jobs && t.job < t.work.jobs() && t.due < self.now;
            late.then(|| (self.task_of(i), t.job))
        };
        self.late.or_else(|| self.tasks.iter().enumerate().find_map(overdue))
    }

    /// Does something to the core now, and what follows from it.
    pub fn change(&mut self, act: impl FnOnce(&mut Core, u64)) {
        act(&mut self.core, self.now);
        self.settle();
    }

    /// The core, for a look at its state.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Whether [`EVENTS_MOST`] stopped the run.
    pub fn overflowed(&self) -> bool {
        self.events.len() > EVENTS_MOST
    }

    /// Ends the simulation: all events in order of time, and one usage event for each task.
    pub fn finish(mut self) -> Vec<Event> {
        for cpu in 0..self.cpus.len() {
            self.progress(cpu);
        }
        self.events.take(|events| self.core.drain(events));
        if self.detail != Detail::Counters {
            for i in 0..self.tasks.len() {
                self.usage(i);
            }
        }
        self.events.finish()
    }
}
