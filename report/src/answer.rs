// SPDX-License-Identifier: GPL-2.0-only
//! What a reader wants to know first: which policies kept every promise, which of these is best, and how far from the
//! limit it is.

use onbeat_model::policy::Policy;

use crate::Outcome;
use crate::limit::Limits;

/// The answer of one task set in one world.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// One sentence.
    pub headline: String,
    /// Policies that kept every promise, the best first.
    pub kept: Vec<String>,
    /// The others, with how many owed jobs were late.
    pub broken: Vec<String>,
    /// How far the best is from what could be; empty if nobody knows.
    pub limit: String,
    /// Why the figures may be too good; empty if they are not.
    pub doubt: String,
}

/// What jobs are called where all tasks show or decode pictures, by their names, and elsewhere.
pub(crate) fn jobs(outcomes: &[&Outcome]) -> &'static str {
    let pictures = ["movie", "video", "frame", "player", "display", "decode"];
    let mut tasks = outcomes.iter().flat_map(|o| o.reserved()).peekable();
    let some = tasks.peek().is_some();
    let all = tasks.all(|task| pictures.iter().any(|word| task.name.contains(word)));
    if some && all { "frames" } else { "jobs" }
}

/// Jobs that were late, not finished or given up.
fn late(o: &Outcome) -> u64 {
    o.metrics.misses
}

/// `3 of 882 frames (0.34 %)`.
fn part(n: u64, of: u64, jobs: &str) -> String {
    match n {
        0 => format!("none of {of} {jobs}"),
        n => format!("{n} of {of} {jobs} ({:.2} %)", n as f64 * 100.0 / of.max(1) as f64),
    }
}

/// Whether no reservation can make others late under it, whatever happens; what is not Onbeat's promises nothing.
fn isolates(o: &Outcome) -> bool {
    let of =
        |p| matches!(p, Policy::Core { order, server } if order.isolates() && server.isolates());
    o.policy.parse().is_ok_and(of)
}

/// The answer of outcomes of one world.
pub(crate) fn answer(outcomes: &[&Outcome], limits: Option<&Limits>) -> Answer {
    let jobs = jobs(outcomes);
    let owed = outcomes.iter().map(|o| o.metrics.owed).max().unwrap_or(0);
    // Fewest late; of equals those that would also keep their promises beside others, then least late.
    let mut kept: Vec<&Outcome> =
        outcomes.iter().copied().filter(|o| o.metrics.owed_late == 0).collect();
    let rank = |o: &&Outcome| (late(o), !isolates(o), (o.metrics.tardiness_max_ms * 1e6) as u64);
    kept.sort_by_key(rank);
    let mut broken: Vec<&Outcome> =
        outcomes.iter().copied().filter(|o| o.metrics.owed_late > 0).collect();
    broken.sort_by_key(|o| (o.metrics.owed_late, rank(o)));
    let names = |o: &Outcome| match isolates(o) {
        true => o.policy.clone(),
        false => format!("{} (does not isolate)", o.policy),
    };
    let said =
        |o: &Outcome| format!("{} ({} of {})", o.policy, o.metrics.owed_late, o.metrics.owed);
    let how = |o: &Outcome| {
        let late = part(late(o), o.metrics.jobs, jobs);
        match o.metrics.tardiness_max_ms {
            most if most > 0.0 => format!("{late} late, by at most {most:.1} ms"),
            _ => format!("{late} late"),
        }
    };
    let headline = match (outcomes, kept.first(), broken.first()) {
        ([], ..) => "Nothing was measured.".into(),
        (_, Some(best), _) if owed == 0 => {
            format!(
                "Nothing is reserved, so nothing is promised. Fewest late: {}: {}.",
                best.policy,
                how(best)
            )
        }
        (_, Some(best), Some(_)) => {
            format!("{} keeps every promise and is best: {}.", best.policy, how(best))
        }
        ([_], Some(best), None) => format!("{} keeps every promise: {}.", best.policy, how(best)),
        (_, Some(best), None) => {
            let all = if outcomes.len() == 2 { "Both policies keep" } else { "All policies keep" };
            match kept.iter().filter(|o| rank(o) == rank(best)).count() {
                1 => format!("{all} every promise; {} is best: {}.", best.policy, how(best)),
                n if n == outcomes.len() => {
                    format!("{all} every promise, and are equal: {}.", how(best))
                }
                n => format!(
                    "{all} every promise; {n} are best, {} among them: {}.",
                    best.policy,
                    how(best)
                ),
            }
        }
        (_, None, Some(least)) => format!(
            "No policy keeps every promise. {} breaks fewest: {} late.",
            least.policy,
            part(least.metrics.owed_late, least.metrics.owed, &format!("owed {jobs}"))
        ),
        (_, None, None) => "Nothing was measured.".into(),
    };
    let lost: u64 = outcomes.iter().map(|o| o.metrics.lost_events).sum();
    Answer {
        headline,
        kept: kept.iter().filter(|_| owed > 0).map(|o| names(o)).collect(),
        broken: broken.iter().map(|o| said(o)).collect(),
        limit: kept
            .first()
            .filter(|_| owed > 0)
            .map_or_else(String::new, |o| distance(o, limits, jobs)),
        doubt: match lost {
            0 => String::new(),
            n => format!("{n} events were lost, so there may be more late {jobs} than these."),
        },
    }
}

