// SPDX-License-Identifier: GPL-2.0-only
//! What ordinary users may ask of the service.

use onbeat_analysis::amount::{self, Amount, WHOLE};
use onbeat_analysis::plan::{Demand, Place};
use onbeat_model::protocol::{Holder, Nearest, Refusal};
use onbeat_model::units::{Fraction, HOUR, US};

/// Shortest budget of an ordinary user, ns: what budgets are enforced to. Shorter ones would make
/// the kernel work more than the program.
pub const BUDGET_MIN: u64 = 50 * US;
/// Reservations an ordinary user may hold.
pub const RESERVATIONS: usize = 64;
/// Of these, groups: there are [`onbeat_core::ffi::OB_MAX_GROUPS`] for all.
pub const GROUPS: usize = 8;
/// Threads of a process that an ordinary user may reserve for: each is looked at.
pub const THREADS: usize = 4096;

/// Rounded up: what a user holds is rounded down.
fn up(total: Fraction) -> Amount {
    amount::of(total) + 1
}

/// Whether a user who may hold `total` CPUs, holds `held`, of which `leaving` are over but not yet free, and has not
/// yet heard of `ended` others that they are over, may have `demand` too. `test` is the admission test, for the nearest
/// values that would be granted.
///
/// # Errors
/// The refusal.
pub fn user(
    total: Fraction,
    held: &[(u32, &Demand)],
    leaving: usize,
    ended: usize,
    demand: &Demand,
    test: impl Fn(&Demand) -> Result<Place, Box<Refusal>>,
) -> Result<(), Box<Refusal>> {
    let used: Amount = held.iter().map(|(_, d)| d.load()).sum();
    let mut free = up(total).saturating_sub(used);
    let reason = if held.len() + ended >= RESERVATIONS {
        free = 0;
        let over = match ended + leaving {
            0 => String::new(),
            n => format!("; {n} of them have ended, but are not free yet"),
        };
        format!("one user may hold {RESERVATIONS} reservations{over}")
    } else if demand.load() > free {
        format!(
            "this user may hold {} in all (scx_onbeat --max-share; an administrator can give a user or group more \
             with --limit)",
            cpus(total)
        )
    } else {
        return Ok(());
    };
    let budget = Some(amount::budget(free, demand.over()));
    let budget = budget.filter(|b| *b >= BUDGET_MIN).and_then(|budget| {
        match test(&Demand { budget, ..demand.clone() }) {
            Ok(_) => Some(budget),
            Err(refusal) => refusal.nearest.budget_ns.filter(|b| *b >= BUDGET_MIN),
        }
    });
    let period = (demand.deadline == demand.period)
        .then(|| amount::period(demand.budget, free.min(WHOLE), HOUR))
        .flatten()
        .and_then(|period| match test(&Demand { period, deadline: period, ..demand.clone() }) {
            Ok(_) => Some(period),
            Err(refusal) => refusal.nearest.period_ns,
        });
    let mut holders: Vec<Holder> = held
        .iter()
        .map(|(id, d)| Holder {
            name: format!("{} (reservation {id})", d.name),
            utilization: d.density(),
        })
        .collect();
    holders.sort_by(|a, b| b.utilization.cmp(&a.utilization).then_with(|| a.name.cmp(&b.name)));
    Err(Box::new(Refusal {
        reason,
        budget_ns: demand.budget,
        period_ns: demand.period,
        asked: demand.density(),
        free: amount::below(free, held.len() + 1),
        holders,
        nearest: Nearest { budget_ns: budget, period_ns: period },
    }))
}

/// A number of CPUs in words, to hundredths.
fn cpus(x: Fraction) -> String {
    let hundredths = (x * 100).round().to_integer();
    match (hundredths / 100, hundredths % 100) {
        (1, 0) => "1 CPU".into(),
        (whole, 0) => format!("{whole} CPUs"),
        (whole, rest) => format!("{whole}.{rest:02} CPUs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(budget: u64, period: u64) -> Demand {
        Demand { name: "x".into(), budget, period, deadline: period, cpus: None, hard: false }
    }

    fn yes(_: &Demand) -> Result<Place, Box<Refusal>> {
        Ok(Place { domain: 0, cpus: 1, apart: false, split: None })
    }

    #[test]
    fn six_thirds_are_exactly_two_cpus() {
        let third = demand(100_000, 300_000);
        let held: Vec<(u32, &Demand)> = (0..5).map(|i| (i, &third)).collect();
        let two = Fraction::from_integer(2);
        assert!(user(two, &held, 0, 0, &third, yes).is_ok());
        let more = demand(100_001, 300_000);
        let refusal = user(two, &held, 0, 0, &more, yes).unwrap_err();
        assert_eq!(refusal.free, Fraction::new(1, 3));
        assert_eq!(refusal.nearest.budget_ns, Some(100_000));
        assert_eq!(refusal.nearest.period_ns, Some(300_003));
        assert!(refusal.reason.contains("2 CPUs"), "{}", refusal.reason);
    }

    #[test]
    fn the_number_of_reservations_is_limited_however_small_they_are() {
        let tiny = demand(50_000, HOUR);
        let held: Vec<(u32, &Demand)> = (0..64).map(|i| (i, &tiny)).collect();
        let two = Fraction::from_integer(2);
        let refusal = user(two, &held, 0, 0, &tiny, yes).unwrap_err();
        assert!(refusal.reason.contains("64 reservations"), "{}", refusal.reason);
        assert_eq!(refusal.nearest, Nearest::default());
        assert!(user(two, &held[..4], 2, 59, &tiny, yes).is_ok());
        let refusal = user(two, &held[..4], 0, 60, &tiny, yes).unwrap_err();
        assert!(refusal.reason.contains("60 of them have ended"), "{}", refusal.reason);
    }
}
