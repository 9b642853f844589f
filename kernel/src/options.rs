// SPDX-License-Identifier: GPL-2.0-only
//! The options of `scx_onbeat`, and the sets of CPUs and the memory that follow from them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use onbeat_core::ffi::OB_SHARE_QUANTUM;
use onbeat_kernel::arena::Layout;
use onbeat_kernel::machine::{self, format_cpus, mask_of};
use onbeat_kernel::settings::Settings;
use onbeat_kernel::shares::Limit;
use onbeat_model::others::Others;
use onbeat_model::policy::{DEFAULT_SHARE, Order, Policy, Server, Sets};
use onbeat_model::rank::Servers;
use onbeat_model::taskset::DEFAULT_SET;
use onbeat_model::units::{Fraction, format_percent, parse_duration, parse_percent};

/// Reservations at a time.
const RESERVATIONS: usize = 1 << 10;

/// Real-time reservations for stock Linux: a sched_ext scheduler and the service that grants its
/// reservations.
///
/// Stops on SIGINT or SIGTERM; the kernel's own scheduler takes over then, and also if this
/// process dies in any other way. Exit status: 0 stopped when asked, 1 could not start or work,
/// 2 wrong options or configuration, 3 the kernel took the scheduler out.
#[derive(Debug, Parser)]
#[command(name = "scx_onbeat", version)]
#[command(before_help = "Example: scx_onbeat --max-share 30% --limit @audio=80%")]
pub struct Options {
    /// Read options from this TOML file, too: KEY = VALUE for each, KEY being an option's name; the command line wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say whether the options make sense on this machine, and end; starts no scheduler
    #[arg(long)]
    pub check: bool,
    /// How reservations are served; `onbeat policies` lists them
    #[arg(long, default_value = onbeat_model::policy::DEFAULT)]
    pub policy: String,
    /// Take a policy under which one reservation can make others late (`onbeat policies` marks them)
    #[arg(long)]
    pub no_isolation: bool,
    /// CPUs that reservations may use, such as 0-3,6 [default: all]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// CPU that is kept for interrupts, timers and this service: no reservation and no best effort that may run
    /// elsewhere (docs/run.md)
    #[arg(long, value_name = "CPU")]
    pub interrupt_cpu: Option<u32>,
    /// CPUs under a policy of their own, such as quiet=2-3:p-edf+cbs, with a number of clusters if it is clustered; the
    /// rest is served by --policy (repeatable)
    #[arg(long = "set", value_name = "NAME=CPUS:POLICY[:CLUSTERS]")]
    pub sets: Vec<String>,
    /// Clusters of CPUs under policies named c-…; must divide the number of CPUs
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub clusters: u32,
    /// What best-effort work is guaranteed of every CPU
    #[arg(long, default_value_t = format_percent(DEFAULT_SHARE), value_name = "PERCENT")]
    pub best_effort_share: String,
    /// Order of best-effort work among itself; `onbeat policies` lists them
    #[arg(long, default_value_t, value_name = "ORDER")]
    pub best_effort: Others,
    /// Servers of best effort under a policy that ranks, such as edf-hsb: how many, COUNT:BUDGET:PERIOD
    /// [default: one for each CPU, 5ms every 50ms]
    #[arg(long, value_name = "SERVERS")]
    pub best_effort_servers: Option<Servers>,
    /// Where to listen for requests
    #[arg(long, default_value = "/run/onbeat/control.sock", value_name = "PATH")]
    pub socket: PathBuf,
    /// Record every scheduling event to this file, 40 bytes each (docs/events.md)
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Room for events in memory, rounded up to a power of two; 40 bytes each
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    pub event_room: usize,
    /// What one ordinary user may reserve of the CPUs' total, and take ahead of best-effort work, overruns included
    #[arg(long, default_value = "50%", value_name = "PERCENT")]
    pub max_share: String,
    /// The same for one user, or for each user in a group, in place of --max-share, such as anna=80% or @audio=80%; a
    /// user's own goes before groups', and the greatest of these counts (repeatable)
    #[arg(long = "limit", value_name = "USER|@GROUP=PERCENT")]
    pub limits: Vec<Limit>,
    /// How long a thread may wait for a CPU before the kernel takes the scheduler out, 1s to 30s
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = watchdog)]
    pub watchdog: Duration,
    /// Stop once this process has ended and nothing is reserved any more
    #[arg(long, value_name = "PID")]
    pub with: Option<u32>,
    /// Print statistics each INTERVAL seconds
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    pub stats: Option<Duration>,
    /// Print statistics of the running scheduler each INTERVAL seconds; starts no scheduler
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    pub monitor: Option<Duration>,
    /// Print what each of the scheduler's entry points has cost when it ends, as one JSON object
    #[arg(long)]
    pub costs: bool,
    /// Describe the statistics
    #[arg(long)]
    pub help_stats: bool,
    /// Say more, also what the kernel's verifier says
    #[arg(long, short)]
    pub verbose: bool,
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

