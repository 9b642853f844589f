// SPDX-License-Identifier: GPL-2.0-only
//! Threads of one reservation: each gets its turns, whoever else runs.

use onbeat_core::ffi;
use onbeat_sim::{Core, NOBODY, Reservation};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

fn reservation(period: u64, budget: u64, kind: u32, order: u32) -> Reservation {
    Reservation {
        budget,
        period,
        deadline: period,
        cpus: 1,
        domain: 0,
        kind,
        order,
        marks: false,
        split: None,
    }
}

/// One CPU on which all but the last task want to run for ever; that one runs for `short` of every
/// `period`. Returns what each has had of the CPU by `end`.
fn service(mut core: Core, tasks: usize, short: u64, period: u64, end: u64) -> Vec<u64> {
    let mut had = vec![0; tasks];
    let (mut now, mut runs, mut wakes, mut left) = (0, NOBODY, 0, 0);
    let last = tasks - 1;
    (0..last).for_each(|i| core.ready(i, 0));
    while now < end {
        if wakes <= now {
            (wakes, left) = (wakes + period, short);
            core.ready(last, now);
        }
        if core.alarm_at() <= now {
            core.alarm(now);
        }
        if core.timer(0) <= now {
            core.tick(0, now);
        }
        if core.take_kick().is_some() || runs == NOBODY {
            let next = core.pick(0, runs, now);
            if next != runs {
                if runs != NOBODY {
                    core.stop(0, ffi::OB_STOP_PREEMPTED, now);
                    core.ready(runs, now);
                }
                if next != NOBODY {
                    core.run(0, next, now);
                }
                runs = next;
            }
        }
        // To the next thing that can happen, in steps that no turn can hide in.
        let mut then = wakes.min(core.alarm_at().max(now + 1)).min(core.timer(0).max(now + 1));
        if runs == last {
            then = then.min(now + left);
        }
        if runs != NOBODY {
            had[runs] += then - now;
        }
        if runs == last {
            left -= then - now;
        }
        now = then;
        if runs == last && left == 0 {
            core.stop(0, ffi::OB_STOP_SLEPT, now);
            core.sleep(last, now);
            runs = NOBODY;
        }
    }
    had
}

#[test]
fn siblings_share_evenly_though_each_is_interrupted_before_its_turn_is_over() {
    for kind in 0..onbeat_core::server_policies().len() as u32 {
        let mut core = Core::new(1, 1, 0, 0, 4, 0);
        (0..4).for_each(|i| core.init_task(i, 1, 100));
        core.reserve(0, &reservation(100 * MS, 80 * MS, kind, ffi::OB_ORDER_RM));
        core.join(1, 0);
        core.join(2, 0);
        // Turns are 4 ms; this one comes every 2 ms.
        core.reserve(3, &reservation(2 * MS, 200 * US, kind, ffi::OB_ORDER_RM));
        let had = service(core, 4, 100 * US, 2 * MS, 1000 * MS);
        let most = had[..3].iter().max().unwrap();
        let least = had[..3].iter().min().unwrap();
        assert!(most - least <= 8 * MS, "kind {kind}: {had:?}");
        assert!(*least > 200 * MS, "kind {kind}: {had:?}");
    }
}

#[test]
fn every_sibling_gets_a_turn_when_their_reservation_has_lost_its_patience() {
    // Kind 0 has no server: the first reservation never ends, and is before the other for ever.
    let mut core = Core::new(1, 1, 0, 0, 7, 0);
    (0..7).for_each(|i| core.init_task(i, 1, 100));
    core.reserve(0, &reservation(10 * MS, MS, 0, ffi::OB_ORDER_RM));
    core.reserve(1, &reservation(100 * MS, MS, 0, ffi::OB_ORDER_RM));
    (2..6).for_each(|i| core.join(i, 1));
    // The last one sleeps but for a moment each second.
    core.reserve(6, &reservation(1000 * MS, MS, 0, ffi::OB_ORDER_RM));
    let had = service(core, 7, 10 * US, 1000 * MS, 5_000 * MS);
    assert!(had[1..6].iter().all(|had| *had >= 4 * MS), "{had:?}");
    assert!(had[0] > 4_800 * MS, "{had:?}");
}
