// SPDX-License-Identifier: GPL-2.0-only
//! Curves against one quantity, told apart by colour, mark and a key beside them.

use plotters::element::{Circle, Cross, PathElement, Rectangle, Text, TriangleMarker};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, FAINT, INK, PlotError, draw, font};

/// Okabe and Ito's palette without its yellow, which white paper swallows.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x22, 0x26, 0x2a),
];
const PANEL: (u32, u32) = (760, 380);
const KEY: i32 = 190;

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// In the key.
    pub name: String,
    /// By ascending x; a value that is not finite is left out.
    pub points: Vec<(f64, f64)>,
    /// Marks alone, as for values somebody else printed.
    pub marks_only: bool,
}

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// What x and y are, with units.
    pub axes: (String, String),
    /// Range of x.
    pub x: (f64, f64),
    /// Range of y.
    pub y: (f64, f64),
    /// The curves in the order of the key.
    pub curves: Vec<Curve>,
    /// A value of x nothing gets beyond, and its name.
    pub limit: Option<(f64, String)>,
}

/// The panels one below the other as an SVG picture that stands alone.
///
/// # Errors
/// [`PlotError`], which no finite input should cause.
pub fn panels(panels: &[Panel]) -> Result<String, PlotError> {
    let size = (PANEL.0, PANEL.1 * panels.len().max(1) as u32);
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    draw(size, &titles.join("; "), |root| {
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            one(area, panel)?;
        }
        Ok(())
    })
}

fn one(area: &Area<'_>, panel: &Panel) -> Result<(), PlotError> {
    let (width, _) = area.dim_in_pixel();
    area.draw(&Text::new(panel.title.clone(), (56, 16), font(18, INK, HPos::Left)))?;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(KEY)
        .margin_top(34)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(panel.x.0..panel.x.1, panel.y.0..panel.y.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .x_desc(&panel.axes.0)
        .y_desc(&panel.axes.1)
        .label_style(("sans-serif", 15, &INK))
        .axis_desc_style(("sans-serif", 15, &INK))
        .draw()?;
    let key = width as i32 - KEY + 14;
    if let Some((x, name)) = &panel.limit {
        let line = [(*x, panel.y.0), (*x, panel.y.1)];
        chart.draw_series(DashedLineSeries::new(line, 4, 4, INK.stroke_width(1)))?;
        let y = 46 + 22 * panel.curves.len() as i32;
        area.draw(&PathElement::new([(key + 8, y - 7), (key + 8, y + 7)], INK))?;
        area.draw(&Text::new(name.clone(), (key + 24, y), font(15, INK, HPos::Left)))?;
    }
    for (i, curve) in panel.curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let within = |(x, y): &(f64, f64)| {
            x.is_finite() && y.is_finite() && (panel.y.0..=panel.y.1).contains(y)
        };
        let points: Vec<(f64, f64)> = curve.points.iter().copied().filter(within).collect();
        let y = 46 + 22 * i as i32;
        if !curve.marks_only {
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            area.draw(&PathElement::new([(key - 8, y), (key + 16, y)], colour.stroke_width(2)))?;
        }
        // Where points are dense marks would hide the line.
        let every = (points.len() / 25).max(1);
        for at in points.iter().step_by(every) {
            let plotted = chart.backend_coord(at);
            mark(area, i, area_coord(area, plotted), colour)?;
        }
        mark(area, i, (key + 4, y), colour)?;
        let name = curve.name.clone();
        area.draw(&Text::new(name, (key + 24, y), font(15, INK, HPos::Left)))?;
    }
    Ok(())
}

/// A place of the whole picture as one of `area`.
fn area_coord(area: &Area<'_>, at: (i32, i32)) -> (i32, i32) {
    let (x, y) = area.get_base_pixel();
    (at.0 - x, at.1 - y)
}

fn mark(area: &Area<'_>, i: usize, at: (i32, i32), colour: RGBColor) -> Result<(), PlotError> {
    let corners = |n: i32| [(at.0 - n, at.1 - n), (at.0 + n, at.1 + n)];
    match i % 5 {
        0 => area.draw(&Circle::new(at, 4, colour.filled()))?,
        1 => area.draw(&Rectangle::new(corners(3), colour.filled()))?,
        2 => area.draw(&TriangleMarker::new(at, 5, colour.filled()))?,
        3 => area.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
        _ => area.draw(&Circle::new(at, 4, colour.stroke_width(2)))?,
    }
    Ok(())
}
