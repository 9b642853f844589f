// SPDX-License-Identifier: GPL-2.0-only
//! Carries out the policies of task sets in guests: one boot for as many policies as possible,
//! because a boot is dear, and as many guests at a time as asked for.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use onbeat_lab::{LabOutcome, LabSpec, Progress};
use onbeat_model::policy::Policy;
use onbeat_model::run::{Platform, Run};
use onbeat_model::units::SEC;
use onbeat_report::Outcome;
use serde_json::json;

use super::progress::{Board, Guest};
use super::ship::{Cargo, PLACE};
use crate::results::Ended;

const SCRIPT: &str = include_str!("carry.sh");
/// Guest seconds for a policy beyond the length of its run: start, verifier, late jobs, end.
const BEYOND: u64 = 60;
/// What `timeout` exits with when the time is up; 137 if it then had to kill.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Some policies of one task set, for one guest.
pub struct Work {
    /// What progress calls it.
    pub name: String,
    /// The task set and what it needs.
    pub cargo: Arc<Cargo>,
    /// What to carry out, in that order.
    pub policies: Vec<Policy>,
    /// How the guest is made; command, programs and files are added here.
    pub spec: LabSpec,
}

/// What became of a [`Work`].
#[derive(Debug, Clone)]
pub struct Carried {
    /// On what it ran.
    pub platform: Platform,
    /// One for each policy.
    pub runs: Vec<Ended>,
    /// The kernel's complaints.
    pub kernel_warnings: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The host's kernel and machine.
    pub system: String,
}

/// Takes each run with its events as soon as its guest has ended.
pub type Take<'a> = &'a (dyn Fn(&Work, &Run) + Sync);

/// Carries out all works, `jobs` guests at a time. Those that are not done when `cancel` becomes
/// true fail.
pub fn carry_out(
    works: &[Work],
    jobs: usize,
    cancel: &AtomicBool,
    board: &Board,
    take: Take,
) -> Vec<Result<Carried>> {
    let queue = Mutex::new((0..works.len()).collect::<VecDeque<usize>>());
    let done: Mutex<Vec<_>> = Mutex::new(works.iter().map(|_| None).collect());
    let next = || queue.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, works.len().max(1)) {
            scope.spawn(|| {
                while let Some(index) = next() {
                    let carried = match cancel.load(Ordering::Relaxed) {
                        true => Err(anyhow!("stopped on request")),
                        false => carry(&works[index], board, take),
                    };
                    done.lock().unwrap_or_else(|e| e.into_inner())[index] = Some(carried);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.into_iter().map(|one| one.unwrap_or_else(|| bail!("was not begun"))).collect()
}

/// One work in one guest; but when a policy takes the guest down, the others get another one.
fn carry(work: &Work, board: &Board, take: Take) -> Result<Carried> {
    let started = Instant::now();
    let guest = board.guest(&work.name, work.policies.len());
    let mut fatal: Vec<Option<String>> = vec![None; work.policies.len()];
    loop {
        let left: Vec<usize> = (0..fatal.len()).filter(|i| fatal[*i].is_none()).collect();
        if left.is_empty() {
            bail!("no guest survived: {}", fatal.into_iter().flatten().next().unwrap_or_default());
        }
        let policies: Vec<Policy> = left.iter().map(|i| work.policies[*i].clone()).collect();
        let mut watch = Watch::new(&guest, &policies);
        match boot(work, &policies, &mut watch) {
            Ok((outcome, folder)) => {
                guest.show(policies.len(), "evaluating");
                let mut runs = Vec::new();
                for (policy, status) in policies.iter().zip(&watch.statuses) {
                    runs.push(evaluate(work, policy, *status, &outcome, &folder, take));
                }
                for (place, why) in fatal.into_iter().enumerate() {
                    let Some(why) = why else { continue };
                    let policy = work.policies[place].to_string();
                    runs.insert(place, Ended { policy, outcome: Err(why) });
                }
                return Ok(Carried {
                    platform: platform(work, &outcome, Platform::default()),
                    runs,
                    kernel_warnings: outcome.kernel_warnings,
                    seconds: started.elapsed().as_secs_f64(),
                    system: outcome.platform.host,
                });
            }
            Err(error) => {
                let stopped = work.spec.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed));
                let Some(culprit) = watch.current.filter(|_| !stopped) else { return Err(error) };
                let why = format!("{error:#}");
                let first = why.lines().next().unwrap_or_default();
                let policy = &policies[culprit];
                board.say(&format!("{}: no guest left under {policy}: {first}", work.name));
                fatal[left[culprit]] = Some(why);
            }
        }
    }
}

/// Follows what the script in the guest says.
struct Watch<'a> {
    guest: &'a Guest<'a>,
    policies: &'a [Policy],
    line: Vec<u8>,
    current: Option<usize>,
    statuses: Vec<Option<i32>>,
}

