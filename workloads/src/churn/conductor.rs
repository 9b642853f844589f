// SPDX-License-Identifier: GPL-2.0-only
//! The conductor: one random act after the other, and a look at everybody in between.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use onbeat_client::{Error, Params, Service};
use onbeat_model::protocol::{Request, Response};

use super::board::{Board, CREW};
use super::hang::Watch;
use super::kernel_log::KernelLog;
use super::player::Player;
use super::roles::ROLES;
use super::scheduler::Scheduler;
use super::swap::{HALF, Swaps};
use super::{Options, PATIENCE, cpus};
use crate::sys::{self, Class};

const MS: u64 = 1_000_000;
/// How often everybody is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A CPU that takes longer to come or go waits for somebody who is not served. Shorter is no fault: what the kernel
/// waits for takes dozens of steps of threads of its own, and of best effort ones (nice 19 among them) that hold a lock
/// of the kernel's or were interrupted in a read-side critical section of RCU; in an overload each of these may wait
/// for its patience (`OB_PATIENCE`, 3 s) once or more.
const HOTPLUG_MOST: Duration = Duration::from_secs(120);
/// After so long it is written down who hangs where.
const HOTPLUG_SLOW: Duration = Duration::from_secs(20);
/// Acts the story tells.
const PAST: usize = 30;
const SCHED_EXT: i32 = 7;
const POLICIES: [&str; 12] = [
    "g-edzl+cbs-predict",
    "p-edf+cbs-slack",
    "g-edf+fcbs",
    "g-edf+fcbs-lag",
    "g-edf+cbs",
    "g-edf+cbs-hard",
    "p-edf+fcbs",
    "g-edzl+cbs",
    "g-edzl+fcbs",
    "rm",
    "g-edf",
    "c-edf+cbs",
];

/// Gives the scheduler trouble as long as it is told to.
///
/// # Errors
/// What went wrong, with the story.
pub fn conduct(options: Options) -> Result<()> {
    // Whatever the scheduler does, it cannot hold this process up.
    sys::set_class(0, Class::Fifo { priority: 99, reset_on_fork: true })
        .context("onbeat-churn needs root")?;
    let mut conductor = Conductor::new(options)?;
    let result = conductor.run();
    // Before anything is tidied away.
    let result = result.map_err(|e| conductor.tell(&e));
    let tidy = conductor.tidy();
    result.and(tidy)?;
    ensure!(conductor.kernel.is_clean()?, "the kernel says:\n{}", conductor.kernel.last_lines());
    println!("{}: nobody lost", conductor.sums());
    Ok(())
}

pub(super) struct Conductor {
    options: Options,
    pub(super) rng: Rng,
    board: Board,
    fd: RawFd,
    players: Vec<Player>,
    /// Killed, but perhaps not dead yet.
    dying: Vec<Player>,
    free: Vec<usize>,
    scheduler: Scheduler,
    /// Loaded last.
    policy: String,
    kernel: KernelLog,
    begin: Instant,
    /// Spent on loading and unloading: seconds, in which nothing else happens.
    loading: Duration,
    off: Vec<u32>,
    past: VecDeque<String>,
    acts: u64,
    children: u64,
    grants: u64,
    hotplugs: u64,
    /// The longest that a CPU took to come or go.
    slowest: Duration,
    loads: u64,
    pub(super) swaps: Swaps,
}

impl Conductor {
    fn new(options: Options) -> Result<Self> {
        let (board, fd) = Board::create()?;
        Ok(Self {
            rng: Rng::with_seed(options.seed),
            free: (0..usize::from(options.tasks)).map(|i| i * CREW).rev().collect(),
            scheduler: Scheduler::new(options.log.clone()),
            policy: String::new(),
            kernel: KernelLog::open()?,
            options,
            board,
            fd,
            players: Vec::new(),
            dying: Vec::new(),
            begin: Instant::now(),
            loading: Duration::ZERO,
            off: Vec::new(),
            past: VecDeque::new(),
            acts: 0,
            children: 0,
            grants: 0,
            hotplugs: 0,
            slowest: Duration::ZERO,
            loads: 0,
            swaps: Swaps::default(),
        })
    }

