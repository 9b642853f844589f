// SPDX-License-Identifier: GPL-2.0-only
//! What an ordinary user's threads hold in the kernel while they wait for their budget.

use std::process::Child;
use std::time::{Duration, Instant};

use onbeat_client::{Params, Service};
use onbeat_model::protocol::{Group, Request};

use super::clients::{as_user, lines};
use crate::guest::{fact, facts_of_two_cpus, part, soon, start};
use crate::{SECOND, US, USER, held};

/// Names that nobody's folder in /proc has.
const NOBODY: u32 = 7_654_320;
const NAMES: u32 = 16;
/// Threads that look them up, held to the budget of a group.
const LOOKERS: u32 = 48;

fn number(name: &str) -> f64 {
    let facts = facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"));
    facts[name].parse().unwrap_or_else(|_| panic!("{name}: {}", facts[name]))
}

#[test]
fn threads_that_wait_for_a_budget_in_the_midst_of_a_lookup_do_not_hold_up_the_service() {
    assert!(number("lookup-asked") > 20.0);
    assert!(number("lookup-answers") > 20.0);
    // They wait for 8 s.
    assert!(number("lookup-worst-ms") < 500.0, "{} ms", number("lookup-worst-ms"));
}

// In the guest.

fn end(mut user: Child) {
    user.kill().unwrap();
    user.wait().unwrap();
}

/// Threads look for folders that are not there, and are held to their budget meanwhile; their user asks the service to
/// look for the same.
pub fn lookups() {
    let mut user = start(&mut as_user("kernel::looker", USER));
    let mut said = lines(&mut user);
    let threads: i32 = said.next().unwrap().parse().unwrap();
    let (begin, mut worst, mut answers) = (Instant::now(), Duration::ZERO, 0);
    let mut service = Service::connect().unwrap();
    while begin.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        service.ask(&Request::Status).unwrap();
        worst = worst.max(asked.elapsed());
        answers += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    fact("lookup-answers", answers);
    fact("lookup-worst-ms", worst.as_millis());
    fact("lookup-asked", said.next().unwrap());
    // SAFETY: it is the user's, which has not waited for it.
    assert_eq!(unsafe { libc::kill(threads, libc::SIGKILL) }, 0);
    end(user);
    // A group stays until it is given back.
    assert!(soon(|| held().len() == 1));
    service.release(held()[0].id).unwrap();
}

#[test]
#[ignore = "the guest's user"]
fn looker() {
    let mut service = Service::connect().unwrap();
    let group = Group {
        name: "trap".into(),
        budget_ns: Some(50 * US),
        period_ns: Some(8 * SECOND),
        rule: Some("cbs-hard".into()),
        ..Group::default()
    };
    service.group(&group).unwrap();
    let mut threads = start(&mut part("kernel::lookers"));
    let params = Params::new(50 * US, 8 * SECOND).in_group("trap");
    service.reserve(threads.id(), "lookers", &params).unwrap();
    println!("SAYS {}", threads.id());
    // SAFETY: no arguments.
    let me = unsafe { libc::gettid() } as u32;
    let (begin, mut asked) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(2) {
        let params = Params::new(50 * US, SECOND).for_thread(me);
        let _ = service.reserve(NOBODY + asked % NAMES, "nobody", &params);
        asked += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("SAYS {asked}");
    threads.wait().unwrap();
}

#[test]
#[ignore = "the guest's user"]
fn lookers() {
    let look = |i: u32| {
        let path = format!("/proc/{}", NOBODY + i % NAMES);
        loop {
            let _ = std::fs::metadata(&path);
        }
    };
    for i in 1..LOOKERS {
        std::thread::spawn(move || look(i));
    }
    look(0)
}
