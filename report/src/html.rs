// SPDX-License-Identifier: GPL-2.0-only
//! The page: one file that opens from disk, without network, script or fonts of its own.

use minijinja::{Environment, context, value::Value};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use onbeat_model::run::{Class, World};

use crate::limit::Limits;
use crate::plot::{self, PlotError};
use crate::{Outcome, bounds, late, table};

/// Everything the page shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Head line.
    pub title: String,
    /// A paragraph under it; may be empty.
    pub summary: String,
    /// One section each.
    pub experiments: Vec<Experiment>,
    /// Name and value of what was used, beside what the outcomes' platforms say.
    pub platform: Vec<(String, String)>,
}

/// One task set under several policies, in one or more worlds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Name of the task set; unique on the page.
    pub id: String,
    /// Head line.
    pub title: String,
    /// A paragraph; may be empty.
    pub about: String,
    /// What came of it, in the order to be shown.
    pub outcomes: Vec<Outcome>,
    /// What a scheduler that knows the future could do, if that was computed.
    #[serde(default)]
    pub limit: Option<Limits>,
    /// What a paper says, and what we measured.
    pub claims: Vec<Claim>,
    /// Perfetto traces: label, and path relative to the page.
    pub traces: Vec<(String, String)>,
}

/// A claim of a paper beside our measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Short name, for example `kato-11`.
    pub id: String,
    /// Where it is made, for example `Kato et al., figure 11`.
    pub figure: String,
    /// The claim in a sentence.
    pub claim: String,
    /// What we measured, in a sentence.
    pub ours: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why not, where it does not or only in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Whether a claim holds here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As the paper says.
    Holds,
    /// In part; the text says in which.
    Partly,
    /// Not here; the text says why.
    Differs,
    /// Not, or not wholly, measured.
    Open,
}

impl Verdict {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Holds => ("✓ holds", "holds"),
            Verdict::Partly => ("◐ in part", "partly"),
            Verdict::Differs => ("✗ differs", "differs"),
            Verdict::Open => ("– open", "open"),
        }
    }
}

