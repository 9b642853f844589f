// SPDX-License-Identifier: GPL-2.0-only
//! The promise, tried on random admitted sets with hostile neighbours: who keeps to the budget is never late,
//! whatever those do who do not. Neighbours are hogs, programs that overrun a little, that mark jobs which are
//! none, that sleep to collect, crowds of threads that never sleep or wake all the time, and large reservations that
//! leave nearly all of their budget; best-effort hogs fill the share, and on some other CPU FCBS moves budgets about.
//! Who keeps to the budget may have several threads as well. Some belong to users whose accounts bound what they take
//! ahead of best effort, to any rate.

mod cases;
mod golden;
mod sets;

use std::sync::atomic::{AtomicU64, Ordering};

use onbeat_analysis::global::tardiness::{Supply, edzl};
use onbeat_analysis::sporadic::Sporadic;
use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::policy::{CORE, CorePolicy, Order, Server, Sets};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation, SHARE_QUANTUM};

use sets::{Set, Task};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Best effort's share, in thousandths.
const SHARE: u64 = 50;
/// Sets in all; `PROMISE_SETS` says otherwise.
const SETS: u64 = 50_000;

/// Index of a server policy in the core.
fn kind(name: &str) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == name).expect("registered") as u32
}

/// The threads of a set with their tasks, in the order in which the core has them.
fn threads(set: &Set) -> Vec<(usize, &Load)> {
    let of = |(i, task): (usize, &'_ Task)| (0..task.threads.len()).map(move |n| (i, n));
    let all = set.tasks.iter().enumerate().flat_map(of);
    all.map(|(i, n)| (i, &set.tasks[i].threads[n])).collect()
}

/// What happens when a set is played under `policy`, and when that ends, ns.
fn events(set: &Set, policy: &CorePolicy, detail: Detail) -> (Vec<Event>, u64) {
    let threads = threads(set);
    let room = threads.len() + set.best_effort;
    let queues = policy.order.domains(set.cpus, if set.cpus.is_multiple_of(2) { 2 } else { 1 });
    let mut core = Core::new(set.cpus, queues, SHARE as u32, SHARE_QUANTUM, room, 1 << 12);
    let all = u64::MAX >> (64 - set.cpus);
    // The first thread of a task carries its reservation, the others join it.
    let mut carrier = vec![None; set.tasks.len()];
    for (i, (of, _)) in threads.iter().enumerate() {
        core.init_task(i, set.tasks[*of].bound.unwrap_or(all), onbeat_sim::NICE_0);
        if let Some(first) = carrier[*of] {
            core.join(i, first);
            continue;
        }
        carrier[*of] = Some(i);
        let task = &set.tasks[*of];
        let fcbs = queues == set.cpus && set.fcbs == Some(task.home);
        let reservation = Reservation {
            budget: task.budget,
            period: task.period,
            deadline: task.period,
            cpus: task.at.map_or(all, |(cpus, _)| cpus),
            domain: task.home * queues / set.cpus,
            apart: task.at.is_some_and(|(_, apart)| apart),
            kind: kind(if fcbs { "fcbs" } else { policy.server.name() }),
            order: policy.order.number(),
            marks: task.marks,
            split: task.split.clone(),
        };
        core.reserve(i, &reservation);
        let user = set.users[*of];
        core.account(i, user, set.rates[user as usize]);
    }
    let mut loads: Vec<Load> = threads.iter().map(|(_, load)| (*load).clone()).collect();
    for i in 0..set.best_effort {
        core.init_task(threads.len() + i, all, onbeat_sim::NICE_0);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, set.cpus, loads, Overheads::default(), detail);
    let end = engine.run(0, set.until);
    (engine.finish(), end)
}

/// The greatest tardiness of a job of an honest task under `policy`, ns.
fn worst(set: &Set, policy: &CorePolicy) -> u64 {
    let threads = threads(set);
    let (events, end) = events(set, policy, Detail::Jobs);
    let mut next = vec![0; threads.len()];
    let mut worst = 0;
    for event in events.iter().filter(|e| e.kind() == Some(EventKind::Complete)) {
        let (i, job) = (event.task as usize, event.a as usize);
        next[i] = job + 1;
        let task = &set.tasks[threads[i].0];
        if task.honest {
            worst = worst.max(event.time.saturating_sub(task.due(job)));
        }
    }
    // What is not done at all by then counts, too.
    for ((of, load), job) in threads.into_iter().zip(next) {
        let (task, Load::Jobs { times, .. }) = (&set.tasks[of], load) else { continue };
        if task.honest && job < times.len() {
            worst = worst.max(end.saturating_sub(task.due(job)));
        }
    }
    worst
}

/// By how much honest tasks can be late under EDZL: edzl-tardiness.md in `analysis` proves it of reservations of one
/// thread.
fn proved(set: &Set, policy: &CorePolicy) -> Option<u64> {
    if policy.order.sets != Sets::Global
        || !policy.order.key.heeds_laxity()
        || set.tasks.iter().any(|t| t.threads.len() > 1 || t.at.is_some())
    {
        return None;
    }
    let tasks: Vec<_> = set.tasks.iter().map(|t| Sporadic::implicit(t.budget, t.period)).collect();
    let supply = Supply { budget: 1000 - SHARE, period: 1000, blackout: 3 * SHARE_QUANTUM };
    let early = if policy.server.lends() { u64::from(ffi::OB_MARGIN) } else { 0 };
    let bounds = edzl(&tasks, &vec![supply; set.cpus as usize], early)?;
    bounds.iter().zip(&set.tasks).filter(|(_, t)| t.honest).map(|(b, _)| *b).max()
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
fn play(seed: u64, sets: u64, make: impl Fn(u64) -> Set + Sync, policies: &[&CorePolicy]) -> Found {
    let next = AtomicU64::new(seed);
    let work = || {
        let mut found = Found::default();
        loop {
            let seed_of_set = next.fetch_add(1, Ordering::Relaxed);
            if seed_of_set >= seed + sets {
                return found;
            }
            let set = make(seed_of_set);
            for policy in policies {
                let late = worst(&set, policy);
                if let Some(most) = proved(&set, policy) {
                    assert!(late <= most, "{late} ns late, seed {seed_of_set} {}", policy.name);
                }
                found.broken += u64::from(late > 0);
                if late > found.worst {
                    found.worst = late;
                    found.place = format!("{}, seed {seed_of_set}", policy.name);
                    if std::env::var_os("PROMISE_SHOW").is_some() {
                        let least = sets::minimal(set.clone(), |set| worst(set, policy) > 0);
                        println!("{}: {} ns late, at least:\n{least:#?}", found.place, late);
                    }
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

/// The policies that isolate, of those whose order passes.
fn isolating(pass: impl Fn(Order) -> bool) -> Vec<&'static CorePolicy> {
    let all = CORE.iter().filter(|p| p.server.isolates() && p.order.isolates());
    all.filter(|p| pass(p.order)).collect()
}

/// Random sets, with or without equal periods and reservations of several threads.
fn whole(equal: bool, crowds: bool) -> impl Fn(u64) -> Set + Sync {
    move |seed| sets::whole(seed, equal, crowds)
}

fn named(name: &str) -> &'static CorePolicy {
    CORE.iter().find(|p| p.name == name).expect("a policy")
}

#[test]
fn no_owed_job_is_late_on_partitioned_cpus_whatever_the_neighbours_do() {
    let sets = sets();
    let policies = isolating(|order| order.sets == Sets::Partitioned && !order.splits());
    let found = play(0, sets / policies.len() as u64, whole(false, true), &policies);
    assert_eq!(found.broken, 0, "{} ns late under {}", found.worst, found.place);
}

#[test]
fn no_owed_job_is_late_where_reservations_that_keep_to_their_budgets_are_split() {
    for order in [Order::EDF_WM, Order::EDF_WMR] {
        let make = |seed| sets::split(seed, order == Order::EDF_WMR, false);
        let found = play(2_000_000, sets() / 100, make, &isolating(|o| o == order));
        assert_eq!(found.broken, 0, "{} ns late under {}", found.worst, found.place);
    }
    let parts = |seed| sets::split(seed, true, false).tasks.iter().any(|t| t.split.is_some());
    assert!((2_000_000..2_000_100).filter(|seed| parts(*seed)).count() > 30);
}

#[test]
fn no_owed_job_is_late_where_overruns_are_split() {
    for order in [Order::EDF_WM, Order::EDF_WMR] {
        let make = |seed| sets::split(seed, order == Order::EDF_WMR, true);
        let found = play(2_000_000, sets() / 20, make, &isolating(|o| o == order));
        assert_eq!(found.broken, 0, "{} ns late under {}", found.worst, found.place);
    }
}

#[test]
fn fcbs_as_published_breaks_the_promise_so_these_neighbours_are_hostile() {
    assert!(play(0, 500, whole(false, true), &[named("p-edf+fcbs")]).broken > 0);
}

#[test]
fn servers_do_not_isolate_in_rate_monotonic_order() {
    for server in Server::ALL.iter().filter(|s| s.isolates()) {
        let policy = named(&format!("rm+{}", server.name()));
        let found = play(3_000_000, 2000, whole(false, false), &[policy]);
        assert!(found.broken > 0 && !policy.order.isolates(), "{}", policy.name);
    }
}

#[test]
fn under_edzl_no_owed_job_is_late_for_equal_periods_nor_by_two_milliseconds_for_others() {
    // What is proved is more, and by far, for most sets; docs/slack.md says what more sets gave.
    under_edzl(sets() / 25, false);
}

#[test]
fn under_edzl_owed_jobs_of_long_sets_that_leave_three_in_a_hundred_are_in_time_to_a_millisecond() {
    // Some are late by more, with all reserved 3 of 1000 sets: docs/slack.md.
    for policy in isolating(|order| order.sets == Sets::Global && !order.key.ranks()) {
        let found = play(6_000_000, sets() / 200, sets::long, &[policy]);
        assert!(found.worst <= MS, "{} ns late under {}", found.worst, found.place);
    }
}

#[test]
fn under_edzl_nor_where_reservations_have_several_threads() {
    under_edzl(sets() / 25, true);
}

fn under_edzl(sets: u64, crowds: bool) {
    // Those that rank promise soft ones a bound (sim/tests/hsb.rs).
    for policy in isolating(|order| order.sets != Sets::Partitioned && !order.key.ranks()) {
        let equal = play(1_000_000, sets, whole(true, crowds), &[policy]);
        assert_eq!(equal.broken, 0, "{} ns late under {}, equal periods", equal.worst, equal.place);
        let any = play(1_000_000, sets, whole(false, crowds), &[policy]);
        assert!(any.worst <= 2 * MS, "{} ns late under {}", any.worst, any.place);
    }
}

#[test]
fn under_edzl_nor_where_some_may_use_some_cpus_only_and_others_bind_themselves() {
    for policy in isolating(|order| order.sets != Sets::Partitioned && !order.key.ranks()) {
        for (equal, most) in [(true, 0), (false, 2 * MS)] {
            let make = |seed| sets::bound(seed, policy.order, equal, true);
            let found = play(4_000_000, sets() / 50, make, &[policy]);
            assert!(found.worst <= most, "{} ns late under {}", found.worst, found.place);
        }
    }
}
