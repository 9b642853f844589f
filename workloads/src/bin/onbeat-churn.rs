// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-churn`: does to a scheduler, at random, all that can be done to one, and looks whether
//! any task is lost.
//!
//! The conductor (SCHED_FIFO 99, so that no scheduler under test can hold it up) keeps a troop of
//! children and in every step does something to one of them, to a CPU or to `scx_onbeat`. Each
//! child counts its own heartbeats in shared memory: one that could run and does not beat for
//! [`PATIENCE`] is lost. Needs root; meant for the lab, where the same seed gives the same run.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use fastrand::Rng;
use memmap2::{MmapOptions, MmapRaw};
use onbeat_client::{Error, Params, Service};
use onbeat_model::protocol::{Request, Response};
use onbeat_workloads::burn::spin;
use onbeat_workloads::exit_code;
use onbeat_workloads::sys::{self, Class};

/// A child that could run and has not beaten for so long is lost.
const PATIENCE: Duration = Duration::from_secs(8);
/// Loading takes seconds in emulation.
const LOADING: Duration = Duration::from_secs(60);
/// Slots of the board: threads that beat.
const SLOTS: usize = 8192;
/// Slots of one child: one for each of its threads.
const CREW: usize = 4;
const MS: u64 = 1_000_000;
const STATE: &str = "/sys/kernel/sched_ext/state";
const POLICIES: [&str; 8] = [
    "g-edf+fcbs",
    "g-edf+cbs",
    "g-edf+cbs-hard",
    "p-edf+fcbs",
    "g-edzl+cbs",
    "rm",
    "g-edf",
    "c-edf+cbs",
];

/// Does to the scheduler all that can be done to one, at random, and looks for lost tasks.
#[derive(Parser)]
#[command(name = "onbeat-churn", version)]
struct Args {
    /// How long
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    seconds: u64,
    /// The same seed does the same things
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Children at a time
    #[arg(long, default_value_t = 60)]
    tasks: usize,
    /// Longest pause between two acts
    #[arg(long, default_value_t = 20, value_name = "MS")]
    pause: u64,
    /// No CPU goes off line
    #[arg(long)]
    no_hotplug: bool,
    /// The scheduler is not reloaded
    #[arg(long)]
    no_reload: bool,
    /// Only moderate nice values, no SCHED_IDLE
    #[arg(long)]
    tame: bool,
    /// Say every act
    #[arg(long)]
    verbose: bool,
    /// Where the scheduler writes what it has to say
    #[arg(long, default_value = "/out/scheduler.log", value_name = "FILE")]
    log: String,
    /// What a child does
    #[arg(long, hide = true, requires = "board")]
    role: Option<String>,
    /// A child's first slot
    #[arg(long, hide = true, default_value_t = 0)]
    slot: usize,
    /// Descriptor of the board
    #[arg(long, hide = true)]
    board: Option<RawFd>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(
        "onbeat-churn",
        match (&args.role, args.board) {
            (Some(role), Some(board)) => play(role, board, &args),
            _ => Conductor::new(args).and_then(|mut conductor| {
                let result = conductor.run();
                conductor.tidy(result)
            }),
        },
    )
}

// The board.

/// A heartbeat for every slot.
struct Board {
    map: MmapRaw,
}

impl Board {
    fn create() -> Result<(Self, RawFd)> {
        // SAFETY: a fresh descriptor, inherited by children; nothing else owns it.
        let fd = unsafe { libc::memfd_create(c"churn".as_ptr(), 0) };
        ensure!(fd >= 0, "no memory: {}", io::Error::last_os_error());
        // SAFETY: as above; never closed, for children inherit it.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        file.set_len((SLOTS * 8) as u64)?;
        Ok((Self::open(fd)?, fd))
    }

    fn open(fd: RawFd) -> Result<Self> {
        Ok(Self { map: MmapOptions::new().len(SLOTS * 8).map_raw(fd)? })
    }

    fn beats(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < SLOTS);
        // SAFETY: inside the map, aligned, and only ever used as atomic.
        unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>().add(slot) }
    }
}

// The children.

