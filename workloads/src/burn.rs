// SPDX-License-Identifier: GPL-2.0-only
//! Burning an exact amount of CPU time.
//!
//! The thread's CPU clock is the truth, but reading it is a system call. So most of the time goes
//! into a counting loop whose fastest speed is known, and each stretch of it is a fixed part of
//! what remains: even when the CPU suddenly runs [`SLOWDOWN`] times slower (virtual CPUs that
//! share one host core do), a stretch cannot overshoot. A job of 20 ms takes about 80 reads.

use crate::board::Job;
use crate::sys;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

/// How many times slower than its best the CPU may become without harm to precision.
const SLOWDOWN: f64 = 9.0;

/// Burns CPU time, and knows how fast it can at best.
#[derive(Debug, Clone)]
pub struct Burner {
    /// Loop iterations per ns of CPU time, the most ever seen.
    speed: f64,
    /// CPU time of one read of the clock, ns.
    read_cost: u64,
}

impl Burner {
    /// Measures the loop and the clock, which takes some 2 ms of CPU time.
    pub fn calibrate() -> Self {
        let mut burner = Self { speed: 0.0, read_cost: u64::MAX };
        let mut last = sys::thread_cpu();
        for _ in 0..64 {
            let now = sys::thread_cpu();
            burner.read_cost = burner.read_cost.min((now - last).max(1));
            last = now;
        }
        let mut iterations = 1000;
        for _ in 0..10 {
            let took = burner.stretch(iterations);
            if took < 200_000 {
                iterations *= 2;
            }
        }
        burner
    }

    /// Spins `iterations` times and learns from it; returns the CPU time it took, ns.
    fn stretch(&mut self, iterations: u64) -> u64 {
        let begin = sys::thread_cpu();
        spin(iterations);
        let took = (sys::thread_cpu() - begin).max(1);
        self.speed = self.speed.max(iterations as f64 / took as f64);
        took
    }

    /// Iterations that take `ns` on the CPU at its fastest, and up to [`SLOWDOWN`] times that.
    pub fn iterations(&self, ns: u64) -> u64 {
        ((ns as f64 * self.speed) as u64).max(1)
    }

    /// Returns when the calling thread's CPU clock has reached `target` (ns), to within about a
    /// read of that clock; the value is the clock's last reading.
    pub fn until(&mut self, target: u64) -> u64 {
        self.until_or(target, 0)
    }

    /// The same, or when CLOCK_MONOTONIC has reached `due` (ns; 0: never).
    pub fn until_or(&mut self, target: u64, due: u64) -> u64 {
        let mut now = sys::thread_cpu();
        // Half a read early is as near as half a read late.
        while now + self.read_cost / 2 < target {
            let mut left = target - now;
            if due > 0 {
                // No more than 50 us late.
                left = left.min(due.saturating_sub(sys::monotonic()).max(50_000));
                if sys::monotonic() >= due {
                    break;
                }
            }
            let iterations = self.iterations((left as f64 / SLOWDOWN) as u64);
            spin(iterations);
            let then = std::mem::replace(&mut now, sys::thread_cpu());
            // Short stretches are mostly the read itself and say nothing about the loop.
            let took = (now - then).saturating_sub(self.read_cost);
            if took > 100 * self.read_cost {
                self.speed = self.speed.max(iterations as f64 / took as f64);
            }
        }
        now
    }
}

/// Burns what a sequence of jobs asks for. A job that ends late, because the clock jumped over its
/// end, is made up for by the next: the error of one job never adds to that of another.
#[derive(Debug)]
pub struct Jobs {
    burner: Burner,
    due: Option<u64>,
}

impl Jobs {
    /// Calibrates, which takes some 2 ms of CPU time.
    pub fn calibrate() -> Self {
        Self { burner: Burner::calibrate(), due: None }
    }

    /// Burns `work` ns more than all jobs before, counted from `begin` (CPU time, ns) of the first
    /// job; returns the CPU time at the end.
    pub fn burn(&mut self, begin: u64, work: u64) -> u64 {
        let due = self.due.unwrap_or(begin) + work;
        self.due = Some(due);
        self.burner.until(due)
    }

    /// The same for what `record` asks for, which may be given up at its time; that it was is noted there.
    pub fn job(&mut self, begin: u64, record: &Job) -> u64 {
        let target = self.due.unwrap_or(begin) + record.work.load(Relaxed);
        let due = record.due.load(Relaxed);
        let end = self.burner.until_or(target, due);
        let whole = end + self.burner.read_cost >= target;
        record.aborted.store((!whole).into(), Relaxed);
        self.due = Some(if whole { target } else { end });
        end
    }
}

/// Counts to `iterations`, with 64 instructions that do nothing at each step: the plainest there are, of
/// which an emulator executes several times as many a second as of a loop's own. No PAUSE: it
/// would give up a virtual CPU's turn.
pub fn spin(iterations: u64) {
    for i in 0..iterations {
        black_box(i);
        // SAFETY: no-ops touch nothing.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        unsafe {
            std::arch::asm!(".rept 64", "nop", ".endr", options(nomem, nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burn_never_ends_more_than_half_a_clock_read_before_its_target() {
        let mut burner = Burner::calibrate();
        for work in [1_000, 50_000, 3_000_000] {
            let target = sys::thread_cpu() + work;
            let end = burner.until(target);
            assert!(end + burner.read_cost >= target, "{work}: {end} < {target}");
        }
    }

    #[test]
    fn what_a_job_used_too_much_the_next_one_uses_less() {
        let mut jobs = Jobs::calibrate();
        let begin = sys::thread_cpu();
        jobs.burn(begin, 100_000);
        jobs.burner.until(sys::thread_cpu() + 500_000); // as if the clock had jumped
        let late = sys::thread_cpu();
        assert!(jobs.burn(late, 300_000) < late + 250_000);
        assert!(jobs.burn(late, 1_000_000) + jobs.burner.read_cost >= begin + 1_400_000);
    }

    #[test]
    fn a_burn_whose_target_has_passed_returns_at_once() {
        let mut burner = Burner::calibrate();
        let now = sys::thread_cpu();
        assert!(burner.until(now / 2) >= now);
    }
}
