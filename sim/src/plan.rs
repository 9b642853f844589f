// SPDX-License-Identifier: GPL-2.0-only
//! From a task-set file to a simulation: tasks, reservations, their CPUs.

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::{Plan, Seat};
use onbeat_analysis::semi::SHARE_LEAST;
use onbeat_core::ffi;
use onbeat_model::policy::{CorePolicy, Order, Server};
use onbeat_model::rank::{Rank, Servers};
use onbeat_model::run::{Class, Platform, Run, TaskInfo, World};
use onbeat_model::taskset::{GRACE, TaskCopy, TaskSet, VALUE};
use onbeat_model::workgen::execution_times;
use thiserror::Error;

use crate::core::{Core, NICE_0, Reservation};
use crate::engine::{Detail, Engine, Load};

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
}

/// Simulates `policy` on `set`, recording what metrics and traces need.
///
/// # Errors
/// The set holds work that only a real kernel can run.
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
/// The set holds work that only a real kernel can run.
pub fn simulate_with(set: &TaskSet, policy: &CorePolicy, detail: Detail) -> Result<Run, SimError> {
    let (mut engine, infos) = engine(set, policy, detail, SHARE_LEAST)?;
    let horizon = engine.run(set.duration, set.duration + GRACE);
    if engine.overflowed() {
        return Err(SimError::TooMuch);
    }
    let events = engine.finish();
    let mut run = Run {
        world: World::Sim,
        policy: policy.name.to_owned(),
        platform: Platform {
            cpus: set.cpus,
            onbeat: env!("CARGO_PKG_VERSION").to_owned(),
            seed: set.seed,
            ..Platform::default()
        },
        tasks: infos,
        events,
        origin_ns: 0,
        horizon_ns: horizon,
    };
    // Jobs that late tasks never came to were released all the same.
    run.add_missing_releases(set);
    Ok(run)
}

