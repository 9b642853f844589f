// SPDX-License-Identifier: GPL-2.0-only
//! A kernel in small around the core: run queues, threads, kicks; and a shell that calls the core as `kernel/src/bpf`
//! does. Threads go from CPU to CPU as sched_ext lets them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::offset_of;

use onbeat_core::{ffi, interleaved as core};

use super::machine::{self, Layout, alone_ends, barrier, locked, mark, note, pause};

pub const THREADS: usize = 3;
pub const NOW: u64 = 5_000_000_000;

/// The arena.
#[repr(C)]
pub struct Arena {
    pub ob: ffi::ob,
    pub servers: [ffi::ob_server; 1],
    pub tasks: [ffi::ob_task; THREADS],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    Asleep,
    /// With the core.
    Core,
    /// In a CPU's own queue, or running there.
    Cpu(usize),
}

/// What the kernel knows.
#[derive(Clone, Hash, Default)]
struct Kernel {
    threads: Vec<At>,
    local: Vec<VecDeque<usize>>,
    curr: Vec<Option<usize>>,
    /// CPUs that idle, for select_cpu.
    idle: u64,
    kicked: u64,
}

/// What a CPU is to do; then it picks as often as it is told to.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// It switches; who runs has had this much CPU time, ns.
    Preempt(u64),
    /// Who runs sleeps.
    Sleep(u64),
    /// A thread wakes, by `select_cpu` if that finds this CPU idle, else through the core.
    Wake(usize, usize),
    /// A thread is to join the reservation.
    Ask(usize),
    /// A thread is to leave it.
    Leave(usize),
    /// CPUs 0 and 1 are domains of their own from now on, and the reservation goes on on CPU 1.
    Swap,
    /// Best effort has this order from now on.
    Reorder(u32),
}

/// The reservation's, on one CPU.
fn terms(cpu: u32) -> ffi::ob_terms {
    let budget = 10_000_000;
    ffi::ob_terms {
        budget,
        period: 2 * budget,
        deadline: 2 * budget,
        cpus: 1 << cpu,
        domain: cpu,
        account: ffi::OB_NO_ACCOUNT,
        order: ffi::OB_ORDER_EDF,
        ..Default::default()
    }
}

pub struct World {
    arena: Box<Arena>,
    kernel: RefCell<Kernel>,
}

impl World {
    /// Threads with these affinities on so many CPUs, best effort in the order of this number. In a crowd they begin to
    /// run under the lock.
    pub fn new(cpus: usize, affinity: [u64; THREADS], crowded: bool, others: u32) -> Self {
        // SAFETY: plain numbers and null pointers.
        let mut arena: Box<Arena> = Box::new(unsafe { std::mem::zeroed() });
        let at = &raw mut *arena;
        let mut terms = terms(0);
        // SAFETY: the arena's own, zeroed.
        unsafe {
            assert_eq!(core::onbeat_step_init(&raw mut (*at).ob, cpus as u32), 0);
            core::onbeat_step_make(
                &raw mut (*at).ob,
                &raw mut (*at).servers[0],
                &raw mut terms,
                NOW,
            );
            for (t, cpus) in affinity.into_iter().enumerate() {
                core::onbeat_step_task_make(&raw mut (*at).tasks[t], t as u32, cpus);
            }
        }
        arena.ob.others = others;
        // Threads have had their parts so far: what they are served from now on raises virtual time.
        let served = arena.ob.vtime;
        arena.tasks.iter_mut().for_each(|task| task.vtime = served);
        if crowded {
            // More than the time in which all have had a turn.
            arena.ob.slice = 6_000_000_000;
        }
        let kernel = Kernel {
            threads: vec![At::Asleep; THREADS],
            local: vec![VecDeque::new(); cpus],
            curr: vec![None; cpus],
            idle: (1 << cpus) - 1,
            ..Default::default()
        };
        World { arena, kernel: RefCell::new(kernel) }
    }

    pub fn memory(&mut self) -> *mut u8 {
        (&raw mut *self.arena).cast()
    }

    pub fn image(&self) -> Vec<u8> {
        let at = (&raw const *self.arena).cast();
        // SAFETY: all of it.
        unsafe { std::slice::from_raw_parts(at, size_of::<Arena>()) }.to_vec()
    }

