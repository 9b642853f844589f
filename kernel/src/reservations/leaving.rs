// SPDX-License-Identifier: GPL-2.0-only
//! What has been given back and is not yet others' to have. A reservation may have used its budget at the beginning of
//! a period; the next one in its place would have another in the same period. So its load stays booked until it could
//! have begun anew itself, had it slept: by the rule of the constant bandwidth server (Abeni and Buttazzo, "Integrating
//! multimedia applications in hard real-time systems", 1998), as SCHED_DEADLINE waits for the "zero lag time". Sooner
//! than that it harms nobody if by then all are over who at its end were behind what is theirs: who is ahead of Q/P has
//! been delayed by nothing.

use std::time::Duration;

use onbeat_analysis::admission::Admission;
use onbeat_analysis::plan::{Demand, Place};
use onbeat_core::ffi::{OB_PLACE_WHOLE, ob_server};
use onbeat_model::protocol::Refusal;
use onbeat_model::units::{MS, SEC, format_duration};

use super::{Book, Held, Room, State};
use crate::engine::Engine;
use crate::machine::monotonic;
use crate::system::System;

/// How long a request that will fit is kept waiting, ns.
const WAIT_MOST: u64 = 2 * SEC;
/// Those that are no more are booked under numbers from this on, which no slot of the core has.
const FIRST: u32 = 1 << 31;

/// A load that is booked though its reservation is no more.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    key: u32,
    uid: u32,
    demand: Demand,
    place: Place,
    /// Until then, ns of the monotonic clock.
    until: u64,
}

/// When a reservation in that state, were its job over, could begin anew; `exactly`: budgets count as those of sporadic
/// tasks, at least a period apart.
fn anew(server: &ob_server, exactly: bool) -> u64 {
    let lent = server.has_saved != 0;
    let (left, until) = match lent {
        true => (server.saved_e, server.saved_s),
        false => (server.e, server.s),
    };
    if server.place != OB_PLACE_WHOLE {
        let windows = &server.windows;
        return until.max(windows.cycle + server.shift + server.period);
    }
    // What runs still has not been charged for.
    if exactly || lent || server.running > 0 || left <= 0 {
        return until;
    }
    let lead = left as u128 * u128::from(server.deadline) / u128::from(server.budget.max(1));
    until.saturating_sub(lead as u64)
}

/// By when a reservation that stays has had what it is behind Q/P, if it is; 0: it is not.
pub(super) fn behind(server: &ob_server, now: u64) -> u64 {
    let (left, until) = (server.e.max(0) as u128, server.s);
    if server.place == OB_PLACE_WHOLE && server.has_saved == 0 && until > now {
        let over = left * u128::from(server.deadline);
        return if over > u128::from(server.budget) * u128::from(until - now) { until } else { 0 };
    }
    // Who is late is so for an unknown time.
    match until > now {
        true => until,
        false if server.awake > 0 && left > 0 => u64::MAX,
        false => 0,
    }
}

