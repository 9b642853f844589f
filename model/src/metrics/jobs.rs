// SPDX-License-Identifier: GPL-2.0-only
//! Jobs from release and completion events.

use crate::event::{Event, EventKind};

/// One released job, times in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub index: u64,
    pub release: u64,
    pub deadline: u64,
    /// When it finished or was given up; u64::MAX: it was not.
    end: u64,
    /// CPU time it took, once it has ended.
    pub used: u64,
    /// It was given up at its end.
    pub aborted: bool,
    /// It waits for a resource, or did so when it was given up.
    pub waits: bool,
}

/// A task went on in the midst of a job, after it had slept for a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub job: u64,
    pub time: u64,
    /// CPU time the job had had before; u64::MAX: not known.
    pub used: u64,
}

/// What the jobs of one task were.
#[derive(Default)]
pub(super) struct Jobs {
    /// By index.
    pub jobs: Vec<Job>,
    /// In the order of time.
    pub segments: Vec<Segment>,
}

/// Jobs of each task by index, and the number of events that fit nowhere.
pub(super) fn collect(events: &[Event], tasks: usize) -> (Vec<Jobs>, u64) {
    let mut collector = Collector::new(tasks);
    events.iter().for_each(|e| collector.take(e));
    collector.finish()
}

/// Jobs, event by event. A completion may stand before its release, and releases in any order.
pub(super) struct Collector {
    tasks: Vec<Task>,
    /// Completions that are looked at when all releases are known.
    later: Vec<Event>,
    anomalies: u64,
}

#[derive(Default)]
struct Task {
    all: Jobs,
    /// Its jobs came in ascending order of index so far.
    in_order: bool,
    /// One of its completions is among the later ones, so all that follow are.
    later: bool,
}

impl Collector {
    pub fn new(tasks: usize) -> Self {
        let task = || Task { in_order: true, ..Task::default() };
        Self { tasks: (0..tasks).map(|_| task()).collect(), later: Vec::new(), anomalies: 0 }
    }

    pub fn take(&mut self, e: &Event) {
        const RELEASE: u32 = EventKind::Release as u32;
        const COMPLETE: u32 = EventKind::Complete as u32;
        const SEGMENT: u32 = EventKind::Segment as u32;
        const ABORT: u32 = EventKind::Abort as u32;
        const BLOCK: u32 = EventKind::Block as u32;
        const UNBLOCK: u32 = EventKind::Unblock as u32;
        if !matches!(e.kind, RELEASE | COMPLETE | BLOCK | UNBLOCK | SEGMENT | ABORT) {
            return;
        }
        let Some(task) = self.tasks.get_mut(e.task as usize) else {
            self.anomalies += 1;
            return;
        };
        if e.kind == RELEASE {
            let jobs = &mut task.all.jobs;
            task.in_order &= jobs.last().is_none_or(|last| last.index < e.a);
            jobs.push(Job {
                index: e.a,
                release: e.time,
                deadline: e.b,
                end: u64::MAX,
                used: 0,
                aborted: false,
                waits: false,
            });
            return;
        }
        if e.kind == BLOCK || e.kind == UNBLOCK {
            let job = find(&mut task.all.jobs, e.b).filter(|_| task.in_order);
            if let Some(job) = job.filter(|job| job.ended().is_none()) {
                job.waits = e.kind == BLOCK;
            }
            return;
        }
        if e.kind == SEGMENT {
            task.all.segments.push(Segment { job: e.a, time: e.time, used: e.b });
            return;
        }
        match find(&mut task.all.jobs, e.a).filter(|_| task.in_order && !task.later) {
            Some(job) => self.anomalies += u64::from(!job.complete(e)),
            None => {
                task.later = true;
                self.later.push(*e);
            }
        }
    }

    pub fn finish(mut self) -> (Vec<Jobs>, u64) {
        for task in self.tasks.iter_mut().filter(|task| !task.in_order) {
            let jobs = &mut task.all.jobs;
            jobs.sort_by_key(|j| j.index); // stable: the first release of an index stays first
            let before = jobs.len();
            jobs.dedup_by_key(|j| j.index);
            self.anomalies += (before - jobs.len()) as u64;
        }
        for e in &self.later {
            let job = find(&mut self.tasks[e.task as usize].all.jobs, e.a);
            self.anomalies += u64::from(!job.is_some_and(|job| job.complete(e)));
        }
        (self.tasks.into_iter().map(|task| task.all).collect(), self.anomalies)
    }
}

impl Job {
    /// When it finished, if it did.
    pub fn finish(&self) -> Option<u64> {
        self.ended().filter(|_| !self.aborted)
    }

    /// When it finished or was given up.
    pub fn ended(&self) -> Option<u64> {
        (self.end != u64::MAX).then_some(self.end)
    }

    /// Notes the completion, or that it is given up, unless it contradicts what is known.
    fn complete(&mut self, e: &Event) -> bool {
        let fits = self.end == u64::MAX && e.time >= self.release;
        if fits {
            (self.end, self.used) = (e.time, e.b);
            self.aborted = e.kind == EventKind::Abort as u32;
        }
        fits
    }
}

/// The job with that index; at once where indices have no gaps.
fn find(jobs: &mut [Job], index: u64) -> Option<&mut Job> {
    let guess = usize::try_from(index.checked_sub(jobs.first()?.index)?).ok()?;
    let at = match jobs.get(guess) {
        Some(job) if job.index == index => guess,
        _ => jobs.binary_search_by_key(&index, |j| j.index).ok()?,
    };
    Some(&mut jobs[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_job_is_the_first_release_of_its_index_and_the_first_completion_that_is_not_before_it(
            raw in proptest::collection::vec((any::<bool>(), 0u32..3, 0u64..6, 0u64..20), 0..40),
        ) {
            let mut events: Vec<Event> = Vec::new();
            for (released, task, index, time) in raw {
                let kind = if released { EventKind::Release } else { EventKind::Complete };
                events.push(Event::new(time, kind, index, 1).of(task));
            }
            let (jobs, anomalies) = collect(&events, 2);
            let mut used = 0;
            for task in 0..2 {
                let of = |kind, index| {
                    events.iter().filter(move |e| (e.task, e.kind(), e.a) == (task, Some(kind), index))
                };
                let mut expected = Vec::new();
                for index in 0..6 {
                    let Some(release) = of(EventKind::Release, index).next() else { continue };
                    let mut ends = of(EventKind::Complete, index).map(|e| e.time);
                    expected.push((index, release.time, ends.find(|end| *end >= release.time)));
                    used += 1 + u64::from(expected.last().is_some_and(|job| job.2.is_some()));
                }
                let found: Vec<_> =
                    jobs[task as usize].jobs.iter().map(|j| (j.index, j.release, j.finish())).collect();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(anomalies, events.len() as u64 - used);
        }
    }
}
