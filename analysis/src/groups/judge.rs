// SPDX-License-Identifier: GPL-2.0-only
//! The groups of a task set: whether each fits its members, and with what least budget it would.

use std::cmp::Ordering;
use std::iter::successors;

use onbeat_model::policy::{Key, Order, Server, Sets};
use onbeat_model::taskset::{Portion, TaskSet};
use onbeat_model::units::US;

use super::{Fit, Instant, Supply, edf, fixed};
use crate::one_cpu::fixed::by_priority;
use crate::sporadic::{Sporadic, ratio};

/// What is said of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Its index in [`TaskSet::groups`].
    pub group: usize,
    /// The order that its members are served in, if that is known.
    pub order: Option<Key>,
    /// What enforces its budget, if that is known.
    pub rule: Option<Server>,
    /// Whether its budget is enough, provided that it gets it; `None`: no test can tell, see `why`.
    pub fits: Option<bool>,
    /// Why it does not fit, or why nobody can tell.
    pub why: Option<String>,
    /// Demand and supply where they bind: where the supply is short; or would be if the budget were less than `least`.
    pub binds: Option<Instant>,
    /// Name of the member that `binds` is about, under fixed priorities.
    pub member: Option<String>,
    /// The least budget of whole µs, or its deadline, that is proven to be enough, ns; `None`: none is, or no test.
    pub least: Option<u64>,
}

/// Members of a group as they stand in the file.
struct Members {
    names: Vec<String>,
    tasks: Vec<Sporadic>,
    groups: Vec<Supply>,
}

/// How members are tested.
enum Way {
    Edf,
    /// The tasks in the order of their priorities.
    Fixed(Vec<u64>),
}

/// Every group of `set`, in its order, as `played` by the order and the server of a policy, if that is one of Onbeat's
/// own. Each is judged by itself: members are in time if all groups that they are in fit, and the outermost gets its
/// budget.
pub fn groups(set: &TaskSet, played: Option<(Order, Server)>) -> Vec<Judgement> {
    (0..set.groups.len()).map(|group| judge(set, group, played)).collect()
}

fn judge(set: &TaskSet, index: usize, played: Option<(Order, Server)>) -> Judgement {
    // A group that only orders and is the only member has all that the one around it has.
    let (outer, inner) = (limiting(set, index), ordering(set, index));
    let group = &set.groups[outer];
    let mut said = Judgement {
        group: index,
        order: set.groups[inner].order.or(played.map(|(order, _)| order.key)),
        rule: group.rule.or(played.map(|(_, server)| server)),
        fits: None,
        why: None,
        binds: None,
        member: None,
        least: None,
    };
    let mut members = members(set, inner);
    let supply = Supply::new(group.budget, group.period, group.deadline);
    let order = played.map(|(order, _)| order);
    let way = match way(set, &said, outer, &mut members, order) {
        Ok(way) => way,
        Err(why) => {
            // A group that waits for its next budget gives them no more in the long run.
            if said.rule.is_some_and(Server::rests) && members.overload(supply) {
                said.fits = Some(false);
                said.why = Some(OVER.into());
            } else {
                said.why = Some(why);
            }
            return said;
        }
    };
    let fit = |budget| members.fit(&way, Supply { budget, ..supply });
    let divided =
        set.groups.iter().any(|g| g.parent == Some(inner) && g.portion.weight().is_some());
    // With more, those by weight would ask for more.
    if !divided {
        said.least = least(supply.deadline, |budget| fit(budget).fits());
    }
    match fit(supply.budget) {
        Fit::Fits(binds) => {
            said.fits = Some(true);
            let below = || said.least.and_then(|least| least.checked_sub(US)).filter(|b| *b > 0);
            said.binds = binds.or_else(|| match fit(below()?) {
                Fit::Short(Instant { at, demand, member, .. }) => {
                    Some(Instant { at, demand, supply: supply.within(at), member })
                }
                _ => None,
            });
        }
        Fit::Short(instant) => (said.fits, said.binds) = (Some(false), Some(instant)),
        Fit::Overload => (said.fits, said.why) = (Some(false), Some(OVER.into())),
        Fit::Unknown => said.why = Some("gave up: periods have too much in common too late".into()),
    }
    if divided && said.fits == Some(false) {
        said.why = Some(DIVIDED.into());
    }
    let member = said.binds.and_then(|instant| instant.member);
    said.member = member.map(|member| members.names[member].clone());
    said
}

const OVER: &str = "in the long run its members ask for more than its budget";

const DIVIDED: &str = "weights divide all that it has, but its budget comes in pieces with gaps between them; give the \
                       groups in it budgets, less than that together";

/// Whether the group is the only member of the one around it, and only orders.
fn alone(set: &TaskSet, group: usize) -> bool {
    let around = set.groups[group].parent;
    let inside = set.groups.iter().filter(|g| g.parent == around).count();
    let tasks = set.tasks.iter().any(|task| task.group == around);
    let servers = set.servers_of_group().is_some_and(|(of, _)| Some(of) == around);
    let others = inside > 1 || tasks || servers;
    around.is_some() && set.groups[group].portion == Portion::Orders && !others
}

