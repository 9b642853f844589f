// SPDX-License-Identifier: GPL-2.0-only
//! Groups of reservations: a group gets its budget and no more, its members share it as its order says, and nobody
//! outside feels what they do.

use onbeat_core::ffi;
use onbeat_model::policy::{CORE, Server};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Number of the server policy `name` in the core's registry.
fn kind(name: &str) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == name).unwrap() as u32
}

fn reservation(budget: u64, period: u64, server: &str, order: u32) -> Reservation {
    Reservation {
        budget,
        period,
        deadline: period,
        cpus: u64::MAX,
        domain: 0,
        kind: kind(server),
        order,
        marks: false,
        apart: false,
        split: None,
    }
}

const EDF: u32 = ffi::OB_ORDER_EDF;

/// A system under construction: task `i` is number `i`, group `g` is number `tasks + g`.
struct System {
    core: Core,
    cpus: u32,
    tasks: usize,
    loads: Vec<Load>,
}

impl System {
    fn new(cpus: u32, tasks: usize, groups: usize) -> Self {
        let mut core = Core::new(cpus, 1, 0, MS, tasks, 0);
        core.groups(groups);
        (0..tasks).for_each(|i| core.init_task(i, (1 << cpus) - 1, NICE_0));
        Self { core, cpus, tasks, loads: Vec::new() }
    }

    fn group(&mut self, g: usize, r: &Reservation, within: Option<usize>) {
        self.core.group(self.tasks + g, r, within.map(|w| self.tasks + w));
    }

    /// The next task: jobs of `times`, one every `period`, under a reservation.
    fn task(&mut self, r: &Reservation, within: Option<usize>, period: u64, times: Vec<u64>) {
        let i = self.loads.len();
        match within {
            Some(g) => self.core.reserve_in(i, r, self.tasks + g),
            None => self.core.reserve(i, r),
        }
        let (first, delays, deadline, marks) = (0, Vec::new(), period, false);
        self.loads.push(Load::Jobs { first, period, delays, deadline, times, marks });
    }

    /// The next task: it never sleeps.
    fn hog(&mut self, r: &Reservation, within: Option<usize>) {
        self.task(r, within, SECOND, vec![3_600 * SECOND]);
    }

    fn played(self, until: u64) -> Engine {
        let overheads = Overheads::default();
        let mut engine = Engine::new(self.core, self.cpus, self.loads, overheads, Detail::Counters);
        engine.run(until, until);
        engine
    }
}

/// What number `i` has consumed, ms.
fn consumed(engine: &Engine, i: usize) -> f64 {
    // Until when it has been charged, a period before the end at most.
    engine.core().server(i).consumed as f64 / MS as f64
}

#[test]
fn a_hard_group_gets_its_budget_in_every_period_whatever_its_members_ask_for() {
    for server in Server::ALL.iter().filter(|s| !s.name().is_empty()) {
        let mut system = System::new(1, 3, 1);
        system.group(0, &reservation(10 * MS, 20 * MS, "cbs-hard", EDF), None);
        // Soft ones, which ask for more than all of it, and one beside the group.
        system.hog(&reservation(5 * MS, 20 * MS, server.name(), EDF), Some(0));
        system.hog(&reservation(2 * MS, 10 * MS, server.name(), EDF), Some(0));
        system.hog(&reservation(8 * MS, 20 * MS, "cbs-hard", EDF), None);
        let engine = system.played(2 * SECOND);
        let (group, beside) = (consumed(&engine, 3), consumed(&engine, 2));
        let most = if server.name() == "cbs-hard" { 900.0 } else { 1_000.0 };
        assert!((most - 10.0..=most + 0.1).contains(&group), "{}: {group}", server.name());
        assert!((790.0..=800.1).contains(&beside), "{}: {beside}", server.name());
        let members = consumed(&engine, 0) + consumed(&engine, 1);
        assert!((members - group).abs() <= 10.0, "{}: {members} of {group}", server.name());
    }
}

#[test]
fn the_least_budget_on_the_way_from_the_root_counts_six_groups_deep() {
    for least in 0..7 {
        let mut system = System::new(1, 1, 6);
        let budget = |level| if level == least { 10 * MS } else { 50 * MS };
        for g in 0..6 {
            let r = reservation(budget(g), 100 * MS, "cbs-hard", EDF);
            system.group(g, &r, g.checked_sub(1));
        }
        system.hog(&reservation(budget(6), 100 * MS, "cbs-hard", EDF), Some(5));
        let had = consumed(&system.played(3 * SECOND), 0);
        assert!((290.0..=300.1).contains(&had), "level {least}: {had}");
    }
}

