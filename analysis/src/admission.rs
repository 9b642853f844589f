// SPDX-License-Identifier: GPL-2.0-only
//! Admission: may this reservation be granted beside those that are, and if not, what could be?
//!
//! The test is the utilization test, exact (see `amount`). A CPU offers 1 less the best-effort share and less what
//! other scheduling classes hold on it. In each *domain* (the CPUs that share one queue) the reservations' loads must
//! be divisible among the CPUs they may use, and no load may exceed what one such CPU offers, since a reservation runs
//! on one CPU at a time. A load is Q / min(D, P): utilization, or density where the deadline is shorter than the
//! period. Partitioned EDF then meets all deadlines of implicit-deadline reservations (Liu and Layland 1973); global
//! and clustered EDF serve Q every P with bounded tardiness (Devi and Anderson 2005). Where reservations may be split
//! each CPU is tested exactly by its demand (`semi`). Under rate-monotonic order the test says what fits, not what is
//! in time: the service takes that order only from who asks for no isolation. Under an order that chooses all are
//! granted: it is made for what does not fit. Where hard ones go before soft ones `plan::ranked` has the test.

use std::collections::BTreeMap;

use onbeat_model::protocol::{Holder, Nearest, Refusal};
use onbeat_model::units::{Fraction, HOUR, format_duration};

use crate::amount::{self, Amount};
use crate::machine::{Domains, Machine};
use crate::plan::{Demand, Place, Placed, Plan};

/// How many holders a refusal names; the rest are summed up.
const HOLDERS_SHOWN: usize = 20;

/// The book of reservations: a plan, and words for what it has no place for.
#[derive(Debug, Clone)]
pub struct Admission {
    plan: Plan,
}

impl Admission {
    /// An empty book.
    pub fn new(machine: Machine) -> Self {
        Self { plan: Plan::new(machine) }
    }

    /// Books the demand under `id` if it fits. An `id` in use is replaced only if the new demand fits without the old.
    ///
    /// # Errors
    /// What is missing, who holds it, and what would fit; nothing is changed then.
    pub fn admit(&mut self, id: u32, demand: &Demand) -> Result<Place, Box<Refusal>> {
        if self.takes(demand) {
            return Ok(self.plan.place(id, demand).0);
        }
        let before = self.plan.get(id).is_some().then(|| self.plan.clone());
        self.plan.fit(id, demand).ok_or_else(|| {
            let refusal = self.refusal(demand);
            self.plan = before.unwrap_or_else(|| self.plan.clone());
            Box::new(refusal)
        })
    }

    /// Takes over a reservation that another book placed `at` ([`Plan::keep`]): it is booked if it fits. Says where it
    /// is served now, and whether it fits.
    pub fn keep(&mut self, id: u32, demand: &Demand, at: &Place) -> (Place, bool) {
        self.plan.keep(id, demand, at)
    }

    /// The one of that id goes on under another, in its place. Whether that was possible at once ([`Plan::rename`]).
    pub fn rename(&mut self, id: u32, to: u32) -> bool {
        self.plan.rename(id, to)
    }

    /// To be called when all have been taken over ([`Plan::tidy`]).
    pub fn tidy(&mut self) {
        self.plan.tidy();
    }

    /// Takes over a reservation as [`Admission::keep`] does, wherever another book had placed it.
    pub fn move_in(&mut self, id: u32, demand: &Demand) -> (Place, bool) {
        self.plan.place(id, demand)
    }

    /// Gives a reservation back; whether there was one.
    pub fn release(&mut self, id: u32) -> bool {
        self.plan.remove(id).is_some()
    }

    /// Those that are booked, by id.
    pub fn granted(&self) -> impl Iterator<Item = (u32, &Placed)> {
        self.plan.placed().filter(|(_, placed)| placed.fits)
    }

    /// Where one that is booked is served.
    pub fn place_of(&self, id: u32) -> Option<&Place> {
        self.plan.get(id).filter(|placed| placed.fits).map(|placed| &placed.at)
    }

    /// Sum of the reserved loads, in CPUs, to a billionth if it is no short fraction.
    pub fn reserved(&self) -> Fraction {
        amount::above(self.loads(), self.granted().count())
    }

    /// What reservations could still take over all CPUs, to a billionth if it is no short fraction.
    pub fn free(&self) -> Fraction {
        let taken = self.loads() + self.plan.machine().drawn().sum::<Amount>();
        amount::below(self.plan.offered().saturating_sub(taken), self.slack())
    }

    fn loads(&self) -> Amount {
        self.granted().map(|(_, placed)| placed.load).sum()
    }

    /// By how many units what is free may be rounded up.
    fn slack(&self) -> usize {
        self.granted().count() + self.plan.machine().slack()
    }

