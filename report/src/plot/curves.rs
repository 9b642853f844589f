// SPDX-License-Identifier: GPL-2.0-only
//! Frames or jobs per second over time, one small panel a policy: the worst task (as in Kato et al., figures 9 to 11),
//! the mean over the tasks and its deviation (figure 12).

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, INK, PlotError, WORST, colour, draw, font, label, plain, written};
use crate::Outcome;

const PANEL: (u32, u32) = (280, 205);

/// Whether any outcome lasted long enough to have a curve.
pub(crate) fn has_curves(outcomes: &[&Outcome]) -> bool {
    outcomes.iter().any(|o| o.metrics.fps_per_second.len() > 1)
}

/// A panel for each outcome. `jobs`: what they are called; `rate`: what was asked for.
pub(crate) fn curves(
    outcomes: &[&Outcome],
    jobs: &str,
    rate: Option<f64>,
) -> Result<Vec<String>, PlotError> {
    let seconds = || outcomes.iter().flat_map(|o| &o.metrics.fps_per_second);
    let highest = seconds().map(|s| s.mean + s.sd).fold(rate.unwrap_or(1.0), f64::max);
    // Who catches up may do far more than was asked for; that end matters least, so it is cut off.
    let top = rate.map_or(highest, |r| highest.min(r * 1.4)) * 1.1;
    let last = seconds().map(|s| s.second).max().unwrap_or(0).max(1);
    let one = |o: &&Outcome| {
        let name = format!("{jobs} a second over time under {}", o.policy);
        draw(PANEL, &name, |root| panel(root, o, jobs, (top, last, rate)))
    };
    outcomes.iter().map(one).collect()
}

fn panel(
    root: &Area<'_>,
    o: &Outcome,
    jobs: &str,
    (top, last, rate): (f64, u32, Option<f64>),
) -> Result<(), PlotError> {
    let curve = &o.metrics.fps_per_second;
    root.draw(&Text::new(label(o), (8, 14), font(18, INK, HPos::Left)))?;
    if let Some(worst) = curve.iter().map(|s| s.worst).min() {
        let text = format!("at least {worst} {jobs} a second");
        root.draw(&Text::new(text, (8, 34), font(16, WORST, HPos::Left)))?;
    }
    let end = f64::from(last);
    let mut chart = ChartBuilder::on(root)
        .margin_right(16)
        .margin_top(48)
        .x_label_area_size(28)
        .y_label_area_size(36)
        .build_cartesian_2d(0f64..end, 0f64..top)?;
    plain(&mut chart.configure_mesh())
        .x_labels(5.min(last as usize + 1))
        .y_labels(4)
        .x_label_formatter(&|x| format!("{} s", written(*x)))
        .draw()?;
    let at = |s: &onbeat_model::metrics::SecondFps| f64::from(s.second);
    let high = curve.iter().map(|s| (at(s), (s.mean + s.sd).min(top)));
    let low = curve.iter().rev().map(|s| (at(s), (s.mean - s.sd).max(0.0)));
    let band: Vec<(f64, f64)> = high.chain(low).collect();
    if band.len() > 2 {
        let shade = colour(&o.policy).mix(0.22);
        chart.draw_series([Polygon::new(band, shade.filled())])?;
    }
    let mean = curve.iter().map(|s| (at(s), s.mean.min(top)));
    chart.draw_series(LineSeries::new(mean, colour(&o.policy).stroke_width(2)))?;
    let worst = curve.iter().map(|s| (at(s), f64::from(s.worst).min(top)));
    chart.draw_series(LineSeries::new(worst, WORST.stroke_width(2)))?;
    if let Some(rate) = rate {
        let line = [(0.0, rate), (end, rate)];
        chart.draw_series(DashedLineSeries::new(line, 3, 4, INK.stroke_width(1)))?;
    }
    Ok(())
}