/// How far from the limit.
fn distance(best: &Outcome, limits: Option<&Limits>, jobs: &str) -> String {
    let Some((limits, span)) = limits.and_then(|l| Some((l, l.guaranteed?))) else {
        return String::new();
    };
    if limits.jobs != best.metrics.jobs || (span.bound == 0 && span.found.is_none()) {
        return String::new();
    }
    let least = match span.found {
        Some(found) if found == span.bound => format!("{found}"),
        Some(found) => format!("{} to {found}", span.bound),
        None => format!("at least {}", span.bound),
    };
    let more = late(best).saturating_sub(span.found.unwrap_or(span.bound));
    let noun = if least == "1" { jobs.trim_end_matches('s') } else { jobs };
    format!(
        "A scheduler that knew the future and kept all reservations would have {least} late {noun}: \
         {} has {more} more than that.",
        best.policy
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Span;
    use crate::outcome::tests::outcome;

    fn with(policy: &str, owed_late: u64, misses: u64) -> Outcome {
        let mut o = outcome(policy);
        (o.metrics.owed, o.metrics.owed_late) = (100, owed_late);
        (o.metrics.misses, o.metrics.lost_events) = (misses, 0);
        o
    }

    #[test]
    fn the_best_is_who_keeps_every_promise_and_not_who_has_fewest_late() {
        let (a, b, c) = (with("a", 1, 5), with("b", 0, 20), with("c", 0, 12));
        let found = answer(&[&a, &b, &c], None);
        assert!(found.headline.starts_with("c keeps every promise and is best: 12 of 194 frames"));
        assert_eq!(found.kept, ["c (does not isolate)", "b (does not isolate)"]);
        assert_eq!(found.broken, ["a (1 of 100)"]);
        assert_eq!((found.limit.as_str(), found.doubt.as_str()), ("", ""));
    }

    #[test]
    fn of_two_with_as_few_late_jobs_the_better_is_who_isolates() {
        let (shares, isolates) = (with("edf-wmr+fcbs", 0, 5), with("g-edzl+cbs-slack", 0, 5));
        let found = answer(&[&shares, &isolates], None);
        assert_eq!(found.kept, ["g-edzl+cbs-slack", "edf-wmr+fcbs (does not isolate)"]);
        assert!(found.headline.contains("g-edzl+cbs-slack is best"), "{}", found.headline);
    }

    #[test]
    fn where_nobody_keeps_them_all_nobody_is_called_best() {
        let (a, b) = (with("a", 7, 9), with("b", 3, 90));
        let found = answer(&[&a, &b], None);
        assert!(found.headline.starts_with("No policy keeps every promise. b breaks fewest: 3 of"));
        assert!(found.kept.is_empty() && !found.headline.contains("best"));
    }

    #[test]
    fn without_reservations_nothing_is_said_of_promises() {
        let mut a = with("a", 0, 4);
        a.metrics.owed = 0;
        let found = answer(&[&a], None);
        assert!(found.headline.starts_with("Nothing is reserved") && found.kept.is_empty());
        assert_eq!(answer(&[], None).headline, "Nothing was measured.");
    }

    #[test]
    fn equals_are_called_so_and_lost_events_raise_a_doubt() {
        let (a, mut b) = (with("a", 0, 4), with("b", 0, 4));
        assert!(answer(&[&a, &b], None).headline.contains("are equal: 4 of 194"));
        b.metrics.lost_events = 2;
        assert!(answer(&[&a, &b], None).doubt.starts_with("2 events were lost"));
    }

    #[test]
    fn the_distance_to_the_limit_counts_jobs() {
        let a = with("a", 0, 12);
        let limit = |bound, found| Limits {
            jobs: 194,
            capacity: 1.0,
            lag_ms: 1.0,
            guaranteed: Some(Span { bound, found }),
            free: None,
        };
        let said = |l: Limits| answer(&[&a], Some(&l)).limit;
        assert!(said(limit(9, Some(9))).contains("would have 9 late frames: a has 3 more"));
        assert!(said(limit(8, Some(10))).contains("8 to 10 late frames: a has 2 more"));
        assert!(said(limit(1, Some(1))).contains("would have 1 late frame: a has 11 more"));
        assert_eq!(said(limit(0, None)), "");
        assert_eq!(said(Limits { jobs: 7, ..limit(9, Some(9)) }), "", "of another set");
    }

    #[test]
    fn jobs_are_frames_only_where_all_tasks_say_so() {
        let mut a = with("a", 0, 0);
        assert_eq!(jobs(&[&a]), "frames");
        a.tasks[0].name = "control".into();
        assert_eq!(jobs(&[&a]), "jobs");
    }
}
