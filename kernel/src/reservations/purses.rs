// SPDX-License-Identifier: GPL-2.0-only
//! Purses: budgets that reservations share wherever they stand. Root makes them and says who takes from which.

use onbeat_model::protocol::{self, Response};
use onbeat_model::taskset::limits;
use onbeat_model::units::clip;

use super::{Book, Peer, Pooled, Problem, problem};
use crate::arena::Purse;
use crate::engine::Engine;
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Makes a purse.
    pub(super) fn purse(&mut self, peer: Peer, p: &protocol::Purse) -> Result<Response, Problem> {
        p.check().or_else(|e| problem(e, "ask again with other values"))?;
        if peer.uid != 0 {
            return problem("purses are root's to make", "make a group, or ask root to");
        }
        if self.rooms.iter().all(|room| room.settings.order.splits()) {
            return problem(
                format!("{} has no purses: it splits reservations", self.common().policy()),
                "start the service with another policy, such as p-edf+cbs",
            );
        }
        if self.slot(&p.name).is_some() {
            return problem(
                format!("there is a purse {:?} already", clip(&p.name)),
                "give it another name, or remove that one first (`onbeat purse remove`)",
            );
        }
        let within = self.purse_slot(peer, p.within.as_deref())?;
        let free = self.purses.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.purses.len());
        if slot >= limits::PURSES {
            return problem(
                format!("there are {} purses, and no more can be", limits::PURSES),
                "remove one first",
            );
        }
        let segments = p.segments.iter().map(|s| (s.budget, s.from, s.until)).collect();
        self.engine.purse(slot, &Purse { within, period: p.period_ns, segments });
        let pooled = Some(Pooled { name: p.name.clone(), within });
        match free {
            Some(slot) => self.purses[slot] = pooled,
            None => self.purses.push(pooled),
        }
        Ok(Response::Done)
    }

    /// Takes a purse away.
    pub(super) fn drop_purse(&mut self, peer: Peer, name: &str) -> Result<Response, Problem> {
        if peer.uid != 0 {
            return problem("purses are root's to remove", "ask root to");
        }
        let slot = self.purse_slot(peer, Some(name))?;
        let users = self.held.values().filter(|h| h.purse == slot).count();
        let parts = self.purses.iter().flatten().filter(|p| p.within == slot).count();
        if users + parts > 0 {
            return problem(
                format!("{users} reservations and {parts} purses take from {:?}", clip(name)),
                "release those, or wait until their programs have ended",
            );
        }
        if let Some(slot) = slot {
            self.purses[slot] = None;
        }
        Ok(Response::Done)
    }

    fn slot(&self, name: &str) -> Option<usize> {
        self.purses.iter().position(|p| p.as_ref().is_some_and(|p| p.name == name))
    }

    /// The purse around all that purse `slot` is part of.
    fn outermost_purse(&self, slot: usize) -> usize {
        let up = |slot: &usize| self.purses.get(*slot)?.as_ref()?.within;
        std::iter::successors(Some(slot), up).last().unwrap_or(slot)
    }

    /// The slot of the purse of this name, from which who asks may take in set `room`: in which all are that do.
    pub(super) fn purse_named(
        &self,
        peer: Peer,
        name: Option<&str>,
        room: usize,
    ) -> Result<Option<usize>, Problem> {
        let slot = self.purse_slot(peer, name)?;
        let Some(root) = slot.map(|slot| self.outermost_purse(slot)) else { return Ok(None) };
        let settings = &self.rooms[room].settings;
        if settings.order.splits() {
            return problem(
                format!("{} has no purses: it splits reservations", settings.policy()),
                "choose another set of CPUs, or another policy for this one",
            );
        }
        let takes = |slot: usize| self.outermost_purse(slot) == root;
        let other = self.held.values().find(|h| h.room != room && h.purse.is_some_and(takes));
        if let Some(other) = other {
            return problem(
                format!("reservation {} takes from it in another set of CPUs", other.record.id),
                "make a purse for each set",
            );
        }
        Ok(slot)
    }

    /// The slot of the purse of this name, if who asks may name one.
    fn purse_slot(&self, peer: Peer, name: Option<&str>) -> Result<Option<usize>, Problem> {
        let Some(name) = name else { return Ok(None) };
        if peer.uid != 0 {
            return problem(
                "purses are root's to take from",
                "leave the purse out, or ask root to",
            );
        }
        match self.slot(name) {
            Some(slot) => Ok(Some(slot)),
            None => problem(
                format!("there is no purse {:?}", clip(name)),
                "make it first (`onbeat purse add`)",
            ),
        }
    }
}
