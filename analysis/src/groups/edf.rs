// SPDX-License-Identifier: GPL-2.0-only
//! Members of a group in the order of their deadlines.
//!
//! *Tasks* are sporadic: in t they ask for dbf(t), what is released and due in it. *Groups* among the members are
//! constant bandwidth servers, which begin whenever a member of theirs wakes; what is left of a budget then is due at
//! the old deadline. In any t that is up to t·Q/D, a little more in intervals below D than a periodic task of Q every D
//! would ask for (Abeni and Buttazzo 1998, theorem 1).
//!
//! Tested is dbf(t) + Σ t·Q/D ≤ sbf(t) for all t from `first` on, the shortest deadline of a task and of what a group's
//! own members count on: its deadline, or the end of its blackout if that is earlier. What is left of a group's budget
//! may be due before, and is late then, but no later than its members count on: within `first` all of it is there.
//!
//! *How far.* With α = Q/P of the supply, B its blackout, U the sum of C/T and Q/D: dbf(t) ≤ U·t + K, where K sums
//! C·(T − D)/T (and 1 ns for each group, for rounding), and sbf(t) ≥ α·(t − B). So what is short is short before
//! (K + α·B)/(α − U). Where U = α both sides grow alike from B on with the least common multiple H of all periods, so
//! that B + H is far enough.
//!
//! *Which t.* Between neighbours among the tasks' deadlines and the times at which sbf begins to grow demand is a line
//! and sbf concave: the neighbours decide. They are gone through backward, as quick processor-demand analysis (Zhang
//! and Burns 2009) does it: with demand h at t everything is well from until(h), where sbf is h, up to t.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

use super::{Fit, Instant, Supply, WORK};
use crate::one_cpu::edf::{deadline_before, demand};
use crate::sporadic::{Sporadic, ratio, utilization};

struct Members<'a> {
    tasks: Vec<Sporadic>,
    groups: &'a [Supply],
    supply: Supply,
}

/// Whether `tasks` and `groups` get by with `supply` under EDF. Deadlines beyond periods count as the periods, as
/// Onbeat serves them.
pub fn test(tasks: &[Sporadic], groups: &[Supply], supply: Supply) -> Fit {
    let within = |task: &Sporadic| Sporadic { deadline: task.deadline.min(task.period), ..*task };
    Members { tasks: tasks.iter().map(within).collect(), groups, supply }.test()
}

