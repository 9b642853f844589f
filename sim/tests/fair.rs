// SPDX-License-Identifier: GPL-2.0-only
//! Best effort among itself on one CPU, nothing reserved: who sleeps much does not wait for who never does, nobody has
//! more than its part, and parts are as weights; in every order unless it says otherwise.

use crate::common::shell::{Part, endless, play, play_disturbed};
use onbeat_core::ffi;
use onbeat_model::others::Others;
use onbeat_sim::{Core, NICE_0, NOBODY};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn core(order: &Others, weights: &[u64]) -> Core {
    let mut core = Core::new(1, 1, 50, MS, weights.len(), 0);
    core.among_others(order.number());
    weights.iter().enumerate().for_each(|(i, weight)| core.init_task(i, 1, *weight));
    core
}

/// How much `had` differs from `part`, of `part`.
fn off(had: u64, part: f64) -> f64 {
    (had as f64 - part).abs() / part
}

/// Its slice is 4 ms; two of half a millisecond are what another may be behind it.
#[test]
fn who_sleeps_much_has_the_cpu_within_a_millisecond_of_waking_beside_any_number_of_loops() {
    for order in Others::ALL {
        for loops in [1, 2, 4, 16] {
            // It asks for a sixth of a loop's part at most.
            let quick = Part { first: 200 * MS, work: 50 * US, period: 5 * MS };
            let parts: Vec<Part> = (0..loops).map(|_| endless(0)).chain([quick]).collect();
            let got = play(core(order, &vec![NICE_0; parts.len()]), &parts, 10 * SECOND);
            assert!(got[loops].waited <= MS, "{} ns beside {loops}", got[loops].waited);
        }
    }
}

#[test]
fn several_that_sleep_much_do_not_wait_for_loops_either() {
    for order in Others::ALL {
        let quick =
            |i: u64| Part { first: i * 700 * US, work: 50 * US, period: 5 * MS + i * 130 * US };
        let parts: Vec<Part> =
            [endless(0), endless(0)].into_iter().chain((0..10).map(quick)).collect();
        let got = play(core(order, &[NICE_0; 12]), &parts, 10 * SECOND);
        for quick in &got[2..] {
            // Each may wait for the nine others; and once, as `berate` does not know them yet, for a slice of each
            // loop.
            let unknown = if *order == Others::Berate { 8 * MS } else { 0 };
            assert!(quick.waited <= unknown + MS + 9 * 50 * US, "{order}: {} ns", quick.waited);
        }
    }
}

/// Twenty that are woken by threads want three times as much as there is; one of that kind, and one that comes by the
/// clock, use little.
#[test]
fn a_crowd_that_wakes_each_other_lets_who_uses_little_go_first_and_nobody_waits_for_long() {
    for order in Others::ALL {
        let crowd =
            |i: u64| Part { first: i * 70 * US, work: 300 * US, period: 2 * MS + i * 130 * US };
        let quick = |first| Part { first, work: 20 * US, period: 5 * MS };
        let parts: Vec<Part> =
            [quick(0), quick(MS), endless(0)].into_iter().chain((0..20).map(crowd)).collect();
        let mut core = core(order, &[NICE_0; 23]);
        [1].into_iter().chain(3..23).for_each(|i| core.told(i));
        let got = play(core, &parts, 10 * SECOND);
        // Under `best` all beat, and deadlines count, which for these are 5 ms away, and for those of the crowd nearer
        // while it is tried whether they beat faster than is known. Under `berate` whom a thread wakes
        // does not go before others that catch up, of which there are twenty.
        let [clock, told] = match order {
            Others::Fair => [2, 4],
            Others::Berate => [2, 32],
            Others::Best => [6, 6],
        };
        assert!(got[0].waited <= clock * MS, "{order}, by the clock: {} ns", got[0].waited);
        assert!(got[1].waited <= told * MS, "{order}, by a thread: {} ns", got[1].waited);
        for crowd in &got[3..] {
            assert!(crowd.waited <= 100 * MS, "of the crowd: {} ns", crowd.waited);
        }
    }
}

