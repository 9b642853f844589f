// SPDX-License-Identifier: GPL-2.0-only
//! Carries out policies of task sets, each in a guest of its own, as many guests at a time as asked
//! for. So what one policy leaves behind, or breaks, is never another one's business, and a policy
//! has the same figures alone and among others.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use onbeat_lab::{Exit, LabOutcome, LabSpec, Progress};
use onbeat_model::policy::Policy;
use onbeat_model::run::{Platform, Run};
use onbeat_model::units::SEC;
use onbeat_report::Outcome;

use super::progress::{Board, Line};
use super::ship::{Cargo, PLACE};
use crate::results::Ended;

/// Guest seconds beyond the length of the run: start, verifier, late jobs, end.
const BEYOND: u64 = 60;
/// What a policy says that was not done.
pub const STOPPED: &str = "stopped on request";

/// One policy of one task set.
pub struct Work {
    /// The task set and what it needs.
    pub cargo: Arc<Cargo>,
    /// The policy.
    pub policy: Policy,
    /// How the guest is made; command, programs and files are added here.
    pub spec: LabSpec,
}

/// What became of a [`Work`].
#[derive(Debug, Clone)]
pub struct Carried {
    /// The figures, or why there are none.
    pub ended: Ended,
    /// On what it ran, if it did.
    pub platform: Option<Platform>,
    /// The host's kernel and machine, and how long it took in seconds.
    pub host: Option<(String, f64)>,
}

/// Takes each run with its events as soon as its guest has ended.
pub type Take<'a> = &'a (dyn Fn(&Work, &Run) + Sync);