    pub fn layout() -> Layout {
        let ob = offset_of!(Arena, ob) as u32;
        let mut growing = vec![ob + offset_of!(ffi::ob, vtime) as u32];
        let cpu = ob + offset_of!(ffi::ob, cpu) as u32 + offset_of!(ffi::ob_cpu, vtime) as u32;
        growing.extend((0..4).map(|i| cpu + i * size_of::<ffi::ob_cpu>() as u32));
        Layout { size: size_of::<Arena>(), thread_at, growing }
    }

    /// Where in the arena a word of the core's is.
    pub fn word_of_ob(offset: usize) -> u32 {
        (offset_of!(Arena, ob) + offset) as u32
    }

    /// Where in the arena a word of thread `t` is.
    pub fn word(t: usize, offset: usize) -> u32 {
        (offset_of!(Arena, tasks) + t * size_of::<ffi::ob_task>() + offset) as u32
    }

    fn ob(&self) -> *mut ffi::ob {
        (&raw const self.arena.ob).cast_mut()
    }
    fn pool(&self) -> *mut ffi::ob_server {
        (&raw const self.arena.servers[0]).cast_mut()
    }
    fn task(&self, t: usize) -> *mut ffi::ob_task {
        (&raw const self.arena.tasks[t]).cast_mut()
    }
    fn thread_of(&self, t: *mut ffi::ob_task) -> Option<usize> {
        (0..THREADS).find(|i| self.task(*i) == t)
    }

    /// The state beside memory, and who is kicked.
    pub fn state(&self) -> (u64, u64) {
        let k = self.kernel.borrow();
        let mut h = DefaultHasher::new();
        k.hash(&mut h);
        (h.finish(), k.kicked)
    }

    pub fn save(&self) -> impl Fn(&World) + use<> {
        let saved = self.kernel.borrow().clone();
        move |world| *world.kernel.borrow_mut() = saved.clone()
    }

    /// A call of the core under the lock, and what follows from it.
    fn call<T>(&self, act: impl FnOnce(*mut ffi::ob) -> T) -> T {
        let (result, kicks) = locked(|| {
            let result = act(self.ob());
            // SAFETY: of the arena, here and below.
            (result, unsafe { core::onbeat_step_kicks(self.ob()) })
        });
        if kicks != 0 {
            pause();
            self.kernel.borrow_mut().kicked |= kicks;
        }
        result
    }

    fn charge(&self, t: usize, ran: u64) {
        // SAFETY: as above.
        unsafe { core::onbeat_step_charge(self.ob(), self.task(t), ran) };
    }

    fn enqueue(&self, t: usize) {
        self.kernel.borrow_mut().threads[t] = At::Core;
        // SAFETY: as above.
        self.call(|ob| unsafe { core::onbeat_step_enqueue(ob, self.pool(), 1, self.task(t), NOW) });
    }

    fn running(&self, cpu: usize, t: usize) {
        let task = self.task(t);
        // SAFETY: as above.
        let alone = unsafe {
            core::onbeat_step_claim(task) != 0
                && core::onbeat_step_is_plain(self.ob(), cpu as u32) != 0
        };
        if alone {
            // SAFETY: as above.
            let kick = unsafe { core::onbeat_step_begin_alone(self.ob(), cpu as u32, task, NOW) };
            self.kernel.borrow_mut().kicked |= u64::from(kick) << cpu;
        } else {
            // SAFETY: as above.
            self.call(|ob| unsafe { core::onbeat_step_begin(ob, cpu as u32, task, NOW) });
        }
        alone_ends();
    }

    fn stopping(&self, cpu: usize, t: usize, goes_on: bool) {
        // SAFETY: as above.
        if unsafe { core::onbeat_step_is_curr(self.ob(), cpu as u32, self.task(t)) } == 0 {
            // SAFETY: as above.
            unsafe {
                core::onbeat_step_stop_alone(
                    self.ob(),
                    cpu as u32,
                    self.task(t),
                    goes_on.into(),
                    NOW,
                )
            };
        } else {
            let reason = if goes_on { ffi::OB_STOP_PREEMPTED } else { ffi::OB_STOP_SLEPT };
            // SAFETY: as above.
            self.call(|ob| unsafe { core::onbeat_step_stop(ob, cpu as u32, reason.into(), NOW) });
        }
        alone_ends();
    }

