// SPDX-License-Identifier: GPL-2.0-only
//! The limit: what a scheduler that knows the future could do with a task set, beside what policies did.

use serde::{Deserialize, Serialize};

/// What the lines of limits are called in tables.
const ROW: &str = "limit";
const ROW_FREE: &str = "limit, no guarantee";

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
    /// What two searches for [the same](Limits::same_question) say together. Bounds are proven and schedules were made,
    /// so the greatest bound and the best schedule hold. A schedule that keeps all reservations is one without a
    /// guarantee, too; and what nobody can do without a guarantee, nobody can do with one.
    pub fn with(self, other: Limits) -> Limits {
        let both = |a: Option<Span>, b: Option<Span>| match (a, b) {
            (Some(a), Some(b)) => Some(a.with(b)),
            (one, other) => one.or(other),
        };
        let mut guaranteed = both(self.guaranteed, other.guaranteed);
        let mut free = both(self.free, other.free);
        if let (Some(guaranteed), Some(free)) = (&mut guaranteed, &mut free) {
            guaranteed.bound = guaranteed.bound.max(free.bound);
            free.found = [guaranteed.found, free.found].into_iter().flatten().min();
        }
        Limits { guaranteed, free, ..self }
    }

    /// Whether both are about so many jobs on such a machine.
    pub fn same_question(&self, other: &Limits) -> bool {
        let key = |l: &Limits| (l.jobs, l.capacity, l.lag_ms);
        key(self) == key(other)
    }

    /// Lines for a table of policies: a name, and the figure for the column of late jobs in per cent.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        [(ROW, self.guaranteed), (ROW_FREE, self.free)]
            .into_iter()
            .filter_map(|(name, span)| Some((name, span.filter(Span::tells)?.percent(self.jobs))))
            .collect()
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
    fn what_says_nothing_is_neither_a_line_nor_a_sentence() {
        let limits = Limits { free: Some(Span { bound: 20, found: None }), ..LIMITS };
        let rows = [("limit", "5.20".into()), ("limit, no guarantee", "at least 2.00".into())];
        assert_eq!(limits.rows(), rows);
        assert!(limits.sentence().contains("5.20 % if all reservations are kept, at least 2.00 %"));
        let nothing = Span { bound: 0, found: None };
        let nothing = Limits { guaranteed: None, free: Some(nothing), ..LIMITS };
        assert_eq!((nothing.sentence(), nothing.rows()), (String::new(), vec![]));
    }

    #[test]
    fn two_searches_of_one_set_tell_more_than_each() {
        let a = Span { bound: 3, found: None };
        let b = Span { bound: 2, found: Some(5) };
        assert_eq!(a.with(b), Span { bound: 3, found: Some(5) });
        assert!(!a.with(b).is_exact() && a.with(Span { bound: 0, found: Some(3) }).is_exact());
    }

    #[test]
    fn a_poorer_search_takes_nothing_away() {
        let poor = Span { bound: 0, found: None };
        let poor = Limits { guaranteed: Some(poor), free: Some(poor), ..LIMITS };
        assert_eq!((LIMITS.with(poor), poor.with(LIMITS)), (LIMITS, LIMITS));
        let unasked = Limits { guaranteed: None, ..LIMITS };
        assert_eq!((LIMITS.with(unasked), unasked.with(LIMITS)), (LIMITS, LIMITS));
    }

    #[test]
    fn schedules_with_a_guarantee_do_without_one_and_bounds_without_hold_with_one() {
        let span = |bound, found| Some(Span { bound, found });
        let with = Limits { guaranteed: span(10, Some(40)), free: None, ..LIMITS };
        let free = Limits { guaranteed: None, free: span(20, None), ..LIMITS };
        let both = with.with(free);
        assert_eq!((both.guaranteed, both.free), (span(20, Some(40)), span(20, Some(40))));
    }
}
