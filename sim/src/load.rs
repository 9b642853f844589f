// SPDX-License-Identifier: GPL-2.0-only
//! What a thread has to do, and when.

/// A thread's work.
#[derive(Debug, Clone)]
pub enum Load {
    /// Job j is released at `first + j·period + delays[j]` and needs `times[j]` ns of a CPU.
    Jobs {
        /// First release, ns.
        first: u64,
        /// Between releases, ns.
        period: u64,
        /// How much later than that releases are, ns; never less than the one before. Missing ones: not at all.
        delays: Vec<u64>,
        /// Relative deadline, ns.
        deadline: u64,
        /// Execution times, ns; their number is that of jobs.
        times: Vec<u64>,
        /// The program marks its jobs.
        marks: bool,
    },
    /// Bursts of best-effort work: nobody waits for them, and nobody counts them.
    Bursts {
        /// When each comes, ns, ascending.
        arrivals: Vec<u64>,
        /// What each takes, ns, as many as arrivals.
        times: Vec<u64>,
    },
    /// Never ends.
    Endless,
}

/// Which of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Jobs,
    Bursts,
    Endless,
}

/// A load as the engine asks for it: for all kinds the same fields.
#[derive(Debug)]
pub(crate) struct Work {
    pub kind: Kind,
    first: u64,
    period: u64,
    delays: Vec<u64>,
    deadline: u64,
    times: Vec<u64>,
    pub marks: bool,
}

impl Work {
    pub fn new(load: Load) -> Self {
        match load {
            Load::Jobs { first, period, delays, deadline, times, marks } => {
                Self { kind: Kind::Jobs, first, period, delays, deadline, times, marks }
            }
            Load::Bursts { arrivals, times } => {
                let delays = arrivals;
                Self { kind: Kind::Bursts, delays, times, ..Self::new(Load::Endless) }
            }
            Load::Endless => Self {
                kind: Kind::Endless,
                first: 0,
                period: 0,
                delays: Vec::new(),
                deadline: 0,
                times: Vec::new(),
                marks: false,
            },
        }
    }

    /// Number of jobs or bursts.
    pub fn jobs(&self) -> usize {
        self.times.len()
    }

    /// When job `job` is released.
    pub fn release(&self, job: usize) -> u64 {
        let late = self.delays.get(job).copied().unwrap_or(0);
        self.first + job as u64 * self.period + late
    }

    /// Absolute deadline of a job released then.
    pub fn due(&self, release: u64) -> u64 {
        if self.kind == Kind::Jobs { release + self.deadline } else { u64::MAX }
    }

    /// What job `job` needs, ns.
    pub fn time(&self, job: usize) -> u64 {
        if self.kind == Kind::Endless { u64::MAX / 2 } else { self.times[job] }
    }
}
