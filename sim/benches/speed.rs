// SPDX-License-Identifier: GPL-2.0-only
//! How many jobs a second the simulator finishes on one core: 24 tasks on 4 CPUs, whose jobs stay within their budgets
//! or do not.
//!
//! Prints one JSON object: for each policy, each detail and each kind of jobs, jobs per second of CPU time, which on
//! a core of its own is a second of host time: the median and the best of several runs. An argument picks those whose
//! line contains it.

use onbeat_core::ffi;
use onbeat_model::event::Event;
use onbeat_model::metrics::metrics;
use onbeat_model::run::{Class, Platform, Run, TaskInfo, World};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation, SHARE_QUANTUM};
use rustix::time::{ClockId, clock_gettime};

const TASKS: usize = 24;
const CPUS: u32 = 4;
/// Jobs of each task; 1.2 million in all.
const JOBS: usize = 50_000;
const RUNS: usize = 5;

/// Random numbers the same on every machine (splitmix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }
}

/// Periods from 10 to 100 ms; budgets for 3 of the 4 CPUs; jobs take 97 % of their budget or, with overruns, 60 to
/// 120 %.
fn engine(kind: u32, detail: Detail, overruns: bool) -> Engine {
    let mut random = Random(1);
    let ring = if detail == Detail::All { 1 << 14 } else { 0 };
    let mut core = Core::new(CPUS, 1, 50, SHARE_QUANTUM, TASKS, ring);
    let mut loads = Vec::new();
    for i in 0..TASKS {
        let period = random.between(10_000_000, 100_000_000);
        let budget = period * 3 / TASKS as u64;
        core.init_task(i, (1 << CPUS) - 1, onbeat_sim::NICE_0);
        core.reserve(
            i,
            &Reservation {
                budget,
                period,
                deadline: period,
                cpus: (1 << CPUS) - 1,
                domain: 0,
                kind,
                order: ffi::OB_ORDER_EDF,
                marks: false,
                apart: false,
                split: None,
            },
        );
        let mut time = || match overruns {
            true => random.between(budget * 6 / 10, budget * 12 / 10),
            false => budget * 97 / 100,
        };
        let times = (0..JOBS).map(|_| time()).collect();
        let first = random.between(0, period);
        loads.push(Load::Jobs {
            first,
            period,
            delays: Vec::new(),
            deadline: period,
            times,
            marks: false,
        });
    }
    Engine::new(core, CPUS, loads, Overheads::default(), detail)
}

/// The run that these events are.
fn run(events: Vec<Event>, horizon_ns: u64) -> Run {
    let mut random = Random(1);
    let task = |i: usize| {
        let period = random.between(10_000_000, 100_000_000);
        TaskInfo {
            name: i.to_string(),
            entry: i as u32,
            copy: 0,
            class: Class::Reserved,
            period,
            deadline: period,
            budget: period * 3 / TASKS as u64,
            tid: 0,
        }
    };
    let tasks = (0..TASKS).map(task).collect();
    let (policy, platform, resources) = (String::new(), Platform::default(), Vec::new());
    Run { world: World::Sim, policy, platform, tasks, resources, events, origin_ns: 0, horizon_ns }
}

/// CPU time this thread has used, ns.
fn cpu_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn main() {
    // `cargo bench` adds arguments that mean nothing here.
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let policies = onbeat_core::server_policies();
    let mut rows = Vec::new();
    for (kind, server) in policies.iter().enumerate() {
        for (detail, name, overruns) in [
            (Detail::Counters, "counters, within budgets", false),
            (Detail::Counters, "counters", true),
            (Detail::Jobs, "jobs", true),
            (Detail::All, "all events", true),
            (Detail::All, "all events and metrics", true),
        ] {
            let policy = if server.is_empty() { "g-edf".into() } else { format!("g-edf+{server}") };
            if !format!("{policy}, {name}").contains(&wanted) {
                continue;
            }
            let mut rates: Vec<f64> = (0..RUNS)
                .map(|_| {
                    let mut engine = engine(kind as u32, detail, overruns);
                    let begin = cpu_time();
                    let end = engine.run(0, u64::MAX);
                    let completed = engine.completed;
                    let events = engine.finish();
                    if name.ends_with("metrics") {
                        std::hint::black_box(metrics(&run(events, end)));
                    } else {
                        std::hint::black_box(events);
                    }
                    assert_eq!(completed, (TASKS * JOBS) as u64, "{server}: every job ends");
                    completed as f64 / ((cpu_time() - begin) as f64 / 1e9)
                })
                .collect();
            rates.sort_by(f64::total_cmp);
            eprintln!("simulator: {policy}, {name}: {:.2} million jobs/s", rates[RUNS / 2] / 1e6);
            rows.push(serde_json::json!({
                "policy": policy, "detail": name, "jobs_per_s": rates[RUNS / 2],
                "jobs_per_s_best": rates[RUNS - 1],
            }));
        }
    }
    println!("{}", serde_json::json!({ "tasks": TASKS, "cpus": CPUS, "simulator": rows }));
}
