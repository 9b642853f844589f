// SPDX-License-Identifier: GPL-2.0-only
//! The `report` room of Onbeat: what people see of runs.
//!
//! - [`Outcome`]: the figures of one run, which tables and pages are made from; [`result_json`]: the same for programs.
//! - [`table`]: a table for the terminal.
//! - [`html`]: a page that opens from disk, with curves, bars, tables and the claims of papers beside ours.
//! - `answer`: who kept every promise, and who is best.
//! - `bounds`: measured tardiness beside what analysis says.
//! - [`claims`]: claims of papers as data, checked against outcomes.
//! - [`limit`]: what a scheduler that knows the future could do.
//! - [`plot`]: pictures, among them curves against one quantity.
//! - [`perfetto`]: a trace for the Perfetto UI.

mod answer;
mod bounds;
pub mod claims;
pub mod html;
mod late;
pub mod limit;
mod outcome;
pub mod perfetto;
pub mod plot;
pub mod table;

pub use outcome::{Outcome, result_json};
