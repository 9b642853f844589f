// SPDX-License-Identifier: GPL-2.0-only
//! `scx_onbeat`: loads Onbeat's scheduler and serves reservations until it is told to stop.

use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use onbeat_core::ffi::OB_SHARE_QUANTUM;
use onbeat_kernel::arena::Layout;
use onbeat_kernel::log;
use onbeat_kernel::machine::{self, format_cpus, mask_of};
use onbeat_kernel::priority::Raised;
use onbeat_kernel::protection::{Need, Protection};
use onbeat_kernel::rate::{Notice, Rate};
use onbeat_kernel::recorder::Recorder;
use onbeat_kernel::reservations::{Book, Peer, Rights};
use onbeat_kernel::scheduler::{Loading, Scheduler};
use onbeat_kernel::service::{Service, Socket};
use onbeat_kernel::settings::Settings;
use onbeat_kernel::stats::{self, Metrics};
use onbeat_kernel::system::{Proc, System, Watch};
use onbeat_model::others::Others;
use onbeat_model::policy::{DEFAULT_SHARE, Order, Policy, Server, Sets};
use onbeat_model::protocol::{Request, Response};
use onbeat_model::rank::Servers;
use onbeat_model::taskset::DEFAULT_SET;
use onbeat_model::units::{Fraction, format_percent, parse_duration, parse_percent};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scx_stats::prelude::StatsServer;
use sd_notify::NotifyState;

/// How often the service looks after what nobody tells it of.
const TICK: Duration = Duration::from_millis(500);
/// How often it does so at most, however many requests come.
const LOOK: Duration = Duration::from_millis(20);
/// Reservations at a time.
const RESERVATIONS: usize = 1 << 10;

/// Exit status when the kernel took the scheduler out.
const EJECTED: u8 = 3;

/// Real-time reservations for stock Linux: a sched_ext scheduler and the service that grants its
/// reservations.
///
/// Stops on SIGINT or SIGTERM; the kernel's own scheduler takes over then, and also if this
/// process dies in any other way. Exit status: 0 stopped when asked, 1 could not start or work,
/// 2 wrong options, 3 the kernel took the scheduler out.
#[derive(Debug, Parser)]
#[command(name = "scx_onbeat", version)]
struct Options {
    /// How reservations are served; `onbeat policies` lists them
    #[arg(long, default_value = onbeat_model::policy::DEFAULT)]
    policy: String,
    /// Take a policy under which one reservation can make others late (`onbeat policies` marks them)
    #[arg(long)]
    no_isolation: bool,
    /// CPUs that reservations may use, such as 0-3,6 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// CPUs under a policy of their own, such as quiet=2-3:p-edf+cbs, with a number of clusters if it is clustered; the
    /// rest is served by --policy (repeatable)
    #[arg(long = "set", value_name = "NAME=CPUS:POLICY[:CLUSTERS]")]
    sets: Vec<String>,
    /// Clusters of CPUs under policies named c-…; must divide the number of CPUs
    #[arg(long, default_value_t = 2, value_name = "N")]
    clusters: u32,
    /// What best-effort work is guaranteed of every CPU
    #[arg(long, default_value_t = format_percent(DEFAULT_SHARE), value_name = "PERCENT")]
    best_effort_share: String,
    /// Order of best-effort work among itself; `onbeat policies` lists them
    #[arg(long, default_value_t, value_name = "ORDER")]
    best_effort: Others,
    /// Servers of best effort under a policy that ranks, such as edf-hsb: how many, COUNT:BUDGET:PERIOD
    /// [default: one for each CPU, 5ms every 50ms]
    #[arg(long, value_name = "SERVERS")]
    best_effort_servers: Option<Servers>,
    /// Where to listen for requests
    #[arg(long, default_value = "/run/onbeat/control.sock", value_name = "PATH")]
    socket: PathBuf,
    /// Record every scheduling event to this file, 40 bytes each (docs/events.md)
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Room for events in memory, rounded up to a power of two; 40 bytes each
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    event_room: usize,
    /// What one ordinary user may reserve of the CPUs' total, and take ahead of best-effort work, overruns included
    #[arg(long, default_value = "50%", value_name = "PERCENT")]
    max_share: String,
    /// How long a thread may wait for a CPU before the kernel takes the scheduler out, 1s to 30s
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = watchdog)]
    watchdog: Duration,
    /// Stop once this process has ended and nothing is reserved any more
    #[arg(long, value_name = "PID")]
    with: Option<u32>,
    /// Print statistics each INTERVAL seconds
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    stats: Option<Duration>,
    /// Print statistics of the running scheduler each INTERVAL seconds; starts no scheduler
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    monitor: Option<Duration>,
    /// Print what each of the scheduler's entry points has cost when it ends, as one JSON object
    #[arg(long)]
    costs: bool,
    /// Describe the statistics
    #[arg(long)]
    help_stats: bool,
    /// Say more, also what the kernel's verifier says
    #[arg(long, short)]
    verbose: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_string())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if !interval.is_zero() => Ok(interval),
        _ => Err("write a number of seconds above 0".into()),
    }
}

