// SPDX-License-Identifier: GPL-2.0-only
//! What an ordinary user can take from others, and do to them. Needs QEMU and a fetched kernel (`make setup`).

#[path = "account/clients.rs"]
mod clients;
mod guest;
#[path = "account/kernel.rs"]
mod kernel;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use guest::{
    Facts, burn, child, consumed, fact, finish, kill, part, pin, pin_to, scheduler, signal, soon,
    spin, start, state,
};
use onbeat_client::{Params, Service};
use onbeat_model::protocol::{Request, Reservation, Response};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// An ordinary user.
const USER: u32 = 1000;
/// The user's reservations: budgets and periods, ns.
const WANTED: &str = "ONBEAT_TEST_WANTED";
/// How many threads each of the user's processes has.
const THREADS: &str = "ONBEAT_TEST_THREADS";
/// The kernel throws out a scheduler that keeps a thread waiting for 10 s, and looks every 5 s.
const REST: Duration = Duration::from_secs(16);
/// Bytes.
const LARGE: usize = 400 << 20;

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
}

/// CPUs, one figure for each second.
fn figures(name: &str) -> Vec<f64> {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    value.split(' ').map(|v| v.parse().unwrap_or_else(|_| panic!("{name}: {value}"))).collect()
}

// --max-share 50 % of two CPUs is one. The user's two reservations and root's two hogs share the other.

#[test]
fn a_user_s_reservations_that_spin_take_the_user_s_share_and_a_fair_part_of_the_rest() {
    for had in figures("tiny-hogs") {
        assert!(had >= 0.46, "best effort had {had} of two CPUs in a second");
    }
    // Of the rest a half if both are demoted in turn, a third if the share pays for one of them all the time.
    for had in figures("tiny-user") {
        assert!((1.3..1.54).contains(&had), "the user had {had}");
    }
}

#[test]
fn a_huge_budget_beside_a_tiny_one_makes_nobody_late_and_takes_no_more_either() {
    assert_eq!(facts()["huge-granted"], "2");
    assert_eq!(facts()["huge-late"], "0", "owed jobs of root's");
    assert!(facts()["huge-jobs"].parse::<u64>().unwrap() > 150);
    // One CPU, and half of what root leaves of the other: how much that is depends on when its jobs meet, which then
    // wait for the tiny one. The kernel ends turns with its ticks: 0.04 more were seen (none in sim/tests/account.rs).
    for (had, root) in figures("huge-user").into_iter().zip(figures("huge-root")) {
        assert!(had <= 1.0 + (1.0 - root) / 2.0 + 0.06, "the user had {had}, root {root}");
    }
    for (had, root) in figures("huge-hogs").into_iter().zip(figures("huge-root")) {
        assert!(had >= (1.0 - root) / 2.0 - 0.06, "best effort had {had}, root {root}");
    }
}

#[test]
fn who_binds_itself_to_one_of_its_cpus_makes_nobody_late_who_has_it() {
    assert_eq!(facts()["bound-granted"], "1");
    assert_eq!(facts()["bound-late"], "0", "owed jobs of root's");
    assert!(facts()["bound-jobs"].parse::<u64>().unwrap() > 100);
    // It is best effort there, and has what root's leaves.
    for had in figures("bound-user") {
        assert!(had <= 0.25, "the user had {had} of the CPU");
    }
}

#[test]
fn threads_of_a_hard_reservation_that_rests_for_long_do_not_wake_the_watchdog() {
    assert_eq!(facts()["rest-granted"], "1");
    assert_eq!(facts()["rest-state"], "enabled", "after {} s", facts()["rest-lasted"]);
}

#[test]
fn who_is_killed_ends_with_its_first_turn_although_its_budget_is_used_up_for_long() {
    // Its first turn is due in 3 s at most (`OB_PATIENCE`), and in 3 s each of the others that it needs would be.
    assert!(facts()["rest-end-ms"].parse::<u64>().unwrap() < 3500, "{}", facts()["rest-end-ms"]);
}

// In the guest.

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let begin = Instant::now();
    let service = scheduler(&[]);
    fact("loaded", begin.elapsed().as_secs_f32());
    tiny();
    huge();
    bound();
    clients::all();
    kernel::lookups();
    signal(&service, libc::SIGTERM);
    let (_, words) = finish(service);
    fact("flood-lines", words.lines().filter(|line| line.contains("flood")).count());
    rest();
}

