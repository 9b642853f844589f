// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat provision`: how large budgets and queues of soft real-time streams should be.

mod rows;
mod write;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onbeat_analysis::provision::{Constraint, Provision, Streams, moments};
use onbeat_command::misuse;
use onbeat_model::taskset::load_trace;
use onbeat_model::units::{format_duration, parse_duration};
use onbeat_report::plot::panels;
use serde_json::{Value, json};

use crate::kind::{self, Kind};
use crate::output::{self, Form, print, whole};
use rows::{Experiment, against_budget};
use write::{Written, write};

/// So many times the mean a deviation may be.
const DEVIATIONS_MOST: f64 = 100.0;
/// Successive execution times more alike than this are not independent.
const CORRELATED: f64 = 0.2;

/// Say which budgets and queues streams of soft real-time jobs need
///
/// After Kenna et al. (RTSS 2011): each stream has a hard task (it shows a frame) and a soft server (it decodes one);
/// best effort has a server on every CPU. Shows the largest feasible budget and the one with the least bound on
/// tardiness.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat provision experiments/provision/kenna-t1.toml")]
pub struct Options {
    /// A file with several numbers of streams instead, such as experiments/provision/kenna-t1.toml
    #[arg(conflicts_with_all = [
        "cpus", "streams", "period", "mean", "deviation", "trace", "hard",
        "best_effort_budget", "best_effort_period", "epsilon", "write",
    ])]
    file: Option<PathBuf>,
    /// CPUs that schedule (without one set aside for interrupts)
    #[arg(long, value_parser = whole::<u32>(2..=4096), allow_hyphen_values = true, required_unless_present = "file")]
    cpus: Option<u32>,
    /// Streams
    #[arg(long, value_parser = whole::<u32>(1..=100_000), allow_hyphen_values = true, required_unless_present = "file")]
    streams: Option<u32>,
    /// Period of a stream, for example 41.7ms
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, required_unless_present = "file")]
    period: Option<u64>,
    /// Mean execution time of a soft job
    #[arg(
        long,
        value_parser = parse_duration,
        allow_hyphen_values = true,
        required_unless_present_any = ["trace", "file"]
    )]
    mean: Option<u64>,
    /// Its standard deviation
    #[arg(
        long,
        value_parser = parse_duration,
        allow_hyphen_values = true,
        required_unless_present_any = ["trace", "file"]
    )]
    deviation: Option<u64>,
    /// Take mean and deviation from this trace: one execution time in ns a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mean", "deviation"])]
    trace: Option<PathBuf>,
    /// Longest execution time of a hard job
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, default_value = "0ms")]
    hard: u64,
    /// Budget of a best-effort server
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, default_value = "5ms")]
    best_effort_budget: u64,
    /// Period of a best-effort server
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, default_value = "50ms")]
    best_effort_period: u64,
    /// How far the largest budget stays below the limit of bounded tardiness, at which the bound is infinite
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, default_value = "800us")]
    epsilon: u64,
    /// Draw the bound on tardiness against the budget; with a file also against the number of streams
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    written: Written,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Carries out the verb.
///
/// # Errors
/// The values make no sense, or the trace cannot be read.
pub fn run(options: &Options) -> Result<ExitCode> {
    let inputs: Vec<&Path> =
        [&options.file, &options.trace].into_iter().flatten().map(PathBuf::as_path).collect();
    let outputs: Vec<&Path> = [&options.plot, &options.written.write]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    output::distinct(&inputs, &outputs)?;
    options.plot.as_deref().map_or(Ok(()), |file| output::check(file, Form::Picture))?;
    options.written.check()?;
    match &options.file {
        Some(file) => run_file(options, file),
        None => run_one(options),
    }
}

fn draw(options: &Options, picture: impl FnOnce() -> Result<String>) -> Result<()> {
    let Some(plot) = &options.plot else { return Ok(()) };
    let svg = picture()?;
    output::write(plot, |out| out.write_all(svg.as_bytes()))
}

fn run_file(options: &Options, file: &Path) -> Result<ExitCode> {
    let experiment = Experiment::load(file).with_context(|| file.display().to_string());
    let experiment = experiment.map_err(|why| kind::instead(file, Kind::Provision, why))?;
    draw(options, || experiment.plot())?;
    print(&match options.json {
        true => format!("{:#}\n", experiment.object()),
        false => experiment.table(),
    })?;
    let infeasible = experiment.infeasible();
    ensure!(
        infeasible.is_empty(),
        "{}: no budget is feasible for {}",
        file.display(),
        infeasible.join(", for ")
    );
    Ok(ExitCode::SUCCESS)
}

