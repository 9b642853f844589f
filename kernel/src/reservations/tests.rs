// SPDX-License-Identifier: GPL-2.0-only
//! The book against a scheduler and processes that exist only here.

use std::collections::BTreeSet;

use onbeat_model::policy::{Order, Server};
use onbeat_model::units::{Fraction, MS};

use fake::{Fake, Turn};

use super::*;
use crate::arena::{Wakes, Waking};

mod accounts;
mod affinity;
mod beats;
mod books;
mod ends;
mod fake;
mod hostile;
mod leaving;
mod parts;
mod ranks;
mod resize;
mod status;
mod swap;
mod threads;

fn settings(order: Order, cpus: u32) -> Settings {
    Settings::whole(order, Server::Fcbs, cpus, 2)
}

fn book(order: Order, cpus: u32) -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(cpus);
    (Book::new(fake.clone(), fake.clone(), settings(order, cpus)), fake)
}

/// A group in no other.
fn a_group(name: &str, budget_ms: u64, period_ms: u64) -> protocol::Group {
    protocol::Group {
        name: name.into(),
        budget_ns: Some(budget_ms * MS),
        period_ns: Some(period_ms * MS),
        ..Default::default()
    }
}

fn ask(pid: u32, budget_ms: u64, period_ms: u64) -> Request {
    Request::Reserve(Reserve {
        pid,
        thread: None,
        name: "work".into(),
        budget_ns: budget_ms * MS,
        period_ns: period_ms * MS,
        ..Default::default()
    })
}

const ROOT: Peer = Peer { uid: 0, connection: 1, share: None };
const USER: Peer = Peer { uid: 1000, connection: 2, share: None };
const OTHER: Peer = Peer { uid: 1001, connection: 3, share: None };

fn words(book: &mut Book<Fake, Fake>) -> String {
    book.notices().into_iter().map(|notice| notice.text + "\n").collect()
}

fn granted(answer: Response) -> u32 {
    match answer {
        Response::Granted { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: Response) -> Refusal {
    match answer {
        Response::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn failed(answer: Response) -> String {
    match answer {
        Response::Error { message, remedy } => format!("{message}; {remedy}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_would_fit_is_told_in_round_numbers_on_the_side_that_fits() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 1);
    (10..13).for_each(|pid| fake.process(pid, 0, 1));
    granted(book.answer(ROOT, ask(10, 50, 100)));
    // 45 % is left: 18.45 ms of 41 ms, exactly; 25 ms need 55.5… ms.
    let nearest = refused(book.answer(ROOT, ask(11, 25, 41))).nearest;
    assert_eq!(
        nearest,
        protocol::Nearest { budget_ns: Some(18_450_000), period_ns: Some(55_600_000) }
    );
    // Of 13.37 ms it is 6.0165 ms.
    let Request::Reserve(odd) = ask(11, 10, 20) else { unreachable!() };
    let odd = Reserve { period_ns: 13_370_000, ..odd };
    let nearest = refused(book.answer(ROOT, Request::Reserve(odd.clone()))).nearest;
    assert_eq!(nearest.budget_ns, Some(6_010_000));
    let fits = Reserve { budget_ns: 6_010_000, ..odd };
    granted(book.answer(ROOT, Request::Reserve(fits)));
}

#[test]
fn a_reservation_covers_all_threads_until_it_is_given_back() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 5);
    let id = granted(book.answer(USER, ask(10, 25, 41)));
    assert_eq!(fake.tids(id), [10, 11, 12, 13, 14]);
    let Response::Released(got) = book.answer(USER, Request::Release { id, own: false }) else {
        panic!()
    };
    assert_eq!((got.jobs, got.threads, got.uid), (7, 5, 1000));
    assert!(fake.0.borrow().servers.is_empty());
    assert!(
        failed(book.answer(USER, Request::Release { id, own: false })).contains("no reservation")
    );
}

#[test]
fn nobody_reserves_for_or_releases_what_belongs_to_another() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    fake.process(20, 0, 1);
    assert!(failed(book.answer(OTHER, ask(10, 1, 10))).contains("does not belong to user 1001"));
    assert!(failed(book.answer(USER, ask(20, 1, 10))).contains("does not belong"));
    let id = granted(book.answer(USER, ask(10, 1, 10)));
    assert!(
        failed(book.answer(OTHER, Request::Release { id, own: false })).contains("another user")
    );
    assert!(matches!(
        book.answer(ROOT, Request::Release { id, own: false }),
        Response::Released(_)
    ));
    // A program that acts as two users belongs to neither alone.
    fake.0.borrow_mut().processes.get_mut(&10).unwrap().0.uids.insert(0);
    assert!(failed(book.answer(USER, ask(10, 1, 10))).contains("does not belong"));
    granted(book.answer(ROOT, ask(10, 1, 10)));
}

#[test]
fn a_number_that_comes_to_mean_another_process_between_check_and_assignment_gets_nothing() {
    for (peer, what, word) in [
        (USER, Turn::Replaced(1001), "does not belong"),
        (USER, Turn::Replaced(1000), "has ended"),
        (ROOT, Turn::Replaced(1001), "has ended"),
        (USER, Turn::Becomes(0), "does not belong"),
    ] {
        for nth in 1..=2 {
            let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
            fake.process(10, 1000, 3);
            fake.0.borrow_mut().turn = Some((10, nth, what));
            let answer = failed(book.answer(peer, ask(10, 5, 10)));
            assert!(answer.contains(word), "{answer}");
            assert!(fake.0.borrow().servers.is_empty());
            let Response::Status { reserved, .. } = book.answer(ROOT, Request::Status) else {
                panic!()
            };
            assert_eq!(reserved, Fraction::new(0, 1));
        }
    }
    // A thread that ends meanwhile does not leave its number under the reservation.
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 3);
    fake.0.borrow_mut().turn = Some((10, 3, Turn::Loses(12)));
    let id = granted(book.answer(USER, ask(10, 5, 10)));
    assert_eq!(fake.tids(id), [10, 11]);
}

#[test]
fn kernel_threads_and_processes_that_do_not_exist_are_refused() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    assert!(failed(book.answer(ROOT, ask(99, 1, 10))).contains("no process 99"));
    fake.process(2, 0, 1);
    fake.0.borrow_mut().processes.get_mut(&2).unwrap().0.kernel = true;
    assert!(failed(book.answer(ROOT, ask(2, 1, 10))).contains("thread of the kernel"));
}

#[test]
fn an_ordinary_user_gets_half_of_the_machine_and_root_all() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    for pid in 1..9 {
        fake.process(pid * 10, 1000, 1);
    }
    for pid in 1..5 {
        granted(book.answer(USER, ask(pid * 10, 5, 10)));
    }
    let refusal = refused(book.answer(USER, ask(50, 1, 10)));
    assert!(refusal.reason.contains("2 CPUs in all"), "{}", refusal.reason);
    assert_eq!(refusal.free, Fraction::new(0, 1));
    assert_eq!(refusal.holders.len(), 4);
    granted(book.answer(ROOT, ask(50, 9, 10)));
    assert!(failed(book.answer(ROOT, ask(50, 1, 10))).contains("already has reservation"));
}

