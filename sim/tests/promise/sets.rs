// SPDX-License-Identifier: GPL-2.0-only
//! Random admitted sets: tasks that keep to their budgets beside hostile ones.

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::{Demand, Plan, Split};
use onbeat_core::ffi;
use onbeat_model::policy::Order;
use onbeat_model::units::Fraction;
use onbeat_sim::Load;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::{MS, SHARE, US};

struct Random {
    numbers: ChaCha8Rng,
    /// For how long jobs are released, ns.
    releases: u64,
}

impl Random {
    fn of(seed: u64) -> Self {
        Random { numbers: ChaCha8Rng::seed_from_u64(seed), releases: RELEASES }
    }

    /// One of `low..=high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.numbers.next_u64() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.numbers.next_u64().is_multiple_of(n)
    }

    fn period(&mut self) -> u64 {
        match self.between(0, 9) {
            0 => self.between(500, 4000) * MS,
            1 | 2 => self.between(1000, 5000) * US,
            _ => self.between(5, 80) * MS + self.between(0, 999) * US,
        }
    }
}

/// A reservation and the threads under it.
#[derive(Debug, Clone)]
pub struct Task {
    pub home: u32,
    pub budget: u64,
    pub period: u64,
    /// It keeps to its budget: its threads are released together, and together need no more.
    pub honest: bool,
    pub marks: bool,
    pub threads: Vec<Load>,
    pub split: Option<Split>,
    /// CPUs on which it is served, if not all of its queue, and whether that is one apart.
    pub at: Option<(u64, bool)>,
    /// CPUs to which its threads, all of them, have bound themselves after it was granted.
    pub bound: Option<u64>,
}

impl Task {
    /// When job `job` of its threads is due; only of honest ones.
    pub fn due(&self, job: usize) -> u64 {
        let Load::Jobs { first, period, delays, deadline, .. } = &self.threads[0] else {
            return u64::MAX;
        };
        first + job as u64 * period + delays.get(job).copied().unwrap_or(0) + deadline
    }
}

#[derive(Debug, Clone)]
pub struct Set {
    pub cpus: u32,
    pub tasks: Vec<Task>,
    pub best_effort: usize,
    /// The tasks of this CPU are all hostile, and served by FCBS, where each CPU has its own queue.
    pub fcbs: Option<u32>,
    /// Whose account a task counts on, and the rate of each, 2^-20 CPUs; the first's is 0.
    pub users: Vec<u32>,
    pub rates: Vec<u64>,
    pub until: u64,
}

/// For how long jobs are released as a rule, ns.
const RELEASES: u64 = 120 * MS;

/// A random set whose budgets fill each CPU up to what best effort leaves; with `equal` all periods are the same, with
/// `crowds` some reservations have several threads.
pub fn whole(seed: u64, equal: bool, crowds: bool) -> Set {
    filled(&mut Random::of(seed), 1000, equal, crowds)
}

/// A random set of reservations of one thread each, which leave three parts in a hundred of what they could have, and
/// for so long that those of periods of seconds have jobs as well.
pub fn long(seed: u64) -> Set {
    filled(&mut Random { releases: 25 * RELEASES, ..Random::of(seed) }, 970, false, false)
}

/// A set of which budgets are so many thousandths of what fills each CPU.
fn filled(random: &mut Random, permille: u64, equal: bool, crowds: bool) -> Set {
    let cpus = random.between(1, 3) as u32;
    let common = random.between(2, 60) * MS;
    let fcbs = (cpus > 1 && random.one_in(4)).then(|| random.between(0, cpus as u64 - 1) as u32);
    let mut tasks = Vec::new();
    for home in 0..cpus {
        let most = if random.one_in(2) { 1000 - SHARE } else { random.between(500, 1000 - SHARE) };
        let mut left = most * US; // of 10⁶
        let count = random.between(2, 5);
        for i in 0..count {
            let part = if i + 1 == count { left } else { random.between(left / 20, left * 2 / 3) };
            let period = if equal { common } else { random.period() };
            let budget = period * part / 1_000_000 * permille / 1000;
            if budget < 100 * US {
                continue;
            }
            left -= part;
            let honest = random.one_in(2) && fcbs != Some(home);
            let mut task = task(random, home, budget, period, honest);
            if !crowds && task.threads.len() > 1 {
                let load = alone(random, budget, period, honest);
                task.marks = matches!(load, Load::Jobs { marks: true, .. });
                task.threads = vec![load];
            }
            tasks.push(task);
        }
    }
    let best_effort = random.between(0, 4) as usize;
    let (users, rates) = accounts(random, cpus, tasks.len());
    Set { cpus, tasks, best_effort, fcbs, users, rates, until: random.releases * 2 }
}

