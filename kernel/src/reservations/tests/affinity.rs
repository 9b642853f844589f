// SPDX-License-Identifier: GPL-2.0-only
//! Reservations that may use some CPUs only, where others may use all.

use super::*;

fn on(pid: u32, budget_ms: u64, cpus: &[u32]) -> Request {
    let Request::Reserve(r) = ask(pid, budget_ms, 10) else { unreachable!() };
    Request::Reserve(Reserve { cpus: Some(cpus.to_vec()), ..r })
}

impl Fake {
    /// The CPUs on which the scheduler serves a reservation, and whether that is one apart.
    fn at(&self, id: u32) -> (u64, bool) {
        let place = &self.0.borrow().servers[&id].0.place;
        (place.cpus, place.apart)
    }
}

#[test]
fn who_may_go_everywhere_makes_room_for_who_may_not_and_comes_back() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 3);
    (10..20).for_each(|pid| fake.process(pid, 0, 1));
    let wide: Vec<u32> = (10..12).map(|pid| granted(book.answer(ROOT, ask(pid, 6, 10)))).collect();
    assert!(wide.iter().all(|id| fake.at(*id) == (0b111, false)));
    let narrow = granted(book.answer(ROOT, on(12, 9, &[1])));
    assert_eq!(fake.at(narrow), (0b010, true));
    assert!(wide.iter().all(|id| fake.at(*id) == (0b101, false)));
    // Not the third of 6 ms in 10 beside two on two CPUs, of which 9.5 are to be had.
    let refusal = refused(book.answer(ROOT, ask(13, 8, 10)));
    assert_eq!(refusal.nearest.budget_ns, Some(7 * MS));
    granted(book.answer(ROOT, ask(13, 7, 10)));
    assert!(matches!(
        book.answer(ROOT, Request::Release { id: narrow, own: false }),
        Response::Released(_)
    ));
    assert!(wide.iter().all(|id| fake.at(*id) == (0b111, false)));
}

#[test]
fn who_may_use_all_cpus_that_are_left_needs_none_apart() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 3);
    (10..20).for_each(|pid| fake.process(pid, 0, 1));
    let wide = granted(book.answer(ROOT, ask(10, 6, 10)));
    let narrow = granted(book.answer(ROOT, on(11, 5, &[0, 1])));
    assert_eq!((fake.at(narrow), fake.at(wide)), ((0b001, true), (0b110, false)));
    // Without the third it may use all there are.
    fake.0.borrow_mut().online = 0b011;
    book.tick();
    assert!([narrow, wide].iter().all(|id| fake.at(*id) == (0b011, false)));
    fake.0.borrow_mut().online = 0b111;
    book.tick();
    assert_eq!((fake.at(narrow), fake.at(wide)), ((0b001, true), (0b110, false)));
    assert!(book.reservations().iter().all(|r| !r.unguaranteed));
}

#[test]
fn a_member_that_may_use_some_of_its_groups_cpus_only_is_refused() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 2);
    fake.process(10, 0, 1);
    granted(book.answer(ROOT, Request::Group(a_group("g", 9, 10))));
    let member = |cpus: &[u32]| {
        let Request::Reserve(r) = on(10, 4, cpus) else { unreachable!() };
        Request::Reserve(Reserve { group: Some("g".into()), ..r })
    };
    let words = failed(book.answer(ROOT, member(&[0])));
    assert!(words.contains("may not use CPU 1") && words.contains("--cpus"), "{words}");
    granted(book.answer(ROOT, member(&[0, 1])));
}

#[test]
fn threads_that_a_reservation_does_not_cover_for_their_affinity_are_told_of() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 2);
    fake.process(10, 0, 3);
    fake.0.borrow_mut().processes.get_mut(&10).unwrap().0.bound = [(0b11, 1), (0b01, 2)].into();
    let id = granted(book.answer(ROOT, ask(10, 4, 10)));
    let said = words(&mut book);
    assert!(said.contains("does not cover 2 of its threads"), "{said}");
    assert!(matches!(
        book.answer(ROOT, Request::Release { id, own: false }),
        Response::Released(_)
    ));
    granted(book.answer(ROOT, on(10, 4, &[0])));
    assert!(!words(&mut book).contains("does not cover"));
}
