// SPDX-License-Identifier: GPL-2.0-only
//! Another budget and period for a reservation in force; and what its program has needed of late.
//!
//! What a reservation has of its present period it keeps (`core/ob_setup.h`), so its old load holds until that ends:
//! what it gives up is others' to have only then, as in the elastic task model (Buttazzo, Lipari, Caccamo and Abeni,
//! "Elastic scheduling for flexible workload management", 2002).

use std::time::{Duration, Instant};

use onbeat_analysis::plan::{Demand, Place};
use onbeat_core::ffi::{OB_WORK_PERIODS, OB_WORK_UNIT, OB_WORKS, ob_server};
use onbeat_model::protocol::{Reserve, Response, Work};

use super::{Book, Held, Peer, Problem, State, leaving, problem};
use crate::engine::Engine;
use crate::machine::{cpus_of, monotonic};
use crate::system::System;

/// A load that is still booked is no more from that time on, but this demand.
pub(super) type Later = Option<(Instant, Demand)>;

/// Whether who moves leaves CPUs that were tested with it.
fn leaves(had: &Place, has: &Place) -> bool {
    has.domain != had.domain || (had.apart && has.cpus != had.cpus)
}

impl<E: Engine, S: System> Book<E, S> {
    /// Reservation `id`, no group and no member of one, has `budget` ns in each `period` ns from its next period on.
    pub(super) fn resize(
        &mut self,
        peer: Peer,
        id: u32,
        budget: u64,
        period: u64,
    ) -> Result<Response, Problem> {
        let held = self.own_of(peer, id)?;
        let (room, record) = (held.room, &held.record);
        let settings = &self.rooms[room].settings;
        if held.within.is_some() || held.members.is_some() || settings.order.splits() {
            return problem(
                format!("the budget of reservation {id} cannot be changed while it is in force"),
                "release it and reserve anew: groups, their members and what may be split stay as they are",
            );
        }
        let whole = record.deadline_ns == record.period_ns;
        let deadline = if whole { period } else { record.deadline_ns };
        let asked = Reserve {
            pid: record.pid,
            name: record.name.clone(),
            budget_ns: budget,
            period_ns: period,
            deadline_ns: Some(deadline),
            ..Default::default()
        };
        asked.check().or_else(|e| problem(e, "ask again with other values"))?;
        self.check_length(peer, &asked, room, settings.server_of(held.demand.hard))?;
        let demand = Demand { budget, period, deadline, ..held.demand.clone() };
        // Until the present period ends, what it has of that holds, and what was given up before it.
        let ends = Instant::now() + Duration::from_nanos(record.period_ns);
        let ends = held.later.as_ref().map_or(ends, |(pending, _)| ends.max(*pending));
        self.look_at_cpus();
        let held = &self.held[&id];
        let mut admission = self.rooms[room].admission.clone();
        // Of those whom a hard one goes before it takes the more the shorter its period is, wherever its deadline is.
        let less = demand.load() <= held.demand.load();
        let rarer = u128::from(demand.budget) * u128::from(held.demand.period)
            <= u128::from(held.demand.budget) * u128::from(demand.period);
        // Until the present period ends both may hold.
        let both = Demand {
            budget: budget.max(held.demand.budget),
            period: period.min(held.demand.period),
            deadline: deadline.min(held.demand.deadline),
            ..demand.clone()
        };
        let booked = if less && !rarer { both } else { demand.clone() };
        let (mut place, fits) = admission.keep(id, &booked, &held.place);
        // Less load may still be too much for who stands beside it: hard ones are tested by their demand.
        let gives_up = less && rarer && (fits || !held.guaranteed);
        if gives_up {
            (admission, place) = (self.rooms[room].admission.clone(), held.place.clone());
        } else {
            if let Err(refusal) = self.user_limit(peer, &booked, room, &|h| h.record.id == id, 0) {
                return Ok(self.refuse(*refusal));
            }
            if !fits {
                admission = self.rooms[room].admission.clone();
                place = match admission.admit(id, &booked) {
                    Ok(place) => place,
                    Err(refusal) => return Ok(self.refuse(*refusal)),
                };
            }
        }
        let had = self.held[&id].place.clone();
        // It takes along what it has of its present period, which is to be no more than its rate there.
        let last = self.engine.server(id).unwrap_or_default();
        if place != had && leaving::behind(&last, monotonic()) > 0 {
            return problem(
                format!(
                    "reservation {id} would have to move to other CPUs, and is behind just now"
                ),
                "ask again in a moment",
            );
        }
        if place != had {
            self.moves(id, &place);
        }
        if let Err(e) = self.engine.resize(id, budget, period) {
            if place != had {
                self.moves(id, &had);
            }
            return problem(format!("reservation {id} keeps its budget: {e:#}"), "ask again");
        }
        self.rooms[room].admission = admission;
        if leaves(&had, &place) {
            self.vacate(id, &last);
        }
        let (online, policy) = (self.online, self.rooms[room].settings.policy());
        let held = self.held.get_mut(&id).expect("just read");
        held.later = Some((ends, demand.clone()));
        let mut said = None;
        if !gives_up {
            (held.demand, held.place) = (booked, place);
            said = Self::mark(held, true);
        }
        let record = &mut held.record;
        (record.budget_ns, record.period_ns, record.deadline_ns) = (budget, period, deadline);
        let (user, cpus) = (record.uid, cpus_of(held.place.all_cpus() & online));
        if let Some(said) = said {
            self.note(Some(user), said);
        }
        self.rearrange(room);
        Ok(Response::Granted { id, policy, cpus })
    }