    fn run(&mut self) -> Result<()> {
        self.load()?;
        let end = Duration::from_secs(self.options.seconds);
        let (mut reload_at, mut looked) = (Duration::from_secs(3), Duration::ZERO);
        let mut speak_at = Duration::from_secs(self.options.progress.max(1));
        let swaps = self.options.swaps;
        while if swaps > 0 { self.swaps.done < swaps } else { self.acted() < end } {
            let pause = self.rng.u64(0..=self.options.pause * 1000);
            std::thread::sleep(Duration::from_micros(pause));
            self.act()?;
            let now = self.acted();
            if now - looked > LOOK {
                looked = now;
                self.look()?;
            }
            if now > speak_at {
                speak_at += Duration::from_secs(self.options.progress.max(1));
                eprintln!("onbeat-churn: {} of {end:?}: {}", self.time(), self.sums());
            }
            if now > reload_at && !self.options.no_reload {
                let gently = self.rng.bool();
                self.unload(gently)?;
                self.load()?;
                let rest = Duration::from_millis(self.rng.u64(1_000..8_000));
                reload_at = self.acted() + rest;
            }
        }
        self.calm()
    }

    /// Time in which there were acts.
    fn acted(&self) -> Duration {
        self.begin.elapsed().saturating_sub(self.loading)
    }

    /// One random act.
    fn act(&mut self) -> Result<()> {
        self.acts += 1;
        if self.options.swaps > 0 && self.rng.bool() {
            return self.swap();
        }
        let most = usize::from(self.options.tasks);
        let there = self.players.len();
        if !self.free.is_empty() && (there < most / 2 || self.rng.u8(0..4) == 0) {
            return self.add();
        }
        let i = self.rng.usize(0..there);
        let pid = self.players[i].pid();
        match self.rng.u8(0..100) {
            0..12 => self.kill(i)?,
            12..30 => {
                let mut list: Vec<u32> = (0..cpus()).filter(|_| self.rng.bool()).collect();
                list.extend((list.is_empty()).then(|| self.rng.u32(0..cpus())));
                let done = sys::set_affinity(pid, list.iter().copied());
                self.note(i, &format!("affinity {list:?} {done:?}"));
            }
            30..45 => {
                let nice = self.rng.i32(if self.options.tame { -4..6 } else { -20..20 });
                let done = sys::set_nice(pid, nice);
                self.note(i, &format!("nice {nice} {done:?}"));
            }
            45..55 => self.change_class(i),
            55..75 => self.reserve(i)?,
            75..85 => self.release(i)?,
            85..93 => {
                let stop = !self.players[i].is_held();
                self.players[i].hold(stop);
                self.note(i, if stop { "stopped" } else { "continued" });
            }
            93..97 if !self.options.no_hotplug => self.hotplug()?,
            _ => std::thread::sleep(Duration::from_millis(self.rng.u64(0..100))),
        }
        Ok(())
    }

    fn add(&mut self) -> Result<()> {
        let role = self.rng.usize(0..ROLES.len());
        let slot = self.free.pop().context("no slot is free")?;
        let player = Player::start(role, slot, &self.board, self.fd, self.rng.u64(..))?;
        self.players.push(player);
        self.children += 1;
        self.note(self.players.len() - 1, "started");
        Ok(())
    }

    fn kill(&mut self, i: usize) -> Result<()> {
        self.note(i, "killed");
        let mut player = self.players.swap_remove(i);
        player.kill()?;
        self.dying.push(player);
        Ok(())
    }

    fn change_class(&mut self, i: usize) {
        // Real-time classes only for those who sleep.
        let policy = if self.players[i].is_sleepy() && self.rng.bool() {
            libc::SCHED_FIFO
        } else {
            let most = if self.options.tame { 3 } else { 4 };
            let all = [libc::SCHED_OTHER, libc::SCHED_BATCH, SCHED_EXT, libc::SCHED_IDLE];
            all[self.rng.usize(0..most)]
        };
        let done = self.players[i].set_class(policy);
        self.note(i, &format!("class {policy} {done}"));
    }

    fn reserve(&mut self, i: usize) -> Result<()> {
        let period = self.rng.u64(2..60) * MS;
        let budget = (period * self.rng.u64(1..60) / 100).max(100_000);
        let mut params = Params::new(budget, period);
        if self.rng.u8(0..4) == 0 {
            params = params.marking_jobs();
        }
        if self.rng.u8(0..4) == 0 {
            params = params.on_cpus(vec![self.rng.u32(0..cpus())]);
        }
        if self.options.swaps > 0 && cpus() > 1 && self.rng.bool() {
            params = params.in_set(HALF);
        }
        let pid = self.players[i].pid();
        let done = Service::connect().and_then(|mut s| s.reserve(pid, "churn", &params));
        if let Ok(grant) = &done {
            self.players[i].reservation = Some(grant.id);
            self.grants += 1;
        }
        let done = answer(done.map(|grant| grant.id))?;
        self.note(i, &format!("reserve {budget} of {period}: {done}"));
        Ok(())
    }