impl<E: Engine, S: System> Book<E, S> {
    /// A reservation that has just ended in that state takes no CPU time any more: from when on, its load is others'.
    pub(super) fn leave(&mut self, id: u32, last: Option<ob_server>) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let pending = held.later.take();
        let (room, uid, demand, place) =
            (held.room, held.record.uid, held.demand.clone(), held.place.clone());
        // Kept in its place, if it stays booked: others may have come that fit beside it as it is only.
        let key = self.next_key();
        if !self.rooms[room].admission.rename(id, key) && !self.rooms[room].admission.release(id) {
            return;
        }
        let (now, last) = (monotonic(), last.unwrap_or_default());
        let exactly = self.rooms[room].settings.order.splits() || last.hard != 0;
        let mut until = anew(&last, exactly);
        if pending.is_some() {
            until = until.max(last.s);
        }
        // Where demand is tested exactly, densities may be more than there is, and who is behind none may need all.
        if !exactly {
            let others = self.held.iter().filter(|(other, h)| **other != id && h.room == room);
            let others = others.filter(|(_, h)| h.state == State::Live && h.within.is_none());
            let states = others.filter_map(|(other, _)| self.engine.server(*other));
            until = until.min(states.map(|server| behind(&server, now)).max().unwrap_or(0));
        }
        self.hold(room, key, uid, demand, place, until);
        self.rearrange(room);
    }

    /// A reservation that was in that state has just moved to other CPUs: what it has had on those it is booked on
    /// still is others' when it could have begun anew there.
    pub(super) fn vacate(&mut self, id: u32, last: &ob_server) {
        let Held { room, record, demand, place, .. } = &self.held[&id];
        let (room, uid, demand, place) = (*room, record.uid, demand.clone(), place.clone());
        let key = self.next_key();
        self.hold(room, key, uid, demand, place, anew(last, last.hard != 0));
    }

    fn next_key(&mut self) -> u32 {
        self.left = (self.left + 1) % (FIRST >> 1);
        FIRST | self.left
    }

    fn hold(&mut self, room: usize, key: u32, uid: u32, demand: Demand, place: Place, until: u64) {
        if until <= monotonic() {
            self.rooms[room].admission.release(key);
            return;
        }
        let demand = Demand { name: format!("{}, given back", demand.name), ..demand };
        let leaving = Leaving { key, uid, demand, place, until };
        leaving.book(&mut self.rooms[room].admission);
        self.rooms[room].leaving.push(leaving);
    }

    /// What has been given back and whose time has come is others' to have; whose threads had not left may have by now.
    pub(super) fn lapse(&mut self) {
        let now = monotonic();
        if now >= self.lapse_at {
            let closing = self.held.iter().filter(|(_, h)| h.state == State::Closing);
            let closing: Vec<u32> = closing.map(|(id, _)| *id).collect();
            closing.into_iter().for_each(|id| self.close_within(id, 1));
            // Whoever holds its threads fast is not to keep others waiting: a tenth of the time at most.
            let took = monotonic() - now;
            self.lapse_at = now + 10 * took;
        }
        for Room { admission, leaving, .. } in &mut self.rooms {
            // One that found no room after CPUs went is booked nowhere, and is over at its time all the same.
            for over in leaving.extract_if(.., |l| l.until <= now) {
                admission.release(over.key);
            }
        }
        (0..self.rooms.len()).for_each(|room| self.rearrange(room));
    }

    /// Those of a user that are still booked at that time.
    pub(super) fn leaving_of(&self, uid: u32, at: u64) -> impl Iterator<Item = (u32, &Demand)> {
        let all = self.rooms.iter().flat_map(|room| &room.leaving);
        all.filter(move |l| l.uid == uid && l.until > at).map(|l| (l.key, &l.demand))
    }

    /// Those of a set, by which they are booked.
    pub(super) fn leaving_keys(&self, room: usize) -> Vec<u32> {
        self.rooms[room].leaving.iter().map(|l| l.key).collect()
    }

    /// When a user's are no more, one after the other.
    pub(super) fn ends_of(&self, uid: u32) -> Vec<u64> {
        let all = self.rooms.iter().flat_map(|room| &room.leaving).filter(|l| l.uid == uid);
        let mut ends: Vec<u64> = all.map(|l| l.until).collect();
        let closing = |h: &Held| h.state == State::Closing && h.record.uid == uid;
        // They leave with their next switch.
        ends.extend(self.held.values().any(closing).then(|| monotonic() + MS));
        ends.sort_unstable();
        ends
    }

    /// What does not fit into a room will fit when that time has come, if it is only for those that leave.
    pub(super) fn fits_at(&self, room: usize, demand: &Demand) -> Option<u64> {
        let Room { admission, leaving, .. } = &self.rooms[room];
        let closing = self.held.iter().filter(|(_, h)| h.state == State::Closing && h.room == room);
        let switched = monotonic() + MS;
        let mut leaving: Vec<(u64, u32)> = leaving.iter().map(|l| (l.until, l.key)).collect();
        leaving.extend(closing.map(|(id, _)| (switched, *id)));
        leaving.sort_unstable();
        let fits = |without: usize| {
            let mut admission = admission.clone();
            for (_, key) in &leaving[..without] {
                admission.release(*key);
            }
            admission.test(demand).is_ok()
        };
        if leaving.is_empty() || !fits(leaving.len()) {
            return None;
        }
        let all: Vec<usize> = (1..leaving.len()).collect();
        let least = all.partition_point(|without| !fits(*without));
        Some(leaving[least].0)
    }

    /// Says in a refusal what is only not yet free, and when it will be.
    pub(super) fn name_leaving(&self, room: usize, refusal: &mut Refusal, at: Option<u64>) {
        let now = monotonic();
        let wait = |until: u64| {
            let wait = until.saturating_sub(now);
            let unit = if wait < 10 * SEC { MS } else { SEC };
            format_duration(wait.div_ceil(unit) * unit)
        };
        for l in &self.rooms[room].leaving {
            let known = format!("{} (reservation {})", l.demand.name, l.key);
            for holder in refusal.holders.iter_mut().filter(|holder| holder.name == known) {
                holder.name = format!("{}, not free for {}", l.demand.name, wait(l.until));
            }
        }
        if let Some(at) = at {
            refusal.reason += &format!("; what was given back is free in {}", wait(at));
        }
    }
}

