// SPDX-License-Identifier: GPL-2.0-only
//! The tables on the terminal: one line a policy; where tasks differ, one for each of them before.

use comfy_table::{CellAlignment, Table, presets};
use onbeat_model::metrics::TaskMetrics;
use onbeat_model::run::Class;

use crate::limit::Limits;
use crate::{Outcome, answer, bounds, late};

/// Column heads and what they mean; used by the page too.
pub const COLUMNS: [(&str, &str); 17] = [
    ("policy", "scheduling policy"),
    ("owed late", "owed jobs that finished late or not at all: the number that must be 0"),
    ("of owed", "jobs that would have been in time with exactly the budget in each period"),
    ("late beyond", "other late jobs: they, or those before them, needed more than was reserved"),
    (
        "aborted",
        "jobs that were given up at their deadlines, owed or not; no job counts as late for that",
    ),
    ("worst fps", "least frames of any task in any one-second window"),
    ("mean fps", "mean frames per second over tasks and seconds"),
    ("sd", "standard deviation of the same"),
    ("miss %", "jobs that finished late or not at all, of all counted jobs"),
    ("tard. 99 % ms", "99th percentile of tardiness"),
    ("tard. max ms", "greatest tardiness"),
    ("preempt/job", "preemptions per job"),
    ("migr/job", "migrations per job"),
    ("CPU/job µs", "CPU time of a job, the kernel's in its name included"),
    ("BE CPUs", "CPU time of best-effort tasks over the length of the run"),
    ("BE least", "the least of the same in any whole second of the run"),
    ("lost", "events that were lost; figures are lower bounds if there are any"),
];

/// Column heads of the results of each task, and what they mean.
pub const TASK_COLUMNS: [(&str, &str); 10] = [
    ("policy", "scheduling policy"),
    ("task", "the task; those of one entry that were never late share a line"),
    ("period ms", "time between its releases"),
    ("budget ms", "what is reserved for it in each period"),
    ("jobs", "counted jobs"),
    ("owed late", "owed jobs that finished late or not at all: the number that must be 0"),
    ("by ms", "greatest tardiness of an owed job"),
    ("late beyond", "other late jobs: they, or those before them, needed more than was reserved"),
    ("tard. max ms", "greatest tardiness of any job"),
    ("promise", "pass: no owed job was late; FAIL: some were; –: nothing was owed"),
];

/// One line of figures in the order of [`COLUMNS`].
fn row(o: &Outcome) -> Vec<String> {
    let m = &o.metrics;
    vec![
        o.policy.clone(),
        m.owed_late.to_string(),
        m.owed.to_string(),
        beyond(m.misses - m.aborted.min(m.misses), m.owed_late.saturating_sub(m.owed_aborted)),
        m.aborted.to_string(),
        m.worst_fps.map_or_else(|| "–".into(), |n| n.to_string()),
        mean(m.mean_fps, 2),
        mean(m.fps_sd, 2),
        format!("{:.2}", m.miss_ratio * 100.0),
        format!("{:.2}", m.tardiness_p99_ms),
        format!("{:.2}", m.tardiness_max_ms),
        format!("{:.2}", m.preemptions),
        format!("{:.2}", m.migrations),
        mean(m.cpu_per_job_us, 1),
        format!("{:.3}", m.best_effort_cpus),
        mean(m.best_effort_least_cpus, 3),
        m.lost_events.to_string(),
    ]
}

/// A mean, or a dash where there is none.
pub fn mean(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".into(), |v| format!("{v:.digits$}"))
}

/// Late jobs that were not owed.
pub(crate) fn beyond(misses: u64, owed_late: u64) -> String {
    misses.saturating_sub(owed_late).to_string()
}

