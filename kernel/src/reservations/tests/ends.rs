// SPDX-License-Identifier: GPL-2.0-only
//! What is given back, and by whom.

use super::*;

#[test]
fn who_gives_back_its_own_gives_back_nothing_that_came_to_have_the_number() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    fake.process(11, 1000, 1);
    // Of the same user, or root's by its rights.
    for (mine, theirs) in [(USER, Peer { connection: 7, ..USER }), (ROOT, USER)] {
        let own = |id| Request::Release { id, own: true };
        let id = granted(book.answer(mine, ask(10, 5, 40)));
        assert!(matches!(
            book.answer(ROOT, Request::Release { id, own: false }),
            Response::Released(_)
        ));
        assert_eq!(
            granted(book.answer(theirs, ask(11, 5, 40))),
            id,
            "the number is given out again"
        );
        assert!(failed(book.answer(mine, own(id))).contains("another one"));
        assert_eq!(book.live(), 1);
        assert!(matches!(book.answer(theirs, own(id)), Response::Released(_)));
    }
}

fn on_trial(pid: u32, budget_ms: u64, period_ms: u64) -> Request {
    let Request::Reserve(r) = ask(pid, budget_ms, period_ms) else { unreachable!() };
    Request::Reserve(Reserve { trial: true, ..r })
}

#[test]
fn a_trial_ends_with_its_connection_and_what_is_promised_does_not() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    fake.process(11, 1000, 1);
    granted(book.answer(USER, on_trial(10, 9, 10)));
    granted(book.answer(USER, ask(11, 5, 40)));
    book.disconnected(USER.connection);
    assert_eq!((book.live(), book.reservations()[0].pid), (1, 11));
    // Nor does one last for ever whose connection stays.
    let id = granted(book.answer(USER, on_trial(10, 9, 10)));
    book.tick();
    assert_eq!(book.live(), 2);
    let held = book.held.get_mut(&id).unwrap();
    held.since = held.since.checked_sub(TRIAL_MOST).unwrap();
    book.tick();
    assert_eq!(book.live(), 1);
}

#[test]
fn a_trial_gives_way_to_what_does_not_fit_beside_it_and_to_its_programs_own_reservation() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    (10..14).for_each(|pid| fake.process(pid, 0, 1));
    granted(book.answer(ROOT, on_trial(10, 9, 10)));
    // No trial gives way to another, ...
    refused(book.answer(ROOT, on_trial(11, 5, 10)));
    assert_eq!(book.reservations()[0].pid, 10);
    // ... and it stays where there is room.
    granted(book.answer(ROOT, ask(11, 1, 100)));
    assert_eq!(book.live(), 2);
    granted(book.answer(ROOT, ask(12, 5, 10)));
    let left: Vec<u32> = book.reservations().iter().map(|r| r.pid).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&11) && left.contains(&12), "{left:?}");
    granted(book.answer(ROOT, on_trial(13, 1, 10)));
    granted(book.answer(ROOT, ask(13, 2, 10)));
    assert!(failed(book.answer(ROOT, on_trial(13, 1, 10))).contains("already has reservation"));
    assert!(book.reservations().iter().all(|r| !r.trial));
}

#[test]
fn what_does_not_fit_anyway_ends_no_trial() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    fake.process(10, 0, 1);
    fake.process(11, 1000, 1);
    fake.process(12, 0, 1);
    granted(book.answer(ROOT, ask(12, 2, 10)));
    granted(book.answer(ROOT, on_trial(10, 3, 10)));
    // More than a user may have, and more than there is.
    refused(book.answer(USER, ask(11, 9, 10)));
    refused(book.answer(ROOT, ask(11, 8, 10)));
    assert_eq!(book.live(), 2);
    // Nor does one who may not reserve for its program.
    assert!(failed(book.answer(USER, ask(10, 1, 10))).contains("does not belong"));
    assert_eq!(book.live(), 2);
}

#[test]
fn what_is_refused_anyway_is_so_before_a_programs_threads_are_looked_at() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    fake.0.borrow_mut().places = 80;
    (10..90).for_each(|pid| fake.process(pid, 1000, 1));
    (10..74).for_each(|pid| {
        granted(book.answer(USER, ask(pid, 1, 100_000)));
    });
    let before = fake.0.borrow().examined;
    assert!(failed(book.answer(USER, ask(10, 1, 10))).contains("already has"));
    let reason = refused(book.answer(USER, ask(80, 1, 10))).reason;
    assert!(reason.contains("64 reservations"), "{reason}");
    assert_eq!(fake.0.borrow().examined, before);
    fake.process(5000, 1001, limits::THREADS as i32 + 1);
    let words = failed(book.answer(OTHER, ask(5000, 1, 10)));
    assert!(words.contains("4097 threads"), "{words}");
    granted(book.answer(ROOT, ask(5000, 1, 10)));
}

#[test]
fn a_user_may_have_some_groups_and_leaves_some_to_others() {
    let (mut book, _) = book(Order::PARTITIONED_EDF, 1);
    fake_room(&mut book);
    granted(book.answer(USER, Request::Group(a_group("g0", 2, 10))));
    for n in 1..limits::GROUPS {
        let inner =
            protocol::Group { group: Some("g0".into()), ..a_group(&format!("g{n}"), 1, 1000) };
        granted(book.answer(USER, Request::Group(inner)));
    }
    let more = protocol::Group { group: Some("g0".into()), ..a_group("more", 1, 1000) };
    let words = failed(book.answer(USER, Request::Group(more.clone())));
    assert!(words.contains("8 groups"), "{words}");
    granted(book.answer(ROOT, Request::Group(more)));
}

fn fake_room(book: &mut Book<Fake, Fake>) {
    book.engine.0.borrow_mut().places = 80;
}
