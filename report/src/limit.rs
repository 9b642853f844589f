// SPDX-License-Identifier: GPL-2.0-only
//! The limit: what a scheduler that knows the future could do with a task set, beside what policies did.

use serde::{Deserialize, Serialize};

/// Least number of late jobs of a task set. docs/limit.md says what exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Jobs that count.
    pub jobs: u64,
    /// CPUs that are left to the tasks beside best-effort work.
    pub capacity: f64,
    /// How far best-effort work may be behind its share on each CPU, ms.
    pub lag_ms: f64,
    /// If each task gets what its reservation owes it; `None` if nothing is reserved, or not computed.
    pub guaranteed: Option<Span>,
    /// If it need not.
    pub free: Option<Span>,
}

/// Where the least number lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// No scheduler has fewer.
    pub bound: u64,
    /// A schedule has that many; `None` if none was found.
    pub found: Option<u64>,
}

impl Span {
    /// What both say of the same task set.
    pub fn with(self, other: Span) -> Span {
        let found = [self.found, other.found].into_iter().flatten().min();
        Span { bound: self.bound.max(other.bound), found }
    }

    /// Whether it is one number.
    pub fn is_exact(&self) -> bool {
        self.found == Some(self.bound)
    }

    /// Whether it says more than that no job need be late.
    fn tells(&self) -> bool {
        self.bound > 0 || self.found.is_some()
    }

    /// In percent of `jobs`: `5.22`, `5.10 to 5.22`, or `at least 5.10`.
    pub fn percent(&self, jobs: u64) -> String {
        let part = |n: u64| format!("{:.2}", n as f64 * 100.0 / jobs.max(1) as f64);
        match self.found {
            Some(found) if found == self.bound => part(found),
            Some(found) => format!("{} to {}", part(self.bound), part(found)),
            None => format!("at least {}", part(self.bound)),
        }
    }
}

impl Limits {
    /// Lines to stand under a table of policies, the figures below those in the column of late jobs.
    pub fn lines(&self, table: &str) -> String {
        let edge = |line: &str| {
            let head = ["miss %", "late %"].into_iter().find(|head| line.contains(head))?;
            let end = line.find(head)? + head.len();
            Some(line[..end].chars().count())
        };
        let edge = table.lines().rev().find_map(edge).unwrap_or(0);
        let line = |label: &str, span: Option<Span>| {
            let Some(span) = span.filter(Span::tells) else { return String::new() };
            let label = format!(" {label} ");
            let room = edge.saturating_sub(label.chars().count());
            format!("{label}{:>room$}\n", span.percent(self.jobs))
        };
        line("limit", self.guaranteed) + &line("limit, no guarantee", self.free)
    }

    /// The same in a sentence; empty if nothing is known.
    pub fn sentence(&self) -> String {
        let part = |span: Span| format!("{} %", span.percent(self.jobs));
        let what = match (self.guaranteed.filter(Span::tells), self.free.filter(Span::tells)) {
            (Some(with), Some(free)) => {
                format!(
                    "{} if all reservations are kept, {} if they need not be",
                    part(with),
                    part(free)
                )
            }
            (Some(with), None) => format!("{} if all reservations are kept", part(with)),
            (None, Some(free)) => part(free),
            (None, None) => return String::new(),
        };
        format!(
            "Limit for a scheduler that knows the future, in late jobs: {what} (docs/limit.md)."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        jobs: 1000,
        capacity: 3.8,
        lag_ms: 1.0,
        guaranteed: Some(Span { bound: 52, found: Some(52) }),
        free: Some(Span { bound: 20, found: Some(23) }),
    };

    #[test]
    fn figures_stand_in_the_column_of_late_jobs() {
        let table =
            " policy           worst fps  miss %  sd\n g-edf+cbs               20   14.50   1\n";
        let lines = LIMITS.lines(table);
        let ends =
            |text: &str, what: &str| text.lines().find_map(|l| Some(l.find(what)? + what.len()));
        assert_eq!(ends(&lines, "5.20"), ends(table, "miss %"), "{lines}");
        assert_eq!(ends(&lines, "2.00 to 2.30"), ends(table, "miss %"), "{lines}");
    }

    #[test]
    fn without_such_a_column_the_figures_are_still_there() {
        let limits = Limits { free: Some(Span { bound: 20, found: None }), ..LIMITS };
        assert_eq!(limits.lines(""), " limit 5.20\n limit, no guarantee at least 2.00\n");
        assert!(limits.sentence().contains("5.20 % if all reservations are kept, at least 2.00 %"));
        let nothing = Span { bound: 0, found: None };
        let nothing = Limits { guaranteed: None, free: Some(nothing), ..LIMITS };
        assert_eq!((nothing.sentence(), nothing.lines("")), (String::new(), String::new()));
    }

    #[test]
    fn two_searches_of_one_set_tell_more_than_each() {
        let a = Span { bound: 3, found: None };
        let b = Span { bound: 2, found: Some(5) };
        assert_eq!(a.with(b), Span { bound: 3, found: Some(5) });
        assert!(!a.with(b).is_exact() && a.with(Span { bound: 0, found: Some(3) }).is_exact());
    }
}
