// SPDX-License-Identifier: GPL-2.0-only
//! Groups: reservations that serve reservations. Root makes as many as it likes, an ordinary user one within the user's
//! limits and others inside that one; who made a group fills it, and what is in it takes nothing but its time.

use std::time::Instant;

use onbeat_analysis::plan::{Demand, Place};
use onbeat_core::ffi::OB_DEPTH;
use onbeat_model::policy::{Key, Order, Server};
use onbeat_model::protocol::{self, Group, Reserve, Response};
use onbeat_model::taskset::Portion;
use onbeat_model::units::{clip, format_duration};

use super::parts::Newcomer;
use super::{Book, Held, Inside, Peer, Problem, State, problem};
use crate::engine::Engine;
use crate::limits;
use crate::machine::{cpus_of, mask_of, name_cpus};
use crate::scheduler::{Limit, Reservation};
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Makes a group.
    pub(super) fn group(&mut self, peer: Peer, g: &Group) -> Result<Response, Problem> {
        g.check().or_else(|e| problem(e, "ask again with other values"))?;
        let within = self.group_named(peer, g.group.as_deref())?;
        let around = within.map(|up| &self.held[&up].record);
        let times = g.times(around.map(|around| (around.period_ns, around.deadline_ns)));
        let portion = g.portion();
        let budget = self.budget_within(peer, within, g, times)?;
        let r = g.as_reserve(1, budget, times);
        r.check().or_else(|e| problem(e, "ask again with other values"))?;
        let room = self.room_for(&r, u64::MAX, within)?;
        let order = self.order_named(g.order.as_deref(), room)?;
        let server = match portion {
            // It goes on with later deadlines: it stands where its bandwidth has it, and never rests.
            Portion::Orders => Server::Cbs,
            _ => self.server_named(g.rule.as_deref(), room)?,
        };
        self.check_length(peer, &r, room, server)?;
        if portion.weight().is_some() {
            // Its part may become as small as may be.
            let most = Reserve { budget_ns: budget.min(limits::BUDGET_MIN), ..r.clone() };
            self.check_rest(&most, room, server)?;
        }
        if self.groups().any(|h| h.record.name == g.name) {
            return problem(
                format!("there is a group {:?} already", clip(&g.name)),
                "give it another name, or release that one first (`onbeat status`)",
            );
        }
        match within {
            Some(up) if self.depth(up) >= OB_DEPTH as usize => {
                return problem(
                    format!("{OB_DEPTH} groups are inside each other there, and no more can be"),
                    "put the group into one further out",
                );
            }
            None if peer.uid != 0 && self.outermost(peer.uid).is_some() => {
                return problem(
                    "one user may have one group that is in no other",
                    "make it part of that one, release that one, or ask root to make it",
                );
            }
            _ => (),
        }
        let mine = self.held.values().filter(|h| h.members.is_some() && h.record.uid == peer.uid);
        if peer.uid != 0 && mine.count() >= limits::GROUPS {
            return problem(
                format!("one user may have {} groups", limits::GROUPS),
                "release one first, or ask root to make it",
            );
        }
        self.purse_named(peer, g.purse.as_deref(), room)?;
        let demand = self.demand(&r, u64::MAX, room)?;
        let place = match self.space(peer, &demand, room, within)? {
            Ok(place) => place,
            Err(refusal) => return Ok(self.refuse(*refusal)),
        };
        self.check_drawing(peer, g, &r, (room, &place), within)?;
        let wanted = Reservation {
            budget,
            period: r.period_ns,
            deadline: r.deadline(),
            place: place.clone(),
            kind: crate::settings::kind(server),
            order: self.order_within(within, room),
            marks: false,
            value: 0,
            account: self.account_within(peer, within)?,
            hard: false,
            draws: false,
            group: true,
            within,
            purse: self.purse_named(peer, g.purse.as_deref(), room)?,
        };
        let id = match self.enter(&wanted, &demand, room)? {
            Ok(id) => id,
            Err(refusal) => return Ok(self.refuse(*refusal)),
        };
        self.granted += 1;
        let record = protocol::Reservation {
            id,
            name: g.name.clone(),
            uid: peer.uid,
            group: g.group.clone().unwrap_or_default(),
            budget_ns: budget,
            period_ns: r.period_ns,
            deadline_ns: r.deadline(),
            set: self.rooms[room].settings.name.clone(),
            ..Default::default()
        };
        let cpus = cpus_of(place.all_cpus() & self.online);
        let held = Held {
            order: self.granted,
            state: State::Live,
            guaranteed: true,
            connection: None,
            watch: None,
            room,
            demand,
            later: None,
            place,
            since: Instant::now(),
            record,
            within,
            members: Some(Inside { order, rule: server, servers: g.servers }),
            portion,
            purse: wanted.purse,
            draws: Vec::new(),
        };
        self.held.insert(id, held);
        self.draw_in(id, g)?;
        self.divide(within);
        let (budget, period) = (format_duration(budget), format_duration(r.period_ns));
        let what =
            format!("group {id}: {budget} every {period} for {} (user {})", g.name, peer.uid);
        self.note(Some(peer.uid), what);
        Ok(Response::Granted { id, policy: self.rooms[room].settings.policy(), cpus })
    }

    /// The budget that a group asks for, or its part of that of the group it is to be in.
    fn budget_within(
        &self,
        peer: Peer,
        within: Option<u32>,
        g: &Group,
        (period, deadline): (u64, u64),
    ) -> Result<u64, Problem> {
        let Some(up) = within else { return Ok(g.budget_ns.unwrap_or(0)) };
        let (budget, weight) = (g.budget_ns.unwrap_or(0), g.portion().weight());
        let part = self.part(up, &Newcomer { uid: peer.uid, budget, period, weight })?;
        Ok(if weight.is_some() { part.min(deadline) } else { budget })
    }

    fn groups(&self) -> impl Iterator<Item = &Held> {
        self.held.values().filter(|h| h.members.is_some() && h.state == State::Live)
    }

    /// The group of this name, which who asks may fill.
    pub(super) fn group_named(
        &self,
        peer: Peer,
        name: Option<&str>,
    ) -> Result<Option<u32>, Problem> {
        let Some(name) = name else { return Ok(None) };
        let Some(held) = self.groups().find(|h| h.record.name == name) else {
            return problem(
                format!("there is no group {:?}", clip(name)),
                "make it first (`onbeat group add`); `onbeat status` shows those there are",
            );
        };
        if peer.uid != 0 && peer.uid != held.record.uid {
            return problem(
                format!("group {:?} was made by another user", clip(name)),
                "fill your own groups only, or ask root to",
            );
        }
        Ok(Some(held.record.id))
    }

    /// How many groups `id` and those it is in are.
    fn depth(&self, id: u32) -> usize {
        std::iter::successors(Some(id), |id| self.held.get(id)?.within).count()
    }

    /// The one of the groups that `id` is in that is in no other.
    fn outermost_of(&self, id: u32) -> u32 {
        std::iter::successors(Some(id), |id| self.held.get(id)?.within).last().unwrap_or(id)
    }

    /// The group of this user that is in no other.
    fn outermost(&self, uid: u32) -> Option<&Held> {
        self.groups().find(|h| h.record.uid == uid && h.within.is_none())
    }

    /// Where a member of `group` is served: where the group is.
    pub(super) fn member_place(
        &self,
        peer: Peer,
        demand: &Demand,
        group: u32,
    ) -> Result<Place, Problem> {
        let mine = self.held.values().filter(|h| h.record.uid == peer.uid).count();
        if peer.uid != 0 && mine >= limits::RESERVATIONS {
            return problem(
                format!("one user may hold {} reservations", limits::RESERVATIONS),
                "release one first",
            );
        }
        let at = &self.held[&group].place;
        let all = u64::MAX >> (64 - self.common().cpus);
        let cpus = demand.cpus.as_ref().map_or(all, |list| mask_of(list));
        if at.cpus & cpus == 0 {
            let there = name_cpus(&cpus_of(at.cpus));
            return problem(
                format!("the group is served on {there}, of which none may be used"),
                "choose other CPUs, or another group",
            );
        }
        // Bound to some of them it could ask more of these than the group has there; and others that come or go may
        // change which the group has now.
        let settings = &self.rooms[self.held[&group].room].settings;
        let every = self.held[&self.outermost_of(group)].demand.cpus.as_ref();
        let every = every.map_or(settings.set & settings.usable, |list| mask_of(list));
        let domain = settings.domains().into_iter().find(|domain| domain & at.cpus != 0);
        let lacks = every & domain.unwrap_or(u64::MAX) & !cpus;
        if lacks != 0 {
            let there = name_cpus(&cpus_of(every & domain.unwrap_or(u64::MAX)));
            return problem(
                format!(
                    "the group may be served on {there}, and this may not use {}",
                    name_cpus(&cpus_of(lacks))
                ),
                "make the group for CPUs that each member may use (`onbeat group add --cpus`), or change the process's \
                 affinity (taskset)",
            );
        }
        // The group's own count, too, wherever it goes.
        Ok(Place { domain: 0, cpus, apart: false, split: None })
    }

    /// Core's number of the order over the members of `group`, or over all that is in none.
    pub(super) fn order_within(&self, group: Option<u32>, room: usize) -> u32 {
        let own = self.rooms[room].settings.core_order();
        group.and_then(|id| self.held.get(&id)?.members).map_or(own, |inside| inside.order)
    }

    /// The account that a reservation counts on: a member's group has one.
    pub(super) fn account_within(
        &mut self,
        peer: Peer,
        group: Option<u32>,
    ) -> Result<Option<Limit>, Problem> {
        match group {
            Some(_) => Ok(None),
            None => self.account(peer).map(Some),
        }
    }

    fn order_named(&self, name: Option<&str>, room: usize) -> Result<u32, Problem> {
        let settings = &self.rooms[room].settings;
        if settings.order.splits() {
            return problem(
                format!("{} has no groups: it splits reservations", settings.policy()),
                "start the service with another policy, such as p-edf+cbs",
            );
        }
        let Some(name) = name else { return Ok(settings.core_order()) };
        let Some(key) = Key::ALL.iter().find(|key| key.name() == name) else {
            let names: Vec<_> = Key::ALL.iter().map(|key| key.name()).collect();
            return problem(
                format!("{:?} is no order", clip(name)),
                format!("choose one of {}", names.join(", ")),
            );
        };
        Ok(Order { key: *key, ..settings.order }.number())
    }

    /// What enforces a group's budget; one that nobody enforces would limit nothing.
    fn server_named(&self, name: Option<&str>, room: usize) -> Result<Server, Problem> {
        let settings = &self.rooms[room].settings;
        // What a group's rule takes from others it takes from those outside it, too.
        let any = self.rights.no_isolation || !settings.isolates();
        let fit = |server: &&Server| server.enforces() && (any || server.isolates());
        let names = || Server::ALL.iter().filter(fit).map(|s| s.name()).collect::<Vec<_>>();
        let server = match name {
            None => Some(&settings.server),
            Some(name) => Server::ALL.iter().find(|server| server.name() == name),
        };
        match server.filter(fit) {
            Some(server) => Ok(*server),
            None => problem(
                format!(
                    "{:?} is no rule for a group's budget here",
                    clip(name.unwrap_or_default())
                ),
                format!("choose one of {}", names().join(", ")),
            ),
        }
    }

    /// Whether a group still has members, and how many.
    pub(super) fn members_of(&self, group: u32) -> usize {
        let of = |h: &&Held| h.within == Some(group) && h.state == State::Live;
        self.held.values().filter(of).count()
    }
}
