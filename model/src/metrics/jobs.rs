// SPDX-License-Identifier: GPL-2.0-only
//! Jobs from release and completion events.

use crate::event::{Event, EventKind};

/// One released job, times in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub index: u64,
    pub release: u64,
    pub deadline: u64,
    pub finish: Option<u64>,
    /// CPU time it took, once it has finished.
    pub used: u64,
}

/// Jobs of each task by index, and the number of events that fit nowhere.
pub(super) fn collect(events: &[Event], tasks: usize) -> (Vec<Vec<Job>>, u64) {
    let mut jobs: Vec<Vec<Job>> = vec![Vec::new(); tasks];
    let mut anomalies = 0;
    for e in events.iter().filter(|e| e.kind() == Some(EventKind::Release)) {
        match jobs.get_mut(e.task as usize) {
            Some(list) => {
                list.push(Job {
                    index: e.a,
                    release: e.time,
                    deadline: e.b,
                    finish: None,
                    used: 0,
                });
            }
            None => anomalies += 1,
        }
    }
    for list in &mut jobs {
        if !list.is_sorted_by(|x, y| x.index < y.index) {
            list.sort_by_key(|j| j.index); // stable: the first release of an index stays first
            let before = list.len();
            list.dedup_by_key(|j| j.index);
            anomalies += (before - list.len()) as u64;
        }
    }
    for e in events.iter().filter(|e| e.kind() == Some(EventKind::Complete)) {
        let job = jobs.get_mut(e.task as usize).and_then(|list| find(list, e.a));
        match job {
            Some(job) if job.finish.is_none() && e.time >= job.release => {
                (job.finish, job.used) = (Some(e.time), e.b);
            }
            _ => anomalies += 1,
        }
    }
    (jobs, anomalies)
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
