// SPDX-License-Identifier: GPL-2.0-only
//! Carries out one policy of a task set on the machine it runs on.
//!
//! In order: the scheduler is loaded if the policy needs one; one process per task and per
//! best-effort thread is started, prepares itself and waits; reservations, classes and priorities are
//! set; the origin is fixed a moment ahead, while all sleep; the run takes its course while the
//! runner sleeps; the counts are read, the processes dismissed, the scheduler unloaded; and all
//! records become one [`Run`]. Whatever fails, processes and scheduler are gone at the end.

mod collect;
mod counters;
mod crew;
mod scheduler;
mod signals;

use crate::pace::NAP;
use crate::sys::{self, Class as SchedClass};
use anyhow::{Context, Result, bail, ensure};
use crew::{Crew, Member};
use onbeat_client::{Params, Service};
use onbeat_model::policy::{Baseline, Key, Policy};
use onbeat_model::protocol::{DEADLINE_REFUSES, Group, Purse};
use onbeat_model::run::{Class, Run, World};
use onbeat_model::taskset::{GRACE, Portion, TaskSet, Work};
use onbeat_model::units::Fraction;
use scheduler::Scheduler;
use signals::{Signals, Waited};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// From the moment the origin is fixed to the origin, ns, at least: time for all to fall asleep.
const AHEAD: u64 = 100_000_000;
/// The same, at most.
const AHEAD_MOST: u64 = 5_000_000_000;
/// Where tasks reserve nothing, orders go by what they did. So many naps before the origin make them known as programs
/// that use next to nothing, as they are in the simulator, however much their beginnings took.
const NAPS: u32 = 16;
/// And a sleep of more than the 2 s, ns, within which `best` looks for rhythms makes it forget that of the naps.
const REST: u64 = 2_100_000_000;
/// And before the origin somebody else is busy on each CPU for so long, which ends so long before it, ns: to orders of
/// virtual time all tasks have then had less than they may keep, whatever they had to begin.
const BUSY: u64 = 100_000_000;
const BUSY_ENDS: u64 = 50_000_000;
/// How often the runner then looks whether all are complete.
const STEP: Duration = Duration::from_millis(5);
/// Priority of tasks under the policy `fifo`: any, as it is the same for all.
const FIFO: u32 = 50;
/// The runner's own: it must get to the end of the run in time whatever the tasks do.
const RUNNER: SchedClass = SchedClass::Fifo { priority: 99, reset_on_fork: true };

/// What to carry out.
#[derive(Debug, Clone)]
pub struct Options {
    /// The task set.
    pub set: TaskSet,
    /// The policy.
    pub policy: Policy,
    /// Where this is; goes into the result.
    pub world: World,
    /// Folder with the movies.
    pub movies: PathBuf,
    /// Folder with Onbeat's programs and the schedulers; searched before PATH.
    pub programs: PathBuf,
}

impl Options {
    /// Path of a program of Onbeat's, a scheduler, or any other in PATH.
    fn program(&self, name: &str) -> Result<PathBuf> {
        let own = self.programs.join(name);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(name));
        if own.is_file() {
            return Ok(own);
        }
        found.find(|p| p.is_file()).with_context(|| {
            format!("there is no program {name} in {} or PATH", self.programs.display())
        })
    }

    /// Finds what can be found wrong before anything is started.
    fn check(&self) -> Result<()> {
        let Self { set, policy, .. } = self;
        if let Some(why) = set.simulator_only() {
            bail!("{why}");
        }
        let online = online_cpus();
        ensure!(
            set.cpus <= online,
            "the task set wants {} CPUs, this machine has {online}; lower `cpus` or use the lab",
            set.cpus
        );
        let several = set.tasks.iter().find(|task| task.threads > 1 && task.budget.is_some());
        let deadline =
            matches!(policy, Policy::Baseline(Baseline::Deadline | Baseline::DeadlineReclaim));
        if deadline {
            ensure!(
                set.cpus == online,
                "SCHED_DEADLINE always uses all {online} CPUs of the machine, the task set has \
                 {}; set `cpus = {online}` or leave out the policy {policy}",
                set.cpus
            );
            if let Some(task) = several {
                bail!(
                    "SCHED_DEADLINE has no reservation for the {} threads of {}; leave out the policy {policy}",
                    task.threads,
                    task.name
                );
            }
            ensure!(
                set.tasks.iter().all(|t| t.affinity.is_none() || t.budget.is_none()),
                "SCHED_DEADLINE does not let tasks be restricted to CPUs; remove `affinity` or \
                 leave out the policy {policy}"
            );
        }
        for task in &set.tasks {
            match &task.work {
                Work::Movie { path, .. } => {
                    let movie = self.movies.join(path);
                    ensure!(movie.is_file(), "there is no movie {}", movie.display());
                }
                Work::Program(words) => {
                    let name = words.first().map_or("", String::as_str);
                    let found = if name.contains('/') {
                        Path::new(name).is_file()
                    } else {
                        self.program(name).is_ok()
                    };
                    ensure!(found, "task {}: there is no program \"{name}\"", task.name);
                }
                _ => (),
            }
        }
        scheduler::none_loaded()
    }
}

