// SPDX-License-Identifier: GPL-2.0-only
//! What the book does when CPUs come or go, or others take time that ranks above reservations.

use std::time::{Duration, Instant};

use onbeat_analysis::admission::Admission;
use onbeat_analysis::plan::Placed;
use onbeat_model::units::format_duration;

use super::{Book, Held, State};
use crate::engine::Engine;
use crate::machine::{cpus_of, format_cpus};
use crate::system::{Above, System};

impl<E: Engine, S: System> Book<E, S> {
    pub(super) fn refresh_above(&mut self, older_than: Duration) {
        // Whoever has thousands of threads looked at is not to keep others waiting: a tenth of the time at most.
        if self.above_at.elapsed() >= older_than.max(10 * self.above_took) {
            let begin = Instant::now();
            let above = self.system.above();
            self.above_took = begin.elapsed();
            self.note_above(above);
        }
    }

    pub(super) fn note_above(&mut self, above: Above) {
        self.above_at = Instant::now();
        if above == self.above {
            return;
        }
        if above.realtime.difference(&self.above.realtime).next().is_some() {
            let names: Vec<&str> = above.realtime.iter().map(String::as_str).collect();
            let what = format!(
                "programs with real-time threads (SCHED_FIFO, SCHED_RR) rank above reservations and \
                 can delay them; their demand is not known: {}",
                names.join(", ")
            );
            self.note(None, what);
        }
        let changed = above.deadline != self.above.deadline;
        self.above = above;
        if changed {
            self.rebook(false);
        }
    }

    pub(super) fn look_at_cpus(&mut self) {
        let online = self.engine.online();
        if online != self.online {
            self.online = online;
            self.note(None, format!("CPUs on line: {}", format_cpus(&cpus_of(online))));
            self.rebook(true);
        }
    }

    /// What can be reserved has changed: who still fits, and where? The older goes before the younger. With `all`, the
    /// core is told of those that stay, too: their threads may find other CPUs on line.
    fn rebook(&mut self, all: bool) {
        for room in 0..self.rooms.len() {
            self.rebook_room(room, all);
        }
    }

    fn rebook_room(&mut self, room: usize, all: bool) {
        let settings = &self.rooms[room].settings;
        let mut admission = Admission::new(settings.machine(self.online, &self.above));
        // Members are where their groups are.
        let booked = |h: &&Held| h.state != State::Ended && h.within.is_none() && h.room == room;
        let live = self.held.values().filter(booked);
        let mut live: Vec<(u64, u32)> = live.map(|h| (h.order, h.record.id)).collect();
        live.sort_unstable();
        for (_, id) in live {
            let held = &self.held[&id];
            let rate = self.rate_of(held.record.uid);
            let (place, fits) = admission.keep(id, &held.demand, &held.place);
            if (all || place != held.place)
                && let Err(e) = self.engine.place(id, &place, rate)
            {
                self.note(None, format!("reservation {id} cannot be moved: {e:#}"));
            }
            let held = self.held.get_mut(&id).expect("just read");
            held.place = place;
            if let Some(what) = Self::mark(held, fits) {
                self.note(None, what);
            }
        }
        self.rooms[room].leaving.iter().for_each(|l| l.book(&mut admission));
        admission.tidy();
        self.rooms[room].admission = admission;
        self.rearrange(room);
    }

    /// Who comes, goes or grows may change the CPUs on which others of its set are served: the core is told.
    pub(super) fn rearrange(&mut self, room: usize) {
        let elsewhere = |(id, placed): (u32, &Placed)| {
            let held = self.held.get(&id).filter(|held| held.guaranteed)?;
            (held.place != placed.at).then(|| (id, placed.at.clone()))
        };
        let moved: Vec<_> = self.rooms[room].admission.granted().filter_map(elsewhere).collect();
        for (id, place) in moved {
            self.moves(id, &place);
            self.held.get_mut(&id).expect("just read").place = place;
        }
    }

    pub(super) fn mark(held: &mut Held, guaranteed: bool) -> Option<String> {
        let changed = held.guaranteed != guaranteed;
        held.guaranteed = guaranteed;
        (changed && held.state == State::Live).then(|| {
            let word = if guaranteed { "again" } else { "no longer" };
            let (id, name) = (held.record.id, &held.record.name);
            let (budget, period) =
                (format_duration(held.demand.budget), format_duration(held.demand.period));
            format!("reservation {id} ({name}, {budget} every {period}) is {word} guaranteed")
        })
    }
}
