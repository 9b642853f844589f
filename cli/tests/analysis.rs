// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat analyze` and `onbeat sweep`: what they promise and what they refuse; `onbeat provision`: `provision.rs`;
//! the verdict with which `onbeat analyze` begins: `verdict.rs`.

mod provision;
mod verdict;

use crate::common::{File, answered, checkout, complaint, object, onbeat, said};

#[test]
fn hard_tasks_that_fit_no_cpu_are_not_simulated_as_if_they_did() {
    let set = |class: &str| {
        File::new(format!(
            "cpus = 2\nduration = \"1s\"\npolicies = [\"edf-hsb-ns\"]\n[[task]]\nname = \"h\"\ncount = 3\n\
             class = \"{class}\"\nperiod = \"20ms\"\nbudget = \"12ms\"\nwork = {{ constant = \"9ms\" }}\n"
        ))
    };
    let refused = onbeat(&["sim", set("hard").path()]);
    assert!(!refused.status.success());
    let why = complaint(&refused);
    assert!(why.contains("h-2 (12ms in 20ms) is hard and fits no CPU"), "{why}");
    assert!(why.contains("lower budgets"), "{why}");
    assert!(onbeat(&["sim", set("soft").path()]).status.success(), "late by a bound, or more");
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
        answered(&onbeat(&["analyze", file.path(), "--test", "edf-qpa", "--json"]))
    };
    assert_eq!(says(9)["tests"][0]["schedulable"], true);
    assert_eq!(says(9)["utilization_exact"], "1");
    assert_eq!(says(10)["tests"][0]["schedulable"], false);
    let file = ninth(3);
    let third = answered(&onbeat(&["analyze", file.path(), "--test", "edf-qpa", "--json"]));
    assert_eq!(third["tests"][0]["scale_that_fits"], 3.0);
    assert_eq!(third["tests"][0]["slack_ns"][2], 6_000_000);
    let unknown = onbeat(&["analyze", file.path(), "--test", "no-such"]);
    assert!(!unknown.status.success() && complaint(&unknown).contains("--list"));
}

#[test]
fn admission_is_told_as_the_service_decides_it() {
    let six = checkout().join("experiments/kato-11.toml");
    let ask = |policy| {
        let test = ["--test", "edf-wmr", "--admit", policy, "--json"];
        answered(&onbeat(&[&["analyze", six.to_str().unwrap()], &test[..]].concat()))
    };
    let split = ask("edf-wmr+fcbs");
    assert_eq!(split["admission"]["admitted"], true);
    let parts: Vec<_> = (0..6).map(|i| split["admission"]["tasks"][i]["shares"].clone()).collect();
    assert!(parts[..4].iter().all(serde_json::Value::is_null), "{split}");
    for shares in &parts[4..] {
        let all: u64 =
            shares.as_array().unwrap().iter().map(|s| s["budget_ns"].as_u64().unwrap()).sum();
        assert_eq!(all, 25_000_000, "{split}");
    }
    let whole = ask("p-edf+cbs");
    assert_eq!(whole["admission"]["admitted"], false);
    let refused = whole["admission"]["tasks"][4]["refused"].as_str().unwrap();
    assert!(refused.contains("does not fit") && refused.contains("best-effort share"), "{refused}");
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
    assert!(complaint(&onbeat(&["sweep", few.path()])).contains("lower it to 3"));
    let twice = File::new(sweep.replace("[\"p-edf-ff\"]", "[\"p-edf-ff\", \"p-edf-ff\"]"));
    assert!(complaint(&onbeat(&["sweep", twice.path()])).contains("twice"));
}

