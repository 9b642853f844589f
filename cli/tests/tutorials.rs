// SPDX-License-Identifier: GPL-2.0-only
//! The tutorials (docs/tutorials) and the README: every command of theirs runs, and tables have the figures of the runs
//! that they speak of. Commands that need a service run in the guest of `run.rs`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{self, build_the_guests_programs, checkout, complaint, object, onbeat};
use serde_json::Value;

const PAGES: [&str; 3] = ["stutter.md", "dimension.md", "study.md"];

fn page(name: &str) -> String {
    fs::read_to_string(checkout().join("docs/tutorials").join(name)).unwrap()
}

/// The words of each `onbeat` command among the indented lines, without the command itself and remarks.
fn commands(page: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let line = line.strip_prefix("    ")?.split(" #").next()?;
        let line = line.strip_prefix("sudo ").unwrap_or(line).strip_prefix("onbeat ")?;
        Some(line.split_whitespace().map(str::to_owned).collect())
    };
    page.lines().filter_map(line).collect()
}

/// Writes the files that the page shows: a line with the name, and a block of TOML.
fn write_files(page: &str, folder: &Path) {
    for part in page.split("`:\n\n```toml\n").skip(1).zip(page.split("`:\n\n```toml\n")) {
        let (after, before) = part;
        let name = before.rsplit('`').next().unwrap();
        fs::write(folder.join(name), after.split("```").next().unwrap()).unwrap();
    }
    std::os::unix::fs::symlink(checkout().join("experiments"), folder.join("experiments")).unwrap();
}

/// Carries out the commands whose verb passes, in their order, in a folder with the page's files.
fn carry_out(name: &str, pass: impl Fn(&str) -> bool) -> Vec<(String, Output)> {
    let text = page(name);
    let folder = tempfile::tempdir().unwrap();
    write_files(&text, folder.path());
    let run = |words: &Vec<String>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
        (words.join(" "), command.args(words).current_dir(folder.path()).output().unwrap())
    };
    commands(&text).iter().filter(|words| pass(&words[0])).map(run).collect()
}

const HERE: [&str; 5] = ["sim", "analyze", "limit", "sweep", "policies"];
/// `run.rs` carries these out.
const WITH_A_SERVICE: [&str; 3] = ["run", "status", "doctor"];

#[test]
fn every_command_of_the_tutorials_that_simulates_or_analyzes_runs() {
    for name in PAGES {
        let ended = carry_out(name, |verb| HERE.contains(&verb));
        assert!(!ended.is_empty(), "{name}");
        for (command, output) in ended {
            // `analyze` answers with its status, too: 3 where it does not fit.
            let answers = command.starts_with("analyze") && output.status.code() == Some(3);
            assert!(
                output.status.success() || answers,
                "{name}: {command}: {}",
                complaint(&output)
            );
        }
    }
}

#[test]
#[ignore = "a minute: it boots a kernel for each policy"]
fn every_command_of_the_tutorials_that_boots_a_kernel_runs() {
    build_the_guests_programs();
    for (command, output) in PAGES.iter().flat_map(|name| carry_out(name, |verb| verb == "lab")) {
        assert!(output.status.success(), "{command}: {}", complaint(&output));
    }
}

#[test]
fn no_command_of_the_tutorials_is_left_out_of_the_tests() {
    for words in PAGES.iter().flat_map(|name| commands(&page(name))) {
        let verb = words[0].as_str();
        let known = verb == "lab" || HERE.contains(&verb) || WITH_A_SERVICE.contains(&verb);
        assert!(known, "who tries {words:?}?");
    }
    for name in PAGES {
        assert!(page(name).lines().count() <= 130, "{name} has more than two pages");
    }
}

/// Results of a task set in the simulator.
fn simulated(file: &str) -> Value {
    object(&onbeat(&["sim", file, "--json"]))
}

fn run<'a>(results: &'a Value, policy: &str) -> &'a Value {
    let mut runs = results["runs"].as_array().unwrap().iter();
    runs.find(|run| run["policy"] == policy).unwrap_or_else(|| panic!("no {policy}"))
}

#[test]
fn why_not_chrt_has_the_figures_of_its_run_and_only_reservations_keep_both_promises() {
    let file = checkout().join("experiments/chrt.toml");
    let results = simulated(file.to_str().unwrap());
    let task = |policy: &str, name: &str| {
        let mut tasks = run(&results, policy)["tasks"].as_array().unwrap().iter();
        let task = tasks.find(|task| task["name"] == name).unwrap();
        (task["misses"].as_u64().unwrap(), task["tardiness_max_ms"].as_f64().unwrap())
    };
    let policies = ["g-fifo", "rm", "g-edzl+cbs-predict"];
    for name in ["sound", "film"] {
        let late = policies.map(|policy| task(policy, name).0);
        assert_eq!(late[2], 0, "{name}");
        assert!(late[0] > 0, "{name}: {late:?}");
    }
    assert!(task("rm", "film").0 > 0);
    let row = |name: &str| {
        let cell = |(late, by): (u64, f64)| match late {
            0 => "0".into(),
            _ => format!("{late}, by {by:.0} ms"),
        };
        policies.map(|policy| cell(task(policy, name))).join(" | ")
    };
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    for (text, name) in [(page("stutter.md"), "stutter.md"), (readme, "README.md")] {
        let text = text.replace("**", "");
        for task in ["sound", "film", "game"] {
            assert!(text.contains(&format!("| {} |", row(task))), "{name} has not {}", row(task));
        }
    }
}

#[test]
fn the_movies_of_the_tutorial_have_the_figures_of_its_table() {
    let text = page("study.md");
    let folder = tempfile::tempdir().unwrap();
    write_files(&text, folder.path());
    let results = simulated(folder.path().join("movies.toml").to_str().unwrap());
    for run in results["runs"].as_array().unwrap() {
        let (m, policy) = (&run["metrics"], run["policy"].as_str().unwrap());
        let [owed_late, misses] = ["owed_late", "misses"].map(|key| m[key].as_u64().unwrap());
        let most = m["tardiness_max_ms"].as_f64().unwrap();
        let row = format!("| `{policy}` | {owed_late} | {} | {most:.1} ms |", misses - owed_late);
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn the_readmes_example_breaks_no_promise_and_its_figures_are_those_of_its_run() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let set = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = common::File::new(set);
    let results = simulated(file.path());
    for run in results["runs"].as_array().unwrap() {
        let m = &run["metrics"];
        assert_eq!(m["owed_late"], 0);
        let said = format!("none of {} owed jobs is late, {} others", m["owed"], m["misses"]);
        assert!(readme.replace('\n', " ").contains(&said), "{said}");
    }
}