impl<'a> Watch<'a> {
    fn new(guest: &'a Guest<'a>, policies: &'a [Policy]) -> Self {
        let statuses = vec![None; policies.len()];
        Self { guest, policies, line: Vec::new(), current: None, statuses }
    }

    fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            let mut words = line.split_whitespace();
            let what = words.next();
            let mut number = || words.next()?.parse::<i32>().ok();
            let Some(index) = number().map(|n| n as usize).filter(|n| *n < self.policies.len())
            else {
                continue;
            };
            match what {
                Some("@begin") => {
                    self.current = Some(index);
                    self.guest.show(index, &self.policies[index].to_string());
                }
                Some("@end") => {
                    self.current = None;
                    self.statuses[index] = number();
                }
                _ => (),
            }
        }
    }
}

/// Where the guest's files are; removed when dropped, unless they shall stay.
enum Folder {
    Kept(PathBuf),
    Scratch(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Scratch(folder) => folder.path(),
        }
    }
}

fn boot(work: &Work, policies: &[Policy], watch: &mut Watch) -> Result<(LabOutcome, Folder)> {
    let scratch = || {
        let folder = tempfile::Builder::new().prefix("onbeat-lab-").tempdir();
        folder.context("cannot create a temporary folder for the guest's files")
    };
    let there = |name: &str| Path::new(PLACE).join(name);
    let supplies = scratch()?;
    let mut spec = work.spec.clone();
    let json = serde_json::to_vec(&work.cargo.set)?;
    for (name, contents) in [("set.json", json.as_slice()), ("carry.sh", SCRIPT.as_bytes())] {
        let path = supplies.path().join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        spec.files.push((path, there(name)));
    }
    spec.files.extend(work.cargo.files.iter().cloned());
    spec.programs.extend(work.cargo.programs.iter().cloned());
    let limit = work.cargo.set.duration.div_ceil(SEC) + BEYOND;
    spec.command = vec!["sh".into(), there("carry.sh").display().to_string(), limit.to_string()];
    spec.command.extend(policies.iter().map(ToString::to_string));
    // A guest that takes ten times as long as it should on an ordinary machine is a dead one.
    let cpus = u64::from(spec.cpus.max(4));
    let patience = (BEYOND + limit * policies.len() as u64) * cpus * 4;
    spec.host_timeout = spec.host_timeout.max(Duration::from_secs(patience));
    let folder = match &spec.out_dir {
        Some(path) => Folder::Kept(path.clone()),
        None => Folder::Scratch(scratch()?),
    };
    spec.out_dir = Some(folder.path().to_owned());
    let outcome = onbeat_lab::run(&spec, &mut |progress| match progress {
        Progress::Preparing => watch.guest.show(0, "booting, once"),
        Progress::Output(bytes) => watch.hear(bytes),
        _ => (),
    })?;
    if !outcome.exit.success() {
        bail!("the script in the guest failed ({:?}): {}", outcome.exit, outcome.console.trim());
    }
    Ok((outcome, folder))
}

