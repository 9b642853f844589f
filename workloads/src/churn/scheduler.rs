// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler under test: loaded, looked after, ended gently or not.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use onbeat_client::Service;
use onbeat_model::protocol::Request;

use super::hang::Watch;
use crate::sys::{self, Class};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// Loading takes seconds in emulation.
const LOADING: Duration = Duration::from_secs(60);
/// Who hangs where is looked at before the kernel's watchdog takes it out, which clears all that up.
const UNLOADING: Duration = Duration::from_secs(4);
/// Lines of its log that the story shows.
const LAST_LINES: usize = 60;

/// What sched_ext says it does.
fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().into()
}

/// `scx_onbeat`, or nothing at the moment.
#[derive(Debug)]
pub struct Scheduler {
    log: PathBuf,
    child: Option<Child>,
}

impl Scheduler {
    /// None is loaded yet.
    pub fn new(log: PathBuf) -> Self {
        Self { log, child: None }
    }

    /// Starts it under `policy` and waits until it serves; with `events`, it records them;
    /// `among`: it then is an ordinary process among those it schedules; with `sets`, it serves two sets of CPUs, and
    /// policies can be swapped.
    pub fn load(&mut self, policy: &str, events: bool, among: bool, sets: bool) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut command = Command::new("scx_onbeat");
        command
            .args(["--policy", policy, "--no-isolation", "--watchdog", "10s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if sets {
            command.args(super::swap::options());
        }
        if events {
            command.args(["--events", "/tmp/onbeat-churn.events"]);
        }
        let child = command.spawn().context("cannot start scx_onbeat")?;
        let pid = child.id();
        self.child = Some(child);
        // Else it shares the CPUs with all the children while the kernel verifies it: for minutes.
        sys::set_class(pid, Class::Fifo { priority: 98, reset_on_fork: true })?;
        let begin = Instant::now();
        let ready = || {
            Service::connect()
                .and_then(|s| s.waiting_at_most(Duration::ZERO).ask(&Request::Status))
                .is_ok()
        };
        while !(state() == "enabled" && ready()) {
            self.check()?;
            ensure!(begin.elapsed() < LOADING, "scx_onbeat {policy} is not ready in {LOADING:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        if among {
            sys::set_class(pid, Class::Ordinary { nice: -20 })?;
        }
        Ok(())
    }

    /// It still runs, or is not meant to.
    pub fn check(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            self.child = None;
            bail!("scx_onbeat ended by itself: {status}");
        }
        Ok(())
    }

    /// Ends it and waits until the kernel's own is back.
    pub fn unload(&mut self, gently: bool) -> Result<()> {
        self.check()?;
        let Some(child) = &mut self.child else { return Ok(()) };
        let signal = if gently { libc::SIGTERM } else { libc::SIGKILL };
        // SAFETY: our own child, not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let begin = Instant::now();
        let watch = Watch::after(UNLOADING, "a scheduler that is to end");
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < LOADING, "scx_onbeat does not end");
            std::thread::sleep(Duration::from_millis(1));
        };
        self.child = None;
        ensure!(!gently || status.success(), "scx_onbeat ended with {status}");
        while state() != "disabled" {
            ensure!(begin.elapsed() < LOADING, "the kernel keeps the dead scheduler");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(watch);
        Ok(())
    }

    /// The end of what it said.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
