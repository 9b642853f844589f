// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat demo`: the movies of Kato et al. on a real kernel under every policy, replayed and really
//! decoded, with the paper's claims beside what was measured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_command::misuse;
use onbeat_lab::{LabSpec, Mode};
use onbeat_model::policy::{CorePolicy, Policy};
use onbeat_model::taskset::{TaskSet, Work as TaskWork};
use onbeat_model::units::{HOUR, format_duration, parse_duration};
use onbeat_report::claims::Claims;
use onbeat_report::html::{Experiment, Page, Verdict, render};

use crate::lab::carry::{Carried, Work, carry_out, guests_at_a_time};
use crate::lab::progress::Board;
use crate::lab::ship::{Cargo, Programs};
use crate::lab::{assemble, cancel_on_signals, fit};
use crate::limit::compute_and_keep;
use crate::output::{self, print, whole};
use crate::results::{Results, claims_beside, join};
use crate::sim::{Keep, core, simulate};

/// The experiments in the order of the report, by the figures of the paper.
const EXPERIMENTS: [&str; 7] = [
    "kato-01",
    "kato-09",
    "kato-10",
    "kato-11",
    "kato-09-decode",
    "kato-10-decode",
    "kato-11-decode",
];
/// Experiments whose outcomes also answer to the claims about another one, which only looks at
/// other figures of the same movies.
const ALSO: [(&str, &str); 2] = [("kato-11", "kato-12"), ("kato-11-decode", "kato-12")];
/// Policies of the experiments that the demo leaves to `onbeat lab`, to end within a quarter of an hour.
const LEFT_OUT: [&str; 2] = ["edf-wmr+cbs-hard", "g-edzl+fcbs-lag"];
/// What the trace shows.
const TRACED: (&str, &str) = ("kato-11", "edf-wmr+fcbs");

/// Play movies beside CPU-bound work under every policy, and compare
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat demo")]
pub struct Options {
    /// Folder for the report, the results and the trace
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    out: PathBuf,
    /// How many guests at a time; the figures don't depend on it [default: as many as there are
    /// processors and memory for]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=256), allow_hyphen_values = true)]
    jobs: Option<u16>,
    /// Only this experiment (repeatable)
    #[arg(long = "experiment", value_name = "NAME", value_parser = EXPERIMENTS)]
    experiments: Vec<String>,
    /// Only this policy (repeatable)
    #[arg(long = "policy", value_name = "P")]
    policies: Vec<Policy>,
    /// Play so long instead of as long as the experiments say
    #[arg(long, value_name = "TIME", value_parser = play_time, allow_hyphen_values = true)]
    duration: Option<u64>,
}

/// How long to play, ns: as long as a task set may last.
fn play_time(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|e| e.to_string())? {
        0 => Err("nothing can be played in no time; write a time above zero, such as 2s".into()),
        time if time > HOUR => Err("write a time of at most 1h".into()),
        time => Ok(time),
    }
}

/// How long to look for the limit of an experiment.
const LIMIT_TIME: Duration = Duration::from_secs(20);

/// Turns of the guests' CPUs, us: longer than `onbeat lab` has them, which takes a quarter less time here.
/// An interrupt then waits for up to 0.12 ms; frames last from 10 to 45 ms.
const TURN: u32 = 40;

