// SPDX-License-Identifier: GPL-2.0-only
//! The processes of a run: one per task, one per best-effort hog, load or generator.

use super::counters::Counters;
use super::signals::{Signals, Waited, tie};
use crate::board::{Board, GO, Plan, STOP, Slot};
use crate::sys;
use anyhow::{Context, Result, bail, ensure};
use onbeat_model::run::{Class, TaskInfo};
use onbeat_model::taskset::{GRACE, TaskSet, Work};
use onbeat_model::units::SEC;
use onbeat_model::workgen::{bursts, execution_times, thread_times};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long programs may take to get ready: emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(2);

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Records its jobs itself.
    Jobs,
    /// A program that knows nothing of Onbeat.
    Program,
    /// Takes what is left, all the time.
    Hog,
    /// Takes of what is left what its bursts ask for.
    Bursts,
}

impl Role {
    /// Whether it has no reservation and no deadlines.
    pub fn is_best_effort(self) -> bool {
        matches!(self, Self::Hog | Self::Bursts)
    }
}

/// One process of the run.
#[derive(Debug)]
pub struct Member {
    /// What is known of the task; `tid` is the process.
    pub info: TaskInfo,
    /// What it does.
    pub role: Role,
    /// Nice value, if it is best effort.
    pub nice: i32,
    /// Place on the board for what it had at the end of each second, if it is best effort.
    seconds: Option<usize>,
    /// Places on the board of its threads beside the first.
    beside: Range<usize>,
    /// Counts at the start of the run.
    pub before: Counters,
    /// How it ended, and what the kernel then said it had used.
    ended: Option<(i32, Counters)>,
}

impl Member {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.info.tid
    }

    /// Counts since the start of the run.
    pub fn used(&self) -> Counters {
        match self.ended {
            Some((_, counters)) => counters - self.before,
            None => Counters::of(self.pid()) - self.before,
        }
    }
}

/// All of them. Dropping the crew kills those that still live.
#[derive(Debug)]
pub struct Crew {
    /// In the order of the run's tasks.
    pub members: Vec<Member>,
    /// What they share.
    pub board: Board,
    dismissed: bool,
}

impl Crew {
    /// Starts all processes of the task set. `program` finds the path of a program, movies are
    /// looked for in `movies`.
    ///
    /// # Errors
    /// When a program or movie is missing or cannot be started.
    pub fn start(
        set: &TaskSet,
        movies: &Path,
        program: impl Fn(&str) -> Result<PathBuf>,
    ) -> Result<Self> {
        let (mut plans, mut tasks) = (Vec::new(), Vec::new());
        for task in set.copies() {
            let count = usize::try_from(task.jobs)?;
            let (role, work) = match &task.spec.work {
                Work::Program(_) => (Role::Program, Vec::new()),
                _ => (Role::Jobs, execution_times(set, &task).unwrap_or_else(|| vec![0; count])),
            };
            plans.push(Plan {
                offset: task.first_release,
                period: task.spec.period,
                marks: task.spec.marks,
                patience: if task.spec.abort { task.spec.deadline } else { 0 },
                work,
                releases: Vec::new(),
            });
            let info = TaskInfo {
                name: task.name(),
                entry: task.entry as u32,
                copy: task.copy,
                class: Class::of(task.spec),
                period: task.spec.period,
                deadline: task.spec.deadline,
                budget: task.spec.budget.unwrap_or(0),
                tid: 0,
            };
            tasks.push((info, role, 0));
        }
        let best_effort = |name: String, copy: u32, period: u64| {
            let (class, entry) = (Class::BestEffort, set.tasks.len() as u32);
            TaskInfo { name, entry, copy, class, period, deadline: 0, budget: 0, tid: 0 }
        };
        for copy in 0..set.best_effort_count() {
            plans.push(Plan::default());
            let info = best_effort(format!("best-effort-{copy}"), copy, 0);
            tasks.push((info, Role::Hog, set.best_effort.map_or(0, |b| b.nice)));
        }
        for sleeper in set.sleepers() {
            let (releases, work) = bursts(set, &sleeper);
            plans.push(Plan { releases, work, ..Plan::default() });
            let info = best_effort(sleeper.name(), sleeper.number(), sleeper.gap());
            tasks.push((info, Role::Bursts, sleeper.nice()));
        }
        let first = plans.len();
        let mut beside = vec![first..first; tasks.len()];
        for (task, slots) in set.copies().zip(&mut beside) {
            slots.start = plans.len();
            for thread in 1..task.spec.threads {
                let work = thread_times(set, &task, thread).unwrap_or_default();
                let (offset, period) = (task.first_release, task.spec.period);
                let patience = if task.spec.abort { task.spec.deadline } else { 0 };
                plans.push(Plan { offset, period, patience, work, ..Plan::default() });
            }
            slots.end = plans.len();
        }
        let first = plans.len();
        let others = tasks.iter().filter(|(_, role, _)| role.is_best_effort()).count();
        let seconds = usize::try_from((set.duration + GRACE) / SEC)?;
        plans.extend((0..others).map(|_| Plan { work: vec![0; seconds], ..Plan::default() }));
        let mut places = first..plans.len();
        let mut crew =
            Self { members: Vec::new(), board: Board::create(&plans)?, dismissed: false };
        for ((info, role, nice), beside) in tasks.into_iter().zip(beside) {
            let work = set.tasks.get(info.entry as usize).map(|spec| &spec.work);
            let seconds = if role.is_best_effort() { places.next() } else { None };
            let member = Member {
                info,
                role,
                nice,
                seconds,
                beside,
                before: Counters::default(),
                ended: None,
            };
            crew.enlist(member, work, movies, &program)?;
        }
        Ok(crew)
    }

