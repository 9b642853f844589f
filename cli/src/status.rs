// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat status` and `onbeat release`: what is reserved, and giving it back.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::launch::{socket, starting};
use crate::output::print;
use onbeat_client::Service;
use onbeat_kernel::machine::format_cpus;
use onbeat_model::protocol::{Request, Response};
use onbeat_model::units::{Fraction, format_duration};

/// Show which reservations there are and what they have received
#[derive(Debug, Args)]
pub struct Options {
    /// Print the service's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Give a reservation back; its program goes on without
#[derive(Debug, Args)]
pub struct ReleaseOptions {
    /// As `onbeat status` shows it
    id: u32,
}

fn percent(x: Fraction) -> String {
    format!("{:.1}%", 100.0 * *x.numer() as f64 / *x.denom() as f64)
}

/// Prints the reservations.
pub fn run(options: &Options) -> Result<ExitCode> {
    let answer = Service::connect_to(&socket())?.telling(starting).ask(&Request::Status)?;
    if options.json {
        print(&(serde_json::to_string_pretty(&answer)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let Response::Status { policy, cpus, reserved, free, reservations } = answer else {
        bail!("the service answers something else; use the same version on both sides");
    };
    let _ = writeln!(
        text,
        "{policy} on CPUs {}: {} of a CPU reserved, {} free",
        format_cpus(&cpus),
        percent(reserved),
        percent(free)
    );
    if !reservations.is_empty() {
        let _ = writeln!(
            text,
            "{:>4} {:>8} {:>6} {:<20} {:>10} {:>10} {:>7} {:>8} {:>6} {:>9}",
            "ID", "PID", "UID", "NAME", "BUDGET", "PERIOD", "THREADS", "JOBS", "LATE", "CPU TIME"
        );
    }
    for r in reservations {
        let _ = writeln!(
            text,
            "{:>4} {:>8} {:>6} {:<20} {:>10} {:>10} {:>7} {:>8} {:>6} {:>8.2}s",
            r.id,
            r.pid,
            r.uid,
            r.name,
            format_duration(r.budget_ns),
            format_duration(r.period_ns),
            r.threads,
            r.jobs,
            r.misses,
            r.consumed_ns as f64 / 1e9
        );
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Gives one back.
pub fn release(options: &ReleaseOptions) -> Result<ExitCode> {
    let got = Service::connect_to(&socket())?.telling(starting).release(options.id)?;
    complain!("onbeat: reservation {} ({}) is given back", got.id, got.name);
    Ok(ExitCode::SUCCESS)
}
