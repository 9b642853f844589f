// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat limit`: how few jobs could be late; and where that is kept for the tables of other verbs.

use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use onbeat_analysis::limit::{self, LimitError, Progress, capacity, limit};
use onbeat_command::misuse;
use onbeat_model::taskset::{Overheads, TaskSet};
use onbeat_model::units::{format_duration, parse_duration};
use onbeat_report::limit::{Limits, Span};
use onbeat_sim::SHARE_LAG;
use serde_json::{Value, json};

use crate::kind::{self, Kind};
use crate::output::{self, print};

/// Where limits are kept, in the current folder.
const FOLDER: &str = "results/limits";
/// So long nobody wonders what is going on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Say how few jobs could be late under a scheduler that knows the future
///
/// Solves a mixed-integer program (docs/limit.md). Each figure comes as a bound, below which no scheduler can be, and
/// as the number of late jobs in a schedule that was found; where both are equal, that is the limit. The result is kept
/// in results/limits, where `onbeat sim`, `lab`, `demo` and `report` find it for their tables.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat limit system.toml")]
pub struct Options {
    /// The task-set file (docs/task-set.md); its work must be known: constants, distributions, traces
    file: PathBuf,
    /// Only with all reservations kept: each task gets what its budget alone would have given it
    #[arg(long, conflicts_with = "no_guarantee")]
    guarantee: bool,
    /// Only without that guarantee: a task may be sacrificed for others
    #[arg(long)]
    no_guarantee: bool,
    /// CPUs that are left to the tasks [default: all, less the share of best-effort work if the file has some]
    #[arg(long, value_name = "CPUS", value_parser = parse_capacity, allow_hyphen_values = true)]
    capacity: Option<f64>,
    /// How far best-effort work may be behind its share on each CPU [default: 5ms, as under Onbeat's policies]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    lag: Option<u64>,
    /// How long to search in all; when it is over, what was proven until then is a bound only
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        default_value = "60s",
        allow_hyphen_values = true
    )]
    time_limit: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_capacity(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cpus) if cpus > 0.0 && cpus.is_finite() => Ok(cpus),
        _ => Err("write a number of CPUs above 0, for example 3.8".into()),
    }
}

