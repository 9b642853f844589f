// SPDX-License-Identifier: GPL-2.0-only
//! Semi-partitioned scheduling with window migration: EDF-WM, and EDF-WMR's worst fit.
//!
//! A task that fits no CPU whole is split over n of them. Its deadline is cut into n windows of D/n; in window k its
//! job runs on the k-th of these CPUs for at most its share there. To that CPU the share is a sporadic task (C′, D/n,
//! T), so each CPU is tested by itself, exactly.
//!
//! Source: Kato, Yamasaki and Ishikawa 2009 (EDF-WM); worst fit as in Kato, Ishikawa and Rajkumar's EDF-WMR ("CPU
//! scheduling and memory management for interactive real-time applications", section 4.2).

use onbeat_model::numbers;
use onbeat_model::units::Fraction;

use crate::one_cpu::edf;
use crate::partition::Packing;
use crate::sporadic::{Load, Sporadic, overloaded};

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

/// Shares of reservations are at least this long, ns: enforcement is exact to tens of microseconds, and a migration
/// costs some.
pub const SHARE_LEAST: u64 = 100_000;

/// Steps after which a test gives up: a CPU that is all but full has a long busy period. It then counts as full, and of
/// a share a 256th is given up.
const STEPS_WHOLE: u32 = 20_000;
const STEPS_SHARE: u32 = 500;

/// Shares that are tried: a request may not keep the service busy.
const LOOKS: u32 = 40;

/// Parts into which a CPU is divided where only some of it is offered.
const PARTS: u64 = 1_000_000;

/// Looks at a task in one test, at most: of many tasks fewer steps are made.
const WORK: usize = 1_000_000;

/// As [`edf::violation`], within bounds that hold whatever the periods.
fn violation(tasks: &[Sporadic], steps: u32) -> Result<Option<u64>, ()> {
    if overloaded(tasks) {
        return Ok(Some(0));
    }
    let most = u32::try_from(WORK / tasks.len().max(1)).unwrap_or(u32::MAX);
    edf::violation_within(tasks, steps.min(most))
}

/// One CPU and what has been placed on it.
#[derive(Debug, Clone)]
struct Cpu {
    /// Of [`PARTS`].
    offer: u64,
    /// Scaled by the offer: times of the tasks grow by PARTS, those of the clock by the offer.
    tasks: Vec<Sporadic>,
    names: Vec<u64>,
    load: Load,
}

impl Cpu {
    /// A task as it looks on a CPU of which only a part is offered; `None` if its times are absurd.
    fn scale(&self, task: &Sporadic) -> Option<Sporadic> {
        if self.offer == PARTS {
            return Some(*task);
        }
        Some(Sporadic {
            wcet: task.wcet.checked_mul(PARTS)?,
            deadline: task.deadline.checked_mul(self.offer)?,
            period: task.period.checked_mul(self.offer)?,
        })
    }

    /// Whether it takes the task besides what it has.
    fn takes(&mut self, task: &Sporadic) -> bool {
        let Some(task) = self.scale(task).filter(|task| task.period > 0 && task.deadline > 0)
        else {
            return false;
        };
        self.tasks.push(task);
        let taken = violation(&self.tasks, STEPS_WHOLE) == Ok(None);
        self.tasks.pop();
        taken
    }

    fn put(&mut self, name: u64, task: &Sporadic) {
        if let Some(scaled) = self.scale(task) {
            self.load.add(&scaled);
            self.tasks.push(scaled);
            self.names.push(name);
        }
    }

    fn remove(&mut self, name: u64) {
        while let Some(i) = self.names.iter().position(|n| *n == name) {
            self.names.remove(i);
            self.tasks.remove(i);
        }
        self.load = Load::of(&self.tasks);
    }

    /// What the last task, one unit of which is `unit`, may take so that the demand up to `at` fits.
    fn allowed(&self, at: u64, unit: u64) -> u64 {
        let (last, others) = self.tasks.split_last().expect("the task in question");
        let Some(since) = at.checked_sub(last.deadline) else { return u64::MAX };
        let jobs = u128::from(since / last.period) + 1;
        let free = u128::from(at).saturating_sub(edf::demand(others, at));
        u64::try_from(free / (jobs * u128::from(unit))).unwrap_or(u64::MAX)
    }

