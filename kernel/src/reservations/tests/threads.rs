// SPDX-License-Identifier: GPL-2.0-only
//! Reservations of single threads of a process.

use super::*;

/// As [`ask`], for thread `tid` only.
fn ask_for(tid: u32, pid: u32, budget_ms: u64, period_ms: u64) -> Request {
    let Request::Reserve(all) = ask(pid, budget_ms, period_ms) else { unreachable!() };
    Request::Reserve(Reserve { thread: Some(tid), ..all })
}

#[test]
fn threads_of_one_process_have_reservations_of_their_own() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 3);
    let first = granted(book.answer(USER, ask_for(11, 10, 2, 40)));
    let second = granted(book.answer(USER, ask_for(12, 10, 20, 40)));
    assert_eq!((fake.tids(first), fake.tids(second)), (vec![11], vec![12]));
    let Response::Status { reservations, .. } = book.answer(USER, Request::Status) else {
        panic!()
    };
    let threads: Vec<_> = reservations.iter().map(|r| (r.pid, r.thread)).collect();
    assert_eq!(threads, [(10, 11), (10, 12)]);
    assert!(words(&mut book).contains("for work (thread 11 of process 10, user 1000)"));
    let Response::Released(_) = book.answer(USER, Request::Release { id: first, own: false })
    else {
        panic!()
    };
    assert_eq!(fake.tids(second), [12]);
    fake.kill(10);
    book.tick();
    assert_eq!(book.live(), 0);
}

#[test]
fn a_thread_has_no_second_reservation_and_none_beside_one_of_its_whole_process() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 3);
    let id = granted(book.answer(USER, ask_for(11, 10, 2, 40)));
    let again = failed(book.answer(USER, ask_for(11, 10, 2, 40)));
    assert!(again.contains("thread 11 of process 10 already has reservation"), "{again}");
    let whole = failed(book.answer(USER, ask(10, 2, 40)));
    assert!(whole.contains("thread 11 of process 10 already has reservation"), "{whole}");
    book.answer(USER, Request::Release { id, own: false });
    granted(book.answer(USER, ask(10, 2, 40)));
    let beside = failed(book.answer(USER, ask_for(11, 10, 2, 40)));
    assert!(beside.contains("process 10 already has reservation"), "{beside}");
}

#[test]
fn nobody_reserves_for_a_thread_of_another_process_or_user() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 2);
    fake.process(20, 1001, 2);
    let foreign = failed(book.answer(USER, ask_for(21, 10, 2, 40)));
    assert!(foreign.contains("process 10 has no thread 21"), "{foreign}");
    assert!(failed(book.answer(USER, ask_for(21, 20, 2, 40))).contains("does not belong"));
    assert!(fake.0.borrow().servers.is_empty());
    // It becomes another user's, or ends, between check and assignment.
    for (what, word) in [
        (Turn::Becomes(0), "does not belong"),
        (Turn::Loses(11), "cannot be served"),
        (Turn::Replaced(1000), "has ended"),
    ] {
        fake.process(10, 1000, 2);
        fake.0.borrow_mut().turn = Some((10, 1, what));
        let answer = failed(book.answer(USER, ask_for(11, 10, 2, 40)));
        assert!(answer.contains(word), "{answer}");
        assert!(fake.0.borrow().servers.is_empty());
        fake.0.borrow_mut().dead.clear();
    }
}
