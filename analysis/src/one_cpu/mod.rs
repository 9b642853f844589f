// SPDX-License-Identifier: GPL-2.0-only
//! Preemptive scheduling of sporadic tasks on one CPU: exact tests, response times, and bounds that are quick.

pub mod bounds;
pub mod delayed;
pub mod edf;
pub mod fixed;

#[cfg(test)]
mod oracle;

use crate::sporadic::Sporadic;

/// Steps after which an iteration gives up. Sets that need more have periods with a common multiple of years.
const STEPS: u32 = 1_000_000;

/// Length of the busy period after a synchronous release of `tasks`; `None` if it has no end within reach.
///
/// Source: Liu and Layland 1973; the recurrence as in Spuri 1996, section 3.
fn busy_period(tasks: &[Sporadic], steps: u32) -> Option<u64> {
    fixed_point(steps, tasks.iter().try_fold(0u64, |sum, t| sum.checked_add(t.wcet))?, |w| {
        tasks
            .iter()
            .try_fold(0u64, |sum, t| sum.checked_add(w.div_ceil(t.period).checked_mul(t.wcet)?))
    })
}

/// The least fixed point of the growing `next` from `start` on; `None` if it is not reached in so many steps.
fn fixed_point(steps: u32, start: u64, mut next: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let mut w = start;
    for _ in 0..steps {
        let more = next(w)?;
        if more <= w {
            return Some(w);
        }
        w = more;
    }
    None
}