    fn release(&mut self, i: usize) -> Result<()> {
        if let Some(id) = self.players[i].reservation.take() {
            let done = Service::connect().and_then(|mut s| s.release(id));
            let done = answer(done.map(|r| r.consumed_ns))?;
            self.note(i, &format!("release {id}: {done}"));
        }
        Ok(())
    }

    fn hotplug(&mut self) -> Result<()> {
        let cpu = self.rng.u32(1..cpus().max(2));
        if cpu >= cpus() {
            return Ok(());
        }
        let on = self.off.contains(&cpu);
        self.online(cpu, on)?;
        match on {
            true => self.off.retain(|c| *c != cpu),
            false => self.off.push(cpu),
        }
        self.hotplugs += 1;
        Ok(())
    }

    /// Before what takes long: nobody may stand in its way in a real-time class meanwhile.
    fn end_real_time(&mut self) {
        self.players.iter_mut().for_each(Player::end_real_time);
    }

    fn online(&mut self, cpu: u32, on: bool) -> Result<()> {
        self.end_real_time();
        let way = if on { "on" } else { "off" };
        self.remember(&format!("CPU {cpu} {way}"));
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        let begin = Instant::now();
        let watch = Watch::after(HOTPLUG_SLOW, "a CPU that comes or goes");
        fs::write(file, if on { "1" } else { "0" })
            .with_context(|| format!("CPU {cpu} does not go {way}"))?;
        let took = begin.elapsed();
        let seen = watch.end();
        self.slowest = self.slowest.max(took);
        if seen.is_some() {
            eprintln!("onbeat-churn: CPU {cpu} took {took:.1?} to go {way}");
        }
        if took > HOTPLUG_MOST {
            self.past.extend(seen);
            // If the kernel has thrown the scheduler out, that has more to tell.
            std::thread::sleep(LOOK);
            self.look()?;
            bail!("CPU {cpu} took {took:?} to go {way}");
        }
        // That took a while.
        self.rested();
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let policy = POLICIES[self.rng.usize(0..POLICIES.len())];
        // `c-edf` wants an even number.
        let policy = if cpus() % 2 == 1 { "g-edf+fcbs" } else { policy };
        let policy = self.options.policy.clone().unwrap_or_else(|| policy.into());
        let events = self.rng.u8(0..3) == 0;
        // Seldom: while it waits for its turn, nothing else happens here.
        let among = self.rng.u8(0..4) == 0;
        self.end_real_time();
        self.remember(&format!("load {policy}{}", if among { ", ordinary" } else { "" }));
        let begin = Instant::now();
        let sets = self.options.swaps > 0;
        self.scheduler.load(&policy, events, among, sets)?;
        self.loading += begin.elapsed();
        self.policy = policy;
        self.loads += 1;
        self.rested();
        Ok(())
    }

    fn unload(&mut self, gently: bool) -> Result<()> {
        self.end_real_time();
        self.remember(if gently { "unload" } else { "kill the scheduler" });
        let begin = Instant::now();
        self.scheduler.unload(gently)?;
        self.loading += begin.elapsed();
        self.players.iter_mut().for_each(|p| p.reservation = None);
        self.rested();
        Ok(())
    }

    /// Nobody is blamed for time that others took.
    fn rested(&mut self) {
        self.players.iter_mut().chain(&mut self.dying).for_each(Player::rested);
    }

    /// Looks for children that are lost or dead, at the scheduler and at the kernel's log.
    fn look(&mut self) -> Result<()> {
        self.scheduler.check()?;
        self.bury()?;
        ensure!(self.kernel.is_clean()?, "the kernel says something");
        let mut lost = Vec::new();
        for player in &mut self.players {
            if !player.is_alive(&self.board)? {
                lost.push(player.story());
            }
        }
        ensure!(
            lost.is_empty(),
            "{} of {} lost:\n{}",
            lost.len(),
            self.players.len(),
            lost.join("\n")
        );
        Ok(())
    }

