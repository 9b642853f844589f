// SPDX-License-Identifier: GPL-2.0-only
//! What came of a task set in one world: as JSON, as tables, as a page.

use std::path::Path;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use onbeat_model::run::{Class, Platform, World};
use onbeat_report::claims::Claims;
use onbeat_report::html::Experiment;
use onbeat_report::limit::Limits;
use onbeat_report::table::{self, mean};
use onbeat_report::{Outcome, result_json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::mistake::in_json;

/// What to say of what is something else.
pub const NO_RESULTS: &str =
    "not the JSON of results; write it with `onbeat sim` or `onbeat lab --json`";

/// What came of one policy.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its name.
    pub policy: String,
    /// Its figures, or why there are none.
    pub outcome: Result<Outcome, String>,
    /// What the lab's kernel complained about meanwhile.
    pub kernel_warnings: Vec<String>,
}

/// What came of a task set.
#[derive(Debug, Clone)]
pub struct Results {
    /// Name of the task set.
    pub experiment: String,
    /// Its head line.
    pub title: String,
    /// Where it ran.
    pub world: World,
    /// On what.
    pub platform: Platform,
    /// In the order asked for.
    pub runs: Vec<Ended>,
    /// What a scheduler that knows the future could do, if that was computed.
    pub limit: Option<Limits>,
    /// Everything that differs from one run to the next: wall-clock times, the host.
    pub host: Option<Value>,
}

impl Results {
    /// The figures of those policies that have some.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.runs.iter().filter_map(|run| run.outcome.clone().ok()).collect()
    }

    /// Policy and reason of those that have none.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.runs
            .iter()
            .filter_map(|run| Some((run.policy.as_str(), run.outcome.as_ref().err()?.as_str())))
    }

    /// The object of `--json`; docs/events.md describes it.
    pub fn to_json(&self) -> Value {
        let mut whole = result_json(&self.outcomes());
        let mut done = whole["runs"].take().as_array().cloned().unwrap_or_default().into_iter();
        let run = |run: &Ended| {
            let mut object = match &run.outcome {
                Ok(_) => done.next().unwrap_or_default(),
                Err(why) => json!({ "policy": run.policy, "error": why }),
            };
            if !run.kernel_warnings.is_empty() {
                object["kernel_warnings"] = json!(run.kernel_warnings);
            }
            object
        };
        whole["runs"] = self.runs.iter().map(run).collect();
        whole["experiment"] = json!(self.experiment);
        whole["title"] = json!(self.title);
        whole["world"] = json!(self.world);
        whole["platform"] = json!(self.platform);
        if let Some(limit) = &self.limit {
            whole["limit"] = json!(limit);
        }
        if let Some(host) = &self.host {
            whole["host"] = host.clone();
        }
        whole
    }

    /// Reads what [`Results::to_json`] gave.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(object: Value) -> Result<Self> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            experiment: String,
            #[serde(default)]
            title: String,
            world: World,
            platform: Platform,
            runs: Vec<Value>,
            limit: Option<Limits>,
            host: Option<Value>,
        }
        let whole: Whole =
            serde_json::from_value(object).map_err(|e| in_json(&e)).context(NO_RESULTS)?;
        anyhow::ensure!(!whole.runs.is_empty(), "the results hold no run: nothing was measured");
        let mut runs = Vec::new();
        for mut run in whole.runs {
            let policy = run["policy"].as_str().unwrap_or_default().to_owned();
            let kernel_warnings = run["kernel_warnings"].as_array().into_iter().flatten();
            let kernel_warnings =
                kernel_warnings.filter_map(|line| Some(line.as_str()?.to_owned())).collect();
            let outcome = match run["error"].take() {
                Value::String(why) => Err(why),
                _ => {
                    if let Some(name) = absurd(&run["metrics"]) {
                        anyhow::bail!(
                            "the run of {policy}: {name} is no figure that could have been measured"
                        );
                    }
                    run["world"] = json!(whole.world);
                    run["platform"] = json!(whole.platform);
                    let read = serde_json::from_value(run).map_err(|e| in_json(&e));
                    Ok(read.with_context(|| format!("the run of {policy} is incomplete"))?)
                }
            };
            runs.push(Ended { policy, outcome, kernel_warnings });
        }
        let Whole { experiment, title, world, platform, limit, host, .. } = whole;
        Ok(Self { experiment, title, world, platform, runs, limit, host })
    }

    /// For the terminal: where tasks differ a line for each of them, then a line for each policy and for the limits,
    /// the reasons of those without figures, and with `detail` all figures of each task.
    pub fn to_text(&self, detail: bool) -> String {
        let outcomes = self.outcomes();
        let mut text = String::new();
        if !outcomes.is_empty() {
            text.push_str(&table::render(&outcomes, self.limit.as_ref()));
        }
        for (policy, why) in self.failures() {
            text.push_str(&format!("{policy}: not run: {why}\n"));
        }
        if detail {
            for outcome in &outcomes {
                text.push_str(&format!("\n{}\n{}", outcome.policy, tasks(outcome)));
            }
        }
        text
    }

    /// One section of a page. Results of the same task set in another world can join it.
    pub fn section(&self, claims: &[Claims]) -> Experiment {
        let outcomes = self.outcomes();
        let all: Vec<&Outcome> = outcomes.iter().collect();
        let mut missing: Vec<String> =
            self.failures().map(|(policy, why)| format!("{policy} did not run: {why}.")).collect();
        missing.extend(self.limit.map(|limit| limit.sentence()));
        Experiment {
            id: self.experiment.clone(),
            title: match self.title.as_str() {
                "" => self.experiment.clone(),
                title => title.into(),
            },
            about: missing.join(" ").trim().into(),
            claims: claims.iter().flat_map(|c| c.about(&self.experiment, &all)).collect(),
            outcomes,
            limit: self.limit,
            traces: Vec::new(),
        }
    }
}

