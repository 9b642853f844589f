// SPDX-License-Identifier: GPL-2.0-only
//! BEST among best effort, nothing reserved: who wakes at steady intervals is in time, whatever its part is, at the
//! expense of the others; rhythms that are none get nothing.

use crate::common::rhythm::{MS, Periodic, SECOND, US, core, late, times};
use crate::common::shell::{Part, endless, play};
use onbeat_model::event::EventKind;
use onbeat_model::others::Others;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Detail, Engine, Load, NICE_0};

/// A thread that needs so much of a CPU, in thousandths, once it is known: who is behind from the first job on never
/// sleeps, and has no rhythm.
fn known(period: u64, first: u64, permille: u64) -> Periodic {
    let mut times = times(2000, period * permille / 1000, 900, 1100);
    times[..10].iter_mut().for_each(|time| *time /= 20);
    Periodic { first, period, times }
}

/// 40 and 20 ms, a half of the CPU each, beside a loop: the paper's experiment 6.
#[test]
fn two_that_beat_and_need_nearly_all_there_is_are_seldom_late_at_the_loops_expense() {
    let periodic = [known(40 * MS, 333 * US, 460), known(20 * MS, 777 * US, 460)];
    let [berate, best] =
        [Others::Berate, Others::Best].map(|order| late(order, 1, &periodic, &[NICE_0]));
    println!("berate {berate:?}, best {best:?}");
    assert!(best.iter().all(|late| *late <= 0.016), "{best:?}");
    assert!(berate.iter().all(|late| *late >= 0.1), "{berate:?}");
}

/// With 96 % of the CPU they are late now and then, and who skips a beat must not be taken to beat half as often: it
/// would be late with every second job from then on.
#[test]
fn who_skips_a_beat_still_beats_as_often() {
    for first in [777 * US, 5 * MS, 12 * MS, 19 * MS] {
        let periodic = [known(40 * MS, 333 * US, 480), known(20 * MS, first, 480)];
        let late = late(Others::Best, 1, &periodic, &[NICE_0]);
        assert!(late.iter().all(|late| *late <= 0.1), "{first}: {late:?}");
    }
}

#[test]
fn one_that_beats_is_in_time_beside_any_number_of_loops() {
    for loops in [1, 4, 20] {
        for period in [5, 10, 20, 33, 100] {
            let beats = known(period * MS, 333 * US, 600);
            let late = late(Others::Best, 1, &[beats], &vec![NICE_0; loops])[0];
            assert!(late <= 0.005, "{period} ms beside {loops}: {late}");
        }
    }
}

/// The greatest weight is no reason to wait, nor the least one.
#[test]
fn nice_counts_among_those_that_do_not_beat() {
    let late = late(Others::Best, 1, &[known(40 * MS, 333 * US, 600)], &[9548, 15])[0];
    assert!(late <= 0.005, "{late}");
    let got = play(core(Others::Best, 1, &[1024, 335, 3121]), &[endless(0); 3], 20 * SECOND);
    for (got, weight) in got.iter().zip([1024, 335, 3121]) {
        let part = 20.0 * SECOND as f64 * f64::from(weight) / 4480.0;
        assert!((got.had as f64 - part).abs() <= 0.02 * part, "{} of {part}", got.had);
    }
}

/// Who beats all day and needs all of the CPU leaves the others what patience gives them.
#[test]
fn nobody_starves_beside_one_that_beats_and_takes_all() {
    let beat = Part { first: 0, work: 39 * MS, period: 40 * MS };
    let got =
        play(core(Others::Best, 1, &[NICE_0; 3]), &[beat, endless(0), endless(0)], 30 * SECOND);
    println!("{got:?}");
    assert!(got.iter().all(|g| g.waited <= 6 * SECOND && g.had > 0), "{got:?}");
}

/// What a thread of one CPU has of 20 s, beside three loops, that asks for 30 ms of every 40 at random instants, which
/// are whole multiples of `grain`.
fn had_at_random(order: Others, grain: u64) -> u64 {
    let delays: Vec<u64> =
        times(500, 20 * MS, 0, 2000).iter().map(|at| at / grain * grain).collect();
    let jobs = Load::Jobs {
        first: 0,
        period: 40 * MS,
        delays,
        deadline: 40 * MS,
        times: vec![30 * MS; 500],
        marks: false,
    };
    let loads = vec![jobs, Load::Endless, Load::Endless, Load::Endless];
    let core = core(order, 1, &[NICE_0; 4]);
    let mut engine = Engine::new(core, 1, loads, Overheads::default(), Detail::Jobs);
    engine.run(0, 20 * SECOND);
    let events = engine.finish();
    events.iter().find(|e| e.kind() == Some(EventKind::Usage) && e.task == 0).unwrap().a
}

#[test]
fn who_has_no_rhythm_has_no_more_than_its_part() {
    for grain in [1, 10 * MS, 13 * MS] {
        let had = [Others::Fair, Others::Best].map(|order| had_at_random(order, grain));
        let [fair, best] = had;
        // A quarter, and what it now and then is taken to beat for.
        assert!(best <= 5 * SECOND + SECOND / 2, "{best}, under fair {fair}, {grain} ns");
    }
}
