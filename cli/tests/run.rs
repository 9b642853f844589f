// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run` and its kin on a real kernel. Needs QEMU and a fetched kernel (`make setup`).

#[path = "../../kernel/tests/guest/mod.rs"]
mod guest;
#[path = "run/inside.rs"]
mod inside;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use guest::Facts;
use onbeat_lab::Flavour;

fn facts() -> &'static Facts {
    static FACTS: OnceLock<Result<Facts, String>> = OnceLock::new();
    let facts = FACTS.get_or_init(|| {
        let scheduler = guest::built("scx_onbeat");
        let programs = [Path::new(env!("CARGO_BIN_EXE_onbeat")), &scheduler];
        guest::facts(Flavour::Plain, 2, &programs)
    });
    facts.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

fn fact_is(name: &str, part: &str) {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    assert!(value.contains(part), "{name}: {value}");
}

fn number(name: &str) -> f64 {
    let text = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}

fn onbeat(options: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onbeat")).args(options).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn a_busy_program_under_a_hard_reservation_gets_its_budget_and_no_more_while_alone() {
    let share = number("one-share");
    assert!((share - 25.0 / 41.0).abs() < 0.01, "25 ms in 41 ms give {share}");
    // And it says so itself.
    assert!((number("one-told") / number("one-used") - 1.0).abs() < 0.01);
}

#[test]
fn threads_and_children_share_the_budget_of_their_program() {
    let share = number("family-share");
    assert!((share - 25.0 / 41.0).abs() < 0.01, "25 ms in 41 ms give {share} to all of them");
}

#[test]
fn three_reservations_of_61_per_cent_have_their_time_on_two_cpus_as_one_is_split() {
    for i in 0..3 {
        let share = number(&format!("split-share-{i}"));
        assert!((share - 25.0 / 41.0).abs() < 0.01, "25 ms in 41 ms give {share} to program {i}");
    }
    // Two CPUs, all but the best-effort share, have no room for a fourth.
    fact_is("split-fourth-status", "exit status: 75");
    fact_is("split-fourth-words", "nor have several together in their windows");
}

#[test]
fn the_scheduler_is_loaded_for_the_run_and_unloaded_after_it() {
    fact_is("own-status", "exit status: 0");
    fact_is("own-state-inside", "enabled");
    fact_is("own-state-after", "disabled");
    fact_is("own-report", "had 10ms every 20ms under g-edzl+cbs");
    fact_is("own-report", "CPU time");
}

#[test]
fn a_reservation_that_does_not_fit_is_refused_with_what_would() {
    fact_is("refused-status", "exit status: 75");
    fact_is("refused-words", "asked: 25ms every 41ms");
    fact_is("refused-words", "free:  45% of a CPU");
    fact_is("refused-words", "holder (reservation");
    fact_is("refused-words", "would fit: a budget of 18.45ms every 41ms, or 25ms every 55.6ms");
    fact_is("refused-ran", "false");
}

#[test]
fn programs_that_cannot_run_give_the_status_a_shell_gives() {
    fact_is("missing-status", "exit status: 127");
    fact_is("forbidden-status", "exit status: 126");
    fact_is("broken-status", "exit status: 126");
}

#[test]
fn the_status_of_the_program_is_passed_on_and_so_are_signals() {
    fact_is("seven-status", "exit status: 7");
    fact_is("killed-status", "exit status: 137");
    fact_is("term-status", "exit status: 42");
}

#[test]
fn what_a_program_leaves_behind_keeps_the_reservation_until_it_ends() {
    fact_is("daemon-status", "exit status: 0");
    fact_is("daemon-words", "has left 1 thread running under reservation");
    fact_is("daemon-held", "true");
    fact_is("daemon-ended", "true");
}

#[test]
fn an_ordinary_user_runs_under_the_service_but_cannot_start_it() {
    fact_is("user-alone-status", "exit status: 125");
    fact_is("user-alone-words", "run this as root, which starts it");
    fact_is("user-status", "exit status: 0");
    fact_is("user-words", "jobs");
}

#[test]
fn another_policy_than_the_running_one_is_an_error() {
    fact_is("policy-status", "exit status: 125");
    fact_is("policy-words", "serves p-edf+cbs-hard, not g-edf");
}

#[test]
fn every_command_of_the_tutorials_that_needs_a_service_succeeds() {
    assert!(number("tutorials-ran") >= 5.0);
    assert_eq!(facts().get("tutorials-failed").map(|text| text.trim()), Some(""));
}

