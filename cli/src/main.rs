// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat`: one verb a file, each with its options and `fn run(&Options) -> Result<ExitCode>`.

mod doctor;
mod guest;
mod launch;
mod policies;
mod run;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real-time reservations for stock Linux.
#[derive(Debug, Parser)]
#[command(name = "onbeat", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Options),
    Status(status::Options),
    Release(status::ReleaseOptions),
    Doctor(doctor::Options),
    Policies(policies::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Run(options) => run::run(&options),
        Verb::Status(options) => status::run(&options),
        Verb::Release(options) => status::release(&options),
        Verb::Doctor(options) => doctor::run(&options),
        Verb::Policies(options) => policies::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("onbeat: {error:#}");
        ExitCode::FAILURE
    })
}
