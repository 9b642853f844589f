// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sim` and `onbeat report`, and how all verbs take bad input.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{File, checkout, complaint, object, onbeat, said, short};

const FIGURES: [&str; 10] = [
    "jobs",
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
        "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"11ms\"\nwork = { constant = \"1ms\" }\n",
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
            assert!(complaint(&output).contains(place), "{}", complaint(&output));
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
fn provisioning_shows_both_budgets_and_refuses_what_cannot_be() {
    let with = |streams: &str, period: &str| {
        let fixed = ["--mean", "14.49ms", "--deviation", "5.19ms", "--hard", "4ms", "--json"];
        let given = ["provision", "--cpus", "11", "--streams", streams, "--period", period];
        onbeat(&[&given[..], &fixed].concat())
    };
    let fits = object(&with("20", "41.708ms"));
    // Table 1 of the paper.
    assert!((fits["largest"]["budget_ms"].as_f64().unwrap() - 16.65).abs() < 0.01, "{fits}");
    assert_eq!(fits["largest"]["queue"], 10);
    let late = |which: &str| fits[which]["tardiness_ms"].as_f64().unwrap();
    assert!(late("best") < late("largest"), "{fits}");
    for (streams, period, word) in [("23", "41.708ms", "constraint 4"), ("1", "0ms", "--period")] {
        let refused = with(streams, period);
        assert!(!refused.status.success());
        assert!(complaint(&refused).contains(word), "{}", complaint(&refused));
    }
}

#[test]
fn analysis_is_exact_where_sums_of_decimals_are_not() {
    let ninth = |count: u32| {
        File::new(format!(
            "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"t\"\ncount = {count}\n\
             period = \"9ms\"\nbudget = \"1ms\"\nwork = {{ constant = \"1ms\" }}\n"
        ))
    };
    let says = |count| {
        let file = ninth(count);
        object(&onbeat(&["analyze", file.path(), "--test", "edf-qpa", "--json"]))
    };
    assert_eq!(says(9)["tests"][0]["schedulable"], true);
    assert_eq!(says(9)["utilization_exact"], "1");
    assert_eq!(says(10)["tests"][0]["schedulable"], false);
    let file = ninth(1);
    let unknown = onbeat(&["analyze", file.path(), "--test", "no-such"]);
    assert!(!unknown.status.success() && complaint(&unknown).contains("--list"));
}

#[test]
fn a_sweep_goes_on_where_it_was_and_refuses_points_of_another() {
    let sweep = |sets: u32| {
        File::new(format!(
            "cpus = 2\nsets = {sets}\nutilization = {{ from = 1.0, to = 2.0, points = 3 }}\n\
             each = [0.1, 0.9]\nperiods = {{ uniform = [\"1ms\", \"20ms\"] }}\n\
             tests = [\"p-edf-ff\", \"edf-wm\"]\n"
        ))
    };
    let file = sweep(20);
    let kept = file.beside("kept.csv");
    let run =
        |file: &File| onbeat(&["sweep", file.path(), "--json", "--out", kept.to_str().unwrap()]);
    let whole = object(&run(&file));
    let text = std::fs::read_to_string(&kept).unwrap();
    // As a crash in the middle of the last line leaves it.
    std::fs::write(&kept, &text[..text.len() - 3]).unwrap();
    assert_eq!(object(&run(&file)), whole);
    let lines =
        |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(lines(&std::fs::read_to_string(&kept).unwrap()), lines(&text));
    for point in whole["points"].as_array().unwrap() {
        let success = &point["success"];
        assert!(success["edf-wm"].as_f64() >= success["p-edf-ff"].as_f64(), "{point}");
    }
    let other = run(&sweep(30));
    assert!(!other.status.success() && complaint(&other).contains("of another sweep"));
    for (from, to) in [("points = 3", "points = 0"), ("p-edf-ff", "no-such"), ("1.0", "-1.0")] {
        let bad = File::new(std::fs::read_to_string(file.path()).unwrap().replacen(from, to, 1));
        assert!(!onbeat(&["sweep", bad.path()]).status.success(), "{to}");
    }
}

#[test]
fn what_analysis_accepts_the_simulator_plays_without_a_miss_and_the_plot_shows_both() {
    let text = "cpus = 2\nsets = 20\nutilization = { from = 1.2, to = 1.9, points = 3 }\n\
         count = 4\nmethod = \"randfixedsum\"\nperiods = { log-uniform = [\"1ms\", \"20ms\"] }\n\
         tests = [\"edf-wm\", \"edf-wmr\"]\n\
         [simulation]\npolicies = [\"edf-wm\", \"edf-wmr\"]\nduration = \"2s\"\n";
    let file = File::new(text);
    let plot = file.beside("curves.svg");
    let run = |by: &str| {
        object(&onbeat(&[
            "sweep",
            file.path(),
            "--json",
            "--by",
            by,
            "--plot",
            plot.to_str().unwrap(),
        ]))
    };
    let (proven, played) = (run("analysis"), run("sim"));
    for (proven, played) in
        proven["points"].as_array().unwrap().iter().zip(played["points"].as_array().unwrap())
    {
        for name in ["edf-wm", "edf-wmr"] {
            let ratio = |point: &serde_json::Value| point["success"][name].as_f64().unwrap();
            assert!(ratio(played) >= ratio(proven), "{name}: {played} and {proven}");
        }
    }
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("edf-wmr") && svg.contains("U = m"));
    // No set of the file is for the lab; policies that only a kernel has, and no time, are refused.
    for (by, from, to) in [
        ("lab", "", ""),
        ("sim", "policies = [\"edf-wm\"", "policies = [\"fifo\""),
        ("sim", "\"2s\"", "\"0s\""),
        ("sim", "\"2s\"", "\"18446744073s\""),
        ("sim", "\"2s\"\n", "\"2s\"\nsets = 21\n"),
    ] {
        let bad = File::new(text.replacen(from, to, 1));
        let output = onbeat(&["sweep", bad.path(), "--by", by]);
        assert!(!output.status.success(), "{by} {to}");
        assert!(complaint(&output).contains(bad.path()), "{}", complaint(&output));
    }
}

