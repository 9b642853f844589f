// SPDX-License-Identifier: GPL-2.0-only
//! Why jobs are late: where one task needs more than it has reserved, whose fault is it?

use onbeat_model::metrics::{Cause, Causes, TaskMetrics, detailed};
use onbeat_model::policy::Policy;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::simulate;

/// `meek` keeps to 4 ms of 10 ms. `greedy` has reserved as much and needs 7 ms; best effort takes what is left.
const SET: &str = r#"
cpus = 1
duration = "2s"
[[task]]
name = "meek"
period = "10ms"
budget = "4ms"
work = { constant = "4ms" }
[[task]]
name = "greedy"
period = "10ms"
budget = "4ms"
work = { constant = "7ms" }
[best_effort]
count = 2
"#;

fn tasks(policy: &str) -> Vec<TaskMetrics> {
    let set = TaskSet::from_bytes(SET.as_bytes(), "late.toml".as_ref()).unwrap();
    let policy: Policy = policy.parse().unwrap();
    let (all, tasks) = detailed(&simulate(&set, policy.core().unwrap()).unwrap());
    let sum = |causes: &Causes| causes.values().sum::<u64>();
    assert_eq!(sum(&all.late_causes), all.misses);
    assert!(tasks.iter().all(|t| sum(&t.late_causes) == t.misses || t.name.contains("best")));
    tasks
}

#[test]
fn under_a_hard_budget_only_who_needs_more_is_late_and_for_its_own_budget() {
    for policy in ["g-edf+cbs-hard", "g-edzl+cbs-hard", "p-edf+cbs"] {
        let tasks = tasks(policy);
        assert_eq!(tasks[0].misses, 0, "{policy}");
        assert!(tasks[1].misses > 100, "{policy}");
        assert_eq!(tasks[1].late_causes, [(Cause::Budget, tasks[1].misses)].into(), "{policy}");
    }
}

#[test]
fn without_budgets_who_keeps_to_its_own_is_late_for_the_other_by_name() {
    let tasks = tasks("g-edf");
    assert!(tasks[0].misses > 100, "{:?}", tasks[0]);
    assert_eq!(tasks[0].late_causes, [(Cause::Reservation, tasks[0].misses)].into());
    assert!(
        tasks[0].late_jobs.iter().all(|job| job.by.as_deref() == Some("greedy")),
        "{:?}",
        tasks[0]
    );
    assert_eq!(tasks[1].late_causes, [(Cause::Budget, tasks[1].misses)].into());
}