impl Members<'_> {
    fn test(&self) -> Fit {
        let Some(first) = self.first() else { return Fit::Fits(None) };
        let load = self.compare_load();
        if load == Ordering::Greater {
            return Fit::Overload;
        }
        let Some(mut t) = self.far(load) else { return Fit::Unknown };
        let each = (self.tasks.len() + self.groups.len()) as u64;
        for _ in 0..WORK / each {
            if t < first {
                return Fit::Fits(None);
            }
            let demand = self.demand(t);
            let supply = self.supply.within(t);
            if demand > supply.into() {
                return Fit::Short(self.shown(t, first));
            }
            let Some(well) = self.supply.until(demand) else { return Fit::Unknown };
            t = if well < t { well } else { self.before(t, first) };
        }
        Fit::Unknown
    }

    /// The shortest interval that matters; `None` without members.
    fn first(&self) -> Option<u64> {
        let groups = self.groups.iter().map(|group| group.deadline.min(group.blackout()).max(1));
        self.tasks.iter().map(|task| task.deadline).chain(groups).min()
    }

    /// What members may ask for in `t`, up to 1 ns more for each group.
    fn demand(&self, t: u64) -> u128 {
        let part = |group: &Supply| {
            (u128::from(t) * u128::from(group.budget)).div_ceil(group.deadline.into())
        };
        demand(&self.tasks, t) + self.groups.iter().map(part).sum::<u128>()
    }

    /// The neighbour before `t`; 0 if `t` was the first.
    fn before(&self, t: u64, first: u64) -> u64 {
        let first = Some(first).filter(|first| *first < t);
        // Without groups demand only changes at deadlines.
        let grows = self.supply.grows_before(t).filter(|_| !self.groups.is_empty());
        let all = [deadline_before(&self.tasks, t), grows, first];
        all.into_iter().flatten().max().unwrap_or(0)
    }

    /// What is short at `t`, at the time at which that is clearest.
    fn shown(&self, t: u64, first: u64) -> Instant {
        let at = if self.groups.is_empty() { self.before(t + 1, first) } else { t };
        let supply = self.supply.within(at);
        Instant { at, demand: self.demand(at), supply, member: None }
    }

    /// All members as tasks that ask for as much in the long run.
    fn loads(&self) -> impl Iterator<Item = (u64, u64)> {
        let tasks = self.tasks.iter().map(|task| (task.wcet, task.period));
        tasks.chain(self.groups.iter().map(|group| (group.budget, group.deadline)))
    }

    /// What members ask for in the long run, up to a unit of 2⁻⁶⁴ less for each.
    fn floor(&self) -> u128 {
        self.loads().map(|(part, of)| (u128::from(part) << 64) / u128::from(of)).sum()
    }

    /// What the supply has in the long run, up to a unit of 2⁻⁶⁴ less.
    fn supplied(&self) -> u128 {
        (u128::from(self.supply.budget) << 64) / u128::from(self.supply.period)
    }

    /// U against α: exactly, and quickly unless they are very near.
    fn compare_load(&self) -> Ordering {
        if self.left() > 0 {
            return Ordering::Less;
        }
        if self.floor() > self.supplied() + 1 {
            return Ordering::Greater;
        }
        let groups = self.groups.iter().map(|group| ratio(group.budget, group.deadline));
        let load =
            groups.fold(BigRational::zero(), |sum, part| sum + part) + utilization(&self.tasks);
        let all = BigInt::from(self.supply.budget);
        load.cmp(&BigRational::new(all, BigInt::from(self.supply.period)))
    }

    /// α − U at least, in units of 2⁻⁶⁴.
    fn left(&self) -> u128 {
        let most = self.floor() + (self.tasks.len() + self.groups.len()) as u128;
        self.supplied().saturating_sub(most)
    }

    /// Up to where to look; `None` if that is out of reach.
    fn far(&self, load: Ordering) -> Option<u64> {
        let part = |a: u64, b: u64, of: u64| (u128::from(a) * u128::from(b)).div_ceil(of.into());
        let Supply { budget, period, .. } = self.supply;
        let early = self.tasks.iter().map(|t| part(t.wcet, t.period - t.deadline, t.period));
        let late = part(budget, self.supply.blackout(), period) + early.sum::<u128>();
        let left = self.left();
        let line = u64::try_from(late + self.groups.len() as u128).ok().filter(|_| left > 0);
        let line = line.and_then(|late| (u128::from(late) << 64).checked_div(left));
        let line = line.and_then(|far| u64::try_from(far + 1).ok());
        let all = self.loads().try_fold(period, |all, (_, of)| {
            (all / num_integer::gcd(all, of)).checked_mul(of).filter(|all| *all < 1 << 62)
        });
        let cycle = all.map(|all| all + self.supply.blackout());
        match (line, cycle) {
            (Some(line), Some(cycle)) => Some(line.min(cycle)),
            (line, cycle) if load == Ordering::Less => line.or(cycle),
            (_, cycle) => cycle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{Numbers, Pattern, edf, misses, nested_misses};
    use super::*;
    use proptest::prelude::*;

    fn implicit(list: &[(u64, u64)]) -> Vec<Sporadic> {
        list.iter().map(|(c, t)| Sporadic::implicit(*c, *t)).collect()
    }

    #[test]
    fn a_task_of_1_every_5_needs_3_of_a_supply_every_5() {
        // With 3 of 5 nothing for 4, and the tick due at 5 is there; with 2 of 5 nothing for 6.
        let task = implicit(&[(1, 5)]);
        assert!(test(&task, &[], Supply::new(3, 5, 5)).fits());
        let short = Instant { at: 5, demand: 1, supply: 0, member: None };
        assert_eq!(test(&task, &[], Supply::new(2, 5, 5)), Fit::Short(short));
    }

    #[test]
    fn a_full_group_on_a_whole_cpu_fits_and_a_tick_less_is_an_overload() {
        let tasks = implicit(&[(1, 3), (1, 3), (2, 6)]);
        assert!(test(&tasks, &[], Supply::new(6, 6, 6)).fits());
        assert_eq!(test(&tasks, &[], Supply::new(5, 6, 6)), Fit::Overload);
    }

    #[test]
    fn a_group_of_the_same_period_needs_the_cpu_between() {
        // A group of 1 every 4 in one of 3 every 4: nothing for 2; from 4 on a quarter of the time is there.
        assert!(test(&[], &[Supply::new(1, 4, 4)], Supply::new(3, 4, 4)).fits());
        // In one of 1 every 4 there is nothing for 6, then 1 up to 10, when up to 10/4 may have been asked for.
        let short = Instant { at: 10, demand: 3, supply: 1, member: None };
        let fit = test(&[], &[Supply::new(1, 4, 4)], Supply::new(1, 4, 4));
        assert_eq!(fit, Fit::Short(short));
    }

    #[test]
    fn times_of_an_hour_are_answered() {
        let hour = 3_600_000_000_000;
        let tasks = implicit(&[(hour / 4, hour), (hour / 7, hour - 1), (1, 1000)]);
        assert!(test(&tasks, &[], Supply::new(900, 1000, 1000)).fits());
        assert_eq!(test(&tasks, &[], Supply::new(390, 1000, 1000)), Fit::Overload);
    }

    #[test]
    fn members_of_a_group_in_a_group_are_never_late_if_both_fit() {
        let mut fitting = 0;
        for seed in 0..60_000 {
            let mut numbers = Numbers(seed);
            let mut some = |most: u64| -> Vec<Sporadic> {
                let task = |numbers: &mut Numbers| {
                    let (wcet, period) = (numbers.within(1, 2), numbers.within(5, 30));
                    Sporadic { wcet, deadline: period - numbers.within(0, 2), period }
                };
                (0..numbers.within(0, most)).map(|_| task(&mut numbers)).collect()
            };
            let (tasks, inside) = (some(2), some(2));
            let mut supply = |least: u64, most: u64, spare: u64| {
                let (budget, deadline) = (numbers.within(least, most), numbers.within(0, spare));
                let period = budget + deadline + numbers.within(0, spare);
                Supply { budget, period, deadline: budget + deadline }
            };
            let (outer, inner) = (supply(2, 8, 1), supply(1, 3, 4));
            if inside.is_empty()
                || !test(&tasks, &[inner], outer).fits()
                || !test(&inside, &[], inner).fits()
            {
                continue;
            }
            fitting += 1;
            let worst = &Pattern::worst(outer).ticks()[outer.budget as usize..];
            for ticks in [worst, &Pattern::drawn(outer, seed).ticks()] {
                let late = nested_misses(&tasks, &inside, inner, ticks, Numbers(seed * 7 + 1));
                assert!(!late, "{tasks:?} {inside:?} {inner:?} in {outer:?}, {seed}");
            }
        }
        assert!(fitting > 1000, "{fitting} sets say little");
    }

    /// Tasks with a common multiple of periods that is small, and a supply.
    fn any_case() -> impl Strategy<Value = (Vec<Sporadic>, Supply)> {
        let task = (prop::sample::select(vec![4u64, 6, 8, 12]), 1u64..=3, 0u64..4).prop_map(
            |(period, wcet, earlier)| Sporadic {
                wcet,
                deadline: (period - earlier).max(wcet),
                period,
            },
        );
        let supply = (prop::sample::select(vec![2u64, 3, 4, 6]), 0u64..6, 0u64..3).prop_map(
            |(period, less, earlier)| {
                let deadline = period.saturating_sub(earlier).max(1);
                Supply { budget: deadline.saturating_sub(less).max(1), period, deadline }
            },
        );
        (prop::collection::vec(task, 1..=3), supply)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn the_verdict_is_that_of_every_interval_up_to_far_beyond((tasks, supply) in any_case()) {
            let fit = test(&tasks, &[], supply);
            // Twice 24 and what is left of the first blackout is more than all periods have in common.
            let short = (1..200).any(|t| demand(&tasks, t) > supply.within(t).into());
            let over = utilization(&tasks) > ratio(supply.budget, supply.period);
            prop_assert_ne!(fit, Fit::Unknown);
            prop_assert_eq!(fit.fits(), !short && !over, "{:?}", fit);
            if let Fit::Short(Instant { at, demand: asked, supply: there, .. }) = fit {
                prop_assert!(asked > there.into());
                prop_assert_eq!((asked, there), (demand(&tasks, at), supply.within(at)));
            }
        }

        #[test]
        fn what_fits_is_never_late_in_the_worst_server_and_what_does_not_is_just_after_its_budget(
            (tasks, supply) in any_case(), seed in any::<u64>(), from in 0usize..6,
            offsets in prop::collection::vec(0u64..12, 3),
        ) {
            let fit = test(&tasks, &[], supply);
            let worst = Pattern::worst(supply).ticks();
            let after = supply.budget as usize;
            if fit.fits() {
                let drawn = Pattern::drawn(supply, seed).ticks();
                for (offsets, ticks, from) in
                    [(&[0; 3][..], &worst, after), (&offsets, &worst, from), (&offsets, &drawn, from)]
                {
                    prop_assert!(!misses(&tasks, offsets, ticks, from, edf));
                }
            } else if let Fit::Short(_) = fit {
                prop_assert!(misses(&tasks, &[0; 3], &worst, after, edf), "{:?} {:?}", tasks, fit);
            }
        }

        #[test]
        fn with_groups_the_verdict_is_that_of_every_interval(
            (tasks, supply) in any_case(), group in (1u64..4, 0u64..9), alone in any::<bool>(),
        ) {
            let tasks = if alone { vec![] } else { tasks };
            let groups = [Supply::new(group.0, group.0 + group.1, group.0 + group.1)];
            let fit = test(&tasks, &groups, supply);
            let first = tasks.iter().map(|t| t.deadline).chain([groups[0].deadline.min(groups[0].blackout()).max(1)]);
            let first = first.min().unwrap();
            let part = |t: u64| (t * groups[0].budget).div_ceil(groups[0].deadline);
            let short = (first..2000).any(|t| demand(&tasks, t) + u128::from(part(t)) > supply.within(t).into());
            let load = utilization(&tasks) + ratio(groups[0].budget, groups[0].deadline);
            let over = load > ratio(supply.budget, supply.period);
            // Where neither is short by a whole tick rounding at both ends may still tell more than between them.
            prop_assert_eq!(fit.fits(), !short && !over, "{:?}", fit);
        }
    }
}
