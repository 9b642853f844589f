// SPDX-License-Identifier: GPL-2.0-only
//! The core behind a safe face: it owns the memory the C code works in and names tasks, servers and
//! CPUs by index.

use onbeat_analysis::plan::Split;
use onbeat_core::ffi;
use onbeat_model::event::{Event, NONE};
use onbeat_model::others::Linux24;

mod linux24;
mod made;
mod swap;

/// The core with its tasks and servers.
pub struct Core {
    ob: Box<ffi::ob>,
    // Never grown: the C side holds pointers into these and into `ob`.
    tasks: Box<[ffi::ob_task]>,
    servers: Box<[ffi::ob_server]>,
    ring: Box<[ffi::ob_event]>,
    /// What decides in the place of the C core, if anything does.
    linux24: Option<Box<linux24::Scheduler>>,
}

/// A reservation to be made; times in ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Q, at most `deadline`.
    pub budget: u64,
    /// P.
    pub period: u64,
    /// D, relative.
    pub deadline: u64,
    /// CPUs it may use; those outside its domain are ignored.
    pub cpus: u64,
    /// Slot of its domain: below the number the core was made with, or the lowest of its CPUs ([`Core::regroup`]).
    pub domain: u32,
    /// Index into `onbeat_core::server_policies`.
    pub kind: u32,
    /// `ffi::OB_ORDER_EDF` or another one.
    pub order: u32,
    /// The program marks its jobs.
    pub marks: bool,
    /// Its CPU, one of several of its domain, serves only such as it.
    pub apart: bool,
    /// It is split over CPUs, whose domains are theirs alone; the first is `domain`'s.
    pub split: Option<Split>,
}

impl Reservation {
    fn terms(&self) -> ffi::ob_terms {
        let terms = ffi::ob_terms {
            budget: self.budget,
            period: self.period,
            deadline: self.deadline,
            account: ffi::OB_NO_ACCOUNT,
            kind: self.kind,
            order: self.order,
            marks: self.marks.into(),
            cpus: self.cpus,
            domain: self.domain,
            apart: self.apart.into(),
            ..Default::default()
        };
        match &self.split {
            None => terms,
            Some(Split { window, postponed, shares }) => {
                onbeat_core::split(terms, *window, *postponed, shares)
            }
        }
    }
}

/// Index of a task that runs nowhere or of nobody.
pub const NOBODY: usize = usize::MAX;

/// The weight of best effort of nice 0.
pub const NICE_0: u64 = ffi::OB_WEIGHT as u64;

/// The weight of best effort of that niceness: each step is a factor of 1.25, as in Linux.
pub fn weight(nice: i32) -> u64 {
    (NICE_0 as f64 * 1.25_f64.powi(-nice)).round() as u64
}

impl Core {
    /// A core for `cpus` CPUs in `domains` equal clusters, with room for `tasks` tasks and as many
    /// servers, and a trace of up to `ring` events (a power of two, 0: none) between two drains.
    ///
    /// # Panics
    /// CPUs outside 1..=64, domains outside 1..=cpus, a share over 90 %: callers check their input.
    pub fn new(
        cpus: u32,
        domains: u32,
        share_permille: u32,
        share_quantum: u64,
        tasks: usize,
        ring: usize,
    ) -> Core {
        let mut core = Core {
            ob: Box::default(),
            tasks: vec![ffi::ob_task::default(); tasks].into(),
            servers: vec![ffi::ob_server::default(); tasks].into(),
            ring: vec![ffi::ob_event::default(); ring].into(),
            linux24: None,
        };
        // SAFETY: `ob` is zeroed memory of its own.
        let made = unsafe {
            ffi::onbeat_init(&raw mut *core.ob, cpus, domains, share_permille, share_quantum)
        };
        assert_eq!(made, 0, "{cpus} CPUs, {domains} domains, share {share_permille} per mille");
        core.ob.ring = core.ring.as_mut_ptr();
        core.ob.ring_size = ring as u64;
        core
    }

    fn ob(&mut self) -> *mut ffi::ob {
        &raw mut *self.ob
    }

    fn task(&mut self, i: usize) -> *mut ffi::ob_task {
        &raw mut self.tasks[i]
    }

    /// Declares task `i`: its affinity and weight ([`NICE_0`]).
    pub fn init_task(&mut self, i: usize, cpus: u64, weight: u64) {
        // SAFETY: a task of ours, not yet known to the core.
        unsafe { ffi::onbeat_task_make(self.task(i), i as u32, cpus, weight) }
        if let Some(old) = &mut self.linux24 {
            old.init(i, cpus);
        }
    }

    /// Task `i` has another weight from now on.
    pub fn weigh(&mut self, i: usize, weight: u64) {
        self.tasks[i].weight = weight;
    }

