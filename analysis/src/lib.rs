// SPDX-License-Identifier: GPL-2.0-only
//! The `analysis` room of Onbeat: what fits, where, and how much is left.
//!
//! Everything is computed with exact rationals: nine tasks of a ninth of a CPU fill that CPU and do not overflow it.

pub mod admission;
pub mod amount;
pub mod family;
mod flow;
pub mod generate;
pub mod global;
pub mod groups;
mod islands;
pub mod limit;
pub mod machine;
pub mod one_cpu;
pub mod partition;
pub mod plan;
pub mod provision;
pub mod registry;
pub mod semi;
pub mod split_cd;
pub mod sporadic;
pub mod truncated;
pub mod verdict;
