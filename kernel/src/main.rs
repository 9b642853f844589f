// SPDX-License-Identifier: GPL-2.0-only
//! `scx_onbeat`: loads Onbeat's scheduler and serves reservations until it is told to stop.

use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use onbeat_command::MISUSED;
use onbeat_kernel::arena::Layout;
use onbeat_kernel::log;
use onbeat_kernel::machine::{self, name_cpus};
use onbeat_kernel::priority::{self, Raised};
use onbeat_kernel::protection::{Need, Protection};
use onbeat_kernel::rate::{Notice, Rate};
use onbeat_kernel::recorder::Recorder;
use onbeat_kernel::reservations::{Book, Rights};
use onbeat_kernel::scheduler::{Loading, Scheduler};
use onbeat_kernel::service::{Service, Socket};
use onbeat_kernel::settings::Settings;
use onbeat_kernel::shares::Shares;
use onbeat_kernel::stats::{self, Metrics};
use onbeat_kernel::steering::{self, Steering};
use onbeat_kernel::system::{Proc, System, Watch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scx_stats::prelude::StatsServer;
use sd_notify::NotifyState;

mod config;
mod options;

use config::Given;
use options::{Options, layout, settings};

/// How often the service looks after what nobody tells it of.
const TICK: Duration = Duration::from_millis(500);
/// How often it does so at most, however many requests come.
const LOOK: Duration = Duration::from_millis(20);

/// Exit status when the kernel took the scheduler out.
const EJECTED: u8 = 3;

fn main() -> ExitCode {
    onbeat_command::generate_if_asked::<Options>();
    let failed = |code| {
        move |error: anyhow::Error| {
            log::say(format_args!("{error:#}"));
            code
        }
    };
    let checked = Given::read().and_then(|given| {
        let plan = Plan::new(&given.options).map_err(|mistake| given.located(mistake))?;
        Ok((given.options, plan))
    });
    let code = checked.map_err(failed(ExitCode::from(MISUSED))).and_then(|(options, plan)| {
        let work = match plan {
            None => look(&options),
            Some(_) if options.check => {
                println!("scx_onbeat: these options make sense on this machine");
                Ok(ExitCode::SUCCESS)
            }
            Some(plan) => run(&options, plan),
        };
        work.map_err(failed(ExitCode::FAILURE))
    });
    log::flush();
    code.unwrap_or_else(|code| code)
}

/// What the options mean on this machine.
struct Plan {
    sets: Vec<Settings>,
    layout: Layout,
    shares: Shares,
}

impl Plan {
    /// None if no scheduler is to be started. An error says which option is wrong and what to do.
    fn new(options: &Options) -> Result<Option<Self>> {
        if options.help_stats || options.monitor.is_some() {
            return Ok(None);
        }
        let sets = settings(options)?;
        sets[0].check_servers().map_err(|e| anyhow!("--best-effort-servers: {e}"))?;
        let layout = layout(options, &sets)?;
        let (shares, missing) =
            Shares::look_up(&options.limits, sets[0].user_share).map_err(anyhow::Error::msg)?;
        // The service does not stay away because a user has been removed.
        if let (Some(first), true) = (missing.first(), options.check) {
            bail!("{first}");
        }
        if options.check {
            Socket::check(&options.socket)?;
            options.events.as_deref().map_or(Ok(()), Recorder::check)?;
        }
        missing.iter().for_each(log::say);
        Ok(Some(Self { sets, layout, shares }))
    }
}

/// Statistics, of a scheduler that another process has loaded.
fn look(options: &Options) -> Result<ExitCode> {
    let metrics = Arc::new(Mutex::new(Metrics::default()));
    if options.help_stats {
        stats::server_data(&metrics).describe_meta(&mut std::io::stdout(), None)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(interval) = options.monitor {
        stats::monitor(interval, &Signals::catch()?.stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(options: &Options, plan: Plan) -> Result<ExitCode> {
    let Plan { sets, layout, shares } = plan;
    let metrics = Arc::new(Mutex::new(Metrics::default()));
    // Before anything that must be undone.
    let signals = Signals::catch()?;
    if let Some(obstacle) = machine::obstacles().first() {
        bail!("{obstacle}");
    }
    let companion = match options.with {
        Some(pid) => Some(Proc.watch(pid, None).with_context(|| format!("--with {pid}"))?),
        None => None,
    };
    let socket = Socket::bind(&options.socket)?;
    let greeter = socket.greet()?;
    // One for each reservation, whose process is watched.
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit { current: files.maximum, ..files };
    let _ = setrlimit(Resource::Nofile, most); // the error names it if it does not suffice
    let recorder = options.events.as_deref().map(Recorder::create).transpose()?;
    let mut object = MaybeUninit::uninit();
    let raised = Raised::now();
    let Options { verbose, costs, watchdog, interrupt_cpu, .. } = *options;
    // Before the kernel adds its servers to what SCHED_DEADLINE has admitted: with the values that a
    // killed service has left they may not fit.
    let protection = protection();
    match steering::put_right() {
        Ok(words) => words.iter().for_each(log::say),
        Err(e) => log::say(format_args!("an earlier scx_onbeat was killed: {e:#}")),
    }
    let rights = Rights { no_isolation: options.no_isolation, others: options.best_effort };
    let loading = Loading { verbose, costs, watchdog, interrupt_cpu };
    let scheduler = Scheduler::start(&layout, loading, &mut object)?;
    drop(raised);
    priority::serve();
    let served = |set: &Settings| {
        let cpus = machine::cpus_of(layout.online & set.usable & set.set);
        format!("{} on {}", set.policy(), name_cpus(&cpus))
    };
    log::say(format_args!(
        "{} of Linux {}; requests at {}",
        sets.iter().map(served).collect::<Vec<_>>().join(", "),
        machine::kernel_release(),
        options.socket.display()
    ));
    for set in sets.iter().filter(|set| !set.isolates()) {
        log::say(format_args!(
            "warning: {} does not isolate: reservations can be late because of others (--no-isolation)",
            set.policy()
        ));
    }
    // Dropping it takes its socket down; a scheduler without statistics still schedules.
    let _statistics = StatsServer::new(stats::server_data(&metrics))
        .launch()
        .inspect_err(|e| log::say(format_args!("no statistics: {e:#}")))
        .ok();
    if let Some(interval) = options.stats {
        let stop = Arc::clone(&signals.stop);
        std::thread::spawn(move || stats::monitor(interval, &stop));
    }
    let steering = interrupt_cpu.map(steer).transpose()?;
    let mut book = Book::of(scheduler, Proc, sets, rights);
    book.draw()?;
    book.interrupt_cpu = interrupt_cpu;
    let mut service = Service::new(book, socket);
    service.shares = shares;
    for (stream, uid, gid) in greeter.end() {
        service.welcome(stream, uid, gid);
    }
    notify(NotifyState::Ready);
    Session {
        service,
        signals,
        companion,
        recorder,
        failure: None,
        metrics,
        rate: Rate::new(Instant::now()),
        protection,
        protected: None,
        steering,
        looked: Instant::now(),
        counted: None,
    }
    .serve()
}

/// Interrupts, and this process's threads, go to that CPU.
fn steer(cpu: u32) -> Result<Steering> {
    let (steering, words) =
        Steering::begin(cpu).with_context(|| format!("--interrupt-cpu {cpu}"))?;
    steering.take_threads();
    log::say(words);
    if let Some(pid) = steering::balancer() {
        log::say(format_args!(
            "warning: irqbalance (process {pid}) moves interrupts, too: stop it, or they come back only every 10s"
        ));
    }
    Ok(steering)
}

/// The kernel's servers for sched_ext, if it has them.
fn protection() -> Option<Protection> {
    match Protection::begin() {
        Ok((protection, left)) => {
            if let Some(left) = left {
                log::say(format_args!(
                    "an earlier scx_onbeat was killed: the kernel's servers for sched_ext have {left}"
                ));
            }
            Some(protection)
        }
        Err(e) => {
            log::say(format_args!(
                "warning: real-time threads (SCHED_FIFO, SCHED_RR) can delay reservations: {e:#}; mount debugfs, or \
                 use a kernel that has them"
            ));
            None
        }
    }
}

/// Tells systemd, if that started this process and wants to know.
fn notify(state: NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        log::say(format_args!("systemd cannot be told (NOTIFY_SOCKET): {e}"));
    }
}

/// SIGINT, SIGTERM and SIGHUP ask this process to end.
struct Signals {
    stop: Arc<AtomicBool>,
    /// Readable then.
    wake: UnixStream,
}

impl Signals {
    fn catch() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (wake, bell) = UnixStream::pair()?;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
            signal_hook::low_level::pipe::register(signal, bell.try_clone()?)?;
        }
        Ok(Self { stop, wake })
    }
}

/// From the scheduler being in force to its end.
struct Session<'a> {
    service: Service<Scheduler<'a>, Proc>,
    signals: Signals,
    companion: Option<Watch>,
    recorder: Option<Recorder>,
    failure: Option<anyhow::Error>,
    metrics: Arc<Mutex<Metrics>>,
    rate: Rate,
    protection: Option<Protection>,
    /// What it was last told.
    protected: Option<(Vec<Need>, u64)>,
    steering: Option<Steering>,
    looked: Instant,
    counted: Option<Instant>,
}

impl Session<'_> {
    fn serve(mut self) -> Result<ExitCode> {
        let mut looked = true;
        while !self.service.book.engine.exited() && !self.signals.stop.load(Ordering::Relaxed) {
            self.service.turn(if looked { TICK } else { LOOK }, &self.signals.wake)?;
            // It looks at all reservations: not after every request.
            looked = self.looked.elapsed() >= LOOK;
            if looked {
                self.looked = Instant::now();
                self.service.book.tick();
                self.protect();
                self.steer();
            }
            self.say();
            self.record();
            self.count();
            if self.service.book.live() == 0
                && self.companion.as_ref().is_some_and(|c| Proc.gone(c))
            {
                break;
            }
        }
        self.end()
    }

    /// Keeps interrupts where they are to be.
    fn steer(&mut self) {
        let Some(steering) = &mut self.steering else { return };
        if let Some(words) = steering.look() {
            log::say(words);
        }
        self.service.book.interrupt_cpu = steering.cpu_in_force();
    }

    /// Says what has happened, but not all that users cause.
    fn say(&mut self) {
        let mut notices = self.service.book.notices();
        if let Err(e) = self.service.book.engine.renew_clocks() {
            let text = format!("budgets are enforced by the tick only: {e:#}");
            notices.push(Notice { user: None, text });
        }
        let now = Instant::now();
        for notice in notices {
            if self.rate.may(&notice, now) {
                log::say(notice.text);
            }
        }
        if let Some(words) = self.rate.summary(now) {
            log::say(words);
        }
    }

    /// Has the kernel keep for sched_ext what is admitted, whatever real-time threads take.
    fn protect(&mut self) {
        let book = &self.service.book;
        let Some(protection) = &mut self.protection else { return };
        let needs = book.needs();
        let most = book.deadline_leaves();
        if self.protected.as_ref() == Some(&(needs.clone(), most)) {
            return;
        }
        let text = match protection.set(&needs, most) {
            Ok(short) if short.is_empty() => None,
            Ok(short) => Some(format!(
                "on {} real-time threads can delay reservations: SCHED_DEADLINE leaves too little to protect them",
                name_cpus(&short)
            )),
            Err(e) => Some(format!("real-time threads can delay reservations: {e:#}")),
        };
        self.protected = Some((needs, most));
        if let Some(text) = text
            && self.rate.may(&Notice { user: None, text: text.clone() }, Instant::now())
        {
            log::say(text);
        }
    }

    /// Keeps the ring of events from overflowing.
    fn record(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && let Err(e) = recorder.relieve(&mut self.service.book.engine.arena)
        {
            log::say(format_args!("{e:#}; recording ends here"));
            self.failure = Some(e);
            self.recorder = None;
        }
    }

    /// Brings the statistics up to date.
    fn count(&mut self) {
        if self.counted.is_some_and(|at| at.elapsed() < TICK) {
            return;
        }
        self.counted = Some(Instant::now());
        let book = &self.service.book;
        let latest = Metrics::new(&book.counters(), book.reservations());
        *self.metrics.lock().unwrap_or_else(|e| e.into_inner()) = latest;
    }

    /// Unloads the scheduler, then does the rest.
    fn end(mut self) -> Result<ExitCode> {
        notify(NotifyState::Stopping);
        // Among a crowd it would take minutes until nobody is scheduled by it any more.
        let _raised = Raised::now();
        self.signals.stop.store(true, Ordering::Relaxed);
        let scheduler = &mut self.service.book.engine;
        let costs = scheduler.costs();
        scheduler.detach();
        if let Some(Err(e)) = self.protection.as_mut().map(Protection::restore) {
            log::say(format_args!("{e:#}"));
        }
        if let Some(Err(e)) = self.steering.as_mut().map(Steering::end) {
            log::say(format_args!("{e:#}"));
        }
        if let Some(costs) = costs {
            println!("{}", serde_json::to_string(&costs)?);
        }
        if let Some(recorder) = self.recorder {
            self.failure = recorder.finish(&mut scheduler.arena).err();
        }
        match (scheduler.exit(), self.failure) {
            (Some(exit), _) => {
                log::say(exit);
                Ok(ExitCode::from(EJECTED))
            }
            (None, Some(e)) => Err(e),
            (None, None) => Ok(ExitCode::SUCCESS),
        }
    }
}
