// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-crowd`: many greedy processes at once, best effort or each with a small reservation
//! that it always exhausts. What a scheduler's work costs with so many is measured with it.

use std::io::PipeReader;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use onbeat_client::{Params, Service};
use onbeat_model::units::parse_duration;
use onbeat_workloads::burn::spin;
use onbeat_workloads::exit_code;

/// Starts many processes that each take all CPU time they can get.
#[derive(Parser)]
#[command(name = "onbeat-crowd", version)]
#[command(before_help = "Example: onbeat-crowd 100 --duration 5s")]
struct Args {
    /// How many processes
    #[arg(default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// How long
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    duration: u64,
    /// Budget of each process; without it they are best effort
    #[arg(long, value_parser = parse_duration, requires = "period")]
    budget: Option<u64>,
    /// Period of each reservation
    #[arg(long, value_parser = parse_duration)]
    period: Option<u64>,
    /// The reservation service's socket
    #[arg(long, default_value = onbeat_client::DEFAULT_SOCKET)]
    socket: PathBuf,
}

fn main() -> ExitCode {
    exit_code("onbeat-crowd", run(&onbeat_command::parse::<Args>()))
}

/// The processes, which end with this.
struct Crowd {
    pids: Vec<libc::pid_t>,
    /// They start when its second end is closed.
    gate: (PipeReader, Option<OwnedFd>),
}

impl Crowd {
    fn new() -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { pids: Vec::new(), gate: (reader, Some(writer.into())) })
    }

    fn start(&mut self) {
        self.gate.1 = None;
    }

    fn grow(&mut self) -> Result<u32> {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => bail!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: plain system calls of the child's own: not to outlive its parent, and to
                // wait until all have come and the parent shuts the gate.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::close(self.gate.1.take().map_or(-1, |end| end.into_raw_fd()));
                    libc::read(self.gate.0.as_raw_fd(), [0u8; 1].as_mut_ptr().cast(), 1);
                }
                loop {
                    spin(1 << 16);
                }
            }
            pid => {
                self.pids.push(pid);
                Ok(pid as u32)
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for pid in &self.pids {
            // SAFETY: a child that has not been waited for.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        for pid in &self.pids {
            // SAFETY: as above; no status is wanted.
            unsafe { libc::waitpid(*pid, std::ptr::null_mut(), 0) };
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let mut crowd = Crowd::new()?;
    let reserve = args.budget.zip(args.period);
    let mut service = match reserve {
        Some(_) => Some(Service::connect_to(&args.socket)?),
        None => None,
    };
    for i in 0..args.count {
        let pid = crowd.grow()?;
        if let (Some(service), Some((budget, period))) = (&mut service, reserve) {
            ensure!(budget > 0, "--budget must be more than 0");
            service
                .reserve(pid, &format!("crowd-{i}"), &Params::new(budget, period))
                .with_context(|| format!("process {i} of {}", args.count))?;
        }
    }
    crowd.start();
    std::thread::sleep(Duration::from_nanos(args.duration));
    Ok(())
}
