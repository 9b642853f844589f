// SPDX-License-Identifier: GPL-2.0-only
//! Who judges a task set: schedulability tests, the simulator, or the real kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use onbeat_analysis::registry::Test;
use onbeat_analysis::sporadic::{Sporadic, Verdict};
use onbeat_lab::LabSpec;
use onbeat_model::policy::{CorePolicy, Policy};
use onbeat_model::protocol::{DEADLINE_REFUSES, DOES_NOT_FIT};
use onbeat_model::taskset::{Kernel, Overheads, TaskEntry, TaskSet, Work};
use onbeat_model::units::Fraction;
use onbeat_sim::first_miss;

use crate::lab::carry::{self, carry_out};
use crate::lab::progress::Board;
use crate::lab::ship::{Cargo, Programs};

/// How a set is played; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Played {
    /// For how long.
    pub duration: u64,
    /// The first so many sets of a point.
    pub sets: u64,
    /// Factor of all times.
    pub stretch: u64,
    /// Lateness that does not count.
    pub tolerance: u64,
    /// Of the machine.
    pub seed: u64,
}

/// Who judges.
pub enum Jury {
    /// Schedulability tests.
    Tests(Vec<&'static Test>),
    /// The simulator under these policies.
    Sim(Vec<&'static CorePolicy>, Played),
    /// The kernel under these policies.
    Lab(Vec<Policy>, Played),
}

impl Jury {
    /// A column each.
    pub fn names(&self) -> Vec<String> {
        match self {
            Jury::Tests(tests) => tests.iter().map(|test| test.name.to_owned()).collect(),
            Jury::Sim(policies, _) => policies.iter().map(|p| p.name.to_owned()).collect(),
            Jury::Lab(policies, _) => policies.iter().map(Policy::to_string).collect(),
        }
    }

    /// The word for it in files.
    pub fn world(&self) -> &'static str {
        match self {
            Jury::Tests(_) => "analysis",
            Jury::Sim(..) => "sim",
            Jury::Lab(..) => "lab",
        }
    }

    /// How many of a point's sets are judged.
    pub fn sets(&self, all: u64) -> u64 {
        match self {
            Jury::Tests(_) => all,
            Jury::Sim(_, play) | Jury::Lab(_, play) => play.sets,
        }
    }

    /// Who accepts a set; `None` if it was stopped. `name` is for people.
    ///
    /// # Errors
    /// The lab fails.
    pub fn judge(
        &self,
        name: &str,
        tasks: &[Sporadic],
        cpus: u32,
        means: &Means,
    ) -> Result<Option<Vec<bool>>> {
        match self {
            Jury::Tests(tests) => {
                let mut accepted = Vec::new();
                for test in tests {
                    if means.cancel.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    let answer = (test.run)(tasks, cpus as usize);
                    accepted.push(answer.verdict == Verdict::Schedulable);
                }
                Ok(Some(accepted))
            }
            Jury::Sim(policies, play) => {
                let set = play.task_set(name, tasks, cpus, Fraction::from_integer(0));
                let go_on = || !means.cancel.load(Ordering::Relaxed);
                let mut accepted = Vec::new();
                for policy in policies {
                    let Some(miss) = first_miss(&set, policy, &go_on)? else { return Ok(None) };
                    accepted.push(miss.is_none());
                }
                Ok(Some(accepted))
            }
            Jury::Lab(policies, play) => match &means.lab {
                Some(lab) => lab.judge(name, tasks, cpus, policies, play, &means.cancel),
                None => bail!("there is no lab"),
            },
        }
    }
}

impl Played {
    /// The set as a file would say it: each task has what it needs in every period.
    fn task_set(&self, name: &str, tasks: &[Sporadic], cpus: u32, share: Fraction) -> TaskSet {
        let entry = |(i, task): (usize, &Sporadic)| TaskEntry {
            name: format!("task{i}"),
            count: 1,
            period: task.period.saturating_mul(self.stretch),
            deadline: task.deadline.saturating_mul(self.stretch),
            budget: Some(task.wcet.saturating_mul(self.stretch)),
            offset: 0,
            stagger: 0,
            affinity: None,
            // What ends just when the next job is released does not sleep: without marks the two would be one.
            marks: true,
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
            work: Work::Constant(task.wcet.saturating_mul(self.stretch)),
        };
        TaskSet {
            name: name.to_owned(),
            title: String::new(),
            cpus,
            duration: self.duration,
            seed: self.seed,
            policies: Vec::new(),
            best_effort_share: share,
            max_share: None,
            clusters: 1,
            kernel: Kernel::Plain,
            overheads: Overheads::default(),
            groups: Vec::new(),
            purses: Vec::new(),
            resources: Vec::new(),
            loads: Vec::new(),
            sets: Vec::new(),
            tasks: tasks.iter().enumerate().map(entry).collect(),
            best_effort: None,
        }
    }
}

/// What judging needs beside the set.
pub struct Means {
    /// Set to stop.
    pub cancel: Arc<AtomicBool>,
    /// For the lab.
    pub lab: Option<Lab>,
}

/// What guests are made of.
pub struct Lab {
    programs: Programs,
    spec: LabSpec,
    board: Board,
}

impl Lab {
    /// For that many guests in all.
    ///
    /// # Errors
    /// Programs for the guests are missing.
    pub fn new(guests: usize) -> Result<Self> {
        let (programs, spec) = (Programs::new()?, LabSpec::new(["sh"]));
        Ok(Self { programs, spec, board: Board::new(guests) })
    }

    fn judge(
        &self,
        name: &str,
        tasks: &[Sporadic],
        cpus: u32,
        policies: &[Policy],
        play: &Played,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<Vec<bool>>> {
        // The guest has kernel threads and the service besides.
        let set = play.task_set(name, tasks, cpus, Fraction::new(1, 100));
        let cargo = Arc::new(Cargo::load(&set, ".".as_ref(), policies, &self.programs)?);
        let mut spec = self.spec.clone();
        crate::lab::fit(&mut spec, &set);
        spec.cancel = Some(Arc::clone(cancel));
        let work = |policy: &Policy| carry::Work {
            cargo: Arc::clone(&cargo),
            policy: policy.clone(),
            spec: spec.clone(),
        };
        let works: Vec<carry::Work> = policies.iter().map(work).collect();
        let mut accepted = Vec::new();
        for one in carry_out(&works, 1, cancel, &self.board, &|_, _| ()) {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match one.ended.outcome {
                Ok(outcome) => {
                    let late = outcome.metrics.tardiness_max_ms > play.tolerance as f64 / 1e6;
                    accepted.push(!late);
                }
                Err(why) if why.contains(DOES_NOT_FIT) || why.contains(DEADLINE_REFUSES) => {
                    accepted.push(false);
                }
                Err(why) => bail!("{name} under {}: {why}", one.ended.policy),
            }
        }
        Ok(Some(accepted))
    }
}
