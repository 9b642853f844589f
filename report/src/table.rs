// SPDX-License-Identifier: GPL-2.0-only
//! The table on the terminal: one line a policy.

use comfy_table::{CellAlignment, Table, presets};

use crate::Outcome;

/// Column heads and what they mean; used by the page too.
pub const COLUMNS: [(&str, &str); 12] = [
    ("policy", "scheduling policy"),
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
    ("lost", "events that were lost; figures are lower bounds if there are any"),
];

/// One line of figures in the order of [`COLUMNS`], without the last if no outcome lost events.
pub fn row(o: &Outcome) -> Vec<String> {
    let m = &o.metrics;
    vec![
        o.policy.clone(),
        m.worst_fps.map_or_else(|| "–".into(), |n| n.to_string()),
        format!("{:.2}", m.mean_fps),
        format!("{:.2}", m.fps_sd),
        format!("{:.2}", m.miss_ratio * 100.0),
        format!("{:.2}", m.tardiness_p99_ms),
        format!("{:.2}", m.tardiness_max_ms),
        format!("{:.2}", m.preemptions),
        format!("{:.2}", m.migrations),
        format!("{:.1}", m.cpu_per_job_us),
        format!("{:.3}", m.best_effort_cpus),
        m.lost_events.to_string(),
    ]
}

/// How many of [`COLUMNS`] are worth showing: the last only if events were lost.
pub(crate) fn width(outcomes: &[Outcome]) -> usize {
    let lost = outcomes.iter().any(|o| o.metrics.lost_events > 0);
    if lost { COLUMNS.len() } else { COLUMNS.len() - 1 }
}

/// The table as text, lines without colour and ending in a newline; the same on every terminal.
pub fn render(outcomes: &[Outcome]) -> String {
    let width = width(outcomes);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(COLUMNS[..width].iter().map(|c| c.0));
    for o in outcomes {
        table.add_row(row(o).into_iter().take(width));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    #[test]
    fn the_table_has_a_head_and_a_line_for_each_policy() {
        let text = render(&[outcome("g-edf+fcbs"), outcome("eevdf")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].trim_start().starts_with("policy"), "{text}");
        assert!(lines[1].contains("g-edf+fcbs") && lines[1].contains("24.33"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("lost"), "{text}");
    }

    #[test]
    fn lost_events_get_a_column() {
        let mut o = outcome("g-edf");
        o.metrics.lost_events = 12;
        let text = render(&[o]);
        assert!(text.contains("lost") && text.contains("12"), "{text}");
    }
}
