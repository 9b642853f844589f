// SPDX-License-Identifier: GPL-2.0-only
//! The columns of `onbeat top`: what each shows, how rows are ordered by it, and which have room.

use std::cmp::Ordering;

use onbeat_kernel::machine::format_cpus;
use onbeat_model::units::format_duration;

use super::state::Row;

/// What a column shows, in the order on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // `title` and `about` say what they are
pub enum Column {
    Id,
    User,
    Program,
    Policy,
    Cpus,
    Period,
    Deadline,
    Budget,
    Used,
    Rate,
    Threads,
    Jobs,
    Late,
    Owed,
    OwedLate,
    Worst,
    Gave,
    Got,
}

use Column::*;

impl Column {
    /// All of them.
    pub const ALL: [Column; 18] = [
        Id, User, Program, Policy, Cpus, Period, Deadline, Budget, Used, Rate, Threads, Jobs, Late,
        Owed, OwedLate, Worst, Gave, Got,
    ];

    /// The order in which they get room.
    const FIRST: [Column; 18] = [
        Program, Used, OwedLate, Id, Budget, Period, User, Jobs, Late, Cpus, Worst, Got, Gave,
        Policy, Owed, Rate, Threads, Deadline,
    ];

    /// Its place in [`Column::ALL`].
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|column| *column == self).expect("it is one of all")
    }

    /// Its head and its width; a program's is the least.
    pub fn head(self) -> (&'static str, u16) {
        match self {
            Id => ("ID", 4),
            User => ("USER", 8),
            Program => ("PROGRAM", 10),
            Policy => ("POLICY", 19),
            Cpus => ("CPUS", 7),
            Period => ("PERIOD", 8),
            Deadline => ("DEADLINE", 8),
            Budget => ("BUDGET", 8),
            Used => ("USED", 5),
            Rate => ("CPU%", 5),
            Threads => ("THR", 4),
            Jobs => ("JOBS", 8),
            Late => ("LATE", 6),
            Owed => ("OWED", 8),
            OwedLate => ("OWED LATE", 9),
            Worst => ("TARDINESS", 9),
            Gave => ("GAVE", 8),
            Got => ("GOT", 8),
        }
    }

    /// What it shows, in words.
    pub fn about(self) -> &'static str {
        match self {
            Id => "number of the reservation",
            User => "who made it",
            Program => "what it is for",
            Policy => "what serves it",
            Cpus => "where",
            Period => "time between releases",
            Deadline => "from release",
            Budget => "CPU time in each period",
            Used => "of the budget, since the last look",
            Rate => "of a CPU, since the last look",
            Threads => "that belong to it",
            Jobs => "finished",
            Late => "of them after their deadlines",
            Owed => "jobs that the budget was enough for",
            OwedLate => "of these, late: broken promises",
            Worst => "greatest, of an owed job or any",
            Gave => "budget left to others",
            Got => "from others, and of slack",
        }
    }

    /// Whether the interesting rows are those with most.
    pub fn most_first(self) -> bool {
        !matches!(self, Id | User | Program | Policy | Cpus | Period | Deadline)
    }

    /// Whether it holds words, which begin at its left.
    pub fn is_text(self) -> bool {
        matches!(self, User | Program | Policy | Cpus)
    }

    /// How rows are ordered by it.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        let number = |row: &Row| {
            let r = &row.of;
            match self {
                Id => r.id.into(),
                Period => r.period_ns,
                Deadline => r.deadline_ns,
                Budget => r.budget_ns,
                Threads => r.threads.into(),
                Jobs => r.jobs,
                Late => r.misses,
                Owed => r.owed,
                OwedLate => r.owed_late,
                Worst => r.tardiness_max_ns,
                Gave => r.donated_ns,
                Got => r.received_ns.saturating_add(r.slack_ns),
                _ => 0,
            }
        };
        match self {
            User => a.user.cmp(&b.user),
            Program => a.of.name.cmp(&b.of.name),
            Policy => a.of.policy.cmp(&b.of.policy),
            Cpus => a.of.cpus.cmp(&b.of.cpus),
            Used => a.used().total_cmp(&b.used()),
            Rate => a.rate.total_cmp(&b.rate),
            _ => number(a).cmp(&number(b)),
        }
    }

    /// What it shows of a row.
    pub fn text(self, row: &Row) -> String {
        let r = &row.of;
        match self {
            Id => r.id.to_string(),
            User => row.user.clone(),
            Program => r.name.clone(),
            Policy => r.policy.clone(),
            Cpus => format_cpus(&r.cpus),
            Period => time(r.period_ns),
            Deadline => time(r.deadline_ns),
            Budget => time(r.budget_ns),
            Used => percent(row.used()),
            Rate => percent(row.rate),
            Threads => r.threads.to_string(),
            Jobs => count(r.jobs),
            Late => count(r.misses),
            Owed => count(r.owed),
            OwedLate => count(r.owed_late),
            Worst => time(r.tardiness_max_ns),
            Gave => time(r.donated_ns),
            Got => time(r.received_ns.saturating_add(r.slack_ns)),
        }
    }
}

/// A time in at most 8 characters.
pub fn time(ns: u64) -> String {
    let exact = format_duration(ns);
    match ns {
        _ if exact.len() <= 6 => exact,
        0..1_000_000 => format!("{:.1}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", ns as f64 / 1e6),
        1_000_000_000..10_000_000_000_000 => format!("{:.2}s", ns as f64 / 1e9),
        _ => format!("{:.0}h", ns as f64 / 3.6e12),
    }
}

/// A part in at most 5 characters.
pub fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    if percent < 99.95 { format!("{percent:.1}") } else { format!("{:.0}", percent.min(99_999.0)) }
}

/// A number in at most 6 characters.
fn count(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.1}G", number as f64 / 1e9),
    }
}

/// The columns that have room in `width`, and their places and widths; one more is for the mark at the left. Names of
/// programs have what is left.
pub fn fitting(width: u16) -> Vec<(Column, u16, u16)> {
    let mut left = width.saturating_sub(1);
    let mut chosen = Vec::new();
    for column in Column::FIRST {
        let wide = column.head().1 + u16::from(!chosen.is_empty());
        if wide > left {
            break;
        }
        left -= wide;
        chosen.push(column);
    }
    chosen.sort_by_key(|column| column.index());
    let mut at = 1;
    let place = |column: Column| {
        let wide = column.head().1 + if column == Program { left.min(30) } else { 0 };
        at += wide + 1;
        (column, at - wide - 1, wide)
    };
    chosen.into_iter().map(place).collect()
}
