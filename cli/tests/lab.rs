// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat lab` with real guests. Needs QEMU and a fetched kernel (`make setup`).

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{File, build_the_guests_programs, complaint, object, onbeat, said, short};
use serde_json::Value;

/// The results without what belongs to the host.
fn lasting(mut json: Value) -> Value {
    assert!(json["host"].take().is_object(), "no host");
    json
}

#[test]
fn a_policy_has_the_same_figures_in_a_run_of_its_own_also_with_our_scheduler_loaded() {
    build_the_guests_programs();
    let file = short("\"fifo\", \"g-edf+fcbs\"");
    let run =
        |more: &[&str]| lasting(object(&onbeat(&[&["lab", file.path(), "--json"], more].concat())));
    let first = run(&[]);
    assert_eq!(first["world"], "lab");
    for key in ["kernel", "qemu", "accel"] {
        assert!(!first["platform"][key].as_str().unwrap().is_empty(), "{key}");
    }
    let policies: Vec<_> = first["runs"].as_array().unwrap().iter().map(|r| &r["policy"]).collect();
    assert_eq!(policies, ["fifo", "g-edf+fcbs"]);
    for run in first["runs"].as_array().unwrap() {
        let least = run["metrics"]["best_effort_least_cpus"].as_f64().unwrap();
        assert!(least > 0.0 && least < 2.0, "{least}");
        let generator =
            run["tasks"].as_array().unwrap().iter().find(|t| t["name"] == "generator-0");
        assert!(generator.unwrap()["wakes"].as_u64().unwrap() > 0, "{run}");
    }
    for (i, policy) in ["fifo", "fcbs"].into_iter().enumerate() {
        let alone = run(&["--policy", policy]);
        assert_eq!(alone["runs"][0], first["runs"][i]);
        assert_eq!(alone["platform"], first["platform"]);
    }
}

#[test]
fn where_scenes_need_more_than_budgets_the_default_has_far_fewer_late_jobs_than_sched_fifo() {
    build_the_guests_programs();
    // On timers that wake threads at no exact distances: simulated, the default has a third of those of `g-fifo`.
    let set = ["family", "scenes", "--seed", "50001", "--sets", "1", "--seconds", "4"];
    let by = ["--by", "lab", "--policies", "fifo", "--json"];
    let report = object(&onbeat(&[&set[..], &by].concat()));
    let policies = &report["families"][0]["policies"];
    let late = |i: usize| policies[i]["late"].as_u64().unwrap();
    assert_eq!(policies[0]["policy"], "fifo");
    assert_eq!(policies[1]["owed_late"], 0);
    assert!(late(0) > 20 && 2 * late(1) < late(0), "fifo {}, default {}", late(0), late(1));
}

#[test]
fn a_refused_reservation_is_that_policys_result_and_the_others_still_run() {
    build_the_guests_programs();
    let file = File::new(
        "cpus = 2\nduration = \"500ms\"\npolicies = [\"p-edf+cbs\", \"fifo\"]\n\
         [[task]]\nname = \"movie\"\ncount = 3\nperiod = \"41ms\"\nbudget = \"25ms\"\n\
         work = { constant = \"1ms\" }\n",
    );
    let output = onbeat(&["lab", file.path(), "--json"]);
    assert!(!output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let refusal = json["runs"][0]["error"].as_str().unwrap();
    assert!(refusal.contains("movie-2") && refusal.contains("would fit"), "{refusal}");
    assert_eq!(json["runs"][1]["policy"], "fifo");
    assert_eq!(json["runs"][1]["metrics"]["miss_ratio"], 0.0);
    assert!(complaint(&output).contains("1 of 2"), "{}", complaint(&output));
}

#[test]
fn a_command_has_its_output_status_and_libraries_in_the_lab() {
    build_the_guests_programs();
    let output = onbeat(&["lab", "--cpus", "1", "--", "sh", "-c", "uname -s; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", complaint(&output));
    assert_eq!(said(&output), "Linux\n");
    assert_eq!(complaint(&output), "");
    // A program of this system, found in PATH, with its libraries.
    let output = onbeat(&["lab", "--cpus", "1", "--", "sha256sum", "/dev/null"]);
    let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(said(&output).split(' ').next(), Some(sum), "{}", complaint(&output));
}

fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    // QEMU is a child of the thread that watches it.
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    found
}

#[test]
fn ctrl_c_stops_the_guest_and_says_so() {
    build_the_guests_programs();
    // Longer than anybody would wait for.
    let file = File::new(
        "cpus = 1\nduration = \"100s\"\npolicies = [\"fifo\"]\n\
         [[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"1ms\"\nwork = { constant = \"1ms\" }\n\
         [best_effort]\ncount = 1\n",
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
    command.args(["lab", file.path(), "--jobs", "1"]);
    let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(program.stderr.take().unwrap());
    let mut words = String::new();
    while !words.contains("running") {
        assert!(stderr.read_line(&mut words).unwrap() > 0, "it ended by itself: {words}");
    }
    let guests = children(program.id());
    assert_eq!(guests.len(), 1, "{guests:?}");
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGINT) }, 0);
    let output = program.wait_with_output().unwrap();
    assert!(!output.status.success());
    let text = std::io::read_to_string(stderr).unwrap();
    assert!(text.contains("stopped on request") && !text.contains("ended"), "{text}");
    sleep(Duration::from_millis(100));
    let gone = guests.iter().all(|pid| fs::metadata(format!("/proc/{pid}")).is_err());
    assert!(gone, "QEMU outlived the program");
}