    fn quiescent(&self, t: usize) {
        let task = self.task(t);
        // SAFETY: as above.
        if unsafe { core::onbeat_step_claim(task) } != 0 {
            // SAFETY: as above.
            unsafe { core::onbeat_step_sleep_alone(self.ob(), task) };
        } else {
            // SAFETY: as above.
            self.call(|ob| unsafe { core::onbeat_step_sleep(ob, task, NOW) });
        }
        alone_ends();
    }

    /// What the CPU runs next if its own queue is empty.
    fn dispatch(&self, cpu: usize, prev: Option<usize>) -> Option<usize> {
        for _ in 0..4 {
            // SAFETY: as above.
            let on = prev.filter(|t| unsafe { core::onbeat_step_wants(self.task(*t)) } == 0);
            let task = on.map_or(std::ptr::null_mut(), |t| self.task(t));
            // SAFETY: as above.
            let next = self.call(|ob| unsafe { core::onbeat_step_next(ob, cpu as u32, task, NOW) });
            let t = self.thread_of(next)?;
            if on == Some(t) {
                return on;
            }
            pause();
            // Somebody else may have it by now: then the kernel drops the insertion and asks again.
            let here = self.kernel.borrow().threads[t] == At::Core;
            note(here.into());
            if !here {
                continue;
            }
            self.kernel.borrow_mut().threads[t] = At::Cpu(cpu);
            // ops.dequeue.
            // SAFETY: as above.
            if unsafe { core::onbeat_step_is_waiting(self.task(t)) } != 0 {
                self.call(|ob| unsafe { core::onbeat_step_unqueue(ob, self.task(t)) });
            }
            return Some(t);
        }
        None
    }

    /// A CPU switches, or does not.
    fn switch(&self, cpu: usize, sleeps: bool, ran: u64) {
        let prev = {
            let mut k = self.kernel.borrow_mut();
            k.idle &= !(1 << cpu);
            k.kicked &= !(1 << cpu);
            k.curr[cpu]
        };
        note(prev.map_or(9, |t| t as u64));
        if let Some(t) = prev {
            self.charge(t, ran);
            if sleeps {
                self.stopping(cpu, t, false);
                self.quiescent(t);
            }
        }
        let goes_on = prev.filter(|_| !sleeps);
        let own = self.kernel.borrow_mut().local[cpu].pop_front();
        note(own.map_or(9, |t| t as u64));
        let next = own.or_else(|| self.dispatch(cpu, goes_on));
        if next.is_some() && next == goes_on {
            return;
        }
        if let Some(t) = goes_on {
            self.stopping(cpu, t, true);
            self.enqueue(t);
        }
        // The kernel lets go of the thread.
        barrier();
        {
            let mut k = self.kernel.borrow_mut();
            if let Some(t) = prev.filter(|_| sleeps) {
                k.threads[t] = At::Asleep;
            }
            k.curr[cpu] = next;
            if next.is_none() {
                k.idle |= 1 << cpu;
            }
        }
        if let Some(t) = next {
            self.running(cpu, t);
        }
    }

    fn wake(&self, t: usize, to: usize) {
        let asleep = self.kernel.borrow().threads[t] == At::Asleep;
        note(asleep.into());
        if !asleep {
            return;
        }
        // SAFETY: as above.
        let unreserved = unsafe { core::onbeat_step_is_unreserved(self.task(t)) } != 0;
        let direct = unreserved && {
            let mut k = self.kernel.borrow_mut();
            let idle = k.idle >> to & 1 == 1;
            if idle {
                k.idle &= !(1 << to);
                k.local[to].push_back(t);
                k.threads[t] = At::Cpu(to);
                k.kicked |= 1 << to;
            }
            idle
        };
        note(direct.into());
        if !direct {
            self.enqueue(t);
        }
    }

    fn ask(&self, t: usize, leave: bool) {
        // SAFETY: as above.
        let name = if leave { u64::MAX } else { unsafe { core::onbeat_step_name(self.pool()) } };
        // SAFETY: as above.
        self.call(|ob| unsafe {
            core::onbeat_step_ask(ob, self.pool(), 1, self.task(t), name, NOW)
        });
    }

    pub fn act(&self, cpu: usize, op: Op) {
        match op {
            Op::Preempt(ran) => self.switch(cpu, false, ran),
            Op::Sleep(ran) => self.switch(cpu, true, ran),
            Op::Wake(t, to) => self.wake(t, to),
            Op::Ask(t) => self.ask(t, false),
            Op::Leave(t) => self.ask(t, true),
            Op::Swap => self.swap(),
            // SAFETY: as above.
            Op::Reorder(order) => self.call(|ob| unsafe {
                core::onbeat_step_reorder(ob, self.task(0), THREADS as u64, order);
            }),
        }
    }

