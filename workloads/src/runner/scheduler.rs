// SPDX-License-Identifier: GPL-2.0-only
//! The sched_ext scheduler of a run: started before the tasks, watched, and unloaded after them.

use super::signals::{Signals, tie};
use anyhow::{Context, Result, bail, ensure};
use onbeat_client::Service;
use onbeat_model::protocol::Request;
use onbeat_model::units::format_percent;
use onbeat_model::{policy::Policy, taskset::TaskSet};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STATE: &str = "/sys/kernel/sched_ext/state";
const NAME: &str = "/sys/kernel/sched_ext/root/ops";
/// For loading (the verifier is slow in emulation) and for unloading.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
/// How many of the scheduler's last lines an error shows.
const LAST_LINES: usize = 30;

/// Fails when a sched_ext scheduler is loaded: whatever is measured would not be what it says.
///
/// # Errors
/// Names the scheduler, and what to do.
pub fn none_loaded() -> Result<()> {
    let state = fs::read_to_string(STATE).unwrap_or_default();
    if matches!(state.trim(), "" | "disabled") {
        return Ok(());
    }
    let name = fs::read_to_string(NAME).unwrap_or_default();
    bail!(
        "the sched_ext scheduler \"{}\" is already loaded ({}); stop it first",
        name.trim(),
        state.trim()
    )
}

/// Fails when this kernel cannot load a sched_ext scheduler.
fn kernel_has_sched_ext() -> Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    ensure!(
        Path::new(STATE).exists(),
        "this kernel ({}) has no sched_ext; run in the lab, or on a kernel built with \
         CONFIG_SCHED_CLASS_EXT",
        release.trim()
    );
    Ok(())
}

/// A loaded scheduler.
#[derive(Debug)]
pub struct Scheduler {
    program: String,
    child: Child,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
    folder: tempfile::TempDir,
    onbeat: bool,
}

impl Scheduler {
    /// Starts the scheduler `policy` needs and waits until it is in force; `None` for policies
    /// of the kernel itself. `program` finds the path of a program.
    ///
    /// # Errors
    /// When the kernel cannot, the program is missing, or it ends instead of getting ready.
    pub fn start(
        set: &TaskSet,
        policy: &Policy,
        program: impl Fn(&str) -> Result<PathBuf>,
        signals: &Signals,
    ) -> Result<Option<Self>> {
        let name = match policy {
            Policy::Baseline(_) => return Ok(None),
            Policy::Core { .. } => "scx_onbeat".to_string(),
            Policy::Scx(name) => format!("scx_{name}"),
        };
        kernel_has_sched_ext()?;
        let folder = tempfile::Builder::new()
            .prefix("onbeat-run-")
            .tempdir()
            .context("cannot make a temporary folder for the scheduler's socket and events")?;
        let mut command = Command::new(program(&name)?);
        if policy.is_core() {
            command
                .args(["--policy", &policy.to_string(), "--no-isolation"])
                .args(["--cpus", &format!("0-{}", set.cpus - 1)])
                .args(["--clusters", &set.parts()[0].clusters.to_string()])
                .args(["--best-effort-share", &format_percent(set.best_effort_share)])
                .args(["--best-effort", set.others().name()])
                .args(set.sets.iter().flat_map(|named| {
                    let cpus: Vec<String> = named.cpus.iter().map(u32::to_string).collect();
                    let (name, cpus, clusters) = (&named.name, cpus.join(","), named.clusters);
                    let words = format!("{name}={cpus}:{}:{clusters}", named.policy);
                    ["--set".to_string(), words]
                }))
                .args(["--best-effort-servers", &set.servers().to_string()])
                .arg("--socket")
                .arg(folder.path().join("socket"))
                .arg("--events")
                .arg(folder.path().join("events"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = tie(&mut command, libc::SIGTERM)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let last_lines = Arc::new(Mutex::new(VecDeque::new()));
        let (stderr, lines) = (child.stderr.take(), Arc::clone(&last_lines));
        let reader = std::thread::spawn(move || {
            let lines_of = |stderr| BufReader::new(stderr).lines().map_while(Result::ok);
            for line in stderr.into_iter().flat_map(lines_of) {
                let mut lines = lines.lock().unwrap_or_else(|e| e.into_inner());
                if lines.len() == LAST_LINES {
                    lines.pop_front();
                }
                lines.push_back(line);
            }
        });
        let onbeat = policy.is_core();
        let mut started = Self { program: name, child, last_lines, reader, folder, onbeat };
        started.wait_until_in_force(signals)?;
        Ok(Some(started))
    }

    fn wait_until_in_force(&mut self, signals: &Signals) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.check()?;
            let enabled = fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled");
            if enabled && (!self.onbeat || self.answers()) {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "{} is not in force after {PATIENCE:?}{}",
                self.program,
                self.words()
            );
            signals.wait(STEP)?;
        }
    }

    fn answers(&self) -> bool {
        let asked = |s: Service| s.waiting_at_most(Duration::ZERO).ask(&Request::Status);
        self.service().is_ok_and(|service| asked(service).is_ok())
    }

    /// A connection to its reservation service.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn service(&self) -> Result<Service> {
        Ok(Service::connect_to(&self.folder.path().join("socket"))?)
    }

    /// Whether it is still in force.
    ///
    /// # Errors
    /// When it has ended or the kernel has thrown it out; says why as far as it said so itself.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}){}", self.program, self.words());
        }
        Ok(())
    }

    /// Unloads it, and returns the file of its events if it is one of Onbeat's.
    ///
    /// # Errors
    /// When the kernel had thrown it out before, or it does not end.
    pub fn stop(mut self, signals: &Signals) -> Result<Option<Vec<u8>>> {
        self.check()?;
        let state = fs::read_to_string(STATE).unwrap_or_default();
        let status = self.end(Some(signals))?;
        ensure!(
            state.trim() == "enabled",
            "the kernel unloaded {} during the run (state \"{}\"){}",
            self.program,
            state.trim(),
            self.words()
        );
        // The published schedulers may die of the signal itself.
        ensure!(
            status.success() || !self.onbeat,
            "{} failed ({status}){}",
            self.program,
            self.words()
        );
        none_loaded().with_context(|| format!("{} has ended but", self.program))?;
        if !self.onbeat {
            return Ok(None);
        }
        let file = self.folder.path().join("events");
        let events = fs::read(&file)
            .with_context(|| format!("{} left no events{}", self.program, self.words()))?;
        Ok(Some(events))
    }

    /// Asks it to end, then makes it.
    fn end(&mut self, signals: Option<&Signals>) -> Result<ExitStatus> {
        // SIGINT is what every published scheduler handles.
        let signal = if self.onbeat { libc::SIGTERM } else { libc::SIGINT };
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            match signals {
                Some(signals) => drop(signals.wait(STEP)?),
                None => std::thread::sleep(STEP),
            }
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("{} did not end within {PATIENCE:?} and was killed{}", self.program, self.words())
    }

    /// Its last words, for errors. Of one that has just ended they may still be on their way.
    fn words(&self) -> String {
        let begin = Instant::now();
        while !self.reader.is_finished() && begin.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(STEP);
        }
        let lines = self.last_lines.lock().unwrap_or_else(|e| e.into_inner());
        match lines.is_empty() {
            true => String::new(),
            false => format!("; it said:\n  {}", Vec::from(lines.clone()).join("\n  ")),
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // Whatever went wrong, nothing of ours stays loaded.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end(None);
        }
    }
}
