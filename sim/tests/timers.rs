// SPDX-License-Identifier: GPL-2.0-only
//! What shells are told of timers. One that is due when it is set fires at once, for ever: the
//! kernel then never gets from the interrupt to the switch that it was asked for.

use onbeat_core::ffi;
use onbeat_sim::{Core, NOBODY};

use crate::common::reservation;

const MS: u64 = 1_000_000;

/// One CPU with a hard reservation of 2 ms in 10 ms (task 0) and a best-effort task (1), which
/// waits while the reservation runs from 0 on.
fn running(share_permille: u32) -> Core {
    let kind = onbeat_core::server_policies().iter().position(|n| *n == "cbs-hard").unwrap();
    running_under(kind, 2 * MS, share_permille, 0)
}

/// The same with another budget under the server policy of that number, from `at` on.
fn running_under(kind: usize, budget: u64, share_permille: u32, at: u64) -> Core {
    let mut core = Core::new(1, 1, share_permille, MS, 2, 0);
    core.init_task(0, 1, onbeat_sim::NICE_0);
    core.init_task(1, 1, onbeat_sim::NICE_0);
    core.reserve(0, &reservation(budget, 10 * MS, kind as u32, ffi::OB_ORDER_EDF));
    core.ready(0, at);
    core.ready(1, at);
    assert_eq!(core.pick(0, NOBODY, at), 0);
    core.run(0, 0, at);
    core
}

#[test]
fn a_throttled_thread_that_still_runs_needs_no_timer() {
    let mut core = running(0);
    let now = core.timer(0);
    assert_eq!(now, 2 * MS);
    core.tick(0, now);
    assert_eq!(core.take_kick(), Some(0));
    assert!(core.timer(0) > now + MS, "the timer is due at {} at {now}", core.timer(0));
    // Whatever makes the kernel ask again before it has switched.
    core.tick(0, now + 1000);
    assert!(core.timer(0) > now + MS, "the timer is due at {} again", core.timer(0));
}

#[test]
fn a_share_that_is_paid_needs_no_timer() {
    // 500 of 1000: after 1 ms of the reservation a quantum of 1 ms is owed.
    let mut core = running(500);
    let now = core.timer(0);
    core.tick(0, now);
    assert_eq!(core.pick(0, 0, now), 1);
    core.stop(0, ffi::OB_STOP_PREEMPTED, now);
    core.ready(0, now);
    core.run(0, 1, now);
    let paid = core.timer(0);
    core.tick(0, paid);
    assert_eq!(core.take_kick(), Some(0));
    assert!(core.timer(0) > paid + MS, "the timer is due at {} at {paid}", core.timer(0));
}

#[test]
fn slack_is_reckoned_anew_later_than_it_was_however_great_the_share() {
    for (kind, name) in onbeat_core::server_policies().iter().enumerate() {
        for share in (0..=900).step_by(50) {
            // A small part of what the share leaves.
            let mut core = running_under(kind, (1000 - u64::from(share)) * 1000, share, MS);
            let mut looks = 0;
            while core.alarm_at() < 11 * MS {
                let now = core.alarm_at();
                assert!(now > MS, "{name} with {share}: at once");
                core.alarm(now);
                assert!(core.alarm_at() > now, "{name} with {share}: again at {now}");
                looks += 1;
            }
            assert!(looks < 1000, "{name} with {share}: {looks} looks");
        }
    }
}
