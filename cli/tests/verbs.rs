// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sim` and `onbeat report`, and how all verbs take bad input.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{self, File, checkout, complaint, object, onbeat, said, short};

const FIGURES: [&str; 13] = [
    "jobs",
    "owed",
    "owed_late",
    "owed_tardiness_max_ms",
    "miss_ratio",
    "worst_fps",
    "mean_fps",
    "fps_sd",
    "tardiness_p99_ms",
    "tardiness_max_ms",
    "best_effort_cpus",
    "preemptions",
    "migrations",
];

fn experiment(name: &str) -> String {
    checkout().join("experiments").join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_simulators_json_has_a_world_a_platform_and_for_each_policy_all_figures() {
    let json = object(&onbeat(&["sim", &experiment("kato-09.toml"), "--json"]));
    assert_eq!(json["world"], "sim");
    assert_eq!(json["platform"]["cpus"], 4);
    let runs = json["runs"].as_array().unwrap();
    assert!(runs.iter().any(|run| run["policy"] == "g-edf+fcbs"), "{json}");
    for run in runs {
        for figure in FIGURES {
            assert!(run["metrics"][figure].is_number(), "{} has no {figure}", run["policy"]);
        }
        assert!(run["tasks"].is_array());
    }
}

#[test]
fn where_nothing_lasts_a_second_rates_are_a_dash_and_null_and_all_else_is_there() {
    let file = File::new(
        "cpus = 1\nduration = \"900ms\"\npolicies = [\"g-edf+cbs\"]\n[[task]]\nname = \"a\"\nperiod = \"20ms\"\n\
         budget = \"5ms\"\nwork = { constant = \"2ms\" }\n",
    );
    let run = object(&onbeat(&["sim", file.path(), "--json"]))["runs"][0].clone();
    for figure in ["worst_fps", "mean_fps", "fps_sd"] {
        assert!(run["metrics"][figure].is_null() && run["tasks"][0][figure].is_null(), "{figure}");
    }
    let text = said(&onbeat(&["sim", file.path(), "--detail"]));
    assert!(text.contains("mean/s") && text.contains("CPU/job") && text.contains('–'), "{text}");
    // The page has no picture of them.
    let page = file.beside("page.html");
    let saved = file.beside("run.json");
    fs::write(&saved, said(&onbeat(&["sim", file.path(), "--json"]))).unwrap();
    let made = onbeat(&["report", saved.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert!(made.status.success(), "{}", complaint(&made));
    assert!(!fs::read_to_string(page).unwrap().contains("and the worst second"));
}

/// What only knowledge of how jobs resemble each other gives: `cbs-slack`, which has none, is late in 2.9 %, first
/// come, first served in 4.8.
#[test]
fn six_movies_from_random_frames_are_late_in_half_of_the_jobs_of_first_come_first_served() {
    let file = experiment("kato-11-starts.toml");
    let late = |policy| {
        let json = object(&onbeat(&["sim", &file, "--json", "--policy", policy]));
        json["runs"][0]["metrics"]["misses"].as_u64().unwrap()
    };
    let (ours, fifo) = (late("g-edzl+cbs-predict"), late("g-fifo"));
    assert!(2 * ours <= fifo, "{ours} and {fifo} late jobs");
}

#[test]
fn two_simulations_of_one_file_print_the_same_bytes() {
    let file = experiment("kato-11.toml");
    let run = || onbeat(&["sim", &file, "--json"]).stdout;
    assert_eq!(run(), run());
}

#[test]
fn the_kernels_own_policies_are_left_out_with_a_note_and_refused_when_asked_for() {
    let file = short("\"eevdf\", \"fifo\", \"g-edf+cbs\"");
    let output = onbeat(&["sim", file.path()]);
    assert!(output.status.success());
    assert_eq!(complaint(&output).lines().count(), 1, "{}", complaint(&output));
    assert!(complaint(&output).contains("eevdf, fifo"));
    let output = onbeat(&["sim", file.path(), "--policy", "fifo"]);
    assert!(!output.status.success());
    assert!(complaint(&output).contains("onbeat lab"), "{}", complaint(&output));
}

#[test]
fn policies_are_those_asked_for_each_once() {
    let file = short("\"g-edf\"");
    let words = ["sim", file.path(), "--json", "--policy", "fcbs", "--policy", "g-edf+fcbs"];
    let json = object(&onbeat(&words));
    assert_eq!(json["runs"].as_array().unwrap().len(), 1);
    assert_eq!(json["runs"][0]["policy"], "g-edf+fcbs");
}

#[test]
fn page_and_traces_are_written_and_belong_together() {
    let file = short("\"g-edf+cbs\", \"g-edf+fcbs\"");
    let (page, trace) = (file.beside("page.html"), file.beside("t.perfetto-trace"));
    let words = ["sim", file.path(), "--html", page.to_str().unwrap(), "--trace"];
    let output = onbeat(&[&words[..], &[trace.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    let page = fs::read_to_string(page).unwrap();
    for name in ["t.g-edf+cbs.perfetto-trace", "t.g-edf+fcbs.perfetto-trace"] {
        assert!(fs::metadata(file.beside(name)).unwrap().len() > 1000, "{name}");
        assert!(page.contains(name), "no link to {name}");
    }
}

#[test]
fn kept_results_make_the_same_table_and_a_page() {
    let file = short("\"g-edf+cbs\", \"g-edf+fcbs\"");
    let table = onbeat(&["sim", file.path()]);
    let json = onbeat(&["sim", file.path(), "--json"]);
    let (kept, page) = (file.beside("kept.json"), file.beside("page.html"));
    fs::write(&kept, json.stdout).unwrap();
    let words = ["report", kept.to_str().unwrap(), "--html", page.to_str().unwrap()];
    let output = onbeat(&words);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(said(&output).contains(said(&table).trim_end()), "{}", said(&output));
    assert!(fs::read_to_string(page).unwrap().contains("g-edf+fcbs"));
}

#[test]
fn results_of_several_files_and_of_repetitions_are_read_again_and_other_answers_are_named() {
    let (one, two) = (short("\"g-edf+cbs\""), short("\"g-edf+fcbs\""));
    let kept = |words: &[&str], name: &str| {
        let file = one.beside(name);
        fs::write(&file, onbeat(words).stdout).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let several = kept(&["sim", one.path(), two.path(), "--json"], "several.json");
    let shown = onbeat(&["report", &several]);
    assert!(shown.status.success(), "{}", complaint(&shown));
    assert!(["g-edf+cbs", "g-edf+fcbs"].iter().all(|name| said(&shown).contains(name)));
    let words = ["sim", one.path(), "--repeat", "3"];
    let means = kept(&[&words[..], &["--json"]].concat(), "means.json");
    let shown = onbeat(&["report", &means]);
    assert_eq!(said(&shown).trim_end(), said(&onbeat(&words)).trim_end());
    let page = one.beside("page.html");
    let refused = onbeat(&["report", &means, "--html", page.to_str().unwrap()]);
    assert!(complaint(&refused).contains("tables only"), "{}", complaint(&refused));
    assert!(!page.exists());
    let answer = kept(&["analyze", one.path(), "--json"], "answer.json");
    let refused = onbeat(&["report", &answer]);
    assert!(complaint(&refused).contains("`onbeat analyze` printed"), "{}", complaint(&refused));
}

#[test]
fn runs_that_are_stopped_say_how_far_they_are_leave_the_means_of_those_done_and_begin_no_other_file()
 {
    let (file, other) = (experiment("kato-09.toml"), experiment("kato-10.toml"));
    let mut program = Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(["sim", &file, &other, "--repeat", "10000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
    let far = lines.find(|line| line.as_ref().unwrap().contains(" of 10000 runs done"));
    assert!(far.is_some(), "not a word of how far it is");
    // SAFETY: plain system call.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGINT) }, 0);
    let rest: String = lines.map(Result::unwrap).collect();
    let ended = program.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{rest}");
    let means: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let done = means["repetitions"].as_u64().unwrap();
    assert!((1..10_000).contains(&done), "{done}");
    assert!(rest.contains(&format!("stopped on request after {done} of 10000 runs")), "{rest}");
    assert!(rest.contains("1 of 2 files were not begun"), "{rest}");
}

#[test]
fn only_what_was_such_a_file_before_is_replaced() {
    let file = short("\"g-edf+cbs\"");
    let other = file.beside("other.svg");
    fs::copy(file.path(), &other).unwrap();
    let other = other.to_str().unwrap();
    for option in ["--html", "--trace", "--progress"] {
        let output = onbeat(&["sim", file.path(), option, other]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(complaint(&output).contains("is there already"), "{}", complaint(&output));
        let own = file.beside(&format!("{option}.svg"));
        for _ in 0..2 {
            let output = onbeat(&["sim", file.path(), option, own.to_str().unwrap()]);
            assert!(output.status.success(), "{option}: {}", complaint(&output));
        }
    }
    assert_eq!(fs::read_to_string(other).unwrap(), fs::read_to_string(file.path()).unwrap());
    let output = onbeat(&["sim", file.path(), "--html", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint(&output).contains("standard output has the results"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn pictures_are_svg_and_another_ending_is_refused_before_anything_is_played() {
    let file = short("\"g-edf+cbs\"");
    let picture = file.beside("p.png");
    let output = onbeat(&["sim", file.path(), "--progress", picture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("SVG only") && complaint(&output).contains("p.svg, say"));
    assert!(said(&output).is_empty() && !picture.exists());
    let page = file.beside("p.svg");
    let same = page.to_str().unwrap();
    let twice = onbeat(&["sim", file.path(), "--progress", same, "--html", same]);
    assert!(complaint(&twice).contains("named twice"), "{}", complaint(&twice));
    assert!(!page.exists());
}

#[test]
fn a_folder_in_place_of_a_file_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    for verb in ["sweep", "provision", "report"] {
        let text = complaint(&onbeat(&[verb, name]));
        assert!(text.contains("is a folder; name a file in it"), "{verb}: {text}");
    }
}

#[test]
fn a_file_that_is_no_result_is_refused_by_name() {
    for contents in ["", "{}", "[1]", "\u{0}\u{1}"] {
        let file = File::new(contents);
        let output = onbeat(&["report", file.path()]);
        assert!(!output.status.success(), "{contents:?}");
        assert!(complaint(&output).contains("set.toml"), "{}", complaint(&output));
    }
}

/// Contents, the line to be named, and part of what must be said.
const BAD: [(&str, Option<u32>, &str); 8] = [
    ("", None, "cpus"),
    ("\u{0}\u{7f}ELF\u{1}", None, ""),
    ("cpus = 4\nduration = \"1s\"\ncolour = 3\n", Some(3), "colour"),
    ("cpus = 4000\n", Some(1), "64"),
    ("cpus = 1\nduration = \"1s\"\npolicies = [\"gedf\"]\n", Some(3), "g-edf"),
    (
        "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"0ms\"\nwork = { constant = \"1ms\" }\n",
        Some(5),
        "period",
    ),
    (
        "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"11ms\"\n\
         work = { constant = \"1ms\" }\n",
        Some(6),
        "budget",
    ),
    (
        "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nwork = { trace = \"no.csv\" }\n",
        Some(6),
        "no.csv",
    ),
];

#[test]
fn bad_files_are_refused_with_line_reason_and_remedy_by_simulator_and_lab_alike() {
    for (contents, line, part) in BAD {
        for verb in ["sim", "lab"] {
            let file = File::new(contents);
            let output = onbeat(&[verb, file.path()]);
            let text = complaint(&output);
            assert!(!output.status.success(), "{verb} took {contents:?}");
            let place = line.map_or("set.toml:".into(), |line| format!("set.toml:{line}:"));
            assert!(text.contains(&place) && text.contains(part), "{contents:?}: {text}");
            assert!(text.contains(';'), "no remedy: {text}");
            assert_eq!(said(&output), "");
        }
    }
}

#[test]
fn real_programs_cannot_be_simulated_and_the_lab_is_named() {
    let output = onbeat(&["sim", &experiment("kato-09-decode.toml")]);
    assert!(!output.status.success());
    assert!(complaint(&output).contains("onbeat lab"), "{}", complaint(&output));
}

#[test]
fn an_unknown_policy_is_refused_with_the_nearest() {
    let file = short("\"g-edf\"");
    for verb in ["sim", "lab"] {
        let output = onbeat(&[verb, file.path(), "--policy", "g-edf+fcsb"]);
        assert!(!output.status.success());
        assert!(
            complaint(&output).contains("did you mean \"g-edf+fcbs\""),
            "{}",
            complaint(&output)
        );
    }
}

#[test]
fn a_place_that_cannot_be_written_is_known_before_the_work() {
    let file = short("\"g-edf\"");
    for place in ["/proc/page.html", "/no/such/folder/page.html", "/tmp"] {
        for verb in ["sim", "lab"] {
            let output = onbeat(&[verb, file.path(), "--html", place]);
            assert!(!output.status.success(), "{place}");
            let why = complaint(&output);
            // Under no name but that which was given.
            assert!(why.contains(place) && !why.contains("/.onbeat"), "{why}");
            assert_eq!(said(&output), "");
        }
    }
}

#[test]
fn a_full_disk_costs_the_page_but_not_the_table() {
    let file = short("\"g-edf\"");
    let output = onbeat(&["sim", file.path(), "--html", "/dev/full"]);
    assert!(!output.status.success());
    assert!(said(&output).contains("g-edf"), "{}", said(&output));
    assert!(complaint(&output).contains("/dev/full"), "{}", complaint(&output));
}

#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_is_none() {
    let file = short("\"g-edf\"");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
        command.args(["sim", file.path(), "--json"]).stdout(out).output().unwrap()
    };
    let output = run(full.into());
    assert!(!output.status.success());
    assert!(complaint(&output).contains("standard output"), "{}", complaint(&output));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = run(writer.into());
    assert_eq!(complaint(&output), "");
}

#[test]
fn missing_movies_programs_and_tools_are_named_with_the_remedy() {
    let task = |work: &str| {
        let head = "cpus = 1\nduration = \"1s\"\npolicies = [\"fifo\"]\n[[task]]\nname = \"a\"\n";
        File::new(format!("{head}period = \"41ms\"\nwork = {work}\n"))
    };
    common::build_the_guests_programs();
    let file = task("{ movie = \"no-such.mp4\" }");
    let text = complaint(&onbeat(&["lab", file.path()]));
    assert!(text.contains("no-such.mp4") && text.contains("make setup"), "{text}");

    let file = task("{ movie = \"text.mp4\" }");
    fs::write(file.beside("text.mp4"), "this is no movie").unwrap();
    let text = complaint(&onbeat(&["lab", file.path()]));
    assert!(text.contains("text.mp4") && text.contains("not a movie"), "{text}");

    let file = task("{ program = [\"no-such-program\"] }");
    let text = complaint(&onbeat(&["lab", file.path()]));
    assert!(text.contains("no-such-program"), "{text}");

    let file = task("{ constant = \"1ms\" }");
    let with = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
        let output = command.args(["lab", file.path()]).env(name, value).output().unwrap();
        assert!(!output.status.success(), "{name}");
        complaint(&output)
    };
    let text = with("ONBEAT_QEMU", "/no/qemu");
    assert!(text.contains("/no/qemu") && text.contains("make setup"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let text = with("ONBEAT_CACHE", empty.path().to_str().unwrap());
    assert!(text.contains("kernel") && text.contains("make setup"), "{text}");
}

#[test]
fn a_shell_without_a_terminal_is_refused_with_what_to_write_instead() {
    let text = complaint(
        &Command::new(env!("CARGO_BIN_EXE_onbeat"))
            .args(["lab", "--shell"])
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    assert!(text.contains("needs a terminal") && text.contains("sh -c"), "{text}");
}

#[test]
fn an_error_that_nobody_can_read_is_still_that_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(["analyze", "/nonexistent.toml"])
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_number_that_makes_no_sense_is_refused_with_what_is_expected() {
    for (words, says) in [
        (&["release", "x"][..], "write the number that `onbeat status` shows"),
        (&["release", "-1"], "write the number that `onbeat status` shows"),
        (&["demo", "--jobs", "-1"], "write a whole number from 1 to 256"),
        (&["demo", "--duration", "0s"], "write a time above zero"),
        (&["demo", "--duration", "2h"], "at most 1h"),
        (&["run", "--period", "-1ms", "--budget", "1ms", "--", "true"], "is negative"),
        (&["run", "--period", "0s", "--budget", "0s", "--", "true"], "choose one that is"),
    ] {
        let refused = onbeat(words);
        // That of a command that passes on a program's is not to be mistaken for the program's.
        let status = if words[0] == "run" { 125 } else { 2 };
        assert_eq!(refused.status.code(), Some(status), "{words:?}");
        assert!(complaint(&refused).contains(says), "{words:?}: {}", complaint(&refused));
    }
}

#[test]
fn a_command_line_that_makes_no_sense_has_one_exit_status_wherever_that_is_found() {
    let file = short("\"g-edf+cbs\"");
    let set = file.path();
    for words in [
        &["analyze", set, "--policy", "bogus"][..],
        &["analyze", set, "--test", "bogus"],
        &["analyze", set, "--admit", "bogus"],
        &["analyze", set, "--admit", "eevdf"],
        &["analyze", set, set, "--json"],
        &["sim", set, "--best-effort", "bogus"],
        &["sim", set, "--policy", "fifo"],
        &["sim", set, "--duration", "0s"],
        &["sim", set, "--html", set],
        &["limit", set, "--capacity", "0"],
        &["limit", set, "--capacity", "99"],
        &[
            "provision",
            "--cpus",
            "2",
            "--streams",
            "1",
            "--period",
            "0ms",
            "--mean",
            "1ms",
            "--deviation",
            "1ms",
        ],
        &[
            "provision",
            "--cpus",
            "2",
            "--streams",
            "1",
            "--period",
            "9ms",
            "--mean",
            "1ms",
            "--deviation",
            "6h",
        ],
        &["family", "bogus"],
    ] {
        let refused = onbeat(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", complaint(&refused));
        assert!(!complaint(&refused).is_empty(), "{words:?}");
    }
}
