// SPDX-License-Identifier: GPL-2.0-only
//! From bytes to a sound [`TaskSet`]: the whole file.

use std::path::Path;

use num_rational::Ratio;
use toml::de::DeTable;

use super::table::{self, At, Fault, Table, fault};
use super::{
    BestEffort, Group, Kernel, LoadError, Overheads, TaskSet, generators, group, limits, load,
    purse, rank, sets, task,
};
use crate::others::{Linux24, Others};
use crate::policy::{DEFAULT_SHARE, Policy};
use crate::units::{Fraction, clip, format_duration, format_percent};

const TOP: [&str; 16] = [
    "name",
    "title",
    "cpus",
    "duration",
    "seed",
    "policies",
    "best_effort_share",
    "max_share",
    "clusters",
    "set",
    "kernel",
    "overheads",
    "group",
    "purse",
    "task",
    "best_effort",
];
const EXAMPLE: &str = "cpus = 1, duration = \"1s\" and a [[task]] with name, period and work";

pub(super) fn task_set(bytes: &[u8], path: &Path) -> Result<TaskSet, LoadError> {
    let whole = |reason: &str, remedy: String| LoadError {
        file: path.to_owned(),
        line: None,
        reason: reason.into(),
        remedy,
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = line_of(bytes, e.valid_up_to());
            let remedy = "give a task-set file, which is UTF-8 text in TOML".into();
            let reason = "the file is not text";
            return Err(LoadError { line: Some(line), ..whole(reason, remedy) });
        }
    };
    if text.trim().is_empty() {
        return Err(whole("the file is empty", format!("write {EXAMPLE}")));
    }
    let at_line = |Fault { at, reason, remedy }: Fault| LoadError {
        file: path.to_owned(),
        line: Some(line_of(bytes, at)),
        reason,
        remedy,
    };
    if let Some(nul) = text.find('\0') {
        let remedy = "give a task-set file, which is text in TOML".into();
        return Err(at_line(Fault { at: nul, reason: "the file is binary".into(), remedy }));
    }
    let document = DeTable::parse(text).map_err(|e| {
        let reason = format!("not valid TOML: {}", e.message().replace('\n', ", "));
        let at = e.span().map_or(0, |s| s.start);
        at_line(Fault {
            at,
            reason,
            remedy: "correct the line; docs/task-set.md has examples".into(),
        })
    })?;
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let folder = path.parent().unwrap_or(Path::new(""));
    top(folder, document.get_ref(), &stem.unwrap_or_default()).map_err(at_line)
}

/// Line of a byte, from 1.
pub(super) fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at.min(bytes.len())].iter().filter(|b| **b == b'\n').count()
}

fn top(folder: &Path, document: &DeTable<'_>, stem: &str) -> Result<TaskSet, Fault> {
    let top = Table::new(document, 0, "the file", &TOP)?;
    let name = match top.string("name")? {
        Some(n) => plain_name(&n, "name")?,
        None => default_name(stem),
    };
    let title = match top.string("title")? {
        Some(t) if t.value.chars().any(char::is_control) || t.value.len() > 200 => {
            return fault(t.at, "title is not one short line", "keep it to 200 plain characters");
        }
        Some(t) => t.value.to_string(),
        None => String::new(),
    };
    let cpus = top.integer("cpus", 1, limits::CPUS as i64)?;
    let cpus = top.required("cpus", "4", cpus)?.value as u32;
    let duration = top.duration("duration", 1, limits::TIME)?;
    let duration = top.required("duration", "\"10s\"", duration)?.value;
    let seed = top.integer("seed", 0, i64::MAX)?.map_or(1, |s| s.value as u64);
    let best_effort_share = match top.percent("best_effort_share")? {
        Some(share) if share.value > Ratio::new(9, 10) => {
            let reason = format!("best_effort_share = {} is too much", format_percent(share.value));
            return fault(share.at, reason, "choose at most 90%, for example \"5%\"");
        }
        Some(share) => share.value,
        None => DEFAULT_SHARE,
    };
    let purses = purse::read(&top)?;
    let sets = sets::read(&top, cpus)?;
    let mut groups = group::read(&top, cpus, &purses, &sets)?;
    let best_effort = best_effort(&top, cpus, &groups)?;
    let (tasks, resources) = task::read(folder, &top, cpus, duration, (&groups, &purses, &sets))?;
    let drawn = best_effort.and_then(|b| Some((b.group?, b.servers?)));
    group::divide(&top, &mut groups, (&tasks, drawn), cpus)?;
    let set = TaskSet {
        name,
        title,
        cpus,
        duration,
        seed,
        policies: policies(&top)?,
        best_effort_share,
        max_share: max_share(&top)?,
        clusters: clusters(&top, cpus)?,
        kernel: kernel(&top)?,
        overheads: overheads(&top)?,
        tasks,
        resources,
        groups,
        purses,
        sets,
        best_effort,
        loads: load::read(&top)?,
    };
    let best_effort = set.best_effort_count() > 0 || set.sleepers().next().is_some();
    if set.tasks.is_empty() && !best_effort {
        return fault(0, "the file describes no work", "add a [[task]] with name, period and work");
    }
    check_users(&top, &set)?;
    load::check(&top, &set)?;
    load::check_baseline(&top, &set)?;
    rank::check(&top, &set)?;
    group::check(&top, &set)?;
    purse::check(&top, &set)?;
    sets::check(&top, &set)?;
    let of_task = |c: super::TaskCopy<'_>| c.jobs * u64::from(c.spec.threads);
    let jobs = set.copies().map(of_task).sum::<u64>() + set.bursts();
    if jobs > limits::JOBS {
        let reason = format!("the tasks would release {jobs} jobs, more than {}", limits::JOBS);
        let at = top.value("duration").map_or(0, |v| v.span().start);
        return fault(at, reason, "shorten the duration or lengthen the periods");
    }
    Ok(set)
}

