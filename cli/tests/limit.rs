// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat limit`: what it answers, what it refuses, where others find its answer.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{File, complaint, object, said};

fn in_folder(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat")).args(words).current_dir(folder).output().unwrap()
}

/// Three tasks on two CPUs, of which each can have 6.6 ms of the 7 ms it needs in every 10.
fn three(budget: &str) -> File {
    File::new(format!(
        "cpus = 2\nduration = \"100ms\"\npolicies = [\"g-edf+cbs\"]\n[[task]]\nname = \"t\"\ncount = 3\n\
         period = \"10ms\"\nbudget = \"{budget}\"\nwork = {{ constant = \"7ms\" }}\n"
    ))
}

#[test]
fn a_limit_is_kept_for_tables_of_the_same_set_only() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (three("6.6ms"), three("6.5ms"));
    let json = object(&in_folder(folder.path(), &["limit", file.path(), "--json"]));
    // One task is late from its first job to its last, the others never.
    assert_eq!(json["free"]["bound"], 10, "{json}");
    assert_eq!(json["free"]["exact"], true);
    let guaranteed = json["guaranteed"]["bound"].as_u64().unwrap();
    assert!(guaranteed > 10, "{json}");
    assert_eq!((json["capacity"].as_f64(), json["jobs"].as_u64()), (Some(2.0), Some(30)));
    let lines = said(&in_folder(folder.path(), &["sim", file.path()]));
    assert!(lines.lines().any(|l| l.starts_with(" limit, no guarantee") && l.ends_with("33.33")));
    let kept = object(&in_folder(folder.path(), &["sim", file.path(), "--json"]));
    assert_eq!(kept["limit"]["guaranteed"]["bound"], guaranteed);
    assert!(!said(&in_folder(folder.path(), &["sim", other.path()])).contains("limit"));
    // Another capacity is another question.
    let less = ["limit", other.path(), "--capacity", "1.9", "--no-guarantee", "--json"];
    assert!(object(&in_folder(folder.path(), &less))["guaranteed"].is_null());
    assert!(!said(&in_folder(folder.path(), &["sim", other.path()])).contains("limit"));
}

#[test]
fn what_has_no_limit_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str, more: &[&str]| {
        let file = File::new(text);
        let words = [&["limit", file.path()], more].concat();
        let output = in_folder(folder.path(), &words);
        assert!(!output.status.success(), "{text}");
        complaint(&output)
    };
    let task = |budget: &str, work: &str| {
        format!(
            "cpus = 1\nduration = \"100ms\"\n[[task]]\nname = \"t\"\ncount = 2\nperiod = \"10ms\"\n\
             budget = \"{budget}\"\nwork = {{ {work} }}\n"
        )
    };
    assert!(refused(&task("5ms", "program = [\"true\"]"), &[]).contains("runs a program"));
    let hogs = "cpus = 1\nduration = \"1s\"\n[best_effort]\ncount = 1\n";
    assert!(refused(hogs, &[]).contains("no task releases a job"));
    let full = task("6ms", "constant = \"1ms\"");
    assert!(refused(&full, &["--guarantee"]).contains("1.20 CPUs"));
    assert!(refused(&full, &["--capacity", "2"]).contains("at most"));
    assert!(refused(&full, &["--capacity", "0"]).contains("above 0"));
}

#[test]
fn when_time_is_up_the_figure_is_called_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let file = three("6.6ms");
    let output = in_folder(folder.path(), &["limit", file.path(), "--time-limit", "0ms"]);
    assert!(output.status.success());
    assert!(said(&output).contains("none found") && said(&output).contains("a bound only"));
}
