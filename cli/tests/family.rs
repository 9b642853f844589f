// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat family`: what it promises and what it refuses.

use std::fs;

use crate::common::{complaint, object, onbeat, said};

const SHORT: [&str; 5] = ["family", "--seconds", "4", "--sets", "2"];

fn short(more: &[&str]) -> std::process::Output {
    onbeat(&[&SHORT[..], more].concat())
}

#[test]
fn every_family_is_played_under_every_policy_and_the_same_again() {
    let ask = || object(&short(&["--policies", "g-edf+cbs,p-edf", "--judge", "rm", "--json"]));
    let report = ask();
    assert_eq!(report, ask());
    let families = report["families"].as_array().unwrap();
    assert_eq!(families.len(), 6);
    for family in families {
        let names: Vec<_> =
            (0..4).map(|i| family["policies"][i]["policy"].as_str().unwrap()).collect();
        assert_eq!(names, ["g-fifo", "g-edf+cbs", "p-edf", "rm"]);
        let jobs: Vec<_> =
            (0..4).map(|i| family["policies"][i]["jobs"].as_u64().unwrap()).collect();
        assert!(jobs[0] > 800 && jobs.iter().all(|n| *n == jobs[0]), "{family}");
        let faults = family["verdict"]["faults"].as_array().unwrap();
        assert_eq!(family["passes"], faults.is_empty());
    }
    // Bursts of movies: fixed priorities starve the longest period, first come, first served nobody.
    let late = |i: usize| families[1]["policies"][i]["late"].as_u64().unwrap();
    assert!(late(0) < late(3), "{}", families[1]);
}

#[test]
fn the_verdict_says_what_is_wrong_and_strict_fails_with_it() {
    let asked = ["mixed", "--policies", "g-edf+cbs", "--judge", "g-fifo"];
    let fails = short(&asked);
    // Deadlines save audio and control loops from waiting for frames.
    assert!(fails.status.success());
    let text = said(&fails);
    assert!(text.contains("g-fifo fails: g-edf+cbs has as few late jobs, or fewer"), "{text}");
    assert!(text.contains("owed jobs were late"), "{text}");
    assert_eq!(short(&[&asked[..], &["--strict"]].concat()).status.code(), Some(1));
}

#[test]
fn a_set_that_is_written_has_the_figures_it_has_in_its_family() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new");
    let place = place.to_str().unwrap();
    let make = ["family", "scattered", "--seconds", "4", "--seed", "9"];
    let written = onbeat(&[&make[..], &["--write", place]].concat());
    let file = said(&written);
    assert_eq!(file.trim(), format!("{place}/scattered-9.toml"), "{}", complaint(&written));
    assert_eq!(fs::read_dir(place).unwrap().count(), 7);
    let alone = object(&onbeat(&["sim", file.trim(), "--policy", "g-edf+cbs", "--json"]));
    let judge = ["--sets", "1", "--judge", "g-edf+cbs", "--policies", "g-fifo", "--json"];
    let family = object(&onbeat(&[&make[..], &judge].concat()));
    let (alone, family) = (&alone["runs"][0]["metrics"], &family["families"][0]["policies"][1]);
    assert_eq!(alone["misses"], family["late"]);
    for figure in ["jobs", "owed_late", "tardiness_max_ms"] {
        assert_eq!(alone[figure], family[figure], "{figure}");
    }
}

#[test]
fn a_limit_on_the_user_is_kept_to_and_just_above_what_is_reserved_costs_no_jobs() {
    let ask = |more: &[&str]| {
        let words = ["family", "scenes", "--policies", "g-fifo", "--seed", "70", "--sets", "4"];
        let report = object(&onbeat(&[&words[..], &["--json"], more].concat()));
        report["families"][0]["policies"][1].clone()
    };
    let (free, wide, narrow) =
        (ask(&[]), ask(&["--max-share", "95%"]), ask(&["--max-share", "93%"]));
    let late = |figures: &serde_json::Value| figures["late"].as_u64().unwrap();
    assert!(late(&free) > 300 && late(&wide) <= late(&free) * 21 / 20, "{wide} {free}");
    assert_ne!(narrow, wide);
    assert_eq!((&wide["owed_late"], &narrow["owed_late"]), (&0.into(), &0.into()));
}