/// What users may take ahead of best effort, if that is limited.
fn max_share(top: &Table<'_, '_>) -> Result<Option<Fraction>, Fault> {
    match top.percent("max_share")? {
        Some(share) if share.value == Ratio::ZERO || share.value > Ratio::ONE => {
            let reason = format!("max_share = {} is no limit", format_percent(share.value));
            fault(share.at, reason, "choose above 0% and at most 100%, for example \"50%\"")
        }
        share => Ok(share.map(|share| share.value)),
    }
}

/// Users are named where they are limited, are not too many, and reserve no more than the service would let them.
fn check_users(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let Some(limit) = set.max_share else {
        let Some(task) = set.tasks.iter().position(|t| t.user.is_some()) else { return Ok(()) };
        let list = top.value("task").and_then(|list| list.get_ref().as_array());
        let at = list.and_then(|list| list.get(task)).map_or(0, |t| t.span().start);
        let reason = "a task names its user, but nothing limits users";
        return fault(at, reason, "add max_share = \"50%\" at the top, or leave user out");
    };
    let at = top.value("max_share").map_or(0, |v| v.span().start);
    let users = set.limited_users();
    if users.len() > limits::USERS {
        let reason = format!("{} users have reservations", users.len());
        return fault(at, reason, format!("keep to {} beside root", limits::USERS));
    }
    for user in users {
        let theirs = set.tasks.iter().filter(|t| t.user.as_deref() == user);
        // Not as fractions: denominators multiply.
        let load =
            theirs.map(|t| t.budget.unwrap_or(0) as f64 / t.period as f64 * f64::from(t.count));
        let (load, cpus) = (load.sum::<f64>(), set.cpus);
        let most = *limit.numer() as f64 / *limit.denom() as f64 * f64::from(cpus);
        if load > most * (1.0 + 1e-9) {
            let whose = user.map_or("tasks without a user".into(), |user| format!("\"{user}\""));
            let share = format_percent(limit);
            let reason = format!(
                "the reservations of {whose} ask for {load:.2} CPUs, above {share} of {cpus}"
            );
            return fault(at, reason, "raise max_share, lower budgets, or name more users");
        }
    }
    Ok(())
}

fn policies(top: &Table<'_, '_>) -> Result<Vec<Policy>, Fault> {
    const LIKE: &str = "[\"g-edf+cbs\", \"g-edf+fcbs\"]";
    let Some(list) = top.array("policies", LIKE)? else {
        return Ok(vec![crate::policy::DEFAULT.parse().expect("a policy of the core")]);
    };
    let mut policies = Vec::new();
    for item in list.value.iter() {
        let text = table::string(item, "policies")?;
        let policy: Policy = match text.value.parse() {
            Ok(policy) => policy,
            Err(e) => {
                let error: crate::policy::UnknownPolicy = e;
                let all = error.to_string();
                let (reason, remedy) = all.split_once("; ").unwrap_or((&all, "see docs"));
                return fault(text.at, reason, remedy);
            }
        };
        if policies.contains(&policy) {
            let reason = format!("the policy {policy} is listed twice");
            return fault(text.at, reason, "keep one of the two");
        }
        policies.push(policy);
    }
    if policies.is_empty() {
        return fault(list.at, "policies is an empty list", format!("write policies = {LIKE}"));
    }
    Ok(policies)
}

/// As many clusters as asked for, if so many CPUs can be divided by that; else two, or one.
pub(super) fn clusters_of(cpus: u32, asked: u32) -> u32 {
    let usual = if cpus.is_multiple_of(2) { 2 } else { 1 };
    if asked > 0 && cpus.is_multiple_of(asked) { asked } else { usual }
}

/// How many clusters `cpus` CPUs form.
pub(super) fn clusters(top: &Table<'_, '_>, cpus: u32) -> Result<u32, Fault> {
    let Some(c) = top.integer("clusters", 1, limits::CPUS as i64)? else {
        return Ok(clusters_of(cpus, 0));
    };
    if !cpus.is_multiple_of(c.value as u32) {
        let reason = format!("{} clusters do not divide {cpus} CPUs equally", c.value);
        let fit: Vec<String> =
            (1..=cpus).filter(|n| cpus.is_multiple_of(*n)).map(|n| n.to_string()).collect();
        return fault(c.at, reason, format!("choose one of {}", fit.join(", ")));
    }
    Ok(c.value as u32)
}