/// Heads with their meaning, and a line for each policy, without columns that have nothing to say: lost events if there
/// are none, and what is pooled over tasks if their periods differ. Below, if it is known, what a scheduler could do
/// that knows the future; of it only the late jobs are known.
pub(crate) fn summary(outcomes: &[&Outcome], limits: Option<&Limits>) -> Lines {
    let lost = outcomes.iter().any(|o| o.metrics.lost_events > 0);
    let aborted = outcomes.iter().any(|o| o.metrics.aborted > 0);
    // Those of frames are missing also where nobody lasts a second.
    let means = outcomes.iter().any(|o| o.metrics.tardiness_mean_ms.is_some());
    let seconds = outcomes.iter().any(|o| o.metrics.best_effort_least_cpus.is_some());
    let wanted = |head: &str| match head {
        "BE least" => seconds,
        "lost" => lost,
        "aborted" => aborted,
        // Shares and percentiles over all jobs are those of none of the tasks either.
        "worst fps" | "mean fps" | "sd" | "CPU/job µs" | "tard. 99 % ms" | "preempt/job"
        | "migr/job" => means,
        // It is the one figure that is known of a limit.
        "miss %" => means || limits.is_some(),
        _ => true,
    };
    let kept = |row: Vec<String>| {
        row.into_iter().zip(COLUMNS).filter(|(_, c)| wanted(c.0)).map(|(cell, _)| cell).collect()
    };
    let frames = answer::jobs(outcomes) == "frames";
    let named = |(head, about)| match head {
        "worst fps" if !frames => ("worst/s", "least jobs of any task in any one-second window"),
        "mean fps" if !frames => ("mean/s", "mean jobs per second over tasks and seconds"),
        _ => (head, about),
    };
    let head = COLUMNS.into_iter().filter(|c| wanted(c.0)).map(named).collect();
    let limit = |(name, late): (&str, String)| {
        COLUMNS.map(|column| match column.0 {
            "policy" => name.into(),
            "miss %" => late.clone(),
            _ => "–".into(),
        })
    };
    let limits = limits.map(Limits::rows).unwrap_or_default().into_iter().map(limit);
    let rows = outcomes.iter().map(|o| row(o)).chain(limits.map(Vec::from));
    Lines { head, rows: rows.map(kept).collect() }
}

/// Results of each task under each policy, if tasks differ in period, budget or work; else `None`.
pub(crate) fn by_task(outcomes: &[&Outcome]) -> Option<Lines> {
    if outcomes.iter().all(|o| o.uniform()) {
        return None;
    }
    let rows = outcomes.iter().flat_map(|o| task_rows(o)).collect();
    Some(Lines { head: TASK_COLUMNS.to_vec(), rows })
}

/// One line a task; those of an entry that were never late share one.
fn task_rows(o: &Outcome) -> Vec<Vec<String>> {
    let mut groups: Vec<(&TaskMetrics, usize, u64)> = Vec::new();
    for task in o.reserved() {
        let alike = |first: &TaskMetrics| {
            (first.misses, first.entry, first.owed == 0) == (0, task.entry, task.owed == 0)
        };
        match groups.iter_mut().find(|group| task.misses == 0 && alike(group.0)) {
            Some(group) => (group.1, group.2) = (group.1 + 1, group.2 + task.jobs),
            None => groups.push((task, 1, task.jobs)),
        }
    }
    let line = |(task, count, jobs): (&TaskMetrics, usize, u64)| {
        let name = match count {
            1 => task.name.clone(),
            n => format!("{} and {} more", task.name, n - 1),
        };
        vec![
            o.policy.clone(),
            name,
            number(task.period_ms),
            if task.budget_ms > 0.0 { number(task.budget_ms) } else { "–".into() },
            jobs.to_string(),
            task.owed_late.to_string(),
            format!("{:.2}", task.owed_tardiness_max_ms),
            beyond(
                task.misses.saturating_sub(task.aborted),
                task.owed_late.saturating_sub(task.owed_aborted),
            ),
            format!("{:.2}", task.tardiness_max_ms),
            verdict(task).into(),
        ]
    };
    groups.into_iter().map(line).collect()
}

/// Whether the promise to a task was kept.
pub(crate) fn verdict(task: &TaskMetrics) -> &'static str {
    match (task.owed, task.owed_late) {
        (0, _) => "–",
        (_, 0) => "pass",
        _ => "FAIL",
    }
}

/// Column heads of best-effort loads that sleep, and what they mean.
pub const LOAD_COLUMNS: [(&str, &str); 7] = [
    ("policy", "scheduling policy"),
    ("load", "the best-effort load"),
    ("CPUs", "its CPU time over the length of the run"),
    ("wake-ups", "times it woke and ran"),
    ("mean ms", "mean time from waking to running"),
    ("99 % ms", "99th percentile of the same"),
    ("max ms", "the longest such time"),
];

/// So many copies of a load have a line each; more share one.
const COPIES: usize = 4;

