// SPDX-License-Identifier: GPL-2.0-only
//! Policies that are swapped while programs run, on a real kernel: nobody is lost, the kernel never throws the
//! scheduler out, and who stays within a budget that both policies guarantee is never late. Needs QEMU and fetched
//! kernels (`make setup`). A thousand swaps in several seeds: `cargo test --release -p onbeat-kernel --test swap --
//! --ignored thousand`.

mod guest;

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use guest::{
    Facts, Machine, built, burn, child, fact, finish, kill, scheduler, signal, soon, spin, state,
};
use onbeat_client::{Params, Service};
use onbeat_lab::Flavour;
use onbeat_model::policy::{CORE, CorePolicy, Sets};
use onbeat_model::protocol::{Group, Request, Reservation, Response};

const MS: u64 = 1_000_000;

/// Churn of programs, and so many swaps of everything.
fn churn(kernel: Flavour, cpus: u32, options: &[&str]) {
    let churn = built("onbeat-churn");
    let programs = [Path::new(env!("CARGO_BIN_EXE_scx_onbeat")), &churn];
    let command = [&["onbeat-churn", "--no-hotplug", "--no-reload"], options].concat();
    let console = Machine::new(kernel, cpus, &programs, &command).run();
    let console = console.unwrap_or_else(|e| panic!("{e}"));
    let last = console.lines().rfind(|l| l.contains("nobody lost"));
    println!("{}", last.unwrap_or_else(|| panic!("{console}")));
    let reservations = last.and_then(|l| l.split(" refused) of ").nth(1)?.split(' ').next());
    assert!(reservations.is_some_and(|n| n.parse::<u64>().unwrap() > 100), "{console}");
}

#[test]
fn nobody_is_lost_in_80_swaps_of_policies_and_orders_while_programs_come_and_go() {
    churn(Flavour::Plain, 2, &["--swaps", "80", "--seed", "1", "--tasks", "16"]);
}

#[test]
#[ignore = "takes minutes"]
fn thousand() {
    for (kernel, seed) in [(Flavour::Plain, "11"), (Flavour::Rt, "12"), (Flavour::Plain, "13")] {
        churn(kernel, 4, &["--swaps", "1000", "--seed", seed]);
    }
}

