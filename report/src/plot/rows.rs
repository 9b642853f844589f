// SPDX-License-Identifier: GPL-2.0-only
//! Rows of figures, one a policy: frame rates with their deviation, lateness, tardiness, and best-effort throughput or
//! CPU time. Each picture is narrow enough for a phone; a page sets several side by side where there is room.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, FAINT, INK, PlotError, WORST, colour, draw, font, label};
use crate::Outcome;

const WIDTH: i32 = 440;
const ROW: i32 = 28;
const HEAD: i32 = 40;
const FOOT: i32 = 28;
/// For the value behind a bar or mark.
const VALUE: i32 = 66;

/// Where things are in one picture.
struct Layout {
    rows: usize,
    /// Of bars: left end, and right end of the longest.
    left: i32,
    right: i32,
}

impl Layout {
    /// Room for the longest name, and for a value of `value` pixels.
    fn new(outcomes: &[&Outcome], value: i32) -> Self {
        let longest = outcomes.iter().map(|o| label(o).chars().count()).max().unwrap_or(0);
        let left = (longest as i32 * 15 / 2 + 28).clamp(60, WIDTH / 2);
        Self { rows: outcomes.len(), left, right: WIDTH - value }
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (self.bottom() + FOOT) as u32)
    }

    fn bottom(&self) -> i32 {
        HEAD + ROW * self.rows as i32
    }

    fn middle(row: usize) -> i32 {
        HEAD + ROW * row as i32 + ROW / 2
    }

    /// The place of a part of the whole axis.
    fn x(&self, part: f64) -> i32 {
        self.left + (f64::from(self.right - self.left) * part) as i32
    }

    fn names(&self, root: &Area<'_>, outcomes: &[&Outcome]) -> Result<(), PlotError> {
        for (i, o) in outcomes.iter().enumerate() {
            let at = (self.left - 14, Self::middle(i));
            root.draw(&Text::new(label(o), at, font(17, INK, HPos::Right)))?;
        }
        Ok(())
    }

    /// A line down all rows, with a number under it.
    fn tick(&self, root: &Area<'_>, part: f64, text: String) -> Result<(), PlotError> {
        let (x, bottom) = (self.x(part), self.bottom());
        root.draw(&PathElement::new(vec![(x, HEAD), (x, bottom)], FAINT))?;
        root.draw(&Text::new(text, (x, bottom + 14), font(15, INK, HPos::Center)))?;
        Ok(())
    }
}

fn title(root: &Area<'_>, text: &str) -> Result<(), PlotError> {
    root.draw(&Text::new(text.to_string(), (8, 16), font(17, INK, HPos::Left)))?;
    Ok(())
}

/// Mean rate with its standard deviation (as in Kato et al., figure 12), and the worst one-second window. `jobs`: what
/// they are called; `rate`: what was asked for.
pub(crate) fn frames(
    outcomes: &[&Outcome],
    jobs: &str,
    rate: Option<f64>,
) -> Result<String, PlotError> {
    let moments = |o: &Outcome| {
        (o.metrics.mean_fps.unwrap_or_default(), o.metrics.fps_sd.unwrap_or_default())
    };
    let highest = |o: &Outcome| {
        let (mean, sd) = moments(o);
        (mean + sd).max(o.metrics.worst_fps.map_or(0.0, f64::from))
    };
    let highest = outcomes.iter().map(|o| highest(o)).fold(rate.unwrap_or(1.0), f64::max);
    let (top, step) = ticks(highest);
    let layout = Layout::new(outcomes, 30);
    let x = |v: f64| layout.x(v / top);
    let name = format!("{jobs} a second: mean with standard deviation, and the worst second");
    draw(layout.size(), &name, |root| {
        title(root, &format!("{jobs} a second: ● mean ± s.d."))?;
        let key = "◆ worst second";
        root.draw(&Text::new(key, (WIDTH - 8, 16), font(17, WORST, HPos::Right)))?;
        for i in 0..=(top / step).round() as u32 {
            let value = step * f64::from(i);
            layout.tick(root, value / top, super::written(value))?;
        }
        if let Some(rate) = rate {
            let line = vec![(x(rate), HEAD - 4), (x(rate), layout.bottom())];
            root.draw(&PathElement::new(line, INK))?;
        }
        layout.names(root, outcomes)?;
        for (i, o) in outcomes.iter().enumerate() {
            let (y, paint) = (Layout::middle(i), colour(&o.policy));
            let (mean, sd) = moments(o);
            let (low, high) = ((mean - sd).max(0.0), mean + sd);
            let whisker = vec![(x(low), y), (x(high), y)];
            root.draw(&PathElement::new(whisker, paint.stroke_width(3)))?;
            for end in [low, high] {
                let cap = vec![(x(end), y - 5), (x(end), y + 5)];
                root.draw(&PathElement::new(cap, paint.stroke_width(2)))?;
            }
            root.draw(&Circle::new((x(mean), y), 5, paint.filled()))?;
            if let Some(worst) = o.metrics.worst_fps {
                let at = x(f64::from(worst));
                let diamond = vec![(at, y - 6), (at + 6, y), (at, y + 6), (at - 6, y)];
                root.draw(&Polygon::new(diamond, WORST.filled()))?;
                // Beside what is drawn already.
                let text = Text::new(worst.to_string(), (at - 10, y), font(15, WORST, HPos::Right));
                root.draw(&text)?;
            }
        }
        Ok(())
    })
}

