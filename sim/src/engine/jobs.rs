// SPDX-License-Identifier: GPL-2.0-only
//! Where a thread's jobs begin and end.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};

use super::{Detail, Engine, Task};
use crate::core::NOBODY;
use crate::load::Kind;

impl Task {
    /// When the thread of task `i` wakes for its job: at the release, or up to `most` later by what is drawn from both
    /// numbers (Fibonacci hashing).
    pub(super) fn wakes(&self, i: usize, most: u64) -> u64 {
        if most == 0 || self.work.kind != Kind::Jobs {
            return self.release;
        }
        let drawn = ((i as u64) << 32 | self.job as u64)
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            >> 32;
        self.release + drawn * (most + 1) / (1 << 32)
    }
}

impl Engine {
    /// Task `i` takes up its next job.
    pub(super) fn begin_job(&mut self, i: usize) {
        let t = &mut self.tasks[i];
        t.remaining = t.work.time(t.job);
        let (job, release, due) = (t.job, t.release, t.due);
        let noted = t.work.kind == Kind::Jobs && self.detail != Detail::Counters;
        let mut first = true;
        if t.special.is_some() {
            first = self.team_of(i).is_none_or(|team| team.begin(job));
            self.begin_steps(i);
        }
        if noted && first {
            let release = Event::new(release, EventKind::Release, job as u64, due);
            self.events.push(release.of(self.task_of(i) as u32));
        }
    }

    /// What is on `cpu` has come to a step of its job, or its job is done: on to the next one, or to sleep until that
    /// is released.
    pub(super) fn complete(&mut self, cpu: usize) {
        self.progress(cpu);
        let i = self.cpus[cpu].task;
        if self.tasks[i].special.is_some() && self.on_the_way(cpu, i) {
            return;
        }
        let used = self.tasks[i].work.time(self.tasks[i].job);
        self.end_job(i, Some(cpu as u32), used, false);
        if self.take_up(i) {
            self.cpus[cpu].finish = self.now + self.tasks[i].remaining;
        } else {
            self.leave(cpu);
        }
    }

    /// The job of task `i` ends on `cpu`, or is `aborted`, after `used` ns.
    pub(super) fn end_job(&mut self, i: usize, cpu: Option<u32>, used: u64, aborted: bool) {
        let now = self.now;
        if self.tasks[i].special.is_some() {
            self.end_steps(i);
        }
        let t = &mut self.tasks[i];
        let job = t.job;
        let late = now > t.due || aborted;
        let counts = t.work.kind == Kind::Jobs;
        t.job += 1;
        t.release = t.work.release(t.job);
        t.due = t.work.due(t.release);
        let more = t.job < t.work.jobs();
        let mut whole = Some((used, aborted));
        if t.special.is_some()
            && let Some(team) = self.team_of(i)
        {
            whole = team.end(job, used, aborted);
        }
        if !counts {
            return;
        }
        self.unfinished -= usize::from(!more);
        if late && self.late.is_none() {
            self.late = Some((self.task_of(i), job));
        }
        if self.tasks[i].special.is_some() {
            self.frame_done(i);
        }
        let Some((used, aborted)) = whole else { return };
        self.completed += u64::from(!aborted);
        if self.detail != Detail::Counters {
            let kind = if aborted { EventKind::Abort } else { EventKind::Complete };
            let event = Event::new(now, kind, job as u64, used).of(self.task_of(i) as u32);
            self.events.push(cpu.map_or(event, |cpu| event.on(cpu)));
        }
    }

    /// Whether task `i` goes on with its next job at once: there is one, released, and nothing it waits for. Its
    /// reservation sees no end of the one before unless that is marked.
    pub(super) fn take_up(&mut self, i: usize) -> bool {
        let t = &self.tasks[i];
        if t.job >= t.work.jobs() || t.release > self.now {
            return false;
        }
        if t.work.marks {
            self.core.mark(i, self.now);
        }
        self.begin_job(i);
        !self.waits_for_frames(i)
    }

    /// What runs on `cpu` has no job, and sleeps until there is one.
    pub(super) fn leave(&mut self, cpu: usize) {
        let i = self.cpus[cpu].task;
        self.core.stop(cpu as u32, ffi::OB_STOP_SLEPT, self.now);
        if self.tasks[i].work.marks {
            self.core.mark(i, self.now);
        }
        self.sleep(i);
        self.vacate(cpu);
    }

    /// Task `i`, which runs nowhere, has no job and sleeps until there is one.
    pub(super) fn sleep(&mut self, i: usize) {
        self.core.sleep(i, self.now);
        let t = &self.tasks[i];
        if t.job < t.work.jobs() && !self.blocked_by_frames(i) {
            self.releases.set(i, t.wakes(i, self.overheads.wake));
        }
    }

    /// `cpu`, on which nothing runs any more, picks again.
    pub(super) fn vacate(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        (c.task, c.finish, c.slice) = (NOBODY, u64::MAX, u64::MAX);
        self.pick(cpu);
    }

    /// The load on `cpu`, which had slept, begins to run.
    pub(super) fn woken(&mut self, cpu: usize) {
        let i = self.cpus[cpu].task;
        let woke = std::mem::replace(&mut self.tasks[i].woke, u64::MAX);
        if self.detail != Detail::Counters {
            let event = Event::new(self.now, EventKind::Wake, self.now - woke, 0);
            self.events.push(event.of(i as u32).on(cpu as u32));
        }
    }
}