/// A random set of which the service admits some in parts, placed as it places them; who is split keeps to the budget
/// unless `overruns` may be split, too.
pub fn split(seed: u64, worst_fit: bool, overruns: bool) -> Set {
    let mut random = Random::of(seed);
    let cpus = random.between(2, 4) as u32;
    let share = Fraction::new(SHARE, 1000);
    let order = if worst_fit { Order::EDF_WMR } else { Order::EDF_WM };
    let mut plan = Plan::new(Machine::under(order, cpus, 1, share));
    let mut tasks = Vec::new();
    for id in 0..random.between(u64::from(cpus) + 1, 3 * u64::from(cpus)) {
        let (part, period) = (random.between(150, 850), random.period());
        let mut budget = (period * part / 1000).max(200 * US);
        // What does not fit is asked for smaller, as people would.
        for _ in 0..3 {
            let name = String::new();
            let demand = Demand { name, budget, period, deadline: period, cpus: None, hard: false };
            let Some(place) = plan.fit(id as u32, &demand) else {
                budget = (budget / 2).max(1);
                continue;
            };
            let honest = random.one_in(2) || (!overruns && place.split.is_some());
            let mut task = task(&mut random, place.domain, budget, period, honest);
            task.split = place.split;
            tasks.push(task);
            break;
        }
    }
    let best_effort = random.between(0, 4) as usize;
    let (users, rates) = accounts(&mut random, cpus, tasks.len());
    Set { cpus, tasks, best_effort, fcbs: None, users, rates, until: RELEASES * 2 }
}

/// A random set under `order` of which some may use some CPUs only, placed as the service places it; threads of hostile
/// ones bind themselves to still fewer.
pub fn bound(seed: u64, order: Order, equal: bool, crowds: bool) -> Set {
    let mut random = Random::of(seed);
    let cpus = random.between(2, 4) as u32;
    let all = (1u64 << cpus) - 1;
    let clusters = if cpus.is_multiple_of(2) { 2 } else { 1 };
    let mut plan = Plan::new(Machine::under(order, cpus, clusters, Fraction::new(SHARE, 1000)));
    let common = random.between(2, 60) * MS;
    let mut tasks: Vec<(u32, Task)> = Vec::new();
    for id in 0..random.between(u64::from(cpus) + 1, 4 * u64::from(cpus)) as u32 {
        let part = random.between(50, 850);
        let period = if equal { common } else { random.period() };
        let mut budget = (period * part / 1000).max(100 * US);
        let may = if random.one_in(2) { all } else { random.between(1, all) };
        for _ in 0..3 {
            let list = (0..cpus).filter(|cpu| may >> cpu & 1 == 1).collect();
            let (name, cpus) = (String::new(), Some(list));
            let demand = Demand { name, budget, period, deadline: period, cpus, hard: false };
            let Some(place) = plan.fit(id, &demand) else {
                budget = (budget / 2).max(1);
                continue;
            };
            let honest = random.one_in(2);
            let mut task = task(&mut random, place.domain, budget, period, honest);
            if !crowds && task.threads.len() > 1 {
                let load = alone(&mut random, budget, period, honest);
                task.marks = matches!(load, Load::Jobs { marks: true, .. });
                task.threads = vec![load];
            }
            if !honest && random.one_in(3) {
                task.bound = Some(random.between(1, all));
            }
            tasks.push((id, task));
            break;
        }
    }
    // Those that came later may have changed where others are.
    for (id, task) in &mut tasks {
        let at = &plan.get(*id).expect("it fits").at;
        (task.home, task.at) = (at.domain, Some((at.cpus, at.apart)));
    }
    let tasks: Vec<Task> = tasks.into_iter().map(|(_, task)| task).collect();
    let best_effort = random.between(0, 4) as usize;
    let (users, rates) = accounts(&mut random, cpus, tasks.len());
    Set { cpus, tasks, best_effort, fcbs: None, users, rates, until: RELEASES * 2 }
}

/// Users of `tasks` tasks, and the rates of their accounts.
fn accounts(random: &mut Random, cpus: u32, tasks: usize) -> (Vec<u32>, Vec<u64>) {
    let count = random.between(0, 3);
    let most = u64::from(cpus) << ffi::OB_SHARE_BITS;
    let rates = (0..=count).map(|i| random.between(1, most) * u64::from(i > 0)).collect();
    ((0..tasks).map(|_| random.between(0, count) as u32).collect(), rates)
}