/// Writes the set of that family and number, with jobs that are marked or not.
fn written(folder: &std::path::Path, family: &str, seed: &str, marks: bool) -> String {
    let place = folder.to_str().unwrap();
    let file = said(&onbeat(&["family", family, "--seed", seed, "--write", place, "--force"]));
    let text = fs::read_to_string(file.trim()).unwrap();
    fs::write(file.trim(), text.replace("marks = false", &format!("marks = {marks}"))).unwrap();
    file.trim().to_owned()
}

// Four of six movies need more than their budgets for two seconds.
#[test]
fn of_those_who_overrun_for_seconds_nobody_is_left_behind_and_no_owed_job_is_late() {
    let folder = tempfile::tempdir().unwrap();
    for marks in [false, true] {
        let file = written(folder.path(), "drift", "40025", marks);
        let words =
            ["sim", &file, "--json", "--policy", "g-fifo", "--policy", "g-edzl+cbs-predict"];
        let report = object(&onbeat(&words));
        let figure = |i: usize, name: &str| report["runs"][i]["metrics"][name].as_f64().unwrap();
        let (fifo, ours) = (figure(0, "tardiness_max_ms"), figure(1, "tardiness_max_ms"));
        assert!(ours < 1.5 * fifo, "{ours} ms, first come, first served {fifo} ms");
        assert_eq!(figure(1, "owed_late"), 0.0);
    }
}

#[test]
fn a_set_that_somebody_has_edited_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let make =
        ["family", "scattered", "--seconds", "2", "--write", folder.path().to_str().unwrap()];
    let again = |more: &[&str]| onbeat(&[&make[..], more].concat());
    assert!(again(&[]).status.success());
    // The same once more loses nothing.
    assert!(again(&[]).status.success());
    let file = folder.path().join("scattered-1.toml");
    let (made, edited) = (fs::read_to_string(&file).unwrap(), "# edited\n");
    fs::write(&file, edited).unwrap();
    let refused = again(&["--sets", "2"]);
    assert!(!refused.status.success() && complaint(&refused).contains("give --force"));
    assert_eq!(fs::read_to_string(&file).unwrap(), edited);
    assert!(!folder.path().join("scattered-2.toml").exists(), "nothing of it is written");
    assert!(again(&["--force"]).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), made);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let last = i64::MAX.to_string();
    for (words, says) in [
        (&["movies"][..], "there is no family \"movies\"; the families are scenes"),
        (&["--sets", "0"], "a whole number from 1 to 10000"),
        (&["--seconds", "0"], "a whole number from 1 to 3600"),
        (&["--seconds", "4000"], "a whole number from 1 to 3600"),
        (&["--seconds", "99999999999999999999"], "a whole number from 1 to 3600"),
        (&["--seed", &last, "--sets", "2"], "leaves no room for 2 sets"),
        (&["--seed", "18446744073709551615"], "a whole number from 0 to"),
        (&["--seed", "-1"], "a whole number from 0 to"),
        (&["--policies", "fifo"], "g-fifo in place of fifo"),
        (&["--policies", "g-edf+cbs,edf"], "there is no policy \"edf\""),
        (&["--judge", "eevdf"], "--by lab"),
        (&["--max-share", "0%"], "above 0% and at most 100%"),
        (&["--max-share", "-5%"], "negative"),
        (&["--max-share", "95"], "percentage"),
        (&["--max-share", "50%"], "ask for"),
        (&["--write", "/dev/null/x"], "cannot make the folder"),
        (&["--write", "x", "--json"], "cannot be used with"),
    ] {
        let refused = onbeat(&[&["family"], words].concat());
        assert!(!refused.status.success(), "{words:?}");
        assert!(complaint(&refused).contains(says), "{words:?}: {}", complaint(&refused));
        assert!(said(&refused).is_empty());
    }
}
