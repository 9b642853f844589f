// SPDX-License-Identifier: GPL-2.0-only
//! Policies that change while they are in force: nobody is lost, no budget is made, and what both policies promise is
//! kept.

use crate::common::{self, ANYTHING, Case, Kind, domains, systems};
use onbeat_analysis::plan::Split;
use onbeat_core::ffi;
use onbeat_model::policy::{CORE, CorePolicy, Server, Sets};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, Reservation, SHARE_QUANTUM};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The domains of a policy on so many CPUs.
fn layout(policy: &CorePolicy, cpus: u32) -> Vec<u64> {
    let count = domains(policy.order, cpus);
    let mut masks = vec![0; count as usize];
    (0..cpus).for_each(|cpu| masks[(cpu * count / cpus) as usize] |= 1 << cpu);
    masks
}

/// How `policy` serves task `i`: at home, and some that may are split if the policy does that.
fn terms(case: &Case, i: usize, policy: &CorePolicy) -> Reservation {
    let task = &case.tasks[i];
    let masks = layout(policy, case.cpus);
    let domain = *masks.iter().find(|mask| **mask >> task.home & 1 == 1).expect("a home");
    let away = (task.cpus & !(1 << task.home) & (u64::MAX >> (64 - case.cpus))).trailing_zeros();
    let (first, budget) = (task.budget.unwrap() / 2, task.budget.unwrap());
    let split = (policy.order.splits() && i.is_multiple_of(2) && away < case.cpus).then(|| Split {
        window: task.deadline / 2,
        postponed: policy.order.name() == "edf-wmr",
        shares: vec![(task.home, first), (away, budget - first)],
    });
    Reservation {
        budget,
        period: task.period,
        deadline: task.deadline,
        cpus: if split.is_some() { 1 << task.home } else { task.cpus & domain },
        domain: domain.trailing_zeros(),
        kind: kind(policy.server),
        order: policy.order.number(),
        marks: task.marks,
        apart: false,
        split,
    }
}

fn kind(server: Server) -> u32 {
    onbeat_core::server_policies().iter().position(|n| *n == server.name()).unwrap() as u32
}

/// The group of task `i`, if it is in one of its own.
fn group(case: &Case, i: usize, grouped: bool) -> Option<usize> {
    (grouped && i % 3 != 2).then_some(case.tasks.len() + case.best_effort + i)
}

/// The case's tasks under `policy`. `grouped`: two of three are each the only member of a group.
fn begin(case: &Case, policy: &CorePolicy, grouped: bool) -> Engine {
    let room = case.tasks.len() + case.best_effort;
    let mut core = Core::new(case.cpus, 1, case.permille, SHARE_QUANTUM, room, 1 << 14);
    core.groups(case.tasks.len());
    layout(policy, case.cpus).into_iter().for_each(|mask| core.regroup(mask, 0));
    let all = u64::MAX >> (64 - case.cpus);
    let mut loads = Vec::new();
    for (i, task) in case.tasks.iter().enumerate() {
        core.init_task(i, task.cpus & all, onbeat_sim::NICE_0);
        if task.budget.is_some() {
            let r = terms(case, i, policy);
            if let Some(group) = group(case, i, grouped) {
                core.group(group, &Reservation { kind: kind(Server::Cbs), ..r.clone() }, None);
                core.reserve_in(i, &r, group);
            } else {
                core.reserve(i, &r);
            }
        }
        loads.push(Load::Jobs {
            first: task.first,
            period: task.period,
            delays: Vec::new(),
            deadline: task.deadline,
            times: task.times.clone(),
            marks: task.marks && task.budget.is_some(),
        });
    }
    for i in 0..case.best_effort {
        core.init_task(case.tasks.len() + i, all, onbeat_sim::NICE_0);
        loads.push(Load::Endless);
    }
    Engine::new(core, case.cpus, loads, Overheads::default(), Detail::All)
}

fn isolates(policy: &CorePolicy) -> bool {
    policy.server.isolates() && policy.order.isolates()
}