/// Carries out the verb.
///
/// # Errors
/// Something needed is missing, nothing ran, or the results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let begin = Instant::now();
    let folder = experiments_folder()?;
    let claims = claims_beside(&folder)?;
    let sets = load(options, &folder)?;
    let place = prepare(&options.out)?;
    let cancel = cancel_on_signals()?;
    let programs = Programs::new()?;
    let mut spec = LabSpec::new([""]);
    if let Mode::Deterministic { turn_us, .. } = &mut spec.mode {
        *turn_us = TURN;
    }
    spec.cancel = Some(Arc::clone(&cancel));
    let mut works = Vec::new();
    for set in &sets {
        let policies = policies(set, options);
        let cargo = Arc::new(Cargo::load(set, &folder, &policies, &programs)?);
        for policy in policies {
            let mut spec = spec.clone();
            fit(&mut spec, set);
            works.push(Work { cargo: Arc::clone(&cargo), policy, spec });
        }
    }
    if works.is_empty() {
        bail!(misuse("none of the experiments has such a policy"));
    }
    let jobs = options.jobs.map_or_else(guests_at_a_time, usize::from);
    let (count, at) = (works.len(), jobs.min(works.len()));
    let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (runs, of) = (many(count, "run"), many(sets.len(), "experiment"));
    complain!("onbeat demo: {runs} of {of}, {at} at a time");
    let trouble: Mutex<Vec<anyhow::Error>> = Mutex::new(Vec::new());
    let carried = carry_out(&works, jobs, &cancel, &Board::new(count), &|work, run| {
        if let Some(name) = trace_name(&work.cargo.set, &run.policy, "lab")
            && let Err(error) = output::write_trace(run, &place.join(name))
        {
            trouble.lock().unwrap_or_else(|e| e.into_inner()).push(error);
        }
    });
    let partial = cancel.load(Ordering::Relaxed);
    complain!("onbeat demo: ended after {:.0} s", begin.elapsed().as_secs_f64());
    let mut trouble = trouble.into_inner().unwrap_or_else(|e| e.into_inner());
    // Beside what the policies did: what could be done. Work that is really decoded is not known beforehand.
    let known = |set: &&TaskSet| set.tasks.iter().all(|task| task.work.is_replayable());
    for set in sets.iter().filter(known) {
        if !cancel.load(Ordering::Relaxed)
            && let Err(error) = compute_and_keep(set, LIMIT_TIME)
        {
            complain!("onbeat demo: no limit for {}: {error:#}", set.name);
        }
    }
    let mut shown = Shown { sections: Vec::new(), text: String::new(), failures: 0 };
    let mut rest = carried.into_iter();
    for set in &sets {
        let carried: Vec<Carried> = rest.by_ref().take(policies(set, options).len()).collect();
        // An experiment of which nothing is there is left out when the demo was stopped.
        match assemble(set, carried) {
            Ok(results) => shown.add(set, &results, options, &claims, &place, &mut trouble)?,
            Err(_) if partial => shown.failures += 1,
            Err(error) => return Err(error.context(format!("experiment {}", set.name))),
        }
    }
    // First what costs no room on any disk.
    let warning = match partial {
        true => "\nThe demo was stopped: these results are partial.\n",
        false => "",
    };
    print(&format!("{}{warning}", shown.text.trim_start()))?;
    if shown.sections.is_empty() {
        bail!("stopped before the first result");
    }
    let report = place.join("report.html");
    let traced = shown.sections.iter().any(|section| !section.traces.is_empty());
    let written = write_page(&report, &sets, shown.sections, partial);
    trouble.extend(written.err());
    if let Some(error) = trouble.into_iter().next() {
        return Err(error);
    }
    print(&whereabouts(&report, &place, traced))?;
    match (partial, shown.failures) {
        (true, _) => bail!("stopped on request: the results are partial"),
        (_, 0) => Ok(ExitCode::SUCCESS),
        (_, n) => bail!("{n} of {count} runs failed; the tables say why"),
    }
}

/// What came out so far.
struct Shown {
    sections: Vec<Experiment>,
    text: String,
    failures: usize,
}

impl Shown {
    /// Adds an experiment: its table, its section with the simulator's figures beside the lab's,
    /// its results as JSON.
    fn add(
        &mut self,
        set: &TaskSet,
        results: &Results,
        options: &Options,
        claims: &[Claims],
        place: &Path,
        trouble: &mut Vec<anyhow::Error>,
    ) -> Result<()> {
        self.failures += results.failures().count();
        self.text.push_str(&format!("\n{}: {}\n\n", set.name, set.title));
        self.text.push_str(&results.to_text(false));
        let mut section = results.section(claims);
        let outcomes = results.outcomes();
        for (_, other) in ALSO.iter().filter(|(name, _)| *name == set.name) {
            let all: Vec<_> = outcomes.iter().collect();
            section.claims.extend(claims.iter().flat_map(|c| c.about(other, &all)));
        }
        if !section.claims.is_empty() {
            self.text.push('\n');
        }
        for claim in &section.claims {
            let verdict = match claim.verdict {
                Verdict::Holds => "holds",
                Verdict::Partly => "holds in part",
                Verdict::Differs => "differs here",
                Verdict::Open => "not measured",
            };
            let line = format!("{}: {} [{verdict}] {}\n", claim.figure, claim.claim, claim.ours);
            self.text.push_str(&line);
        }
        trouble.extend(keep(results, &place.join(format!("{}.json", set.name))).err());
        let mut sections = Vec::new();
        for outcome in &outcomes {
            if let Some(name) = trace_name(set, &outcome.policy, "lab") {
                section.traces.push((format!("{}, lab", outcome.policy), name));
            }
        }
        sections.push(section);
        let own: Vec<&CorePolicy> = policies(set, options).iter().filter_map(core).collect();
        if set.tasks.iter().all(|task| task.work.is_replayable()) && !own.is_empty() {
            let mut traced = None;
            let simulated = simulate(set, &own, Keep::Events, |run| {
                if let Some(name) = trace_name(set, &run.policy, "sim") {
                    match output::write_trace(run, &place.join(&name)) {
                        Ok(()) => traced = Some((format!("{}, simulator", run.policy), name)),
                        Err(error) => trouble.push(error),
                    }
                }
            })?;
            let mut section = simulated.section(&[]);
            section.traces.extend(traced);
            sections.push(section);
            trouble.extend(keep(&simulated, &place.join(format!("{}.sim.json", set.name))).err());
        }
        self.sections.extend(join(sections)?);
        Ok(())
    }
}

/// Where everything is. Few runs are traced: of others there are no traces to open.
fn whereabouts(report: &Path, place: &Path, traced: bool) -> String {
    let traces = match traced {
        true => "Traces (open them at https://ui.perfetto.dev) and results as JSON",
        false => "Results as JSON",
    };
    format!("\nReport: {}\n{traces}: {}\n", report.display(), place.display())
}

