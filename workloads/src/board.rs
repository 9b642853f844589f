// SPDX-License-Identifier: GPL-2.0-only
//! The board: memory shared between the runner and the processes of one run.
//!
//! The runner writes what each process is to do, the processes write what happened; nothing is
//! sent or stored anywhere else during the run. Everything is a 64-bit atomic word, so either
//! side may die at any moment without harm to the other.

use anyhow::{Context, Result, ensure};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"onbeat\x00\x01");
/// `phase`: processes prepare themselves.
pub const PREPARE: u32 = 0;
/// `phase`: the origin is set.
pub const GO: u32 = 1;
/// `phase`: whoever still runs is to leave.
pub const STOP: u32 = 2;

/// Words at the start of the board.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    slots: AtomicU64,
    /// Futex: [`PREPARE`], [`GO`] or [`STOP`].
    pub phase: AtomicU32,
    /// So often a process takes a nap before the origin: what it used to begin with is then forgotten by orders that
    /// look at how much threads use before they sleep.
    pub naps: AtomicU32,
    /// CLOCK_MONOTONIC of the run's origin, ns; valid from [`GO`] on.
    pub origin: AtomicU64,
}

/// What one process of the run is to do and has done.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    first_job: AtomicU64,
    jobs: AtomicU64,
    /// First release after the origin, ns.
    pub offset: AtomicU64,
    /// Time between releases, ns.
    pub period: AtomicU64,
    /// 1 when the process marks the end of each job for its reservation.
    pub marks: AtomicU64,
    /// So long after its release a job is given up, ns; 0 = never.
    pub patience: AtomicU64,
    /// 1 once the process is prepared and waits for the origin.
    pub ready: AtomicU64,
    /// Jobs completed so far.
    pub completed: AtomicU64,
    /// Best-effort process: its CPU time at the origin, ns; 0 = it has not run since.
    pub cpu_at_origin: AtomicU64,
}

/// One job; times are CLOCK_MONOTONIC, ns.
#[repr(C)]
#[derive(Debug)]
pub struct Job {
    /// CPU time the job is to use, ns; 0 when the program decides itself.
    pub work: AtomicU64,
    /// When it comes, after the origin; of best-effort work in bursts only.
    pub release: AtomicU64,
    /// When it is given up; 0 = never.
    pub due: AtomicU64,
    /// When it began to execute.
    pub start: AtomicU64,
    /// When it completed, or was given up.
    pub finish: AtomicU64,
    /// 1 when it was given up then.
    pub aborted: AtomicU64,
    /// CPU time it used, ns.
    pub used: AtomicU64,
}

/// What the runner knows about a slot in advance.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// First release after the origin, ns.
    pub offset: u64,
    /// Time between releases, ns.
    pub period: u64,
    /// Whether the process marks the end of each job.
    pub marks: bool,
    /// So long after its release a job is given up, ns; 0 = never.
    pub patience: u64,
    /// CPU time of each job, ns, one a job; 0 when the program decides itself.
    pub work: Vec<u64>,
    /// When each comes, ns after the origin; empty: one period after the other.
    pub releases: Vec<u64>,
}

/// The mapped board.
#[derive(Debug)]
pub struct Board {
    map: MmapRaw,
    file: OwnedFd,
}

const HEADER: usize = size_of::<Header>();
const SLOT: usize = size_of::<Slot>();
const JOB: usize = size_of::<Job>();