    /// Whether and where the demand would fit, without booking it.
    ///
    /// # Errors
    /// As [`Admission::admit`].
    pub fn test(&self, demand: &Demand) -> Result<Place, Box<Refusal>> {
        if self.takes(demand) {
            return Ok(self.plan.clone().place(u32::MAX, demand).0);
        }
        self.plan.trial(demand).ok_or_else(|| Box::new(self.refusal(demand)))
    }

    /// Whether it is granted though it may not fit, as it is where the order chooses who is in time.
    fn takes(&self, demand: &Demand) -> bool {
        self.plan.machine().takes_all && !self.plan.allowed(demand).is_empty()
    }

    fn refusal(&self, demand: &Demand) -> Refusal {
        let free = self.plan.room(demand);
        let allowed = self.plan.allowed(demand);
        let one_cpu = self.plan.greatest(&allowed);
        let domains = self.plan.machine().domains;
        let splits = matches!(domains, Domains::Split { .. });
        let ranks = self.plan.machine().servers.is_some();
        let over = demand.over();
        let reason = if allowed.is_empty() {
            "none of the CPUs it may use is on line".to_string()
        } else if demand.load() > one_cpu {
            "it asks for more of a CPU than any CPU it may use offers to reservations".into()
        } else if ranks && demand.hard {
            "no CPU it may use has enough left for a hard one beside what soft ones need".into()
        } else if self.plan.lightest().is_some_and(|most| demand.load() > most) {
            "it is too heavy for a soft one: on m CPUs its load must be below what hard ones leave / (2m - 2)".into()
        } else if domains == Domains::Global && demand.cpus.is_some() {
            "no CPU it may use has enough left, nor can one be spared by those that may use more"
                .into()
        } else if domains == Domains::Global {
            "the CPUs it may use have not enough left together".into()
        } else if splits {
            "no CPU it may use has enough left, nor have several together in their windows".into()
        } else {
            let group = if domains == Domains::Partitioned { "CPU" } else { "cluster" };
            format!("no {group} it may use has enough left")
        };
        // Greatest whole budget with budget / min(D, P) <= free.
        let budget = Some(amount::budget(free, over)).filter(|b| (1..=demand.budget).contains(b));
        // Shortest whole period with the same budget; it helps only where the deadline moves with the period.
        let moves = demand.deadline == demand.period;
        let period = moves.then(|| amount::period(demand.budget, free, HOUR)).flatten();
        // Windows change with the period: whether a longer one helps only a trial tells.
        let longer = |period| Demand { period, deadline: period, ..demand.clone() };
        let tried = splits || ranks && demand.hard;
        let period = period.filter(|p| !tried || self.plan.trial(&longer(*p)).is_some());
        // Budget and period follow; the deadline does not, and it is what counts where it is shorter.
        let within = match moves {
            true => String::new(),
            false => {
                format!(" ({} within {})", format_duration(demand.budget), format_duration(over))
            }
        };
        Refusal {
            reason: reason + &within,
            budget_ns: demand.budget,
            period_ns: demand.period,
            asked: demand.density(),
            free: amount::below(free, self.slack()),
            holders: self.holders(&allowed),
            nearest: Nearest { budget_ns: budget, period_ns: period },
        }
    }

    /// Who holds something on any of these CPUs, greatest first.
    fn holders(&self, cpus: &[usize]) -> Vec<Holder> {
        let machine = self.plan.machine();
        let mut held: BTreeMap<&str, (Amount, usize)> = BTreeMap::new();
        for cpu in cpus {
            for (name, u) in &machine.cpus[*cpu].held {
                let sum = held.entry(name).or_default();
                *sum = (sum.0 + amount::of(*u), sum.1 + 1);
            }
        }
        let mut list: Vec<(String, (Amount, usize))> =
            held.into_iter().map(|(name, u)| (name.to_string(), u)).collect();
        let drawn: Vec<Amount> = machine.drawn().collect();
        if !drawn.is_empty() {
            list.push(("best effort's servers".into(), (drawn.iter().sum(), drawn.len())));
        }
        let mask = machine.mask(cpus);
        for (id, Placed { demand, at, load, .. }) in self.granted() {
            if at.all_cpus() & mask != 0 {
                list.push((format!("{} (reservation {id})", demand.name), (*load, 1)));
            }
        }
        list.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
        if list.len() > HOLDERS_SHOWN + 1 {
            let rest = list.split_off(HOLDERS_SHOWN);
            let sum = rest.iter().fold((0, 0), |sum, r| (sum.0 + r.1.0, sum.1 + r.1.1));
            list.push((format!("{} others together", rest.len()), sum));
        }
        let fraction = |(sum, terms)| amount::above(sum, terms);
        list.into_iter().map(|(name, u)| Holder { name, utilization: fraction(u) }).collect()
    }
}

#[cfg(test)]
mod tests;
