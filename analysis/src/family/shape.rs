// SPDX-License-Identifier: GPL-2.0-only
//! How the work of a task varies from job to job; everything in budgets, 1 is Q.

use std::f64::consts::PI;

use crate::generate::Generator;

/// How a task's work varies.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Quiet and busy scenes by turns; the busy ones last from `burst.0` to `burst.1` ns.
    Scenes {
        /// Mean over a reel.
        mean: f64,
        /// Shortest and longest busy scene, ns.
        burst: (u64, u64),
    },
    /// Groups of pictures.
    Pictures {
        /// Mean over a reel.
        mean: f64,
        /// Pictures in a group.
        group: usize,
        /// From one I or P picture to the next.
        step: usize,
        /// I and P pictures over B pictures.
        sizes: (f64, f64),
    },
    /// First-order auto-regressive.
    Drift {
        /// Mean over a reel.
        mean: f64,
        /// Within this time, ns, it forgets all but 1/e of where it was.
        memory: f64,
        /// Standard deviation.
        sd: f64,
    },
    /// Pareto.
    Heavy {
        /// Mean over a reel.
        mean: f64,
        /// The tail falls with this power.
        tail: f64,
    },
}

impl Shape {
    /// Scenes with a mean of their own.
    pub fn scenes(drawn: &mut Generator, burst: (u64, u64)) -> Self {
        Shape::Scenes { mean: drawn.real(0.76, 0.86), burst }
    }

    /// Groups of 9 to 15 pictures.
    pub fn pictures(drawn: &mut Generator) -> Self {
        Shape::Pictures {
            mean: drawn.real(0.84, 0.93),
            group: drawn.between(9, 15) as usize,
            step: drawn.between(2, 3) as usize,
            sizes: (drawn.real(2.2, 2.7), drawn.real(1.3, 1.6)),
        }
    }

    /// Wanders for half a second to two.
    pub fn drift(drawn: &mut Generator) -> Self {
        Shape::Drift {
            mean: drawn.real(0.86, 0.95),
            memory: drawn.real(0.5e9, 2e9),
            sd: drawn.real(0.2, 0.3),
        }
    }

    /// With a finite variance, but hardly.
    pub fn heavy(drawn: &mut Generator) -> Self {
        Shape::Heavy { mean: drawn.real(0.75, 0.85), tail: drawn.real(2.1, 2.8) }
    }

    /// `jobs` works for a task of that period (ns), none above `most`, with the shape's mean.
    pub fn reel(&self, drawn: &mut Generator, jobs: usize, period: u64, most: f64) -> Vec<f64> {
        match *self {
            Shape::Scenes { mean, burst } => {
                let (mut loads, busy) = scenes(drawn, jobs, period, burst);
                // The busy ones stay what they are; the quiet ones make up for them.
                scale(&mut loads, mean, most, |i| !busy[i]);
                loads
            }
            Shape::Pictures { mean, group, step, sizes } => {
                let first = drawn.between(0, group as u64 - 1) as usize;
                let mut loads: Vec<f64> = (0..jobs)
                    .map(|job| {
                        let place = (first + job) % group;
                        let size = match place {
                            0 => sizes.0,
                            _ if place.is_multiple_of(step) => sizes.1,
                            _ => 1.0,
                        };
                        size * noise(drawn, 0.06)
                    })
                    .collect();
                scale(&mut loads, mean, most, |_| true);
                loads
            }
            Shape::Drift { mean, memory, sd } => {
                let keep = libm::exp(-(period as f64) / memory);
                let push = sd * libm::sqrt(1.0 - keep * keep);
                let mut off = sd * normal(drawn);
                let mut loads: Vec<f64> = (0..jobs)
                    .map(|_| {
                        off = keep * off + push * normal(drawn);
                        (mean + off).max(0.1) * noise(drawn, 0.06)
                    })
                    .collect();
                scale(&mut loads, mean, most, |_| true);
                loads
            }
            Shape::Heavy { mean, tail } => {
                let mut loads: Vec<f64> =
                    (0..jobs).map(|_| libm::pow(drawn.unit(), -1.0 / tail)).collect();
                scale(&mut loads, mean, most, |_| true);
                loads
            }
        }
    }
}

/// How much a job of a busy scene needs.
const BUSY: (f64, f64) = (1.15, 1.4);

/// Scenes by turns, and which jobs are of a busy one. They begin anywhere in a quiet one; a quiet one is longer than
/// the busy one before it, so that work enough is left to make the mean.
fn scenes(
    drawn: &mut Generator,
    jobs: usize,
    period: u64,
    burst: (u64, u64),
) -> (Vec<f64>, Vec<bool>) {
    let (mut loads, mut busy) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs));
    let mut left = (drawn.real(0.1, 1.5) * burst.1 as f64 / period as f64) as usize;
    let (mut now_busy, mut level, mut length) = (false, 1.0, 0);
    for _ in 0..jobs {
        while left == 0 {
            now_busy = !now_busy;
            if now_busy {
                length = drawn.between(burst.0, burst.1).div_ceil(period) as usize;
                (left, level) = (length, drawn.real(BUSY.0, BUSY.1));
            } else {
                (left, level) = ((length as f64 * drawn.real(1.5, 3.0)) as usize + 1, 1.0);
            }
        }
        left -= 1;
        loads.push(level * noise(drawn, 0.08));
        busy.push(now_busy);
    }
    (loads, busy)
}

/// Scales those that `may` so that the mean of all is `mean` although none is above `most`.
fn scale(loads: &mut [f64], mean: f64, most: f64, may: impl Fn(usize) -> bool) {
    // What is cut off must come from the others; each round leaves less of it.
    for _ in 0..8 {
        let total: f64 = loads.iter().sum();
        let free: f64 = loads.iter().enumerate().filter(|(i, _)| may(*i)).map(|(_, x)| x).sum();
        let factor = 1.0 + (mean * loads.len() as f64 - total) / free.max(f64::MIN_POSITIVE);
        let factor = factor.max(0.05);
        for (_, load) in loads.iter_mut().enumerate().filter(|(i, _)| may(*i)) {
            *load *= factor;
        }
        loads.iter_mut().for_each(|load| *load = load.min(most));
    }
}

/// Normal (Box and Muller 1958), within five deviations.
fn normal(drawn: &mut Generator) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(drawn.unit()));
    (radius * libm::cos(2.0 * PI * drawn.unit())).clamp(-5.0, 5.0)
}

/// A factor about 1 with that deviation.
fn noise(drawn: &mut Generator, sd: f64) -> f64 {
    1.0 + sd * normal(drawn)
}
