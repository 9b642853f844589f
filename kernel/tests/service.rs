// SPDX-License-Identifier: GPL-2.0-only
//! `scx_onbeat` on a real kernel. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use guest::{Facts, fact, finish, part, signal, soon, start, state};
use onbeat_client::{Params, Service};
use onbeat_lab::Flavour;
use onbeat_model::protocol::{Request, Response};

const MS: u64 = 1_000_000;
const CPU_1: &str = "/sys/devices/system/cpu/cpu1/online";
const SOCKET: &str = "/run/onbeat/control.sock";

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
}

fn fact_is(name: &str, part: &str) {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    assert!(value.contains(part), "{name}: {value}");
}

#[test]
fn it_loads_and_unloads_when_told_to() {
    fact_is("loaded-name", "onbeat");
    fact_is("term-status", "exit status: 0");
    fact_is("term-state", "disabled");
    fact_is("term-socket", "false");
}

#[test]
fn who_asks_while_it_starts_waits_and_hogs_do_not_hold_up_loading() {
    fact_is("early-told", "1");
    fact_is("early-answer", "true");
    fact_is("early-notified", "READY=1");
    let ms = |name: &str| facts()[name].parse::<f64>().unwrap();
    // Beside hogs everything takes twice as long in the lab, whose busy CPUs take turns (docs/lab.md); without its own
    // priority the loader takes five times as long.
    assert!(ms("load-beside-hogs") <= 3.0 * ms("load-idle"), "{:?}", facts());
}

#[test]
fn a_second_scheduler_is_refused_and_told_the_name_of_the_first() {
    fact_is("second-status", "exit status: 1");
    fact_is("second-words", "already loaded: \"onbeat");
    fact_is("second-words", "stop it first");
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    fact_is("unprivileged-status", "exit status: 1");
    fact_is("unprivileged-words", "needs root");
}

#[test]
fn wrong_options_are_named() {
    fact_is("policy-words", "did you mean \"g-edf+fcbs\"");
    fact_is("isolation-words", "add --no-isolation");
    fact_is("baseline-words", "none of Onbeat's own");
    fact_is("cpus-words", "there is no CPU 7; the CPUs are 0-1");
    fact_is("interrupt-words", "there is no such CPU; the CPUs are 0-1");
    fact_is("interrupt-twice-words", "--set a=1:p-edf+cbs: CPU 1 is --interrupt-cpu");
    fact_is("interrupt-usable-words", "--cpus: CPU 1 is --interrupt-cpu");
    fact_is("interrupt-only-words", "it is the only CPU on line");
    fact_is("interrupt-gone-words", "it is off line; bring it on line");
    fact_is("socket-words", "others can write there");
    fact_is("events-words", "cannot write events to /no/such/file");
}

#[test]
fn killing_the_loader_gives_the_machine_back() {
    fact_is("kill-state", "disabled");
    fact_is("kill-alive", "true");
    fact_is("kill-again", "enabled");
}

#[test]
fn on_the_interrupt_cpu_nobody_runs_who_may_run_elsewhere_and_all_who_may_not() {
    fact_is("interrupt-hogs", "{0}");
    let pinned: f64 = facts()["interrupt-pinned"].parse().unwrap();
    assert!(pinned > 0.9, "two that may run nowhere else had {pinned} of it");
    fact_is("interrupt-freed", "{0}");
    fact_is("interrupt-service", "1");
    fact_is("interrupt-status", "Some(1)");
    fact_is("interrupt-refused", "CPU 1 is kept for interrupts");
    fact_is("interrupt-full", "CPU 1 is kept for interrupts");
}

#[test]
fn interrupts_go_to_the_interrupt_cpu_and_back_also_after_a_kill() {
    fact_is("interrupt-steered", "2 2 2");
    fact_is("kill-steered", "2 2 2");
    fact_is("kill-put-right", "3 3 3");
    fact_is("sysrq-words", "was killed: interrupts go to the CPUs again that they had");
}

#[test]
fn an_ordinary_user_reserves_for_own_processes_up_to_the_limit() {
    fact_is("user-own", "Granted");
    fact_is("user-limit", "this user may hold 1 CPU in all");
    fact_is("user-limit", "would fit: a budget of 9ms every 20ms");
    fact_is("user-fitting", "Granted");
    fact_is("user-foreign", "does not belong to user 1000");
    fact_is("user-release", "made by another user");
}

#[test]
fn a_running_thread_joins_without_going_to_sleep() {
    fact_is("join-consumed", "true");
}

#[test]
fn what_cpus_are_told_to_have_served_is_what_a_reservation_has_received() {
    fact_is("join-served", "true");
}

#[test]
fn affinity_of_program_and_of_reservation_are_both_respected() {
    fact_is("affinity-program", "[1]");
    fact_is("affinity-reservation", "[0]");
}

#[test]
fn a_program_that_moves_to_a_cpu_outside_of_its_domain_still_runs() {
    fact_is("outside", "[0, 1]");
}

#[test]
fn a_program_that_becomes_real_time_and_back_loses_nothing() {
    fact_is("fifo-status", "exit status: 0");
    fact_is("fifo-joined", "true");
}

#[test]
fn a_reservation_ends_with_the_last_process_of_its_program() {
    fact_is("end-while-child-lives", "1");
    fact_is("end-after", "true");
}

