// SPDX-License-Identifier: GPL-2.0-only
//! Why jobs were late: a table beside the others, of policies under which some were.

use onbeat_model::metrics::{Cause, LateJob, TaskMetrics, in_words};

use crate::Outcome;
use crate::table::Lines;

/// Column heads and what they mean.
pub const LATE_COLUMNS: [(&str, &str); 4] = [
    ("policy", "scheduling policy"),
    ("late task", "the task whose jobs were late; all of them where tasks are alike"),
    ("why", "how many jobs were late for which cause (docs/events.md)"),
    ("the latest", "the job that was latest, and who made it late"),
];

/// One line for each task under each policy with late jobs whose causes are known; where tasks are alike one for each
/// policy. `None` if there is none.
pub(crate) fn lines(outcomes: &[&Outcome]) -> Option<Lines> {
    let of = |o: &&Outcome| {
        let late: Vec<&TaskMetrics> = o.reserved().filter(|t| !t.late_causes.is_empty()).collect();
        let row = |name: &str, causes, tasks: &[&TaskMetrics]| {
            vec![o.policy.clone(), name.to_owned(), in_words(causes), latest(tasks)]
        };
        match &late[..] {
            [] => Vec::new(),
            late if o.uniform() => vec![row("all", &o.metrics.late_causes, late)],
            late => late.iter().map(|t| row(&t.name, &t.late_causes, &[t])).collect(),
        }
    };
    let rows: Vec<Vec<String>> = outcomes.iter().flat_map(of).collect();
    (!rows.is_empty()).then(|| Lines { head: LATE_COLUMNS.to_vec(), rows })
}

/// `movie-1, job 4: 3.00 ms, another reservation (movie-0)`.
fn latest(tasks: &[&TaskMetrics]) -> String {
    let jobs = tasks.iter().flat_map(|t| t.late_jobs.iter().map(move |job| (t, job)));
    // Of several the first.
    let latest = jobs.reduce(|a, b| if b.1.tardiness_ms > a.1.tardiness_ms { b } else { a });
    latest.map_or_else(String::new, |(task, job)| {
        format!("{}, job {}: {:.2} ms, {}", task.name, job.job, job.tardiness_ms, why(job))
    })
}

fn why(job: &LateJob) -> String {
    match &job.by {
        Some(by) if job.cause == Cause::Reservation => format!("{} ({by})", job.cause.words()),
        _ => job.cause.words().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    #[test]
    fn a_policy_with_late_jobs_has_a_line_that_says_why_and_one_without_has_none() {
        // Every fifth job of the second movie needs 44 ms, of 25 that are reserved in 41.
        let o = outcome("g-edf+cbs");
        let late = o.tasks[1].misses;
        let table = lines(&[&o]).unwrap();
        assert_eq!(table.rows[0][..3], ["g-edf+cbs", "all", &format!("{late} budget spent")]);
        assert!(
            table.rows[0][3].starts_with("movie-1, job 4: 3.00 ms, budget spent"),
            "{:?}",
            table.rows
        );
        let mut kept = o.clone();
        kept.tasks.iter_mut().for_each(|t| t.late_causes.clear());
        assert!(lines(&[&kept]).is_none());
    }

    #[test]
    fn where_tasks_differ_each_with_late_jobs_has_a_line_and_who_made_it_late_is_named() {
        let mut o = outcome("g-edf+cbs");
        o.tasks[0].budget_ms = 1.0;
        let job = &mut o.tasks[1].late_jobs[0];
        (job.cause, job.by) = (Cause::Reservation, Some("movie-0".into()));
        let table = lines(&[&o]).unwrap();
        assert_eq!(table.rows.len(), 1, "{:?}", table.rows);
        assert_eq!(table.rows[0][1], "movie-1");
        assert!(table.rows[0][3].ends_with("another reservation (movie-0)"), "{:?}", table.rows);
    }
}
