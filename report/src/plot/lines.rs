// SPDX-License-Identifier: GPL-2.0-only
//! Curves against one quantity, told apart by colour, mark and a key beside them.

use plotters::element::{Circle, Cross, PathElement, Rectangle, Text, TriangleMarker};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, INK, PlotError, draw, font, plain, written};

/// Okabe and Ito's palette without its yellow, which white paper swallows.
pub(super) const COLOURS: [RGBColor; 7] = [
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// In the key.
    pub name: String,
    /// By ascending x; a value that is not finite is left out.
    pub points: Vec<(f64, f64)>,
    /// Marks alone, as for values somebody else printed.
    pub marks_only: bool,
    /// How far the interval around each point reaches up and down; empty: there are none.
    pub reach: Vec<f64>,
}

/// One panel.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// A value of y that something is held against, and its name.
    pub level: Option<(f64, String)>,
    /// y is drawn by its logarithm; its range is above 0.
    pub logarithmic: bool,
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
    let scale = |y: f64| if panel.logarithmic { y.log10() } else { y };
    let (low, high) = (scale(panel.y.0), scale(panel.y.1));
    area.draw(&Text::new(panel.title.clone(), (56, 16), font(18, INK, HPos::Left)))?;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(KEY)
        .margin_top(34)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(panel.x.0..panel.x.1, low..high)?;
    plain(&mut chart.configure_mesh())
        .x_desc(&panel.axes.0)
        .y_desc(&panel.axes.1)
        .y_label_formatter(&|y| match panel.logarithmic {
            false => written(*y),
            // Between the powers of ten there is too little room.
            true if (y - y.round()).abs() < 1e-6 => written(10f64.powf(*y)),
            true => String::new(),
        })
        .draw()?;
    let key = width as i32 - KEY + 14;
    if let Some((x, name)) = &panel.limit {
        let line = [(*x, low), (*x, high)];
        chart.draw_series(DashedLineSeries::new(line, 4, 4, INK.stroke_width(1)))?;
        let y = 46 + 22 * panel.curves.len() as i32;
        area.draw(&PathElement::new([(key + 8, y - 7), (key + 8, y + 7)], INK))?;
        area.draw(&Text::new(name.clone(), (key + 24, y), font(15, INK, HPos::Left)))?;
    }
    if let Some((y, name)) = &panel.level {
        let line = [(panel.x.0, scale(*y)), (panel.x.1, scale(*y))];
        chart.draw_series(DashedLineSeries::new(line, 4, 4, INK.stroke_width(1)))?;
        let lines = panel.curves.len() as i32 + i32::from(panel.limit.is_some());
        let at = 46 + 22 * lines;
        area.draw(&PathElement::new([(key - 8, at), (key - 1, at)], INK))?;
        area.draw(&PathElement::new([(key + 9, at), (key + 16, at)], INK))?;
        area.draw(&Text::new(name.clone(), (key + 24, at), font(15, INK, HPos::Left)))?;
    }
    for (i, curve) in panel.curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let within = |(x, y): &(f64, f64)| {
            x.is_finite() && y.is_finite() && (panel.y.0..=panel.y.1).contains(y)
        };
        let inside = || curve.points.iter().zip(0..).filter(|(point, _)| within(point));
        let points: Vec<(f64, f64)> = inside().map(|((x, y), _)| (*x, scale(*y))).collect();
        for ((x, y), at) in
            inside().filter(|(_, at)| curve.reach.get(*at).is_some_and(|r| *r > 0.0))
        {
            let (from, to) = (y - curve.reach[at], y + curve.reach[at]);
            let end = |y: f64| (*x, scale(y.clamp(panel.y.0, panel.y.1)));
            let (a, b) = (chart.backend_coord(&end(from)), chart.backend_coord(&end(to)));
            let (a, b) = (area_coord(area, a), area_coord(area, b));
            area.draw(&PathElement::new([a, b], colour.stroke_width(1)))?;
            for (x, y) in [a, b] {
                area.draw(&PathElement::new([(x - 3, y), (x + 3, y)], colour.stroke_width(1)))?;
            }
        }
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
