// SPDX-License-Identifier: GPL-2.0-only
//! Global EDF by density.

use super::exact::{at_most, densest, density, int};
use crate::sporadic::{Sporadic, Verdict, ratio};

/// Σδ ≤ m − (m − 1)·max δ with densities δ = C / min(D, T). Any deadlines.
///
/// Source: Goossens, Funk and Baruah 2003, theorem 5 (utilizations); with densities Bertogna, Cirinei and Lipari 2005,
/// theorem 4.
pub fn gfb(tasks: &[Sporadic], cpus: usize) -> Verdict {
    let Some(most) = densest(tasks) else { return Verdict::Schedulable };
    if cpus == 0 || most.0 > most.1 {
        return Verdict::Unknown;
    }
    let limit = int(cpus) - int(cpus - 1) * ratio(most.0, most.1);
    Verdict::sufficient(at_most(tasks.iter().map(density), &limit) == Some(true))
}
