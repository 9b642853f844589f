// SPDX-License-Identifier: GPL-2.0-only
//! Means of what was measured several times, and how far they can be trusted.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The mean over replications, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean; NaN: there was nothing.
    pub value: f64,
    /// How far the interval reaches to both sides: Student's t, as replications are few. 0 of a single one.
    pub reach: f64,
    /// Of how many it is.
    pub n: usize,
    /// The least of all.
    pub least: f64,
    /// The greatest of all.
    pub most: f64,
}

impl Mean {
    /// Of these, without those that are NaN.
    pub fn of(values: &[f64]) -> Self {
        let values: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let count = values.len();
        let n = count as f64;
        let value = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - value) * (v - value)).sum();
        let reach = match StudentsT::new(0.0, 1.0, n - 1.0) {
            Ok(t) => t.inverse_cdf(0.975) * (squares / (n - 1.0) / n).sqrt(),
            Err(_) => 0.0,
        };
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        let least = values.iter().copied().fold(least, f64::min);
        Self { value, reach, n: count, least, most: values.iter().copied().fold(most, f64::max) }
    }

    /// In another unit.
    pub fn times(self, scale: f64) -> Self {
        let Self { value, reach, n, least, most } = self;
        Self {
            value: value * scale,
            reach: reach * scale,
            n,
            least: least * scale,
            most: most * scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Of six values with the deviation 1 it is 2.5706 / sqrt(6), by the printed tables of t.
        let half = 1.0 / (6.0_f64 / 5.0).sqrt();
        let mean =
            Mean::of(&[1.0 + half, 1.0 - half, 1.0 + half, 1.0 - half, 1.0 + half, 1.0 - half]);
        assert!((mean.value - 1.0).abs() < 1e-12);
        assert!((mean.reach - 2.5706 / 6.0_f64.sqrt()).abs() < 1e-3, "{mean:?}");
        assert!((mean.most - mean.least - 2.0 * half).abs() < 1e-12);
        let one = Mean::of(&[3.0, f64::NAN]);
        assert_eq!((one.n, one.reach), (1, 0.0));
        assert!(Mean::of(&[]).value.is_nan());
    }
}
