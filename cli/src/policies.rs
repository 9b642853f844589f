// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat policies`: what there is to choose from.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::output::print;
use onbeat_model::policy::{ALIASES, BASELINES, CORE};
use serde::Serialize;

/// List the scheduling policies
#[derive(Debug, Args)]
pub struct Options {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    about: String,
    /// `onbeat`: runs in the simulator, the lab and live; `baseline`: the kernel's own, in the lab.
    kind: &'static str,
    /// Whether each reservation gets its budget in time whatever the others do; not known of baselines.
    isolates: Option<bool>,
}

/// Why some are marked.
const NOT_ISOLATING: &str = "  !  does not isolate: one reservation that overruns can make others late; \
                             the service takes it with --no-isolation only";

fn lines() -> Vec<Line> {
    let core = CORE.iter().map(|p| Line {
        name: p.name,
        about: p.about.into(),
        kind: "onbeat",
        isolates: Some(p.server.isolates() && p.order.isolates()),
    });
    let aliases = ALIASES.iter().map(|(name, of)| {
        let about = format!("short for {of}");
        let isolates =
            CORE.iter().find(|p| p.name == *of).map(|p| p.server.isolates() && p.order.isolates());
        Line { name, about, kind: "onbeat", isolates }
    });
    let baselines = BASELINES.iter().map(|(name, _, about)| {
        let about = (*about).into();
        Line { name, about, kind: "baseline", isolates: None }
    });
    let scx = Line {
        name: "scx:NAME",
        about: "the published sched_ext scheduler scx_NAME".into(),
        kind: "baseline",
        isolates: None,
    };
    core.chain(aliases).chain(baselines).chain([scx]).collect()
}

/// Prints them.
pub fn run(options: &Options) -> Result<ExitCode> {
    let lines = lines();
    if options.json {
        print(&(serde_json::to_string_pretty(&lines)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let width = lines.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let _ = writeln!(text, "Onbeat's own (simulator, lab, live):");
    for line in lines.iter().filter(|l| l.kind == "onbeat") {
        let mark = if line.isolates == Some(false) { '!' } else { ' ' };
        let _ = writeln!(text, "{mark} {:width$}  {}", line.name, line.about);
    }
    let _ = writeln!(text, "{NOT_ISOLATING}");
    let _ = writeln!(text, "To compare with (lab only):");
    for line in lines.iter().filter(|l| l.kind == "baseline") {
        let _ = writeln!(text, "  {:width$}  {}", line.name, line.about);
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