/// Reserves for children that spin, until it is killed.
#[test]
#[ignore = "the guest's user"]
fn user() {
    let wanted = std::env::var(WANTED).unwrap();
    let threads: usize = std::env::var(THREADS).map_or(1, |n| n.parse().unwrap());
    let wanted: Vec<u64> = wanted.split(' ').map(|n| n.parse().unwrap()).collect();
    let mut service = Service::connect().unwrap();
    for pair in wanted.chunks(2) {
        let pid = child(|| {
            for _ in 1..threads {
                std::thread::spawn(|| burn());
            }
            burn()
        });
        let _ = service.reserve(pid as u32, "user", &Params::new(pair[0], pair[1]));
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The user's program, once its reservations are made; which they are.
fn users(wanted: &[(u64, u64)], threads: usize) -> (Child, Vec<Reservation>) {
    let list: Vec<String> = wanted.iter().map(|(q, p)| format!("{q} {p}")).collect();
    let mut command: Command = part("user");
    command.env(WANTED, list.join(" ")).env(THREADS, threads.to_string());
    let child = start(command.uid(USER).gid(USER));
    let mine = || held().into_iter().filter(|r| r.uid == USER).collect::<Vec<_>>();
    soon(|| mine().len() == wanted.len());
    (child, mine())
}

fn held() -> Vec<Reservation> {
    match Service::connect().unwrap().ask(&Request::Status).unwrap() {
        Response::Status { reservations, .. } => reservations,
        other => panic!("{other:?}"),
    }
}

/// Says what groups of processes had in each of so many seconds, in CPUs. Who looks may have to wait between two looks,
/// so each group has a clock of its own.
fn watch(seconds: usize, groups: &[(&str, Vec<i32>)]) {
    let look = || -> Vec<(Instant, u64)> {
        groups.iter().map(|group| (Instant::now(), consumed(&group.1))).collect()
    };
    let mut figures = vec![Vec::new(); groups.len()];
    std::thread::sleep(Duration::from_millis(500));
    let mut last = look();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let now = look();
        for (figures, (now, last)) in figures.iter_mut().zip(now.iter().zip(&last)) {
            let took = now.0.duration_since(last.0).as_nanos() as f64;
            figures.push(format!("{:.3}", (now.1 - last.1) as f64 / took));
        }
        last = now;
    }
    groups.iter().zip(figures).for_each(|(group, figures)| fact(group.0, figures.join(" ")));
}

fn pids(reservations: &[Reservation]) -> Vec<i32> {
    reservations.iter().map(|r| r.pid as i32).collect()
}

fn end(mut user: Child, theirs: &[i32]) {
    for pid in theirs {
        // SAFETY: they burn until they are killed.
        assert_eq!(unsafe { libc::kill(*pid, libc::SIGKILL) }, 0);
    }
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(soon(|| held().is_empty()));
}

fn tiny() {
    let hogs: Vec<i32> = (0..2).map(|_| child(|| burn())).collect();
    let (user, theirs) = users(&[(50 * US, 3600 * SECOND), (50 * US, 3600 * SECOND)], 1);
    let theirs = pids(&theirs);
    watch(3, &[("tiny-hogs", hogs.clone()), ("tiny-user", theirs.clone())]);
    end(user, &theirs);
    kill(&hogs);
}

fn huge() {
    let hogs: Vec<i32> = (0..2).map(|_| child(|| burn())).collect();
    let mut service = Service::connect().unwrap();
    let roots: Vec<i32> = (0..2)
        .map(|_| {
            let begin = Instant::now();
            let mut job = 0;
            let pid = child(|| {
                job += 1;
                let next = Duration::from_millis(20 * job);
                std::thread::sleep(next.saturating_sub(begin.elapsed()));
                spin(Duration::from_micros(7_500));
            });
            service.reserve(pid as u32, "root", &Params::new(8 * MS, 20 * MS)).unwrap();
            pid
        })
        .collect();
    let (user, theirs) = users(&[(2840 * SECOND, 3600 * SECOND), (200 * US, MS)], 1);
    fact("huge-granted", theirs.len());
    let theirs = pids(&theirs);
    let groups = [hogs.clone(), theirs.clone(), roots.clone()];
    let names = ["huge-hogs", "huge-user", "huge-root"];
    watch(3, &names.into_iter().zip(groups).collect::<Vec<_>>());
    let mine: Vec<Reservation> = held().into_iter().filter(|r| r.uid == 0).collect();
    fact("huge-jobs", mine.iter().map(|r| r.jobs).sum::<u64>());
    fact("huge-late", mine.iter().map(|r| r.owed_late).sum::<u64>());
    kill(&roots);
    end(user, &theirs);
    kill(&hogs);
}

/// Root has 17 ms in 20 of CPU 0, a user as much of both CPUs.
fn bound() {
    let mut service = Service::connect().unwrap();
    let (begin, mut job) = (Instant::now(), 0);
    let root = child(|| {
        if job == 0 {
            pin(0);
        }
        job += 1;
        let next = Duration::from_millis(200 + 20 * job);
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
        spin(Duration::from_micros(16_500));
    });
    std::thread::sleep(Duration::from_millis(100));
    service.reserve(root as u32, "root", &Params::new(17 * MS, 20 * MS)).unwrap();
    let (user, theirs) = users(&[(17 * MS, 20 * MS)], 1);
    fact("bound-granted", theirs.len());
    let theirs = pids(&theirs);
    theirs.iter().for_each(|pid| pin_to(*pid, 0));
    watch(3, &[("bound-user", theirs.clone())]);
    let mine: Vec<Reservation> = held().into_iter().filter(|r| r.uid == 0).collect();
    fact("bound-jobs", mine.iter().map(|r| r.jobs).sum::<u64>());
    fact("bound-late", mine.iter().map(|r| r.owed_late).sum::<u64>());
    kill(&[root]);
    end(user, &theirs);
}

fn rest() {
    let service = scheduler(&["--policy", "p-edf+cbs-hard"]);
    let mut memory = Vec::new();
    let large = child(|| {
        // To give it back takes several turns.
        memory.resize(LARGE, 1);
        burn()
    });
    let (user, theirs) = users(&[(50 * US, 8 * SECOND)], 3);
    fact("rest-granted", theirs.len());
    // It has its memory by now.
    std::thread::sleep(Duration::from_secs(1));
    Service::connect()
        .unwrap()
        .reserve(large as u32, "large", &Params::new(50 * US, 8 * SECOND))
        .unwrap();
    let begin = Instant::now();
    while begin.elapsed() < REST && state() == "enabled" {
        std::thread::sleep(Duration::from_millis(500));
    }
    fact("rest-lasted", begin.elapsed().as_secs());
    fact("rest-state", state());
    let killed = Instant::now();
    kill(&[large]);
    fact("rest-end-ms", killed.elapsed().as_millis());
    end(user, &pids(&theirs));
    if state() == "enabled" {
        signal(&service, libc::SIGTERM);
    }
    finish(service);
}
