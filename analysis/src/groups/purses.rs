// SPDX-License-Identifier: GPL-2.0-only
//! Purses: whether they ever make those wait that take from them.
//!
//! A purse makes nobody wait if what may be taken in part of a cycle is never more than what is in it for that part.
//! *Taken* in any time t is at most:
//!
//! - By a task of C every T that is in time by D: N·C + min(C, t + D − C − N·T) where N = ⌊(t + D − C)/T⌋, for a job
//!   may end just at its deadline and the next begin at once (Bertogna, Cirinei and Lipari 2005); with several threads,
//!   which may run at the same time, C·⌈(t + D)/T⌉.
//! - By a group, a constant bandwidth server that waits for its next budget: what it has in t is of budgets that are
//!   due by t + D, one of them begun before; so Q + (t + D)·Q/D (Abeni and Buttazzo 1998, theorem 1).
//! - By all that take from a purse inside this one: no more than is in that for as many cycles as t touches, ⌈t/P⌉ + 1.
//! - By all: t on each CPU.
//!
//! *There.* Let S be the segments that are available at a time y of the cycle. If all of them were spent by y, then for
//! any x those of S that begin at x or later were spent between x and y. So y is safe if for some x these hold what
//! may be taken in y − x. What others hold that end before y would help, and is left out: the test is sufficient. What
//! may be taken grows with y, so y is looked at where a segment begins or ends.

use onbeat_model::policy::{Order, Server};
use onbeat_model::taskset::{Purse, TaskSet};
use onbeat_model::units::US;

/// Who takes from a purse. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// A task: its budget, relative deadline at most the period, period, and threads.
    Task(u64, u64, u64, u32),
    /// A group: its budget and relative deadline.
    Group(u64, u64),
}

impl Taker {
    /// The most it takes in any interval of `t` ns, t > 0.
    fn within(self, t: u64) -> u128 {
        let wide = u128::from;
        match self {
            Taker::Task(budget, deadline, period, 1) => {
                let reach = wide(t) + wide(deadline) - wide(budget);
                let (jobs, rest) = (reach / wide(period), reach % wide(period));
                (jobs * wide(budget) + rest.min(wide(budget))).min(wide(t))
            }
            Taker::Task(budget, deadline, period, _) => {
                (wide(t) + wide(deadline)).div_ceil(wide(period)) * wide(budget)
            }
            Taker::Group(budget, deadline) => {
                let due = (wide(t) + wide(deadline)) * wide(budget);
                wide(budget) + due.div_ceil(wide(deadline))
            }
        }
    }
}

/// All that take from a purse, in purses inside it, too.
pub struct Takers<'a> {
    purses: &'a [Purse],
    /// By purse.
    takers: Vec<Vec<Taker>>,
    cpus: u32,
}

impl<'a> Takers<'a> {
    /// `takers` of each of `purses`, each of which stands behind the one that it is in, on so many CPUs.
    pub fn new(purses: &'a [Purse], takers: Vec<Vec<Taker>>, cpus: u32) -> Self {
        Self { purses, takers, cpus }
    }

    /// The most that is taken from a purse in any interval of `t` ns.
    fn within(&self, purse: usize, t: u64) -> u128 {
        if t == 0 {
            return 0;
        }
        let own: u128 = self.takers[purse].iter().map(|taker| taker.within(t)).sum();
        let inside = (0..self.purses.len()).filter(|p| self.purses[*p].parent == Some(purse));
        let inside: u128 = inside.map(|p| self.within(p, t).min(held(&self.purses[p], t))).sum();
        (own + inside).min(u128::from(t) * u128::from(self.cpus))
    }

    /// The part of a cycle in which a purse may make somebody wait: until when, what may have been taken by then, and
    /// what is there; `None`: it is proven that there is none.
    pub fn short(&self, index: usize) -> Option<Short> {
        let purse = &self.purses[index];
        let ends = purse.segments.iter().flat_map(|s| [s.from, s.until]).chain([purse.period]);
        let mut ends: Vec<u64> = ends.filter(|end| *end > 0).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut before = 0;
        for end in ends {
            // Available all the time between two of these.
            let here = || purse.segments.iter().filter(|s| s.from <= before && end <= s.until);
            let since = |x: u64| {
                let there = here().filter(|s| s.from >= x).map(|s| u128::from(s.budget)).sum();
                Short { from: x, until: end, taken: self.within(index, end - x), there }
            };
            let spare = |short: &Short| short.there as i128 - short.taken as i128;
            let best = here().map(|s| since(s.from)).max_by_key(spare);
            let best = best.unwrap_or_else(|| Short {
                from: before,
                until: end,
                taken: self.within(index, end - before),
                there: 0,
            });
            if best.taken > best.there {
                return Some(best);
            }
            before = end;
        }
        None
    }