/// Turns are a quarter of a slice, as a round of all has to do with 5 s; each of the crowd wants next to nothing.
#[test]
fn in_a_crowd_of_thousands_who_sleeps_waits_no_longer_than_a_slice_of_each_loop() {
    for order in Others::ALL {
        let quick = |i: u64| Part { first: i % 10 * MS, work: 10 * US, period: SECOND };
        let parts: Vec<Part> = (0..4_900).map(quick).chain((0..100).map(endless)).collect();
        let got = play(core(order, &[NICE_0; 5_000]), &parts, 4 * SECOND);
        let longest = got[..4_900].iter().map(|g| g.waited).max().unwrap();
        // 400 ms, what the crowd wants, and by how much one may be behind another.
        assert!(longest <= 500 * MS, "{order}: {longest} ns");
    }
}

#[test]
fn who_sleeps_to_go_first_has_no_more_than_its_part() {
    // Under `best` who keeps a rhythm goes first, whatever it needs, and these do.
    for order in [Others::Fair, Others::Berate] {
        // Pauses as short as that buy no turn before others.
        for (work, pause) in [(2_000, 1), (2_000, 1_000), (300, 10), (300, 100), (3_999, 50)] {
            let sly = Part { first: 0, work: work * US, period: (work + pause) * US };
            let got = play(
                core(&order, &[NICE_0; 4]),
                &[endless(0), endless(0), endless(0), sly],
                10 * SECOND,
            );
            let part = 10.0 * SECOND as f64 / 4.0;
            assert!(
                got[3].had as f64 <= 1.02 * part,
                "{order}: {work} us and {pause} us of pause: {} ns",
                got[3].had
            );
            let least = got[..3].iter().map(|g| g.had).min().unwrap();
            assert!(
                least as f64 >= 0.98 * part,
                "{work} us and {pause} us of pause leave {least} ns"
            );
        }
    }
}

/// When who runs, of the first weight, is compared with one of the second that waits, ns after it began; u64::MAX: not
/// before its slice is over. Unless `told` that one comes by the clock, and uses little.
fn looks_after(weights: [u64; 2], told: bool) -> u64 {
    let mut core = core(&Others::Fair, &weights);
    core.told(0);
    core.ready(0, 0);
    assert_eq!(core.pick(0, NOBODY, 0), 0);
    if told {
        core.told(1);
    }
    core.ready(1, 0);
    // What waking has set is not what is looked for.
    core.run(0, 0, 0);
    core.timer(0)
}

#[test]
fn who_runs_is_compared_early_with_who_uses_little_or_weighs_more_and_else_not() {
    assert_eq!(looks_after([NICE_0, NICE_0], true), u64::MAX);
    assert!(looks_after([NICE_0, NICE_0], false) <= MS);
    // A slice of the lighter one in proportion: 4 ms.
    assert_eq!(looks_after([NICE_0 / 2, NICE_0], true), 2 * MS);
    assert_eq!(looks_after([NICE_0, 2 * NICE_0], true), 2 * MS);
    assert_eq!(looks_after([NICE_0, NICE_0 / 2], true), u64::MAX);
}

/// Under `berate` that takes longer (`berate.rs`): who has little weight is behind by up to a slice.
#[test]
fn parts_over_a_second_are_as_weights_within_two_per_cent() {
    for weights in [[1024, 1024, 1024], [1024, 335, 110], [9548, 1024, 1024], [1024, 820, 655]] {
        let got = play(core(&Others::Fair, &weights), &[endless(0); 3], SECOND);
        let sum: u64 = weights.iter().sum();
        for (got, weight) in got.iter().zip(weights) {
            let part = SECOND as f64 * weight as f64 / sum as f64;
            assert!(off(got.had, part) <= 0.02, "{weights:?}: {} in place of {part} ns", got.had);
        }
    }
}

