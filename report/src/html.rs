// SPDX-License-Identifier: GPL-2.0-only
//! The page: one file that opens from disk, without network, script or fonts of its own.

use minijinja::{Environment, context, value::Value};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use onbeat_model::run::{Class, World};

use crate::limit::Limits;
use crate::plot::{self, PlotError};
use crate::{Outcome, answer, bounds, late, table};

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
    let (rate, jobs) = (rate(outcomes), answer::jobs(outcomes));
    let safe = |pictures: Vec<String>| -> Vec<Value> {
        pictures.into_iter().map(Value::from_safe_string).collect()
    };
    let curves = match plot::has_curves(outcomes) {
        true => safe(plot::curves(outcomes, jobs, rate)?),
        false => Vec::new(),
    };
    let mut pictures = safe(plot::quantities(outcomes, jobs)?);
    if outcomes.iter().all(|o| o.metrics.mean_fps.is_some()) {
        pictures.extend(safe(vec![plot::frames(outcomes, jobs, rate)?]));
    }
    let tasks: Vec<Value> = outcomes.iter().map(|o| tasks(o)).collect();
    let said = answer::answer(outcomes, limit);
    Ok(context! {
        name,
        jobs,
        answer => context! {
            headline => said.headline,
            kept => said.kept,
            broken => said.broken,
            limit => said.limit,
            doubt => said.doubt,
        },
        curves,
        pictures,
        by_task => table::by_task(outcomes).map(|table| lines(verdicts_first(table))),
        late_by_task => late_by_task(outcomes),
        summary => lines(table::summary(outcomes, limit)),
        late => late::lines(outcomes).map(lines),
        loads => table::loads(outcomes).map(lines),
        bounds => bounds::lines(outcomes).map(lines),
        bounds_remark => bounds::remark(outcomes),
        tasks,
    })
}

/// The columns in the order in which a narrow screen is read: who, whether the promise was kept, then the rest.
fn verdicts_first(table: table::Lines) -> table::Lines {
    let front = |i: &usize| match table.head[*i].0 {
        "policy" | "task" => 0,
        "promise" => 1,
        "period ms" | "budget ms" => 3,
        _ => 2,
    };
    let mut order: Vec<usize> = (0..table.head.len()).collect();
    order.sort_by_key(front);
    let row = |row: &Vec<String>| order.iter().map(|i| row[*i].clone()).collect();
    table::Lines {
        head: order.iter().map(|i| table.head[*i]).collect(),
        rows: table.rows.iter().map(row).collect(),
    }
}

/// More tasks than these are only told each by itself.
const MOST_COLUMNS: usize = 12;

/// Late jobs of each task under each policy where tasks are alike, and owed ones among them.
fn late_by_task(outcomes: &[&Outcome]) -> Option<Value> {
    let names = |o: &Outcome| o.reserved().map(|t| t.name.clone()).collect::<Vec<_>>();
    let first = names(outcomes.first()?);
    let alike = outcomes.iter().all(|o| o.uniform() && names(o) == first);
    if !alike || first.is_empty() || first.len() > MOST_COLUMNS {
        return None;
    }
    let cell = |t: &onbeat_model::metrics::TaskMetrics| match t.owed_late {
        0 => context! { text => t.misses.to_string() },
        n => context! { text => format!("{} ({n} owed)", t.misses), broken => true },
    };
    let row = |o: &&Outcome| context! { policy => o.policy, cells => o.reserved().map(cell).collect::<Vec<_>>() };
    let each: Vec<u64> = outcomes.iter().flat_map(|o| o.reserved()).map(|t| t.jobs).collect();
    let of = each.iter().all(|n| *n == each[0]).then(|| each[0]);
    Some(context! { of, names => first, rows => outcomes.iter().map(row).collect::<Vec<_>>() })
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
                table::mean(t.mean_fps, 2),
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