/// Which limits are wanted.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    guaranteed: bool,
    free: bool,
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, or there is no limit for what it holds.
pub fn run(options: &Options) -> Result<ExitCode> {
    let set = TaskSet::load(&options.file)
        .map_err(|why| kind::instead(&options.file, Kind::TaskSet, why.into()))?;
    if !set.sets.is_empty() {
        bail!(
            "{}: the limit knows one set of CPUs, and the file has {} [[set]]; ask with a file for each set, with \
             its CPUs and its tasks",
            options.file.display(),
            set.sets.len()
        );
    }
    if let Some(what) = left_out(&set) {
        complain!("onbeat limit: {what}");
    }
    let cpus = f64::from(set.cpus);
    if let Some(capacity) = options.capacity.filter(|c| *c > cpus) {
        bail!(misuse(format!("--capacity {capacity}: the set has {cpus} CPUs; give at most that")));
    }
    let usual = capacity(&set);
    let asked = options.capacity.unwrap_or(usual);
    let lag = options.lag.unwrap_or(SHARE_LAG);
    if let Some(lag) = options.lag.filter(|lag| *lag > set.duration) {
        bail!(misuse(format!(
            "--lag {}: best-effort work cannot be behind by more than the set lasts ({}); give a few milliseconds, or \
             --capacity {cpus} to leave nothing to it",
            format_duration(lag),
            format_duration(set.duration)
        )));
    }
    let reserved = set.tasks.iter().any(|task| task.budget.is_some());
    let wanted = Wanted {
        guaranteed: options.guarantee || !options.no_guarantee && reserved,
        free: !options.guarantee,
    };
    let time = Duration::from_nanos(options.time_limit);
    let Computed { mut limits, refused, timed_out } = compute(&set, asked, lag, wanted, time)?;
    // Of a refusal there is nothing to keep.
    let usual = (asked, lag) == (usual, SHARE_LAG) && limits.jobs > 0;
    let place = usual.then(|| keep(&set, &limits));
    if let Some(Ok((_, all))) = &place {
        // An earlier search may have found more; of what was not asked for nothing is said.
        limits.guaranteed = all.guaranteed.filter(|_| limits.guaranteed.is_some());
        limits.free = all.free.filter(|_| limits.free.is_some());
    }
    print(&match options.json {
        true => format!("{:#}\n", object(&set, &limits, refused.as_deref(), timed_out)),
        false => text(&set, &limits, refused.as_deref(), timed_out),
    })?;
    match place {
        Some(Ok((file, _))) => complain!("onbeat limit: kept for tables in {}", file.display()),
        Some(Err(error)) => complain!("onbeat limit: not kept for tables: {error:#}"),
        None => {}
    }
    match (limits.guaranteed, refused) {
        (None, Some(why)) if options.guarantee => bail!("{why}"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What of the set the limit leaves out: whoever knows the future needs it less.
fn left_out(set: &TaskSet) -> Option<String> {
    let what = match (set.groups.is_empty(), set.purses.is_empty()) {
        (true, true) => return None,
        (false, true) => "groups are",
        (true, false) => "purses are",
        (false, false) => "groups and purses are",
    };
    Some(format!(
        "{what} left out: no scheduler that keeps them has fewer late jobs than the bound"
    ))
}

/// Computes the limits of a set on its usual capacity within about `time`, and keeps them for tables.
///
/// # Errors
/// There are none, or they cannot be kept.
pub fn compute_and_keep(set: &TaskSet, time: Duration) -> Result<()> {
    if let Some(limits) = kept(set)
        && limits.free.is_none_or(|span| span.is_exact())
        && limits.guaranteed.is_none_or(|span| span.is_exact())
    {
        return Ok(());
    }
    let wanted =
        Wanted { guaranteed: set.tasks.iter().any(|task| task.budget.is_some()), free: true };
    let limits = compute(set, capacity(set), SHARE_LAG, wanted, time)?.limits;
    keep(set, &limits).map(|_| ())
}

/// What a search has found.
struct Computed {
    limits: Limits,
    /// Why the reservations cannot be kept by anybody.
    refused: Option<String>,
    /// With more time they might be nearer to each other.
    timed_out: bool,
}

fn compute(
    set: &TaskSet,
    capacity: f64,
    lag: u64,
    wanted: Wanted,
    time: Duration,
) -> Result<Computed> {
    let begin = Instant::now();
    let lag_ms = lag as f64 / 1e6;
    let mut limits = Limits { jobs: 0, capacity, lag_ms, guaranteed: None, free: None };
    let (mut refused, mut timed_out) = (None, false);
    let bar = Bar::new();
    for (guarantee, wanted, more) in
        [(true, wanted.guaranteed, wanted.free), (false, wanted.free, false)]
    {
        if !wanted {
            continue;
        }
        let left = time.saturating_sub(begin.elapsed());
        let time_limit = if more { left / 2 } else { left };
        let options = limit::Options { capacity, lag, guarantee, time_limit };
        match limit(set, &options, &mut |at| bar.show(at, guarantee)) {
            Ok(found) => {
                limits.jobs = found.jobs;
                timed_out |= found.timed_out;
                let span = Some(Span { bound: found.bound, found: found.found });
                *(if guarantee { &mut limits.guaranteed } else { &mut limits.free }) = span;
            }
            Err(why @ LimitError::Overcommitted(..)) => refused = Some(why.to_string()),
            Err(error) => bail!("{}: {error}", set.name),
        }
    }
    // Each of both says something of the other.
    Ok(Computed { limits: limits.with(limits), refused, timed_out })
}

/// What is being done, on a terminal, once it takes long.
struct Bar {
    begin: Instant,
    bar: ProgressBar,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::hidden();
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}") {
            bar.set_style(style);
        }
        Self { begin: Instant::now(), bar }
    }

    fn show(&self, at: Progress, guarantee: bool) {
        if self.begin.elapsed() < PATIENCE || !stderr().is_terminal() {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        self.bar.set_length(at.of);
        self.bar.set_position(at.jobs);
        let which = if guarantee { "reservations kept" } else { "no guarantee" };
        self.bar.set_message(match at.pass {
            0 => format!("looking for a schedule, {which}"),
            pass => format!("proving a bound, pass {pass}, {which}"),
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn text(set: &TaskSet, limits: &Limits, refused: Option<&str>, timed_out: bool) -> String {
    let Limits { jobs, capacity, lag_ms, .. } = limits;
    let mut text = format!(
        "{}: {jobs} jobs within {}, {capacity:.2} of {} CPUs for them",
        set.name,
        format_duration(set.duration),
        set.cpus
    );
    if *capacity < f64::from(set.cpus) {
        let _ = write!(text, ", best-effort work at most {lag_ms} ms behind its share on a CPU");
    }
    text.push_str("\n\nlate jobs                    no scheduler has fewer   a schedule has\n");
    let lines = [("all reservations kept", limits.guaranteed), ("no guarantee", limits.free)];
    for (label, span) in lines {
        let Some(span) = span else { continue };
        let number = |n: u64| format!("{n} ({:.2} %)", n as f64 * 100.0 / (*jobs).max(1) as f64);
        let found = span.found.map_or_else(|| "none found".into(), number);
        let _ = writeln!(text, "{label:<28} {:>22} {found:>16}", number(span.bound));
    }
    if let Some(why) = refused {
        let _ = writeln!(text, "all reservations kept: {why}");
    }
    if lines.iter().any(|(_, span)| span.is_some_and(|span| !span.is_exact())) {
        text.push_str(
            "\nNot solved to the end: the left figure is a bound only, and what is possible lies \
             between both.\n",
        );
        text.push_str(match timed_out {
            true => "A longer --time-limit may bring them together.\n",
            false => "The search ended by itself, so a longer --time-limit does not bring them together.\n",
        });
    }
    text
}

fn object(set: &TaskSet, limits: &Limits, refused: Option<&str>, timed_out: bool) -> Value {
    let span = |span: Option<Span>| {
        let percent = |n: u64| n as f64 * 100.0 / limits.jobs.max(1) as f64;
        span.map(|span| {
            json!({
                "bound": span.bound,
                "bound_percent": percent(span.bound),
                "found": span.found,
                "found_percent": span.found.map(percent),
                "exact": span.is_exact(),
            })
        })
    };
    json!({
        "experiment": set.name,
        "cpus": set.cpus,
        "capacity": limits.capacity,
        "lag_ms": limits.lag_ms,
        "jobs": limits.jobs,
        "guaranteed": span(limits.guaranteed),
        "free": span(limits.free),
        "refused": refused,
        "timed_out": timed_out,
    })
}

/// The file for a set's limits: its name tells everything on which they depend.
fn place(set: &TaskSet) -> Result<PathBuf> {
    let same = TaskSet {
        name: String::new(),
        title: String::new(),
        policies: Vec::new(),
        clusters: 1,
        max_share: None,
        kernel: Default::default(),
        overheads: Overheads::default(),
        ..set.clone()
    };
    let mut hash = DefaultHasher::new();
    serde_json::to_string(&same)?.hash(&mut hash);
    // Program and definition may change.
    (env!("CARGO_PKG_VERSION"), SHARE_LAG, 1).hash(&mut hash);
    Ok(Path::new(FOLDER).join(format!("{:016x}.json", hash.finish())))
}

/// What is kept there; says on standard error if it is none.
fn read(file: &Path) -> Option<Limits> {
    let text = fs::read_to_string(file).ok()?;
    let read = serde_json::from_str(&text);
    if let Err(why) = &read {
        complain!("onbeat: {}: {why}: no limits; remove it", file.display());
    }
    read.ok()
}

/// The limits of the set, if `onbeat limit` has computed them before.
pub fn kept(set: &TaskSet) -> Option<Limits> {
    read(&place(set).ok()?)
}

/// Keeps limits for tables, together with what is known already; returns where, and all that is known now.
fn keep(set: &TaskSet, limits: &Limits) -> Result<(PathBuf, Limits)> {
    let file = place(set)?;
    fs::create_dir_all(FOLDER).with_context(|| format!("cannot make the folder {FOLDER}"))?;
    let all = read(&file)
        .filter(|before| before.same_question(limits))
        .map_or(*limits, |before| limits.with(before));
    let text = format!("{:#}\n", serde_json::to_value(all)?);
    output::write(&file, |out| out.write_all(text.as_bytes()))?;
    Ok((file, all))
}