    /// Books what has been given up, where the period in which it still held is over.
    pub(super) fn settle(&mut self, id: u32) {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.state == State::Live) else {
            return;
        };
        let Some((_, demand)) = held.later.take_if(|(at, _)| Instant::now() >= *at) else { return };
        let (place, fits) = self.rooms[held.room].admission.keep(id, &demand, &held.place);
        if leaves(&held.place, &place) {
            let last = self.engine.server(id).unwrap_or_default();
            self.vacate(id, &last);
        }
        let held = self.held.get_mut(&id).expect("just read");
        let (moved, room) = (place != held.place, held.room);
        (held.demand, held.place) = (demand, place.clone());
        let (user, said) = (held.record.uid, Self::mark(held, fits));
        if let Some(said) = said {
            self.note(Some(user), said);
        }
        if moved {
            self.moves(id, &place);
        }
        self.rearrange(room);
    }

    /// Reservation `id` is served elsewhere.
    pub(super) fn moves(&mut self, id: u32, place: &Place) {
        let rate = self.rate_of(self.held[&id].record.uid);
        if let Err(e) = self.engine.place(id, place, rate) {
            self.note(None, format!("reservation {id} cannot be moved: {e:#}"));
        }
    }

    /// What the program of a reservation has needed of late, period by period: its user's business, and root's.
    pub(super) fn work(&self, peer: Peer, id: u32) -> Result<Response, Problem> {
        let held = self.own_of(peer, id)?;
        let Some(server) = self.engine.server(id) else {
            return problem(
                format!("there is no reservation {id}"),
                "see `onbeat status` for those held",
            );
        };
        Ok(Response::Work(Work {
            noted: server.works,
            recent: recent(&server),
            record: self.record(held),
        }))
    }

    /// A reservation in force that this user may look into and change.
    fn own_of(&self, peer: Peer, id: u32) -> Result<&Held, Problem> {
        let Some(held) = self.held.get(&id).filter(|held| held.state == State::Live) else {
            return problem(
                format!("there is no reservation {id}"),
                "see `onbeat status` for those held",
            );
        };
        if peer.uid != 0 && peer.uid != held.record.uid {
            return problem(
                format!("reservation {id} was made by another user"),
                "name one of your own",
            );
        }
        Ok(held)
    }
}

/// CPU time of the last jobs, ns, and their periods, oldest first. The oldest place of the ring is left out: it is the
/// one that is written next, perhaps just now.
fn recent(server: &ob_server) -> Vec<(u64, u32)> {
    let from = server.works.saturating_sub(OB_WORKS - 1);
    let one = |i: u32| {
        let word = server.work[(i % OB_WORKS) as usize];
        (u64::from(word & ((1 << OB_WORK_PERIODS) - 1)) << OB_WORK_UNIT, word >> OB_WORK_PERIODS)
    };
    (from..server.works).map(one).collect()
}
