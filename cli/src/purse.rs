// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat purse`: budgets that reservations share wherever they stand.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use onbeat_model::protocol::{Purse, Request, Response};
use onbeat_model::taskset::Segment;

use crate::arguments::duration;
use crate::launch::service;

/// Make or remove purses: budgets that reservations share wherever they stand
///
/// What a reservation takes counts in its purse and in each that this one is in, whatever group it is
/// in; where one of them is empty, it sleeps. For root.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(before_help = "Examples:\n\
\x20 onbeat purse add disk --period 100ms --budget 30ms\n\
\x20 onbeat purse add logs --in disk --period 100ms --budget 10ms --budget 5ms@50ms-100ms\n\
\x20 onbeat run --purse logs --budget 8ms --period 20ms -- my-logger")]
pub struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a purse; it stays until it is removed
    Add(Add),
    /// Remove a purse that nobody takes from any more
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// Its name; no other purse's
    name: String,
    /// Of its cycles, in each of which it is filled anew
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    period: u64,
    /// What is in it, such as 10ms, or 10ms@20ms-60ms: from 20 until 60 ms of each cycle; up to four
    #[arg(long, required = true, value_name = "TIME[@FROM-UNTIL]", value_parser = amount)]
    budget: Vec<Amount>,
    /// The purse that it is part of [default: none]
    #[arg(long = "in", value_name = "PURSE")]
    within: Option<String>,
}

/// CPU time, and from when until when of a cycle; ns.
#[derive(Debug, Clone)]
struct Amount(u64, Option<(u64, u64)>);

fn amount(text: &str) -> Result<Amount, String> {
    let Some((budget, time)) = text.split_once('@') else {
        return Ok(Amount(duration(text)?, None));
    };
    let Some((from, until)) = time.split_once('-') else {
        return Err("write 10ms@20ms-60ms: the time, from when and until when".into());
    };
    Ok(Amount(duration(budget)?, Some((duration(from)?, duration(until)?))))
}

/// Makes or removes a purse.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut service = service()?;
    match &options.verb {
        Verb::Add(add) => {
            let segment = |Amount(budget, time): &Amount| {
                let (from, until) = time.unwrap_or((0, add.period));
                Segment { budget: *budget, from, until }
            };
            service.purse(&Purse {
                name: add.name.clone(),
                within: add.within.clone(),
                period_ns: add.period,
                segments: add.budget.iter().map(segment).collect(),
            })?;
            complain!("onbeat: purse {} is there", add.name);
        }
        Verb::Remove { name } => {
            let answer = service.ask(&Request::DropPurse { name: name.clone() })?;
            let Response::Done = answer else {
                bail!("the service gave an unexpected answer; use the same version on both sides");
            };
            complain!("onbeat: purse {name} is removed");
        }
    }
    Ok(ExitCode::SUCCESS)
}