#[test]
#[should_panic(expected = "too deep")]
fn a_seventh_group_in_the_others_is_refused() {
    let mut system = System::new(1, 1, 7);
    for g in 0..7 {
        system.group(g, &reservation(MS, 10 * MS, "cbs", EDF), g.checked_sub(1));
    }
}

#[test]
fn a_groups_order_is_its_own() {
    // Rate monotonic inside: the short one first; by deadline it would be the long one at 40 ms.
    for (order, first_is_late) in [(ffi::OB_ORDER_RM, false), (ffi::OB_ORDER_FIFO, true)] {
        let mut system = System::new(1, 2, 1);
        system.group(0, &reservation(90 * MS, 100 * MS, "cbs", EDF), None);
        let (long, short) = ((40 * MS, 100 * MS), (3 * MS, 10 * MS));
        system.task(&reservation(long.0, long.1, "cbs", order), Some(0), long.1, vec![long.0; 9]);
        system.task(&reservation(short.0, short.1, "cbs", order), Some(0), short.1, vec![short.0]);
        let engine = system.played(SECOND);
        assert_eq!(engine.missed().is_some(), first_is_late, "order {order}");
    }
}

#[test]
fn all_cpus_that_run_members_charge_the_group() {
    let mut system = System::new(4, 4, 1);
    // 40 ms of CPU time in 20 ms: two CPUs' worth of four.
    let mut group = reservation(20 * MS, 20 * MS, "cbs-hard", EDF);
    group.budget = 20 * MS;
    system.group(0, &group, None);
    for _ in 0..4 {
        system.hog(&reservation(20 * MS, 20 * MS, "cbs", EDF), Some(0));
    }
    let engine = system.played(SECOND);
    let had: f64 = (0..4).map(|i| consumed(&engine, i)).sum();
    assert!((980.0..=1_000.1).contains(&had), "{had}");
    assert!((consumed(&engine, 4) - had).abs() <= 40.0, "{}", consumed(&engine, 4));
}

/// A member: a budget in thousandths of its group's share, a period in ms, what its jobs need in thousandths of the
/// budget, 0: it never sleeps.
type Member = (u64, u64, u64, u64);

prop_compose! {
    fn member()(share in 50..1500u64, period in 2..60u64, need in prop_oneof![Just(0), 100..3000u64],
                every in 2..90u64) -> Member {
        (share, period, need, every)
    }
}

/// A top-level item: utilization in thousandths of 1/3, a period in ms, and its members if it is a group.
type Item = (u64, u64, Option<Vec<Member>>);