/// Roles and how many slots each uses. The first four may have a real-time class for a moment.
const ROLES: [(&str, usize); 9] = [
    ("sleeper", 1),
    ("waker", 2),
    ("forker", 1),
    ("spawner", 1),
    ("burner", 1),
    ("yielder", 1),
    ("threads", CREW),
    ("execer", 1),
    ("pinner", 2),
];

fn play(role: &str, board: RawFd, args: &Args) -> Result<()> {
    let board = Board::open(board)?;
    let mut rng = Rng::with_seed(args.seed);
    let slot = args.slot;
    let beat = |of: usize| board.beats(slot + of).fetch_add(1, Relaxed);
    let pause = |us: u64| std::thread::sleep(Duration::from_micros(us));
    let work = |rng: &mut Rng| spin(rng.u64(1_000..400_000));
    match role {
        "sleeper" => loop {
            work(&mut rng);
            beat(0);
            pause(rng.u64(50..20_000));
        },
        // Two threads wake each other.
        "waker" => {
            let ring = [std::sync::mpsc::sync_channel(0), std::sync::mpsc::sync_channel(0)];
            let [(to_b, from_a), (to_a, from_b)] = ring;
            std::thread::scope(|s| {
                let beat = &beat;
                s.spawn(move || {
                    let mut rng = Rng::with_seed(args.seed + 1);
                    while from_a.recv().is_ok() {
                        spin(rng.u64(100..50_000));
                        beat(1);
                        let _ = to_a.send(());
                    }
                });
                loop {
                    to_b.send(())?;
                    from_b.recv()?;
                    beat(0);
                    spin(rng.u64(100..50_000));
                }
            })
        }
        "forker" => loop {
            // SAFETY: the child only counts and leaves, and touches no lock.
            match unsafe { libc::fork() } {
                0 => {
                    spin(rng.u64(1_000..200_000));
                    // SAFETY: ends this process at once.
                    unsafe { libc::_exit(0) };
                }
                -1 => pause(1_000),
                // SAFETY: our own child.
                pid => unsafe {
                    libc::waitpid(pid, std::ptr::null_mut(), 0);
                },
            }
            beat(0);
            pause(rng.u64(0..5_000));
        },
        "spawner" => loop {
            let end = rng.u64(1_000..200_000);
            std::thread::scope(|s| {
                for _ in 0..rng.u8(1..4) {
                    s.spawn(|| spin(end));
                }
            });
            beat(0);
            pause(rng.u64(0..3_000));
        },
        "burner" => loop {
            work(&mut rng);
            beat(0);
        },
        "yielder" => loop {
            spin(rng.u64(1_000..100_000));
            beat(0);
            // Also the mark of a job's end, if the reservation is one with marks.
            std::thread::yield_now();
        },
        "threads" => std::thread::scope(|s| {
            for of in 0..CREW {
                let mut rng = rng.fork();
                let beat = &beat;
                s.spawn(move || {
                    loop {
                        work(&mut rng);
                        beat(of);
                        if of % 2 == 0 {
                            pause(rng.u64(50..5_000));
                        }
                    }
                });
            }
            Ok(())
        }),
        "execer" => {
            for _ in 0..rng.u8(1..20) {
                work(&mut rng);
                beat(0);
                pause(rng.u64(0..3_000));
            }
            let words = child_words("execer", slot, args.board.unwrap_or(0), rng.u64(..));
            Err(std::os::unix::process::CommandExt::exec(
                Command::new("/proc/self/exe").args(words),
            )
            .into())
        }
        // Two threads, each bound to a CPU of its own choice, which it changes all the time.
        "pinner" => std::thread::scope(|s| {
            for of in 0..2 {
                let mut rng = rng.fork();
                let beat = &beat;
                s.spawn(move || {
                    loop {
                        let _ = sys::set_affinity(0, [rng.u32(0..cpus())]);
                        work(&mut rng);
                        beat(of);
                    }
                });
            }
            Ok(())
        }),
        _ => bail!("no role {role}"),
    }
}

fn child_words(role: &str, slot: usize, board: RawFd, seed: u64) -> [String; 8] {
    let text = |s: &str| s.to_string();
    [
        text("--role"),
        text(role),
        text("--slot"),
        slot.to_string(),
        text("--board"),
        board.to_string(),
        text("--seed"),
        (seed >> 1).to_string(),
    ]
}

fn cpus() -> u32 {
    // SAFETY: takes a number.
    (unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).max(1) as u32
}

