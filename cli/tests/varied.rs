// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sweep` over a task set: figures with intervals, verdicts on claims, and what it refuses; repetitions of
//! `onbeat sim`.

use crate::common::{self, File, checkout, complaint, object, onbeat, said};

const BASE: &str = "name = \"base\"\ncpus = 2\nduration = \"2s\"\npolicies = [\"g-edf+cbs-hard\"]\n[[task]]\n\
                    name = \"t\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n\
                    work = { uniform = [\"1ms\", \"3ms\"] }\n[best_effort]\ncount = 1\n";
const SWEEP: &str = "title = \"small\"\nbase = \"base.toml\"\nreplications = 4\n[vary]\naxis = \"tasks\"\n\
                     keys = [\"task.t.count\"]\npoints = [[1], [3]]\n[[configuration]]\nname = \"plain\"\n\
                     policy = \"g-edf+cbs-hard\"\n[[configuration]]\nname = \"alone\"\npolicy = \"p-edf\"\n\
                     without = [\"best_effort\"]\n[[figure]]\nname = \"a\"\ntitle = \"best effort\"\n\
                     of = \"best_effort_cpus\"\nunit = \"CPUs\"\nlevel = 1.0\n[[figure]]\nname = \"b\"\n\
                     title = \"response\"\nof = \"t.response_mean_ms\"\nunit = \"ms\"\n[[claim]]\nfigure = \"a\"\n\
                     text = \"A hog has a CPU.\"\nexpect = [\"plain.least >= 0.99 at 1\", \"alone <= 0\"]\n[[claim]]\n\
                     figure = \"b\"\ntext = \"Jobs end sooner on fewer CPUs.\"\nexpect = [\"plain > alone * 2\"]\n\
                     otherwise = \"They do not.\"\n";

/// The sweep with that changed, in a folder with its base.
fn sweep(from: &str, to: &str, more: &[&str]) -> (tempfile::TempDir, std::process::Output) {
    assert!(SWEEP.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("base.toml"), BASE).unwrap();
    let other = BASE.replace("name = \"t\"", "name = \"u\"");
    std::fs::write(folder.path().join("other.toml"), other).unwrap();
    let file = folder.path().join("sweep.toml");
    std::fs::write(&file, SWEEP.replace(from, to)).unwrap();
    let output = onbeat(&[&["sweep", file.to_str().unwrap()][..], more].concat());
    (folder, output)
}

#[test]
fn each_point_has_a_mean_with_an_interval_and_each_claim_a_verdict() {
    let found = object(&sweep("", "", &["--json"]).1);
    let point = |figure: usize, configuration: usize, point: usize| {
        found["figures"][figure]["curves"][configuration]["points"][point].clone()
    };
    assert_eq!(point(0, 0, 1)["x"], 3.0);
    let mean = |value: &serde_json::Value| value["mean"].as_f64().unwrap();
    // Jobs of 2 ms on average, in 800 of which the mean lies within 0.1 ms: five standard errors.
    assert!((mean(&point(1, 0, 0)) - 2.0).abs() < 0.1, "{found}");
    let reach = point(1, 0, 0)["reach"].as_f64().unwrap();
    assert!(reach > 0.0 && reach < 0.2, "{found}");
    assert_eq!(mean(&point(0, 1, 0)), 0.0, "it was left out");
    assert_eq!(found["claims"][0]["verdict"], "holds");
    assert_eq!(found["claims"][1]["verdict"], "differs");
    let text = said(&sweep("", "", &[]).1);
    assert!(text.contains("b differs: Jobs end sooner") && text.contains("They do not."), "{text}");
}

