// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat lab`: task sets and programs on a stock kernel in deterministic virtual time.

pub mod carry;
pub mod progress;
pub mod ship;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_lab::options::LabOptions;
use onbeat_lab::{Exit, Flavour, LabSpec, Progress};
use onbeat_model::policy::Policy;
use onbeat_model::run::World;
use onbeat_model::taskset::{Kernel, TaskSet};
use onbeat_model::units::SEC;

use crate::again::{self, Again};
use crate::guest;
use crate::kind::{self, Kind};
use crate::output::{self, Outputs, folder_of, whole};
use crate::playable;
use crate::results::Results;
use carry::{Carried, Work, carry_out, guests_at_a_time};
use progress::Board;
use serde_json::json;
use ship::{Cargo, Programs};

/// Exit status when the lab itself failed and not the command in it.
const LAB_FAILED: u8 = 125;

/// Options that mean something only where task sets are played.
const OF_SETS: [&str; 8] =
    ["json", "html", "trace", "detail", "strict", "repeat", "duration", "jobs"];

/// Run a task set, or any program, on a stock Linux kernel in deterministic virtual time
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat lab experiments/kato-11.toml --html report.html")]
pub struct Options {
    /// Task-set files (docs/task-set.md); each of their policies runs in a guest of its own
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["shell", "command"],
        required_unless_present_any = ["shell", "command"]
    )]
    sets: Vec<PathBuf>,
    /// A policy to run instead of the file's list (repeatable)
    #[arg(long = "policy", value_name = "P", requires = "sets")]
    policies: Vec<Policy>,
    #[command(flatten)]
    again: Again,
    #[command(flatten)]
    outputs: Outputs,
    /// How many guests at a time; the figures don't depend on it [default: as many as there are
    /// processors and memory for]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=256), allow_hyphen_values = true)]
    jobs: Option<u16>,
    /// Kernel: `plain` or `rt` (PREEMPT_RT) [default: what the file says, else plain]
    #[arg(long)]
    kernel: Option<Flavour>,
    /// Number of guest CPUs, for a command or a shell [default: 4]; a task set says its own
    #[arg(long, conflicts_with = "sets")]
    cpus: Option<u32>,
    /// Guest memory in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    memory: u32,
    /// Run in real time instead of deterministic virtual time
    #[arg(long)]
    realtime: bool,
    /// Longest turn of a CPU in deterministic mode, in microseconds
    #[arg(long, default_value_t = 20, value_name = "US")]
    turn: u32,
    /// Seed of everything random in the machine [default: 42], and of all random work of a task set [default: what the
    /// file says]; with --repeat of the first run
    #[arg(long, value_parser = whole::<u64>(0..=i64::MAX as u64), allow_hyphen_values = true)]
    seed: Option<u64>,
    /// Copy a file or folder into the guest (repeatable)
    #[arg(long = "file", value_name = "HOST:GUEST")]
    files: Vec<String>,
    /// Copy a program and its libraries into the guest's /bin (repeatable); shell scripts there call one that has the
    /// name of a busybox tool by its path
    #[arg(long = "program", value_name = "PATH")]
    programs: Vec<PathBuf>,
    /// Load a kernel module first (repeatable)
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Add an argument to the kernel's command line (repeatable)
    #[arg(long = "kernel-arg", value_name = "ARG")]
    kernel_args: Vec<String>,
    /// Set a variable in the command's environment (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Keep here what the command leaves in the guest's /out; with a task set, runs and logs
    #[arg(long, value_name = "DIR", conflicts_with = "repeat")]
    out: Option<PathBuf>,
    /// Kill the command after this many seconds of guest time; a task set's limit follows from its duration
    #[arg(long, value_name = "SECONDS", conflicts_with = "sets")]
    guest_timeout: Option<f64>,
    /// Kill a command's guest after this many seconds of host time; a task set's limit follows from its duration
    #[arg(long, default_value_t = 900.0, value_name = "SECONDS", conflicts_with = "sets")]
    timeout: f64,
    /// Open a shell in the guest (in real time)
    #[arg(long, conflicts_with_all = OF_SETS)]
    shell: bool,
    /// The command to run in the guest
    #[arg(last = true, value_name = "CMD", conflicts_with_all = OF_SETS)]
    command: Vec<String>,
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, something needed is missing, the guest fails, or results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.sets.is_empty() {
        return run_command(options).or_else(|error| {
            complain!("onbeat lab: {error:#}");
            Ok(ExitCode::from(LAB_FAILED))
        });
    }
    let cancel = cancel_on_signals()?;
    let named = options.outputs.named() || options.out.is_some() && options.sets.len() > 1;
    let json = options.outputs.is_json();
    again::each_file(&options.sets, named, json, &cancel, |file| run_file(options, file, &cancel))
}

