// SPDX-License-Identifier: GPL-2.0-only
//! The measure of the promise, tried: a server that gives each reservation its budget in each period leaves no owed job
//! late, whatever jobs ask for and whenever they come; and where nothing holds the others off, owed jobs are late.

use std::collections::BTreeMap;

use crate::common::{STEP, policies, policy};
use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::metrics::{Cause, Metrics, detailed, metrics, of_core};
use onbeat_model::policy::{CorePolicy, Order, Server};
use onbeat_model::run::{Class, Platform, Run, TaskInfo, World};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A task on a CPU of its own choice; times in steps.
#[derive(Debug, Clone)]
struct Task {
    budget: u64,
    period: u64,
    deadline: u64,
    cpu: u32,
    first: u64,
    /// Of each job: how much later it comes than a period after the one before, and its work.
    jobs: Vec<(u64, u64)>,
}

/// Plays the tasks beside one best-effort task; reservations stay on their CPUs where the policy is partitioned.
fn play(tasks: &[Task], cpus: u32, policy: &CorePolicy, extra: u64) -> Run {
    counted(tasks, cpus, policy, extra).0
}

/// As [`play`], with what the core has counted of each reservation.
fn counted(
    tasks: &[Task],
    cpus: u32,
    policy: &CorePolicy,
    extra: u64,
) -> (Run, Vec<ffi::ob_server>) {
    let domains = policy.order.domains(cpus, 1);
    let mut core = Core::new(cpus, domains, 0, 0, tasks.len() + 1, 1 << 14);
    let all = u64::MAX >> (64 - cpus);
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    let (mut loads, mut infos, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (i, task) in tasks.iter().enumerate() {
        let (budget, period) = (task.budget * STEP, task.period * STEP);
        core.init_task(i, all, onbeat_sim::NICE_0);
        core.reserve(
            i,
            &Reservation {
                budget,
                period,
                deadline: task.deadline.min(task.period) * STEP,
                cpus: all,
                domain: task.cpu * domains / cpus,
                kind: kind.unwrap() as u32,
                order: ffi::OB_ORDER_EDF,
                marks: false,
                apart: false,
                split: None,
            },
        );
        let late = |late: &mut u64, job: &(u64, u64)| {
            *late += job.0 * STEP;
            Some(*late)
        };
        let delays: Vec<u64> = task.jobs.iter().scan(0, late).collect();
        let (first, deadline) = (task.first * STEP, task.deadline * STEP);
        for (job, delay) in (0..).zip(&delays) {
            let time = first + job * period + delay;
            missing.push(Event::new(time, EventKind::Release, job, time + deadline).of(i as u32));
        }
        let times = task.jobs.iter().map(|job| job.1 * STEP + extra).collect();
        loads.push(Load::Jobs { first, period, delays, deadline, times, marks: false });
        infos.push(TaskInfo {
            name: format!("task-{i}"),
            entry: i as u32,
            copy: 0,
            class: Class::Reserved,
            period,
            deadline,
            budget,
            tid: 0,
        });
    }
    core.init_task(tasks.len(), all, onbeat_sim::NICE_0);
    loads.push(Load::Endless);
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::All);
    let horizon_ns = engine.run(0, missing.iter().map(|e| e.b).max().unwrap_or(0) + 30 * STEP);
    let counts = (0..tasks.len()).map(|i| *engine.core().server(i)).collect();
    let mut events = engine.finish();
    // Each job is released, whether its task got to it or not.
    events.retain(|e| e.kind() != Some(EventKind::Release));
    missing.retain(|e| e.time <= horizon_ns);
    events.extend(missing);
    let (world, policy, platform) = (World::Sim, policy.name.into(), Platform::default());
    let (tasks, resources, origin_ns) = (infos, Vec::new(), 0);
    let mut run = Run { world, policy, platform, tasks, resources, events, origin_ns, horizon_ns };
    run.sort_events();
    (run, counts)
}

/// One to four tasks on a CPU, whose budgets before their deadlines fill up to all of it.
fn cpu(cpu: u32, overrun: u64) -> impl Strategy<Value = Vec<Task>> {
    let job = (prop_oneof![Just(0u64), 0..40u64], 1..1000u64);
    let draft = (1..10u64, 20..100u64, 20..180u64, 0..100u64, vec(job, 1..25));
    vec(draft, 1..5).prop_map(move |drafts| {
        let weights: u64 = drafts.iter().map(|d| d.0).sum();
        let fill = |(weight, period, deadline, first, jobs): (u64, u64, u64, u64, Vec<_>)| {
            let budget = period.min(deadline) * weight / weights;
            let work =
                |(late, part): (u64, u64)| (late, (part * budget * overrun / 100_000).max(1));
            let jobs = jobs.into_iter().map(work).collect();
            Task { budget, period, deadline, cpu, first, jobs }
        };
        drafts.into_iter().map(fill).filter(|task| task.budget > 0).collect()
    })
}

