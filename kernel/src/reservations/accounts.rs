// SPDX-License-Identifier: GPL-2.0-only
//! The users' accounts with the scheduler: what each may take ahead of best-effort work.

use onbeat_core::ffi::{OB_MAX_ACCOUNTS, OB_SHARE_BITS};
use onbeat_model::units::Fraction;

use super::{Book, Problem, problem};
use crate::engine::Engine;
use crate::scheduler::Limit;
use crate::system::System;

/// Ordinary users who can hold reservations at a time: root has an account, too.
pub(super) const USERS: usize = OB_MAX_ACCOUNTS as usize - 1;

impl<E: Engine, S: System> Book<E, S> {
    /// What one ordinary user may hold, and take ahead of best effort, in CPUs.
    pub(super) fn user_total(&self) -> Fraction {
        self.common().user_share * u64::from((self.common().usable & self.online).count_ones())
    }

    /// The same in the core's units, never 0.
    pub(super) fn rate(&self) -> u64 {
        (self.user_total() * (1 << OB_SHARE_BITS)).to_integer().max(1)
    }

    /// The account of a user. It is kept when the last reservation is given back, debts and all, until another user
    /// needs it.
    pub(super) fn account(&mut self, uid: u32) -> Result<Limit, Problem> {
        if uid == 0 {
            return Ok(Limit { account: 0, rate: 0 });
        }
        let idle = |user: &u32| !self.held.values().any(|h| h.record.uid == *user);
        let mine = self.accounts.iter().position(|user| *user == uid);
        let place = match mine {
            Some(place) => place,
            None if self.accounts.len() < USERS => self.accounts.len(),
            None => match self.accounts.iter().position(idle) {
                Some(place) => place,
                None => {
                    return problem(
                        format!("{USERS} users hold reservations, and no more can"),
                        "wait until one of them has given all back",
                    );
                }
            },
        };
        self.accounts.resize(self.accounts.len().max(place + 1), uid);
        self.accounts[place] = uid;
        Ok(Limit { account: place as u32 + 1, rate: self.rate() })
    }
}
