// SPDX-License-Identifier: GPL-2.0-only
//! A budget that was used up is not to be had twice in a period.

use super::*;
use crate::machine::monotonic;

/// One CPU, one of root's of 0.4 s in 2 s, and one of a user's of 0.5 s in 1 s, used up, whose deadline is 10 s away.
fn used_up() -> (Book<Fake, Fake>, Fake, [u32; 2]) {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    (10..13).for_each(|pid| fake.process(pid, 0, 1));
    (20..90).for_each(|pid| fake.process(pid, 1000, 1));
    let root = granted(book.answer(ROOT, ask(10, 400, 2000)));
    let user = granted(book.answer(USER, ask(20, 500, 1000)));
    fake.has(user, 0, 10_000);
    (book, fake, [root, user])
}

impl Fake {
    /// A reservation has so much left until that time from now.
    fn has(&self, id: u32, left_ms: i64, until_ms: u64) {
        let pair = (left_ms * MS as i64, monotonic() + until_ms * MS);
        self.0.borrow_mut().pairs.insert(id, pair);
    }
}

fn release(id: u32) -> Request {
    Request::Release { id, own: false }
}

fn at_once(book: &mut Book<Fake, Fake>, request: Request) -> Result<Response, Duration> {
    book.answer_or_wait(USER, request, Duration::ZERO)
}

#[test]
fn what_was_used_up_is_booked_until_who_waits_for_its_own_has_had_that() {
    let (mut book, fake, [root, user]) = used_up();
    // It has had nothing, and a quarter of its period is over.
    fake.has(root, 400, 1500);
    assert!(matches!(book.answer(USER, release(user)), Response::Released(_)));
    let wait = at_once(&mut book, ask(21, 500, 1000)).unwrap_err();
    assert!(wait <= Duration::from_millis(1500), "{wait:?}");
    let refusal = refused(book.answer(USER, ask(21, 500, 1000)));
    assert!(refusal.reason.contains("what was given back is free in"), "{}", refusal.reason);
    let named = |h: &Holder| h.name.starts_with("work, given back, not free for ");
    assert!(refusal.holders.iter().any(named), "{:?}", refusal.holders);
    // What fits beside it need not wait, and nobody does so for ever.
    granted(book.answer_or_wait(ROOT, ask(11, 200, 1000), Duration::ZERO).unwrap());
    assert!(book.answer_or_wait(ROOT, ask(12, 500, 1000), Duration::ZERO).is_err());
    let long = Duration::from_secs(2);
    refused(book.answer_or_wait(USER, ask(21, 500, 1000), long).unwrap());
    std::thread::sleep(wait + Duration::from_millis(1));
    granted(at_once(&mut book, ask(21, 500, 1000)).unwrap());
    assert_eq!(book.counters()["refused"], 2);
}

#[test]
fn what_was_used_up_while_nobody_else_was_behind_is_others_at_once() {
    for left in [0, 400] {
        let (mut book, fake, [root, user]) = used_up();
        // Nothing to do; or all of its budget, and more than a period for it.
        fake.has(root, left, 3000);
        assert!(matches!(book.answer(USER, release(user)), Response::Released(_)));
        granted(at_once(&mut book, ask(21, 500, 1000)).unwrap());
    }
}

/// Four CPUs, of which two are a user's; and one of root's is behind for long.
fn four_cpus() -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(4);
    let mut book = Book::new(fake.clone(), fake.clone(), settings(Order::PARTITIONED_EDF, 4));
    fake.process(10, 0, 1);
    (20..90).for_each(|pid| fake.process(pid, 1000, 1));
    let root = granted(book.answer(ROOT, ask(10, 400, 2000)));
    fake.has(root, 400, 1500);
    (book, fake)
}

