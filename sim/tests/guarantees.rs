// SPDX-License-Identifier: GPL-2.0-only
//! What theorems promise, tried on random systems: isolation, optimality, bounded tardiness, and
//! the share of best-effort work.

use crate::common::{ANYTHING, Case, Kind, Task, play, policies, policy, systems};
use onbeat_model::event::EventKind;
use onbeat_model::policy::{Order, Server};
use onbeat_sim::SHARE_LAG;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Full CPUs of reservations only, which keep to their budgets.
const EXACT: Kind = Kind {
    overrun: 100,
    best_effort: (0, 0),
    affinity: false,
    unreserved: false,
    marks: false,
    ..ANYTHING
};

/// Every other task overruns; the others keep to their budgets.
fn half_overrun(mut case: Case) -> Case {
    for task in case.tasks.iter_mut().skip(1).step_by(2) {
        task.times.iter_mut().for_each(|time| *time *= 4);
    }
    case
}

/// Budgets are what jobs need, and every job needs all of it.
fn always_full(mut case: Case) -> Case {
    for task in &mut case.tasks {
        task.times.iter_mut().for_each(|time| *time = task.budget.unwrap());
    }
    case
}

/// Whether earlier deadlines go first.
fn by_deadline(order: Order) -> bool {
    order.key.goes_by_deadlines()
}

proptest! {
    #[test]
    fn who_keeps_to_his_budget_never_misses_beside_overruns_on_partitioned_edf(
        case in systems(Kind { best_effort: (0, 3), unreserved: true, ..EXACT }).prop_map(half_overrun)
    ) {
        // The isolation theorem of the CBS (Abeni and Buttazzo 1998) on each CPU.
        let isolates = Server::isolates;
        for policy in policies(|p| p.order == Order::PARTITIONED_EDF && isolates(p.server)) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate().filter(|(_, t)| t.keeps_its_budget()) {
                prop_assert_eq!(played.finishes(i).len(), task.times.len());
                prop_assert_eq!(played.tardiness(i, task), 0, "{}: task {}", policy.name, i);
            }
        }
    }

    #[test]
    fn who_keeps_to_his_budget_never_misses_beside_marked_jobs_either(
        case in systems(Kind { marks: true, ..EXACT }).prop_map(half_overrun)
    ) {
        let isolates = Server::isolates;
        for policy in policies(|p| p.order == Order::PARTITIONED_EDF && isolates(p.server)) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate().filter(|(_, t)| t.keeps_its_budget()) {
                prop_assert_eq!(played.tardiness(i, task), 0, "{}: task {}", policy.name, i);
            }
        }
    }

    #[test]
    fn edf_meets_all_deadlines_of_one_cpu_up_to_its_whole_capacity(
        case in systems(Kind { cpus: (1, 1), ..EXACT }).prop_map(always_full)
    ) {
        // Liu and Layland 1973; EDZL and clusters are the same thing on one CPU.
        for policy in policies(|p| by_deadline(p.order)) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate() {
                prop_assert_eq!(played.finishes(i).len(), task.times.len());
                prop_assert_eq!(played.tardiness(i, task), 0, "{}: task {}", policy.name, i);
            }
        }
    }

    #[test]
    fn beside_the_best_effort_share_nobody_is_late_on_one_cpu(
        case in systems(Kind { cpus: (1, 1), load: 95, permille: 50, best_effort: (1, 3), ..EXACT })
    ) {
        // The share is one more sporadic task, of utilization 5 %: Liu and Layland 1973.
        for policy in policies(|p| by_deadline(p.order)) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate() {
                let late = played.tardiness(i, task);
                prop_assert!(late == 0, "{}: task {} is {} ns late", policy.name, i, late);
            }
        }
    }

    #[test]
    #[allow(clippy::explicit_counter_loop)] // not every event counts
    fn best_effort_gets_its_share_of_every_cpu_in_every_window_but_for_two_quanta_and_what_was_paid_ahead(
        mut case in systems(Kind { overrun: 400, permille: 50, unreserved: false, ..ANYTHING })
    ) {
        // As many as CPUs, so that somebody always waits where a reservation runs.
        case.best_effort += case.cpus as usize;
        for policy in policies(|_| true) {
            let played = play(&case, policy);
            for cpu in 0..case.cpus {
                // Best-effort time up to each moment of this CPU, least against 5 % of the time.
                let (mut since, mut served, mut debt) = (None, 0i64, i64::MIN);
                let mut events = 0;
                for event in played.events.iter().filter(|e| e.cpu == cpu) {
                    let hog = event.task as usize >= case.tasks.len();
                    let lag = |now: u64, served: i64| now as i64 * 50 - served * 1000;
                    match event.kind() {
                        Some(EventKind::Run) if hog => {
                            // The window that ends here is the worst one.
                            let low = lag(event.time, served);
                            let from = debt.max(-low);
                            debt = from;
                            let lack = (low + debt) / 1000;
                            prop_assert!(
                                lack <= SHARE_LAG as i64 + events,
                                "{}: CPU {} lacks {} ns at {}", policy.name, cpu, lack, event.time
                            );
                            since = Some(event.time);
                        }
                        Some(EventKind::Stop) if hog => {
                            served += event.time as i64 - since.take().unwrap() as i64;
                            debt = debt.max(-lag(event.time, served));
                        }
                        _ => (),
                    }
                    events += 1; // the credit is rounded at each
                }
            }
        }
    }

    #[test]
    fn global_edf_keeps_tardiness_within_the_bound_of_devi_and_anderson(
        case in systems(Kind { cpus: (2, 4), ..EXACT }).prop_map(always_full)
    ) {
        // RTSS 2005, theorem 2: x + e_k with x from the m - 1 largest times and the m - 2 largest
        // utilizations, for any set that does not ask for more than m CPUs.
        let m = case.cpus as usize;
        let mut times: Vec<f64> = case.tasks.iter().map(|t| t.budget.unwrap() as f64).collect();
        let mut loads: Vec<f64> = case.tasks.iter().map(Task::utilization).collect();
        times.sort_by(f64::total_cmp);
        loads.sort_by(f64::total_cmp);
        let e: f64 = times.iter().rev().take(m - 1).sum();
        let u: f64 = loads.iter().rev().take(m - 2).sum();
        let x = ((e - times.first().unwrap_or(&0.0)) / (m as f64 - u)).max(0.0);
        // With budgets just as long as the jobs, the CBS gives every job its deadline.
        let played = play(&case, policy("g-edf+cbs"));
        for (i, task) in case.tasks.iter().enumerate() {
            let bound = x + task.budget.unwrap() as f64;
            let late = played.tardiness(i, task) as f64;
            prop_assert!(late <= bound, "task {}: {} ns, bound {}", i, late, bound);
        }
    }

    #[test]
    fn edzl_meets_every_deadline_that_global_edf_meets(
        case in systems(Kind { cpus: (1, 4), load: 80, ..EXACT }).prop_map(always_full)
    ) {
        // Park et al. 2005.
        let tardiness = |name| {
            let played = play(&case, policy(name));
            let late = |(i, task): (usize, &Task)| played.tardiness(i, task);
            case.tasks.iter().enumerate().map(late).max().unwrap_or(0)
        };
        prop_assume!(tardiness("g-edf+cbs") == 0);
        prop_assert_eq!(tardiness("g-edzl+cbs"), 0);
    }
}

