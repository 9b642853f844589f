// SPDX-License-Identifier: GPL-2.0-only
//! A reservation beside SCHED_FIFO programs that take every CPU, with and without the kernel's server for sched_ext
//! being told of it. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use guest::{
    Facts, answers, burn, child, fact, finish, kill, part, pin, scheduler, signal, soon, start,
};
use onbeat_client::{Params, Service};
use onbeat_kernel::machine::monotonic;
use onbeat_kernel::protection::{SERVERS, Server, servers};
use onbeat_lab::Flavour;
use onbeat_model::event::{EVENT_BYTES, Event, EventKind, NONE};
use onbeat_model::metrics::{detailed, in_words};
use onbeat_model::run::{Class, Platform, Run, TaskInfo, World};
use onbeat_model::units::MS;

const PERIOD: Duration = Duration::from_millis(40);
/// Of the 10 ms that are reserved.
const WORK: Duration = Duration::from_millis(8);
const JOBS: u32 = 60;
const CPUS: usize = 2;
/// The scheduler's.
const EVENTS: &str = "/tmp/events";

fn facts() -> &'static Facts {
    static FACTS: OnceLock<Result<Facts, String>> = OnceLock::new();
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let facts = FACTS.get_or_init(|| guest::facts(Flavour::Plain, CPUS as u32, &[program]));
    facts.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

fn number(name: &str) -> f64 {
    facts()[name].parse().unwrap_or_else(|_| panic!("{name}: {}", facts()[name]))
}

#[test]
fn a_reservation_is_in_time_beside_fifo_programs_on_all_cpus() {
    assert!(number("with-done") >= f64::from(JOBS) - 1.0, "{:?}", facts());
    assert!(number("with-late") <= f64::from(JOBS) / 20.0, "{:?}", facts());
    assert!(number("with-worst-ms") <= 1.5 * PERIOD.as_secs_f64() * 1e3, "{:?}", facts());
}

#[test]
fn without_the_server_being_told_it_starves() {
    assert!(number("without-late") > f64::from(JOBS) / 2.0, "{:?}", facts());
}

#[test]
fn what_starves_is_late_for_the_real_time_class_as_its_events_tell() {
    assert!(number("without-causes-late") >= 1.0, "{:?}", facts());
    assert_eq!(
        facts()["without-causes"],
        format!("{} real-time class", facts()["without-causes-late"])
    );
}

#[test]
fn the_service_says_so_too() {
    let words = &facts()["without-live"];
    assert!(words.contains("real-time class") && !words.contains(", "), "{words}");
    assert!(!facts()["with-live"].contains("real-time class"), "{}", facts()["with-live"]);
}

#[test]
fn the_servers_get_their_old_values_back_also_after_a_kill() {
    assert_eq!(facts()["restored"], "true");
    assert_eq!(facts()["killed-left"], "true");
    assert_eq!(facts()["next-restored"], "true");
    assert!(facts()["next-words"].contains("was killed"), "{}", facts()["next-words"]);
}

#[test]
fn after_a_kill_with_full_cpus_the_next_service_serves() {
    assert_eq!(facts()["next-serves"], "true", "{}", facts()["next-words"]);
    assert_eq!(facts()["next-ended-well"], "true", "{}", facts()["next-words"]);
}

// In the guest.

fn all() -> BTreeMap<u32, Server> {
    servers(Path::new(SERVERS)).unwrap()
}

fn fifo(pid: i32, priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    let class = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameter is plain data.
    assert_eq!(unsafe { libc::sched_setscheduler(pid, class, &parameter) }, 0);
}

/// A job each period: how many were done, how many of all were late, and by how much at worst.
#[test]
#[ignore = "the guest's side"]
fn player() {
    let cpu_time = || {
        // SAFETY: the time is plain data.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time), 0);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        }
    };
    std::thread::sleep(Duration::from_millis(500)); // until it has a reservation, and hogs
    let begin = Instant::now();
    let (mut done, mut in_time, mut worst) = (0, 0, Duration::ZERO);
    for job in 0..JOBS {
        let release = PERIOD * job;
        if begin.elapsed() > PERIOD * JOBS {
            break;
        }
        std::thread::sleep(release.saturating_sub(begin.elapsed()));
        let end = cpu_time() + WORK;
        while cpu_time() < end {}
        let late = begin.elapsed().saturating_sub(release + PERIOD);
        done += 1;
        in_time += u32::from(late.is_zero());
        worst = worst.max(late);
    }
    println!("PLAYED {done} {} {}", JOBS - in_time, worst.as_secs_f64() * 1e3);
}

