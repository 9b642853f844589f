// SPDX-License-Identifier: GPL-2.0-only
//! Threads on a CPU that cannot give them what they have reserved: those that bind themselves to it are best effort,
//! and those that are held there fall behind. Once they are free they may not make up for all of it at others' expense.

use std::path::Path;

use crate::common::{policy, reservation};
use onbeat_core::ffi;
use onbeat_model::metrics::detailed;
use onbeat_model::policy::{CORE, CorePolicy, Sets};
use onbeat_model::taskset::{Overheads, TaskSet};
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 20 * MS;
/// Of the two that never sleep, and of the one with jobs; 1.7 of 1.9 CPUs.
const BUDGETS: [u64; 3] = [12 * MS, 12 * MS, 10 * MS];
const WORK: u64 = 9_900_000;

/// By how much the one with jobs was late, ns, when two others, held on a CPU for some eight seconds, are free again.
fn late_beside(name: &str, held: u64) -> u64 {
    let policy = policy(name);
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    let order = if name.starts_with("g-edzl") { ffi::OB_ORDER_EDZL } else { ffi::OB_ORDER_EDF };
    let mut core = Core::new(2, policy.order.domains(2, 1), 50, MS, 4, 1 << 14);
    for (i, budget) in BUDGETS.into_iter().enumerate() {
        core.init_task(i, 3, NICE_0);
        core.hold(i, if i < 2 { 1 } else { 3 }, 0);
        let terms = Reservation {
            budget,
            period: PERIOD,
            deadline: PERIOD,
            cpus: 3,
            domain: 0,
            kind: kind.unwrap() as u32,
            order,
            marks: false,
            apart: false,
            split: None,
        };
        core.reserve(i, &terms);
    }
    core.init_task(3, 3, NICE_0);
    let jobs = 1000;
    let (delays, times) = (vec![0; jobs], vec![WORK; jobs]);
    let with_jobs =
        Load::Jobs { first: 0, period: PERIOD, delays, deadline: PERIOD, times, marks: false };
    let loads = vec![Load::Endless, Load::Endless, with_jobs, Load::Endless];
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::All);
    engine.run(0, held);
    assert_eq!(engine.core().server(2).misses, 0, "{name}: it has the other CPU");
    engine.change(|core, now| {
        core.hold(0, 3, now);
        core.hold(1, 3, now);
    });
    engine.run(0, held + 8_000 * MS);
    engine.core().server(2).tardiness_max
}

#[test]
fn who_was_held_on_a_full_cpu_and_is_free_again_makes_nobody_late() {
    for held in (8_000..8_040).map(|ms| ms * MS) {
        for server in ["cbs", "cbs-slack", "cbs-predict"] {
            let late = late_beside(&format!("g-edzl+{server}"), held);
            assert_eq!(late, 0, "{server}, held for {held} ns");
        }
        // One that rests as it is freed, late, still makes up for that.
        assert!(late_beside("g-edzl+cbs-hard", held) < PERIOD, "held for {held} ns");
    }
}

#[test]
fn where_lateness_is_kept_for_long_it_does_so_these_neighbours_are_hostile() {
    // Global EDF isolates nobody, and keeps deadlines for the sake of its bounds.
    assert!(late_beside("g-edf+cbs-hard", 8_000 * MS) > 1000 * MS);
}

/// 9 ms in 9.9 in two threads that may go everywhere, and 4.5 ms in 10 twice on the first CPU: all loads together are
/// 1.81 of 1.9 CPUs, and by deadline the first has both for 4.5 ms.
#[test]
fn who_may_go_everywhere_makes_nobody_late_who_may_not() {
    let task = |name: &str, ms: &str, period: &str, more: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nbudget = \"{ms}ms\"\nperiod = \"{period}ms\"\n{more}\n"
        )
    };
    let here = "affinity = [0]\nwork = { constant = \"4.5ms\" }";
    let text = format!(
        "cpus = 2\nduration = \"1s\"\nbest_effort = {{ count = 2 }}\n{}{}{}",
        task("one", "4.5", "10", here),
        task("two", "4.5", "10", here),
        task("wide", "9", "9.9", "threads = 2\nwork = { constant = \"20ms\" }"),
    );
    let set = TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap();
    let isolate = |p: &&&CorePolicy| p.order.isolates() && p.server.isolates();
    for policy in CORE.iter().filter(|p| isolate(&p) && !p.order.key.ranks()) {
        let run = onbeat_sim::simulate(&set, policy).unwrap();
        let (_, tasks) = detailed(&run);
        assert_eq!((tasks[0].owed_late, tasks[1].owed_late), (0, 0), "{}", policy.name);
        assert!(tasks[0].owed >= 99, "{}", policy.name);
    }
}

