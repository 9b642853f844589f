// SPDX-License-Identifier: GPL-2.0-only
//! Partitioned scheduling: which task goes to which CPU, each CPU by an exact test.

use crate::one_cpu::{edf, fixed};
use crate::sporadic::{Load, Sporadic, Verdict};

/// Which of the CPUs that could take a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packing {
    /// The first in the order of CPUs.
    First,
    /// The one with most utilization.
    Best,
    /// The one with least.
    Worst,
    /// The one that took the last task, or else a later one; CPUs passed by are closed.
    Next,
}

/// How each CPU schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Local {
    /// Earliest deadline first, by processor demand.
    Edf,
    /// Rate monotonic, by response times.
    RateMonotonic,
}

impl Local {
    fn takes(self, tasks: &[Sporadic]) -> bool {
        let verdict = match self {
            Local::Edf => edf::qpa(tasks),
            Local::RateMonotonic => {
                let (tasks, levels) = fixed::by_priority(tasks, |task| task.period);
                fixed::exact(&tasks, &levels)
            }
        };
        verdict == Verdict::Schedulable
    }
}

/// The CPU of each task, or the index of the first task that no CPU takes. With `decreasing` the tasks are taken in
/// order of decreasing utilization, otherwise as they stand.
///
/// Finding out whether any partition exists is bin packing; these heuristics are only sufficient (Oh and Baker 1998;
/// Lopez et al. 2004 for the bounds they reach).
pub fn partition(
    tasks: &[Sporadic],
    cpus: usize,
    local: Local,
    packing: Packing,
    decreasing: bool,
) -> Result<Vec<usize>, usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    if decreasing {
        order.sort_by_cached_key(|i| std::cmp::Reverse(tasks[*i].utilization()));
    }
    let mut bins: Vec<(Load, Vec<Sporadic>)> = vec![(Load::default(), Vec::new()); cpus];
    let mut place = vec![0; tasks.len()];
    let mut current = 0;
    for i in order {
        let mut all: Vec<usize> = (0..cpus).collect();
        match packing {
            Packing::First => {}
            Packing::Next => drop(all.drain(..current)),
            Packing::Best => all.sort_by(|a, b| bins[*b].0.cmp(&bins[*a].0)),
            Packing::Worst => all.sort_by(|a, b| bins[*a].0.cmp(&bins[*b].0)),
        }
        let chosen = all.into_iter().find(|cpu| {
            let with = &mut bins[*cpu].1;
            with.push(tasks[i]);
            let taken = local.takes(with);
            with.pop();
            taken
        });
        let cpu = chosen.ok_or(i)?;
        current = cpu;
        place[i] = cpu;
        bins[cpu].0.add(&tasks[i]);
        bins[cpu].1.push(tasks[i]);
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(list: &[(u64, u64)]) -> Vec<Sporadic> {
        list.iter().map(|(c, t)| Sporadic::implicit(*c, *t)).collect()
    }

    fn edf(
        tasks: &[Sporadic],
        cpus: usize,
        packing: Packing,
        decreasing: bool,
    ) -> Result<Vec<usize>, usize> {
        partition(tasks, cpus, Local::Edf, packing, decreasing)
    }

    #[test]
    fn three_tasks_of_two_thirds_need_three_cpus() {
        let tasks = of(&[(2, 3); 3]);
        assert_eq!(edf(&tasks, 2, Packing::First, false), Err(2));
        assert_eq!(edf(&tasks, 3, Packing::First, false), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn each_packing_puts_tasks_where_its_name_says() {
        // 1/2, 1/4, 3/5, 1/4, 1/10
        let tasks = of(&[(1, 2), (1, 4), (3, 5), (1, 4), (1, 10)]);
        assert_eq!(edf(&tasks, 2, Packing::First, false), Ok(vec![0, 0, 1, 0, 1]));
        assert_eq!(edf(&tasks, 2, Packing::Next, false), Ok(vec![0, 0, 1, 1, 1]));
        assert_eq!(edf(&tasks, 2, Packing::Worst, false), Ok(vec![0, 1, 1, 0, 0]));
        assert_eq!(edf(&tasks, 2, Packing::Best, false), Ok(vec![0, 0, 1, 0, 1]));
    }

    #[test]
    fn decreasing_order_fits_what_the_given_order_does_not() {
        let tasks = of(&[(1, 4), (1, 4), (3, 4), (3, 4)]);
        assert_eq!(edf(&tasks, 2, Packing::First, false), Err(3));
        assert!(edf(&tasks, 2, Packing::First, true).is_ok());
    }

    proptest! {
        #[test]
        fn every_cpu_of_a_partition_passes_its_exact_test(
            tasks in prop::collection::vec((1u64..=5, 5u64..=12), 1..=8), cpus in 1usize..=4, kind in 0usize..16,
        ) {
            let tasks = of(&tasks);
            let packing = [Packing::First, Packing::Best, Packing::Worst, Packing::Next][kind % 4];
            let local = [Local::Edf, Local::RateMonotonic][kind / 4 % 2];
            if let Ok(place) = partition(&tasks, cpus, local, packing, kind / 8 == 1) {
                for cpu in 0..cpus {
                    let here: Vec<_> = tasks.iter().zip(&place).filter(|(_, p)| **p == cpu).map(|(t, _)| *t).collect();
                    prop_assert!(local.takes(&here));
                }
            }
        }
    }
}
