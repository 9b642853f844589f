// SPDX-License-Identifier: GPL-2.0-only
//! Sweeps over a key of a task-set file: each configuration is simulated at every point, several times with other
//! random work, and each figure comes with the interval in which its mean lies.

mod claims;
mod file;
mod shown;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};
use onbeat_command::misuse;
use onbeat_model::metrics::tardiness_over_time;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::{Detail, figures, simulate_with};

use super::Options;
use super::file::By;
use crate::lab::cancel_on_signals;
use crate::many::{Tally, on_all_processors};
use crate::output::{self, Form, print};
use file::{Figure, Varied};
use shown::Table;

use crate::mean::Mean;

/// Whether the text is that of such a sweep.
pub fn is_one(text: &str) -> bool {
    text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("base"))
}

/// Carries it out.
///
/// # Errors
/// The file or one of its task sets is bad, it was stopped, or results cannot be written.
pub fn run(options: &Options, text: &str) -> Result<ExitCode> {
    let place = || options.file.display().to_string();
    if options.by.is_some_and(|by| by != By::Sim) {
        bail!(misuse(format!("{}: a sweep over a task set is simulated; leave --by out", place())));
    }
    let sweep = Varied::read(&options.file, text).with_context(place)?;
    let outputs: Vec<&Path> =
        [&options.out, &options.plot].into_iter().flatten().map(|path| path.as_path()).collect();
    let bases = sweep.bases.iter().map(|base| base.path.as_path());
    let inputs: Vec<&Path> = [options.file.as_path()].into_iter().chain(bases).collect();
    output::distinct(&inputs, &outputs)?;
    outputs.iter().try_for_each(|file| output::check(file, Form::Any))?;
    for file in outputs {
        ensure!(
            options.force || output::special(file) || fs::symlink_metadata(file).is_err(),
            "{} is there already, and this sweep does not go on from it; give --force to replace it, or another name",
            file.display()
        );
    }
    let values = play(&sweep)?;
    let table = Table::new(&sweep, &values);
    print(&if options.json { table.to_json() } else { table.to_text() })?;
    if let Some(path) = &options.out {
        output::write(path, |out| out.write_all(table.to_csv().as_bytes()))?;
    }
    if let Some(path) = &options.plot {
        let svg = table.plot()?;
        output::write(path, |out| out.write_all(svg.as_bytes()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What came out: a value for each figure, configuration, point and replication, in this order. Of a sweep over time
/// the points are its intervals. NaN: there was none.
struct Values {
    /// x of each point.
    x: Vec<f64>,
    of: Vec<Vec<Vec<Vec<f64>>>>,
}

impl Values {
    /// Mean and interval of a figure at a point.
    fn mean(&self, figure: usize, configuration: usize, point: usize) -> Mean {
        Mean::of(&self.of[figure][configuration][point])
    }
}

/// What one run shows: of each figure a value, or in a sweep over time one for each interval.
type Played = Vec<Vec<f64>>;

/// Point, configuration and replication.
type One = (usize, usize, u64);

/// Replications between two looks at how far intervals reach.
const ROUND: u64 = 8;

/// Simulates everything: all replications, or, where figures say how far their intervals may reach, as many as that
/// takes of each point and configuration.
fn play(sweep: &Varied) -> Result<Values> {
    let round = match sweep.figures.iter().any(|figure| figure.reach.is_some()) {
        true => ROUND.min(sweep.replications),
        false => sweep.replications,
    };
    let tally = Tally::new("sweep", 0, "runs");
    let cancel = cancel_on_signals()?;
    let (mut runs, mut played): (Vec<One>, Vec<Played>) = (Vec::new(), Vec::new());
    let mut first = 0;
    let mut open: Vec<(usize, usize)> = sweep.each().collect();
    while !open.is_empty() && first < sweep.replications {
        let next = first..sweep.replications.min(first + round);
        first = next.end;
        let more: Vec<One> =
            open.iter().flat_map(|(p, c)| next.clone().map(|r| (*p, *c, r))).collect();
        tally.more(more.len() as u64);
        played.append(&mut play_all(sweep, &more, &tally, &cancel)?);
        runs.extend(more);
        let values = gather(sweep, &runs, &played);
        open.retain(|(p, c)| !settled(sweep, &values, *p, *c));
    }
    Ok(gather(sweep, &runs, &played))
}

/// So many equal values are not taken for certainty.
const LEAST: usize = 24;

/// Whether all intervals there are as narrow as they are to be.
fn settled(sweep: &Varied, values: &Values, point: usize, configuration: usize) -> bool {
    let narrow = |(f, figure): (usize, &Figure)| {
        let Some(reach) = figure.reach else { return true };
        let mean = values.mean(f, configuration, point);
        // What happens seldom may not have happened yet.
        let equal = mean.reach == 0.0 && mean.n < LEAST;
        mean.n == 0 || (!equal && mean.reach * figure.scale.abs() <= reach)
    };
    sweep.figures.iter().enumerate().all(narrow)
}

/// Simulates these runs on all processors.
fn play_all(
    sweep: &Varied,
    runs: &[One],
    tally: &Tally,
    cancel: &AtomicBool,
) -> Result<Vec<Played>> {
    let done = on_all_processors(runs.len(), cancel, |i| {
        let (point, configuration, replication) = runs[i];
        let played = one(sweep, point, configuration, replication);
        tally.add();
        played
    });
    let mut played = Vec::new();
    // Runs are begun in order: one that failed may come after one that was left out.
    for one in done.into_iter().flatten() {
        played.push(one?);
    }
    if played.len() < runs.len() {
        bail!("stopped on request after {} of {} runs", played.len(), runs.len());
    }
    Ok(played)
}

/// The figures of one run.
fn one(sweep: &Varied, point: usize, configuration: usize, replication: u64) -> Result<Played> {
    let set = sweep.task_set(point, configuration, replication)?;
    let policy =
        set.policies[0].core().context("the simulator plays Onbeat's own policies only")?;
    let entry = |name: &str| set.tasks.iter().position(|task| task.name == name);
    if let Some(every) = sweep.over_time {
        let run = simulate_with(&set, policy, Detail::Jobs)?;
        // Later there are only the last jobs' deadlines, if any: how long they are waited for depends on the policy.
        let whole = set.duration.div_ceil(every) as usize;
        let late = |figure: &Figure| {
            let name = figure.entry.as_deref().context("over_time is of an entry")?;
            let entry = entry(name).with_context(|| format!("no task is called \"{name}\""))?;
            let late = tardiness_over_time(&run, entry as u32, every);
            Ok(late.into_iter().take(whole).map(|value| value.unwrap_or(f64::NAN)).collect())
        };
        return sweep.figures.iter().map(late).collect();
    }
    let (_, metrics, tasks) = figures(&set, policy)?;
    let (metrics, tasks) = (serde_json::to_value(metrics)?, serde_json::to_value(tasks)?);
    let value = |figure: &Figure| -> Result<f64> {
        let key = |value: &serde_json::Value| value.get(&figure.key)?.as_f64();
        let Some(name) = &figure.entry else { return Ok(key(&metrics).unwrap_or(f64::NAN)) };
        // Of several task sets not all need have it.
        let Some(entry) = entry(name) else { return Ok(f64::NAN) };
        let own = tasks.as_array().into_iter().flatten();
        let own = own.filter(|task| task["entry"] == entry && task["class"] != "best_effort");
        let (mut sum, mut count) = (0.0, 0.0);
        own.filter_map(key).for_each(|value| (sum, count) = (sum + value, count + 1.0));
        Ok(sum / count)
    };
    sweep.figures.iter().map(|figure| Ok(vec![value(figure)?])).collect()
}

fn gather(sweep: &Varied, runs: &[One], played: &[Played]) -> Values {
    let most = played.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let x: Vec<f64> = match sweep.over_time {
        Some(every) => (0..most).map(|i| i as f64 * every as f64 / 1e9).collect(),
        None => sweep.points.iter().map(|point| point.x).collect(),
    };
    let empty = vec![vec![Vec::new(); x.len()]; sweep.configurations.len()];
    let mut of = vec![empty; sweep.figures.len()];
    for ((point, configuration, _), values) in runs.iter().zip(played) {
        for (figure, values) in values.iter().enumerate() {
            for (i, value) in values.iter().enumerate() {
                let at = if sweep.over_time.is_some() { i } else { *point };
                of[figure][*configuration][at].push(*value);
            }
        }
    }
    Values { x, of }
}

/// The policy that a set of the sweep is played under.
fn policy_of(set: &TaskSet) -> Result<()> {
    let [policy] = &set.policies[..] else { bail!("a configuration has one policy") };
    if !policy.is_core() {
        bail!("the simulator does not play {policy}; only Onbeat's own policies");
    }
    set.plays(policy).map_err(anyhow::Error::msg)
}