/// Plays beside FIFO hogs; `prepare` is done once the reservation is in force. Returns its number, and from when until
/// when there were hogs, ns.
fn play(name: &str, prepare: impl FnOnce()) -> (u32, u64, u64) {
    let player = start(&mut part("player"));
    let mut service = Service::connect().unwrap();
    let params = Params::new(10 * MS, 40 * MS);
    let grant = service.reserve(player.id(), name, &params).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    prepare();
    let begin = monotonic();
    let hogs: Vec<i32> = (0..CPUS)
        .map(|cpu| {
            let pid = child(|| {
                pin(cpu);
                burn()
            });
            fifo(pid, 10);
            pid
        })
        .collect();
    std::thread::sleep(PERIOD * JOBS);
    let work = service.work(grant.id).unwrap();
    fact(&format!("{name}-live"), in_words(&work.record.late_causes));
    std::thread::sleep(Duration::from_millis(800));
    let end = monotonic();
    kill(&hogs);
    let words = finish(player).1;
    let played = words.lines().find_map(|line| line.split_once("PLAYED ")).expect(&words).1;
    for (what, value) in ["done", "late", "worst-ms"].iter().zip(played.split_whitespace()) {
        fact(&format!("{name}-{what}"), value);
    }
    let _ = service.release(grant.id);
    (grant.id, begin, end)
}

/// Why jobs of a reservation, as the scheduler recognised them, were late in that time: how many, and in words.
fn causes((id, begin, end): (u32, u64, u64)) -> (u64, String) {
    let bytes = fs::read(EVENTS).unwrap();
    let mut events = Vec::new();
    for e in bytes.as_chunks::<EVENT_BYTES>().0.iter().map(Event::from_bytes) {
        if !(begin..end).contains(&e.time) {
            continue;
        }
        let (time, mine) = (e.time - begin, e.server == id);
        let job = |kind, due| Event::new(time, kind, events.len() as u64, due).of(0);
        let job = match e.kind() {
            Some(EventKind::Activate) if mine => Some(job(EventKind::Release, time + 40 * MS)),
            _ => None,
        };
        events.extend(job);
        let switch = matches!(e.kind(), Some(EventKind::Run | EventKind::Stop));
        if mine || switch {
            let (task, server) = if mine { (0, id) } else { (NONE, NONE) };
            events.push(Event { time, task, server, ..e });
        }
        if mine && e.kind() == Some(EventKind::Idle) {
            let last = events.iter().rfind(|e| e.kind() == Some(EventKind::Release)).map(|e| e.a);
            events.extend(last.map(|job| Event::new(time, EventKind::Complete, job, 0).of(0)));
        }
    }
    let player = TaskInfo {
        name: "player".into(),
        entry: 0,
        copy: 0,
        class: Class::Reserved,
        period: 40 * MS,
        deadline: 40 * MS,
        budget: 10 * MS,
        tid: 0,
    };
    let run = Run {
        world: World::Lab,
        policy: String::new(),
        platform: Platform::default(),
        tasks: vec![player],
        resources: vec![],
        events,
        origin_ns: begin,
        horizon_ns: end - begin,
    };
    let all = detailed(&run).0;
    (all.misses, in_words(&all.late_causes))
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    fifo(0, 50); // above the hogs
    let before = all();
    let first = scheduler(&["--events", EVENTS]);
    play("with", || fact("with-servers", format!("{:?}", all())));
    let starved = play("without", || {
        for (cpu, server) in &before {
            let folder = Path::new(SERVERS).join(format!("cpu{cpu}"));
            fs::write(folder.join("period"), server.period.to_string()).unwrap();
            fs::write(folder.join("runtime"), server.runtime.to_string()).unwrap();
        }
    });
    signal(&first, libc::SIGTERM);
    let (status, words) = finish(first);
    assert!(status.success(), "{words}");
    fact("restored", all() == before);
    let (late, words) = causes(starved);
    fact("without-causes-late", late);
    fact("without-causes", words);
    // SIGKILL, with nearly all that SCHED_DEADLINE grants on every CPU.
    let killed = scheduler(&[]);
    let players: Vec<Child> = (0..CPUS).map(|_| start(&mut part("player"))).collect();
    let mut service = Service::connect().unwrap();
    for player in &players {
        service.reserve(player.id(), "left", &Params::new(36 * MS, 40 * MS)).unwrap();
    }
    assert!(soon(|| all().iter().all(|(cpu, server)| *server != before[cpu])));
    signal(&killed, libc::SIGKILL);
    finish(killed);
    fact("killed-left", all() != before);
    let next = scheduler(&[]);
    fact("next-restored", soon(|| all() == before));
    fact("next-serves", soon(answers));
    signal(&next, libc::SIGTERM);
    let (status, words) = finish(next);
    fact("next-ended-well", status.success());
    fact("next-words", words);
    for player in players {
        signal(&player, libc::SIGKILL);
        finish(player);
    }
}