/// All threads of a process.
fn threads(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let id =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    entries.map_or_else(|_| vec![pid], |entries| entries.filter_map(id).collect())
}

fn online_cpus() -> u32 {
    // SAFETY: takes a plain number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(count).unwrap_or(1).max(1)
}

/// Carries out the policy and returns what happened. Progress goes to stderr.
///
/// # Errors
/// When something needed is missing, a reservation is refused, a process dies, the scheduler is
/// thrown out, or a signal says stop. Nothing is left running in any case.
pub fn run(options: &Options) -> Result<Run> {
    options.check()?;
    let Options { set, policy, .. } = options;
    let signals = Signals::hold();
    let find = |name: &str| options.program(name);
    if options.world == World::Lab {
        lift_deadline_limit(set)?;
    }
    // Declared before the crew, so that an error ends the crew first.
    let mut scheduler = Scheduler::start(set, policy, find, &signals)?;
    let mut crew = Crew::start(set, &options.movies, find)?;
    crew.wait_until_ready(&signals)?;
    let mut service = match &scheduler {
        Some(scheduler) if policy.is_core() => Some(scheduler.service()?),
        _ => None,
    };
    if let Some(service) = service.as_mut() {
        make_groups(set, service)?;
    }
    let mut grants = Vec::new();
    for (index, member) in crew.members.iter().enumerate() {
        let granted = entitle(options, member, service.as_mut())
            .with_context(|| format!("task {}", member.info.name))?;
        grants.extend(granted.map(|id| (id, index)));
    }
    if let Err(error) = sys::set_class(0, RUNNER) {
        eprintln!("onbeat-runner: running at ordinary priority ({error}); the end may be late");
    }
    let unknown = set.tasks.iter().any(|task| task.budget.is_none());
    let (naps, rest) = if unknown { (NAPS, u64::from(NAPS) * NAP + REST) } else { (0, 0) };
    let origin = sys::monotonic() + rest + ahead(set);
    let end = origin + set.duration;
    crew.go(origin, naps);
    // Ordinary threads: the runner's class is not inherited.
    for cpu in (0..set.cpus).filter(|_| unknown) {
        std::thread::spawn(move || {
            // Not all of them may be there: then it is busy elsewhere.
            let _ = sys::set_affinity(0, [cpu]);
            sys::sleep_until(origin - BUSY_ENDS - BUSY);
            while sys::monotonic() < origin - BUSY_ENDS {
                std::hint::black_box(0);
            }
        });
    }
    eprintln!("onbeat-runner: {} under {policy}", set.name);
    watch(&mut crew, scheduler.as_mut(), &signals, end)?;
    let horizon = sys::monotonic() - origin;
    let usage = collect::usage(&crew);
    crew.dismiss();
    let events = match scheduler.take() {
        Some(scheduler) => scheduler.stop(&signals)?,
        None => None,
    };
    let records = collect::Records { usage, grants, events: events.unwrap_or_default() };
    collect::into_run(options, &crew, origin, horizon, records)
}

/// SCHED_DEADLINE's admission leaves 5 % of every CPU to others unless told otherwise. A set that asks for more than
/// the rest, but no more than its own share leaves, is let in as Onbeat's policies let it in: with the limit
/// taken away. (A limit of another height is no way: on Linux 7.2 any write of one makes admission stricter.) In the
/// lab the machine is ours.
fn lift_deadline_limit(set: &TaskSet) -> Result<()> {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let part = |f: Fraction| *f.numer() as f64 / *f.denom() as f64;
    let asked: f64 = set.copies().map(|task| part(task.spec.utilization())).sum();
    let share = asked / f64::from(set.cpus);
    if share <= 0.95 || share > 1.0 - part(set.best_effort_share) {
        return Ok(());
    }
    std::fs::write(FILE, "-1").with_context(|| format!("cannot write {FILE}"))
}

/// How far ahead the origin is: what servers keep from starting up must not enter the run. Deadlines
/// pass within a period, and the bonus of FCBS, at most all budgets, melts with time.
fn ahead(set: &TaskSet) -> u64 {
    let budgets: u64 = set.copies().filter_map(|task| task.spec.budget).sum();
    let period = set.tasks.iter().map(|task| task.period).max().unwrap_or(0);
    (AHEAD + budgets.max(period)).min(AHEAD_MOST)
}

/// Sleeps until all jobs are complete, `end` at the earliest and [`GRACE`] after it at the latest.
fn watch(
    crew: &mut Crew,
    mut scheduler: Option<&mut Scheduler>,
    signals: &Signals,
    end: u64,
) -> Result<()> {
    loop {
        let now = sys::monotonic();
        let wait = match now < end {
            true => Duration::from_nanos(end - now),
            false if crew.all_done() || now >= end + GRACE => return Ok(()),
            false => STEP,
        };
        if signals.wait(wait)? == Waited::Child {
            // The scheduler first: without it tasks may fail, too.
            if let Some(scheduler) = scheduler.as_deref_mut() {
                scheduler.check()?;
            }
            crew.bury()?;
        }
    }
}

