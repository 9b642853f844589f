// SPDX-License-Identifier: GPL-2.0-only
//! What schedulability tests say, tried: no set that one accepts misses a deadline under its policy, from the
//! synchronous release and from sporadic ones; what an exact test rejects does miss; no response and no tardiness
//! exceeds its bound.

use onbeat_analysis::plan::Split;
use onbeat_analysis::registry::{Answer, TESTS, Test, as_played};
use onbeat_analysis::semi::Share;
use onbeat_analysis::sporadic::{Sporadic, Verdict};
use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Sets in all; `ACCEPTED_SETS` says otherwise.
const SETS: u64 = 100_000;
/// A unit of time, ns: splits may be finer.
const UNIT: u64 = 120;
/// Periods, in units; they have a common multiple of 24.
const PERIODS: [u64; 6] = [3, 4, 6, 8, 12, 24];
const HYPERPERIOD: u64 = 24 * UNIT;

struct Random(ChaCha8Rng);

impl Random {
    fn of(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of 0..n.
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    /// Few CPUs, and tasks that nearly fill them or a little more.
    fn set(&mut self) -> (Vec<Sporadic>, usize) {
        let cpus = 1 + self.below(4) as usize;
        let (mut tasks, mut load) = (Vec::new(), 0.0);
        let most = cpus as f64 * (0.5 + 0.05 * self.below(12) as f64);
        let (constrained, relaxed) = (self.below(3) == 0, self.below(8) == 0);
        while load < most && tasks.len() < 9 {
            let period = PERIODS[self.below(6) as usize];
            let wcet = 1 + self.below(if cpus == 1 { period.div_ceil(2) } else { period });
            let deadline = match (constrained, relaxed) {
                (true, _) => wcet + self.below(period - wcet + 1),
                (_, true) => period + self.below(period),
                _ => period,
            };
            tasks.push(Sporadic {
                wcet: wcet * UNIT,
                deadline: deadline * UNIT,
                period: period * UNIT,
            });
            load += wcet as f64 / period as f64;
        }
        (tasks, cpus)
    }

    /// How late each job of a sporadic task is: it never comes early.
    fn delays(&mut self, jobs: u64) -> Vec<u64> {
        let mut late = self.below(24) * UNIT;
        let mut next = || {
            late += if self.below(3) == 0 { self.below(5 * UNIT) } else { 0 };
            late
        };
        (0..jobs).map(|_| next()).collect()
    }
}

/// How a test's algorithm runs.
struct World<'a> {
    tasks: &'a [Sporadic],
    cpus: usize,
    order: u32,
    kind: u32,
    /// Each task's CPU; one queue for all if there is none.
    homes: Option<Vec<usize>>,
    plan: Option<&'a [Vec<Share>]>,
    postponed: bool,
}

impl World<'_> {
    fn split(&self, shares: &[Share]) -> Option<Split> {
        let (window, postponed) = (shares[0].window, self.postponed);
        let parts = shares.iter().map(|share| (share.cpu as u32, share.wcet)).collect();
        (shares.len() > 1).then_some(Split { window, postponed, shares: parts })
    }

    /// Longest response of each task; jobs need all of their execution time, or where `early` says so as little as
    /// half.
    fn responses(&self, delays: &[Vec<u64>], early: Option<u64>) -> Vec<u64> {
        let mut early = early.map(Random::of);
        let mut time = |wcet: u64| match &mut early {
            Some(random) => wcet - random.below(wcet / 2 + 1),
            None => wcet,
        };
        let (cpus, n) = (self.cpus as u32, self.tasks.len());
        let local = self.homes.is_some();
        let mut core = Core::new(cpus, if local { cpus } else { 1 }, 0, 0, n, 0);
        let all = u64::MAX >> (64 - cpus);
        let mut loads = Vec::new();
        for (i, task) in self.tasks.iter().enumerate() {
            core.init_task(i, all, onbeat_sim::NICE_0);
            let reservation = Reservation {
                budget: task.wcet,
                period: task.period,
                // As the simulator and the service do it.
                deadline: task.deadline.min(task.period),
                cpus: all,
                domain: self.homes.as_ref().map_or(0, |homes| homes[i] as u32),
                kind: self.kind,
                order: self.order,
                marks: false,
                apart: false,
                split: self.plan.and_then(|plan| self.split(&plan[i])),
            };
            core.reserve(i, &reservation);
            loads.push(Load::Jobs {
                first: 0,
                period: task.period,
                delays: delays[i].clone(),
                deadline: task.deadline,
                times: (0..HYPERPERIOD / task.period).map(|_| time(task.wcet)).collect(),
                marks: false,
            });
        }
        let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::Jobs);
        engine.run(0, 40 * HYPERPERIOD);
        let (mut longest, mut jobs) = (vec![0; n], vec![0usize; n]);
        for event in engine.finish() {
            if event.kind() == Some(EventKind::Complete) {
                let i = event.task as usize;
                let job = jobs[i];
                let release =
                    job as u64 * self.tasks[i].period + delays[i].get(job).copied().unwrap_or(0);
                longest[i] = longest[i].max(event.time - release);
                jobs[i] += 1;
            }
        }
        for (i, task) in self.tasks.iter().enumerate() {
            assert_eq!(jobs[i] as u64, HYPERPERIOD / task.period, "all jobs end");
        }
        longest
    }
}

