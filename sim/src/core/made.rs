// SPDX-License-Identifier: GPL-2.0-only
//! What is made before a run: reservations, groups, purses, and which threads they serve.

use onbeat_core::ffi;

use super::{Core, Reservation};

impl Core {
    /// Gives task `i`, asleep, reservation number `i`.
    pub fn reserve(&mut self, i: usize, r: &Reservation) {
        self.make(i, r, [false, false], None);
        self.join(i, i);
    }

    /// Gives task `i`, asleep, reservation number `i`, a member of group number `group`.
    pub fn reserve_in(&mut self, i: usize, r: &Reservation, group: usize) {
        self.make(i, r, [false, false], Some(group));
        self.join(i, i);
    }

    /// Room for `count` groups and servers that draw beside the tasks' reservations; before there is any of these. The
    /// first has the number of tasks as its own.
    pub fn groups(&mut self, count: usize) {
        self.servers = vec![ffi::ob_server::default(); self.tasks.len() + count].into();
    }

    /// Reservation number `i`, which no task has, is a group: it serves reservations, its members. It may be a member
    /// of another, `within`.
    ///
    /// # Panics
    /// More than `OB_MAX_GROUPS` groups, or more than `OB_DEPTH` one in the other: callers check their input.
    pub fn group(&mut self, i: usize, r: &Reservation, within: Option<usize>) {
        self.make(i, r, [true, false], within);
    }

    /// Makes purse `slot`, a part of purse `within` if one is named, whose cycles of `period` ns begin at time 0. Each
    /// segment is an amount of CPU time, from when and until when in each cycle it is available; ns.
    ///
    /// # Panics
    /// A slot or a number of segments beyond the core's limits, a segment outside of the cycle.
    pub fn purse(
        &mut self,
        slot: usize,
        within: Option<usize>,
        period: u64,
        segments: &[(u64, u64, u64)],
    ) {
        let up = within.map_or(std::ptr::null_mut(), |up| &raw mut self.ob.purse[up]);
        // SAFETY: our own memory; a purse that nobody has yet.
        unsafe {
            assert_ne!(ffi::onbeat_purse(self.ob(), slot as u32, up, period, 0), 0, "slot {slot}");
            for (amount, from, until) in segments {
                let purse = &raw mut self.ob.purse[slot];
                let filled = ffi::onbeat_fill(purse, *amount, *from, *until);
                assert_ne!(filled, 0, "segment {amount} from {from} until {until}");
            }
        }
    }

    /// What reservation or group `i`, which has no job yet, takes counts in purse `slot`, too.
    pub fn pays_from(&mut self, i: usize, slot: usize) {
        self.servers[i].purse = &raw mut self.ob.purse[slot];
    }

    /// Makes reservation `i`: whether it serves reservations, whether it serves best effort.
    fn make(
        &mut self,
        i: usize,
        r: &Reservation,
        [group, draws]: [bool; 2],
        within: Option<usize>,
    ) {
        let mut terms = ffi::ob_terms { group: group.into(), draws: draws.into(), ..r.terms() };
        let up = within.map_or(std::ptr::null_mut(), |up| &raw mut self.servers[up]);
        let (ob, sv) = (self.ob(), &raw mut self.servers[i]);
        // SAFETY: a server of ours that no task uses yet, and a group, if any, that has been made.
        let made = unsafe {
            (*sv).id = i as u32;
            ffi::onbeat_make(ob, sv, &raw mut terms, up, 0)
        };
        assert_ne!(made, 0, "too many groups or servers that draw, or too deep");
    }

    /// Reservation `i` counts on account `id`, below `OB_MAX_ACCOUNTS`: together its reservations may take `rate` ahead
    /// of best effort, in 2^-20 CPUs; 0: as much as they get.
    pub fn account(&mut self, i: usize, id: u32, rate: u64) {
        let (ob, sv) = (self.ob(), &raw mut self.servers[i]);
        // SAFETY: a server that is set up and has no job yet.
        unsafe { ffi::onbeat_account(ob, sv, id, rate, 0) }
    }

    /// A job of reservation `i` that ends in time is worth so much to orders that choose, at most `OB_VALUE_MOST`;
    /// where nobody says so, its budget in ns.
    pub fn value(&mut self, i: usize, value: u64) {
        self.servers[i].value = value;
    }

    /// Reservation `i`, which has no job yet, goes before those that are not hard, where the order ranks.
    pub fn hard(&mut self, i: usize) {
        self.servers[i].hard = 1;
    }

    /// Reservation `i`, which no task has, serves best effort, as a member of group number `within` if one is named.
    ///
    /// # Panics
    /// There are as many as `OB_MAX_CPUS`, or some in another queue: callers check their input.
    pub fn draw(&mut self, i: usize, r: &Reservation, within: Option<usize>) {
        self.make(i, r, [false, true], within);
    }

    /// Reservation or group `i`, which has neither threads nor members, is no more.
    pub fn unmake(&mut self, i: usize, now: u64) {
        let (ob, sv) = (self.ob(), &raw mut self.servers[i]);
        // SAFETY: a server that has been made.
        unsafe { ffi::onbeat_unmake(ob, sv, now) }
    }

    /// Puts task `i`, asleep, under reservation number `server`, beside the threads it has.
    pub fn join(&mut self, i: usize, server: usize) {
        let (ob, task, sv) = (self.ob(), self.task(i), &raw mut self.servers[server]);
        // SAFETY: a task that sleeps, a server that is set up.
        unsafe { ffi::onbeat_attach(ob, task, sv, 0) }
    }
}
