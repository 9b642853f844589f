// SPDX-License-Identifier: GPL-2.0-only
//! A machine of some CPUs that run C code step by step, in every order that x86-64 allows: each CPU's writes wait in a
//! buffer, in order, until they reach memory (Sewell et al., "x86-TSO", CACM 2010). The C code is compiled for a
//! thread sanitizer, whose functions are here: they are called before each access.
//!
//! States that were seen before are not gone through again. What a CPU has in its registers follows from what it has
//! read, so a checksum of that, of all buffers and of memory is the state.

#[path = "sanitizer.rs"]
mod sanitizer;

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::null_mut;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// What is being tried out: a barrier or an atomic access that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Nothing.
    None,
    /// A swap of this word is a plain write.
    Swap(u32),
    /// What is published in this word may be seen before what was written before.
    Publish(u32),
    /// Atomic operations on this word are a read and a write.
    Atomic(u32),
}

/// What a CPU is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    Step(u32),
    Lock,
    /// It has nothing to do until it is told to.
    Kick,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Write {
    at: u32,
    size: u8,
    to: u64,
    /// The lock is given back.
    unlock: bool,
    /// It may go before others.
    loose: bool,
    /// Whose word it is, if it was written without the lock.
    alone: Option<u8>,
}

struct Cpu {
    co: Option<Coroutine<(), Wait, (), DefaultStack>>,
    yielder: *const Yielder<(), Wait>,
    buffer: Vec<Write>,
    history: u64,
    pending: Option<(u32, u8, bool)>,
    locked: bool,
    /// Threads whose words have been written since the lock was taken, or without it since the callback began.
    touched: u64,
    wait: Wait,
}

/// What memory is made of, for the checks.
pub struct Layout {
    /// Bytes.
    pub size: usize,
    /// Where a thread's words are, `running` and `want` excepted: the thread.
    pub thread_at: fn(u32) -> Option<u8>,
    /// Words that may only grow.
    pub growing: Vec<u32>,
}

/// Steps of all CPUs so far.
pub struct Machine {
    memory: *mut u8,
    global: Vec<u8>,
    checksum: u64,
    layout: Layout,
    cpus: Vec<Cpu>,
    current: usize,
    owner: Option<usize>,
    mutation: Mutation,
    /// By byte: CPUs that have touched it, CPUs that did without the lock, whether one wrote.
    touched: Vec<(u64, u64, bool)>,
    /// By byte: a CPU touches it without the lock, another too, and one writes.
    shared: Vec<bool>,
    /// What went wrong first.
    pub wrong: Option<String>,
    stacks: Vec<DefaultStack>,
}

thread_local! {
    static MACHINE: Cell<*mut Machine> = const { Cell::new(null_mut()) };
}

fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 29)
}

fn place(at: u32, byte: u8) -> u64 {
    mix(u64::from(at) + 1, u64::from(byte) + 77)
}

/// The machine whose CPU runs, if one does.
pub fn machine() -> Option<&'static mut Machine> {
    let at = MACHINE.get();
    // SAFETY: set while a coroutine of that machine runs, by the thread that runs it; no reference lasts over a step.
    (!at.is_null()).then(|| unsafe { &mut *at })
}

impl Machine {
    pub fn new(memory: *mut u8, layout: Layout, mutation: Mutation) -> Self {
        Machine {
            memory,
            global: vec![0; layout.size],
            checksum: 0,
            cpus: Vec::new(),
            current: 0,
            owner: None,
            mutation,
            touched: vec![(0, 0, false); layout.size],
            shared: vec![false; layout.size],
            wrong: None,
            stacks: Vec::new(),
            layout,
        }
    }

    /// Gives up what CPUs have begun.
    fn abandon(&mut self) {
        for mut cpu in self.cpus.drain(..) {
            let mut co = cpu.co.take().expect("there is one");
            if !co.done() {
                // SAFETY: what is on its stack are plain values.
                unsafe { co.force_reset() };
            }
            self.stacks.push(co.into_stack());
        }
    }

