// SPDX-License-Identifier: GPL-2.0-only
//! The verdict with which `onbeat analyze` begins, its exit status, and what it tells programs.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{File, answered, complaint, onbeat, said};

/// One CPU of which best effort keeps nothing, under EDF on each CPU.
fn file(tasks: &[(&str, &str, &str, &str)]) -> File {
    let task = |(name, budget, period, more): &(&str, &str, &str, &str)| {
        format!(
            "[[task]]\nname = \"{name}\"\nbudget = \"{budget}\"\nperiod = \"{period}\"\n{more}\n\
             work = {{ constant = \"1ms\" }}\n"
        )
    };
    let tasks: String = tasks.iter().map(task).collect();
    File::new(format!(
        "cpus = 1\nduration = \"1s\"\nbest_effort_share = \"0%\"\npolicies = [\"p-edf+cbs-hard\"]\n{tasks}"
    ))
}

fn first_line(file: &File) -> (String, Option<i32>) {
    let output = onbeat(&["analyze", file.path()]);
    (said(&output).lines().next().unwrap_or_default().to_owned(), output.status.code())
}

#[test]
fn the_first_line_is_the_verdict_and_the_exit_status_says_it_to_scripts() {
    assert_eq!(first_line(&file(&[("a", "6ms", "10ms", "")])), ("fits".into(), Some(0)));
    // Two times 4 ms are done by 8 ms, and one of them was due at 7.
    let late = file(&[("a", "4ms", "20ms", "count = 2\ndeadline = \"7ms\"")]);
    let words =
        "fits with at most 1ms late, but the service would refuse 1 (--admit POLICY says which)";
    assert_eq!(first_line(&late), (words.into(), Some(0)));
    let (line, status) = first_line(&file(&[("a", "6ms", "10ms", "count = 3")]));
    assert!(line.starts_with("does not fit: lower the budget of a to 3.333ms, or "), "{line}");
    assert!(line.contains("period of a to 18ms") && line.contains("take 3 CPUs"), "{line}");
    assert_eq!(status, Some(3));
    let nobody = onbeat(&["analyze", File::new("cpus = 1\nduration = \"1s\"\n").path()]);
    assert_eq!(nobody.status.code(), Some(1), "a file that is wrong is no set that does not fit");
}

#[test]
fn where_jobs_may_be_late_a_policy_under_which_none_is_is_named() {
    let set = |policy: &str| {
        let tasks = [("5ms", "1ms", 1), ("33.3ms", "15ms", 2), ("100ms", "45ms", 1)].map(
            |(period, budget, count)| {
                format!(
                    "[[task]]\nname = \"a{period}\"\nperiod = \"{period}\"\nbudget = \"{budget}\"\n\
                     count = {count}\nwork = {{ constant = \"1ms\" }}\n"
                )
            },
        );
        let head = format!("cpus = 2\nduration = \"1s\"\npolicies = [\"{policy}\"]\n");
        File::new(head + &tasks.concat())
    };
    let text = said(&onbeat(&["analyze", set("g-edzl+cbs-predict").path()]));
    let (_, named) = text.split_once("Never late is proven of ").expect(&text);
    let policy = named.split_whitespace().next().unwrap();
    assert_eq!(policy, "p-edf+cbs-predict", "the same rule, each on a CPU of its own");
    assert_eq!(first_line(&set(policy)), ("fits".into(), Some(0)));
}

#[test]
fn where_nothing_keeps_jobs_to_a_budget_they_exceed_a_greater_one_and_a_policy_that_does_are_named()
{
    let of = |budget: &str, policies: &str, other: &str| {
        File::new(format!(
            "cpus = 1\nduration = \"1s\"\npolicies = [{policies}]\n\
             [[task]]\nname = \"movie\"\nbudget = \"{budget}\"\nperiod = \"40ms\"\nmarks = true\n\
             work = {{ uniform = [\"5ms\", \"20ms\"] }}\n\
             [[task]]\nname = \"other\"\nbudget = \"{other}\"\nperiod = \"40ms\"\nwork = {{ constant = \"1ms\" }}\n"
        ))
    };
    let (line, status) = first_line(&of("10ms", "\"p-edf\"", "5ms"));
    let words = "not proven to fit: raise the budget of movie to 20ms, or take p-edf+cbs-hard in place of p-edf";
    assert_eq!((line.as_str(), status), (words, Some(3)));
    // With each of them it fits.
    assert_eq!(first_line(&of("20ms", "\"p-edf\"", "5ms")).1, Some(0));
    assert_eq!(first_line(&of("10ms", "\"p-edf+cbs-hard\"", "5ms")).1, Some(0));
    // 20 ms and 20 ms are more than 95 %.
    let (line, _) = first_line(&of("10ms", "\"p-edf\", \"p-edf+cbs-hard\"", "20ms"));
    assert_eq!(line, "not proven to fit under p-edf: take p-edf+cbs-hard in place of p-edf");
    let found = answered(&onbeat(&["analyze", "--json", of("10ms", "\"p-edf\"", "5ms").path()]));
    let raise = serde_json::json!([{"task": "movie", "budget_ns": 20_000_000}]);
    assert_eq!(found["remedies"]["raise"], raise);
}

