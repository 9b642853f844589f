// SPDX-License-Identifier: GPL-2.0-only
//! The life of a periodic process: prepare, wait for the origin, run, leave. That of best effort: `best_effort.rs`.

use crate::board::{Board, GO, Job, PREPARE, Plan, STOP, Slot};
use crate::sys;
use anyhow::Result;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How long a nap is, ns.
pub const NAP: u64 = 2_000_000;

/// A process's place in a run.
#[derive(Debug)]
pub struct Seat {
    board: Arc<Board>,
    number: usize,
}

impl Seat {
    /// The place a runner has given this process.
    ///
    /// # Errors
    /// When `fd` is no board, or the board has no such slot.
    pub fn given(fd: RawFd, number: usize) -> Result<Self> {
        let board = Board::open(fd)?;
        board.slot(number)?;
        Ok(Self { board: Arc::new(board), number })
    }

    /// The place of a process that runs by itself and begins as soon as it is prepared.
    ///
    /// # Errors
    /// When there is not enough memory for the records.
    pub fn alone(plan: Plan) -> Result<Self> {
        Ok(Self { board: Arc::new(Board::create(&[plan])?), number: 0 })
    }

    /// The place of another thread of this process.
    ///
    /// # Errors
    /// When the board has no such slot.
    pub fn beside(&self, number: usize) -> Result<Self> {
        self.board.slot(number)?;
        Ok(Self { board: Arc::clone(&self.board), number })
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.board.slots()[self.number]
    }

    /// The jobs this process is to do.
    pub fn jobs(&self) -> &[Job] {
        self.board.jobs(self.slot())
    }

    /// Says that everything is prepared and waits for the origin; false when the run is called
    /// off. A process alone makes the origin itself.
    pub(crate) fn wait_for_origin(&self, alone: bool) -> bool {
        let header = self.board.header();
        if let Err(error) = sys::lock_memory() {
            eprintln!("onbeat: memory is not locked ({error}); page faults may delay jobs");
        }
        sys::no_timer_slack();
        self.slot().ready.store(1, Relaxed);
        if alone {
            header.origin.store(sys::monotonic() + 1_000_000, Relaxed);
            header.phase.store(GO, Relaxed);
        }
        while header.phase.load(Relaxed) == PREPARE {
            sys::futex_wait(&header.phase, PREPARE, None);
        }
        for _ in 0..header.naps.load(Relaxed) {
            sys::sleep_until(sys::monotonic() + NAP);
        }
        header.phase.load(Relaxed) == GO
    }

    pub(crate) fn stopped(&self) -> bool {
        self.board.header().phase.load(Relaxed) == STOP
    }

    /// Releases every job of this place at its time and records it. `job` is handed the record and
    /// the CPU time from which the job counts, does the work, and returns the CPU time at its end.
    /// The way to sleep and back belongs to the next job, so that all CPU time is some job's.
    ///
    /// Late jobs are not dropped, but for those that `job` gives up when the record says so: the next one begins at
    /// once.
    ///
    /// # Errors
    /// Those of `job`; the run ends there.
    pub fn run_jobs(
        &self,
        alone: bool,
        mut job: impl FnMut(&Job, u64) -> Result<u64>,
    ) -> Result<()> {
        if !self.wait_for_origin(alone) {
            return Ok(());
        }
        let slot = self.slot();
        let first = self.board.header().origin.load(Relaxed) + slot.offset.load(Relaxed);
        let (period, marks) = (slot.period.load(Relaxed), slot.marks.load(Relaxed) != 0);
        let patience = slot.patience.load(Relaxed);
        let mut used = sys::thread_cpu();
        for (index, record) in (0..).zip(self.jobs()) {
            if self.stopped() {
                return Ok(());
            }
            sys::sleep_until(first + index * period);
            if patience > 0 {
                record.due.store(first + index * period + patience, Relaxed);
            }
            record.start.store(sys::monotonic(), Relaxed);
            let end = job(record, used)?;
            record.finish.store(sys::monotonic(), Relaxed);
            record.used.store(end - used, Relaxed);
            slot.completed.store(index + 1, Relaxed);
            used = end;
            if marks {
                onbeat_client::job_done();
            }
        }
        if !alone {
            self.wait_for_stop();
        }
        Ok(())
    }

    /// The runner reads this process's counters before it lets it go.
    pub(crate) fn wait_for_stop(&self) {
        let phase = &self.board.header().phase;
        while !self.stopped() {
            sys::futex_wait(phase, GO, None);
        }
    }