fn owed_late(run: &Run) -> Result<Metrics, TestCaseError> {
    let (m, tasks) = detailed(run);
    prop_assert_eq!(m.anomalies, 0);
    prop_assert_eq!(m.owed, tasks.iter().map(|t| t.owed).sum::<u64>());
    prop_assert!(m.owed_late <= m.owed && m.owed_late <= m.misses && m.owed <= m.jobs);
    prop_assert_eq!(m.owed_late == 0, m.owed_tardiness_max_ms == 0.0);
    prop_assert_eq!(m.owed_late, 0, "{}", run.policy);
    Ok(m)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_owed_job_is_late_where_each_reservation_gets_its_budget(tasks in cpu(0, 300)) {
        for server in ["p-edf+cbs-hard", "p-edf+cbs"] {
            owed_late(&play(&tasks, 1, policy(server), 0))?;
        }
    }

    #[test]
    fn neither_are_they_on_several_cpus_each_with_its_own((a, b) in (cpu(0, 250), cpu(1, 250))) {
        owed_late(&play(&[a, b].concat(), 2, policy("p-edf+cbs-hard"), 0))?;
    }

    #[test]
    fn the_core_counts_what_the_events_tell(mut tasks in cpu(0, 120), name in 0..2usize) {
        // Its deadlines lie within the period.
        tasks.iter_mut().for_each(|task| task.deadline = task.deadline.min(task.period));
        let policy = policy(["p-edf+cbs-hard", "p-edf"][name]);
        let (mut run, counts) = counted(&tasks, 1, policy, 0);
        run.world = World::Live; // the core always allows for what a kernel does
        let (_, figures) = detailed(&run);
        for (figures, server) in figures.iter().zip(counts) {
            let count = [server.jobs, server.owed, server.owed_late];
            // To the core a job that begins when the one before ends is the same job.
            if count[0] == figures.released {
                prop_assert_eq!(count, [figures.jobs, figures.owed, figures.owed_late]);
            }
        }
    }

    #[test]
    fn jobs_within_their_budgets_are_all_owed_and_a_nanosecond_more_makes_none_of_it(tasks in cpu(0, 100)) {
        let tasks: Vec<Task> = tasks.into_iter().map(|mut t| {
            t.deadline = t.deadline.min(t.period);
            t.budget = t.budget.min(t.deadline);
            t.jobs.iter_mut().for_each(|job| job.1 = t.budget);
            t
        }).collect();
        let m = owed_late(&play(&tasks, 1, policy("p-edf+cbs-hard"), 0))?;
        prop_assert_eq!((m.owed, m.misses), (m.jobs, 0));
        // The first job of each task is beyond the budget, so it and what it delays are not owed.
        let m = owed_late(&play(&tasks, 1, policy("p-edf+cbs-hard"), 1))?;
        prop_assert!(m.owed + tasks.len() as u64 <= m.jobs);
    }
}

#[test]
fn the_core_blames_late_jobs_on_what_the_events_tell_in_nine_of_ten() {
    let numbers = [
        ffi::OB_CAUSE_BUDGET,
        ffi::OB_CAUSE_BLOCKED,
        ffi::OB_CAUSE_RESERVATION,
        ffi::OB_CAUSE_BEST_EFFORT,
        ffi::OB_CAUSE_REAL_TIME,
        ffi::OB_CAUSE_UNKNOWN,
    ];
    let names = numbers.map(|number| Cause::OF_CORE[number as usize].words());
    assert_eq!(
        names,
        [
            "budget spent",
            "blocked on its own",
            "another reservation",
            "best effort",
            "real-time class",
            "not known"
        ]
    );
    let mut runner = TestRunner::deterministic();
    let (mut told, mut alike) = (BTreeMap::new(), BTreeMap::new());
    for name in ["p-edf+cbs-hard", "p-edf+cbs", "p-edf"].repeat(600) {
        // Two CPUs' worth of budgets on one: others stand in the way, too.
        let tasks = (cpu(0, 120), cpu(0, 120)).new_tree(&mut runner).unwrap().current();
        let mut tasks = [tasks.0, tasks.1].concat();
        tasks.iter_mut().for_each(|task| task.deadline = task.deadline.min(task.period));
        let (run, counts) = counted(&tasks, 1, policy(name), 0);
        for (figures, server) in detailed(&run).1.iter().zip(counts) {
            // To the core a job that begins when the one before ends is the same job.
            if [server.jobs, server.misses] != [figures.released, figures.misses] {
                continue;
            }
            let core = of_core(&server.late_for);
            assert_eq!(core.values().sum::<u64>(), server.misses);
            for (cause, count) in &figures.late_causes {
                *told.entry(*cause).or_insert(0) += count;
                *alike.entry(*cause).or_insert(0) += core.get(cause).unwrap_or(&0).min(count);
            }
        }
    }
    for cause in [Cause::Budget, Cause::Reservation] {
        let (told, alike) = (told[&cause], alike[&cause]);
        assert!(told > 100 && alike * 10 >= told * 9, "{cause:?}: {alike} of {told}");
    }
}

#[test]
fn without_servers_an_overrun_makes_owed_jobs_of_others_late() {
    let task = |first, work| Task {
        budget: 40,
        period: 100,
        deadline: 100,
        cpu: 0,
        first,
        jobs: vec![(0, work); 20],
    };
    let tasks = [task(0, 90), task(10, 30)];
    for name in ["p-edf", "rm"] {
        let Some(policy) = policies(|p| p.name == name).next() else { continue };
        let m = metrics(&play(&tasks, 1, policy, 0));
        assert!(m.owed_late > 0 && m.owed_tardiness_max_ms > 0.0, "{name}: {m:?}");
    }
    let m = metrics(&play(&tasks, 1, policy("p-edf+cbs-hard"), 0));
    assert_eq!((m.owed, m.owed_late), (20, 0));
    assert!(m.misses > 10, "{m:?}");
    let none = policies(|p| p.order == Order::PARTITIONED_EDF && p.server == Server::None).count();
    assert_eq!(none, 1, "p-edf is what was tried");
}
