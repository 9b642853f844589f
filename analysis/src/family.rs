// SPDX-License-Identifier: GPL-2.0-only
//! Families of random task sets whose load comes in bursts, the same for the same seed on every machine.
//!
//! In every set the reservations fit four CPUs beside the best-effort share, the mean work of each task is below its
//! budget, and its bursts are above: what a policy does with them is the question. docs/families.md describes each.

mod shape;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use onbeat_model::others::Others;
use onbeat_model::policy::{DEFAULT_SHARE, Policy};
use onbeat_model::taskset::{BestEffort, Kernel, Overheads, TaskEntry, TaskSet, Work};
use onbeat_model::units::{MS, SEC, US};

use crate::generate::Generator;
use shape::Shape;

/// A family of task sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Movies in lockstep whose scenes need more than the budget.
    Scenes,
    /// The same with rates, offsets and beginnings of their own.
    Scattered,
    /// Groups of pictures: one large, some middling, most small.
    Pictures,
    /// Load that wanders about the budget.
    Drift,
    /// Movies beside audio and control loops.
    Mixed,
    /// Job times with a heavy tail.
    Heavy,
}

/// A name that is no family; displays those that are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no family \"{0}\"; the families are {names}", names = Family::names())]
pub struct UnknownFamily(String);

/// CPUs of every set.
pub const CPUS: u32 = 4;
/// Best-effort processes of every set, one for each CPU.
pub const BEST_EFFORT: u32 = 4;
/// Threads of a simulated set wake up to that much after a release, ns, as on a kernel: exact distances between
/// releases, which no timer keeps, favour some policies.
pub const WAKE: u64 = 20 * US;
/// Works are drawn for so long at a time, ns, and their mean is what it should be over each such reel: the first 20 s
/// of a longer run are those of a shorter one.
pub const REEL: u64 = 20 * SEC;