/// What a server has, with what has run since it was charged taken off; and until when. Its own pair, if it borrows.
fn pair(sv: &ffi::ob_server, now: u64) -> (i64, u64) {
    let ran = if sv.running > 0 && sv.spent == 0 { now.saturating_sub(sv.charged) } else { 0 };
    let own = if sv.has_saved != 0 { sv.saved_e } else { 0 };
    let s = if sv.has_saved != 0 { sv.saved_s } else { sv.s };
    let left = sv.e - (ran * u64::from(sv.running)) as i64;
    // Of a capacity nothing stays.
    let capacity = sv.has_saved != 0 && sv.due.at[ffi::OB_DUE_SPENT as usize] != 0;
    (if capacity { left.min(0) } else { left } + own, s)
}

/// Whether the budget that a server has after a swap is what it had, or was made as its rule makes budgets.
fn budget(
    was: &CorePolicy,
    is: &CorePolicy,
    before: &ffi::ob_server,
    after: &ffi::ob_server,
    now: u64,
) {
    let splits = before.windows.legs > 0 || after.windows.legs > 0;
    if after.state == ffi::OB_IDLE as u8 || splits || is.server == Server::None {
        return;
    }
    let ((e, s), (left, due)) = (pair(before, now), (after.e, after.s));
    let (q, p, d) = (after.budget as i64, after.period, after.deadline);
    let what = format!("{} to {}: {e} by {s} became {left} by {due} at {now}", was.name, is.name);
    assert!(left > 0 || after.spent == 1 || after.state == ffi::OB_RESTS as u8, "{what}");
    let fresh = (left, due) == (q, now + d);
    let renewed = due >= s && (due - s) % p == 0 && left == e + ((due - s) / p) as i64 * q;
    let behind = s <= now || e as i128 * i128::from(d) >= i128::from(s - now) * i128::from(q);
    // Beside split ones jobs are taken up as sporadic ones (place/whole.h).
    let beside = (was.order.splits() || is.order.splits())
        && ((left, due) == (e, now + d) || (left, due) == (q + e.min(0), s + p));
    let kept = isolates(was) && isolates(is) && layout(was, 64) == layout(is, 64);
    assert!(renewed || beside || (fresh && (was.server == Server::None || behind)), "{what}");
    // Kept, or the next one if that is used up.
    assert!(!kept || (left, due) == (e, s) || (e <= 0 && renewed), "{what}");
}

/// Every server stands where its state says.
fn sound(case: &Case, core: &Core, grouped: bool) {
    for (i, task) in case.tasks.iter().enumerate().filter(|(_, t)| t.budget.is_some()) {
        let sv = core.server(group(case, i, grouped).unwrap_or(i));
        let state = u32::from(sv.state);
        assert_eq!(sv.node.linked == 1, state == ffi::OB_READY, "task {i} in state {state}");
        let refill = sv.due.at[ffi::OB_DUE_REFILL as usize];
        assert_eq!(refill != 0, state == ffi::OB_RESTS, "task {i} in state {state}");
        // SAFETY: of the core's own.
        let there = unsafe { (*sv.domain).cpus };
        assert!(sv.cpus != 0 && sv.cpus & !there == 0, "{i} on {:b} of {there:b}", sv.cpus);
        for cpu in (0..case.cpus).filter(|cpu| there >> cpu & 1 == 1) {
            assert_eq!(core.cpu(cpu).domain, sv.domain, "task {i}, CPU {cpu}");
        }
        assert!(sv.running <= 1 && task.budget.is_some());
    }
}