#[test]
fn tasks_without_a_budget_are_left_out_with_a_word() {
    let text = "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"editor\"\nperiod = \"10ms\"\n\
                work = { constant = \"9ms\" }\n";
    let alone = onbeat(&["analyze", File::new(text).path()]);
    assert!(complaint(&alone).contains("no task has a budget") && alone.status.code() == Some(1));
    let two = File::new(
        text.to_owned()
            + "[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"3ms\"\nwork = { constant = \"3ms\" }\n",
    );
    let shown = said(&onbeat(&["analyze", two.path()]));
    assert!(
        shown.starts_with("fits\n") && shown.contains("Left out, having no budget: editor."),
        "{shown}"
    );
}

#[test]
fn bounds_of_each_task_stand_beside_all_tests_in_one_unit() {
    // C and T of Burns and Wellings' three tasks: R = 3, 6, 20.
    let three =
        file(&[("a", "3ms", "7ms", ""), ("b", "3ms", "12ms", ""), ("c", "5ms", "20ms", "")]);
    let shown = said(&onbeat(&["analyze", three.path(), "--all"]));
    let head = shown.lines().find(|line| line.contains("R rm-exact")).expect(&shown);
    let column = head.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let column = column.into_iter().position(|cell| cell == "R rm-exact").unwrap();
    let of = |name: &str| {
        let row =
            shown.lines().skip_while(|line| *line != head).find(|line| line.starts_with(name));
        row.unwrap().split_whitespace().nth(column).unwrap().to_owned()
    };
    assert_eq!([of("a"), of("b"), of("c")], ["3", "6", "20"], "{shown}");
}

#[test]
fn priorities_jitter_blocking_and_overhead_of_the_file_count_in_the_verdict_and_the_tests_that_know_them()
 {
    let three = file(&[
        ("a", "2ms", "7ms", "priority = 1\noverhead = \"1ms\"\njitter = \"2ms\""),
        ("b", "3ms", "12ms", "priority = 2\nblocking = \"1ms\""),
    ]);
    let found = answered(&onbeat(&["analyze", three.path(), "--all", "--json"]));
    // b: 1 + 3 + 3·⌈(w + 2)/7⌉ = 10; a: 2 + 3.
    let exact = |found: &Value, name: &str| {
        let tests = found["tests"].as_array().unwrap();
        tests.iter().find(|test| test["test"] == name).unwrap()["response_times_ns"].clone()
    };
    assert_eq!(exact(&found, "fp-exact"), serde_json::json!([5_000_000, 10_000_000]));
    assert_eq!(found["policies"][1]["policy"], "priority");
    assert_eq!(found["policies"][1]["fits"], "yes");
    let ignorant = &found["tests_that_do_not_hold"][0];
    assert!(
        ignorant["tests"].as_array().unwrap().iter().any(|test| test == "g-edf-gfb"),
        "{ignorant}"
    );
    // Nobody plays them, which is said.
    let played = onbeat(&["sim", three.path()]);
    assert!(
        complaint(&played).contains("priority, jitter, overhead of a: only `onbeat analyze`"),
        "{played:?}"
    );
}

#[test]
fn many_files_get_a_line_each_and_a_wrong_one_keeps_no_other_from_its_answer() {
    let (good, bad) =
        (file(&[("a", "6ms", "10ms", "")]), file(&[("a", "6ms", "10ms", "count = 2")]));
    let wrong = File::new("cpus = 1\n");
    let both = onbeat(&["analyze", good.path(), bad.path()]);
    assert_eq!(both.status.code(), Some(3));
    let lines = said(&both);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains(&format!("{}: fits\n", good.path())), "{lines}");
    let all = onbeat(&["analyze", "--jsonl", good.path(), wrong.path(), bad.path()]);
    assert_eq!(all.status.code(), Some(1));
    let objects: Vec<Value> =
        said(&all).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fits: Vec<&Value> = objects.iter().map(|object| &object["fits"]).collect();
    assert_eq!(fits, [&Value::from("yes"), &Value::Null, &Value::from("no")]);
    assert!(objects[1]["error"].as_str().unwrap().contains("duration"), "{}", objects[1]);
}

