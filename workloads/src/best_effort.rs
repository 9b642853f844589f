// SPDX-License-Identifier: GPL-2.0-only
//! The life of a best-effort process: it spins all the time, or works in bursts and sleeps between them. Both note what
//! they have had at the end of each second of the run, so that nobody has to be woken to ask them.

use crate::board::{Board, Job};
use crate::burn::{Burner, Jobs, spin};
use crate::pace::Seat;
use crate::sys;
use std::sync::atomic::Ordering::Relaxed;

/// How long before the origin those that spin begin, ns: all CPUs are busy, and the processes spread over them, when
/// the first job is released.
const LEAD: u64 = 20_000_000;
/// CPU time between two looks of a best-effort process at the clock, ns.
const LOOK: u64 = 20_000;
/// The same of one that works in bursts, which looks at its CPU clock, too.
const BURST_LOOK: u64 = 200_000;
const SECOND: u64 = 1_000_000_000;

/// What a process had at the ends of the run's seconds.
struct Seconds<'b> {
    /// One record for each second, of which `used` is the CPU time at its end; empty: nobody wants to know.
    records: &'b [Job],
    /// How many have been noted.
    noted: usize,
    origin: u64,
    /// CPU time between two calls of [`Seconds::note`] that a process that runs makes, ns.
    look: u64,
}

impl<'b> Seconds<'b> {
    fn new(board: &'b Board, slot: Option<usize>, look: u64) -> Self {
        let slot = slot.and_then(|number| board.slots().get(number));
        let records = slot.map_or(&[][..], |slot| board.jobs(slot));
        Self { records, noted: 0, origin: board.header().origin.load(Relaxed), look }
    }

    /// When the next one ends, ns; u64::MAX: none is left.
    fn next(&self) -> u64 {
        let more = self.noted < self.records.len();
        if more { self.origin + (self.noted as u64 + 1) * SECOND } else { u64::MAX }
    }

    /// Notes what this thread had at the ends of seconds before `now`: it has been running since, or did not run.
    fn note(&mut self, now: u64) {
        while now >= self.next() {
            let since = (now - self.next()).min(self.look);
            let used = sys::thread_cpu().saturating_sub(since).max(1);
            self.records[self.noted].used.store(used, Relaxed);
            self.noted += 1;
        }
    }
}

impl Seat {
    /// Counts as fast as it can until the runner says stop, or for `alone` ns of real time, and records the CPU time it
    /// had at the origin, and in place `seconds` that at the ends of seconds. Returns the count.
    pub fn hog(&self, alone: Option<u64>, seconds: Option<usize>) -> u64 {
        let stretch = Burner::calibrate().iterations(LOOK);
        if !self.wait_for_origin(alone.is_some()) {
            return 0;
        }
        let mut seconds = Seconds::new(self.board(), seconds, LOOK);
        let origin = seconds.origin;
        let end = alone.map_or(u64::MAX, |duration| origin + duration);
        sys::sleep_until(origin.saturating_sub(LEAD));
        let mut count = 0;
        loop {
            spin(stretch);
            count += stretch;
            let now = sys::monotonic();
            let at_origin = &self.slot().cpu_at_origin;
            if now >= origin && at_origin.load(Relaxed) == 0 {
                // What it has used since: the time since, unless it did not run then.
                let since = (now - origin).min(LOOK);
                at_origin.store(sys::thread_cpu().saturating_sub(since).max(1), Relaxed);
            }
            seconds.note(now);
            if now >= end || self.stopped() {
                return count;
            }
        }
    }

    /// Does the bursts of this place one after the other, each when it has come and those before it are done, until all
    /// are, or the runner says stop; notes what it had as [`Seat::hog`] does.
    pub fn bursts(&self, seconds: Option<usize>) {
        let mut jobs = Jobs::calibrate();
        if !self.wait_for_origin(false) {
            return;
        }
        let mut seconds = Seconds::new(self.board(), seconds, BURST_LOOK);
        let slot = self.slot();
        let begin = sys::thread_cpu();
        slot.cpu_at_origin.store(begin.max(1), Relaxed);
        for (index, job) in (1..).zip(self.jobs()) {
            if self.stopped() {
                return;
            }
            sys::sleep_until(seconds.origin + job.release.load(Relaxed));
            let now = sys::monotonic();
            job.start.store(now, Relaxed);
            seconds.note(now);
            let mut left = job.work.load(Relaxed);
            while left > 0 && !self.stopped() {
                let part = left.min(BURST_LOOK);
                jobs.burn(begin, part);
                left -= part;
                seconds.note(sys::monotonic());
            }
            job.finish.store(sys::monotonic(), Relaxed);
            slot.completed.store(index, Relaxed);
        }
        self.wait_for_stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Plan;

    #[test]
    fn a_hog_counts_until_its_time_is_over_and_records_where_it_began() {
        let seat = Seat::alone(Plan { period: 2_000_000, ..Plan::default() }).unwrap();
        let begin = sys::monotonic();
        assert!(seat.hog(Some(20_000_000), None) > 0);
        assert!(sys::monotonic() - begin >= 20_000_000);
        let at_origin = seat.slot().cpu_at_origin.load(Relaxed);
        assert!((1..=sys::thread_cpu()).contains(&at_origin), "{at_origin}");
    }

    #[test]
    fn seconds_that_a_process_slept_through_end_with_what_it_had() {
        let board = Board::create(&[Plan { work: vec![0; 3], ..Plan::default() }]).unwrap();
        board.header().origin.store(1, Relaxed);
        let mut seconds = Seconds::new(&board, Some(0), LOOK);
        seconds.note(SECOND);
        assert_eq!(seconds.noted, 0, "the first ends at 1 s and 1 ns");
        seconds.note(2 * SECOND + LOOK);
        let used: Vec<u64> = seconds.records.iter().map(|r| r.used.load(Relaxed)).collect();
        assert!(used[0] > 0 && used[1].abs_diff(used[0]) < SECOND && used[2] == 0, "{used:?}");
        assert_eq!((seconds.noted, seconds.next()), (2, 3 * SECOND + 1));
    }
}
