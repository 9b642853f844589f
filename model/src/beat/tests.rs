// SPDX-License-Identifier: GPL-2.0-only
//! What is told of a rhythm makes sense, whatever the wake-ups; programs of many kinds are in `sim/tests/beats.rs`.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[test]
fn chance_is_that_of_the_simplex_where_it_can_be_reckoned_by_hand() {
    // Two parts of a span: the first is uniform on 0..1, and within `s`/2 of the middle with probability s.
    assert!((regular_by_chance(2, 0.3).exp() - 0.3).abs() < 1e-12);
    // Three: a disc of radius s/sqrt(3) in a triangle of area sqrt(3)/2.
    let disc = std::f64::consts::PI * 0.04 / 3.0 / (3f64.sqrt() / 2.0);
    assert!((regular_by_chance(3, 0.2).exp() - disc).abs() < 1e-12);
}

#[test]
fn a_jump_of_the_clock_is_no_period_and_what_came_before_is_forgotten_in_time() {
    let wakes = |jump: u64| -> Vec<Wake> {
        (0..16u64)
            .map(|i| Wake { at: 1 + i * 10 * MS + if i > 7 { jump } else { 0 }, used: i * MS })
            .collect()
    };
    for jump in [0, 3_600_000 * MS, u64::MAX / 2] {
        let wakes = wakes(jump);
        let now = wakes[15].at;
        let told = rhythm(&[wakes], now).unwrap();
        assert_eq!((told.period_ns, told.used_ns), (10 * MS, MS), "{jump}");
    }
    // Back, by 50 ms: only what follows counts.
    let mut back = wakes(0);
    back.iter_mut().skip(8).for_each(|w| w.at -= 50 * MS);
    let now = back[15].at;
    assert_eq!(rhythm(&[back], now).unwrap().periods, 7);
}

fn any_wakes() -> impl Strategy<Value = Vec<Wake>> {
    let wild = (any::<u64>(), any::<u64>());
    let near = (
        prop_oneof![Just(0), 0..20 * MS, Just(10 * MS), Just(u64::MAX / 20)],
        prop_oneof![Just(0), 0..MS],
    );
    prop_oneof![
        1 => proptest::collection::vec(wild.prop_map(|(at, used)| Wake { at, used }), 0..20),
        4 => (any::<u64>(), proptest::collection::vec(near, 0..20)).prop_map(|(origin, steps)| {
            let (mut at, mut used) = (origin, 0u64);
            let mut next = |(wait, work): (u64, u64)| {
                (at, used) = (at.wrapping_add(wait), used + work);
                Wake { at, used }
            };
            steps.into_iter().map(&mut next).collect()
        }),
    ]
}

proptest! {
    /// Suspended machines, clocks that stand still or go back, no wake-ups at all.
    #[test]
    fn whatever_the_wake_ups_what_is_told_is_a_period_and_parts_of_it(
        series in proptest::collection::vec(any_wakes(), 0..4),
        now in any::<u64>(),
        late in 0u64..20_000_000,
    ) {
        let last = series.first().and_then(|wakes| wakes.last()).map_or(now, |w| w.at.saturating_add(late));
        for now in [now, last] {
            if let Some(told) = rhythm(&series, now) {
                prop_assert!((SHORTEST..=LONGEST).contains(&told.period_ns), "{:?}", told);
                prop_assert!(told.confidence > 0.0 && told.confidence < 1.0, "{:?}", told);
                prop_assert!(told.used_max_ns >= told.used_ns && told.periods >= 6, "{:?}", told);
            }
        }
    }

    /// The clock's origin and units of ms do not matter.
    #[test]
    fn exact_rhythms_are_told_as_they_are(origin in 0u64..1 << 62, period in 5u64..=1000, work in 0u64..5) {
        let wake = |i: u64| Wake { at: origin + i * period * MS, used: i * work * MS };
        let told = rhythm(&[(0..11).map(wake).collect()], origin + 10 * period * MS).unwrap();
        prop_assert!(told.period_ns.abs_diff(period * MS) <= 1, "{:?}", told);
        prop_assert!(told.used_ns.abs_diff(work * MS) <= 1, "{:?}", told);
        prop_assert_eq!(told.periods, 10);
    }
}