    /// Begins anew with memory as in `image`; each of so many CPUs does `program`.
    fn reset(&mut self, image: &[u8], cpus: usize, program: impl Fn(usize) + Copy + 'static) {
        self.abandon();
        // SAFETY: as long as `image`.
        unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), self.memory, image.len()) };
        self.global.copy_from_slice(image);
        self.checksum = 0;
        self.owner = None;
        for i in 0..cpus {
            let stack =
                self.stacks.pop().unwrap_or_else(|| DefaultStack::new(1 << 17).expect("memory"));
            let co = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Wait>, ()| {
                machine().expect("it runs").cpus[i].yielder = yielder;
                program(i);
            });
            self.cpus.push(Cpu {
                co: Some(co),
                yielder: std::ptr::null(),
                buffer: Vec::new(),
                history: 0,
                pending: None,
                locked: false,
                touched: 0,
                wait: Wait::Step(u32::MAX),
            });
        }
    }

    fn value(&self, at: u32, size: u8) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: within memory, by the caller.
        unsafe {
            let from = self.memory.add(at as usize);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size.into());
        }
        u64::from_le_bytes(bytes)
    }

    fn show(&self, at: u32, size: u8, to: u64) {
        // SAFETY: as above.
        unsafe {
            let into = self.memory.add(at as usize);
            std::ptr::copy_nonoverlapping(to.to_le_bytes().as_ptr(), into, size.into());
        }
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A write reaches memory.
    fn land(&mut self, write: Write) {
        if write.unlock {
            self.owner = None;
            return;
        }
        let (at, size) = (write.at as usize, usize::from(write.size));
        let mut old = [0; 8];
        old[..size].copy_from_slice(&self.global[at..at + size]);
        if self.layout.growing.contains(&write.at) && u64::from_le_bytes(old) > write.to {
            self.fail("virtual time goes back".into());
        }
        for (i, byte) in write.to.to_le_bytes()[..size].iter().enumerate() {
            let place_at = write.at + i as u32;
            self.checksum = self.checksum.wrapping_sub(place(place_at, self.global[at + i]));
            self.checksum = self.checksum.wrapping_add(place(place_at, *byte));
            self.global[at + i] = *byte;
        }
    }

    fn drain(&mut self) {
        let writes = std::mem::take(&mut self.cpus[self.current].buffer);
        writes.into_iter().for_each(|w| self.land(w));
    }

    /// The write that was about to happen when the last step ended has happened.
    fn capture(&mut self) {
        let i = self.current;
        let Some((at, size, loose)) = self.cpus[i].pending.take() else { return };
        self.push(at, size, self.value(at, size), loose);
    }

    fn push(&mut self, at: u32, size: u8, to: u64, loose: bool) {
        let i = self.current;
        let thread = (self.layout.thread_at)(at);
        if let Some(t) = thread {
            let alone = !self.cpus[i].locked;
            let others = self.cpus.iter().enumerate().filter(|(j, _)| *j != i);
            let clash = others.into_iter().any(|(_, c)| {
                let open = c.touched >> t & 1 == 1 && (alone || !c.locked);
                open || c.buffer.iter().any(|w| w.alone == Some(t))
            });
            if clash {
                self.fail(format!("two at once write to thread {t} (byte {at})"));
            }
            self.cpus[i].touched |= 1 << t;
        }
        let alone = thread.filter(|_| !self.cpus[i].locked);
        self.cpus[i].buffer.push(Write { at, size, to, unlock: false, loose, alone });
    }

    fn visible(&self, write: &Write) -> bool {
        write.unlock || (0..usize::from(write.size)).any(|i| self.shared[write.at as usize + i])
    }

    fn suspend(wait: Wait) {
        let m = machine().expect("a CPU runs");
        m.capture();
        let i = m.current;
        m.cpus[i].wait = wait;
        // SAFETY: of the coroutine that runs.
        unsafe { (*m.cpus[i].yielder).suspend(wait) };
    }

    fn note_access(&mut self, at: u32, size: u8, write: bool) -> bool {
        let (bit, locked) = (1 << self.current, self.cpus[self.current].locked);
        let mut known = false;
        for b in at as usize..at as usize + usize::from(size) {
            let t = &mut self.touched[b];
            t.0 |= bit;
            t.1 |= if locked { 0 } else { bit };
            t.2 |= write;
            known |= self.shared[b];
        }
        known
    }

    /// Words that came to be shared since this was asked last: all has to be done again.
    pub fn learn(&mut self) -> bool {
        let shared = self.touched.iter().map(|t| t.0.count_ones() > 1 && t.1 != 0 && t.2).collect();
        let before = std::mem::replace(&mut self.shared, shared);
        before != self.shared
    }

    /// Lets a CPU do its next step.
    fn step(&mut self, i: usize) {
        self.current = i;
        for w in self.cpus[i].buffer.iter().filter(|w| !w.unlock) {
            self.show(w.at, w.size, w.to);
        }
        let mut co = self.cpus[i].co.take().expect("it is not running");
        MACHINE.set(self);
        let result = co.resume(());
        self.capture();
        MACHINE.set(null_mut());
        if let CoroutineResult::Return(()) = result {
            self.cpus[i].wait = Wait::Done;
        }
        self.cpus[i].co = Some(co);
        for w in self.cpus[i].buffer.iter().filter(|w| !w.unlock) {
            let mut bytes = [0; 8];
            let (at, size) = (w.at as usize, usize::from(w.size));
            bytes[..size].copy_from_slice(&self.global[at..at + size]);
            self.show(w.at, w.size, u64::from_le_bytes(bytes));
        }
    }

    /// What may happen next: CPUs that may do a step, then writes that may reach memory.
    fn choices(&self, kicked: u64) -> Vec<(usize, Option<usize>)> {
        let mut choices = Vec::new();
        for (i, cpu) in self.cpus.iter().enumerate() {
            let may = match cpu.wait {
                Wait::Step(_) => true,
                Wait::Lock => self.owner.is_none(),
                Wait::Kick => kicked >> i & 1 == 1,
                Wait::Done => false,
            };
            if may {
                choices.push((i, None));
            }
        }
        for (i, cpu) in self.cpus.iter().enumerate() {
            let first = cpu.buffer.iter().position(|w| self.visible(w));
            choices.extend(first.map(|k| (i, Some(k))));
            let loose = cpu.buffer.iter().position(|w| w.loose).filter(|k| Some(*k) != first);
            choices.extend(loose.map(|k| (i, Some(k))));
        }
        choices
    }

    fn apply(&mut self, (i, write): (usize, Option<usize>)) {
        match write {
            None => self.step(i),
            Some(k) => {
                let alone = self.cpus[i].buffer[k].loose && self.mutation != Mutation::None;
                let first = if alone { k } else { 0 };
                let writes: Vec<_> = self.cpus[i].buffer.drain(first..=k).collect();
                for w in writes {
                    self.land(w);
                    if !w.unlock {
                        self.show(w.at, w.size, w.to);
                    }
                }
            }
        }
    }

    /// What nobody has looked at reaches memory, too.
    fn settle(&mut self) {
        for i in 0..self.cpus.len() {
            for w in std::mem::take(&mut self.cpus[i].buffer) {
                self.land(w);
                self.show(w.at, w.size, w.to);
            }
        }
    }

    fn state(&self, world: u64) -> u64 {
        let mut h = DefaultHasher::new();
        (self.checksum, self.owner, world).hash(&mut h);
        for c in &self.cpus {
            (&c.buffer, c.history, c.wait, c.locked, c.touched).hash(&mut h);
        }
        h.finish()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// How many states there are, or what is wrong in one.
pub type Verdict = Result<usize, String>;

/// Goes through all orders in which so many CPUs can do `program`. `begin` gives memory's first state; `world` a
/// checksum of what the programs know beside memory, and the CPUs that are told to go on; `end` says what is wrong when
/// nothing is left to do.
pub fn explore<'a>(
    m: &mut Machine,
    cpus: usize,
    program: impl Fn(usize) + Copy + 'static,
    begin: impl Fn() -> &'a [u8],
    world: impl Fn() -> (u64, u64),
    end: impl Fn() -> Result<(), String>,
) -> Verdict {
    loop {
        let mut seen = HashSet::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        loop {
            m.reset(begin(), cpus, program);
            m.wrong = None;
            let mut depth = 0;
            loop {
                let (checksum, kicked) = world();
                let choices = m.choices(kicked);
                if depth == path.len() {
                    if m.wrong.is_none() && choices.is_empty() {
                        m.settle();
                        m.wrong = end().err();
                    }
                    if let Some(wrong) = m.wrong.take() {
                        return Err(wrong);
                    }
                    if choices.is_empty() || !seen.insert(m.state(checksum)) {
                        break;
                    }
                    path.push((0, choices.len()));
                }
                m.apply(choices[path[depth].0]);
                depth += 1;
                assert!(depth < 100_000, "it never ends");
            }
            while path.last().is_some_and(|p| p.0 + 1 == p.1) {
                path.pop();
            }
            match path.last_mut() {
                Some(last) => last.0 += 1,
                None => break,
            }
        }
        if !m.learn() {
            return Ok(seen.len());
        }
    }
}

// What programs say.

/// Others may act here.
pub fn pause() {
    if machine().is_some() {
        Machine::suspend(Wait::Step(u32::MAX));
    }
}

/// Waits until this CPU is told to go on.
pub fn wait_kick() {
    Machine::suspend(Wait::Kick);
}

/// All that this CPU has written is seen by all.
pub fn barrier() {
    if let Some(m) = machine() {
        m.capture();
        m.drain();
    }
}

/// What the CPU knows is `what`, no more.
pub fn mark(what: u64) {
    if let Some(m) = machine() {
        m.capture();
        m.cpus[m.current].history = mix(7, what);
    }
}

/// It has come to know `what`.
pub fn note(what: u64) {
    if let Some(m) = machine() {
        let i = m.current;
        m.cpus[i].history = mix(m.cpus[i].history, what);
    }
}

/// What was done without the lock is over.
pub fn alone_ends() {
    if let Some(m) = machine() {
        m.capture();
        m.cpus[m.current].touched = 0;
    }
}

/// Does something under the lock.
pub fn locked<T>(act: impl FnOnce() -> T) -> T {
    if machine().is_none() {
        return act();
    }
    Machine::suspend(Wait::Lock);
    let m = machine().expect("a CPU runs");
    let i = m.current;
    m.drain();
    assert!(m.owner.replace(i).is_none(), "the lock was free");
    m.cpus[i].locked = true;
    m.cpus[i].touched = 0;
    let result = act();
    let m = machine().expect("a CPU runs");
    m.capture();
    let unlock = Write { at: 0, size: 0, to: 0, unlock: true, loose: false, alone: None };
    m.cpus[i].buffer.push(unlock);
    m.cpus[i].locked = false;
    m.cpus[i].touched = 0;
    result
}
