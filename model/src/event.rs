// SPDX-License-Identifier: GPL-2.0-only
//! The event every world writes: 40 bytes, little endian; `core/ob_event.h` is the same in C.
//! docs/events.md says what each kind means and where worlds differ.

use std::fmt;

/// `cpu`, `task` or `server` of an event that concerns none.
pub const NONE: u32 = u32::MAX;
/// Bytes of one event on disk and in the kernel's ring.
pub const EVENT_BYTES: usize = 40;

/// What happened; the numbers are the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum EventKind {
    /// A job is released; `a` its index, `b` its absolute deadline. The task's own view.
    Release = 1,
    /// The job with index `a` has finished after `b` ns of execution.
    Complete = 2,
    /// The task begins to run on `cpu`; `a` absolute server deadline or 0, `b` remaining budget or 0.
    Run = 3,
    /// The task stops running on `cpu`; `a` is a [`StopReason`].
    Stop = 4,
    /// The server becomes active; `a` budget, `b` server deadline.
    Activate = 5,
    /// The server has no more work; `a` budget left, `b` server deadline.
    Idle = 6,
    /// The budget reached zero; `b` server deadline.
    Exhaust = 7,
    /// `a` new budget, `b` new server deadline.
    Replenish = 8,
    /// A hard reservation waits; `b` time of replenishment.
    Throttle = 9,
    /// `a` ns of budget move from `server` to server `b` (FCBS).
    Donate = 10,
    /// `a` ns of bonus kept (`server` none) or given to `server` (FCBS).
    Bonus = 11,
    /// A saved pair comes back; `a` budget, `b` server deadline (FCBS).
    Restore = 12,
    /// The best-effort share takes (`a` = 1) or gives back (`a` = 0) the CPU.
    Share = 13,
    /// The CPU came (`a` = 1) or went (`a` = 0).
    Online = 14,
    /// The ring overflowed; `a` events are missing.
    Lost = 15,
    /// Total of a task at the end of a run; `a` CPU time, `b` = preemptions << 32 | migrations.
    Usage = 16,
    /// A thread of the task asks for resource `a`, which another holds, and waits; `b` index of its job.
    Block = 17,
    /// It waits for resource `a` no more: it has been given it (a Lock follows), or its job was aborted; `b` its job.
    Unblock = 18,
    /// A thread of the task takes resource `a`; `b` index of its job.
    Lock = 19,
    /// It releases resource `a`; `b` index of its job.
    Unlock = 20,
    /// The task goes on in the midst of job `a`, of which it has had `b` ns, after it had slept for a resource.
    Segment = 21,
    /// The job with index `a` is given up at its deadline after `b` ns of execution.
    Abort = 22,
    /// A best-effort load begins to run, `a` ns after it woke.
    Wake = 23,
    /// A chooser has planned the jobs of a queue (`server` the group whose it is, `cpu` the first of the domain): `a`
    /// are in the plan, `b` are left out.
    Plan = 24,
    /// A server whose budget was used up has had `a` ns of the slack of its domain (`cpu` its first); `b` its deadline.
    Lend = 25,
    /// All best-effort tasks together have had `a` ns of CPU time in whole second `b` of the run, from 0.
    BestEffort = 26,
}

impl EventKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [EventKind; 26] = [
        Self::Release,
        Self::Complete,
        Self::Run,
        Self::Stop,
        Self::Activate,
        Self::Idle,
        Self::Exhaust,
        Self::Replenish,
        Self::Throttle,
        Self::Donate,
        Self::Bonus,
        Self::Restore,
        Self::Share,
        Self::Online,
        Self::Lost,
        Self::Usage,
        Self::Block,
        Self::Unblock,
        Self::Lock,
        Self::Unlock,
        Self::Segment,
        Self::Abort,
        Self::Wake,
        Self::Plan,
        Self::Lend,
        Self::BestEffort,
    ];

    /// The kind with this number, if there is one.
    pub fn from_u32(n: u32) -> Option<Self> {
        Self::ALL.get((n as usize).checked_sub(1)?).copied()
    }
}

/// Why a task stopped running (`a` of [`EventKind::Stop`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum StopReason {
    /// Another task took the CPU.
    Preempted = 0,
    /// It waits for something, often its next release.
    Slept = 1,
    /// Its hard reservation is used up.
    Throttled = 2,
    /// It ended.
    Exited = 3,
}

impl StopReason {
    /// The reason with this number, if there is one.
    pub fn from_u64(n: u64) -> Option<Self> {
        [Self::Preempted, Self::Slept, Self::Throttled, Self::Exited]
            .get(usize::try_from(n).ok()?)
            .copied()
    }
}

