// SPDX-License-Identifier: GPL-2.0-only
//! Soft real-time work that reserves nothing, as the experiments of Banachowski and Brandt, "Better real-time response
//! for time-share scheduling", WPDRTS 2003, have it: `experiments/berate-1.toml` to `-6`. How much is late, to a tenth
//! of a per cent, is in docs/srt.md.

use std::path::Path;

use onbeat_model::metrics::TaskMetrics;
use onbeat_model::policy::CORE;
use onbeat_model::run::Class;
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::SEC;
use onbeat_sim::{figures, weight};

fn played(number: u32, order: &str, span: u64) -> (TaskSet, Vec<TaskMetrics>) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../experiments/berate-{number}.toml"));
    let mut set = TaskSet::load(file).unwrap();
    set.serve_others_by(order).unwrap();
    // In Linux 2.4 half the weight is nice 10.
    if let (Some(_), Some(best_effort)) = (set.baseline(), &mut set.best_effort)
        && best_effort.nice == 3
    {
        best_effort.nice = 10;
    }
    set.duration = span;
    let policy = CORE.iter().find(|p| p.name == "g-edf").unwrap();
    let (_, _, tasks) = figures(&set, policy).unwrap();
    (set, tasks)
}

fn late(number: u32, order: &str) -> f64 {
    late_for(number, order, 60 * SEC)
}

fn late_for(number: u32, order: &str, span: u64) -> f64 {
    let (_, tasks) = played(number, order, span);
    let videos = tasks.iter().filter(|t| t.class != Class::BestEffort);
    let (misses, jobs) = videos.fold((0, 0), |(m, j), t| (m + t.misses, j + t.jobs));
    misses as f64 / jobs as f64
}

/// The paper's claim of table 1, but for its figures.
#[test]
fn under_berate_videos_within_their_parts_are_late_less_often_than_under_fair_and_linux_24() {
    for number in 1..=4 {
        let [linux, berate, fair] =
            ["linux-2.4-800", "berate", "fair"].map(|order| late(number, order));
        println!("experiment {number}: Linux {linux}, BeRate {berate}, fair {fair}");
        assert!(berate < linux / 2.0 && berate < fair / 5.0, "experiment {number}");
    }
}

#[test]
fn over_ten_seconds_cpu_bound_processes_have_no_less_than_98_per_cent_of_their_parts_under_berate()
{
    for number in 1..=6 {
        let (set, tasks) = played(number, "berate", 10 * SEC);
        let bound: Vec<f64> =
            tasks.iter().filter(|t| t.class == Class::BestEffort).map(|t| t.cpu_ms).collect();
        let nice = set.best_effort.unwrap().nice;
        let (own, videos) = (weight(nice) as f64, (tasks.len() - bound.len()) as f64);
        let part = 10_000.0 * own / (own * bound.len() as f64 + weight(0) as f64 * videos);
        let mean = bound.iter().sum::<f64>() / bound.len() as f64;
        for had in &bound {
            assert!(*had >= 0.98 * part, "experiment {number}: {had} of {part} ms");
            assert!((had - mean).abs() <= 0.02 * mean, "experiment {number}: {bound:?}");
        }
    }
}

/// What the videos of experiment 6 do not get within their parts they get from nobody, says the paper.
#[test]
fn in_overload_many_jobs_are_late_under_berate() {
    assert!(late(6, "berate") > 0.1);
}

/// The target of the experiments' own files; in 5 the video needs 0.8 % more than its part (docs/srt.md).
#[test]
fn three_in_a_thousand_are_late_under_berate_where_parts_suffice_and_fifteen_where_they_nearly_do()
{
    for (number, most) in [(1, 0.003), (2, 0.003), (3, 0.003), (4, 0.003), (5, 0.015)] {
        let late = late_for(number, "berate", 600 * SEC);
        assert!(late <= most, "experiment {number}: {late}");
    }
}

/// All others may be where it is: that is no more than if it had all CPUs, but for the one.
#[test]
fn who_may_not_go_to_one_of_eight_cpus_is_in_time_as_often_as_who_may() {
    let late = |affinity: &str| {
        let text = format!(
            "name = \"bound\"\ncpus = 8\nduration = \"300s\"\nseed = 1\npolicies = [\"g-edf\"]\n\
             [[task]]\nname = \"srt\"\nperiod = \"40ms\"\nabort = \"at-deadline\"\n{affinity}\n\
             work = {{ normal = {{ mean = \"19ms\", sd = \"1.5ms\", max = \"30ms\" }} }}\n\
             [best_effort]\ncount = 16\norder = \"berate\"\n"
        );
        let set = TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap();
        let policy = CORE.iter().find(|p| p.name == "g-edf").unwrap();
        let (_, _, tasks) = figures(&set, policy).unwrap();
        let video = tasks.iter().find(|t| t.class != Class::BestEffort).unwrap();
        video.misses as f64 / video.jobs as f64
    };
    let (free, bound) = (late(""), late("affinity = [0, 1, 2, 3, 4, 5, 6]"));
    assert!(bound <= free + 0.01, "{bound} bound, {free} free");
}
