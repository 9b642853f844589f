// SPDX-License-Identifier: GPL-2.0-only
//! Classes of reservations, values of their jobs, and best effort's servers, where the order ranks and in groups.

use anyhow::{Context, Result};
use onbeat_analysis::plan::Place;
use onbeat_model::policy::Key;
use onbeat_model::protocol::{Group, Reserve};
use onbeat_model::rank::Servers;
use onbeat_model::units::{clip, format_duration};

use super::{Book, Peer, Problem, problem};
use crate::engine::Engine;
use crate::scheduler::Reservation;
use crate::settings::kind;
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Whether the class that is asked for means anything here.
    pub(super) fn check_class(&self, r: &Reserve, room: usize) -> Result<(), Problem> {
        let Some(class) = r.class else { return Ok(()) };
        let settings = &self.rooms[room].settings;
        if !settings.order.key.ranks() {
            return problem(
                format!("{} knows no classes, so nothing is {class} there", settings.policy()),
                "leave the class out, or start the service with --policy edf-hsb",
            );
        }
        if r.group.is_some() {
            return problem(
                format!(
                    "a member of a group cannot be {class}: it takes its turns within the group"
                ),
                "leave the class or the group out",
            );
        }
        Ok(())
    }

    /// Whether the value that is asked for means anything here.
    pub(super) fn check_value(
        &self,
        r: &Reserve,
        room: usize,
        within: Option<u32>,
    ) -> Result<(), Problem> {
        let order = Key::ALL.get(self.order_within(within, room) as usize);
        if r.value.is_none() || order.is_some_and(|order| order.chooses()) {
            return Ok(());
        }
        let who = match (&r.group, order) {
            (Some(group), Some(order)) => {
                format!("the group {:?}, whose order is {order},", clip(group))
            }
            _ => self.rooms[room].settings.policy(),
        };
        problem(
            format!("{who} does not choose between jobs, so no value counts there"),
            "leave the value out, or have a policy that chooses, such as g-dasa (`onbeat policy`)",
        )
    }

    /// Makes best effort's servers, which nobody owns, if the order ranks; to be called once, before anybody asks.
    ///
    /// # Errors
    /// The scheduler does not answer.
    pub fn draw(&mut self) -> Result<()> {
        let settings = self.common();
        if !settings.order.key.ranks() {
            return Ok(());
        }
        let (servers, cpus) = (settings.servers, settings.usable);
        for _ in 0..servers.count {
            let wanted = self.drawing(servers, cpus, None, 0);
            self.engine.reserve(&wanted).context("best effort's servers")?;
        }
        Ok(())
    }

    /// One of best effort's servers, which may use these CPUs.
    fn drawing(
        &self,
        servers: Servers,
        cpus: u64,
        within: Option<u32>,
        room: usize,
    ) -> Reservation {
        Reservation {
            budget: servers.budget,
            period: servers.period,
            deadline: servers.period,
            place: Place { domain: 0, cpus, apart: false, split: None },
            kind: kind(self.rooms[room].settings.hard()),
            order: self.order_within(within, room),
            marks: false,
            value: 0,
            hard: false,
            draws: true,
            account: None,
            group: false,
            within,
            purse: None,
        }
    }

    /// Whether a group that is to be served at `place` may have the servers of best effort that it asks for. All of
    /// these stand in one queue.
    pub(super) fn check_drawing(
        &self,
        peer: Peer,
        g: &Group,
        r: &Reserve,
        (room, place): (usize, &Place),
        within: Option<u32>,
    ) -> Result<(), Problem> {
        let Some(servers) = g.servers else { return Ok(()) };
        if peer.uid != 0 {
            return problem(
                "best effort is everybody's, and its servers are root's to make",
                "ask root to, or leave them out",
            );
        }
        let settings = self.common();
        if settings.order.key.ranks() && settings.servers.count > 0 {
            return problem(
                format!("best effort has its servers under {} itself", settings.policy()),
                format!(
                    "start scx_onbeat with --best-effort-servers {}",
                    Servers { count: 0, ..settings.servers }
                ),
            );
        }
        let inner =
            g.order.as_deref().and_then(|name| Key::ALL.iter().find(|key| key.name() == name));
        let outer = std::iter::successors(within, |id| self.held.get(id)?.within);
        let outer =
            outer.filter_map(|id| Key::ALL.get(self.held.get(&id)?.members?.order as usize));
        let own = &self.rooms[room].settings.order.key;
        if let Some(key) = [own].into_iter().chain(inner).chain(outer).find(|key| key.chooses()) {
            return problem(
                format!(
                    "{} chooses a set of jobs, and best effort's servers are in no such choice",
                    key.name()
                ),
                "give the groups another --order, or choose another policy, such as g-edf+cbs-hard",
            );
        }
        if let Some(other) = self.held.values().find(|h| !h.draws.is_empty()) {
            return problem(
                format!("the group {:?} has best effort's servers", other.record.name),
                "remove that one first (`onbeat group remove`)",
            );
        }
        let all = u64::MAX >> (64 - settings.cpus);
        let wide = u128::from((place.cpus & all).count_ones());
        let asked = u128::from(servers.budget) * u128::from(servers.count);
        let there = wide * u128::from(r.budget_ns) * u128::from(servers.period);
        if asked * u128::from(r.period_ns) > there {
            let (budget, period) = (format_duration(r.budget_ns), format_duration(r.period_ns));
            return problem(
                format!(
                    "best effort's servers, {servers}, are more than the group has on {wide} CPUs, {budget} every \
                     {period} on each"
                ),
                "ask for fewer, smaller budgets or longer periods, or give the group more",
            );
        }
        Ok(())
    }

    /// Makes the servers of best effort that a group, which has just been made, asks for; without them there is no
    /// group.
    pub(super) fn draw_in(&mut self, id: u32, g: &Group) -> Result<(), Problem> {
        let Some(servers) = g.servers else { return Ok(()) };
        let (room, all) = (self.held[&id].room, u64::MAX >> (64 - self.common().cpus));
        for _ in 0..servers.count {
            // The group's CPUs count, too, wherever it goes.
            match self.engine.reserve(&self.drawing(servers, all, Some(id), room)) {
                Ok(made) => self.held.get_mut(&id).expect("just made").draws.push(made),
                Err(e) => {
                    self.close(id);
                    return problem(
                        format!("best effort's servers cannot be made: {e:#}"),
                        "ask for fewer, or release reservations first",
                    );
                }
            }
        }
        Ok(())
    }
}
