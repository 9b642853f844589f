// SPDX-License-Identifier: GPL-2.0-only
//! One row a policy: frame rates with deviation, and side by side miss ratio, tardiness and best-effort throughput or
//! CPU time.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, FAINT, INK, PlotError, WORST, colour, draw, font, label};
use crate::Outcome;

const WIDTH: u32 = 1120;
const NAMES: i32 = 170;
const ROW: i32 = 28;
const HEAD: i32 = 52;

fn height(outcomes: &[&Outcome], foot: i32) -> u32 {
    (HEAD + ROW * outcomes.len() as i32 + foot) as u32
}

fn middle(row: usize) -> i32 {
    HEAD + ROW * row as i32 + ROW / 2
}

fn names(root: &Area<'_>, outcomes: &[&Outcome]) -> Result<(), PlotError> {
    for (i, o) in outcomes.iter().enumerate() {
        let at = (NAMES - 12, middle(i));
        root.draw(&Text::new(label(o), at, font(18, INK, HPos::Right)))?;
    }
    Ok(())
}

/// Mean frame rate with its standard deviation (as in Kato et al., figure 12), and the worst one-second window.
pub(crate) fn frames(outcomes: &[&Outcome], rate: Option<f64>) -> Result<String, PlotError> {
    let moments = |o: &Outcome| {
        (o.metrics.mean_fps.unwrap_or_default(), o.metrics.fps_sd.unwrap_or_default())
    };
    let values = |o: &Outcome| moments(o).0 + moments(o).1;
    let highest = outcomes.iter().map(|o| values(o)).fold(rate.unwrap_or(1.0), f64::max);
    let top = nice(highest * 1.05);
    let (left, right) = (NAMES, WIDTH as i32 - 190);
    let x = |v: f64| left + ((right - left) as f64 * v / top) as i32;
    let size = (WIDTH, height(outcomes, 30));
    draw(size, "mean frames per second with standard deviation, and the worst second", |root| {
        let bottom = HEAD + ROW * outcomes.len() as i32;
        for step in 0..=4 {
            let value = top * f64::from(step) / 4.0;
            let line = vec![(x(value), HEAD), (x(value), bottom)];
            root.draw(&PathElement::new(line, FAINT))?;
            let text = format!("{value}");
            root.draw(&Text::new(text, (x(value), bottom + 14), font(15, INK, HPos::Center)))?;
        }
        let key = "● mean ± standard deviation over tasks and seconds";
        root.draw(&Text::new(key, (left, 16), font(17, INK, HPos::Left)))?;
        let key = "◆ worst one-second window of any task";
        root.draw(&Text::new(key, (left + 440, 16), font(17, WORST, HPos::Left)))?;
        if let Some(rate) = rate {
            let line = vec![(x(rate), HEAD - 4), (x(rate), bottom)];
            root.draw(&PathElement::new(line, INK))?;
            let text = format!("{rate:.1} asked for");
            root.draw(&Text::new(text, (x(rate), HEAD - 12), font(15, INK, HPos::Center)))?;
        }
        names(root, outcomes)?;
        for (i, o) in outcomes.iter().enumerate() {
            let (m, y, paint) = (&o.metrics, middle(i), colour(&o.policy));
            let (mean, sd) = moments(o);
            let (low, high) = ((mean - sd).max(0.0), mean + sd);
            let whisker = vec![(x(low), y), (x(high), y)];
            root.draw(&PathElement::new(whisker, paint.stroke_width(3)))?;
            for end in [low, high] {
                let cap = vec![(x(end), y - 5), (x(end), y + 5)];
                root.draw(&PathElement::new(cap, paint.stroke_width(2)))?;
            }
            root.draw(&Circle::new((x(mean), y), 5, paint.filled()))?;
            let mut text = format!("{mean:.1} ± {sd:.1}");
            if let Some(worst) = m.worst_fps {
                let at = x(f64::from(worst));
                let diamond = vec![(at, y - 6), (at + 6, y), (at, y + 6), (at - 6, y)];
                root.draw(&Polygon::new(diamond, WORST.filled()))?;
                text = format!("{text}, worst {worst}");
            }
            root.draw(&Text::new(text, (right + 14, y), font(17, INK, HPos::Left)))?;
        }
        Ok(())
    })
}

