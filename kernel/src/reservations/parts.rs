// SPDX-License-Identifier: GPL-2.0-only
//! Groups whose budget is a part, by weight, of what the budgets of the others leave in the group around them: divided
//! anew as members come and go. What a group has of its present period it keeps.

use onbeat_model::taskset::Division;
use onbeat_model::units::{clip, format_duration};

use super::{Book, Held, Problem, State, problem};
use crate::engine::Engine;
use crate::limits;
use crate::system::System;

/// Who is to become a member of a group: with a budget in each period, ns, or with a weight.
pub(super) struct Newcomer {
    pub(super) uid: u32,
    pub(super) budget: u64,
    pub(super) period: u64,
    pub(super) weight: Option<u64>,
}

/// The least part, ns, for a user: what is shorter cannot be enforced.
fn least(uid: u32) -> u64 {
    if uid == 0 { 1 } else { limits::BUDGET_MIN }
}

impl<E: Engine, S: System> Book<E, S> {
    /// The part of who is to become a member of `group`, 0 without a weight.
    pub(super) fn part(&self, group: u32, new: &Newcomer) -> Result<u64, Problem> {
        let around = &self.held[&group].record;
        let part = self.parts(group, around.budget_ns, Some(new), &mut Vec::new())?;
        if new.weight.is_some() && part < least(new.uid) {
            return problem(
                format!(
                    "too little is left of the group {:?}, {} every {}: its members' budgets ask for the rest",
                    clip(&around.name),
                    format_duration(around.budget_ns),
                    format_duration(around.period_ns)
                ),
                "release one of its members, or put the group into another",
            );
        }
        Ok(part)
    }

    /// Adds to `parts` what groups by weight in `group`, and in these, get if its budget is `budget`, beside who is to
    /// come; returns what that one gets.
    fn parts(
        &self,
        group: u32,
        budget: u64,
        new: Option<&Newcomer>,
        parts: &mut Vec<(u32, u64)>,
    ) -> Result<u64, Problem> {
        let Some(around) = self.held.get(&group).map(|h| &h.record) else { return Ok(0) };
        let inside = |h: &&Held| h.within == Some(group) && h.state == State::Live;
        let members = || self.held.values().filter(inside);
        let weighted = || members().filter_map(|h| Some((&h.record, h.portion.weight()?)));
        let own = members().filter(|h| h.portion.weight().is_none());
        let own = own.map(|h| (h.record.budget_ns, h.record.period_ns, 1));
        let drawn = self.held[&group].members.and_then(|inside| inside.servers);
        let drawn = drawn.map(|s| (s.budget, s.period, u64::from(s.count)));
        let comes = new.filter(|new| new.weight.is_none()).map(|new| (new.budget, new.period, 1));
        let weight = new.and_then(|new| new.weight).unwrap_or(0);
        let weights = weighted().map(|(_, weight)| weight).sum::<u64>() + weight;
        let whole = (budget, around.period_ns);
        let division = Division::new(whole, own.chain(drawn).chain(comes), weights);
        for (record, weight) in weighted() {
            let part = division.part(weight, record.period_ns).min(record.deadline_ns);
            if part < least(record.uid) {
                return problem(
                    format!(
                        "too little would be left for the group {:?}, which has a part of {:?} by weight",
                        clip(&record.name),
                        clip(&around.name)
                    ),
                    "ask for less, or release another member of that one",
                );
            }
            parts.push((record.id, part));
            self.parts(record.id, part, None, parts)?;
        }
        Ok(new.map_or(0, |new| division.part(weight, new.period)))
    }

    /// Divides anew what `group` has: a member has come or gone.
    pub(super) fn divide(&mut self, group: Option<u32>) {
        let Some(held) = group.and_then(|group| self.held.get(&group)) else { return };
        let mut parts = Vec::new();
        // Who comes is asked first whether enough is left.
        let _ = self.parts(held.record.id, held.record.budget_ns, None, &mut parts);
        for (id, budget) in parts {
            let record = &self.held[&id].record;
            if record.budget_ns == budget {
                continue;
            }
            match self.engine.resize(id, budget, record.period_ns) {
                Ok(()) => {
                    let held = self.held.get_mut(&id).expect("it has a part");
                    (held.record.budget_ns, held.demand.budget) = (budget, budget);
                }
                Err(e) => self.note(None, format!("group {id} keeps its budget: {e:#}")),
            }
        }
    }
}