/// Carries out all works, `jobs` guests at a time, in their order. Those that are not done when
/// `cancel` becomes true fail.
pub fn carry_out(
    works: &[Work],
    jobs: usize,
    cancel: &AtomicBool,
    board: &Board,
    take: Take,
) -> Vec<Carried> {
    let queue = Mutex::new((0..works.len()).collect::<VecDeque<usize>>());
    let done: Mutex<Vec<Option<Carried>>> = Mutex::new(works.iter().map(|_| None).collect());
    let next = || queue.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, works.len().max(1)) {
            scope.spawn(|| {
                while let Some(index) = next() {
                    let carried = carry(&works[index], cancel, board, take);
                    done.lock().unwrap_or_else(|e| e.into_inner())[index] = Some(carried);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    works
        .iter()
        .zip(done)
        .map(|(work, one)| one.unwrap_or_else(|| failure(work, "it was not begun".into())))
        .collect()
}

fn failure(work: &Work, why: String) -> Carried {
    let ended =
        Ended { policy: work.policy.to_string(), outcome: Err(why), kernel_warnings: Vec::new() };
    Carried { ended, platform: None, host: None }
}

fn carry(work: &Work, cancel: &AtomicBool, board: &Board, take: Take) -> Carried {
    let stopped = || cancel.load(Ordering::Relaxed);
    if stopped() {
        return failure(work, STOPPED.into());
    }
    let line = board.begin(&format!("{} {}", work.cargo.set.name, work.policy));
    let carried = match boot(work, &line) {
        Ok((outcome, folder)) => {
            line.show("evaluating");
            let platform = platform(work, &outcome, Platform::default());
            let figures = evaluate(work, &outcome, folder.path(), take);
            Carried {
                ended: Ended {
                    policy: work.policy.to_string(),
                    outcome: figures.map_err(|error| format!("{error:#}")),
                    kernel_warnings: outcome.kernel_warnings,
                },
                platform: Some(platform),
                host: Some((outcome.platform.host, outcome.host_time.as_secs_f64())),
            }
        }
        Err(_) if stopped() => {
            line.leave();
            failure(work, STOPPED.into())
        }
        Err(error) => failure(work, format!("{error:#}")),
    };
    if let Err(why) = &carried.ended.outcome
        && !stopped()
    {
        let first = why.lines().next().unwrap_or_default();
        board.say(&format!("{} {}: {first}", work.cargo.set.name, work.policy));
    }
    carried
}

/// Where the guest's files are; removed when dropped, unless they shall stay.
enum Folder {
    Kept(std::path::PathBuf),
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

fn boot(work: &Work, line: &Line<'_>) -> Result<(LabOutcome, Folder)> {
    let scratch = || {
        let folder = tempfile::Builder::new().prefix("onbeat-lab-").tempdir();
        folder.context("cannot create a temporary folder for the guest's files")
    };
    let (set, supplies) = (&work.cargo.set, scratch()?);
    let file = supplies.path().join("set.json");
    fs::write(&file, serde_json::to_vec(set)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut spec = work.spec.clone();
    spec.files.push((file, format!("{PLACE}/set.json").into()));
    spec.files.extend(work.cargo.files.iter().cloned());
    spec.programs.extend(work.cargo.programs_of(&work.policy));
    spec.command = [
        "onbeat-runner",
        &format!("{PLACE}/set.json"),
        "--policy",
        &work.policy.to_string(),
        "--world",
        "lab",
        "--movies",
        &format!("{PLACE}/movies"),
        "--programs",
        "/bin",
        "--out",
        &format!("/out/{}.run", work.policy),
    ]
    .map(str::to_owned)
    .to_vec();
    let limit = set.duration.div_ceil(SEC) + BEYOND;
    spec.guest_timeout = Some(Duration::from_secs(limit));
    // A guest that takes ten times as long as on an ordinary machine is taken for dead.
    let patience = limit * u64::from(spec.cpus.max(4)) * 5;
    spec.host_timeout = spec.host_timeout.max(Duration::from_secs(patience));
    let folder = match &spec.out_dir {
        Some(path) => Folder::Kept(path.clone()),
        None => Folder::Scratch(scratch()?),
    };
    spec.out_dir = Some(folder.path().to_owned());
    let outcome = onbeat_lab::run(&spec, &mut |progress| match progress {
        Progress::Preparing => line.show("first boot of this machine"),
        Progress::Booting(_) => line.show("starting"),
        Progress::Output(_) => line.running(),
        _ => (),
    })?;
    Ok((outcome, folder))
}

/// The figures from the file the runner left.
fn evaluate(work: &Work, outcome: &LabOutcome, folder: &Path, take: Take) -> Result<Outcome> {
    match outcome.exit {
        Exit::Code(0) => (),
        Exit::TimedOut => anyhow::bail!("it was still running {BEYOND} s after its planned end"),
        exit => anyhow::bail!("{}", reason(&outcome.console, exit)),
    }
    let file = folder.join(format!("{}.run", work.policy));
    let open = File::open(&file).context("the guest left no run")?;
    let mut run = Run::read_from(&mut BufReader::new(open))?;
    run.platform = platform(work, outcome, run.platform);
    take(work, &run);
    Ok(Outcome::of(&run).bounded(&work.cargo.set))
}

/// The runner's own words: what follows its name at the beginning of its last complaint.
fn reason(console: &str, exit: Exit) -> String {
    const NAME: &str = "onbeat-runner: ";
    let start = console.rfind(&format!("\n{NAME}")).map(|at| at + 1);
    let start = start.or_else(|| console.starts_with(NAME).then_some(0));
    match start.map_or(console, |start| &console[start + NAME.len()..]).trim() {
        "" => format!("the runner failed ({exit:?}) and said nothing"),
        words => words.into(),
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

/// How many guests at a time this machine has processors and memory for.
pub fn guests_at_a_time() -> usize {
    /// What a guest and its QEMU touch of their memory, roughly.
    const GUEST_KIB: usize = 1 << 20;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    cores.min(free.map_or(1, |kib| kib / GUEST_KIB)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_runners_last_complaint_with_all_its_lines() {
        let log = "note\nonbeat-runner: kato under fifo\nonbeat-runner: task a: refused; it said:\n  more\n";
        assert_eq!(reason(log, Exit::Code(1)), "task a: refused; it said:\n  more");
        assert_eq!(reason("onbeat-runner: no\n", Exit::Code(1)), "no");
        assert_eq!(reason("panicked\n", Exit::Code(101)), "panicked");
        assert!(reason("", Exit::Signal(11)).contains("11"));
    }
}