    /// What the last task may take so that U ≤ 1, or a little more.
    fn bandwidth(&self, unit: u64) -> u64 {
        let (last, others) = self.tasks.split_last().expect("the task in question");
        let free = Load::of(others).left_at_most(1);
        u64::try_from(((free * u128::from(last.period)) >> 64) / u128::from(unit))
            .unwrap_or(u64::MAX)
    }

    /// The largest share of `task`, at most its execution time, that this CPU takes in a window.
    fn most(&mut self, task: &Sporadic, window: u64) -> u64 {
        let of = |wcet| Sporadic { wcet, deadline: window, period: task.period };
        let whole = task.wcet.min(window);
        let Some(one) = self.scale(&of(1)).filter(|one| one.period > 0 && one.deadline > 0) else {
            return 0;
        };
        let unit = one.wcet;
        // Demand is linear in the share: a deadline at which it is too great says how much smaller it must be.
        let mut share = whole;
        let (mut looks, mut given_up) = (0, 0);
        self.tasks.push(one);
        let last = self.tasks.len() - 1;
        // The first deadlines bind most often, and a share that is nearly right is tested quickly.
        for i in 0..=last {
            let Sporadic { deadline, period, .. } = self.tasks[i];
            for at in (0..3).map_while(|k| period.checked_mul(k)?.checked_add(deadline)) {
                share = share.min(self.allowed(at, unit));
            }
        }
        let mut fits = 0;
        while share > 0 {
            self.tasks[last].wcet = share * unit;
            match violation(&self.tasks, STEPS_SHARE) {
                Ok(None) => {
                    fits = share;
                    break;
                }
                Ok(Some(at)) => {
                    // At U > 1 there is no such deadline: `at` is 0.
                    let less = if at == 0 { self.bandwidth(unit) } else { self.allowed(at, unit) };
                    share = less.min(share - 1);
                }
                // Less is tested sooner.
                Err(()) => {
                    share -= (share.div_ceil(256) << given_up).min(share);
                    given_up += 1;
                }
            }
            looks += 1;
            if looks > LOOKS {
                break;
            }
        }
        self.tasks.pop();
        fits
    }
}

/// CPUs that take tasks one after the other, whole or split, and give them back.
#[derive(Debug, Clone)]
pub struct Planner {
    cpus: Vec<Cpu>,
    fit: Packing,
    least: u64,
}

impl Planner {
    /// CPUs that offer these parts (0 to 1) of themselves. `fit` is [`Packing::First`] for EDF-WM and
    /// [`Packing::Worst`] for EDF-WMR; others count as first. No share is shorter than `least`: what is too short is
    /// not worth a migration.
    pub fn new(offers: &[Fraction], fit: Packing, least: u64) -> Self {
        let cpu = |offer: &Fraction| {
            let parts = u128::from(*offer.numer()) * u128::from(PARTS) / u128::from(*offer.denom());
            let offer = u64::try_from(parts).unwrap_or(PARTS).min(PARTS);
            Cpu { offer, tasks: Vec::new(), names: Vec::new(), load: Load::default() }
        };
        Self { cpus: offers.iter().map(cpu).collect(), fit, least: least.max(1) }
    }

    /// Places the task under `name` on CPUs that `may` take it: its shares in the order of their windows, or `None` if
    /// it does not fit. Deadlines within periods: a job's windows then never meet its successor's.
    ///
    /// For n = 2, 3, … the n largest shares are taken if they add up to the execution time; the last is cut to what is
    /// missing.
    pub fn place(
        &mut self,
        name: u64,
        task: &Sporadic,
        may: impl Fn(usize) -> bool,
    ) -> Option<Vec<Share>> {
        if task.deadline > task.period {
            return None;
        }
        let order: Vec<usize> = match self.fit {
            Packing::Worst => self.emptiest(may),
            _ => (0..self.cpus.len()).filter(|cpu| may(*cpu)).collect(),
        };
        let whole = order.iter().copied().find(|cpu| self.cpus[*cpu].takes(task));
        let shares = match whole {
            Some(cpu) => vec![Share { cpu, wcet: task.wcet, begin: 0, window: task.deadline }],
            None => {
                (2..=order.len().min(numbers::LEGS)).find_map(|n| self.split(task, n, &order))?
            }
        };
        for share in &shares {
            let part = Sporadic { wcet: share.wcet, deadline: share.window, period: task.period };
            self.cpus[share.cpu].put(name, &part);
        }
        Some(shares)
    }

