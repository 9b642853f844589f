// SPDX-License-Identifier: GPL-2.0-only
//! Orders that choose a set of jobs: DASA does what its author says, is EDF where all fit, and gets more value than EDF
//! where they do not.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const MS: u64 = 1_000_000;

/// Released at `first` and every `period` after that; each job needs `time` by `deadline` after its release and is
/// worth `value`. Its reservation is as it is.
#[derive(Clone, Copy)]
struct Task {
    first: u64,
    period: u64,
    deadline: u64,
    time: u64,
    value: u64,
    jobs: u64,
    cpus: u64,
}

/// One job: released at `first`, needs `time`, due at `due`, ms.
fn job(first: u64, time: u64, due: u64, value: u64) -> Task {
    let deadline = (due - first) * MS;
    let (first, time, period) = (first * MS, time * MS, 1000 * MS);
    Task { first, period, deadline, time, value, jobs: 1, cpus: u64::MAX }
}

/// What came of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// When each task's jobs ended, ns.
    ends: Vec<Vec<u64>>,
    /// Of all jobs that ended in time.
    value: u64,
    preemptions: Vec<u64>,
    migrations: Vec<u64>,
    /// How often there were too many.
    crowded: u64,
}

fn kind(server: &str) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == server).unwrap() as u32
}

fn reservation(task: &Task, order: u32, server: &str) -> Reservation {
    Reservation {
        budget: task.time,
        period: task.period,
        deadline: task.deadline,
        cpus: task.cpus,
        domain: 0,
        kind: kind(server),
        order,
        marks: true,
        apart: false,
        split: None,
    }
}

/// Plays `tasks` under `order`, in a group that has all of the CPU's time if `grouped`.
fn play(cpus: u32, tasks: &[Task], order: u32, server: &str, grouped: bool) -> Outcome {
    let all = u64::MAX >> (64 - cpus);
    let mut core = Core::new(cpus, 1, 0, MS, tasks.len(), 0);
    core.groups(usize::from(grouped));
    if grouped {
        let group = Task { period: MS, deadline: MS, time: MS, cpus: all, ..tasks[0] };
        core.group(tasks.len(), &reservation(&group, ffi::OB_ORDER_EDF, "cbs"), None);
    }
    let mut loads = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        core.init_task(i, task.cpus & all, NICE_0);
        match grouped {
            true => core.reserve_in(i, &reservation(task, order, server), tasks.len()),
            false => core.reserve(i, &reservation(task, order, server)),
        }
        core.value(i, task.value);
        let Task { first, period, deadline, time, jobs, .. } = *task;
        let times = vec![time; jobs as usize];
        loads.push(Load::Jobs { first, period, delays: vec![], deadline, times, marks: true });
    }
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::Jobs);
    engine.run(0, 3_600_000 * MS);
    let crowded = engine.core().crowded();
    let mut ends = vec![Vec::new(); tasks.len()];
    let (mut preemptions, mut migrations) = (vec![0; tasks.len()], vec![0; tasks.len()]);
    for event in engine.finish() {
        let of = event.task as usize;
        match event.kind() {
            Some(EventKind::Complete) => ends[of].push(event.time),
            Some(EventKind::Usage) => {
                (preemptions[of], migrations[of]) = (event.b >> 32, event.b & 0xFFFF_FFFF);
            }
            _ => {}
        }
    }
    let in_time = |(task, ends): (&Task, &Vec<u64>)| {
        let due = |i: usize| task.first + i as u64 * task.period + task.deadline;
        task.value * ends.iter().enumerate().filter(|(i, end)| **end <= due(*i)).count() as u64
    };
    let value = tasks.iter().zip(&ends).map(in_time).sum();
    Outcome { ends, value, preemptions, migrations, crowded }
}

const DASA: u32 = ffi::OB_ORDER_DASA;
const EDF: u32 = ffi::OB_ORDER_EDF;

/// Ends of single jobs, ms.
fn ends(outcome: &Outcome) -> Vec<u64> {
    outcome.ends.iter().map(|ends| ends[0] / MS).collect()
}