    /// Task `i`, just declared, comes to be, as in the kernel: its `parent` (or NOBODY) has run for `ran` ns of which
    /// the core was not told yet.
    pub fn born(&mut self, i: usize, parent: usize, ran: u64) {
        let task = self.task(i);
        let mut of = std::ptr::null_mut();
        if parent != NOBODY {
            self.tasks[i].cpu = self.tasks[parent].cpu;
            of = self.task(parent);
        }
        // SAFETY: tasks of ours.
        unsafe { ffi::onbeat_task_begin(self.ob(), task, of, ran) }
    }

    /// Task `i`, which sleeps, ends.
    pub fn ends(&mut self, i: usize) {
        let task = self.task(i);
        // SAFETY: a task of ours, which neither runs nor waits.
        unsafe { ffi::onbeat_task_end(self.ob(), task) }
    }

    /// Task `i` began, which took next to nothing, and sleeps, as programs do that are about to be released.
    pub fn began(&mut self, i: usize) {
        let task = self.task(i);
        // SAFETY: a task of ours, which neither runs nor waits.
        unsafe { ffi::onbeat_slept(self.ob(), task) }
    }

    /// Task `i`, which began, has napped, and slept while others were busy, as in the lab before the first release: to
    /// orders of best effort it is no new one, uses next to nothing, and had less than others.
    pub fn napped(&mut self, i: usize) {
        const NAP_TAKES: u64 = 10_000; // ns of CPU time
        self.tasks[i].vtime = self.tasks[i].vtime.max(1);
        self.tasks[i].burst = NAP_TAKES;
    }

    /// Linux 2.4's scheduler decides in the place of the core, and nothing is reserved; before any task is declared.
    pub fn like_linux24(&mut self, like: Linux24) {
        let (tasks, cpus, noted) = (self.tasks.len(), self.ob.nr_cpus, !self.ring.is_empty());
        self.linux24 = Some(Box::new(linux24::Scheduler::new(like, tasks, cpus, noted)));
    }

    /// To Linux 2.4's scheduler, task `i` has this niceness, from −20 to 19; to the core its weight says it all.
    pub fn nice(&mut self, i: usize, nice: i32) {
        if let Some(old) = &mut self.linux24 {
            old.nice(i, nice);
        }
    }

    /// Events call task `i` so: it is a thread of that one.
    pub fn known_as(&mut self, i: usize, task: usize) {
        self.tasks[i].tid = task as u32;
    }

    /// Task `i` is one of the kernel's own threads.
    pub fn kernel_thread(&mut self, i: usize) {
        self.tasks[i].kernel = 1;
    }

    /// Best effort is served in this order, a number of the core's registry, from the beginning on.
    pub fn among_others(&mut self, order: u32) {
        self.ob.others = order;
    }

    /// Whether task `i` holds a reservation.
    pub fn reserved(&self, i: usize) -> bool {
        !self.tasks[i].server.is_null() || !self.tasks[i].home.is_null()
    }

    /// Other threads wake task `i`, not interrupts.
    pub fn told(&mut self, i: usize) {
        self.told_if(i, true);
    }

    /// Another thread wakes task `i`, or else an interrupt.
    pub fn told_if(&mut self, i: usize, by_a_thread: bool) {
        self.tasks[i].told = by_a_thread.into();
    }

    /// How often a queue held too many reservations for an order that chooses, and went by deadline.
    pub fn crowded(&self) -> u64 {
        self.ob.crowded
    }

