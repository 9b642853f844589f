// SPDX-License-Identifier: GPL-2.0-only
//! Random trouble for the scheduler, in short; `make soak` is the long form. Needs QEMU and a
//! fetched kernel (`make setup`).

mod guest;

use std::path::Path;

use guest::{Machine, built};
use onbeat_lab::Flavour;

/// The guest's CPUs share one host thread, so its seconds are long; two CPUs make the most of them.
const CPUS: u32 = 2;

fn churn(flavour: Flavour, options: &[&str]) {
    let churn = built("onbeat-workloads", "onbeat-churn");
    let programs = [Path::new(env!("CARGO_BIN_EXE_scx_onbeat")), &churn];
    let command = [&["onbeat-churn"], options].concat();
    let machine = Machine::new(flavour, CPUS, &programs, &command);
    let console = machine.run().unwrap_or_else(|e| panic!("{e}"));
    println!("{console}");
    assert!(console.contains("nobody lost"), "{console}");
}

#[test]
fn no_task_is_lost_while_tasks_cpus_reservations_and_schedulers_come_and_go() {
    churn(Flavour::Plain, &["--seconds", "20", "--seed", "1"]);
}

#[test]
fn no_task_is_lost_on_preempt_rt_either() {
    churn(Flavour::Rt, &["--seconds", "6", "--seed", "2", "--tasks", "30"]);
}
