// SPDX-License-Identifier: GPL-2.0-only
//! Collects tracks and their events, and writes them in order of time.

use std::collections::BTreeMap;
use std::io::{self, Write};

use onbeat_model::units::format_duration;
use prost::Message;

use super::proto::{
    CounterDescriptor, DebugAnnotation, EventType, Trace as File, TracePacket, TrackDescriptor,
    TrackEvent,
};

const EXPLICIT_ORDER: i32 = 3;
const UNIT_TIME_NS: i32 = 1;

/// A named detail of an event.
#[derive(Clone)]
pub(super) struct Arg(DebugAnnotation);

impl Arg {
    pub fn number(name: &str, value: u64) -> Self {
        let name = Some(name.into());
        Self(DebugAnnotation { name, uint_value: Some(value), string_value: None })
    }

    /// Times are written for people; the UI shows numbers without unit.
    pub fn time(name: &str, ns: u64) -> Self {
        Self::text(name, format_duration(ns))
    }

    pub fn text(name: &str, value: String) -> Self {
        let name = Some(name.into());
        Self(DebugAnnotation { name, uint_value: None, string_value: Some(value) })
    }
}

/// The trace while it is built. Track 0 is Perfetto's own, so ours begin at 1.
#[derive(Default)]
pub(super) struct Trace {
    tracks: Vec<TrackDescriptor>,
    events: Vec<(u64, TrackEvent)>,
    /// Number of open slices by track.
    open: BTreeMap<u64, u32>,
}

impl Trace {
    fn declare(&mut self, parent: Option<u64>, name: &str, counter: bool) -> u64 {
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.push(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.into()),
            parent_uuid: parent,
            counter: counter.then_some(CounterDescriptor { unit: Some(UNIT_TIME_NS) }),
            child_ordering: Some(EXPLICIT_ORDER),
            sibling_order_rank: Some(i32::try_from(uuid).unwrap_or(i32::MAX)),
        });
        uuid
    }

    /// A track that only holds others.
    pub fn group(&mut self, parent: Option<u64>, name: &str) -> u64 {
        self.declare(parent, name, false)
    }

    /// A track of slices and instants.
    pub fn track(&mut self, parent: u64, name: &str) -> u64 {
        self.declare(Some(parent), name, false)
    }

    /// A counter of ns.
    pub fn counter(&mut self, parent: u64, name: &str) -> u64 {
        self.declare(Some(parent), name, true)
    }

    fn push(&mut self, time: u64, track: u64, kind: EventType, args: Vec<Arg>) -> &mut TrackEvent {
        let event = TrackEvent {
            debug_annotations: args.into_iter().map(|a| a.0).collect(),
            r#type: Some(kind as i32),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.events.push((time, event));
        &mut self.events.last_mut().expect("just pushed").1
    }

    pub fn begin(&mut self, time: u64, track: u64, name: &str, args: Vec<Arg>) {
        *self.open.entry(track).or_default() += 1;
        self.push(time, track, EventType::SliceBegin, args).name = Some(name.into());
    }

    pub fn end(&mut self, time: u64, track: u64, args: Vec<Arg>) {
        let open = self.open.entry(track).or_default();
        debug_assert!(*open > 0, "a slice ends that did not begin");
        *open = open.saturating_sub(1);
        self.push(time, track, EventType::SliceEnd, args);
    }

    pub fn is_open(&self, track: u64) -> bool {
        self.open.get(&track).is_some_and(|n| *n > 0)
    }

    pub fn instant(&mut self, time: u64, track: u64, name: &str, args: Vec<Arg>) {
        self.push(time, track, EventType::Instant, args).name = Some(name.into());
    }

    pub fn flow_from(&mut self, time: u64, track: u64, name: &str, args: Vec<Arg>, flow: u64) {
        let event = self.push(time, track, EventType::Instant, args);
        event.name = Some(name.into());
        event.flow_ids.push(flow);
    }

    pub fn flow_to(&mut self, time: u64, track: u64, name: &str, args: Vec<Arg>, flow: u64) {
        let event = self.push(time, track, EventType::Instant, args);
        event.name = Some(name.into());
        event.terminating_flow_ids.push(flow);
    }

    pub fn count(&mut self, time: u64, track: u64, ns: u64) {
        let value = i64::try_from(ns).unwrap_or(i64::MAX);
        self.push(time, track, EventType::Counter, vec![]).counter_value = Some(value);
    }

    /// Writes descriptors, then events in order of time; simultaneous ones stay in the order they came.
    pub fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut put = |packet: TracePacket| {
            buffer.clear();
            File { packet: vec![packet] }.encode(&mut buffer).map_err(io::Error::other)?;
            out.write_all(&buffer)
        };
        for track in self.tracks {
            put(TracePacket { track_descriptor: Some(track), ..packet(None) })?;
        }
        self.events.sort_by_key(|(time, _)| *time);
        for (time, event) in self.events {
            put(TracePacket { track_event: Some(event), ..packet(Some(time)) })?;
        }
        Ok(())
    }
}

fn packet(timestamp: Option<u64>) -> TracePacket {
    TracePacket {
        timestamp,
        trusted_packet_sequence_id: Some(1),
        track_event: None,
        track_descriptor: None,
    }
}