#[test]
fn six_reservations_of_61_per_cent_fit_four_cpus_when_two_are_split() {
    for (order, fit) in [(Order::PARTITIONED_EDF, 4), (Order::EDF_WM, 6), (Order::EDF_WMR, 6)] {
        let (mut book, fake) = book(order, 4);
        for pid in 1..=6 {
            fake.process(pid, 0, 1);
            let answer = book.answer(ROOT, ask(pid, 25, 41));
            assert_eq!(
                matches!(answer, Response::Granted { .. }),
                pid <= fit,
                "{order:?}: {answer:?}"
            );
        }
        let world = fake.0.borrow();
        let split = world.servers.values().filter(|(server, _)| server.place.split.is_some());
        assert_eq!(split.count(), if order.splits() { 2 } else { 0 });
    }
}

#[test]
fn a_refusal_names_values_that_are_then_granted() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 2);
    fake.process(10, 0, 1);
    fake.process(20, 0, 1);
    fake.process(30, 0, 1);
    granted(book.answer(ROOT, ask(10, 6, 10)));
    granted(book.answer(ROOT, ask(20, 5, 10)));
    let refusal = refused(book.answer(ROOT, ask(30, 5, 7)));
    let with = |budget_ns, period_ns| {
        let Request::Reserve(r) = ask(30, 5, 7) else { unreachable!() };
        Request::Reserve(Reserve { budget_ns, period_ns, ..r })
    };
    let (budget, period) = (refusal.nearest.budget_ns.unwrap(), refusal.nearest.period_ns.unwrap());
    let id = granted(book.answer(ROOT, with(budget, 7 * MS)));
    book.answer(ROOT, Request::Release { id, own: false });
    granted(book.answer(ROOT, with(5 * MS, period)));
}

#[test]
fn budgets_that_would_cost_more_to_enforce_than_they_are_worth_are_for_root() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    let Request::Reserve(r) = ask(10, 1, 10) else { unreachable!() };
    let tiny = Request::Reserve(Reserve { budget_ns: 49_999, ..r });
    assert!(failed(book.answer(USER, tiny.clone())).contains("ask for at least 50us"));
    granted(book.answer(ROOT, tiny));
}

