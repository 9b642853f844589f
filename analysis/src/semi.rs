// SPDX-License-Identifier: GPL-2.0-only
//! Semi-partitioned scheduling with window migration: EDF-WM, and EDF-WMR's worst fit.
//!
//! A task that fits no CPU whole is split over n of them. Its deadline is cut into n windows of D/n; in window k its job
//! runs on the k-th of these CPUs for at most its share there. To that CPU the share is a sporadic task (C′, D/n, T), so each
//! CPU is tested by itself, exactly.
//!
//! Source: Kato, Yamasaki and Ishikawa 2009 (EDF-WM); worst fit as in Kato, Ishikawa and Rajkumar's EDF-WMR (paper 000, section 4.2).

use num_rational::BigRational;
use num_traits::Zero;

use crate::one_cpu::edf;
use crate::partition::Packing;
use crate::sporadic::{Sporadic, Verdict};

/// Part of a task on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Where.
    pub cpu: usize,
    /// Execution time it may take there.
    pub wcet: u64,
    /// Begin of its window after the job's release.
    pub begin: u64,
    /// Length of its window.
    pub window: u64,
}

/// The shares of each task, in the order of their windows; one for a task that is not split.
pub type Plan = Vec<Vec<Share>>;

struct Cpu {
    used: BigRational,
    tasks: Vec<Sporadic>,
}

impl Cpu {
    fn takes(&self, task: Sporadic) -> bool {
        let mut with = self.tasks.clone();
        with.push(task);
        edf::qpa(&with) == Verdict::Schedulable
    }

    fn put(&mut self, task: Sporadic) {
        self.used += task.utilization();
        self.tasks.push(task);
    }

