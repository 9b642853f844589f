// SPDX-License-Identifier: GPL-2.0-only
//! How reservations end: given back, or with the last thread of their program.

use onbeat_core::ffi::ob_server;
use onbeat_model::protocol;

use super::{ABOVE_RENEW, Book, Held, Peer, Problem, State, TRIAL_MOST, problem};
use crate::engine::Engine;
use crate::system::System;

impl<E: Engine, S: System> Book<E, S> {
    /// Gives a reservation back; `own`: only if it was made over the connection of who asks.
    pub(super) fn release(
        &mut self,
        peer: Peer,
        id: u32,
        own: bool,
    ) -> Result<protocol::Reservation, Problem> {
        let known = self.held.get(&id).filter(|h| h.state != State::Closing);
        let Some(held) = known else {
            return problem(
                format!("there is no reservation {id}"),
                "see `onbeat status` for those held",
            );
        };
        if peer.uid != 0 && peer.uid != held.record.uid {
            return problem(
                format!("reservation {id} was made by another user"),
                "release your own reservations only",
            );
        }
        if own && held.connection != Some(peer.connection) {
            return problem(
                format!("reservation {id} is another one than was made over this connection"),
                "see `onbeat status` for those held; one of your own you may release by its number",
            );
        }
        // Who has ended in it has no threads any more; what it did is told to nobody then.
        let over = self.held.values().filter(|h| h.within == Some(id) && h.state == State::Ended);
        let over: Vec<u32> = over.map(|h| h.record.id).collect();
        let members = self.members_of(id);
        if members > 0 {
            return problem(
                format!("group {id} has {members} members"),
                "release them, or wait until their programs have ended",
            );
        }
        let record = self.record(held);
        if held.state == State::Live {
            self.note(Some(peer.uid), farewell(&record, "given back"));
        }
        over.into_iter().for_each(|member| self.close(member));
        self.close(id);
        Ok(record)
    }

    /// Takes a reservation's threads out and frees it, now or by and by.
    pub(super) fn close(&mut self, id: u32) {
        self.close_within(id, 10);
    }

    /// As `close`, looking for its threads so often.
    pub(super) fn close_within(&mut self, id: u32, looks: u32) {
        let within = self.held.get(&id).and_then(|held| held.within);
        self.take_out(id, looks);
        self.divide(within);
    }

    fn take_out(&mut self, id: u32, looks: u32) {
        let draws = self.held.get_mut(&id).map(|held| std::mem::take(&mut held.draws));
        for server in draws.unwrap_or_default() {
            if let Err(e) = self.engine.release(server) {
                self.note(None, format!("a server of best effort cannot be freed: {e:#}"));
                // Until it is, its group stays, and is closed again.
                self.held.get_mut(&id).expect("it is being closed").draws.push(server);
            }
        }
        for look in 0..=looks {
            let last = self.engine.server(id);
            match self.engine.release(id) {
                Ok(true) => {
                    self.leave(id, last);
                    return drop(self.held.remove(&id));
                }
                Ok(false) => (),
                Err(e) => self.note(None, format!("reservation {id} cannot be freed: {e:#}")),
            }
            // To look goes through all threads there are.
            let none = |server: ob_server| server.threads == 0 || !server.members.is_null();
            if look == looks || last.is_none_or(none) {
                continue;
            }
            for member in self.engine.members(id) {
                let _ = self.engine.leave(&member); // it will be found again
            }
        }
        if let Some(held) = self.held.get_mut(&id) {
            held.state = State::Closing;
        }
    }

    /// Whether a reservation was made over this connection and is not yet given back.
    pub fn serves(&self, connection: u64) -> bool {
        self.held.values().any(|held| held.connection == Some(connection))
    }

    /// A connection was closed: nobody will ask for the last words of what it had reserved, and trials end.
    pub fn disconnected(&mut self, connection: u64) {
        self.end_trials_that(|held| held.connection == Some(connection));
        for held in self.held.values_mut() {
            if held.connection == Some(connection) {
                held.connection = None;
            }
        }
    }

    /// Ends a reservation on trial.
    pub(super) fn end_trial(&mut self, id: u32) {
        let record = self.record(&self.held[&id]);
        self.note(Some(record.uid), farewell(&record, "ends, having been on trial"));
        self.close(id);
    }

    /// Ends all trials; whether there were any.
    pub(super) fn end_trials(&mut self) -> bool {
        self.end_trials_that(|_| true)
    }

    fn end_trials_that(&mut self, is: impl Fn(&Held) -> bool) -> bool {
        let trial = |held: &&Held| held.state == State::Live && held.record.trial && is(held);
        let ids: Vec<u32> = self.held.values().filter(trial).map(|held| held.record.id).collect();
        ids.iter().for_each(|id| self.end_trial(*id));
        !ids.is_empty()
    }

    /// Ends what has ended and looks at the CPUs; to be called now and then.
    pub fn tick(&mut self) {
        self.lapse();
        self.end_trials_that(|held| held.since.elapsed() >= TRIAL_MOST);
        let ids: Vec<u32> = self.held.keys().copied().collect();
        for id in ids {
            self.settle(id);
            let held = &self.held[&id];
            match held.state {
                State::Live => {
                    let empty = self.engine.server(id).is_none_or(|s| s.threads == 0);
                    // A group stays until it is given back.
                    let gone = held.watch.as_ref().is_some_and(|watch| self.system.gone(watch));
                    // One that was told to join, and sleeps, is no thread of it yet: it is not to come later.
                    if empty && gone && self.engine.retire(id).unwrap_or(false) {
                        self.end(id);
                    }
                }
                State::Ended if held.connection.is_none() => self.close(id),
                State::Ended | State::Closing => (),
            }
        }
        self.look_at_cpus();
        if !self.held.is_empty() {
            self.refresh_above(ABOVE_RENEW);
        }
    }

    /// The program of a reservation and all its descendants are gone.
    fn end(&mut self, id: u32) {
        self.leave(id, self.engine.server(id));
        let record = self.record(&self.held[&id]);
        let held = self.held.get_mut(&id).expect("the caller found it");
        let (user, what) = (record.uid, farewell(&record, "ended with its program"));
        held.record = record;
        held.state = State::Ended;
        let within = held.within;
        self.divide(within);
        self.note(Some(user), what);
    }
}

fn farewell(r: &protocol::Reservation, how: &str) -> String {
    if r.pid == 0 {
        return format!("group {} ({}) {how}", r.id, r.name);
    }
    let protocol::Reservation { id, name, jobs, misses, .. } = r;
    format!("reservation {id} ({name}) {how}: {jobs} jobs, {misses} late")
}
