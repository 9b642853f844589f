// SPDX-License-Identifier: GPL-2.0-only
//! Members of a group in the order of fixed priorities.
//!
//! A task is in time if the requests of all that are as important, which are released with it, are met within its
//! deadline: if rbf(t) ≤ sbf(t) for some t ≤ D. The least such t is a fixed point, and its longest response.
//! Source: Shin and Lee 2003, theorem 2, in the form of response times.

use super::{Fit, Instant, Supply, WORK};
use crate::one_cpu::fixed::equals;
use crate::sporadic::Sporadic;

/// Whether `tasks`, the most important first, get by with `supply`, whatever the order among equal `levels`. Deadlines
/// beyond periods count as the periods. Which has least time to spare is said of those that fit.
pub fn test(tasks: &[Sporadic], levels: &[u64], supply: Supply) -> Fit {
    let mut left = WORK;
    let mut tightest: Option<(u64, Instant)> = None;
    for (i, task) in tasks.iter().enumerate() {
        let others = &tasks[..equals(levels, i).end];
        let deadline = task.deadline.min(task.period);
        let requests = |t: u64| {
            let of = |(j, other): (usize, &Sporadic)| {
                let jobs = if i == j { 1 } else { t.div_ceil(other.period) };
                u128::from(jobs) * u128::from(other.wcet)
            };
            others.iter().enumerate().map(of).sum::<u128>()
        };
        let instant = |at: u64| Instant {
            at,
            demand: requests(at),
            supply: supply.within(at),
            member: Some(i),
        };
        let mut t = 1;
        loop {
            if left < others.len() as u64 {
                return Fit::Unknown;
            }
            left -= others.len() as u64;
            match supply.until(requests(t)).filter(|next| *next <= deadline) {
                None => return Fit::Short(instant(deadline)),
                Some(next) if next <= t => break,
                Some(next) => t = next,
            }
        }
        if tightest.is_none_or(|(spare, _)| deadline - t < spare) {
            tightest = Some((deadline - t, instant(t)));
        }
    }
    Fit::Fits(tightest.map(|(_, instant)| instant))
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{Pattern, as_they_stand, misses};
    use super::*;
    use crate::one_cpu::fixed::{by_priority, strict};
    use proptest::prelude::*;

    #[test]
    fn on_a_whole_cpu_responses_are_those_of_joseph_and_pandya() {
        // The last of 1/4, 1/5, 3/9, 3/18 answers at 18 of 18.
        let tasks = [(1, 4), (1, 5), (3, 9), (3, 18)].map(|(c, t)| Sporadic::implicit(c, t));
        let last = Instant { at: 18, demand: 18, supply: 18, member: Some(3) };
        assert_eq!(test(&tasks, &strict(4), Supply::new(9, 9, 9)), Fit::Fits(Some(last)));
    }

    #[test]
    fn two_tasks_in_3_of_4_answer_after_the_blackout() {
        // Nothing for 2, then 3 of 4: the ticks 2, 3, 4 and 6. The first is done at 3, the second at 5.
        let tasks = [Sporadic::implicit(1, 4), Sporadic::implicit(2, 8)];
        let supply = Supply::new(3, 4, 4);
        // A second job of the first comes at 4 and takes the tick 4: the second is done at 7, with 4 of what is there.
        let last = Instant { at: 7, demand: 4, supply: 4, member: Some(1) };
        let first = Instant { at: 3, demand: 1, supply: 1, member: Some(0) };
        assert_eq!(test(&tasks[..1], &strict(1), supply), Fit::Fits(Some(first)));
        assert_eq!(test(&tasks, &strict(2), supply), Fit::Fits(Some(first)), "1 to spare each");
        let tight = [tasks[0], Sporadic { deadline: 7, ..tasks[1] }];
        assert_eq!(test(&tight, &strict(2), supply), Fit::Fits(Some(last)));
        let late = [tasks[0], Sporadic { deadline: 6, ..tasks[1] }];
        let short = Instant { at: 6, demand: 4, supply: 3, member: Some(1) };
        assert_eq!(test(&late, &strict(2), supply), Fit::Short(short));
    }

    fn any_case() -> impl Strategy<Value = (Vec<Sporadic>, Supply)> {
        let task = (prop::sample::select(vec![4u64, 6, 8, 12, 24]), 1u64..=3, 0u64..4).prop_map(
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
        fn what_fits_is_never_late_in_the_worst_server_and_what_does_not_is_just_after_its_budget(
            (tasks, supply) in any_case(), seed in any::<u64>(), from in 0usize..6,
            offsets in prop::collection::vec(0u64..12, 3),
        ) {
            let (tasks, _) = by_priority(&tasks, |task| task.period);
            let fit = test(&tasks, &strict(tasks.len()), supply);
            let worst = Pattern::worst(supply).ticks();
            let after = supply.budget as usize;
            if fit.fits() {
                let drawn = Pattern::drawn(supply, seed).ticks();
                for (offsets, ticks, from) in
                    [(&[0; 3][..], &worst, after), (&offsets, &worst, from), (&offsets, &drawn, from)]
                {
                    prop_assert!(!misses(&tasks, offsets, ticks, from, as_they_stand));
                }
            } else {
                prop_assert!(misses(&tasks, &[0; 3], &worst, after, as_they_stand), "{:?} {:?}", tasks, fit);
            }
        }

        #[test]
        fn who_fits_whatever_the_order_among_equals_fits_in_each((tasks, supply) in any_case()) {
            let (tasks, levels) = by_priority(&tasks, |task| task.period);
            if test(&tasks, &levels, supply).fits() {
                prop_assert!(test(&tasks, &strict(tasks.len()), supply).fits());
            }
        }
    }
}
