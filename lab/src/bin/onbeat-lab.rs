// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-lab`: run a command in the lab; its output is ours, and so is its exit status.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Parser;
use onbeat_command::FAILED_ITSELF;
use onbeat_lab::{Exit, Progress, options::LabOptions};

#[derive(Parser)]
#[command(
    name = "onbeat-lab",
    version,
    about = "Runs a command on a stock Linux kernel in deterministic virtual time"
)]
#[command(before_help = "Example: onbeat-lab --cpus 2 -- sh -c 'uname -r; nproc'")]
struct Options {
    #[command(flatten)]
    lab: LabOptions,
    /// Print platform, guest time and kernel warnings to stderr when done
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(&onbeat_command::parse_as(FAILED_ITSELF)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("onbeat-lab: {error:#}");
            ExitCode::from(FAILED_ITSELF)
        }
    }
}

fn run(options: &Options) -> anyhow::Result<u8> {
    let mut spec = options.lab.spec()?;
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, cancel.clone())?;
    }
    spec.cancel = Some(cancel);
    let mut lost = None;
    let outcome = onbeat_lab::run(&spec, &mut |progress| match progress {
        Progress::Output(bytes) => {
            // A reader that went away must not end the run, nor is that an error.
            match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => lost = Some(error),
                _ => (),
            }
        }
        Progress::Kernel(bytes) => {
            let _ = io::stderr().write_all(bytes);
        }
        Progress::Preparing => {
            eprintln!("onbeat-lab: first boot of such a machine, kept for later")
        }
        Progress::Booting(_) | Progress::Collecting => (),
    })?;
    if options.verbose {
        eprintln!("{}", serde_json::to_string(&outcome.platform)?);
        eprintln!(
            "guest time {:.6} s, host time {:.1} s, files in {}",
            outcome.guest_ns as f64 / 1e9,
            outcome.host_time.as_secs_f64(),
            outcome.files.display()
        );
        for warning in &outcome.kernel_warnings {
            eprintln!("kernel: {warning}");
        }
    }
    if outcome.exit == Exit::TimedOut {
        eprintln!("onbeat-lab: the command used up its guest time and was killed");
    }
    if outcome.kernel_in_trouble() {
        eprintln!("onbeat-lab: the guest's kernel had an oops or a warning; see --verbose");
    }
    if let Some(error) = lost {
        return Err(error).context("not all of the command's output could be written");
    }
    Ok(outcome.exit.status() as u8)
}