/// Late jobs, tardiness, best-effort throughput; where there is no best effort, CPU time of a job (Kato et al., figures
/// 13, 14, 19 and 20). One picture each.
pub(crate) fn quantities(outcomes: &[&Outcome], jobs: &str) -> Result<Vec<String>, PlotError> {
    let m = |o: &Outcome| o.metrics.clone();
    let beside = outcomes.iter().any(|o| o.metrics.best_effort_cpus > 0.0);
    // Of tasks of different periods no share of all jobs is a figure of any of them.
    let alike = outcomes.iter().all(|o| o.metrics.cpu_per_job_us.is_some());
    let late = match alike {
        true => bars(outcomes, &format!("late {jobs}, %"), |o| m(o).miss_ratio * 100.0, 2)?,
        false => bars(outcomes, &format!("late {jobs}"), |o| m(o).misses as f64, 0)?,
    };
    let mut all = vec![late, tardiness(outcomes)?];
    if beside {
        all.push(bars(outcomes, "best-effort work, CPUs", |o| m(o).best_effort_cpus, 2)?);
    } else if alike {
        let cost = |o: &Outcome| m(o).cpu_per_job_us.unwrap_or_default();
        all.push(bars(outcomes, "CPU time of a job, µs", cost, 1)?);
    } else {
        let broken = |o: &Outcome| m(o).owed_late as f64;
        all.push(bars(outcomes, &format!("owed {jobs} that were late"), broken, 0)?);
    }
    Ok(all)
}

fn bars(
    outcomes: &[&Outcome],
    name: &str,
    value: impl Fn(&Outcome) -> f64,
    digits: usize,
) -> Result<String, PlotError> {
    let highest = outcomes.iter().map(|o| value(o)).fold(0.0, f64::max);
    let (top, step) = ticks(highest.max(10f64.powi(-(digits as i32))));
    let layout = Layout::new(outcomes, VALUE);
    draw(layout.size(), name, |root| {
        title(root, name)?;
        for i in 0..=(top / step).round() as u32 {
            let value = step * f64::from(i);
            layout.tick(root, value / top, super::written(value))?;
        }
        layout.names(root, outcomes)?;
        for (i, o) in outcomes.iter().enumerate() {
            let (v, y) = (value(o), Layout::middle(i));
            let end = layout.x(v / top).max(layout.left + 1);
            let bar =
                Rectangle::new([(layout.left, y - 8), (end, y + 8)], colour(&o.policy).filled());
            root.draw(&bar)?;
            let text = format!("{v:.digits$}");
            root.draw(&Text::new(text, (end + 6, y), font(16, INK, HPos::Left)))?;
        }
        Ok(())
    })
}

/// The 99th percentile and the maximum on a logarithmic scale: schedulers differ by orders of magnitude.
fn tardiness(outcomes: &[&Outcome]) -> Result<String, PlotError> {
    let highest = outcomes.iter().map(|o| o.metrics.tardiness_max_ms).fold(0.0, f64::max);
    // From a hundredth of a millisecond, drawn as zero, to the decade above the highest.
    let (low, high) = (-2.0, highest.max(0.1).log10().ceil().max(0.0));
    let part = |v: f64| (if v > 0.01 { v.log10() - low } else { 0.0 }) / (high - low);
    let layout = Layout::new(outcomes, VALUE);
    draw(layout.size(), "tardiness, ms: 99th percentile and maximum", |root| {
        title(root, "tardiness, ms:  ○ 99 %  ● most")?;
        for decade in low as i32..=high as i32 {
            let text = match decade {
                -2 => "0".into(),
                d if d < 0 => format!("{:.1$}", 10f64.powi(d), d.unsigned_abs() as usize),
                d if d < 3 => format!("{:.0}", 10f64.powi(d)),
                // Short, as decades stand close.
                d => format!("{:.0}k", 10f64.powi(d - 3)),
            };
            layout.tick(root, (f64::from(decade) - low) / (high - low), text)?;
        }
        layout.names(root, outcomes)?;
        for (i, o) in outcomes.iter().enumerate() {
            let (m, y, paint) = (&o.metrics, Layout::middle(i), colour(&o.policy));
            let at = |v: f64| layout.x(part(v));
            let (p99, max) = (at(m.tardiness_p99_ms), at(m.tardiness_max_ms));
            root.draw(&PathElement::new(vec![(p99, y), (max, y)], paint.stroke_width(2)))?;
            root.draw(&Circle::new((p99, y), 7, paint.stroke_width(2)))?;
            root.draw(&Circle::new((max, y), 4, paint.filled()))?;
            let text = short(m.tardiness_max_ms);
            root.draw(&Text::new(text, (max + 12, y), font(16, INK, HPos::Left)))?;
        }
        Ok(())
    })
}

/// The end of an axis for values up to `highest`, and the distance of its ticks: 1, 2 or 5 of a power of ten, at most
/// five of them.
fn ticks(highest: f64) -> (f64, f64) {
    let least = highest.max(1e-6) / 5.0;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= least * 0.999);
    let step = step.unwrap_or(10.0 * power);
    ((highest / step - 1e-9).ceil().max(1.0) * step, step)
}

/// Three digits or so.
fn short(x: f64) -> String {
    match x {
        0.0 => "0".into(),
        x if x < 1.0 => format!("{x:.2}"),
        x if x < 100.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stand_at_one_two_or_five_of_a_power_of_ten_and_cover_all() {
        for highest in [1e-3, 0.7, 1.0, 3.3, 4.99, 5.0, 23.9, 24.4, 29.0, 99.0, 100.0, 3314.0] {
            let (top, step) = ticks(highest);
            let digit = step / 10f64.powf(step.log10().floor());
            assert!(
                [1.0, 2.0, 5.0, 10.0].iter().any(|d| (digit - d).abs() < 1e-6),
                "{highest}: {step}"
            );
            assert!(top >= highest * 0.999 && top - step < highest, "{highest}: {top}");
            assert!(
                ((top / step) - (top / step).round()).abs() < 1e-6 && top / step < 5.5,
                "{highest}"
            );
        }
    }
}
