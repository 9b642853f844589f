// SPDX-License-Identifier: GPL-2.0-only
//! Asks for a budget, or for as much of it as there is room for: a refusal says how much that is.

use onbeat_client::{Error, Grant, Params, Service};
use onbeat_kernel::limits::BUDGET_MIN;

/// Budgets and periods are multiples of this, ns, for people to read.
pub const GRAIN: u64 = 10_000;

/// What a reservation has after another budget was asked for, ns.
#[derive(Debug, Clone, Copy)]
pub struct Has {
    /// CPU time in each period.
    pub budget: u64,
    /// The period.
    pub period: u64,
    /// It is less than asked for.
    pub refused: bool,
}

/// Reserves for process `pid` what is asked for, or as much of it as there is room for; says which budget that is, ns.
///
/// # Errors
/// As [`Service::reserve`]; [`Error::Refused`] if there is no room for anything.
pub fn reserve(
    service: &mut Service,
    pid: u32,
    name: &str,
    params: &Params,
) -> Result<(Grant, u64), Error> {
    match service.reserve(pid, name, params) {
        Err(Error::Refused(refusal)) => match refusal.nearest.budget_ns {
            Some(nearest) if nearest >= BUDGET_MIN => {
                let smaller = params.clone().resized(nearest, params.period());
                Ok((service.reserve(pid, name, &smaller)?, nearest))
            }
            _ => Err(Error::Refused(refusal)),
        },
        granted => Ok((granted?, params.budget())),
    }
}

/// Has reservation `id`, of this budget and period so far, have another budget and period, all in ns, or as much of
/// that as there is room for.
///
/// # Errors
/// As [`Service::resize`], but for a refusal.
pub fn resize(
    service: &mut Service,
    id: u32,
    old: (u64, u64),
    (budget, period): (u64, u64),
) -> Result<Has, Error> {
    let unchanged = Has { budget: old.0, period: old.1, refused: true };
    let (budget, refused) = match service.resize(id, budget, period) {
        Err(Error::Refused(refusal)) => {
            let better = |nearest: &u64| *nearest > old.0 || period != old.1;
            let nearest = refusal.nearest.budget_ns.filter(|n| *n >= BUDGET_MIN).filter(better);
            let Some(nearest) = nearest else { return Ok(unchanged) };
            match service.resize(id, nearest, period) {
                Err(Error::Refused(_)) => return Ok(unchanged),
                other => (nearest, other.map(|_| true)?),
            }
        }
        other => (budget, other.map(|_| false)?),
    };
    Ok(Has { budget, period, refused })
}

/// A budget that people like to read, at most `most`.
pub fn rounded(budget: u64, most: u64) -> u64 {
    budget.next_multiple_of(GRAIN).min(most / GRAIN * GRAIN).max(BUDGET_MIN)
}