/// Two have 9 ms in 10 on two CPUs, and bind themselves to one of them.
#[test]
fn who_binds_itself_to_a_cpu_takes_it_from_nobody() {
    for policy in CORE.iter().filter(|p| p.order.isolates() && p.server.isolates()) {
        if policy.order.sets == Sets::Partitioned || policy.order.key.ranks() {
            continue;
        }
        let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
        let mut core = Core::new(3, 1, 50, MS, 4, 1 << 14);
        for (i, cpus) in [0b110, 0b110, 0b001].into_iter().enumerate() {
            core.init_task(i, if i < 2 { 0b010 } else { 0b111 }, NICE_0);
            let terms = Reservation {
                budget: 9 * MS,
                period: 10 * MS,
                deadline: 10 * MS,
                cpus,
                domain: 0,
                kind: kind.unwrap() as u32,
                order: policy.order.number(),
                marks: false,
                apart: i == 2,
                split: None,
            };
            core.reserve(i, &terms);
        }
        // Another with the same CPUs keeps to its budget.
        core.init_task(3, 0b111, NICE_0);
        let (times, period) = (vec![9 * MS; 100], 10 * MS);
        let jobs =
            Load::Jobs { first: 0, period, delays: vec![], deadline: period, times, marks: false };
        let loads = vec![Load::Endless, Load::Endless, jobs, Load::Endless];
        let mut engine = Engine::new(core, 3, loads, Overheads::default(), Detail::All);
        engine.run(0, 1_000 * MS);
        assert_eq!(engine.core().server(2).misses, 0, "{}", policy.name);
        // They are best effort's: of CPU 1 they have half each, and no budget pays.
        assert_eq!(engine.core().server(0).consumed + engine.core().server(1).consumed, 0);
    }
}

/// A member waits for its group's budget, for longer than where its order isolates lateness is kept.
#[test]
fn who_is_late_for_its_groups_budget_catches_up() {
    let task = |name: &str, us: u64, period: u64, more: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nbudget = \"{us}us\"\nperiod = \"{period}ms\"\n{more}\n\
             work = {{ constant = \"{us}us\" }}\n"
        )
    };
    let member = "group = \"g\"";
    let text = format!(
        "cpus = 1\nduration = \"10s\"\nbest_effort = {{ count = 1 }}\n\
         [[group]]\nname = \"g\"\nbudget = \"50ms\"\nperiod = \"100ms\"\norder = \"edf\"\n{}{}{}",
        task("short", 350, 1, member),
        task("long", 5_000, 50, member),
        task("beside", 38_000, 90, "")
    );
    for server in ["cbs", "cbs-hard", "cbs-predict"] {
        let rule = format!("budget = \"50ms\"\nrule = \"{server}\"");
        let text = text.replacen("budget = \"50ms\"", &rule, 1);
        let set = TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap();
        let run = onbeat_sim::simulate(&set, policy(&format!("p-edf+{server}"))).unwrap();
        let (_, tasks) = detailed(&run);
        // The group has its budget in each of its periods, so it is ahead of what they ask for, 45 of 100 ms.
        let late = tasks[0].tardiness_max_ms;
        assert!(late < 100.0, "{server}: {late} ms");
        assert_eq!(tasks[2].misses, 0, "{server}");
    }
}

#[test]
fn who_is_held_for_a_moment_keeps_its_deadline() {
    let kind = onbeat_core::server_policies().iter().position(|n| *n == "cbs-hard").unwrap() as u32;
    let mut core = Core::new(2, 1, 50, MS, 3, 0);
    for i in 0..3 {
        core.init_task(i, 3, NICE_0);
        let of = reservation(9 * MS, PERIOD, kind, ffi::OB_ORDER_EDZL);
        core.reserve(i, &Reservation { cpus: 3, ..of });
    }
    let loads = vec![Load::Endless, Load::Endless, Load::Endless];
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::Jobs);
    engine.run(3 * MS, 3 * MS);
    let waits = (0..3).find(|i| engine.core().waits(*i)).expect("three want two CPUs");
    for cpus in [1, 3] {
        engine.change(|core, now| core.hold(waits, cpus, now));
        // 9 of the 17 ms that are left are more than its part of them: as who has slept it would begin anew.
        assert_eq!(engine.core().server(waits).s, PERIOD);
    }
}
