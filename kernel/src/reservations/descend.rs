// SPDX-License-Identifier: GPL-2.0-only
//! Processes that a program had started before it got its reservation, and that are to be served with it.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Book, Peer};
use crate::engine::Engine;
use crate::limits;
use crate::system::System;

/// More processes than this stay as they are: the service looks after others meanwhile.
const MOST: usize = 512;

impl<E: Engine, S: System> Book<E, S> {
    /// Puts the threads of all that descends from process `pid`, and acts as who asks, under reservation `id`. What
    /// they create meanwhile inherits. One that has another user or a reservation stays as it is, and so does what
    /// descends from one with a reservation.
    pub(super) fn enlist_descendants(&mut self, peer: Peer, pid: u32, id: u32, until: Instant) {
        let late = || peer.uid != 0 && Instant::now() > until;
        let own = |book: &Self, child| {
            let few = book.system.crowd(child).is_ok_and(|threads| threads <= limits::THREADS);
            let facts = || book.system.facts(child, None);
            peer.uid == 0 || few && facts().is_ok_and(|facts| facts.uids.iter().eq([&peer.uid]))
        };
        let reserved: BTreeSet<u32> = self.held.values().map(|held| held.record.pid).collect();
        let family: BTreeSet<u32> = self.system.descendants(pid, &reserved).into_iter().collect();
        let mut family: Vec<u32> = family.into_iter().take(MOST).collect();
        family.retain(|child| !late() && own(self, *child));
        // Those that there is time for.
        let time_for = family.iter().position(|child| {
            let late = late();
            if !late {
                self.enlist(*child, None, id, until);
            }
            late
        });
        family.truncate(time_for.unwrap_or(family.len()));
        // One may have become another user's, or ended and left its number to another, in between.
        let after = self.system.descendants(pid, &BTreeSet::new());
        let after: BTreeSet<u32> = after.into_iter().collect();
        let strange = family.iter().filter(|child| !after.contains(child) || !own(self, **child));
        let strange: Vec<i32> =
            strange.flat_map(|child| self.system.threads(*child).unwrap_or_default()).collect();
        if strange.is_empty() {
            return;
        }
        for member in self.engine.members(id).iter().filter(|m| strange.contains(&m.tid)) {
            let _ = self.engine.leave(member); // it may have ended
        }
    }
}