// The conductor.

/// A child, as the conductor knows it.
struct Player {
    process: Child,
    role: usize,
    slot: usize,
    /// Heartbeats at `since`.
    seen: [u64; CREW],
    since: [Instant; CREW],
    stopped: bool,
    /// When its real-time class is taken back.
    rt_until: Option<Instant>,
    reservation: Option<u32>,
    /// What was done to it.
    past: VecDeque<String>,
}

struct Conductor {
    args: Args,
    rng: Rng,
    board: Board,
    fd: RawFd,
    players: Vec<Player>,
    free: Vec<usize>,
    scheduler: Option<Child>,
    begin: Instant,
    off: Vec<u32>,
    spawned: u64,
    acts: u64,
    reloads: u64,
    hotplugs: u64,
    grants: u64,
}

impl Conductor {
    fn new(args: Args) -> Result<Self> {
        ensure!(args.tasks * CREW <= SLOTS, "--tasks {}: at most {}", args.tasks, SLOTS / CREW);
        sys::set_class(0, Class::Fifo { priority: 99, reset_on_fork: true })
            .context("onbeat-churn needs root")?;
        let (board, fd) = Board::create()?;
        Ok(Self {
            rng: Rng::with_seed(args.seed),
            free: (0..args.tasks).map(|i| i * CREW).rev().collect(),
            args,
            board,
            fd,
            players: Vec::new(),
            scheduler: None,
            begin: Instant::now(),
            off: Vec::new(),
            spawned: 0,
            acts: 0,
            reloads: 0,
            hotplugs: 0,
            grants: 0,
        })
    }

    fn run(&mut self) -> Result<()> {
        self.load()?;
        let end = Duration::from_secs(self.args.seconds);
        let (mut reload_at, mut looked) = (Duration::from_secs(5), Duration::ZERO);
        while self.begin.elapsed() < end {
            std::thread::sleep(Duration::from_micros(self.rng.u64(0..=self.args.pause * 1000)));
            self.act()?;
            let now = self.begin.elapsed();
            if now - looked > Duration::from_millis(200) {
                looked = now;
                self.look()?;
            }
            if now > reload_at && !self.args.no_reload {
                reload_at = now + Duration::from_millis(self.rng.u64(2_000..9_000));
                self.reload()?;
            }
        }
        self.calm()
    }

    /// One random act.
    fn act(&mut self) -> Result<()> {
        self.acts += 1;
        if self.players.len() < self.args.tasks
            && (self.players.len() < self.args.tasks / 2 || self.rng.u8(0..4) == 0)
        {
            return self.spawn();
        }
        let i = self.rng.usize(0..self.players.len());
        let pid = self.players[i].process.id();
        match self.rng.u8(0..100) {
            0..12 => {
                let p = self.players.swap_remove(i);
                self.bury(p)?;
            }
            12..30 => {
                let mut list: Vec<u32> = (0..cpus()).filter(|_| self.rng.bool()).collect();
                list.extend((list.is_empty()).then(|| self.rng.u32(0..cpus())));
                let done = sys::set_affinity(pid, list.iter().copied());
                self.note(i, format!("affinity {list:?} {done:?}"));
            }
            30..45 => {
                let nice = self.rng.i32(if self.args.tame { -4..6 } else { -20..20 });
                let done = sys::set_nice(pid, nice);
                self.note(i, format!("nice {nice} {done:?}"));
            }
            45..55 => self.change_class(i, pid),
            55..75 => self.reserve(i, pid),
            75..85 => self.release(i),
            85..93 => {
                let stop = !self.players[i].stopped;
                // SAFETY: our own child, not waited for.
                unsafe { libc::kill(pid as i32, if stop { libc::SIGSTOP } else { libc::SIGCONT }) };
                self.players[i].stopped = stop;
                self.note(i, if stop { "stopped" } else { "continued" }.into());
            }
            93..97 if !self.args.no_hotplug => self.hotplug()?,
            _ => std::thread::sleep(Duration::from_millis(self.rng.u64(0..100))),
        }
        Ok(())
    }

