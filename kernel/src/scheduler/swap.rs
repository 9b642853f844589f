// SPDX-License-Identifier: GPL-2.0-only
//! Policies that change while they are in force: each request is one short step under the core's lock.

use anyhow::Result;
use onbeat_analysis::plan::Place;
use onbeat_core::ffi::ob_terms;

use super::{Rule, Scheduler, terms};
use crate::arena::shell;

impl Scheduler<'_> {
    /// Reservation `id` goes on by `rule`, and where `place` says; its account's rate is as in [`Scheduler::place`].
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn swap(&mut self, id: u32, place: &Place, rate: u64, rule: Rule) -> Result<()> {
        let to = shell::shell_place { id: id as i32, swap: 1 };
        self.arena.set_terms(ob_terms {
            rate,
            kind: rule.kind,
            order: rule.order,
            anew: rule.anew.into(),
            ..terms(place)
        });
        self.ask(shell::SHELL_PLACE, |ask| ask.place = to).map(drop)
    }

    /// These CPUs, a bit for each, are one domain from now on, and pick again.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn regroup(&mut self, cpus: u64) -> Result<()> {
        self.ask(shell::SHELL_REGROUP, |ask| ask.regroup.cpus = cpus).map(drop)
    }

    /// Best effort is served in order number `order` from now on.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn reorder(&mut self, order: u32) -> Result<()> {
        let all = self.arena.shell().nr_tasks as u32;
        (0..all).step_by(shell::SHELL_STEP as usize).try_for_each(|from| {
            let step = shell::shell_reorder { order, from };
            self.ask(shell::SHELL_REORDER, |ask| ask.reorder = step).map(drop)
        })
    }
}
