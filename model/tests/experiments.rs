// SPDX-License-Identifier: GPL-2.0-only
//! The files under experiments/ are what their names and comments say.

use std::path::{Path, PathBuf};

use onbeat_model::taskset::{TaskSet, Work};
use onbeat_model::units::{Fraction, MS};
use onbeat_model::workgen;

fn experiments() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files
}

fn load(path: &Path) -> TaskSet {
    TaskSet::load(path).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_experiment_loads_and_is_named_like_its_file() {
    let files = experiments();
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        assert_eq!(load(&file).name, file.file_stem().unwrap().to_str().unwrap());
    }
}

#[test]
fn a_decode_variant_differs_from_its_replay_only_in_work_and_duration() {
    for file in experiments() {
        let decode = load(&file);
        let Some(name) = decode.name.strip_suffix("-decode") else { continue };
        let replay = load(&file.with_file_name(format!("{name}.toml")));
        assert!(matches!(decode.tasks[0].work, Work::Movie { .. }), "{name}");
        assert!(matches!(replay.tasks[0].work, Work::Trace { .. }), "{name}");
        let mut same = decode.clone();
        same.name = replay.name.clone();
        same.title = replay.title.clone();
        same.duration = replay.duration;
        same.tasks[0].work = replay.tasks[0].work.clone();
        assert_eq!(same, replay);
    }
}

#[test]
fn the_movies_are_released_within_a_millisecond_and_reserve_less_than_the_machine() {
    for file in experiments() {
        let set = load(&file);
        if !set.name.starts_with("kato-") {
            continue;
        }
        let releases: Vec<u64> = set.copies().map(|c| c.first_release).collect();
        let spread = releases.iter().max().unwrap() - releases.iter().min().unwrap();
        assert!(spread < MS || set.name.ends_with("phases"), "{}", set.name);
        let reserved: Fraction = set.copies().map(|c| c.spec.utilization()).sum();
        let offered = (Fraction::from_integer(1) - set.best_effort_share) * u64::from(set.cpus);
        assert!(reserved <= offered, "{}: {reserved} of {offered} CPUs", set.name);
    }
}

#[test]
fn the_movie_trace_has_the_papers_shape() {
    // Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time applications",
    // figure 6: a majority of frames within 25 ms, the longest around 45 ms.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let set = load(&folder.join("kato-09.toml"));
    let times = workgen::execution_times(&set, &set.copies().next().unwrap()).unwrap();
    let within = times.iter().filter(|t| **t <= 25 * MS).count();
    assert!(within * 2 > times.len() && within < times.len());
    let longest = times.iter().max().unwrap();
    assert!((44 * MS..=46 * MS).contains(longest), "{longest}");
}
