// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::run::{Platform, TaskInfo, World};
use crate::units::MS;
use proptest::prelude::*;

pub(super) fn task(name: &str, class: Class, period: u64) -> TaskInfo {
    let (entry, copy, budget, tid) = (0, 0, 0, 0);
    TaskInfo { name: name.into(), entry, copy, class, period, deadline: period, budget, tid }
}

pub(super) fn run(tasks: Vec<TaskInfo>, events: Vec<Event>, horizon_ns: u64) -> Run {
    Run {
        world: World::Sim,
        policy: "g-edf".into(),
        platform: Platform::default(),
        tasks,
        resources: Vec::new(),
        events,
        origin_ns: 0,
        horizon_ns,
    }
}

fn release(task: u32, job: u64, time: u64, deadline: u64) -> Event {
    Event::new(time, EventKind::Release, job, deadline).of(task)
}

fn complete(task: u32, job: u64, time: u64) -> Event {
    Event::new(time, EventKind::Complete, job, 1).of(task)
}

fn one(events: Vec<Event>, horizon_ms: u64) -> (Metrics, Vec<TaskMetrics>) {
    detailed(&run(vec![task("a", Class::Reserved, 10 * MS)], events, horizon_ms * MS))
}

#[test]
fn a_job_that_finishes_at_its_deadline_is_in_time_and_one_later_is_not() {
    let events = vec![
        release(0, 0, 0, 10 * MS),
        complete(0, 0, 10 * MS),
        release(0, 1, 10 * MS, 20 * MS),
        complete(0, 1, 20 * MS + 1),
    ];
    let (m, _) = one(events, 100);
    assert_eq!((m.jobs, m.misses, m.miss_ratio), (2, 1, 0.5));
    assert_eq!(m.tardiness_max_ms, 1e-6);
    assert_eq!(m.response_max_ms, 10.000001);
}

#[test]
fn an_aborted_job_is_missed_and_neither_late_nor_unfinished_and_has_no_times() {
    let abort = Event::new(20 * MS, EventKind::Abort, 1, 3 * MS).of(0);
    let events = vec![
        release(0, 0, 0, 10 * MS),
        complete(0, 0, 4 * MS),
        release(0, 1, 10 * MS, 20 * MS),
        abort,
        abort, // once only
        release(0, 2, 20 * MS, 30 * MS),
    ];
    let (m, tasks) = one(events, 100);
    assert_eq!((m.jobs, m.misses, m.aborted, m.unfinished, m.anomalies), (3, 2, 1, 1, 1));
    assert_eq!((tasks[0].aborted, m.tardiness_max_ms), (1, 70.0));
    // Of 4 and 80 ms.
    assert_eq!(m.response_mean_ms, Some(42.0));
}

#[test]
fn waits_and_wakes_are_summed_up_and_what_is_open_at_the_end_counts_until_then() {
    let at = |ms: u64, kind, a, task| Event::new(ms * MS, kind, a, 0).of(task);
    let events = vec![
        at(1, EventKind::Block, 0, 0),
        at(2, EventKind::Block, 1, 0), // another thread
        at(4, EventKind::Unblock, 0, 0),
        at(5, EventKind::Wake, 2 * MS, 1),
        at(6, EventKind::Wake, 4 * MS, 1),
    ];
    let tasks = vec![task("a", Class::Reserved, 10 * MS), task("ed", Class::BestEffort, 0)];
    let (m, tasks) = detailed(&run(tasks, events, 10 * MS));
    assert_eq!((m.blocks, m.blocked_ms, m.blocked_max_ms), (2, 11.0, 8.0));
    let ed = &tasks[1];
    assert_eq!((ed.wakes, ed.wake_mean_ms, ed.wake_p99_ms, ed.wake_max_ms), (2, 3.0, 4.0, 4.0));
    assert_eq!((m.wakes, m.wake_max_ms, tasks[0].wakes), (2, 4.0, 0));
}

#[test]
fn unfinished_jobs_are_missed_only_if_their_deadline_was_seen() {
    let at =
        |horizon| one(vec![release(0, 0, 0, 10 * MS), release(0, 1, 10 * MS, 20 * MS)], horizon).0;
    let m = at(19);
    assert_eq!((m.released, m.jobs, m.misses, m.unfinished), (2, 1, 1, 1));
    assert_eq!(m.tardiness_max_ms, 9.0);
    let m = at(20);
    assert_eq!((m.released, m.jobs, m.misses, m.unfinished), (2, 2, 2, 2));
}