    /// The least amount of whole µs for all of each cycle that is proven to be enough, ns.
    pub fn least(&self, index: usize) -> u64 {
        let most = self.within(index, self.purses[index].period);
        u64::try_from(most).unwrap_or(u64::MAX).div_ceil(US).saturating_mul(US)
    }
}

/// Part of a cycle, ns from its beginning, in which more may be taken than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// From when.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// What may be taken, ns.
    pub taken: u128,
    /// What there is, ns.
    pub there: u128,
}

/// No more is taken from a purse in `t` ns than is in it.
fn held(purse: &Purse, t: u64) -> u128 {
    let each: u128 = purse.segments.iter().map(|s| u128::from(s.budget)).sum();
    (u128::from(t.div_ceil(purse.period)) + 1) * each
}

/// What is in it in the long run, CPUs.
fn rate(purse: &Purse) -> f64 {
    let each: u64 = purse.segments.iter().map(|s| s.budget).sum();
    each as f64 / purse.period as f64
}

/// What is said of a purse.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Its index in [`TaskSet::purses`].
    pub purse: usize,
    /// What those that take from it may have in the long run by their budgets, and those that take from a purse in it
    /// by that one, too, CPUs.
    pub asked: f64,
    /// What is in it in the long run, CPUs.
    pub there: f64,
    /// Whether it makes nobody wait that is within its own budget; `None`: that is not proven, see `why`.
    pub fits: Option<bool>,
    /// Where it may be short.
    pub short: Option<Short>,
    /// Why nobody can tell.
    pub why: Option<String>,
    /// The least amount of whole µs for all of each cycle that is proven to be enough, ns.
    pub least: Option<u64>,
}

/// Every purse of `set` from which somebody takes, as `played` by the order and the server of a policy, if that is one
/// of Onbeat's own. Who takes is never made to wait if the purse and all that it is in fit, provided that all get their
/// budgets by their deadlines otherwise.
pub fn purses(set: &TaskSet, played: Option<(Order, Server)>) -> Vec<Judgement> {
    let mut takers = vec![Vec::new(); set.purses.len()];
    let mut asked = vec![0.0; set.purses.len()];
    let mut soft: Vec<Option<String>> = vec![None; set.purses.len()];
    let path = |purse: usize| std::iter::successors(Some(purse), |p| set.purses[*p].parent);
    let there: Vec<f64> = set.purses.iter().map(rate).collect();
    let mut add = |purse: usize, taker: Taker, load: f64, rule: Option<Server>, name: &str| {
        takers[purse].push(taker);
        asked[purse] += load;
        for purse in path(purse) {
            if !rule.is_some_and(Server::rests) {
                soft[purse].get_or_insert_with(|| name.to_owned());
            }
        }
    };
    let server = played.map(|(_, server)| server);
    for copy in set.copies() {
        let (Some(purse), Some(budget)) = (copy.spec.purse, copy.spec.budget) else { continue };
        let (deadline, period) = (copy.spec.deadline.min(copy.spec.period), copy.spec.period);
        let taker = Taker::Task(budget, deadline, period, copy.spec.threads);
        add(purse, taker, budget as f64 / period as f64, server, &copy.name());
    }
    for group in &set.groups {
        let Some(purse) = group.purse else { continue };
        let taker = Taker::Group(group.budget, group.deadline.min(group.period));
        let load = group.budget as f64 / group.period as f64;
        add(purse, taker, load, group.rule.or(server), &group.name);
    }
    // Those inside others come after them, and let through no more than they have.
    for purse in (0..set.purses.len()).rev() {
        if let Some(parent) = set.purses[purse].parent {
            asked[parent] += asked[purse].min(there[purse]);
        }
    }
    let all = Takers::new(&set.purses, takers, set.cpus);
    let used = (0..set.purses.len()).filter(|purse| asked[*purse] > 0.0);
    let judge = |purse: usize| {
        let there = there[purse];
        let (short, soft) = (all.short(purse), soft[purse].clone());
        let over = asked[purse] > there * (1.0 + 1e-12);
        let why = soft.as_ref().map(|name| {
            format!(
                "{name} may have more than its budget, and so take all; try a policy with cbs-hard"
            )
        });
        Judgement {
            purse,
            asked: asked[purse],
            there,
            fits: match (over, &why, short) {
                (true, ..) => Some(false),
                (_, None, None) => Some(true),
                _ => None,
            },
            short: short.filter(|_| soft.is_none()),
            least: soft.is_none().then(|| all.least(purse)),
            why,
        }
    };
    used.map(judge).collect()
}

#[cfg(test)]
mod tests;
