// SPDX-License-Identifier: GPL-2.0-only
//! What each schedulability test says of a set: `onbeat analyze --all` and `--test`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;

use anyhow::{Result, bail};
use onbeat_analysis::one_cpu::delayed::Delayed;
use onbeat_analysis::registry::{
    Answer, TESTS, Test, as_played, cpus_needed, find, scale_that_fits, why_unknown,
};
use onbeat_analysis::semi::{Plan, Share};
use onbeat_analysis::sporadic::{Sporadic, Verdict, compare_utilization, utilization};
use onbeat_model::taskset::TaskSet;
use serde_json::{Value, json};

use super::columns::{Align, Columns, ms};
use super::{Options, groups, purses, shared};

/// CPUs looked at when asked how many would do.
const CPUS_MOST: usize = 64;
/// More tasks than this make changes too slow to look for.
const TASKS_FOR_CHANGES: usize = 40;
/// Sums of fractions of more tasks than this have thousands of digits.
const TASKS_EXACT: usize = 64;

/// A test's answer and what would change it.
struct Finding {
    test: &'static Test,
    answer: Answer,
    cpus_needed: Option<usize>,
    scale: Option<u64>,
    why: Option<String>,
}

/// What the tests say of one machine, and of its groups and purses.
pub struct Judgement {
    set: TaskSet,
    names: Vec<String>,
    tasks: Vec<Delayed>,
    /// Tests are asked for.
    asked: bool,
    findings: Vec<Finding>,
    groups: groups::Judged,
    purses: purses::Judged,
    /// Why no test is asked.
    left_out: Option<String>,
    /// Which tests do not hold for the set, and why.
    dropped: Vec<shared::Dropped>,
}

impl Judgement {
    /// Asks the tests that are asked for.
    ///
    /// # Errors
    /// There is no such test, or one that was named does not hold.
    pub fn of(set: &TaskSet, options: &Options) -> Result<Self> {
        let named = !options.tests.is_empty();
        let asked = options.all || named;
        let mut judged = Self {
            set: set.clone(),
            names: Vec::new(),
            tasks: Vec::new(),
            asked,
            findings: Vec::new(),
            groups: groups::Judged::of(set),
            purses: purses::Judged::of(set),
            left_out: None,
            dropped: Vec::new(),
        };
        match sporadic(set) {
            Ok((names, tasks)) => (judged.names, judged.tasks) = (names, tasks),
            Err(why) if named => return Err(why),
            Err(why) => judged.left_out = Some(why.to_string()),
        }
        if asked && judged.left_out.is_none() {
            judged.ask(options, named)?;
        }
        Ok(judged)
    }

    fn ask(&mut self, options: &Options, named: bool) -> Result<()> {
        let cpus = self.set.cpus as usize;
        let priorities = priorities(&self.set);
        let tests = chosen(&options.tests, cpus)?;
        let (tests, dropped) = shared::one_after_the_other(&self.set, tests, named)?;
        self.dropped.extend(dropped);
        if named && priorities.is_none() && tests.iter().any(|test| test.name == "fp-exact") {
            bail!(
                "fp-exact: no task has a priority; add priority = 1, say, to each, or leave --test fp-exact out"
            );
        }
        let tests =
            tests.into_iter().filter(|test| priorities.is_some() || test.name != "fp-exact");
        let delayed = self.tasks.iter().any(|one| one.jitter > 0 || one.blocking > 0);
        let plain: Vec<Sporadic> = self.tasks.iter().map(|one| one.task).collect();
        let mut ignorant = Vec::new();
        for test in tests {
            if !delayed && test.name != "fp-exact" {
                // As the service plays them where it is asked, too.
                let tasks = match options.admit {
                    Some(_) => as_played(test, &plain),
                    None => Cow::Borrowed(&plain[..]),
                };
                self.findings.push(Finding::of(test, tasks, cpus));
            } else if let Some(answer) = test.answer_delayed(&self.tasks, priorities.as_deref()) {
                let (cpus_needed, scale, why) = (None, None, None);
                self.findings.push(Finding { test, answer, cpus_needed, scale, why });
            } else {
                ignorant.push(test.name);
            }
        }
        if !ignorant.is_empty() {
            let why = "they know neither jitter nor blocking".to_owned();
            if named {
                bail!(
                    "{}: {why}; leave jitter and blocking out, or the tests",
                    ignorant.join(", ")
                );
            }
            self.dropped.push(shared::Dropped { tests: ignorant, why });
        }
        Ok(())
    }

