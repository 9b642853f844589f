// SPDX-License-Identifier: GPL-2.0-only
//! Random systems, and how every policy of the registry plays them.

#![allow(dead_code)] // each test program uses its own part

pub mod oracle;
pub mod replay;
pub mod rhythm;
pub mod scene;
pub mod shell;

use std::fmt;

use onbeat_model::event::{Event, EventKind};
use onbeat_model::numbers;
use onbeat_model::policy::{CORE, CorePolicy, Key, Order};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation, SHARE_QUANTUM};
use proptest::collection::vec;
use proptest::prelude::*;

/// Times of the random systems are multiples of this, ns.
pub const STEP: u64 = 100_000;
/// A reservation of CPU 0, its number that of the domain; times in ns.
pub fn reservation(budget: u64, period: u64, kind: u32, order: u32) -> Reservation {
    Reservation {
        budget,
        period,
        deadline: period,
        cpus: 1,
        domain: 0,
        kind,
        order,
        marks: false,
        apart: false,
        split: None,
    }
}

/// A periodic task; times in ns.
#[derive(Clone)]
pub struct Task {
    pub first: u64,
    pub period: u64,
    pub deadline: u64,
    pub budget: Option<u64>,
    /// CPUs it may use; `home` is one of them.
    pub cpus: u64,
    /// The CPU whose domain it belongs to.
    pub home: u32,
    pub marks: bool,
    /// Execution times of its jobs, one after the other.
    pub times: Vec<u64>,
}

impl fmt::Debug for Task {
    /// On one line, in milliseconds, as counterexamples are read by people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        let runs = self.times.chunk_by(|a, b| a == b);
        let works: Vec<String> = runs.map(|r| format!("{}x{}", r.len(), ms(r[0]))).collect();
        write!(f, "{:?} in {} from {}, ", self.budget.map(ms), ms(self.period), ms(self.first))?;
        write!(f, "D {}, CPUs {:b}, home {}, ", ms(self.deadline), self.cpus, self.home)?;
        write!(f, "marks {}, works {}", self.marks, works.join(" "))
    }
}

impl Task {
    /// Budget over period.
    pub fn utilization(&self) -> f64 {
        self.budget.unwrap_or(0) as f64 / self.period as f64
    }

    /// Whether no job needs more than its reservation.
    pub fn keeps_its_budget(&self) -> bool {
        self.times.iter().all(|time| Some(*time) <= self.budget)
    }
}

/// A system.
#[derive(Debug, Clone)]
pub struct Case {
    pub cpus: u32,
    /// Best-effort share of every CPU, in thousandths.
    pub permille: u32,
    /// Number of CPU-bound tasks.
    pub best_effort: usize,
    pub tasks: Vec<Task>,
    /// When to stop at the latest, ns.
    pub most: u64,
}

/// What came of it.
pub struct Played {
    pub events: Vec<Event>,
    pub horizon: u64,
}

impl Played {
    /// Finishing times of a task's jobs, by their number.
    pub fn finishes(&self, task: usize) -> Vec<u64> {
        let of = |e: &&Event| e.kind() == Some(EventKind::Complete) && e.task as usize == task;
        self.events.iter().filter(of).map(|e| e.time).collect()
    }

    /// Greatest tardiness of a task's finished jobs, ns.
    pub fn tardiness(&self, index: usize, task: &Task) -> u64 {
        let due = |job: u64| task.first + job * task.period + task.deadline;
        let late = (0..).zip(self.finishes(index)).map(|(job, end)| end.saturating_sub(due(job)));
        late.max().unwrap_or(0)
    }
}

/// The number of queues `order` has on `cpus` CPUs: clusters of two where that goes.
pub fn domains(order: Order, cpus: u32) -> u32 {
    order.domains(cpus, if cpus.is_multiple_of(2) { cpus / 2 } else { 1 })
}

/// The queue that CPU `cpu` belongs to.
pub fn domain_of(order: Order, cpus: u32, cpu: u32) -> u32 {
    cpu * domains(order, cpus) / cpus
}

/// How far past its next deadline (ns) a server may be that keeps its deadlines: 5 ms where nobody
/// should be late, else 10 s.
pub fn late_kept(policy: &CorePolicy, cpus: u32) -> u64 {
    let alone = domains(policy.order, cpus) == cpus;
    match policy.order.key {
        Key::Edzl => numbers::LATE_ISOLATED,
        Key::Edf if alone => numbers::LATE_ISOLATED,
        _ => 10_000_000_000,
    }
}

