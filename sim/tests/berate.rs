// SPDX-License-Identifier: GPL-2.0-only
//! BeRate among best effort, nothing reserved: who sleeps between jobs meets deadlines that its part allows, without
//! being told of; nobody gains by looking so, and parts are as weights.

use crate::common::rhythm::{
    MS, Periodic, SECOND, US, core, had_by_a_liar, late, late_of_one, times,
};
use crate::common::shell::{EVER, Got, Part, endless, play, play_woken};
use onbeat_model::others::Others;
use onbeat_sim::NICE_0;

/// Its part beside so many loops is more than a quarter.
#[test]
fn a_quarter_of_a_cpu_is_had_in_time_beside_loops_for_periods_of_20_to_40_ms() {
    for loops in [1, 2] {
        for period in [20 * MS, 30 * MS, 40 * MS] {
            let loops = vec![NICE_0; loops];
            let [fair, berate] =
                [Others::Fair, Others::Berate].map(|order| late_of_one(order, period, 250, &loops));
            println!("{} ms beside {}: fair {fair}, berate {berate}", period / MS, loops.len());
            assert_eq!(berate, 0.0, "{} ms beside {}", period / MS, loops.len());
        }
    }
}

/// Its jobs vary, and one in three asks for more than a quarter.
#[test]
fn what_needs_nearly_all_of_its_part_is_seldom_late() {
    let loops = [NICE_0; 3];
    for period in [20 * MS, 30 * MS, 40 * MS] {
        let [fair, berate] =
            [Others::Fair, Others::Berate].map(|order| late_of_one(order, period, 240, &loops));
        println!("{} ms beside 3: fair {fair}, berate {berate}", period / MS);
        assert!(berate <= 0.01 && berate <= fair / 10.0, "{} ms: {berate}", period / MS);
    }
}

/// The paper's: period ms, permille of a CPU each, how many, loops and their weight.
#[test]
fn the_papers_experiments_miss_few_deadlines() {
    for (period, permille, count, loops) in [
        (40, 450, 1, vec![NICE_0]),
        (40, 225, 2, vec![NICE_0; 2]),
        (30, 225, 2, vec![NICE_0; 2]),
        (40, 225, 1, vec![NICE_0; 3]),
        (30, 600, 1, vec![NICE_0 / 2]),
    ] {
        let periodic: Vec<Periodic> = (0..count)
            .map(|i| Periodic {
                first: (333 + 7777 * i) * US,
                period: period * MS,
                times: times(2000, period * MS * permille / 1000, 900, 1100),
            })
            .collect();
        let [fair, berate] =
            [Others::Fair, Others::Berate].map(|order| late(order, 1, &periodic, &loops));
        println!("{count} of {permille} in {period} ms: fair {fair:?}, berate {berate:?}");
        assert!(berate.iter().all(|late| *late <= 0.003), "{berate:?}");
    }
}

#[test]
fn on_two_cpus_too() {
    let periodic = [20, 30, 40].map(|period| Periodic {
        first: period * 100 * US,
        period: period * MS,
        times: times(2000, period * MS / 4, 900, 1100),
    });
    let [fair, berate] =
        [Others::Fair, Others::Berate].map(|order| late(order, 2, &periodic, &[NICE_0; 3]));
    println!("2 CPUs: fair {fair:?}, berate {berate:?}");
    assert!(berate.iter().all(|late| *late == 0.0), "{berate:?}");
}

#[test]
fn parts_over_some_seconds_are_as_weights_within_two_per_cent() {
    for weights in [
        [1024, 1024, 1024],
        [1024, 335, 110],
        [9548, 1024, 1024],
        [1024, 820, 655],
        [1024, 1024, 15],
    ] {
        let span = 20 * SECOND;
        let got = play(core(Others::Berate, 1, &weights), &[endless(0); 3], span);
        let sum: u64 = weights.iter().sum();
        for (got, weight) in got.iter().zip(weights) {
            let part = span as f64 * weight as f64 / sum as f64;
            let off = (got.had as f64 - part).abs();
            assert!(off <= 0.02 * part, "{weights:?}: {} in place of {part} ns", got.had);
        }
    }
}

