// SPDX-License-Identifier: GPL-2.0-only
//! The lab's command-line options, shared by `onbeat-lab` and `onbeat lab`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_command::whole;

use crate::spec::{Flavour, LabSpec, Mode};

/// Options that describe one run.
#[derive(Debug, Clone, Args)]
pub struct LabOptions {
    /// Number of guest CPUs
    #[arg(long, default_value_t = 4)]
    pub cpus: u32,
    /// Guest memory in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub memory: u32,
    /// Kernel: `plain` or `rt` (PREEMPT_RT)
    #[arg(long, default_value = "plain")]
    pub kernel: Flavour,
    /// Run in real time instead of deterministic virtual time
    #[arg(long)]
    pub realtime: bool,
    /// Longest turn of a CPU in deterministic mode, in microseconds
    #[arg(long, default_value_t = 20, value_name = "US")]
    pub turn: u32,
    /// Seed of everything random in deterministic mode
    #[arg(long, default_value = "42", value_parser = whole::<u64>(0..=i64::MAX as u64), allow_hyphen_values = true)]
    pub seed: u64,
    /// Copy a file or folder into the guest (repeatable)
    #[arg(long = "file", value_name = "HOST:GUEST")]
    pub files: Vec<String>,
    /// Copy a program and its libraries into the guest's /bin (repeatable); shell scripts there call one that has the
    /// name of a busybox tool by its path
    #[arg(long = "program", value_name = "PATH")]
    pub programs: Vec<PathBuf>,
    /// Load a kernel module first (repeatable)
    #[arg(long = "module", value_name = "NAME")]
    pub modules: Vec<String>,
    /// Add an argument to the kernel's command line (repeatable)
    #[arg(long = "kernel-arg", value_name = "ARG")]
    pub kernel_args: Vec<String>,
    /// Set a variable in the command's environment (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Put what the command leaves in the guest's /out here
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Kill the command after this many seconds of guest time
    #[arg(long, value_name = "SECONDS")]
    pub guest_timeout: Option<f64>,
    /// Kill the guest after this many seconds of host time
    #[arg(long, default_value_t = 900.0, value_name = "SECONDS")]
    pub timeout: f64,
    /// Open a shell in the guest (in real time)
    #[arg(long)]
    pub shell: bool,
    /// The command to run in the guest
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

impl LabOptions {
    /// Turns the options into a specification.
    ///
    /// # Errors
    /// When a value is malformed; the message names the option.
    pub fn spec(&self) -> Result<LabSpec> {
        let mut spec = LabSpec::new(self.command.iter().cloned());
        spec.cpus = self.cpus;
        spec.memory_mib = self.memory;
        spec.kernel = self.kernel;
        spec.kernel_args.clone_from(&self.kernel_args);
        spec.extra_modules.clone_from(&self.modules);
        spec.programs.clone_from(&self.programs);
        spec.out_dir.clone_from(&self.out);
        spec.interactive = self.shell;
        spec.mode = if self.realtime || self.shell {
            Mode::RealTime
        } else {
            Mode::Deterministic { turn_us: self.turn, seed: self.seed }
        };
        spec.guest_timeout =
            self.guest_timeout.map(|s| seconds("--guest-timeout", s)).transpose()?;
        spec.host_timeout =
            if self.shell { Duration::MAX } else { seconds("--timeout", self.timeout)? };
        for pair in &self.files {
            let (host, guest) = pair
                .rsplit_once(':')
                .with_context(|| format!("--file {pair}: write HOST:GUEST"))?;
            spec.files.push((host.into(), guest.into()));
        }
        for pair in &self.env {
            let (name, value) =
                pair.split_once('=').with_context(|| format!("--env {pair}: write NAME=VALUE"))?;
            spec.env.push((name.into(), value.into()));
        }
        if !self.shell && self.command.is_empty() {
            bail!("say what to run: `-- CMD ARGS…`, or `--shell`");
        }
        // What comes before the guest has a console would be lost.
        if self.shell && !std::io::stdin().is_terminal() {
            bail!("--shell needs a terminal; in scripts run `-- sh -c 'COMMANDS'`");
        }
        Ok(spec)
    }
}

fn seconds(option: &str, value: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => bail!("{option} {value}: write a positive number of seconds"),
    }
}