/// Makes the set's purses and groups, those around others first.
fn make_groups(set: &TaskSet, service: &mut Service) -> Result<()> {
    for purse in &set.purses {
        let wanted = Purse {
            name: purse.name.clone(),
            within: purse.parent.map(|parent| set.purses[parent].name.clone()),
            period_ns: purse.period,
            segments: purse.segments.clone(),
        };
        service.purse(&wanted).with_context(|| format!("purse {}", purse.name))?;
    }
    let servers = set.servers_of_group();
    for (i, group) in set.groups.iter().enumerate() {
        let orders = group.portion == Portion::Orders;
        let wanted = Group {
            name: group.name.clone(),
            // Parts by weight as in the simulator, whoever has come so far; a group that only orders has none to keep.
            budget_ns: (!orders).then_some(group.budget),
            weight: None,
            period_ns: Some(group.period),
            deadline_ns: Some(group.deadline.min(group.period)),
            cpus: group.cpus.clone(),
            group: group.parent.map(|parent| set.groups[parent].name.clone()),
            order: group.order.map(|order| order.name().to_owned()),
            rule: group.rule.filter(|_| !orders).map(|rule| rule.name().to_owned()),
            purse: group.purse.map(|purse| set.purses[purse].name.clone()),
            set: group.set.map(|named| set.sets[named].name.clone()),
            servers: servers.filter(|(of, _)| *of == i).map(|(_, servers)| servers),
        };
        service.group(&wanted).with_context(|| format!("group {}", group.name))?;
    }
    Ok(())
}

/// Gives a member what the policy promises its task; the reservation's id, if it is one.
fn entitle(
    options: &Options,
    member: &Member,
    service: Option<&mut Service>,
) -> Result<Option<u32>> {
    let Options { set, policy, .. } = options;
    let (pid, info) = (member.pid(), &member.info);
    let spec = set.tasks.get(info.entry as usize);
    let affinity = spec.and_then(|spec| spec.affinity.clone());
    if affinity.is_some() || set.cpus < online_cpus() {
        let cpus = affinity.clone().unwrap_or_else(|| (0..set.cpus).collect());
        for thread in threads(pid) {
            sys::set_affinity(thread, cpus.iter().copied())
                .context("cannot be restricted to its CPUs")?;
        }
    }
    if member.role.is_best_effort() {
        let nice = member.nice;
        if nice != 0 {
            sys::set_nice(pid, nice).with_context(|| format!("cannot have nice {nice}"))?;
        }
        return Ok(None);
    }
    if !matches!(info.class, Class::Reserved | Class::Member) {
        return Ok(None);
    }
    // A later one is for the figures only: nobody schedules beyond the next period.
    let deadline = info.deadline.min(info.period);
    let class = match policy {
        Policy::Baseline(Baseline::Eevdf) | Policy::Scx(_) => return Ok(None),
        Policy::Baseline(Baseline::EevdfNice) => {
            for thread in threads(pid) {
                sys::set_nice(thread, -20).context("cannot have nice -20; run as root")?;
            }
            return Ok(None);
        }
        Policy::Core { .. } => {
            let Some(service) = service else { bail!("there is no reservation service") };
            let mut params = Params::new(info.budget, info.period).with_deadline(deadline);
            if let Some(cpus) = affinity {
                params = params.on_cpus(cpus);
            }
            if let Some(group) = spec.and_then(|spec| spec.group) {
                params = params.in_group(&set.groups[group].name);
            }
            if let Some(purse) = spec.and_then(|spec| spec.purse) {
                params = params.from_purse(&set.purses[purse].name);
            }
            if let Some(named) = spec.and_then(|spec| spec.set) {
                params = params.in_set(&set.sets[named].name);
            }
            // Where they mean nothing the service would refuse them.
            let within = spec.and_then(|spec| set.groups[spec.group?].order);
            let order = within.or(policy.order().map(|order| order.key));
            let chooses = order.is_some_and(Key::chooses);
            if let Some(value) = spec.and_then(|spec| spec.value).filter(|_| chooses) {
                params = params.worth(value);
            }
            let ranks = policy.order().is_some_and(|order| order.key.ranks());
            if let Some(class) = spec.and_then(|spec| spec.class).filter(|_| ranks) {
                params = params.of_class(class);
            }
            if spec.is_some_and(|spec| spec.marks) {
                params = params.marking_jobs();
            }
            return Ok(Some(service.reserve(pid, &info.name, &params)?.id));
        }
        Policy::Baseline(Baseline::Fifo) => {
            SchedClass::Fifo { priority: FIFO, reset_on_fork: false }
        }
        Policy::Baseline(baseline) => SchedClass::Deadline {
            budget: info.budget,
            deadline,
            period: info.period,
            reclaim: *baseline == Baseline::DeadlineReclaim,
        },
    };
    let each = threads(pid).into_iter().try_for_each(|thread| sys::set_class(thread, class));
    each.map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::EBUSY) => DEADLINE_REFUSES,
            Some(libc::EPERM) => "run as root",
            _ => "check budget, deadline and period",
        };
        anyhow::anyhow!("cannot be scheduled by {policy}: {error}; {hint}")
    })?;
    Ok(None)
}