fn watchdog(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(parse_duration(text).map_err(|e| e.to_string())?);
    let bounds = Duration::from_secs(1)..=Duration::from_secs(30);
    if bounds.contains(&time) {
        Ok(time)
    } else {
        Err("the kernel's watchdog takes 1s to 30s".into())
    }
}

fn main() -> ExitCode {
    let code = match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            log::say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    };
    log::flush();
    code
}

fn run(options: &Options) -> Result<ExitCode> {
    let metrics = Arc::new(Mutex::new(Metrics::default()));
    if options.help_stats {
        stats::server_data(&metrics).describe_meta(&mut std::io::stdout(), None)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything that must be undone.
    let signals = Signals::catch()?;
    if let Some(interval) = options.monitor {
        stats::monitor(interval, &signals.stop)?;
        return Ok(ExitCode::SUCCESS);
    }
    let sets = settings(options)?;
    if let Some(obstacle) = machine::obstacles().first() {
        bail!("{obstacle}");
    }
    let companion = match options.with {
        Some(pid) => Some(Proc.watch(pid, None).with_context(|| format!("--with {pid}"))?),
        None => None,
    };
    sets[0].check_servers().map_err(anyhow::Error::msg)?;
    let socket = Socket::bind(&options.socket)?;
    let greeter = socket.greet()?;
    // One for each reservation, whose process is watched.
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit { current: files.maximum, ..files };
    let _ = setrlimit(Resource::Nofile, most); // the error names it if it does not suffice
    let recorder = options.events.as_deref().map(Recorder::create).transpose()?;
    let layout = layout(options, &sets)?;
    let mut object = MaybeUninit::uninit();
    let raised = Raised::now();
    let Options { verbose, costs, watchdog, .. } = *options;
    // Before the kernel adds its servers to what SCHED_DEADLINE has admitted: with the values that a
    // killed service has left they may not fit.
    let protection = protection();
    let rights = Rights { no_isolation: options.no_isolation, others: options.best_effort };
    let loading = Loading { verbose, costs, watchdog };
    let scheduler = Scheduler::start(&layout, loading, &mut object)?;
    drop(raised);
    let served = |set: &Settings| {
        let cpus = format_cpus(&machine::cpus_of(layout.online & set.usable & set.set));
        format!("{} on CPUs {cpus}", set.policy())
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
    let mut book = Book::of(scheduler, Proc, sets, rights);
    book.draw()?;
    let mut service = Service::new(book, socket);
    for (stream, uid) in greeter.end() {
        service.welcome(stream, uid);
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
        looked: Instant::now(),
        counted: None,
    }
    .serve()
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
                "on CPUs {} real-time threads can delay reservations: SCHED_DEADLINE leaves too little to protect them",
                format_cpus(&short)
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
        let root = Peer { uid: 0, connection: 0 };
        let answer = self.service.book.answer(root, Request::Status);
        let Response::Status { reservations, .. } = answer else { return };
        let latest = Metrics::new(&self.service.book.counters(), reservations);
        *self.metrics.lock().unwrap_or_else(|e| e.into_inner()) = latest;
    }

    /// Unloads the scheduler, then does the rest.
    fn end(mut self) -> Result<ExitCode> {
        notify(NotifyState::Stopping);
        self.signals.stop.store(true, Ordering::Relaxed);
        let scheduler = &mut self.service.book.engine;
        let costs = scheduler.costs();
        scheduler.detach();
        if let Some(Err(e)) = self.protection.as_mut().map(Protection::restore) {
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

fn percent(option: &str, text: &str, most: u64) -> Result<Fraction> {
    let value = parse_percent(text).with_context(|| format!("--{option}"))?;
    if value > Fraction::new(most, 100) {
        bail!("--{option} {text}: at most {most}% can be given");
    }
    Ok(value)
}

/// The policy that `option` names.
fn policy(options: &Options, option: &str, name: &str) -> Result<(Order, Server)> {
    let policy: Policy = name.parse()?;
    let Policy::Core { order, server } = policy else {
        bail!("{option} {policy} is none of Onbeat's own; `onbeat policies` lists those");
    };
    let isolates = server.isolates() && order.isolates();
    if !isolates && !options.no_isolation {
        bail!(
            "{option} {policy} does not isolate: reservations can be late because of others; choose another \
             (`onbeat policies` marks those that do not), or add --no-isolation"
        );
    }
    Ok((order, server))
}

/// One --set, of a machine that is otherwise as `whole` says.
fn named_set(options: &Options, text: &str, present: &[u32], whole: &Settings) -> Result<Settings> {
    let option = format!("--set {text}");
    let like = "write NAME=CPUS:POLICY, such as quiet=2-3:p-edf+cbs";
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
    let Some((name, (cpus, named))) = parts else { bail!("{option}: {like}") };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name == DEFAULT_SET {
        bail!(
            "{option}: a set's name is 1 to 64 letters, digits, '.', '_' and '-', not \"{DEFAULT_SET}\""
        );
    }
    let list = machine::parse_cpus(cpus).map_err(|e| anyhow::anyhow!("{option}: {e}"))?;
    if let Some(cpu) = list.iter().find(|cpu| !present.contains(cpu)) {
        bail!("{option}: there is no CPU {cpu}; the CPUs are {}", format_cpus(present));
    }
    let (named, clusters) = match named.split_once(':') {
        None => (named, whole.clusters),
        Some((named, count)) => match count.parse() {
            Ok(count) => (named, count),
            Err(_) => bail!("{option}: {count} is no number of clusters; {like}"),
        },
    };
    let (order, server) = policy(options, &option, named)?;
    Ok(Settings {
        name: name.into(),
        set: mask_of(&list),
        order,
        server,
        clusters,
        ..whole.clone()
    })
}

/// The sets of CPUs: the default one, if any CPU is left for it, before all others.
fn settings(options: &Options) -> Result<Vec<Settings>> {
    let (order, server) = policy(options, "--policy", &options.policy)?;
    let present = machine::present().map_err(anyhow::Error::msg)?;
    let cpus = present.last().map_or(1, |last| last + 1).min(machine::MAX_CPUS);
    let usable = match &options.cpus {
        None => u64::MAX >> (64 - cpus),
        Some(list) => {
            let list = machine::parse_cpus(list).map_err(|e| anyhow::anyhow!("--cpus: {e}"))?;
            if let Some(cpu) = list.iter().find(|cpu| !present.contains(cpu)) {
                bail!("--cpus: there is no CPU {cpu}; the CPUs are {}", format_cpus(&present));
            }
            mask_of(&list)
        }
    };
    let whole = Settings {
        usable,
        best_effort_share: percent("best-effort-share", &options.best_effort_share, 90)?,
        servers: options.best_effort_servers.unwrap_or(Servers::each(usable.count_ones())),
        user_share: percent("max-share", &options.max_share, 100)?,
        ..Settings::whole(order, server, cpus, options.clusters)
    };
    let mut sets: Vec<Settings> = Vec::new();
    for text in &options.sets {
        let set = named_set(options, text, &present, &whole)?;
        if let Some(other) = sets.iter().find(|s| s.name == set.name || s.set & set.set != 0) {
            let other = &other.name;
            bail!(
                "--set {text}: it shares its name or a CPU with the set {other}; give each its own"
            );
        }
        sets.push(set);
    }
    let rest = sets.iter().fold(whole.set, |rest, s| rest & !s.set);
    if rest != 0 {
        sets.insert(0, Settings { set: rest, ..whole });
    }
    if let (Some(ranks), true) = (sets.iter().find(|s| s.order.key.ranks()), sets.len() > 1) {
        let policy = ranks.policy();
        bail!(
            "{policy} serves all CPUs: leave --set out, or choose another policy for {}",
            ranks.name
        );
    }
    for set in &sets {
        let (clusters, count) = (set.clusters, set.set.count_ones());
        if set.order.sets == Sets::Clustered && (clusters == 0 || !count.is_multiple_of(clusters)) {
            bail!(
                "{clusters} clusters do not divide the {count} CPUs of the set {}; choose a divisor (--clusters, or the \
                 last number of --set)",
                set.name
            );
        }
    }
    Ok(sets)
}

fn layout(options: &Options, sets: &[Settings]) -> Result<Layout> {
    let online = machine::online().map_err(anyhow::Error::msg)?;
    // The core counts in thousandths; rounded up, so that the guarantee is kept.
    let share = sets[0].order.share(sets[0].best_effort_share);
    let permille = (share * 1000).ceil().to_integer();
    let room = options.event_room;
    if !(1024..=1 << 27).contains(&room) {
        bail!("--event-room {room}: between 1024 and {} can be had", 1 << 27);
    }
    Ok(Layout {
        cpus: sets[0].cpus,
        domains: sets.iter().flat_map(Settings::domains).collect(),
        share_permille: permille as u32,
        others: options.best_effort.number(),
        share_quantum: OB_SHARE_QUANTUM.into(),
        tasks: machine::threads_most(),
        servers: RESERVATIONS,
        online: mask_of(&online),
        ring: options.events.as_ref().map_or(0, |_| room.next_power_of_two()),
    })
}