/// The group whose budget limits what `group` has.
fn limiting(set: &TaskSet, group: usize) -> usize {
    let up = |g: &usize| set.groups[*g].parent.filter(|_| alone(set, *g));
    successors(Some(group), up).last().unwrap_or(group)
}

/// The group whose order tells whose turn it is in `group`.
fn ordering(set: &TaskSet, group: usize) -> usize {
    let inside = |g: &usize| {
        let all = 0..set.groups.len();
        all.into_iter().find(|inner| set.groups[*inner].parent == Some(*g) && alone(set, *inner))
    };
    successors(Some(group), inside).last().unwrap_or(group)
}

/// The test for the group, whose budget is that of `outer`, or why there is none.
fn way(
    set: &TaskSet,
    said: &Judgement,
    outer: usize,
    members: &mut Members,
    order: Option<Order>,
) -> Result<Way, String> {
    if set.groups[outer].portion == Portion::Orders {
        let why = "it only orders, and no test covers what others leave it";
        return Err(format!("{why}; give it a weight or a budget"));
    }
    if !on_one_cpu(set, outer, order) {
        return Err("no test covers a group on several CPUs".into());
    }
    match said.rule {
        None => return Err("the policies played say no rule, give it one".into()),
        Some(rule) if !rule.rests() => {
            let why = "may use up later budgets early, and leave its members none for long";
            return Err(format!("no test covers the rule {rule}, which {why}; try \"cbs-hard\""));
        }
        Some(_) => {}
    }
    match said.order {
        Some(Key::Edf) => Ok(Way::Edf),
        Some(Key::Rm) if members.groups.is_empty() => {
            let mut order: Vec<usize> = (0..members.tasks.len()).collect();
            order.sort_by_key(|i| members.tasks[*i].period);
            members.names = order.iter().map(|i| members.names[*i].clone()).collect();
            let (tasks, levels) = by_priority(&members.tasks, |task| task.period);
            members.tasks = tasks;
            Ok(Way::Fixed(levels))
        }
        Some(Key::Rm) => {
            Err("no test covers groups, or servers of best effort, among members under rm, as they begin when \
                 they wake"
                .into())
        }
        Some(order) => Err(format!("no test covers the order {order}; try \"edf\" or \"rm\"")),
        None => Err("the policies played say no order, give it one".into()),
    }
}

/// Whether its members run on one CPU, wherever the group is placed.
fn on_one_cpu(set: &TaskSet, group: usize, order: Option<Order>) -> bool {
    let domain = match order.map(|order| order.sets) {
        Some(Sets::Partitioned) => 1,
        Some(Sets::Clustered) => set.cpus / set.clusters,
        Some(Sets::Global) | None => set.cpus,
    };
    domain == 1 || set.group_cpus(group).count_ones() == 1
}

fn members(set: &TaskSet, group: usize) -> Members {
    let copies = set.copies().filter(|copy| copy.spec.group == Some(group));
    let (names, tasks) = copies
        .map(|copy| {
            let wcet = copy.spec.budget.unwrap_or(0).max(1);
            let (deadline, period) = (copy.spec.deadline, copy.spec.period);
            (copy.name(), Sporadic { wcet, deadline, period })
        })
        .unzip();
    let inner = set.groups.iter().filter(|inner| inner.parent == Some(group));
    let mut groups: Vec<_> = inner.map(|g| Supply::new(g.budget, g.period, g.deadline)).collect();
    // Servers of best effort, too, begin when somebody wakes.
    if let Some((_, servers)) = set.servers_of_group().filter(|(inside, _)| *inside == group) {
        let each = Supply::new(servers.budget, servers.period, servers.period);
        groups.extend((0..servers.count).map(|_| each));
    }
    Members { names, tasks, groups }
}

impl Members {
    fn fit(&self, way: &Way, supply: Supply) -> Fit {
        match way {
            Way::Edf => edf::test(&self.tasks, &self.groups, supply),
            Way::Fixed(levels) => fixed::test(&self.tasks, levels, supply),
        }
    }

    /// Whether they ask for more in the long run, groups for their budgets.
    fn overload(&self, supply: Supply) -> bool {
        let tasks = self.tasks.iter().map(|task| ratio(task.wcet, task.period));
        let groups = self.groups.iter().map(|group| ratio(group.budget, group.period));
        let load = tasks.chain(groups).reduce(|sum, part| sum + part);
        let there = ratio(supply.budget, supply.period);
        load.is_some_and(|load| load.cmp(&there) == Ordering::Greater)
    }
}

/// The least of whole µs up to `most`, and `most`, that is enough; what cannot be told is not.
fn least(most: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
    if !enough(most) {
        return None;
    }
    let (mut low, mut high) = (0, most.div_ceil(US)); // too little, enough
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle * US) { high = middle } else { low = middle }
    }
    Some((high * US).min(most))
}

#[cfg(test)]
mod tests;