#[test]
fn outputs_that_would_overwrite_inputs_and_points_of_no_sweep_are_refused() {
    let sweep = "cpus = 4\nsets = 20\neach = [0.1, 1.0]\nutilization = { from = 2.0, to = 3.0, points = 4 }\n\
        periods = { uniform = [\"1ms\", \"100ms\"] }\ntests = [\"p-edf-ff\"]\n";
    let file = File::new(sweep);
    let kept = file.beside("points.csv");
    let kept = kept.to_str().unwrap();
    for outputs in [["--plot", file.path(), "--out", kept], ["--plot", kept, "--out", kept]] {
        let refused = onbeat(&[&["sweep", file.path()][..], &outputs].concat());
        assert!(complaint(&refused).contains("named twice"), "{outputs:?}");
    }
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), sweep);
    assert!(complaint(&onbeat(&["sweep", file.path(), "--out", "/dev/zero"])).contains("ordinary"));
    assert!(onbeat(&["sweep", file.path(), "--out", kept]).status.success());
    for row in ["4,3.0,5\n", "3,3.0,21\n", "2,3.0\n"] {
        let before = std::fs::read_to_string(kept).unwrap();
        std::fs::write(kept, before.clone() + row).unwrap();
        assert!(
            complaint(&onbeat(&["sweep", file.path(), "--out", kept])).contains("no point"),
            "{row}"
        );
        std::fs::write(kept, before).unwrap();
    }
    let trace = File::new("14000000\n15000000\n");
    let same = [
        "provision",
        "--cpus",
        "4",
        "--streams",
        "4",
        "--period",
        "41ms",
        "--trace",
        trace.path(),
        "--plot",
        trace.path(),
    ];
    assert!(complaint(&onbeat(&same)).contains("named twice"));
}

