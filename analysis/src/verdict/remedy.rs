// SPDX-License-Identifier: GPL-2.0-only
//! What would make a set fit that does not: more CPUs, smaller budgets, one task with less to do or more time, budgets
//! as great as the work that nothing keeps to them, or a policy that does. Each is tried, and named only if the set
//! with it fits.

use std::cmp::Reverse;

use onbeat_model::policy::{CORE, CorePolicy, Server};
use onbeat_model::taskset::{TaskEntry, TaskSet, limits};
use onbeat_model::units::US;

/// More tasks than this make single ones too slow to try.
pub const TASKS_TRIED: usize = 40;
/// The greediest so many entries are tried one by one.
const ENTRIES_TRIED: usize = 4;

/// Changes, each of which alone is enough; `None`: there is none of that kind, or it was not looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remedies {
    /// The least number of CPUs, more than there are; of more than [`TASKS_TRIED`] tasks perhaps not the least.
    pub cpus: Option<u32>,
    /// Thousandths of every budget.
    pub scale: Option<u64>,
    /// Entry and budget, ns: the one that loses the smallest part of its budget.
    pub budget: Option<(String, u64)>,
    /// Entry and period, ns: the one whose period grows by the smallest part.
    pub period: Option<(String, u64)>,
    /// Entries whose jobs take more than their budgets, and all that these take as budgets, ns, in whole µs; empty:
    /// that would not be enough.
    pub raise: Vec<(String, u64)>,
    /// Single entries were not tried: there are too many tasks.
    pub many: bool,
}

/// Looks for them; `fits` says whether a set does.
pub fn remedies(set: &TaskSet, fits: &dyn Fn(&TaskSet) -> bool) -> Remedies {
    let many = set.copies().count() > TASKS_TRIED;
    let mut found = Remedies { cpus: least_cpus(set, fits), many, ..Remedies::default() };
    if with_work(set).is_some_and(|raised| fits(&raised)) {
        let of = |task: &TaskEntry| Some((task.name.clone(), enough(task)?));
        found.raise = set.tasks.iter().filter_map(of).collect();
    }
    if set.groups.is_empty() {
        let (least, most) = (1, 1000);
        found.scale = most_that(least, most, |scale| fits(&with_scale(set, scale)));
    }
    if many {
        return found;
    }
    let mut entries: Vec<usize> =
        (0..set.tasks.len()).filter(|e| set.tasks[*e].budget.is_some()).collect();
    entries.retain(|e| set.tasks[*e].group.is_none());
    let load = |e: &usize| {
        let task = &set.tasks[*e];
        let part = u128::from(task.budget.unwrap_or(0)) << 32;
        Reverse(part * u128::from(task.count) / u128::from(task.period))
    };
    entries.sort_by_key(load);
    entries.truncate(ENTRIES_TRIED);
    let part = |a: u64, b: u64| (u128::from(a) << 64) / u128::from(b.max(1));
    let budgets = entries.iter().filter_map(|e| Some((*e, budget(set, *e, fits)?)));
    let best = budgets.max_by_key(|(e, to)| part(*to, set.tasks[*e].budget.unwrap_or(1)));
    found.budget = best.map(|(e, to)| (set.tasks[e].name.clone(), to));
    let periods = entries.iter().filter_map(|e| Some((*e, period(set, *e, fits)?)));
    let best = periods.min_by_key(|(e, to)| part(*to, set.tasks[*e].period));
    found.period = best.map(|(e, to)| (set.tasks[e].name.clone(), to));
    found
}

/// The least number of CPUs, more than there are, on which the set fits; of more than [`TASKS_TRIED`] tasks perhaps not
/// the least.
pub fn least_cpus(set: &TaskSet, fits: &dyn Fn(&TaskSet) -> bool) -> Option<u32> {
    if !set.sets.is_empty() {
        return None;
    }
    let most = limits::CPUS as u32;
    let enough = |cpus: &u32| fits(&with_cpus(set, *cpus));
    // Fewer than are asked for in all cannot be enough.
    let asked: f64 = set
        .tasks
        .iter()
        .filter(|task| task.group.is_none())
        .map(|t| t.budget.unwrap_or(0) as f64 / t.period as f64 * f64::from(t.count))
        .sum();
    let first = (set.cpus + 1).max(asked as u32).max(1);
    if set.copies().count() <= TASKS_TRIED {
        return (first..=most).find(enough);
    }
    let mut tried = first;
    while tried < most && !enough(&tried) {
        tried = (tried + tried.div_ceil(4)).min(most);
    }
    Some(tried).filter(|tried| *tried <= most && enough(tried))
}