fn run_file(options: &Options, file: &Path, cancel: &Arc<AtomicBool>) -> Result<()> {
    let mut set =
        TaskSet::load(file).map_err(|why| kind::instead(file, Kind::TaskSet, why.into()))?;
    options.again.change(&mut set, options.seed)?;
    if let Some(why) = set.simulator_only() {
        bail!("{}: {why}", file.display());
    }
    if let Some(flavour) = options.kernel {
        set.kernel = match flavour {
            Flavour::Plain => Kernel::Plain,
            Flavour::Rt => Kernel::Rt,
        };
    }
    let policies = choose(&set, &options.policies);
    let own: Vec<_> = policies.iter().filter_map(Policy::core).collect();
    own.iter().try_for_each(|policy| playable::check(&set, policy))?;
    playable::warn("lab", &set, &own);
    if let Some(what) = playable::ignored(&set, &policies) {
        complain!("onbeat lab: {what}");
    }
    let names: Vec<String> = policies.iter().map(Policy::to_string).collect();
    options.outputs.check(file, &names, &[])?;
    let programs = Programs::new()?;
    let sets = options.again.sets(&set);
    let mut works = Vec::new();
    for (set, i) in sets.iter().zip(0..) {
        let cargo = Arc::new(Cargo::load(set, folder_of(file), &policies, &programs)?);
        let mut spec = options.spec(i)?;
        fit(&mut spec, set);
        spec.cancel = Some(Arc::clone(cancel));
        let work = |policy: &Policy| Work {
            cargo: Arc::clone(&cargo),
            policy: policy.clone(),
            spec: spec.clone(),
        };
        works.extend(policies.iter().map(work));
    }
    let jobs = options.jobs.map_or_else(guests_at_a_time, usize::from);
    let failed = Mutex::new(None);
    let outputs = &options.outputs;
    let mut carried = carry_out(&works, jobs, cancel, &Board::new(works.len()), &|_, run| {
        if let Some(file) = outputs.trace_of(&run.policy, policies.len() > 1)
            && let Err(error) = output::write_trace(run, &file)
        {
            *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
        }
    });
    if options.again.repeat.is_some() {
        let mut runs = Vec::new();
        while !carried.is_empty() {
            let rest = carried.split_off(policies.len().min(carried.len()));
            runs.push(assemble(&set, std::mem::replace(&mut carried, rest))?);
        }
        again::show(&set, &runs, outputs.is_json())?;
        return outputs.promised(&runs);
    }
    let results = assemble(&set, carried)?;
    outputs.finish(&results, folder_of(file))?;
    if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(error);
    }
    let failures = results.failures().count();
    match failures {
        0 => outputs.promised([&results]),
        _ if cancel.load(Ordering::Relaxed) => {
            bail!("stopped on request: the results are partial, {failures} policies are missing")
        }
        _ => bail!("{failures} of {} policies did not run", results.runs.len()),
    }
}

/// The results of one task set.
///
/// # Errors
/// When all policies failed in the same way: that is no result of any.
pub fn assemble(set: &TaskSet, carried: Vec<Carried>) -> Result<Results> {
    let platform = carried.iter().find_map(|one| one.platform.clone());
    let hosts: Vec<&(String, f64)> = carried.iter().filter_map(|c| c.host.as_ref()).collect();
    let host = json!({
        "system": hosts.first().map(|host| &host.0),
        "seconds": hosts.iter().map(|host| host.1).sum::<f64>(),
    });
    let results = Results {
        experiment: set.name.clone(),
        title: set.title.clone(),
        world: World::Lab,
        platform: platform.unwrap_or_default(),
        limit: crate::limit::kept(set),
        host: Some(host),
        runs: carried.into_iter().map(|one| one.ended).collect(),
    };
    let reasons: Vec<&str> = results.failures().map(|(_, why)| why).collect();
    let same = reasons.iter().all(|why| *why == reasons[0]);
    if !reasons.is_empty() && same && reasons.len() == results.runs.len() {
        bail!("{}", reasons[0]);
    }
    Ok(results)
}

