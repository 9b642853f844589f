// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run` and its kin on a real kernel. Needs QEMU and a fetched kernel (`make setup`).

#[path = "../../kernel/tests/guest/mod.rs"]
mod guest;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use guest::{Facts, fact, finish, part, signal, soon, start, state};
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
    assert!(
        words.contains("every 41") && words.contains("as its rhythm and CPU time suggest"),
        "{words}"
    );
    let json = words.lines().find(|line| line.starts_with("{\"program\"")).expect(words);
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    // 6 ms of work every 41 ms.
    assert!((report["period_ns"].as_f64().unwrap() / 41e6 - 1.0).abs() < 0.02, "{report}");
    let measured = &report["measured"];
    assert!((measured["p50_ns"].as_f64().unwrap() / 6e6 - 1.0).abs() < 0.1, "{report}");
    assert!(measured["jobs"].as_u64() > Some(40), "{report}");
    let options = measured["options"].as_str().unwrap();
    assert!(options.starts_with("--period 41") && options.contains("--budget 1"), "{report}");
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

// In the guest.

const WINDOW: Duration = Duration::from_millis(41 * 100);

fn run_with(budget: &str, period: &str, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new("/bin/onbeat");
    command.args(["run", "--budget", budget, "--period", period]).args(options).arg("--");
    command.args(program);
    command
}

fn ended(name: &str, mut command: Command) -> String {
    let (status, words) = finish(start(&mut command));
    fact(&format!("{name}-status"), status);
    fact(&format!("{name}-words"), &words);
    words
}

fn status() -> Option<String> {
    let (status, words) = finish(start(Command::new("/bin/onbeat").args(["status", "--json"])));
    status.success().then_some(words)
}

fn held(name: &str) -> bool {
    status().unwrap().contains(&format!("\"name\": \"{name}\""))
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    ended("doctor", {
        let mut doctor = Command::new("/bin/onbeat");
        doctor.arg("doctor");
        doctor
    });
    let mut user = run_with("1ms", "20ms", &[], &["true"]);
    user.uid(1000).gid(1000);
    ended("user-alone", user);
    own_scheduler();

    let mut service = Command::new("/bin/scx_onbeat");
    let service = start(service.args(["--policy", "p-edf+cbs-hard"]));
    assert!(soon(|| status().is_some()));
    shares();
    refusal();
    ends();
    daemon();
    beat();
    rhythms();
    measured();
    attached();
    let mut user = run_with("1ms", "20ms", &[], &["true"]);
    user.uid(1000).gid(1000);
    ended("user", user);
    ended("policy", run_with("1ms", "20ms", &["--policy", "g-edf"], &["true"]));
    tutorials();
    given_back();
    let on_change = ["--on-change", "echo $ONBEAT_CHANGE >>/tmp/changes"];
    let stays = start(&mut run_with("100us", "100ms", &on_change, &["sleep", "1000"]));
    assert!(soon(|| held("sleep")));
    // It has no time to say goodbye.
    signal(&service, libc::SIGKILL);
    finish(service);
    split(stays);
}

/// The service comes back under another policy, and `stays` with it.
fn split(stays: std::process::Child) {
    const POLICY: &str = "edf-wmr+cbs-hard";
    let mut service = Command::new("/bin/scx_onbeat");
    let service = start(service.args(["--policy", POLICY]));
    assert!(soon(|| status().is_some()));
    assert!(soon(|| held("sleep")));
    let program = ["/bin/tests", "burner", "--exact", "--ignored", "--nocapture"];
    let run = || run_with("25ms", "41ms", &["--policy", POLICY, "--json"], &program);
    let programs: Vec<_> = (0..3).map(|_| start(&mut run())).collect();
    assert!(soon(|| status().unwrap().matches("\"name\": \"tests\"").count() == 3));
    ended("split-fourth", run());
    for (i, program) in programs.into_iter().enumerate() {
        let words = finish(program).1;
        let wall = field(&words, "\"elapsed_ns\":") / 1e9;
        fact(&format!("split-share-{i}"), field(&words, "USED ") / wall);
    }
    signal(&stays, libc::SIGTERM);
    let (status, words) = finish(stays);
    fact("stays-status", status);
    fact("stays-words", words);
    fact("stays-changes", fs::read_to_string("/tmp/changes").unwrap_or_default());
    signal(&service, libc::SIGTERM);
    let (status, words) = finish(service);
    assert!(status.success(), "{words}");
}

