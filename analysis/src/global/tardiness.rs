// SPDX-License-Identifier: GPL-2.0-only
//! How late jobs can be under global EDF and EDZL when only utilization is limited, on CPUs that are there always or in
//! part.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact::{at_most, int, load_ceiling, loads, order};
use crate::sporadic::{Sporadic, ratio};

/// Deadlines are the ends of periods, and no task asks for more than a CPU.
fn simple(tasks: &[Sporadic]) -> bool {
    tasks.iter().all(|task| task.deadline == task.period && task.wcet <= task.period)
}

/// Sum of the `n` longest execution times.
fn longest(tasks: &[Sporadic], n: usize) -> BigRational {
    let mut times: Vec<u64> = tasks.iter().map(|task| task.wcet).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    BigRational::from_integer(times.into_iter().take(n).map(BigInt::from).sum())
}

/// Sum of the `n` largest utilizations; of more than 64 each is rounded up to a multiple of 2⁻³², lest denominators
/// grow.
fn heaviest(tasks: &[Sporadic], n: usize) -> BigRational {
    let mut all: Vec<(u64, u64)> = loads(tasks).collect();
    all.sort_unstable_by(|a, b| order(*b, *a));
    if n <= 64 {
        return all.iter().take(n).fold(BigRational::zero(), |sum, (c, t)| sum + ratio(*c, *t));
    }
    let up = |(c, t): &(u64, u64)| (u128::from(*c) << 32).div_ceil(u128::from(*t));
    let sum: u128 = all.iter().take(n).map(up).sum();
    BigRational::new(BigInt::from(sum), BigInt::one() << 32u32)
}

/// x + C of each, rounded up.
fn bounds(tasks: &[Sporadic], x: &BigRational) -> Option<Vec<u64>> {
    let late = |task: &Sporadic| (x + ratio(task.wcet, 1)).ceil().to_integer().to_u64();
    tasks.iter().map(late).collect()
}

/// Most by which jobs of each task miss their deadlines; `None` if the CPUs or one CPU is over-utilized, or a deadline
/// is not the end of its period.
///
/// Source: Devi and Anderson 2005, theorem 1: x = (ΣC − min C) / (m − Σu) over the Λ longest and the Λ − 1 heaviest
/// tasks, Λ = ⌈U⌉ − 1; tardiness is at most x + C. Exact rationals, rounded up.
pub fn devi_anderson(tasks: &[Sporadic], cpus: usize) -> Option<Vec<u64>> {
    if !simple(tasks) || at_most(loads(tasks), &int(cpus)) != Some(true) {
        return None;
    }
    // Tasks that can be ahead of a job that waits.
    let ahead = usize::try_from(load_ceiling(tasks)).ok()?.saturating_sub(1);
    let Some(least) = tasks.iter().map(|task| task.wcet).min().filter(|_| ahead > 0) else {
        return Some(vec![0; tasks.len()]);
    };
    let rest = int(cpus) - heaviest(tasks, ahead - 1);
    if !rest.is_positive() {
        return None;
    }
    bounds(tasks, &((longest(tasks, ahead) - ratio(least, 1)) / rest))
}

/// What is there of a CPU: in any window of length l at least budget/period·(l − blackout).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Time given in each period in the long run, at most the period.
    pub budget: u64,
    /// In the unit of the tasks' times, at least 1.
    pub period: u64,
    /// How long nothing may come at first. A periodic server's is 2·(period − budget) (Shin and Lee 2003).
    pub blackout: u64,
}

impl Supply {
    /// The most that is not there in a window of length `l`.
    pub(super) fn missing(self, l: u64) -> u128 {
        let there = u128::from(l.saturating_sub(self.blackout)) * u128::from(self.budget);
        u128::from(l) - there / u128::from(self.period)
    }

    /// All of a CPU.
    pub const WHOLE: Self = Self { budget: 1, period: 1, blackout: 0 };
}

/// Sums of what the CPUs give in the long run, and of what they may fail to give of that in one window; `None` if one
/// is no supply.
fn given(supplies: &[Supply]) -> Option<(BigRational, BigRational)> {
    let (mut rate, mut missing) = (BigRational::zero(), BigRational::zero());
    for supply in supplies {
        if supply.period == 0 || supply.budget > supply.period {
            return None;
        }
        let alpha = ratio(supply.budget, supply.period);
        missing += &alpha * BigInt::from(supply.blackout);
        rate += alpha;
    }
    Some((rate, missing))
}