#[test]
fn the_bonus_of_fcbs_can_make_others_late_even_on_one_cpu() {
    // Figure 3 of Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time
    // applications", gives the bonus without the deadline of the budget it comes from: 39 ms
    // due at 100 ms are spent with a deadline of 7 ms.
    let task = |budget, period, first, work| Task {
        first,
        period: period * MS,
        deadline: period * MS,
        budget: Some(budget * MS),
        cpus: 1,
        home: 0,
        marks: false,
        times: vec![work * MS],
    };
    let tasks = vec![task(40, 100, 0, 1), task(1, 5, 2 * MS, 10), task(2, 5, 2_500_000, 2)];
    let case = Case { cpus: 1, permille: 0, best_effort: 0, tasks, most: 1_000 * MS };
    let late = |name| play(&case, policy(name)).tardiness(2, &case.tasks[2]);
    assert_eq!(late("p-edf+cbs"), 0);
    assert_eq!(late("p-edf+fcbs"), 6_500_000);
}

/// Tasks with these execution times and periods (ms), always ready, for a minute.
fn endless(cpus: u32, tasks: &[(u64, u64)]) -> Case {
    let task = |&(time, period): &(u64, u64)| Task {
        first: 0,
        period: period * MS,
        deadline: period * MS,
        budget: Some(time * MS),
        cpus: u64::MAX,
        home: 0,
        marks: false,
        times: vec![time * MS; (60_000 / period) as usize],
    };
    let tasks = tasks.iter().map(task).collect();
    Case { cpus, permille: 0, best_effort: 0, tasks, most: 70_000 * MS }
}

#[test]
fn three_tasks_of_2_in_3_on_two_cpus_are_at_most_2_late_under_global_edf() {
    // Devi and Anderson 2005: the smallest set that global EDF does not schedule in time.
    let case = endless(2, &[(2, 3), (2, 3), (2, 3)]);
    let played = play(&case, policy("g-edf+cbs"));
    let late: Vec<u64> = (0..3).map(|i| played.tardiness(i, &case.tasks[i]) / MS).collect();
    assert!(late.iter().all(|late| *late <= 2), "{late:?}");
    assert!(late.iter().any(|late| *late > 0), "{late:?}");
}

#[test]
fn a_full_set_of_long_and_short_tasks_has_bounded_tardiness_on_two_cpus() {
    let case = endless(2, &[(80, 100), (33, 66), (7, 10)]);
    let played = play(&case, policy("g-edf+cbs"));
    for (i, task) in case.tasks.iter().enumerate() {
        // x = (80 - 7) / 2.
        let (late, bound) = (played.tardiness(i, task), 36_500_000 + task.budget.unwrap());
        assert!(late <= bound, "task {i}: {late}");
        assert_eq!(played.finishes(i).len(), task.times.len(), "task {i}");
    }
}

#[test]
fn edzl_schedules_three_tasks_of_2_in_3_on_two_cpus_in_time() {
    let case = endless(2, &[(2, 3), (2, 3), (2, 3)]);
    let played = play(&case, policy("g-edzl+cbs"));
    assert!((0..3).all(|i| played.tardiness(i, &case.tasks[i]) == 0));
}