/// Figures of each task; best-effort tasks summed up.
fn tasks(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "task",
        "jobs",
        "missed",
        "owed",
        "owed late",
        "worst fps",
        "mean fps",
        "tard. max ms",
        "resp. 99 % ms",
        "CPU ms",
        "preempted",
        "migrated",
        "exhausted",
        "donated ms",
        "received ms",
    ]);
    for task in outcome.tasks.iter().filter(|t| t.class != Class::BestEffort) {
        table.add_row([
            task.name.clone(),
            task.jobs.to_string(),
            task.misses.to_string(),
            task.owed.to_string(),
            task.owed_late.to_string(),
            task.worst_fps.map_or_else(|| "–".into(), |n| n.to_string()),
            mean(task.mean_fps, 2),
            format!("{:.2}", task.tardiness_max_ms),
            format!("{:.2}", task.response_p99_ms),
            format!("{:.0}", task.cpu_ms),
            task.preemptions.to_string(),
            task.migrations.to_string(),
            task.exhaustions.to_string(),
            format!("{:.1}", task.donated_ms),
            format!("{:.1}", task.received_ms),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
    let best_effort: Vec<f64> =
        outcome.tasks.iter().filter(|t| t.class == Class::BestEffort).map(|t| t.cpu_ms).collect();
    if !best_effort.is_empty() {
        let (count, sum) = (best_effort.len(), best_effort.iter().sum::<f64>());
        text.push_str(&format!("  {count} best-effort tasks: {sum:.0} ms of CPU time\n"));
    }
    text
}

/// All claims of papers in the folder `claims` beside a task set; none if there is no such folder.
///
/// # Errors
/// A file in it cannot be read or understood.
pub fn claims_beside(folder: &Path) -> Result<Vec<Claims>> {
    let folder = folder.join("claims");
    let Ok(entries) = folder.read_dir() else { return Ok(Vec::new()) };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|suffix| suffix == "toml"));
    files.sort();
    let read = |file: &std::path::PathBuf| -> Result<Claims> {
        let text = std::fs::read_to_string(file)?;
        Ok(Claims::parse(&text)?)
    };
    let name = |file: &Path| file.display().to_string();
    files.iter().map(|file| read(file).with_context(|| name(file))).collect()
}

/// Joins sections about the same task set (from different worlds) into one.
pub fn join(sections: Vec<Experiment>) -> Result<Vec<Experiment>> {
    let mut joined: Vec<Experiment> = Vec::new();
    for mut section in sections {
        let Some(earlier) = joined.iter_mut().find(|s| s.id == section.id) else {
            joined.push(section);
            continue;
        };
        let world = |e: &Experiment| e.outcomes.first().map(|o| o.world);
        if world(&section).is_some()
            && earlier.outcomes.iter().any(|o| Some(o.world) == world(&section))
        {
            bail!("there are two results of {} from the same world; give one", section.id);
        }
        earlier.outcomes.append(&mut section.outcomes);
        earlier.traces.append(&mut section.traces);
        if !section.about.is_empty() && section.about != earlier.about {
            earlier.about = format!("{} {}", earlier.about, section.about).trim().into();
        }
        earlier.limit = match (earlier.limit, section.limit) {
            (Some(one), Some(other)) if one.same_question(&other) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
        if earlier.claims.is_empty() {
            earlier.claims = section.claims;
        }
    }
    Ok(joined)
}
/// Path of a number beyond all that clocks and counters can yield, with which nothing could be drawn.
fn absurd(value: &Value) -> Option<String> {
    let inside = |name: String, value: &Value| {
        absurd(value)
            .map(|rest| if rest.is_empty() { name.clone() } else { format!("{name}.{rest}") })
    };
    match value {
        Value::Number(number) => number.as_f64().filter(|x| x.abs() > 1e15).map(|_| String::new()),
        Value::Array(all) => {
            all.iter().enumerate().find_map(|(i, value)| inside(i.to_string(), value))
        }
        Value::Object(all) => all.iter().find_map(|(name, value)| inside(name.clone(), value)),
        _ => None,
    }
}