/// One line for each best-effort load under each policy, or for many copies, if there are any that sleep; else `None`.
pub(crate) fn loads(outcomes: &[&Outcome]) -> Option<Lines> {
    let of = |o: &&Outcome| {
        let (policy, seconds) = (o.policy.clone(), o.metrics.seconds);
        let row = move |copies: &[&TaskMetrics]| {
            let first = copies[0];
            let sum = |of: &dyn Fn(&TaskMetrics) -> f64| copies.iter().map(|t| of(t)).sum::<f64>();
            let (cpu, wakes) = (sum(&|t| t.cpu_ms) / 1e3, sum(&|t| t.wakes as f64));
            let waited = sum(&|t| t.wake_mean_ms * t.wakes as f64) / wakes.max(1.0);
            let most = copies.iter().map(|t| t.wake_max_ms).fold(0.0, f64::max);
            let several = copies.len() > 1;
            vec![
                policy.clone(),
                first.name.clone()
                    + &if several {
                        format!(" and {} more", copies.len() - 1)
                    } else {
                        String::new()
                    },
                format!("{:.3}", if seconds > 0.0 { cpu / seconds } else { 0.0 }),
                format!("{wakes:.0}"),
                format!("{waited:.3}"),
                if several { "–".into() } else { format!("{:.3}", first.wake_p99_ms) },
                format!("{most:.3}"),
            ]
        };
        let sleepers: Vec<&TaskMetrics> =
            o.tasks.iter().filter(|t| t.class == Class::BestEffort && t.wakes > 0).collect();
        let alike = sleepers.chunk_by(|a, b| stem(a) == stem(b));
        alike
            .flat_map(|copies| copies.chunks(if copies.len() > COPIES { copies.len() } else { 1 }))
            .map(row)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = outcomes.iter().flat_map(of).collect();
    (!rows.is_empty()).then(|| Lines { head: LOAD_COLUMNS.to_vec(), rows })
}

/// A task's name without the number of the copy.
fn stem(task: &TaskMetrics) -> &str {
    let name = task.name.trim_end_matches(|c: char| c.is_ascii_digit());
    if name.ends_with('-') { name } else { &task.name }
}

/// Milliseconds as short as they can be told to a microsecond.
fn number(ms: f64) -> String {
    let text = format!("{ms:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// A table without its looks.
pub(crate) struct Lines {
    /// Heads, and what they mean.
    pub head: Vec<(&'static str, &'static str)>,
    pub rows: Vec<Vec<String>>,
}

impl Lines {
    /// As text: lines without colour and ending in a newline; the same on every terminal. Texts are to the left in the
    /// first `left` columns.
    fn text(self, left: usize) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(self.head.iter().map(|c| c.0));
        table.add_rows(self.rows);
        for column in table.column_iter_mut().skip(left) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text: String = table.lines().map(|l| format!("{}\n", l.trim_end())).collect();
        if text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// The tables as text: where tasks differ, first the results of each, then one line a policy, and the limits; then why
/// jobs were late, tardiness beside its bounds, and best-effort loads that sleep.
pub fn render(outcomes: &[Outcome], limits: Option<&Limits>) -> String {
    let outcomes: Vec<&Outcome> = outcomes.iter().collect();
    let each = by_task(&outcomes).map_or_else(String::new, |lines| lines.text(2) + "\n");
    let below = |lines: Option<Lines>, left| {
        lines.map_or_else(String::new, |lines| format!("\n{}", lines.text(left)))
    };
    let remark = bounds::remark(&outcomes).map_or_else(String::new, |said| format!("{said}\n"));
    let summary = summary(&outcomes, limits).text(1);
    let why = below(late::lines(&outcomes), late::LATE_COLUMNS.len());
    let all = [summary, why, below(bounds::lines(&outcomes), 2), remark];
    each + &all.concat() + &below(loads(&outcomes), 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    #[test]
    fn the_table_has_a_head_and_a_line_for_each_policy() {
        let text = render(&[outcome("g-edf+fcbs"), outcome("eevdf")], None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.iter().position(|line| line.is_empty()), Some(3), "{text}");
        assert!(lines[0].trim_start().starts_with("policy"), "{text}");
        assert!(lines[1].contains("g-edf+fcbs") && lines[1].contains("24.33"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("lost"), "{text}");
    }

    #[test]
    fn where_tasks_differ_each_has_a_line_before_the_policies_and_there_are_no_means_of_them() {
        use crate::outcome::tests::sample;
        use onbeat_model::run::World;
        let mut run = sample("g-edf", World::Sim, 4);
        (run.tasks[1].entry, run.tasks[1].period) = (1, run.tasks[1].period * 2);
        run.tasks[1].budget *= 2; // so job 4 of 44 ms is owed
        let text = render(&[Outcome::of(&run)], None);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines.iter().rposition(|line| line.is_empty()), Some(6), "{text}");
        assert_eq!(
            lines[1],
            ["g-edf", "movie-0", "41", "25", "97", "0", "0.00", "0", "0.00", "pass"]
        );
        assert!(lines[2].starts_with(&["g-edf", "movie-1", "82", "50", "97"]), "{text}");
        assert!(text.contains("promise") && !text.contains("mean fps"), "{text}");
        run.tasks[1] = onbeat_model::run::TaskInfo { name: "x".into(), ..run.tasks[0].clone() };
        assert!(!render(&[Outcome::of(&run)], None).contains("promise"), "tasks are alike");
    }

    #[test]
    fn tasks_of_an_entry_that_were_never_late_share_a_line_and_a_broken_promise_fails() {
        let mut o = outcome("g-edf");
        o.tasks[1].budget_ms = 1.0;
        let other = TaskMetrics { name: "movie-7".into(), ..o.tasks[0].clone() };
        o.tasks.push(other);
        (o.tasks[1].owed, o.tasks[1].owed_late) = (3, 1);
        let rows = by_task(&[&o]).unwrap().rows;
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0][1].as_str(), rows[0][4].as_str()), ("movie-0 and 1 more", "194"));
        assert_eq!((rows[1][5].as_str(), rows[1][9].as_str()), ("1", "FAIL"));
        assert_eq!(rows[1][7], "18"); // 19 late in all
    }

    #[test]
    fn lost_events_get_a_column() {
        let mut o = outcome("g-edf");
        o.metrics.lost_events = 12;
        let text = render(&[o], None);
        assert!(text.contains("lost") && text.contains("12"), "{text}");
    }

    #[test]
    fn aborted_jobs_have_a_column_and_are_not_late_and_loads_that_sleep_a_table() {
        let mut o = outcome("g-edf");
        assert!(!render(&[o.clone()], None).contains("aborted"));
        (o.metrics.misses, o.metrics.aborted) = (9, 4);
        (o.metrics.owed_late, o.metrics.owed_aborted) = (3, 1);
        let lines = summary(&[&o], None);
        let cell = |head: &str| {
            let at = lines.head.iter().position(|h| h.0 == head).unwrap();
            lines.rows[0][at].as_str()
        };
        // Five late, two of them owed; four aborted, one of them owed.
        assert_eq!((cell("late beyond"), cell("aborted"), cell("owed late")), ("3", "4", "3"));
        assert!(loads(&[&o]).is_none());
        let load = o.tasks.last_mut().unwrap();
        (load.name, load.wakes, load.wake_max_ms) = ("editor".into(), 12, 3.5);
        let text = render(&[o], None);
        let line = text.lines().last().unwrap();
        assert!(
            line.contains("editor") && line.contains("12") && line.ends_with("3.500"),
            "{text}"
        );
        let mut o = outcome("g-edf");
        let load = o.tasks.pop().unwrap();
        for (i, wakes) in (0..5).zip([1, 1, 1, 1, 4]) {
            let (name, wake_mean_ms) = (format!("generator-{i}"), wakes as f64);
            o.tasks.push(TaskMetrics { name, wakes, wake_mean_ms, ..load.clone() });
        }
        let rows = loads(&[&o]).unwrap().rows;
        assert_eq!((rows.len(), rows[0][1].as_str()), (1, "generator-0 and 4 more"));
        // Eight, of which four waited for 1 ms and four for 4 ms on average.
        assert_eq!((rows[0][3].as_str(), rows[0][4].as_str()), ("8", "2.500"));
    }

    #[test]
    fn limits_are_lines_with_a_figure_in_the_column_of_late_jobs_only() {
        use crate::limit::Span;
        let limits = Limits {
            jobs: 1000,
            capacity: 3.8,
            lag_ms: 1.0,
            guaranteed: Some(Span { bound: 52, found: Some(52) }),
            free: Some(Span { bound: 20, found: Some(23) }),
        };
        let text = render(&[outcome("g-edf")], Some(&limits));
        let lines: Vec<Vec<char>> = text.lines().map(|l| l.chars().collect()).collect();
        let end = |line: &[char], what: &str| {
            let line: String = line.iter().collect();
            let before = line.split_once(what).unwrap_or_else(|| panic!("{text}")).0;
            before.chars().count() + what.chars().count()
        };
        assert!(lines[4].is_empty(), "{text}");
        let edge = end(&lines[0], "miss %");
        for (line, name, figure) in
            [(&lines[2], " limit ", "5.20"), (&lines[3], " limit, no guarantee ", "2.00 to 2.30")]
        {
            assert_eq!(end(line, figure), edge, "{text}");
            let line: String = line.iter().collect();
            assert!(line.starts_with(name) && line.contains('–'), "{text}");
            assert_eq!(line.matches('.').count(), figure.matches('.').count(), "{text}");
        }
        let nothing = Limits { guaranteed: None, free: None, ..limits };
        assert_eq!(render(&[outcome("g-edf")], Some(&nothing)), render(&[outcome("g-edf")], None));
    }
}