#[test]
fn a_sleeper_among_them_leaves_parts_as_weights() {
    // It asks for a tenth, less than its part.
    let weights = [1024, 1024, 512, 256];
    let sleeper = Part { first: 0, work: 2 * MS, period: 20 * MS };
    let got = play(
        core(Others::Berate, 1, &weights),
        &[sleeper, endless(0), endless(0), endless(0)],
        20 * SECOND,
    );
    assert!(got[0].had >= 1998 * MS, "{got:?}");
    let rest = (20 * SECOND - got[0].had) as f64;
    for (got, weight) in got[1..].iter().zip(&weights[1..]) {
        let part = rest * *weight as f64 / 1792.0;
        assert!((got.had as f64 - part).abs() <= 0.02 * part, "{} of {part}", got.had);
    }
}

/// Those beside them come and go, so that where the others are on average jumps by tens of ms.
#[test]
fn a_key_is_not_made_to_wait_by_where_those_are_who_come_and_go() {
    let of = |work: u64, period: u64, first: u64| Part { first, work, period };
    let parts = [
        of(20 * US, 5 * MS, 0),
        of(500 * US, 10 * MS, 333 * US),
        of(10 * MS, 40 * MS, 777 * US),
        of(3 * MS, 20 * MS, 1234 * US),
        of(32 * MS, 160 * MS, 4321 * US),
        of(45 * MS, 180 * MS, 5678 * US),
        of(60 * MS, 1370 * MS, 9 * MS),
    ];
    let got = play(core(Others::Berate, 1, &[NICE_0; 7]), &parts, 20 * SECOND);
    println!("{got:?}");
    assert!(got[0].waited <= MS, "{got:?}");
}

/// Messages are read together: else each reader that has been sent one would sleep again before other writers go on.
/// Thread 0 uses 20 us a time, beside five loops.
#[test]
fn whom_one_wakes_that_goes_on_waits_for_some_turns_and_whom_the_clock_wakes_for_none() {
    let wait = |told| {
        let parts: Vec<Part> = [Part { first: 0, work: 20 * US, period: 7 * MS }]
            .into_iter()
            .chain((0..5).map(|i| endless(i * US)))
            .collect();
        let mut core = core(Others::Berate, 1, &[NICE_0; 6]);
        core.told_if(0, told);
        play(core, &parts, 10 * SECOND)[0].waited
    };
    let [clock, told] = [false, true].map(wait);
    assert!(clock <= MS, "{clock} ns");
    // For the slice of who woke it and some of others', but not for one of each.
    assert!(told > 5_500 * US && told < 20 * MS, "{told} ns");
}

/// A clock wakes a thread that wakes another as it is done. From then on ten wake, one by one, that use 300 us of 20 ms
/// each.
#[test]
fn whom_one_wakes_that_then_sleeps_goes_before_others_that_use_little() {
    let beat = |work, first| Part { first, work: work * US, period: 20 * MS };
    let pair = [beat(400, 0), Part { first: EVER, work: 100 * US, period: EVER }];
    let crowd = (0..10).map(|i| beat(300, (300 + 200 * i) * US));
    let parts: Vec<Part> = pair.into_iter().chain([endless(0)]).chain(crowd).collect();
    let core = core(Others::Berate, 1, &[NICE_0; 13]);
    let got = play_woken(core, &parts, &[(0, 1)], 10 * SECOND)[1];
    let jobs = got.had / (100 * US);
    assert!(jobs > 450, "{got:?}");
    assert!(got.waits / jobs <= 100 * US, "{} ns", got.waits / jobs);
}

/// Of 500 some sleep, some are of the greatest niceness and some of the least. A round of all takes 2 s in turns of
/// 4 ms; after 3 s of patience who has waited for longest is next.
#[test]
fn nobody_starves_among_500() {
    let weights: Vec<u64> = (0..500).map(|i| [NICE_0, 15, 9548, NICE_0, 335][i % 5]).collect();
    let part = |i: u64| match i % 3 {
        0 => Part { first: i * 77 * US, work: 3 * MS, period: 40 * MS },
        _ => endless(i * US),
    };
    let parts: Vec<Part> = (0..500).map(part).collect();
    let got = play(core(Others::Berate, 1, &weights), &parts, 20 * SECOND);
    let longest = got.iter().map(|g| g.waited).max().unwrap();
    assert!(longest <= 6 * SECOND, "{longest} ns");
    assert!(got.iter().all(|g| g.had > 0));
}

