// SPDX-License-Identifier: GPL-2.0-only
//! `scx_onbeat` on a real kernel. Needs QEMU and a fetched kernel (`make setup`).

mod guest;
#[path = "service/inside.rs"]
mod inside;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use guest::{Facts, fact, finish, part, signal, start};
use inside::{MS, service};
use onbeat_client::Params;
use onbeat_lab::Flavour;

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
    // Beside 30 loops its threads were interrupted for ever: after 60 s it was still there.
    println!("killed, it ended after {} s", facts["rt-killed"]);
    let killed: f64 = facts["rt-killed"].parse().unwrap();
    assert!(killed < 1.0, "killed, it ended after {killed} s");
}

// In the guest.

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    match fs::read_to_string("/proc/version").unwrap().contains("PREEMPT_RT") {
        true => inside::real_time(),
        false => inside::plain(),
    }
}

#[test]
#[ignore = "the guest's side"]
fn burning() {
    guest::burn();
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