    /// With the CPUs called by these numbers.
    pub fn on(mut self, numbers: &[u32]) -> Self {
        let number = |cpu: &mut usize| *cpu = numbers.get(*cpu).map_or(*cpu, |n| *n as usize);
        for answer in self.findings.iter_mut().map(|f| &mut f.answer) {
            answer.cpus.iter_mut().flatten().for_each(number);
            answer.plan.iter_mut().flatten().flatten().for_each(|share| number(&mut share.cpu));
        }
        self
    }

    /// For people.
    pub fn table(&self) -> String {
        let tests = match &self.left_out {
            _ if !self.asked => String::new(),
            None => table(&self.set, &self.names, &self.tasks, &self.findings),
            Some(why) => format!("\n{}: no tests of the set as a whole: {why}\n", self.set.name),
        };
        let dropped = self.dropped.iter().map(|dropped| format!("\n{dropped}\n"));
        let dropped: String = dropped.collect();
        tests + &dropped + &self.groups.table(&self.set) + &self.purses.table(&self.set)
    }

    /// For machines.
    pub fn object(&self) -> Value {
        let Self { set, names, tasks, findings, groups, purses, left_out, dropped, .. } = self;
        let mut object = object(set, names, tasks, findings);
        if !set.groups.is_empty() {
            object["groups"] = groups.object(set);
        }
        if left_out.is_some() {
            object["tests_left_out"] = left_out.clone().into();
        }
        if !set.purses.is_empty() {
            object["purses"] = purses.object(set);
        }
        if !dropped.is_empty() {
            let one =
                |dropped: &shared::Dropped| json!({ "tests": dropped.tests, "why": dropped.why });
            object["tests_that_do_not_hold"] = dropped.iter().map(one).collect();
        }
        object
    }
}

/// A bound on lateness is no matter of yes and no.
const SOFT: [&str; 4] = ["g-edf-tardiness", "g-edzl-tardiness", "g-edf-gel", "g-fl-tardiness"];

impl Finding {
    fn of(test: &'static Test, tasks: Cow<'_, [Sporadic]>, cpus: usize) -> Self {
        let clamped = matches!(tasks, Cow::Owned(_));
        let tasks = &*tasks;
        let mut answer = test.answer(tasks, cpus);
        let mut why =
            (answer.verdict == Verdict::Unknown).then(|| why_unknown(test, tasks, cpus)).flatten();
        let over = compare_utilization(tasks, cpus as u64) == Ordering::Greater;
        if answer.verdict == Verdict::Unschedulable && clamped && !over {
            answer.verdict = Verdict::Unknown;
            why = Some(
                "not with deadlines at the ends of periods; for later ones the test cannot tell"
                    .into(),
            );
        }
        let fits = answer.verdict == Verdict::Schedulable;
        let look = tasks.len() <= TASKS_FOR_CHANGES
            && test.name != "utilization"
            && !SOFT.contains(&test.name);
        Self {
            test,
            cpus_needed: (look && !fits)
                .then(|| cpus_needed(test, tasks, cpus, CPUS_MOST))
                .flatten(),
            scale: look.then(|| scale_that_fits(test, tasks, cpus)).flatten(),
            why,
            answer,
        }
    }
}

/// The test of that name, for clap.
pub fn named(name: &str) -> Result<&'static Test, String> {
    find(name).ok_or_else(|| "there is no such test; `onbeat analyze --list` names them".into())
}

