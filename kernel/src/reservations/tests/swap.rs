// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, and policies that are swapped: what the book answers, and what it asks of the scheduler.

use onbeat_model::policy::Policy;
use onbeat_model::protocol::Set;

use super::*;

fn swapped(response: Response) -> usize {
    match response {
        Response::Swapped { reservations, .. } => reservations,
        other => panic!("{other:?}"),
    }
}

fn to(set: &str, policy: &str) -> Request {
    Request::Swap { set: set.into(), policy: policy.into() }
}

/// CPUs 0 and 1 under p-edf+cbs, and 2 and 3, called "b", under g-edzl+cbs-hard.
fn two_sets(rights: Rights) -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(4);
    let of = |name: &str, set, policy: &str| {
        let Ok(Policy::Core { order, server }) = policy.parse() else { panic!("{policy}") };
        Settings { name: name.into(), set, ..Settings::whole(order, server, 4, 2) }
    };
    let sets = vec![of("default", 0b0011, "p-edf+cbs"), of("b", 0b1100, "g-edzl+cbs-hard")];
    (Book::of(fake.clone(), fake.clone(), sets, rights), fake)
}

fn in_set(request: Request, set: &str) -> Request {
    let Request::Reserve(r) = request else { unreachable!() };
    Request::Reserve(Reserve { set: Some(set.into()), ..r })
}

fn sets(book: &mut Book<Fake, Fake>) -> Vec<Set> {
    let Response::Status { sets, .. } = book.answer(ROOT, Request::Status) else { panic!() };
    sets
}

#[test]
fn each_set_has_its_own_policy_room_and_cpus() {
    let (mut book, fake) = two_sets(Rights::default());
    for pid in [10, 20, 30, 40, 50] {
        fake.process(pid, 0, 1);
    }
    let here = granted(book.answer(ROOT, ask(10, 9, 10)));
    let there = granted(book.answer(ROOT, in_set(ask(20, 9, 10), "b")));
    let hard = crate::settings::kind(Server::CbsHard);
    let at = |id| fake.0.borrow().servers[&id].0.clone();
    assert_eq!((at(here).place.cpus.count_ones(), at(here).place.cpus & 0b1100), (1, 0));
    assert_eq!((at(there).place.cpus, at(there).place.domain, at(there).kind), (0b1100, 2, hard));
    // Where a process may run decides where nobody names a set.
    fake.0.borrow_mut().processes.get_mut(&30).unwrap().0.cpus = 0b1000;
    let bound = granted(book.answer(ROOT, ask(30, 1, 10)));
    assert_eq!(at(bound).place.cpus, 0b1000);
    // What one set has left is not the other's.
    granted(book.answer(ROOT, ask(40, 9, 10)));
    refused(book.answer(ROOT, ask(50, 5, 10)));
    granted(book.answer(ROOT, in_set(ask(50, 5, 10), "b")));
    let names: Vec<_> = sets(&mut book).into_iter().map(|s| (s.name, s.policy, s.cpus)).collect();
    assert_eq!(
        names,
        [
            ("default".into(), "p-edf+cbs".into(), vec![0, 1]),
            ("b".into(), "g-edzl+cbs-hard".into(), vec![2, 3])
        ]
    );
    fake.process(60, 0, 1);
    assert!(
        failed(book.answer(ROOT, in_set(ask(60, 1, 10), "c"))).contains("no set of CPUs \"c\"")
    );
    fake.0.borrow_mut().processes.get_mut(&60).unwrap().0.cpus = 1;
    assert!(failed(book.answer(ROOT, in_set(ask(60, 1, 10), "b"))).contains("none may be used"));
}

#[test]
fn a_swap_moves_all_that_is_held_shortest_period_first_and_nothing_elsewhere() {
    let (mut book, fake) = two_sets(Rights::default());
    for (pid, budget, period) in [(10, 4, 10), (20, 1, 5), (30, 3, 20)] {
        fake.process(pid, 0, 1);
        granted(book.answer(ROOT, ask(pid, budget, period)));
    }
    fake.process(40, 0, 1);
    let there = granted(book.answer(ROOT, in_set(ask(40, 4, 10), "b")));
    assert_eq!(swapped(book.answer(ROOT, to("default", "g-edzl+cbs-predict"))), 3);
    let periods: Vec<u64> = {
        let world = fake.0.borrow();
        assert!(world.rules.iter().all(|(_, rule)| rule.anew));
        assert_eq!(world.domains, BTreeMap::from([(0, 0b0011)]));
        assert!(world.rules.iter().all(|(id, _)| *id != there));
        world.rules.iter().map(|(id, _)| world.servers[id].0.period).collect()
    };
    assert_eq!(periods, [5 * MS, 10 * MS, 20 * MS]);
    // On the same CPUs under policies that isolate budgets and deadlines are kept.
    fake.0.borrow_mut().rules.clear();
    swapped(book.answer(ROOT, to("default", "g-edzl+cbs-hard")));
    assert!(fake.0.borrow().rules.iter().all(|(_, rule)| !rule.anew));
    // The same once more is no swap.
    fake.0.borrow_mut().rules.clear();
    assert_eq!(swapped(book.answer(ROOT, to("default", "g-edzl+cbs-hard"))), 0);
    assert!(fake.0.borrow().rules.is_empty());
    assert_eq!(sets(&mut book)[0].policy, "g-edzl+cbs-hard");
    // What is granted from now on is served by the new policy.
    fake.process(50, 0, 1);
    let new = granted(book.answer(ROOT, ask(50, 1, 10)));
    assert_eq!(fake.0.borrow().servers[&new].0.place.cpus, 0b0011);
}

