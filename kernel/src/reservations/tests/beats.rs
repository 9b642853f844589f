// SPDX-License-Identifier: GPL-2.0-only
//! Who is told of whose rhythms.

use onbeat_model::beat::Wake;

use super::*;

/// A thread that has woken every `period` ms, the last time at 1 s, and used 2 ms each time.
fn waking(tid: i32, period: u64) -> Waking {
    let wake = |i: u64| Wake { at: 1000 * MS - (15 - i) * period * MS, used: 2 * i * MS };
    let series = vec![(0..16).map(wake).collect()];
    Waking { tid, identity: 7, slot: 0, reservation: None, series }
}

fn world(fake: &Fake) {
    fake.process(10, 1000, 2);
    fake.process(20, 1001, 1);
    fake.process(30, 0, 1);
    let mut world = fake.0.borrow_mut();
    // Process 40 has changed its user, in part.
    let mixed = Facts { uids: [0, 1000].into(), cpus: 1, ..Facts::default() };
    world.processes.insert(40, (mixed, vec![40]));
    let threads = [(30, 10), (11, 41), (10, 20), (20, 8), (40, 16), (50, 10)];
    let threads = threads.map(|(tid, period)| waking(tid, period)).into();
    world.wakes = Wakes { now: 1003 * MS, threads, left_out: 3 };
}

/// Thread and period, ms, of all that one is told of.
fn told(book: &mut Book<Fake, Fake>, peer: Peer) -> Vec<(u32, u64)> {
    match book.answer(peer, Request::Beats) {
        Response::Beats { threads, left_out: 3 } => {
            threads.iter().map(|t| (t.thread, t.rhythm.period_ns / MS)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_see_rhythms_of_threads_that_act_as_them_alone_and_root_sees_all() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    world(&fake);
    assert_eq!(told(&mut book, USER), [(10, 20), (11, 41)]);
    assert_eq!(told(&mut book, OTHER), [(20, 8)]);
    // Thread 50 has ended.
    assert_eq!(told(&mut book, ROOT), [(10, 20), (11, 41), (20, 8), (30, 10), (40, 16)]);
    let Response::Beats { threads, .. } = book.answer(OTHER, Request::Beats) else { panic!() };
    let beat = &threads[0];
    assert_eq!((beat.pid, beat.uid, beat.name.as_str()), (20, 1001, "thread 20"));
    assert_eq!((beat.program.as_str(), beat.rhythm.used_ns), ("program 20", 2 * MS));
    assert!((0.9..1.0).contains(&beat.rhythm.confidence), "{beat:?}");
}

#[test]
fn who_asks_again_at_once_has_the_answer_of_before_and_takes_no_time() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    world(&fake);
    let begin = Instant::now();
    let first = told(&mut book, ROOT);
    assert_eq!(told(&mut book, ROOT), first);
    let looks = fake.0.borrow().looks;
    assert!(looks == 1 || begin.elapsed() > Duration::from_millis(200), "{looks}");
}

#[test]
fn a_thread_whose_number_may_be_anothers_by_now_is_left_out() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 4);
    world(&fake);
    fake.0.borrow_mut().foreign.insert(11);
    assert_eq!(told(&mut book, USER), [(10, 20)]);
}