/// Beside three loops a quarter of a second is its part. More than that a thread may have once, by the paper's rule
/// and ours: the slice that it begins behind the others, and what it gets by one deadline before that expires, which
/// is twice what it used to need, or a slice.
#[test]
fn a_thread_that_looks_periodic_has_no_more_in_a_second_than_its_part_and_one_expiration() {
    for (works, pauses) in [
        // Little, until it counts as quick, and then much.
        (vec![100, 100, 100, 100, 100, 100, 20_000], vec![100]),
        (vec![50, 8_000], vec![50, 10]),
        (vec![1_000, 1_000, 100_000], vec![1_000]),
        (vec![3_400], vec![1]),
        (vec![300], vec![10]),
        (vec![20_000, 40_000], vec![100]),
        (vec![100, 100, 100, 100, 400_000], vec![5_000, 5_000, 5_000, 5_000, 300_000]),
    ] {
        let most_burst = works.iter().max().unwrap().min(&50_000) * US;
        let had = &had_by_a_liar(Others::Berate, 3, &works, &pauses)[1..9];
        let most = 250 * MS + 4 * MS + (2 * most_burst).max(4 * MS);
        assert!(had.iter().all(|had| *had <= most), "{works:?}, {pauses:?}: {had:?} ns");
        // Over time there is nothing to be gained but what is waived.
        let (sum, part) = (had.iter().sum::<u64>(), 250 * MS * had.len() as u64);
        assert!(sum <= part + most - 250 * MS, "{works:?}, {pauses:?}: {sum} of {part} ns");
    }
}

/// A crowd that uses little at a time, in parts of which each is small beside that of who waits just then, but that
/// ask for most of the CPU, or for more: all wait for turns of everybody, not for seconds, and loops have as much as
/// under `fair`.
#[test]
fn a_crowd_that_uses_little_at_a_time_takes_nothing_from_loops() {
    for (crowd, work, period) in [
        (60, 200 * US, 9 * MS),
        (44, 200 * US, 9 * MS),
        (20, 400 * US, 5 * MS),
        (10, 475 * US, 5 * MS),
        (5, 475 * US, 3 * MS),
        (5, 100 * US, 600 * US),
        (150, 300 * US, 30 * MS),
        (150, 150 * US, 30 * MS),
        (500, 300 * US, 100 * MS),
        (500, 100 * US, 100 * MS),
    ] {
        for loops in [2, 5] {
            let parts: Vec<Part> = (0..crowd)
                .map(|i| Part { first: i * 37 * US, work, period: period + i * 13 * US })
                .chain((0..loops).map(|_| endless(5 * MS)))
                .collect();
            let weights = vec![NICE_0; parts.len()];
            let [fair, berate] = [Others::Fair, Others::Berate]
                .map(|order| play(core(order, 1, &weights), &parts, 12 * SECOND));
            let had = |got: &[Got]| got[crowd as usize..].iter().map(|g| g.had).min().unwrap();
            let waited = |got: &[Got]| got.iter().map(|g| g.waited).max().unwrap();
            let scene = format!("{loops} loops, {crowd} of {} us", work / US);
            println!(
                "{scene}: had {} of {} ms, waited {} for {} ms",
                had(&berate) / MS,
                had(&fair) / MS,
                waited(&berate) / MS,
                waited(&fair) / MS
            );
            // Of hundreds each has a turn of 4 ms or two in that time.
            let least = 0.97 * had(&fair) as f64 - 4e6;
            assert!(had(&berate) as f64 > least, "{scene}");
            let most = (100 + 6 * parts.len() as u64).min(2500) * MS;
            assert!(waited(&berate) < most, "{scene}");
        }
    }
}

/// Its part is 0.82 of a CPU, or 0.9 beside one.
#[test]
fn what_needs_less_than_its_part_is_in_time_beside_loops_of_nice_10() {
    for loops in [1, 2] {
        for period in [20 * MS, 30 * MS, 40 * MS] {
            for permille in [300, 600, 750] {
                let loops = vec![110; loops];
                let [fair, berate] = [Others::Fair, Others::Berate]
                    .map(|order| late_of_one(order, period, permille, &loops));
                let scene = format!("{permille} of {} ms beside {}", period / MS, loops.len());
                println!("{scene}: fair {fair}, berate {berate}");
                assert_eq!(berate, 0.0, "{scene}");
            }
        }
    }
}