/// Frame rates of movies as periods, ns: 30, 29.97, 25, 24 and 23.976 frames a second.
const PERIODS: [u64; 5] = [33_333 * US, 33_367 * US, 40 * MS, 41_667 * US, 41_708 * US];
/// Utilization of all reservations; 3.8 is what four CPUs have beside the best-effort share.
const TOTAL: (f64, f64) = (3.4, 3.7);
/// How much later than the one before each movie of [`Family::Scenes`] is released, ns.
const LOCKSTEP: u64 = 160 * US;
/// Work of a job at most, in periods: what takes longer could never be in time. Heavy tails may, a little.
const LONGEST: f64 = 0.95;
const LONGEST_HEAVY: f64 = 1.3;

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] = [
        Family::Scenes,
        Family::Scattered,
        Family::Pictures,
        Family::Drift,
        Family::Mixed,
        Family::Heavy,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Family::Scenes => "scenes",
            Family::Scattered => "scattered",
            Family::Pictures => "pictures",
            Family::Drift => "drift",
            Family::Mixed => "mixed",
            Family::Heavy => "heavy",
        }
    }

    /// What is in its sets, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Family::Scenes => "movies in lockstep, scenes of 1 to 4 s need more than the budget",
            Family::Scattered => "as scenes, with rates, offsets and beginnings of their own",
            Family::Pictures => "groups of pictures: one large, some middling, most small",
            Family::Drift => "load that wanders about the budget",
            Family::Mixed => "movies beside audio of 10 ms and control loops of 5 ms",
            Family::Heavy => "job times with a heavy tail",
        }
    }

    fn names() -> String {
        Family::ALL.map(Family::name).join(", ")
    }

    /// Set `seed` of the family, which releases jobs for `duration` ns and names `policies`.
    ///
    /// `seed` is at most 2⁶³ − 1 and `duration` from 1 s to 1 h, for a file that says the same to be sound.
    pub fn generate(self, seed: u64, duration: u64, policies: Vec<Policy>) -> TaskSet {
        let name = format!("{self}-{seed}");
        let mut drawn = Generator::new(seed, self.stream(0, 0));
        let plans = self.plans(&mut drawn);
        let entry = |(i, plan): (usize, &Plan)| {
            let jobs = duration.saturating_sub(plan.offset).div_ceil(plan.period);
            let values = self.works(seed, i as u64, plan, jobs);
            let start = (plan.start * values.len() as f64) as usize;
            TaskEntry {
                name: plan.name.clone(),
                count: 1,
                period: plan.period,
                deadline: plan.period,
                budget: Some(plan.budget),
                offset: plan.offset,
                stagger: 0,
                affinity: None,
                marks: false,
                user: None,
                value: None,
                class: None,
                group: None,
                purse: None,
                threads: 1,
                sections: Vec::new(),
                abort: false,
                frames: None,
                set: None,
                bound: None,
                waits: Default::default(),
                work: Work::Trace {
                    path: format!("{name}-{}.csv", plan.name).into(),
                    start,
                    values: Arc::from(values),
                },
            }
        };
        TaskSet {
            title: self.about().to_owned(),
            cpus: CPUS,
            duration,
            seed,
            policies,
            best_effort_share: DEFAULT_SHARE,
            max_share: None,
            clusters: 2,
            kernel: Kernel::Plain,
            overheads: Overheads { wake: WAKE, ..Overheads::default() },
            groups: Vec::new(),
            purses: Vec::new(),
            resources: Vec::new(),
            loads: Vec::new(),
            sets: Vec::new(),
            tasks: plans.iter().enumerate().map(entry).collect(),
            best_effort: Some(BestEffort {
                count: BEST_EFFORT,
                nice: 0,
                order: Others::default(),
                baseline: None,
                servers: None,
                group: None,
                generators: None,
            }),
            name,
        }
    }

    /// Sequences do not depend on each other: 0 is that of the set itself, `task` counts from 1.
    fn stream(self, task: u64, reel: u64) -> u64 {
        (self as u64 + 1) << 48 | task << 32 | reel
    }

    /// What the tasks of a set are, without their work.
    fn plans(self, drawn: &mut Generator) -> Vec<Plan> {
        let mut total = drawn.real(TOTAL.0, TOTAL.1);
        let mut plans = Vec::new();
        if self == Family::Mixed {
            for (kind, period, low, high, burst) in [
                ("audio", 10 * MS, 0.15, 0.25, (100 * MS, 400 * MS)),
                ("control", 5 * MS, 0.08, 0.16, (25 * MS, 100 * MS)),
            ] {
                for i in 0..2 {
                    let load = drawn.real(low, high);
                    total -= load;
                    let offset = drawn.between(0, period / US - 1) * US;
                    let shape = Shape::scenes(drawn, burst);
                    plans.push(Plan::new(format!("{kind}{i}"), period, load, offset, shape));
                }
            }
        }
        let movies = if self == Family::Mixed { 5 } else { 6 };
        let weights: Vec<f64> = (0..movies).map(|_| drawn.real(0.9, 1.1)).collect();
        let sum: f64 = weights.iter().sum();
        let common = drawn.among(&PERIODS);
        for (i, weight) in weights.iter().enumerate() {
            let period = drawn.among(&PERIODS);
            let offset = drawn.between(0, period / US - 1) * US;
            let (period, offset) = match self {
                Family::Scenes => (common, i as u64 * LOCKSTEP),
                _ => (period, offset),
            };
            let shape = match self {
                Family::Scenes | Family::Scattered | Family::Mixed => {
                    Shape::scenes(drawn, (SEC, 4 * SEC))
                }
                Family::Pictures => Shape::pictures(drawn),
                Family::Drift => Shape::drift(drawn),
                Family::Heavy => Shape::heavy(drawn),
            };
            let mut plan =
                Plan::new(format!("movie{i}"), period, total * weight / sum, offset, shape);
            if self == Family::Scattered {
                plan.start = drawn.real(0.0, 1.0);
            }
            plans.push(plan);
        }
        plans
    }

    /// Works of at least `jobs` jobs, ns: whole reels.
    fn works(self, seed: u64, task: u64, plan: &Plan, jobs: u64) -> Vec<u64> {
        let reel = (REEL / plan.period) as usize;
        let longest = if self == Family::Heavy { LONGEST_HEAVY } else { LONGEST };
        let most = plan.period as f64 * longest / plan.budget as f64;
        let mut works = Vec::new();
        let mut number = 0;
        while (works.len() as u64) < jobs.max(1) {
            let mut drawn = Generator::new(seed, self.stream(task + 1, number));
            let loads = plan.shape.reel(&mut drawn, reel, plan.period, most);
            let ns = |load: f64| ((load * plan.budget as f64).round() as u64).max(US);
            works.extend(loads.into_iter().map(ns));
            number += 1;
        }
        works
    }
}

/// What a task is, without its work.
#[derive(Debug, Clone)]
struct Plan {
    name: String,
    period: u64,
    budget: u64,
    offset: u64,
    /// Where in its work it begins, as a part of that.
    start: f64,
    shape: Shape,
}

impl Plan {
    fn new(name: String, period: u64, load: f64, offset: u64, shape: Shape) -> Self {
        // Whole microseconds, rounded down: the sum stays below what it should be.
        let budget = (load * period as f64) as u64 / US * US;
        Self { name, period, budget, offset, start: 0.0, shape }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let found = Family::ALL.into_iter().find(|family| family.name() == text);
        found.ok_or_else(|| UnknownFamily(onbeat_model::units::clip(text)))
    }
}

#[cfg(test)]
mod tests;
