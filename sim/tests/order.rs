// SPDX-License-Identifier: GPL-2.0-only
//! Who runs when and where, whatever the policy.

use crate::common::replay::{View, audit, replay};
use crate::common::{self, ANYTHING, Case, Kind, Task, play, policies, systems};
use onbeat_model::event::EventKind;
use onbeat_model::others::Others;
use onbeat_model::policy::{CorePolicy, Key, Server};
use onbeat_model::run::Run;
use onbeat_model::taskset::{BestEffort, Kernel, Overheads, TaskEntry, TaskSet, Work};
use onbeat_model::units::Fraction;
use onbeat_sim::simulate;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Checks a claim at every moment of `case` under every policy that passes.
fn at_every_moment(
    case: &Case,
    pass: impl Fn(&CorePolicy) -> bool,
    claim: impl Fn(&View) -> Result<(), String>,
) -> Result<(), TestCaseError> {
    for policy in policies(pass) {
        let played = play(case, policy);
        replay(case, policy, &played, &claim).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

/// With the best-effort share, which goes before any order.
const SHARED: Kind = Kind { permille: 50, ..ANYTHING };

/// As [`at_every_moment`], with budgets and deadlines.
fn in_account(
    case: &Case,
    pass: impl Fn(&CorePolicy) -> bool,
    claim: impl Fn(&View) -> Result<(), String>,
) -> Result<(), TestCaseError> {
    for policy in policies(pass) {
        let played = play(case, policy);
        audit(case, policy, &played, &claim).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

/// Whether servers give budget to others.
fn passes_on(policy: &CorePolicy) -> bool {
    matches!(policy.server, Server::Fcbs | Server::FcbsLag)
}

/// Whether spent servers go on uncharged, where there is slack or behind all others, which the log does not show;
/// `promise` tries these.
fn lends(policy: &CorePolicy) -> bool {
    policy.server.lends() || policy.server == Server::Cash
}

/// Whether deadline or period is all that decides; zero laxity, which EDZL puts first, when a server took up its job,
/// which FIFO goes by, and what is chosen are known to the core only.
fn ordered(policy: &CorePolicy) -> bool {
    let key = policy.order.key;
    !key.heeds_laxity() && !key.chooses() && key != Key::Fifo
}

fn nobody_later_runs(view: &View) -> Result<(), String> {
    for i in (0..view.tasks.len()).filter(|i| view.waits(*i) && view.reserved(*i)) {
        for (cpu, runs) in view.cpus.iter().enumerate() {
            let Some(other) = *runs else { continue };
            let may = view.cpus_of(i) >> cpu & 1 == 1;
            if may && (!view.reserved(other) || view.key(other) > view.key(i)) {
                let (policy, now) = (view.policy.name, view.now);
                return Err(format!("{policy} at {now}: {i} waits, {other} runs on {cpu}"));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_log_is_well_formed_on_allowed_cpus_one_at_a_time(case in systems(SHARED)) {
        at_every_moment(&case, |_| true, |_| Ok(()))?;
    }

    #[test]
    fn every_budget_in_the_log_is_what_the_rules_of_the_cbs_give(case in systems(SHARED)) {
        in_account(&case, |p| !passes_on(p) && !lends(p), |_| Ok(()))?;
    }

    #[test]
    fn every_budget_in_the_log_is_what_the_rules_of_fcbs_give(case in systems(SHARED)) {
        in_account(&case, passes_on, |_| Ok(()))?;
    }

    #[test]
    fn no_cpu_idles_while_a_task_waits_that_may_run_there(case in systems(SHARED)) {
        at_every_moment(&case, |_| true, |view| {
            for i in (0..view.tasks.len()).filter(|i| view.waits(*i)) {
                for (cpu, runs) in view.cpus.iter().enumerate() {
                    if runs.is_none() && view.cpus_of(i) >> cpu & 1 == 1 {
                        return Err(format!("{} at {}: {cpu} idles, {i} waits", view.policy.name, view.now));
                    }
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn nobody_waits_for_a_task_of_later_deadline_or_longer_period(case in systems(ANYTHING)) {
        in_account(&case, |p| ordered(p) && !passes_on(p) && !lends(p), nobody_later_runs)?;
    }

    #[test]
    fn nobody_waits_for_a_later_deadline_either_where_deadlines_are_borrowed(
        case in systems(Kind { affinity: false, marks: false, ..ANYTHING })
    ) {
        in_account(&case, |p| ordered(p) && passes_on(p), nobody_later_runs)?;
    }

    #[test]
    fn a_borrowed_deadline_preempts_on_any_cpu(case in systems(ANYTHING)) {
        in_account(&case, |p| ordered(p) && passes_on(p), nobody_later_runs)?;
    }

    #[test]
    fn best_effort_never_runs_before_a_reservation_outside_its_share(case in systems(SHARED)) {
        at_every_moment(&case, |_| true, |view| {
            for i in (0..case.tasks.len()).filter(|i| view.waits(*i) && view.reserved(*i)) {
                for (cpu, runs) in view.cpus.iter().enumerate() {
                    let other = runs.is_some_and(|o| !view.reserved(o)) && !view.share[cpu];
                    if other && view.cpus_of(i) >> cpu & 1 == 1 {
                        return Err(format!("{} at {}: {i} waits", view.policy.name, view.now));
                    }
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn jobs_end_in_their_order_never_before_release_and_work_and_take_just_that(case in systems(SHARED)) {
        for policy in policies(|_| true) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate() {
                let (mut before, mut done) = (0, 0);
                for (job, end) in played.finishes(i).into_iter().enumerate() {
                    let begin = before.max(task.first + job as u64 * task.period);
                    prop_assert!(end >= begin + task.times[job], "{}: {i}, job {job}", policy.name);
                    before = end;
                    done += task.times[job];
                }
                let used = played.events.iter().find(|e| {
                    e.kind() == Some(EventKind::Usage) && e.task as usize == i
                });
                let (used, jobs) = (used.unwrap().a, played.finishes(i).len());
                let next = task.times.get(jobs).copied().unwrap_or(0);
                prop_assert!((done..=done + next).contains(&used), "{}: {i}", policy.name);
            }
        }
    }

    #[test]
    fn the_same_system_gives_the_same_run(case in systems(SHARED)) {
        for policy in policies(|_| true) {
            prop_assert_eq!(play(&case, policy).events, play(&case, policy).events);
        }
        // The way from a task-set file, with random work and overheads.
        let set = set_of(&case);
        for policy in policies(|_| true) {
            let bytes = |run: Run| {
                let mut out = Vec::new();
                run.write_to(&mut out).map(|()| out).unwrap()
            };
            prop_assert_eq!(bytes(simulate(&set, policy).unwrap()), bytes(simulate(&set, policy).unwrap()));
        }
    }
}

fn set_of(case: &Case) -> TaskSet {
    let entry = |(i, task): (usize, &common::Task)| TaskEntry {
        name: format!("task{i}"),
        count: 1,
        period: task.period,
        deadline: task.deadline,
        budget: task.budget,
        offset: task.first,
        stagger: 0,
        affinity: Some((0..case.cpus).filter(|c| task.cpus >> c & 1 == 1).collect()),
        marks: task.marks,
        user: None,
        value: None,
        class: None,
        group: None,
        purse: None,
        threads: 1,
        sections: Vec::new(),
        abort: false,
        frames: None,
        set: None,
        bound: None,
        waits: Default::default(),
        work: Work::Uniform(task.times[0] / 2, task.times[0]),
    };
    TaskSet {
        name: "random".into(),
        title: String::new(),
        cpus: case.cpus,
        duration: 200_000_000,
        seed: 1,
        policies: Vec::new(),
        best_effort_share: Fraction::new(1, 20),
        max_share: None,
        clusters: 1,
        kernel: Kernel::Plain,
        overheads: Overheads {
            dispatch: 3_000,
            preemption: 1_000,
            migration: 2_000,
            ..Overheads::default()
        },
        groups: Vec::new(),
        purses: Vec::new(),
        resources: Vec::new(),
        loads: Vec::new(),
        sets: Vec::new(),
        tasks: case.tasks.iter().filter(|t| !t.times.is_empty()).enumerate().map(entry).collect(),
        best_effort: Some(BestEffort {
            count: case.best_effort as u32,
            nice: 0,
            baseline: None,
            order: Others::default(),
            servers: None,
            group: None,
            generators: None,
        }),
    }
}

#[test]
fn who_waits_behind_a_job_that_never_ends_gets_a_turn_every_few_seconds() {
    // On one CPU, where neither a budget nor a later deadline makes the first one give way.
    let task = |period, work| Task {
        first: 0,
        period: period * MS,
        deadline: period * MS,
        budget: Some(MS),
        cpus: 1,
        home: 0,
        marks: false,
        times: vec![work * MS],
    };
    let case = Case {
        cpus: 1,
        permille: 0,
        best_effort: 0,
        tasks: vec![task(10, 60_000), task(20, 30)],
        most: 60_000 * MS,
    };
    for policy in policies(|p| p.name == "g-edf" || p.name == "rm" || p.name == "rm+cbs") {
        let played = play(&case, policy);
        let ran: Vec<u64> = played
            .events
            .iter()
            .filter(|e| e.task == 1 && e.kind() == Some(EventKind::Run))
            .map(|e| e.time)
            .collect();
        // 30 ms in turns of 4 ms.
        assert_eq!(ran.len(), 8, "{}: {ran:?}", policy.name);
        assert!(ran.windows(2).all(|w| w[1] - w[0] < 3_100 * MS), "{}: {ran:?}", policy.name);
    }
}
