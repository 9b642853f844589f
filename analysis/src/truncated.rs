// SPDX-License-Identifier: GPL-2.0-only
//! Normal distributions that have a wanted mean and deviation after they have been cut at 0: task-set files draw
//! execution times so, and a cut distribution has another mean and deviation than the whole one.

/// How many of the wanted deviations above the wanted mean the distribution is cut, where hardly anything is.
const ABOVE: f64 = 6.0;
/// How far from the wanted mean and deviation is near enough, as part of the mean.
const NEAR: f64 = 1e-9;

/// A normal distribution before it is cut at 0 and at `max`; all of one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    /// Mean, above 0.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Where it is cut above.
    pub max: f64,
}

fn density(x: f64) -> f64 {
    libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI)
}

fn below(x: f64) -> f64 {
    libm::erfc(-x / std::f64::consts::SQRT_2) / 2.0
}

impl Whole {
    /// Mean and deviation of what is left between 0 and `max`.
    ///
    /// Source: Johnson, Kotz and Balakrishnan, "Continuous univariate distributions", volume 1, section 13.10.1.
    pub fn cut(&self) -> (f64, f64) {
        let Self { mean, deviation, max } = *self;
        let (low, high) = (-mean / deviation, (max - mean) / deviation);
        let mass = below(high) - below(low);
        let shift = (density(low) - density(high)) / mass;
        let spread = 1.0 + (low * density(low) - high * density(high)) / mass - shift * shift;
        (mean + deviation * shift, deviation * spread.max(0.0).sqrt())
    }

    /// The one of which `mean` and `deviation`, both above 0, are left; `None` if there is none with a mean above 0: a
    /// deviation of about 0.75 of the mean is the most there is.
    pub fn with(mean: f64, deviation: f64) -> Option<Self> {
        let mut whole = Self { mean, deviation, max: mean + ABOVE * deviation };
        // Each step takes back by how much the last one was off; the wider, the slower.
        for _ in 0..10_000 {
            let (m, d) = whole.cut();
            if (m - mean).abs().max((d - deviation).abs()) <= NEAR * mean {
                return Some(whole);
            }
            whole.mean += mean - m;
            whole.deviation *= deviation / d;
            // The wrong way round, so that the comparison refuses what is no number, too.
            if !(whole.mean > 0.0 && whole.deviation > 0.0) {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_has_the_mean_and_deviation_that_were_wanted() {
        for part in [0.01, 0.2, 0.36, 0.5, 0.7] {
            let whole = Whole::with(14.49, 14.49 * part).unwrap();
            let (mean, deviation) = whole.cut();
            assert!(
                (mean - 14.49).abs() < 1e-6 && (deviation / mean - part).abs() < 1e-6,
                "{part}"
            );
        }
        // Half of one of mean 0 has √(2/π) and √(1 − 2/π), which is 0.756 of that; with less below 0 there is less.
        assert_eq!(Whole::with(1.0, 0.8), None);
        let half = Whole { mean: 0.0, deviation: 1.0, max: 40.0 }.cut();
        assert!((half.0 - 0.797_885).abs() < 1e-6 && (half.1 - 0.602_810).abs() < 1e-6, "{half:?}");
        // A narrow one is not cut.
        let narrow = Whole::with(10.0, 1.0).unwrap();
        assert!((narrow.mean - 10.0).abs() < 1e-6 && (narrow.deviation - 1.0).abs() < 1e-6);
    }
}
