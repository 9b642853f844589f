// SPDX-License-Identifier: GPL-2.0-only
//! Writes the scheduler's events to a file: seldom, so as to disturb nothing.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use onbeat_core::ffi::ob_event;
use onbeat_model::event::{Event, EventKind};
use rustix::fs::{Access, access};

use crate::arena::Arena;

/// A file of events, 40 bytes each.
#[derive(Debug)]
pub struct Recorder {
    out: BufWriter<File>,
    path: PathBuf,
}

impl Recorder {
    /// Whether events could be written to `path`; makes nothing.
    ///
    /// # Errors
    /// It is a folder, its folder is not there, or one of them cannot be written.
    pub fn check(path: &Path) -> Result<()> {
        let shown = path.display();
        if path.is_dir() {
            bail!("--events: cannot write events to {shown}: it is a folder; name a file in it");
        }
        if path.exists() {
            return access(path, Access::WRITE_OK).with_context(|| {
                format!("--events: cannot write events to {shown}; name another")
            });
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let folder = folder.display();
            bail!(
                "--events: cannot write events to {shown}: there is no folder {folder}; make it first"
            );
        }
        access(folder, Access::WRITE_OK | Access::EXEC_OK).with_context(|| {
            let folder = folder.display();
            format!("--events: cannot write events to {shown}: no file can be made in {folder}; name another")
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_events_can_be_written_is_told_beforehand_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| Recorder::check(&folder.path().join(name));
        assert!(of("events").is_ok() && !folder.path().join("events").exists());
        std::fs::write(folder.path().join("there"), "old").unwrap();
        assert!(of("there").is_ok());
        let wrong = |name| format!("{:#}", of(name).unwrap_err());
        assert!(wrong("none/events").contains("there is no folder"), "{}", wrong("none/events"));
        assert!(wrong("").contains("it is a folder"), "{}", wrong(""));
        assert_eq!(std::fs::read_to_string(folder.path().join("there")).unwrap(), "old");
    }
}