#[test]
fn a_reservation_given_back_lets_its_program_go_on() {
    fact_is("release-status", "exit status: 0");
    fact_is("release-alive", "true");
    fact_is("release-held", "false");
}

#[test]
fn a_service_that_dies_is_noticed_at_once_and_gives_the_reservation_again_when_it_is_back() {
    fact_is("stays-words", "sleep goes on without a reservation: the service has ended");
    fact_is("stays-words", "sleep has its reservation again: the service is back");
    fact_is("stays-words", "sleep was ended by signal 15 (Terminated)");
    fact_is("stays-words", "had 100us every 100ms under edf-wmr+cbs-hard");
    fact_is("stays-status", "exit status: 143");
    assert_eq!(facts()["stays-changes"], "lost\nrestored");
}

#[test]
fn status_says_how_many_jobs_were_owed_and_how_many_of_them_were_late() {
    let text = &facts()["status-text"];
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let head = lines.iter().find(|l| l.first() == Some(&"ID")).expect(text);
    assert!(head.ends_with(&["LATE", "OWED", "OWED", "LATE", "CPU", "TIME"]), "{text}");
    let line = lines.iter().find(|l| l.get(3) == Some(&"beat")).expect(text);
    let [.., jobs, _, owed, late, _] = line[..] else { panic!("{text}") };
    let number = |cell: &str| cell.parse::<u64>().unwrap_or_else(|_| panic!("{text}"));
    // It sleeps between jobs that need little, under a policy that isolates.
    assert!(number(owed) >= 5 && number(owed) <= number(jobs), "{text}");
    assert_eq!(late, "0", "{text}");
}

/// What `onbeat status --beats --json` said of the threads that have names of ours.
fn told(who: &str) -> Vec<serde_json::Value> {
    let text = &facts()[who];
    let answer: serde_json::Value =
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let ours = |t: &&serde_json::Value| t["name"].as_str().unwrap().starts_with("our-");
    answer["threads"].as_array().expect(text).iter().filter(ours).cloned().collect()
}

#[test]
fn rhythms_of_threads_are_told_with_what_they_use_and_neither_hogs_nor_random_sleepers_have_one() {
    let mut told = told("beats-root");
    told.sort_by_key(|t| t["name"].to_string());
    let names: Vec<_> = told.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["our-10ms", "our-41ms"]);
    for (thread, (period, used)) in told.iter().zip([(10e6, 1e6), (41e6, 6e6)]) {
        let number = |name: &str| thread[name].as_f64().unwrap();
        assert!((number("period_ns") / period - 1.0).abs() < 0.02, "{thread}");
        assert!((number("used_ns") / used - 1.0).abs() < 0.25, "{thread}");
        assert!(number("confidence") > 0.8, "{thread}");
        assert_eq!(thread["program"], "tests");
    }
    let [plain, reserved] = &told[..] else { unreachable!() };
    assert!(plain["reservation"].is_null() && plain["uid"] == 1000, "{plain}");
    assert!(reserved["reservation"].is_u64() && reserved["uid"] == 0, "{reserved}");
}

#[test]
fn ordinary_users_are_told_of_rhythms_of_their_own_threads_only() {
    let told = told("beats-own");
    assert_eq!((told.len(), &told[0]["name"]), (1, &"our-10ms".into()));
    fact_is("beats-none", "no thread beats");
}

#[test]
fn a_program_of_which_nothing_is_said_is_measured_and_told_which_numbers_are_enough() {
    fact_is("auto-status", "exit status: 0");
    let words = &facts()["auto-words"];
    assert!(words.contains("as its rhythm and CPU time suggest"), "{words}");
    let json = words.lines().find(|line| line.starts_with("{\"program\"")).expect(words);
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    // 6 ms of work every 41 ms.
    assert!((report["period_ns"].as_f64().unwrap() / 41e6 - 1.0).abs() < 0.02, "{report}");
    let measured = &report["measured"];
    assert!((measured["p50_ns"].as_f64().unwrap() / 6e6 - 1.0).abs() < 0.1, "{report}");
    assert!(measured["jobs"].as_u64() > Some(40), "{report}");
    let options = measured["options"].as_str().unwrap();
    assert!(options.starts_with("--period 4") && options.contains("--budget 1"), "{report}");
    // The budget has come down to what is needed: a tenth and a little more.
    assert!(report["budget_ns"].as_f64().unwrap() < 1.3 * 6e6, "{report}");
    assert_eq!(report["owed_late"], 0);
}

