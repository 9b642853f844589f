// SPDX-License-Identifier: GPL-2.0-only
//! No CPU idles, or serves one that comes later, while a reservation that may run there waits: whatever budgets come
//! back at one instant, whatever CPUs each may use, in whatever groups they are.

use onbeat_core::ffi;
use onbeat_model::policy::{CORE, CorePolicy, Splits};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};
use proptest::prelude::*;

use crate::common;

const MS: u64 = 1_000_000;
const CPUS: u32 = 3;

/// A task: its period in tens of ms, thousandths of it that it may have, per cent of its budget that jobs need, CPUs.
type Task = (u64, u64, u64, u64);

fn task() -> impl Strategy<Value = Task> {
    (1..4u64, 100..700u64, 30..300u64, prop_oneof![Just(0b111), 1..8u64])
}

/// The policies with one queue for all.
fn policies() -> impl Iterator<Item = &'static CorePolicy> {
    let whole = |p: &&CorePolicy| p.name.starts_with("g-") && p.order.splits == Splits::Never;
    CORE.iter().filter(whole)
}

fn reservation((tens, share, _, cpus): Task, policy: &CorePolicy) -> Reservation {
    let period = tens * 10 * MS;
    let server = policy.server.name();
    let kind = onbeat_core::server_policies().iter().position(|n| *n == server);
    let (budget, order) = (period * share / 1_000, policy.order.number());
    Reservation { cpus, ..common::reservation(budget, period, kind.unwrap() as u32, order) }
}

fn load(task: Task, r: &Reservation) -> Load {
    let (times, delays) = (vec![r.budget * task.2 / 100; 20], Vec::new());
    Load::Jobs { first: 0, period: r.period, delays, deadline: r.period, times, marks: false }
}

/// CPUs on which nobody runs.
fn idle(core: &Core) -> u64 {
    (0..CPUS).filter(|c| core.cpu(*c).curr.is_null()).fold(0, |mask, cpu| mask | 1 << cpu)
}