#[test]
fn a_sweep_counts_no_set_that_it_could_not_draw() {
    let sweep = "cpus = 4\nsets = 20\ncount = 4\nutilization = { from = 3.9, to = 3.98, points = 2 }\n\
        periods = { uniform = [\"1ms\", \"100ms\"] }\ntests = [\"p-edf-ff\"]\n";
    assert!(complaint(&onbeat(&["sweep", File::new(sweep).path()])).contains("randfixedsum"));
    let drawn = File::new(sweep.replace("count = 4", "count = 4\nmethod = \"randfixedsum\""));
    // Four tasks, none above 1, always fit four CPUs.
    let found = object(&onbeat(&["sweep", drawn.path(), "--json"]));
    assert!(
        found["points"].as_array().unwrap().iter().all(|p| p["success"]["p-edf-ff"] == 1.0),
        "{found}"
    );
    let few = File::new(sweep.replace("count = 4", "count = 3"));
    assert!(complaint(&onbeat(&["sweep", few.path()])).contains("no more than 3"));
    let twice = File::new(sweep.replace("[\"p-edf-ff\"]", "[\"p-edf-ff\", \"p-edf-ff\"]"));
    assert!(complaint(&onbeat(&["sweep", twice.path()])).contains("twice"));
}

#[test]
fn analysis_promises_nothing_where_it_does_not_hold() {
    let set = "cpus = 2\nduration = \"1s\"\npolicies = [\"g-edf\"]\n[[task]]\nname = \"a\"\ncount = 2\nperiod = \"10ms\"\n\
        budget = \"8ms\"\nwork = { constant = \"8ms\" }\n";
    let bound = File::new(format!("{set}affinity = [0]\n"));
    assert!(complaint(&onbeat(&["analyze", bound.path()])).contains("affinity"));
    let late = File::new(format!("{set}deadline = \"15ms\"\n"));
    let found = object(&onbeat(&["analyze", late.path(), "--test", "g-edf-rta", "--json"]));
    assert!(
        found["tests"][0]["why_unknown"].as_str().unwrap().contains("beyond periods"),
        "{found}"
    );
    // In ns what is right in us: the step to the next candidate must not be 1.
    let shares = ["ms", "us"].map(|unit| {
        let six = set.replace("cpus = 2", "cpus = 4").replace("count = 2", "count = 6");
        let six = File::new(
            six.replace("10ms", &format!("41{unit}")).replace("8ms", &format!("12.5{unit}")),
        );
        let found = object(&onbeat(&[
            "analyze",
            six.path(),
            "--test",
            "g-rm-rta",
            "--test",
            "g-rm-guan",
            "--json",
        ]));
        found["tests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["schedulable"].clone())
            .collect::<Vec<_>>()
    });
    assert_eq!(shares[0], shares[1]);
    assert!(shares[0].iter().all(|fits| *fits == true), "{shares:?}");
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
fn table_1_of_kenna_comes_out_of_its_file_beside_the_printed_one() {
    let experiment = checkout().join("experiments/provision/kenna-t1.toml");
    let folder = File::new("");
    let plot = folder.beside("kenna.svg");
    let file = experiment.to_str().unwrap();
    let found = object(&onbeat(&["provision", file, "--json", "--plot", plot.to_str().unwrap()]));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let figure = |part: &str, name: &str| row[part][name].as_f64().unwrap();
        assert_eq!(row["largest"]["queue"], row["printed"]["queue"], "{row}");
        let budgets = ["largest", "printed"].map(|part| figure(part, "budget_ms"));
        assert!((budgets[0] - budgets[1]).abs() <= 0.005, "{row}");
        assert!(row["violated"].as_array().unwrap().is_empty(), "{row}");
        assert!(figure("best", "tardiness_ms") <= figure("printed", "tardiness_ms"), "{row}");
    }
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.contains("18 streams") && svg.contains("printed in the paper"));
    let text = std::fs::read_to_string(&experiment).unwrap();
    for (from, to) in [("cpus = 11", "cpus = 1"), ("streams = 16", "streams = 0"), ("\"4ms\"", "4")]
    {
        let bad = File::new(text.replacen(from, to, 1));
        let output = onbeat(&["provision", bad.path()]);
        assert!(!output.status.success() && complaint(&output).contains(bad.path()), "{to}");
    }
    // Each of 40 streams gets less than its mean of 11 CPUs: no row for them, and that is no success.
    let full = File::new(text.replacen("streams = 22", "streams = 40", 1));
    let output = onbeat(&["provision", full.path()]);
    assert!(!output.status.success() && output.stdout.len() > 500, "the table is still shown");
    assert!(complaint(&output).contains("for 40 streams: constraint"), "{}", complaint(&output));
    let endless = onbeat(&["provision", "/dev/zero"]);
    assert!(complaint(&endless).contains("too long"), "{}", complaint(&endless));
}
