// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat provision FILE`: several numbers of streams, beside what a paper printed, and their curves.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use onbeat_analysis::provision::{Provision, Streams};
use onbeat_model::units::parse_duration;
use onbeat_report::plot::{Curve, Panel, panels};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{feasible_best, ms, of};
use crate::mistake;

/// Bytes of a file.
const FILE_MOST: u64 = 1 << 20;
/// Points of a curve.
const POINTS: u32 = 400;
/// Tardiness beyond which a curve is cut off, in periods: it goes to infinity at both ends.
const HIGHEST: f64 = 60.0;

/// What the file says; times in ms.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    cpus: u32,
    #[serde(deserialize_with = "time")]
    period: f64,
    #[serde(deserialize_with = "time")]
    mean: f64,
    #[serde(deserialize_with = "time")]
    deviation: f64,
    #[serde(deserialize_with = "time")]
    hard: f64,
    best_effort: BestEffort,
    /// Its bound is drawn against the budget.
    curve: Option<u32>,
    #[serde(rename = "row")]
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BestEffort {
    #[serde(deserialize_with = "time")]
    budget: f64,
    #[serde(deserialize_with = "time")]
    period: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    streams: u32,
    /// Below the limit of constraint 3.
    #[serde(default, deserialize_with = "time")]
    epsilon: f64,
    /// Instead of the largest one.
    #[serde(default, deserialize_with = "some_time")]
    budget: Option<f64>,
    printed: Option<Printed>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    #[serde(deserialize_with = "time")]
    budget: f64,
    #[serde(deserialize_with = "time")]
    tardiness: f64,
    queue: u64,
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map(ms).map_err(serde::de::Error::custom)
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    time(from).map(Some)
}

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, or says what cannot be.
    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).context("cannot be read; check the path")?;
        let mut text = String::new();
        let read = file.take(FILE_MOST + 1).read_to_string(&mut text);
        read.map_err(|e| mistake::unread(e, "a TOML file"))?;
        ensure!(text.len() as u64 <= FILE_MOST, "is too long; give a TOML file");
        let e: Experiment = toml::from_str(&text)
            .map_err(|e| mistake::in_toml(&text, &e, "experiments/provision/kenna-t1.toml"))?;
        ensure!((2..=4096).contains(&e.cpus), "cpus = {}: 2 to 4096 can be had", e.cpus);
        ensure!(e.period > 0.0, "period = 0: a stream needs a period, such as \"41.7ms\"");
        ensure!(e.mean > 0.0, "mean = 0: a soft job needs some time, such as \"14.5ms\"");
        let BestEffort { budget, period } = e.best_effort;
        ensure!(period > 0.0 && budget <= period, "best_effort: its budget is above its period");
        ensure!(!e.rows.is_empty(), "there is no [[row]]; give at least one with streams = N");
        let counts = e.rows.iter().map(|row| row.streams).chain(e.curve);
        for count in counts {
            ensure!((1..=100_000).contains(&count), "{count} streams: 1 to 100000 can be had");
        }
        Ok(e)
    }

    fn streams(&self, count: u32) -> Streams {
        Streams {
            cpus: self.cpus,
            count,
            period: self.period,
            mean: self.mean,
            deviation: self.deviation,
            hard: self.hard,
            best_effort_budget: self.best_effort.budget,
            best_effort_period: self.best_effort.period,
        }
    }

    /// Each row with what its budget leads to, and what the best one would.
    fn found(&self) -> Vec<Found<'_>> {
        let budget = |row: &Row, streams: &Streams| {
            row.budget.unwrap_or_else(|| streams.largest_budget(row.epsilon).0)
        };
        let all = self.rows.iter().map(|row| (row, self.streams(row.streams)));
        all.map(|(row, streams)| {
            let budget = budget(row, &streams);
            (row, streams.with_budget(budget), feasible_best(&streams))
        })
        .collect()
    }

    /// Rows for which there is no budget, and what stands in the way of the largest.
    pub fn infeasible(&self) -> Vec<String> {
        let name = |(row, largest, best): &Found| {
            let violated = self.streams(row.streams).violated(largest.budget);
            let names: Vec<String> = violated.iter().map(ToString::to_string).collect();
            (best.is_none() && !names.is_empty()).then(|| {
                format!("{} streams: constraint {} is violated", row.streams, names.join(", "))
            })
        };
        self.found().iter().filter_map(name).collect()
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "         |           largest budget            |        printed in the paper         \
             |     least tardiness\n streams |    budget    expected late  queue   \
             |    budget    expected late  queue   |    budget    expected late  queue\n",
        );
        let three = |text: &mut String, found: Option<(f64, f64, u64)>| match found {
            Some((budget, late, queue)) if late.is_finite() => {
                let _ = write!(text, " | {budget:>8.2}ms  {late:>11.2}ms  {queue:>6}  ");
            }
            Some((budget, ..)) => {
                let _ = write!(text, " | {budget:>8.2}ms  {:>13}  {:>6}  ", "no bound", "–");
            }
            None => {
                let _ = write!(text, " | {:>10}  {:>13}  {:>6}  ", "–", "–", "–");
            }
        };
        let figures = |p: Provision| (p.budget, p.tardiness, p.queue);
        for (row, largest, best) in self.found() {
            let _ = write!(text, "{:>8}", row.streams);
            three(&mut text, Some(figures(largest)));
            three(&mut text, row.printed.map(|p| (p.budget, p.tardiness, p.queue)));
            three(&mut text, best.map(figures));
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// For programs.
    pub fn object(&self) -> Value {
        let one = |(row, largest, best): Found| {
            json!({
                "streams": row.streams,
                "largest": of(&largest),
                "best": best.as_ref().map_or(Value::Null, of),
                "printed": row.printed.map(|p| json!({
                    "budget_ms": p.budget, "tardiness_ms": p.tardiness, "queue": p.queue,
                })),
                "violated": self.streams(row.streams).violated(largest.budget)
                    .iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        };
        json!({ "rows": self.found().into_iter().map(one).collect::<Vec<_>>() })
    }

    /// Tardiness against the number of streams, and against the budget of `curve`.
    ///
    /// # Errors
    /// The picture cannot be drawn.
    pub fn plot(&self) -> Result<String> {
        let found = self.found();
        let rows = |value: &dyn Fn(&Found) -> Option<f64>| {
            found.iter().filter_map(|f| Some((f64::from(f.0.streams), value(f)?))).collect()
        };
        let curve = |name: &str, points: Vec<(f64, f64)>, marks_only| Curve {
            name: name.into(),
            points,
            marks_only,
            reach: Vec::new(),
        };
        let curves = vec![
            curve("largest budget", rows(&|f| Some(f.1.tardiness)), false),
            curve("printed in the paper", rows(&|f| Some(f.0.printed?.tardiness)), true),
            curve("least tardiness", rows(&|f| Some(f.2?.tardiness)), false),
        ];
        let counts = || self.rows.iter().map(|row| f64::from(row.streams));
        let highest = curves.iter().flat_map(|c| &c.points).map(|p| p.1);
        let highest = highest.filter(|y| y.is_finite()).fold(self.period, f64::max);
        let mut all = vec![Panel {
            title: "expected tardiness, at most".into(),
            axes: ("streams".into(), "ms".into()),
            x: (counts().fold(f64::INFINITY, f64::min) - 0.5, counts().fold(0.0, f64::max) + 0.5),
            y: (0.0, highest * 1.05),
            curves,
            ..Panel::default()
        }];
        all.extend(self.curve.map(|count| against_budget(&self.streams(count))));
        Ok(panels(&all)?)
    }
}

/// A row, what its budget leads to, and what the best one would.
type Found<'a> = (&'a Row, Provision, Option<Provision>);

/// The two parts of the bound and their sum against the budget (figure 2).
pub fn against_budget(streams: &Streams) -> Panel {
    let (low, high) = (streams.mean, streams.largest_budget(0.0).0);
    // Where no budget covers the mean there is nothing to draw but the axes.
    let width = (high - low).max(0.0);
    let part = |value: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        let at = |i| low + width * f64::from(i) / f64::from(POINTS);
        (1..POINTS).map(at).map(|budget| (budget, value(budget))).collect()
    };
    let curve = |name: &str, points| Curve { name: name.into(), points, ..Curve::default() };
    let deterministic = |budget: f64| streams.deterministic(budget);
    let all = |budget: f64| streams.with_budget(budget).tardiness;
    Panel {
        title: format!("expected tardiness at most, {} streams, against the budget", streams.count),
        axes: ("budget, ms".into(), "ms".into()),
        x: (low, low + width.max(1e-3)),
        y: (0.0, HIGHEST * streams.period),
        curves: vec![
            curve("deterministic part", part(&deterministic)),
            curve("stochastic part", part(&|budget| all(budget) - deterministic(budget))),
            curve("both", part(&all)),
        ],
        limit: streams.best_budget().map(|best| (best.budget, "least of both".into())),
        ..Panel::default()
    }
}