/// Two CPUs in turns of 4 ms for two seconds: what each task had, where `each` happens before each turn, and tasks
/// from `short` on sleep after each of their turns.
fn turns(
    mut core: Core,
    count: usize,
    short: usize,
    mut each: impl FnMut(&mut Core, u64),
) -> Vec<u64> {
    let (mut runs, mut had) = ([NOBODY; 2], vec![0; count]);
    for now in (1000..1500).map(|turn| turn * 4 * MS) {
        each(&mut core, now);
        for (cpu, runs) in (0..).zip(&mut runs) {
            let mut before = *runs;
            if before != NOBODY {
                core.charge(before, 4 * MS);
                had[before] += 4 * MS;
                if before >= short {
                    core.stop(cpu, ffi::OB_STOP_SLEPT, now);
                    core.sleep(before, now);
                    before = NOBODY;
                }
            }
            let next = core.pick(cpu, before, now);
            if next != before {
                if before != NOBODY {
                    core.stop(cpu, ffi::OB_STOP_PREEMPTED, now);
                    core.ready(before, now);
                }
                core.run(cpu, next, now);
            }
            *runs = next;
        }
    }
    had
}

/// Of 12 tasks two have these affinities, the others wait for CPU 1, whose virtual time so passes at a tenth of the
/// pace.
fn beside_a_crowd(order: &Others, cpus: [u64; 2]) -> Core {
    let mut core = Core::new(2, 1, 50, MS, 12, 0);
    core.among_others(order.number());
    for i in 0..12 {
        core.init_task(i, cpus.get(i).copied().unwrap_or(2), NICE_0);
        core.ready(i, 0);
    }
    core
}

#[test]
fn who_is_bound_has_its_part_beside_one_that_might_run_where_a_crowd_waits() {
    for order in Others::ALL {
        let had = turns(beside_a_crowd(order, [1, 3]), 12, NOBODY, |_, _| ());
        assert!(had[0] >= 900 * MS, "{order}: {had:?}");
    }
}

#[test]
fn who_goes_to_where_a_crowd_waits_and_back_has_no_more_than_its_part() {
    for order in Others::ALL {
        let had = turns(beside_a_crowd(order, [1, 1]), 12, NOBODY, |core, now| {
            if core.waits(1) {
                core.affinity(1, 2, now);
                core.affinity(1, 1, now);
            }
        });
        assert!(had[1] <= 1100 * MS, "{order}: {had:?}");
    }
}

/// Kernel threads are served at once, wherever they were before. On CPU 0, where one of great weight runs, virtual time
/// passes at a tenth of the pace; turns are 4 ms.
#[test]
fn a_kernel_thread_from_where_time_passes_faster_changes_nobodys_part() {
    let weights = [NICE_0 * 9, NICE_0, NICE_0 / 10, NICE_0, NICE_0];
    for order in Others::ALL {
        let mut core = Core::new(2, 1, 50, MS, weights.len(), 0);
        core.among_others(order.number());
        for (i, weight) in weights.into_iter().enumerate() {
            core.init_task(i, [1, 1, 1, 2, 2][i], weight);
        }
        core.kernel_thread(4);
        (0..4).for_each(|i| core.ready(i, 4 * SECOND));
        let had = turns(core, weights.len(), 4, |core, now| {
            let cpu = match now / MS % 500 {
                0 | 160 => 2,
                8 | 180 => 1,
                _ => return,
            };
            core.affinity(4, cpu, now);
            core.ready(4, now);
        });
        let all: u64 = had[..3].iter().sum();
        for (had, weight) in had.iter().zip(&weights[..3]) {
            let part = all * weight / weights[..3].iter().sum::<u64>();
            // Two turns.
            assert!(had.abs_diff(part) <= 8 * MS, "{order}: {had} ns of {part}");
        }
    }
}

/// On CPU 1 virtual time passes at ten times the pace; those who wake there may have waited for CPU 0.
#[test]
fn several_that_wake_on_either_cpu_change_no_loops_part() {
    let weights = [NICE_0 * 9, NICE_0, NICE_0, NICE_0 / 3, NICE_0, NICE_0, NICE_0];
    for order in Others::ALL {
        let mut core = Core::new(2, 1, 50, MS, weights.len(), 0);
        core.among_others(order.number());
        for (i, weight) in weights.into_iter().enumerate() {
            core.init_task(i, [1, 1, 2, 2, 3, 3, 3][i], weight);
        }
        (0..4).for_each(|i| core.ready(i, 4 * SECOND));
        let had = turns(core, weights.len(), 4, |core, now| {
            if (now / MS).is_multiple_of(100) {
                (4..7).for_each(|i| core.ready(i, now));
            }
        });
        let part = (had[2] + had[3]) * 3 / 4;
        assert!(had[2].abs_diff(part) <= 12 * MS, "{order}: {had:?}");
    }
}

