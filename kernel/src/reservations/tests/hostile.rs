// SPDX-License-Identifier: GPL-2.0-only
//! What an ordinary user tries with what it holds.

use super::*;

fn release(id: u32) -> Request {
    Request::Release { id, own: false }
}

fn in_group(request: Request, group: &str) -> Request {
    let Request::Reserve(r) = request else { unreachable!() };
    Request::Reserve(Reserve { group: Some(group.into()), ..r })
}

#[test]
fn a_group_has_no_rule_that_does_not_isolate_unless_the_service_may_have_one() {
    let by = |rule: &str| {
        Request::Group(protocol::Group { rule: Some(rule.into()), ..a_group("g", 4, 40) })
    };
    let fake = Fake::new(1);
    let isolates = Settings::whole(Order::PARTITIONED_EDF, Server::CbsHard, 1, 2);
    let mut book = Book::new(fake.clone(), fake, isolates);
    for peer in [USER, ROOT] {
        let why = failed(book.answer(peer, by("fcbs")));
        assert!(why.contains("no rule for a group's budget here"), "{why}");
        assert!(why.contains("cbs-hard") && !why.contains("fcbs,"), "{why}");
    }
    book.rights.no_isolation = true;
    granted(book.answer(ROOT, by("fcbs")));
}

#[test]
fn what_has_ended_with_its_program_takes_no_thread_that_was_told_to_join_it_and_slept() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 1);
    fake.process(10, 1000, 1);
    let id = granted(book.answer(USER, ask(10, 5, 40)));
    fake.kill(10);
    book.tick();
    assert_eq!(book.live(), 0);
    assert!(fake.0.borrow().retired.contains(&id), "the core would let one join");
}

/// A user's reservations whose threads do not leave when they are told to.
fn clinging(count: u32) -> (Book<Fake, Fake>, Fake) {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 2);
    for pid in 10..10 + count {
        fake.process(pid, 1000, 1);
        fake.0.borrow_mut().stuck.insert(pid as i32);
        let id = granted(book.answer(USER, ask(pid, 1, 10)));
        assert!(matches!(book.answer(USER, release(id)), Response::Released(_)));
    }
    (book, fake)
}

#[test]
fn who_clings_to_what_it_gave_back_holds_it_still() {
    let (mut book, fake) = clinging(4);
    fake.process(30, 1000, 1);
    // The user may hold 1 CPU, and does 0.4.
    // Most often threads leave with their next switch, so it waits a moment.
    assert!(book.answer_or_wait(USER, ask(30, 7, 10), Duration::ZERO).is_err());
    let why = refused(book.answer(USER, ask(30, 7, 10))).reason;
    assert!(why.contains("this user may hold"), "{why}");
    fake.0.borrow_mut().stuck.clear();
    book.lapse_at = 0;
    granted(book.answer(USER, ask(30, 7, 10)));
}

#[test]
fn to_look_for_threads_that_cling_is_no_work_of_others() {
    let (mut book, fake) = clinging(4);
    let before = fake.0.borrow().left;
    (0..10).for_each(|_| drop(book.answer(ROOT, Request::Status)));
    let looks = fake.0.borrow().left - before;
    assert!(looks <= 4 * 10, "{looks}");
    // And whoever lets go in the end has it freed.
    fake.0.borrow_mut().stuck.clear();
    book.lapse_at = 0;
    book.tick();
    assert!(book.held.is_empty());
}

#[test]
fn a_group_whose_member_has_ended_is_free_at_once_when_it_is_given_back() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    fake.process(10, 1000, 1);
    let group = granted(book.answer(USER, Request::Group(a_group("g", 20, 40))));
    granted(book.answer(USER, in_group(ask(10, 5, 40), "g")));
    fake.kill(10);
    book.tick();
    // Its connection is open still, and its last words are not fetched.
    assert_eq!(book.held.len(), 2);
    assert!(matches!(book.answer(USER, release(group)), Response::Released(_)));
    assert!(book.held.is_empty(), "{:?}", book.held.keys());
}

#[test]
fn who_descends_from_what_has_a_reservation_of_its_own_stays_there() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 2);
    (10..15).for_each(|pid| fake.process(pid, 1000, 1));
    // 10 has started 11, which has started 12, and 13, which has started 14.
    fake.0.borrow_mut().parents = [(11, 10), (12, 11), (13, 10), (14, 13)].into();
    let inner = granted(book.answer(USER, ask(11, 1, 40)));
    let Request::Reserve(r) = ask(10, 1, 40) else { unreachable!() };
    let outer = Request::Reserve(Reserve { descendants: true, ..r });
    let outer = granted(book.answer(USER, outer));
    assert_eq!((fake.tids(inner), fake.tids(outer)), (vec![11], vec![10, 13, 14]));
}
