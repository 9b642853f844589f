// SPDX-License-Identifier: GPL-2.0-only
//! Random task sets, the same for the same seed on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::sporadic::Sporadic;

/// How periods are drawn, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Periods {
    /// Uniform between both.
    Uniform(u64, u64),
    /// Uniform logarithms: as many between 1 and 10 ms as between 10 and 100 (Emberson, Stafford and Davis 2010).
    LogUniform(u64, u64),
    /// The first times a power of two that keeps them at or below the second.
    Harmonic(u64, u64),
}

/// A source of task sets.
#[derive(Debug, Clone)]
pub struct Generator {
    rng: ChaCha8Rng,
}

impl Generator {
    /// Set number `stream` of the sequence that belongs to `seed`; sets do not depend on each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Self { rng }
    }

    /// Uniform in [low, high].
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high.saturating_sub(low)) + 1;
        low + ((u128::from(self.rng.next_u64()) * span) >> 64) as u64
    }

    /// Uniform in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in (low, high].
    pub(crate) fn real(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// One of several.
    pub(crate) fn among<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.between(0, all.len() as u64 - 1) as usize]
    }

    fn period(&mut self, periods: Periods) -> u64 {
        match periods {
            Periods::Uniform(low, high) => self.between(low, high),
            Periods::LogUniform(low, high) => {
                let (a, b) = (libm::log(low as f64), libm::log(high as f64));
                (libm::exp(a + self.unit() * (b - a)).round() as u64).clamp(low, high)
            }
            Periods::Harmonic(low, high) => {
                let most = (high / low.max(1)).max(1).ilog2();
                low << self.between(0, u64::from(most))
            }
        }
    }

    fn task(&mut self, utilization: f64, periods: Periods) -> Sporadic {
        let period = self.period(periods).max(1);
        // Down: rounding to the nearest would take every other full set beyond what it was to add up to.
        Sporadic::implicit(((utilization * period as f64) as u64).clamp(1, period), period)
    }

    /// Tasks with utilizations uniform in [`low`, `high`] until they add up to `total`; the last gets what is missing.
    ///
    /// Source: Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time
    /// applications", section 7.1.
    pub fn until(&mut self, total: f64, low: f64, high: f64, periods: Periods) -> Vec<Sporadic> {
        let (mut tasks, mut left) = (Vec::new(), total);
        while left > 1e-9 {
            let u = (low + self.unit() * (high - low)).min(left);
            left -= u;
            tasks.push(self.task(u, periods));
        }
        tasks
    }

    /// `n` tasks whose utilizations add up to `total`, uniform among all such that none is above 1; `None` if none was
    /// found in a thousand draws, as when `total` is close to `n`.
    ///
    /// Source: UUniFast, Bini and Buttazzo 2005, figure 5; discarding, Davis and Burns 2009.
    pub fn uunifast_discard(
        &mut self,
        n: usize,
        total: f64,
        periods: Periods,
    ) -> Option<Vec<Sporadic>> {
        for _ in 0..1000 {
            let mut rest = total;
            let mut loads = Vec::with_capacity(n);
            for i in 1..n {
                let next = rest * libm::pow(self.unit(), 1.0 / (n - i) as f64);
                loads.push(rest - next);
                rest = next;
            }
            loads.push(rest);
            if loads.iter().all(|u| *u <= 1.0) {
                return Some(loads.into_iter().map(|u| self.task(u, periods)).collect());
            }
        }
        None
    }

    /// `n` tasks whose utilizations add up to `total`, uniform among all such that none is above 1, also where `total`
    /// is close to `n`. `None` if there are none, or `n` is above 2000.
    ///
    /// Source: Emberson, Stafford and Davis 2010 (RandFixedSum).
    pub fn randfixedsum(
        &mut self,
        n: usize,
        total: f64,
        periods: Periods,
    ) -> Option<Vec<Sporadic>> {
        let loads = self.fixed_sum(n, total)?;
        Some(loads.into_iter().map(|u| self.task(u, periods)).collect())
    }

    /// `n` numbers in [0, 1] whose sum is `total`, uniform among all such.
    ///
    /// Stafford's way: the cut of the cube is made of simplices that a table leads to with probabilities by their
    /// volumes; in the chosen one a point is drawn, and its coordinates are shuffled.
    fn fixed_sum(&mut self, n: usize, total: f64) -> Option<Vec<f64>> {
        if n == 0 || n > FIXED_SUM_MOST || !(0.0..=n as f64).contains(&total) {
            return None;
        }
        let k = (total.floor() as usize).min(n - 1);
        let turn = simplices(n, total - k as f64);
        let mut numbers = Vec::with_capacity(n);
        let (mut rest, mut column, mut sum, mut scale) = (total, k, 0.0, 1.0);
        for i in (1..n).rev() {
            let one = self.unit() <= turn[(i - 1) * n + column];
            let shrink = libm::pow(self.unit(), 1.0 / i as f64);
            sum += (1.0 - shrink) * scale * rest / (i + 1) as f64;
            scale *= shrink;
            let corner = f64::from(u8::from(one));
            numbers.push(sum + scale * corner);
            rest -= corner;
            column -= usize::from(one);
        }
        numbers.push(sum + scale * rest);
        for i in (1..n).rev() {
            numbers.swap(i, self.between(0, i as u64) as usize);
        }
        numbers.iter_mut().for_each(|x| *x = x.clamp(0.0, 1.0));
        Some(numbers)
    }

    /// Shortens deadlines: uniform between execution time and period.
    pub fn constrain(&mut self, tasks: &mut [Sporadic]) {
        for task in tasks {
            task.deadline = self.between(task.wcet, task.period);
        }
    }
}