fn percent(option: &str, text: &str, most: u64) -> Result<Fraction> {
    let value = parse_percent(text).with_context(|| format!("--{option}"))?;
    if value > Fraction::new(most, 100) {
        bail!("--{option} {text}: at most {most}% can be given");
    }
    Ok(value)
}

/// The policy that `option` names.
fn policy(options: &Options, option: &str, name: &str) -> Result<(Order, Server)> {
    let policy: Policy = name.parse().with_context(|| format!("{option} {name}"))?;
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

/// The CPU of --interrupt-cpu as a mask.
fn interrupt_cpu(cpu: u32, present: &[u32]) -> Result<u64> {
    let online = machine::online().map_err(anyhow::Error::msg)?;
    if !present.contains(&cpu) {
        bail!("--interrupt-cpu {cpu}: there is no such CPU; the CPUs are {}", format_cpus(present));
    }
    if !online.contains(&cpu) {
        bail!(
            "--interrupt-cpu {cpu}: it is off line; bring it on line (write 1 to \
             /sys/devices/system/cpu/cpu{cpu}/online), or choose one of {}",
            format_cpus(&online)
        );
    }
    if online.len() == 1 {
        bail!(
            "--interrupt-cpu {cpu}: it is the only CPU on line, and programs need another; leave the option out, or \
             bring more CPUs on line"
        );
    }
    Ok(mask_of(&[cpu]))
}

/// Whether CPUs that `option` gives to reservations are so.
fn check_apart(option: &str, cpus: u64, apart: u64) -> Result<()> {
    if cpus & apart != 0 {
        let cpu = apart.trailing_zeros();
        bail!("{option}: CPU {cpu} is --interrupt-cpu; leave it out here, or choose another there");
    }
    Ok(())
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
    check_apart(&option, mask_of(&list), whole.interrupt_cpu.map_or(0, |cpu| 1 << cpu))?;
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
pub fn settings(options: &Options) -> Result<Vec<Settings>> {
    let (order, server) = policy(options, "--policy", &options.policy)?;
    let present = machine::present().map_err(anyhow::Error::msg)?;
    let cpus = present.last().map_or(1, |last| last + 1).min(machine::MAX_CPUS);
    let apart = match options.interrupt_cpu {
        None => 0,
        Some(cpu) => interrupt_cpu(cpu, &present)?,
    };
    let usable = match &options.cpus {
        None => u64::MAX >> (64 - cpus),
        Some(list) => {
            let list = machine::parse_cpus(list).map_err(|e| anyhow::anyhow!("--cpus: {e}"))?;
            if let Some(cpu) = list.iter().find(|cpu| !present.contains(cpu)) {
                bail!("--cpus: there is no CPU {cpu}; the CPUs are {}", format_cpus(&present));
            }
            check_apart("--cpus", mask_of(&list), apart)?;
            mask_of(&list)
        }
    };
    let usable = usable & !apart;
    let whole = Settings {
        usable,
        interrupt_cpu: options.interrupt_cpu,
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
    let rest = sets.iter().fold(whole.set & !apart, |rest, s| rest & !s.set);
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
                "{clusters} clusters do not divide the {count} CPUs of the set {}; choose a divisor (--clusters, or \
                 the last number of --set)",
                set.name
            );
        }
    }
    Ok(sets)
}

/// What the memory shared with the kernel side is to hold.
pub fn layout(options: &Options, sets: &[Settings]) -> Result<Layout> {
    let online = machine::online().map_err(anyhow::Error::msg)?;
    // The core takes it to be off line, in a domain of its own.
    let apart = options.interrupt_cpu.map(|cpu| 1 << cpu);
    // The core counts in thousandths; rounded up, so that the guarantee is kept.
    let share = sets[0].order.share(sets[0].best_effort_share);
    let permille = (share * 1000).ceil().to_integer();
    let room = options.event_room;
    if !(1024..=1 << 27).contains(&room) {
        bail!("--event-room {room}: between 1024 and {} can be had", 1 << 27);
    }
    Ok(Layout {
        cpus: sets[0].cpus,
        domains: sets.iter().flat_map(Settings::domains).chain(apart).collect(),
        share_permille: permille as u32,
        others: options.best_effort.number(),
        share_quantum: OB_SHARE_QUANTUM.into(),
        tasks: machine::threads_most(),
        servers: RESERVATIONS,
        online: mask_of(&online) & !apart.unwrap_or(0),
        ring: options.events.as_ref().map_or(0, |_| room.next_power_of_two()),
    })
}
