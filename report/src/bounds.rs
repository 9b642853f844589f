// SPDX-License-Identifier: GPL-2.0-only
//! Measured tardiness beside the bounds that the task-set file gives.

use onbeat_model::metrics::TaskMetrics;

use crate::Outcome;
use crate::table::Lines;

/// Column heads of measured tardiness beside its bounds, and what they mean.
pub const BOUND_COLUMNS: [(&str, &str); 8] = [
    ("policy", "scheduling policy"),
    ("task", "tasks with these bounds; figures are those of the one among them that is latest"),
    ("mean ms", "mean tardiness"),
    ("at most (2)", "its bound, in ms: the file's `expected`, equation 2 of Kenna et al."),
    ("owed max ms", "greatest tardiness of an owed job, one within the budget"),
    ("at most (1)", "its bound, in ms: the file's `tardiness`, equation 1 of Kenna et al."),
    ("max ms", "greatest tardiness of any job"),
    ("bounds", "which of them hold; –: no such job was measured"),
];

/// What is said where (2) does not hold.
pub const INDEPENDENT: &str = "Bound (2) takes execution times to be independent of each other, and their mean and \
     deviation to be known;\nwhere successive jobs are alike, as in a trace of a movie, the mean can be above it.";

/// Tasks of a run whose bounds are the same.
struct Alike<'a> {
    first: &'a TaskMetrics,
    count: usize,
    mean: f64,
    owed: f64,
    most: f64,
    /// Whether there was anything to hold against which of the bounds.
    seen: [bool; 2],
    /// Jobs that have not ended: nobody knows how late they are.
    unfinished: u64,
    /// How many are later than which of the bounds.
    beyond: [usize; 2],
}

impl<'a> Alike<'a> {
    fn of(outcome: &'a Outcome) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for task in outcome.reserved().filter(|t| bounds(t) != [None, None]) {
            let at = all.iter().position(|alike| bounds(alike.first) == bounds(task));
            let at = at.unwrap_or_else(|| {
                let beyond = [0, 0];
                let (mean, owed, most) = (0.0, 0.0, 0.0);
                let (seen, unfinished) = ([false; 2], 0);
                all.push(Self {
                    first: task,
                    count: 0,
                    mean,
                    owed,
                    most,
                    seen,
                    unfinished,
                    beyond,
                });
                all.len() - 1
            });
            let (alike, measured) = (&mut all[at], measured(task));
            alike.count += 1;
            alike.owed = alike.owed.max(measured[0]);
            alike.mean = alike.mean.max(measured[1]);
            alike.most = alike.most.max(task.tardiness_max_ms);
            alike.unfinished += task.unfinished;
            let ended = task.jobs > task.unfinished + task.aborted;
            for (i, some) in [task.owed > 0, ended].into_iter().enumerate() {
                alike.seen[i] |= some && bounds(task)[i].is_some();
            }
            for (i, bound) in bounds(task).into_iter().enumerate() {
                alike.beyond[i] += usize::from(bound.is_some_and(|bound| measured[i] > bound));
            }
        }
        all
    }

    fn verdict(&self) -> String {
        let broken = |i: usize| match (self.beyond[i], self.count) {
            (0, _) => None,
            (_, 1) => Some(format!("({}) exceeded", i + 1)),
            (n, of) => Some(format!("({}) exceeded by {n} of {of}", i + 1)),
        };
        let mut said: Vec<String> = [0, 1].into_iter().filter_map(broken).collect();
        if said.is_empty() {
            let given = bounds(self.first).map(|bound| bound.is_some());
            said.push(match [0, 1].map(|i| (given[i], self.seen[i])) {
                [(_, false), (_, false)] => "–".into(),
                [(true, false), _] => "(1) –, (2) holds".into(),
                [_, (true, false)] => "(1) holds, (2) –".into(),
                _ => "hold".into(),
            });
        }
        match self.unfinished {
            0 => (),
            1 => said.push("1 job has not ended".into()),
            n => said.push(format!("{n} jobs have not ended")),
        }
        said.join(", ")
    }

    fn row(&self, policy: &str) -> Vec<String> {
        let [tardiness, expected] = bounds(self.first);
        let bound = |ms: Option<f64>| ms.map_or_else(|| "–".into(), |ms| format!("{ms:.2}"));
        let name = match self.count {
            1 => self.first.name.clone(),
            n => format!("{} and {} more", self.first.name, n - 1),
        };
        vec![
            policy.into(),
            name,
            format!("{:.2}", self.mean),
            bound(expected),
            format!("{:.2}", self.owed),
            bound(tardiness),
            format!("{:.2}", self.most),
            self.verdict(),
        ]
    }
}

