// SPDX-License-Identifier: GPL-2.0-only
//! Frames per second: one completed job is one frame.

use serde::{Deserialize, Serialize};

use super::Moments;
use super::jobs::Job;
use crate::units::SEC;

/// Frames in one second of the run, over the tasks that last through it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SecondFps {
    /// Seconds since each task's first release.
    pub second: u32,
    /// Least number of frames of any task.
    pub worst: u32,
    /// Mean over the tasks.
    pub mean: f64,
    /// Population standard deviation over the tasks.
    pub sd: f64,
    /// Number of tasks.
    pub tasks: u32,
}

/// From the task's first release to one period after its last, but not past the horizon.
pub(super) fn span(jobs: &[Job], period: u64, horizon: u64) -> Option<(u64, u64)> {
    let first = jobs.iter().map(|j| j.release).min()?;
    let last = jobs.iter().map(|j| j.release).max()?;
    let end = last.saturating_add(period).min(horizon);
    (first < end).then_some((first, end))
}

/// Puts completion times into `times`, in ascending order.
pub(super) fn completions(jobs: &[Job], times: &mut Vec<u64>) {
    times.clear();
    times.extend(jobs.iter().filter_map(Job::finish));
    if !times.is_sorted() {
        times.sort_unstable();
    }
}

/// The least number of `times` (ascending) in any window [s, s + `window`) that lies inside [`start`, `end`];
/// `None` if no window fits. Times and window in ns.
///
/// Sliding a window to the right, the count falls only where a time has just left it, so it is enough to look at
/// the first window and at those that begin right after a time.
pub fn least_in_window(times: &[u64], start: u64, end: u64, window: u64) -> Option<u32> {
    let last = end.checked_sub(window).filter(|last| *last >= start)?;
    let mut low = times.partition_point(|t| *t < start);
    let mut high = low;
    let mut from = start;
    let mut least = usize::MAX;
    loop {
        while high < times.len() && times[high] - from < window {
            high += 1;
        }
        least = least.min(high - low);
        if low == times.len() || times[low] >= last {
            return Some(u32::try_from(least).unwrap_or(u32::MAX));
        }
        from = times[low] + 1;
        while low < times.len() && times[low] < from {
            low += 1;
        }
        high = high.max(low);
    }
}

/// Seconds of a curve at most, about 28 hours: a damaged run may claim centuries.
const CURVE_LIMIT: u64 = 100_000;

/// Completions in each whole second of [start, end).
pub(super) fn by_second(times: &[u64], start: u64, end: u64) -> Vec<u32> {
    let mut counts = vec![0; ((end - start) / SEC).min(CURVE_LIMIT) as usize];
    for t in times {
        let second = t.checked_sub(start).map(|d| (d / SEC) as usize);
        if let Some(count) = second.and_then(|s| counts.get_mut(s)) {
            *count += 1;
        }
    }
    counts
}

/// Least, mean and deviation over the tasks for each second that some task lasts through.
pub(super) fn over_tasks(curves: &[Vec<u32>]) -> Vec<SecondFps> {
    let seconds = curves.iter().map(Vec::len).max().unwrap_or(0);
    (0..seconds)
        .map(|s| {
            let mut moments = Moments::default();
            let frames = || curves.iter().filter_map(|c| c.get(s).copied());
            frames().for_each(|n| moments.add(f64::from(n)));
            SecondFps {
                second: s as u32,
                worst: frames().min().unwrap_or(0),
                mean: moments.mean(),
                sd: moments.sd(),
                tasks: frames().count() as u32,
            }
        })
        .collect()
}
