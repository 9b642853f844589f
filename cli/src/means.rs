// SPDX-License-Identifier: GPL-2.0-only
//! What several runs of a task set came to: of each task under each policy the means of its figures, with the intervals
//! in which they lie; as a table, and as the JSON of `--repeat`.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use onbeat_model::metrics::TaskMetrics;
use onbeat_model::run::{Class, Platform, World};
use onbeat_model::taskset::TaskSet;
use onbeat_report::Outcome;
use serde::{Deserialize, Serialize};

use crate::mean::Mean;
use crate::results::Results;

/// Means of runs with seeds one after the other.
#[derive(Debug, Serialize, Deserialize)]
pub struct Means {
    experiment: String,
    world: Option<World>,
    platform: Option<Platform>,
    /// Of the first run.
    seed: u64,
    repetitions: u64,
    policies: Vec<Policy>,
    /// A line for each run that came to no end.
    failures: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Policy {
    policy: String,
    tasks: Vec<Task>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    task: String,
    period_ms: f64,
    runs: u64,
    jobs: u64,
    /// By the keys of [`FIGURES`].
    figures: BTreeMap<String, Interval>,
}

/// A mean and its 95 % confidence interval; nothing where there is none.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Interval {
    mean: Option<f64>,
    reach: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
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

impl Interval {
    fn of(mean: Mean) -> Self {
        let Mean { value, reach, n, least, most } = mean;
        let number = |value: f64| value.is_finite().then_some(value);
        let reach = (n > 1).then_some(reach);
        Self { mean: number(value), reach, least: number(least), most: number(most) }
    }

    fn text(&self, decimals: usize) -> String {
        match (self.mean, self.reach) {
            (None, _) => "-".into(),
            (Some(mean), None) => format!("{mean:.decimals$}"),
            (Some(mean), Some(reach)) => format!("{mean:.decimals$} ±{reach:.decimals$}"),
        }
    }
}

impl Means {
    /// Of runs of `set` with the seeds that follow its own.
    pub fn of(set: &TaskSet, runs: &[Results]) -> Self {
        let first = runs.first();
        let names = first.map_or(&[][..], |first| &first.runs[..]).iter();
        let failed = |(run, seed): (&Results, u64)| -> Vec<String> {
            let line = |(policy, why)| format!("{policy}, seed {seed}: not run: {why}");
            run.failures().map(line).collect()
        };
        let seeds = (0..).map(|i| set.seed.wrapping_add(i));
        Self {
            experiment: set.name.clone(),
            world: first.map(|run| run.world),
            platform: first.map(|run| run.platform.clone()),
            seed: set.seed,
            repetitions: runs.len() as u64,
            policies: names.map(|ended| Policy::of(&ended.policy, runs)).collect(),
            failures: runs.iter().zip(seeds).flat_map(failed).collect(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let heads = ["policy", "task", "period ms", "runs", "jobs"];
        table.set_header(heads.into_iter().chain(FIGURES.iter().map(|figure| figure.head)));
        for (policy, task) in self.policies.iter().flat_map(|p| p.tasks.iter().map(move |t| (p, t)))
        {
            let cells = [
                policy.policy.clone(),
                task.task.clone(),
                task.period_ms.to_string(),
                task.runs.to_string(),
                task.jobs.to_string(),
            ];
            let shown = |figure: &Figure| {
                task.figures.get(figure.key).map_or("-".into(), |of| of.text(figure.decimals))
            };
            table.add_row(cells.into_iter().chain(FIGURES.iter().map(shown)));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let lines = table.lines().map(|line| line.trim_end().to_owned());
        let lines: String =
            lines.chain(self.failures.clone()).map(|line| format!("{line}\n")).collect();
        format!(
            "{}: {} runs, seeds {} to {}; mean ± 95 % confidence interval\n{lines}",
            self.experiment,
            self.repetitions,
            self.seed,
            self.seed.wrapping_add(self.repetitions.saturating_sub(1)),
        )
    }
}

impl Policy {
    /// How its tasks fared in those runs that came to an end, in the order of the set.
    fn of(policy: &str, runs: &[Results]) -> Self {
        let mut tasks: BTreeMap<usize, Vec<&TaskMetrics>> = BTreeMap::new();
        let outcomes = runs.iter().flat_map(|run| &run.runs).filter(|run| run.policy == policy);
        for outcome in outcomes.filter_map(|ended| ended.outcome.as_ref().ok()) {
            for (i, task) in reserved(outcome).enumerate() {
                tasks.entry(i).or_default().push(task);
            }
        }
        let tasks = tasks.into_values().filter_map(|runs| Task::of(&runs)).collect();
        Self { policy: policy.into(), tasks }
    }
}

impl Task {
    fn of(runs: &[&TaskMetrics]) -> Option<Self> {
        let first = runs.first()?;
        let figure = |figure: &Figure| {
            let values: Vec<f64> = runs.iter().map(|run| (figure.of)(run)).collect();
            (figure.key.to_owned(), Interval::of(Mean::of(&values)))
        };
        Some(Self {
            task: first.name.clone(),
            period_ms: first.period_ms,
            runs: runs.len() as u64,
            jobs: runs.iter().map(|run| run.jobs).sum(),
            figures: FIGURES.iter().map(figure).collect(),
        })
    }
}

fn reserved(outcome: &Outcome) -> impl Iterator<Item = &TaskMetrics> {
    outcome.tasks.iter().filter(|task| task.class != Class::BestEffort)
}
