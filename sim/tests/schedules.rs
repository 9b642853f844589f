// SPDX-License-Identifier: GPL-2.0-only
//! Schedules against those of a simulator that knows nothing of this code: SimSo (`judges/ask_simso.py`). Both play the
//! same sets of whole milliseconds, and what runs in each millisecond is compared, so preemptions and finishing times
//! are, too. They may differ only where two jobs are equals: SimSo takes the first in the file (on each CPU: the first
//! that was released), Onbeat the one that runs already, or became ready first.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onbeat_model::event::EventKind;
use onbeat_model::policy::{CORE, CorePolicy};
use onbeat_model::taskset::TaskSet;
use onbeat_sim::simulate;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const MS: u64 = 1_000_000;
/// Length of each schedule, ms.
const UNTIL: u64 = 360;
const SETS: usize = 50;
const POLICIES: [&str; 5] = ["g-edf", "p-edf", "rm", "p-rm", "g-edzl"];

/// A periodic task; times in ms. Every job takes `work`, which is the budget, too.
#[derive(Debug, Clone, Copy)]
struct Task {
    first: u64,
    period: u64,
    deadline: u64,
    work: u64,
    /// Its CPU under partitioned policies.
    home: u64,
}

#[derive(Debug, Clone)]
struct Set {
    cpus: u64,
    tasks: Vec<Task>,
}

/// Fifty sets of one to four CPUs. Without `ties` periods are multiples of 16 ms, all different, and deadlines fall on
/// different milliseconds of 16: neither the next deadline nor the period of any two jobs is ever the same.
fn sets(ties: bool) -> Vec<Set> {
    let mut random = ChaCha8Rng::seed_from_u64(2014 + u64::from(ties));
    let mut within = |low: u64, high: u64| low + random.next_u64() % (high - low + 1);
    let mut one = || {
        let cpus = within(1, 4);
        let most = if cpus == 1 { 5 } else { 2 * cpus + 2 };
        let mut tasks: Vec<Task> = Vec::new();
        let mut loads = vec![0; cpus as usize]; // thousandths of each CPU
        for i in 0..within(cpus + 1, most) {
            let period = loop {
                let period = if ties { within(1, 10) * 6 } else { within(1, 12) * 16 };
                if ties || tasks.iter().all(|task| task.period != period) {
                    break period;
                }
            };
            let work = (period * within(50, 600) / 1000).max(1);
            let first = if ties { within(0, 4) * 3 } else { within(0, 15) };
            let deadline = if ties { period } else { period - (first + 16 - i) % 16 };
            // On the least loaded CPU; what does not fit there is left out.
            let (home, load) = loads.iter_mut().enumerate().min_by_key(|(_, load)| **load).unwrap();
            let part = (1000 * work).div_ceil(deadline);
            if *load + part > 1000 {
                continue;
            }
            *load += part;
            tasks.push(Task { first, period, deadline, work, home: home as u64 });
        }
        Set { cpus, tasks }
    };
    (0..SETS).map(|_| one()).collect()
}

/// Which tasks run in each ms, and where: (task, CPU), ascending.
type Schedule = Vec<Vec<(usize, u64)>>;

fn schedule(ran: impl Iterator<Item = (usize, u64, u64, u64)>) -> Schedule {
    let mut slots = vec![Vec::new(); UNTIL as usize];
    for (task, cpu, from, to) in ran {
        (from..to.min(UNTIL)).for_each(|ms| slots[ms as usize].push((task, cpu)));
    }
    slots.iter_mut().for_each(|slot| slot.sort_unstable());
    slots
}

fn ours(set: &Set, policy: &CorePolicy) -> Schedule {
    let mut file =
        format!("cpus = {}\nduration = \"{UNTIL}ms\"\nbest_effort_share = \"0%\"\n", set.cpus);
    for (i, task) in set.tasks.iter().enumerate() {
        let Task { first, period, deadline, work, home } = task;
        file += &format!(
            "[[task]]\nname = \"t{i}\"\nperiod = \"{period}ms\"\noffset = \"{first}ms\"\n\
             deadline = \"{deadline}ms\"\nbudget = \"{work}ms\"\nwork = {{ constant = \"{work}ms\" }}\nmarks = true\n"
        );
        if policy.name.starts_with("p-") {
            file += &format!("affinity = [{home}]\n");
        }
    }
    let set = TaskSet::from_bytes(file.as_bytes(), Path::new("set.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{file}"));
    let run = simulate(&set, policy).unwrap();
    let mut since = vec![None; set.cpus as usize];
    let mut ran = Vec::new();
    for event in &run.events {
        let Some(cpu) = since.get_mut(event.cpu as usize) else { continue };
        match event.kind() {
            Some(EventKind::Run) => *cpu = Some((event.task as usize, event.time)),
            Some(EventKind::Stop) => {
                let (task, from) = cpu.take().unwrap();
                assert_eq!((from % MS, event.time % MS), (0, 0), "{file}");
                ran.push((task, u64::from(event.cpu), from / MS, event.time / MS));
            }
            _ => {}
        }
    }
    schedule(ran.into_iter())
}

