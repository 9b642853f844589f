// SPDX-License-Identifier: GPL-2.0-only
//! What goes on in the guest.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use onbeat_client::{Params, Service};
use onbeat_model::protocol::{Request, Response};

use crate::guest::{self, fact, finish, part, pin_to, signal, soon, start, state};

pub const MS: u64 = 1_000_000;
const CPU_1: &str = "/sys/devices/system/cpu/cpu1/online";
const SOCKET: &str = "/run/onbeat/control.sock";

/// All that is shown on the usual kernel.
pub fn plain() {
    refusals_to_start();
    let first = early(&["--policy", "p-edf+cbs-hard", "--events", "/out/events"]);
    fact("loaded-name", fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap());
    let second = start(Command::new("/bin/scx_onbeat").args(["--socket", "/tmp/second"]));
    let (status, words) = finish(second);
    fact("second-status", status);
    fact("second-words", words);
    users();
    joining_and_affinity();
    wandering();
    ending();
    hotplug();
    hotplug_without_the_service(&first);
    let monitor = start(Command::new("/bin/scx_onbeat").args(["--monitor", "0.2"]));
    std::thread::sleep(Duration::from_millis(1500));
    signal(&monitor, libc::SIGTERM);
    fact("monitor", finish(monitor).1);
    signal(&first, libc::SIGTERM);
    let (status, words) = finish(first);
    fact("hotplug-words", words);
    fact("term-status", status);
    fact("term-state", state());
    fact("term-socket", Path::new(SOCKET).exists());
    events();
    death();
}

/// That it loads and serves on PREEMPT_RT.
pub fn real_time() {
    let scheduler = scheduler(&["--policy", "g-edzl+cbs-hard"]);
    let burning = start(part("sleeper_then_burner").env("TIME", "2050"));
    service().reserve(burning.id(), "burns", &Params::new(25 * MS, 41 * MS)).unwrap();
    let words = finish(burning).1;
    fact("rt-share", between(&words, "SHARE ", "\n"));
    signal(&scheduler, libc::SIGTERM);
    let (status, words) = finish(scheduler);
    assert!(status.success(), "{words}");
    fact("rt-words", words);
    fact("rt-state", state());
    killed();
}

/// How long one takes to end whose threads are all on one CPU, beside a crowd of loops.
fn killed() {
    let scheduler = scheduler(&[]);
    let crowd: Vec<i32> = (0..30).map(|_| guest::child(|| guest::burn())).collect();
    let threads = fs::read_dir(format!("/proc/{}/task", scheduler.id())).unwrap();
    for thread in threads {
        pin_to(thread.unwrap().file_name().to_str().unwrap().parse().unwrap(), 0);
    }
    let begin = Instant::now();
    signal(&scheduler, libc::SIGKILL);
    soon(|| state() == "disabled");
    fact("rt-killed", begin.elapsed().as_secs_f64());
    guest::kill(&crowd);
    finish(scheduler);
}

fn scheduler(options: &[&str]) -> Child {
    let child = start(Command::new("/bin/scx_onbeat").args(options));
    // An answer says that the scheduler is in force.
    assert!(soon(|| status().is_some()), "{:?}", finish(child));
    child
}

fn status() -> Option<Response> {
    Service::connect_to(Path::new(SOCKET)).ok()?.ask(&Request::Status).ok()
}

fn reservations() -> Vec<onbeat_model::protocol::Reservation> {
    match status() {
        Some(Response::Status { reservations, .. }) => reservations,
        other => panic!("{other:?}"),
    }
}

/// Time that CPUs have run reservations.
fn served() -> u64 {
    let Some(Response::Status { per_cpu, .. }) = status() else { panic!() };
    assert!(per_cpu.iter().all(|cpu| cpu.idle_ns.is_some()), "{per_cpu:?}");
    per_cpu.iter().map(|cpu| cpu.served_ns).sum()
}

fn as_user(command: &mut Command) -> &mut Command {
    command.uid(1000).gid(1000)
}

pub fn service() -> Service {
    Service::connect_to(Path::new(SOCKET)).unwrap()
}

