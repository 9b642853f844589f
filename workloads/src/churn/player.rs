// SPDX-License-Identifier: GPL-2.0-only
//! A child, as the conductor knows it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::PATIENCE;
use super::board::{Board, CREW};
use super::roles::{self, ROLES, SLEEPY};
use crate::sys::{self, Class};

/// Acts remembered of each.
const PAST: usize = 12;

/// A child.
#[derive(Debug)]
pub struct Player {
    pid: u32,
    role: usize,
    /// Its first slot.
    pub slot: usize,
    /// Heartbeats at `since`.
    seen: [u64; CREW],
    since: [Instant; CREW],
    /// CPU time that it had had when it was silent for too long for the first time, ns.
    doubted: Option<u64>,
    stopped: bool,
    /// When its real-time class is taken back.
    real_time_until: Option<Instant>,
    /// Its reservation.
    pub reservation: Option<u32>,
    past: VecDeque<String>,
}

impl Player {
    /// Starts one.
    pub fn start(role: usize, slot: usize, board: &Board, fd: RawFd, seed: u64) -> Result<Self> {
        (slot..slot + CREW).for_each(|slot| board.clear(slot));
        // Not a program of its own: who waits for its start waits for the scheduler under test.
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let error = roles::play(ROLES[role].0, fd, slot, seed).err();
            eprintln!("onbeat-churn: {} ends: {error:?}", ROLES[role].0);
            // SAFETY: ends this process at once; what it shares with its parent stays.
            unsafe { libc::_exit(1) };
        }
        ensure!(pid > 0, "cannot fork: {}", io::Error::last_os_error());
        Ok(Self {
            pid: pid as u32,
            role,
            slot,
            seen: [0; CREW],
            since: [Instant::now(); CREW],
            doubted: None,
            stopped: false,
            real_time_until: None,
            reservation: None,
            past: VecDeque::new(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it plays.
    pub fn role(&self) -> &'static str {
        ROLES[self.role].0
    }

    /// Whether it is against the others.
    pub fn is_attack(&self) -> bool {
        ROLES[self.role].1 == 0
    }

    /// Whether a real-time class does no harm.
    pub fn is_sleepy(&self) -> bool {
        self.role < SLEEPY
    }

    /// What was just done to it; it gets its time anew.
    pub fn note(&mut self, what: String) {
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(what);
        self.rested();
    }

    /// It is not blamed for the time up to now.
    pub fn rested(&mut self) {
        self.since = [Instant::now(); CREW];
    }

    /// Has it stopped (SIGSTOP), or go on.
    pub fn hold(&mut self, stopped: bool) {
        self.stopped = stopped;
        let signal = if stopped { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: our own child, not waited for.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Whether it is held.
    pub fn is_held(&self) -> bool {
        self.stopped
    }

    /// Puts it into a class of the kernel's; into a real-time one for a moment only, and without threads that it
    /// creates meanwhile: they would keep the class.
    pub fn set_class(&mut self, policy: i32) -> i32 {
        let real_time = policy == libc::SCHED_FIFO;
        let policy = if real_time { policy | libc::SCHED_RESET_ON_FORK } else { policy };
        let param = libc::sched_param { sched_priority: if real_time { 10 } else { 0 } };
        self.real_time_until = real_time.then(|| Instant::now() + Duration::from_millis(50));
        // SAFETY: a valid parameter.
        unsafe { libc::sched_setscheduler(self.pid() as i32, policy, &param) }
    }

    /// Takes a real-time class back.
    pub fn end_real_time(&mut self) {
        if self.real_time_until.is_some() {
            self.set_class(libc::SCHED_OTHER);
        }
    }

    /// Whether it beats as it should. Takes a real-time class back whose moment is over.
    ///
    /// # Errors
    /// It has ended.
    pub fn is_alive(&mut self, board: &Board) -> Result<bool> {
        let now = Instant::now();
        if self.real_time_until.is_some_and(|t| t < now) {
            self.set_class(libc::SCHED_OTHER);
        }
        if let Some(status) = self.status() {
            bail!("{} {} ended by itself: {status}\n{}", self.role(), self.pid(), self.story());
        }
        let mut alive = true;
        for of in 0..ROLES[self.role].1 {
            let beats = board.beats(self.slot + of);
            if beats != self.seen[of] || self.stopped {
                (self.seen[of], self.since[of]) = (beats, now);
                self.doubted = None;
            }
            if now - self.since[of] > PATIENCE {
                match self.is_slow() {
                    true => self.since[of] = now,
                    false => alive = false,
                }
            }
        }
        Ok(alive)
    }

    /// Whether what has not beaten for long is merely slow: SCHED_IDLE is served a turn each few seconds, and to
    /// execute a program anew takes many. Of several threads one may be lost all the same.
    fn is_slow(&mut self) -> bool {
        ROLES[self.role].1 == 1 && self.has_run()
    }

    /// Whether its threads have run, or some have ended, since this was asked last.
    fn has_run(&mut self) -> bool {
        let threads =
            fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let used = threads.filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        let used = used.sum();
        self.doubted.replace(used).is_none_or(|before| used != before)
    }

    /// Heartbeats of its threads.
    pub fn beats(&self, board: &Board) -> Vec<u64> {
        (0..ROLES[self.role].1).map(|of| board.beats(self.slot + of)).collect()
    }

    /// Kills it; it is dead when [`Player::is_dead`] says so. To end it takes CPU time, of which SCHED_IDLE has little
    /// beside many others: how soon such a one ends is not what is looked for.
    pub fn kill(&mut self) -> Result<()> {
        self.rested();
        (self.real_time_until, self.doubted) = (None, None);
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // One that ends meanwhile needs no class any more.
            if let Some(tid) = thread?.file_name().to_str().and_then(|name| name.parse().ok()) {
                let _ = sys::set_class(tid, Class::Ordinary { nice: 0 });
            }
        }
        // SAFETY: our own child, not waited for.
        match unsafe { libc::kill(self.pid as i32, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// How it ended, once it has.
    fn status(&self) -> Option<ExitStatus> {
        let mut status = 0;
        // SAFETY: our own child; the kernel fills the status.
        let ended = unsafe { libc::waitpid(self.pid as i32, &mut status, libc::WNOHANG) };
        (ended == self.pid as i32).then(|| ExitStatus::from_raw(status))
    }

    /// Whether it, having been killed, is dead.
    ///
    /// # Errors
    /// It takes too long.
    pub fn is_dead(&mut self) -> Result<bool> {
        let dead = self.status().is_some();
        if !dead && self.since[0].elapsed() > PATIENCE {
            // To give back the memory of thousands of threads takes long beside a crowd.
            ensure!(self.has_run(), "killed, it does not die: {}", self.story());
            self.rested();
        }
        Ok(dead)
    }

    /// What is known of it.
    pub fn story(&self) -> String {
        let pid = self.pid();
        let silent: Vec<_> = self.since[..ROLES[self.role].1]
            .iter()
            .map(|t| format!("{:.1} s", t.elapsed().as_secs_f64()))
            .collect();
        let mut text = format!(
            "{} {pid}, silent {}, beats {:?}, reservation {:?}, past:",
            self.role(),
            silent.join(" "),
            &self.seen[..ROLES[self.role].1],
            self.reservation,
        );
        self.past.iter().for_each(|act| text.push_str(&format!("\n    {act}")));
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let (status, stat) = (read("status"), read("stat"));
            let line = |key: &str| {
                status.lines().find(|l| l.starts_with(key)).unwrap_or_default().replace('\t', " ")
            };
            // Behind the name: state is field 3, nice 19, the last CPU 39, the class 41.
            let fields: Vec<_> =
                stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
            let field = |n: usize| fields.get(n - 3).copied().unwrap_or("?");
            text.push_str(&format!(
                "\n  thread {}: {}; {}; nice {}, CPU {}, class {}\n{}",
                thread.file_name().to_string_lossy(),
                line("State"),
                line("Cpus_allowed_list"),
                field(19),
                field(39),
                field(41),
                read("stack")
            ));
        }
        text
    }
}