/// What jobs of a task take at most, its threads together, ns, if that is more than its budget.
pub fn beyond(task: &TaskEntry) -> Option<u64> {
    let work = task.work.longest()?.saturating_mul(task.threads.into());
    (work > task.budget?).then_some(work)
}

/// The same as a budget: in whole µs, unless that is beyond the deadline.
fn enough(task: &TaskEntry) -> Option<u64> {
    let work = beyond(task)?;
    let whole = work.next_multiple_of(US);
    Some(if whole > task.deadline.min(task.period) { work } else { whole })
}

/// The set where no job takes more than its budget, as those that are too small are raised; `None`: there are none, or
/// a job takes more than there is time for.
pub fn with_work(set: &TaskSet) -> Option<TaskSet> {
    let mut raised = set.clone();
    let mut any = false;
    for task in &mut raised.tasks {
        let Some(work) = enough(task) else { continue };
        if work > task.deadline.min(task.period) {
            return None;
        }
        (task.budget, any) = (Some(work), true);
    }
    any.then_some(raised)
}

/// Policies of the same order that keep what jobs take beyond their budgets from others: what to take in place of one
/// that does not. Where the order knows no deadlines only a server that rests does.
pub fn enforcing(policy: &CorePolicy) -> impl Iterator<Item = &'static CorePolicy> {
    let order = policy.order;
    let keeps = move |server: Server| {
        server.isolates() && (server.rests() || order.key.goes_by_deadlines())
    };
    let not = !keeps(policy.server);
    let good = move |p: &&CorePolicy| not && p.order == order && keeps(p.server);
    CORE.iter().filter(good)
}

/// The set on so many CPUs: in the usual clusters if it is in these now, else in as many if they divide the CPUs.
pub fn with_cpus(set: &TaskSet, cpus: u32) -> TaskSet {
    let usual = |cpus: u32| if cpus.is_multiple_of(2) { 2 } else { 1 };
    let stays = set.clusters != usual(set.cpus) && cpus.is_multiple_of(set.clusters);
    let clusters = if stays { set.clusters } else { usual(cpus) };
    TaskSet { cpus, clusters, ..set.clone() }
}

/// The set with so many thousandths of every budget.
pub fn with_scale(set: &TaskSet, scale: u64) -> TaskSet {
    let mut set = set.clone();
    for budget in set.tasks.iter_mut().filter_map(|task| task.budget.as_mut()) {
        *budget = ((u128::from(*budget) * u128::from(scale) / 1000) as u64).max(1);
    }
    set
}

/// The set where an entry has another budget.
pub fn with_budget(set: &TaskSet, entry: usize, budget: u64) -> TaskSet {
    let mut set = set.clone();
    set.tasks[entry].budget = Some(budget);
    set
}

/// The set where an entry has a longer period, and its deadline moves along if it is the end of the period.
pub fn with_period(set: &TaskSet, entry: usize, period: u64) -> TaskSet {
    let mut set = set.clone();
    let task = &mut set.tasks[entry];
    if task.deadline == task.period {
        task.deadline = period;
    }
    task.period = period;
    set
}

/// The greatest budget of whole µs, or of ns below that, with which the set fits.
fn budget(set: &TaskSet, entry: usize, fits: &dyn Fn(&TaskSet) -> bool) -> Option<u64> {
    let now = set.tasks[entry].budget?;
    let unit = if now > US { US } else { 1 };
    most_that(1, now / unit, |n| fits(&with_budget(set, entry, n * unit))).map(|n| n * unit)
}

/// The least period of whole µs with which the set fits, up to 64 times what it is.
fn period(set: &TaskSet, entry: usize, fits: &dyn Fn(&TaskSet) -> bool) -> Option<u64> {
    let now = set.tasks[entry].period;
    let enough = |n: u64| fits(&with_period(set, entry, n * US));
    let (mut low, mut high) = (now.div_ceil(US), now.div_ceil(US));
    let most = (now.saturating_mul(64)).min(limits::TIME) / US;
    while !enough(high) {
        if high >= most {
            return None;
        }
        (low, high) = (high, (high * 2).min(most));
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high * US)
}

/// The greatest of `least..most` with which it holds, found by halving.
fn most_that(least: u64, most: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if least >= most || !holds(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    Some(low)
}
