// SPDX-License-Identifier: GPL-2.0-only
//! What the jobs of a program have needed, and which numbers would have been enough for them.

use onbeat_model::units::format_duration;
use serde::Serialize;

/// Jobs that are kept, at most.
const MOST: usize = 4_000_000;
/// What is to be reserved for jobs to come is so much more than was enough for those that were.
const MARGIN: f64 = 1.1;
/// Per cent of a CPU beside the best-effort share: more is not to be had.
pub const MOST_PERCENT: u64 = 95;
/// The greatest job counts unless it is so much above what is enough for 99 of 100.
const OUTLIER: f64 = 1.5;

/// CPU time of jobs, ns.
#[derive(Debug, Default)]
pub struct Needs(Vec<u64>);

/// The same in a few numbers, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Jobs.
    pub jobs: usize,
    /// Half of them needed no more.
    pub p50_ns: u64,
    /// 99 of 100 needed no more.
    pub p99_ns: u64,
    /// None needed more.
    pub max_ns: u64,
}

impl Needs {
    /// Notes jobs: CPU time, and how many periods in a row that was.
    pub fn note(&mut self, jobs: &[(u64, u32)]) {
        for (work, periods) in jobs {
            let periods = (*periods).max(1);
            if self.0.len() < MOST {
                self.0.extend((0..periods).map(|_| work / u64::from(periods)));
            }
        }
    }

    /// In a few numbers, if there are jobs.
    pub fn summary(&self) -> Option<Summary> {
        let mut all = self.0.clone();
        all.sort_unstable();
        // The smallest value that so many of 100 do not exceed.
        let rank = |part: usize| all.get((all.len() * part).div_ceil(100).max(1) - 1).copied();
        Some(Summary { jobs: all.len(), p50_ns: rank(50)?, p99_ns: rank(99)?, max_ns: rank(100)? })
    }
}

impl Summary {
    /// A budget that would have been enough, ns; for all jobs, unless a few of them were far beyond the others.
    pub fn enough(&self) -> u64 {
        if self.max_ns as f64 <= OUTLIER * self.p99_ns as f64 { self.max_ns } else { self.p99_ns }
    }

    /// The options that reserve a tenth more, for a period of so many ns: whole per cent, rounded up, as much as a CPU
    /// offers at most.
    pub fn options(&self, period: u64) -> String {
        let wanted = (MARGIN * self.enough() as f64) as u64;
        let percent = (100 * wanted).div_ceil(period.max(1)).clamp(1, MOST_PERCENT);
        format!("--period {} --budget {percent}%", format_duration(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn quantiles_are_of_all_jobs_and_those_without_a_pause_count_alike() {
        let mut needs = Needs::default();
        assert_eq!(needs.summary(), None);
        needs.note(&(1..=98).map(|i| (i * MS, 1)).collect::<Vec<_>>());
        needs.note(&[(300 * MS, 2)]);
        let got = needs.summary().unwrap();
        assert_eq!(
            (got.jobs, got.p50_ns, got.p99_ns, got.max_ns),
            (100, 50 * MS, 150 * MS, 150 * MS)
        );
    }

    #[test]
    fn enough_is_the_greatest_job_but_not_one_far_beyond_all_others() {
        let of = |max_ns| Summary { jobs: 1000, p50_ns: 8 * MS, p99_ns: 10 * MS, max_ns };
        assert_eq!((of(14 * MS).enough(), of(16 * MS).enough()), (14 * MS, 10 * MS));
        assert_eq!(of(14 * MS).options(41_700_000), "--period 41.7ms --budget 37%");
        // No more than a CPU offers.
        assert_eq!(of(14 * MS).options(15 * MS), "--period 15ms --budget 95%");
    }
}