fn kind(name: &str) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == name).unwrap() as u32
}

/// The policy that a test speaks of, with every server that keeps its promise; none for what does not run here. (EDF
/// without a server takes a job that follows at once, at the very end of the one before, for a part of that.)
fn worlds<'a>(
    test: &Test,
    answer: &'a Answer,
    tasks: &'a [Sporadic],
    cpus: usize,
) -> Vec<World<'a>> {
    let one = |order, homes, plan, postponed, server: &str| World {
        tasks,
        cpus,
        order,
        kind: kind(server),
        homes,
        plan,
        postponed,
    };
    let edf = ffi::OB_ORDER_EDF;
    if let Some(plan) = &answer.plan {
        if !test.name.starts_with("edf-wm") {
            return Vec::new();
        }
        let homes = Some(plan.iter().map(|shares| shares[0].cpu).collect::<Vec<_>>());
        let world =
            |server| one(edf, homes.clone(), Some(&plan[..]), test.name == "edf-wmr", server);
        return ["cbs", "cbs-hard", "fcbs"].into_iter().map(world).collect();
    }
    if test.name.starts_with("p-edf") || test.name == "edf-qpa" {
        let homes = answer.cpus.clone().unwrap_or_else(|| vec![0; tasks.len()]);
        return ["cbs", "cbs-hard"]
            .into_iter()
            .map(|s| one(edf, Some(homes.clone()), None, false, s))
            .collect();
    }
    if test.name.starts_with("g-edf") {
        return vec![one(edf, None, None, false, "cbs")];
    }
    if test.name.contains("rm-") {
        return vec![one(ffi::OB_ORDER_RM, answer.cpus.clone(), None, false, "")];
    }
    Vec::new()
}

fn late(tasks: &[Sporadic], responses: &[u64]) -> bool {
    tasks.iter().zip(responses).any(|(task, response)| *response > task.deadline)
}

/// Tries all that the tests say about one set; returns how many of them accepted it.
fn try_set(seed: u64) -> usize {
    let mut random = Random::of(seed);
    let (tasks, cpus) = random.set();
    let none = vec![Vec::new(); tasks.len()];
    let delays: Vec<Vec<u64>> =
        tasks.iter().map(|task| random.delays(HYPERPERIOD / task.period)).collect();
    let mut accepted = 0;
    for test in TESTS.iter().filter(|test| !test.one_cpu || cpus == 1) {
        let played = as_played(test, &tasks);
        let answer = (test.run)(&played, cpus);
        // For deadlines beyond periods an overload may take longer than is looked at.
        let within = tasks.iter().all(|task| task.deadline <= task.period);
        let exact = matches!(test.name, "edf-qpa" | "rm-exact") && within;
        if answer.verdict == Verdict::Unschedulable && exact {
            for world in worlds(test, &answer, &tasks, cpus).iter().take(1) {
                assert!(
                    late(&tasks, &world.responses(&none, None)),
                    "{seed}: {} rejects {tasks:?}",
                    test.name
                );
            }
        }
        let bounded = answer.responses.is_some() || answer.tardiness.is_some();
        if answer.verdict != Verdict::Schedulable && !bounded {
            continue;
        }
        accepted += usize::from(answer.verdict == Verdict::Schedulable);
        for world in worlds(test, &answer, &tasks, cpus) {
            // What jobs leave others may get: that must not harm anybody either.
            for (releases, early) in [(&none, None), (&delays, None), (&delays, Some(seed))] {
                let got = world.responses(releases, early);
                let what = || {
                    format!(
                        "{seed}: {} with {} on {cpus}: {tasks:?} {got:?}",
                        test.name, world.kind
                    )
                };
                let accepts = answer.verdict == Verdict::Schedulable;
                assert!(!accepts || !late(&tasks, &got), "{}", what());
                for (i, task) in tasks.iter().enumerate() {
                    // A server that must wait for its next period answers later, once jobs are late.
                    let of = |bounds: &Vec<Option<u64>>| bounds[i].filter(|_| accepts);
                    let response = answer.responses.as_ref().and_then(of);
                    let tardy = answer.tardiness.as_ref().map(|bounds| bounds[i] + task.deadline);
                    for bound in [response, tardy].into_iter().flatten() {
                        assert!(got[i] <= bound, "{} {bound}", what());
                    }
                }
            }
        }
    }
    accepted
}

#[test]
fn what_tests_accept_is_in_time_and_what_exact_ones_reject_is_not() {
    let sets = std::env::var("ACCEPTED_SETS").map_or(SETS, |n| n.parse().expect("a number"));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let accepted: usize = std::thread::scope(|scope| {
        let work = |t| move || (t..sets).step_by(threads as usize).map(try_set).sum::<usize>();
        let all: Vec<_> = (0..threads).map(|t| scope.spawn(work(t))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).sum()
    });
    // Or nothing would have been tried.
    assert!(accepted as u64 > sets, "{accepted} acceptances in {sets} sets");
}