/// Larger tables do not fit memory well: a number for each pair.
const FIXED_SUM_MOST: usize = 2000;

/// For i + 1 numbers that are left and integer part j of their sum, at (i − 1)·n + j: the probability of the corner
/// whose next coordinate is 1. `over` is what the whole sum is beyond its integer part.
fn simplices(n: usize, over: f64) -> Vec<f64> {
    let mut turn = vec![0.0; n.saturating_sub(1) * n];
    // Volumes by integer part, shifted by one; only their ratios within a row count.
    let mut volume = vec![0.0; n + 1];
    let mut next = volume.clone();
    volume[1] = 1.0;
    for i in 2..=n {
        let mut largest = 0.0f64;
        for j in 1..=i {
            let up = over + (j - 1) as f64;
            let down = (i - j + 1) as f64 - over;
            let (stay, go) = (volume[j] * up, volume[j - 1] * down);
            next[j] = stay + go;
            largest = largest.max(next[j]);
            // The smaller part is divided: the other would lose its digits.
            turn[(i - 2) * n + j - 1] = match next[j] > 0.0 {
                true if down > up => go / next[j],
                true => 1.0 - stay / next[j],
                false => f64::from(u8::from(down <= up)),
            };
        }
        // Products of thousands leave the range of floating point otherwise.
        for j in 1..=i {
            volume[j] = next[j] / largest;
        }
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Local, Packing, partition};
    use crate::semi::edf_wm;
    use crate::sporadic::utilization;
    use num_traits::ToPrimitive;

    const MS: u64 = 1_000_000;
    const PAPER: Periods = Periods::Uniform(MS, 100 * MS);

    fn load(tasks: &[Sporadic]) -> f64 {
        utilization(tasks).to_f64().unwrap()
    }

    #[test]
    fn utilizations_add_up_to_what_was_asked_for() {
        for stream in 0..100 {
            let mut generator = Generator::new(7, stream);
            let just = |tasks: &[Sporadic]| (3.2 - 1e-4..=3.2).contains(&load(tasks));
            assert!(just(&generator.until(3.2, 0.1, 1.0, PAPER)));
            let tasks =
                generator.uunifast_discard(8, 3.2, Periods::LogUniform(MS, 100 * MS)).unwrap();
            assert!(tasks.len() == 8 && just(&tasks));
            let harmonic =
                generator.uunifast_discard(4, 1.0, Periods::Harmonic(MS, 100 * MS)).unwrap();
            assert!(
                harmonic.iter().all(|t| t.period % MS == 0 && (t.period / MS).is_power_of_two())
            );
        }
    }

    #[test]
    fn fixed_sums_are_exact_to_rounding_and_means_are_equal() {
        const SETS: u64 = 4000;
        for (n, total) in [(1, 0.7), (2, 1.9), (5, 0.4), (6, 3.2), (10, 9.7), (3, 3.0), (4, 0.0)] {
            let mut means = vec![0.0; n];
            for stream in 0..SETS {
                let all = Generator::new(5, stream).fixed_sum(n, total).unwrap();
                assert!((all.iter().sum::<f64>() - total).abs() < 1e-12 * n as f64, "{all:?}");
                assert!(all.iter().all(|u| (0.0..=1.0).contains(u)), "{all:?}");
                means.iter_mut().zip(all).for_each(|(mean, u)| *mean += u / SETS as f64);
            }
            // No number in [0, 1] varies by more than 1/4; five standard errors of that.
            let error = 5.0 * (0.25 / SETS as f64).sqrt();
            for mean in means {
                assert!((mean - total / n as f64).abs() < error, "{n} {total} {mean}");
            }
        }
        assert!(
            Generator::new(5, 0)
                .fixed_sum(1000, 700.0)
                .is_some_and(|all| { (all.iter().sum::<f64>() - 700.0).abs() < 1e-6 })
        );
        assert_eq!(Generator::new(5, 0).fixed_sum(3, 3.1), None);
        assert_eq!(Generator::new(5, 0).fixed_sum(0, 0.0), None);
    }

    /// Both are uniform on the same sets, so squares and maxima agree as well as means.
    #[test]
    fn fixed_sums_are_distributed_as_those_of_uunifast_discard() {
        const SETS: u64 = 20_000;
        let far = Periods::Uniform(1 << 40, 1 << 40);
        for (n, total) in [(3, 1.3), (4, 1.5), (5, 2.5), (4, 2.6)] {
            let (mut a, mut b) = ([0.0; 3], [0.0; 3]);
            for stream in 0..SETS {
                let mut one = Generator::new(8, stream);
                let two = one.uunifast_discard(n, total, far).unwrap();
                let one = one.randfixedsum(n, total, far).unwrap();
                for (sums, set) in [(&mut a, one), (&mut b, two)] {
                    let u: Vec<f64> = set.iter().map(|t| t.wcet as f64 / t.period as f64).collect();
                    sums[0] += u.iter().map(|u| u * u).sum::<f64>() / SETS as f64;
                    sums[1] += u.iter().copied().fold(0.0, f64::max) / SETS as f64;
                    // The first by itself, as the order is random too.
                    sums[2] += u[0] * u[0] / SETS as f64;
                }
            }
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() < 0.012, "{n} {total}: {a} {b}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_set_and_another_stream_another() {
        let set = |seed, stream| Generator::new(seed, stream).until(2.0, 0.1, 0.5, PAPER);
        assert_eq!(set(1, 2), set(1, 2));
        assert_ne!(set(1, 2), set(1, 3));
    }

    #[test]
    fn constrained_deadlines_lie_between_execution_time_and_period() {
        let mut generator = Generator::new(3, 0);
        let mut tasks = generator.until(4.0, 0.1, 0.5, PAPER);
        generator.constrain(&mut tasks);
        assert!(tasks.iter().all(|t| t.wcet <= t.deadline && t.deadline <= t.period));
    }

    /// The order of the curves in figures 21 to 23 of the same paper.
    #[test]
    fn edf_wm_accepts_more_than_partitioned_edf_at_high_load() {
        for (low, high) in [(0.1, 1.0), (0.5, 1.0), (0.1, 0.5)] {
            let (mut split, mut whole) = (0, 0);
            for stream in 0..100 {
                let tasks = Generator::new(21, stream).until(3.6, low, high, PAPER);
                split += u32::from(edf_wm(&tasks, 4, Packing::First).is_ok());
                whole += u32::from(partition(&tasks, 4, Local::Edf, Packing::First, false).is_ok());
            }
            assert!(split > whole, "{low} to {high}: {split} and {whole} of 100");
        }
    }
}
