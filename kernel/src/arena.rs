// SPDX-License-Identifier: GPL-2.0-only
//! The arena: memory that the BPF programs and this process share. Laid out here, natively, with
//! the core's own functions, before the scheduler is attached: the shell's state first, then the
//! pools of servers, of tasks and of their wake-ups, then the trace ring.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};
use onbeat_core::ffi;

/// The shell's structures, as C lays them out.
#[allow(missing_docs, non_camel_case_types, dead_code, clippy::all)]
pub mod shell {
    include!(concat!(env!("OUT_DIR"), "/shell.rs"));
}

/// How large the pools are and how the core is set up.
#[derive(Clone, Debug)]
pub struct Layout {
    /// CPUs, 1 to 64.
    pub cpus: u32,
    /// CPUs of each domain, a bit for each; together all.
    pub domains: Vec<u64>,
    /// Best effort's guaranteed share of every CPU, in thousandths.
    pub share_permille: u32,
    /// Order of best effort among itself, by its number in the core.
    pub others: u32,
    /// How much of that share is served at a time, ns.
    pub share_quantum: u64,
    /// Threads the core can hold; further ones run outside of it, before all others.
    pub tasks: usize,
    /// Reservations at a time.
    pub servers: usize,
    /// CPUs on line.
    pub online: u64,
    /// Events the trace holds, a power of two; 0: no trace.
    pub ring: usize,
}

impl Layout {
    fn offsets(&self) -> [usize; 5] {
        let align = |n: usize| n.next_multiple_of(64);
        let servers = align(size_of::<shell::shell>());
        let tasks = align(servers + self.servers * size_of::<ffi::ob_server>());
        let beats = align(tasks + self.tasks * size_of::<ffi::ob_task>());
        let ring = align(beats + self.tasks * size_of::<ffi::ob_beats>());
        [servers, tasks, beats, ring, ring + self.ring * size_of::<ffi::ob_event>()]
    }

    /// Pages of 4 KiB the arena needs.
    pub fn pages(&self) -> u32 {
        self.offsets()[4].div_ceil(4096) as u32
    }
}

/// A budget that reservations share; times in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purse {
    /// Slot of the purse that it is part of.
    pub within: Option<usize>,
    /// Of its cycles.
    pub period: u64,
    /// Amounts, and from when until when of each cycle they are in it; at most `OB_SEGMENTS`.
    pub segments: Vec<(u64, u64, u64)>,
}

/// A thread that belongs to a reservation. Its number may be another's by now: who it is to the core is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number, as far as the core has been told.
    pub tid: i32,
    /// Its place in the arena.
    pub(crate) slot: usize,
    /// Whose that place is.
    pub(crate) payload: u64,
}

/// The arena as this process sees it.
pub struct Arena {
    base: *mut shell::shell,
    tail: u64,
}

mod wakes;
pub use wakes::{Wakes, Waking};

impl Arena {
    /// Fills freshly mapped, zeroed memory at `base`.
    ///
    /// # Safety
    /// `base` must point to `layout.pages()` zeroed pages that live as long as the result and that
    /// nobody else touches until this returns.
    ///
    /// # Errors
    /// Numbers of CPUs, domains or a share that the core does not take.
    pub unsafe fn init(base: *mut u8, layout: &Layout) -> Result<Arena> {
        let [servers, tasks, beats, ring, end] = layout.offsets();
        let sh = base.cast::<shell::shell>();
        // SAFETY: all offsets lie within the pages that the caller vouches for.
        unsafe {
            // Touch every page: the kernel side cannot fault them in.
            for at in (0..end).step_by(4096) {
                base.add(at).write_volatile(0);
            }
            let s = &mut *sh;
            if ffi::onbeat_init(
                (&raw mut s.ob).cast(),
                layout.cpus,
                1,
                layout.share_permille,
                layout.share_quantum,
            ) != 0
            {
                bail!("{} CPUs: there must be from 1 to 64", layout.cpus);
            }
            for cpus in &layout.domains {
                ffi::onbeat_regroup((&raw mut s.ob).cast(), *cpus, 0);
            }
            s.ob.kick = 0;
            s.ob.others = layout.others;
            s.ob.online &= layout.online;
            s.ob.idle &= layout.online;
            s.servers = base.add(servers).cast();
            s.nr_servers = layout.servers as u64;
            for i in (0..layout.servers).rev() {
                let server = s.servers.add(i);
                (*server).id = i as u32;
                (*server).next = s.vacant;
                s.vacant = server;
                if s.freed.is_null() {
                    s.freed = server;
                }
            }
            s.tasks = base.add(tasks).cast();
            s.nr_tasks = layout.tasks as u64;
            s.beats = base.add(beats).cast();
            for i in (0..layout.tasks).rev() {
                let t = s.tasks.add(i);
                (*t).beats = s.beats.add(i);
                (*t).next = s.free;
                s.free = t;
            }
            s.armed.fill(u64::MAX);
            s.alarm = u64::MAX;
            s.ob.ring = base.add(ring).cast();
            s.ob.ring_size = layout.ring as u64;
        }
        Ok(Arena { base: sh, tail: 0 })
    }

