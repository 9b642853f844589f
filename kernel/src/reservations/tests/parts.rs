// SPDX-License-Identifier: GPL-2.0-only
//! Groups by weight, which are divided anew as members come and go; and values.

use onbeat_model::policy::Policy;

use super::*;

fn group(name: &str, within: Option<&str>, weight: Option<u64>) -> Request {
    let outermost = within.is_none();
    Request::Group(protocol::Group {
        name: name.into(),
        budget_ns: outermost.then_some(12 * MS),
        period_ns: outermost.then_some(20 * MS),
        weight,
        group: within.map(str::to_owned),
        ..Default::default()
    })
}

fn member(pid: u32, budget_ms: u64, period_ms: u64, group: &str) -> Request {
    let Request::Reserve(r) = ask(pid, budget_ms, period_ms) else { unreachable!() };
    Request::Reserve(Reserve { group: Some(group.into()), ..r })
}

/// One CPU under hard budgets, and a group of 12 ms in 20 ms.
fn with_group() -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(1);
    let settings = Settings::whole(Order::PARTITIONED_EDF, Server::CbsHard, 1, 1);
    let mut book = Book::new(fake.clone(), fake.clone(), settings);
    granted(book.answer(ROOT, group("out", None, None)));
    (10..20).for_each(|pid| fake.process(pid, 0, 1));
    (book, fake)
}

#[test]
fn parts_are_divided_anew_with_each_member_that_comes_or_goes() {
    let (mut book, fake) = with_group();
    let budget = |id: u32| fake.0.borrow().servers[&id].0.budget;
    let light = granted(book.answer(ROOT, group("light", Some("out"), Some(100))));
    assert_eq!(budget(light), 12 * MS);
    let heavy = granted(book.answer(ROOT, group("heavy", Some("out"), Some(300))));
    assert_eq!((budget(light), budget(heavy)), (3 * MS, 9 * MS));
    // 2 in 10 are 4 of 20: 8 are left.
    let task = granted(book.answer(ROOT, member(10, 2, 10, "out")));
    assert_eq!((budget(light), budget(heavy)), (2 * MS, 6 * MS));
    // One that only orders counts as 100, and never rests; inside it all is divided again.
    let orders = granted(book.answer(ROOT, group("orders", Some("out"), None)));
    let deep = granted(book.answer(ROOT, group("deep", Some("orders"), Some(7))));
    assert_eq!((budget(light), budget(orders), budget(deep)), (8 * MS / 5, 8 * MS / 5, 8 * MS / 5));
    let kinds = |id: u32| fake.0.borrow().servers[&id].0.kind;
    let kind = crate::settings::kind;
    assert_eq!((kinds(orders), kinds(deep)), (kind(Server::Cbs), kind(Server::CbsHard)));
    assert!(matches!(
        book.answer(ROOT, Request::Release { id: task, own: false }),
        Response::Released(_)
    ));
    assert_eq!(
        (budget(light), budget(heavy), budget(deep)),
        (12 * MS / 5, 36 * MS / 5, 12 * MS / 5)
    );
    assert!(matches!(
        book.answer(ROOT, Request::Release { id: heavy, own: false }),
        Response::Released(_)
    ));
    assert_eq!((budget(light), budget(deep)), (6 * MS, 6 * MS));
    let Response::Status { reservations, .. } = book.answer(ROOT, Request::Status) else {
        panic!()
    };
    assert!(reservations.iter().any(|r| r.name == "deep" && r.budget_ns == 6 * MS));
    // A program that ends leaves its part to the others.
    granted(book.answer(ROOT, member(11, 4, 20, "out")));
    assert_eq!(budget(light), 4 * MS);
    fake.kill(11);
    book.tick();
    assert_eq!(budget(light), 6 * MS);
}

#[test]
fn who_would_leave_nothing_to_divide_is_refused_and_nothing_changes() {
    let (mut book, fake) = with_group();
    let light = granted(book.answer(ROOT, group("light", Some("out"), Some(1))));
    let why = failed(book.answer(ROOT, member(10, 12, 20, "out")));
    assert!(why.contains("too little would be left for the group \"light\""), "{why}");
    granted(book.answer(ROOT, member(10, 11, 20, "out")));
    assert_eq!(fake.0.borrow().servers[&light].0.budget, MS);
    assert!(matches!(
        book.answer(ROOT, Request::Release { id: light, own: false }),
        Response::Released(_)
    ));
    granted(book.answer(ROOT, member(11, 1, 20, "out")));
    let why = failed(book.answer(ROOT, group("late", Some("out"), Some(1))));
    assert!(why.contains("too little is left of the group \"out\""), "{why}");
}

#[test]
fn groups_that_make_no_sense_are_refused_in_words() {
    let (mut book, _) = with_group();
    let odd = |change: fn(&mut protocol::Group)| {
        let Request::Group(mut odd) = group("odd", Some("out"), Some(3)) else { unreachable!() };
        change(&mut odd);
        Request::Group(odd)
    };
    for (request, says) in [
        (odd(|g| g.group = None), "is in no other and has no budget"),
        (odd(|g| g.budget_ns = Some(MS)), "a budget and a weight"),
        (odd(|g| g.weight = Some(0)), "from 1 to 10000"),
        (odd(|g| (g.weight, g.rule) = (None, Some("cbs-hard".into()))), "no budget to enforce"),
        (odd(|g| g.period_ns = Some(20_000 * MS)), "waits for the next period"),
    ] {
        let why = failed(book.answer(ROOT, request));
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn a_value_counts_only_where_the_order_chooses() {
    let worth = |pid, group: Option<&str>| {
        let Request::Reserve(r) = ask(pid, 1, 20) else { unreachable!() };
        Request::Reserve(Reserve { value: Some(7), group: group.map(str::to_owned), ..r })
    };
    let (mut book, fake) = with_group();
    let why = failed(book.answer(ROOT, worth(10, None)));
    assert!(why.contains("p-edf+cbs-hard does not choose") && why.contains("g-dasa"), "{why}");
    let why = failed(book.answer(ROOT, worth(10, Some("out"))));
    assert!(why.contains("the group \"out\", whose order is edf, does not choose"), "{why}");
    let chooses: Policy = "g-dasa+cbs".parse().unwrap();
    let (mut book, other) = super::book(chooses.order().unwrap(), 1);
    other.process(10, 0, 1);
    let id = granted(book.answer(ROOT, worth(10, None)));
    // As the core counts: a value of 1 is 1 ms of budget.
    assert_eq!(other.0.borrow().servers[&id].0.value, 7 * MS);
    drop(fake);
}