/// How long a new thread waits beside a loop when one of the least weight has worked beside it and ended, ns.
fn waits_after_an_end(order: &Others) -> u64 {
    let mut core = core(order, &[NICE_0, onbeat_sim::weight(19), NICE_0]);
    (0..2).for_each(|i| core.born(i, NOBODY, 0));
    (0..2).for_each(|i| core.ready(i, 0));
    let (mut now, mut runs, mut had, mut begun) = (0, NOBODY, 0, 0);
    loop {
        let next = core.pick(0, runs, now);
        if next != runs && runs != NOBODY {
            core.stop(0, ffi::OB_STOP_PREEMPTED, now);
            core.ready(runs, now);
        }
        if next != runs {
            core.run(0, next, now);
        }
        if next == 2 {
            return now - begun;
        }
        runs = next;
        core.charge(runs, 4 * MS);
        now += 4 * MS;
        had += if runs == 1 { 4 * MS } else { 0 };
        if runs == 1 && had >= 100 * MS {
            core.stop(0, ffi::OB_STOP_SLEPT, now);
            core.sleep(1, now);
            core.ends(1);
            runs = NOBODY;
            begun = now;
            core.init_task(2, 1, NICE_0);
            core.born(2, NOBODY, 0);
            core.ready(2, now);
        }
    }
}

/// Its virtual time was seconds ahead: that of the next of its kind, not of others.
#[test]
fn who_begins_when_one_of_little_weight_has_ended_waits_for_two_turns_at_most() {
    for order in Others::ALL {
        let waits = waits_after_an_end(order);
        assert!(waits <= 8 * MS, "{order}: {waits} ns");
    }
}

/// Of two others all weights between those of nice 0 and 19, each for a millisecond.
#[test]
fn who_keeps_its_niceness_has_no_less_where_others_change_theirs_each_millisecond() {
    for order in Others::ALL {
        let mut dice = 88172645463325252_u64;
        let happens = |core: &mut Core, _| {
            for i in 1..3 {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                core.weigh(i, 15 + dice % (NICE_0 - 14));
            }
            0
        };
        let parts = [endless(0), endless(0), endless(0)];
        let core = core(order, &[NICE_0; 3]);
        let got = play_disturbed(core, &parts, &[], (MS, happens), 10 * SECOND);
        assert!(got[0].had >= 10 * SECOND / 3 * 98 / 100, "{order}: {got:?}");
        assert!(got[1..].iter().all(|g| g.had > SECOND && g.waited < SECOND), "{order}: {got:?}");
        assert_eq!(got.iter().map(|g| g.had).sum::<u64>(), 10 * SECOND, "{order}");
    }
}

/// A virtual machine that was stopped for an hour, or a debugger.
#[test]
fn a_clock_that_jumps_by_an_hour_takes_nothing_from_anybody() {
    for order in Others::ALL {
        let mut jumps = 0;
        let happens = |_: &mut Core, _| {
            jumps += 1;
            if jumps == 1 { 3600 * SECOND } else { 0 }
        };
        let quick = Part { first: 0, work: 500 * US, period: 10 * MS };
        let parts = [endless(0), endless(0), quick];
        let core = core(order, &[NICE_0; 3]);
        let span = 3600 * SECOND + 10 * SECOND;
        let got = play_disturbed(core, &parts, &[], (SECOND, happens), span);
        let [one, other] = [got[0].had, got[1].had];
        assert!(one.abs_diff(other) <= 20 * MS, "{order}: {got:?}");
        // It lost what the clock passed over, no more.
        assert!(got[2].had >= 1000 * 495 * US, "{order}: {got:?}");
    }
}
