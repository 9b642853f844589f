// SPDX-License-Identifier: GPL-2.0-only
//! A set of CPUs gets another policy while programs run on it, and best effort another order.

use std::time::Instant;

use onbeat_analysis::admission::Admission;
use onbeat_analysis::plan::Place;
use onbeat_model::others::Others;
use onbeat_model::policy::{Policy, Sets};
use onbeat_model::protocol::Response;
use onbeat_model::units::format_duration;

use super::{Book, Held, Peer, Problem, REST_MOST, Room, State, problem};
use crate::engine::Engine;
use crate::priority::Raised;
use crate::scheduler::Rule;
use crate::settings::{Settings, kind};
use crate::system::System;

/// How many of those that would not fit a refusal names.
const NAMED: usize = 5;

/// Where a reservation goes on.
struct Planned {
    id: u32,
    place: Place,
    fits: bool,
    period: u64,
    /// Of its server.
    kind: u32,
}

impl<E: Engine, S: System> Book<E, S> {
    /// Puts a set of CPUs under another policy: nothing changes unless all that is held there still fits.
    pub(super) fn swap(
        &mut self,
        peer: Peer,
        set: &str,
        policy: &str,
    ) -> Result<Response, Problem> {
        if peer.uid != 0 {
            return problem("policies are root's to choose", "ask root to");
        }
        let room = self.room_named(set)?;
        let was = self.rooms[room].settings.clone();
        let is = self.wanted(&was, policy)?;
        let begin = Instant::now();
        let mut reservations = 0;
        if is.policy() != was.policy() {
            // The plan is to be one for the CPUs there are now.
            self.refresh_above(super::ABOVE_FRESH);
            self.look_at_cpus();
            let (admission, mut planned) = self.tried(room, &is)?;
            planned.sort_by_key(|p| p.period);
            self.carry_out(&was, &is, &planned)?;
            for Planned { id, place, fits, .. } in planned {
                let held = self.held.get_mut(&id).expect("it was planned");
                (held.place, held.guaranteed) = (place, fits);
                reservations += usize::from(held.state == State::Live);
            }
            let (name, from, to) = (is.name.clone(), was.policy(), is.policy());
            let leaving = std::mem::take(&mut self.rooms[room].leaving);
            self.rooms[room] = Room { settings: is.clone(), admission, leaving };
            self.note(None, format!("set {name}: {to} in place of {from}"));
        }
        Ok(Response::Swapped {
            from: was.policy(),
            to: is.policy(),
            reservations,
            took_ns: begin.elapsed().as_nanos() as u64,
        })
    }

    /// The set under the policy of that name, if it may be swapped for.
    fn wanted(&self, was: &Settings, policy: &str) -> Result<Settings, Problem> {
        let named: Policy = match policy.parse() {
            Ok(named) => named,
            Err(e) => {
                let error: onbeat_model::policy::UnknownPolicy = e;
                let all = error.to_string();
                let (message, remedy) =
                    all.split_once("; ").unwrap_or((&all, "see `onbeat policies`"));
                return problem(message, remedy);
            }
        };
        let Policy::Core { order, server } = named else {
            return problem(
                format!("{named} is none of Onbeat's own"),
                "choose one that is (`onbeat policies`)",
            );
        };
        let is = Settings { order, server, ..was.clone() };
        if is.order.key.ranks() != was.order.key.ranks() {
            return problem(
                format!(
                    "{named} cannot take over from {}: only one of them ranks, and has servers for best effort",
                    was.policy()
                ),
                "choose another, or start scx_onbeat with --policy",
            );
        }
        if !is.isolates() && !self.rights.no_isolation {
            return problem(
                format!("{named} does not isolate: reservations can be late because of others"),
                "choose another (`onbeat policies` marks those that do not), or start scx_onbeat with --no-isolation",
            );
        }
        let count = is.set.count_ones();
        if order.sets == Sets::Clustered && !count.is_multiple_of(is.clusters.max(1)) {
            return problem(
                format!("{} clusters do not divide {count} CPUs", is.clusters),
                "choose a policy without clusters, or start scx_onbeat with other --clusters",
            );
        }
        Ok(is)
    }

