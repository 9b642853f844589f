// SPDX-License-Identifier: GPL-2.0-only
//! Jobs of several threads, jobs that lock, jobs that are given up: what must hold of every run of them.

mod cases;
mod witness;

use onbeat_model::event::EventKind;
use onbeat_model::metrics::detailed;
use onbeat_model::policy::{CORE, CorePolicy};
use onbeat_model::taskset::{GRACE, TaskSet};
use onbeat_sim::{Detail, SimError, prepare, simulate};
use proptest::collection::vec;
use proptest::prelude::*;
use witness::Witness;

/// A task, in steps of 100 µs.
#[derive(Debug, Clone)]
struct Task {
    period: u64,
    deadline: u64,
    budget: Option<u64>,
    offset: u64,
    threads: u64,
    work: u64,
    /// More than the work of some jobs, if not 0: they take anything up to it.
    longest: u64,
    abort: bool,
    /// Resource, start and length.
    sections: Vec<(usize, u64, u64)>,
}

/// What random sets are like.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Work in per cent of the budget, at most.
    overrun: u64,
    /// Sections are nested in one order of the resources, so that no circle can close.
    ordered: bool,
    threads: u64,
}

const NAMES: [&str; 3] = ["bus", "disk", "log"];

/// Sections of a job: first ones one after the other, then some within these.
fn sections(work: u64, ordered: bool) -> impl Strategy<Value = Vec<(usize, u64, u64)>> {
    let one = (0..3usize, 0..3usize, 0..1000u64, 1..1000u64, any::<bool>());
    vec(one, 0..4).prop_map(move |drafts| {
        let mut all = Vec::new();
        let mut at = 0;
        for (outer, inner, gap, length, nested) in drafts {
            let from = at + gap * work / 4000;
            let length = (length * work / 3000).max(1);
            if from + length > work {
                break;
            }
            let (outer, inner) =
                if ordered { (outer.min(inner), outer.max(inner)) } else { (outer, inner) };
            all.push((outer, from, length));
            if nested && outer != inner && length > 1 {
                all.push((inner, from + length / 3, (length / 2).max(1)));
            }
            at = from + length;
        }
        all
    })
}

fn task(kind: Kind) -> impl Strategy<Value = Task> {
    let draft = (10..200u64, 50..101u64, 1..4u64, any::<bool>(), 0..50u64, 1..=kind.threads);
    let more = (1..=kind.overrun, 0..3u64, prop::bool::weighted(0.3));
    (draft, more).prop_flat_map(move |(draft, (overrun, longer, abort))| {
        let (period, part, weight, reserved, offset, threads) = draft;
        let deadline = period * part / 100;
        let budget = (deadline * weight / 12).max(1);
        let threads = if reserved { threads } else { 1 };
        let work = (budget * overrun / 100 / threads).max(1);
        let longest = if longer == 0 { work * 2 } else { 0 };
        sections(work, kind.ordered).prop_map(move |sections| Task {
            period,
            deadline,
            budget: reserved.then_some(budget),
            offset,
            threads,
            work,
            longest,
            abort,
            sections,
        })
    })
}

