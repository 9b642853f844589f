// SPDX-License-Identifier: GPL-2.0-only
//! Best effort that begins and stops without the lock counts for its CPU's share as under it.

use onbeat_core::ffi;

const MS: u64 = 1_000_000;

/// A CPU whose reservation, of 8 ms in 10, has used its budget up, and a thread of best effort, which got the CPU next
/// at 8 ms; it `sleeps` at 9 ms, or goes on. If `alone` it begins and stops without the lock. The CPU's debt, and when
/// work was last taken from it.
fn played(alone: bool, sleeps: bool) -> (i64, u64) {
    let (mut ob, mut servers) = (Box::<ffi::ob>::default(), vec![ffi::ob_server::default()]);
    let mut tasks = vec![ffi::ob_task::default(); 2];
    let (ob, server) = (&raw mut *ob, &raw mut servers[0]);
    let (member, other) = (&raw mut tasks[0], &raw mut tasks[1]);
    let kind = onbeat_core::server_policies().iter().position(|p| *p == "cbs-hard");
    let mut terms = ffi::ob_terms {
        budget: 8 * MS,
        period: 10 * MS,
        deadline: 10 * MS,
        cpus: 1,
        account: ffi::OB_NO_ACCOUNT,
        kind: kind.expect("it is registered") as u32,
        order: ffi::OB_ORDER_EDF,
        ..Default::default()
    };
    // SAFETY: all of it is this function's own, zeroed, and stays where it is.
    unsafe {
        assert_eq!(ffi::onbeat_init(ob, 1, 1, 50, ffi::OB_SHARE_QUANTUM.into()), 0);
        for (tid, t) in [member, other].into_iter().enumerate() {
            ffi::onbeat_task_make(t, tid as u32, 1, u64::from(ffi::OB_WEIGHT));
        }
        ffi::onbeat_make(ob, server, &raw mut terms, std::ptr::null_mut(), 0);
        ffi::onbeat_attach(ob, member, server, 0);
        ffi::onbeat_ready(ob, member, 0);
        assert_eq!(ffi::onbeat_pick(ob, 0, std::ptr::null_mut(), 0), member);
        ffi::onbeat_run(ob, 0, member, 0);
        ffi::onbeat_ready(ob, other, MS);
        let begin = |now| {
            if alone {
                (*other).running = 1;
                ffi::onbeat_begin_alone(ob, 0, other, now);
            } else {
                ffi::onbeat_run(ob, 0, other, now);
            }
        };
        ffi::onbeat_tick(ob, 0, 8 * MS);
        assert_eq!(ffi::onbeat_pick(ob, 0, member, 8 * MS), other);
        ffi::onbeat_stop(ob, 0, ffi::OB_STOP_PREEMPTED.into(), 8 * MS);
        ffi::onbeat_ready(ob, member, 8 * MS);
        begin(8 * MS);
        if sleeps {
            if alone {
                ffi::onbeat_stop_alone(ob, 0, other, 0, 9 * MS);
            } else {
                ffi::onbeat_stop(ob, 0, ffi::OB_STOP_SLEPT.into(), 9 * MS);
            }
            ffi::onbeat_sleep(ob, other, 9 * MS);
        }
        let next =
            ffi::onbeat_pick(ob, 0, if sleeps { std::ptr::null_mut() } else { other }, 9 * MS);
        assert_eq!(next, if sleeps { std::ptr::null_mut() } else { other });
        ((*ob).cpu[0].debt, (*ob).cpu[0].wanted)
    }
}

#[test]
fn best_effort_that_follows_a_reservation_pays_its_cpus_debt_without_the_lock_too() {
    // 8 ms owe 8/19 ms; 1 ms pays that and puts the rest by.
    let debt = 8 * MS as i64 * 50 / 950 - MS as i64;
    for alone in [false, true] {
        assert!((played(alone, false).0 - debt).abs() <= 1, "{alone}: {:?}", played(alone, false));
    }
}

#[test]
fn best_effort_that_sleeps_without_the_lock_is_known_to_have_been_there() {
    for alone in [false, true] {
        assert_eq!(played(alone, true).1, 9 * MS, "{alone}");
    }
}
