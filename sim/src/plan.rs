// SPDX-License-Identifier: GPL-2.0-only
//! From a task-set file to a simulation: tasks, reservations, their CPUs.

mod build;

use onbeat_analysis::plan::{Seat, lay_out};
use onbeat_analysis::semi::SHARE_LEAST;
use onbeat_core::ffi;
use onbeat_model::event::Event;
use onbeat_model::metrics::{Collector, Metrics, TaskMetrics};
use onbeat_model::policy::{CorePolicy, Order, Server};
use onbeat_model::rank::{Rank, Servers};
use onbeat_model::run::{Platform, Releases, Run, TaskInfo, World};
use onbeat_model::taskset::{GRACE, TaskCopy, TaskSet};
use onbeat_model::units::format_duration;
use thiserror::Error;

use crate::core::Reservation;
use crate::engine::{Detail, Engine, Stuck};
use build::engine;

/// How much of the best-effort share is served at a time, ns; the service uses the same.
pub const SHARE_QUANTUM: u64 = ffi::OB_SHARE_QUANTUM as u64;
/// How far best-effort work can be behind its share on a CPU, ns.
pub const SHARE_LAG: u64 = ffi::OB_SHARE_LAG as u64;

/// Why a task set cannot be simulated.
#[derive(Debug, Error)]
pub enum SimError {
    /// Real programs and decoders have no execution times to simulate.
    #[error(
        "task {0:?} runs a real program, which has no execution times to simulate; \
         run this file with `onbeat lab`, or give the task a constant, a distribution or a trace"
    )]
    RealProgram(String),
    /// More events than can be kept.
    #[error(
        "the run has more than 20 million events; \
         raise periods and budgets (each job and each exhaustion is one), or shorten the duration"
    )]
    TooMuch,
    /// Jobs that wait for each other.
    #[error(
        "deadlock after {at}: {who}; let all jobs that hold one of these resources and ask for another take them in \
         the same order"
    )]
    Deadlock {
        /// When, for people.
        at: String,
        /// Which jobs wait for what, and who holds that.
        who: String,
    },
}

/// A deadlock, for people.
fn deadlock(set: &TaskSet, infos: &[TaskInfo], stuck: &[Stuck], at: u64) -> SimError {
    let one = |s: &Stuck| {
        format!(
            "job {} of {} waits for \"{}\", which {} holds",
            s.job, infos[s.task].name, set.resources[s.resource], infos[s.holder].name
        )
    };
    let who: Vec<String> = stuck.iter().map(one).collect();
    SimError::Deadlock { at: format_duration(at), who: who.join(", ") }
}

/// Simulates `policy` on `set`, recording what metrics and traces need.
///
/// # Errors
/// The set holds work that only a real kernel can run, or its jobs wait for each other.
pub fn simulate(set: &TaskSet, policy: &CorePolicy) -> Result<Run, SimError> {
    simulate_with(set, policy, Detail::All)
}

/// The core's number of `server`, by its place in the registry.
fn kind(server: Server) -> u32 {
    onbeat_core::server_policies()
        .iter()
        .position(|name| *name == server.name())
        .expect("a test of this room compares the tables") as u32
}

/// As [`simulate`], with a choice of what is recorded.
///
/// # Errors
/// The set holds work that only a real kernel can run, or its jobs wait for each other.
pub fn simulate_with(set: &TaskSet, policy: &CorePolicy, detail: Detail) -> Result<Run, SimError> {
    let simulation = prepare(set, policy, detail)?;
    let mut run = play(set, policy, simulation, None)?;
    // Jobs that late tasks never came to were released all the same.
    run.add_missing_releases(set);
    Ok(run)
}

/// As [`simulate`], for the figures alone: the run has no events, which for millions of jobs would fill gigabytes, and
/// of the figures those of budgets that were used up are missing ([`Detail::Jobs`]).
///
/// # Errors
/// The set holds work that only a real kernel can run, or its jobs wait for each other.
pub fn figures(
    set: &TaskSet,
    policy: &CorePolicy,
) -> Result<(Run, Metrics, Vec<TaskMetrics>), SimError> {
    let simulation = prepare(set, policy, Detail::Jobs)?;
    let (mut collector, mut noted) = (Collector::new(simulation.1.len()), Releases::new(set));
    let mut take = |e: &Event| {
        noted.note(e);
        collector.take(e);
    };
    let mut run = play(set, policy, simulation, Some(&mut take))?;
    std::mem::take(&mut run.events).iter().for_each(&mut take);
    noted.missing(set, run.horizon_ns, |e| collector.take(&e));
    let (metrics, tasks) = collector.finish(&run);
    Ok((run, metrics, tasks))
}

/// Plays it: the run with the events that `take` has not had.
fn play(
    set: &TaskSet,
    policy: &CorePolicy,
    (mut engine, infos): (Engine, Vec<TaskInfo>),
    take: Option<&mut dyn FnMut(&Event)>,
) -> Result<Run, SimError> {
    let horizon = engine.run_into(set.duration, set.duration + GRACE, take);
    if engine.overflowed() {
        return Err(SimError::TooMuch);
    }
    if let Some(stuck) = engine.deadlock() {
        return Err(deadlock(set, &infos, stuck, horizon));
    }
    let events = engine.finish();
    Ok(Run {
        world: World::Sim,
        policy: policy.name.to_owned(),
        platform: Platform {
            cpus: set.cpus,
            onbeat: env!("CARGO_PKG_VERSION").to_owned(),
            seed: set.seed,
            ..Platform::default()
        },
        tasks: infos,
        resources: set.resources.clone(),
        events,
        origin_ns: 0,
        horizon_ns: horizon,
    })
}