fn own_scheduler() {
    let script = "cat /sys/kernel/sched_ext/state";
    let options = ["--policy", "g-edzl+cbs"];
    let (status, words) =
        finish(start(&mut run_with("10ms", "20ms", &options, &["sh", "-c", script])));
    fact("own-status", status);
    fact("own-state-inside", words.lines().next().unwrap_or_default());
    fact("own-state-after", state());
    fact("own-report", words);
}

/// CPU time of this process and of its children that have ended, s.
fn used() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|who| {
            // SAFETY: the kernel fills it.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(who, &mut usage);
                usage
            };
            let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
            s(usage.ru_utime) + s(usage.ru_stime)
        })
        .sum()
}

fn burn_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
#[ignore = "the guest's side"]
fn burner() {
    let end = Instant::now() + WINDOW;
    burn_until(end);
    println!("USED {}", used());
}

#[test]
#[ignore = "the guest's side"]
fn family() {
    let end = Instant::now() + WINDOW;
    let child = start(&mut part("burner"));
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(move || burn_until(end))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    finish(child);
    println!("USED {}", used());
}

fn field(text: &str, before: &str) -> f64 {
    let rest = text.split_once(before).map_or("", |(_, rest)| rest);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or(f64::NAN)
}

fn shares() {
    for (name, program) in [("one", "burner"), ("family", "family")] {
        let program = ["/bin/tests", program, "--exact", "--ignored", "--nocapture"];
        let words = finish(start(&mut run_with("25ms", "41ms", &["--json"], &program))).1;
        let used = field(&words, "USED ");
        let wall = field(&words, "\"elapsed_ns\":") / 1e9;
        fact(&format!("{name}-used"), used);
        fact(&format!("{name}-told"), field(&words, "\"cpu_time_ns\":") / 1e9);
        fact(&format!("{name}-share"), used / wall);
    }
}

fn script(name: &str, text: &str) -> String {
    let path = format!("/tmp/{name}");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    finish(start(Command::new("chmod").args(["755", &path])));
    path
}

fn refusal() {
    // Half of each CPU is taken: of 95 % there are 45 % left.
    let holder = script("holder", "exec sleep 60");
    let holders: Vec<_> =
        (0..2).map(|_| start(&mut run_with("10ms", "20ms", &[], &[&holder]))).collect();
    assert!(soon(|| status().unwrap().matches("\"name\": \"holder\"").count() == 2));
    ended("refused", run_with("25ms", "41ms", &[], &["touch", "/tmp/ran"]));
    fact("refused-ran", Path::new("/tmp/ran").exists());
    for holder in holders {
        signal(&holder, libc::SIGTERM);
        finish(holder);
    }
    assert!(soon(|| !held("holder")));
}

fn ends() {
    let sh = |text| run_with("5ms", "20ms", &[], &["/bin/sh", "-c", text]);
    ended("missing", run_with("5ms", "20ms", &[], &["no-such-program"]));
    ended("forbidden", run_with("5ms", "20ms", &[], &["/etc/passwd"]));
    fs::write("/tmp/broken", "\u{7f}ELF but no more").unwrap();
    finish(start(Command::new("chmod").args(["755", "/tmp/broken"])));
    ended("broken", run_with("5ms", "20ms", &[], &["/tmp/broken"]));
    ended("seven", sh("exit 7"));
    ended("killed", sh("kill -KILL $$"));
    let trapped =
        start(&mut sh("trap 'exit 42' TERM; touch /tmp/trap; while :; do sleep 0.1; done"));
    assert!(soon(|| Path::new("/tmp/trap").exists()));
    signal(&trapped, libc::SIGTERM);
    let (status, words) = finish(trapped);
    assert!(status.signal().is_none(), "{words}");
    fact("term-status", status);
}

