// SPDX-License-Identifier: GPL-2.0-only
//! The `model` room of Onbeat: the words every other room shares.
//!
//! - [`units`]: durations and percentages as people write them, exact.
//! - [`taskset`]: the task-set file; [`workgen`]: the execution times it stands for.
//! - [`policy`]: which scheduling policies have a name.
//! - [`rank`]: hard and soft reservations, servers of best effort.
//! - [`others`]: in which order best-effort work is served.
//! - [`numbers`]: numbers of the core that all rooms keep to.
//! - [`event`], [`run`]: what every world records; [`metrics`]: what the records amount to.
//! - [`auto`]: period and budget of a program that nobody has measured.
//! - [`beat`]: the rhythm of a thread, inferred from when it woke.
//! - [`agreement`]: how far two runs are the same.
//! - [`protocol`]: what programs and the reservation service say to each other.
//!
//! All times are unsigned nanoseconds; all utilizations are exact rationals.

pub mod agreement;
pub mod auto;
pub mod beat;
pub mod event;
pub mod metrics;
pub mod numbers;
pub mod others;
pub mod policy;
pub mod protocol;
pub mod rank;
pub mod run;
pub mod taskset;
pub mod units;
pub mod workgen;
