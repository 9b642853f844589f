// SPDX-License-Identifier: GPL-2.0-only
//! What a look at the status costs.

use super::*;

#[test]
fn who_asks_for_the_status_again_and_again_does_not_have_the_machine_looked_at_each_time() {
    let (book, fake) = book(Order::GLOBAL_EDF, 1);
    let idle = || match book.status() {
        Response::Status { per_cpu, .. } => per_cpu[0].idle_ns,
        other => panic!("{other:?}"),
    };
    let begin = Instant::now();
    (0..1000).for_each(|_| {
        idle();
    });
    let most = 1 + begin.elapsed().as_nanos() / IDLE_FRESH.as_nanos();
    assert!(u128::from(fake.0.borrow().idled) <= most, "{} looks", fake.0.borrow().idled);
    std::thread::sleep(IDLE_FRESH);
    assert_eq!(idle(), Some(fake.0.borrow().idled * MS), "what is told is not old");
    assert!(fake.0.borrow().idled >= 2);
}
