// SPDX-License-Identifier: GPL-2.0-only
//! The tasks, reservations and loads of a set on a core of their own.

use onbeat_analysis::plan::machine_of;
use onbeat_core::ffi;
use onbeat_model::policy::CorePolicy;
use onbeat_model::rank::{Rank, Servers};
use onbeat_model::run::{Class, TaskInfo};
use onbeat_model::taskset::{TaskCopy, TaskSet, VALUE};
use onbeat_model::workgen::{bursts, thread_times};

use super::{SHARE_QUANTUM, SimError, drawn, planned};
use crate::core::{Core, NICE_0, weight};
use crate::engine::{Detail, Engine};
use crate::load::Load;

/// A bit for each of these CPUs; for all where none are named.
fn mask(cpus: Option<&[u32]>) -> u64 {
    cpus.map_or(u64::MAX, |list| list.iter().fold(0, |mask, cpu| mask | 1 << cpu))
}

/// The set's tasks on a core of their own, and what they are called. Shares of split tasks are at least `share_least`
/// ns.
pub(super) fn engine(
    set: &TaskSet,
    policy: &CorePolicy,
    detail: Detail,
    share_least: u64,
) -> Result<(Engine, Vec<TaskInfo>), SimError> {
    let copies: Vec<_> = set.copies().collect();
    let best_effort = set.best_effort_count() as usize;
    let sleepers = set.sleepers().count();
    let first_helper = copies.len() + best_effort + sleepers;
    let threads = first_helper + set.helpers() as usize;
    let all = if set.cpus == 64 { u64::MAX } else { (1 << set.cpus) - 1 };
    let permille = policy.order.share(set.best_effort_share)
        * onbeat_model::units::Fraction::from_integer(1000);
    let mut core = Core::new(
        set.cpus,
        1,
        permille.ceil().to_integer() as u32,
        SHARE_QUANTUM,
        threads,
        if detail == Detail::All { 1 << 14 } else { 0 },
    );

    for part in &set.parts() {
        let masks = machine_of(set, part, policy).domain_masks();
        masks.into_iter().for_each(|cpus| core.regroup(cpus, 0));
    }
    core.among_others(set.others().number());
    if let Some(like) = set.baseline() {
        core.like_linux24(like);
    }

    let mut infos = Vec::new();
    let mut loads = Vec::new();
    let planned = planned(set, policy, share_least);
    let first_group = threads;
    let unnamed = set.parts().iter().find(|part| part.set.is_none()).map_or(0, |part| part.cpus);
    let drawing = match policy.order.key.ranks() && unnamed != 0 {
        true => Some((None, set.servers())),
        false => None,
    };
    let inside = set.servers_of_group().map(|(group, servers)| (Some(group), servers));
    let (within, servers) = inside.or(drawing).unwrap_or((None, Servers::each(0)));
    core.groups(planned.groups.len() + servers.count as usize);
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
    for i in first_group + planned.groups.len()
        ..first_group + planned.groups.len() + servers.count as usize
    {
        core.draw(
            i,
            &drawn(set, policy, servers, within, unnamed),
            within.map(|g| first_group + g),
        );
    }
    let users = set.limited_users();
    let rate = set
        .max_share
        .map(|share| (share * (u64::from(set.cpus) << ffi::OB_SHARE_BITS)).to_integer().max(1));
    for (i, (c, reservation)) in copies.iter().zip(&planned.tasks).enumerate() {
        let spec = c.spec;
        let load = jobs(set, c, 0).ok_or_else(|| SimError::RealProgram(c.name()))?;
        let affinity = all & mask(spec.affinity.as_deref());
        core.init_task(i, affinity, NICE_0);
        core.began(i);
        if spec.budget.is_none() {
            core.napped(i);
        }
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
            class: Class::of(spec),
            period: spec.period,
            deadline: spec.deadline,
            budget: spec.budget.unwrap_or(0),
            tid: 0,
        });
        loads.push(load);
    }
    let nice = set.best_effort.map_or(0, |b| b.nice);
    for copy in 0..best_effort {
        core.init_task(loads.len(), all, weight(nice));
        core.began(loads.len());
        core.nice(loads.len(), nice);
        infos.push(best_effort_info(set, format!("best-effort-{copy}"), copy as u32, 0));
        loads.push(Load::Endless);
    }
    for sleeper in set.sleepers() {
        core.init_task(loads.len(), all, weight(sleeper.nice()));
        core.began(loads.len());
        core.nice(loads.len(), sleeper.nice());
        infos.push(best_effort_info(set, sleeper.name(), sleeper.number(), sleeper.gap()));
        let (arrivals, times) = bursts(set, &sleeper);
        loads.push(Load::Bursts { arrivals, times });
    }
    let mut teams = Vec::new();
    for (i, c) in copies.iter().enumerate().filter(|(_, c)| c.spec.threads > 1) {
        let mut team = vec![i];
        for thread in 1..c.spec.threads {
            let helper = loads.len();
            core.init_task(helper, all & mask(c.spec.affinity.as_deref()), NICE_0);
            core.known_as(helper, i);
            core.join(helper, i);
            loads.extend(jobs(set, c, thread));
            team.push(helper);
        }
        teams.push(team);
    }
    let mut engine = Engine::new(core, set.cpus, loads, set.overheads, detail);
    for (i, c) in copies.iter().enumerate() {
        let alone = [i];
        let team = teams.iter().find(|team| team[0] == i);
        let team = team.map_or(&alone[..], Vec::as_slice);
        if team.len() > 1 {
            engine.team(team);
        }
        for thread in team {
            if !c.spec.sections.is_empty() {
                engine.sections(*thread, &c.spec.sections);
            }
            if c.spec.abort {
                engine.abort_at_deadlines(*thread);
            }
        }
    }
    let first = |entry: usize| copies.iter().position(|c| c.entry == entry).unwrap_or(0);
    for (i, c) in copies.iter().enumerate() {
        if let Some(frames) = c.spec.frames {
            let decoder = first(frames.decoder) + c.copy as usize;
            engine.frames(decoder, i, frames.queue as usize, frames.resource);
        }
    }
    Ok((engine, infos))
}

/// The jobs of one thread of a copy; `None` for movies and programs.
fn jobs(set: &TaskSet, c: &TaskCopy<'_>, thread: u32) -> Option<Load> {
    Some(Load::Jobs {
        first: c.first_release,
        period: c.spec.period,
        delays: Vec::new(),
        deadline: c.spec.deadline,
        times: thread_times(set, c, thread)?,
        marks: c.spec.marks && c.spec.budget.is_some(),
    })
}

/// What is known of a best-effort thread.
fn best_effort_info(set: &TaskSet, name: String, copy: u32, period: u64) -> TaskInfo {
    TaskInfo {
        name,
        entry: set.tasks.len() as u32,
        copy,
        class: Class::BestEffort,
        period,
        deadline: 0,
        budget: 0,
        tid: 0,
    }
}
