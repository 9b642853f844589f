// SPDX-License-Identifier: GPL-2.0-only
//! How late soft reservations can be under EDF-HSB: global EDF on what hard ones leave of each CPU.

use super::tardiness::{Supply, restricted};
use crate::sporadic::{Sporadic, ratio};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

/// Parts into which what is left of a CPU is divided, rounded down, where it is no short fraction.
const PARTS: u64 = 1 << 32;

/// Most by which jobs of each soft server miss their deadlines beside the hard tasks of each CPU; `None` if it has no
/// bound here. `soft` has best effort's servers among it, `hard` has one list for each CPU.
///
/// Source: theorem 2 of Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are
/// analysis-based schedulers really worth it?": with y = 1 − ΣU and w = ΣC over the hard tasks of a CPU it gives at
/// least y·(l − 2w) in any window of length l.
pub fn hsb_tardiness(hard: &[Vec<Sporadic>], soft: &[Sporadic]) -> Option<Vec<u64>> {
    let supply = |tasks: &Vec<Sporadic>| {
        if tasks.is_empty() {
            return Some(Supply::WHOLE);
        }
        let left = tasks.iter().fold(ratio(1, 1), |left, task| left - task.utilization());
        if left.is_negative() {
            return None;
        }
        // Exact where that is short.
        let parts = || (&left * BigInt::from(PARTS)).floor().to_integer().to_u64();
        let (budget, period) = match (left.numer().to_u64(), left.denom().to_u64()) {
            (Some(budget), Some(period)) => (budget, period),
            _ => (parts()?, PARTS),
        };
        let work: u64 = tasks.iter().try_fold(0u64, |sum, task| sum.checked_add(task.wcet))?;
        Some(Supply { budget, period, blackout: work.checked_mul(2)? })
    };
    let supplies: Option<Vec<Supply>> = hard.iter().map(supply).collect();
    restricted(soft, &supplies?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_example_has_the_bound_that_its_theorem_gives() {
        // Four CPUs, five videos of 40 ms: hard ones of 4 ms, soft ones of 20, best effort's four of 10 each. By
        // theorem 2: c = 3.5; B = 60, U = 1.5; 2·Σyw = 2·(0.8·8 + 3·0.9·4) = 34.4; so
        // 20 + (60 + 34.4 + (4 − 3.5 − 1)·20) / (3.5 − 3·0.5 − 1.5) = 188.8 ms.
        let ms = 1_000_000;
        let hard = |count| vec![Sporadic::implicit(4 * ms, 40 * ms); count];
        let cpus = [hard(2), hard(1), hard(1), hard(1)];
        let mut soft = vec![Sporadic::implicit(20 * ms, 40 * ms); 5];
        soft.extend([Sporadic::implicit(10 * ms, 40 * ms); 4]);
        let late = hsb_tardiness(&cpus, &soft).unwrap();
        assert_eq!(late[0], 188_800_000);
        assert_eq!(late[0] - late[8], 10 * ms);
    }

    #[test]
    fn hard_tasks_that_ask_for_more_than_a_cpu_leave_no_bound() {
        let over = vec![Sporadic::implicit(6, 10); 2];
        assert_eq!(hsb_tardiness(&[over, vec![]], &[Sporadic::implicit(1, 10)]), None);
    }
}
