// SPDX-License-Identifier: GPL-2.0-only
//! Users and their accounts with the scheduler.

use super::super::accounts::USERS;
use onbeat_core::ffi::OB_SHARE_BITS;

use super::*;

fn limit(fake: &Fake, id: u32) -> (u32, u64) {
    let account = fake.0.borrow().servers[&id].0.account.expect("one in no group");
    (account.account, account.rate)
}

/// CPUs in the core's units.
const CPU: u64 = 1 << OB_SHARE_BITS;

#[test]
fn all_of_a_user_s_reservations_count_on_one_account_and_root_s_on_none_that_is_limited() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    (10..15).for_each(|pid| fake.process(pid, if pid == 12 { 1001 } else { 1000 }, 1));
    let one = granted(book.answer(USER, ask(10, 1, 10)));
    let two = granted(book.answer(USER, ask(11, 1, 10)));
    let others = granted(book.answer(OTHER, ask(12, 1, 10)));
    let roots = granted(book.answer(ROOT, ask(13, 1, 10)));
    assert_eq!(limit(&fake, one), (1, 2 * CPU));
    assert_eq!(limit(&fake, two), limit(&fake, one));
    assert_eq!(limit(&fake, others), (2, 2 * CPU));
    assert_eq!(limit(&fake, roots), (0, 0));
    // With two of the CPUs gone the share is one; root stays free.
    fake.0.borrow_mut().online = 3;
    book.tick();
    assert_eq!([one, two, others, roots].map(|id| limit(&fake, id).1), [CPU, CPU, CPU, 0]);
}

#[test]
fn a_user_with_a_limit_of_their_own_may_hold_and_take_that_much_and_others_what_all_may() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    (10..14).for_each(|pid| fake.process(pid, if pid == 13 { 1001 } else { 1000 }, 1));
    let more = Peer { share: Some(Fraction::new(3, 4)), ..USER };
    // Half of four CPUs is two: a load of 2.4 is more than that, and less than three quarters.
    let ids: Vec<u32> = (10..13).map(|pid| granted(book.answer(more, ask(pid, 8, 10)))).collect();
    assert!(ids.iter().all(|id| limit(&fake, *id) == (1, 3 * CPU)));
    let others = granted(book.answer(OTHER, ask(13, 1, 10)));
    assert_eq!(limit(&fake, others), (2, 2 * CPU));
    fake.0.borrow_mut().online = 3;
    book.tick();
    assert_eq!([ids[0], others].map(|id| limit(&fake, id).1), [CPU * 3 / 2, CPU]);
    // A process of the same user that is not in the group does not get more on top.
    fake.process(14, 1000, 1);
    let refusal = refused(book.answer(USER, ask(14, 1, 10)));
    assert!(refusal.reason.contains("may hold 1 CPU"), "{}", refusal.reason);
}

#[test]
fn who_gives_all_back_and_reserves_anew_has_the_same_account_with_its_debts() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    fake.process(12, 1001, 1);
    let id = granted(book.answer(USER, ask(10, 1, 10)));
    book.answer(USER, Request::Release { id, own: false });
    let others = granted(book.answer(OTHER, ask(12, 1, 10)));
    let id = granted(book.answer(USER, ask(10, 1, 10)));
    assert_eq!((limit(&fake, id).0, limit(&fake, others).0), (1, 2));
}

#[test]
fn more_users_than_accounts_are_told_and_take_the_account_of_one_who_has_given_all_back() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.0.borrow_mut().places = USERS + 2;
    let user = |uid: u32| Peer { uid, connection: u64::from(uid), share: None };
    let last = 1000 + USERS as u32;
    (1000..=last).for_each(|uid| fake.process(uid, uid, 1));
    let ids: Vec<u32> =
        (1000..last).map(|uid| granted(book.answer(user(uid), ask(uid, 1, 1000)))).collect();
    let words = failed(book.answer(user(last), ask(last, 1, 1000)));
    assert!(words.contains("63 users hold reservations"), "{words}");
    book.answer(user(1003), Request::Release { id: ids[3], own: false });
    let id = granted(book.answer(user(last), ask(last, 1, 1000)));
    assert_eq!(limit(&fake, id).0, 4);
}
