// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: discrete events around the same core that the kernel runs.
//!
//! [`simulate`] plays one policy of a task set on simulated CPUs and returns a
//! [`Run`](onbeat_model::run::Run). It is deterministic: same task set, same run.

mod core;
mod engine;
mod load;
mod locks;
mod plan;
mod record;
mod releases;

pub use crate::core::{Core, NICE_0, NOBODY, Reservation, weight};
pub use engine::{Detail, Engine, Stuck};
pub use load::Load;
pub use plan::{
    FirstMiss, SHARE_LAG, SHARE_QUANTUM, SimError, figures, first_miss, prepare, reservations,
    simulate, simulate_with,
};