    /// Task `i` woke or was interrupted.
    pub fn ready(&mut self, i: usize, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.ready(&mut self.ob, i);
        }
        let task = self.task(i);
        // SAFETY: pointers to our own memory; likewise below.
        unsafe { ffi::onbeat_ready(self.ob(), task, now) }
    }

    /// A timer wakes task `i`.
    pub fn wakes(&mut self, i: usize, now: u64) {
        match &mut self.linux24 {
            Some(old) => old.wakes(&mut self.ob, i, now),
            None => self.ready(i, now),
        }
    }

    /// Whether task `i` is in a queue.
    pub fn waits(&self, i: usize) -> bool {
        self.tasks[i].waiting != 0
    }

    /// Task `i`, which waits, may run on these CPUs from now on.
    pub fn affinity(&mut self, i: usize, cpus: u64, now: u64) {
        let task = self.task(i);
        unsafe { ffi::onbeat_unqueue(self.ob(), task) }
        (self.tasks[i].cpus, self.tasks[i].may) = (cpus, cpus);
        self.ready(i, now);
    }

    /// Task `i`, which waits or sleeps, may run on these CPUs for the time being, whatever its affinity.
    pub fn hold(&mut self, i: usize, cpus: u64, now: u64) {
        let (task, waits) = (self.task(i), self.waits(i));
        unsafe { ffi::onbeat_unqueue(self.ob(), task) }
        self.tasks[i].cpus = cpus;
        if waits {
            self.ready(i, now);
        }
    }

    /// Task `i`, which runs nowhere, sleeps.
    pub fn sleep(&mut self, i: usize, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.sleep(i);
        }
        let task = self.task(i);
        unsafe { ffi::onbeat_sleep(self.ob(), task, now) }
    }

    /// Task `i` says that its job is complete.
    pub fn mark(&mut self, i: usize, now: u64) {
        let task = self.task(i);
        unsafe { ffi::onbeat_mark(self.ob(), task, now) }
    }

    /// What `cpu` should run, where `prev` (or NOBODY) runs and wants to go on.
    pub fn pick(&mut self, cpu: u32, prev: usize, now: u64) -> usize {
        if let Some(old) = &mut self.linux24 {
            return old.pick(&mut self.ob, cpu, prev, now);
        }
        let prev = if prev == NOBODY { std::ptr::null_mut() } else { self.task(prev) };
        let picked = unsafe { ffi::onbeat_pick(self.ob(), cpu, prev, now) };
        if picked.is_null() {
            return NOBODY;
        }
        // SAFETY: the core only hands out tasks of this slice.
        unsafe { picked.offset_from(self.tasks.as_ptr()) as usize }
    }

    /// Task `i` begins to run on `cpu`.
    pub fn run(&mut self, cpu: u32, i: usize, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.run(cpu, i, now);
        }
        let task = self.task(i);
        unsafe { ffi::onbeat_run(self.ob(), cpu, task, now) }
    }

    /// What runs on `cpu` stops; `reason` is an `ffi::OB_STOP_…`.
    pub fn stop(&mut self, cpu: u32, reason: u32, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.stop(cpu, reason, now);
        }
        unsafe { ffi::onbeat_stop(self.ob(), cpu, reason.into(), now) }
    }

    /// Best-effort task `i` has had `ran` ns of a CPU.
    pub fn charge(&mut self, i: usize, ran: u64) {
        if self.linux24.is_some() {
            return;
        }
        let task = self.task(i);
        unsafe { ffi::onbeat_charge(self.ob(), task, ran) }
    }

    /// The timer of `cpu` is due.
    pub fn tick(&mut self, cpu: u32, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.tick(&mut self.ob, now);
        }
        unsafe { ffi::onbeat_tick(self.ob(), cpu, now) }
    }

    /// The core's alarm is due.
    pub fn alarm(&mut self, now: u64) {
        if let Some(old) = &mut self.linux24 {
            return old.tick(&mut self.ob, now);
        }
        unsafe { ffi::onbeat_alarm(self.ob(), now) }
    }

    /// `cpu` comes or goes, as the kernel's shell has it.
    pub fn online(&mut self, cpu: u32, on: bool, now: u64) {
        unsafe { ffi::onbeat_online(self.ob(), cpu, on.into(), now) }
        for i in (0..self.servers.len()).filter(|_| !on) {
            let sv = &raw mut self.servers[i];
            unsafe { ffi::onbeat_strand(self.ob(), sv, now) }
        }
    }

    /// Whether a thread waits for CPUs that are all gone.
    pub fn strands(&mut self) -> bool {
        unsafe { ffi::onbeat_strands(self.ob()) != 0 }
    }

    /// Takes one CPU that must pick again.
    pub fn take_kick(&mut self) -> Option<u32> {
        let kick = self.ob.kick;
        (kick != 0).then(|| {
            self.ob.kick = kick & (kick - 1);
            kick.trailing_zeros()
        })
    }

    /// When `cpu` must be looked at again, u64::MAX: never.
    pub fn timer(&self, cpu: u32) -> u64 {
        self.ob.cpu[cpu as usize].timer
    }

    /// All CPUs as the core sees them, those beyond the number it was made with included.
    pub(crate) fn cpus(&self) -> &[ffi::ob_cpu] {
        &self.ob.cpu
    }

    /// When `alarm` must be called, u64::MAX: never.
    pub fn alarm_at(&self) -> u64 {
        self.ob.alarm_at
    }

    /// Reservation `i` as the core sees it.
    pub fn server(&self, i: usize) -> &ffi::ob_server {
        &self.servers[i]
    }

    /// CPU `cpu` as the core sees it.
    pub fn cpu(&self, cpu: u32) -> &ffi::ob_cpu {
        &self.ob.cpu[cpu as usize]
    }

    /// Moves the traced events to `out`, with server numbers turned into tasks where none is named.
    pub fn drain(&mut self, out: &mut Vec<Event>) {
        if let Some(old) = &mut self.linux24 {
            old.drain(out);
        }
        out.extend(self.ring[..self.ob.ring_head as usize].iter().map(|e| Event {
            time: e.time,
            kind: e.kind,
            cpu: e.cpu,
            task: if e.task == NONE { e.server } else { e.task },
            server: e.server,
            a: e.a,
            b: e.b,
        }));
        // Drained as a whole, so the ring can start anew.
        self.ob.ring_head = 0;
        self.ob.ring_tail = 0;
    }

    /// Whether the trace should be drained before the next event.
    pub fn nearly_full(&self) -> bool {
        self.ob.ring_size - self.ob.ring_head < 256 && self.ob.ring_size > 0
            || self.linux24.as_ref().is_some_and(|old| old.nearly_full())
    }
}
