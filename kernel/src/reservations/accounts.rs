// SPDX-License-Identifier: GPL-2.0-only
//! The users' accounts with the scheduler: what each may take ahead of best-effort work.

use onbeat_core::ffi::{OB_MAX_ACCOUNTS, OB_SHARE_BITS};
use onbeat_model::units::Fraction;

use super::{Book, Peer, Problem, problem};
use crate::engine::Engine;
use crate::scheduler::Limit;
use crate::system::System;

/// Ordinary users who can hold reservations at a time: root has an account, too.
pub(super) const USERS: usize = OB_MAX_ACCOUNTS as usize - 1;

/// Whose an account is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    uid: u32,
    /// [`Peer::share`] of who last used it.
    share: Option<Fraction>,
}

impl<E: Engine, S: System> Book<E, S> {
    /// What an ordinary user of this share may hold, and take ahead of best effort, in CPUs.
    pub(super) fn user_total(&self, share: Option<Fraction>) -> Fraction {
        let usable = (self.common().usable & self.online).count_ones();
        share.unwrap_or(self.common().user_share) * u64::from(usable)
    }

    /// The same in the core's units, never 0.
    fn rate(&self, share: Option<Fraction>) -> u64 {
        (self.user_total(share) * (1 << OB_SHARE_BITS)).to_integer().max(1)
    }

    /// The rate of a user's account, if there is one.
    pub(super) fn rate_of(&self, uid: u32) -> u64 {
        let account = self.accounts.iter().find(|account| account.uid == uid);
        self.rate(account.and_then(|account| account.share))
    }

    /// The account of who asks. It is kept when the last reservation is given back, debts and all, until another user
    /// needs it.
    pub(super) fn account(&mut self, peer: Peer) -> Result<Limit, Problem> {
        let Peer { uid, share, .. } = peer;
        if uid == 0 {
            return Ok(Limit { account: 0, rate: 0 });
        }
        let idle = |user: &Account| !self.held.values().any(|h| h.record.uid == user.uid);
        let mine = self.accounts.iter().position(|user| user.uid == uid);
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
        let mine = Account { uid, share };
        self.accounts.resize(self.accounts.len().max(place + 1), mine);
        self.accounts[place] = mine;
        Ok(Limit { account: place as u32 + 1, rate: self.rate(share) })
    }
}