    /// Frees the places of those who are dead.
    fn bury(&mut self) -> Result<()> {
        for mut player in std::mem::take(&mut self.dying) {
            match player.is_dead()? {
                true => self.free.push(player.slot),
                false => self.dying.push(player),
            }
        }
        Ok(())
    }

    /// The end: all CPUs on, nobody stopped; everybody beats, with the scheduler and without it.
    fn calm(&mut self) -> Result<()> {
        for cpu in std::mem::take(&mut self.off) {
            self.online(cpu, true)?;
        }
        while let Some(i) = self.players.iter().position(Player::is_attack) {
            self.kill(i)?;
        }
        while !self.dying.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
            self.look()?;
        }
        for i in 0..self.players.len() {
            self.players[i].hold(false);
            self.note(i, "calm");
        }
        self.everybody_beats("with the scheduler")?;
        for i in 0..self.players.len() {
            self.release(i)?;
        }
        self.none_reserved()?;
        self.everybody_beats("without reservations")?;
        self.unload(true)?;
        self.everybody_beats("without the scheduler")
    }

    /// Waits until those that were killed have given back what they had: their children end by and by.
    fn none_reserved(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let status = Service::connect()?.ask(&Request::Status)?;
            let Response::Status { reservations, .. } = status else { bail!("status: {status:?}") };
            if reservations.is_empty() {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "released, but there are {reservations:?}");
            self.look()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until everybody has beaten once more.
    fn everybody_beats(&mut self, when: &str) -> Result<()> {
        self.remember(&format!("everybody shall beat {when}"));
        let before: Vec<_> = self.players.iter().map(|p| p.beats(&self.board)).collect();
        loop {
            self.look().with_context(|| when.to_string())?;
            let ahead = |(p, b): (&Player, &Vec<u64>)| {
                p.beats(&self.board).iter().zip(b).all(|(now, then)| now > then)
            };
            if self.players.iter().zip(&before).all(ahead) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn time(&self) -> String {
        format!("{:.4} s", self.begin.elapsed().as_secs_f64())
    }

    pub(super) fn remember(&mut self, what: &str) {
        let line = format!("{} {what}", self.time());
        if self.options.verbose {
            eprintln!("{line}");
        }
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(line);
    }

    fn note(&mut self, i: usize, what: &str) {
        let time = self.time();
        let player = &mut self.players[i];
        player.note(format!("{time} {what}"));
        let what = format!("{} {}: {what}", player.role(), player.pid());
        self.remember(&what);
    }

    fn sums(&self) -> String {
        format!(
            "{} acts, {} children, {} reservations, {} times a CPU came or went (in {:.1} s at most), {} loads{}",
            self.acts,
            self.children,
            self.grants,
            self.hotplugs,
            self.slowest.as_secs_f64(),
            self.loads,
            self.swaps
        )
    }

    /// The story of a failure.
    fn tell(&mut self, error: &anyhow::Error) -> anyhow::Error {
        // If the kernel has thrown the scheduler out, that has yet to say so.
        std::thread::sleep(LOOK);
        let _ = self.kernel.is_clean(); // reads what is new
        let past = Vec::from(std::mem::take(&mut self.past)).join("\n  ");
        anyhow::anyhow!(
            "{error:#}\nseed {}, after {}, under {}: {}\nlast acts:\n  {past}\nthe scheduler's log:\n{}\n\
             the kernel's log:\n{}",
            self.options.seed,
            self.time(),
            self.policy,
            self.sums(),
            self.scheduler.last_words(),
            self.kernel.last_lines()
        )
    }

    /// Whatever happened: all CPUs on, no child and no scheduler left.
    fn tidy(&mut self) -> Result<()> {
        for cpu in std::mem::take(&mut self.off) {
            let _ = self.online(cpu, true);
        }
        for mut player in std::mem::take(&mut self.players) {
            player.kill()?;
            self.dying.push(player);
        }
        while !self.dying.is_empty() {
            self.bury()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        self.scheduler.unload(true)
    }
}

/// The service's answer for the record.
///
/// # Errors
/// There is none: it may refuse, but not fall silent.
pub(super) fn answer<T: std::fmt::Debug>(result: Result<T, Error>) -> Result<String> {
    match result {
        Err(e @ (Error::NoService { .. } | Error::Protocol(_))) => Err(e.into()),
        Err(e) => Ok(e.to_string().chars().take(60).collect()),
        Ok(value) => Ok(format!("{value:?}")),
    }
}