#[test]
fn each_cpu_is_told_its_part_of_what_is_reserved_and_each_reservation_its_policy_and_cpus() {
    for (order, apart) in [(Order::GLOBAL_EDF, false), (Order::PARTITIONED_EDF, true)] {
        let (mut book, fake) = book(order, 2);
        for (pid, budget) in [(10, 8), (11, 4)] {
            fake.process(pid, 1000, 1);
            granted(book.answer(ROOT, ask(pid, budget, 10)));
        }
        // Everybody is told the same.
        let answer = book.answer(OTHER, Request::Status);
        let Response::Status { reservations, per_cpu, reserved_cpus, .. } = answer else {
            panic!()
        };
        let mut parts: Vec<f64> = per_cpu.iter().map(|cpu| cpu.reserved).collect();
        parts.sort_by(f64::total_cmp);
        let expected = if apart { [0.4, 0.8] } else { [0.6, 0.6] };
        assert!(parts.iter().zip(expected).all(|(is, want)| (is - want).abs() < 1e-9), "{parts:?}");
        assert_eq!((reserved_cpus.numerator, reserved_cpus.denominator), (6, 5));
        assert!(per_cpu.iter().all(|cpu| cpu.set == "default"), "{per_cpu:?}");
        assert!(reservations.iter().all(|r| r.policy == settings(order, 2).policy()));
        let mut cpus: Vec<u32> = reservations.iter().flat_map(|r| r.cpus.clone()).collect();
        cpus.sort_unstable();
        assert_eq!(cpus, if apart { vec![0, 1] } else { vec![0, 0, 1, 1] });
    }
}

#[test]
fn a_reservation_ends_with_its_program_and_who_asked_learns_what_it_got() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 2);
    let id = granted(book.answer(USER, ask(10, 5, 10)));
    // A child that lives on keeps it.
    fake.0.borrow_mut().servers.get_mut(&id).unwrap().1.insert(77);
    fake.kill(10);
    book.tick();
    let Response::Status { reservations, free, .. } = book.answer(ROOT, Request::Status) else {
        panic!()
    };
    assert_eq!((reservations.len(), reservations[0].threads), (1, 1));
    fake.0.borrow_mut().servers.get_mut(&id).unwrap().1.clear();
    book.tick();
    let Response::Status { reservations, free: more, .. } = book.answer(ROOT, Request::Status)
    else {
        panic!()
    };
    assert!(reservations.is_empty() && more > free);
    let Response::Released(got) = book.answer(USER, Request::Release { id, own: false }) else {
        panic!()
    };
    assert_eq!(got.jobs, 7);
    assert!(fake.0.borrow().servers.is_empty());
}

#[test]
fn the_place_of_an_ended_reservation_is_free_once_its_connection_is_closed() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 2);
    granted(book.answer(USER, ask(10, 5, 10)));
    assert!(book.serves(USER.connection) && !book.serves(ROOT.connection));
    fake.kill(10);
    book.tick();
    assert_eq!(fake.0.borrow().servers.len(), 1);
    assert!(book.serves(USER.connection));
    book.disconnected(USER.connection);
    assert!(!book.serves(USER.connection));
    book.tick();
    assert!(fake.0.borrow().servers.is_empty());
}

#[test]
fn reservations_that_are_over_count_against_their_user_until_the_connection_is_closed() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.0.borrow_mut().places = 100;
    for pid in 100..164 {
        fake.process(pid, 1000, 1);
        granted(book.answer(USER, ask(pid, 1, 1000)));
        fake.kill(pid);
    }
    book.tick();
    fake.process(10, 1000, 1);
    let refusal = refused(book.answer(USER, ask(10, 1, 1000)));
    assert!(refusal.reason.contains("64 of them have ended"), "{}", refusal.reason);
    book.disconnected(USER.connection);
    book.tick();
    granted(book.answer(USER, ask(10, 1, 1000)));
}

#[test]
fn a_program_of_real_time_threads_only_gets_no_reservation() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 2);
    fake.0.borrow_mut().foreign.extend([10, 11]);
    assert!(failed(book.answer(USER, ask(10, 5, 10))).contains("no thread of process 10"));
    assert!(fake.0.borrow().servers.is_empty());
    fake.0.borrow_mut().foreign.remove(&10);
    granted(book.answer(USER, ask(10, 5, 10)));
    assert!(words(&mut book).contains("does not cover 1 of its threads"));
}