/// The outcome of a policy from the files it left.
fn evaluate(
    work: &Work,
    policy: &Policy,
    status: Option<i32>,
    outcome: &LabOutcome,
    folder: &Folder,
    take: Take,
) -> Ended {
    let file = |suffix: &str| folder.path().join(format!("{policy}.{suffix}"));
    let read = || -> Result<Outcome, String> {
        if status != Some(0) {
            let log = fs::read_to_string(file("log")).unwrap_or_default();
            return Err(reason(&log, status));
        }
        let open = File::open(file("run")).map_err(|e| format!("it left no run: {e}"))?;
        let mut run = Run::read_from(&mut BufReader::new(open)).map_err(|e| e.to_string())?;
        run.platform = platform(work, outcome, run.platform);
        take(work, &run);
        Ok(Outcome::of(&run))
    };
    Ended { policy: policy.to_string(), outcome: read() }
}

/// The runner's own words: what follows its name at the beginning of its last complaint.
fn reason(log: &str, status: Option<i32>) -> String {
    const NAME: &str = "onbeat-runner: ";
    if let Some(limit) = status.filter(|s| TIMED_OUT.contains(s)) {
        return format!("it was not done {BEYOND} s after its end (status {limit})");
    }
    let start = log.rfind(&format!("\n{NAME}")).map(|at| at + 1);
    let start = start.or_else(|| log.starts_with(NAME).then_some(0));
    let words = start.map_or(log, |start| &log[start + NAME.len()..]).trim();
    match (words, status) {
        ("", Some(status)) => format!("it failed with status {status} and said nothing"),
        ("", None) => "it left nothing".into(),
        (words, _) => words.into(),
    }
}

/// The runner's platform and the lab's in one: all that figures depend on beside the task set.
fn platform(work: &Work, outcome: &LabOutcome, guest: Platform) -> Platform {
    let lab = &outcome.platform;
    let mut more = guest.more;
    more.push(("kernel package".into(), lab.kernel_package.clone()));
    more.push(("kernel flavour".into(), lab.flavour.name().into()));
    more.push(("memory".into(), format!("{} MiB", lab.memory_mib)));
    if let (Some(turn), Some(seed)) = (lab.turn_us, lab.seed) {
        more.push(("turn of a CPU".into(), format!("{turn} µs")));
        more.push(("seed of the machine".into(), seed.to_string()));
    }
    Platform {
        cpus: lab.cpus,
        onbeat: env!("CARGO_PKG_VERSION").into(),
        kernel: lab.kernel.clone(),
        qemu: lab.qemu.clone(),
        accel: format!("{}, {}", lab.accel, lab.mode),
        seed: work.cargo.set.seed,
        more,
    }
}

/// What of several results belongs to the host: never the same twice.
pub fn host(carried: &[&Carried]) -> serde_json::Value {
    json!({
        "system": carried.first().map(|c| &c.system),
        "guests": carried.len(),
        "guest_seconds_of_wall_clock": carried.iter().map(|c| c.seconds).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_runners_last_complaint_with_all_its_lines() {
        let log = "note\nonbeat-runner: kato under fifo\nonbeat-runner: task a: refused; it said:\n  more\n";
        assert_eq!(reason(log, Some(1)), "task a: refused; it said:\n  more");
        assert_eq!(reason("onbeat-runner: no\n", Some(1)), "no");
        assert_eq!(reason("panicked\n", Some(101)), "panicked");
        assert!(reason("", Some(139)).contains("139"));
        assert!(reason("onbeat-runner: x under y\n", Some(124)).contains("not done"));
    }

    #[test]
    fn the_scripts_lines_are_understood_however_they_are_cut() {
        let board = Board::new();
        let guest = board.guest("test", 2);
        let policies = ["fifo".parse().unwrap(), "fcbs".parse().unwrap()];
        let mut watch = Watch::new(&guest, &policies);
        for part in ["@be", "gin 0\nnoise 1 2\n@end", " 0 3\n@begin 1", "\n@begin 7\n"] {
            watch.hear(part.as_bytes());
        }
        assert_eq!(watch.statuses, [Some(3), None]);
        assert_eq!(watch.current, Some(1));
    }
}
