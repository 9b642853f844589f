// SPDX-License-Identifier: GPL-2.0-only
//! Heartbeats of the children, in memory all share.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, ensure};
use memmap2::{MmapOptions, MmapRaw};

/// Slots of one child: one for each of its threads that beat.
pub const CREW: usize = 4;
const SLOTS: usize = 1000 * CREW;

/// A counter for every slot.
#[derive(Debug)]
pub struct Board {
    map: MmapRaw,
}

impl Board {
    /// A new one, and the descriptor that children inherit.
    pub fn create() -> Result<(Self, RawFd)> {
        // SAFETY: a fresh descriptor; nothing else owns it.
        let fd = unsafe { libc::memfd_create(c"churn".as_ptr(), 0) };
        ensure!(fd >= 0, "no memory: {}", io::Error::last_os_error());
        // SAFETY: as above; never closed, for children inherit it.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        file.set_len((SLOTS * 8) as u64)?;
        Ok((Self::open(fd)?, fd))
    }

    /// That of the parent.
    pub fn open(fd: RawFd) -> Result<Self> {
        Ok(Self { map: MmapOptions::new().len(SLOTS * 8).map_raw(fd)? })
    }

    fn slot(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < SLOTS);
        // SAFETY: inside the map, aligned, and only ever used as atomic.
        unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>().add(slot) }
    }

    /// How often it has beaten.
    pub fn beats(&self, slot: usize) -> u64 {
        self.slot(slot).load(Relaxed)
    }

    /// It beats.
    pub fn beat(&self, slot: usize) {
        self.slot(slot).fetch_add(1, Relaxed);
    }

    /// Another child has it now.
    pub fn clear(&self, slot: usize) {
        self.slot(slot).store(0, Relaxed);
    }
}
