// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat provision --write`: a task-set file with the budget that was found, to be played and measured.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use onbeat_analysis::provision::{Provision, Streams};
use onbeat_analysis::truncated::Whole;
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::{format_duration, parse_duration};

use super::{Options, ms};
use crate::output::{self, Form};
use crate::playable;

/// What is played: first the policy whose bounds are written.
const POLICIES: &str = r#"["edf-hsb-ns", "edf-hsb", "eevdf"]"#;

/// The options that say what to write.
#[derive(Debug, clap::Args)]
pub struct Written {
    /// Write a task-set file with the budget of least tardiness, for `onbeat sim` and `onbeat lab`
    #[arg(long, value_name = "FILE.toml")]
    pub write: Option<PathBuf>,
    /// Replace that file if it is there
    #[arg(long, requires = "write")]
    force: bool,
    /// Give it this budget instead, such as the largest one
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true, requires = "write")]
    budget: Option<u64>,
    /// Generators of best-effort work in it (docs/task-set.md)
    #[arg(
        long,
        value_parser = output::whole::<u32>(0..=1000),
        allow_hyphen_values = true,
        default_value = "18",
        requires = "write"
    )]
    generators: u32,
}

impl Written {
    /// Finds out before the work that the file can be written, and that nobody else's is lost.
    pub fn check(&self) -> Result<()> {
        let Some(file) = &self.write else { return Ok(()) };
        output::check(file, Form::Any)?;
        ensure!(
            self.force || output::special(file) || fs::symlink_metadata(file).is_err(),
            "{} is there already; give --force to replace it, or another name",
            file.display()
        );
        Ok(())
    }
}

/// Writes the file, if one is wanted; what to say of it. `found` are the budgets of the table by name.
pub fn write(
    options: &Options,
    streams: &Streams,
    found: &[(&str, Option<Provision>)],
) -> Result<Option<String>> {
    let Some(file) = &options.written.write else { return Ok(None) };
    let (which, chosen) = choose(options.written.budget, streams, found)?;
    let text = text(options, streams, found, (&which, &chosen), file)?;
    let set = TaskSet::from_bytes(text.as_bytes(), file)
        .context("no task-set file can hold this; take fewer streams or other times")?;
    let played = set.policies[0].core().expect("it is one of ours");
    playable::check(&set, played)?;
    playable::check_fit(&set, played, |_| true)?;
    output::write(file, |out| out.write_all(text.as_bytes()))?;
    let name = file.display();
    Ok(Some(format!("{name} has {which}; `onbeat sim {name}` measures what comes of it.\n")))
}

/// The budget that was asked for, or the best one there is, in whole ns.
fn choose(
    asked: Option<u64>,
    streams: &Streams,
    found: &[(&str, Option<Provision>)],
) -> Result<(String, Provision)> {
    let (which, budget) = match asked {
        Some(budget) => (format!("the budget {}", format_duration(budget)), budget),
        None => {
            let fits = |p: &Provision| streams.violated(p.budget).is_empty();
            let best = found.iter().rev().find_map(|(name, p)| Some((*name, p.filter(fits)?)));
            let Some((name, best)) = best else {
                bail!("no budget is feasible: nothing is written")
            };
            (format!("the budget of “{name}”"), (best.budget * 1e6) as u64)
        }
    };
    let chosen = streams.with_budget(ms(budget));
    let violated = streams.violated(chosen.budget);
    if let Some(constraint) = violated.first() {
        bail!(
            "a budget of {} violates constraint {constraint}; take one between those of the table",
            format_duration(budget)
        );
    }
    ensure!(
        chosen.tardiness.is_finite(),
        "a budget of {} leaves tardiness without bound; take a smaller one",
        format_duration(budget)
    );
    Ok((which, chosen))
}

fn text(
    options: &Options,
    streams: &Streams,
    found: &[(&str, Option<Provision>)],
    (which, chosen): (&str, &Provision),
    file: &Path,
) -> Result<String> {
    let mut text = head(streams, found, which, chosen);
    let (cpus, count) = (streams.cpus, streams.count);
    let _ = write!(
        text,
        "cpus = {cpus}\nduration = \"60s\"\nseed = 1\npolicies = {POLICIES}\n\
         best_effort_share = \"0%\"     # its servers serve it\n\n[best_effort]\ngenerators = {}\n",
        options.written.generators
    );
    match options.best_effort_budget {
        0 => text.push_str("servers = 0\n"),
        budget => {
            let (budget, period) = (time(budget), time(options.best_effort_period));
            let _ = write!(text, "servers = {cpus}\nbudget = {budget}\nperiod = {period}\n");
        }
    }
    let period = options.period.unwrap_or_default();
    let stagger = time(period / u64::from(count));
    if options.hard > 0 {
        let hard = time(options.hard);
        let _ = write!(
            text,
            "\n# Each shows a frame; hard, so first on its CPU.\n[[task]]\nname = \"display\"\ncount = {count}\n\
             class = \"hard\"\n\
             period = {}\nbudget = {hard}\nstagger = {stagger}\nwork = {{ constant = {hard} }}\n",
            time(period)
        );
    }
    text.push_str("\n# Each decodes one.\n");
    let up = |ms: f64| time(((ms * 1e3).ceil() as u64).saturating_mul(1000));
    let body = format!(
        "class = \"soft\"\nperiod = {}\nbudget = {}\nbound = {{ tardiness = {}, expected = {} }}\n",
        time(period),
        time((chosen.budget * 1e6).round() as u64),
        up(chosen.deterministic),
        up(chosen.tardiness)
    );
    match &options.trace {
        Some(trace) => from_trace(&mut text, streams, &body, period, &beside(file, trace)?, trace)?,
        None => {
            let (work, remark) = drawn(streams)?;
            let _ = write!(
                text,
                "{remark}[[task]]\nname = \"decode\"\ncount = {count}\n{body}stagger = {stagger}\nwork = {work}\n"
            );
        }
    }
    Ok(text)
}