#[test]
fn a_run_without_jobs_has_no_figures_but_does_not_divide_by_zero() {
    let m = metrics(&run(vec![], vec![], 0));
    assert_eq!((m.jobs, m.miss_ratio, m.worst_fps, m.best_effort_cpus), (0, 0.0, None, 0.0));
    let json = serde_json::to_string(&m).unwrap();
    assert!(!json.contains("NaN"), "{json}");
}

#[test]
fn the_percentile_is_the_nearest_rank() {
    let events = |n: u64| {
        (0..n).flat_map(|j| [release(0, j, 0, 0), complete(0, j, (j + 1) * MS)]).collect::<Vec<_>>()
    };
    assert_eq!(one(events(100), 1000).0.tardiness_p99_ms, 99.0);
    assert_eq!(one(events(101), 1000).0.tardiness_p99_ms, 100.0);
    assert_eq!(one(events(1), 1000).0.tardiness_p99_ms, 1.0);
}

#[test]
fn contradicting_events_are_counted_and_not_used() {
    let events = vec![
        complete(0, 7, 5),
        release(0, 0, 10, 20),
        release(0, 0, 11, 21),
        complete(0, 0, 15),
        complete(0, 0, 16),
        complete(9, 0, 17),
        release(9, 0, 18, 19),
        Event { kind: 99, ..Event::new(0, EventKind::Lost, 0, 0) },
    ];
    let (m, _) = one(events, 1);
    assert_eq!((m.jobs, m.misses, m.anomalies), (1, 0, 5));
}

#[test]
fn the_order_of_the_events_in_the_list_does_not_matter() {
    let mut events = vec![
        release(0, 0, 0, 10 * MS),
        Event::new(0, EventKind::Run, 0, 0).of(0).on(1),
        Event::new(3 * MS, EventKind::Stop, 0, 0).of(0).on(1),
        Event::new(4 * MS, EventKind::Run, 0, 0).of(0).on(2),
        Event::new(5 * MS, EventKind::Stop, 1, 0).of(0).on(2),
        complete(0, 0, 5 * MS),
    ];
    let forward = one(events.clone(), 10);
    events.reverse();
    assert_eq!(one(events, 10), forward);
    assert_eq!(forward.1[0].cpu_ms, 4.0);
    assert_eq!((forward.0.preemptions, forward.0.migrations), (1.0, 1.0));
}

#[test]
fn totals_reported_by_the_world_beat_the_switches() {
    let tasks = vec![task("a", Class::Reserved, MS), task("hog", Class::BestEffort, 0)];
    let events = vec![
        release(0, 0, 0, MS),
        Event::new(0, EventKind::Run, 0, 0).of(1).on(0),
        complete(0, 0, MS),
        Event::new(10 * MS, EventKind::Usage, 4 * MS, 3 << 32 | 2).of(0),
        Event::new(10 * MS, EventKind::Usage, 5 * MS, 1 << 32).of(1),
    ];
    let m = metrics(&run(tasks, events, 10 * MS));
    assert_eq!((m.best_effort_cpus, m.reserved_cpus), (0.5, 0.4));
    assert_eq!((m.preemptions, m.migrations), (3.0, 2.0));
}

#[test]
fn the_least_of_best_effort_is_that_of_the_seconds_that_were_counted() {
    let second =
        |k: u64, ms: u64| Event::new((k + 1) * 1000 * MS, EventKind::BestEffort, ms * MS, k);
    let hog = || vec![task("hog", Class::BestEffort, 0)];
    let m = metrics(&run(hog(), vec![second(0, 900), second(1, 250), second(2, 400)], 3500 * MS));
    assert_eq!(m.best_effort_least_cpus, Some(0.25));
    assert_eq!(metrics(&run(hog(), vec![], 3500 * MS)).best_effort_least_cpus, None);
}

#[test]
fn cpu_time_of_a_job_is_the_mean_of_those_that_finished() {
    let mut events =
        vec![release(0, 0, 0, MS), release(0, 1, MS, 2 * MS), release(0, 2, 2 * MS, 3 * MS)];
    for (job, used) in [(0, 400_000), (1, 700_000)] {
        events.push(Event::new((job + 1) * MS, EventKind::Complete, job, used).of(0));
    }
    assert_eq!(one(events, 3).0.cpu_per_job_us, Some(550.0));
}

