// SPDX-License-Identifier: GPL-2.0-only

use super::*;

const SETS: std::ops::Range<u64> = 0..20;

fn set(family: Family, seed: u64, seconds: u64) -> TaskSet {
    family.generate(seed, seconds * SEC, vec!["g-edf+cbs".parse().unwrap()])
}

/// Works of a task, ns.
fn works(task: &TaskEntry) -> &[u64] {
    match &task.work {
        Work::Trace { values, .. } => values,
        other => panic!("{other:?}"),
    }
}

/// Every task of the first sets of every family, with its works.
fn each_task(mut look: impl FnMut(Family, u64, &TaskEntry, &[u64])) {
    for family in Family::ALL {
        for seed in SETS {
            for task in &set(family, seed, 20).tasks {
                look(family, seed, task, works(task));
            }
        }
    }
}

/// Mean over budget.
fn load(works: &[u64], task: &TaskEntry) -> f64 {
    works.iter().sum::<u64>() as f64 / works.len() as f64 / task.budget.unwrap() as f64
}

#[test]
fn the_same_seed_gives_the_same_set_and_another_another() {
    for family in Family::ALL {
        assert_eq!(set(family, 7, 3), set(family, 7, 3));
        let (a, b) = (set(family, 7, 3), set(family, 8, 3));
        for (a, b) in a.tasks.iter().zip(&b.tasks) {
            assert_ne!(works(a), works(b), "{family}");
        }
        assert_ne!(a.tasks, b.tasks);
    }
}

#[test]
fn a_longer_run_begins_as_a_shorter_one() {
    for family in Family::ALL.into_iter().filter(|f| *f != Family::Scattered) {
        let (short, long) = (set(family, 3, 2), set(family, 3, 90));
        for (short, long) in short.tasks.iter().zip(&long.tasks) {
            assert_eq!(short.budget, long.budget);
            assert!(works(long).starts_with(works(short)), "{family}");
            assert!(works(long).len() as u64 * long.period + long.offset >= 90 * SEC - long.period);
        }
    }
}

#[test]
fn the_reservations_fit_beside_the_best_effort_share() {
    for family in Family::ALL {
        for seed in SETS {
            let set = set(family, seed, 1);
            let load = |t: &TaskEntry| t.budget.unwrap() as f64 / t.period as f64;
            let total: f64 = set.tasks.iter().map(load).sum();
            assert!((3.39..3.7).contains(&total), "{family} {seed}: {total}");
            assert!(set.tasks.iter().all(|t| load(t) < 0.95), "{family} {seed}");
        }
    }
}

#[test]
fn the_mean_work_is_below_the_budget_and_a_tenth_of_jobs_above() {
    each_task(|family, seed, task, works| {
        let mean = load(works, task);
        assert!((0.7..0.97).contains(&mean), "{family} {seed} {}: {mean}", task.name);
        let above = works.iter().filter(|w| **w > task.budget.unwrap()).count() as f64;
        let above = above / works.len() as f64;
        assert!((0.05..0.5).contains(&above), "{family} {seed} {}: {above}", task.name);
    });
}

#[test]
fn scenes_and_drift_stay_above_the_budget_for_long() {
    each_task(|family, seed, task, works| {
        // Bursts of movies last for half a second at least, others' for 25 ms.
        let span = match (family, &task.name[..5]) {
            (Family::Pictures | Family::Heavy, _) => return,
            (Family::Drift, _) => 250 * MS,
            (_, "movie") => SEC,
            (_, "audio") => 100 * MS,
            _ => 25 * MS,
        };
        let jobs = (span / task.period) as usize;
        let most = works.windows(jobs).map(|w| load(w, task)).fold(0.0, f64::max);
        assert!(most > 1.1, "{family} {seed} {}: {most}", task.name);
    });
}

#[test]
fn a_picture_of_each_group_is_far_above_the_budget_and_no_whole_group_is() {
    each_task(|family, seed, task, works| {
        if family == Family::Pictures {
            let least_peak = works.chunks_exact(15).map(|w| w.iter().max().unwrap()).min();
            let peak = *least_peak.unwrap() as f64 / task.budget.unwrap() as f64;
            assert!(peak > 1.15, "{seed} {}: {peak}", task.name);
            let most = works.windows(45).map(|w| load(w, task)).fold(0.0, f64::max);
            assert!(most < 1.05, "{seed} {}: {most}", task.name);
        }
    });
}

#[test]
fn only_heavy_tails_hold_jobs_that_can_never_be_in_time() {
    let mut hopeless = 0;
    each_task(|family, seed, task, works| {
        let most = *works.iter().max().unwrap();
        assert!(most < 2 * task.period);
        if family == Family::Heavy {
            hopeless += works.iter().filter(|w| **w > task.deadline).count();
        } else {
            assert!(most < task.deadline, "{family} {seed} {}", task.name);
        }
    });
    assert!(hopeless > 0);
}

#[test]
fn names_parse_and_others_are_told_the_names() {
    for family in Family::ALL {
        assert_eq!(family.to_string().parse(), Ok(family));
        assert!(!family.about().contains('\n'));
    }
    let error = "movies".parse::<Family>().unwrap_err().to_string();
    assert!(error.contains("movies") && error.contains("scattered"), "{error}");
}