#[test]
fn threads_that_wake_late_are_said_not_to_count_but_as_jitter() {
    let set = |wake: &str| {
        File::new(format!(
            "cpus = 1\nduration = \"1s\"\n{wake}[[task]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"2ms\"\n\
             work = {{ constant = \"1ms\" }}\n"
        ))
    };
    let told = |wake: &str| said(&onbeat(&["analyze", set(wake).path()]));
    let wakes = told("overheads = { wake = \"20us\" }\n");
    assert!(wakes.contains("add jitter = \"20us\" to each task"), "{wakes}");
    assert!(!wakes.contains("`overhead`"), "it costs no CPU time: {wakes}");
    let costs = told("overheads = { dispatch = \"2us\" }\n");
    assert!(costs.contains("`overhead`") && !costs.contains("jitter ="), "{costs}");
}

#[test]
fn analysis_promises_nothing_where_it_does_not_hold() {
    let set = "cpus = 2\nduration = \"1s\"\npolicies = [\"g-edf\"]\n[[task]]\nname = \"a\"\ncount = 2\n\
        period = \"10ms\"\nbudget = \"8ms\"\nwork = { constant = \"8ms\" }\n";
    let bound = File::new(format!("{set}affinity = [0]\n"));
    let asked = onbeat(&["analyze", bound.path(), "--test", "g-edf-gfb"]);
    assert!(complaint(&asked).contains("affinity"));
    let late = File::new(format!("{set}deadline = \"15ms\"\n"));
    let found = answered(&onbeat(&["analyze", late.path(), "--test", "g-rm-rta", "--json"]));
    assert!(
        found["tests"][0]["why_unknown"].as_str().unwrap().contains("beyond periods"),
        "{found}"
    );
    // EDF by release + deadline would be in time (two CPUs, 8 in every 10): so it is as Onbeat plays it, which is said.
    let said_so = onbeat(&["analyze", late.path(), "--test", "g-edf-rta"]);
    assert!(said(&said_so).contains("Due after the next release: a"), "{}", said(&said_so));
    // One CPU: b is due after its period, is served by its end, and takes a's time; a theorem for EDF by deadline says
    // yes.
    let played = File::new(
        "cpus = 1\nduration = \"40ms\"\npolicies = [\"g-edf\"]\nbest_effort_share = \"0%\"\n\
         [[task]]\nname = \"a\"\nperiod = \"10ms\"\ndeadline = \"2ms\"\nbudget = \"2ms\"\noffset = \"0.5ms\"\n\
         work = { constant = \"2ms\" }\n\
         [[task]]\nname = \"b\"\nperiod = \"3ms\"\ndeadline = \"12ms\"\nbudget = \"2ms\"\n\
         work = { constant = \"2ms\" }\n",
    );
    let asked = ["analyze", played.path(), "--test", "edf-qpa", "--json"];
    let found = answered(&onbeat(&asked));
    assert_eq!(found["tests"][0]["schedulable"], true, "in theory");
    assert_eq!(found["fits"], "?", "as it is served");
    let found = answered(&onbeat(&[&asked[..], &["--admit", "g-edf"]].concat()));
    let simulated = object(&onbeat(&["sim", played.path(), "--json"]));
    assert!(simulated["runs"][0]["metrics"]["miss_ratio"].as_f64().unwrap() > 0.0, "{simulated}");
    assert!(found["tests"][0]["schedulable"].is_null(), "{found}");
    // In ns what is right in us: the step to the next candidate must not be 1.
    let shares = ["ms", "us"].map(|unit| {
        let six = set.replace("cpus = 2", "cpus = 4").replace("count = 2", "count = 6");
        let six = File::new(
            six.replace("10ms", &format!("41{unit}")).replace("8ms", &format!("11{unit}")),
        );
        let found = answered(&onbeat(&[
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

/// A film, and a voice in a group of its own, which is in the film's.
fn grouped(budget: &str, cpus: &str, policies: &str) -> File {
    let task = |name: &str, budget: &str, group: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"40ms\"\nbudget = \"{budget}\"\ngroup = \"{group}\"\n\
             work = {{ constant = \"1ms\" }}\n"
        )
    };
    File::new(format!(
        "{cpus}\nduration = \"1s\"\npolicies = [{policies}]\n\
         [[group]]\nname = \"multimedia\"\nbudget = \"{budget}\"\nperiod = \"20ms\"\n\
         [[group]]\nname = \"sound\"\nin = \"multimedia\"\norder = \"rm\"\nbudget = \"2ms\"\nperiod = \"20ms\"\n{}{}",
        task("film", "8ms", "multimedia"),
        task("voice", "1ms", "sound")
    ))
}

#[test]
fn groups_stand_for_their_members_and_are_tested_for_them() {
    let file = grouped("12ms", "cpus = 1", "\"p-edf+cbs-hard\"");
    let said = answered(&onbeat(&["analyze", file.path(), "--admit", "p-edf+cbs-hard", "--json"]));
    assert_eq!(said["tasks"], serde_json::json!(["multimedia"]));
    assert_eq!(said["utilization_exact"], "3/5");
    assert_eq!(said["admission"]["tasks"][0]["cpus"], serde_json::json!([0]));
    let groups = &said["groups"][0]["groups"];
    assert_eq!((&groups[0]["fits"], &groups[1]["fits"]), (&true.into(), &true.into()), "{said}");
    // Sound may ask for 2 ms in 20 ms, of which there is nothing for 2 · (20 ms − 11 ms).
    assert_eq!(groups[0]["least_budget_ns"], 11_000_000);
    // With 1 ms all of it is there by 2 · (20 ms − 1 ms) + 1 ms; with less a second budget is needed, 20 ms later.
    assert_eq!(groups[1]["least_budget_ns"], 1_000_000);
    assert_eq!(
        (&groups[1]["member"], &groups[1]["interval_ns"]),
        (&"voice".into(), &37_000_000.into())
    );
    let shown = said_by(&file);
    assert!(
        shown.contains("groups under p-edf+cbs-hard")
            && shown.contains("yes, least to spare: voice"),
        "{shown}"
    );
}

fn said_by(file: &File) -> String {
    said(&onbeat(&["analyze", file.path()]))
}

#[test]
fn a_group_with_too_little_says_where_and_what_would_be_enough() {
    let small = grouped("6ms", "cpus = 1", "\"p-edf+cbs-hard\"");
    let of = |file: &File| {
        answered(&onbeat(&["analyze", file.path(), "--json"]))["groups"][0]["groups"][0].clone()
    };
    let group = of(&small);
    assert_eq!(group["fits"], false);
    assert!(group["demand_ns"].as_u64() > group["supply_ns"].as_u64(), "{group}");
    let least = group["least_budget_ns"].as_u64().unwrap() / 1000;
    assert_eq!(of(&grouped(&format!("{least}us"), "cpus = 1", "\"p-edf+cbs-hard\""))["fits"], true);
    assert_eq!(
        of(&grouped(&format!("{}us", least - 1), "cpus = 1", "\"p-edf+cbs-hard\""))["fits"],
        false
    );
}

#[test]
fn what_no_test_of_groups_covers_is_shown_with_the_reason() {
    let file = grouped("12ms", "cpus = 2", "\"g-edf+cbs-hard\", \"p-edf+cbs\", \"p-rm+cbs-hard\"");
    let shown = said_by(&file);
    for why in
        ["no test covers a group on several CPUs", "the rule cbs, which", "among members under rm"]
    {
        assert!(shown.contains(why), "{why} in {shown}");
    }
    // Bound to a CPU the set as a whole is not tested, the groups are.
    let bound = File::new(
        std::fs::read_to_string(grouped("12ms", "cpus = 2", "\"g-edf+cbs-hard\"").path())
            .unwrap()
            .replace("name = \"multimedia\"\n", "name = \"multimedia\"\ncpus = [1]\n"),
    );
    let bound = said(&onbeat(&["analyze", bound.path(), "--all"]));
    assert!(
        bound.contains("no tests of the set as a whole: group multimedia may use CPUs [1] only"),
        "{bound}"
    );
    assert!(bound.contains("least to spare: voice"), "{bound}");
}
