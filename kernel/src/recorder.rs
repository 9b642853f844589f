// SPDX-License-Identifier: GPL-2.0-only
//! Writes the scheduler's events to a file: seldom, so as to disturb nothing.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use onbeat_core::ffi::ob_event;
use onbeat_model::event::{Event, EventKind};

use crate::arena::Arena;

/// A file of events, 40 bytes each.
#[derive(Debug)]
pub struct Recorder {
    out: BufWriter<File>,
    path: PathBuf,
}

impl Recorder {
    /// An empty file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        let mut how = OpenOptions::new();
        // It tells when the threads of all users run.
        let file = how
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot write events to {}", path.display()))?;
        Ok(Self { out: BufWriter::with_capacity(1 << 20, file), path: path.into() })
    }

    /// Takes over what waits in the ring once that is half full.
    ///
    /// # Errors
    /// The file cannot be written, for want of room perhaps.
    pub fn relieve(&mut self, arena: &mut Arena) -> Result<()> {
        if arena.waiting() * 2 < arena.shell().ob.ring_size {
            return Ok(());
        }
        self.drain(arena)
    }

    /// Takes over all that waits.
    fn drain(&mut self, arena: &mut Arena) -> Result<()> {
        let mut result = Ok(());
        arena.drain(|e| {
            if result.is_ok() {
                result = self.out.write_all(&event(e).to_bytes());
            }
        });
        result.with_context(|| format!("cannot write events to {}", self.path.display()))
    }

    /// Writes the rest, and how many events were lost, if any.
    ///
    /// # Errors
    /// As [`Recorder::relieve`].
    pub fn finish(mut self, arena: &mut Arena) -> Result<()> {
        self.drain(arena)?;
        let lost = arena.shell().ob.lost;
        let place = || format!("cannot write events to {}", self.path.display());
        if lost > 0 {
            let note = Event::new(monotonic(), EventKind::Lost, lost, 0);
            self.out.write_all(&note.to_bytes()).with_context(place)?;
        }
        self.out.flush().with_context(place)
    }
}

fn event(e: &ob_event) -> Event {
    Event { time: e.time, kind: e.kind, cpu: e.cpu, task: e.task, server: e.server, a: e.a, b: e.b }
}

/// CLOCK_MONOTONIC, ns, as the events carry it.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