/// A scheduler, and what one hears who asks as soon as there is a socket.
fn early(options: &[&str]) -> Child {
    use std::sync::atomic::{AtomicU32, Ordering};
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let systemd = std::os::unix::net::UnixDatagram::bind("/tmp/notify").unwrap();
    let begin = Instant::now();
    let mut command = Command::new("/bin/scx_onbeat");
    let child = start(command.args(options).env("NOTIFY_SOCKET", "/tmp/notify"));
    assert!(soon(|| Path::new(SOCKET).exists()));
    let mut service = service().telling(|| {
        TOLD.fetch_add(1, Ordering::Relaxed);
    });
    fact("early-answer", service.ask(&Request::Status).is_ok());
    fact("load-idle", begin.elapsed().as_millis());
    fact("early-told", TOLD.load(Ordering::Relaxed));
    let mut word = [0; 64];
    let length = systemd.recv(&mut word).unwrap();
    fact("early-notified", String::from_utf8_lossy(&word[..length]));
    child
}

/// Four programs a CPU that take all there is, in sessions of their own.
fn hogs() -> Vec<Child> {
    let hog = || {
        let mut command = part("burning");
        let alone = || {
            // SAFETY: no arguments.
            unsafe { libc::setsid() };
            Ok(())
        };
        // SAFETY: setsid does not touch memory.
        unsafe { command.pre_exec(alone) };
        start(&mut command)
    };
    (0..8).map(|_| hog()).collect()
}

fn refusals_to_start() {
    let words = |options: &[&str]| finish(start(Command::new("/bin/scx_onbeat").args(options))).1;
    fact("policy-words", words(&["--policy", "g-edf+fbcs"]));
    fact("isolation-words", words(&["--policy", "fcbs"]));
    fact("baseline-words", words(&["--policy", "fifo"]));
    fact("cpus-words", words(&["--cpus", "0,7"]));
    fact("interrupt-words", words(&["--interrupt-cpu", "7"]));
    fact("interrupt-twice-words", words(&["--interrupt-cpu", "1", "--set=a=1:p-edf+cbs"]));
    fact("interrupt-usable-words", words(&["--interrupt-cpu", "1", "--cpus", "0-1"]));
    fs::write(CPU_1, "0").unwrap();
    fact("interrupt-only-words", words(&["--interrupt-cpu", "0"]));
    fact("interrupt-gone-words", words(&["--interrupt-cpu", "1"]));
    fs::write(CPU_1, "1").unwrap();
    fs::create_dir("/tmp/open").unwrap();
    fs::set_permissions("/tmp/open", fs::Permissions::from_mode(0o777)).unwrap();
    fact("socket-words", words(&["--socket", "/tmp/open/socket"]));
    fact("events-words", words(&["--events", "/no/such/file"]));
    fact("help-stats", words(&["--help-stats"]));
    let (status, words) = finish(start(as_user(&mut Command::new("/bin/scx_onbeat"))));
    fact("unprivileged-status", status);
    fact("unprivileged-words", words);
}

fn users() {
    let mine = start(&mut part("sleeper"));
    let grant = service().reserve(mine.id(), "root's", &Params::new(MS, 20 * MS)).unwrap();
    let mut user = part("as_a_user");
    user.env("FOREIGN", mine.id().to_string()).env("FOREIGN_ID", grant.id.to_string());
    // The facts are in what it prints.
    print!("{}", finish(start(as_user(&mut user))).1);
    signal(&mine, libc::SIGKILL);
    finish(mine);
    soon(|| reservations().is_empty());
}

fn burn(time: u64) -> Command {
    let mut command = part("burner");
    command.env("TIME", time.to_string());
    command
}

/// The same, on CPU 1 alone.
fn pinned_burn(time: u64) -> Command {
    let mut command = burn(time);
    // SAFETY: sched_setaffinity may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(1, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        });
    }
    command
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap_or(("?", "")).0
}

