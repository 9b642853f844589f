// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler must survive, and what must survive the scheduler. Needs QEMU and a fetched
//! kernel (`make setup`).

mod guest;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guest::{
    Facts, Machine, burn, child, counters, fact, finish, kill, part, pin, scheduler, signal, soon,
    spin, start, state,
};
use onbeat_client::{Params, Service};
use onbeat_lab::Flavour;
use onbeat_model::protocol::{Request, Reservation, Response};

const MS: u64 = 1_000_000;
const OTHER: &str = "/tmp/other.bpf.o";

fn facts() -> &'static Facts {
    static FACTS: OnceLock<Result<Facts, String>> = OnceLock::new();
    let facts = FACTS.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
        let mut machine = Machine::of_this_test(Flavour::Plain, 2, &[program]);
        let folder = tempfile::tempdir().unwrap();
        machine.spec.files.push((another_scheduler(folder.path()), OTHER.into()));
        machine.facts()
    });
    facts.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

fn another_scheduler(folder: &Path) -> PathBuf {
    let object = folder.join("other.bpf.o");
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let done = Command::new(clang)
        .args(["-target", "bpf", "-g", "-O2", "-c", "tests/guest/other.bpf.c", "-o"])
        .arg(&object)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(done.unwrap().success(), "the other scheduler is not compiled");
    object
}

fn fact_is(name: &str, part: &str) {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    assert!(value.contains(part), "{name}: {value}");
}