#[test]
fn a_set_is_read_from_standard_input() {
    let text = std::fs::read(file(&[("a", "6ms", "10ms", "count = 2")]).path()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(["analyze", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(said(&output).starts_with("does not fit: "), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

/// Each within seconds: what is left out is said.
#[test]
fn a_thousand_tasks_an_hour_beside_a_microsecond_and_a_full_cpu_get_a_verdict() {
    let thousand: String = (0..1000u64)
        .map(|i| {
            let period = 10_000_000 + i * i * 937 % 990_000_000;
            let budget = period / (10 + i % 90);
            format!(
                "[[task]]\nname = \"t{i}\"\nbudget = \"{budget}ns\"\nperiod = \"{period}ns\"\n\
                 work = {{ constant = \"1ms\" }}\n"
            )
        })
        .collect();
    let thousand = File::new(format!("cpus = 64\nduration = \"1s\"\n{thousand}"));
    let hour = file(&[("long", "600s", "1h", ""), ("short", "500ns", "1us", "")]);
    let hour =
        File::new(std::fs::read_to_string(hour.path()).unwrap().replace("\"1s\"", "\"1ms\""));
    let periods = [90, 75, 39, 68, 94, 51, 44, 20, 91, 35, 89, 72];
    let full: Vec<(String, String, String)> = periods
        .iter()
        .enumerate()
        .map(|(i, period)| {
            // 1/12 of the CPU each, less 10⁻⁸.
            let period = period * 1_000_000 + 12_345 * i as u64;
            (
                format!("t{i}"),
                format!("{}ns", period / 12 - period / 100_000_000),
                format!("{period}ns"),
            )
        })
        .collect();
    let full: Vec<_> =
        full.iter().map(|(n, b, p)| (n.as_str(), b.as_str(), p.as_str(), "")).collect();
    let full = file(&full);
    for (set, verdict) in [(&thousand, ""), (&hour, "fits"), (&full, "fits")] {
        let (line, status) = first_line(set);
        assert!(line.starts_with(verdict) && status != Some(1), "{line}");
    }
    let shown = said(&onbeat(&["analyze", thousand.path()]));
    assert!(
        shown.contains("no single budget or period was tried") || shown.starts_with("fits"),
        "{shown}"
    );
}

/// The next of a sequence of numbers that look random (Knuth, "The art of computer programming", volume 2, MMIX).
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// A set of up to seven tasks, each of which takes all its budget, beside two hogs.
fn drawn(seed: u64) -> File {
    let state = &mut (seed * 7919 + 1);
    let cpus = 1 + draw(state, 3);
    let tasks: String = (0..1 + draw(state, 5) + draw(state, cpus))
        .map(|i| {
            let period =
                [3000, 4000, 5000, 7137, 8000, 10_000, 16_000, 25_000][draw(state, 8) as usize];
            let budget = period * (5 + draw(state, 55)) / 100;
            let deadline = if draw(state, 2) == 0 {
                period
            } else {
                budget + draw(state, 2 * period - budget)
            };
            let (offset, marks) = (draw(state, period), draw(state, 3) == 0);
            format!(
                "[[task]]\nname = \"t{i}\"\nperiod = \"{period}us\"\nbudget = \"{budget}us\"\n\
                 deadline = \"{deadline}us\"\n\
                 offset = \"{offset}us\"\nmarks = {marks}\nwork = {{ constant = \"{budget}us\" }}\n"
            )
        })
        .collect();
    let share = ["0%", "5%", "20%"][draw(state, 3) as usize];
    File::new(format!(
        "cpus = {cpus}\nduration = \"400ms\"\nbest_effort_share = \"{share}\"\npolicies = [\"p-edf\", \
         \"p-edf+cbs-hard\", \"p-edf+cbs-predict\", \"g-edf+cbs-hard\", \"g-edzl+cbs-hard\", \"g-edzl+cbs-predict\", \
         \"rm+cbs-hard\", \"p-rm\", \"edf-wm+cbs\"]\n[best_effort]\ncount = 2\n{tasks}"
    ))
}

#[test]
fn nobody_is_later_in_the_simulator_than_the_verdict_says() {
    let mut held = 0;
    for seed in 0..40 {
        let file = drawn(seed);
        let found = answered(&onbeat(&["analyze", file.path(), "--json"]));
        let played = answered(&onbeat(&["sim", file.path(), "--json"]));
        for (said, run) in
            found["policies"].as_array().unwrap().iter().zip(played["runs"].as_array().unwrap())
        {
            assert_eq!(said["policy"], run["policy"]);
            if !["yes", "late"].contains(&said["fits"].as_str().unwrap()) {
                continue;
            }
            for (late, task) in said["tasks_late_ns"]
                .as_array()
                .unwrap()
                .iter()
                .zip(run["tasks"].as_array().unwrap())
            {
                let most = late.as_f64().unwrap() / 1e6;
                let seen = task["tardiness_max_ms"].as_f64().unwrap();
                assert!(
                    seen <= most + 1e-5,
                    "{seen} above {most}: {task} under {said}\n{}",
                    file.path()
                );
                held += 1;
            }
        }
    }
    assert!(held > 300, "{held} bounds were looked at");
}
