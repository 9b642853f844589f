// SPDX-License-Identifier: GPL-2.0-only
//! Processes that a program had started before it got its reservation, and that are to be served with it.

use super::{Book, Peer};
use crate::engine::Engine;
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Puts the threads of all that descends from process `pid`, and acts as who asks, under reservation `id`. What
    /// they create meanwhile inherits. One that has another user or reservation stays as it is.
    pub(super) fn enlist_descendants(&mut self, peer: Peer, pid: u32, id: u32) {
        for child in self.system.descendants(pid) {
            let own = |book: &Self| {
                let facts = book.system.facts(child, None);
                facts.is_ok_and(|facts| peer.uid == 0 || facts.uids.iter().eq([&peer.uid]))
            };
            if !own(self) || self.held.values().any(|held| held.record.pid == child) {
                continue;
            }
            self.enlist(child, None, id);
            // It may have become another user's, or ended and left its number to another, in between.
            if !own(self) || !self.system.descendants(pid).contains(&child) {
                for tid in self.system.threads(child).unwrap_or_default() {
                    let _ = self.engine.assign(tid, None); // it may have ended
                }
            }
        }
    }
}