fn facts() -> Facts {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    guest::facts(Flavour::Plain, 3, &[program]).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn who_keeps_its_budget_is_in_time_in_hundreds_of_swaps_that_isolate_and_elsewhere_of_any() {
    let facts = facts();
    println!("{facts:?}");
    assert_eq!(facts["state"], "enabled");
    assert!(facts["swaps"].parse::<u64>().unwrap() >= 230);
    assert!(facts["owed"].parse::<u64>().unwrap() >= 150);
    assert_eq!(facts["owed-late"], "0", "by {} ns", facts["owed-tardiness"]);
    // The other set's programs go on, whatever its policies promise.
    assert!(facts["other-jobs"].parse::<u64>().unwrap() >= 30);
    // Both parts of best effort go on.
    assert!(facts["stays"].parse::<u64>().unwrap() == 2);
}

// In the guest.

/// A child that works for `busy` in every period, for ever; until it is killed.
fn periodic(period: Duration, busy: Duration) -> i32 {
    child(move || {
        spin(busy);
        std::thread::sleep(period - busy);
    })
}

fn group() -> Group {
    Group {
        name: "inside".into(),
        budget_ns: Some(4 * MS),
        period_ns: Some(40 * MS),
        rule: Some("cbs".into()),
        set: Some("b".into()),
        ..Default::default()
    }
}

fn held() -> Vec<Reservation> {
    let answer = Service::connect().unwrap().ask(&Request::Status).unwrap();
    let Response::Status { reservations, .. } = answer else { panic!("{answer:?}") };
    reservations
}

/// Swaps; whether another policy is in force then, or it was refused as it may be.
fn swap(service: &mut Service, set: &str, policy: &str) -> u64 {
    let asked = Request::Swap { set: set.into(), policy: policy.into() };
    match service.ask(&asked) {
        Ok(Response::Swapped { from, to, .. }) => u64::from(from != to),
        Ok(other) => panic!("{other:?}"),
        Err(e) => {
            let why = e.to_string();
            assert!(why.contains("no longer fit") || why.contains("is a group"), "{policy}: {e}");
            0
        }
    }
}

/// How long a swap of so many reservations takes, ns: the least of ten.
fn fastest(service: &mut Service, count: u64) -> u64 {
    assert_eq!(swap(service, "b", "g-fifo"), 1);
    let sleepers: Vec<i32> =
        (0..count).map(|_| child(|| std::thread::sleep(Duration::from_secs(1)))).collect();
    for (pid, i) in sleepers.iter().zip(1..) {
        let params = Params::new(MS / 10, (100 + i) * MS).in_set("b");
        service.reserve(*pid as u32, "sleeps", &params).unwrap();
    }
    let took = (0..10).map(|turn| {
        let policy = ["g-edzl+cbs", "g-edf+cbs-hard"][turn % 2].into();
        let answer = service.ask(&Request::Swap { set: "b".into(), policy }).unwrap();
        let Response::Swapped { took_ns, reservations, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(reservations as u64, count);
        took_ns
    });
    let took = took.min().unwrap();
    kill(&sleepers);
    assert!(soon(|| held().is_empty()));
    took
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let service: Child =
        scheduler(&["--set=b=1-2:g-edzl+cbs", "--no-isolation", "--policy=p-edf+cbs"]);
    let mut ask = Service::connect().unwrap();
    let mut children = Vec::new();
    // On CPU 0, in 3/4 of it in all, and never beyond the budgets.
    for (period, busy) in [(10, 2), (14, 4), (25, 5)] {
        let pid = periodic(Duration::from_millis(period), Duration::from_millis(busy));
        let params = Params::new((busy * 10 + 5) * MS / 10, period * MS).in_set("default");
        ask.reserve(pid as u32, "keeps", &params).unwrap();
        children.push(pid);
    }
    for (period, busy) in [(11, 6), (20, 9), (33, 16)] {
        let pid = periodic(Duration::from_millis(period), Duration::from_millis(busy));
        // Overruns, now and then for want of budget.
        let params = Params::new((busy - 2) * MS, period * MS).in_set("b");
        ask.reserve(pid as u32, "any", &params).unwrap();
        children.push(pid);
    }
    // In a group, which goes with its set. Policies that split have none.
    ask.group(&group()).unwrap();
    let pid = periodic(Duration::from_millis(40), Duration::from_millis(3));
    ask.reserve(pid as u32, "any", &Params::new(4 * MS, 40 * MS).in_group("inside")).unwrap();
    children.push(pid);
    let hogs = [child(|| burn()), child(|| burn())];
    let isolates = |p: &&CorePolicy| p.server.isolates() && p.order.isolates();
    let same =
        |p: &&CorePolicy| isolates(p) && p.order.sets == Sets::Partitioned && !p.order.splits();
    let any: Vec<&CorePolicy> = CORE.iter().filter(|p| !p.order.key.ranks()).collect();
    let fixed: Vec<&CorePolicy> = any.iter().copied().filter(|p| same(p)).collect();
    let mut random = 1u64;
    let mut below = |most: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % most
    };
    let mut swaps = 0;
    for turn in 0..200 {
        swaps += swap(&mut ask, "default", fixed[below(fixed.len())].name);
        swaps += swap(&mut ask, "b", any[below(any.len())].name);
        if turn % 3 == 0 {
            let order = ["fair", "berate", "best"][turn / 3 % 3];
            ask.ask(&Request::Reorder { order: order.into() }).unwrap();
        }
        std::thread::sleep(Duration::from_micros(500 + below(12_000) as u64));
    }
    fact("swaps", swaps);
    let held = held();
    let keep = || held.iter().filter(|r| r.name == "keeps");
    fact("owed", keep().map(|r| r.owed).sum::<u64>());
    fact("owed-late", keep().map(|r| r.owed_late).sum::<u64>());
    fact("owed-tardiness", keep().map(|r| r.owed_tardiness_max_ns).max().unwrap());
    let others = held.iter().filter(|r| r.name == "any");
    fact("other-jobs", others.map(|r| r.jobs).min().unwrap());
    let before: Vec<u64> = hogs.iter().map(|pid| guest::consumed(&[*pid])).collect();
    let runs = |(pid, before): (&i32, &u64)| soon(|| guest::consumed(&[*pid]) > *before);
    fact("stays", hogs.iter().zip(&before).filter(|hog| runs(*hog)).count());
    fact("state", state());
    kill(&children);
    kill(&hogs);
    assert!(soon(|| self::held().len() == 1));
    ask.release(self::held()[0].id).unwrap();
    for count in [1, 10, 100] {
        fact(&format!("us-for-{count}"), fastest(&mut ask, count) / 1000);
    }
    signal(&service, libc::SIGTERM);
    assert!(finish(service).0.success());
}
