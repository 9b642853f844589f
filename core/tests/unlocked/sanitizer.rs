// SPDX-License-Identifier: GPL-2.0-only
//! The functions of a thread sanitizer that the compiler calls before each access to memory, or in place of an atomic
//! one.

use super::{Machine, Mutation, Wait, machine, note};

fn offset(at: *mut u8) -> Option<(&'static mut Machine, u32)> {
    let m = machine()?;
    let offset = (at as usize).wrapping_sub(m.memory as usize);
    (offset < m.layout.size).then_some((m, offset as u32))
}

/// An access is about to happen.
fn access(at: *mut u8, size: u8, write: bool, loose: bool) {
    let Some((m, off)) = offset(at) else { return };
    m.capture();
    if m.note_access(off, size, write) {
        Machine::suspend(Wait::Step(off));
    }
    let m = machine().expect("a CPU runs");
    if write {
        m.cpus[m.current].pending = Some((off, size, loose));
    } else {
        note(m.value(off, size));
    }
}

/// An atomic operation: the word's old value.
fn atomic(at: *mut u8, size: u8, act: impl Fn(u64) -> Option<u64>) -> u64 {
    let Some((m, off)) = offset(at) else {
        // SAFETY: the caller's own word, that nobody else has.
        unsafe {
            let mut old = [0; 8];
            std::ptr::copy_nonoverlapping(at, old.as_mut_ptr(), size.into());
            let old = u64::from_le_bytes(old);
            if let Some(new) = act(old) {
                std::ptr::copy_nonoverlapping(new.to_le_bytes().as_ptr(), at, size.into());
            }
            return old;
        }
    };
    m.capture();
    if m.note_access(off, size, true) {
        Machine::suspend(Wait::Step(off));
    }
    let m = machine().expect("a CPU runs");
    let plain = m.mutation == Mutation::Swap(off) || m.mutation == Mutation::Atomic(off);
    if !plain {
        m.drain();
    }
    let old = m.value(off, size);
    note(old);
    let Some(new) = act(old) else { return old };
    if m.mutation == Mutation::Atomic(off) {
        Machine::suspend(Wait::Step(off));
    }
    let m = machine().expect("a CPU runs");
    m.show(off, size, new);
    m.push(off, size, new, false);
    if !plain {
        m.drain();
    }
    old
}

macro_rules! accesses {
    ($($read:ident $write:ident $size:expr;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $read(at: *mut u8) {
            access(at, $size, false, false);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $write(at: *mut u8) {
            access(at, $size, true, false);
        }
    )* };
}
accesses! {
    __tsan_read1 __tsan_write1 1;
    __tsan_read2 __tsan_write2 2;
    __tsan_read4 __tsan_write4 4;
    __tsan_read8 __tsan_write8 8;
}

macro_rules! atomics {
    ($($word:ty, $size:expr, $store:ident $exchange:ident $or:ident $and:ident $strong:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $store(at: *mut $word, to: $word, _order: i32) {
            let own = offset(at.cast()).map(|(m, off)| m.mutation == Mutation::Publish(off));
            access(at.cast(), $size, true, own == Some(true));
            // SAFETY: the caller's word.
            unsafe { at.write_volatile(to) };
        }
        #[unsafe(no_mangle)]
        extern "C" fn $exchange(at: *mut $word, to: $word, _order: i32) -> $word {
            atomic(at.cast(), $size, |_| Some(to.into())) as $word
        }
        #[unsafe(no_mangle)]
        extern "C" fn $or(at: *mut $word, bits: $word, _order: i32) -> $word {
            atomic(at.cast(), $size, |old| Some(old | u64::from(bits))) as $word
        }
        #[unsafe(no_mangle)]
        extern "C" fn $and(at: *mut $word, bits: $word, _order: i32) -> $word {
            atomic(at.cast(), $size, |old| Some(old & u64::from(bits))) as $word
        }
        #[unsafe(no_mangle)]
        extern "C" fn $strong(at: *mut $word, is: *mut $word, to: $word, _o: i32, _f: i32) -> i32 {
            // SAFETY: the caller's own.
            let expected = unsafe { *is };
            let old = atomic(at.cast(), $size, |old| (old == u64::from(expected)).then_some(to.into()));
            // SAFETY: as above.
            unsafe { *is = old as $word };
            i32::from(old == u64::from(expected))
        }
    )* };
}
atomics! {
    u32, 4, __tsan_atomic32_store __tsan_atomic32_exchange __tsan_atomic32_fetch_or __tsan_atomic32_fetch_and
        __tsan_atomic32_compare_exchange_strong;
    u64, 8, __tsan_atomic64_store __tsan_atomic64_exchange __tsan_atomic64_fetch_or __tsan_atomic64_fetch_and
        __tsan_atomic64_compare_exchange_strong;
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {}
#[unsafe(no_mangle)]
extern "C" fn __tsan_func_entry(_: *mut u8) {}
#[unsafe(no_mangle)]
extern "C" fn __tsan_func_exit() {}