    /// The largest share of `task`, at most its execution time, that this CPU takes in a window.
    fn most(&self, task: &Sporadic, window: u64) -> u64 {
        let fits = |wcet| self.takes(Sporadic { wcet, deadline: window, period: task.period });
        // What fits grows smaller: halving finds the last that does.
        let (mut low, mut high) = (0, task.wcet.min(window) + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Assigns and splits, or names the first task that does not fit. Deadlines within periods: a job's windows then never meet
/// its successor's. `fit` is [`Packing::First`] for EDF-WM and [`Packing::Worst`] for EDF-WMR; others count as first.
///
/// Tasks are taken as they stand. For n = 2, 3, … the n largest shares are taken if they add up to the execution time; the last is
/// cut to what is missing.
pub fn edf_wm(tasks: &[Sporadic], cpus: usize, fit: Packing) -> Result<Plan, usize> {
    let mut all: Vec<Cpu> =
        (0..cpus).map(|_| Cpu { used: BigRational::zero(), tasks: Vec::new() }).collect();
    let mut plan = Plan::new();
    for (i, task) in tasks.iter().enumerate() {
        if task.deadline > task.period {
            return Err(i);
        }
        let mut order: Vec<usize> = (0..cpus).collect();
        if fit == Packing::Worst {
            order.sort_by(|a, b| all[*a].used.cmp(&all[*b].used));
        }
        let shares = match order.iter().find(|cpu| all[**cpu].takes(*task)) {
            Some(cpu) => {
                vec![Share { cpu: *cpu, wcet: task.wcet, begin: 0, window: task.deadline }]
            }
            None => (2..=cpus).find_map(|n| split(&all, task, n)).ok_or(i)?,
        };
        for share in &shares {
            all[share.cpu].put(Sporadic {
                wcet: share.wcet,
                deadline: share.window,
                period: task.period,
            });
        }
        plan.push(shares);
    }
    Ok(plan)
}

fn split(all: &[Cpu], task: &Sporadic, n: usize) -> Option<Vec<Share>> {
    // Rounded down: a shorter window is the safe side.
    let window = task.deadline / n as u64;
    let mut most: Vec<(u64, usize)> =
        all.iter().enumerate().map(|(i, cpu)| (cpu.most(task, window), i)).collect();
    // The largest first, of equals the first CPU.
    most.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut left = task.wcet;
    let mut shares = Vec::new();
    for (share, cpu) in most.into_iter().take(n) {
        let wcet = share.min(left);
        if wcet == 0 {
            break;
        }
        shares.push(Share { cpu, wcet, begin: shares.len() as u64 * window, window });
        left -= wcet;
    }
    (left == 0).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Local, partition};
    use proptest::prelude::*;

    fn of(list: &[(u64, u64)]) -> Vec<Sporadic> {
        list.iter().map(|(c, t)| Sporadic::implicit(*c, *t)).collect()
    }

    #[test]
    fn three_tasks_of_two_thirds_fill_two_cpus_when_one_is_split() {
        let tasks = of(&[(20, 30); 3]);
        assert!(partition(&tasks, 2, Local::Edf, Packing::First, true).is_err());
        let plan = edf_wm(&tasks, 2, Packing::First).unwrap();
        // On each CPU 20 of 30 are taken: a half of the third task fits its half of the period.
        let part = |cpu, begin| Share { cpu, wcet: 10, begin, window: 15 };
        assert_eq!(plan[2], [part(0, 0), part(1, 15)]);
        assert_eq!(edf_wm(&of(&[(20, 30), (20, 30), (21, 30)]), 2, Packing::First), Err(2));
    }

    #[test]
    fn six_reservations_of_61_per_cent_fit_four_cpus_only_when_split() {
        let tasks = of(&[(25_000, 41_000); 6]);
        assert!(partition(&tasks, 4, Local::Edf, Packing::First, true).is_err());
        // Two of six are split; whether the paper's windows have room for both, the exact test tells.
        let five = edf_wm(&tasks[..5], 4, Packing::Worst).unwrap();
        assert!(five[..4].iter().all(|shares| shares.len() == 1));
        assert!(five[4].len() > 1);
    }

    /// Every share is done in its window when all jobs take their whole budgets: each CPU by steps of one unit.
    fn holds(tasks: &[Sporadic], plan: &Plan, cpus: usize, offsets: &[u64], end: u64) -> bool {
        for cpu in 0..cpus {
            let mut jobs: Vec<(u64, u64)> = Vec::new(); // deadline, left
            for now in 0..end {
                for (i, task) in tasks.iter().enumerate() {
                    for share in plan[i].iter().filter(|share| share.cpu == cpu) {
                        let first = offsets[i] + share.begin;
                        if now >= first && (now - first).is_multiple_of(task.period) {
                            jobs.push((now + share.window, share.wcet));
                        }
                    }
                }
                jobs.sort_unstable();
                if jobs.first().is_some_and(|(deadline, _)| *deadline <= now) {
                    return false;
                }
                if let Some(job) = jobs.first_mut() {
                    job.1 -= 1;
                }
                jobs.retain(|job| job.1 > 0);
            }
        }
        true
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn plans_give_every_task_its_time_and_every_share_is_done_in_its_window(
            tasks in prop::collection::vec((prop::sample::select(vec![6u64, 8, 12, 24]), 1u64..=20), 2..=7),
            cpus in 2usize..=4, worst: bool, offsets in prop::collection::vec(0u64..24, 7),
        ) {
            let tasks: Vec<_> = tasks.iter().map(|(t, c)| Sporadic::implicit((*c).min(*t), *t)).collect();
            let fit = if worst { Packing::Worst } else { Packing::First };
            if let Ok(plan) = edf_wm(&tasks, cpus, fit) {
                for (task, shares) in tasks.iter().zip(&plan) {
                    prop_assert_eq!(shares.iter().map(|s| s.wcet).sum::<u64>(), task.wcet);
                    let mut seen: Vec<_> = shares.iter().map(|s| s.cpu).collect();
                    seen.dedup();
                    prop_assert_eq!(seen.len(), shares.len());
                }
                prop_assert!(holds(&tasks, &plan, cpus, &[0; 7], 200));
                prop_assert!(holds(&tasks, &plan, cpus, &offsets, 200));
            }
        }

        #[test]
        fn what_first_fit_places_whole_edf_wm_takes(
            tasks in prop::collection::vec((prop::sample::select(vec![6u64, 8, 12, 24]), 1u64..=20), 2..=7),
            cpus in 2usize..=4,
        ) {
            let tasks: Vec<_> = tasks.iter().map(|(t, c)| Sporadic::implicit((*c).min(*t), *t)).collect();
            if partition(&tasks, cpus, Local::Edf, Packing::First, false).is_ok() {
                prop_assert!(edf_wm(&tasks, cpus, Packing::First).is_ok());
            }
        }
    }
}
