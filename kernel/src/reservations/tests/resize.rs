// SPDX-License-Identifier: GPL-2.0-only
//! Budgets and periods that change while they are in force; and programs that had started others before.

use super::*;

fn resize(id: u32, budget_ms: u64, period_ms: u64) -> Request {
    Request::Resize { id, budget_ns: budget_ms * MS, period_ns: period_ms * MS }
}

/// One CPU of which 95 % can be reserved, strictly, and some processes of root and of user 1000.
fn one_cpu() -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(1);
    let settings = Settings::whole(Order::PARTITIONED_EDF, Server::CbsHard, 1, 1);
    let book = Book::new(fake.clone(), fake.clone(), settings);
    (10..20).for_each(|pid| fake.process(pid, 0, 1));
    (20..30).for_each(|pid| fake.process(pid, 1000, 1));
    (book, fake)
}

#[test]
fn a_budget_grows_as_far_as_there_is_room_and_a_refusal_says_how_far_that_is() {
    let (mut book, fake) = one_cpu();
    let mine = granted(book.answer(ROOT, ask(10, 10, 40)));
    granted(book.answer(ROOT, ask(11, 20, 40)));
    granted(book.answer(ROOT, resize(mine, 18, 40)));
    assert_eq!(fake.0.borrow().servers[&mine].0.budget, 18 * MS);
    // 95 % less a half are 18 of 40 ms.
    let nearest = refused(book.answer(ROOT, resize(mine, 19, 40))).nearest;
    assert_eq!(
        (nearest.budget_ns, fake.0.borrow().servers[&mine].0.budget),
        (Some(18 * MS), 18 * MS)
    );
    refused(book.answer(ROOT, ask(12, 1, 40)));
}

#[test]
fn what_is_given_up_is_others_only_after_the_period_in_which_it_still_holds() {
    let (mut book, fake) = one_cpu();
    let mine = granted(book.answer(ROOT, ask(10, 38, 40)));
    granted(book.answer(ROOT, resize(mine, 9, 20)));
    let server = &fake.0.borrow().servers[&mine].0.clone();
    assert_eq!((server.budget, server.period), (9 * MS, 20 * MS));
    book.tick();
    refused(book.answer(ROOT, ask(11, 20, 40)));
    std::thread::sleep(Duration::from_millis(41));
    book.tick();
    granted(book.answer(ROOT, ask(11, 20, 40)));
    let Response::Work(work) = book.answer(ROOT, Request::Work { id: mine }) else { panic!() };
    assert_eq!((work.record.budget_ns, work.record.deadline_ns), (9 * MS, 20 * MS));
}

#[test]
fn a_program_that_ends_before_what_it_gave_up_is_free_leaves_nothing_booked() {
    let (mut book, fake) = one_cpu();
    let mine = granted(book.answer(USER, ask(20, 18, 40)));
    granted(book.answer(USER, resize(mine, 17, 40)));
    fake.kill(20);
    book.tick();
    std::thread::sleep(Duration::from_millis(41));
    book.tick();
    granted(book.answer(ROOT, ask(11, 38, 40)));
}

#[test]
fn a_longer_period_holds_to_its_end_whatever_is_asked_for_meanwhile() {
    let (mut book, _) = one_cpu();
    let mine = granted(book.answer(ROOT, ask(10, 1000, 2000)));
    granted(book.answer(ROOT, resize(mine, 21, 40)));
    granted(book.answer(ROOT, resize(mine, 1, 40)));
    std::thread::sleep(Duration::from_millis(41));
    book.tick();
    // It may still take its second.
    refused(book.answer(ROOT, ask(11, 20, 40)));
}

#[test]
fn what_descends_from_a_program_with_a_reservation_stays_in_that() {
    let (mut book, fake) = one_cpu();
    fake.0.borrow_mut().parents.extend([(21, 20), (22, 21), (23, 20)]);
    let Request::Reserve(inner) = ask(21, 5, 40) else { unreachable!() };
    let inner =
        granted(book.answer(USER, Request::Reserve(Reserve { descendants: true, ..inner })));
    let Request::Reserve(outer) = ask(20, 5, 40) else { unreachable!() };
    let outer =
        granted(book.answer(USER, Request::Reserve(Reserve { descendants: true, ..outer })));
    assert_eq!((fake.tids(inner), fake.tids(outer)), (vec![21, 22], vec![20, 23]));
}

#[test]
fn what_a_program_needed_of_each_period_is_for_its_user_and_root_alone() {
    let (mut book, _) = one_cpu();
    let mine = granted(book.answer(USER, ask(20, 10, 40)));
    assert!(failed(book.answer(OTHER, Request::Work { id: mine })).contains("by another user"));
    assert!(matches!(book.answer(USER, Request::Work { id: mine }), Response::Work(_)));
}

#[test]
fn only_who_made_a_reservation_or_root_changes_it_and_within_the_user_s_share() {
    let (mut book, _) = one_cpu();
    let mine = granted(book.answer(USER, ask(20, 10, 40)));
    assert!(failed(book.answer(OTHER, resize(mine, 1, 40))).contains("by another user"));
    assert!(failed(book.answer(USER, resize(77, 1, 40))).contains("no reservation 77"));
    assert!(failed(book.answer(USER, resize(mine, 41, 40))).contains("above the period"));
    granted(book.answer(USER, resize(mine, 20, 40)));
    let refusal = refused(book.answer(USER, resize(mine, 21, 40)));
    assert!(refusal.reason.contains("--max-share"), "{refusal}");
    granted(book.answer(ROOT, resize(mine, 21, 40)));
}

#[test]
fn what_a_user_s_limit_leaves_is_offered_whole_though_the_reservation_itself_is_in_the_way() {
    let (mut book, _) = one_cpu();
    granted(book.answer(ROOT, ask(10, 10, 40)));
    let mine = granted(book.answer(USER, ask(20, 14, 40)));
    // Half of the CPU is the user's. 38 - 10 - 14 = 14 ms are free beside it.
    let nearest = refused(book.answer(USER, resize(mine, 30, 40))).nearest;
    assert_eq!(nearest.budget_ns, Some(20 * MS));
    granted(book.answer(USER, resize(mine, 20, 40)));
}

#[test]
fn processes_started_before_join_if_asked_for_and_only_those_of_the_same_user() {
    let (mut book, fake) = one_cpu();
    fake.0.borrow_mut().parents.extend([(21, 20), (22, 20), (10, 20)]);
    let Request::Reserve(plain) = ask(20, 5, 40) else { unreachable!() };
    let id = granted(book.answer(USER, Request::Reserve(plain.clone())));
    assert_eq!(fake.tids(id), [20]);
    assert!(matches!(
        book.answer(USER, Request::Release { id, own: false }),
        Response::Released(_)
    ));
    let all = Reserve { descendants: true, ..plain };
    let id = granted(book.answer(USER, Request::Reserve(all)));
    assert_eq!(fake.tids(id), [20, 21, 22]);
}