fn kernel(top: &Table<'_, '_>) -> Result<Kernel, Fault> {
    match top.string("kernel")? {
        None => Ok(Kernel::Plain),
        Some(k) => match k.value {
            "plain" => Ok(Kernel::Plain),
            "rt" => Ok(Kernel::Rt),
            other => {
                let reason = format!("there is no kernel \"{}\"", clip(other));
                fault(k.at, reason, "write \"plain\" or \"rt\"")
            }
        },
    }
}

fn overheads(top: &Table<'_, '_>) -> Result<Overheads, Fault> {
    let known = ["dispatch", "preemption", "migration", "wake", "tick", "tick_phase"];
    let Some(t) = top.table("overheads", "[overheads]", "{ dispatch = \"2us\" }", &known)? else {
        return Ok(Overheads::default());
    };
    let get = |key| Ok(t.duration(key, 0, limits::OVERHEAD)?.map_or(0, |d| d.value));
    let tick = get("tick")?;
    let phase = t.duration("tick_phase", 0, limits::OVERHEAD)?;
    if let Some(phase) = phase.as_ref().filter(|phase| phase.value > 0 && phase.value >= tick) {
        let reason = format!("there is no tick after {}", format_duration(phase.value));
        return fault(
            phase.at,
            reason,
            "write a tick_phase below `tick`, which says how far apart ticks are",
        );
    }
    Ok(Overheads {
        tick,
        tick_phase: phase.map_or(0, |phase| phase.value),
        dispatch: get("dispatch")?,
        preemption: get("preemption")?,
        migration: get("migration")?,
        wake: get("wake")?,
    })
}

fn best_effort(
    top: &Table<'_, '_>,
    cpus: u32,
    groups: &[Group],
) -> Result<Option<BestEffort>, Fault> {
    let Some(t) = load::best_effort(top)? else { return Ok(None) };
    let generators = generators::read(&t)?;
    let count = t.integer("count", 0, limits::TASKS as i64)?;
    let count = match (count, t.value("load")) {
        (None, Some(_)) => 0,
        (None, None) if generators.is_some() => 0,
        (count, _) => t.required("count", "8", count)?.value as u32,
    };
    let nice = load::nice(&t)?;
    let (order, baseline) = match t.string("order")? {
        None => (Others::default(), None),
        Some(order) => match (order.value.parse(), Linux24::named(order.value)) {
            (Ok(order), _) => (order, None),
            (_, Some(baseline)) => (Others::default(), Some(baseline)),
            _ => {
                let reason = format!("no order of best effort is called \"{}\"", clip(order.value));
                return fault(order.at, reason, format!("there are {}", Linux24::simulated()));
            }
        },
    };
    let group = rank::group(&t, groups)?;
    let servers = rank::servers(&t, cpus, groups, group)?;
    Ok(Some(BestEffort { count, nice, order, baseline, servers, group, generators }))
}

/// CPUs of the machine, ascending; `None` if the key is not there.
pub(super) fn cpu_list(t: &Table<'_, '_>, key: &str, cpus: u32) -> Result<Option<Vec<u32>>, Fault> {
    let Some(list) = t.array(key, "[0, 1]")? else { return Ok(None) };
    let mut mask = Vec::new();
    for item in list.value.iter() {
        let cpu = table::integer(item, key, 0, i64::from(u32::MAX))?;
        if cpu.value >= i64::from(cpus) {
            let reason = format!("{key} names CPU {}, but cpus = {cpus}", cpu.value);
            return fault(cpu.at, reason, format!("use CPUs 0 to {}", cpus - 1));
        }
        let cpu_number = cpu.value as u32;
        if mask.contains(&cpu_number) {
            let reason = format!("{key} names CPU {cpu_number} twice");
            return fault(cpu.at, reason, "name it once");
        }
        mask.push(cpu_number);
    }
    if mask.is_empty() {
        let reason = format!("{key} allows no CPU");
        return fault(list.at, reason, "name at least one, or leave it out");
    }
    mask.sort_unstable();
    Ok(Some(mask))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

pub(super) fn plain_name(name: &At<&str>, key: &str) -> Result<String, Fault> {
    let fits = (1..=limits::NAME).contains(&name.value.len());
    // It becomes part of file names: no leading dot, nothing to quote.
    if fits && !name.value.starts_with('.') && name.value.chars().all(is_plain) {
        return Ok(name.value.to_string());
    }
    let reason = format!("{key} = \"{}\" is not a plain name", clip(name.value));
    fault(name.at, reason, "use 1 to 64 letters, digits, '.', '_' and '-', not '.' first")
}

/// A name made from the file's, for files that give none.
fn default_name(stem: &str) -> String {
    let name: String = stem.chars().filter(|c| is_plain(*c)).take(limits::NAME).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "task-set".into() } else { name.into() }
}
