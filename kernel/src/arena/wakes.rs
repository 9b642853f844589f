// SPDX-License-Identifier: GPL-2.0-only
//! When threads have woken of late, as the kernel side notes it (`core/ob_beat.h`), which goes on while this looks.

use onbeat_core::ffi::{
    OB_BEAT_AT, OB_BEAT_LEVELS, OB_BEAT_UNIT, OB_BEAT_WAKES, ob_beats, ob_task,
};
use onbeat_model::beat::{self, Wake};

use super::Arena;

/// Threads that are looked at, at most: so the time that it takes is bounded.
const MOST: usize = 4096;
/// Who has not woken for so long, ns, has no rhythm that could be told.
const SILENT: u64 = 3 * beat::LONGEST;

/// A thread that has woken of late.
#[derive(Debug, Clone)]
pub struct Waking {
    /// Its number.
    pub tid: i32,
    /// Never another thread's.
    pub identity: u64,
    /// Where it is found.
    pub slot: usize,
    /// The reservation that it is under.
    pub reservation: Option<u32>,
    /// Its wake-ups, all of them and those after longer sleeps, each in order of time.
    pub series: Vec<Vec<Wake>>,
}

/// Threads that have woken of late.
#[derive(Debug, Clone, Default)]
pub struct Wakes {
    /// When that was, by the clock of the wake-ups, ns.
    pub now: u64,
    /// At most 4096.
    pub threads: Vec<Waking>,
    /// How many more there are.
    pub left_out: u64,
}

impl Arena {
    /// Threads that have woken of late; the kernel side has just set the clock. It begins at another slot each time, so
    /// that who is left out in a crowd is looked at another time.
    pub(crate) fn wakes(&self) -> Wakes {
        // SAFETY: `init`'s caller vouches for the memory.
        let now = unsafe { (&raw const (*self.base).clock).read_volatile() };
        let mut all = Wakes { now, ..Default::default() };
        let slots = self.shell().nr_tasks as usize;
        let first = (now / 1_000_000) as usize % slots.max(1);
        for slot in (first..slots).chain(0..first) {
            let (task, beats) = self.places(slot);
            // SAFETY: within the pools; words are read one by one, each of which the kernel side writes as one.
            unsafe {
                let identity = (&raw const (*task).payload).read_volatile();
                if identity == 0 || !has_woken(beats, now) {
                    continue;
                }
                if all.threads.len() == MOST {
                    all.left_out += 1;
                    continue;
                }
                let thread = Waking {
                    tid: (&raw const (*task).tid).read_volatile() as i32,
                    identity,
                    slot,
                    reservation: self.reservation_of(task),
                    series: (0..OB_BEAT_LEVELS as usize)
                        .map(|level| ring(beats, level, now))
                        .collect(),
                };
                // Its place may have become another's meanwhile.
                if self.lives(&thread) {
                    all.threads.push(thread);
                }
            }
        }
        all
    }

    /// Whether that thread is still there.
    pub(crate) fn lives(&self, thread: &Waking) -> bool {
        // SAFETY: within the pool.
        unsafe {
            let task = self.places(thread.slot).0;
            (&raw const (*task).payload).read_volatile() == thread.identity
                && (&raw const (*task).tid).read_volatile() as i32 == thread.tid
        }
    }

    /// A place in the pool of threads, and in that of their wake-ups.
    fn places(&self, slot: usize) -> (*const ob_task, *const ob_beats) {
        let s = self.shell();
        assert!(slot < s.nr_tasks as usize);
        // SAFETY: both pools have that many.
        unsafe { (s.tasks.add(slot), s.beats.add(slot)) }
    }

    /// The reservation that a thread is under, or would be but for its affinity.
    ///
    /// # Safety
    /// `task` is in the pool.
    unsafe fn reservation_of(&self, task: *const ob_task) -> Option<u32> {
        let s = self.shell();
        // SAFETY: as the caller vouches; the two point into the pool of reservations or are null.
        let (server, home) = unsafe {
            ((&raw const (*task).server).read_volatile(), (&raw const (*task).home).read_volatile())
        };
        let at = if server.is_null() { home } else { server };
        let all = s.servers as usize;
        let id = (at as usize).checked_sub(all)? / size_of::<onbeat_core::ffi::ob_server>();
        (id < s.nr_servers as usize).then_some(id as u32)
    }
}

/// When a word of a ring was, ns; it has only the lower bits of that, and may be of just after `now`.
fn time(word: u64, now: u64) -> u64 {
    let (unit, spare) = (OB_BEAT_UNIT, OB_BEAT_AT);
    let ago = (((now >> unit << spare).wrapping_sub(word >> spare << spare)) as i64) >> spare;
    now.saturating_add_signed(-(ago << unit))
}