/// The set as a file says it.
fn set(cpus: u32, share: u64, tasks: &[Task]) -> TaskSet {
    let time = |steps: u64| format!("\"{}us\"", steps * 100);
    let mut text =
        format!("cpus = {cpus}\nduration = \"200ms\"\nbest_effort_share = \"{share}%\"\n");
    for (i, t) in tasks.iter().enumerate() {
        text += &format!(
            "[[task]]\nname = \"t{i}\"\nperiod = {}\ndeadline = {}\n",
            time(t.period),
            time(t.deadline)
        );
        text += &t.budget.map_or(String::new(), |budget| format!("budget = {}\n", time(budget)));
        text += &format!("offset = {}\nthreads = {}\n", time(t.offset), t.threads);
        text += if t.abort { "abort = \"at-deadline\"\n" } else { "" };
        let one = |(r, from, length): &(usize, u64, u64)| {
            let (name, from, length) = (NAMES[*r], time(*from), time(*length));
            format!("{{ resource = \"{name}\", from = {from}, length = {length} }}")
        };
        let all: Vec<String> = t.sections.iter().map(one).collect();
        text += &format!("sections = [{}]\n", all.join(", "));
        text += &match t.longest {
            0 => format!("work = {{ constant = {} }}\n", time(t.work)),
            most => format!("work = {{ uniform = [\"1ns\", {}] }}\n", time(most)),
        };
    }
    text += "[best_effort]\ncount = 1\n[[best_effort.load]]\nname = \"ed\"\nperiod = \"7ms\"\narrivals = \"poisson\"\n\
             work = { uniform = [\"1us\", \"4ms\"] }\n";
    TaskSet::from_bytes(text.as_bytes(), "random.toml".as_ref())
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Any set and any policy of the registry.
fn any_set(kind: Kind) -> impl Strategy<Value = (TaskSet, &'static CorePolicy)> {
    (1..4u32, prop_oneof![Just(0u64), Just(10)], vec(task(kind), 1..7), 0..CORE.len())
        .prop_map(|(cpus, share, tasks, policy)| (set(cpus, share, &tasks), &CORE[policy]))
}

/// Plays it and checks the run, of which nothing is known beforehand; what the core has counted, too.
fn check(set: &TaskSet, policy: &CorePolicy) -> Result<(), String> {
    let run = match simulate(set, policy) {
        Ok(run) => run,
        Err(SimError::Deadlock { who, .. }) if who.contains("waits for") => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let witness = Witness::of(set, &run)?;
    if run.horizon_ns < set.duration + GRACE && witness.pending > 0 {
        return Err(format!("{} jobs are not done, but the run is over", witness.pending));
    }
    let (m, tasks) = detailed(&run);
    if m.anomalies > 0 || m.misses < m.aborted + m.unfinished || m.owed_late > m.misses {
        return Err(format!("{m:?}"));
    }
    let late = tasks.iter().zip(&run.tasks).find(|(m, t)| {
        let aborts = set.tasks.get(t.entry as usize).is_some_and(|t| t.abort);
        m.aborted > 0 && !aborts || aborts && m.misses > m.aborted + m.unfinished
    });
    if let Some((task, _)) = late {
        return Err(format!("aborted or late: {task:?}"));
    }
    // The core charged each reservation with what its threads ran, all together.
    let (mut engine, infos) = prepare(set, policy, Detail::All).map_err(|e| e.to_string())?;
    engine.run(set.duration, set.duration + GRACE);
    for (i, info) in infos.iter().enumerate().filter(|(_, info)| info.budget > 0) {
        let (charged, ran) = (engine.core().server(i).consumed, witness.ran[i]);
        let runs = witness.runs_at_the_end[i];
        if charged > ran || charged < ran && !runs {
            return Err(format!("{} ran for {ran} and was charged {charged}", info.name));
        }
    }
    Ok(())
}

const ANYTHING: Kind = Kind { overrun: 200, ordered: false, threads: 4 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_run_is_sound_whatever_jobs_share((set, policy) in any_set(ANYTHING)) {
        check(&set, policy).map_err(|e| TestCaseError::fail(format!("{}: {e}", policy.name)))?;
    }

    #[test]
    fn who_takes_resources_in_one_order_never_waits_for_ever(
        (set, policy) in any_set(Kind { ordered: true, ..ANYTHING })
    ) {
        let run = simulate(&set, policy);
        prop_assert!(run.is_ok(), "{}: {:?}", policy.name, run.err().map(|e| e.to_string()));
    }

    #[test]
    fn no_owed_job_is_late_where_each_reservation_gets_its_budget(
        tasks in vec(task(Kind { ordered: true, ..ANYTHING }), 1..5), name in 0..2usize,
    ) {
        // Budgets are a quarter of the deadline at most, so four fit a CPU.
        let policy = CORE.iter().find(|p| p.name == ["p-edf+cbs-hard", "p-edf+cbs"][name]).unwrap();
        let run = simulate(&set(1, 0, &tasks), policy).unwrap();
        let (m, each) = detailed(&run);
        prop_assert_eq!(m.owed_late, 0, "{:?}", each);
        prop_assert_eq!(run.events.iter().filter(|e| e.kind() == Some(EventKind::Lost)).count(), 0);
    }
}