/// Plays `case` under `policy` without overheads.
pub fn play(case: &Case, policy: &CorePolicy) -> Played {
    let room = case.tasks.len() + case.best_effort;
    let queues = domains(policy.order, case.cpus);
    let mut core = Core::new(case.cpus, queues, case.permille, SHARE_QUANTUM, room, 1 << 14);
    let all = u64::MAX >> (64 - case.cpus);
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    let mut loads = Vec::new();
    for (i, task) in case.tasks.iter().enumerate() {
        core.init_task(i, task.cpus & all, onbeat_sim::NICE_0);
        if let Some(budget) = task.budget {
            let reservation = Reservation {
                budget,
                period: task.period,
                deadline: task.deadline,
                cpus: task.cpus & all,
                domain: domain_of(policy.order, case.cpus, task.home),
                kind: kind.unwrap() as u32,
                order: policy.order.number(),
                marks: task.marks,
                apart: false,
                split: None,
            };
            core.reserve(i, &reservation);
        }
        loads.push(Load::Jobs {
            first: task.first,
            period: task.period,
            delays: Vec::new(),
            deadline: task.deadline,
            times: task.times.clone(),
            marks: task.marks && task.budget.is_some(),
        });
    }
    for i in 0..case.best_effort {
        core.init_task(case.tasks.len() + i, all, onbeat_sim::NICE_0);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, case.cpus, loads, Overheads::default(), Detail::All);
    let horizon = engine.run(0, case.most);
    Played { events: engine.finish(), horizon }
}

/// The policies whose name passes.
pub fn policies(pass: impl Fn(&CorePolicy) -> bool) -> impl Iterator<Item = &'static CorePolicy> {
    CORE.iter().filter(move |policy| pass(policy))
}

/// A policy by its name.
pub fn policy(name: &str) -> &'static CorePolicy {
    CORE.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no policy {name}"))
}

/// What random systems are like.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub cpus: (u32, u32),
    /// Load of each CPU by reservations, in per cent, at most.
    pub load: u64,
    /// Jobs take up to this many per cent of their budget.
    pub overrun: u64,
    pub permille: u32,
    pub best_effort: (usize, usize),
    /// Some tasks may use a part of the CPUs only.
    pub affinity: bool,
    /// Some tasks have no reservation.
    pub unreserved: bool,
    /// Some mark their jobs.
    pub marks: bool,
}

/// Everything at once.
pub const ANYTHING: Kind = Kind {
    cpus: (1, 4),
    load: 100,
    overrun: 200,
    permille: 0,
    best_effort: (0, 3),
    affinity: true,
    unreserved: true,
    marks: true,
};

/// Random systems of a kind. Every CPU is home to one to four tasks, whose budgets fill up to
/// `load` per cent of it.
pub fn systems(kind: Kind) -> impl Strategy<Value = Case> {
    let (low, high) = kind.cpus;
    (low..=high)
        .prop_flat_map(move |cpus| {
            let hogs = kind.best_effort.0..=kind.best_effort.1;
            (vec(home(kind, cpus), cpus as usize), hogs, 0..=kind.load)
        })
        .prop_map(move |(homes, best_effort, less)| {
            let cpus = homes.len() as u32;
            // Half of the systems are as full as can be.
            let load = if less % 2 == 0 { kind.load } else { less };
            let place = |(cpu, drafts): (usize, Vec<Draft>)| settle(kind, load, cpu as u32, drafts);
            let tasks: Vec<Task> = homes.into_iter().enumerate().flat_map(place).collect();
            let last = tasks.iter().map(|t| t.first + t.period * t.times.len() as u64).max();
            let most = 2 * last.unwrap_or(0) + 50_000_000;
            Case { cpus, permille: kind.permille, best_effort, tasks, most }
        })
}

/// What a task is made of: weight in its CPU's load, period and offset in steps, works in
/// thousandths, CPUs, and whether it has a reservation and marks jobs.
type Draft = (u64, u64, u64, Vec<u64>, u64, bool, bool);

fn home(kind: Kind, cpus: u32) -> impl Strategy<Value = Vec<Draft>> {
    let all = u64::MAX >> (64 - cpus);
    let mask =
        if kind.affinity { prop_oneof![Just(all), 0..=all].boxed() } else { Just(all).boxed() };
    // Not of probability 0: shrinking would try it all the same.
    let some = |wanted: bool, p| match wanted {
        true => prop::bool::weighted(p).boxed(),
        false => Just(false).boxed(),
    };
    let reserved = some(kind.unreserved, 0.1).prop_map(|unreserved| !unreserved);
    let marks = some(kind.marks, 0.2);
    let draft = (1..10u64, 20..400u64, 0..400u64, vec(1..=1000u64, 1..8), mask, reserved, marks);
    vec(draft, 1..=4)
}

fn settle(kind: Kind, load: u64, cpu: u32, drafts: Vec<Draft>) -> Vec<Task> {
    const SPAN: u64 = 2_000; // steps in which jobs are released
    let weights: u64 = drafts.iter().map(|d| d.0).sum();
    let mut tasks = Vec::new();
    for (weight, period, offset, works, mask, reserved, marks) in drafts {
        // Rounded down: together they never ask for more than the load.
        let budget = (period * load * weight / weights / 100).min(period - 1);
        if budget == 0 {
            continue;
        }
        let jobs = (SPAN - offset) / period;
        let work = |w: u64| (w * budget * kind.overrun / 100_000).max(1) * STEP;
        tasks.push(Task {
            first: offset * STEP,
            period: period * STEP,
            deadline: period * STEP,
            budget: reserved.then_some(budget * STEP),
            cpus: mask | 1 << cpu,
            home: cpu,
            marks,
            times: works.iter().cycle().take(jobs as usize).map(|w| work(*w)).collect(),
        });
    }
    tasks
}