fn number(name: &str) -> f64 {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

#[test]
fn a_scheduler_of_somebody_else_is_named_and_left_alone() {
    fact_is("other-status", "exit status: 1");
    fact_is("other-words", "already loaded: \"another_one\"");
    fact_is("other-words", "stop it first");
    fact_is("other-still", "another_one");
}

#[test]
fn a_thousand_tasks_all_progress() {
    assert_eq!(number("crowd-size"), 1000.0);
    assert_eq!(number("crowd-silent"), 0.0);
}

#[test]
fn killed_while_it_serves_reservations_it_loses_no_task() {
    fact_is("killed-reserved", "3");
    fact_is("killed-status", "signal: 9");
    fact_is("killed-state", "disabled");
    // The crowd, and those that had reservations.
    assert_eq!(number("killed-silent"), 0.0);
    fact_is("killed-log", "\"onbeat");
    fact_is("killed-log", "disabled (unregistered from user space)");
}

#[test]
fn who_starts_it_with_a_policy_that_does_not_isolate_is_warned() {
    fact_is("killed-words", "warning: g-edf+fcbs does not isolate");
}

#[test]
fn thrown_out_under_load_it_keeps_the_reason_and_explains_it() {
    fact_is("thrown-status", "exit status: 3");
    fact_is("thrown-words", "the kernel took the scheduler out: ");
    fact_is("thrown-words", "likely cause: ");
    fact_is("thrown-words", "no reservation holds");
    fact_is("thrown-state", "disabled");
    assert_eq!(number("thrown-silent"), 0.0);
}

#[test]
fn affinities_that_change_all_the_time_are_kept_under_load() {
    // Each of six tasks moved about so often.
    assert!(number("wander-least") >= 20.0);
    assert_eq!(number("wander-astray"), 0.0);
}

#[test]
fn a_thousand_short_lived_children_come_and_go_inside_a_reservation() {
    fact_is("bomb-words", "all 1000 ended well");
    // The harness and the thread that forked: nobody was left behind in the books.
    assert!(number("bomb-threads") <= 2.0);
    fact_is("bomb-gone", "true");
    assert_eq!(number("bomb-threads_without_place"), 0.0);
    assert_eq!(number("bomb-lock_failed"), 0.0);
}

#[test]
fn best_effort_gets_its_share_of_each_cpu_however_greedy_reservations_are() {
    for cpu in [0, 1] {
        let share = number(&format!("share-{cpu}"));
        // Of 4 s; two quanta of 1 ms may be owed at the end, and 3 ms have been paid ahead.
        assert!((0.0485..0.08).contains(&share), "CPU {cpu}: {share}");
        let reserved = number(&format!("reserved-{cpu}"));
        assert!(reserved >= 0.90, "CPU {cpu}: {reserved}");
    }
}

// In the guest.

fn service() -> Service {
    Service::connect().unwrap()
}

fn reservations() -> Vec<Reservation> {
    match service().ask(&Request::Status) {
        Ok(Response::Status { reservations, .. }) => reservations,
        other => panic!("{other:?}"),
    }
}

fn end(scheduler: Child) {
    signal(&scheduler, libc::SIGTERM);
    let (status, words) = finish(scheduler);
    assert!(status.success(), "{status}: {words}");
}

fn stop(children: Vec<Child>) {
    for child in children {
        signal(&child, libc::SIGKILL);
        finish(child);
    }
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    other();
    let first = scheduler(&["--policy", "g-edf+fcbs", "--no-isolation"]);
    wander();
    bomb();
    crowd(first);
    greed();
}

fn other() {
    let mut object = libbpf_rs::ObjectBuilder::default().open_file(OTHER).unwrap().load().unwrap();
    let link = object.maps_mut().next().unwrap().attach_struct_ops().unwrap();
    assert!(soon(|| state() == "enabled"));
    let (status, words) = finish(start(&mut Command::new("/bin/scx_onbeat")));
    fact("other-status", status);
    fact("other-words", words);
    fact("other-still", fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap());
    drop(link);
    assert!(soon(|| state() == "disabled"));
}

/// How many have not counted on by `more` within half a minute.
fn silent(counters: &[AtomicU64], more: u64) -> usize {
    let before: Vec<u64> = counters.iter().map(|c| c.load(Relaxed)).collect();
    let begin = Instant::now();
    loop {
        let behind = counters.iter().zip(&before).filter(|(c, b)| c.load(Relaxed) < *b + more);
        let behind = behind.count();
        if behind == 0 || begin.elapsed() > Duration::from_secs(30) {
            return behind;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

const CROWD: usize = 1000;
const RESERVED: usize = 3;

/// One in ten wants to run all the time, the others sleep most of it.
fn crowd(killed: Child) {
    let counters = counters(CROWD);
    // Nobody begins before all are there.
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let mut begun = false;
    let mut member = |i: usize| {
        child(|| {
            if !begun {
                wait.read_exact(&mut [0]).unwrap();
                begun = true;
            }
            if i.is_multiple_of(10) {
                spin(Duration::from_millis(1));
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
            counters[i].fetch_add(1, Relaxed);
        })
    };
    let crowd: Vec<i32> = (0..CROWD).map(&mut member).collect();
    for pid in &crowd[..RESERVED] {
        let params = Params::new(8 * MS, 20 * MS);
        service().reserve(*pid as u32, "one of many", &params).unwrap();
    }
    fact("killed-reserved", reservations().len());
    go.write_all(&[0; CROWD]).unwrap();
    fact("crowd-size", crowd.len());
    fact("crowd-silent", silent(counters, 2));

    signal(&killed, libc::SIGKILL);
    let (status, words) = finish(killed);
    fact("killed-status", status);
    fact("killed-words", words);
    soon(|| state() == "disabled");
    fact("killed-state", state());
    fact("killed-silent", silent(counters, 2));
    let log = finish(start(&mut Command::new("/bin/dmesg"))).1;
    fact("killed-log", log.lines().filter(|l| l.contains("sched_ext")).collect::<String>());

    let thrown_out = start(&mut Command::new("/bin/scx_onbeat"));
    // Else its fair part of a crowded CPU makes the kernel's verification take a minute.
    // SAFETY: takes only numbers.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, thrown_out.id(), -20) }, 0);
    assert!(soon(|| state() == "enabled"));
    std::thread::sleep(Duration::from_millis(500));
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let (status, words) = finish(thrown_out);
    fact("thrown-status", status);
    fact("thrown-words", words);
    fact("thrown-state", state());
    fact("thrown-silent", silent(counters, 2));
    kill(&crowd);
}

/// Goes from CPU to CPU, and counts how often it was found on another one.
fn wander() {
    const TASKS: usize = 6;
    let (moves, astray) = (counters(TASKS), counters(TASKS));
    let wanderer = |i: usize| {
        let mut cpu = i;
        child(|| {
            cpu += 1;
            pin(cpu % 2);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(3) {
                // SAFETY: no arguments.
                let here = unsafe { libc::sched_getcpu() };
                astray[i].fetch_add(u64::from(here != (cpu % 2) as i32), Relaxed);
            }
            moves[i].fetch_add(1, Relaxed);
        })
    };
    let tasks: Vec<i32> = (0..TASKS).map(wanderer).collect();
    // Half of them under a reservation, which is served on the CPUs they have at this moment.
    for pid in &tasks[..3] {
        service().reserve(*pid as u32, "wanders", &Params::new(4 * MS, 20 * MS)).unwrap();
    }
    soon(|| moves.iter().all(|m| m.load(Relaxed) >= 20));
    fact("wander-least", moves.iter().map(|m| m.load(Relaxed)).min().unwrap());
    fact("wander-astray", astray.iter().map(|a| a.load(Relaxed)).sum::<u64>());
    kill(&tasks);
    assert!(soon(|| reservations().is_empty()));
}

/// Starts a thousand programs, some at a time.
#[test]
#[ignore = "the guest's side"]
fn bomber() {
    std::thread::sleep(Duration::from_millis(200));
    let mut well = 0;
    for _ in 0..50 {
        let batch: Vec<Child> =
            (0..20).map(|_| Command::new("/bin/true").spawn().unwrap()).collect();
        well += batch.into_iter().map(|c| finish(c).0.success()).filter(|well| *well).count();
    }
    println!("all {well} ended well");
    std::thread::sleep(Duration::from_secs(600));
}

fn bomb() {
    let hogs: Vec<Child> = (0..2).map(|_| start(&mut part("hog"))).collect();
    let mut bomber = start(&mut part("bomber"));
    let grant = service().reserve(bomber.id(), "bomb", &Params::new(15 * MS, 20 * MS)).unwrap();
    // It says one line, then sleeps.
    let mut words = String::new();
    let mut out = BufReader::new(bomber.stdout.take().unwrap());
    while !words.contains("ended well") {
        assert!(out.read_line(&mut words).unwrap() > 0, "{words}");
    }
    fact("bomb-words", words.lines().last().unwrap());
    let threads = || reservations().iter().find(|r| r.id == grant.id).map_or(99, |r| r.threads);
    soon(|| threads() <= 2);
    fact("bomb-threads", threads());
    let Ok(Response::Stats { counters }) = service().ask(&Request::Stats) else { panic!() };
    for name in ["threads_without_place", "lock_failed"] {
        fact(&format!("bomb-{name}"), counters[name]);
    }
    stop(vec![bomber]);
    fact("bomb-gone", soon(|| reservations().is_empty()));
    stop(hogs);
}

#[test]
#[ignore = "the guest's side"]
fn hog() {
    burn();
}

fn cpu_time(pid: i32) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the kernel fills both.
    unsafe {
        assert_eq!(libc::clock_getcpuclockid(pid, &mut clock), 0);
        libc::clock_gettime(clock, &mut time);
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reservations that never sleep and take every ns that soft servers let them have.
fn greed() {
    let scheduler = scheduler(&["--policy", "g-edzl+cbs"]);
    let on_each = || {
        (0..2).map(|cpu| {
            child(move || {
                pin(cpu);
                burn()
            })
        })
    };
    let (greedy, poor): (Vec<i32>, Vec<i32>) = (on_each().collect(), on_each().collect());
    for pid in &greedy {
        // All that one CPU offers.
        service().reserve(*pid as u32, "greedy", &Params::new(19 * MS, 20 * MS)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let times = |pids: &[i32]| pids.iter().map(|p| cpu_time(*p)).collect::<Vec<_>>();
    let (begin, greedy_before, poor_before) = (Instant::now(), times(&greedy), times(&poor));
    std::thread::sleep(Duration::from_secs(4));
    let (span, greedy_after, poor_after) = (begin.elapsed(), times(&greedy), times(&poor));
    for cpu in 0..2 {
        let share = |after: &[Duration], before: &[Duration]| {
            (after[cpu] - before[cpu]).as_secs_f64() / span.as_secs_f64()
        };
        fact(&format!("share-{cpu}"), share(&poor_after, &poor_before));
        fact(&format!("reserved-{cpu}"), share(&greedy_after, &greedy_before));
    }
    kill(&greedy);
    kill(&poor);
    end(scheduler);
}
