// SPDX-License-Identifier: GPL-2.0-only
//! A task that shows what another one decodes waits for its frames, and that one for room.

use onbeat_model::event::{Event, EventKind};
use onbeat_model::metrics::{TaskMetrics, detailed};
use onbeat_model::policy::CORE;
use onbeat_model::run::Run;
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::MS;
use onbeat_sim::simulate;

/// Two tasks of 10 ms periods and a queue between them. `decode`: ms of each job; `show`: of each job, too.
fn play(cpus: u32, decode: &[u64], queue: u32, more: &str, show: u32) -> (Run, Vec<TaskMetrics>) {
    let folder = tempfile::tempdir().unwrap();
    let times: String = decode.iter().map(|ms| format!("{}\n", ms * MS)).collect();
    std::fs::write(folder.path().join("t.csv"), times).unwrap();
    let text = format!(
        "cpus = {cpus}\nduration = \"{}ms\"\npolicies = [\"g-edf\"]\n[[task]]\nname = \"decode\"\nperiod = \"10ms\"\n\
         {more}\nwork = {{ trace = \"t.csv\" }}\n[[task]]\nname = \"display\"\nperiod = \"10ms\"\n\
         frames_from = \"decode\"\nqueue = {queue}\n{more}\nwork = {{ constant = \"{show}ms\" }}\n",
        10 * decode.len()
    );
    let set = TaskSet::from_bytes(text.as_bytes(), &folder.path().join("s.toml")).unwrap();
    let policy = CORE.iter().find(|p| p.name == "g-edf").unwrap();
    let run = simulate(&set, policy).unwrap();
    let tasks = detailed(&run).1;
    (run, tasks)
}

fn ends(run: &Run, task: u32) -> Vec<u64> {
    let ends = |e: &&Event| e.task == task && e.kind() == Some(EventKind::Complete);
    run.events.iter().filter(ends).map(|e| e.time / MS).collect()
}

#[test]
fn a_display_waits_for_a_frame_that_the_queue_does_not_cover_and_shows_it_at_once() {
    // With a queue of one, job j decodes frame j + 2.
    let (run, tasks) = play(2, &[35, 2, 1, 1, 1, 1], 1, "budget = \"10ms\"", 1);
    assert_eq!(ends(&run, 0), [35, 37, 38, 39, 41, 51]);
    // Frames 0 and 1 are there; frame 2, due at 20, comes at 35, and frame 3, due at 30, at 37.
    assert_eq!(ends(&run, 1), [1, 11, 36, 38, 41, 51]);
    let (decode, display) = (&tasks[0], &tasks[1]);
    assert_eq!((display.misses, display.tardiness_max_ms), (1, 6.0));
    assert_eq!((display.blocks, display.blocked_max_ms), (2, 15.0));
    // The paper's relative jitter: |36 - (11 + 10)|, |38 - 46|, |41 - 48|, and twice 0.
    assert!((display.jitter_mean_ms - (15.0 + 8.0 + 7.0) / 5.0).abs() < 1e-9, "{display:?}");
    assert!(decode.misses > 0 && display.owed_late == 0, "who waits for a frame was owed nothing");
}

#[test]
fn a_longer_queue_hides_the_same_late_job() {
    let (run, tasks) = play(2, &[35, 2, 1, 1, 1, 1], 3, "budget = \"10ms\"", 1);
    assert_eq!(ends(&run, 1), [1, 11, 21, 31, 41, 51]);
    assert_eq!((tasks[1].misses, tasks[1].blocks, tasks[1].jitter_max_ms), (0, 0, 0.0));
}

#[test]
fn a_decoder_waits_while_the_frame_before_is_not_shown() {
    // Showing takes longer than a period on a CPU of its own, decoding next to nothing.
    let (run, tasks) = play(2, &[1, 1, 1, 1], 1, "", 13);
    assert_eq!(ends(&run, 1), [13, 26, 39, 52]);
    // Job j begins when frame j - 1 has been shown.
    assert_eq!(ends(&run, 0), [1, 14, 27, 40]);
    assert_eq!(tasks[0].blocks, 3);
}
