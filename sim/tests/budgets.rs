// SPDX-License-Identifier: GPL-2.0-only
//! What a server receives, by every server's own rules.

use crate::common::replay::audit;
use crate::common::{self, ANYTHING, Case, Kind, Played, play, policies, systems};
use onbeat_model::event::EventKind;
use onbeat_model::policy::{CorePolicy, Order, Server};
use proptest::prelude::*;

/// Where jobs overrun most of the time.
const OVERRUNNING: Kind = Kind { overrun: 300, permille: 50, best_effort: (0, 4), ..ANYTHING };

/// When task `i` ran: beginnings and ends.
fn service(played: &Played, i: usize) -> Vec<(u64, u64)> {
    let (mut since, mut spans) = (None, Vec::new());
    for event in played.events.iter().filter(|e| e.task as usize == i) {
        match event.kind() {
            Some(EventKind::Run) => since = Some(event.time),
            Some(EventKind::Stop) => spans.extend(since.take().map(|since| (since, event.time))),
            _ => (),
        }
    }
    spans.extend(since.map(|since| (since, played.horizon)));
    spans
}

/// Service within a window.
fn within(spans: &[(u64, u64)], from: u64, to: u64) -> u64 {
    spans.iter().map(|(a, b)| (*b).min(to).saturating_sub((*a).max(from))).sum()
}

proptest! {
    #[test]
    fn a_hard_reservation_never_gets_more_than_its_budget_in_a_period(case in systems(OVERRUNNING)) {
        for policy in policies(|p| p.server == Server::CbsHard) {
            let played = play(&case, policy);
            audit(&case, policy, &played, |view| {
                for (i, task) in case.tasks.iter().enumerate() {
                    let (Some(budget), state) = (task.budget, &view.tasks[i]) else { continue };
                    if state.since_replenished > budget {
                        return Err(format!("{}: {i} got {}", policy.name, state.since_replenished));
                    }
                    // It never runs ahead of its period.
                    if state.on.is_some() && state.s > view.now + task.period {
                        return Err(format!("{}: {i} at {} until {}", policy.name, view.now, state.s));
                    }
                }
                Ok(())
            })
            .map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn no_window_of_k_periods_holds_more_than_the_budgets_it_touches(
        case in systems(Kind { permille: 0, marks: false, ..OVERRUNNING })
    ) {
        // On CPUs that are not overloaded: k periods and the two that stick out, less what the
        // bandwidth forbids where a release begins a new period early.
        let hard = |p: &CorePolicy| p.order == Order::PARTITIONED_EDF && p.server == Server::CbsHard;
        for policy in policies(hard) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate() {
                let Some(budget) = task.budget else { continue };
                let spans = service(&played, i);
                for (from, _) in &spans {
                    for k in 1..4 {
                        let got = within(&spans, *from, from + k * task.period);
                        let bound = (k + 2) * budget - budget * budget / task.period;
                        prop_assert!(got <= bound, "{}: {} got {} in {} periods", policy.name, i, got, k);
                    }
                }
            }
        }
    }

    #[test]
    fn a_cbs_never_gets_more_than_its_bandwidth_up_to_its_deadline(case in systems(OVERRUNNING)) {
        // Abeni and Buttazzo 1998, lemma 1: what it is served until s is at most Q/P of the time
        // from its first release to s.
        for policy in policies(|p| matches!(p.server, Server::Cbs | Server::CbsHard)) {
            let played = play(&case, policy);
            audit(&case, policy, &played, |view| {
                for (i, task) in case.tasks.iter().enumerate() {
                    let (Some(budget), state) = (task.budget, &view.tasks[i]) else { continue };
                    let span = state.s.saturating_sub(task.first);
                    let bound = u128::from(budget) * u128::from(span);
                    if u128::from(state.served) * u128::from(task.period) > bound {
                        return Err(format!("{}: {i} got {} until {}", policy.name, state.served, state.s));
                    }
                }
                Ok(())
            })
            .map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn fcbs_serves_all_together_no_more_than_their_bandwidths(case in systems(OVERRUNNING)) {
        // A donation moves budget and makes none: the sum keeps the bound of the CBS.
        for policy in policies(|p| matches!(p.server, Server::Fcbs | Server::FcbsLag)) {
            let played = play(&case, policy);
            audit(&case, policy, &played, |view| {
                let (mut served, mut bound, mut issued) = (0, 0.0, 0);
                for (task, state) in case.tasks.iter().zip(&view.tasks) {
                    let Some(_) = task.budget else { continue };
                    let own = state.saved.map_or(state.s, |(_, s)| s);
                    served += state.served;
                    issued += state.issued;
                    bound += own.saturating_sub(task.first) as f64 * task.utilization();
                }
                let name = policy.name;
                if served > issued || served as f64 > bound + 1.0 {
                    return Err(format!("{name} at {}: {served} of {issued}, {bound}", view.now));
                }
                Ok(())
            })
            .map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn every_reservation_gets_its_budget_before_each_deadline_if_alone(
        mut case in systems(Kind { cpus: (1, 1), best_effort: (0, 3), unreserved: false, ..ANYTHING })
    ) {
        case.tasks.truncate(1);
        for policy in policies(|p| p.server != Server::None) {
            let played = play(&case, policy);
            for (i, task) in case.tasks.iter().enumerate() {
                if task.keeps_its_budget() {
                    prop_assert_eq!(played.tardiness(i, task), 0, "{}", policy.name);
                }
            }
        }
    }
}

/// A system from figures in milliseconds: budget, period, offset, works.
fn by_hand(tasks: &[(u64, u64, u64, &[u64])]) -> Case {
    const MS: u64 = 1_000_000;
    let task = |&(budget, period, offset, works): &(u64, u64, u64, &[u64])| common::Task {
        first: offset * MS,
        period: period * MS,
        deadline: period * MS,
        budget: Some(budget * MS),
        cpus: 1,
        home: 0,
        marks: false,
        times: works.iter().map(|w| w * MS).collect(),
    };
    let tasks = tasks.iter().map(task).collect();
    Case { cpus: 1, permille: 0, best_effort: 0, tasks, most: 10_000 * MS }
}

#[test]
fn a_soft_reservation_uses_idle_time_where_a_hard_one_waits() {
    let case = by_hand(&[(2, 10, 0, &[6])]);
    let ends = |name| play(&case, common::policy(name)).finishes(0);
    assert_eq!(ends("g-edf+cbs"), [6_000_000]);
    assert_eq!(ends("g-edf+cbs-hard"), [22_000_000]);
}