/// A simulation of the set before its first event, to be run by hand, and its tasks.
///
/// # Errors
/// The set holds work that only a real kernel can run.
pub fn prepare(
    set: &TaskSet,
    policy: &CorePolicy,
    detail: Detail,
) -> Result<(Engine, Vec<TaskInfo>), SimError> {
    engine(set, policy, detail, SHARE_LEAST)
}

/// Whether a job misses its deadline in the set's duration, and which: task (in the order of [`TaskSet::copies`]) and
/// job. Nothing is recorded, and shares of split tasks may be as short as in analysis, where switching costs nothing.
/// `None` if `go_on`, asked now and then, said no.
///
/// # Errors
/// The set holds work that only a real kernel can run, or its jobs wait for each other.
pub fn first_miss(
    set: &TaskSet,
    policy: &CorePolicy,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<FirstMiss>, SimError> {
    let (mut engine, infos) = engine(set, policy, Detail::Counters, 1)?;
    engine.stop_when_late = true;
    let mut until = 0;
    while until <= set.duration && engine.late.is_none() {
        if !go_on() {
            return Ok(None);
        }
        // What ends just then, and in time, is done.
        until = (set.duration + 1).min(until + BETWEEN_QUESTIONS);
        engine.run(until, until);
        if let Some(stuck) = engine.deadlock() {
            return Err(deadlock(set, &infos, stuck, until));
        }
    }
    Ok(Some(engine.missed()))
}

/// Task and job that miss a deadline first, if any do.
pub type FirstMiss = Option<(usize, usize)>;

/// Simulated ns after which [`first_miss`] asks whether to go on: some ten milliseconds of work.
const BETWEEN_QUESTIONS: u64 = 100_000_000_000;

/// The reservations of the set's tasks, in the order of [`TaskSet::copies`], as `policy` serves them in [`simulate`].
/// They go where the service puts them; what does not fit, and the service would refuse, is served all the same.
pub fn reservations(set: &TaskSet, policy: &CorePolicy) -> Vec<Option<Reservation>> {
    planned(set, policy, SHARE_LEAST).tasks
}

/// The reservations of a set.
struct Planned {
    /// In the order of [`TaskSet::groups`].
    groups: Vec<Reservation>,
    /// In the order of [`TaskSet::copies`].
    tasks: Vec<Option<Reservation>>,
}

/// The order over the members of group `of`, or over all that is in none.
fn order_within(set: &TaskSet, policy: &CorePolicy, of: Option<usize>) -> u32 {
    let own = of.and_then(|group| set.groups[group].order);
    own.map_or(policy.order, |key| Order { key, ..policy.order }).number()
}

/// The reservations, with shares of split tasks of at least `share_least` ns.
fn planned(set: &TaskSet, policy: &CorePolicy, share_least: u64) -> Planned {
    let layout = lay_out(set, policy, share_least);
    let parts = set.parts();
    let groups = set.groups.iter().enumerate().zip(layout.groups).map(|((g, group), seat)| {
        let policy = set.policy_of(&parts[set.part_of_group(g)], policy);
        Reservation {
            budget: group.budget,
            period: group.period,
            deadline: group.deadline.min(group.period),
            cpus: seat.at.cpus,
            domain: seat.at.domain,
            apart: seat.at.apart,
            kind: kind(group.rule.unwrap_or(policy.server)),
            order: order_within(set, &policy, group.parent),
            marks: false,
            split: None,
        }
    });
    let one = |(copy, seat): (TaskCopy<'_>, Option<Seat>)| {
        let (spec, Seat { at, .. }) = (copy.spec, seat?);
        let policy = set.policy_of(&parts[set.part_of(spec)], policy);
        Some(Reservation {
            budget: spec.budget?,
            period: spec.period,
            deadline: spec.deadline.min(spec.period),
            cpus: at.cpus,
            domain: at.domain,
            apart: at.apart,
            kind: kind(policy.server.of_class(policy.order.key, spec.class == Some(Rank::Hard))),
            order: order_within(set, &policy, spec.group),
            marks: spec.marks,
            split: at.split,
        })
    };
    let tasks = set.copies().zip(layout.copies).map(one).collect();
    Planned { groups: groups.collect(), tasks }
}

/// One of best effort's servers, which may use all CPUs of group `within`, or else of the domain of `cpus`. Its budget
/// is enforced whatever the policy's server.
fn drawn(
    set: &TaskSet,
    policy: &CorePolicy,
    servers: Servers,
    within: Option<usize>,
    cpus: u64,
) -> Reservation {
    let parts = set.parts();
    let policy = match within {
        Some(group) => set.policy_of(&parts[set.part_of_group(group)], policy),
        None => *policy,
    };
    let cpus = within.map_or(cpus, |group| set.group_cpus(group));
    Reservation {
        budget: servers.budget,
        period: servers.period,
        deadline: servers.period,
        cpus,
        domain: cpus.trailing_zeros(),
        apart: false,
        kind: kind(Server::hard()),
        order: order_within(set, &policy, within),
        marks: false,
        split: None,
    }
}
