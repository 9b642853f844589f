// SPDX-License-Identifier: GPL-2.0-only
//! The one verdict with which `onbeat analyze` begins: under all policies that the file names it fits, or by how much
//! jobs are late at most, or what to change.

use std::fmt::Write;
use std::time::{Duration, Instant};

use onbeat_analysis::verdict::remedy::{
    Remedies, TASKS_TRIED, enforcing, least_cpus, remedies, with_cpus,
};
use onbeat_analysis::verdict::{Fits, Judged, judge, judge_priorities, left_out, names};
use onbeat_model::numbers::LATE_ISOLATED;
use onbeat_model::policy::{CORE, CorePolicy, Policy};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::{format_duration, format_percent};
use serde_json::{Value, json};

use super::columns::{Align, Columns, bounds};
use super::remarks::beyond_budget;
use crate::playable;

/// Changes that would make a set fit are looked for so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is said of a set under each of its policies.
pub struct Verdict {
    /// Policy and what is said under it; `priority` are the file's own fixed priorities.
    judged: Vec<(String, Judged)>,
    /// Policies that no test covers: the kernel's own, and other schedulers.
    not_covered: Vec<String>,
    remedies: Option<Remedies>,
    /// Policies that keep jobs to their budgets, under which the set fits, in place of those that do not.
    instead: Vec<(&'static str, &'static str)>,
    /// Where no single change is enough: such policies, and the CPUs on which the set fits under them.
    instead_on: Option<(Vec<(&'static str, &'static str)>, u32)>,
    /// Changes were looked for no longer than [`PATIENCE`]: there may be smaller ones.
    hurried: bool,
    /// One of Onbeat's own that isolates and under which nobody is late, where the file's bound how late jobs are.
    in_time: Option<&'static str>,
    names: Vec<String>,
    left_out: Vec<String>,
    /// Those whose jobs may take more than their budgets.
    beyond_budget: Vec<String>,
}

