// SPDX-License-Identifier: GPL-2.0-only
use std::path::Path;

use super::*;

/// A set from the lines of a file.
fn set(cpus: u32, duration: &str, tasks: &[&str], rest: &str) -> TaskSet {
    let mut text = format!("cpus = {cpus}\nduration = \"{duration}\"\n{rest}\n");
    for (i, task) in tasks.iter().enumerate() {
        text.push_str(&format!("[[task]]\nname = \"t{i}\"\n{}\n", task.replace("; ", "\n")));
    }
    TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap()
}

fn at(set: &TaskSet, capacity: f64, lag: u64, guarantee: bool) -> Limit {
    let options = Options { capacity, lag, guarantee, time_limit: Duration::from_secs(60) };
    limit(set, &options, &mut |_| {}).unwrap()
}

/// Late jobs without and with the guarantee, on all CPUs; the program must have been solved.
fn late(set: &TaskSet) -> (u64, u64) {
    let one = |guarantee| {
        let limit = at(set, f64::from(set.cpus), 0, guarantee);
        assert_eq!((limit.found, limit.timed_out), (Some(limit.bound), false));
        limit.bound
    };
    (one(false), one(true))
}

#[test]
fn what_fits_has_no_late_jobs_and_a_little_more_has() {
    let three = |work: &str| {
        let task = format!("period = \"9ms\"; work = {{ constant = \"{work}\" }}");
        set(1, "90ms", &[&task, &task, &task], "")
    };
    assert_eq!(late(&three("3ms")), (0, 0));
    // Once late, a task is late for ever, since it must do what it missed; so one of three is.
    assert_eq!(late(&three("3.01ms")).0, 10);
}

#[test]
fn a_job_longer_than_its_deadline_is_late_even_alone() {
    let one = set(4, "100ms", &["period = \"10ms\"; work = { constant = \"11ms\" }"], "");
    assert_eq!(late(&one), (10, 10));
}

#[test]
fn a_late_job_must_be_done_before_the_next_of_its_task() {
    // The first job takes 14 of 10 ms, so 6 ms of the second period are left, one too few.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace"), "14000000\n7000000\n3000000\n").unwrap();
    let text = "cpus = 2\nduration = \"30ms\"\n[[task]]\nname = \"t\"\nperiod = \"10ms\"\n\
                work = { trace = \"trace\" }\n";
    let one = TaskSet::from_bytes(text.as_bytes(), &folder.path().join("set.toml")).unwrap();
    assert_eq!(late(&one), (2, 2));
}

#[test]
fn the_guarantee_costs_late_jobs_where_one_task_would_be_sacrificed() {
    // Work of 3 * 7 ms in every 10 on 2 CPUs. Without the guarantee one task does the 1 ms too much less each period
    // and is always late; with it each gets 6.6 ms, which makes all of them late sooner or later.
    let task = "period = \"10ms\"; budget = \"6.6ms\"; work = { constant = \"7ms\" }";
    let (without, with) = late(&set(2, "100ms", &[task, task, task], ""));
    assert_eq!(without, 10);
    assert!(with > without, "{with}");
}

#[test]
fn a_job_that_its_reservation_alone_would_finish_is_on_time() {
    let owed = "period = \"10ms\"; budget = \"6ms\"; work = { constant = \"6ms\" }";
    let hog = "period = \"10ms\"; budget = \"4ms\"; work = { constant = \"5ms\" }";
    let (without, with) = late(&set(1, "50ms", &[owed, hog], ""));
    assert_eq!(without, 5);
    // The hog's jobs, not the others.
    assert_eq!(with, 5);
    let both = set(1, "50ms", &[owed, &hog.replace("5ms", "4ms")], "");
    assert_eq!(late(&both), (0, 0));
}

#[test]
fn capacity_and_lag_are_what_best_effort_work_leaves() {
    let task = "period = \"10ms\"; work = { constant = \"9.6ms\" }";
    let hog = "[best_effort]\ncount = 1";
    let alone = set(1, "200ms", &[task], "");
    assert_eq!((capacity(&alone), late(&alone).0), (1.0, 0));
    let reserved = format!("{task}; budget = \"9ms\"");
    let beside = |task: &str| {
        let task = task.replace("; ", "\n");
        let text = format!("cpus = 2\nduration = \"1s\"\n[[task]]\nname = \"t\"\n{task}\n{hog}\n");
        capacity(&TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap())
    };
    assert!((beside(&reserved) - 1.95).abs() < 1e-12);
    // A task without a reservation may use the share.
    assert_eq!(beside(task), 2.0);
    // 0.1 ms too little each period is made up for by 0.35 ms of lag three times.
    let tight = |lag| at(&alone, 0.95, lag, false).bound;
    assert_eq!((tight(0), tight(350_000)), (20, 17));
}

#[test]
fn what_cannot_be_answered_is_refused_with_a_reason() {
    let refused = |set: &TaskSet, guarantee| {
        let options = Options {
            capacity: f64::from(set.cpus),
            lag: 0,
            guarantee,
            time_limit: Duration::from_secs(9),
        };
        limit(set, &options, &mut |_| {}).unwrap_err().to_string()
    };
    let program = set(1, "1s", &["period = \"10ms\"; work = { program = [\"true\"] }"], "");
    assert!(refused(&program, false).contains("runs a program"));
    let hogs = TaskSet::from_bytes(
        b"cpus = 1\nduration = \"1s\"\n[best_effort]\ncount = 2\n",
        Path::new("set.toml"),
    );
    assert!(refused(&hogs.unwrap(), false).contains("no task releases a job"));
    let task = "period = \"10ms\"; budget = \"6ms\"; work = { constant = \"1ms\" }";
    let both = set(1, "1s", &[task, task], "");
    assert!(refused(&both, true).contains("1.20 CPUs"));
    assert_eq!(at(&both, 1.0, 0, false).bound, 0);
}

#[test]
fn without_time_the_bound_is_weak_but_there() {
    let task = "period = \"10ms\"; work = { uniform = [\"1ms\", \"9ms\"] }";
    let three = set(1, "1s", &[task, task, task], "");
    let options = Options { capacity: 1.0, lag: 0, guarantee: false, time_limit: Duration::ZERO };
    let none = limit(&three, &options, &mut |_| {}).unwrap();
    assert_eq!((none.jobs, none.bound, none.found, none.timed_out), (300, 0, None, true));
}
