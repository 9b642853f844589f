// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat limit`: what it answers, what it refuses, where others find its answer.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{File, complaint, object, said};

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
    let row = lines.lines().find(|l| l.starts_with(" limit, no guarantee ")).expect(&lines);
    assert_eq!(row.split_whitespace().rfind(|cell| *cell != "–"), Some("33.33"), "{lines}");
    let kept = object(&in_folder(folder.path(), &["sim", file.path(), "--json"]));
    assert_eq!(kept["limit"]["guaranteed"]["bound"], guaranteed);
    assert!(!said(&in_folder(folder.path(), &["sim", other.path()])).contains("limit"));
    // What cannot be read is named, and is none.
    let limits = folder.path().join("results/limits");
    let held = |folder: &Path| std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let broken = held(&limits);
    std::fs::write(&broken, "{").unwrap();
    let without = in_folder(folder.path(), &["sim", file.path()]);
    let name = broken.file_name().unwrap().to_str().unwrap();
    assert!(complaint(&without).contains(name), "{}", complaint(&without));
    assert!(without.status.success() && !said(&without).contains("limit"));
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
    for none in ["0", "-1"] {
        assert!(refused(&full, &["--capacity", none]).contains("above 0"), "{none}");
    }
}

#[test]
fn when_time_is_up_the_figure_is_called_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let file = three("6.6ms");
    let output = in_folder(folder.path(), &["limit", file.path(), "--time-limit", "0ms"]);
    assert!(output.status.success());
    assert!(said(&output).contains("none found") && said(&output).contains("a bound only"));
}

#[test]
fn a_poorer_search_takes_nothing_from_a_better_one_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = three("6.6ms");
    let spans = |words: &[&str]| {
        let json = object(&in_folder(folder.path(), &[&["limit", file.path()], words].concat()));
        [&json["guaranteed"], &json["free"]].map(Clone::clone)
    };
    let table = || said(&in_folder(folder.path(), &["sim", file.path()]));
    let poor = spans(&["--json", "--time-limit", "1ns"]);
    assert!(poor.iter().all(|span| span["found"].is_null()), "{poor:?}");
    let best = spans(&["--json"]);
    let lines = table();
    assert!(best.iter().all(|span| span["exact"] == true) && lines.contains("33.33"));
    assert_eq!(spans(&["--json", "--time-limit", "1ns"]), best);
    assert_eq!(table(), lines);
    // A search for one of both leaves the other.
    let [_, free] = spans(&["--json", "--no-guarantee", "--time-limit", "1ns"]);
    assert_eq!((free, table()), (best[1].clone(), lines));
}

#[test]
fn an_absurd_lag_is_refused_with_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let file = three("6.6ms");
    let refused = |lag: &str| {
        let output = in_folder(folder.path(), &["limit", file.path(), "--lag", lag]);
        assert!(!output.status.success(), "{lag}");
        complaint(&output)
    };
    assert!(refused("-1ms").contains("is negative; write a value of zero or more"));
    let long = refused("101ms");
    assert!(long.contains("the set lasts (100ms)") && long.contains("give a few"), "{long}");
    assert!(refused("1h").contains("the set lasts"));
    let most = ["limit", file.path(), "--lag", "100ms", "--time-limit", "1ns"];
    assert!(in_folder(folder.path(), &most).status.success());
}