#[test]
fn a_task_still_running_at_the_horizon_is_charged_until_there() {
    let tasks = vec![task("hog", Class::BestEffort, 0)];
    let events = vec![Event::new(2 * MS, EventKind::Run, 0, 0).of(0).on(0)];
    assert_eq!(metrics(&run(tasks, events, 8 * MS)).best_effort_cpus, 0.75);
}

#[test]
fn donations_are_booked_to_giver_and_receiver() {
    let tasks = vec![task("a", Class::Reserved, MS), task("b", Class::Reserved, MS)];
    let events = vec![
        Event::new(0, EventKind::Activate, 5, 9).of(0).by(100),
        Event::new(0, EventKind::Activate, 5, 9).of(1).by(200),
        Event::new(1, EventKind::Donate, 2 * MS, 200).by(100),
        Event::new(2, EventKind::Bonus, MS, 0),
        Event::new(3, EventKind::Bonus, MS, 0).by(100),
        Event::new(4, EventKind::Exhaust, 0, 9).by(200),
        Event::new(5, EventKind::Share, 1, 0).on(0),
        Event::new(5 + MS, EventKind::Share, 0, 0).on(0),
        Event::new(6 + MS, EventKind::Lost, 12, 0),
    ];
    let (m, t) = detailed(&run(tasks, events, 10 * MS));
    assert_eq!((m.donations, m.donated_ms, m.bonus_ms, m.share_ms), (1, 2.0, 1.0, 1.0));
    assert_eq!((t[0].donated_ms, t[1].received_ms, t[1].exhaustions), (2.0, 2.0, 1));
    assert_eq!((m.exhaustions, m.lost_events), (1, 12));
}

#[test]
fn frames_are_counted_by_the_second_and_in_the_worst_window() {
    // 25 frames a second, each done 5 ms after its release, but those of the second second come in its last half.
    let period = 40 * MS;
    let mut events = Vec::new();
    for j in 0..75u64 {
        let r = j * period;
        let done = if (25..50).contains(&j) { SEC + SEC / 2 + j * 10 * MS } else { r + 5 * MS };
        events.push(release(0, j, r, r + period));
        events.push(complete(0, j, done));
    }
    let m = metrics(&run(vec![task("movie", Class::Reserved, period)], events, 4 * SEC));
    let worst: Vec<u32> = m.fps_per_second.iter().map(|s| s.worst).collect();
    assert_eq!(worst, [25, 25, 25]);
    assert_eq!((m.mean_fps, m.fps_sd), (Some(25.0), Some(0.0)));
    // From just after the frame at 0.725 s to 1.725 s: only those at 0.765 to 0.965 s.
    assert_eq!(m.worst_fps, Some(6));
}

#[test]
fn without_a_whole_second_there_is_no_mean_of_frames_a_second() {
    let events = vec![release(0, 0, 0, 10 * MS), complete(0, 0, 4 * MS)];
    let (m, t) = one(events, 900);
    assert_eq!((m.mean_fps, m.fps_sd, t[0].mean_fps, t[0].fps_sd), (None, None, None, None));
    assert!(m.fps_per_second.is_empty() && m.tardiness_mean_ms.is_some());
}

#[test]
fn relative_jitter_is_the_change_of_response_time() {
    let events = vec![
        release(0, 0, 0, 10 * MS),
        complete(0, 0, 4 * MS),
        release(0, 1, 10 * MS, 20 * MS),
        complete(0, 1, 17 * MS),
        release(0, 2, 20 * MS, 30 * MS),
        complete(0, 2, 26 * MS),
    ];
    let (m, _) = one(events, 30);
    assert_eq!((m.jitter_mean_ms, m.jitter_max_ms), (Some(2.0), 3.0));
}

