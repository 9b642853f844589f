// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF by forced-forward demand.

use super::exact::{at_most, densest, int, load_high, loads};
use super::{constrained, small, spend, work};
use crate::sporadic::{Sporadic, Verdict, ratio};

/// Speeds after the first are multiples of 1/GRID.
const GRID: u64 = 1 << 20;

/// There is a speed σ, from the largest density to 1, such that in all windows t the demand of all tasks, of which jobs
/// that end late have run ahead at σ, is at most (m − (m − 1)·σ)·t. Deadlines within periods.
///
/// σ begins at its least and is raised at windows that ask for more: demand minus supply is convex in σ, so its tangent
/// never leaps over a speed that will do. It leaps less than 1/2²⁰ by rounding.
///
/// Source: Baruah, Bonifaci, Marchetti-Spaccamela and Stiller 2010, definition 3 and theorem 3.
pub fn ff_dbf(tasks: &[Sporadic], cpus: usize) -> Verdict {
    let Some((p, q)) = densest(tasks) else { return Verdict::Schedulable };
    if cpus == 0 || !constrained(tasks) || !small(tasks, cpus) {
        return Verdict::Unknown;
    }
    // Then demand is at most U·t at all speeds.
    if tasks.iter().all(|task| task.deadline == task.period) {
        let limit = int(cpus) - int(cpus - 1) * ratio(p, q);
        return Verdict::sufficient(at_most(loads(tasks), &limit) == Some(true));
    }
    Verdict::sufficient(speed(tasks, cpus, (p, q)).is_some())
}

/// A speed that will do, at least `sigma`.
fn speed(tasks: &[Sporadic], cpus: usize, mut sigma: (u64, u64)) -> Option<(u64, u64)> {
    let mut left = work(tasks);
    loop {
        let mut end = longest(tasks, cpus, sigma)?;
        let mut raised = false;
        let mut t = tasks.iter().map(|task| task.deadline).min()?;
        while t <= end {
            spend(&mut left, tasks.len())?;
            let window = Window::of(tasks, cpus, t, sigma);
            if window.over > 0 {
                sigma = window.faster(sigma)?;
                end = longest(tasks, cpus, sigma)?;
                raised = true;
            } else {
                t += window.step;
            }
        }
        // Speeds that came later may be too high for windows looked at before.
        if !raised {
            return Some(sigma);
        }
    }
}

/// The longest window that can ask for too much at speed p / q; `None` if there is no end to them, or the speed is
/// above 1.
///
/// Demand is at most U·t + Σ(T − D)·u, supply is (m − (m − 1)·σ)·t; all roundings are upward.
fn longest(tasks: &[Sporadic], cpus: usize, (p, q): (u64, u64)) -> Option<u64> {
    let taken = ((cpus as u128 - 1) * (u128::from(p) << 64)).div_ceil(u128::from(q));
    let free = ((cpus as u128) << 64).checked_sub(taken)?.checked_sub(load_high(tasks))?;
    if free == 0 || p > q {
        return None;
    }
    let early = |t: &Sporadic| {
        (u128::from(t.period - t.deadline) * u128::from(t.wcet)).div_ceil(u128::from(t.period))
    };
    let early: u128 = tasks.iter().map(early).sum();
    // Up to 2⁵⁸; beyond 2⁵⁰ products with numerators of σ might not fit.
    u64::try_from((early << 64) / free).ok().filter(|end| *end <= 1 << 50)
}

/// Demand in a window.
struct Window {
    /// Demand minus supply, times q.
    over: i128,
    /// By how much both fall for each unit of σ.
    fall: i128,
    /// To the next window with a job's deadline at its end: in between, demand grows no faster than at its end.
    step: u64,
}

impl Window {
    fn of(tasks: &[Sporadic], cpus: usize, t: u64, (p, q): (u64, u64)) -> Self {
        let (p, q) = (i128::from(p), i128::from(q));
        let m = cpus as i128;
        let mut this = Self {
            over: -(m * q - (m - 1) * p) * i128::from(t),
            fall: -(m - 1) * i128::from(t),
            step: u64::MAX,
        };
        for task in tasks {
            let (whole, rest) = (t / task.period, t % task.period);
            let c = q * i128::from(task.wcet);
            this.over += i128::from(whole) * c;
            let to_due = task.deadline as i64 - rest as i64;
            if to_due <= 0 {
                this.over += c;
                this.step = this.step.min(task.period - rest + task.deadline);
            } else {
                let ahead = c - i128::from(to_due) * p;
                if ahead > 0 {
                    this.over += ahead;
                    this.fall += i128::from(to_due);
                }
                this.step = this.step.min(to_due as u64);
            }
        }
        this
    }

    /// The next speed on the grid, above `sigma`, that can do for this window; `None` if no speed above `sigma` can.
    fn faster(&self, (p, q): (u64, u64)) -> Option<(u64, u64)> {
        if self.fall <= 0 {
            return None;
        }
        let by = self.over as f64 / q as f64 / self.fall as f64;
        let to = ((p as f64 / q as f64 + by) * GRID as f64).ceil() as u64;
        let above = u128::from(p) * u128::from(GRID) / u128::from(q) + 1;
        Some((to.max(u64::try_from(above).ok()?), GRID))
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::early;
    use super::*;
    use num_bigint::BigInt;
    use num_rational::BigRational;
    use num_traits::Zero;
    use proptest::prelude::*;

    /// The definition at one speed and window.
    fn demand(tasks: &[Sporadic], t: u64, sigma: &BigRational) -> BigRational {
        tasks.iter().fold(BigRational::zero(), |sum, task| {
            let rest = t % task.period;
            let last = if rest >= task.deadline {
                ratio(task.wcet, 1)
            } else {
                let ahead = ratio(task.wcet, 1) - sigma * BigInt::from(task.deadline - rest);
                ahead.max(BigRational::zero())
            };
            sum + ratio(t / task.period * task.wcet, 1) + last
        })
    }

    fn holds(tasks: &[Sporadic], cpus: usize, sigma: &BigRational, end: u64) -> bool {
        let rate = int(cpus) - int(cpus - 1) * sigma;
        (1..end).all(|t| demand(tasks, t, sigma) <= &rate * BigInt::from(t))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_speed_that_will_do_is_found_and_does(tasks in early(), cpus in 1usize..=4) {
            let (p, q) = densest(&tasks).unwrap();
            if let Some((p, q)) = speed(&tasks, cpus, (p, q)) {
                prop_assert!(holds(&tasks, cpus, &ratio(p, q), 150));
            } else {
                // None on a coarse grid will do, save at its brink where windows never end.
                let brink = int(cpus) - crate::sporadic::utilization(&tasks);
                for step in 0..=40 {
                    let sigma = ratio(p, q).max(ratio(step, 40));
                    if int(cpus - 1) * &sigma < brink && sigma <= ratio(1, 1) {
                        prop_assert!(!holds(&tasks, cpus, &sigma, 1000), "{sigma}");
                    }
                }
            }
        }
    }
}