/// Response times of 200 jobs between 1 and 3 ms: their mean has a standard error of 0.041 ms, so that of eight
/// replications is known to 0.034 ms, by Student's t.
#[test]
fn task_sets_are_points_and_replications_end_where_the_interval_reaches_far_enough() {
    let several = SWEEP
        .replace("base = \"base.toml\"", "base = [\"base.toml\", \"other.toml\"]")
        .replace("[vary]\naxis = \"tasks\"\nkeys = [\"task.t.count\"]\npoints = [[1], [3]]\n", "")
        .replace("replications = 4", "replications = 40")
        .replace("of = \"t.response_mean_ms\"\n", "of = \"t.response_mean_ms\"\nreach = 0.06\n")
        .replace("policy = \"p-edf\"", "policy = \"p-edf\"\nat = { 2 = { \"task.u.count\" = 2 } }");
    let found = object(&sweep(SWEEP, &several, &["--json"]).1);
    let points = &found["figures"][1]["curves"][0]["points"];
    assert!((8..40).contains(&points[0]["n"].as_u64().unwrap()), "{points}");
    assert!(points[0]["reach"].as_f64().unwrap() <= 0.06, "{points}");
    assert_eq!((points[1]["x"].as_f64(), points[1]["n"].as_u64()), (Some(2.0), Some(0)));
    for (from, to, word) in [
        ("{ 2 = {", "{ 3 = {", "no such point"),
        ("\"other.toml\"]", "\"none.toml\"]", "none.toml"),
        ("of = \"t.response", "of = \"v.response", "no task"),
        ("reach = 0.06", "reach = 0", "more than 0"),
        ("replications = 40", "replications = 40\nover_time = \"500ms\"", "base is a list"),
    ] {
        assert!(several.contains(from), "{from}");
        let (_folder, output) = sweep(SWEEP, &several.replace(from, to), &[]);
        assert!(!output.status.success(), "{to}");
        assert!(complaint(&output).contains(word), "{to}: {}", complaint(&output));
    }
}

#[test]
fn values_and_a_picture_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, svg] = ["v.csv", "p.svg"].map(|name| folder.path().join(name));
    let more = ["--out", csv.to_str().unwrap(), "--plot", svg.to_str().unwrap()];
    assert!(sweep("", "", &more).1.status.success());
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), 1 + 2 * 2 * 2 * 4);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("best effort"));
    // A sweep that has ended has nothing to go on from: what is there is somebody's.
    let (_folder, refused) = sweep("", "", &more[2..]);
    assert!(!refused.status.success() && complaint(&refused).contains("--force"));
    assert!(sweep("", "", &[&more[2..], &["--force"]].concat()).1.status.success());
}

#[test]
fn a_claim_about_what_was_not_measured_does_not_hold_and_one_replication_has_no_interval() {
    // No task lasts a second, so there is no worst second.
    let (_folder, output) =
        sweep("replications = 4", "replications = 1\nwith = { duration = \"500ms\" }", &[]);
    let text = said(&output);
    assert!(text.contains("1 replication\n") && !text.contains('±'), "{text}");
    let unseen = SWEEP
        .replace("replications = 4", "replications = 1\nwith = { duration = \"500ms\" }")
        .replace("t.response_mean_ms", "t.worst_fps")
        .replace("plain > alone * 2", "plain <= 1000");
    let (_folder, output) = sweep(SWEEP, &unseen, &["--json"]);
    let claim = object(&output)["claims"][1].clone();
    assert_eq!(claim["verdict"], "differs", "{claim}");
    assert!(claim["against"][0].as_str().unwrap().contains("nothing measured at 1"), "{claim}");
}

#[test]
fn mistakes_are_named_before_anything_is_played() {
    for (from, to, word) in [
        ("base.toml", "none.toml", "none.toml"),
        ("task.t.count", "task.u.count", "no task is called \"u\""),
        ("[[1], [3]]", "[[3], [1]]", "ascending"),
        ("[[1], [3]]", "[[1, 2]]", "2 values"),
        ("[[1], [3]]", "[[0], [1]]", "plain at 0"),
        ("t.response_mean_ms", "tt.response_mean_ms", "no task of plain at 1"),
        ("replications = 4", "replications = 9223372036854775807", "1 to 100000 runs"),
        ("t.response_mean_ms", "t.beauty", "no figure \"beauty\""),
        ("\"p-edf\"", "\"eevdf\"", "does not play eevdf"),
        ("name = \"alone\"", "name = \"plain\"", "two are called"),
        ("alone * 2", "nobody", "no [[configuration]]"),
        ("at 1", "at 2", "about no point"),
        ("replications = 4", "replications = 4\nreplicate = 3", "replicate"),
        ("[vary]", "over_time = \"1s\"\n[vary]", "leave one out"),
    ] {
        let (_folder, refused) = sweep(from, to, &[]);
        assert!(!refused.status.success(), "{to}");
        assert!(complaint(&refused).contains(word), "{word}: {}", complaint(&refused));
    }
    let (_folder, refused) = sweep("", "", &["--by", "lab"]);
    assert!(complaint(&refused).contains("leave --by out"), "{}", complaint(&refused));
}

