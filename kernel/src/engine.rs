// SPDX-License-Identifier: GPL-2.0-only
//! What the service needs of the scheduler; the tests have one without a kernel.

use std::collections::BTreeMap;

use anyhow::Result;
use onbeat_analysis::plan::Place;
use onbeat_core::ffi::{OB_USE_RESERVED, ob_cpu, ob_server};

use crate::arena::{Member, Purse, Wakes, Waking};
use crate::machine::monotonic;
use crate::scheduler::{Reservation, Rule, Scheduler};

/// A scheduler that holds reservations.
pub trait Engine {
    /// Makes a reservation without threads; returns its id.
    ///
    /// # Errors
    /// All places are taken.
    fn reserve(&mut self, r: &Reservation) -> Result<u32>;
    /// Puts a thread under a reservation.
    ///
    /// # Errors
    /// There is no such thread, or the scheduler does not hold it.
    fn assign(&mut self, tid: i32, id: u32) -> Result<()>;
    /// Puts a thread of a reservation back to best effort; nothing happens if it has ended.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn leave(&mut self, member: &Member) -> Result<()>;
    /// Closes a reservation that has no threads to those that have been told to join it, too: whether it has none.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn retire(&mut self, id: u32) -> Result<bool>;
    /// Closes a reservation to new threads, and frees it once it has none; whether that is so.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn release(&mut self, id: u32) -> Result<bool>;
    /// Serves a reservation elsewhere, and has its account, if that is limited, paid `rate` from now on.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn place(&mut self, id: u32, place: &Place, rate: u64) -> Result<()>;
    /// Serves a reservation by another rule and order, perhaps elsewhere.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn swap(&mut self, id: u32, place: &Place, rate: u64, rule: Rule) -> Result<()>;
    /// A reservation, which is not split, has another budget and period from its next period on, ns.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn resize(&mut self, id: u32, budget: u64, period: u64) -> Result<()>;
    /// These CPUs, a bit for each, are one domain from now on, and pick again.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn regroup(&mut self, cpus: u64) -> Result<()>;
    /// Best effort is served in this order, a number of the core's registry, from now on.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn reorder(&mut self, order: u32) -> Result<()>;
    /// Makes purse `slot`, which nobody takes from yet; its first cycle begins now.
    fn purse(&mut self, slot: usize, purse: &Purse);
    /// State and counters of a reservation.
    fn server(&self, id: u32) -> Option<ob_server>;
    /// Threads that belong to a reservation.
    fn members(&self, id: u32) -> Vec<Member>;
    /// Threads that have woken of late, and when.
    ///
    /// # Errors
    /// The scheduler does not answer.
    fn wakes(&mut self) -> Result<Wakes>;
    /// Whether that is still the same thread as when [`Engine::wakes`] told of it.
    fn lives(&self, thread: &Waking) -> bool;
    /// CPUs on line.
    fn online(&self) -> u64;
    /// How long each CPU, by its number, has run reservations, ns; those not there have run none.
    fn served(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Counters of the scheduler itself.
    fn counters(&self) -> BTreeMap<String, u64>;
}

impl Engine for Scheduler<'_> {
    fn reserve(&mut self, r: &Reservation) -> Result<u32> {
        Scheduler::reserve(self, r)
    }

    fn assign(&mut self, tid: i32, id: u32) -> Result<()> {
        // A thread that runs right now is made to switch by the scheduler itself.
        Scheduler::assign(self, tid, id).map(drop)
    }

    fn leave(&mut self, member: &Member) -> Result<()> {
        Scheduler::leave(self, member)
    }

    fn retire(&mut self, id: u32) -> Result<bool> {
        Scheduler::retire(self, id)
    }

    fn release(&mut self, id: u32) -> Result<bool> {
        Scheduler::release(self, id)
    }

    fn place(&mut self, id: u32, place: &Place, rate: u64) -> Result<()> {
        Scheduler::place(self, id, place, rate)
    }

    fn swap(&mut self, id: u32, place: &Place, rate: u64, rule: Rule) -> Result<()> {
        Scheduler::swap(self, id, place, rate, rule)
    }

    fn resize(&mut self, id: u32, budget: u64, period: u64) -> Result<()> {
        Scheduler::resize(self, id, budget, period)
    }

    fn regroup(&mut self, cpus: u64) -> Result<()> {
        Scheduler::regroup(self, cpus)
    }

    fn reorder(&mut self, order: u32) -> Result<()> {
        Scheduler::reorder(self, order)
    }

    fn purse(&mut self, slot: usize, purse: &Purse) {
        self.arena.set_purse(slot, purse, monotonic());
    }

    fn server(&self, id: u32) -> Option<ob_server> {
        self.arena.server(id)
    }

    fn members(&self, id: u32) -> Vec<Member> {
        self.arena.members(id)
    }

    fn wakes(&mut self) -> Result<Wakes> {
        Scheduler::wakes(self)
    }

    fn lives(&self, thread: &Waking) -> bool {
        self.arena.lives(thread)
    }

    fn online(&self) -> u64 {
        self.arena.shell().ob.online
    }

    fn served(&self) -> Vec<u64> {
        let ob = &self.arena.shell().ob;
        // What runs now is counted when it stops, or when the CPU's debt is looked at.
        let running = |cpu: &ob_cpu| {
            let reserved = u32::from(cpu.use_) == OB_USE_RESERVED;
            if reserved { monotonic().saturating_sub(cpu.since) } else { 0 }
        };
        ob.cpu.iter().map(|cpu| cpu.served + running(cpu)).collect()
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let shell = self.arena.shell();
        [
            ("lock_failed", shell.lock_failed),
            ("timer_failed", shell.timer_failed),
            ("threads_without_place", shell.pool_empty),
            ("kicks", shell.kicks),
            ("timer_ticks", shell.ticks),
            ("timer_late_max_ns", shell.late_max),
            ("events", shell.ob.ring_head),
            ("events_lost", shell.ob.lost),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }
}
