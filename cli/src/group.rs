// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat group`: reservations that serve reservations.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use onbeat_client::Service;
use onbeat_kernel::machine::name_cpus;
use onbeat_model::protocol::{Group, Request, Response};
use onbeat_model::rank::Servers;
use onbeat_model::units::format_duration;

use crate::arguments::{Cpus, Time, cpus, duration};
use crate::launch::service;

/// Make or remove groups: budgets that several reservations share
///
/// All members of a group together get its budget in each of its periods, in its own order, and
/// whatever they ask for, nobody outside feels it. A group may be part of another (--in). There it
/// may have a weight in place of a budget: what budgets leave is divided by weight, anew whenever a
/// member comes or goes. Without either it only orders its members. Root makes any; an ordinary user
/// makes one, within the user's limit, and others inside it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(before_help = "Examples:\n\
\x20 onbeat group add media --budget 12ms --period 20ms --rule cbs-hard\n\
\x20 onbeat run --group media --budget 2ms --period 10ms -- my-audio")]
pub struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a group; it stays until it is removed
    Add(Box<Add>),
    /// Remove a group that has no members any more
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// Its name; no other group's
    name: String,
    /// CPU time in each period for all members together, such as 12ms [default: only within --in]
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    budget: Option<Time>,
    /// Within --in, in place of a budget: its weight, 1 to 10000, in what the budgets of the others leave there
    #[arg(long, value_name = "W", requires = "within", allow_hyphen_values = true)]
    weight: Option<u64>,
    /// Its period, such as 20ms [default: that of the group it is in]
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    period: Option<Time>,
    /// Relative deadline of its budget [default: the period, or that of the group it is in]
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    deadline: Option<Time>,
    /// The group that it is part of [default: none]
    #[arg(long = "in", value_name = "GROUP")]
    within: Option<String>,
    /// Order over its members, such as edf or rm [default: that of the policy in force]
    #[arg(long)]
    order: Option<String>,
    /// What enforces its budget, such as cbs-hard [default: that of the policy in force]
    #[arg(long)]
    rule: Option<String>,
    /// Purse that it takes from, too, see `onbeat purse` [default: none]
    #[arg(long, value_name = "NAME")]
    purse: Option<String>,
    /// Set of CPUs that serves it, see `onbeat policy` [default: the first with a CPU it may use]
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// CPUs its members may use, such as 0-3,6 [default: all]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<Cpus>,
    /// Servers of best effort among its members: how many, COUNT:BUDGET:PERIOD such as 2:5ms:50ms; root's to make
    /// [default: none]
    #[arg(long, value_name = "SERVERS")]
    best_effort: Option<Servers>,
}

/// Makes or removes a group.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut service = service()?;
    match &options.verb {
        Verb::Add(add) => make(&mut service, add)?,
        Verb::Remove { name } => remove(&mut service, name)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make(service: &mut Service, add: &Add) -> Result<()> {
    let grant = service.group(&Group {
        name: add.name.clone(),
        budget_ns: add.budget,
        weight: add.weight,
        period_ns: add.period,
        deadline_ns: add.deadline,
        cpus: add.cpus.as_ref().map(|Cpus(list)| list.clone()),
        group: add.within.clone(),
        order: add.order.clone(),
        rule: add.rule.clone(),
        purse: add.purse.clone(),
        set: add.set.clone(),
        servers: add.best_effort,
    })?;
    let within = add.within.as_deref().unwrap_or_default();
    let has = match (add.budget, add.period, add.weight) {
        (Some(budget), Some(period), _) => {
            format!("{} every {}", format_duration(budget), format_duration(period))
        }
        (Some(budget), None, _) => {
            format!("{} every period of {within}", format_duration(budget))
        }
        (None, _, Some(weight)) => format!("a part of {within} by weight {weight}"),
        (None, ..) => format!("only orders, within {within}"),
    };
    let cpus = name_cpus(&grant.cpus);
    complain!("onbeat: group {} ({}): {has} on {cpus}", grant.id, add.name);
    Ok(())
}

fn remove(service: &mut Service, name: &str) -> Result<()> {
    let Response::Status { reservations, .. } = service.ask(&Request::Status)? else {
        bail!("the service gave an unexpected answer; use the same version on both sides");
    };
    let Some(group) = reservations.iter().find(|r| r.pid == 0 && r.name == name) else {
        bail!("there is no group {name:?}; `onbeat status` shows those there are");
    };
    service.release(group.id)?;
    complain!("onbeat: group {} ({name}) is removed", group.id);
    Ok(())
}