fn daemon() {
    let text = "sleep 3 >/dev/null 2>&1 & exit 0";
    ended("daemon", run_with("5ms", "20ms", &[], &[&script("leaves", text)]));
    fact("daemon-held", held("leaves"));
    fact("daemon-ended", soon(|| !held("leaves")));
}

/// The text of `onbeat status` while a program has had some jobs.
fn beat() {
    let text = "while :; do sleep 0.05; done";
    let program = start(&mut run_with("15ms", "50ms", &[], &[&script("beat", text)]));
    let owed = |status: &str| {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        let list = status["reservations"].as_array().unwrap();
        list.iter().any(|r| r["name"] == "beat" && r["owed"].as_u64() >= Some(5))
    };
    soon(|| owed(&status().unwrap()));
    fact("status-text", finish(start(Command::new("/bin/onbeat").arg("status"))).1);
    signal(&program, libc::SIGTERM);
    finish(program);
}

/// Two threads of an ordinary user without a rhythm beside one with, and one under a reservation.
fn rhythms() {
    let mut own = part("with_and_without_rhythm");
    let own = start(own.uid(1000).gid(1000));
    let program = ["/bin/tests", "with_rhythm", "--exact", "--ignored", "--nocapture"];
    let reserved = start(&mut run_with("10ms", "41ms", &[], &program));
    std::thread::sleep(Duration::from_millis(900));
    let told = |uid: u32, json: &[&str]| {
        let mut command = Command::new("/bin/onbeat");
        finish(start(command.args(["status", "--beats"]).args(json).uid(uid).gid(uid))).1
    };
    fact("beats-root", told(0, &["--json"]));
    fact("beats-own", told(1000, &["--json"]));
    fact("beats-none", told(1001, &[]));
    signal(&own, libc::SIGKILL);
    signal(&reserved, libc::SIGTERM);
    finish(own);
    finish(reserved);
}

/// A program with a rhythm that is measured, beside one that has none; the latter has a status of its own.
fn measured() {
    let run = |program: &[&str]| {
        let mut command = Command::new("/bin/onbeat");
        command.args(["run", "--json", "--"]).args(program);
        start(&mut command)
    };
    let busy = run(&["/bin/sh", "-c", "/bin/tests burner --exact --ignored; exit 3"]);
    let beats = run(&["/bin/tests", "with_rhythm", "--exact", "--ignored", "--nocapture"]);
    for (name, program) in [("auto", beats), ("batch", busy)] {
        let (status, words) = finish(program);
        fact(&format!("{name}-status"), status);
        fact(&format!("{name}-words"), words);
    }
}

/// A process that runs already gets a reservation, twice, and goes on without.
fn attached() {
    let mut own = start(&mut part("with_and_without_rhythm"));
    let number = own.id();
    let pid = number.to_string();
    let ids = || {
        let status: serde_json::Value = serde_json::from_str(&status().unwrap()).unwrap();
        let of = |r: &serde_json::Value| r["pid"] == number;
        let list = status["reservations"].as_array().unwrap().iter().filter(|r| of(r));
        list.map(|r| r["id"].to_string()).collect::<Vec<_>>()
    };
    let attach = |pid: &str| {
        let mut command = Command::new("/bin/onbeat");
        command.args(["run", "--period", "10ms", "--budget", "2ms", "--pid", pid]);
        command
    };
    let mut seen = Vec::new();
    for _ in 0..2 {
        let attached = start(&mut attach(&pid));
        assert!(soon(|| !ids().is_empty()));
        seen.extend(ids());
        if seen.len() == 1 {
            ended("pid-again", attach(&pid));
        }
        signal(&attached, libc::SIGINT);
        let (status, words) = finish(attached);
        fact("pid-status", status);
        fact("pid-words", words);
    }
    fact("pid-ids", format!("{}", seen[0] != seen[1]));
    fact("pid-held", !ids().is_empty());
    fact("pid-alive", own.try_wait().unwrap().is_none());
    ended("pid-kernel", attach("2"));
    signal(&own, libc::SIGKILL);
    finish(own);
}

