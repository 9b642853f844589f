// SPDX-License-Identifier: GPL-2.0-only
//! Jobs on their way: they take and release resources, wait for them, and are given up.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::taskset::Step;

use super::special::Thread;
use super::{Detail, Engine};

impl Engine {
    fn thread(&mut self, i: usize) -> &mut Thread {
        let at = self.tasks[i].special.expect("asked only of those that have it");
        &mut self.special.threads[at as usize]
    }

    /// Something happens to thread `i`.
    pub(super) fn note(&mut self, i: usize, kind: EventKind, a: u64, b: u64) {
        if self.detail != Detail::Counters {
            let event = Event::new(self.now, kind, a, b);
            self.events.push(event.of(self.task_of(i) as u32));
        }
    }

    /// The job of thread `i` begins.
    pub(super) fn begin_steps(&mut self, i: usize) {
        let due = self.tasks[i].due;
        let thread = self.thread(i);
        (thread.next, thread.goal) = (0, 0);
        let aborts = thread.aborts;
        if aborts {
            self.special.abort_at(i, due);
        }
        self.aim(i);
    }

    /// Thread `i` has come to its goal; the next one is the next step that lies within the job, or its end.
    fn aim(&mut self, i: usize) {
        let end = self.tasks[i].work.time(self.tasks[i].job);
        let thread = self.thread(i);
        thread.done = thread.goal;
        thread.goal = thread.steps.get(thread.next).map_or(end, |step| step.at.min(end));
        self.tasks[i].remaining = thread.goal - thread.done;
    }

    /// The job of thread `i` on `cpu` has come to its goal: whether that is not its end. Then it goes on, or waits.
    pub(super) fn on_the_way(&mut self, cpu: usize, i: usize) -> bool {
        let end = self.tasks[i].work.time(self.tasks[i].job);
        let thread = self.thread(i);
        let at = thread.goal;
        if at == end {
            return false;
        }
        while let Some(step) = self.thread(i).take_step(at) {
            if !self.step_of(i, step) {
                self.aim(i);
                self.core.stop(cpu as u32, ffi::OB_STOP_SLEPT, self.now);
                self.core.sleep(i, self.now);
                self.vacate(cpu);
                return true;
            }
        }
        self.aim(i);
        self.cpus[cpu].finish = self.now + self.tasks[i].remaining;
        true
    }

    /// Thread `i`, which runs, does that: whether it need not wait.
    fn step_of(&mut self, i: usize, step: Step) -> bool {
        if !step.lock {
            self.unlock(i, step.resource);
            return true;
        }
        let (resource, job) = (step.resource as u64, self.tasks[i].job as u64);
        if self.special.locks.ask(i, step.resource) {
            self.note(i, EventKind::Lock, resource, job);
            return true;
        }
        self.note(i, EventKind::Block, resource, job);
        if self.team_of(i).is_some_and(|team| !std::mem::replace(&mut team.blocked, true)) {
            // Which of them runs when is beyond what metrics replay.
            self.note(i, EventKind::Segment, job, u64::MAX);
        }
        // Who gives up at a deadline lets the others go on.
        if let Some(circle) = self.special.locks.circle(i)
            && !circle.iter().any(|wait| self.thread(wait.thread).aborts)
        {
            self.stuck(&circle);
        }
        false
    }

    /// Thread `i` releases a resource. Who gets it then goes on.
    fn unlock(&mut self, i: usize, resource: usize) {
        self.note(i, EventKind::Unlock, resource as u64, self.tasks[i].job as u64);
        let Some(next) = self.special.locks.release(i, resource) else { return };
        let job = self.tasks[next].job as u64;
        self.note(next, EventKind::Unblock, resource as u64, job);
        self.note(next, EventKind::Lock, resource as u64, job);
        let had = self.thread(next).done;
        self.go_on(next, had);
    }

    /// Thread `i`, which has had so much of its job, wakes in the midst of it.
    fn go_on(&mut self, i: usize, had: u64) {
        if self.team_of(i).is_none() {
            self.note(i, EventKind::Segment, self.tasks[i].job as u64, had);
        }
        self.core.ready(i, self.now);
    }

    /// The job of thread `i` has ended: it holds nothing any more.
    pub(super) fn end_steps(&mut self, i: usize) {
        if self.thread(i).aborts {
            self.special.abort_at(i, u64::MAX);
        }
        if self.thread(i).steps.is_empty() {
            return;
        }
        while let Some(resource) = self.special.locks.last_held(i) {
            self.unlock(i, resource);
        }
    }

    /// Gives up all jobs that are due by now.
    pub(super) fn aborts(&mut self) {
        while self.special.next_abort() <= self.now {
            let i = self.special.first_abort();
            self.special.abort_at(i, u64::MAX);
            self.abort(i);
            self.settle();
        }
    }

    /// Gives up the job of thread `i`: it runs, waits for a CPU, or for a resource.
    fn abort(&mut self, i: usize) {
        let cpu = self.tasks[i].cpu as usize;
        let here = self.cpus[cpu].task == i;
        if here && self.cpus[cpu].switch != u64::MAX {
            // It learns that when the CPU has changed over to it.
            self.special.abort_at(i, self.cpus[cpu].switch);
            return;
        }
        if here {
            self.progress(cpu);
        }
        let left = self.tasks[i].remaining;
        let used = self.thread(i).goal - left;
        let job = self.tasks[i].job as u64;
        let shares = !self.thread(i).steps.is_empty();
        let waited = if shares { self.special.locks.leave(i) } else { None };
        self.end_job(i, here.then_some(cpu as u32), used, true);
        // After its end, so that the log says that it ended in the wait.
        if let Some(resource) = waited {
            self.note(i, EventKind::Unblock, resource as u64, job);
        }
        match (self.take_up(i), waited) {
            (true, Some(_)) => self.go_on(i, 0),
            (true, None) if here => self.cpus[cpu].finish = self.now + self.tasks[i].remaining,
            (true, None) => {}
            (false, None) if here => self.leave(cpu),
            (false, _) => {
                if self.tasks[i].work.marks {
                    // The program says so itself, and who sleeps in a lock wakes to do it.
                    self.core.ready(i, self.now);
                    self.core.mark(i, self.now);
                }
                self.sleep(i);
            }
        }
    }
}
