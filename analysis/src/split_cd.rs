// SPDX-License-Identifier: GPL-2.0-only
//! Semi-partitioned EDF by C=D splitting: the first parts of a task that fits no CPU whole get their execution times as
//! deadlines, so they run at once and leave the last part the longest window there is.
//!
//! Source: Burns, Davis, Wang and Zhang 2012.

use crate::one_cpu::edf::qpa;
use crate::semi::{Plan, Share};
use crate::sporadic::{Sporadic, Verdict};

fn takes(cpu: &[Sporadic], task: Sporadic) -> bool {
    let mut with = Vec::with_capacity(cpu.len() + 1);
    with.extend_from_slice(cpu);
    with.push(task);
    qpa(&with) == Verdict::Schedulable
}

/// The largest c, less than the task's execution time, for which `cpu` takes (c, c, T).
///
/// Less fits where more does (Burns et al. 2012, section 3.2): the (j + 1)-th deadline c + jT moves by one with c, the
/// demand there by j + 1.
fn most(cpu: &[Sporadic], task: &Sporadic) -> u64 {
    let (mut low, mut high) = (0, task.wcet);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if takes(cpu, Sporadic { wcet: middle, deadline: middle, period: task.period }) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Assigns and splits, or names the first task that does not fit. Tasks are taken as they stand, whole by first fit;
/// what fits nowhere leaves on each CPU in turn as much as this takes, until one takes the rest whole. Deadlines within
/// periods.
pub fn edf_cd(tasks: &[Sporadic], cpus: usize) -> Result<Plan, usize> {
    let mut all: Vec<Vec<Sporadic>> = vec![Vec::new(); cpus];
    let mut plan = Plan::with_capacity(tasks.len());
    for (i, task) in tasks.iter().enumerate() {
        if task.wcet > task.deadline || task.deadline > task.period {
            return Err(i);
        }
        let shares = match (0..cpus).find(|cpu| takes(&all[*cpu], *task)) {
            Some(cpu) => vec![Share { cpu, wcet: task.wcet, begin: 0, window: task.deadline }],
            None => split(&all, *task).ok_or(i)?,
        };
        for s in &shares {
            all[s.cpu].push(Sporadic { wcet: s.wcet, deadline: s.window, period: task.period });
        }
        plan.push(shares);
    }
    Ok(plan)
}

/// The parts of a task that no CPU takes whole.
fn split(all: &[Vec<Sporadic>], mut rest: Sporadic) -> Option<Vec<Share>> {
    let whole = rest.deadline;
    let mut shares: Vec<Share> = Vec::new();
    for (cpu, taken) in all.iter().enumerate() {
        let wcet = most(taken, &rest);
        if wcet == 0 {
            continue;
        }
        shares.push(Share { cpu, wcet, begin: whole - rest.deadline, window: wcet });
        rest.wcet -= wcet;
        rest.deadline -= wcet;
        let free = |cpu: &usize| shares.iter().all(|share| share.cpu != *cpu);
        if let Some(cpu) = (0..all.len()).filter(free).find(|cpu| takes(&all[*cpu], rest)) {
            let begin = whole - rest.deadline;
            shares.push(Share { cpu, wcet: rest.wcet, begin, window: rest.deadline });
            return Some(shares);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::oracle::{Jobs, responses, sets, sporadic, synchronous};
    use crate::partition::{Local, Packing, partition};
    use proptest::prelude::*;

    #[test]
    fn three_tasks_of_two_thirds_fill_two_cpus_when_one_is_split() {
        let tasks = vec![Sporadic::implicit(20, 30); 3];
        let plan = edf_cd(&tasks, 2).unwrap();
        let first = Share { cpu: 0, wcet: 10, begin: 0, window: 10 };
        assert_eq!(plan[2], [first, Share { cpu: 1, wcet: 10, begin: 10, window: 20 }]);
        let more = [tasks[0], tasks[0], Sporadic::implicit(21, 30)];
        assert_eq!(edf_cd(&more, 2), Err(2));
    }

    /// Each CPU by steps of one unit, every share released when its window begins.
    fn holds(plan: &Plan, cpus: usize, jobs: &Jobs, end: u64) -> bool {
        (0..cpus).all(|cpu| {
            let (mut here, mut windows) = (Jobs::new(), Vec::new());
            for (shares, jobs) in plan.iter().zip(jobs) {
                for s in shares.iter().filter(|share| share.cpu == cpu) {
                    here.push(jobs.iter().map(|(r, _)| (r + s.begin, s.wcet)).collect());
                    windows.push(s.window);
                }
            }
            let key = |i: usize, release| (release + windows[i]) as i64;
            let seen = responses(&here, |_| 1, key, end);
            seen.iter().zip(&windows).all(|(response, window)| response <= window)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn plans_give_every_task_its_time_and_every_share_is_done_in_its_window(
            tasks in sets(), cpus in 2usize..=4, seed: u64,
        ) {
            if let Ok(plan) = edf_cd(&tasks, cpus) {
                for (task, shares) in tasks.iter().zip(&plan) {
                    prop_assert_eq!(shares.iter().map(|s| s.wcet).sum::<u64>(), task.wcet);
                    // Windows follow each other, each on its own CPU, and end with the deadline.
                    let mut seen: Vec<_> = shares.iter().map(|s| s.cpu).collect();
                    seen.sort_unstable();
                    seen.dedup();
                    prop_assert_eq!(seen.len(), shares.len());
                    let mut ends = shares.iter().map(|s| s.begin + s.window);
                    prop_assert!(ends.clone().zip(shares.iter().skip(1)).all(|(end, s)| end == s.begin));
                    prop_assert_eq!(ends.next_back(), Some(task.deadline));
                }
                prop_assert!(holds(&plan, cpus, &synchronous(&tasks, 200), 250));
                prop_assert!(holds(&plan, cpus, &sporadic(&tasks, 200, seed), 250));
            }
        }

        #[test]
        fn what_first_fit_places_whole_is_taken(tasks in sets(), cpus in 1usize..=4) {
            if partition(&tasks, cpus, Local::Edf, Packing::First, false).is_ok() {
                prop_assert!(edf_cd(&tasks, cpus).is_ok_and(|plan| plan.iter().all(|s| s.len() == 1)));
            }
        }

        #[test]
        fn no_share_that_is_larger_fits(tasks in sets(), task in sets()) {
            // Halving finds the last only if less always fits where more does.
            let here: Vec<_> = tasks.into_iter().take(2).collect();
            if qpa(&here) == Verdict::Schedulable {
                let fits = |c| takes(&here, Sporadic { wcet: c, deadline: c, period: task[0].period });
                let last = (1..task[0].wcet).filter(|c| fits(*c)).max().unwrap_or(0);
                prop_assert_eq!(most(&here, &task[0]), last);
            }
        }
    }
}