/// What the file says of itself: the figures of each budget.
fn head(
    streams: &Streams,
    found: &[(&str, Option<Provision>)],
    which: &str,
    chosen: &Provision,
) -> String {
    let Streams { cpus, count, period, mean, deviation, hard, .. } = streams;
    let mut text = format!(
        "# SPDX-License-Identifier: GPL-2.0-only\n\
         # Made by `onbeat provision` for {count} streams of {period:.3}ms on {cpus} CPUs, after Kenna, Herman,\n\
         # Brandenburg, Mills and Anderson, \"Soft real-time on multiprocessors: are analysis-based schedulers\n\
         # really worth it?\", 2011. A decode job takes {mean:.3}ms (deviation {deviation:.3}ms), a display job\n\
         # {hard:.3}ms.\n#\n\
         #                      budget   server late at most (1)     job expected late (2)    queue\n"
    );
    for (name, p) in found.iter().copied().chain([("this file", Some(*chosen))]) {
        let words = match p {
            Some(p) if p.tardiness.is_finite() => format!(
                "{:>8.3}ms {:>23.3}ms {:>23.3}ms {:>8}",
                p.budget, p.deterministic, p.tardiness, p.queue
            ),
            Some(p) => format!("{:>8.3}ms {:>25}", p.budget, "no bound"),
            None => format!("{:>10}", "none"),
        };
        let _ = writeln!(text, "# {name:<16} {words}");
    }
    let _ = writeln!(
        text,
        "#\n# This file has {which}. Results show measured tardiness beside its bounds (1) and (2)."
    );
    text
}

/// A task for each stream, which play the trace from places as far apart as can be.
fn from_trace(
    text: &mut String,
    streams: &Streams,
    body: &str,
    period: u64,
    name: &str,
    trace: &Path,
) -> Result<()> {
    let (values, count) =
        (onbeat_model::taskset::load_trace(trace)?.len() as u64, u64::from(streams.count));
    let name = quoted(name);
    for i in 0..count {
        let (offset, start) = (time(i * (period / count)), i * values / count);
        let _ = write!(
            text,
            "{}[[task]]\nname = \"decode-{i}\"\n{body}offset = {offset}\n\
             work = {{ trace = {name}, start = {start} }}\n",
            if i > 0 { "\n" } else { "" },
        );
    }
    Ok(())
}

/// Work with the streams' mean and deviation, and what is to be said of it.
fn drawn(streams: &Streams) -> Result<(String, &'static str)> {
    let ns = |ms: f64| time((ms * 1e6).round() as u64);
    if streams.deviation <= 0.0 {
        return Ok((format!("{{ constant = {} }}", ns(streams.mean)), ""));
    }
    let Some(whole) = Whole::with(streams.mean, streams.deviation) else {
        bail!(
            "no normal distribution cut at 0 has a mean of {:.3}ms and a deviation of {:.3}ms; give --trace, or a \
             deviation of at most 0.7 of the mean",
            streams.mean,
            streams.deviation
        );
    };
    let (mean, sd, max) = (ns(whole.mean), ns(whole.deviation), ns(whole.max));
    let work = format!("{{ normal = {{ mean = {mean}, sd = {sd}, max = {max} }} }}");
    let remark =
        "# Before draws are kept between 0 and max; then mean and deviation are as above.\n";
    Ok((work, remark))
}

/// How a task-set file names a trace: from its own folder if the trace is in it.
fn beside(file: &Path, trace: &Path) -> Result<String> {
    let real = |path: &Path| {
        fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))
    };
    let (folder, trace) = (real(output::folder_of(file))?, real(trace)?);
    let name = trace.strip_prefix(&folder).unwrap_or(&trace);
    match name.to_str() {
        Some(name) => Ok(name.to_owned()),
        None => bail!("the name of {} is no text; rename the trace", trace.display()),
    }
}

fn time(ns: u64) -> String {
    quoted(&format_duration(ns))
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