#[test]
fn a_user_holds_no_more_than_its_share_with_what_is_not_yet_free() {
    let (mut book, fake) = four_cpus();
    let id = granted(book.answer(USER, ask(20, 900, 1000)));
    granted(book.answer(USER, ask(21, 900, 1000)));
    fake.has(id, 0, 900);
    assert!(matches!(book.answer(USER, release(id)), Response::Released(_)));
    let wait = at_once(&mut book, ask(22, 500, 1000)).unwrap_err();
    assert!(wait <= Duration::from_millis(900), "{wait:?}");
    granted(at_once(&mut book, ask(23, 200, 1000)).unwrap());
}

#[test]
fn a_program_that_ends_leaves_no_more_to_its_user_than_one_that_gives_back() {
    let (mut book, fake, [root, _]) = used_up();
    fake.has(root, 400, 1500);
    fake.kill(20);
    book.tick();
    assert_eq!(book.live(), 1);
    assert!(at_once(&mut book, ask(21, 500, 1000)).is_err());
    book.disconnected(USER.connection);
    book.tick();
    assert!(at_once(&mut book, ask(21, 500, 1000)).is_err());
}

#[test]
fn another_policy_and_other_cpus_leave_it_booked() {
    let (mut book, fake, [root, user]) = used_up();
    fake.has(root, 400, 1500);
    assert!(matches!(book.answer(USER, release(user)), Response::Released(_)));
    let swap = Request::Swap { set: "default".into(), policy: "p-edf+cbs".into() };
    let answer = book.answer(ROOT, swap);
    assert!(matches!(answer, Response::Swapped { .. }), "{answer:?}");
    assert!(at_once(&mut book, ask(21, 500, 1000)).is_err());
    book.note_above(Above { deadline: 1, ..Above::default() });
    assert!(at_once(&mut book, ask(21, 500, 1000)).is_err());
    // Where nothing fits any more it is over at its time, too.
    book.note_above(Above { deadline: 900_000_000, ..Above::default() });
    std::thread::sleep(Duration::from_millis(1510));
    book.tick();
    assert!(book.rooms.iter().all(|room| room.leaving.is_empty()));
}

#[test]
fn nor_more_of_them_than_a_user_may() {
    let (mut book, fake) = four_cpus();
    for pid in 20..84 {
        let id = granted(at_once(&mut book, ask(pid, 1, 1000)).unwrap());
        fake.has(id, 0, 60_000);
        assert!(matches!(book.answer(USER, release(id)), Response::Released(_)));
    }
    assert!(at_once(&mut book, ask(84, 1, 1000)).is_err());
    let refusal = refused(book.answer(USER, ask(84, 1, 1000)));
    assert!(refusal.reason.contains("64 of them have ended, but are not free yet"), "{refusal:?}");
}

#[test]
fn who_grows_and_moves_is_not_behind_and_leaves_its_cpu_when_it_could_have_begun_anew() {
    let fake = Fake::new(2);
    let mut book = Book::new(fake.clone(), fake.clone(), settings(Order::PARTITIONED_EDF, 2));
    (10..20).for_each(|pid| fake.process(pid, 0, 1));
    let mut ask_for = |pid, budget| granted(book.answer(ROOT, ask(pid, budget, 1000)));
    let [grows, _, beside] =
        [(10, 400), (11, 400), (12, 500)].map(|(pid, budget)| ask_for(pid, budget));
    let at = |id: u32| fake.0.borrow().servers[&id].0.place.cpus;
    assert_eq!(at(grows), at(beside));
    let grown = Request::Resize { id: grows, budget_ns: 500 * MS, period_ns: 1000 * MS };
    // All of its budget, and half of its time is over.
    fake.has(grows, 400, 500);
    assert!(failed(book.answer(ROOT, grown.clone())).contains("behind"));
    assert_eq!(at(grows), at(beside));
    fake.has(grows, 0, 900);
    granted(book.answer(ROOT, grown));
    assert_ne!(at(grows), at(beside));
    // Its budget on the old CPU was used up: another there would be the second in that period.
    let wait = book.answer_or_wait(ROOT, ask(13, 300, 1000), Duration::ZERO).unwrap_err();
    assert!(wait > Duration::from_millis(800), "{wait:?}");
}