fn keep(results: &Results, file: &Path) -> Result<()> {
    let text = format!("{:#}\n", results.to_json());
    output::write(file, |out| out.write_all(text.as_bytes()))
}

/// The file for the trace of a run in a world, if it is the one that is traced.
fn trace_name(set: &TaskSet, policy: &str, world: &str) -> Option<String> {
    let traced = (set.name.as_str(), policy) == TRACED;
    traced.then(|| format!("{}.{policy}.{world}.perfetto-trace", set.name))
}

fn write_page(
    report: &Path,
    sets: &[TaskSet],
    experiments: Vec<Experiment>,
    partial: bool,
) -> Result<()> {
    let mut summary = String::from(
        "Four, five and six copies of a movie on four CPUs beside CPU-bound best-effort processes, all released \
         within a millisecond. Each movie has a reservation of 25 ms every 41 ms, as in Kato et al.; one frame is one \
         job. Once the movie's recorded frame times are replayed as CPU time, which is the controlled experiment; once \
         an H.264 movie is really decoded. The lab is a stock Linux kernel in deterministic virtual time: a second \
         run gives the same figures.",
    );
    if partial {
        summary.push_str(" The demo was stopped before its end: these results are partial.");
    }
    let mut platform: Vec<(String, String)> = Vec::new();
    for set in sets {
        let movies: u32 =
            set.tasks.iter().filter(|t| t.budget.is_some()).map(|task| task.count).sum();
        let decoded = set.tasks.iter().any(|t| matches!(t.work, TaskWork::Movie { .. }));
        let how = if decoded { "decoded" } else { "replayed" };
        let text = format!("{movies} movies, {how}, for {}", format_duration(set.duration));
        platform.push((set.name.clone(), text));
    }
    let title = "Onbeat: movies under load, on the real kernel".to_owned();
    let page = render(&Page { title, summary, experiments, platform })?;
    output::write(report, |out| out.write_all(page.as_bytes()).map_err(io::Error::other))
}

/// The folder `experiments` of the checkout: that of this program, else the current folder's.
fn experiments_folder() -> Result<PathBuf> {
    let me = std::env::current_exe().context("cannot tell where this program lies")?;
    let here = std::env::current_dir().unwrap_or_default();
    let places = me.ancestors().skip(1).chain([here.as_path()]);
    let found = places.map(|dir| dir.join("experiments")).find(|dir| dir.join("claims").is_dir());
    found.context("the folder `experiments` is not there; run the demo from Onbeat's checkout")
}

fn load(options: &Options, folder: &Path) -> Result<Vec<TaskSet>> {
    let asked = |name: &&&str| {
        options.experiments.is_empty() || options.experiments.iter().any(|e| e == **name)
    };
    let mut sets = Vec::new();
    for name in EXPERIMENTS.iter().filter(asked) {
        let mut set = TaskSet::load(folder.join(format!("{name}.toml")))?;
        set.duration = options.duration.unwrap_or(set.duration);
        sets.push(set);
    }
    Ok(sets)
}

fn policies(set: &TaskSet, options: &Options) -> Vec<Policy> {
    let asked = |p: &&Policy| match options.policies.is_empty() {
        true => !LEFT_OUT.contains(&p.to_string().as_str()),
        false => options.policies.contains(p),
    };
    set.policies.iter().filter(asked).cloned().collect()
}

/// Creates the result folder and makes sure that something can be written there.
fn prepare(out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out)
        .and_then(|()| tempfile::tempfile_in(out))
        .with_context(|| format!("cannot write to the result folder {}", out.display()))?;
    Ok(out.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_of_the_demo_is_there_with_best_effort_work_and_claims() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
        let claims = claims_beside(&folder).unwrap();
        for name in EXPERIMENTS {
            let set = TaskSet::load(folder.join(format!("{name}.toml"))).unwrap();
            assert_eq!((set.name.as_str(), set.cpus), (name, 4));
            assert_eq!(set.best_effort_count(), 8, "{name}");
            assert!(claims.iter().any(|c| !c.about(name, &[]).is_empty()), "{name}");
            assert!(set.tasks.iter().all(|t| t.budget.is_some()), "{name}");
        }
    }

    #[test]
    fn the_traced_run_is_part_of_the_demo() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
        let set = TaskSet::load(folder.join(format!("{}.toml", TRACED.0))).unwrap();
        assert!(set.policies.iter().any(|p| p.to_string() == TRACED.1));
        assert!(!LEFT_OUT.contains(&TRACED.1));
        assert_eq!(set.copies().count(), 6);
    }

    #[test]
    fn traces_are_named_only_where_there_are_some() {
        let told = |traced| whereabouts(Path::new("d/report.html"), Path::new("d"), traced);
        assert_eq!(told(false), "\nReport: d/report.html\nResults as JSON: d\n");
        assert!(told(true).contains("perfetto.dev) and results as JSON: d\n"));
    }
}