#[test]
fn of_four_tasks_that_ask_for_one_and_a_half_cpus_dasa_serves_those_in_time_that_are_worth_most() {
    build_the_guests_programs();
    let task = |name: &str, value: u64, period: u64| {
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"{period}ms\"\nbudget = \"{}us\"\nvalue = {value}\n\
             work = {{ constant = \"{}us\" }}\n",
            period * 375,
            period * 350
        )
    };
    let head = "cpus = 1\nduration = \"2s\"\npolicies = [\"g-dasa\"]\n";
    // Those that are worth more have the later deadlines: by deadline they would be last.
    let tasks = [task("a", 1, 40), task("b", 1, 44), task("c", 100, 52), task("d", 100, 56)];
    let file = File::new(&(head.to_owned() + &tasks.concat()));
    let json = object(&onbeat(&["lab", file.path(), "--json"]));
    let tasks = json["runs"][0]["tasks"].as_array().unwrap();
    let ratio = |name: &str| {
        let of = tasks.iter().find(|task| task["name"] == name).unwrap();
        of["miss_ratio"].as_f64().unwrap()
    };
    assert_eq!((ratio("c"), ratio("d")), (0.0, 0.0), "{tasks:?}");
    assert!(ratio("a") > 0.5 && ratio("b") > 0.5, "{tasks:?}");
}

#[test]
fn why_jobs_were_late_is_the_same_as_in_the_simulator() {
    build_the_guests_programs();
    let file = common::checkout().join("experiments/chrt.toml");
    let played = |verb: &str| {
        let options = ["--policy", "rm", "--duration", "1s", "--json"];
        let json = object(&onbeat(&[&[verb, file.to_str().unwrap()], &options[..]].concat()));
        json["runs"][0]["tasks"][2].clone()
    };
    let (lab, sim) = (played("lab"), played("sim"));
    for film in [lab, sim] {
        let causes = film["late_causes"].as_object().unwrap();
        assert_eq!(causes.keys().collect::<Vec<_>>(), ["reservation"], "{film}");
        assert!(film["late_jobs"].as_array().unwrap().iter().all(|job| job["by"] == "game"));
    }
}

#[test]
fn several_files_are_played_in_turn_each_as_often_as_asked_with_seeds_one_after_the_other() {
    build_the_guests_programs();
    let file = |mean: u64| {
        File::new(format!(
            "cpus = 1\nduration = \"300ms\"\npolicies = [\"fifo\"]\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\n\
             budget = \"5ms\"\nwork = {{ normal = {{ mean = \"{mean}ms\", sd = \"1ms\", max = \"9ms\" }} }}\n"
        ))
    };
    let (light, heavy) = (file(2), file(4));
    let args = ["lab", light.path(), heavy.path(), "--seed", "5", "--repeat", "2", "--json"];
    let output = onbeat(&args);
    assert!(output.status.success(), "{}", complaint(&output));
    let objects: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(objects.len(), 2, "{objects:?}");
    let used = |of: &Value| {
        let task = &of["policies"][0]["tasks"][0];
        assert_eq!((&of["seed"], &task["runs"]), (&Value::from(5), &Value::from(2)), "{of}");
        task["figures"]["cpu_ms"]["mean"].as_f64().unwrap()
    };
    assert!(used(&objects[1]) > 1.5 * used(&objects[0]), "{objects:?}");
    let alone = |seed: &str| {
        let json = object(&onbeat(&["lab", light.path(), "--seed", seed, "--json"]));
        json["runs"][0]["tasks"][0]["cpu_ms"].as_f64().unwrap()
    };
    let (first, second) = (alone("5"), alone("6"));
    assert!(first != second, "{first} ms");
    let mean = used(&objects[0]);
    assert!(((first + second) / 2.0 - mean).abs() < 1e-6, "{first}, {second} and {mean} ms");
}
