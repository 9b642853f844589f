// SPDX-License-Identifier: GPL-2.0-only
//! No timer wakes threads at the same distance from their releases each time: what a policy promises on exact ones it
//! must keep on others.

use onbeat_analysis::family::{Family, WAKE};
use onbeat_model::metrics::metrics;
use onbeat_model::policy::{DEFAULT, Policy};
use onbeat_model::units::SEC;
use onbeat_sim::{Detail, simulate_with};

/// Late jobs of six sets in which all are released within a millisecond, whose threads wake up to `wake` ns later.
fn late(policy: &str, wake: u64) -> u64 {
    let policy: Policy = policy.parse().unwrap();
    let one = |seed| {
        let mut set = Family::Scenes.generate(seed, 10 * SEC, vec![policy.clone()]);
        assert_eq!(set.overheads.wake, WAKE);
        set.overheads.wake = wake;
        let figures = metrics(&simulate_with(&set, policy.core().unwrap(), Detail::Jobs).unwrap());
        assert_eq!(figures.owed_late, 0, "seed {seed}, woken up to {wake} ns late, under {policy}");
        figures.misses + figures.unfinished
    };
    (1..=6).map(one).sum()
}

#[test]
fn microseconds_by_which_threads_wake_too_late_decide_nothing_under_policies_that_lend() {
    for policy in ["g-edzl+cbs-slack", DEFAULT] {
        let exact = late(policy, 0);
        for wake in [1_000, WAKE, 200_000] {
            let inexact = late(policy, wake);
            assert!(
                inexact.abs_diff(exact) <= exact / 8 + 10,
                "{policy}: {exact} late, and {inexact} where threads wake up to {wake} ns late"
            );
        }
    }
}

#[test]
fn threads_wake_within_what_the_set_says_and_not_all_alike() {
    let text = r#"
        cpus = 1
        duration = "1s"
        overheads = { wake = "3ms" }
        [[task]]
        name = "only"
        period = "10ms"
        budget = "2ms"
        work = { constant = "1ms" }
    "#;
    let set =
        onbeat_model::taskset::TaskSet::from_bytes(text.as_bytes(), "wake.toml".as_ref()).unwrap();
    let policy: Policy = DEFAULT.parse().unwrap();
    let run = simulate_with(&set, policy.core().unwrap(), Detail::Jobs).unwrap();
    let figures = metrics(&run);
    // Alone on its CPU a job responds after its 1 ms and what it woke late.
    assert!(
        figures.response_max_ms > 3.0 && figures.response_max_ms <= 4.0,
        "{}",
        figures.response_max_ms
    );
    let mean = figures.response_mean_ms.unwrap();
    assert!((2.3..2.7).contains(&mean), "{mean} ms on average");
}