/// What SimSo makes of each set under each policy; `None` where the machine cannot have it.
fn simsos(sets: &[Set]) -> Option<Vec<Schedule>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let judges = root.join(".cache/judges");
    if judges.join("absent").exists() {
        eprintln!("skipped: scripts/judges.sh could not fetch SimSo, there was no network");
        return None;
    }
    assert!(
        judges.join("stamp").exists(),
        "SimSo is missing; run scripts/judges.sh first, as `make test` does"
    );
    let cases = sets.iter().flat_map(|set| {
        let of = |t: &Task| [t.first, t.period, t.deadline, t.work, t.home];
        let tasks: Vec<_> = set.tasks.iter().map(of).collect();
        POLICIES.map(|policy| {
            serde_json::json!({ "policy": policy, "cpus": set.cpus, "until": UNTIL, "tasks": tasks })
        })
    });
    let cases = serde_json::Value::from_iter(cases).to_string();
    let mut python = Command::new("python3")
        .arg(root.join("sim/tests/judges/ask_simso.py"))
        .env("PYTHONPATH", &judges)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(cases.as_bytes()));
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}",
        said.lines().rev().take(5).collect::<Vec<_>>().join("\n")
    );
    writer.join().unwrap().unwrap();
    let answers: Vec<Vec<(usize, u64, u64, u64)>> = serde_json::from_slice(&output.stdout).unwrap();
    Some(answers.into_iter().map(|ran| schedule(ran.into_iter())).collect())
}

/// What decides in ms `now` who of the tasks goes first: the smaller. `had` is the time each has had until then, ms.
fn key(policy: &str, task: &Task, had: u64, now: u64) -> u64 {
    let due = task.first + had / task.work * task.period + task.deadline;
    let left = task.work - had % task.work;
    match policy {
        "rm" | "p-rm" => task.period,
        "g-edzl" if due <= now + left => 0,
        _ => due,
    }
}

/// Where both first differ: the ms, and who runs in only one of them (`SimSo`'s, ours), as task and what decides.
type Difference = (u64, Vec<(usize, u64)>, Vec<(usize, u64)>);

fn difference(policy: &str, set: &Set, simsos: &Schedule, ours: &Schedule) -> Option<Difference> {
    // On which CPU a job of a global policy runs is of no account.
    let places = policy.starts_with("p-");
    let mut had = vec![0; set.tasks.len()];
    for (now, (a, b)) in simsos.iter().zip(ours).enumerate() {
        let there = |one: &(usize, u64), other: &[(usize, u64)]| {
            other.iter().any(|o| o.0 == one.0 && (!places || o.1 == one.1))
        };
        let keyed = |slot: &[(usize, u64)], other: &[(usize, u64)]| {
            let only = slot.iter().filter(|one| !there(one, other));
            only.map(|(i, _)| (*i, key(policy, &set.tasks[*i], had[*i], now as u64)))
                .collect::<Vec<_>>()
        };
        let (left, right) = (keyed(a, b), keyed(b, a));
        if !left.is_empty() || !right.is_empty() {
            return Some((now as u64, left, right));
        }
        a.iter().for_each(|(task, _)| had[*task] += 1);
    }
    None
}

/// The first differences, `None` where there is none, of all sets and policies.
fn differences(sets: &[Set]) -> Option<Vec<(String, Option<Difference>)>> {
    let answers = simsos(sets)?;
    let cases = sets.iter().flat_map(|set| POLICIES.map(|policy| (set, policy)));
    let compared = cases.zip(&answers).map(|((set, name), simsos)| {
        let policy = CORE.iter().find(|p| p.name == name).unwrap();
        (format!("{name}: {set:?}"), difference(name, set, simsos, &ours(set, policy)))
    });
    Some(compared.collect())
}

#[test]
fn fifty_sets_without_equals_run_as_in_simso_ms_by_ms() {
    for (case, difference) in differences(&sets(false)).into_iter().flatten() {
        assert!(difference.is_none(), "{difference:?} under {case}");
    }
}

#[test]
fn fifty_sets_with_equals_differ_from_simso_only_in_who_of_them_goes_first() {
    let Some(all) = differences(&sets(true)) else { return };
    for (case, difference) in &all {
        let Some((_, simsos, ours)) = difference else { continue };
        let first = simsos.first().or(ours.first()).unwrap().1;
        let equals =
            simsos.len() == ours.len() && simsos.iter().chain(ours).all(|(_, key)| *key == first);
        assert!(equals, "{difference:?} under {case}");
    }
    // The claim is not empty: most run alike to the end although there are equals.
    let alike = all.iter().filter(|(_, difference)| difference.is_none()).count();
    println!("{alike} of {} alike", all.len());
    assert!(2 * alike > all.len(), "{alike} of {}", all.len());
}