fn run_one(options: &Options) -> Result<ExitCode> {
    let period = options.period.unwrap_or(0);
    ensure!(period > 0, misuse("--period 0: a stream needs a period; give one such as 41.7ms"));
    ensure!(
        options.best_effort_period > 0 && options.best_effort_budget <= options.best_effort_period,
        misuse("--best-effort-budget is above --best-effort-period; lower it")
    );
    let (mean, deviation, correlation) = figures(options)?;
    ensure!(
        mean > 0.0,
        misuse("--mean 0: a soft job needs some time; give its mean, such as 14.5ms")
    );
    ensure!(
        deviation <= DEVIATIONS_MOST * mean,
        misuse(format!(
            "--deviation {}: more than {DEVIATIONS_MOST} times the mean says nothing of a job; look at its unit",
            format_duration((deviation * 1e6) as u64)
        ))
    );
    let streams = Streams {
        cpus: options.cpus.unwrap_or(2),
        count: options.streams.unwrap_or(1),
        period: ms(period),
        mean,
        deviation,
        hard: ms(options.hard),
        best_effort_budget: ms(options.best_effort_budget),
        best_effort_period: ms(options.best_effort_period),
    };
    if let Some(r) = correlation.filter(|r| r.abs() > CORRELATED) {
        complain!(
            "onbeat provision: successive jobs of the trace are correlated ({r:.2}); the bound on \
             tardiness takes them to be independent and may be too low"
        );
    }
    let (budget, binding) = streams.largest_budget(ms(options.epsilon));
    ensure!(
        budget > 0.0,
        "nothing is left for a budget: --hard or --epsilon take all of it; lower them, or take fewer streams"
    );
    ensure!(
        mean <= ms(period),
        "a soft job takes {mean:.3}ms on average, more than its period: no budget is enough; give a longer period"
    );
    let violated = streams.violated(budget);
    let largest = streams.with_budget(budget);
    let best = feasible_best(&streams);
    let found = [("largest budget", Some(largest)), ("least tardiness", best)];
    draw(options, || Ok(panels(&[against_budget(&streams)])?))?;
    if options.json {
        let mut object = json!({
            "mean_ms": mean,
            "deviation_ms": deviation,
            "correlation": correlation,
            "binding": binding.to_string(),
            "violated": violated.iter().map(Constraint::to_string).collect::<Vec<_>>(),
            "feasible": violated.is_empty() || best.is_some(),
            "largest": of(&largest),
        });
        object["best"] = best.as_ref().map_or(Value::Null, of);
        print(&format!("{object:#}\n"))?;
    } else {
        print(&table(&streams, &found, binding, &violated))?;
    }
    if !violated.is_empty() && best.is_none() {
        let names: Vec<String> = violated.iter().map(Constraint::to_string).collect();
        bail!(
            "no budget is feasible: constraint {} is violated; take fewer streams, more CPUs, or less for best effort",
            names.join(", ")
        );
    }
    let said = write(options, &streams, &found)?;
    if !options.json {
        print(&said.unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The budget of least tardiness, if it violates no constraint.
fn feasible_best(streams: &Streams) -> Option<Provision> {
    streams.best_budget().filter(|best| streams.violated(best.budget).is_empty())
}

/// Mean and deviation in ms, and how correlated a trace is.
fn figures(options: &Options) -> Result<(f64, f64, Option<f64>)> {
    let Some(file) = &options.trace else {
        return Ok((ms(options.mean.unwrap_or(0)), ms(options.deviation.unwrap_or(0)), None));
    };
    let values: Vec<f64> = load_trace(file)?.into_iter().map(ms).collect();
    match moments(&values) {
        Some((mean, deviation, correlation)) => Ok((mean, deviation, Some(correlation))),
        None => bail!("{}: one value has no deviation; give at least two", file.display()),
    }
}

fn of(provision: &Provision) -> Value {
    // JSON knows no infinity.
    let finite = |x: f64| if x.is_finite() { json!(x) } else { Value::Null };
    json!({
        "budget_ms": provision.budget,
        "deterministic_tardiness_ms": finite(provision.deterministic),
        "tardiness_ms": finite(provision.tardiness),
        "queue": if provision.tardiness.is_finite() { json!(provision.queue) } else { Value::Null },
    })
}

fn table(
    streams: &Streams,
    found: &[(&str, Option<Provision>)],
    binding: Constraint,
    violated: &[Constraint],
) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} streams of {:.3}ms on {} CPUs; a soft job takes {:.3}ms (deviation {:.3}ms), a hard one {:.3}ms",
        streams.count, streams.period, streams.cpus, streams.mean, streams.deviation, streams.hard
    );
    let _ = writeln!(
        text,
        "{:<18} {:>10} {:>20} {:>20} {:>6}",
        "", "budget", "server late at most", "job expected late", "queue"
    );
    for (name, p) in found {
        match p {
            Some(p) if p.tardiness.is_finite() => {
                let _ = writeln!(
                    text,
                    "{name:<18} {:>8.2}ms {:>18.2}ms {:>18.2}ms {:>6}",
                    p.budget, p.deterministic, p.tardiness, p.queue
                );
            }
            Some(p) => {
                let _ = writeln!(text, "{name:<18} {:>8.2}ms {:>20}", p.budget, "no bound");
            }
            None => {
                let _ = writeln!(text, "{name:<18} {:>10}", "none");
            }
        }
    }
    let _ = writeln!(text, "Constraint {binding} allows no larger budget.");
    for constraint in violated {
        let _ = writeln!(text, "Violated by the largest budget: constraint {constraint}.");
    }
    text
}