/// By what a line is judged.
#[derive(Clone, Copy)]
enum By {
    Policy(&'static CorePolicy),
    Priorities,
}

impl By {
    fn judge(self, set: &TaskSet) -> Judged {
        let said = match self {
            By::Policy(policy) => playable::check(set, policy).map(|()| Some(judge(set, policy))),
            By::Priorities => Ok(judge_priorities(set)),
        };
        let unproven = |binds: String| {
            let late = vec![None; names(set).len()];
            Judged { fits: Fits::Unproven, binds, late, refused: 0 }
        };
        match said {
            Ok(Some(judged)) => judged,
            Ok(None) => unproven("no test covers priorities beside groups".into()),
            Err(why) => unproven(why.to_string()),
        }
    }
}

impl Verdict {
    /// Under these policies, and by the priorities of the file if it has some.
    pub fn of(set: &TaskSet, policies: &[Policy]) -> Self {
        let own = policies.iter().filter_map(|p| Some((p.to_string(), By::Policy(p.core()?))));
        let mut all: Vec<(String, By)> = own.collect();
        if set.tasks.iter().any(|task| task.waits.priority.is_some()) {
            all.push(("priority".into(), By::Priorities));
        }
        let judged: Vec<(String, Judged)> =
            all.iter().map(|(name, by)| (name.clone(), by.judge(set))).collect();
        let failed: Vec<By> = all
            .iter()
            .zip(&judged)
            .filter(|(_, (_, judged))| !judged.fits.bounded())
            .map(|((_, by), _)| *by)
            .collect();
        // Near a load of 1 a test may take long, and hundreds of changes are tried.
        let begin = Instant::now();
        let fits = |set: &TaskSet| {
            begin.elapsed() < PATIENCE && failed.iter().all(|by| by.judge(set).fits.bounded())
        };
        // Others in their place; of no use unless each that fails has one.
        let others = |set: &TaskSet| {
            let under = |policy: &&'static CorePolicy| {
                begin.elapsed() < PATIENCE && By::Policy(policy).judge(set).fits.bounded()
            };
            let other = |by: &By| match by {
                By::Policy(policy) => Some((policy.name, enforcing(policy).find(under)?.name)),
                By::Priorities => None,
            };
            failed.iter().map(other).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
        };
        let instead = others(set).unwrap_or_default();
        let is_late =
            |(_, judged): &&(String, Judged)| matches!(judged.fits, Fits::Late(by) if by > 0);
        let late = judged.iter().find(is_late).filter(|_| failed.is_empty());
        let never = |policy: &&&'static CorePolicy| {
            policy.server.isolates()
                && begin.elapsed() < PATIENCE
                && By::Policy(policy).judge(set).fits == Fits::Yes
        };
        let remedies = (!failed.is_empty()).then(|| remedies(set, &fits));
        let none =
            instead.is_empty() && remedies.as_ref().is_some_and(|found| words(found).is_empty());
        let instead_on = none.then(|| least_cpus(set, &|set| others(set).is_some())).flatten();
        let instead_on = instead_on.and_then(|cpus| Some((others(&with_cpus(set, cpus))?, cpus)));
        // Where nobody is late, if that is not so or nothing else helps.
        let asked = match none && instead_on.is_none() {
            true => judged.first().map(|(name, _)| name),
            false => late.map(|(name, _)| name),
        };
        let in_time = asked.and_then(|name| {
            let mut near: Vec<&'static CorePolicy> = CORE.iter().collect();
            // Each task on a CPU of its own, with the same rule if that will do.
            let rule = name.split_once('+').map(|(_, rule)| rule);
            near.sort_by_key(|p| {
                (!p.name.starts_with("p-"), p.name.split_once('+').map(|(_, rule)| rule) != rule)
            });
            near.iter().find(never).map(|policy| policy.name)
        });
        Self {
            judged,
            not_covered: policies
                .iter()
                .filter(|p| !p.is_core())
                .map(ToString::to_string)
                .collect(),
            hurried: begin.elapsed() >= PATIENCE,
            remedies,
            instead,
            instead_on,
            in_time,
            names: names(set),
            left_out: left_out(set).into_iter().map(str::to_owned).collect(),
            beyond_budget: set
                .tasks
                .iter()
                .filter(|t| beyond_budget(t).is_some())
                .map(|t| t.name.clone())
                .collect(),
        }
    }

    /// The worst under all policies.
    pub fn fits(&self) -> Fits {
        self.judged.iter().map(|(_, judged)| judged.fits).max().unwrap_or(Fits::Unproven)
    }

    /// The verdict in one line, without an end.
    pub fn line(&self) -> String {
        let change = || match (self.changes(), self.in_time) {
            (words, _) if !words.is_empty() => words,
            (_, Some(policy)) => format!("take {policy}, under which nobody is ever late"),
            _ => "no single budget, period, policy or number of CPUs that was tried makes it fit"
                .into(),
        };
        match self.fits() {
            _ if self.judged.is_empty() => {
                "not proven to fit: no test covers its policies; name one of Onbeat's own with --policy".into()
            }
            Fits::Yes => format!("fits{}", self.refused()),
            Fits::Late(late) => {
                format!("fits with at most {}ms late{}", bounds(&[Some(late)], "")[0], self.refused())
            }
            Fits::Unproven => format!("not proven to fit{}: {}", self.only_under(), change()),
            Fits::No => format!("does not fit{}: {}", self.only_under(), change()),
        }
    }

    /// Under which policies it does not fit, where it does under others.
    fn only_under(&self) -> String {
        let (fit, not): (Vec<_>, Vec<_>) =
            self.judged.iter().partition(|(_, judged)| judged.fits.bounded());
        let names: Vec<&str> = not.iter().map(|(name, _)| name.as_str()).collect();
        if fit.is_empty() { String::new() } else { format!(" under {}", names.join(", ")) }
    }

    /// What the service makes of it, whose tests are simpler.
    fn refused(&self) -> String {
        match self.judged.iter().map(|(_, judged)| judged.refused).max() {
            None | Some(0) => String::new(),
            Some(count) => {
                format!(", but the service would refuse {count} (--admit POLICY says which)")
            }
        }
    }

    /// The verdict, what binds under each policy, and what was left out.
    pub fn text(&self, set: &TaskSet) -> String {
        let mut text = format!("{}\n\n", self.line());
        let of = |task: &onbeat_model::taskset::TaskEntry| {
            task.budget.unwrap_or(0) as f64 / task.period as f64 * f64::from(task.count)
        };
        let load: f64 = set.tasks.iter().map(of).sum();
        let share = format_percent(set.best_effort_share);
        let (s, cpus) = (if set.cpus == 1 { "" } else { "s" }, set.cpus);
        let _ = writeln!(
            text,
            "{}: {} on {cpus} CPU{s}, budgets take {load:.4}, best effort keeps {share} of each",
            set.name,
            match self.names.len() {
                1 => "1 reservation".into(),
                n => format!("{n} reservations"),
            }
        );
        let mut table = Columns::default();
        let column = |of: fn(&(String, Judged)) -> String| -> Vec<String> {
            self.judged.iter().map(of).collect()
        };
        table.add("policy", column(|(name, _)| name.clone()), Align::Left);
        table.add("fits", column(|(_, judged)| word(judged.fits).into()), Align::Left);
        let late: Vec<Option<u64>> =
            self.judged.iter().map(|(_, judged)| late(judged.fits)).collect();
        table.add("late ms", bounds(&late, "-"), Align::Right);
        table.add("refused", column(|(_, judged)| judged.refused.to_string()), Align::Right);
        table.add("what binds", column(|(_, judged)| judged.binds.clone()), Align::Left);
        text += &table.text();
        if let Some(policy) = self.in_time {
            let _ =
                writeln!(text, "Never late is proven of {policy} (--policy {policy} says how).");
        }
        text += &self.beyond_proof(set);
        if self.judged.iter().any(|(_, judged)| judged.refused > 0) {
            text += "Refused: so many the service would not admit; --admit POLICY says which, and what would fit.\n";
        }
        if !self.not_covered.is_empty() {
            let _ = writeln!(text, "No test covers {}.", self.not_covered.join(", "));
        }
        if !self.left_out.is_empty() {
            let _ = writeln!(text, "Left out, having no budget: {}.", self.left_out.join(", "));
        }
        if self.hurried {
            text += "Changes were looked for no longer than 3 s: there may be smaller ones.\n";
        }
        if self.remedies.as_ref().is_some_and(|found| found.many) {
            let _ = writeln!(
                text,
                "Of more than {TASKS_TRIED} tasks no single budget or period was tried, and not every number of CPUs."
            );
        }
        text
    }

    /// Which bounds of EDZL are beyond what its proof covers (docs/slack.md).
    fn beyond_proof(&self, set: &TaskSet) -> String {
        let periods = set.tasks.iter().filter(|task| task.budget.is_some()).map(|task| task.period);
        let Some(proven) = periods.min().map(|least| least + LATE_ISOLATED) else {
            return String::new();
        };
        let laxity = |name: &str| {
            let policy = name.parse::<Policy>().ok();
            policy
                .is_some_and(|policy| policy.order().is_some_and(|order| order.key.heeds_laxity()))
        };
        let beyond = |(name, judged): &&(String, Judged)| {
            laxity(name) && late(judged.fits).is_some_and(|late| late > proven)
        };
        let names: Vec<&str> = self.judged.iter().filter(beyond).map(|(name, _)| &**name).collect();
        if names.is_empty() {
            return String::new();
        }
        format!(
            "Who is more than {} late under {} begins anew, which the proof of the bound leaves out (docs/slack.md).\n",
            format_duration(proven),
            names.join(", ")
        )
    }

    /// By how much each is late at most under each policy.
    pub fn each(&self) -> String {
        let mut table = Columns::default();
        table.add("task", self.names.iter().cloned(), Align::Left);
        for (name, judged) in &self.judged {
            table.add(name, bounds(&judged.late, "?"), Align::Right);
        }
        format!("\nlate at most, ms:\n{}", table.text())
    }

    /// For machines.
    pub fn object(&self) -> Value {
        let one = |(policy, judged): &(String, Judged)| {
            json!({
                "policy": policy,
                "fits": word(judged.fits),
                "late_ns": late(judged.fits),
                "binds": judged.binds,
                "refused": judged.refused,
                "tasks_late_ns": judged.late,
            })
        };
        let swap = |(from, to): &(&str, &str)| json!({"from": from, "to": to});
        let remedies = self.remedies.as_ref().map(|found| {
            let of = |key: &str, one: &Option<(String, u64)>| {
                one.as_ref().map(|(task, ns)| json!({"task": task, key: ns}))
            };
            json!({
                "cpus": found.cpus,
                "scale": found.scale.map(|scale| scale as f64 / 1000.0),
                "budget": of("budget_ns", &found.budget),
                "period": of("period_ns", &found.period),
                "raise": found.raise.iter().map(|(task, ns)| json!({"task": task, "budget_ns": ns})).collect::<Value>(),
                "policies": self.instead.iter().map(swap).collect::<Value>(),
                "policies_and_cpus": self.instead_on.as_ref().map(|(others, cpus)| {
                    json!({"policies": others.iter().map(swap).collect::<Value>(), "cpus": cpus})
                }),
                "single_tasks_tried": !found.many,
            })
        });
        json!({
            "verdict": self.line(),
            "fits": word(self.fits()),
            "late_ns": late(self.fits()),
            "never_late_under": self.in_time,
            "remedies": remedies,
            "policies": self.judged.iter().map(one).collect::<Value>(),
            "not_covered": self.not_covered,
            "left_out": self.left_out,
            "beyond_budget": self.beyond_budget,
            "names": self.names,
        })
    }

    /// The changes, each of which is enough, in words.
    fn changes(&self) -> String {
        let mut all = self.remedies.as_ref().map(words).unwrap_or_default();
        let swaps = |others: &[(&str, &str)]| {
            let each = others.iter().map(|(from, to)| format!("{to} in place of {from}"));
            each.collect::<Vec<_>>().join(" and ")
        };
        if !self.instead.is_empty() {
            all.push(format!("take {}", swaps(&self.instead)));
        }
        if let Some((others, cpus)) = &self.instead_on {
            all.push(format!("take {}, and {cpus} CPUs", swaps(others)));
        }
        all.join(", or ")
    }
}

