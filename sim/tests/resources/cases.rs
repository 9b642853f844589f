// SPDX-License-Identifier: GPL-2.0-only
//! Small sets whose course can be told beforehand.

use onbeat_model::event::EventKind;
use onbeat_model::metrics::{detailed, metrics};
use onbeat_model::policy::CORE;
use onbeat_model::run::Run;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::{SimError, simulate};

fn try_play(policy: &str, text: &str) -> Result<Run, SimError> {
    let text = format!("duration = \"100ms\"\nbest_effort_share = \"0%\"\n{text}");
    let set = TaskSet::from_bytes(text.as_bytes(), "case.toml".as_ref()).unwrap();
    simulate(&set, CORE.iter().find(|p| p.name == policy).unwrap())
}

fn play(policy: &str, text: &str) -> Run {
    try_play(policy, text).unwrap()
}

/// Times of these events of a task, ms.
fn times(run: &Run, task: u32, kind: EventKind) -> Vec<f64> {
    let of = |e: &&onbeat_model::event::Event| e.task == task && e.kind() == Some(kind);
    run.events.iter().filter(of).map(|e| e.time as f64 / 1e6).collect()
}

#[test]
fn threads_run_side_by_side_on_one_budget_and_the_job_ends_with_the_last() {
    let team = "[[task]]\nname = \"a\"\nperiod = \"100ms\"\nbudget = \"12ms\"\nthreads = 3\n\
                work = { constant = \"4ms\" }";
    // On three CPUs all three at once; on two the third comes after the first two.
    for (cpus, end) in [(3, 4.0), (2, 8.0), (1, 12.0)] {
        let run = play("g-edf+cbs-hard", &format!("cpus = {cpus}\n{team}"));
        assert_eq!(times(&run, 0, EventKind::Complete), [end], "{cpus} CPUs");
        let (m, tasks) = detailed(&run);
        assert_eq!((m.jobs, m.owed, m.misses, tasks[0].cpu_ms), (1, 1, 0, 12.0));
        assert_eq!(run.tasks.len(), 1);
    }
    // A third of the budget: 4 ms in all, used up after 4/3 ms on three CPUs.
    let run = play("g-edf+cbs-hard", &format!("cpus = 3\n{}", team.replace("12ms", "4ms")));
    let throttled = times(&run, 0, EventKind::Throttle);
    assert!((throttled[0] - 4.0 / 3.0).abs() < 1e-5, "{throttled:?}");
}

#[test]
fn a_budget_that_threads_share_runs_out_as_fast_as_they_are_many() {
    let text = "cpus = 4\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"4ms\"\nthreads = 4\n\
                work = { constant = \"3ms\" }\n[best_effort]\ncount = 4";
    let run = play("g-edf+cbs-hard", text);
    let (m, tasks) = detailed(&run);
    // 12 ms in each job, 4 ms in each period: 40 ms in 100 ms, and no more until the grace is over.
    assert_eq!(m.owed, 0);
    let most = run.horizon_ns as f64 / 10e6 * 4.0 + 4.0;
    assert!(tasks[0].cpu_ms <= most && tasks[0].cpu_ms > most - 9.0, "{}", tasks[0].cpu_ms);
}

/// L takes the bus at 0 and holds it for 6 ms; H asks for it at 1 ms.
const INVERTED: &str = "cpus = 1\n[[task]]\nname = \"l\"\nperiod = \"100ms\"\nbudget = \"10ms\"\n\
    sections = [{ resource = \"bus\", length = \"6ms\" }]\nwork = { constant = \"7ms\" }\n\
    [[task]]\nname = \"h\"\nperiod = \"20ms\"\noffset = \"1ms\"\nbudget = \"5ms\"\n\
    sections = [{ resource = \"bus\", from = \"1ms\", length = \"1ms\" }]\nwork = { constant = \"4ms\" }";

#[test]
fn who_asks_for_what_is_held_waits_until_it_is_released_and_is_not_owed_for_that_time() {
    let run = play("p-edf+cbs-hard", INVERTED);
    assert_eq!(times(&run, 1, EventKind::Block), [2.0]);
    // L has had 1 ms when H comes, and needs 5 more.
    assert_eq!(times(&run, 1, EventKind::Unblock), [7.0]);
    assert_eq!(times(&run, 1, EventKind::Complete)[0], 10.0);
    assert_eq!(times(&run, 0, EventKind::Complete)[0], 11.0);
    let (m, tasks) = detailed(&run);
    assert_eq!((m.blocks, m.blocked_ms, m.blocked_max_ms), (1, 5.0, 5.0));
    assert_eq!((tasks[1].blocks, tasks[0].blocks), (1, 0));
    // H's first job goes on at 7 ms with 4 ms of 5 in 14 ms left, which is more than 5 in 20: a new window until 27
    // ms, after its deadline at 21 ms. The other four jobs are owed.
    assert_eq!((tasks[1].jobs, tasks[1].owed, tasks[1].misses), (5, 4, 0));
}