    /// The shell's state; other CPUs change it while this looks.
    pub fn shell(&self) -> &shell::shell {
        // SAFETY: `init`'s caller vouches for the memory's life.
        unsafe { &*self.base }
    }

    /// What the next reservation that is made is made of, or where the next that is moved goes.
    pub fn set_terms(&mut self, terms: ffi::ob_terms) {
        // SAFETY: as above; the BPF side reads it only while it carries out a request of this process.
        unsafe { (&raw mut (*self.base).terms).write_volatile(terms) }
    }

    /// Lays a request where the kernel side finds it. There is no other.
    pub(crate) fn ask(&mut self, request: shell::shell_request) {
        // SAFETY: as above; the BPF side touches it only from `SHELL_NEW` until `SHELL_ANSWERED`.
        unsafe { (&raw mut (*self.base).request).write_volatile(request) }
        self.asked().store(shell::SHELL_NEW, Ordering::Release);
    }

    /// The request with its answer, when there is one.
    pub(crate) fn answer(&self) -> Option<shell::shell_request> {
        let answered = self.asked().load(Ordering::Acquire) == shell::SHELL_ANSWERED;
        // SAFETY: as above.
        answered.then(|| unsafe { (&raw const (*self.base).request).read_volatile() })
    }

    /// Takes the request back, unless it is being carried out or has been: whether so.
    pub(crate) fn withdraw(&mut self) -> bool {
        let to = shell::SHELL_ANSWERED;
        [shell::SHELL_NEW, shell::SHELL_ASKED].into_iter().any(|is| {
            self.asked().compare_exchange(is, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    fn asked(&self) -> &AtomicU32 {
        // SAFETY: a word that both sides touch as an atomic one.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.base).asked) }
    }

    /// Makes purse `slot`, which nobody takes from yet. Its first cycle begins at `origin` of the monotonic clock, ns.
    pub fn set_purse(&mut self, slot: usize, purse: &Purse, origin: u64) {
        // SAFETY: as above; the BPF side looks at a purse only for those who take from it.
        unsafe {
            let ob = (&raw mut (*self.base).ob).cast::<ffi::ob>();
            let up = purse.within.map_or(std::ptr::null_mut(), |up| &raw mut (*ob).purse[up]);
            ffi::onbeat_purse(ob, slot as u32, up, purse.period, origin);
            for (amount, from, until) in &purse.segments {
                ffi::onbeat_fill(&raw mut (*ob).purse[slot], *amount, *from, *until);
            }
        }
    }

    /// The address the BPF side must be given.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// A copy of reservation `id`'s state, if that slot is taken.
    pub fn server(&self, id: u32) -> Option<ffi::ob_server> {
        let s = self.shell();
        (u64::from(id) < s.nr_servers)
            // SAFETY: within the pool; a torn read gives stale counters, nothing worse.
            .then(|| unsafe { s.servers.add(id as usize).read_volatile() })
            .filter(|sv| sv.used != 0)
    }

    /// Threads that belong to reservation `id`, those shut out of its CPUs included.
    pub fn members(&self, id: u32) -> Vec<Member> {
        let s = self.shell();
        if u64::from(id) >= s.nr_servers {
            return Vec::new();
        }
        // SAFETY: within the pools; a thread that comes or goes meanwhile may be missed.
        unsafe {
            let server = s.servers.add(id as usize);
            (0..s.nr_tasks as usize)
                .filter_map(|slot| {
                    let t = s.tasks.add(slot);
                    // Whose it is, first: it may become another's from here on.
                    let payload = (&raw const (*t).payload).read_volatile();
                    std::sync::atomic::fence(Ordering::Acquire);
                    let belongs = (&raw const (*t).server).read_volatile() == server
                        || (&raw const (*t).home).read_volatile() == server;
                    let tid = (&raw const (*t).tid).read_volatile() as i32;
                    (belongs && payload != 0).then_some(Member { tid, slot, payload })
                })
                .collect()
        }
    }

    /// Events that wait to be drained.
    pub fn waiting(&self) -> u64 {
        // SAFETY: a plain read of a counter that only grows.
        let head = unsafe { (&raw const (*self.base).ob.ring_head).read_volatile() };
        head - self.tail
    }

    /// Hands out the events written since the last call, oldest first, and frees their places.
    pub fn drain(&mut self, mut take: impl FnMut(&ffi::ob_event)) {
        let size = self.shell().ob.ring_size;
        if size == 0 {
            return;
        }
        // SAFETY: the BPF side writes events before it moves the head, on x86 in that order, and
        // never past ring_tail + ring_size.
        unsafe {
            let ob = &raw mut (*self.base).ob;
            let head = (&raw const (*ob).ring_head).read_volatile();
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            while self.tail < head {
                take(&*(*ob).ring.add((self.tail & (size - 1)) as usize));
                self.tail += 1;
            }
            (&raw mut (*ob).ring_tail).write_volatile(self.tail);
        }
    }
}
