// SPDX-License-Identifier: GPL-2.0-only
//! Groups and purses on a real kernel: what members get, who may make and fill one, and how they end. Needs QEMU and a
//! fetched kernel (`make setup`).

mod guest;

use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

use guest::{Facts, burn, fact, finish, part, scheduler, signal, soon, start};
use onbeat_client::{Params, Service};
use onbeat_model::protocol::{Group, Purse, Request, Reservation, Response};
use onbeat_model::taskset::Segment;

const MS: u64 = 1_000_000;
/// How long members are watched.
const WATCHED: Duration = Duration::from_secs(2);

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
}

/// Thousandths of a CPU.
fn share(name: &str) -> u64 {
    facts()[name].parse().unwrap()
}

#[test]
fn a_hard_group_of_hogs_gets_its_budget_and_no_more() {
    // 10 ms of 40 ms for both.
    assert!((240..=252).contains(&share("group")), "{}", share("group"));
}

#[test]
fn members_get_theirs_of_it_and_a_group_inside_no_more_than_its_own() {
    // Hard ones, of 2 ms and 4 ms, each inside 10 ms in 40 ms; the second is in a group of 3 ms.
    assert!((46..=52).contains(&share("outer-member")), "{}", share("outer-member"));
    assert!((70..=77).contains(&share("inner-member")), "{}", share("inner-member"));
}

#[test]
fn weights_divide_what_is_left_and_anew_when_a_member_comes() {
    // 4 and 12 ms of 40 ms, then 3 and 9. Whose budget comes while the group around rests loses some of it.
    for (name, due) in [("light", 100), ("heavy", 300), ("light-less", 75), ("heavy-less", 225)] {
        assert!((due * 9 / 10..=due + 5).contains(&share(name)), "{name}: {}", share(name));
    }
    assert_eq!(facts()["weights-gone"], "true");
}

#[test]
fn a_group_with_members_is_not_given_back_and_afterwards_it_is() {
    assert!(facts()["release-busy"].contains("members"), "{}", facts()["release-busy"]);
    assert_eq!(facts()["release-empty"], "true");
}

#[test]
fn an_ordinary_user_fills_its_own_group_and_nobody_else_s() {
    let said = |name: &str| facts()[name].as_str();
    assert!(said("user-fills-root-s").contains("another user"), "{}", said("user-fills-root-s"));
    assert!(said("user-second").contains("one group"), "{}", said("user-second"));
    assert_eq!(said("user-own"), "granted");
    assert_eq!(said("user-nested"), "granted");
    assert_eq!(said("user-member"), "granted");
    assert!(said("user-too-much").contains("this user may hold"), "{}", said("user-too-much"));
}

#[test]
fn bad_groups_are_refused_in_words() {
    let said = |name: &str| facts()[name].as_str();
    assert!(said("unknown").contains("there is no group"), "{}", said("unknown"));
    assert!(said("twice").contains("already"), "{}", said("twice"));
    assert!(said("order").contains("is no order"), "{}", said("order"));
    assert!(said("rule").contains("no rule"), "{}", said("rule"));
    assert!(said("seventh").contains("inside each other"), "{}", said("seventh"));
}

/// Tables 3 and 4 of Wang and Lin: J3 has 40 in a purse of 80 within one of 30; J1 has 80 in groups that have enough,
/// and in a purse of 60 within one of 100.
#[test]
fn red_linux_s_j3_gets_30_ms_and_j1_gets_60() {
    let us = |name: &str| facts()[name].parse::<u64>().unwrap();
    assert!((29_800..=30_100).contains(&us("j3")), "{} us", us("j3"));
    assert!((59_800..=60_100).contains(&us("j1")), "{} us", us("j1"));
}

#[test]
fn purses_are_root_s_and_not_removed_while_somebody_takes_from_them() {
    let said = |name: &str| facts()[name].as_str();
    assert!(said("user-purse").contains("root"), "{}", said("user-purse"));
    assert!(said("purse-busy").contains("take from"), "{}", said("purse-busy"));
    assert!(said("purse-twice").contains("already"), "{}", said("purse-twice"));
    assert_eq!(said("purse-gone"), "true");
}

#[test]
fn a_killed_service_leaves_members_to_the_kernel_and_the_next_one_has_no_groups() {
    assert_eq!(facts()["after-kill"], "0");
}