    /// Whether all that is held in a set fits under its new policy, and where each goes.
    fn tried(&self, room: usize, is: &Settings) -> Result<(Admission, Vec<Planned>), Problem> {
        // Members go where their groups go, and keep the order and the rules in there.
        let here = |h: &Held| h.room == room && h.within.is_none();
        let whole = |h: &Held| h.purse.is_some() || h.members.is_some();
        if is.order.splits()
            && let Some(h) = self.held.values().find(|h| h.room == room && whole(h))
        {
            return problem(
                format!(
                    "{} splits reservations, and {:?} is a group or takes from a purse",
                    is.policy(),
                    h.record.name
                ),
                "choose another policy, such as p-edf+cbs",
            );
        }
        if is.order.splits()
            && let Some(h) = self.held.values().find(|h| h.room == room && h.later.is_some())
        {
            return problem(
                format!(
                    "{} splits reservations, and {:?} has just got another budget",
                    is.policy(),
                    h.record.name
                ),
                "ask again when its present period is over",
            );
        }
        if is.order.key.chooses()
            && let Some(h) = self.held.values().find(|h| h.room == room && !h.draws.is_empty())
        {
            return problem(
                format!(
                    "{} chooses a set of jobs, and the group {:?} has best effort's servers",
                    is.policy(),
                    h.record.name
                ),
                "choose another policy, or remove the group first",
            );
        }
        let mut admission = Admission::new(is.machine(self.online, &self.above));
        let stays = self.rooms[room].settings.domains() == is.domains();
        let mut held: Vec<(&u32, &Held)> = self.held.iter().filter(|(_, h)| here(h)).collect();
        held.sort_by_key(|(_, h)| (h.state != State::Live, h.order));
        let (mut planned, mut left_out) = (Vec::new(), Vec::new());
        for (id, h) in held {
            // In other domains the CPUs that it has had mean nothing.
            let (place, fits) = match stays {
                true => admission.keep(*id, &h.demand, &h.place),
                false => admission.move_in(*id, &h.demand),
            };
            let fits = fits || is.order.key.chooses();
            let live = h.state == State::Live;
            let own = h.members.as_ref().map(|inside| inside.rule);
            let server = own.unwrap_or(is.server_of(h.demand.hard));
            // A budget given up holds until its period ends; the record has the one in force after that.
            let asked = is.longest_rest(server, h.record.budget_ns, h.record.period_ns);
            let rest = is.longest_rest(server, h.demand.budget, h.demand.period).max(asked);
            if live && ((h.guaranteed && !fits) || rest > REST_MOST) {
                let (budget, period) =
                    (format_duration(h.demand.budget), format_duration(h.demand.period));
                left_out.push(format!("{id} ({}, {budget} every {period})", h.record.name));
            }
            if h.state == State::Ended {
                admission.release(*id);
            }
            let kind = match &h.members {
                Some(inside) => kind(inside.rule),
                None => is.kind(h.demand.hard),
            };
            planned.push(Planned { id: *id, place, fits, period: h.demand.period, kind });
        }
        if !left_out.is_empty() {
            let more = left_out.len().saturating_sub(NAMED);
            left_out.truncate(NAMED);
            let more = if more > 0 { format!(" and {more} others") } else { String::new() };
            return problem(
                format!(
                    "under {} these reservations would no longer fit: {}{more}",
                    is.policy(),
                    left_out.join(", ")
                ),
                "release them first, or choose another policy; nothing has changed",
            );
        }
        self.rooms[room].leaving.iter().for_each(|l| l.book(&mut admission));
        admission.tidy();
        // Those that came later may have changed where others are.
        for p in planned.iter_mut().filter(|p| p.fits) {
            if let Some(at) = admission.place_of(p.id) {
                p.place = at.clone();
            }
        }
        Ok((admission, planned))
    }

    /// Has the scheduler do it: CPUs first, then one reservation after the other.
    fn carry_out(
        &mut self,
        was: &Settings,
        is: &Settings,
        planned: &[Planned],
    ) -> Result<(), Problem> {
        let failed = |e: anyhow::Error| {
            Problem(format!("the policy cannot be swapped: {e:#}"), "restart scx_onbeat".into())
        };
        // Who has not been taken over waits for us: not for others' turns in between. Each step is short; all that
        // takes long, such as to look through /proc, was done before, as those who run here wait meanwhile.
        let _raised = Raised::now();
        let domains = is.domains();
        let anew = !(was.isolates() && is.isolates() && was.domains() == domains);
        domains.iter().try_for_each(|cpus| self.engine.regroup(*cpus)).map_err(failed)?;
        for Planned { id, place, kind, .. } in planned {
            let rule = Rule { kind: *kind, order: is.core_order(), anew };
            let rate = self.rate_of(self.held[id].record.uid);
            self.engine.swap(*id, place, rate, rule).map_err(failed)?;
        }
        domains.iter().try_for_each(|cpus| self.engine.regroup(*cpus)).map_err(failed)
    }

    /// Has best effort served in another order.
    pub(super) fn reorder(&mut self, peer: Peer, order: &str) -> Result<Response, Problem> {
        if peer.uid != 0 {
            return problem("the order of best effort is root's to choose", "ask root to");
        }
        let is: Others = match order.parse() {
            Ok(is) => is,
            Err(e) => {
                let all: String = e;
                let (message, remedy) =
                    all.split_once("; ").unwrap_or((&all, "see `onbeat policies`"));
                return problem(message, remedy);
            }
        };
        let (from, begin) = (self.others, Instant::now());
        if is != from {
            let failed = |e: anyhow::Error| Problem(format!("{e:#}"), "restart scx_onbeat".into());
            self.engine.reorder(is.number()).map_err(failed)?;
            self.others = is;
            self.note(None, format!("best effort: {is} in place of {from}"));
        }
        Ok(Response::Swapped {
            from: from.to_string(),
            to: is.to_string(),
            reservations: 0,
            took_ns: begin.elapsed().as_nanos() as u64,
        })
    }
}
