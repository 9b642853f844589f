// SPDX-License-Identifier: GPL-2.0-only
//! Response times under schedulers like global EDF (GEL): a job's priority is its release plus a constant of its task.
//! G-EDF takes the relative deadline, G-FL ("fair lateness") the deadline less (m − 1)/m of the execution time.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact::{at_most, int, load_ceiling, loads};
use super::small;
use crate::sporadic::{Sporadic, ratio};

/// Up to this many tasks all is exact; beyond, parts are rounded to multiples of 2⁻³², to the safe side.
const EXACT: usize = 64;
/// Steps to the root; a dozen is usual.
const STEPS: usize = 1000;

/// Longest response times under G-EDF, any deadlines; `None` if the CPUs or one CPU is over-utilized.
pub fn g_edf(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    responses(tasks, cpus, |task, m| m * i128::from(task.deadline))
}

/// Longest response times under G-FL, any deadlines; `None` if the CPUs or one CPU is over-utilized.
pub fn g_fl(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    responses(tasks, cpus, |task, m| {
        m * i128::from(task.deadline) - (m - 1) * i128::from(task.wcet)
    })
}

/// `max(0, response − D)` of each.
pub fn late(tasks: &[Sporadic], responses: &[u64]) -> Vec<u64> {
    tasks.iter().zip(responses).map(|(task, r)| r.saturating_sub(task.deadline)).collect()
}

/// What a task brings into the sums.
struct Part {
    u: BigRational,
    /// C − S, and C / m.
    lead: BigRational,
    head: BigRational,
}

/// Response times Y + x + C for priority points Y, given in mths of the unit; only their differences matter, so the
/// least is made 0. x = s − C/m, not below 0, with the least s for which m·s covers S, the sum of all C·(1 − Y/T) above
/// 0, and the ⌈U⌉ − 1 largest x·u + C − S.
///
/// Source: Erickson, Devi and Baruah 2010, theorem 1 (compliant vectors); s as in Erickson, Guan and Baruah 2010;
/// priority points and G-FL: Erickson and Anderson 2012.
fn responses(
    tasks: &[Sporadic],
    cpus: usize,
    point: impl Fn(&Sporadic, i128) -> i128,
) -> Option<Vec<u64>> {
    if tasks.is_empty() {
        return Some(Vec::new());
    }
    let over = tasks.iter().any(|task| task.wcet > task.period);
    if over || !small(tasks, cpus) || at_most(loads(tasks), &int(cpus)) != Some(true) {
        return None;
    }
    let m = cpus as i128;
    let mut points: Vec<i128> = tasks.iter().map(|task| point(task, m)).collect();
    let first = points.iter().copied().min()?;
    points.iter_mut().for_each(|y| *y -= first);

    let mut sum = BigRational::zero();
    let mut parts = Vec::with_capacity(tasks.len());
    for (task, y) in tasks.iter().zip(&points) {
        let (c, t) = (BigInt::from(task.wcet), m * i128::from(task.period));
        let s = BigRational::new(&c * BigInt::from((t - y).max(0)), BigInt::from(t));
        let (low, high) = (rounded(&s, tasks.len(), false), rounded(&s, tasks.len(), true));
        sum += high;
        parts.push(Part {
            u: rounded(&task.utilization(), tasks.len(), true),
            lead: BigRational::from_integer(c) - low,
            head: ratio(task.wcet, cpus as u64),
        });
    }
    let ahead = usize::try_from(load_ceiling(tasks)).ok()?.saturating_sub(1);
    let s = root(&parts, &sum, cpus, ahead)?;
    let time = |(i, task): (usize, &Sporadic)| {
        let x = (&s - &parts[i].head).max(BigRational::zero());
        let y = BigRational::new(BigInt::from(points[i]), BigInt::from(m));
        (y + x + ratio(task.wcet, 1)).ceil().to_integer().to_u64()
    };
    tasks.iter().enumerate().map(time).collect()
}

fn rounded(value: &BigRational, n: usize, up: bool) -> BigRational {
    if n <= EXACT {
        return value.clone();
    }
    let one = BigInt::one() << 32u32;
    let scaled: BigRational = value * &one;
    let whole = if up { scaled.ceil() } else { scaled.floor() };
    BigRational::new(whole.to_integer(), one)
}

/// The root of a convex function that falls, by tangents from the left: exact after as many steps as it has corners.
fn root(parts: &[Part], sum: &BigRational, cpus: usize, ahead: usize) -> Option<BigRational> {
    let mut s = BigRational::zero();
    for _ in 0..STEPS {
        let mut top: Vec<(BigRational, usize)> = parts
            .iter()
            .enumerate()
            .map(|(i, p)| ((&s - &p.head).max(BigRational::zero()) * &p.u + &p.lead, i))
            .collect();
        if ahead > 0 && ahead < top.len() {
            top.select_nth_unstable_by(ahead - 1, |a, b| b.0.cmp(&a.0));
        }
        let (mut over, mut slope) = (sum - &s * BigInt::from(cpus), -int(cpus));
        for (value, i) in top.into_iter().take(ahead) {
            over += value;
            if s >= parts[i].head {
                slope += &parts[i].u;
            }
        }
        if !over.is_positive() {
            return Some(s);
        }
        if !slope.is_negative() {
            return None;
        }
        s -= over / slope;
    }
    None
}
