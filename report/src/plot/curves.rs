// SPDX-License-Identifier: GPL-2.0-only
//! Frames per second over time, one small panel a policy: the worst task (as in Kato et al., figures 9 to 11), the mean
//! over the tasks and its deviation (figure 12).

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{FAINT, INK, PlotError, WORST, colour, draw, font, label};
use crate::Outcome;

const PANEL: (u32, u32) = (280, 190);
const COLUMNS: usize = 4;

/// Whether any outcome lasted long enough to have a curve.
pub(crate) fn has_curves(outcomes: &[&Outcome]) -> bool {
    outcomes.iter().any(|o| o.metrics.fps_per_second.len() > 1)
}

/// The panels. `rate` is the frame rate that was asked for.
pub(crate) fn curves(outcomes: &[&Outcome], rate: Option<f64>) -> Result<String, PlotError> {
    let columns = COLUMNS.min(outcomes.len()).max(1);
    let rows = outcomes.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let seconds = || outcomes.iter().flat_map(|o| &o.metrics.fps_per_second);
    let highest = seconds().map(|s| s.mean + s.sd).fold(rate.unwrap_or(1.0), f64::max);
    // A movie that catches up may show far more frames than asked for; that end matters least, so it is cut off.
    let top = rate.map_or(highest, |r| highest.min(r * 1.4)) * 1.1;
    let last = seconds().map(|s| s.second).max().unwrap_or(0);
    draw(size, "frames per second over time, by policy", |root| {
        for (panel, o) in root.split_evenly((rows, columns)).iter().zip(outcomes) {
            let (width, _) = panel.dim_in_pixel();
            let curve = &o.metrics.fps_per_second;
            let worst = curve.iter().map(|s| s.worst).min();
            panel.draw(&Text::new(label(o), (36, 14), font(18, INK, HPos::Left)))?;
            if let Some(worst) = worst {
                let text = format!("worst second {worst}");
                let at = (width as i32 - 8, 14);
                panel.draw(&Text::new(text, at, font(16, WORST, HPos::Right)))?;
            }
            let mut chart = ChartBuilder::on(panel)
                .margin_right(8)
                .margin_top(28)
                .x_label_area_size(28)
                .y_label_area_size(36)
                .build_cartesian_2d(0f64..f64::from(last.max(1)), 0f64..top)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .bold_line_style(FAINT)
                .light_line_style(TRANSPARENT)
                .axis_style(FAINT)
                .x_labels(5.min(last as usize + 1))
                .y_labels(4)
                .x_label_formatter(&|x| format!("{x:.0} s"))
                .y_label_formatter(&|y| format!("{y:.0}"))
                .label_style(("sans-serif", 15, &INK))
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
                let line = [(0.0, rate), (f64::from(last.max(1)), rate)];
                chart.draw_series(DashedLineSeries::new(line, 3, 4, INK.stroke_width(1)))?;
            }
        }
        Ok(())
    })
}
