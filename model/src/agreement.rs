// SPDX-License-Identifier: GPL-2.0-only
//! How far two runs of one task set agree, job by job: a simulated and a measured one, say.

use std::cmp::Reverse;

use serde::Serialize;

use crate::event::EventKind;
use crate::metrics::{jobs_of, metrics};
use crate::run::{Class, Run};

/// How many differences are named.
const WORST: usize = 10;

/// A job of which one run says something else than the other; times in ns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of its task.
    pub task: String,
    /// Its number.
    pub job: u64,
    /// When it finished in the first run, if it did.
    pub first: Option<u64>,
    /// When it finished in the second run, if it did.
    pub second: Option<u64>,
    /// How far apart that is; for a job that finished in one run only, to the other's horizon at least.
    pub apart: u64,
}

/// What comparing two runs gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Jobs compared: those released in both runs that finished in at least one of them.
    pub jobs: u64,
    /// Of those, how many finished in both within the tolerance of each other.
    pub agreeing: u64,
    /// Their fraction; 1 without jobs.
    pub fraction: f64,
    /// Miss ratio of the second run less that of the first.
    pub miss_ratio: f64,
    /// The greatest differences, greatest first, at most ten.
    pub worst: Vec<Difference>,
    /// The earliest job that is further apart than the tolerance: what came after may follow from it.
    pub earliest: Option<Difference>,
}

/// Why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// They are about different tasks.
    #[error("the runs have different tasks ({0} and {1}); compare runs of one task set")]
    Tasks(String, String),
    /// They ran under different policies.
    #[error("the runs have different policies ({0} and {1}); compare runs of one policy")]
    Policies(String, String),
}

/// Compares two runs of the same task set under the same policy. Finishing times up to `tolerance` ns apart agree.
///
/// # Errors
/// They are of different tasks or policies.
pub fn agreement(first: &Run, second: &Run, tolerance: u64) -> Result<Agreement, Incomparable> {
    if first.policy != second.policy {
        return Err(Incomparable::Policies(first.policy.clone(), second.policy.clone()));
    }
    let names = |run: &Run| run.tasks.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let (mine, other) = (names(first), names(second));
    if mine != other {
        return Err(Incomparable::Tasks(mine.join(", "), other.join(", ")));
    }
    let (mut jobs, mut agreeing) = (0, 0);
    let mut apart = Vec::new();
    for (task, (a, b)) in mine.iter().zip(jobs_of(first).iter().zip(&jobs_of(second))) {
        let mut b = b.iter().peekable();
        for x in a {
            while b.next_if(|y| y.index < x.index).is_some() {}
            let Some(y) = b.next_if(|y| y.index == x.index) else { continue };
            let distance = match (x.finish(), y.finish()) {
                (Some(x), Some(y)) => x.abs_diff(y),
                (Some(x), None) => second.horizon_ns.saturating_sub(x),
                (None, Some(y)) => first.horizon_ns.saturating_sub(y),
                (None, None) => continue,
            };
            jobs += 1;
            if x.finish().is_some() && y.finish().is_some() && distance <= tolerance {
                agreeing += 1;
                if distance == 0 {
                    continue;
                }
            }
            let (task, job) = (task.clone(), x.index);
            apart.push(Difference {
                task,
                job,
                first: x.finish(),
                second: y.finish(),
                apart: distance,
            });
        }
    }
    let beyond = |d: &&Difference| d.apart > tolerance || d.first.is_none() || d.second.is_none();
    let when = |d: &&Difference| d.first.into_iter().chain(d.second).min();
    let earliest = apart.iter().filter(beyond).min_by_key(when).cloned();
    apart.sort_by_key(|d| Reverse(d.apart)); // stable: equal ones stay in the order of tasks
    apart.truncate(WORST);
    Ok(Agreement {
        jobs,
        agreeing,
        fraction: if jobs == 0 { 1.0 } else { agreeing as f64 / jobs as f64 },
        miss_ratio: metrics(second).miss_ratio - metrics(first).miss_ratio,
        worst: apart,
        earliest,
    })
}

/// What comparing the migrations of two runs gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Migrations {
    /// In the first run.
    pub first: u64,
    /// In the second run.
    pub second: u64,
    /// Those of the first that the second has, too: of the same task to the same CPU, within the tolerance.
    pub agreeing: u64,
}

impl Migrations {
    /// The part of all migrations that agree, of either run; 1 without migrations.
    pub fn fraction(&self) -> f64 {
        match self.first + self.second {
            0 => 1.0,
            all => 2.0 * self.agreeing as f64 / all as f64,
        }
    }
}

impl std::ops::AddAssign for Migrations {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.second += other.second;
        self.agreeing += other.agreeing;
    }
}

/// Compares when tasks with reservations change CPUs. Instants up to `tolerance` ns apart agree; each counts once.
pub fn migrations(first: &Run, second: &Run, tolerance: u64) -> Migrations {
    let (a, b) = (migrations_of(first), migrations_of(second));
    let mut result = Migrations { first: a.len() as u64, second: b.len() as u64, agreeing: 0 };
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    // By task and CPU, then by time: whichever is behind without a partner has none.
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x.0 == y.0 && x.1.abs_diff(y.1) <= tolerance {
            result.agreeing += 1;
            a.next();
            b.next();
        } else if x < y {
            a.next();
        } else {
            b.next();
        }
    }
    result
}

