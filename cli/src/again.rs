// SPDX-License-Identifier: GPL-2.0-only
//! `--seed`, `--duration` and `--repeat` of `onbeat sim` and `onbeat lab`: a task set with other random work, for
//! another time, or several times, and figures of each task with the intervals in which their means lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, bail, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use onbeat_model::metrics::TaskMetrics;
use onbeat_model::run::Class;
use onbeat_model::taskset::{TaskSet, limits};
use onbeat_model::units::{format_duration, parse_duration};
use onbeat_report::Outcome;
use serde_json::{Value, json};

use crate::mean::Mean;
use crate::output::{print, whole};
use crate::results::Results;

/// Repetitions that can be asked for.
const REPEAT_MOST: u64 = 10_000;

/// The options that say how often and for how long.
#[derive(Debug, Clone, Args)]
pub struct Again {
    /// Run for this long instead of the file's `duration`, such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    duration: Option<u64>,
    /// Run so often, with seeds one after the other, and show means with their 95 % confidence intervals (Student's t)
    #[arg(
        long,
        value_name = "N",
        value_parser = whole::<u32>(2..=REPEAT_MOST),
        allow_hyphen_values = true,
        conflicts_with_all = ["html", "trace", "detail"]
    )]
    pub repeat: Option<u32>,
}

impl Again {
    /// Gives the set another seed and duration, if these are asked for.
    ///
    /// # Errors
    /// The duration is too short or too long for it.
    pub fn change(&self, set: &mut TaskSet, seed: Option<u64>) -> Result<()> {
        set.seed = seed.unwrap_or(set.seed);
        let Some(duration) = self.duration else { return Ok(()) };
        let shown = format_duration(duration);
        ensure!(
            (1..=limits::TIME).contains(&duration),
            "--duration {shown}: give a time above 0 and up to {}",
            format_duration(limits::TIME)
        );
        set.duration = duration;
        if let Some(copy) = set.copies().find(|copy| copy.first_release >= duration) {
            bail!(
                "--duration {shown}: {} is first released after that; give a longer one",
                copy.name()
            );
        }
        let jobs = set.copies().map(|copy| copy.jobs * u64::from(copy.spec.threads));
        let jobs = jobs.sum::<u64>() + set.bursts();
        ensure!(
            jobs <= limits::JOBS,
            "--duration {shown}: tasks would release {jobs} jobs, more than {}; give a shorter one",
            limits::JOBS
        );
        Ok(())
    }

    /// The set once for each repetition, with its seed.
    pub fn sets(&self, set: &TaskSet) -> Vec<TaskSet> {
        let seeds = (0..u64::from(self.repeat.unwrap_or(1))).map(|i| set.seed.wrapping_add(i));
        seeds.map(|seed| TaskSet { seed, ..set.clone() }).collect()
    }
}

/// What comes of `one` for 0 to `count` − 1, begun in this order on all processors. None is begun after one that
/// failed, or once `cancel` is true.
pub fn on_all_processors<T: Send>(
    count: usize,
    cancel: &AtomicBool,
    one: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(count) {
            scope.spawn(|| {
                while let Some(i) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count)
                    && !failed.load(Ordering::Relaxed)
                    && !cancel.load(Ordering::Relaxed)
                {
                    let came = one(i);
                    failed.fetch_or(came.is_err(), Ordering::Relaxed);
                    *done[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(came);
                }
            });
        }
    });
    done.into_iter().map(|one| one.into_inner().unwrap_or_else(|e| e.into_inner())).collect()
}

/// A figure of a task that is shown.
struct Figure {
    /// Its name for programs.
    key: &'static str,
    /// Head of its column.
    head: &'static str,
    decimals: usize,
    of: fn(&TaskMetrics) -> f64,
}

const FIGURES: [Figure; 5] = [
    Figure { key: "owed_late", head: "owed late", decimals: 2, of: |t| t.owed_late as f64 },
    Figure { key: "miss_percent", head: "late %", decimals: 2, of: |t| 100.0 * t.miss_ratio },
    Figure {
        key: "tardiness_max_ms",
        head: "tard. max ms",
        decimals: 3,
        of: |t| t.tardiness_max_ms,
    },
    Figure {
        key: "response_p99_ms",
        head: "resp. 99 % ms",
        decimals: 3,
        of: |t| t.response_p99_ms,
    },
    Figure { key: "cpu_ms", head: "CPU ms", decimals: 1, of: |t| t.cpu_ms },
];

impl Figure {
    fn mean(&self, runs: &[&TaskMetrics]) -> Mean {
        Mean::of(&runs.iter().map(|run| (self.of)(run)).collect::<Vec<_>>())
    }
}

/// Carries out `one` for each of the files, of several each with its name above; `named`: outputs are for one file.
///
/// # Errors
/// An output is for one file only, or what one file says cannot be done; the others are carried out all the same.
pub fn each_file(
    files: &[PathBuf],
    named: bool,
    json: bool,
    mut one: impl FnMut(&Path) -> Result<()>,
) -> Result<ExitCode> {
    if let [file] = files {
        return one(file).map(|()| ExitCode::SUCCESS);
    }
    ensure!(
        !named,
        "--html, --trace and --progress are for one task-set file; give one, or leave them out"
    );
    let mut wrong = 0;
    for (i, file) in files.iter().enumerate() {
        if !json {
            print(&format!("{}{}:\n", if i > 0 { "\n" } else { "" }, file.display()))?;
        }
        if let Err(why) = one(file) {
            wrong += 1;
            // What is wrong within a file names it already.
            let (name, why) = (format!("{}:", file.display()), format!("{why:#}"));
            match why.starts_with(&name) {
                true => complain!("onbeat: {why}"),
                false => complain!("onbeat: {name} {why}"),
            }
        }
    }
    ensure!(wrong == 0, "{wrong} of {} files could not be carried out", files.len());
    Ok(ExitCode::SUCCESS)
}