    fn enlist(
        &mut self,
        mut member: Member,
        work: Option<&Work>,
        movies: &Path,
        program: impl Fn(&str) -> Result<PathBuf>,
    ) -> Result<()> {
        let player = matches!(work, Some(Work::Movie { .. }));
        let mut command =
            Command::new(program(if player { "onbeat-play" } else { "onbeat-work" })?);
        command
            .args(["--board", &self.board.fd().to_string()])
            .args(["--slot", &self.members.len().to_string()])
            .stdin(Stdio::null());
        for slot in member.beside.clone() {
            command.args(["--thread", &slot.to_string()]);
        }
        match work {
            None if member.role == Role::Bursts => drop(command.arg("--bursts")),
            None => drop(command.arg("--hog")),
            Some(Work::Movie { path, size }) => {
                if let Some((width, height)) = size {
                    command.args(["--size", &format!("{width}x{height}")]);
                }
                command.arg(movies.join(path));
            }
            Some(Work::Program(words)) => drop(command.arg("--").args(words)),
            Some(_) => (),
        }
        if let Some(seconds) = member.seconds {
            command.args(["--seconds", &seconds.to_string()]);
        }
        // What programs print is not the run's result.
        command.stdout(Stdio::from(std::io::stderr()));
        let child = tie(&mut command, libc::SIGKILL)
            .spawn()
            .with_context(|| format!("cannot start task {}", member.info.name))?;
        member.info.tid = child.id();
        self.members.push(member);
        Ok(())
    }

    /// The slot of a member.
    pub fn slot(&self, index: usize) -> &Slot {
        &self.board.slots()[index]
    }

    /// CPU time of a best-effort member at the end of each second, ns; 0: it has not run since.
    pub fn seconds(&self, index: usize) -> impl Iterator<Item = u64> {
        let records = self.members[index].seconds.map(|slot| self.board.jobs(self.slot(slot)));
        records.unwrap_or_default().iter().map(|record| record.used.load(Relaxed))
    }

    /// The slots of a member's threads.
    pub fn slots(&self, index: usize) -> impl Iterator<Item = &Slot> + Clone {
        let beside = self.members[index].beside.clone();
        std::iter::once(index).chain(beside).map(|slot| self.slot(slot))
    }