#[test]
fn it_survives_a_cpu_that_goes_and_comes_and_says_what_is_not_guaranteed_meanwhile() {
    fact_is("hotplug-state", "enabled");
    fact_is("hotplug-words", "is no longer guaranteed");
    fact_is("hotplug-words", "is again guaranteed");
}

#[test]
fn a_cpu_goes_though_reserved_threads_may_run_nowhere_else_and_the_service_does_not_answer() {
    fact_is("hotplug-alone-off", "true");
    fact_is("hotplug-alone-programs", "true");
    fact_is("hotplug-alone-state", "enabled");
}

#[test]
fn being_thrown_out_by_the_kernel_is_explained() {
    fact_is("sysrq-status", "exit status: 3");
    fact_is("sysrq-words", "likely cause: somebody asked the kernel to (SysRq-S)");
    fact_is("sysrq-state", "disabled");
}

#[test]
fn recorded_events_are_whole_and_in_the_order_of_time() {
    fact_is("events-whole", "true");
    fact_is("events-ordered", "true");
}

#[test]
fn statistics_describe_themselves_and_can_be_monitored() {
    fact_is("help-stats", "Reservations in force");
    fact_is("help-stats", "Owed jobs finished after their deadline");
    fact_is("monitor", "reservations:");
}

#[test]
fn it_loads_and_serves_on_preempt_rt() {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let facts = guest::facts(Flavour::Rt, 2, &[program]).unwrap_or_else(|e| panic!("{e}"));
    assert!(facts["rt-words"].contains("g-edzl+cbs-hard on CPUs 0-1"), "{}", facts["rt-words"]);
    let share: f64 = facts["rt-share"].parse().unwrap();
    assert!((0.58..0.64).contains(&share), "25 ms in 41 ms give {share}");
    assert_eq!(facts["rt-state"], "disabled");
}

// In the guest.

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

fn service() -> Service {
    Service::connect_to(Path::new(SOCKET)).unwrap()
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    if fs::read_to_string("/proc/version").unwrap().contains("PREEMPT_RT") {
        return in_the_guest_rt();
    }
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

#[test]
#[ignore = "the guest's side"]
fn burning() {
    guest::burn();
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

#[test]
#[ignore = "the guest's side"]
fn as_a_user() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let mut service = service();
    let own = start(&mut part("sleeper"));
    let me = std::process::id();
    let half = Params::new(11 * MS, 20 * MS);
    fact("user-own", format!("{:?}", service.reserve(me, "own", &half).map(|_| "Granted")));
    let answer = service.reserve(own.id(), "own", &half);
    fact("user-limit", answer.err().map_or("granted".into(), |e| e.to_string()));
    let fitting = service.reserve(own.id(), "own", &Params::new(9 * MS, 20 * MS));
    fact("user-fitting", format!("{:?}", fitting.map(|_| "Granted")));
    let answer = service.reserve(number("FOREIGN"), "foreign", &Params::new(MS, 20 * MS));
    fact("user-foreign", answer.err().map_or("granted".into(), |e| e.to_string()));
    let answer = service.release(number("FOREIGN_ID"));
    fact("user-release", answer.err().map_or("released".into(), |e| e.to_string()));
    signal(&own, libc::SIGKILL);
    finish(own);
}

#[test]
#[ignore = "the guest's side"]
fn sleeper() {
    std::thread::sleep(Duration::from_secs(600));
}

/// Burns CPU time for TIME ms and says on which CPUs, and how much it got.
#[test]
#[ignore = "the guest's side"]
fn burner() {
    let time = std::env::var("TIME").unwrap().parse().unwrap();
    let begin = Instant::now();
    let mut cpus = BTreeSet::new();
    while begin.elapsed() < Duration::from_millis(time) {
        // SAFETY: no arguments.
        cpus.insert(unsafe { libc::sched_getcpu() });
    }
    let wall = begin.elapsed().as_secs_f64();
    // SAFETY: the kernel fills it.
    let used = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    println!("CPUS {:?} SHARE {}", cpus.into_iter().collect::<Vec<_>>(), used / wall);
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

#[test]
#[ignore = "the guest's side"]
fn sleeper_then_burner() {
    std::thread::sleep(Duration::from_millis(300));
    burner();
}

/// Burns 100 ms on each CPU in turn, going there by affinity.
#[test]
#[ignore = "the guest's side"]
fn wanderer() {
    std::thread::sleep(Duration::from_millis(300));
    let mut cpus = BTreeSet::new();
    for cpu in [0, 1, 0, 1] {
        // SAFETY: the set is plain data.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            // SAFETY: no arguments.
            cpus.insert(unsafe { libc::sched_getcpu() });
        }
    }
    println!("CPUS {:?} SHARE", cpus.into_iter().collect::<Vec<_>>());
}

/// Changes its own scheduling class to and fro while it works.
#[test]
#[ignore = "the guest's side"]
fn changer() {
    std::thread::sleep(Duration::from_millis(300));
    for round in 0..10 {
        let policy = if round % 2 == 0 { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        let priority = i32::from(round % 2 == 0);
        let parameter = libc::sched_param { sched_priority: priority };
        // SAFETY: the parameter is plain data.
        assert_eq!(unsafe { libc::sched_setscheduler(0, policy, &parameter) }, 0);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {}
        std::thread::sleep(Duration::from_millis(5));
    }
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

fn in_the_guest_rt() {
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
}