fn joining_and_affinity() {
    // Alone on its CPU and never asleep: nothing but the tick can make it join.
    let running = start(&mut burn(1500));
    std::thread::sleep(Duration::from_millis(500));
    let mut service = service();
    let before = served();
    let grant = service.reserve(running.id(), "runs", &Params::new(5 * MS, 20 * MS)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let consumed = reservations().iter().find(|r| r.id == grant.id).map_or(0, |r| r.consumed_ns);
    fact("join-consumed", consumed >= 40 * MS);
    // What runs is charged when a budget ends, at the latest.
    fact("join-served", (served() - before).abs_diff(consumed) <= 6 * MS);
    let words = finish(running).1;
    assert!(words.contains("CPUS"), "{words}");
    let _ = service.release(grant.id);

    let pinned = start(&mut pinned_burn(800));
    let grant = service.reserve(pinned.id(), "pinned", &Params::new(15 * MS, 20 * MS)).unwrap();
    fact("affinity-program", between(&finish(pinned).1, "CPUS ", " SHARE"));
    let _ = service.release(grant.id);
    // What ran before the reservation was made does not count.
    let free = start(part("sleeper_then_burner").env("TIME", "800"));
    let params = Params::new(15 * MS, 20 * MS).on_cpus(vec![0]);
    let grant = service.reserve(free.id(), "free", &params).unwrap();
    fact("affinity-reservation", between(&finish(free).1, "CPUS ", " SHARE"));
    let _ = service.release(grant.id);
}

fn wandering() {
    let mut service = service();
    let wanderer = start(&mut part("wanderer"));
    let params = Params::new(15 * MS, 20 * MS);
    let grant = service.reserve(wanderer.id(), "wanders", &params).unwrap();
    fact("outside", between(&finish(wanderer).1, "CPUS ", " SHARE"));
    let _ = service.release(grant.id);

    let changer = start(&mut part("changer"));
    let grant = service.reserve(changer.id(), "changes", &params).unwrap();
    // One that runs joins when it is switched next.
    let threads = || reservations().iter().find(|r| r.id == grant.id).map_or(0, |r| r.threads);
    fact("fifo-joined", soon(|| threads() > 0));
    fact("fifo-status", finish(changer).0);
    assert!(service.release(grant.id).is_ok());
    assert!(soon(|| reservations().is_empty()));
}

fn ending() {
    // The leader goes, its child stays a while.
    let mut program = Command::new("/bin/sh");
    let program = start(program.args(["-c", "sleep 0.3; sleep 2 >/dev/null 2>&1 & exit 0"]));
    let mut service = service();
    let grant = service.reserve(program.id(), "leaves", &Params::new(MS, 20 * MS)).unwrap();
    finish(program);
    std::thread::sleep(Duration::from_millis(700));
    let threads = reservations().iter().find(|r| r.id == grant.id).map_or(0, |r| r.threads);
    fact("end-while-child-lives", threads);
    fact("end-after", soon(|| reservations().is_empty()));
}

fn hotplug() {
    let programs = [start(&mut part("sleeper")), start(&mut part("sleeper"))];
    let mut service = service();
    for program in &programs {
        service.reserve(program.id(), "big", &Params::new(12 * MS, 20 * MS)).unwrap();
    }
    fs::write(CPU_1, "0").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    fs::write(CPU_1, "1").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    fact("hotplug-state", state());
    for program in programs {
        signal(&program, libc::SIGKILL);
        finish(program);
    }
}

/// Threads of reservations that may run only on a CPU that goes wait there when the service cannot help.
fn hotplug_without_the_service(scheduler: &Child) {
    let programs: Vec<Child> = (0..3).map(|_| start(&mut pinned_burn(4000))).collect();
    let mut service = service();
    for program in &programs {
        service.reserve(program.id(), "pinned", &Params::new(5 * MS, 20 * MS)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(scheduler, libc::SIGSTOP);
    let begin = Instant::now();
    fs::write(CPU_1, "0").unwrap();
    fact("hotplug-alone-off", begin.elapsed() < Duration::from_secs(2));
    let all = programs.into_iter().all(|program| finish(program).1.contains("CPUS"));
    fact("hotplug-alone-programs", all);
    fs::write(CPU_1, "1").unwrap();
    signal(scheduler, libc::SIGCONT);
    fact("hotplug-alone-state", state());
}

fn events() {
    use onbeat_model::event::{EVENT_BYTES, Event};
    let bytes = fs::read("/out/events").unwrap();
    fs::remove_file("/out/events").unwrap();
    let events: Vec<Event> =
        bytes.chunks_exact(EVENT_BYTES).map(|b| Event::from_bytes(b.try_into().unwrap())).collect();
    let whole =
        events.iter().all(|e| e.kind().is_some()) && bytes.len().is_multiple_of(EVENT_BYTES);
    fact("events-whole", whole && events.len() > 100);
    // Two CPUs read their clocks before they take the lock.
    let slack = 100_000;
    fact("events-ordered", events.windows(2).all(|w| w[0].time <= w[1].time + slack));
}

/// CPUs, as masks, of new interrupts, of the serial line's and of unbound work.
fn steered() -> String {
    let files = [
        "/proc/irq/default_smp_affinity",
        "/proc/irq/4/smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
    ];
    files.map(|file| fs::read_to_string(file).unwrap().trim().to_string()).join(" ")
}

/// CPUs on which threads of these processes that do not sleep were seen in a while.
fn seen(pids: &[u32]) -> BTreeSet<usize> {
    let cpu = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("stat")).ok()?;
        // Fields 3 and 39 of proc(5), counted from behind the name.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        (fields[0] == "R").then(|| fields[36].parse::<usize>().ok())?
    };
    let mut all = BTreeSet::new();
    for _ in 0..20 {
        let threads = pids.iter().map(|pid| fs::read_dir(format!("/proc/{pid}/task")).unwrap());
        all.extend(threads.flat_map(|threads| threads.flatten().filter_map(cpu)));
        std::thread::sleep(Duration::from_millis(7));
    }
    all
}

/// CPU 1 is the interrupt CPU, beside hogs that may run anywhere.
fn apart(hogs: &[Child], scheduler: &Child) {
    fact("interrupt-steered", steered());
    let pinned = [1, 1].map(|cpu| {
        guest::child(|| {
            guest::pin(cpu);
            guest::burn()
        })
    });
    std::thread::sleep(Duration::from_millis(200));
    let (had, begin) = (guest::consumed(&pinned), Instant::now());
    let pids: Vec<u32> = hogs.iter().map(Child::id).collect();
    fact("interrupt-hogs", format!("{:?}", seen(&pids)));
    let had = guest::consumed(&pinned) - had;
    fact("interrupt-pinned", had as f64 / begin.elapsed().as_nanos() as f64);
    let status = fs::read_to_string(format!("/proc/{}/status", scheduler.id())).unwrap();
    fact("interrupt-service", between(&status, "Cpus_allowed_list:\t", "\n"));
    // SAFETY: the set is plain data.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..2).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        assert_eq!(libc::sched_setaffinity(pinned[0], size_of_val(&all), &all), 0);
    }
    // It has had more than those who wait there, and waits for its turn.
    let freed = [pinned[0] as u32];
    soon(|| !seen(&freed).contains(&1));
    fact("interrupt-freed", format!("{:?}", seen(&freed)));
    let Ok(Response::Status { interrupt_cpu, .. }) = service().ask(&Request::Status) else {
        panic!()
    };
    fact("interrupt-status", format!("{interrupt_cpu:?}"));
    let ask = |pid: i32, budget: u64| {
        let answer = service().reserve(pid as u32, "x", &Params::new(budget * MS, 20 * MS));
        answer.err().map_or("granted".into(), |e| e.to_string())
    };
    fact("interrupt-refused", ask(pinned[1], 1));
    fact("interrupt-full", ask(pinned[0], 20));
    guest::kill(&pinned);
}

fn death() {
    let hogs = hogs();
    let begin = Instant::now();
    let killed = scheduler(&["--interrupt-cpu", "1"]);
    fact("load-beside-hogs", begin.elapsed().as_millis());
    apart(&hogs, &killed);
    for hog in hogs {
        signal(&hog, libc::SIGKILL);
        finish(hog);
    }
    let grant = service().reserve(std::process::id(), "me", &Params::new(MS, 10 * MS));
    assert!(grant.is_ok(), "{grant:?}");
    signal(&killed, libc::SIGKILL);
    finish(killed);
    soon(|| state() == "disabled");
    fact("kill-state", state());
    fact("kill-steered", steered());
    fact("kill-alive", finish(start(&mut Command::new("/bin/true"))).0.success());
    // The socket's file is still there.
    let thrown_out = scheduler(&[]);
    fact("kill-again", state());
    // The kernel says something next, on the same line if it is not complete.
    let put_right = steered();
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let (status, words) = finish(thrown_out);
    fact("kill-put-right", put_right);
    fact("sysrq-status", status);
    fact("sysrq-words", words);
    fact("sysrq-state", state());
}