    /// CPUs that `may` take a task, the least loaded first.
    pub fn emptiest(&self, may: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cpus.len()).filter(|cpu| may(*cpu)).collect();
        order.sort_by_key(|cpu| self.cpus[*cpu].load);
        order
    }

    /// Places the task whole on this CPU, if it fits there; whether it does.
    pub fn place_on(&mut self, name: u64, task: &Sporadic, cpu: usize) -> bool {
        let fits = self.cpus[cpu].takes(task);
        if fits {
            self.cpus[cpu].put(name, task);
        }
        fits
    }

    /// The greatest execution time with which this CPU would take the task whole.
    pub fn most_on(&mut self, cpu: usize, task: &Sporadic) -> u64 {
        self.cpus[cpu].most(&Sporadic { wcet: task.deadline, ..*task }, task.deadline)
    }

    /// Puts the task on the least loaded CPU that `may` take it, though it does not fit; `None` if there is none.
    pub fn force(
        &mut self,
        name: u64,
        task: &Sporadic,
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let cpu =
            (0..self.cpus.len()).filter(|cpu| may(*cpu)).min_by_key(|i| self.cpus[*i].load)?;
        self.cpus[cpu].put(name, task);
        Some(cpu)
    }

    /// Takes the task of that name away.
    pub fn remove(&mut self, name: u64) {
        self.cpus.iter_mut().for_each(|cpu| cpu.remove(name));
    }

    /// The greatest execution time with which the task would be placed on CPUs that `may` take it; 0: none would.
    pub fn room(&mut self, task: &Sporadic, may: impl Fn(usize) -> bool) -> u64 {
        let order: Vec<usize> = (0..self.cpus.len()).filter(|cpu| may(*cpu)).collect();
        let any = Sporadic { wcet: task.deadline, ..*task };
        let whole = order.iter().map(|cpu| self.cpus[*cpu].most(&any, task.deadline)).max();
        let split = (2..=order.len().min(numbers::LEGS)).map(|n| {
            let most = self.largest(&any, n, &order);
            most.iter().map(|(share, _)| *share).sum()
        });
        split.chain(whole).max().unwrap_or(0).min(task.deadline)
    }

    /// The n largest shares CPUs take in windows of D/n, the first CPU of equals first.
    fn largest(&mut self, task: &Sporadic, n: usize, order: &[usize]) -> Vec<(u64, usize)> {
        // Rounded down: a shorter window is the safe side.
        let window = task.deadline / n as u64;
        let mut most: Vec<(u64, usize)> =
            order.iter().map(|cpu| (self.cpus[*cpu].most(task, window), *cpu)).collect();
        most.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        most.truncate(n);
        most.retain(|(share, _)| *share >= self.least);
        most
    }

    fn split(&mut self, task: &Sporadic, n: usize, order: &[usize]) -> Option<Vec<Share>> {
        let window = task.deadline / n as u64;
        let mut left = task.wcet;
        let mut shares: Vec<Share> = Vec::new();
        for (most, cpu) in self.largest(task, n, order) {
            if left == 0 {
                break;
            }
            let wcet = most.min(left);
            shares.push(Share { cpu, wcet, begin: shares.len() as u64 * window, window });
            left -= wcet;
        }
        // The last takes from the one before what it lacks to be worth it.
        if let [.., before, last] = &mut shares[..]
            && last.wcet < self.least
        {
            let more = self.least - last.wcet;
            before.wcet = before.wcet.checked_sub(more).filter(|rest| *rest >= self.least)?;
            last.wcet = self.least;
        }
        (left == 0).then_some(shares)
    }
}

/// Assigns and splits all tasks, taken as they stand, or names the first that does not fit.
pub fn edf_wm(tasks: &[Sporadic], cpus: usize, fit: Packing) -> Result<Plan, usize> {
    let mut planner = Planner::new(&vec![Fraction::from_integer(1); cpus], fit, 1);
    let mut plan = Plan::new();
    for (i, task) in tasks.iter().enumerate() {
        plan.push(planner.place(i as u64, task, |_| true).ok_or(i)?);
    }
    Ok(plan)
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
                    seen.sort_unstable();
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