// In the guest.

fn group(name: &str, budget: u64, period: u64, within: Option<&str>) -> Group {
    Group {
        name: name.into(),
        budget_ns: Some(budget),
        period_ns: Some(period),
        group: within.map(str::to_owned),
        rule: Some("cbs-hard".into()),
        ..Default::default()
    }
}

/// All that is in it is there from the beginning until the end of 4 s.
fn purse(name: &str, budget: u64, within: Option<&str>) -> Purse {
    let period_ns = 4_000 * MS;
    let segments = vec![Segment { budget, from: 0, until: period_ns }];
    Purse { name: name.into(), within: within.map(str::to_owned), period_ns, segments }
}

/// What two jobs of RED-Linux's examples get.
fn red_linux(service: &mut Service) {
    for (name, budget, within) in
        [("j0", 30, None), ("j1", 80, Some("j0")), ("j5", 100, None), ("j6", 60, Some("j5"))]
    {
        service.purse(&purse(name, budget * MS, within)).unwrap();
    }
    fact("purse-twice", said(service.purse(&purse("j6", MS, None))));
    service.group(&group("outer", 500 * MS, 4_000 * MS, None)).unwrap();
    service.group(&group("g3", 300 * MS, 4_000 * MS, Some("outer"))).unwrap();
    let children = vec![start(&mut part("hog")), start(&mut part("hog"))];
    let j3 = Params::new(40 * MS, 4_000 * MS).from_purse("j1");
    let j1 = Params::new(80 * MS, 4_000 * MS).from_purse("j6").in_group("g3");
    let mut ids = Vec::new();
    for (child, params) in children.iter().zip([j3, j1]) {
        ids.push(service.reserve(child.id(), "job", &params).unwrap().id);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    let had = had(&children);
    fact("j3", had[0] / 1_000);
    fact("j1", had[1] / 1_000);
    let remove =
        |service: &mut Service, name: &str| service.ask(&Request::DropPurse { name: name.into() });
    fact("purse-busy", said(remove(service, "j6")));
    end(children);
    // Over, but kept for who asked until the last words are fetched.
    ids.into_iter().for_each(|id| drop(service.release(id)));
    fact("purse-gone", soon(|| remove(service, "j6").is_ok()));
}

/// Two groups with weights of 1 and 3 in one of 16 ms in 40 ms, each with a program that never sleeps; then a third
/// program of 4 ms beside them.
fn weights(service: &mut Service) {
    let mut ids = vec![service.group(&group("shared", 16 * MS, 40 * MS, None)).unwrap().id];
    for (name, weight) in [("light", 1), ("heavy", 3)] {
        let weight = Some(weight);
        let (budget_ns, period_ns) = (None, None);
        let by = Group { budget_ns, period_ns, weight, ..group(name, 0, 0, Some("shared")) };
        ids.push(service.group(&by).unwrap().id);
    }
    let mut children = vec![member("light", 16 * MS, 40 * MS), member("heavy", 16 * MS, 40 * MS)];
    let shares = watch(&children);
    fact("light", shares[0]);
    fact("heavy", shares[1]);
    children.push(member("shared", 4 * MS, 40 * MS));
    // Parts count from the next period on.
    std::thread::sleep(Duration::from_millis(100));
    let shares = watch(&children);
    fact("light-less", shares[0]);
    fact("heavy-less", shares[1]);
    end(children);
    ids.reverse();
    fact("weights-gone", ids.into_iter().all(|id| soon(|| service.release(id).is_ok())));
}

/// What became of a request, in words.
fn said<T>(result: Result<T, onbeat_client::Error>) -> String {
    result.map_or_else(|e| e.to_string(), |_| "granted".into())
}

fn member(name: &str, budget: u64, period: u64) -> Child {
    let child = start(&mut part("hog"));
    let params = Params::new(budget, period).in_group(name);
    Service::connect().unwrap().reserve(child.id(), "member", &params).unwrap();
    child
}

/// CPU time that each of these has had under its reservation so far, ns.
fn had(children: &[Child]) -> Vec<u64> {
    let all = reservations();
    let of = |c: &Child| all.iter().find(|r| r.pid == c.id()).unwrap().consumed_ns;
    children.iter().map(of).collect()
}

/// Thousandths of a CPU that each gets while it is watched.
fn watch(children: &[Child]) -> Vec<u64> {
    let before = had(children);
    std::thread::sleep(WATCHED);
    let each = |(had, before): (u64, u64)| (had - before) * 1000 / WATCHED.as_nanos() as u64;
    had(children).into_iter().zip(before).map(each).collect()
}

fn end(children: Vec<Child>) {
    for child in children {
        signal(&child, libc::SIGKILL);
        finish(child);
    }
}

fn reservations() -> Vec<Reservation> {
    let answer = Service::connect().unwrap().ask(&Request::Status).unwrap();
    let Response::Status { reservations, .. } = answer else { panic!("{answer:?}") };
    reservations
}

#[test]
#[ignore = "the guest's side"]
fn hog() {
    burn();
}

/// What an ordinary user tries.
#[test]
#[ignore = "the guest's side"]
fn user() {
    let mut service = Service::connect().unwrap();
    let me = std::process::id();
    let small = Params::new(MS, 40 * MS);
    fact("user-fills-root-s", said(service.reserve(me, "x", &small.clone().in_group("group"))));
    // Half of two CPUs may be held by one user.
    let much = |name| Group { budget_ns: Some(36 * MS), ..group(name, 0, 40 * MS, None) };
    fact("user-own", said(service.group(&much("mine"))));
    fact("user-purse", said(service.purse(&purse("mine", MS, None))));
    fact("user-second", said(service.group(&group("second", MS, 40 * MS, None))));
    fact("user-nested", said(service.group(&group("nested", 5 * MS, 40 * MS, Some("mine")))));
    fact("user-member", said(service.reserve(me, "x", &small.clone().in_group("nested"))));
    let child = start(&mut part("hog"));
    let much = Params::new(8 * MS, 40 * MS);
    fact("user-too-much", said(service.reserve(child.id(), "x", &much)));
    end(vec![child]);
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let service_process = scheduler(&["--policy", "g-edzl+cbs-hard", "--max-share", "50%"]);
    let mut service = Service::connect().unwrap();
    red_linux(&mut service);
    weights(&mut service);
    let id = service.group(&group("group", 10 * MS, 40 * MS, None)).unwrap().id;
    // Two that ask for more than all of it, in budgets that would be granted.
    let children = vec![member("group", 9 * MS, 40 * MS), member("group", 9 * MS, 40 * MS)];
    fact("group", watch(&children).iter().sum::<u64>());
    fact("release-busy", said(service.release(id)));
    end(children);
    service.group(&group("inner", 3 * MS, 40 * MS, Some("group"))).unwrap();
    let children = vec![member("group", 2 * MS, 40 * MS), member("inner", 4 * MS, 40 * MS)];
    let shares = watch(&children);
    fact("outer-member", shares[0]);
    fact("inner-member", shares[1]);

    fact("unknown", said(service.group(&group("x", MS, 40 * MS, Some("nobody")))));
    fact("twice", said(service.group(&group("inner", MS, 40 * MS, None))));
    let odd = Group { order: Some("best".into()), ..group("x", MS, 40 * MS, None) };
    fact("order", said(service.group(&odd)));
    let odd = Group { rule: Some("worst".into()), ..group("x", MS, 40 * MS, None) };
    fact("rule", said(service.group(&odd)));
    let mut last = String::from("inner");
    for depth in 3..=6 {
        let name = format!("depth-{depth}");
        service.group(&group(&name, MS, 40 * MS, Some(&last))).unwrap();
        last = name;
    }
    fact("seventh", said(service.group(&group("seventh", MS, 40 * MS, Some(&last)))));

    let mut command = part("user");
    let (_, text) = finish(start(command.uid(1000).gid(1000)));
    text.lines().filter(|line| line.contains("FACT ")).for_each(|line| println!("{line}"));
    end(children);
    let empty = service.group(&group("empty", MS, 40 * MS, None)).unwrap().id;
    fact("release-empty", soon(|| service.release(empty).is_ok()));

    let children = vec![member("inner", 4 * MS, 40 * MS)];
    signal(&service_process, libc::SIGKILL);
    finish(service_process);
    assert!(soon(|| guest::state() == "disabled"));
    let again = scheduler(&["--policy", "g-edzl+cbs-hard"]);
    fact("after-kill", reservations().len());
    end(children);
    signal(&again, libc::SIGINT);
    finish(again);
}
