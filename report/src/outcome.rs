// SPDX-License-Identifier: GPL-2.0-only
//! The figures of one run, without its events.

use onbeat_model::metrics::{self, Metrics, TaskMetrics};
use onbeat_model::run::{Class, Platform, Run, World};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::MS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What came of one policy in one world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Where it ran.
    pub world: World,
    /// Name of the policy.
    pub policy: String,
    /// On what it ran.
    pub platform: Platform,
    /// Figures of the whole run.
    pub metrics: Metrics,
    /// Figures of each task.
    pub tasks: Vec<TaskMetrics>,
}

impl Outcome {
    /// Computes the figures of a run.
    pub fn of(run: &Run) -> Self {
        let (metrics, tasks) = metrics::detailed(run);
        Self::new(run, metrics, tasks)
    }

    /// These are the figures of `run`.
    pub fn new(run: &Run, metrics: Metrics, tasks: Vec<TaskMetrics>) -> Self {
        Self {
            world: run.world,
            policy: run.policy.clone(),
            platform: run.platform.clone(),
            metrics,
            tasks,
        }
    }

    /// With the bounds that the run's task set names.
    #[must_use]
    pub fn bounded(mut self, set: &TaskSet) -> Self {
        for (copy, task) in set.copies().zip(&mut self.tasks) {
            let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / MS as f64);
            task.bound_tardiness_ms = ms(copy.spec.bound.and_then(|bound| bound.tardiness));
            task.bound_expected_ms = ms(copy.spec.bound.and_then(|bound| bound.expected));
        }
        self
    }

    /// The tasks that are released and timed.
    pub(crate) fn reserved(&self) -> impl Iterator<Item = &TaskMetrics> {
        self.tasks.iter().filter(|t| t.class != Class::BestEffort)
    }

    /// Whether all its tasks have the same period, budget and work, so that figures of all together say something.
    pub fn uniform(&self) -> bool {
        let kind = |t: &TaskMetrics| (t.period_ms, t.budget_ms, t.entry);
        let mut kinds = self.reserved().map(kind);
        let first = kinds.next();
        kinds.all(|kind| Some(kind) == first)
    }

    /// `sim`, `lab` or `live`.
    pub fn world_name(&self) -> &'static str {
        match self.world {
            World::Sim => "sim",
            World::Lab => "lab",
            World::Live => "live",
        }
    }
}

/// The object `--json` prints: world and platform of the first outcome, then one run for each; see docs/events.md.
pub fn result_json(outcomes: &[Outcome]) -> Value {
    let runs: Vec<Value> = outcomes
        .iter()
        .map(|o| json!({ "policy": o.policy, "metrics": o.metrics, "tasks": o.tasks }))
        .collect();
    json!({
        "world": outcomes.first().map(|o| o.world),
        "platform": outcomes.first().map(|o| &o.platform),
        "runs": runs,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onbeat_model::event::{Event, EventKind};
    use onbeat_model::run::TaskInfo;
    use onbeat_model::units::MS;

    const PERIOD: u64 = 41 * MS;

    /// Two movies on two CPUs for `seconds`, the second late in every fifth job, beside one best-effort task.
    pub(crate) fn sample(policy: &str, world: World, seconds: u64) -> Run {
        let task = |i: u32, class| TaskInfo {
            name: if class == Class::BestEffort { "hog".into() } else { format!("movie-{i}") },
            entry: 0,
            copy: i,
            class,
            period: if class == Class::BestEffort { 0 } else { PERIOD },
            deadline: PERIOD,
            budget: if class == Class::BestEffort { 0 } else { 25 * MS },
            tid: i,
        };
        let mut events = Vec::new();
        for job in 0..seconds * 1000 / 41 {
            for t in 0..2u32 {
                let r = job * PERIOD + u64::from(t) * MS;
                let (d, work) = (r + PERIOD, if t == 1 && job % 5 == 4 { 44 } else { 20 } * MS);
                let e = |time, kind, a, b| Event::new(time, kind, a, b).of(t).by(10 + t);
                // The late job delays the next one by 3 ms.
                let begin = if t == 1 && job % 5 == 0 && job > 0 { r + 3 * MS } else { r };
                events.push(e(r, EventKind::Release, job, d));
                events.push(e(begin, EventKind::Activate, 25 * MS, d).on(t));
                events.push(e(begin, EventKind::Run, d, 25 * MS).on(t));
                if work > 25 * MS {
                    events.push(e(begin + 25 * MS, EventKind::Exhaust, 0, d));
                    events.push(e(begin + 25 * MS, EventKind::Replenish, 25 * MS, d + PERIOD));
                } else if t == 0 {
                    events.push(Event::new(begin + work, EventKind::Donate, 5 * MS, 11).by(10));
                }
                events.push(e(begin + work, EventKind::Stop, 1, 0).on(t));
                events.push(e(begin + work, EventKind::Complete, job, work));
            }
        }
        events.push(Event::new(0, EventKind::Run, 0, 0).of(2).on(2));
        events.push(Event::new(5 * MS, EventKind::Share, 1, 0).on(2));
        events.push(Event::new(6 * MS, EventKind::Share, 0, 0).on(2));
        let mut run = Run {
            world,
            policy: policy.into(),
            platform: Platform { cpus: 3, kernel: "7.2.12".into(), seed: 1, ..Platform::default() },
            tasks: vec![
                task(0, Class::Reserved),
                task(1, Class::Reserved),
                task(2, Class::BestEffort),
            ],
            resources: vec![],
            events,
            origin_ns: 0,
            horizon_ns: (seconds * 1000 + 100) * MS,
        };
        run.sort_events();
        run
    }

    pub(crate) fn outcome(policy: &str) -> Outcome {
        Outcome::of(&sample(policy, World::Lab, 4))
    }

    #[test]
    fn the_sample_is_what_it_says() {
        let o = outcome("g-edf");
        assert_eq!((o.metrics.jobs, o.metrics.anomalies), (194, 0));
        assert_eq!(o.tasks[1].misses, 19);
        assert_eq!((o.tasks[0].misses, o.metrics.tardiness_max_ms), (0, 3.0));
    }

    #[test]
    fn the_json_has_the_documented_keys() {
        let json = result_json(&[outcome("g-edf"), outcome("rm")]);
        assert_eq!(json["world"], "lab");
        assert_eq!(json["platform"]["cpus"], 3);
        assert_eq!(json["runs"][1]["policy"], "rm");
        for key in [
            "jobs",
            "miss_ratio",
            "owed",
            "owed_late",
            "owed_tardiness_max_ms",
            "worst_fps",
            "mean_fps",
            "fps_sd",
            "tardiness_p99_ms",
            "tardiness_max_ms",
            "best_effort_cpus",
            "preemptions",
            "migrations",
        ] {
            assert!(json["runs"][0]["metrics"][key].is_number(), "{key}");
        }
        assert_eq!(json["runs"][0]["tasks"].as_array().map(Vec::len), Some(3));
        assert_eq!(result_json(&[])["runs"], serde_json::json!([]));
    }
}
