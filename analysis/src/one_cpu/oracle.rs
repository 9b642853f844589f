// SPDX-License-Identifier: GPL-2.0-only
//! What the tests are tested by: unit steps of time, one job at a time, for parameters so small that this is quick.

use num_rational::BigRational;
use num_traits::One;
use proptest::prelude::*;

use crate::sporadic::{Sporadic, utilization};

/// One to four tasks with a common multiple of periods of at most 60 and deadlines around their periods.
pub fn few_tasks() -> impl Strategy<Value = Vec<Sporadic>> {
    let task = (prop::sample::select(vec![2u64, 3, 4, 5, 6, 10, 12]), 1u64..=4, -3i64..=4);
    let task = task.prop_map(|(period, wcet, more)| Sporadic {
        wcet: wcet.min(period),
        deadline: (period as i64 + more).max(1) as u64,
        period,
    });
    prop::collection::vec(task, 1..=4)
}

/// The first of such tasks that ask for no more than the CPU has.
pub fn few_that_fit() -> impl Strategy<Value = Vec<Sporadic>> {
    few_tasks().prop_map(|mut tasks| {
        while utilization(&tasks) > BigRational::one() {
            tasks.pop();
        }
        tasks
    })
}

struct Job {
    task: usize,
    release: u64,
    left: u64,
}

fn common_multiple(tasks: &[Sporadic]) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    tasks.iter().fold(1, |all, task| all / gcd(all, task.period) * task.period)
}

/// Longest response of each task when task i releases jobs from `offsets[i]` on as fast as it may, until `end`; a job
/// that has not ended by then counts with the least its response can be. `key` orders jobs: (task, release).
pub fn longest_responses(
    tasks: &[Sporadic],
    offsets: &[u64],
    end: u64,
    key: impl Fn(usize, u64) -> u64,
) -> Vec<u64> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut longest = vec![0; tasks.len()];
    for now in 0..end {
        for (i, task) in tasks.iter().enumerate() {
            if now >= offsets[i] && (now - offsets[i]).is_multiple_of(task.period) {
                jobs.push(Job { task: i, release: now, left: task.wcet });
            }
        }
        // The first of equals: jobs of one task are in the order of their releases.
        let next = (0..jobs.len()).min_by_key(|j| (key(jobs[*j].task, jobs[*j].release), *j));
        if let Some(j) = next {
            jobs[j].left -= 1;
            if jobs[j].left == 0 {
                let job = jobs.remove(j);
                longest[job.task] = longest[job.task].max(now + 1 - job.release);
            }
        }
    }
    for job in jobs {
        longest[job.task] = longest[job.task].max(end - job.release + job.left);
    }
    longest
}

/// Whether EDF misses nothing after a synchronous release: the worst case for feasibility (Baruah et al. 1990).
pub fn edf_without_misses(tasks: &[Sporadic]) -> bool {
    let used: u64 = tasks.iter().map(|t| t.wcet * (common_multiple(tasks) / t.period)).sum();
    if used > common_multiple(tasks) {
        return false;
    }
    let end = 2 * common_multiple(tasks) + tasks.iter().map(|t| t.deadline).max().unwrap_or(0);
    let key = |i: usize, release| release + tasks[i].deadline;
    let longest = longest_responses(tasks, &vec![0; tasks.len()], end, key);
    longest.iter().zip(tasks).all(|(time, task)| *time <= task.deadline)
}

/// Longest responses under EDF over some offsets of each task.
pub fn edf_response_times(tasks: &[Sporadic]) -> Vec<u64> {
    let mut longest = vec![0; tasks.len()];
    let end = 3 * common_multiple(tasks) + 40;
    let key = |i: usize, release| release + tasks[i].deadline;
    for step in 0..24u64 {
        let offsets: Vec<u64> = (0..tasks.len() as u64)
            .map(|i| (step * (2 * i + 1) / (i + 1)) % tasks[i as usize].period)
            .collect();
        let all = longest_responses(tasks, &offsets, end, key);
        longest.iter_mut().zip(all).for_each(|(most, time)| *most = time.max(*most));
    }
    longest
}

/// Longest responses under fixed priorities, the most important first, after a synchronous release: the critical
/// instant (Liu and Layland 1973, theorem 1).
pub fn fixed_response_times(tasks: &[Sporadic]) -> Vec<u64> {
    let end = 2 * common_multiple(tasks) + 200;
    longest_responses(tasks, &vec![0; tasks.len()], end, |i, _| i as u64)
}
