// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sim`: a task set in the simulator.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use onbeat_model::policy::{CorePolicy, Policy};
use onbeat_model::rank::Rank;
use onbeat_model::run::{Platform, World};
use onbeat_model::taskset::TaskSet;
use onbeat_report::Outcome;
use onbeat_sim::{SimError, figures};

use crate::output::{self, Outputs, folder_of};
use crate::playable;
use crate::results::{Ended, Results};

/// Above so many jobs no events are kept unless a trace is wanted: they would take gigabytes.
const JOBS_IN_DETAIL: u64 = 500_000;

/// Simulate a task set under each of its policies
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat sim experiments/kato-11.toml")]
pub struct Options {
    /// The task-set file (docs/task-set.md)
    file: PathBuf,
    /// A policy to simulate instead of the file's list (repeatable)
    #[arg(long = "policy", value_name = "P")]
    policies: Vec<Policy>,
    #[command(flatten)]
    outputs: Outputs,
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, nothing in it can be simulated, or the results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let set = TaskSet::load(&options.file)?;
    let policies = choose(&set, &options.policies)?;
    let outputs = &options.outputs;
    let names: Vec<String> = policies.iter().map(|p| p.name.to_owned()).collect();
    outputs.check(&options.file, &names)?;
    let mut failed = None;
    let results = simulate(&set, &policies, outputs.trace.is_some(), |run| {
        if let Some(file) = outputs.trace_of(&run.policy, policies.len() > 1) {
            failed = output::write_trace(run, &file).err().or(failed.take());
        }
    })?;
    outputs.finish(&results, folder_of(&options.file))?;
    if let Some(error) = failed {
        return Err(error);
    }
    match results.failures().count() {
        0 => Ok(ExitCode::SUCCESS),
        n => bail!("{n} of {} policies came to no end", results.runs.len()),
    }
}

/// Simulates a task set. `take` gets each run with its events, if they are kept.
///
/// # Errors
/// It holds work that only a real kernel can do.
pub fn simulate(
    set: &TaskSet,
    policies: &[&CorePolicy],
    traced: bool,
    mut take: impl FnMut(&onbeat_model::run::Run),
) -> Result<Results> {
    let jobs: u64 = set.copies().map(|copy| copy.jobs).sum();
    let brief = jobs > JOBS_IN_DETAIL && !traced;
    let mut runs = Vec::new();
    let mut platform = Platform::default();
    for policy in policies {
        // Under another policy they need not meet.
        let played = match brief {
            true => {
                figures(set, policy).map(|(run, all, tasks)| (Outcome::new(&run, all, tasks), run))
            }
            false => onbeat_sim::simulate(set, policy).map(|run| (Outcome::of(&run), run)),
        };
        let played = played.map(|(outcome, run)| (outcome.bounded(set), run));
        let (policy, outcome) = match played {
            Ok((outcome, run)) => {
                if !brief {
                    take(&run);
                }
                platform.clone_from(&run.platform);
                (policy.name.into(), Ok(outcome))
            }
            Err(error @ SimError::Deadlock { .. }) => (policy.name.into(), Err(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        runs.push(Ended { policy, outcome, kernel_warnings: Vec::new() });
    }
    if let [Ended { outcome: Err(why), .. }] = &runs[..] {
        bail!("{why}");
    }
    Ok(Results {
        experiment: set.name.clone(),
        title: set.title.clone(),
        world: World::Sim,
        platform,
        runs,
        limit: crate::limit::kept(set),
        host: None,
    })
}

/// The policies that can be simulated; says which others of the file are left out.
fn choose(set: &TaskSet, asked: &[Policy]) -> Result<Vec<&'static CorePolicy>> {
    let wanted = if asked.is_empty() { &set.policies } else { asked };
    let others: Vec<String> =
        wanted.iter().filter(|p| core(p).is_none()).map(ToString::to_string).collect();
    let mut found = Vec::new();
    for policy in wanted.iter().filter_map(core) {
        if !found.iter().any(|p: &&CorePolicy| p.name == policy.name) {
            found.push(policy);
        }
    }
    for policy in &found {
        playable::check(set, policy)?;
        playable::check_fit(set, policy, |task| task.class == Some(Rank::Hard))?;
    }
    if others.is_empty() {
        return Ok(found);
    }
    let others = others.join(", ");
    if !asked.is_empty() || found.is_empty() {
        bail!("{others}: only Onbeat's own policies can be simulated; use `onbeat lab`");
    }
    complain!("onbeat sim: left out, because only `onbeat lab` can run them: {others}");
    Ok(found)
}

/// Its line in the table of policies, if it is one of Onbeat's.
pub fn core(policy: &Policy) -> Option<&'static CorePolicy> {
    policy.core()
}
