// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs under policies of their own in one task set.

use std::path::Path;

use onbeat_model::event::EventKind;
use onbeat_model::policy::CORE;
use onbeat_model::run::Run;
use onbeat_model::taskset::TaskSet;
use onbeat_sim::simulate;

/// CPUs 1 and 3 are the set "own"; the rest is the played policy's. In both, more is asked for than there is.
const FILE: &str = r#"
cpus = 4
duration = "1s"
best_effort_share = "0%"
[[set]]
name = "own"
cpus = [1, 3]
policy = "POLICY"
[[task]]
name = "here"
count = 3
period = "10ms"
budget = "6ms"
work = { constant = "6ms" }
[[task]]
name = "there"
count = 3
period = "20ms"
budget = "9ms"
set = "own"
work = { uniform = ["8ms", "14ms"] }
[[task]]
name = "bound"
period = "50ms"
budget = "5ms"
affinity = [3]
work = { constant = "5ms" }
[[group]]
name = "g"
budget = "2ms"
period = "20ms"
set = "own"
[[task]]
name = "inside"
period = "40ms"
budget = "2ms"
group = "g"
work = { constant = "2ms" }
"#;

fn play(own: &str, played: &str) -> Run {
    let text = FILE.replace("POLICY", own);
    let set = TaskSet::from_bytes(text.as_bytes(), Path::new("sets.toml")).unwrap();
    simulate(&set, CORE.iter().find(|p| p.name == played).unwrap()).unwrap()
}

/// CPUs on which the tasks whose names begin so have run.
fn cpus(run: &Run, name: &str) -> u64 {
    let of = |task: u32| run.tasks.get(task as usize).is_some_and(|t| t.name.starts_with(name));
    let runs = run.events.iter().filter(|e| e.kind() == Some(EventKind::Run) && of(e.task));
    runs.fold(0, |mask, e| mask | 1 << e.cpu)
}

#[test]
fn each_set_serves_its_own_on_its_cpus() {
    for own in ["g-edf+cbs", "p-edf+cbs-hard", "g-edzl+cbs-predict", "c-rm+cbs"] {
        for played in ["g-edzl+cbs-predict", "p-edf+cbs", "g-dasa+cbs", "c-edf+fcbs"] {
            let run = play(own, played);
            assert_eq!(cpus(&run, "here"), 0b0101, "{own}, {played}");
            assert_eq!(cpus(&run, "there"), 0b1010, "{own}, {played}");
            assert_eq!(cpus(&run, "bound"), 0b1000, "{own}, {played}");
            assert_eq!(cpus(&run, "inside") & !0b1010, 0, "{own}, {played}");
        }
    }
}

#[test]
fn what_one_set_serves_does_not_depend_on_the_other_s_policy() {
    let there = |played| {
        let run = play("p-edf+cbs-hard", played);
        let of = |e: &&onbeat_model::event::Event| {
            let task = run.tasks.get(e.task as usize);
            let own = task.is_some_and(|t| !t.name.starts_with("here"));
            own && e.kind() == Some(EventKind::Complete)
        };
        let done: Vec<_> = run.events.iter().filter(of).map(|e| (e.time, e.task, e.cpu)).collect();
        assert!(done.len() > 60);
        done
    };
    assert_eq!(there("g-edzl+cbs-predict"), there("rm"));
    assert_eq!(there("g-edzl+cbs-predict"), there("p-edf+fcbs"));
}