/// Whether there are enough wake-ups, and the last one is not long ago.
///
/// # Safety
/// `beats` is in the pool.
unsafe fn has_woken(beats: *const ob_beats, now: u64) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        let count = (&raw const (*beats).count[0]).read_volatile();
        let last = count.wrapping_sub(1) as usize % OB_BEAT_WAKES as usize;
        let last = (&raw const (*beats).wake[0][last]).read_volatile();
        count > 2 && now.saturating_sub(time(last, now)) <= SILENT
    }
}

/// A ring, in order of time, without what may have been overwritten while it was read.
///
/// # Safety
/// `beats` is in the pool.
unsafe fn ring(beats: *const ob_beats, level: usize, now: u64) -> Vec<Wake> {
    const SIZE: u32 = OB_BEAT_WAKES;
    // SAFETY: as the caller vouches.
    let count = || unsafe { (&raw const (*beats).count[level]).read_volatile() };
    let head = count();
    let from = head.saturating_sub(SIZE);
    let words: Vec<u64> = (from..head)
        // SAFETY: as the caller vouches.
        .map(|i| unsafe { (&raw const (*beats).wake[level][(i % SIZE) as usize]).read_volatile() })
        .collect();
    // The next one is written before it is counted.
    let written = count().wrapping_sub(head).saturating_add(1);
    let lost = (written as usize).saturating_sub(SIZE as usize - words.len()).min(words.len());
    unwrapped(&words[lost..], now)
}

/// Words of a ring as wake-ups: CPU time counts from the first one on, as its upper bits are not kept.
fn unwrapped(words: &[u64], now: u64) -> Vec<Wake> {
    let mask = (1 << OB_BEAT_AT) - 1;
    let (mut used, mut before) = (0, words.first().map_or(0, |word| word & mask));
    words
        .iter()
        .map(|word| {
            used += ((word & mask).wrapping_sub(before) & mask) << OB_BEAT_UNIT;
            before = word & mask;
            Wake { at: time(*word, now), used }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_core::ffi::{onbeat_beat_slept, onbeat_beat_woke};
    use proptest::prelude::*;

    /// The rings of a thread that wakes and has used so much by then, having slept for so long.
    fn rings(wakes: &[(u64, u64, u64)], now: u64) -> Vec<Vec<Wake>> {
        let mut beats = ob_beats::default();
        for (at, used, slept) in wakes {
            // SAFETY: plain data.
            unsafe {
                onbeat_beat_slept(&mut beats, at - slept);
                onbeat_beat_woke(&mut beats, *at, *used);
            }
        }
        // SAFETY: nobody else has it.
        (0..3).map(|level| unsafe { ring(&beats, level, now) }).collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_ring_has_the_last_wake_ups_after_sleeps_of_its_gap() {
        let wakes: Vec<_> = (1..=60)
            .map(|i| (1000 * MS + i * 50 * MS, i * MS, [40, 10, 1][i as usize % 3] * MS))
            .collect();
        let got = rings(&wakes, 4001 * MS);
        // The oldest place is where the next one may be half written.
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [15, 15, 15]);
        let numbers = |level: usize| {
            got[level].iter().map(|w| (w.at - 1000 * MS + 2000) / (50 * MS)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(0), (46..=60).collect::<Vec<_>>());
        assert!(numbers(1).iter().all(|i| i % 3 != 2) && numbers(2).iter().all(|i| i % 3 == 0));
        assert!((got[2][14].used - got[2][0].used).abs_diff(42 * MS) < 2048);
    }

    proptest! {
        /// Whatever the clock's origin and however much has been used: to within two units.
        #[test]
        fn times_come_back_as_they_were(
            begin in 1u64 << 40..u64::MAX >> 10,
            used in 0u64..1 << 50,
            steps in proptest::collection::vec((1u64..3000, 0u64..3000), 3..15),
            ahead in 0u64..1 << 21,
        ) {
            let mut wakes = vec![];
            let (mut at, mut ran) = (begin, used);
            for (wait, work) in steps {
                (at, ran) = (at + (wait + work + 1) * MS, ran + work * MS);
                wakes.push((at, ran, (wait * MS).max(1 << 19)));
            }
            let got = &rings(&wakes, at - ahead)[0];
            prop_assert_eq!(got.len(), wakes.len());
            for (got, was) in got.iter().zip(&wakes) {
                prop_assert!(got.at.abs_diff(was.0) < 3000, "{} {}", got.at, was.0);
                prop_assert!(got.used.abs_diff(was.1 - wakes[0].1) < 3000);
            }
        }
    }
}
