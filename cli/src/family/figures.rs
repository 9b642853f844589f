// SPDX-License-Identifier: GPL-2.0-only
//! What policies did on families, and the verdict on one of them.

use std::fmt::Write as _;

use onbeat_analysis::family::Family;
use onbeat_model::metrics::Metrics;
use onbeat_model::policy::Policy;
use serde::Serialize;
use serde_json::{Value, json};

/// One figure of several.
type Figure = fn(&Figures) -> f64;

/// How much above first come, first served is still as good.
const TOLERANCE: f64 = 1.1;

/// Figures of a policy over several sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Counted jobs.
    pub jobs: u64,
    /// Those that were late or did not finish.
    pub late: u64,
    /// Counted jobs that the reservations owed.
    pub owed: u64,
    /// Of those, late or unfinished ones: broken promises.
    pub owed_late: u64,
    /// Greatest tardiness, ms.
    pub tardiness_max_ms: f64,
    /// Preemptions per job.
    pub preemptions: f64,
    /// CPUs that best-effort work got, on average.
    pub best_effort_cpus: f64,
}

impl Figures {
    fn over(sets: &[&Metrics]) -> Self {
        let jobs = sets.iter().map(|m| m.jobs).sum();
        let preempted: f64 = sets.iter().map(|m| m.preemptions * m.jobs as f64).sum();
        let seconds: f64 = sets.iter().map(|m| m.seconds).sum();
        let best_effort: f64 = sets.iter().map(|m| m.best_effort_cpus * m.seconds).sum();
        let per = |sum: f64, n: f64| if n == 0.0 { 0.0 } else { sum / n };
        Self {
            jobs,
            late: sets.iter().map(|m| m.misses).sum(),
            owed: sets.iter().map(|m| m.owed).sum(),
            owed_late: sets.iter().map(|m| m.owed_late).sum(),
            tardiness_max_ms: sets.iter().map(|m| m.tardiness_max_ms).fold(0.0, f64::max),
            preemptions: per(preempted, jobs as f64),
            best_effort_cpus: per(best_effort, seconds),
        }
    }

    fn late_percent(&self) -> f64 {
        if self.jobs == 0 { 0.0 } else { 100.0 * self.late as f64 / self.jobs as f64 }
    }
}

/// A family under every policy.
#[derive(Debug, Clone)]
pub struct Judged {
    family: Family,
    policies: Vec<(Policy, Figures)>,
    /// Figures of every policy for each set.
    sets: Vec<Vec<Figures>>,
}

impl Judged {
    /// `played` holds the figures of each policy for each set.
    pub fn new(family: Family, policies: &[Policy], played: Vec<&Vec<Metrics>>) -> Self {
        let over = |(i, policy): (usize, &Policy)| {
            let own: Vec<&Metrics> = played.iter().map(|set| &set[i]).collect();
            (policy.clone(), Figures::over(&own))
        };
        let each = |set: &&Vec<Metrics>| set.iter().map(|m| Figures::over(&[m])).collect();
        Self {
            family,
            policies: policies.iter().enumerate().map(over).collect(),
            sets: played.iter().map(each).collect(),
        }
    }

    fn of(&self, policy: &Policy) -> (usize, &Figures) {
        let found = self.policies.iter().position(|(p, _)| p == policy);
        let at = found.expect("reference and judged policy are always played");
        (at, &self.policies[at].1)
    }

    fn verdict(&self, judged: &Policy, reference: &Policy) -> Verdict {
        let ((own_at, own), (other_at, other)) = (self.of(judged), self.of(reference));
        let mut faults = Vec::new();
        let rivals = self.policies.iter().filter(|(p, _)| p != judged);
        if let Some((policy, best)) = rivals.min_by_key(|(_, f)| f.late)
            && best.late <= own.late
        {
            let (a, b) = (best.late_percent(), own.late_percent());
            faults.push(format!("{policy} has as few late jobs, or fewer ({a:.2} % and {b:.2} %)"));
        }
        let worse = |own: f64, other: f64| own > other * TOLERANCE;
        let places: [(&str, Figure, &str); 2] = [
            ("late jobs", Figures::late_percent, "%"),
            ("greatest tardiness", |f| f.tardiness_max_ms, "ms"),
        ];
        if own.owed_late > 0 {
            faults.push(format!("{} owed jobs were late", own.owed_late));
        }
        let mut worse_sets = Vec::new();
        for (what, figure, unit) in places {
            let (a, b) = (figure(own), figure(other));
            if worse(a, b) {
                faults.push(format!("{what}: {a:.2} {unit}, {reference} {b:.2}"));
            }
            let bad = |set: &&Vec<Figures>| worse(figure(&set[own_at]), figure(&set[other_at]));
            worse_sets.push(self.sets.iter().filter(bad).count());
        }
        Verdict { faults, worse_late: worse_sets[0], worse_tardiness: worse_sets[1] }
    }
}