    /// As the service does, a step at a time.
    fn swap(&self) {
        let regroup = |cpus| {
            // SAFETY: as above.
            self.call(|ob| unsafe { core::onbeat_step_regroup(ob, cpus, NOW) });
        };
        regroup(0b01);
        regroup(0b10);
        let mut to = terms(1);
        // SAFETY: as above.
        self.call(|ob| unsafe {
            core::onbeat_step_swap(ob, self.pool(), &raw mut to, NOW);
        });
        regroup(0b01);
        regroup(0b10);
    }

    /// What a CPU does.
    pub fn run(&self, cpu: usize, ops: &[Op]) {
        for (i, op) in ops.iter().enumerate() {
            mark(i as u64);
            pause();
            self.act(cpu, *op);
        }
        loop {
            mark(99);
            machine::wait_kick();
            self.switch(cpu, false, 0);
        }
    }

    /// What is wrong when nothing is left to do.
    pub fn check(&self) -> Result<(), String> {
        let (k, a) = (self.kernel.borrow(), &self.arena);
        let sv = &a.servers[0];
        let reserved = |t: &ffi::ob_task| !t.server.is_null();
        for (t, task) in a.tasks.iter().enumerate() {
            let runs = k.curr.contains(&Some(t));
            let wrong = |what: &str| Err(format!("thread {t} ({:?}) {what}", k.threads[t]));
            if (task.waiting == 1) != (k.threads[t] == At::Core) {
                return wrong("waits in the core and is not the core's, or the other way round");
            }
            if (task.awake == 1) != (k.threads[t] != At::Asleep) {
                return wrong("is awake for the kernel or for the core only");
            }
            if (task.running == 1) != runs {
                return wrong("is running for the kernel or for the core only");
            }
            if task.want != 0 && k.threads[t] == At::Core {
                return wrong("has not joined with its switch");
            }
            let cpus = if reserved(task) { task.cpus & sv.cpus } else { task.cpus };
            let idle = (0..k.curr.len()).find(|c| k.curr[*c].is_none() && cpus >> c & 1 == 1);
            let plain = |cpu: &usize| k.curr[*cpu].is_some_and(|other| !reserved(&a.tasks[other]));
            let passed = (0..k.curr.len()).find(|c| cpus >> c & 1 == 1 && plain(c));
            if let Some(cpu) = passed.filter(|_| k.threads[t] == At::Core && reserved(task)) {
                return wrong(&format!("waits for CPU {cpu}, which runs best effort"));
            }
            if let Some(cpu) = idle.filter(|_| k.threads[t] == At::Core) {
                return wrong(&format!("waits while CPU {cpu} idles, and nobody has told it"));
            }
        }
        if let Some(cpu) =
            (0..k.curr.len()).find(|c| k.curr[*c].is_some() && a.ob.idle >> c & 1 == 1)
        {
            return Err(format!("CPU {cpu} runs a thread and is said to idle"));
        }
        let count = |f: &dyn Fn(&ffi::ob_task) -> bool| {
            a.tasks.iter().filter(|t| reserved(t) && f(t)).count()
        };
        let counts = [
            ("awake", sv.awake as usize, count(&|t| t.awake == 1)),
            ("running", sv.running as usize, count(&|t| t.running == 1)),
            ("waiting", sv.waiting as usize, count(&|t| t.waiting == 1)),
            ("threads", sv.threads as usize, count(&|_| true)),
        ];
        for (name, says, is) in counts {
            if says != is {
                return Err(format!("the reservation counts {says} {name}, there are {is}"));
            }
        }
        Ok(())
    }
}

/// The thread that a byte of the arena is of, but for the words of the hand-over.
fn thread_at(at: u32) -> Option<u8> {
    let from = (at as usize).checked_sub(offset_of!(Arena, tasks))?;
    let (t, word) = (from / size_of::<ffi::ob_task>(), from % size_of::<ffi::ob_task>());
    let shared = [offset_of!(ffi::ob_task, running), offset_of!(ffi::ob_task, want)];
    (t < THREADS && !shared.contains(&word)).then_some(t as u8)
}
