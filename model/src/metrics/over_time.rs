// SPDX-License-Identifier: GPL-2.0-only
//! Tardiness as time goes on.

use super::jobs_of;
use crate::run::Run;
use crate::units::MS;

/// Mean tardiness, ms, of the jobs of entry `entry` (all copies) whose deadlines lie in each interval of `every` ns
/// from 0 to the horizon; `None` where there are none, or where one has not ended and nobody knows how late it would
/// be.
pub fn tardiness_over_time(run: &Run, entry: u32, every: u64) -> Vec<Option<f64>> {
    let every = every.max(1);
    let mut sums = vec![(0u128, 0u64, true); (run.horizon_ns / every) as usize + 1];
    let of_tasks = jobs_of(run);
    let mine = run.tasks.iter().zip(&of_tasks).filter(|(task, _)| task.entry == entry);
    for job in mine.flat_map(|(_, jobs)| jobs) {
        let Some((sum, count, known)) = sums.get_mut((job.deadline / every) as usize) else {
            continue;
        };
        let late = job.ended().map(|end| u128::from(end.saturating_sub(job.deadline)));
        *sum += late.unwrap_or(0);
        *count += 1;
        *known &= late.is_some();
    }
    let mean = |(sum, count, known): (u128, u64, bool)| {
        (known && count > 0).then(|| sum as f64 / (count * MS) as f64)
    };
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};
    use crate::metrics::tests::{run, task};
    use crate::run::Class;

    #[test]
    fn a_job_counts_where_its_deadline_lies_and_one_without_an_end_hides_its_interval() {
        let at = |kind, time: u64, job, more| Event::new(time * MS, kind, job, more).of(0);
        let events = vec![
            at(EventKind::Release, 0, 0, 10 * MS),
            at(EventKind::Complete, 14, 0, MS),
            at(EventKind::Release, 10, 1, 20 * MS),
            at(EventKind::Complete, 15, 1, MS),
            at(EventKind::Release, 80, 2, 90 * MS),
        ];
        let run = run(vec![task("a", Class::Reserved, 10 * MS)], events, 100 * MS);
        let found = tardiness_over_time(&run, 0, 25 * MS);
        assert_eq!(found, [Some(2.0), None, None, None, None]);
        assert!(tardiness_over_time(&run, 1, 25 * MS).iter().all(Option::is_none));
    }
}
