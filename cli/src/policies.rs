// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat policies`: what there is to choose from.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::output::print;
use onbeat_model::others::{Linux24, Others};
use onbeat_model::policy::{self, ALIASES, BASELINES, CORE, DEFAULT, Order, Server};
use serde::Serialize;

/// List the scheduling policies
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat policies")]
pub struct Options {
    /// Print a JSON array, every order with every server
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
const NOT_ISOLATING: &str = "  !  does not isolate, whatever it goes with: an overrun can make others late; \
                             the service asks for --no-isolation";

fn lines() -> Vec<Line> {
    let core = CORE.iter().map(|p| Line {
        name: p.name,
        about: p.about.into(),
        kind: "onbeat",
        isolates: Some(p.server.isolates() && p.order.isolates()),
    });
    let aliases = policy::aliases().map(|(name, of)| {
        let about = format!("short for {of}");
        let isolates =
            CORE.iter().find(|p| p.name == of).map(|p| p.server.isolates() && p.order.isolates());
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
    let mut text = format!(
        "Onbeat's own (simulator, lab, live) are an order or ORDER+SERVER; usual: {DEFAULT}\n"
    );
    let mut part = |title: &str, parts: Vec<(bool, String, String)>| {
        let _ = writeln!(text, "{title}:");
        for (isolates, name, about) in parts {
            let _ = writeln!(text, "{} {name:16}  {about}", if isolates { ' ' } else { '!' });
        }
    };
    part("Orders", Order::all().map(|o| (o.isolates(), o.name(), o.about())).collect());
    let server = |s: &Server| {
        let name = if s.name().is_empty() { "(none)" } else { s.name() };
        (s.isolates(), name.to_string(), s.about().to_string())
    };
    part("Servers", Server::ALL.iter().map(server).collect());
    let _ = writeln!(text, "{NOT_ISOLATING}");
    for (name, of) in ALIASES {
        let _ = writeln!(text, "  {name:16}  short for {of}");
    }
    let _ = writeln!(
        text,
        "Orders of best-effort work (order in [best_effort], scx_onbeat --best-effort):"
    );
    for order in Others::ALL {
        let _ = writeln!(text, "  {:16}  {}", order.name(), order.about());
    }
    for old in Linux24::ALL {
        let _ = writeln!(text, "  {:16}  {}", old.name(), old.about());
    }
    let _ = writeln!(text, "To compare with (lab only):");
    for line in lines.iter().filter(|l| l.kind == "baseline") {
        let _ = writeln!(text, "  {:16}  {}", line.name, line.about);
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