fn late(fits: Fits) -> Option<u64> {
    match fits {
        Fits::Yes => Some(0),
        Fits::Late(late) => Some(late),
        Fits::Unproven | Fits::No => None,
    }
}

fn word(fits: Fits) -> &'static str {
    match fits {
        Fits::Yes => "yes",
        Fits::Late(_) => "late",
        Fits::Unproven => "?",
        Fits::No => "no",
    }
}

/// The changes of the set.
fn words(found: &Remedies) -> Vec<String> {
    let mut all = Vec::new();
    let raise =
        found.raise.iter().map(|(task, ns)| format!("of {task} to {}", format_duration(*ns)));
    let raise: Vec<String> = raise.collect();
    if !raise.is_empty() {
        all.push(format!("raise the budget {}", raise.join(" and ")));
    }
    if let Some((task, budget)) = &found.budget {
        all.push(format!("lower the budget of {task} to {}", format_duration(*budget)));
    }
    if let Some((task, period)) = &found.period {
        all.push(format!("lengthen the period of {task} to {}", format_duration(*period)));
    }
    if let Some(cpus) = found.cpus {
        all.push(format!("take {cpus} CPUs"));
    }
    if let Some(scale) = found.scale {
        all.push(format!("lower every budget to {}.{}%", scale / 10, scale % 10));
    }
    all
}
