// SPDX-License-Identifier: GPL-2.0-only
//! What global tests accept is run, and their bounds are looked for in runs.

use proptest::prelude::*;

use super::oracle::{
    by_state, early, misses, responses, sets, sets_around, sporadic, synchronous, tiny,
};
use super::tardiness::{Supply, devi_anderson, edzl, restricted};
use super::{bak::bak, bar::bar, bcl, ff_dbf::ff_dbf, gel, gfb::gfb, rta, union};
use crate::one_cpu::{self, fixed::strict};
use crate::sporadic::{Sporadic, Verdict};

const END: u64 = 250;

fn of(list: &[(u64, u64)]) -> Vec<Sporadic> {
    list.iter().map(|(c, t)| Sporadic::implicit(*c, *t)).collect()
}

fn implicit(tasks: &[Sporadic]) -> Vec<Sporadic> {
    tasks.iter().map(|t| Sporadic::implicit(t.wcet, t.period)).collect()
}

type Test = (&'static str, fn(&[Sporadic], usize) -> bool);

fn yes(verdict: Verdict) -> bool {
    verdict == Verdict::Schedulable
}

const EDF: [Test; 8] = [
    ("gfb", |t, m| yes(gfb(t, m))),
    ("bak", |t, m| yes(bak(t, m))),
    ("bcl", |t, m| yes(bcl::bcl(t, m))),
    ("bcl-iterative", |t, m| yes(bcl::bcl_iterative(t, m))),
    ("rta", |t, m| rta::edf(t, m).is_some()),
    ("ff-dbf", |t, m| yes(ff_dbf(t, m))),
    ("bar", |t, m| yes(bar(t, m))),
    ("any", |t, m| yes(union::any(t, m))),
];

/// Longest responses under global EDF, synchronous and sporadic.
fn run_edf(tasks: &[Sporadic], cpus: usize, seed: u64) -> Vec<u64> {
    let key = |i: usize, release: u64| (release + tasks[i].deadline) as i64;
    let mut all = responses(&synchronous(tasks, END), |_| cpus, key, END);
    for more in 0..3 {
        let jobs = sporadic(tasks, END, seed.wrapping_add(more));
        let some = responses(&jobs, |_| cpus, key, END);
        all.iter_mut().zip(some).for_each(|(a, b)| *a = (*a).max(b));
    }
    all
}

/// The same under fixed priorities, the first task first.
fn run_fixed(tasks: &[Sporadic], cpus: usize, seed: u64) -> Vec<u64> {
    let mut all = responses(&synchronous(tasks, END), |_| cpus, |i, _| i as i64, END);
    for more in 0..3 {
        let jobs = sporadic(tasks, END, seed.wrapping_add(more));
        let some = responses(&jobs, |_| cpus, |i, _| i as i64, END);
        all.iter_mut().zip(some).for_each(|(a, b)| *a = (*a).max(b));
    }
    all
}

fn in_time(tasks: &[Sporadic], responses: &[u64]) -> bool {
    tasks.iter().zip(responses).all(|(task, r)| *r <= task.deadline)
}

/// In the order given.
fn rta_fixed(tasks: &[Sporadic], cpus: usize) -> Vec<Option<u64>> {
    rta::fixed(tasks, &strict(tasks.len()), cpus)
}

fn guan(tasks: &[Sporadic], cpus: usize) -> Vec<Option<u64>> {
    super::fixed::guan(tasks, &strict(tasks.len()), cpus)
}

#[test]
fn three_tasks_of_two_thirds_are_late_by_at_most_2_on_two_cpus() {
    let tasks = of(&[(2, 3); 3]);
    assert!(!in_time(&tasks, &run_edf(&tasks, 2, 0)));
    for (name, test) in EDF {
        assert!(!test(&tasks, 2), "{name}");
        // Tests by load see 2 of 3 CPUs taken, not that each task has its own.
        assert_eq!(test(&tasks, 3), !["gfb", "bak", "ff-dbf"].contains(&name), "{name}");
    }
    assert_eq!(devi_anderson(&tasks, 2), Some(vec![2; 3]));
    assert_eq!(gel::late(&tasks, &gel::g_edf(&tasks, 2).unwrap()), [2; 3]);
    assert_eq!(gel::late(&tasks, &gel::g_fl(&tasks, 2).unwrap()), [2; 3]);
    assert_eq!(rta_fixed(&tasks, 2)[2], None);
    assert_eq!(guan(&tasks, 2)[2], None);
}

#[test]
fn a_heavy_task_among_others_has_a_bound_on_two_cpus_and_none_on_one() {
    let tasks = of(&[(80, 100), (33, 66), (7, 10)]);
    for bound in [devi_anderson, gel::g_edf, gel::g_fl] {
        assert!(bound(&tasks, 2).is_some());
        assert_eq!(bound(&tasks, 1), None);
    }
}

/// By hand, as runs rarely come near these bounds.
#[test]
fn bounds_on_tardiness_are_those_of_the_formulas() {
    // Λ = 2: x = (3 + 3 − 3) / (3 − 3/4) = 4/3.
    assert_eq!(devi_anderson(&of(&[(3, 4); 4]), 3), Some(vec![5; 4]));
    // S = 1, 1, 1.5; 2s = 3.5 + 0.75·(s − 3) + 4.5: s = 4.6.
    let tasks = of(&[(1, 2), (2, 4), (6, 8)]);
    assert_eq!(gel::g_edf(&tasks, 2), Some(vec![6, 8, 14]));
    // S = 1, 1.25, 3.375; 2s = 5.625 + 0.75·(s − 3) + 2.625: s = 4.8; each at most 3.3 late.
    assert_eq!(gel::g_fl(&tasks, 2), Some(vec![6, 8, 12]));
    let half = Supply { budget: 1, period: 2, blackout: 2 };
    let whole = Supply::WHOLE;
    // x·(5/2 − 1/2) = 2 + 1 − 1.
    assert_eq!(restricted(&of(&[(1, 4); 4]), &[whole, half, whole]), Some(vec![2; 4]));
    // x·(1 − 1/8 − 1/8) = 1 + 2 + (1 − 1)·1.
    assert_eq!(restricted(&of(&[(1, 8); 2]), &[half, half]), Some(vec![5; 2]));
    // x·(2 − 3/5) = 3 + (3 − 1) + (3 − 1) − 3, where 9/5 is rounded down; 4 and 2/5 with 1 more of each other.
    assert_eq!(edzl(&of(&[(3, 5); 3]), &[whole; 2], 0), Some(vec![6; 3]));
    assert_eq!(edzl(&of(&[(3, 5); 3]), &[whole; 2], 1), Some(vec![8; 3]));
    assert_eq!(edzl(&of(&[(3, 5); 2]), &[whole; 2], 1), Some(vec![0; 2]));
    // x·(5/3 − 1/4 − 1/4) = 1 + 3·2/3 + 3·1 + 3·1 + (1 − 5/3)·1: 50/7. Of 3/2 − 1, by which each may go first earlier,
    // there is 1, rounded up.
    let most = Supply { budget: 2, period: 3, blackout: 3 };
    assert_eq!(edzl(&of(&[(1, 4); 4]), &[whole, most], 0), Some(vec![9; 4]));
    // x·(2 − 1/2 − 1/4) = 2 + 2 + (2 − 2)·1: the third CPU brings supply, and one more that may be left idle.
    assert_eq!(restricted(&of(&[(1, 4); 4]), &[whole, half, half]), Some(vec![5; 4]));
}

/// Dhall and Liu 1978: light tasks with short periods delay a heavy one.
#[test]
fn dhalls_effect_is_seen() {
    let tasks = of(&[(2, 10), (2, 10), (10, 11)]);
    assert!(!in_time(&tasks, &run_edf(&tasks, 2, 0)));
    for (name, test) in EDF {
        assert!(!test(&tasks, 2), "{name}");
    }
    assert_eq!(guan(&tasks, 2), [Some(2), Some(2), None]);
}

#[test]
fn ten_thousand_tasks_get_an_answer() {
    let mut dice = super::oracle::Dice(1);
    let mut set = |early: bool| -> Vec<Sporadic> {
        (0..10_000)
            .map(|_| {
                let period = 1_000_000 + dice.below(99_000_000);
                let wcet = period / 400 + dice.below(1000);
                let deadline = if early { period - dice.below(period / 2) } else { period };
                Sporadic { wcet, deadline, period }
            })
            .collect()
    };
    let (late, early) = (set(false), set(true));
    for (name, test) in EDF {
        let begin = std::time::Instant::now();
        let (a, b) = (test(&late, 48), test(&early, 48));
        println!("{name}: {a} {b} {:?}", begin.elapsed());
    }
    for (name, bound) in [("rta", rta_fixed as fn(&[Sporadic], usize) -> _), ("guan", guan)] {
        let begin = std::time::Instant::now();
        let found = bound(&early, 48).iter().flatten().count();
        println!("{name}: {found} {:?}", begin.elapsed());
    }
    let begin = std::time::Instant::now();
    assert!(devi_anderson(&late, 48).is_some());
    println!("devi-anderson: {:?}", begin.elapsed());
    let begin = std::time::Instant::now();
    assert!(gel::g_fl(&late, 48).is_some());
    println!("g-fl: {:?}", begin.elapsed());
}

#[test]
fn the_longest_times_there_are_do_no_harm() {
    let most = Sporadic { wcet: u64::MAX, deadline: u64::MAX, period: u64::MAX };
    let short = Sporadic { wcet: 1, deadline: 1, period: 1 };
    for tasks in [vec![most; 3], vec![short, most, short], vec![most, short, most]] {
        for (_, test) in EDF {
            test(&tasks, 2);
        }
        for bound in [rta_fixed, guan] {
            bound(&tasks, 2);
        }
        for bound in [devi_anderson, gel::g_edf, gel::g_fl] {
            bound(&tasks, 2);
            bound(&tasks, 3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_set_that_global_edf_tests_accept_misses_a_deadline(
        tasks in prop_oneof![sets(), sets_around(), early()], cpus in 1usize..=4, seed: u64,
    ) {
        let accepted: Vec<&str> =
            EDF.iter().filter(|test| test.1(&tasks, cpus)).map(|test| test.0).collect();
        if !accepted.is_empty() {
            prop_assert!(in_time(&tasks, &run_edf(&tasks, cpus, seed)), "{:?}", accepted);
        }
    }

    #[test]
    fn no_response_is_longer_than_its_bound(
        tasks in prop_oneof![sets(), sets().prop_map(|t| implicit(&t)), early()], cpus in 1usize..=4, seed: u64,
    ) {
        if let Some(bounds) = rta::edf(&tasks, cpus) {
            for (r, bound) in run_edf(&tasks, cpus, seed).iter().zip(bounds) {
                prop_assert!(*r <= bound, "edf {r} {bound}");
            }
        }
        for (name, bounds) in [("rta", rta_fixed(&tasks, cpus)), ("guan", guan(&tasks, cpus))] {
            // Less important tasks do not matter, late ones neither.
            let n = bounds.iter().take_while(|bound| bound.is_some()).count();
            for (r, bound) in run_fixed(&tasks[..n], cpus, seed).iter().zip(bounds.iter().flatten()) {
                prop_assert!(r <= bound, "{name} {r} {bound}");
            }
        }
    }

    #[test]
    fn what_one_test_accepts_a_better_one_does(
        tasks in prop_oneof![sets(), sets_around(), early()], cpus in 1usize..=4,
    ) {
        let says = |name: &str| EDF.iter().find(|test| test.0 == name).unwrap().1(&tasks, cpus);
        prop_assert!(!says("bcl") || says("bcl-iterative"));
        prop_assert!(!says("bcl-iterative") || says("rta"));
        for (name, test) in EDF {
            prop_assert!(!test(&tasks, cpus) || says("any"), "{}", name);
        }
        let whole = implicit(&tasks);
        // With λ at the largest utilization Baker's condition is GFB's; without early deadlines forced-forward demand
        // is too.
        prop_assert!(!yes(gfb(&whole, cpus)) || yes(bak(&whole, cpus)));
        prop_assert_eq!(gfb(&whole, cpus), ff_dbf(&whole, cpus));
        for (old, new) in rta_fixed(&tasks, cpus).iter().zip(guan(&tasks, cpus)) {
            prop_assert!(old.is_none() || new.is_some_and(|new| new <= old.unwrap()));
        }
        // On one CPU no work is carried in.
        if super::constrained(&tasks) {
            let exact = one_cpu::fixed::response_times(&tasks, &strict(tasks.len()));
            let mut ok = true;
            for ((exact, found), task) in exact.iter().zip(guan(&tasks, 1)).zip(&tasks) {
                ok &= exact.is_some_and(|time| time <= task.deadline);
                prop_assert_eq!(found, exact.filter(|_| ok));
            }
        }
    }

    #[test]
    fn nobody_is_later_than_the_bound(
        tasks in sets_around(), cpus in 1usize..=4, seed: u64,
    ) {
        let whole = implicit(&tasks);
        if let Some(bounds) = devi_anderson(&whole, cpus) {
            let seen = gel::late(&whole, &run_edf(&whole, cpus, seed));
            for (late, bound) in seen.iter().zip(&bounds) {
                prop_assert!(late <= bound, "{late} {bound}");
            }
        }
        for tasks in [&tasks, &whole] {
            if let Some(bounds) = gel::g_edf(tasks, cpus) {
                for (r, bound) in run_edf(tasks, cpus, seed).iter().zip(&bounds) {
                    prop_assert!(r <= bound, "g-edf {r} {bound}");
                }
            }
            if let Some(bounds) = gel::g_fl(tasks, cpus) {
                let m = cpus as i64;
                let key = |i: usize, release: u64| {
                    m * (release + tasks[i].deadline) as i64 - (m - 1) * tasks[i].wcet as i64
                };
                for jobs in [synchronous(tasks, END), sporadic(tasks, END, seed)] {
                    for (r, bound) in responses(&jobs, |_| cpus, key, END).iter().zip(&bounds) {
                        prop_assert!(r <= bound, "g-fl {r} {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn on_cpus_that_come_and_go_nobody_is_later_than_the_bound(
        tasks in sets(), parts in prop::collection::vec((1u64..=6, 0u64..=2, 0u64..6), 1..=4), seed: u64,
    ) {
        let mut tasks = implicit(&tasks);
        tasks.iter_mut().for_each(|t| t.wcet = t.wcet.div_ceil(2));
        let supplies: Vec<Supply> = parts
            .iter()
            .map(|(budget, out, _)| Supply { budget: *budget, period: budget + out, blackout: 2 * out })
            .collect();
        while restricted(&tasks, &supplies).is_none() && !tasks.is_empty() {
            tasks.pop();
        }
        let bounds = restricted(&tasks, &supplies).unwrap();
        // The budget first, from a random phase on.
        let there = |now: u64| {
            parts.iter().filter(|(budget, out, phase)| (now + phase) % (budget + out) < *budget).count()
        };
        let key = |i: usize, release: u64| (release + tasks[i].deadline) as i64;
        for jobs in [synchronous(&tasks, END), sporadic(&tasks, END, seed)] {
            let seen = gel::late(&tasks, &responses(&jobs, there, key, END));
            for (late, bound) in seen.iter().zip(&bounds) {
                prop_assert!(late <= bound, "{late} {bound}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn under_edzl_nobody_is_later_than_the_bound(
        tasks in sets(), parts in prop::collection::vec((3u64..=9, 0u64..=2, 0u64..6), 1..=4), early in 0u64..=2,
        seed: u64,
    ) {
        let mut tasks = implicit(&tasks);
        let supplies: Vec<Supply> = parts
            .iter()
            .map(|(budget, out, _)| Supply { budget: *budget, period: budget + out, blackout: 2 * out })
            .collect();
        while edzl(&tasks, &supplies, early).is_none() && !tasks.is_empty() {
            tasks.pop();
        }
        let bounds = edzl(&tasks, &supplies, early).unwrap();
        let there = |now: u64| {
            parts.iter().filter(|(budget, out, phase)| (now + phase) % (budget + out) < *budget).count()
        };
        let (budget, out, _) =
            parts.iter().max_by(|a, b| (a.1 * b.0).cmp(&(b.1 * a.0))).expect("one at least");
        // Without laxity first, by deadline; then those whose laxity ends soon; then all others.
        let key = |i: usize, release: u64, left: u64, now: u64| {
            let due = (release + tasks[i].deadline) as i64;
            match due - (now + left * (budget + out) / budget) as i64 {
                ..=0 => due,
                laxity if laxity <= early as i64 => 1 << 20,
                _ => (1 << 20) + due,
            }
        };
        for jobs in [synchronous(&tasks, END), sporadic(&tasks, END, seed)] {
            let seen = gel::late(&tasks, &by_state(&jobs, there, key, END));
            for (late, bound) in seen.iter().zip(&bounds) {
                prop_assert!(late <= bound, "{late} {bound}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever the releases, not only the ones that were tried.
    #[test]
    fn no_legal_releases_of_accepted_sets_lead_to_a_miss(tasks in tiny(), cpus in 2usize..=3) {
        let accepted: Vec<&str> =
            EDF.iter().filter(|test| test.1(&tasks, cpus)).map(|test| test.0).collect();
        if !accepted.is_empty() && tasks.len() > cpus {
            prop_assert_ne!(misses(&tasks, cpus, |_, left| left, 20_000), Some(true), "{:?}", accepted);
        }
        for bounds in [rta_fixed(&tasks, cpus), guan(&tasks, cpus)] {
            if bounds.iter().all(Option::is_some) && tasks.len() > cpus {
                prop_assert_ne!(misses(&tasks, cpus, |i, _| i as u64, 20_000), Some(true));
            }
        }
    }
}
