// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, each under a policy of its own and with an admission of its own.

use std::collections::BTreeMap;
use std::time::Instant;

use onbeat_analysis::admission::Admission;
use onbeat_model::others::Others;
use onbeat_model::protocol::{self, Reserve};
use onbeat_model::taskset::home;
use onbeat_model::units::{Fraction, clip};

use super::leaving::Leaving;
use super::{Book, IDLE_FRESH, Problem, problem};
use crate::engine::Engine;
use crate::machine::{cpus_of, mask_of, name_cpus};
use crate::settings::Settings;
use crate::system::System;

/// A set of CPUs and what is reserved there.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    /// Booked there, too, though they are no more.
    pub(super) leaving: Vec<Leaving>,
}

/// What may be swapped, and how best effort begins.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// Policies also for those that do not isolate (`--no-isolation`).
    pub no_isolation: bool,
    /// Order of best effort at the beginning.
    pub others: Others,
}

impl Room {
    /// As the service tells of it.
    pub(super) fn state(&self) -> protocol::Set {
        let (reserved, free) = (self.admission.reserved(), self.admission.free());
        protocol::Set {
            name: self.settings.name.clone(),
            cpus: cpus_of(self.settings.set),
            policy: self.settings.policy(),
            reserved,
            free,
            reserved_cpus: reserved.into(),
            free_cpus: free.into(),
        }
    }

    /// Each CPU's part of what is reserved, by its number: of a reservation that is split as much as it is split into,
    /// of others equal parts on the CPUs that serve them.
    pub(super) fn parts(&self) -> BTreeMap<u32, f64> {
        let mut parts = BTreeMap::new();
        for (_, placed) in self.admission.granted() {
            let over = placed.demand.over() as f64;
            let mut add = |cpu: u32, ns: f64| *parts.entry(cpu).or_default() += ns / over;
            match &placed.at.split {
                Some(split) => split.shares.iter().for_each(|(cpu, ns)| add(*cpu, *ns as f64)),
                None => {
                    let cpus = cpus_of(placed.at.cpus);
                    let each = placed.demand.budget as f64 / cpus.len().max(1) as f64;
                    cpus.into_iter().for_each(|cpu| add(cpu, each));
                }
            }
        }
        parts
    }
}

/// The sum, to a billionth if there are several terms: denominators multiply.
pub(super) fn sum(terms: impl ExactSizeIterator<Item = Fraction>) -> Fraction {
    const BILLION: u64 = 1_000_000_000;
    if terms.len() == 1 {
        return terms.sum();
    }
    let part = |x: Fraction| u128::from(*x.numer()) * u128::from(BILLION) / u128::from(*x.denom());
    Fraction::new(terms.map(part).sum::<u128>() as u64, BILLION)
}

impl<E: Engine, S: System> Book<E, S> {
    /// What all sets have in common, and the policy of the first.
    pub(super) fn common(&self) -> &Settings {
        &self.rooms[0].settings
    }

    /// The CPUs on line, and what has had them.
    pub(super) fn per_cpu(&self) -> Vec<protocol::Cpu> {
        let parts: Vec<_> = self.rooms.iter().map(Room::parts).collect();
        let (served, idle) = (self.engine.served(), self.idle());
        let one = |cpu: u32| {
            let room = self.rooms.iter().position(|room| room.settings.set >> cpu & 1 == 1);
            protocol::Cpu {
                cpu,
                set: room.map(|room| self.rooms[room].settings.name.clone()).unwrap_or_default(),
                reserved: room.and_then(|room| parts[room].get(&cpu).copied()).unwrap_or(0.0),
                served_ns: served.get(cpu as usize).copied().unwrap_or(0),
                idle_ns: idle.get(&cpu).copied(),
            }
        };
        cpus_of(self.online).into_iter().map(one).collect()
    }

    /// How long each CPU has been idle, ns. Looking it up takes the kernel far longer than all else of an answer, so
    /// who asks again and again is told the same for a moment.
    fn idle(&self) -> BTreeMap<u32, u64> {
        let mut known = self.idle.borrow_mut();
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= IDLE_FRESH) {
            *known = Some((Instant::now(), self.system.idle()));
        }
        known.as_ref().map(|(_, idle)| idle.clone()).unwrap_or_default()
    }

    /// The set of this name.
    pub(super) fn room_named(&self, name: &str) -> Result<usize, Problem> {
        let found = self.rooms.iter().position(|room| room.settings.name == name);
        found.map_or_else(
            || {
                let names: Vec<_> = self.rooms.iter().map(|r| r.settings.name.as_str()).collect();
                problem(
                    format!("there is no set of CPUs {:?}", clip(name)),
                    format!("the sets are {} (scx_onbeat --set makes others)", names.join(", ")),
                )
            },
            Ok,
        )
    }

    /// The set that serves a reservation: its group's, the one it names, or the first of which it may use a CPU.
    pub(super) fn room_for(
        &self,
        r: &Reserve,
        affinity: u64,
        within: Option<u32>,
    ) -> Result<usize, Problem> {
        let named = r.set.as_deref().map(|name| self.room_named(name)).transpose()?;
        if let Some(group) = within {
            let room = self.held[&group].room;
            if named.is_some_and(|named| named != room) {
                return problem(
                    format!("the group is in the set {:?}", self.rooms[room].settings.name),
                    "leave the set out: a member is where its group is",
                );
            }
            return Ok(room);
        }
        let asked = r.cpus.as_ref().map_or(u64::MAX, |list| mask_of(list));
        let may = asked & affinity & self.common().usable;
        let Some(room) = named else {
            let sets = self.rooms.iter().map(|room| room.settings.set);
            // Nothing is left at all: the first says so.
            return Ok(home(sets, may).unwrap_or(0));
        };
        let set = &self.rooms[room].settings;
        if may & set.set == 0 {
            return problem(
                format!(
                    "the set {:?} has {}, of which none may be used",
                    set.name,
                    name_cpus(&cpus_of(set.set))
                ),
                "choose other CPUs or another set, or change the process's affinity (taskset)",
            );
        }
        Ok(room)
    }
}