fn items() -> impl Strategy<Value = Vec<Item>> {
    let members = prop::option::weighted(0.6, prop::collection::vec(member(), 1..5));
    prop::collection::vec((100..1000u64, 3..80u64, members), 2..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// By every policy that isolates, for groups and members alike: Q/P of all that stand in the CPU's queue sum up to
    /// at most 1, so those that keep to their budgets meet their deadlines (Abeni and Buttazzo 1998).
    #[test]
    fn whatever_members_do_who_keeps_its_budget_outside_is_in_time(items in items(), nested: bool) {
        for policy in CORE.iter().filter(|p| p.server.isolates() && p.order.isolates() && p.name.starts_with("g-")) {
            let tasks: usize = items.iter().map(|i| i.2.as_ref().map_or(1, Vec::len)).sum();
            let mut system = System::new(1, tasks, 2 * items.len());
            let server = policy.server.name();
            let mut innocent = Vec::new();
            for (g, (share, period, members)) in items.iter().enumerate() {
                let (budget, period) = (period * MS * share / 3_000, period * MS);
                let r = reservation(budget, period, server, policy.order.number());
                let Some(members) = members else {
                    innocent.push(system.loads.len());
                    let jobs = (2 * SECOND / period) as usize;
                    system.task(&r, None, period, vec![budget; jobs]);
                    continue;
                };
                system.group(g, &r, None);
                let mut within = g;
                if nested {
                    within = items.len() + g;
                    system.group(within, &r, Some(g));
                }
                for (share, period, need, every) in members {
                    let budget = (period * MS * share * budget / r.period / 1_000).min(period * MS);
                    let r = reservation(budget.max(1_000), period * MS, server, policy.order.number());
                    match need {
                        0 => system.hog(&r, Some(within)),
                        _ => system.task(&r, Some(within), every * MS, vec![budget * need / 1_000 + 1; 50]),
                    }
                }
            }
            let engine = system.played(2 * SECOND);
            for i in innocent {
                prop_assert_eq!(engine.core().server(i).misses, 0, "{} of {:?}", i, policy.name);
                prop_assert!(engine.core().server(i).jobs > 10);
            }
        }
    }
}

/// Table 3 of Wang and Lin: group job J0 has 30, J1 within it 80, J3 in J1 has 40.
#[test]
fn in_red_linux_s_budget_tree_j3_gets_30_not_40() {
    let mut system = System::new(1, 2, 0);
    system.core.purse(0, None, SECOND, &[(30 * MS, 0, SECOND)]);
    system.core.purse(1, Some(0), SECOND, &[(80 * MS, 0, SECOND)]);
    system.hog(&reservation(40 * MS, SECOND, "cbs-hard", EDF), None);
    // J4, its neighbour in J1, comes too late.
    system.hog(&reservation(50 * MS, SECOND, "cbs-hard", EDF), None);
    system.core.pays_from(0, 1);
    system.core.pays_from(1, 1);
    let engine = system.played(900 * MS);
    let (j3, j4) = (consumed(&engine, 0), consumed(&engine, 1));
    assert!((29.9..=30.1).contains(&j3), "{j3}");
    assert!(j4 < 0.1, "{j4}");
}

/// Table 4 there: in the tree of groups J1 is in J3 and J0, which have enough, and has 80 itself; in the tree of
/// budgets it is in J6, which has 60, and that in J5.
#[test]
fn where_red_linux_s_two_trees_meet_j1_gets_60() {
    let mut system = System::new(1, 1, 2);
    system.group(0, &reservation(500 * MS, SECOND, "cbs-hard", EDF), None);
    system.group(1, &reservation(300 * MS, SECOND, "cbs-hard", EDF), Some(0));
    system.core.purse(5, None, SECOND, &[(100 * MS, 0, SECOND)]);
    system.core.purse(6, Some(5), SECOND, &[(60 * MS, 0, SECOND)]);
    system.hog(&reservation(80 * MS, SECOND, "cbs-hard", EDF), Some(1));
    system.core.pays_from(0, 6);
    let had = consumed(&system.played(900 * MS), 0);
    assert!((59.9..=60.1).contains(&had), "{had}");
}

#[test]
fn what_expires_first_is_spent_first_and_who_finds_nothing_sleeps_until_there_is_some() {
    // 10 ms from 0 to 20 ms, 10 ms from 10 to 60 ms, nothing until 100 ms, when all begins anew.
    let segments = [(10 * MS, 0, 20 * MS), (10 * MS, 10 * MS, 60 * MS)];
    let after = |until| {
        let mut system = System::new(1, 1, 0);
        system.core.purse(0, None, 100 * MS, &segments);
        // It begins at 5 ms: 10 ms are spent by 15 ms, the second 10 ms by 25 ms.
        system.hog(&reservation(90 * MS, 100 * MS, "cbs", EDF), None);
        let Load::Jobs { first, .. } = &mut system.loads[0] else { unreachable!() };
        *first = 5 * MS;
        system.core.pays_from(0, 0);
        consumed(&system.played(until * MS), 0)
    };
    for (until, least) in [(26, 20.0), (99, 20.0), (111, 30.0), (121, 40.0), (199, 40.0)] {
        let had = after(until);
        assert!((least - 0.1..=least + 0.1).contains(&had), "{had} until {until} ms");
    }
}

#[test]
fn a_purse_pays_for_all_cpus_at_once_and_then_all_stop() {
    for server in Server::ALL {
        let mut system = System::new(4, 5, 0);
        system.core.purse(0, None, 100 * MS, &[(60 * MS, 0, 100 * MS)]);
        for i in 0..4 {
            system.hog(&reservation(90 * MS, 100 * MS, server.name(), EDF), None);
            system.core.pays_from(i, 0);
        }
        let engine = system.played(SECOND);
        let had: f64 = (0..4).map(|i| consumed(&engine, i)).sum();
        assert!((599.0..=601.0).contains(&had), "{}: {had}", server.name());
    }
}

/// Who finds its purse empty at the pick leaves the CPU to the next in line.
#[test]
fn a_member_with_an_empty_purse_leaves_the_cpu_to_the_next() {
    let mut system = System::new(1, 3, 1);
    system.core.purse(0, None, SECOND, &[(10 * MS, 0, SECOND)]);
    system.group(0, &reservation(50 * MS, 200 * MS, "cbs-hard", EDF), None);
    system.hog(&reservation(10 * MS, 100 * MS, "cbs-hard", EDF), None);
    system.hog(&reservation(10 * MS, SECOND, "cbs-hard", EDF), Some(0));
    system.hog(&reservation(500 * MS, SECOND, "cbs-hard", EDF), None);
    system.core.pays_from(0, 0);
    system.core.pays_from(1, 0);
    let had = consumed(&system.played(800 * MS), 2);
    assert!((499.0..=500.1).contains(&had), "{had}");
}