#[test]
fn what_would_no_longer_fit_refuses_the_swap_by_name_and_changes_nothing() {
    let (mut book, fake) = two_sets(Rights::default());
    swapped(book.answer(ROOT, to("default", "g-edzl+cbs")));
    for pid in [10, 20, 30] {
        fake.process(pid, 0, 1);
        granted(book.answer(ROOT, ask(pid, 6, 10)));
    }
    let before = (sets(&mut book), fake.0.borrow().domains.clone());
    fake.0.borrow_mut().rules.clear();
    let why = failed(book.answer(ROOT, to("default", "p-edf+cbs")));
    assert!(why.contains("would no longer fit") && why.contains("(work, 6ms every 10ms)"), "{why}");
    assert_eq!((sets(&mut book), fake.0.borrow().domains.clone()), before);
    assert!(fake.0.borrow().rules.is_empty());
    let first = fake.0.borrow().servers.keys().next().copied().unwrap();
    assert!(matches!(
        book.answer(ROOT, Request::Release { id: first, own: false }),
        Response::Released(_)
    ));
    assert_eq!(swapped(book.answer(ROOT, to("default", "p-edf+cbs"))), 2);
    // One waits for 59 s where budgets are hard.
    fake.process(40, 0, 1);
    granted(book.answer(ROOT, ask(40, 1000, 60_000)));
    assert!(failed(book.answer(ROOT, to("default", "p-edf+cbs-hard"))).contains("1s every 60s"));
}

#[test]
fn whoever_may_not_or_names_what_is_not_there_gets_a_remedy() {
    let (mut book, fake) = two_sets(Rights::default());
    fake.process(10, 1000, 1);
    for (peer, request, says) in [
        (USER, to("default", "g-edzl+cbs"), "root's to choose"),
        (ROOT, to("c", "g-edzl+cbs"), "the sets are default, b"),
        (ROOT, to("b", "g-edzl+cbz"), "did you mean"),
        (ROOT, to("b", "eevdf"), "none of Onbeat's own"),
        (ROOT, to("b", "rm+cbs"), "--no-isolation"),
        (ROOT, to("b", "edf-hsb-ns"), "only one of them ranks"),
        (USER, Request::Reorder { order: "berate".into() }, "root's to choose"),
        (ROOT, Request::Reorder { order: "random".into() }, "there are berate, fair, best"),
    ] {
        let why = failed(book.answer(peer, request.clone()));
        assert!(why.contains(says), "{request:?}: {why}");
    }
    assert!(fake.0.borrow().domains.is_empty());
    let answer = book.answer(ROOT, Request::Reorder { order: "fair".into() });
    assert!(matches!(answer, Response::Swapped { .. }), "{answer:?}");
    assert_eq!(fake.0.borrow().others, 1);
    swapped(book.answer(ROOT, to("default", "g-edzl+cbs")));
}

#[test]
fn a_group_goes_where_its_set_goes_and_keeps_its_rule_and_what_is_inside() {
    let (mut book, fake) = two_sets(Rights::default());
    let group = protocol::Group {
        order: Some("rm".into()),
        rule: Some("cbs-hard".into()),
        set: Some("b".into()),
        ..a_group("g", 1, 10)
    };
    let id = granted(book.answer(ROOT, Request::Group(group)));
    fake.process(10, 0, 1);
    let Request::Reserve(inside) = ask(10, 1, 20) else { panic!() };
    let inside = Reserve { group: Some("g".into()), ..inside };
    let member = granted(book.answer(ROOT, Request::Reserve(inside)));
    fake.0.borrow_mut().rules.clear();
    assert_eq!(swapped(book.answer(ROOT, to("b", "p-edf+cbs"))), 1);
    let order = |name: &str| {
        let Ok(Policy::Core { order, .. }) = name.parse() else { panic!("{name}") };
        order.number()
    };
    let rules = fake.0.borrow().rules.clone();
    let [(which, rule)] = rules[..] else { panic!("the member {member} stays: {rules:?}") };
    assert_eq!((which, rule.kind), (id, crate::settings::kind(Server::CbsHard)));
    assert_eq!(rule.order, order("p-edf+cbs"));
    assert_eq!(fake.0.borrow().servers[&member].0.order, order("g-rm+cbs"));
    let why = failed(book.answer(ROOT, to("b", "edf-wm+cbs")));
    assert!(why.contains("\"g\" is a group or takes from a purse"), "{why}");
    swapped(book.answer(ROOT, to("b", "g-edzl+cbs")));
}

#[test]
fn a_cpu_that_is_gone_is_no_room_for_a_new_policy_and_comes_back_into_it() {
    let (mut book, fake) = two_sets(Rights::default());
    for pid in [10, 20] {
        fake.process(pid, 0, 1);
        granted(book.answer(ROOT, ask(pid, 6, 10)));
    }
    fake.0.borrow_mut().online = 0b1101;
    // The younger has lost its guarantee before, and keeps nobody from swapping.
    swapped(book.answer(ROOT, to("default", "g-edzl+cbs")));
    fake.0.borrow_mut().online = 0b1111;
    book.tick();
    assert!(words(&mut book).contains("again guaranteed"));
    assert!(fake.0.borrow().servers.values().all(|(r, _)| r.place.cpus == 0b0011));
}