fn task(random: &mut Random, home: u32, budget: u64, period: u64, honest: bool) -> Task {
    let only = alone(random, budget, period, honest);
    let Load::Jobs { times, marks, .. } = &only else { unreachable!("it has jobs") };
    let marks = *marks;
    let threads = match (random.between(0, 5), honest) {
        (0, true) => {
            let part = |part: Vec<u64>| {
                let mut load = only.clone();
                if let Load::Jobs { times, .. } = &mut load {
                    *times = part;
                }
                load
            };
            divide(random, times).into_iter().map(part).collect()
        }
        (0, false) => {
            let mut crowd = crowd(random, budget, period);
            crowd.push(only);
            crowd
        }
        _ => vec![only],
    };
    Task { home, budget, period, honest, marks, threads, split: None, at: None, bound: None }
}

/// The jobs of a reservation's only thread.
fn alone(random: &mut Random, budget: u64, period: u64, honest: bool) -> Load {
    let jobs = (random.releases / period + 1).min(200 * random.releases / RELEASES) as usize;
    let style = random.between(0, 5);
    let times: Vec<u64> = (0..jobs)
        .map(|_| match (honest, style) {
            (true, 0..2) => budget,
            (true, _) => random.between(1, budget),
            // A hog, an overrun now and then, always somewhat, a donor, one that collects, mixed.
            (false, 0) => budget.saturating_mul(20).min(300 * MS),
            (false, 1) => {
                if random.one_in(3) {
                    budget * 3
                } else {
                    budget / 2 + 1
                }
            }
            (false, 2) => budget + budget / 5,
            (false, 3) => 1 + budget / 100,
            (false, _) => random.between(1, budget * 4),
        })
        .map(|time| time.max(1))
        .collect();
    // Sporadic ones come later and later; never closer than a period.
    let sporadic = random.one_in(3);
    let mut late = 0;
    let delays: Vec<u64> = (0..if sporadic { jobs } else { 0 })
        .map(|_| {
            late += random.between(0, period / 2);
            late
        })
        .collect();
    let first = random.between(0, 30) * MS + random.between(0, 9) * 100 * US;
    let marks = !honest && random.one_in(4);
    Load::Jobs { first, period, delays, deadline: period, times, marks }
}

/// The work of each job, divided among some threads.
fn divide(random: &mut Random, times: &[u64]) -> Vec<Vec<u64>> {
    let mut threads = vec![Vec::new(); random.between(2, 4) as usize];
    for time in times {
        let mut left = *time;
        let last = threads.len() - 1;
        for (i, thread) in threads.iter_mut().enumerate() {
            // A thread without work would not be released.
            let rest = (last - i) as u64;
            let free = left.saturating_sub(1 + rest);
            let part = 1 + if i == last { free } else { random.between(0, free) };
            thread.push(part);
            left = left.saturating_sub(part);
        }
    }
    threads
}

/// Threads that never sleep, and such as wake and sleep all the time, with times of their own.
fn crowd(random: &mut Random, budget: u64, period: u64) -> Vec<Load> {
    let wakes = |random: &mut Random| {
        let period = random.between(period / 20 + 1, period);
        let jobs = (random.releases / period + 1).min(60) as usize;
        let most = (budget / 10).max(1);
        Load::Jobs {
            first: random.between(0, 30 * MS),
            period,
            delays: Vec::new(),
            deadline: period,
            times: (0..jobs).map(|_| random.between(1, most)).collect(),
            marks: false,
        }
    };
    (0..random.between(1, 8))
        .map(|_| if random.one_in(3) { Load::Endless } else { wakes(random) })
        .collect()
}

/// Makes a set smaller for as long as it is still `broken`.
pub fn minimal(mut set: Set, broken: impl Fn(&Set) -> bool) -> Set {
    loop {
        let mut smaller = Vec::new();
        let mut add = |change: &dyn Fn(&mut Set)| {
            let mut other = set.clone();
            change(&mut other);
            smaller.push(other);
        };
        for i in 0..set.tasks.len() {
            add(&|s| {
                s.tasks.remove(i);
                s.users.remove(i);
            });
            for thread in 0..set.tasks[i].threads.len() {
                if set.tasks[i].threads.len() > 1 {
                    add(&|s| drop(s.tasks[i].threads.remove(thread)));
                }
                add(&|s| {
                    if let Load::Jobs { times, .. } = &mut s.tasks[i].threads[thread] {
                        times.pop();
                    }
                });
            }
        }
        if set.best_effort > 0 {
            add(&|s| s.best_effort -= 1);
        }
        let jobs = |s: &Set| -> usize {
            let times = |l: &Load| if let Load::Jobs { times, .. } = l { times.len() } else { 0 };
            s.tasks.iter().flat_map(|t| &t.threads).map(times).sum()
        };
        let size = |s: &Set| (s.tasks.len(), s.best_effort, jobs(s));
        let now = size(&set);
        match smaller.into_iter().find(|s| size(s) < now && broken(s)) {
            Some(other) => set = other,
            None => return set,
        }
    }
}
