// SPDX-License-Identifier: GPL-2.0-only
//! A CPU of the host for one emulator alone.
//!
//! In deterministic mode QEMU's threads take turns and never run at the same time. On one CPU a turn
//! changes hands in a few µs; on two each change wakes an idle CPU, which takes longer than most turns.
//! Which CPU is taken is agreed on among labs by locks on its folder in /sys.

use std::fs::File;
use std::io;
use std::mem;

/// A CPU that is ours while this lives.
#[derive(Debug)]
pub struct HostCpu {
    number: usize,
    _lock: File,
}

impl HostCpu {
    /// Takes the last free CPU of those this process may use; none when all are taken, or locks
    /// are not to be had here.
    pub fn take() -> Option<Self> {
        let allowed = allowed().ok()?;
        (0..libc::CPU_SETSIZE as usize).rev().find_map(|number| {
            // SAFETY: `number` is below CPU_SETSIZE.
            if !unsafe { libc::CPU_ISSET(number, &allowed) } {
                return None;
            }
            let lock = File::open(format!("/sys/devices/system/cpu/cpu{number}")).ok()?;
            lock.try_lock().ok()?;
            Some(HostCpu { number, _lock: lock })
        })
    }

    /// Confines the calling thread to it. Only system calls: for use between fork and exec.
    pub fn confine(number: usize) -> io::Result<()> {
        // SAFETY: all zero is an empty set; `number` came from [`HostCpu::number`].
        let set = unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(number, &mut set);
            set
        };
        // SAFETY: a valid set of the size that is told.
        match unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }
}

fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set of the size that is told.
    match unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) } {
        0 => Ok(set),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_taken_by_one_at_a_time() {
        // Other labs may hold some; then there is less to see.
        let taken = std::iter::from_fn(HostCpu::take).collect::<Vec<_>>();
        let mut numbers = taken.iter().map(HostCpu::number).collect::<Vec<_>>();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), taken.len());
    }
}
