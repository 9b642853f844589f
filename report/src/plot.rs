// SPDX-License-Identifier: GPL-2.0-only
//! Pictures as inline SVG. Two colours carry one meaning everywhere: blue is Onbeat, grey the kernel's own schedulers;
//! vermilion marks the worst. They differ in lightness too (Okabe and Ito's palette), and every value is also written.

mod curves;
mod lines;
mod progress;
mod rows;

use onbeat_model::policy::Policy;
use plotters::chart::MeshStyle;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::Outcome;

pub(crate) use curves::{curves, has_curves};
pub use lines::{Curve, Panel, panels};
pub use progress::progress;
pub(crate) use rows::{frames, quantities};

pub(crate) const INK: RGBColor = RGBColor(0x22, 0x26, 0x2a);
pub(crate) const FAINT: RGBColor = RGBColor(0xd5, 0xd9, 0xdd);
pub(crate) const OURS: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub(crate) const OTHERS: RGBColor = RGBColor(0x6b, 0x75, 0x80);
pub(crate) const WORST: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

/// Blue for Onbeat's own policies, grey for all others.
pub(crate) fn colour(policy: &str) -> RGBColor {
    let ours = policy.parse::<Policy>().is_ok_and(|p| p.is_core());
    if ours { OURS } else { OTHERS }
}

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct PlotError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// A drawing of that many pixels; the result scales to the width of the page.
pub(crate) fn draw(
    size: (u32, u32),
    title: &str,
    paint: impl FnOnce(&Area<'_>) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&root)?;
        root.present()?;
    }
    // Fluid width, a name for screen readers, colours that a dark screen can show.
    let (w, h) = size;
    let title: String = title.chars().filter(|c| !matches!(c, '<' | '>' | '&' | '"')).collect();
    let head = format!("<svg width=\"{w}\" height=\"{h}\"");
    let fluid = format!(
        "<svg role=\"img\" aria-label=\"{title}\" style=\"width:100%;max-width:{w}px;height:auto\""
    );
    let svg = svg.replacen(&head, &fluid, 1);
    Ok(svg.replacen('>', &format!(">\n<style>{}</style>", dark()), 1))
}

/// What the colours are on a dark screen: lighter, and white paper dark.
fn dark() -> String {
    let pairs = [
        (INK, RGBColor(0xe4, 0xe7, 0xea)),
        (FAINT, RGBColor(0x43, 0x4a, 0x51)),
        (OURS, RGBColor(0x56, 0xb4, 0xe9)),
        (OTHERS, RGBColor(0xa2, 0xab, 0xb3)),
        (WORST, RGBColor(0xff, 0x8c, 0x3a)),
        (WHITE, RGBColor(0x16, 0x19, 0x1c)),
    ];
    let hex = |c: RGBColor| format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2);
    let rule = |(light, dark)| {
        let (light, dark) = (hex(light), hex(dark));
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}")
    };
    let rules: String = pairs.map(rule).concat();
    format!("@media (prefers-color-scheme:dark){{{rules}}}")
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// A text style; anchors as in SVG.
pub(crate) fn font(
    size: u32,
    colour: RGBColor,
    horizontal: plotters::style::text_anchor::HPos,
) -> TextStyle<'static> {
    use plotters::style::text_anchor::{Pos, VPos};
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(horizontal, VPos::Center))
}

/// The mesh of a chart of two quantities.
type Mesh<'a, 'b, 'c> = MeshStyle<'a, 'b, RangedCoordf64, RangedCoordf64, SVGBackend<'c>>;

/// Faint lines across and no others, numbers at both axes.
fn plain<'m, 'a, 'b, 'c>(mesh: &'m mut Mesh<'a, 'b, 'c>) -> &'m mut Mesh<'a, 'b, 'c> {
    mesh.disable_x_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .x_label_formatter(&|x: &f64| written(*x))
        .y_label_formatter(&|y: &f64| written(*y))
        .label_style(("sans-serif", 15, &INK))
        .axis_desc_style(("sans-serif", 15, &INK))
}

/// A number at an axis, without zeros that say nothing.
fn written(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// The name a row of figures goes by: the policy, and its world where both occur.
pub(crate) fn label(o: &Outcome) -> String {
    o.policy.clone()
}