    fn note(&mut self, i: usize, what: String) {
        let p = &mut self.players[i];
        let now = self.begin.elapsed().as_secs_f64();
        if self.args.verbose {
            eprintln!("{now:9.4} {} {}: {what}", ROLES[p.role].0, p.process.id());
        }
        p.past.push_back(format!("{now:.4} {what}"));
        if p.past.len() > 12 {
            p.past.pop_front();
        }
        // It gets its time anew.
        p.since = [Instant::now(); CREW];
    }

    fn spawn(&mut self) -> Result<()> {
        let role = self.rng.usize(0..ROLES.len());
        let slot = self.free.pop().context("no slot is free")?;
        for of in 0..CREW {
            self.board.beats(slot + of).store(0, Relaxed);
        }
        let words = child_words(ROLES[role].0, slot, self.fd, self.rng.u64(..));
        let process = Command::new("/proc/self/exe")
            .args(words)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a child")?;
        self.spawned += 1;
        self.players.push(Player {
            process,
            role,
            slot,
            seen: [0; CREW],
            since: [Instant::now(); CREW],
            stopped: false,
            rt_until: None,
            reservation: None,
            past: VecDeque::new(),
        });
        self.note(self.players.len() - 1, "started".into());
        Ok(())
    }

    fn bury(&mut self, mut p: Player) -> Result<()> {
        p.process.kill()?;
        let begin = Instant::now();
        while p.process.try_wait()?.is_none() {
            if begin.elapsed() > PATIENCE {
                bail!("killed, it does not die: {}", self.describe(&p));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.free.push(p.slot);
        Ok(())
    }

    fn change_class(&mut self, i: usize, pid: u32) {
        // Real-time classes only for those who sleep, and for a moment.
        let fifo = self.players[i].role < 4 && self.rng.bool();
        let policy = if fifo {
            libc::SCHED_FIFO
        } else {
            let most = if self.args.tame { 3 } else { 4 };
            [libc::SCHED_OTHER, libc::SCHED_BATCH, 7, libc::SCHED_IDLE][self.rng.usize(0..most)]
        };
        let param = libc::sched_param { sched_priority: if fifo { 10 } else { 0 } };
        // SAFETY: a valid parameter.
        let done = unsafe { libc::sched_setscheduler(pid as i32, policy, &param) };
        if fifo {
            self.players[i].rt_until = Some(Instant::now() + Duration::from_millis(50));
        }
        self.note(i, format!("class {policy} {done}"));
    }

    fn reserve(&mut self, i: usize, pid: u32) {
        let period = self.rng.u64(2..60) * MS;
        let budget = (period * self.rng.u64(1..60) / 100).max(100_000);
        let mut params = Params::new(budget, period);
        if self.rng.u8(0..4) == 0 {
            params = params.marking_jobs();
        }
        if self.rng.u8(0..4) == 0 {
            params = params.on_cpus(vec![self.rng.u32(0..cpus())]);
        }
        let done = Service::connect().and_then(|mut s| s.reserve(pid, "churn", &params));
        if let Ok(grant) = &done {
            self.players[i].reservation = Some(grant.id);
            self.grants += 1;
        }
        let done = done.map(|g| g.id).map_err(short);
        self.note(i, format!("reserve {budget} of {period} {done:?}"));
    }

    fn release(&mut self, i: usize) {
        if let Some(id) = self.players[i].reservation.take() {
            let done = Service::connect().and_then(|mut s| s.release(id));
            let done = done.map(|r| r.consumed_ns).map_err(short);
            self.note(i, format!("release {id} {done:?}"));
        }
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

    fn online(&mut self, cpu: u32, on: bool) -> Result<()> {
        self.say(&format!("CPU {cpu} {}", if on { "on" } else { "off" }));
        fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), if on { "1" } else { "0" })
            .with_context(|| format!("CPU {cpu} does not go {}", if on { "on" } else { "off" }))
    }

    fn say(&self, what: &str) {
        if self.args.verbose {
            eprintln!("{:9.4} {what}", self.begin.elapsed().as_secs_f64());
        }
    }

    /// Starts the scheduler under a random policy.
    fn load(&mut self) -> Result<()> {
        let policy = POLICIES[self.rng.usize(0..POLICIES.len())];
        // A cluster must not lose its only CPU; `c-edf` wants an even number.
        let policy = if cpus() % 2 == 1 { "g-edf+fcbs" } else { policy };
        self.say(&format!("load {policy}"));
        let log = File::options().create(true).append(true).open(&self.args.log)?;
        let mut command = Command::new("scx_onbeat");
        command.args(["--policy", policy]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if self.rng.u8(0..3) == 0 {
            command.args(["--events", "/tmp/events"]);
        }
        let scheduler = command.spawn().context("cannot start scx_onbeat")?;
        // Else it shares the CPUs with all the children while it loads, which takes minutes.
        sys::set_nice(scheduler.id(), -20)?;
        self.scheduler = Some(scheduler);
        let (begin, mut enabled) = (Instant::now(), false);
        let ready = || Service::connect().and_then(|mut s| s.ask(&Request::Status)).is_ok();
        while !(self.state() == "enabled" && ready()) {
            self.healthy()?;
            if !enabled && self.state() == "enabled" {
                enabled = true;
                self.say("enabled");
            }
            ensure!(begin.elapsed() < LOADING, "scx_onbeat {policy} is not ready in {LOADING:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.rested();
        Ok(())
    }

    fn state(&self) -> String {
        fs::read_to_string(STATE).unwrap_or_default().trim().into()
    }

    /// The scheduler still runs.
    fn healthy(&mut self) -> Result<()> {
        let Some(scheduler) = &mut self.scheduler else { return Ok(()) };
        if let Some(status) = scheduler.try_wait()? {
            self.scheduler = None;
            bail!("scx_onbeat ended by itself: {status}");
        }
        Ok(())
    }

    /// Ends the scheduler, gently or not.
    fn unload(&mut self, gently: bool) -> Result<()> {
        self.healthy()?;
        let Some(mut scheduler) = self.scheduler.take() else { return Ok(()) };
        self.say(if gently { "unload" } else { "kill the scheduler" });
        let signal = if gently { libc::SIGTERM } else { libc::SIGKILL };
        // SAFETY: our own child, not waited for.
        unsafe { libc::kill(scheduler.id() as i32, signal) };
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = scheduler.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < LOADING, "scx_onbeat does not end");
            std::thread::sleep(Duration::from_millis(1));
        };
        ensure!(!gently || status.success(), "scx_onbeat ended with {status}");
        while self.state() != "disabled" {
            ensure!(begin.elapsed() < LOADING, "the kernel keeps the dead scheduler");
            std::thread::sleep(Duration::from_millis(1));
        }
        for p in &mut self.players {
            p.reservation = None;
        }
        self.rested();
        Ok(())
    }

    fn reload(&mut self) -> Result<()> {
        self.reloads += 1;
        let gently = self.rng.bool();
        self.unload(gently)?;
        self.load()
    }

    /// Nobody is blamed for time that (un)loading took.
    fn rested(&mut self) {
        for p in &mut self.players {
            p.since = [Instant::now(); CREW];
        }
    }

    /// Takes real-time classes back, and looks for children that are lost or dead.
    fn look(&mut self) -> Result<()> {
        self.healthy()?;
        let now = Instant::now();
        let mut lost = Vec::new();
        for (i, p) in self.players.iter_mut().enumerate() {
            if p.rt_until.is_some_and(|t| t < now) {
                p.rt_until = None;
                let param = libc::sched_param { sched_priority: 0 };
                // SAFETY: a valid parameter.
                unsafe {
                    libc::sched_setscheduler(p.process.id() as i32, libc::SCHED_OTHER, &param)
                };
            }
            if let Some(status) = p.process.try_wait()? {
                bail!("{} {} ended by itself: {status}", ROLES[p.role].0, p.process.id());
            }
            for of in 0..ROLES[p.role].1 {
                let beats = self.board.beats(p.slot + of).load(Relaxed);
                if beats != p.seen[of] || p.stopped {
                    p.seen[of] = beats;
                    p.since[of] = now;
                }
                if now - p.since[of] > PATIENCE {
                    lost.push(i);
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        lost.dedup();
        let list: Vec<_> = lost.iter().map(|i| self.describe(&self.players[*i])).collect();
        bail!("{} of {} lost:\n{}", lost.len(), self.players.len(), list.join("\n"))
    }

    fn describe(&self, p: &Player) -> String {
        let pid = p.process.id();
        let mut text = format!(
            "{} {pid}, {:.1} s silent, beats {:?}, reservation {:?}, past {:#?}",
            ROLES[p.role].0,
            p.since[0].elapsed().as_secs_f64(),
            &p.seen[..ROLES[p.role].1],
            p.reservation,
            p.past
        );
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let status = read("status");
            let pick = |key: &str| {
                status.lines().find(|l| l.starts_with(key)).unwrap_or_default().replace('\t', " ")
            };
            text.push_str(&format!(
                "\n  thread {} {} {} {} stat {}",
                thread.file_name().to_string_lossy(),
                pick("State"),
                pick("Cpus_allowed_list"),
                pick("voluntary"),
                read("stat").trim()
            ));
            text.push_str(&format!("\n{}", read("stack")));
        }
        text
    }

    /// The end: all CPUs on, nobody stopped; everybody beats, with the scheduler and without it.
    fn calm(&mut self) -> Result<()> {
        for cpu in std::mem::take(&mut self.off) {
            self.online(cpu, true)?;
        }
        for i in 0..self.players.len() {
            // SAFETY: our own child, not waited for.
            unsafe { libc::kill(self.players[i].process.id() as i32, libc::SIGCONT) };
            self.players[i].stopped = false;
            self.note(i, "calm".into());
        }
        self.everybody_beats("with the scheduler")?;
        for i in 0..self.players.len() {
            self.release(i);
        }
        let status = Service::connect()?.ask(&Request::Status)?;
        let Response::Status { reservations, .. } = status else { bail!("status: {status:?}") };
        ensure!(reservations.is_empty(), "released, but there are {reservations:?}");
        self.everybody_beats("without reservations")?;
        self.unload(true)?;
        self.everybody_beats("without the scheduler")
    }

    /// Waits until everybody has beaten once more.
    fn everybody_beats(&mut self, when: &str) -> Result<()> {
        let before: Vec<_> = self.players.iter().map(|p| self.beats_of(p)).collect();
        loop {
            self.look().with_context(|| when.to_string())?;
            let ahead = |(p, b): (&Player, &Vec<u64>)| {
                self.beats_of(p).iter().zip(b).all(|(now, then)| now > then)
            };
            if self.players.iter().zip(&before).all(ahead) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn beats_of(&self, p: &Player) -> Vec<u64> {
        (0..ROLES[p.role].1).map(|of| self.board.beats(p.slot + of).load(Relaxed)).collect()
    }

    /// Whatever happened: ends all children and the scheduler, and reads the kernel's log.
    fn tidy(&mut self, mut result: Result<()>) -> Result<()> {
        for cpu in std::mem::take(&mut self.off) {
            let _ = self.online(cpu, true);
        }
        while let Some(p) = self.players.pop() {
            let buried = self.bury(p);
            result = result.and(buried);
        }
        if let Some(mut scheduler) = self.scheduler.take() {
            let _ = scheduler.kill();
            let _ = scheduler.wait();
        }
        if result.is_err() {
            eprintln!("{}", fs::read_to_string(&self.args.log).unwrap_or_default());
        }
        result.and(kernel_is_content())?;
        println!(
            "{} s, {} acts, {} children, {} reservations, {} times a CPU came or went, {} reloads: \
             nobody lost",
            self.args.seconds, self.acts, self.spawned, self.grants, self.hotplugs, self.reloads
        );
        Ok(())
    }
}

fn short(error: Error) -> String {
    error.to_string().chars().take(60).collect()
}

/// Nothing in the kernel's log that should not be there.
fn kernel_is_content() -> Result<()> {
    let mut log = vec![0u8; 1 << 20];
    // SAFETY: SYSLOG_ACTION_READ_ALL (3) fills at most as many bytes as it is given.
    let length = unsafe { libc::klogctl(3, log.as_mut_ptr().cast(), log.len() as i32) };
    log.truncate(length.max(0) as usize);
    let log = String::from_utf8_lossy(&log);
    let bad = ["stall", "WARNING:", "BUG:", "Oops", "hung", "blocked for more", "disabled due to"];
    let lines: Vec<_> = log.lines().filter(|l| bad.iter().any(|b| l.contains(b))).collect();
    ensure!(lines.is_empty(), "the kernel says:\n{}", lines.join("\n"));
    Ok(())
}