/// Most by which jobs of each task miss their deadlines on CPUs that are there in part; `None` if it has no bound here,
/// as when one heavy task may find too few CPUs at a time.
///
/// With U ≤ A, A = Σα and B = Σα·σ over the CPUs, E and L the sums of the m − 1 longest execution times and largest
/// utilizations, H of m CPUs restricted, a job of task k is at most x + C late if x·(A − L − (H − 1)·u) ≥ E + B + (H −
/// 2)·C, or with H = m if x·(A − L − (m − 1)·u) ≥ E + B + (m − 1 − A)·C. Why: when a CPU last had nothing of higher
/// priority, m − 1 tasks lagged by at most x·u + C each; since then all supply but B was used until the deadline d.
/// Later a CPU is left without such work only while task k runs, which is for x·u + C at most, and beside at most H − 1
/// (m − 1) such CPUs; or so few tasks are left that each has one of the others for good.
///
/// Source: in the manner of Leontyev and Anderson 2007. B counts once, as supply is taken over one window from that
/// instant on.
pub fn restricted(tasks: &[Sporadic], supplies: &[Supply]) -> Option<Vec<u64>> {
    let m = supplies.len();
    let whole = |s: &Supply| s.budget == s.period && s.blackout == 0;
    let cut = supplies.iter().filter(|s| !whole(s)).count();
    if cut == 0 {
        return devi_anderson(tasks, m);
    }
    if !simple(tasks) {
        return None;
    }
    let (rate, missing) = given(supplies)?;
    if at_most(loads(tasks), &rate) != Some(true) {
        return None;
    }
    let room = &rate - heaviest(tasks, m - 1);
    let work = longest(tasks, m - 1) + missing;
    let one = BigRational::one();
    let (idle, own) =
        if cut < m { (int(cut - 1), int(cut - 1) - one) } else { (int(m - 1), int(m - 1) - &rate) };
    let mut x = BigRational::zero();
    for task in tasks {
        let room = &room - &idle * task.utilization();
        if !room.is_positive() {
            return None;
        }
        x = x.max((&work + &own * BigInt::from(task.wcet)) / room);
    }
    bounds(tasks, &x)
}

/// Most by which jobs of each task miss their deadlines under EDZL, those without laxity ordered by deadline, on CPUs
/// that are there always or in part; `None` if it has no bound here, as when the CPUs are over-utilized. A job has no
/// laxity when what it needs would take all the time until its deadline on the CPU that is there least, and may go
/// first from `early` before that on.
///
/// With A, B, E, L as for [`restricted`], and r the least rate of a CPU, and S the sum of C·(1 − u), and `early` + C/r
/// − C or C if that is less, over all tasks but k, a job of task k is at most x + C late if
/// x·(A − L − (m − 1)·u) ≥ E + B + S + (m − 1 − A)·C. On CPUs that are always there x·(m − L) ≥ E + S − C does, and
/// with one, or one for each task, nobody is late. `edzl-tardiness.md` has the proof.
pub fn edzl(tasks: &[Sporadic], supplies: &[Supply], early: u64) -> Option<Vec<u64>> {
    let m = supplies.len();
    let whole = supplies.iter().all(|s| s.budget == s.period && s.blackout == 0);
    let (rate, missing) = given(supplies)?;
    if !simple(tasks) || at_most(loads(tasks), &rate) != Some(true) {
        return None;
    }
    if whole && (m <= 1 || tasks.len() <= m) {
        return Some(vec![0; tasks.len()]);
    }
    let least = supplies.iter().min_by(|a, b| {
        let rate = |s: &Supply, by: &Supply| u128::from(s.budget) * u128::from(by.period);
        rate(a, b).cmp(&rate(b, a))
    });
    let (there, of) = least.map_or((1, 1), |s| (u128::from(s.budget).max(1), u128::from(s.period)));
    // Rounded up, so that denominators do not grow.
    let ahead = |task: &Sporadic| {
        let (c, t) = (u128::from(task.wcet), u128::from(task.period));
        BigInt::from(c - c * c / t + (u128::from(early) + (c * of).div_ceil(there) - c).min(c))
    };
    let all: BigInt = tasks.iter().map(ahead).sum();
    let work = longest(tasks, m - 1) + missing;
    let room = &rate - heaviest(tasks, m - 1);
    let (beside, own) = if whole { (int(0), -int(1)) } else { (int(m - 1), int(m - 1) - &rate) };
    let mut x = BigRational::zero();
    for task in tasks {
        let room = &room - &beside * task.utilization();
        if !room.is_positive() {
            return None;
        }
        let work = &work + BigRational::from_integer(&all - ahead(task));
        x = x.max((work + &own * BigInt::from(task.wcet)) / room);
    }
    bounds(tasks, &x)
}