/// CPUs that reservation `i` and all groups that it is in have.
fn path_cpus(core: &Core, up: &[Option<usize>], i: usize) -> u64 {
    let path = std::iter::successors(Some(i), |at| up[*at]);
    path.fold(u64::MAX, |cpus, at| cpus & core.server(at).cpus)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_cpu_idles_or_serves_a_later_one_while_a_reservation_waits_for_it(
        tasks in prop::collection::vec(task(), 3..9),
    ) {
        for policy in policies() {
            let mut core = Core::new(CPUS, 1, 0, MS, tasks.len(), 0);
            let mut loads = Vec::new();
            for (i, task) in tasks.iter().enumerate() {
                let r = reservation(*task, policy);
                core.init_task(i, task.3, NICE_0);
                core.reserve(i, &r);
                loads.push(load(*task, &r));
            }
            let mut engine = Engine::new(core, CPUS, loads, Overheads::default(), Detail::Counters);
            for step in 1..=1_000 {
                let now = step * 200_000 + 1;
                engine.run(now, now);
                let core = engine.core();
                for i in 0..tasks.len() {
                    let sv = core.server(i);
                    let waits = sv.waiting > 0 && u32::from(sv.state) == ffi::OB_READY;
                    prop_assert!(!waits || sv.cpus & idle(core) == 0, "{} at {}: {}", policy.name, now, i);
                    // Where slack is lent keys change with the time that each runs.
                    let later = |cpu: u32| sv.cpus >> cpu & 1 == 1 && core.cpu(cpu).key > sv.node.key;
                    let passed = !policy.server.lends() && (0..CPUS).any(later);
                    prop_assert!(!waits || !passed, "{} at {}: {} is passed over", policy.name, now, i);
                }
            }
        }
    }

    #[test]
    fn nor_does_one_idle_while_a_member_of_a_group_waits_or_one_whose_purse_is_full_again(
        items in prop::collection::vec((task(), prop::collection::vec(task(), 0..4), any::<bool>()), 2..4),
        purse in 0..60u64,
        others in prop::collection::vec(1..8u64, 0..6),
        drawn in (0..4usize, 1..10u64, 10..40u64),
    ) {
        let tasks: usize = items.iter().map(|item| item.1.len().max(1)).sum();
        // Best effort's servers, in the innermost group of the first that has any.
        let group = items.iter().position(|item| !item.1.is_empty());
        let group = group.map(|g| tasks + others.len() + 2 * g + usize::from(items[g].2));
        let draws = if group.is_some() { drawn.0 } else { 0 };
        for policy in policies() {
            // Servers stand in no queue that is chosen from, and in no group without a budget.
            let may = policy.server.enforces() && !policy.order.key.chooses();
            let draws = if may { draws } else { 0 };
            let mut core = Core::new(CPUS, 1, 0, MS, tasks + others.len(), 0);
            core.groups(2 * items.len() + draws);
            let tops = tasks + others.len();
            let first = tops + 2 * items.len();
            let mut loads: Vec<Load> = Vec::new();
            // Of each reservation and group: the group it is in.
            let mut up = vec![None; first + draws];
            for (g, (top, members, nested)) in items.iter().enumerate() {
                let mut within = None;
                if !members.is_empty() {
                    for at in [tops + 2 * g, tops + 2 * g + 1].into_iter().take(1 + usize::from(*nested)) {
                        core.group(at, &reservation(*top, policy), within);
                        up[at] = within;
                        within = Some(at);
                    }
                }
                for task in if members.is_empty() { std::slice::from_ref(top) } else { members } {
                    let (i, r) = (loads.len(), reservation(*task, policy));
                    core.init_task(i, task.3, NICE_0);
                    match within {
                        Some(group) => core.reserve_in(i, &r, group),
                        None => core.reserve(i, &r),
                    }
                    up[i] = within;
                    loads.push(load(*task, &r));
                }
            }
            if purse > 0 {
                core.purse(0, None, 50 * MS, &[(purse * MS, 0, 50 * MS)]);
                (0..tasks).filter(|i| purse >> (i % 6) & 1 == 1).for_each(|i| core.pays_from(i, 0));
            }
            for cpus in &others {
                core.init_task(loads.len(), *cpus, NICE_0);
                loads.push(Load::Endless);
            }
            for (i, up) in up.iter_mut().enumerate().skip(first).take(draws) {
                let all = (drawn.2 / 10, 1_000 * drawn.1 / drawn.2.max(10), 0, u64::MAX);
                let kind = onbeat_core::server_policies().iter().position(|n| *n == "cbs-hard").unwrap();
                core.draw(i, &Reservation { kind: kind as u32, ..reservation(all, policy) }, group);
                *up = group;
            }
            let mut engine = Engine::new(core, CPUS, loads, Overheads::default(), Detail::Counters);
            for step in 1..=500 {
                let now = step * 400_000 + 1;
                engine.run(now, now);
                let core = engine.core();
                for i in 0..tasks {
                    let path = std::iter::successors(Some(i), |at| up[*at]).map(|at| core.server(at));
                    let open = |sv: &ffi::ob_server| u32::from(sv.state) == ffi::OB_READY;
                    let waits = core.server(i).waiting > 0 && path.clone().all(open);
                    let cpus = path.fold(u64::MAX, |cpus, sv| cpus & sv.cpus);
                    prop_assert!(!waits || cpus & idle(core) == 0, "{} at {}: {}", policy.name, now, i);
                }
                for (i, cpus) in (tasks..).zip(&others) {
                    prop_assert!(!core.waits(i) || cpus & idle(core) == 0, "{} at {}: {}", policy.name, now, i);
                }
                // Nor does one serve best effort on nobody's time while a server is there to pay for it.
                for i in first..first + draws {
                    let mut path = std::iter::successors(Some(i), |at| up[*at]).map(|at| core.server(at));
                    let open = path.all(|sv| u32::from(sv.state) == ffi::OB_READY);
                    let there = path_cpus(core, &up, i) & core.server(i).node.mask;
                    let free = |cpu: &u32| core.cpu(*cpu).server.is_null() && there >> cpu & 1 == 1;
                    prop_assert!(!open || (0..CPUS).find(free).is_none(), "{} at {}: {}", policy.name, now, i);
                }
            }
        }
    }
}