/// What is said of the judged policy.
#[derive(Debug, Clone, Serialize)]
struct Verdict {
    /// Why it fails; none: it passes.
    faults: Vec<String>,
    /// Sets in which it is above first come, first served by more than a tenth in late jobs.
    worse_late: usize,
    /// In greatest tardiness.
    worse_tardiness: usize,
}

/// Everything that was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// `sim` or `lab`.
    pub world: &'static str,
    /// Of the first set.
    pub seed: u64,
    /// For how long jobs were released.
    pub seconds: u64,
    /// First come, first served.
    pub reference: Policy,
    /// Whom the verdict is about.
    pub judged: Policy,
    /// Family by family.
    pub families: Vec<Judged>,
}

impl Report {
    fn verdict(&self, family: &Judged) -> Verdict {
        family.verdict(&self.judged, &self.reference)
    }

    /// Whether the judged policy passes in all families.
    pub fn passes(&self) -> bool {
        self.families.iter().all(|family| self.verdict(family).faults.is_empty())
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            self.family_text(family, &mut text);
        }
        text
    }

    fn family_text(&self, family: &Judged, text: &mut String) {
        let (name, about, n) = (family.family, family.family.about(), family.sets.len());
        let last = self.seed + (n as u64).saturating_sub(1);
        let _ = writeln!(
            text,
            "{name}: {about} ({}, sets {} to {last}, {} s each)",
            self.world, self.seed, self.seconds
        );
        let width = family.policies.iter().map(|(p, _)| p.to_string().len()).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "  {:width$} {:>8} {:>7} {:>9} {:>13} {:>11} {:>8}",
            "policy", "jobs", "late %", "owed late", "tard. max ms", "preempt/job", "BE CPUs"
        );
        for (policy, f) in &family.policies {
            let _ = writeln!(
                text,
                "  {policy:width$} {:>8} {:>7.2} {:>9} {:>13.2} {:>11.2} {:>8.3}",
                f.jobs,
                f.late_percent(),
                f.owed_late,
                f.tardiness_max_ms,
                f.preemptions,
                f.best_effort_cpus
            );
        }
        let verdict = self.verdict(family);
        let (judged, reference) = (&self.judged, &self.reference);
        let found = match &verdict.faults[..] {
            [] => "passes".into(),
            faults => format!("fails: {}", faults.join("; ")),
        };
        let _ = writeln!(text, "  {judged} {found}");
        let (late, tardiness) = (verdict.worse_late, verdict.worse_tardiness);
        let _ = writeln!(
            text,
            "  above {reference} by more than a tenth: late jobs in {late} of {n} sets, \
             greatest tardiness in {tardiness}\n"
        );
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        let family = |family: &Judged| {
            let line = |(policy, f): &(Policy, Figures)| {
                let mut line = serde_json::to_value(f).unwrap_or_default();
                line["policy"] = json!(policy);
                line["late_percent"] = json!(f.late_percent());
                line
            };
            let verdict = self.verdict(family);
            json!({
                "family": family.family.name(),
                "policies": family.policies.iter().map(line).collect::<Vec<Value>>(),
                "passes": verdict.faults.is_empty(),
                "verdict": verdict,
            })
        };
        let object = json!({
            "world": self.world,
            "seed": self.seed,
            "sets": self.families.first().map_or(0, |f| f.sets.len()),
            "seconds": self.seconds,
            "judge": self.judged,
            "reference": self.reference,
            "families": self.families.iter().map(family).collect::<Vec<Value>>(),
        });
        format!("{object:#}\n")
    }
}