#[test]
fn a_circle_ends_the_run_and_names_who_waits_for_what() {
    let section = |name: &str, from: &str, length: &str| {
        format!("{{ resource = \"{name}\", from = \"{from}\", length = \"{length}\" }}")
    };
    let task = |name: &str, outer: &str, inner: &str| {
        let (outer, inner) = (section(outer, "1ms", "5ms"), section(inner, "2ms", "1ms"));
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"50ms\"\nbudget = \"9ms\"\nsections = [{outer}, {inner}]\n\
             work = {{ constant = \"9ms\" }}\n"
        )
    };
    let text = &format!("cpus = 2\n{}{}", task("a", "bus", "disk"), task("b", "disk", "bus"));
    let error = try_play("g-edf", text).unwrap_err().to_string();
    assert!(error.starts_with("deadlock after "), "{error}");
    for part in [
        "job 0 of a waits for \"disk\", which b holds",
        "job 0 of b waits for \"bus\", which a holds",
        "same order",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // One after the other there is no circle.
    play("g-edf", &text.replace("cpus = 2", "cpus = 1"));
}

#[test]
fn threads_of_one_task_can_close_a_circle_too() {
    // The bus within the log, and later the log within the bus.
    let text = "cpus = 4\n[[task]]\nname = \"a\"\nperiod = \"50ms\"\nbudget = \"30ms\"\nthreads = 4\n\
        work = { constant = \"5ms\" }\nsections = [\n{ resource = \"log\", from = \"0s\", length = \"2ms\" },\n\
        { resource = \"bus\", from = \"1ms\", length = \"1ms\" },\n\
        { resource = \"bus\", from = \"2ms\", length = \"3ms\" },\n\
        { resource = \"log\", from = \"4ms\", length = \"1ms\" }]";
    for policy in ["g-edf+cbs-hard", "g-edf", "p-edf+cbs"] {
        let error = try_play(policy, text).unwrap_err().to_string();
        assert!(error.contains("of a waits for \"log\", which a holds"), "{error}");
    }
}

#[test]
fn a_job_is_given_up_at_its_deadline_and_counts_as_that_and_not_as_late() {
    let text = "cpus = 1\n[[task]]\nname = \"a\"\nperiod = \"20ms\"\ndeadline = \"10ms\"\nbudget = \"10ms\"\n\
                abort = \"at-deadline\"\nwork = { constant = \"15ms\" }\n[best_effort]\ncount = 1";
    let run = play("p-edf", text);
    assert_eq!(times(&run, 0, EventKind::Abort), [10.0, 30.0, 50.0, 70.0, 90.0]);
    let (m, tasks) = detailed(&run);
    assert_eq!((m.jobs, m.misses, m.aborted, m.unfinished), (5, 5, 5, 0));
    assert_eq!((m.owed, m.tardiness_max_ms, tasks[0].cpu_ms), (0, 0.0, 50.0));
    // 9 ms are enough.
    let m = metrics(&play("p-edf", &text.replace("15ms", "9ms")));
    assert_eq!((m.jobs, m.misses, m.aborted), (5, 0, 0));
}

#[test]
fn who_is_given_up_while_it_waits_or_holds_leaves_the_resource_to_others() {
    // H waits from 2 ms on, and L holds until 7 ms: H's job is over at 6 ms. L's, without H, ends at 8 ms.
    let text = INVERTED.replace(
        "offset = \"1ms\"",
        "offset = \"1ms\"\ndeadline = \"5ms\"\nabort = \"at-deadline\"",
    );
    let run = play("p-edf+cbs-hard", &text);
    assert_eq!(times(&run, 1, EventKind::Abort)[0], 6.0);
    assert_eq!(times(&run, 1, EventKind::Unblock), [6.0]);
    assert_eq!(times(&run, 0, EventKind::Complete)[0], 8.0);
    let bus: Vec<f64> = times(&run, 1, EventKind::Lock);
    assert_eq!(bus[0], 22.0, "its second job");
    // L is given up in its section at 4 ms: H, which waits from 2 ms on, has the bus at once.
    let text = INVERTED.replacen(
        "budget = \"10ms\"",
        "deadline = \"4ms\"\nbudget = \"4ms\"\nabort = \"at-deadline\"",
        1,
    );
    let run =
        play("p-edf", &text.replace("offset = \"1ms\"", "offset = \"1ms\"\ndeadline = \"20ms\""));
    assert_eq!(times(&run, 0, EventKind::Abort), [4.0]);
    assert_eq!(times(&run, 0, EventKind::Unlock), [4.0]);
}