#[test]
fn cpus_are_those_asked_for_that_the_process_and_the_service_may_use() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 0, 1);
    fake.0.borrow_mut().processes.get_mut(&10).unwrap().0.cpus = 0b0110;
    let Request::Reserve(r) = ask(10, 5, 10) else { unreachable!() };
    let on = |cpus: &[u32]| Request::Reserve(Reserve { cpus: Some(cpus.into()), ..r.clone() });
    assert!(failed(book.answer(ROOT, on(&[7]))).contains("there is no CPU 7; the CPUs are 0-3"));
    assert!(failed(book.answer(ROOT, on(&[0, 3]))).contains("may run on 1-2"));
    let Response::Granted { cpus, id, .. } = book.answer(ROOT, on(&[0, 1])) else { panic!() };
    assert_eq!(cpus, [1]);
    assert_eq!(fake.0.borrow().servers[&id].0.place.cpus, 0b0010);
}

#[test]
fn when_a_cpu_goes_the_younger_loses_its_guarantee_and_gets_it_back_with_the_cpu() {
    let (mut book, fake) = book(Order::PARTITIONED_EDF, 2);
    fake.process(10, 0, 1);
    fake.process(20, 0, 1);
    let old = granted(book.answer(ROOT, ask(10, 6, 10)));
    let young = granted(book.answer(ROOT, ask(20, 5, 10)));
    let domain = |id| fake.0.borrow().servers[&id].0.place.domain;
    assert_ne!(domain(old), domain(young));
    book.notices();
    fake.0.borrow_mut().online = 1 << domain(young);
    book.tick();
    // Both run where there is a CPU; the younger was there first, but the older was promised first.
    assert_eq!(domain(old), domain(young));
    let notices = words(&mut book);
    assert!(notices.contains(&format!("reservation {young} (work, 5ms every 10ms) is no longer")));
    assert!(!notices.contains(&format!("reservation {old} ")), "{notices}");
    fake.0.borrow_mut().online = 0b11;
    book.tick();
    assert_ne!(domain(old), domain(young));
    assert!(words(&mut book).contains("again guaranteed"));
}

#[test]
fn what_each_cpu_must_give_to_reservations_covers_all_and_the_greatest() {
    let share = |order, loads: &[(u64, u64)]| {
        let (mut book, fake) = book(order, 2);
        for (pid, (budget, period)) in (10..).zip(loads) {
            fake.process(pid, 0, 1);
            granted(book.answer(ROOT, ask(pid, *budget, *period)));
        }
        let needs = book.needs();
        assert!(
            needs.iter().all(|need| need.within == loads.iter().map(|l| l.1 * MS).min().unwrap())
        );
        needs.iter().map(|need| need.share.div_ceil(1_000_000)).collect::<Vec<_>>()
    };
    // In thousandths; 50 of each are best effort's.
    assert_eq!(share(Order::GLOBAL_EDF, &[(10, 40)]), [300, 300]);
    assert_eq!(share(Order::GLOBAL_EDF, &[(10, 40); 4]), [550, 550]);
    assert_eq!(share(Order::PARTITIONED_EDF, &[(10, 40)]), [300]);
    assert_eq!(share(Order::PARTITIONED_EDF, &[(10, 40), (20, 40)]), [300, 550]);
    assert!(book(Order::GLOBAL_EDF, 2).0.needs().is_empty());
}

#[test]
fn what_deadline_tasks_hold_is_not_granted() {
    let fake = Fake::new(2);
    fake.0.borrow_mut().above.deadline = 500_000_000;
    fake.process(10, 0, 1);
    let mut book = Book::new(fake.clone(), fake.clone(), settings(Order::GLOBAL_EDF, 2));
    let refusal = refused(book.answer(ROOT, ask(10, 9, 10)));
    assert_eq!(refusal.free, Fraction::new(7, 10));
    assert!(refusal.holders.iter().any(|h| h.name == "SCHED_DEADLINE tasks"));
}

#[test]
fn programs_with_real_time_threads_are_named() {
    let fake = Fake::new(2);
    fake.0.borrow_mut().above.realtime.insert("pipewire".into());
    let mut book = Book::new(fake.clone(), fake.clone(), settings(Order::GLOBAL_EDF, 2));
    assert!(words(&mut book).contains("pipewire"));
}

#[test]
fn nobody_gets_a_reservation_that_keeps_its_program_waiting_until_the_kernel_ends_the_scheduler() {
    let (seconds, long) = (1000, ask(10, 1000, 60_000));
    let hard = Settings { server: Server::CbsHard, ..settings(Order::GLOBAL_EDF, 4) };
    for policy in [hard, settings(Order::EDF_WMR, 4)] {
        let fake = Fake::new(4);
        fake.process(10, 1000, 1);
        let mut book = Book::new(fake.clone(), fake.clone(), policy);
        let why = failed(book.answer(USER, long.clone()));
        assert!(why.contains("59s") && why.contains("8s"), "{why}");
        granted(book.answer(USER, ask(10, seconds, 9 * seconds)));
    }
    // Where a new budget comes at once there is no such limit.
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    fake.process(10, 1000, 1);
    granted(book.answer(USER, long));
}