/// Prints what came of runs of `set` with the seeds that follow its own.
///
/// # Errors
/// Some policies came to no end, or nothing can be printed.
pub fn show(set: &TaskSet, runs: &[Results], json: bool) -> Result<()> {
    let repeated = Repeated { set, runs };
    print(&if json { format!("{:#}\n", repeated.object()) } else { repeated.text() })?;
    let failed: usize = runs.iter().map(|run| run.failures().count()).sum();
    ensure!(failed == 0, "{failed} runs came to no end");
    Ok(())
}

/// What came of several runs of a set.
struct Repeated<'a> {
    set: &'a TaskSet,
    runs: &'a [Results],
}

/// Each task under a policy, in the order of the set, and its figures in each run.
type Tasks<'a> = Vec<(&'a TaskMetrics, Vec<&'a TaskMetrics>)>;

impl<'a> Repeated<'a> {
    /// Policies in their order, and how each of their tasks fared.
    fn policies(&self) -> Vec<(&'a str, Tasks<'a>)> {
        let names = self.runs.first().map_or(&[][..], |first| &first.runs[..]);
        let of = |policy: &'a str| {
            let mut tasks: BTreeMap<u32, (&TaskMetrics, Vec<&TaskMetrics>)> = BTreeMap::new();
            let outcomes = self.runs.iter().flat_map(|run| &run.runs);
            let outcomes = outcomes.filter(|ended| ended.policy == policy);
            for outcome in outcomes.filter_map(|ended| ended.outcome.as_ref().ok()) {
                for (i, task) in (0..).zip(reserved(outcome)) {
                    tasks.entry(i).or_insert((task, Vec::new())).1.push(task);
                }
            }
            (policy, tasks.into_values().collect())
        };
        names.iter().map(|ended| of(&ended.policy)).collect()
    }

    /// Of each task under each policy the means, for people.
    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let heads = ["policy", "task", "period ms", "runs", "jobs"];
        table.set_header(heads.into_iter().chain(FIGURES.iter().map(|figure| figure.head)));
        for (policy, tasks) in self.policies() {
            for (task, runs) in tasks {
                let jobs: u64 = runs.iter().map(|run| run.jobs).sum();
                let cells = [
                    policy.into(),
                    task.name.clone(),
                    task.period_ms.to_string(),
                    runs.len().to_string(),
                    jobs.to_string(),
                ];
                let means = FIGURES.iter().map(|f| f.mean(&runs).text(f.decimals));
                table.add_row(cells.into_iter().chain(means));
            }
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        format!(
            "{}: {} runs, seeds {} to {}; mean ± 95 % confidence interval\n{lines}{}",
            self.set.name,
            self.runs.len(),
            self.set.seed,
            self.set.seed.wrapping_add(self.runs.len() as u64 - 1),
            self.failures()
        )
    }

    fn failures(&self) -> String {
        let each = self.runs.iter().zip(0..);
        let of = |(run, i): (&Results, u64)| -> String {
            let seed = self.set.seed.wrapping_add(i);
            run.failures()
                .map(|(policy, why)| format!("{policy}, seed {seed}: not run: {why}\n"))
                .collect()
        };
        each.map(of).collect()
    }

    /// The same for programs.
    fn object(&self) -> Value {
        let number = |value: f64| value.is_finite().then_some(value);
        let figures = |runs: &[&TaskMetrics]| -> serde_json::Map<String, Value> {
            let one = |figure: &Figure| {
                let Mean { value, reach, n, least, most } = figure.mean(runs);
                let reach = (n > 1).then_some(reach);
                let (mean, least, most) = (number(value), number(least), number(most));
                let object = json!({"mean": mean, "reach": reach, "least": least, "most": most});
                (figure.key.to_owned(), object)
            };
            FIGURES.iter().map(one).collect()
        };
        let task = |(first, runs): (&TaskMetrics, Vec<&TaskMetrics>)| {
            let jobs: u64 = runs.iter().map(|run| run.jobs).sum();
            json!({"task": first.name, "period_ms": first.period_ms, "runs": runs.len(), "jobs": jobs,
                   "figures": figures(&runs)})
        };
        let policy = |(policy, tasks): (&str, Tasks<'_>)| {
            let tasks: Value = tasks.into_iter().map(task).collect();
            json!({"policy": policy, "tasks": tasks})
        };
        let first = self.runs.first();
        json!({
            "experiment": self.set.name,
            "world": first.map(|run| run.world),
            "platform": first.map(|run| &run.platform),
            "seed": self.set.seed,
            "repetitions": self.runs.len(),
            "policies": self.policies().into_iter().map(policy).collect::<Value>(),
            "failures": self.failures().lines().collect::<Vec<_>>(),
        })
    }
}

fn reserved(outcome: &Outcome) -> impl Iterator<Item = &TaskMetrics> {
    outcome.tasks.iter().filter(|task| task.class != Class::BestEffort)
}
