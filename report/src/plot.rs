// SPDX-License-Identifier: GPL-2.0-only
//! Pictures as inline SVG. Two colours carry one meaning everywhere: blue is Onbeat, grey the kernel's own schedulers;
//! vermilion marks the worst. They differ in lightness too (Okabe and Ito's palette), and every value is also written.

mod curves;
mod lines;
mod progress;
mod rows;

use onbeat_model::policy::Policy;
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
    // Fluid width, a name for screen readers.
    let (w, h) = size;
    let title: String = title.chars().filter(|c| !matches!(c, '<' | '>' | '&' | '"')).collect();
    let head = format!("<svg width=\"{w}\" height=\"{h}\"");
    let fluid = format!(
        "<svg role=\"img\" aria-label=\"{title}\" style=\"width:100%;max-width:{w}px;height:auto\""
    );
    Ok(svg.replacen(&head, &fluid, 1))
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

/// The name a row of figures goes by: the policy, and its world where both occur.
pub(crate) fn label(o: &Outcome) -> String {
    o.policy.clone()
}
