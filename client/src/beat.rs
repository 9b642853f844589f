// SPDX-License-Identifier: GPL-2.0-only
//! Releasing jobs on time.

use std::time::Duration;

/// Tells the scheduler that the calling thread's job is complete: the next one begins now, or
/// when the thread next wakes up. Only for reservations made with marks; elsewhere it is an
/// ordinary yield.
///
/// The mark is sched_yield: the one call that means "I have done what I had to" to every
/// scheduler, and that a sched_ext scheduler sees at once.
pub fn job_done() {
    std::thread::yield_now();
}

/// A strictly periodic sequence of releases on CLOCK_MONOTONIC. It never drifts, and never
/// drops a release: who is late gets the missed ones at once, one after the other.
#[derive(Debug, Clone)]
pub struct Beat {
    next: u64,
    period: u64,
    marks: bool,
    begun: bool,
}

impl Beat {
    /// Releases every `period` ns, the first one now.
    pub fn new(period: u64) -> Self {
        Self::starting_at(now(), period)
    }

    /// As [`Beat::new`], for a reservation made with marks: each wait also marks the job before
    /// it as complete.
    pub fn marked(period: u64) -> Self {
        Self { marks: true, ..Self::new(period) }
    }

    /// Releases every `period` ns, the first one at `first` (CLOCK_MONOTONIC, ns).
    pub fn starting_at(first: u64, period: u64) -> Self {
        Self { next: first, period, marks: false, begun: false }
    }

    /// Ends the present job and sleeps until the next release. Returns how late the caller then
    /// is: next to nothing when it slept, more when the release had already passed.
    pub fn wait(&mut self) -> Duration {
        if self.begun && self.marks {
            job_done();
        }
        self.begun = true;
        let release = self.next;
        self.next = release.saturating_add(self.period);
        sleep_until(release);
        Duration::from_nanos(now().saturating_sub(release))
    }

    /// Time of the next release, CLOCK_MONOTONIC, ns.
    pub fn next_release(&self) -> u64 {
        self.next
    }
}

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn sleep_until(time: u64) {
    let at = libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    };
    let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: `at` is a valid time; an absolute sleep needs no place for what remains.
    while unsafe { libc::clock_nanosleep(clock, flags, &at, std::ptr::null_mut()) } == libc::EINTR {
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_caller_gets_every_missed_release_at_once_and_in_order() {
        let first = now() - 10_000_000;
        let mut beat = Beat::starting_at(first, 3_000_000);
        for missed in 0..4 {
            assert_eq!(beat.next_release(), first + missed * 3_000_000);
            let late = beat.wait().as_nanos() as u64;
            assert!(late >= 10_000_000 - missed * 3_000_000, "release {missed}: {late}");
        }
    }

    #[test]
    fn no_wait_returns_before_its_release() {
        let mut beat = Beat::marked(2_000_000);
        for _ in 0..3 {
            let release = beat.next_release();
            beat.wait();
            assert!(now() >= release);
        }
    }
}