/// Why a page could not be made.
#[derive(Debug, Error)]
pub enum PageError {
    /// A picture.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The template; an error of this program.
    #[error("the page could not be filled in: {0}")]
    Template(#[from] minijinja::Error),
}

/// The page as HTML.
///
/// # Errors
/// [`PageError`], which no input should cause.
pub fn render(page: &Page) -> Result<String, PageError> {
    let mut environment = Environment::new();
    environment.add_template("page.html", include_str!("page.html"))?;
    let experiments = page.experiments.iter().map(experiment).collect::<Result<Vec<_>, _>>()?;
    Ok(environment.get_template("page.html")?.render(context! {
        title => page.title,
        summary => page.summary,
        platform => platform(page),
        experiments,
    })?)
}

fn experiment(e: &Experiment) -> Result<Value, PageError> {
    let mut worlds = Vec::new();
    for (world, name) in [
        (World::Lab, "On the real kernel, in the deterministic lab"),
        (World::Live, "Live on this machine"),
        (World::Sim, "In the simulator"),
    ] {
        let outcomes: Vec<&Outcome> = e.outcomes.iter().filter(|o| o.world == world).collect();
        if !outcomes.is_empty() {
            worlds.push(self::world(name, &outcomes, e.limit.as_ref())?);
        }
    }
    let claims: Vec<Value> = e
        .claims
        .iter()
        .map(|c| {
            let (verdict, class) = c.verdict.words();
            context! { id => c.id, figure => c.figure, claim => c.claim, ours => c.ours, verdict, class, why => c.why }
        })
        .collect();
    // A path that could leave the folder or name another host is shown, but is no link.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    let traces: Vec<Value> = e
        .traces
        .iter()
        .map(|(label, path)| {
            let inside = !path.starts_with('/') && !path.split('/').any(|part| part == "..");
            context! { label, path, link => inside && path.chars().all(plain) }
        })
        .collect();
    Ok(context! {
        id => anchor(&e.id),
        name => e.id,
        title => e.title,
        about => e.about,
        worlds,
        claims,
        traces,
    })
}

/// Figures, pictures and tables of one world.
fn world(name: &str, outcomes: &[&Outcome], limit: Option<&Limits>) -> Result<Value, PageError> {
    let rate = rate(outcomes);
    let safe = Value::from_safe_string;
    let curves = match plot::has_curves(outcomes) {
        true => Some(safe(plot::curves(outcomes, rate)?)),
        false => None,
    };
    let frames = match outcomes.iter().all(|o| o.metrics.mean_fps.is_some()) {
        true => Some(safe(plot::frames(outcomes, rate)?)),
        false => None,
    };
    let tasks: Vec<Value> = outcomes.iter().map(|o| tasks(o)).collect();
    Ok(context! {
        name,
        curves,
        frames,
        quantities => safe(plot::quantities(outcomes)?),
        by_task => table::by_task(outcomes).map(lines),
        summary => lines(table::summary(outcomes, limit)),
        late => late::lines(outcomes).map(lines),
        loads => table::loads(outcomes).map(lines),
        bounds => bounds::lines(outcomes).map(lines),
        bounds_remark => bounds::remark(outcomes),
        tasks,
    })
}

/// A table for the page.
fn lines(table: table::Lines) -> Value {
    let head: Vec<Value> =
        table.head.iter().map(|(head, about)| context! { head, about }).collect();
    context! { head, rows => table.rows }
}

/// Figures of each task under one policy, best-effort tasks summed up.
fn tasks(o: &Outcome) -> Value {
    let counted = |t: &&_| matches!(t, onbeat_model::metrics::TaskMetrics { class, .. } if *class != Class::BestEffort);
    let rows: Vec<Vec<String>> = o
        .tasks
        .iter()
        .filter(counted)
        .map(|t| {
            vec![
                t.name.clone(),
                t.jobs.to_string(),
                t.misses.to_string(),
                t.owed.to_string(),
                t.owed_late.to_string(),
                t.worst_fps.map_or_else(|| "–".into(), |n| n.to_string()),
                format!("{:.2}", t.mean_fps),
                format!("{:.2}", t.tardiness_p99_ms),
                format!("{:.2}", t.tardiness_max_ms),
                format!("{:.2}", t.response_p99_ms),
                format!("{:.0}", t.cpu_ms),
                t.preemptions.to_string(),
                t.migrations.to_string(),
                t.exhaustions.to_string(),
                format!("{:.1}", t.donated_ms),
                format!("{:.1}", t.received_ms),
            ]
        })
        .collect();
    let best_effort = o.tasks.len() - rows.len();
    context! { policy => o.policy, rows, best_effort }
}

/// The frame rate that was asked for, if all tasks ask for the same.
fn rate(outcomes: &[&Outcome]) -> Option<f64> {
    let mut periods = outcomes
        .iter()
        .flat_map(|o| &o.tasks)
        .filter(|t| t.class != Class::BestEffort)
        .map(|t| t.period_ms);
    let first = periods.next().filter(|p| *p > 0.0)?;
    periods.all(|p| p == first).then_some(1000.0 / first)
}

/// What everything ran on, each different value once.
fn platform(page: &Page) -> Vec<(String, String)> {
    let mut rows = page.platform.clone();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() && !rows.iter().any(|(n, v)| n == name && *v == value) {
            rows.push((name.into(), value));
        }
    };
    for o in page.experiments.iter().flat_map(|e| &e.outcomes) {
        let p = &o.platform;
        let world = o.world_name();
        add("Onbeat", p.onbeat.clone());
        add(&format!("kernel ({world})"), p.kernel.clone());
        add("QEMU", p.qemu.clone());
        add("acceleration", p.accel.clone());
        add(&format!("CPUs ({world})"), p.cpus.to_string());
        add("seed", p.seed.to_string());
        p.more.iter().for_each(|(name, value)| add(name, value.clone()));
    }
    rows
}

/// Text that can stand in an `id` attribute and a link.
fn anchor(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests;
