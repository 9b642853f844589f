// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-churn`: random trouble for a scheduler, and a look whether any task is lost.

use std::process::ExitCode;

use clap::Parser;
use onbeat_workloads::churn::{Options, carry_out};
use onbeat_workloads::exit_code;

/// Does to the scheduler all that can be done to one, at random, and looks for lost tasks.
#[derive(Parser)]
#[command(name = "onbeat-churn", version)]
#[command(before_help = "Example: onbeat-churn --seconds 20 --seed 1")]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    exit_code("onbeat-churn", carry_out(onbeat_command::parse::<Args>().options))
}
