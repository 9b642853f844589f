// SPDX-License-Identifier: GPL-2.0-only
//! What all reservations need of each CPU, for the kernel's server that protects them from real-time threads.

use onbeat_analysis::amount::{self, Amount, WHOLE};

use super::{Book, Held, State};
use crate::engine::Engine;
use crate::machine::cpus_of;
use crate::protection::{Need, deadline_leaves};
use crate::system::System;

const BILLION: Amount = 1_000_000_000;

impl<E: Engine, S: System> Book<E, S> {
    /// What reservations and best effort's share beside them need of each CPU where there are any, by CPU.
    ///
    /// A reservation that may use several CPUs is counted evenly on all of them; as it runs on one at a time, each of
    /// them must be able to serve the greatest alone.
    pub fn needs(&self) -> Vec<Need> {
        let mut all: Vec<(Amount, Amount, u64)> =
            vec![(0, 0, u64::MAX); self.common().cpus as usize];
        let mut count = |cpus: u64, budget: u64, within: u64| {
            let cpus = cpus_of(cpus & self.online);
            let load = amount::floor(budget, within);
            for cpu in &cpus {
                let Some((sum, most, shortest)) = all.get_mut(*cpu as usize) else { continue };
                *sum += load / cpus.len() as Amount + 1;
                *most = (*most).max(load);
                *shortest = (*shortest).min(within);
            }
        };
        let own = |h: &&Held| h.state == State::Live && h.within.is_none();
        for held in self.held.values().filter(own) {
            match &held.place.split {
                None => count(held.place.cpus, held.demand.budget, held.demand.over()),
                Some(split) => {
                    split.shares.iter().for_each(|(cpu, part)| count(1 << cpu, *part, split.window))
                }
            }
        }
        let rest = amount::of(self.common().best_effort_share);
        let needs = all.into_iter().enumerate().filter(|(_, (sum, ..))| *sum > 0);
        let needs = needs.map(|(cpu, (sum, most, within))| {
            let share = (sum.max(most) + rest).min(WHOLE);
            // Ten bits less, so that the product does not overflow.
            let share = ((share >> 20) * BILLION).div_ceil(WHOLE >> 20) as u64;
            Need { cpu: cpu as u32, share, within }
        });
        needs.collect()
    }

    /// What SCHED_DEADLINE leaves of each CPU, in billionths.
    pub fn deadline_leaves(&self) -> u64 {
        deadline_leaves(self.above.deadline, self.online.count_ones())
    }
}