/// Values 6, 9 and 4 for 3, 3 and 4 ms. The second yields most, 3 for a ms; the first, 2 for a ms, would make it late:
/// 3 + 3 > 5. The third ends at 7, in time.
const OVERLOAD: [(u64, u64, u64, u64); 3] = [(0, 3, 4, 6), (0, 3, 5, 9), (0, 4, 8, 4)];

fn overload() -> Vec<Task> {
    OVERLOAD.iter().map(|(first, time, due, value)| job(*first, *time, *due, *value)).collect()
}

#[test]
fn dasa_leaves_out_what_would_make_a_job_late_that_yields_more() {
    for grouped in [false, true] {
        let dasa = play(1, &overload(), DASA, "", grouped);
        assert_eq!((ends(&dasa), dasa.value), (vec![10, 3, 7], 13), "grouped: {grouped}");
        // By deadline the first is in time, and both others are late.
        let edf = play(1, &overload(), EDF, "", grouped);
        assert_eq!((ends(&edf), edf.value), (vec![3, 6, 10], 6), "grouped: {grouped}");
    }
}

#[test]
fn dasa_chooses_anew_when_a_job_comes() {
    // At 1 ms a job of 1 ms that is worth 20, due at 2: the second job still ends by 5, the third by 8.
    let mut tasks = overload();
    tasks.push(job(1, 1, 2, 20));
    for grouped in [false, true] {
        let dasa = play(1, &tasks, DASA, "", grouped);
        assert_eq!((ends(&dasa), dasa.value), (vec![11, 4, 8, 2], 33), "grouped: {grouped}");
    }
    // Worth 1, it is left out: 1 + 1 + 2 + 4 = 8 would do for all, yet 3 for a ms, due at 4, would not.
    tasks[1] = job(0, 3, 3, 9);
    tasks[3] = job(1, 1, 2, 1);
    let dasa = play(1, &tasks, DASA, "", false);
    assert_eq!((ends(&dasa)[1], ends(&dasa)[2], dasa.value), (3, 7, 13));
}

#[test]
fn a_job_is_worth_its_budget_where_nobody_says() {
    // Densities are equal until one has run: who is in the plan first, by deadline, stays.
    let mut core = Core::new(1, 1, 0, MS, 1, 0);
    core.init_task(0, 1, NICE_0);
    core.reserve(0, &reservation(&job(0, 3, 9, 0), DASA, ""));
    assert_eq!(core.server(0).value, 3 * MS);
}

#[test]
fn on_two_cpus_who_is_to_run_and_runs_stays_where_it_is() {
    // The first and the second run. Left out, for it can only be late, is the second when the third comes, whose
    // deadline is before the first's.
    let tasks = [job(0, 50, 200, 500), job(0, 60, 50, 1), job(10, 20, 40, 100)];
    let dasa = play(2, &tasks, DASA, "", false);
    assert_eq!(ends(&dasa), [50, 80, 30]);
    assert_eq!(dasa.preemptions, [0, 1, 0]);
    assert_eq!(dasa.migrations, [0, 0, 0]);
}

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0.next_u64() % most
    }
}

/// Tasks that load `cpus` CPUs to `percent` of them at most, nearly. No two periods are multiples of each other, so
/// that hardly any two things happen at once.
fn tasks(seed: u64, cpus: u32, percent: u64) -> Vec<Task> {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    let n = u64::from(cpus) * (2 + random.below(6)) + 1;
    let weights: Vec<u64> = (0..n).map(|_| 1 + random.below(20)).collect();
    let sum: u64 = weights.iter().sum();
    let mut task = |weight: u64| {
        let period = (5 + random.below(95)) * MS + random.below(MS);
        // No task needs more than nine tenths of a CPU.
        let share = (weight * percent * u64::from(cpus) * 1000 / sum / 100).min(900);
        let time = (period * share / 1000).max(1);
        let density = 1 + random.below(100);
        Task {
            first: random.below(20 * MS),
            period,
            deadline: period,
            time,
            value: density * time,
            jobs: 2000 * MS / period,
            cpus: u64::MAX,
        }
    };
    weights.into_iter().map(&mut task).collect()
}

