// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's verifier has to look at before the scheduler is in force, which is what loading takes, and how
//! much stack its programs use. Needs QEMU and fetched kernels (`make setup`).

mod guest;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use guest::{Facts, fact, signal, soon, state};
use onbeat_lab::Flavour;

/// Bytes that the functions of a chain of calls may have on the stack together: the kernel's limit is 512.
const STACK: u64 = 400;
/// Instructions that the verifier goes through in all: 15 to 40 us each on the lab's CPUs, the more the longer the
/// program is of which they are.
const INSTRUCTIONS: u64 = 123_500;
/// Guest seconds until it is in force, with all that is printed here.
const LOADING: f64 = 4.05;

/// By program: instructions, bytes of stack, and us that it took.
type Program = (String, u64, u64, u64);

fn programs(facts: &Facts) -> Vec<Program> {
    let program = |(name, value): (&'_ String, &'_ String)| {
        let name = name.strip_prefix("program-")?;
        let numbers: Vec<u64> = value.split(' ').map(|n| n.parse().unwrap()).collect();
        Some((name.to_string(), numbers[0], numbers[1], numbers[2]))
    };
    facts.iter().filter_map(program).collect()
}

fn holds(flavour: Flavour) {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let facts = guest::facts(flavour, 1, &[program]).unwrap_or_else(|e| panic!("{e}"));
    within(&facts);
}

fn within(facts: &Facts) {
    let programs = programs(facts);
    for (name, looked_at, stack, us) in &programs {
        println!("{name:<20} {looked_at:>6} instructions {stack:>4} bytes of stack {us:>7} us");
    }
    let sum: u64 = programs.iter().map(|p| p.1).sum();
    let (all, loaded): (u64, f64) =
        (programs.iter().map(|p| p.3).sum(), facts["loaded"].parse().unwrap());
    println!("{sum} instructions in {:.2} s, in force after {loaded:.2} s", all as f64 / 1e6);
    // Or nothing was read.
    assert!(programs.len() >= 18 && sum > 10_000, "{programs:?}");
    assert!(programs.iter().all(|p| p.2 <= STACK), "{programs:?}");
    assert!(sum <= INSTRUCTIONS, "{sum} instructions");
    assert!(loaded <= LOADING, "{loaded} s");
}

#[test]
fn stack_instructions_and_loading_time_keep_to_their_limits() {
    holds(Flavour::Plain);
}

#[test]
fn on_preempt_rt_as_well() {
    holds(Flavour::Rt);
}

// In the guest.

const WORDS: &str = "/tmp/words";

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let begin = Instant::now();
    let mut scheduler = Command::new("/bin/scx_onbeat")
        .arg("-v")
        .stdout(File::create(WORDS).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(soon(|| state() == "enabled"));
    fact("loaded", begin.elapsed().as_secs_f64());
    signal(&scheduler, libc::SIGINT);
    scheduler.wait().unwrap();
    let words = fs::read_to_string(WORDS).unwrap();
    let (mut name, mut us, mut stack) = ("", "", "");
    for line in words.lines() {
        if let Some(rest) = line.strip_suffix("': -- BEGIN PROG LOAD LOG --") {
            name = rest.rsplit('\'').next().unwrap();
        } else if let Some(rest) = line.strip_prefix("verification time ") {
            us = rest.split(' ').next().unwrap();
        } else if let Some(rest) = line.strip_prefix("stack depth ") {
            stack = rest.rsplit(' ').next().unwrap();
        } else if let Some(rest) = line.strip_prefix("processed ") {
            fact(
                &format!("program-{name}"),
                format!("{} {stack} {us}", rest.split(' ').next().unwrap()),
            );
        }
    }
}