/// Miss ratio, tardiness, best-effort throughput; where there is no best effort, CPU time of a job (Kato et al.,
/// figures 13, 14, 19 and 20).
pub(crate) fn quantities(outcomes: &[&Outcome]) -> Result<String, PlotError> {
    let size = (WIDTH, height(outcomes, 26));
    let beside = outcomes.iter().any(|o| o.metrics.best_effort_cpus > 0.0);
    let alike = outcomes.iter().all(|o| o.metrics.cpu_per_job_us.is_some());
    let last = match (beside, alike) {
        (true, _) => "best-effort throughput",
        (_, true) => "CPU time of a job",
        _ => "owed jobs that were late",
    };
    draw(size, &format!("miss ratio, tardiness and {last} by policy"), |root| {
        names(root, outcomes)?;
        let part = (WIDTH as i32 - NAMES) / 3;
        let column = |i: i32| (NAMES + part * i, NAMES + part * (i + 1) - 24);
        let miss = |o: &Outcome| o.metrics.miss_ratio * 100.0;
        bars(root, outcomes, column(0), "missed deadlines, %", miss, 2)?;
        tardiness(root, outcomes, column(1))?;
        if beside {
            let rest = |o: &Outcome| o.metrics.best_effort_cpus;
            bars(root, outcomes, column(2), "best-effort work, CPUs", rest, 2)
        } else if !alike {
            let broken = |o: &Outcome| o.metrics.owed_late as f64;
            bars(root, outcomes, column(2), "owed jobs that were late", broken, 0)
        } else {
            let cost = |o: &Outcome| o.metrics.cpu_per_job_us.unwrap_or_default();
            bars(root, outcomes, column(2), "CPU time of a job, µs", cost, 1)
        }
    })
}

fn bars(
    root: &Area<'_>,
    outcomes: &[&Outcome],
    (left, right): (i32, i32),
    title: &str,
    value: impl Fn(&Outcome) -> f64,
    digits: usize,
) -> Result<(), PlotError> {
    root.draw(&Text::new(title.to_string(), (left, 16), font(17, INK, HPos::Left)))?;
    let top = outcomes.iter().map(|o| value(o)).fold(0.0, f64::max).max(1e-9);
    let room = right - left - 64; // for the value behind the bar
    axis(root, outcomes, left)?;
    for (i, o) in outcomes.iter().enumerate() {
        let (v, y) = (value(o), middle(i));
        let end = left + (f64::from(room) * v / top) as i32;
        let bar =
            Rectangle::new([(left, y - 8), (end.max(left + 1), y + 8)], colour(&o.policy).filled());
        root.draw(&bar)?;
        let text = format!("{v:.digits$}");
        root.draw(&Text::new(text, (end + 6, y), font(17, INK, HPos::Left)))?;
    }
    Ok(())
}

fn axis(root: &Area<'_>, outcomes: &[&Outcome], left: i32) -> Result<(), PlotError> {
    let line = vec![(left, HEAD), (left, HEAD + ROW * outcomes.len() as i32)];
    root.draw(&PathElement::new(line, super::OTHERS))?;
    Ok(())
}

/// The 99th percentile and the maximum on a logarithmic scale: schedulers differ by orders of magnitude.
fn tardiness(
    root: &Area<'_>,
    outcomes: &[&Outcome],
    (left, right): (i32, i32),
) -> Result<(), PlotError> {
    let title = "tardiness, ms:  ○ 99 %  ● maximum";
    root.draw(&Text::new(title, (left, 16), font(17, INK, HPos::Left)))?;
    let highest = outcomes.iter().map(|o| o.metrics.tardiness_max_ms).fold(0.0, f64::max);
    // From a hundredth of a millisecond, drawn as zero, to the decade above the highest.
    let (low, high) = (-2.0, highest.max(0.1).log10().ceil().max(0.0));
    let room = f64::from(right - left - 74);
    let x = |v: f64| {
        let log = if v > 0.01 { v.log10() } else { low };
        left + (room * (log - low) / (high - low)) as i32
    };
    let bottom = HEAD + ROW * outcomes.len() as i32;
    axis(root, outcomes, left)?;
    for decade in low as i32..=high as i32 {
        let at = x(10f64.powi(decade));
        root.draw(&PathElement::new(vec![(at, HEAD), (at, bottom)], FAINT))?;
        let text = match decade {
            -2 => "0".into(),
            d if d < 0 => format!("{:.1$}", 10f64.powi(d), d.unsigned_abs() as usize),
            d => format!("{:.0}", 10f64.powi(d)),
        };
        root.draw(&Text::new(text, (at, bottom + 14), font(15, INK, HPos::Center)))?;
    }
    for (i, o) in outcomes.iter().enumerate() {
        let (m, y, paint) = (&o.metrics, middle(i), colour(&o.policy));
        let (p99, max) = (x(m.tardiness_p99_ms), x(m.tardiness_max_ms));
        root.draw(&PathElement::new(vec![(p99, y), (max, y)], paint.stroke_width(2)))?;
        root.draw(&Circle::new((p99, y), 7, paint.stroke_width(2)))?;
        root.draw(&Circle::new((max, y), 4, paint.filled()))?;
        let text = short(m.tardiness_max_ms);
        root.draw(&Text::new(text, (max + 14, y), font(17, INK, HPos::Left)))?;
    }
    Ok(())
}

/// The next round number, one that can be divided by four well.
fn nice(x: f64) -> f64 {
    let power = 10f64.powf(x.max(1e-9).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.iter().map(|s| s * power).find(|s| *s >= x).unwrap_or(10.0 * power)
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
