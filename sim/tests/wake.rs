// SPDX-License-Identifier: GPL-2.0-only
//! No timer wakes threads at the same distance from their releases each time: what a policy promises on exact ones it
//! must keep on others.

use onbeat_analysis::family::{Family, WAKE};
use onbeat_model::metrics::metrics;
use onbeat_model::policy::{DEFAULT, Policy};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::SEC;
use onbeat_sim::{Detail, simulate, simulate_with};

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

/// All of CPUs is reserved, and best effort, which runs wherever there is room, is on another CPU for a while. What it
/// has not had meanwhile on the first, which idled in part, must not be due there at once when it comes back.
#[test]
fn best_effort_that_comes_back_to_a_full_cpu_delays_nobody_there() {
    // CPUs, threads of best effort, how late threads wake (us), what best effort has at least (CPUs).
    let sets = [
        (2, 1, 60, 0.99, [(1_000, 200_000), (950, 1_000)].as_slice()),
        (3, 2, 60, 1.09, &[(180_919, 200_000), (950, 1_000)]),
        (4, 2, 110, 1.10, &[(1_900, 2_000), (15_770, 16_700), (950, 1_000)]),
    ];
    for (cpus, count, wake, share, tasks) in sets {
        let mut text = format!(
            "cpus = {cpus}\nduration = \"3s\"\nbest_effort = {{ count = {count} }}\n\
             overheads = {{ wake = \"{wake}us\" }}\n"
        );
        for (i, (budget, period)) in tasks.iter().enumerate() {
            text += &format!(
                "[[task]]\nname = \"t{i}\"\nperiod = \"{period}us\"\nbudget = \"{budget}us\"\nwork = {{ constant = \
                 \"{budget}us\" }}\n"
            );
        }
        let set = TaskSet::from_bytes(text.as_bytes(), "full.toml".as_ref()).unwrap();
        let policy: Policy = "p-edf+cbs-hard".parse().unwrap();
        let figures = metrics(&simulate(&set, policy.core().unwrap()).unwrap());
        assert!(
            figures.tardiness_max_ms <= f64::from(wake) / 1e3,
            "{} ms late: {text}",
            figures.tardiness_max_ms
        );
        let least = figures.best_effort_least_cpus.expect("seconds that were played");
        assert!(least > share, "best effort had {least} CPUs: {text}");
    }
}