/// Bounds (1) and (2), ms.
fn bounds(task: &TaskMetrics) -> [Option<f64>; 2] {
    [task.bound_tardiness_ms, task.bound_expected_ms]
}

/// What they bound, ms.
fn measured(task: &TaskMetrics) -> [f64; 2] {
    [task.owed_tardiness_max_ms, task.tardiness_mean_ms]
}

/// One line for all tasks of a policy that have the same bounds; `None` if there are no bounds.
pub(crate) fn lines(outcomes: &[&Outcome]) -> Option<Lines> {
    let rows = |o: &&Outcome| -> Vec<_> {
        Alike::of(o).iter().map(|alike| alike.row(&o.policy)).collect()
    };
    let rows: Vec<_> = outcomes.iter().flat_map(rows).collect();
    (!rows.is_empty()).then(|| Lines { head: BOUND_COLUMNS.to_vec(), rows })
}

/// What is to be said of bounds that do not hold.
pub(crate) fn remark(outcomes: &[&Outcome]) -> Option<&'static str> {
    let beyond = outcomes.iter().any(|o| Alike::of(o).iter().any(|alike| alike.beyond[1] > 0));
    beyond.then_some(INDEPENDENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;
    use crate::table::render;

    #[test]
    fn tasks_with_the_same_bounds_share_a_line_that_says_how_many_are_later() {
        let mut o = outcome("edf-hsb-ns");
        assert!(lines(&[&o]).is_none(), "no bounds, no table");
        assert!(!render(&[o.clone()], None).contains("at most (1)"));
        for (task, mean) in o.tasks.iter_mut().zip([1.5, 2.5]) {
            (task.bound_tardiness_ms, task.bound_expected_ms) = (Some(4.0), Some(2.0));
            (task.tardiness_mean_ms, task.owed_tardiness_max_ms) = (mean, 2.0 * mean - 2.0);
            (task.jobs, task.owed, task.unfinished, task.aborted) = (9, 9, 0, 0);
        }
        let rows = lines(&[&o]).unwrap().rows;
        assert_eq!(rows.len(), 1, "{rows:?}");
        let of =
            |row: &[String]| row[2..6].iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        assert_eq!(of(&rows[0]), "2.50 2.00 3.00 4.00");
        assert_eq!(rows[0][7], "(2) exceeded by 1 of 2");
        assert!(render(&[o.clone()], None).contains("independent"));
        o.tasks[1].bound_expected_ms = Some(3.0);
        let rows = lines(&[&o]).unwrap().rows;
        assert_eq!((rows.len(), rows[0][7].as_str(), rows[1][7].as_str()), (2, "hold", "hold"));
        assert!(!render(&[o.clone()], None).contains("independent"));
        (o.tasks[0].owed, o.tasks[0].unfinished) = (0, 2);
        (o.tasks[1].jobs, o.tasks[1].owed, o.tasks[1].unfinished) = (1, 0, 1);
        let rows = lines(&[&o]).unwrap().rows;
        assert_eq!(rows[0][7], "(1) –, (2) holds, 2 jobs have not ended");
        assert_eq!(rows[1][7], "–, 1 job has not ended");
    }
}
