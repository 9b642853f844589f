// SPDX-License-Identifier: GPL-2.0-only
//! How arguments that several verbs have are read.

use onbeat_kernel::machine::parse_cpus;
use onbeat_model::units::parse_duration;

/// Nanoseconds.
pub type Time = u64;

/// CPUs by their numbers. (A plain list would be an option that may be given several times.)
#[derive(Debug, Clone)]
pub struct Cpus(pub Vec<u32>);

/// A time such as `41.7ms`.
///
/// # Errors
/// It is none; says what to write.
pub fn duration(text: &str) -> Result<Time, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// CPUs such as `0-3,6`.
///
/// # Errors
/// They are none; says what to write.
pub fn cpus(text: &str) -> Result<Cpus, String> {
    parse_cpus(text).map(Cpus)
}