/// Swaps all reservations from one policy to another at the present time.
fn swap(case: &Case, engine: &mut Engine, was: &CorePolicy, is: &CorePolicy, grouped: bool) {
    engine.change(|core, now| {
        let masks = layout(is, case.cpus);
        let anew = !(isolates(was) && isolates(is) && layout(was, case.cpus) == masks);
        masks.iter().for_each(|mask| core.regroup(*mask, now));
        let mut all: Vec<usize> = (0..case.tasks.len()).collect();
        all.retain(|i| case.tasks[*i].budget.is_some());
        all.sort_by_key(|i| case.tasks[*i].period);
        for i in all {
            if let Some(group) = group(case, i, grouped) {
                let r = Reservation { kind: kind(Server::Cbs), ..terms(case, i, is) };
                core.swap(group, &r, anew, now);
                continue;
            }
            let before = *core.server(i);
            core.swap(i, &terms(case, i, is), anew, now);
            budget(was, is, &before, core.server(i), now);
        }
        masks.iter().for_each(|mask| core.regroup(*mask, now));
    });
    sound(case, engine.core(), grouped);
}

/// Plays a case that begins under the first policy; at each of the times given it goes on under the next.
fn play(case: &Case, policies: &[&'static CorePolicy], times: &[u64], grouped: bool) -> Engine {
    let mut engine = begin(case, policies[0], grouped);
    let mut was = policies[0];
    for (i, time) in times.iter().enumerate() {
        engine.run(*time, *time);
        let is = policies[(i + 1) % policies.len()];
        swap(case, &mut engine, was, is, grouped);
        was = is;
    }
    // To the end under one that serves whatever there is.
    engine.change(|_, _| ());
    swap(case, &mut engine, was, common::policy("g-edf+cbs"), grouped);
    engine.run(0, 8 * case.most);
    engine
}

/// Policies by chance.
fn some(
    count: usize,
    pass: fn(&CorePolicy) -> bool,
) -> impl Strategy<Value = Vec<&'static CorePolicy>> {
    vec(any::<Index>(), count).prop_map(move |which| {
        let all: Vec<&CorePolicy> = CORE.iter().filter(|p| pass(p)).collect();
        which.iter().map(|index| all[index.index(all.len())]).collect()
    })
}

/// Times between 0 and 250 ms, one after the other.
fn times(most: usize) -> impl Strategy<Value = Vec<u64>> {
    vec(1..250_000_000u64, 1..most).prop_map(|mut times| {
        times.sort_unstable();
        times
    })
}

const MIXED: Kind = Kind { unreserved: false, ..ANYTHING };
const ONE_EACH: Kind = Kind { marks: false, affinity: false, ..MIXED };

proptest! {
    #[test]
    fn nobody_is_lost_and_no_budget_is_made(
        case in systems(MIXED), policies in some(8, |_| true), times in times(40),
    ) {
        let engine = play(&case, &policies, &times, false);
        let jobs: usize = case.tasks.iter().map(|t| t.times.len()).sum();
        prop_assert_eq!(engine.completed, jobs as u64);
    }

    #[test]
    fn no_member_of_a_group_is_lost(
        case in systems(MIXED), policies in some(8, |p| !p.order.splits()), times in times(40),
    ) {
        let engine = play(&case, &policies, &times, true);
        let jobs: usize = case.tasks.iter().map(|t| t.times.len()).sum();
        prop_assert_eq!(engine.completed, jobs as u64);
    }

    #[test]
    fn what_keeps_its_budget_is_in_time_while_policies_change_that_isolate_on_the_same_cpus(
        case in systems(ONE_EACH),
        policies in some(8, |p| isolates(p) && p.order.sets == Sets::Partitioned && !p.order.splits()),
        times in times(40),
    ) {
        let mut engine = begin(&case, policies[0], false);
        let mut was = policies[0];
        for (i, time) in times.iter().enumerate() {
            engine.run(*time, *time);
            let is = policies[(i + 1) % policies.len()];
            swap(&case, &mut engine, was, is, false);
            was = is;
        }
        engine.run(0, case.most);
        let horizon = case.most;
        let played = common::Played { events: engine.finish(), horizon };
        for (i, task) in case.tasks.iter().enumerate().filter(|(_, t)| t.keeps_its_budget()) {
            prop_assert_eq!(played.tardiness(i, task), 0, "task {}", i);
            prop_assert_eq!(played.finishes(i).len(), task.times.len(), "task {}", i);
        }
    }
}