#[test]
fn tasks_of_different_periods_have_figures_each_but_no_mean_of_them_all() {
    let events = |late| {
        let done = 2 * SEC + 9 * MS;
        let slow = (0..4).flat_map(|j| {
            let r = j * SEC / 2;
            [release(0, j, r, r + SEC / 2), complete(0, j, r + 5 * MS)]
        });
        slow.chain([release(1, 0, late, 3 * SEC), complete(1, 0, done)]).collect::<Vec<_>>()
    };
    let of = |period| {
        let tasks = vec![
            task("a", Class::Reserved, SEC / 2),
            task("b", Class::Reserved, period),
            task("hog", Class::BestEffort, 0),
        ];
        detailed(&run(tasks, events(MS), 3 * SEC))
    };
    let (same, _) = of(SEC / 2);
    let (different, tasks) = of(SEC / 4);
    let json = |m: &Metrics| serde_json::to_value(m).unwrap();
    let means = [
        "mean_fps",
        "fps_sd",
        "tardiness_mean_ms",
        "response_mean_ms",
        "jitter_mean_ms",
        "cpu_per_job_us",
    ];
    for name in means {
        assert!(json(&same)[name].is_number() && json(&different)[name].is_null(), "{name}");
    }
    assert!(!same.fps_per_second.is_empty() && different.fps_per_second.is_empty());
    assert_eq!((different.jobs, different.misses), (5, 0));
    assert_eq!(tasks[0].response_mean_ms, 5.0);
}

/// The definition, word for word, over every window.
fn brute_force(times: &[u64], start: u64, end: u64, window: u64) -> Option<u32> {
    (start..=end)
        .filter(|s| s + window <= end)
        .map(|s| times.iter().filter(|t| (s..s + window).contains(t)).count() as u32)
        .min()
}

proptest! {
    #[test]
    fn the_sliding_window_finds_the_least_count_of_all_windows(
        mut times in proptest::collection::vec(0u64..120, 0..40),
        start in 0u64..60, length in 0u64..80, window in 1u64..50,
    ) {
        times.sort_unstable();
        let end = start + length;
        prop_assert_eq!(
            least_in_window(&times, start, end, window),
            brute_force(&times, start, end, window)
        );
    }

    #[test]
    fn misses_and_tardiness_agree_with_counting_them_one_by_one(
        jobs in proptest::collection::vec((0u64..50, 1u64..30, proptest::option::of(0u64..80)), 0..60),
        horizon in 0u64..100,
    ) {
        let mut events = Vec::new();
        let mut late = Vec::new();
        let mut misses = 0;
        for (j, (r, d, response)) in jobs.iter().enumerate() {
            let deadline = r + d;
            events.push(release(0, j as u64, *r, deadline));
            match response {
                Some(x) => {
                    events.push(complete(0, j as u64, r + x));
                    late.push((r + x).saturating_sub(deadline));
                    misses += u64::from(r + x > deadline);
                }
                None if deadline <= horizon => {
                    late.push(horizon - deadline);
                    misses += 1;
                }
                None => {}
            }
        }
        let m = metrics(&run(vec![task("a", Class::Periodic, 10)], events, horizon));
        late.sort_unstable();
        prop_assert_eq!(m.jobs, late.len() as u64);
        prop_assert_eq!(m.misses, misses);
        prop_assert_eq!(m.anomalies, 0);
        let max = late.last().copied().unwrap_or(0);
        prop_assert_eq!(m.tardiness_max_ms, max as f64 / 1e6);
        // 99 % or more of the jobs are no later than the percentile, and it is the least such value.
        let p99 = (m.tardiness_p99_ms * 1e6).round() as u64;
        let within = |limit: u64| late.iter().filter(|l| **l <= limit).count() * 100;
        prop_assert!(within(p99) >= late.len() * 99);
        prop_assert!(p99 == 0 || late.is_empty() || within(p99 - 1) < late.len() * 99);
    }

    #[test]
    fn no_event_list_makes_the_metrics_panic(
        raw in proptest::collection::vec(
            (any::<u64>(), 0u32..27, any::<u32>(), 0u32..4, 0u32..4, any::<u64>(), any::<u64>()), 0..80),
        horizon in any::<u64>(), small in any::<bool>(),
    ) {
        let events = raw.into_iter().map(|(time, kind, cpu, task, server, a, b)| {
            let a = if small { a % 5 } else { a };
            Event { time: if small { time % 100 } else { time }, kind, cpu, task, server, a, b }
        });
        let tasks = vec![task("a", Class::Reserved, 10), task("b", Class::BestEffort, u64::MAX)];
        let m = metrics(&run(tasks, events.collect(), horizon));
        prop_assert!(m.misses <= m.jobs && m.jobs <= m.released);
    }
}