#[test]
fn best_effort_that_sleeps_is_measured_from_waking_to_running() {
    // A job of 5 ms in every 10, and bursts of 1 ms every 10 ms that come 2 ms after it begins.
    let text = "cpus = 1\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"5ms\"\n\
                work = { constant = \"5ms\" }\n[[best_effort.load]]\nname = \"ed\"\nperiod = \"10ms\"\n\
                work = { constant = \"1ms\" }";
    let run =
        play("g-edf+cbs", &text.replace("\"10ms\"\nbudget", "\"10ms\"\noffset = \"8ms\"\nbudget"));
    let (m, tasks) = detailed(&run);
    let ed = tasks.last().unwrap();
    assert_eq!((ed.name.as_str(), ed.wakes), ("ed", 11));
    // The first comes before the first job, all others wait for its last 3 ms; that at 100 ms is the last.
    assert_eq!((ed.wake_max_ms, ed.wake_p99_ms, m.wakes), (3.0, 3.0, 11));
    assert!((ed.wake_mean_ms - 30.0 / 11.0).abs() < 1e-9, "{}", ed.wake_mean_ms);
    assert_eq!(ed.jobs, 0);
}

#[test]
fn nice_divides_what_best_effort_gets_as_linux_does() {
    let text = "cpus = 1\n[best_effort]\ncount = 1\nnice = 5\n[[best_effort.load]]\nname = \"busy\"\n\
                period = \"10ms\"\nwork = { constant = \"1s\" }";
    let (_, tasks) = detailed(&play("g-edf", text));
    // 1.25^5 is 3.05.
    let parts = tasks[1].cpu_ms / tasks[0].cpu_ms;
    assert!((2.75..3.35).contains(&parts), "{parts}");
}

#[test]
fn a_job_that_is_given_up_while_it_waits_for_a_cpu_leaves_the_next_its_own_deadline_marked_or_not()
{
    // H, due by 14.9 ms and longer than its budget, keeps M's job of 10 ms from the CPU until that is given up at 15
    // ms. M's next is due by 25 ms, K's of 20 ms by 24: K goes first, but not before a deadline of 15 ms.
    let text = "cpus = 1\n[[task]]\nname = \"m\"\nperiod = \"10ms\"\ndeadline = \"5ms\"\nbudget = \"3ms\"\n\
                abort = \"at-deadline\"\nwork = { constant = \"3ms\" }\nMARKS\n\
                [[task]]\nname = \"h\"\noffset = \"10ms\"\nperiod = \"100ms\"\ndeadline = \"4.9ms\"\n\
                budget = \"4.9ms\"\nwork = { constant = \"8ms\" }\n\
                [[task]]\nname = \"k\"\noffset = \"20ms\"\nperiod = \"100ms\"\ndeadline = \"4ms\"\nbudget = \"2ms\"\n\
                work = { constant = \"2ms\" }";
    for marks in ["", "marks = true"] {
        let run = play("g-edf", &text.replace("MARKS", marks));
        assert_eq!(times(&run, 0, EventKind::Abort), [15.0], "{marks}");
        assert_eq!(times(&run, 2, EventKind::Complete), [22.0], "{marks}");
    }
}

#[test]
fn a_circle_in_which_one_gives_up_at_its_deadline_is_no_deadlock() {
    let task = |name: &str, first: &str, then: &str, more: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"50ms\"\nbudget = \"10ms\"\n{more}\n\
             work = {{ constant = \"4ms\" }}\n\
             sections = [{{ resource = \"{first}\", length = \"4ms\" }}, {{ resource = \"{then}\", from = \"1ms\", \
             length = \"2ms\" }}]\n"
        )
    };
    let set =
        |more| "cpus = 2\n".to_owned() + &task("a", "x", "y", more) + &task("b", "y", "x", "");
    assert!(matches!(try_play("g-edf+cbs", &set("")), Err(SimError::Deadlock { .. })));
    let run = play("g-edf+cbs", &set("deadline = \"20ms\"\nabort = \"at-deadline\""));
    assert_eq!(times(&run, 0, EventKind::Abort), [20.0, 70.0]);
    // B has both from then on, and 3 ms to go.
    assert_eq!(times(&run, 1, EventKind::Complete), [23.0, 73.0]);
}