/// One event. `kind` stays a number so that an unknown one survives being read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct Event {
    /// ns; CLOCK_MONOTONIC or simulated; relative to the run's origin once in a [`crate::run::Run`].
    pub time: u64,
    /// An [`EventKind`] as a number.
    pub kind: u32,
    /// CPU, or [`NONE`].
    pub cpu: u32,
    /// Task, or [`NONE`]; the index in `Run::tasks` once in a run.
    pub task: u32,
    /// Server, or [`NONE`].
    pub server: u32,
    /// See [`EventKind`].
    pub a: u64,
    /// See [`EventKind`].
    pub b: u64,
}

const _: () = assert!(size_of::<Event>() == EVENT_BYTES);

impl Event {
    /// An event that concerns no CPU, task or server yet.
    pub fn new(time: u64, kind: EventKind, a: u64, b: u64) -> Self {
        Self { time, kind: kind as u32, cpu: NONE, task: NONE, server: NONE, a, b }
    }

    /// The same event, about this CPU.
    pub fn on(mut self, cpu: u32) -> Self {
        self.cpu = cpu;
        self
    }

    /// The same event, about this task.
    pub fn of(mut self, task: u32) -> Self {
        self.task = task;
        self
    }

    /// The same event, about this server.
    pub fn by(mut self, server: u32) -> Self {
        self.server = server;
        self
    }

    /// The same event with its time, and those that its kind tells of, relative to `origin`. A deadline before that is
    /// at 1, for 0 is none.
    pub fn since(mut self, origin: u64) -> Self {
        let told = match self.kind() {
            Some(EventKind::Run) => Some(&mut self.a),
            Some(
                EventKind::Release
                | EventKind::Activate
                | EventKind::Idle
                | EventKind::Exhaust
                | EventKind::Replenish
                | EventKind::Throttle
                | EventKind::Restore
                | EventKind::Lend,
            ) => Some(&mut self.b),
            _ => None,
        };
        if let Some(told) = told.filter(|time| **time > 0) {
            *told = told.saturating_sub(origin).max(1);
        }
        self.time = self.time.saturating_sub(origin);
        self
    }

    /// The kind, unless it is one this version does not know.
    pub fn kind(&self) -> Option<EventKind> {
        EventKind::from_u32(self.kind)
    }

    /// The wire format.
    pub fn to_bytes(&self) -> [u8; EVENT_BYTES] {
        let mut out = [0; EVENT_BYTES];
        out[0..8].copy_from_slice(&self.time.to_le_bytes());
        out[8..12].copy_from_slice(&self.kind.to_le_bytes());
        out[12..16].copy_from_slice(&self.cpu.to_le_bytes());
        out[16..20].copy_from_slice(&self.task.to_le_bytes());
        out[20..24].copy_from_slice(&self.server.to_le_bytes());
        out[24..32].copy_from_slice(&self.a.to_le_bytes());
        out[32..40].copy_from_slice(&self.b.to_le_bytes());
        out
    }

    /// Reads the wire format; any 40 bytes are an event, perhaps of unknown kind.
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES]) -> Self {
        let u32_at = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().expect("4 bytes"));
        let u64_at = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().expect("8 bytes"));
        Self {
            time: u64_at(0),
            kind: u32_at(8),
            cpu: u32_at(12),
            task: u32_at(16),
            server: u32_at(20),
            a: u64_at(24),
            b: u64_at(32),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |n: u32| if n == NONE { "-".to_string() } else { n.to_string() };
        match self.kind() {
            Some(kind) => write!(f, "{:>14} {kind:?}", self.time)?,
            None => write!(f, "{:>14} kind {}", self.time, self.kind)?,
        }
        let (cpu, task, server) = (id(self.cpu), id(self.task), id(self.server));
        write!(f, " cpu={cpu} task={task} server={server} a={} b={}", self.a, self.b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_keep_their_numbers() {
        for (i, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(*kind as u32, i as u32 + 1);
            assert_eq!(EventKind::from_u32(*kind as u32), Some(*kind));
        }
        assert_eq!(EventKind::from_u32(0), None);
        assert_eq!(EventKind::from_u32(27), None);
        assert_eq!(StopReason::from_u64(3), Some(StopReason::Exited));
        assert_eq!(StopReason::from_u64(4), None);
    }

    #[test]
    fn the_wire_format_is_little_endian_in_the_documented_order() {
        let event = Event::new(1, EventKind::Complete, 5, 6).on(2).of(3).by(4);
        let bytes = event.to_bytes();
        for (offset, value) in [(0, 1), (8, 2), (12, 2), (16, 3), (20, 4), (24, 5), (32, 6)] {
            assert_eq!(bytes[offset], value, "at {offset}");
        }
        assert_eq!(bytes.iter().map(|b| u32::from(*b)).sum::<u32>(), 1 + 2 + 2 + 3 + 4 + 5 + 6);
    }

    proptest! {
        #[test]
        fn any_forty_bytes_survive_reading_and_writing(bytes in any::<[u8; EVENT_BYTES]>()) {
            let event = Event::from_bytes(&bytes);
            prop_assert_eq!(event.to_bytes(), bytes);
            let _ = event.to_string();
        }
    }
}
