// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat`: one verb a file, each with its options and `fn run(&Options) -> Result<ExitCode>`.

/// `eprintln!` that does not mind if nobody can read it: standard error may be closed or full.
macro_rules! complain {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod again;
mod analyze;
mod arguments;
mod demo;
mod doctor;
mod family;
mod group;
mod guest;
mod kind;
mod lab;
mod launch;
mod limit;
mod many;
mod mean;
mod means;
mod mistake;
mod output;
mod playable;
mod policies;
mod policy;
mod provision;
mod purse;
mod report;
mod results;
mod run;
mod sim;
mod status;
mod sweep;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onbeat_command::{FAILED_ITSELF, MISUSED, Misuse, parse_as};

/// Real-time reservations for stock Linux.
#[derive(Debug, Parser)]
#[command(name = "onbeat", version)]
#[command(before_help = "Example: onbeat run --period 41.7ms --budget 25ms -- mpv film.mkv")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Sim(sim::Options),
    Lab(Box<lab::Options>),
    Demo(demo::Options),
    Report(report::Options),
    Run(run::Options),
    Status(status::Options),
    Top(top::Options),
    Release(status::ReleaseOptions),
    Group(group::Options),
    Purse(purse::Options),
    Doctor(doctor::Options),
    Policies(policies::Options),
    Policy(policy::Options),
    Analyze(analyze::Options),
    Sweep(sweep::Options),
    Family(family::Options),
    Provision(provision::Options),
    Limit(limit::Options),
}

fn main() -> ExitCode {
    // These pass on the status of a program.
    let mut words = std::env::args_os().skip(1);
    let passes_on = match words.next() {
        Some(verb) if verb == "lab" => words.any(|word| word == "--"),
        verb => verb.is_some_and(|verb| verb == "run"),
    };
    let misused = if passes_on { FAILED_ITSELF } else { MISUSED };
    let result = match parse_as::<Cli>(misused).verb {
        Verb::Sim(options) => sim::run(&options),
        Verb::Lab(options) => lab::run(&options),
        Verb::Demo(options) => demo::run(&options),
        Verb::Report(options) => report::run(&options),
        Verb::Run(options) => run::run(&options),
        Verb::Status(options) => status::run(&options),
        Verb::Top(options) => top::run(&options),
        Verb::Release(options) => status::release(&options),
        Verb::Group(options) => group::run(&options),
        Verb::Purse(options) => purse::run(&options),
        Verb::Doctor(options) => doctor::run(&options),
        Verb::Policies(options) => policies::run(&options),
        Verb::Policy(options) => policy::run(&options),
        Verb::Analyze(options) => analyze::run(&options),
        Verb::Sweep(options) => sweep::run(&options),
        Verb::Family(options) => family::run(&options),
        Verb::Provision(options) => provision::run(&options),
        Verb::Limit(options) => limit::run(&options),
    };
    result.unwrap_or_else(|error| {
        complain!("onbeat: {error:#}");
        if error.is::<Misuse>() { ExitCode::from(misused) } else { ExitCode::FAILURE }
    })
}