#[test]
fn where_all_jobs_can_be_in_time_on_one_cpu_dasa_is_edf() {
    for seed in 0..300 {
        let tasks = tasks(seed, 1, 100);
        for server in ["", "cbs", "cbs-hard"] {
            let [edf, dasa] = [EDF, DASA].map(|order| play(1, &tasks, order, server, false));
            assert_eq!(edf, dasa, "seed {seed} {server:?}");
            let in_time: u64 = tasks.iter().map(|t| t.value * t.jobs).sum();
            assert_eq!(dasa.value, in_time, "seed {seed} {server:?}");
        }
    }
}

#[test]
fn in_overload_dasa_gets_at_least_the_value_that_edf_gets() {
    for cpus in [1, 2, 4] {
        let (mut sums, mut less, mut worst) = ([0, 0], Vec::new(), 1.0_f64);
        for seed in 0..200 {
            let tasks = tasks(1000 + seed, cpus, 150);
            let [edf, dasa] = [EDF, DASA].map(|order| play(cpus, &tasks, order, "", false).value);
            sums = [sums[0] + edf, sums[1] + dasa];
            if dasa < edf {
                less.push(seed);
            }
            worst = worst.min(dasa as f64 / edf.max(1) as f64);
        }
        println!(
            "{cpus}: {:.2} times, less in {less:?}, {worst:.2}",
            sums[1] as f64 / sums[0] as f64
        );
        assert!(less.is_empty(), "{cpus} CPUs");
    }
}

/// Jobs that come within 50 ms, one of each task, and ask for half as much again as there is until their deadlines.
fn burst(seed: u64, cpus: u32) -> Vec<Task> {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    let n = 6 * u64::from(cpus) + random.below(10);
    let mean = 150 * MS * u64::from(cpus) / n;
    let one = |_| {
        let time = 1 + random.below(2 * mean);
        let (first, value) = (random.below(50 * MS), (1 + random.below(100)) * time);
        let deadline = time + random.below(50 * MS);
        Task { first, period: 1000 * MS, deadline, time, value, jobs: 1, cpus: u64::MAX }
    };
    (0..n).map(one).collect()
}

#[test]
fn in_a_burst_as_well_but_for_one_in_fifty_and_more_than_half_as_much_again_in_all() {
    for cpus in [1, 2, 4] {
        let (mut sums, mut less) = ([0, 0], 0);
        for seed in 0..500 {
            let tasks = burst(seed, cpus);
            let [edf, dasa] = [EDF, DASA].map(|order| play(cpus, &tasks, order, "", false).value);
            sums = [sums[0] + edf, sums[1] + dasa];
            less += u32::from(dasa < edf);
        }
        let gain = sums[1] as f64 / sums[0] as f64;
        println!("{cpus}: {gain:.2} times, less in {less} of 500");
        assert!(less <= 10, "{cpus} CPUs: less in {less}");
        assert!(gain >= 1.5, "{cpus} CPUs: {gain}");
    }
}

#[test]
fn more_jobs_than_it_can_choose_from_go_by_deadline_and_are_counted() {
    for (n, crowded) in [(64, false), (65, true)] {
        // One that yields much, and many that are due before it and fit if it waits.
        let mut tasks: Vec<Task> = (1..n).map(|i| job(0, 1, 100 + i, 1)).collect();
        tasks.push(job(0, 300, 300, 1_000_000));
        let dasa = play(1, &tasks, DASA, "", false);
        assert_eq!(dasa.crowded > 0, crowded);
        let last = dasa.ends[n as usize - 1][0];
        assert_eq!(last <= 300 * MS, !crowded, "{n} jobs: {last}");
        // By deadline until the queue has shortened to what can be chosen from.
        assert!(!crowded || dasa.ends[0][0] == MS);
    }
}
