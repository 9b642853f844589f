// SPDX-License-Identifier: GPL-2.0-only
//! Random trouble for the scheduler, in short; `make soak` is the long form, with CPUs that go off and on line, too
//! (here: service.rs). Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::path::Path;

use guest::{Machine, built};
use onbeat_lab::Flavour;

/// The guest's CPUs share one host thread, so its seconds are long; two CPUs make the most of them.
const CPUS: u32 = 2;

/// Number before `what` in the churn's last line.
fn count(console: &str, what: &str) -> u32 {
    let last = console.lines().rfind(|l| l.contains("nobody lost")).unwrap_or_default();
    let words = last.split_once(what).map_or("", |(before, _)| before).trim_end();
    words.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{console}"))
}

/// Nobody is lost, and something has happened: at least so many acts.
fn churn(flavour: Flavour, acts: u32, options: &[&str]) {
    let churn = built("onbeat-churn");
    let programs = [Path::new(env!("CARGO_BIN_EXE_scx_onbeat")), &churn];
    let command = [&["onbeat-churn"], options].concat();
    let machine = Machine::new(flavour, CPUS, &programs, &command);
    let console = machine.run().unwrap_or_else(|e| panic!("{e}"));
    println!("{console}");
    assert!(count(&console, " acts") >= acts, "{console}");
    assert!(count(&console, " reservations") > 0, "{console}");
    assert!(count(&console, " loads") > 1, "{console}");
}

#[test]
fn no_task_is_lost_while_tasks_reservations_and_schedulers_come_and_go() {
    churn(Flavour::Plain, 10, &["--seconds", "3", "--seed", "1", "--no-hotplug"]);
}

#[test]
fn no_task_is_lost_on_preempt_rt_either() {
    let options = ["--seconds", "3", "--seed", "2", "--tasks", "30", "--no-hotplug"];
    churn(Flavour::Rt, 8, &options);
}