    /// Waits for this place's first release; false when the run is called off.
    pub fn wait_for_first_release(&self) -> bool {
        let go = self.wait_for_origin(false);
        if go {
            let origin = self.board.header().origin.load(Relaxed);
            sys::sleep_until(origin + self.slot().offset.load(Relaxed));
        }
        go
    }

    /// What became of the jobs.
    pub fn ended(&self) -> Ended {
        let slot = self.slot();
        let jobs = slot.completed.load(Relaxed);
        let first = self.board.header().origin.load(Relaxed) + slot.offset.load(Relaxed);
        let period = slot.period.load(Relaxed);
        let mut ended = Ended { jobs, ..Ended::default() };
        for (index, job) in (0..jobs).zip(self.jobs()) {
            let finish = job.finish.load(Relaxed);
            ended.took = finish - first;
            let tardiness = finish.saturating_sub(first + (index + 1) * period);
            ended.late += u64::from(tardiness > 0 || job.aborted.load(Relaxed) != 0);
            ended.latest = ended.latest.max(tardiness);
            let cpu = job.used.load(Relaxed);
            ended.used += cpu;
            ended.most = ended.most.max(cpu);
        }
        ended
    }

    /// The same, for people.
    pub fn summary(&self) -> String {
        let Ended { jobs, took, late, latest, used, most } = self.ended();
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "{jobs} jobs in {:.3} s, {late} late (at most {:.3} ms), CPU time per job {:.3} ms \
             on average, {:.3} ms at most",
            took as f64 / 1e9,
            ms(latest),
            ms(used) / jobs.max(1) as f64,
            ms(most),
        )
    }
}

/// What became of a place's jobs, each due when the next is released; times in ns.
#[derive(Debug, Default, Clone, Copy)]
pub struct Ended {
    /// Those that are complete, or were given up.
    pub jobs: u64,
    /// From the first release to the last completion.
    pub took: u64,
    /// Those of them that were late.
    pub late: u64,
    /// The greatest tardiness.
    pub latest: u64,
    /// CPU time of all.
    pub used: u64,
    /// CPU time of the one that took most.
    pub most: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burn::Jobs;

    fn plan(work: &[u64]) -> Plan {
        Plan { offset: 0, period: 2_000_000, work: work.to_vec(), ..Plan::default() }
    }

    #[test]
    fn no_job_starts_before_its_release_and_each_uses_its_work() {
        let seat = Seat::alone(plan(&[300_000; 5])).unwrap();
        let mut jobs = Jobs::calibrate();
        seat.run_jobs(true, |job, begin| Ok(jobs.job(begin, job))).unwrap();
        let first = seat.board.header().origin.load(Relaxed);
        for (index, job) in (0..).zip(seat.jobs()) {
            assert!(job.start.load(Relaxed) >= first + index * 2_000_000);
            assert!(job.finish.load(Relaxed) > job.start.load(Relaxed));
        }
        let used: u64 = seat.jobs().iter().map(|job| job.used.load(Relaxed)).sum();
        assert!(used > 1_499_000, "{used}");
        assert_eq!(seat.slot().completed.load(Relaxed), 5);
        assert!(seat.summary().starts_with("5 jobs"), "{}", seat.summary());
    }

    #[test]
    fn a_job_that_is_given_up_ends_at_its_deadline_and_the_next_one_has_a_whole_period() {
        let work = [40_000_000, 300_000, 300_000];
        let patience = 2_000_000;
        let seat = Seat::alone(Plan { patience, ..plan(&work) }).unwrap();
        let mut jobs = Jobs::calibrate();
        seat.run_jobs(true, |job, begin| Ok(jobs.job(begin, job))).unwrap();
        let (first, ended) = (&seat.jobs()[0], seat.ended());
        assert_eq!(first.aborted.load(Relaxed), 1);
        assert!(first.finish.load(Relaxed) >= first.due.load(Relaxed));
        // What it left undone burdens nobody.
        assert!(ended.late >= 1 && ended.used < 30_000_000, "{ended:?}");
    }

    #[test]
    fn a_late_job_is_not_dropped_and_follows_at_once() {
        let seat = Seat::alone(plan(&[5_000_000, 1, 1])).unwrap();
        let mut jobs = Jobs::calibrate();
        seat.run_jobs(true, |job, begin| Ok(jobs.job(begin, job))).unwrap();
        let jobs = seat.jobs();
        assert!(jobs[1].start.load(Relaxed) >= jobs[0].finish.load(Relaxed));
        assert!(jobs[2].finish.load(Relaxed) > 0);
        assert!(seat.summary().contains("2 late") || seat.summary().contains("3 late"));
    }
}