#[test]
fn a_batch_program_is_told_to_have_no_rhythm_and_goes_on_with_a_status_of_its_own() {
    fact_is("batch-status", "exit status: 3");
    fact_is("batch-words", "sh has no rhythm: it works without a pause");
    fact_is("batch-words", "\"reserved\":false");
}

#[test]
fn a_program_whose_rhythm_busy_cpus_hide_shows_it_on_trial_and_is_not_late_from_then_on() {
    fact_is("starved-status", "exit status: 0");
    let words = &facts()["starved-words"];
    assert!(words.contains("waits for CPUs, which hides its rhythm"), "{words}");
    let json = words.lines().find(|line| line.starts_with("{\"program\"")).expect(words);
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    // A video of 41 ms, whatever the rounding.
    assert!((report["period_ns"].as_f64().unwrap() / 41e6 - 1.0).abs() < 0.02, "{report}");
    let [jobs, owed, misses] = ["jobs", "owed", "misses"].map(|of| report[of].as_u64().unwrap());
    assert!(jobs > 30 && owed + 1 >= jobs, "{report}");
    // The job in the midst of which the reservation began is not owed, and may be late.
    assert!(report["owed_late"] == 0 && misses <= jobs - owed, "{report}");
}

#[test]
fn a_process_that_runs_already_has_a_reservation_until_ctrl_c_and_goes_on() {
    fact_is("pid-status", "exit status: 0");
    fact_is("pid-words", "goes on without a reservation");
    fact_is("pid-words", "had 2ms every 10ms");
    fact_is("pid-held", "false");
    fact_is("pid-alive", "true");
    fact_is("pid-again-status", "exit status: 125");
    fact_is("pid-again-words", "already has reservation");
    fact_is("pid-kernel-words", "is a thread of the kernel");
}

#[test]
fn the_number_of_a_reservation_is_not_the_next_one_s() {
    fact_is("pid-ids", "true");
}

#[test]
fn doctor_approves_of_the_lab_kernel() {
    fact_is("doctor-status", "exit status: 0");
    fact_is("doctor-words", "The scheduler can run on this kernel");
}

#[test]
fn doctor_says_why_when_the_scheduler_cannot_run_here() {
    let (status, words) = onbeat(&["doctor", "--json"]);
    let can = words.contains("\"live\": true");
    assert_eq!(status, i32::from(!can), "{words}");
    if !can {
        assert!(
            words.contains("\"state\": \"missing\"") && words.contains("\"remedy\""),
            "{words}"
        );
    }
}

#[test]
fn impossible_values_are_refused_before_anything_is_started() {
    for (options, word) in [
        (&["--period", "41", "--budget", "25ms"][..], "has no unit"),
        (&["--period", "20ms", "--budget", "banana"], "banana"),
        (&["--budget", "25ms"], "--period"),
        (&["--period", "20ms", "--budget", "5ms", "--cpus", "3-1"], "no CPU or range"),
    ] {
        let (status, words) = onbeat(&[&["run"], options, &["--", "true"]].concat());
        // Not to be mistaken for the status of the program.
        assert_eq!(status, 125, "{words}");
        assert!(words.contains(word), "{words}");
    }
    assert_eq!(onbeat(&["run", "--period", "20ms", "--budget", "5ms", "--", "no-such"]).0, 127);
}

#[test]
fn policies_are_listed_for_people_by_their_parts_and_for_machines_with_a_line_each() {
    let (status, words) = onbeat(&["policies", "--json"]);
    assert_eq!(status, 0);
    let list: Vec<serde_json::Value> = serde_json::from_str(&words).unwrap();
    for name in ["g-edf+fcbs", "p-edf+cbs-hard", "rm", "fcbs", "deadline-reclaim"] {
        let line = list.iter().find(|l| l["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert!(line["about"].as_str().unwrap().len() > 10);
    }
    let words = onbeat(&["policies"]).1;
    for part in [
        "! g-edf ",
        "  p-edf ",
        "! p-rm ",
        "  c-edzl ",
        "! fcbs ",
        "  cbs-hard ",
        "  deadline-reclaim ",
    ] {
        assert!(words.lines().any(|line| line.starts_with(part)), "{part}: {words}");
    }
    assert!(words.contains("does not isolate"), "{words}");
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    inside::all();
}