/// Whether a job misses its deadline in the set's duration, and which: task (in the order of [`TaskSet::copies`]) and
/// job. Nothing is recorded, and shares of split tasks may be as short as in analysis, where switching costs nothing.
/// `None` if `go_on`, asked now and then, said no.
///
/// # Errors
/// The set holds work that only a real kernel can run.
pub fn first_miss(
    set: &TaskSet,
    policy: &CorePolicy,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<FirstMiss>, SimError> {
    let (mut engine, _) = engine(set, policy, Detail::Counters, 1)?;
    engine.stop_when_late = true;
    let mut until = 0;
    while until <= set.duration && engine.late.is_none() {
        if !go_on() {
            return Ok(None);
        }
        // What ends just then, and in time, is done.
        until = (set.duration + 1).min(until + BETWEEN_QUESTIONS);
        engine.run(until, until);
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
    let share = set.best_effort_share;
    let machine =
        Machine::under(policy.order, set.cpus, set.clusters, share).drawing(set.servers());
    let layout = Plan::with_shares(machine, share_least).lay_out(set);
    let groups = set.groups.iter().zip(layout.groups).map(|(group, seat)| Reservation {
        budget: group.budget,
        period: group.period,
        deadline: group.deadline.min(group.period),
        cpus: seat.at.cpus,
        domain: seat.at.domain,
        kind: kind(group.rule.unwrap_or(policy.server)),
        order: order_within(set, policy, group.parent),
        marks: false,
        split: None,
    });
    let one = |(copy, seat): (TaskCopy<'_>, Option<Seat>)| {
        let (spec, Seat { at, .. }) = (copy.spec, seat?);
        Some(Reservation {
            budget: spec.budget?,
            period: spec.period,
            deadline: spec.deadline.min(spec.period),
            cpus: at.cpus,
            domain: at.domain,
            kind: kind(policy.server),
            order: order_within(set, policy, spec.group),
            marks: spec.marks,
            split: at.split,
        })
    };
    let tasks = set.copies().zip(layout.copies).map(one).collect();
    Planned { groups: groups.collect(), tasks }
}

/// One of best effort's servers, which may use all of `cpus`. Its budget is enforced whatever the policy's server.
fn drawn(servers: &Servers, policy: &CorePolicy, cpus: u64) -> Reservation {
    Reservation {
        budget: servers.budget,
        period: servers.period,
        deadline: servers.period,
        cpus,
        domain: 0,
        kind: kind(Server::hard()),
        order: policy.order.number(),
        marks: false,
        split: None,
    }
}

/// A bit for each of these CPUs; for all where none are named.
fn mask(cpus: Option<&[u32]>) -> u64 {
    cpus.map_or(u64::MAX, |list| list.iter().fold(0, |mask, cpu| mask | 1 << cpu))
}

/// The set's tasks on a core of their own, and what they are called. Shares of split tasks are at least `share_least`
/// ns.
fn engine(
    set: &TaskSet,
    policy: &CorePolicy,
    detail: Detail,
    share_least: u64,
) -> Result<(Engine, Vec<TaskInfo>), SimError> {
    let copies: Vec<_> = set.copies().collect();
    let best_effort = set.best_effort_count() as usize;
    let all = if set.cpus == 64 { u64::MAX } else { (1 << set.cpus) - 1 };
    let domains = policy.order.domains(set.cpus, set.clusters);
    let permille = policy.order.share(set.best_effort_share)
        * onbeat_model::units::Fraction::from_integer(1000);
    let mut core = Core::new(
        set.cpus,
        domains,
        permille.ceil().to_integer() as u32,
        SHARE_QUANTUM,
        copies.len() + best_effort,
        if detail == Detail::All { 1 << 14 } else { 0 },
    );

    core.among_others(set.others().number());

    let mut infos = Vec::new();
    let mut loads = Vec::new();
    let planned = planned(set, policy, share_least);
    let first_group = copies.len() + best_effort;
    let drawing = if policy.order.key.ranks() {
        set.servers()
    } else {
        Servers { count: 0, ..set.servers() }
    };
    core.groups(planned.groups.len() + drawing.count as usize);
    for i in 0..drawing.count as usize {
        core.draw(first_group + planned.groups.len() + i, &drawn(&drawing, policy, all));
    }
    for (slot, purse) in set.purses.iter().enumerate() {
        let segments: Vec<_> = purse.segments.iter().map(|s| (s.budget, s.from, s.until)).collect();
        core.purse(slot, purse.parent, purse.period, &segments);
    }
    for (i, (group, reservation)) in set.groups.iter().zip(&planned.groups).enumerate() {
        core.group(first_group + i, reservation, group.parent.map(|parent| first_group + parent));
        if let Some(purse) = group.purse {
            core.pays_from(first_group + i, purse);
        }
    }
    let users = set.limited_users();
    let rate = set
        .max_share
        .map(|share| (share * (u64::from(set.cpus) << ffi::OB_SHARE_BITS)).to_integer().max(1));
    for (i, (c, reservation)) in copies.iter().zip(&planned.tasks).enumerate() {
        let spec = c.spec;
        let times = execution_times(set, c).ok_or_else(|| SimError::RealProgram(c.name()))?;
        let affinity = all & mask(spec.affinity.as_deref());
        core.init_task(i, affinity, NICE_0);
        if let Some(reservation) = reservation {
            match spec.group {
                Some(group) => core.reserve_in(i, reservation, first_group + group),
                None => core.reserve(i, reservation),
            }
            if let Some(purse) = spec.purse {
                core.pays_from(i, purse);
            }
            if spec.class == Some(Rank::Hard) {
                core.hard(i);
            }
            if let Some(value) = spec.value {
                core.value(i, value * VALUE);
            }
            // What is in a group takes nothing but the group's time.
            if let (Some(rate), None) = (rate, spec.group) {
                let of = users.iter().position(|user| *user == spec.user.as_deref());
                core.account(i, of.map_or(0, |of| of as u32 + 1), of.map_or(0, |_| rate));
            }
        }
        infos.push(TaskInfo {
            name: c.name(),
            entry: c.entry as u32,
            copy: c.copy,
            class: if spec.budget.is_some() { Class::Reserved } else { Class::Periodic },
            period: spec.period,
            deadline: spec.deadline,
            budget: spec.budget.unwrap_or(0),
            tid: 0,
        });
        loads.push(Load::Jobs {
            first: c.first_release,
            period: spec.period,
            delays: Vec::new(),
            deadline: spec.deadline,
            times,
            marks: spec.marks && spec.budget.is_some(),
        });
    }
    for copy in 0..best_effort {
        core.init_task(copies.len() + copy, all, NICE_0);
        infos.push(TaskInfo {
            name: format!("best-effort-{copy}"),
            entry: set.tasks.len() as u32,
            copy: copy as u32,
            class: Class::BestEffort,
            period: 0,
            deadline: 0,
            budget: 0,
            tid: 0,
        });
        loads.push(Load::Endless);
    }

    Ok((Engine::new(core, set.cpus, loads, set.overheads, detail), infos))
}