    /// Waits until all have prepared themselves.
    ///
    /// # Errors
    /// When one dies or takes too long, or the runner is told to stop.
    pub fn wait_until_ready(&mut self, signals: &Signals) -> Result<()> {
        let begin = Instant::now();
        let mut first = 0;
        while first < self.members.len() {
            if self.slots(first).all(|slot| slot.ready.load(Relaxed) != 0) {
                first += 1;
                continue;
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "task {} is not ready after {PATIENCE:?}",
                self.members[first].info.name
            );
            if signals.wait(STEP)? == Waited::Child {
                self.bury()?;
            }
        }
        Ok(())
    }

    /// Sets the origin, and how many naps are to be taken before it, and sends all off.
    pub fn go(&mut self, origin: u64, naps: u32) {
        for member in &mut self.members {
            member.before = Counters::of(member.info.tid);
        }
        let header = self.board.header();
        header.origin.store(origin, Relaxed);
        header.naps.store(naps, Relaxed);
        sys::futex_set(&header.phase, GO);
    }

    /// Whether all jobs of all tasks are complete.
    pub fn all_done(&self) -> bool {
        let done =
            |slot: &Slot| slot.completed.load(Relaxed) as usize == self.board.jobs(slot).len();
        (0..self.members.len())
            .all(|i| self.members[i].role != Role::Jobs || self.slots(i).all(done))
    }

    /// Takes note of members that have ended.
    ///
    /// # Errors
    /// When one ended that should not have, or not that way.
    pub fn bury(&mut self) -> Result<()> {
        let mut complaint = None;
        for (slot, member) in self.board.slots().iter().zip(&mut self.members) {
            if member.ended.is_some() {
                continue;
            }
            let Some((status, counters)) = reap(member.info.tid, libc::WNOHANG) else { continue };
            member.ended = Some((status, counters));
            let (name, pid) = (&member.info.name, member.info.tid);
            if member.role == Role::Program && libc::WIFEXITED(status) {
                match libc::WEXITSTATUS(status) {
                    0 => continue,
                    code => complaint = Some(format!("program {name} failed with status {code}")),
                }
            } else {
                let how = match libc::WIFSIGNALED(status) {
                    true => format!("was killed by signal {}", libc::WTERMSIG(status)),
                    false => format!("ended with status {}", libc::WEXITSTATUS(status)),
                };
                let jobs = slot.completed.load(Relaxed);
                complaint = Some(format!("task {name} (process {pid}) {how} after {jobs} jobs"));
            }
        }
        match complaint {
            Some(complaint) => bail!("{complaint}"),
            None => Ok(()),
        }
    }

    /// Ends all processes: programs get a moment to end by themselves.
    pub fn dismiss(&mut self) {
        if std::mem::replace(&mut self.dismissed, true) {
            return;
        }
        sys::futex_set(&self.board.header().phase, STOP);
        let programs = self.members.iter().any(|m| m.role == Role::Program && m.ended.is_none());
        if programs {
            self.kill(libc::SIGTERM);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(200)
                && self.members.iter().any(|m| m.role == Role::Program && m.ended.is_none())
            {
                std::thread::sleep(STEP);
                let _ = self.bury();
            }
        }
        self.kill(libc::SIGKILL);
        for member in &mut self.members {
            if member.ended.is_none() {
                member.ended = reap(member.info.tid, 0);
            }
        }
    }

    fn kill(&self, signal: i32) {
        for member in &self.members {
            // A program's group may outlive it; the others are alone in theirs.
            if member.ended.is_none() || member.role == Role::Program {
                // SAFETY: the group was made for this member; ESRCH is fine.
                unsafe { libc::kill(-(member.info.tid as i32), signal) };
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Waits for a process; its status and what it and its children have used.
fn reap(pid: u32, flags: i32) -> Option<(i32, Counters)> {
    let mut status = 0;
    // SAFETY: a rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid places for the answer.
    let found = unsafe { libc::wait4(pid as i32, &mut status, flags, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    (found == pid as i32).then(|| {
        let cpu = ns(usage.ru_utime) + ns(usage.ru_stime);
        (status, Counters { cpu, preemptions: usage.ru_nivcsw as u64, migrations: 0 })
    })
}
