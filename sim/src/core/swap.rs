// SPDX-License-Identifier: GPL-2.0-only
//! Policies of sets of CPUs, and how they change while they are in force (`core/ob_swap.h`).

use onbeat_core::ffi;

use super::{Core, Reservation};

impl Core {
    /// `cpus`, a bit for each, are one domain from now on, whose slot is the lowest of them.
    pub fn regroup(&mut self, cpus: u64, now: u64) {
        unsafe { ffi::onbeat_regroup(self.ob(), cpus, now) }
    }

    /// Reservation `i`, in no group, is served by the rule and order and at the place that `r` says, budget and period
    /// as they are. `anew`: others than those of its domain take part, or its old policy does not isolate, so its pair
    /// of budget and deadline is not kept.
    pub fn swap(&mut self, i: usize, r: &Reservation, anew: bool, now: u64) {
        let mut terms = ffi::ob_terms { anew: anew.into(), ..r.terms() };
        let (ob, sv) = (self.ob(), &raw mut self.servers[i]);
        // SAFETY: a server that is set up.
        unsafe { ffi::onbeat_swap(ob, sv, &raw mut terms, now) }
    }

    /// Reservation `i` has `budget` ns in each period from its next one on.
    pub fn resize(&mut self, i: usize, budget: u64, now: u64) {
        self.resize_to(i, budget, self.servers[i].period, now);
    }

    /// The same, of another period, too.
    pub fn resize_to(&mut self, i: usize, budget: u64, period: u64, now: u64) {
        let (ob, sv) = (self.ob(), &raw mut self.servers[i]);
        // SAFETY: a server that is set up.
        unsafe { ffi::onbeat_resize(ob, sv, budget, period, now) }
    }

    /// Best effort is served in this order, a number of the core's registry, from now on. Those that wait are put
    /// anew, `step` threads at a time.
    pub fn reorder(&mut self, order: u32, step: usize) {
        let ob = self.ob();
        for tasks in self.tasks.chunks_mut(step.max(1)) {
            // SAFETY: tasks of ours.
            unsafe { ffi::onbeat_reorder(ob, tasks.as_mut_ptr(), tasks.len() as u64, order) }
        }
    }
}