impl Board {
    /// Makes a board with one slot per plan, in memory that children inherit by its descriptor.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn create(plans: &[Plan]) -> Result<Self> {
        let jobs: usize = plans.iter().map(|p| p.work.len()).sum();
        // SAFETY: the name is a C string; no close-on-exec, children are to inherit it.
        let fd = unsafe { libc::memfd_create(c"onbeat-board".as_ptr(), 0) };
        ensure!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made and has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len((HEADER + plans.len() * SLOT + jobs * JOB) as u64)
            .with_context(|| format!("no memory for the records of {jobs} jobs"))?;
        let board = Self::map(file.into())?;
        let header = board.header();
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.slots.store(plans.len() as u64, Ordering::Relaxed);
        let mut first = 0;
        for (slot, plan) in board.slots().iter().zip(plans) {
            slot.first_job.store(first, Ordering::Relaxed);
            slot.jobs.store(plan.work.len() as u64, Ordering::Relaxed);
            slot.offset.store(plan.offset, Ordering::Relaxed);
            slot.period.store(plan.period, Ordering::Relaxed);
            slot.marks.store(plan.marks.into(), Ordering::Relaxed);
            slot.patience.store(plan.patience, Ordering::Relaxed);
            first += plan.work.len() as u64;
            for (job, &work) in board.jobs(slot).iter().zip(&plan.work) {
                job.work.store(work, Ordering::Relaxed);
            }
            for (job, &release) in board.jobs(slot).iter().zip(&plan.releases) {
                job.release.store(release, Ordering::Relaxed);
            }
        }
        Ok(board)
    }

    /// Opens the board a runner has left open as descriptor `fd`.
    ///
    /// # Errors
    /// When `fd` is not such a board.
    pub fn open(fd: RawFd) -> Result<Self> {
        // SAFETY: asks only whether the descriptor is open.
        ensure!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0, "descriptor {fd} is not open");
        // SAFETY: it is open, and the runner left it for this process alone.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let size = file.metadata()?.len() as usize;
        let what = || format!("descriptor {fd} is not an Onbeat board");
        ensure!(size >= HEADER, what());
        let board = Self::map(file.into()).with_context(what)?;
        ensure!(board.header().magic.load(Ordering::Relaxed) == MAGIC, what());
        let slots = board.header().slots.load(Ordering::Relaxed) as usize;
        ensure!(slots.checked_mul(SLOT).is_some_and(|s| HEADER + s <= size), what());
        Ok(board)
    }

    fn map(file: OwnedFd) -> Result<Self> {
        // Populated, so that no record costs a page fault.
        let map = MmapOptions::new().populate().map_raw(file.as_fd().as_raw_fd())?;
        Ok(Self { map, file })
    }

    /// The descriptor children open the board by.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The words all processes share.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping is page aligned, long enough, lives as long as `self`, and holds
        // only atomics, for which every bit pattern is valid.
        unsafe { &*self.map.as_ptr().cast::<Header>() }
    }

    /// All slots.
    pub fn slots(&self) -> &[Slot] {
        let count = self.header().slots.load(Ordering::Relaxed) as usize;
        let fit = (self.map.len() - HEADER) / SLOT;
        // SAFETY: as for `header`; the count is held inside the mapping.
        unsafe {
            let first = self.map.as_ptr().add(HEADER).cast::<Slot>();
            std::slice::from_raw_parts(first, count.min(fit))
        }
    }

    /// The slot of this number.
    ///
    /// # Errors
    /// When the board has no such slot.
    pub fn slot(&self, number: usize) -> Result<&Slot> {
        self.slots().get(number).with_context(|| format!("the board has no slot {number}"))
    }

    /// The jobs of `slot`, a slot of this board.
    pub fn jobs(&self, slot: &Slot) -> &[Job] {
        let offset = HEADER + self.slots().len() * SLOT;
        let fit = (self.map.len() - offset) / JOB;
        let first = (slot.first_job.load(Ordering::Relaxed) as usize).min(fit);
        let count = (slot.jobs.load(Ordering::Relaxed) as usize).min(fit - first);
        // SAFETY: as for `header`; first and count are held inside the mapping.
        unsafe {
            let jobs = self.map.as_ptr().add(offset).cast::<Job>();
            std::slice::from_raw_parts(jobs.add(first), count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mapping_sees_each_slots_own_jobs() {
        let plan = |work: &[u64]| Plan { work: work.to_vec(), period: 7, ..Default::default() };
        let board = Board::create(&[plan(&[1, 2]), plan(&[]), plan(&[3])]).unwrap();
        // SAFETY: duplicates an open descriptor.
        let other = Board::open(unsafe { libc::dup(board.fd()) }).unwrap();
        let work = |n: usize| -> Vec<u64> {
            let jobs = other.jobs(other.slot(n).unwrap());
            jobs.iter().map(|j| j.work.load(Ordering::Relaxed)).collect()
        };
        assert_eq!((work(0), work(1), work(2)), (vec![1, 2], vec![], vec![3]));
        board.jobs(&board.slots()[2])[0].finish.store(9, Ordering::Relaxed);
        assert_eq!(other.jobs(&other.slots()[2])[0].finish.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn something_else_than_a_board_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: duplicates an open descriptor.
        let error = Board::open(unsafe { libc::dup(file.as_raw_fd()) }).unwrap_err();
        assert!(error.to_string().contains("not an Onbeat board"), "{error}");
        assert!(Board::open(987).unwrap_err().to_string().contains("not open"));
    }
}
