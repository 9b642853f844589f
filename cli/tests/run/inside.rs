// SPDX-License-Identifier: GPL-2.0-only
//! What goes on in the guest.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::guest::{self, fact, finish, part, signal, soon, start, state};

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

/// All of it, one after the other.
pub fn all() {
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
    starved();
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
    let program = ["/bin/tests", "inside::burner", "--exact", "--ignored", "--nocapture"];
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
    let child = start(&mut part("inside::burner"));
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
    for (name, program) in [("one", "inside::burner"), ("family", "inside::family")] {
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
    let mut own = part("inside::with_and_without_rhythm");
    let own = start(own.uid(1000).gid(1000));
    let program = ["/bin/tests", "inside::with_rhythm", "--exact", "--ignored", "--nocapture"];
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
    let busy = run(&["/bin/sh", "-c", "/bin/tests inside::burner --exact --ignored; exit 3"]);
    let beats = run(&["/bin/tests", "inside::with_rhythm", "--exact", "--ignored", "--nocapture"]);
    for (name, program) in [("auto", beats), ("batch", busy)] {
        let (status, words) = finish(program);
        fact(&format!("{name}-status"), status);
        fact(&format!("{name}-words"), words);
    }
}

/// A program that is measured on a CPU that four others want all of, too: it is never on time as best effort.
fn starved() {
    let hog = ["-c", "while :; do :; done"];
    let hogs: Vec<_> = (0..4).map(|_| start(Command::new("/bin/sh").args(hog))).collect();
    let program = ["/bin/tests", "inside::hungry", "--exact", "--ignored", "--nocapture"];
    let mut command = Command::new("/bin/onbeat");
    let (status, words) = finish(start(command.args(["run", "--json", "--"]).args(program)));
    fact("starved-status", status);
    fact("starved-words", words);
    for hog in hogs {
        signal(&hog, libc::SIGKILL);
        finish(hog);
    }
}

/// A process that runs already gets a reservation, twice, and goes on without.
fn attached() {
    let mut own = start(&mut part("inside::with_and_without_rhythm"));
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

/// 26 ms of work every 41 ms; what it cannot do in time it does later.
#[test]
#[ignore = "the guest's side"]
fn hungry() {
    let mut beat = onbeat_client::Beat::new(41_000_000);
    for _ in 0..170 {
        beat.wait();
        let end = used() + 0.026;
        while used() < end {}
    }
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
        include_str!("../../../docs/tutorials/stutter.md"),
        include_str!("../../../docs/tutorials/dimension.md"),
        include_str!("../../../docs/tutorials/study.md"),
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
