// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat analyze`: does a task set fit, under which algorithm, and what would make it fit?

mod admit;
mod groups;
mod purses;
mod remarks;
mod shared;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use onbeat_analysis::registry::{
    Answer, TESTS, Test, as_played, cpus_needed, find, scale_that_fits, why_unknown,
};
use onbeat_analysis::semi::{Plan, Share};
use onbeat_analysis::sporadic::{Sporadic, Verdict, compare_utilization, utilization};
use onbeat_kernel::machine::cpus_of;
use onbeat_model::taskset::{Part, TaskSet};
use onbeat_model::units::format_duration;
use serde_json::{Value, json};

use crate::output::print;

/// CPUs looked at when asked how many would do.
const CPUS_MOST: usize = 64;
/// More tasks than this make changes too slow to look for.
const TASKS_FOR_CHANGES: usize = 40;

/// Say whether a task set's deadlines are met, by schedulability tests
///
/// A task counts with its budget, on whole CPUs, and so does a group for its members, of which is said whether the
/// group's budget is enough for them; of purses, whether they make anybody wait. The share of best-effort work is left
/// out. "yes" and "no" are proven; "?" means that the test is only sufficient and cannot tell. With --admit the
/// service's own admission test is asked, too.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat analyze system.toml")]
pub struct Options {
    /// The task-set file
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// Only this test (repeatable)
    #[arg(long = "test", value_name = "T")]
    tests: Vec<String>,
    /// List the tests and their sources
    #[arg(long, conflicts_with_all = ["json", "file", "tests"])]
    list: bool,
    /// Say also what the service would answer to these tasks, in the file's order, under this policy
    #[arg(long, value_name = "POLICY")]
    admit: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A test's answer and what would change it.
struct Finding {
    test: &'static Test,
    answer: Answer,
    cpus_needed: Option<usize>,
    scale: Option<u64>,
    why: Option<String>,
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, a task has no budget, or there is no such test.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        let lines: Vec<String> =
            TESTS.iter().map(|t| format!("{:<20} {}\n", t.name, t.about)).collect();
        print(&lines.concat())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = &options.file else {
        bail!("which task-set file? see `onbeat analyze --help`")
    };
    let set = TaskSet::load(file)?;
    shared::no_waiting(&set)?;
    let admitted = options.admit.as_deref().map(|policy| admit::admit(&set, policy)).transpose()?;
    let judged = match set.sets.is_empty() {
        true => vec![Judgement::of(&set, options)?],
        // Each is a machine of its own.
        false => {
            let parts = set.parts().into_iter().enumerate().map(|(i, part)| (part, set.alone(i)));
            let parts = parts.filter(|(_, alone)| !alone.tasks.is_empty());
            let judged = |(part, alone): (Part, TaskSet)| {
                Judgement::of(&alone, options).map(|judged| judged.on(&cpus_of(part.cpus)))
            };
            parts.map(judged).collect::<Result<_>>()?
        }
    };
    if options.json {
        let mut objects = judged.iter().map(Judgement::object);
        let mut object = match set.sets.is_empty() {
            true => objects.next().unwrap_or_default(),
            false => json!({ "name": set.name, "sets": objects.collect::<Value>() }),
        };
        if let Some(admitted) = &admitted {
            object["admission"] = admitted.object();
        }
        print(&format!("{object:#}\n"))?;
    } else {
        let tables: Vec<String> = judged.iter().map(Judgement::table).collect();
        let admitted = admitted.map_or(String::new(), |admitted| admitted.table());
        print(&(tables.join("\n") + &admitted + &remarks::remarks(&set)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the tests say of one machine.
struct Judgement {
    set: TaskSet,
    names: Vec<String>,
    tasks: Vec<Sporadic>,
    findings: Vec<Finding>,
    groups: groups::Judged,
    purses: purses::Judged,
    /// Why nothing but groups and purses is tested.
    left_out: Option<String>,
    /// Which tests do not hold for the set, and why.
    dropped: Option<shared::Dropped>,
}

impl Judgement {
    fn of(set: &TaskSet, options: &Options) -> Result<Self> {
        let (names, tasks, left_out) = match sporadic(set) {
            Ok((names, tasks)) => (names, tasks, None),
            // Groups are tested all the same.
            Err(why)
                if (!set.groups.is_empty() || !set.purses.is_empty())
                    && options.tests.is_empty() =>
            {
                (vec![], vec![], Some(why.to_string()))
            }
            Err(why) => return Err(why),
        };
        let cpus = set.cpus as usize;
        let tests = chosen(&options.tests, cpus)?;
        let (tests, dropped) = shared::one_after_the_other(set, tests, !options.tests.is_empty())?;
        let findings = tests
            .into_iter()
            .filter(|_| left_out.is_none())
            .map(|test| Finding::of(test, as_played(test, &tasks), cpus))
            .collect();
        let (groups, purses) = (groups::Judged::of(set), purses::Judged::of(set));
        Ok(Self { set: set.clone(), names, tasks, findings, groups, purses, left_out, dropped })
    }

    /// With the CPUs called by these numbers.
    fn on(mut self, numbers: &[u32]) -> Self {
        let number = |cpu: &mut usize| *cpu = numbers.get(*cpu).map_or(*cpu, |n| *n as usize);
        for answer in self.findings.iter_mut().map(|f| &mut f.answer) {
            answer.cpus.iter_mut().flatten().for_each(number);
            answer.plan.iter_mut().flatten().flatten().for_each(|share| number(&mut share.cpu));
        }
        self
    }

    fn table(&self) -> String {
        let Self { set, names, tasks, findings, groups, purses, left_out, dropped } = self;
        let tests = match left_out {
            None => table(set, names, tasks, findings),
            Some(why) => {
                let what = match (set.groups.is_empty(), set.purses.is_empty()) {
                    (false, true) => "groups",
                    (true, _) => "purses",
                    (false, false) => "groups and purses",
                };
                format!("{}: only {what} are tested: {why}\n", set.name)
            }
        };
        let dropped = dropped.as_ref().filter(|_| left_out.is_none());
        let dropped = dropped.map_or(String::new(), |dropped| format!("\n{dropped}\n"));
        tests + &dropped + &groups.table(set) + &purses.table(set)
    }

    fn object(&self) -> Value {
        let Self { set, names, tasks, findings, groups, purses, left_out, dropped } = self;
        let mut object = object(set, names, tasks, findings);
        if !set.groups.is_empty() {
            object["groups"] = groups.object(set);
            object["tests_left_out"] = left_out.clone().into();
        }
        if !set.purses.is_empty() {
            object["purses"] = purses.object(set);
        }
        if let Some(dropped) = dropped {
            object["tests_that_do_not_hold"] =
                json!({ "tests": dropped.tests, "why": dropped.why });
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
        let mut answer = (test.run)(tasks, cpus);
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

/// The tests asked for, or all that are meant for so many CPUs.
fn chosen(names: &[String], cpus: usize) -> Result<Vec<&'static Test>> {
    if names.is_empty() {
        return Ok(TESTS.iter().filter(|test| cpus == 1 || !test.one_cpu).collect());
    }
    let mut tests = Vec::new();
    for name in names {
        let Some(test) = find(name) else {
            bail!("there is no test \"{name}\"; `onbeat analyze --list` names them");
        };
        if test.one_cpu && cpus != 1 {
            bail!(
                "the test {name} is for one CPU, and the file has {cpus}; use a p-edf or g-edf one"
            );
        }
        tests.push(test);
    }
    Ok(tests)
}

/// Names and parameters of the outermost groups, as servers ask for them, and of all tasks that are in none.
fn sporadic(set: &TaskSet) -> Result<(Vec<String>, Vec<Sporadic>)> {
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
        tasks.push(Sporadic::served(group.budget, group.period, group.deadline));
    }
    for copy in set.copies().filter(|copy| copy.spec.group.is_none()) {
        let Some(wcet) = copy.spec.budget else {
            bail!(
                "task {} has no budget, so the tests do not know how long its jobs take; add budget",
                copy.name()
            );
        };
        anywhere("task", &copy.name(), copy.spec.affinity.as_ref())?;
        names.push(copy.name());
        tasks.push(Sporadic { wcet, deadline: copy.spec.deadline, period: copy.spec.period });
    }
    if tasks.is_empty() {
        bail!("the file has no [[task]] to analyse; best-effort work has no deadlines");
    }
    Ok((names, tasks))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Schedulable => "yes",
        Verdict::Unschedulable => "no",
        Verdict::Unknown => "?",
    }
}

/// Utilization as a fraction and in per cent of one CPU.
fn load(tasks: &[Sporadic]) -> (String, f64) {
    let u = utilization(tasks);
    let float = tasks.iter().map(|t| t.wcet as f64 / t.period as f64).sum::<f64>();
    (u.to_string(), float)
}

fn table(set: &TaskSet, names: &[String], tasks: &[Sporadic], findings: &[Finding]) -> String {
    let mut text = String::new();
    let (_, u) = load(tasks);
    let _ = writeln!(
        text,
        "{}: {} {} on {} CPUs, utilization {u:.4}",
        set.name,
        tasks.len(),
        if set.groups.is_empty() { "tasks" } else { "tasks and outermost groups" },
        set.cpus
    );
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
                    let (from, to) = (ms(s.begin), ms(s.begin + s.window));
                    format!("CPU {}: {} in {from} to {to}", s.cpu, ms(s.wcet))
                })
                .collect();
            let _ = writeln!(text, "{name}  {}", parts.join(", "));
        }
    }
    text
}

/// What a test says of each task: the first that says anything.
fn each(names: &[String], tasks: &[Sporadic], findings: &[Finding]) -> String {
    let told = |f: &&Finding| {
        let any = |all: &Vec<Option<u64>>| all.iter().any(Option::is_some);
        f.answer.cpus.is_some() || f.answer.responses.as_ref().is_some_and(any)
    };
    let late = |f: &&Finding| f.answer.tardiness.is_some();
    let Some(f) = findings.iter().find(told).or_else(|| findings.iter().find(late)) else {
        return String::new();
    };
    let mut text = format!("\nunder {}:\n", f.test.name);
    let width = names.iter().map(String::len).max().unwrap_or(4).max(4);
    let heads = ["budget", "deadline", "period", "CPU", "response", "slack"];
    let _ = write!(text, "{:<width$}", "task");
    for head in heads {
        let _ = write!(text, " {head:>10}");
    }
    text.push('\n');
    // Known to be in time, if not when.
    let unknown = if f.answer.verdict == Verdict::Schedulable { "in time" } else { "no bound" };
    for (i, (name, task)) in names.iter().zip(tasks).enumerate() {
        let (mut response, mut slack) = (String::new(), String::new());
        if let Some(all) = &f.answer.responses {
            response = all[i].map_or(unknown.into(), format_duration);
            slack = all[i].map_or(String::new(), |time| signed(task.deadline, time));
        } else if let Some(all) = &f.answer.tardiness {
            slack = signed(0, all[i]);
        }
        let cells = [
            format_duration(task.wcet),
            format_duration(task.deadline),
            format_duration(task.period),
            f.answer.cpus.as_ref().map_or(String::new(), |cpus| cpus[i].to_string()),
            response,
            slack,
        ];
        let _ = write!(text, "{name:<width$}");
        for cell in cells {
            let _ = write!(text, " {cell:>10}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// What is left until `deadline` at `time`.
fn signed(deadline: u64, time: u64) -> String {
    match deadline.checked_sub(time) {
        Some(left) => format_duration(left),
        None => format!("-{}", format_duration(time - deadline)),
    }
}

fn ms(ns: u64) -> String {
    format!("{:.3}ms", ns as f64 / 1e6)
}

fn shares(plan: &Plan) -> Value {
    let share = |s: &Share| json!({"cpu": s.cpu, "wcet_ns": s.wcet, "begin_ns": s.begin, "window_ns": s.window});
    plan.iter().map(|shares| shares.iter().map(share).collect::<Value>()).collect()
}

/// Deadline less response time, ns.
fn slack(tasks: &[Sporadic], responses: &[Option<u64>]) -> Value {
    let of = |(task, time): (&Sporadic, &Option<u64>)| {
        time.map(|time| i128::from(task.deadline) - i128::from(time)).map(|ns| ns as i64)
    };
    tasks.iter().zip(responses).map(of).collect()
}

fn object(set: &TaskSet, names: &[String], tasks: &[Sporadic], findings: &[Finding]) -> Value {
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