#[test]
fn every_sweep_of_the_repository_makes_task_sets() {
    // A tenth of a second of each: their results take minutes, and stand in docs/kenna.md and srt.md.
    for name in ["kenna-3-generators", "kenna-3-videos", "kenna-3-time", "berate"] {
        let folder = checkout().join("experiments");
        let text = std::fs::read_to_string(folder.join(format!("sweeps/{name}.toml"))).unwrap();
        let short = text
            .replace("../", &format!("{}/", folder.display()))
            .replace("replications = 200", "replications = 6")
            .replace("replications = 6", "replications = 1\nwith = { duration = \"100ms\" }")
            .replace("[with]\n", "[with]\nduration = \"1s\"\n");
        let file = common::File::new(short);
        let output = onbeat(&["sweep", file.path(), "--json"]);
        assert!(!object(&output)["claims"].as_array().unwrap().is_empty(), "{name}");
    }
}

/// One task of random work on one CPU, late now and then.
fn late_now_and_then() -> File {
    File::new(
        "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\n\
         budget = \"5ms\"\nwork = { exponential = { mean = \"4ms\", max = \"20ms\" } }\n",
    )
}

#[test]
fn repetitions_have_the_mean_of_runs_with_seeds_one_after_the_other() {
    let file = late_now_and_then();
    let all = object(&onbeat(&["sim", file.path(), "--seed", "5", "--repeat", "3", "--json"]));
    let ratio = |seed: u32| {
        let one = object(&onbeat(&["sim", file.path(), "--seed", &seed.to_string(), "--json"]));
        100.0 * one["runs"][0]["tasks"][0]["miss_ratio"].as_f64().unwrap()
    };
    let single = [ratio(5), ratio(6), ratio(7)];
    assert!(single[0] != single[1] || single[1] != single[2], "{single:?}");
    let found = &all["policies"][0]["tasks"][0]["figures"]["miss_percent"];
    assert!(
        (found["mean"].as_f64().unwrap() - single.iter().sum::<f64>() / 3.0).abs() < 1e-9,
        "{found}"
    );
    assert!(found["reach"].as_f64().unwrap() > 0.0 && all["seed"] == 5, "{all}");
    let shown = said(&onbeat(&["sim", file.path(), "--repeat", "3"]));
    assert!(shown.contains("seeds 1 to 3") && shown.contains(" ±"), "{shown}");
}

#[test]
fn another_duration_and_several_files_are_simulated_as_asked() {
    let file = late_now_and_then();
    let half = object(&onbeat(&["sim", file.path(), "--duration", "500ms", "--json"]));
    assert_eq!(half["runs"][0]["tasks"][0]["jobs"], 50, "{half}");
    let refused = complaint(&onbeat(&["sim", file.path(), "--duration", "2h"]));
    assert!(refused.contains("--duration 2h") || refused.contains("up to"), "{refused}");
    let two = onbeat(&["sim", file.path(), late_now_and_then().path(), "--json"]);
    let objects =
        serde_json::Deserializer::from_slice(&two.stdout).into_iter::<serde_json::Value>();
    assert_eq!(
        objects.filter_map(Result::ok).filter(|object| object["runs"].is_array()).count(),
        2
    );
    let page = onbeat(&["sim", file.path(), file.path(), "--html", "no.html"]);
    assert!(!page.status.success() && complaint(&page).contains("one task-set file"), "{page:?}");
}
