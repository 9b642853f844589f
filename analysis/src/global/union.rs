// SPDX-License-Identifier: GPL-2.0-only
//! All tests of global EDF together.

use super::{bak::bak, bar::bar, bcl::bcl_iterative, ff_dbf::ff_dbf, gfb::gfb, rta};
use crate::one_cpu::edf::qpa;
use crate::sporadic::{Sporadic, Verdict};

/// The tests that [`any`] asks, the quick ones first. BCL is not among them: its iterative form accepts all that it
/// does.
pub const EDF: [fn(&[Sporadic], usize) -> Verdict; 6] =
    [gfb, bcl_iterative, |t, m| Verdict::sufficient(rta::edf(t, m).is_some()), bak, ff_dbf, bar];

/// Schedulable by global EDF if any of [`EDF`] says so; on one CPU the exact test.
pub fn any(tasks: &[Sporadic], cpus: usize) -> Verdict {
    if cpus == 1 {
        return qpa(tasks);
    }
    Verdict::sufficient(EDF.iter().any(|test| test(tasks, cpus) == Verdict::Schedulable))
}