impl Leaving {
    /// Books it where it was, or where there is room.
    pub(super) fn book(&self, admission: &mut Admission) {
        let (_, fits) = admission.keep(self.key, &self.demand, &self.place);
        if !fits {
            admission.release(self.key);
        }
    }
}

/// How long to wait for what is free at that time, if that is soon.
pub(super) fn wait(at: u64, waited: Duration) -> Option<Duration> {
    let wait = at.saturating_sub(monotonic());
    (wait + waited.as_nanos() as u64 <= WAIT_MOST).then(|| Duration::from_nanos(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 ms of 10 ms, deadline at 110 ms, with that left.
    fn server(left: i64) -> ob_server {
        let (budget, period, deadline) = (4 * MS, 10 * MS, 10 * MS);
        ob_server { used: 1, budget, period, deadline, e: left, s: 110 * MS, ..Default::default() }
    }

    #[test]
    fn what_was_used_up_is_free_at_its_deadline_and_what_was_not_touched_at_once() {
        assert_eq!(anew(&server(0), false), 110 * MS);
        assert_eq!(anew(&server(-5), false), 110 * MS);
        assert_eq!(anew(&server(4 * MS as i64), false), 100 * MS);
        // A quarter is left: its last quarter of time is free.
        assert_eq!(anew(&server(MS as i64), false), 110 * MS - 10 * MS / 4);
        assert_eq!(anew(&server(MS as i64), true), 110 * MS);
        assert_eq!(anew(&ob_server { running: 1, ..server(MS as i64) }, false), 110 * MS);
        let lent = ob_server { has_saved: 1, saved_s: 120 * MS, ..server(MS as i64) };
        assert_eq!(anew(&lent, false), 120 * MS);
        assert_eq!(anew(&ob_server::default(), false), 0);
    }

    #[test]
    fn who_is_behind_its_rate_is_so_until_its_deadline_and_who_is_late_for_ever() {
        assert_eq!(behind(&server(4 * MS as i64), 100 * MS), 0);
        assert_eq!(behind(&server(4 * MS as i64), 101 * MS), 110 * MS);
        assert_eq!(behind(&server(MS as i64), 101 * MS), 0);
        assert_eq!(behind(&server(0), 109 * MS), 0);
        let late = ob_server { awake: 1, ..server(MS as i64) };
        assert_eq!(behind(&late, 111 * MS), u64::MAX);
        assert_eq!(behind(&server(MS as i64), 111 * MS), 0);
    }
}
