// SPDX-License-Identifier: GPL-2.0-only
//! The promise, tried on random admitted sets with hostile neighbours: who keeps to the budget is never late,
//! whatever those do who do not. Neighbours are hogs, programs that overrun a little, that mark jobs which are
//! none, that sleep to collect, and large reservations that leave nearly all of their budget; best-effort hogs fill
//! the share. Some belong to users whose accounts bound what they take ahead of best effort, to any rate.

use std::sync::atomic::{AtomicU64, Ordering};

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::policy::{CORE, CorePolicy, Order};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation, SHARE_QUANTUM};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Best effort's share, in thousandths.
const SHARE: u64 = 50;
/// Sets in all; `PROMISE_SETS` says otherwise.
const SETS: u64 = 100_000;

struct Random(ChaCha8Rng);

impl Random {
    fn of(seed: u64) -> Self {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of `low..=high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.next_u64() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.0.next_u64().is_multiple_of(n)
    }
}

struct Task {
    home: u32,
    budget: u64,
    period: u64,
    /// It keeps to its budget.
    honest: bool,
    load: Load,
}

impl Task {
    /// When job `job` is due; only of honest ones.
    fn due(&self, job: usize) -> u64 {
        let Load::Jobs { first, period, delays, deadline, .. } = &self.load else {
            return u64::MAX;
        };
        first + job as u64 * period + delays.get(job).copied().unwrap_or(0) + deadline
    }
}

struct Set {
    cpus: u32,
    tasks: Vec<Task>,
    best_effort: usize,
    /// Whose account a task counts on, and the rate of each, 2^-20 CPUs; the first's is 0.
    users: Vec<u32>,
    rates: Vec<u64>,
    until: u64,
}

/// A random set whose budgets fill each CPU up to what best effort leaves; with `equal` all periods are the same.
fn set(seed: u64, equal: bool) -> Set {
    let mut random = Random::of(seed);
    let cpus = random.between(1, 3) as u32;
    let until = 120 * MS;
    let common = random.between(2, 60) * MS;
    let mut tasks = Vec::new();
    for home in 0..cpus {
        let most = if random.one_in(2) { 1000 - SHARE } else { random.between(500, 1000 - SHARE) };
        let mut left = most * US; // of 10⁶
        let count = random.between(2, 5);
        for i in 0..count {
            let part = if i + 1 == count { left } else { random.between(left / 20, left * 2 / 3) };
            let period = match random.between(0, 9) {
                _ if equal => common,
                0 => random.between(500, 4000) * MS,
                1 | 2 => random.between(1000, 5000) * US,
                _ => random.between(5, 80) * MS + random.between(0, 999) * US,
            };
            let budget = (u128::from(period) * u128::from(part) / 1_000_000) as u64;
            if budget < 100 * US {
                continue;
            }
            left -= part;
            tasks.push(task(&mut random, home, budget, period, until));
        }
    }
    let best_effort = random.between(0, 4) as usize;
    let count = random.between(0, 3);
    let most = u64::from(cpus) << ffi::OB_SHARE_BITS;
    let rates: Vec<u64> = (0..=count).map(|i| random.between(1, most) * u64::from(i > 0)).collect();
    let users = tasks.iter().map(|_| random.between(0, count) as u32).collect();
    Set { cpus, tasks, best_effort, users, rates, until: until * 2 }
}

fn task(random: &mut Random, home: u32, budget: u64, period: u64, until: u64) -> Task {
    let honest = random.one_in(2);
    let jobs = (until / period + 1).min(200) as usize;
    let style = random.between(0, 5);
    let mut times: Vec<u64> = (0..jobs)
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
        .collect();
    times.iter_mut().for_each(|t| *t = (*t).max(1));
    // Sporadic ones come later and later; never closer than a period.
    let sporadic = random.one_in(3);
    let mut late = 0;
    let delays = (0..if sporadic { jobs } else { 0 })
        .map(|_| {
            late += random.between(0, period / 2);
            late
        })
        .collect();
    let first = random.between(0, 30) * MS + random.between(0, 9) * 100 * US;
    let marks = !honest && random.one_in(4);
    Task {
        home,
        budget,
        period,
        honest,
        load: Load::Jobs { first, period, delays, deadline: period, times, marks },
    }
}

/// The greatest tardiness of a job of an honest task under `policy`, ns.
fn worst(set: &Set, policy: &CorePolicy) -> u64 {
    let room = set.tasks.len() + set.best_effort;
    let queues = policy.order.domains(set.cpus, 1);
    let mut core = Core::new(set.cpus, queues, SHARE as u32, SHARE_QUANTUM, room, 1 << 12);
    let all = u64::MAX >> (64 - set.cpus);
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    let mut loads = Vec::new();
    for (i, task) in set.tasks.iter().enumerate() {
        let Load::Jobs { marks, .. } = task.load else { unreachable!("tasks have jobs") };
        core.init_task(i, all, 100);
        let reservation = Reservation {
            budget: task.budget,
            period: task.period,
            deadline: task.period,
            cpus: all,
            domain: task.home * queues / set.cpus,
            kind: kind.expect("registered") as u32,
            order: match policy.order {
                Order::GlobalEdzl => ffi::OB_ORDER_EDZL,
                _ => ffi::OB_ORDER_EDF,
            },
            marks,
            split: None,
        };
        core.reserve(i, &reservation);
        core.account(i, set.users[i], set.rates[set.users[i] as usize]);
        loads.push(task.load.clone());
    }
    for i in 0..set.best_effort {
        core.init_task(set.tasks.len() + i, all, 100);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, set.cpus, loads, Overheads::default(), Detail::Jobs);
    let end = engine.run(0, set.until);
    let events = engine.finish();
    let mut next = vec![0; set.tasks.len()];
    let mut worst = 0;
    for event in events.iter().filter(|e| e.kind() == Some(EventKind::Complete)) {
        let i = event.task as usize;
        next[i] = event.a as usize + 1;
        if set.tasks[i].honest {
            worst = worst.max(event.time.saturating_sub(set.tasks[i].due(event.a as usize)));
        }
    }
    // What is not done at all by then counts, too.
    for (task, job) in set.tasks.iter().zip(next).filter(|(task, _)| task.honest) {
        let Load::Jobs { times, .. } = &task.load else { continue };
        if job < times.len() {
            worst = worst.max(end.saturating_sub(task.due(job)));
        }
    }
    worst
}

/// What was found in many sets.
#[derive(Default)]
struct Found {
    /// Sets with a late job of an honest task, once for each policy.
    broken: u64,
    /// The greatest tardiness, ns, and where.
    worst: u64,
    place: String,
}

/// Plays `sets` sets from `seed` on under each policy, on all CPUs of this machine.
fn play(seed: u64, sets: u64, equal: bool, policies: &[&CorePolicy]) -> Found {
    let next = AtomicU64::new(seed);
    let work = || {
        let mut found = Found::default();
        loop {
            let seed_of_set = next.fetch_add(1, Ordering::Relaxed);
            if seed_of_set >= seed + sets {
                return found;
            }
            let set = set(seed_of_set, equal);
            for policy in policies {
                let late = worst(&set, policy);
                found.broken += u64::from(late > 0);
                if late > found.worst {
                    found.worst = late;
                    found.place = format!("{}, seed {seed_of_set}", policy.name);
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let all = threads.into_iter().map(|t| t.join().expect("a worker"));
        all.reduce(|a, b| {
            let broken = a.broken + b.broken;
            Found { broken, ..if a.worst > b.worst { a } else { b } }
        })
        .expect("workers")
    })
}

fn sets() -> u64 {
    std::env::var("PROMISE_SETS").map_or(SETS, |n| n.parse().expect("a number"))
}

fn isolating(order: Order) -> Vec<&'static CorePolicy> {
    CORE.iter().filter(|p| p.order == order && p.server.isolates() && order.isolates()).collect()
}

#[test]
fn no_owed_job_is_late_on_partitioned_cpus_whatever_the_neighbours_do() {
    let sets = sets();
    let policies = isolating(Order::PartitionedEdf);
    let found = play(0, sets / policies.len() as u64, false, &policies);
    assert_eq!(found.broken, 0, "{} ns late under {}", found.worst, found.place);
}

#[test]
fn what_best_effort_was_paid_ahead_is_no_slack_once_a_long_turn_has_used_it_up() {
    // Found among a million sets: the CPU's account was as old as the turn of the late job on it.
    let found = play(155_521, 1, false, &isolating(Order::PartitionedEdf));
    assert_eq!(found.broken, 0, "{} ns late under {}", found.worst, found.place);
}

#[test]
fn fcbs_as_published_breaks_the_promise_so_these_neighbours_are_hostile() {
    let fcbs = CORE.iter().filter(|p| p.name == "p-edf+fcbs").collect::<Vec<_>>();
    assert!(play(0, 500, false, &fcbs).broken > 0);
}

#[test]
fn under_edzl_no_owed_job_is_late_for_equal_periods_nor_by_two_milliseconds_for_others() {
    // No theorem covers global EDZL beside overruns; docs/slack.md says what more sets gave.
    let sets = sets() / 50;
    for policy in isolating(Order::GlobalEdzl) {
        let equal = play(1_000_000, sets, true, &[policy]);
        assert_eq!(equal.broken, 0, "{} ns late under {}, equal periods", equal.worst, equal.place);
        let any = play(1_000_000, sets, false, &[policy]);
        assert!(any.worst <= 2 * MS, "{} ns late under {}", any.worst, any.place);
    }
}
