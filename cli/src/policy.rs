// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat policy`: which policies are in force, and others in their place.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use onbeat_client::Service;
use onbeat_kernel::machine::name_cpus;
use onbeat_model::others::Others;
use onbeat_model::protocol::{Request, Response};
use serde_json::json;

use crate::launch::service;
use crate::output::print;

/// Show the policy of each set of CPUs, or put another in force
///
/// Programs run on meanwhile, and keep their reservations: a policy under which some would no longer
/// fit is refused. Swapping is root's.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(before_help = "Examples:\n\
\x20 onbeat policy                            lists the sets of CPUs and their policies\n\
\x20 onbeat policy quiet p-edf+cbs-hard       swaps the policy of the set \"quiet\"\n\
\x20 onbeat policy default g-edzl+cbs         that of the CPUs which no --set of scx_onbeat names\n\
\x20 onbeat policy --best-effort berate       swaps the order of best-effort work")]
pub struct Options {
    /// The set of CPUs
    #[arg(value_name = "SET", requires = "policy")]
    set: Option<String>,
    /// Its policy from now on (`onbeat policies`)
    #[arg(value_name = "POLICY")]
    policy: Option<String>,
    /// Order of best-effort work from now on (`onbeat policies`)
    #[arg(long, value_name = "ORDER")]
    best_effort: Option<Others>,
    /// Print the list as JSON
    #[arg(long, conflicts_with_all = ["set", "best_effort"])]
    json: bool,
}

/// Lists or swaps.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut service = service()?;
    if let (Some(set), Some(policy)) = (&options.set, &options.policy) {
        let asked = Request::Swap { set: set.clone(), policy: policy.clone() };
        swap(&mut service, &format!("set {set}"), &asked)?;
    }
    if let Some(order) = options.best_effort {
        swap(&mut service, "best effort", &Request::Reorder { order: order.name().into() })?;
    }
    if options.set.is_none() && options.best_effort.is_none() {
        list(&mut service, options.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn swap(service: &mut Service, what: &str, asked: &Request) -> Result<()> {
    let Response::Swapped { from, to, reservations, took_ns } = service.ask(asked)? else {
        bail!("the service gave an unexpected answer; use the same version on both sides");
    };
    if from == to {
        complain!("onbeat: {what}: {to}, as before");
        return Ok(());
    }
    let held = match reservations {
        0 => String::new(),
        1 => ", 1 reservation goes on".into(),
        n => format!(", {n} reservations go on"),
    };
    complain!("onbeat: {what}: {to} in place of {from}{held} ({:.2} ms)", took_ns as f64 / 1e6);
    Ok(())
}

fn list(service: &mut Service, json: bool) -> Result<()> {
    let Response::Status { sets, best_effort, .. } = service.ask(&Request::Status)? else {
        bail!("the service gave an unexpected answer; use the same version on both sides");
    };
    if json {
        let all = json!({ "sets": sets, "best_effort": best_effort });
        return print(&format!("{all:#}\n"));
    }
    let mut text = String::new();
    let width = sets.iter().map(|set| set.name.len()).max().unwrap_or(0);
    for set in &sets {
        let cpus = name_cpus(&set.cpus);
        let _ = writeln!(text, "{:<width$}  {:<20}  {cpus}", set.name, set.policy);
    }
    let _ = writeln!(text, "best effort: {best_effort}");
    print(&text)
}
