// SPDX-License-Identifier: GPL-2.0-only
//! What the tests are tested by: global scheduling in steps of one unit, and all legal releases of a few short tasks.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::sporadic::Sporadic;

/// Two to six tasks with deadlines up to 3 before the ends of their periods.
pub fn sets() -> impl Strategy<Value = Vec<Sporadic>> {
    tasks_with(-3..=0, 2..=6)
}

/// The same with deadlines on both sides of the ends of periods.
pub fn sets_around() -> impl Strategy<Value = Vec<Sporadic>> {
    tasks_with(-3..=6, 2..=6)
}

/// Two to seven tasks with deadlines anywhere between execution time and period.
pub fn early() -> impl Strategy<Value = Vec<Sporadic>> {
    let task = (2u64..=12, 1u64..=12, 0u64..=11).prop_map(|(period, wcet, more)| {
        let wcet = wcet.min(period / 2).max(1);
        Sporadic { wcet, deadline: (wcet + more).min(period), period }
    });
    prop::collection::vec(task, 2..=7)
}

fn tasks_with(
    more: std::ops::RangeInclusive<i64>,
    n: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Sporadic>> {
    let task = (prop::sample::select(vec![3u64, 4, 5, 6, 8, 10]), 1u64..=6, more);
    let task = task.prop_map(|(period, wcet, more)| Sporadic {
        wcet: wcet.min(period),
        deadline: (period as i64 + more).max(1) as u64,
        period,
    });
    prop::collection::vec(task, n)
}

/// Three or four tasks so short that all their releases can be gone through.
pub fn tiny() -> impl Strategy<Value = Vec<Sporadic>> {
    let task = (2u64..=5, 1u64..=3, 0u64..=2).prop_map(|(period, wcet, less)| {
        let wcet = wcet.min(period);
        Sporadic { wcet, deadline: (period - less.min(period)).max(wcet), period }
    });
    prop::collection::vec(task, 3..=4)
}

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Releases and execution times of each task.
pub type Jobs = Vec<Vec<(u64, u64)>>;

/// All at 0, as fast and as long as they may.
pub fn synchronous(tasks: &[Sporadic], end: u64) -> Jobs {
    let of = |t: &Sporadic| (0..end).step_by(t.period as usize).map(|r| (r, t.wcet)).collect();
    tasks.iter().map(of).collect()
}

/// From random offsets, some later and some shorter than they may be.
pub fn sporadic(tasks: &[Sporadic], end: u64, seed: u64) -> Jobs {
    let mut dice = Dice(seed);
    let late = [0, 8, 3][dice.below(3) as usize];
    let short = [0, 6][dice.below(2) as usize];
    let mut of = |task: &Sporadic| {
        let (mut all, mut release) = (Vec::new(), dice.below(12));
        while release < end {
            let less = if short > 0 && dice.below(short) == 0 { dice.below(task.wcet) } else { 0 };
            all.push((release, task.wcet - less));
            let gap = if late > 0 && dice.below(late) == 0 { dice.below(4) } else { 0 };
            release += task.period + gap;
        }
        all
    };
    tasks.iter().map(&mut of).collect()
}

/// Longest response of each task on as many CPUs as `cpus` tells of the time; jobs that have not ended count with
/// the least that theirs can be. The smallest `key` of (task, release) comes first, then the first task.
pub fn responses(
    jobs: &Jobs,
    cpus: impl Fn(u64) -> usize,
    key: impl Fn(usize, u64) -> i64,
    end: u64,
) -> Vec<u64> {
    by_state(jobs, cpus, |i, release, _, _| key(i, release), end)
}

/// The same where the key depends on what is left and on the time, too.
pub fn by_state(
    jobs: &Jobs,
    cpus: impl Fn(u64) -> usize,
    key: impl Fn(usize, u64, u64, u64) -> i64,
    end: u64,
) -> Vec<u64> {
    let mut next = vec![0; jobs.len()];
    let mut pending: Vec<(i64, usize, u64, u64)> = Vec::new(); // key, task, release, left
    let mut longest = vec![0; jobs.len()];
    let mut running = Vec::new();
    for now in 0..end {
        for (i, jobs) in jobs.iter().enumerate() {
            while next[i] < jobs.len() && jobs[next[i]].0 <= now {
                let (release, wcet) = jobs[next[i]];
                pending.push((0, i, release, wcet));
                next[i] += 1;
            }
        }
        pending.iter_mut().for_each(|job| job.0 = key(job.1, job.2, job.3, now));
        pending.sort_unstable();
        running.clear();
        let cpus = cpus(now);
        for job in &mut pending {
            // One CPU for a task at a time: its earlier job first.
            if running.len() < cpus && !running.contains(&job.1) {
                running.push(job.1);
                job.3 -= 1;
                if job.3 == 0 {
                    longest[job.1] = longest[job.1].max(now + 1 - job.2);
                }
            }
        }
        pending.retain(|job| job.3 > 0);
    }
    for (_, task, release, left) in pending {
        longest[task] = longest[task].max(end - release + left);
    }
    longest
}

/// Whether some legal releases make a job late: a search of all states that can be reached. Deadlines within
/// periods, execution times up to 15, periods up to 15; `key` is of (task, time to its deadline). `None` for too many
/// states.
pub fn misses(
    tasks: &[Sporadic],
    cpus: usize,
    key: impl Fn(usize, u64) -> u64,
    most: usize,
) -> Option<bool> {
    // Of each task: time since its release, up to its period, and what is left of its job.
    let start: Vec<(u64, u64)> = tasks.iter().map(|task| (task.period, 0)).collect();
    let pack = |state: &[(u64, u64)]| state.iter().fold(0u64, |sum, s| sum << 8 | s.0 << 4 | s.1);
    let mut seen = HashSet::from([pack(&start)]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let ready =
            (0..tasks.len()).filter(|i| state[*i].0 == tasks[*i].period).collect::<Vec<_>>();
        for chosen in 0..1u32 << ready.len() {
            let mut state = state.clone();
            for (bit, i) in ready.iter().enumerate() {
                if chosen >> bit & 1 == 1 {
                    state[*i] = (0, tasks[*i].wcet);
                }
            }
            let mut order: Vec<usize> = (0..tasks.len()).filter(|i| state[*i].1 > 0).collect();
            order.sort_by_key(|i| key(*i, tasks[*i].deadline - state[*i].0));
            for i in order.into_iter().take(cpus) {
                state[i].1 -= 1;
            }
            for (i, task) in tasks.iter().enumerate() {
                state[i].0 = (state[i].0 + 1).min(task.period);
                if state[i].1 > 0 && state[i].0 >= task.deadline {
                    return Some(true);
                }
            }
            if seen.len() > most {
                return None;
            }
            if seen.insert(pack(&state)) {
                open.push(state);
            }
        }
    }
    Some(false)
}
