// SPDX-License-Identifier: GPL-2.0-only
use std::collections::BTreeSet;

use super::proto::{EventType, Trace as File, TracePacket, TrackEvent};
use super::*;
use crate::outcome::tests::sample;
use onbeat_model::run::World;
use proptest::prelude::*;
use prost::Message;

fn decode(run: &Run) -> File {
    let mut bytes = Vec::new();
    write(run, &mut bytes).unwrap();
    File::decode(&bytes[..]).unwrap()
}

fn events(file: &File) -> impl Iterator<Item = (&TracePacket, &TrackEvent)> {
    file.packet.iter().filter_map(|p| p.track_event.as_ref().map(|e| (p, e)))
}

/// Declared before use, in order of time, every slice closed, nothing after the horizon, flows with two ends.
fn check(file: &File, horizon: u64) {
    let mut declared = BTreeSet::new();
    let mut counters = BTreeSet::new();
    let mut open: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut last, mut flows) = (0, BTreeSet::new());
    for packet in &file.packet {
        assert!(packet.trusted_packet_sequence_id.is_some());
        if let Some(track) = &packet.track_descriptor {
            let uuid = track.uuid.unwrap();
            assert!(uuid != 0 && declared.insert(uuid), "track {uuid} declared twice");
            assert!(track.parent_uuid.is_none_or(|p| declared.contains(&p)));
            if track.counter.is_some() {
                counters.insert(uuid);
            }
        }
        let Some(event) = &packet.track_event else { continue };
        let (time, track) = (packet.timestamp.unwrap(), event.track_uuid.unwrap());
        assert!(time >= last && time <= horizon, "{last} {time} {horizon}");
        last = time;
        assert!(declared.contains(&track), "track {track} not declared");
        assert_eq!(counters.contains(&track), event.r#type() == EventType::Counter);
        match event.r#type() {
            EventType::SliceBegin => {
                *open.entry(track).or_default() += 1;
                assert_eq!(open[&track], 1, "slices overlap on track {track}");
            }
            EventType::SliceEnd => {
                let n = open.get_mut(&track).unwrap();
                *n = n.checked_sub(1).expect("an end without a begin");
            }
            EventType::Instant => assert!(event.name.is_some()),
            EventType::Counter => assert!(event.counter_value.unwrap() >= 0),
            EventType::Unspecified => panic!("an event without type"),
        }
        flows.extend(event.flow_ids.iter().copied());
        assert!(event.terminating_flow_ids.iter().all(|f| flows.contains(f)));
    }
    assert!(open.values().all(|n| *n == 0), "open slices at the end");
}

#[test]
fn the_trace_is_well_formed() {
    let run = sample("g-edf+fcbs", World::Lab, 2);
    check(&decode(&run), run.horizon_ns);
}

#[test]
fn cpus_tasks_jobs_and_budgets_have_tracks() {
    let file = decode(&sample("g-edf+fcbs", World::Lab, 1));
    let names: Vec<&str> =
        file.packet.iter().filter_map(|p| p.track_descriptor.as_ref()?.name.as_deref()).collect();
    for name in [
        "CPU 0",
        "CPU 2",
        "CPU 2 best-effort share",
        "movie-0 (25ms every 41ms)",
        "jobs",
        "budget",
        "hog",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

#[test]
fn what_happens_is_shown_as_often_as_it_happened() {
    let run = sample("g-edf+fcbs", World::Lab, 2);
    let file = decode(&run);
    let shown = |name: &str| events(&file).filter(|(_, e)| e.name.as_deref() == Some(name)).count();
    let happened = |kind| run.events.iter().filter(|e| e.kind() == Some(kind)).count();
    assert_eq!(shown("release"), happened(EventKind::Release));
    assert_eq!(shown("deadline"), happened(EventKind::Release));
    assert_eq!(shown("exhaust"), happened(EventKind::Exhaust));
    assert_eq!(shown("replenish"), happened(EventKind::Replenish));
    assert_eq!(shown("donate"), happened(EventKind::Donate));
    assert_eq!(shown("receive"), happened(EventKind::Donate));
    assert_eq!(shown("best-effort share"), 1);
    assert_eq!(shown("late"), 9);
    let jobs =
        events(&file).filter(|(_, e)| e.name.as_deref().is_some_and(|n| n.starts_with("job ")));
    assert_eq!(jobs.count(), happened(EventKind::Release));
}

#[test]
fn the_budget_counts_down_while_a_task_runs() {
    let run = sample("g-edf+fcbs", World::Lab, 1);
    let file = decode(&run);
    let budget = file
        .packet
        .iter()
        .find_map(|p| p.track_descriptor.as_ref().filter(|t| t.name.as_deref() == Some("budget")))
        .and_then(|t| t.uuid);
    let values: Vec<(u64, i64)> = events(&file)
        .filter(|(_, e)| e.track_uuid == budget)
        .map(|(p, e)| (p.timestamp.unwrap() / 1_000_000, e.counter_value.unwrap() / 1_000_000))
        .take(4)
        .collect();
    assert_eq!(values, [(0, 25), (0, 25), (20, 5), (41, 25)]);
}

#[test]
fn threads_that_run_at_once_and_who_holds_what_have_tracks_of_their_own() {
    let mut run = sample("g-edf", World::Sim, 1);
    run.resources = vec!["bus".into()];
    let on = |time, kind, cpu| Event::new(time, kind, 0, 0).of(0).on(cpu);
    run.events = vec![
        on(0, EventKind::Run, 0),
        on(1, EventKind::Run, 1),
        Event::new(2, EventKind::Lock, 0, 7).of(0),
        Event::new(3, EventKind::Block, 0, 8).of(1),
        Event::new(4, EventKind::Unlock, 0, 7).of(0),
        on(5, EventKind::Stop, 0),
        on(6, EventKind::Stop, 1),
    ];
    let file = decode(&run);
    check(&file, run.horizon_ns);
    let named = |name: &str| {
        let track = |p: &TracePacket| p.track_descriptor.as_ref()?.name.clone();
        file.packet.iter().filter(|p| track(p).as_deref() == Some(name)).count()
    };
    assert_eq!((named("running, thread 2"), named("bus")), (1, 1));
    let begins = events(&file).filter(|(_, e)| e.r#type() == EventType::SliceBegin);
    assert_eq!(begins.count(), 5, "each thread on its CPU and its own track, and the bus");
    let waits = |e: &TrackEvent| e.name.as_deref() == Some("waits for bus");
    assert_eq!(events(&file).filter(|(_, e)| waits(e)).count(), 1);
}

proptest! {
    #[test]
    fn any_events_make_a_well_formed_trace(
        raw in proptest::collection::vec(
            (0u64..120, 0u32..25, 0u32..4, 0u32..5, 9u32..13, 0u64..14, 0u64..130), 0..150),
    ) {
        let mut run = sample("g-edf", World::Sim, 1);
        run.horizon_ns = 100;
        run.resources = vec!["bus".into(), "disk".into()];
        run.events = raw
            .into_iter()
            .map(|(time, kind, cpu, task, server, a, b)| {
                let task = if task == 4 { NONE } else { task };
                Event { time, kind, cpu, task, server, a, b }
            })
            .collect();
        check(&decode(&run), 100);
    }
}
