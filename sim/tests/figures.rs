// SPDX-License-Identifier: GPL-2.0-only
//! Figures that are made as the events come are those of the events, kept and sorted.

use onbeat_model::metrics::detailed;
use onbeat_model::policy::CORE;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::{Detail, figures, simulate_with};

/// Jobs that fall behind (their releases are noted late, those at the end never) and jobs that are given up.
const SET: &str = r#"
cpus = 2
duration = "40s"

[[task]]
name = "behind"
count = 2
period = "10ms"
budget = "2ms"
work = { constant = "12ms" }

[[task]]
name = "light"
count = 3
period = "23ms"
budget = "4ms"
work = { uniform = ["1ms", "5ms"] }

[[task]]
name = "given-up"
period = "31ms"
budget = "5ms"
abort = "at-deadline"
work = { uniform = ["1ms", "12ms"] }
"#;

#[test]
fn figures_without_events_are_those_of_the_events() {
    let set = TaskSet::from_bytes(SET.as_bytes(), "set.toml".as_ref()).unwrap();
    for policy in CORE.iter() {
        let Ok(run) = simulate_with(&set, policy, Detail::Jobs) else { continue };
        let (bare, all, tasks) = figures(&set, policy).unwrap();
        assert!(bare.events.is_empty() && run.events.len() > 10_000, "{}", policy.name);
        assert!(all.misses > 0, "{}", policy.name);
        assert_eq!((all, tasks), detailed(&run), "{}", policy.name);
    }
}