/// The policies asked for, each once.
fn choose(set: &TaskSet, asked: &[Policy]) -> Vec<Policy> {
    let mut chosen: Vec<Policy> = Vec::new();
    for policy in if asked.is_empty() { &set.policies } else { asked } {
        if !chosen.contains(policy) {
            chosen.push(policy.clone());
        }
    }
    chosen
}

/// Makes the guest as the task set wants it.
pub fn fit(spec: &mut LabSpec, set: &TaskSet) {
    spec.cpus = set.cpus;
    spec.kernel = match set.kernel {
        Kernel::Plain => Flavour::Plain,
        Kernel::Rt => Flavour::Rt,
    };
    // Events fill about a MiB a second and CPU at their liveliest; only what is used costs memory.
    let lively = (set.duration.div_ceil(SEC) as u32).saturating_mul(set.cpus);
    spec.window_mib = lively.clamp(spec.window_mib, 1024).next_power_of_two();
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the program at once (and QEMU with it).
pub fn cancel_on_signals() -> Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let status = 128 + signal;
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&cancel))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&cancel)))
            .context("cannot watch for signals")?;
    }
    Ok(cancel)
}

fn run_command(options: &Options) -> Result<ExitCode> {
    let mut spec = options.spec(0)?;
    let programs = Programs::new()?;
    if let Some(word) = spec.command.first_mut()
        && let Ok(found) = guest::find(word.as_ref())
        && let Some(name) = found.file_name()
    {
        // The guest's own shell stays: scripts expect busybox, and so does init.
        let name = name.to_string_lossy().into_owned();
        let own = ["onbeat", "scx_onbeat", "onbeat-runner", "onbeat-work"].contains(&name.as_str());
        if !own && !["sh", "busybox", "dash", "bash"].contains(&word.as_str()) {
            *word = name;
            spec.programs.push(found);
        }
    }
    spec.programs.extend(programs.own_if_there(&["onbeat", "scx_onbeat", "onbeat-work"])?);
    let cancel = cancel_on_signals()?;
    spec.cancel = (!options.shell).then(|| Arc::clone(&cancel));
    let mut lost = None;
    let outcome = onbeat_lab::run(&spec, &mut |progress| match progress {
        Progress::Output(bytes) => {
            // A reader that went away must not end the run, nor is that an error.
            match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => lost = Some(error),
                _ => (),
            }
        }
        // The guest's farewell is no news.
        Progress::Kernel(line) if line.ends_with(b"reboot: Power down\n") => (),
        Progress::Kernel(line) if line.ends_with(b"reboot: Power down\r\n") => (),
        Progress::Kernel(line) => drop(io::stderr().write_all(line)),
        Progress::Preparing | Progress::Booting(_) | Progress::Collecting => (),
    })?;
    if outcome.exit == Exit::TimedOut {
        complain!("onbeat lab: the command used up its guest time and was killed");
    }
    if outcome.kernel_in_trouble() {
        complain!("onbeat lab: the guest's kernel had an oops or a warning:");
        outcome.kernel_warnings.iter().for_each(|line| complain!("  {line}"));
    }
    if cancel.load(Ordering::Relaxed) && !options.shell {
        bail!("stopped on request");
    }
    if let Some(error) = lost {
        return Err(error).context("not all of the command's output could be written");
    }
    Ok(ExitCode::from(outcome.exit.status() as u8))
}

impl Options {
    /// The lab's part of the options, for the repetition of that number.
    fn spec(&self, number: u64) -> Result<LabSpec> {
        let lab = LabOptions {
            cpus: self.cpus.unwrap_or(4),
            memory: self.memory,
            kernel: self.kernel.unwrap_or(Flavour::Plain),
            realtime: self.realtime,
            turn: self.turn,
            seed: self.seed.unwrap_or(42).wrapping_add(number),
            files: self.files.clone(),
            programs: self.programs.clone(),
            modules: self.modules.clone(),
            kernel_args: self.kernel_args.clone(),
            env: self.env.clone(),
            out: self.out.clone(),
            guest_timeout: self.guest_timeout,
            timeout: self.timeout,
            shell: self.shell,
            command: match self.sets.is_empty() {
                false => vec!["sh".into()], // replaced when the guest is filled
                true => self.command.clone(),
            },
        };
        lab.spec()
    }
}