/// Task and new CPU, and when, of each migration, in that order.
fn migrations_of(run: &Run) -> Vec<((u32, u32), u64)> {
    let mut last = vec![None; run.tasks.len()];
    let mut found = Vec::new();
    for event in &run.events {
        let Some(task) = run.tasks.get(event.task as usize) else { continue };
        if event.kind() != Some(EventKind::Run)
            || !matches!(task.class, Class::Reserved | Class::Member)
        {
            continue;
        }
        let before = last[event.task as usize].replace(event.cpu);
        if before.is_some_and(|cpu| cpu != event.cpu) {
            found.push(((event.task, event.cpu), event.time));
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::run::{Platform, TaskInfo, World};

    /// A run of tasks of period 10 with these finishing times; 0 for a job that did not finish.
    fn run(tasks: &[&[u64]]) -> Run {
        let info = |i: usize| TaskInfo {
            name: format!("t{i}"),
            entry: i as u32,
            copy: 0,
            class: Class::Reserved,
            period: 10,
            deadline: 10,
            budget: 5,
            tid: 0,
        };
        let mut events = Vec::new();
        for (task, ends) in tasks.iter().enumerate() {
            for (job, end) in ends.iter().enumerate() {
                let (task, job) = (task as u32, job as u64);
                events.push(Event::new(job * 10, EventKind::Release, job, job * 10 + 10).of(task));
                if *end > 0 {
                    events.push(Event::new(*end, EventKind::Complete, job, 5).of(task));
                }
            }
        }
        let mut run = Run {
            world: World::Sim,
            policy: "g-edf".into(),
            platform: Platform::default(),
            tasks: (0..tasks.len()).map(info).collect(),
            resources: Vec::new(),
            events,
            origin_ns: 0,
            horizon_ns: 100,
        };
        run.sort_events();
        run
    }

    #[test]
    fn equal_runs_agree_in_everything() {
        let a = run(&[&[5, 15], &[8, 25]]);
        let result = agreement(&a, &a, 0).unwrap();
        assert_eq!((result.jobs, result.agreeing, result.fraction), (4, 4, 1.0));
        assert_eq!((result.miss_ratio, result.worst, result.earliest), (0.0, vec![], None));
    }

    #[test]
    fn jobs_further_apart_than_the_tolerance_are_counted_and_the_worst_come_first() {
        let (a, b) = (run(&[&[5, 15], &[8, 18]]), run(&[&[6, 18], &[8, 30]]));
        let result = agreement(&a, &b, 2).unwrap();
        assert_eq!((result.jobs, result.agreeing), (4, 2));
        let apart: Vec<u64> = result.worst.iter().map(|d| d.apart).collect();
        assert_eq!(apart, [12, 3, 1]);
        // One of four jobs is late only in the second run.
        assert_eq!(result.miss_ratio, 0.25);
        let earliest = result.earliest.unwrap();
        assert_eq!((earliest.task.as_str(), earliest.job), ("t0", 1));
    }

    #[test]
    fn a_job_that_finished_in_one_run_only_does_not_agree_however_great_the_tolerance() {
        let (a, b) = (run(&[&[5, 0, 0]]), run(&[&[5, 15, 0]]));
        for (x, y) in [(&a, &b), (&b, &a)] {
            let result = agreement(x, y, 1000).unwrap();
            // The job that finished nowhere says nothing.
            assert_eq!((result.jobs, result.agreeing), (2, 1));
            assert_eq!(result.worst[0].apart, 85);
            assert_eq!(result.earliest.unwrap().job, 1);
        }
    }

    #[test]
    fn runs_of_other_tasks_or_policies_are_not_compared() {
        let (a, b) = (run(&[&[5]]), run(&[&[5], &[5]]));
        assert!(matches!(agreement(&a, &b, 0), Err(Incomparable::Tasks(..))));
        let c = Run { policy: "rm".into(), ..a.clone() };
        assert!(agreement(&a, &c, 0).unwrap_err().to_string().contains("g-edf and rm"));
    }

    #[test]
    fn migrations_agree_by_task_cpu_and_instant_and_count_once() {
        let moving = |runs: &[(u64, u32)]| {
            let mut run = run(&[&[5], &[5]]);
            run.events = runs
                .iter()
                .map(|(time, cpu)| Event::new(*time, EventKind::Run, 0, 0).of(1).on(*cpu))
                .collect();
            run
        };
        let a = moving(&[(0, 0), (10, 1), (20, 1), (30, 0), (40, 1)]);
        assert_eq!(migrations(&a, &a, 0), Migrations { first: 3, second: 3, agreeing: 3 });
        // To another CPU, 3 later, and once more.
        let b = moving(&[(0, 0), (10, 2), (33, 0), (40, 1), (41, 0), (42, 1)]);
        let near = migrations(&a, &b, 3);
        assert_eq!(near, Migrations { first: 3, second: 5, agreeing: 2 });
        assert_eq!(near.fraction(), 0.5);
        assert_eq!(migrations(&a, &b, 2).agreeing, 1);
        assert_eq!(migrations(&moving(&[]), &moving(&[(5, 3)]), 0).fraction(), 1.0);
    }
}