/// The tests asked for, or all that are meant for so many CPUs.
fn chosen(asked: &[&'static Test], cpus: usize) -> Result<Vec<&'static Test>> {
    if asked.is_empty() {
        return Ok(TESTS.iter().filter(|test| cpus == 1 || !test.one_cpu).collect());
    }
    if let Some(test) = asked.iter().find(|test| test.one_cpu && cpus != 1) {
        let name = test.name;
        bail!("the test {name} is for one CPU, and the file has {cpus}; use a p-edf or g-edf one");
    }
    Ok(asked.to_vec())
}

/// Names and parameters of the outermost groups, as servers ask for them, and of all tasks that have a budget and are
/// in none.
///
/// # Errors
/// One may use some CPUs only.
fn sporadic(set: &TaskSet) -> Result<(Vec<String>, Vec<Delayed>)> {
    let (mut names, mut tasks) = (Vec::new(), Vec::new());
    let anywhere = |what: &str, name: &str, cpus: Option<&Vec<u32>>| match cpus {
        Some(cpus) => bail!(
            "{what} {name} may use CPUs {cpus:?} only, and the tests know no affinities: they would promise too much; \
             leave {} out, or try `onbeat sim`",
            if what == "task" { "affinity" } else { "cpus" }
        ),
        None => Ok(()),
    };
    for group in set.groups.iter().filter(|group| group.parent.is_none()) {
        let narrow = group.cpus.as_ref().filter(|list| list.len() < set.cpus as usize);
        anywhere("group", &group.name, narrow)?;
        names.push(group.name.clone());
        tasks.push(Sporadic::served(group.budget, group.period, group.deadline).into());
    }
    for copy in set.copies().filter(|copy| copy.spec.group.is_none()) {
        let Some(budget) = copy.spec.budget else { continue };
        let narrow = copy.spec.affinity.as_ref().filter(|list| list.len() < set.cpus as usize);
        anywhere("task", &copy.name(), narrow)?;
        names.push(copy.name());
        let waits = copy.spec.waits;
        let wcet = budget.saturating_add(waits.overhead);
        let task = Sporadic { wcet, deadline: copy.spec.deadline, period: copy.spec.period };
        tasks.push(Delayed { task, jitter: waits.jitter, blocking: waits.blocking });
    }
    Ok((names, tasks))
}

/// Priorities of the tasks, as `sporadic` lists them, if they have some.
fn priorities(set: &TaskSet) -> Option<Vec<u64>> {
    let all = set.copies().filter(|copy| copy.spec.budget.is_some());
    let all: Option<Vec<u64>> = all.map(|copy| copy.spec.waits.priority.map(u64::from)).collect();
    all.filter(|_| set.groups.is_empty())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Schedulable => "yes",
        Verdict::Unschedulable => "no",
        Verdict::Unknown => "?",
    }
}

/// Utilization as a fraction, where that is no sum of too many, and as a number of CPUs.
fn load(tasks: &[Delayed]) -> (Option<String>, f64) {
    let all: Vec<Sporadic> = tasks.iter().map(|one| one.task).collect();
    let exact = (all.len() <= TASKS_EXACT).then(|| utilization(&all).to_string());
    (exact, all.iter().map(|t| t.wcet as f64 / t.period as f64).sum())
}

fn table(set: &TaskSet, names: &[String], tasks: &[Delayed], findings: &[Finding]) -> String {
    let mut text =
        format!("\ntests of {}, on whole CPUs, without best effort's share:\n", set.name);
    let _ = writeln!(text, "{:<20} {:<6} remarks", "test", "fits");
    for f in findings {
        let mut remarks: Vec<String> = f.why.iter().cloned().collect();
        if let Some(cpus) = f.cpus_needed {
            remarks.push(format!("fits {cpus} CPUs"));
        }
        if let Some(scale) = f.scale {
            let up_to = if scale < 1000 { "" } else { "up to " };
            remarks.push(format!("fits with {up_to}{:.1}% of every budget", scale as f64 / 10.0));
        }
        if let Some(late) = f.answer.tardiness.as_ref().and_then(|t| t.iter().max()) {
            remarks.push(format!("late by {:.2}ms at most", *late as f64 / 1e6));
        }
        let _ = writeln!(
            text,
            "{:<20} {:<6} {}",
            f.test.name,
            word(f.answer.verdict),
            remarks.join("; ")
        );
    }
    text += &each(names, tasks, findings);
    if let Some((f, plan)) = findings.iter().find_map(|f| Some((f, f.answer.plan.as_ref()?))) {
        let _ = writeln!(text, "\nunder {}, shares as CPU: time in window:", f.test.name);
        for (name, shares) in names.iter().zip(plan) {
            let parts: Vec<String> = shares
                .iter()
                .map(|s| {
                    let (from, to) = (in_ms(s.begin), in_ms(s.begin + s.window));
                    format!("CPU {}: {} in {from} to {to}", s.cpu, in_ms(s.wcet))
                })
                .collect();
            let _ = writeln!(text, "{name}  {}", parts.join(", "));
        }
    }
    text
}

/// What tests say of each task: response times, or how late it is at most.
fn each(names: &[String], tasks: &[Delayed], findings: &[Finding]) -> String {
    let mut table = Columns::default();
    table.add("task", names.iter().cloned(), Align::Left);
    let of = |time: fn(&Delayed) -> u64| -> Vec<Option<u64>> {
        tasks.iter().map(|one| Some(time(one))).collect()
    };
    table.add("budget", ms(&of(|one| one.task.wcet), ""), Align::Right);
    table.add("deadline", ms(&of(|one| one.task.deadline), ""), Align::Right);
    table.add("period", ms(&of(|one| one.task.period), ""), Align::Right);
    let mut any = false;
    for f in findings {
        if let Some(cpus) = &f.answer.cpus
            && !any
        {
            table.add(
                &format!("CPU {}", f.test.name),
                cpus.iter().map(usize::to_string),
                Align::Right,
            );
            any = true;
        }
        // Known to be in time, if not when.
        let none = if f.answer.verdict == Verdict::Schedulable { "in time" } else { "-" };
        if let Some(all) = f.answer.responses.as_ref().filter(|all| all.iter().any(Option::is_some))
        {
            table.add(&format!("R {}", f.test.name), ms(all, none), Align::Right);
            any = true;
        } else if let Some(all) = &f.answer.tardiness {
            let all: Vec<Option<u64>> = all.iter().copied().map(Some).collect();
            table.add(&format!("late {}", f.test.name), ms(&all, none), Align::Right);
            any = true;
        }
    }
    match any {
        true => format!(
            "\ntimes in ms; R: longest response, late: greatest tardiness:\n{}",
            table.text()
        ),
        false => String::new(),
    }
}

fn in_ms(ns: u64) -> String {
    format!("{:.3}ms", ns as f64 / 1e6)
}

fn shares(plan: &Plan) -> Value {
    let share = |s: &Share| json!({"cpu": s.cpu, "wcet_ns": s.wcet, "begin_ns": s.begin, "window_ns": s.window});
    plan.iter().map(|shares| shares.iter().map(share).collect::<Value>()).collect()
}

/// Deadline less response time, ns.
fn slack(tasks: &[Delayed], responses: &[Option<u64>]) -> Value {
    let of = |(one, time): (&Delayed, &Option<u64>)| {
        time.map(|time| i128::from(one.task.deadline) - i128::from(time)).map(|ns| ns as i64)
    };
    tasks.iter().zip(responses).map(of).collect()
}

fn object(set: &TaskSet, names: &[String], tasks: &[Delayed], findings: &[Finding]) -> Value {
    let (exact, u) = load(tasks);
    let tests: Vec<Value> = findings
        .iter()
        .map(|f| {
            json!({
                "test": f.test.name,
                "schedulable": match f.answer.verdict {
                    Verdict::Schedulable => json!(true),
                    Verdict::Unschedulable => json!(false),
                    Verdict::Unknown => Value::Null,
                },
                "cpus": f.answer.cpus,
                "shares": f.answer.plan.as_ref().map(shares),
                "response_times_ns": f.answer.responses,
                "slack_ns": f.answer.responses.as_ref().map(|all| slack(tasks, all)),
                "tardiness_ns": f.answer.tardiness,
                "cpus_needed": f.cpus_needed,
                "why_unknown": f.why,
                "scale_that_fits": f.scale.map(|s| s as f64 / 1000.0),
            })
        })
        .collect();
    json!({
        "experiment": set.name,
        "cpus": set.cpus,
        "tasks": names,
        "utilization": u,
        "utilization_exact": exact,
        "best_effort_share": *set.best_effort_share.numer() as f64 / *set.best_effort_share.denom() as f64,
        "tests": tests,
    })
}
