// SPDX-License-Identifier: GPL-2.0-only
//! The core against a step-by-step scheduler that is too simple to be wrong.

use crate::common::oracle::finishes;
use crate::common::{self, ANYTHING, Case, Kind, play, policies, systems};
use onbeat_model::policy::{CorePolicy, Key, Server};
use proptest::prelude::*;

/// Makes ties impossible, which no scheduler needs to break as another one does: no two deadlines
/// agree modulo a step, no two periods are the same.
fn distinct(mut case: Case) -> Case {
    for i in 0..case.tasks.len() {
        case.tasks[i].deadline -= 1 + i as u64;
        let taken = |case: &Case, p| case.tasks[..i].iter().any(|t| t.period == p);
        while taken(&case, case.tasks[i].period) {
            case.tasks[i].period += common::STEP;
            case.tasks[i].deadline += common::STEP;
        }
    }
    case
}

fn agrees(case: &Case, pass: impl Fn(&CorePolicy) -> bool) -> Result<(), TestCaseError> {
    for policy in policies(pass) {
        let played = play(case, policy);
        for (i, oracle) in finishes(case, policy).into_iter().enumerate() {
            let core: Vec<u64> = played.finishes(i);
            // What ends in the last step may be in one of them only.
            let n = core.len().min(oracle.len());
            prop_assert!(core.len().abs_diff(oracle.len()) <= 1, "{}: task {i}", policy.name);
            prop_assert_eq!(&core[..n], &oracle[..n], "{}: task {}", policy.name, i);
        }
    }
    Ok(())
}

/// Only reservations, all of whose tasks may use every CPU of their domain.
const PLAIN: Kind =
    Kind { best_effort: (0, 0), affinity: false, unreserved: false, marks: false, ..ANYTHING };

fn naive(policy: &CorePolicy) -> bool {
    // Who has rested goes behind others that were released in the same moment.
    let ties = policy.order.key == Key::Fifo && policy.server.rests();
    !policy.order.key.heeds_laxity()
        && !policy.order.key.chooses()
        && !ties
        && matches!(policy.server, Server::None | Server::Cbs | Server::CbsHard)
}

proptest! {
    #[test]
    fn jobs_within_their_budgets_end_when_the_naive_scheduler_says(
        case in systems(Kind { overrun: 100, ..PLAIN }).prop_map(distinct)
    ) {
        agrees(&case, naive)?;
    }

    #[test]
    fn overrunning_jobs_end_when_the_naive_scheduler_says(case in systems(PLAIN).prop_map(distinct)) {
        agrees(&case, naive)?;
    }

    #[test]
    fn jobs_of_overloaded_cpus_end_when_the_naive_scheduler_says(
        case in systems(Kind { load: 150, ..PLAIN }).prop_map(distinct)
    ) {
        agrees(&case, naive)?;
    }
}