fn named(name: &str, act: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(act).unwrap()
}

#[test]
#[ignore = "the guest's side"]
fn with_rhythm() {
    let mut beat = onbeat_client::Beat::new(41_000_000);
    let jobs = move || {
        for _ in 0..100 {
            beat.wait();
            // A job that waits for others twice.
            for _ in 0..3 {
                guest::spin(Duration::from_millis(2));
                std::thread::sleep(Duration::from_micros(700));
            }
        }
    };
    named("our-41ms", jobs).join().unwrap();
}

#[test]
#[ignore = "the guest's side"]
fn with_and_without_rhythm() {
    named("our-hog", || guest::burn());
    named("our-random", || {
        let mut dice = 1u64;
        loop {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let part = (dice >> 11) as f64 / (1u64 << 53) as f64;
            std::thread::sleep(Duration::from_secs_f64(-0.02 * (1.0 - part).ln()));
            guest::spin(Duration::from_micros(300));
        }
    });
    let mut beat = onbeat_client::Beat::new(10_000_000);
    let jobs = move || loop {
        beat.wait();
        guest::spin(Duration::from_millis(1));
    };
    named("our-10ms", jobs).join().unwrap();
}

/// The commands of docs/tutorials that need a service, each with a program of the guest in place of the film and the
/// rest that they name. `tutorials.rs` runs the others.
fn tutorials() {
    let pages = [
        include_str!("../../docs/tutorials/stutter.md"),
        include_str!("../../docs/tutorials/dimension.md"),
        include_str!("../../docs/tutorials/study.md"),
    ];
    let (mut ran, mut failed) = (0, String::new());
    for line in pages.iter().flat_map(|page| page.lines()) {
        let Some(line) = line.strip_prefix("    ") else { continue };
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let verbs = ["onbeat run ", "onbeat status", "onbeat doctor"];
        if !verbs.iter().any(|verb| line.starts_with(verb)) {
            continue;
        }
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let mut words: Vec<&str> = words.collect();
        if let Some(program) = words.iter().position(|word| ["--", "mpv"].contains(word)) {
            words.truncate(program);
            words.extend(["sleep", "0.1"]);
        }
        let (status, said) = finish(start(Command::new("/bin/onbeat").args(&words[1..])));
        ran += 1;
        if !status.success() {
            failed.push_str(&format!("{line}: {status}: {said} "));
        }
    }
    fact("tutorials-ran", ran);
    fact("tutorials-failed", failed.replace('\n', " "));
}

fn given_back() {
    let sleeper = start(&mut run_with("5ms", "20ms", &[], &[&script("sleeper", "exec sleep 60")]));
    assert!(soon(|| held("sleeper")));
    let status: serde_json::Value = serde_json::from_str(&status().unwrap()).unwrap();
    let list = status["reservations"].as_array().unwrap();
    let id = list.iter().find(|r| r["name"] == "sleeper").unwrap()["id"].to_string();
    let mut release = Command::new("/bin/onbeat");
    release.args(["release", &id]);
    ended("release", release);
    fact("release-held", held("sleeper"));
    // Its end would show: the one that runs it ends with it.
    let mut sleeper = sleeper;
    std::thread::sleep(Duration::from_millis(200));
    fact("release-alive", sleeper.try_wait().unwrap().is_none());
    signal(&sleeper, libc::SIGTERM);
    finish(sleeper);
}
