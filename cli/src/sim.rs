// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sim`: a task set in the simulator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onbeat_command::misuse;
use onbeat_model::policy::{CorePolicy, Policy};
use onbeat_model::rank::Rank;
use onbeat_model::run::{Platform, Run, World};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::parse_duration;
use onbeat_report::Outcome;
use onbeat_report::plot::progress;
use onbeat_sim::{SimError, figures};

use crate::again::{self, Again};
use crate::kind::{self, Kind};
use crate::lab::cancel_on_signals;
use crate::many::{Tally, on_all_processors};
use crate::output::{self, Outputs, folder_of, whole};
use crate::playable;
use crate::results::{Ended, Results};

/// Above so many jobs no events are kept unless a trace is wanted: they would take gigabytes.
const JOBS_IN_DETAIL: u64 = 500_000;

/// Simulate a task set under each of its policies
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat sim experiments/kato-11.toml")]
pub struct Options {
    /// Task-set files (docs/task-set.md)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Seed of all random work instead of the file's; with --repeat of the first run
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>(0..=i64::MAX as u64), allow_hyphen_values = true)]
    seed: Option<u64>,
    #[command(flatten)]
    again: Again,
    /// A policy to simulate instead of the file's list (repeatable)
    #[arg(long = "policy", value_name = "P")]
    policies: Vec<Policy>,
    /// Serve what reserves nothing in this order in place of the file's (`onbeat policies`)
    #[arg(long, value_name = "ORDER")]
    best_effort: Option<String>,
    /// Draw the CPU time of each task over time; with several policies one file for each
    #[arg(long, value_name = "FILE.svg", conflicts_with = "repeat")]
    progress: Option<PathBuf>,
    /// From when until when, such as 10s..12s
    #[arg(long, value_name = "FROM..TO", default_value = "0s..2s", requires = "progress")]
    progress_time: Span,
    #[command(flatten)]
    outputs: Outputs,
}

/// Two times, the later one last, ns.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: u64,
    until: u64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is no FROM..TO; write for example 10s..12s");
        let (from, until) = text.split_once("..").ok_or_else(wrong)?;
        let time = |text| parse_duration(text).map_err(|e| e.to_string());
        let span = Self { from: time(from)?, until: time(until)? };
        if span.from < span.until { Ok(span) } else { Err(wrong()) }
    }
}

/// Carries out the verb.
///
/// # Errors
/// A file is bad, nothing in it can be simulated, or the results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let named = options.outputs.named() || options.progress.is_some();
    let json = options.outputs.is_json();
    // A single run has nothing to show when it is stopped: the first Ctrl-C ends it.
    let cancel = match options.again.repeat {
        Some(_) => cancel_on_signals()?,
        None => Arc::default(),
    };
    again::each_file(&options.files, named, json, &cancel, |file| run_file(options, file, &cancel))
}

fn run_file(options: &Options, file: &Path, cancel: &AtomicBool) -> Result<()> {
    let mut set =
        TaskSet::load(file).map_err(|why| kind::instead(file, Kind::TaskSet, why.into()))?;
    options.again.change(&mut set, options.seed)?;
    if let Some(order) = &options.best_effort {
        set.serve_others_by(order).map_err(|why| misuse(format!("--best-effort: {why}")))?;
    }
    let policies = choose(&set, &options.policies)?;
    playable::warn("sim", &set, &policies);
    if options.again.repeat.is_some() {
        return repeat(options, &set, &policies, cancel);
    }
    let outputs = &options.outputs;
    let names: Vec<String> = policies.iter().map(|p| p.name.to_owned()).collect();
    let several = policies.len() > 1;
    let pictures = names.iter().filter_map(|name| options.picture_of(name, several));
    outputs.check(file, &names, &pictures.collect::<Vec<_>>())?;
    let mut failed = None;
    let traced = outputs.trace.is_some() || options.progress.is_some();
    let keep = if traced { Keep::AllEvents } else { Keep::Events };
    let results = simulate(&set, &policies, keep, |run| {
        if let Some(file) = outputs.trace_of(&run.policy, several) {
            failed = output::write_trace(run, &file).err().or(failed.take());
        }
        if let Some(file) = options.picture_of(&run.policy, several) {
            failed = options.draw(run, &file).err().or(failed.take());
        }
    })?;
    outputs.finish(&results, folder_of(file))?;
    if let Some(error) = failed {
        return Err(error);
    }
    match results.failures().count() {
        0 => outputs.promised([&results]),
        n => bail!("{n} of {} policies came to no end", results.runs.len()),
    }
}

/// Simulates the set with seeds one after the other, and shows means.
fn repeat(
    options: &Options,
    set: &TaskSet,
    policies: &[&CorePolicy],
    cancel: &AtomicBool,
) -> Result<()> {
    let sets = options.again.sets(set);
    let tally = Tally::new("sim", sets.len() as u64, "runs");
    let done = on_all_processors(sets.len(), cancel, |i| {
        let run = simulate(&sets[i], policies, Keep::Figures, |_| ());
        tally.add();
        run
    });
    drop(tally);
    // Those that were done when it was stopped, as far as their seeds follow each other.
    let (mut runs, mut whole) = (Vec::new(), true);
    for one in done {
        match one.transpose()? {
            Some(run) if whole => runs.push(run),
            _ => whole = false,
        }
    }
    let stopped = format!("stopped on request after {} of {} runs", runs.len(), sets.len());
    ensure!(!runs.is_empty(), stopped);
    again::show(set, &runs, options.outputs.is_json())?;
    ensure!(runs.len() == sets.len(), "{stopped}: these are the means of those");
    options.outputs.promised(&runs)
}

/// What is kept of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keep {
    /// Figures alone.
    Figures,
    /// Events, too, unless they are too many.
    Events,
    /// Events, however many.
    AllEvents,
}

impl Options {
    /// Where the picture of a policy's progress goes, if there is to be one.
    fn picture_of(&self, policy: &str, several: bool) -> Option<PathBuf> {
        self.progress.as_ref().map(|file| output::file_of(file, policy, several))
    }

    /// Draws it.
    fn draw(&self, run: &Run, file: &Path) -> Result<()> {
        let Span { from, until } = self.progress_time;
        let svg = progress(run, from, until)?;
        let svg =
            svg.context("--progress-time: nothing runs then; give a time within the duration")?;
        output::write(file, |out| out.write_all(svg.as_bytes()))
    }
}

/// Simulates a task set. `take` gets each run with its events, if they are kept.
///
/// # Errors
/// It holds work that only a real kernel can do.
pub fn simulate(
    set: &TaskSet,
    policies: &[&CorePolicy],
    keep: Keep,
    mut take: impl FnMut(&onbeat_model::run::Run),
) -> Result<Results> {
    let jobs: u64 = set.copies().map(|copy| copy.jobs).sum();
    let brief = keep == Keep::Figures || jobs > JOBS_IN_DETAIL && keep == Keep::Events;
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
    let why = format!("{others}: only Onbeat's own policies can be simulated; use `onbeat lab`");
    ensure!(asked.is_empty(), misuse(&why));
    ensure!(!found.is_empty(), why);
    complain!("onbeat sim: left out, because only `onbeat lab` can run them: {others}");
    Ok(found)
}

/// Its line in the table of policies, if it is one of Onbeat's.
pub fn core(policy: &Policy) -> Option<&'static CorePolicy> {
    policy.core()
}
