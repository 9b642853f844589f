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
//! in time: the service takes that order only from who asks for no isolation.

use std::collections::BTreeMap;

use num_traits::Zero;

use onbeat_model::protocol::{Holder, Nearest, Refusal};
use onbeat_model::units::{Fraction, HOUR, format_duration};

use crate::amount::{self, Amount, WHOLE};
use crate::flow::Flow;
use crate::partition::Packing;
use crate::semi::{Planner, SHARE_LEAST, Share};
use crate::sporadic::Sporadic;

/// How many holders a refusal names; the rest are summed up.
const HOLDERS_SHOWN: usize = 20;

/// How far a queue reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domains {
    /// One queue for all CPUs.
    Global,
    /// One queue for each of that many equal, contiguous groups of CPUs.
    Clustered(u32),
    /// One queue for each CPU.
    Partitioned,
    /// The same, and what fits no CPU is split over several.
    Split,
}

/// Which domain gets a reservation that fits in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fit {
    /// The first in the order of the CPUs.
    #[default]
    First,
    /// The one with most left (Kato's EDF-WMR), so that loads stay even.
    Worst,
}

/// One CPU and who holds how much of it beside reservations.
#[derive(Debug, Clone)]
struct Cpu {
    id: u32,
    held: Vec<(String, Fraction)>,
}

impl Cpu {
    /// What it offers to reservations, rounded up.
    fn offer(&self) -> Amount {
        WHOLE.saturating_sub(self.held.iter().map(|(_, u)| amount::of(*u)).sum())
    }

    /// The same, as a fraction.
    fn offered(&self) -> Fraction {
        amount::below(self.offer(), self.held.len())
    }
}

/// CPUs, their domains, and how reservations are placed.
#[derive(Debug, Clone)]
pub struct Machine {
    cpus: Vec<Cpu>,
    domains: Domains,
    fit: Fit,
}

impl Machine {
    /// CPUs on line by number, each of which keeps `share` (0 to 1) for best-effort work.
    pub fn new(cpus: &[u32], share: Fraction, domains: Domains, fit: Fit) -> Self {
        let held = match share.is_zero() {
            true => vec![],
            false => vec![("best-effort share".to_string(), share)],
        };
        let cpus = cpus.iter().map(|id| Cpu { id: *id, held: held.clone() }).collect();
        Self { cpus, domains, fit }
    }

    /// Notes that somebody else, such as SCHED_DEADLINE or SCHED_FIFO tasks, holds part of a CPU.
    /// A CPU that is not on line is ignored.
    pub fn hold(&mut self, cpu: u32, name: &str, utilization: Fraction) {
        if let Some(cpu) = self.cpus.iter_mut().find(|c| c.id == cpu) {
            cpu.held.push((name.to_string(), utilization));
        }
    }

    /// CPU indices of each domain.
    fn domains(&self) -> Vec<Vec<usize>> {
        let n = self.cpus.len();
        let size = match self.domains {
            Domains::Global => n,
            Domains::Clustered(k) => n.div_ceil(k.max(1) as usize),
            Domains::Partitioned | Domains::Split => 1,
        };
        (0..n).collect::<Vec<_>>().chunks(size.max(1)).map(<[usize]>::to_vec).collect()
    }

    fn planner(&self) -> Option<Planner> {
        let fit = if self.fit == Fit::Worst { Packing::Worst } else { Packing::First };
        let offers: Vec<_> = self.cpus.iter().map(Cpu::offered).collect();
        (self.domains == Domains::Split).then(|| Planner::new(&offers, fit, SHARE_LEAST))
    }

    fn flows(&self) -> Vec<Flow> {
        let offers: Vec<_> = (0..self.cpus.len()).map(|c| self.offer(c)).collect();
        self.domains().iter().map(|_| Flow::new(offers.clone())).collect()
    }

    /// Whether the demand may use the CPU of that index.
    fn may(&self, cpu: usize, demand: &Demand) -> bool {
        demand.cpus.as_ref().is_none_or(|list| list.contains(&self.cpus[cpu].id))
    }

    /// What a CPU offers to reservations, 0 or more.
    fn offer(&self, cpu: usize) -> Amount {
        self.cpus[cpu].offer()
    }

    /// By how many units the sum of all offers may be rounded up.
    fn slack(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.held.len()).sum()
    }
}

/// What a reservation asks for; times in ns, budget and period at least 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// For refusals that name it as a holder.
    pub name: String,
    /// CPU time per period.
    pub budget: u64,
    /// Period.
    pub period: u64,
    /// Relative deadline.
    pub deadline: u64,
    /// CPUs it may use; `None` = all.
    pub cpus: Option<Vec<u32>>,
}

impl Demand {
    /// As the tests of each CPU see it.
    fn sporadic(&self) -> Sporadic {
        Sporadic::served(self.budget, self.period, self.deadline)
    }

    /// Over what its budget counts: min(D, P), at least 1 ns.
    pub fn over(&self) -> u64 {
        self.period.min(self.deadline).max(1)
    }

    /// Q / min(D, P), rounded down.
    pub fn load(&self) -> Amount {
        amount::floor(self.budget, self.over())
    }

    /// Q / min(D, P).
    pub fn density(&self) -> Fraction {
        Fraction::new(self.budget, self.over())
    }
}

/// Where a reservation was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Index of the domain, in the order of the CPUs.
    pub domain: usize,
    /// CPUs on which it will be served.
    pub cpus: Vec<u32>,
    /// How it is split over them, if it is; then its first CPU's domain is the one named.
    pub split: Option<Split>,
}

/// A reservation in parts: in the k-th window of a period it has its k-th share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Length of each window, ns.
    pub window: u64,
    /// CPU and budget, ns, of each window.
    pub shares: Vec<(u32, u64)>,
}

/// The book of reservations.
#[derive(Debug, Clone)]
pub struct Admission {
    machine: Machine,
    granted: BTreeMap<u32, (Demand, Placement)>,
    /// Who takes how much of which CPU, by domain.
    flows: Vec<Flow>,
    /// Who has which share of which CPU, where reservations may be split.
    planner: Option<Planner>,
    /// Sum of the granted loads.
    reserved: Amount,
    /// Sum of what the CPUs offer.
    offered: Amount,
}

/// Key of a demand that is only tested; reservations use their 32-bit id.
const TRIAL: u64 = u64::MAX;

impl Admission {
    /// An empty book.
    pub fn new(machine: Machine) -> Self {
        let (flows, planner) = (machine.flows(), machine.planner());
        let offered = machine.cpus.iter().map(Cpu::offer).sum();
        Self { machine, granted: BTreeMap::new(), flows, planner, reserved: 0, offered }
    }

    /// Books the demand under `id` if it fits. An `id` in use is replaced only if the new demand fits without the old.
    ///
    /// # Errors
    /// What is missing, who holds it, and what would fit; nothing is changed then.
    pub fn admit(&mut self, id: u32, demand: Demand) -> Result<Placement, Box<Refusal>> {
        let old = self.granted.get(&id).cloned();
        self.release(id);
        let placed = self.test(&demand);
        let booked = match &placed {
            Ok(placement) => Some((demand, placement.clone())),
            Err(_) => old,
        };
        if let Some((demand, placement)) = booked {
            self.reserved += demand.load();
            if let Some(planner) = &mut self.planner {
                let may = |cpu: usize| self.machine.may(cpu, &demand);
                let shares = planner.place(id.into(), &demand.sporadic(), may);
                debug_assert!(shares.is_some(), "what was tested fits");
                self.granted.insert(id, (demand, placement));
                return placed;
            }
            let cpus = self.allowed(&self.machine.domains()[placement.domain], &demand);
            let flow = &mut self.flows[placement.domain];
            let served = flow.serve(id.into(), &cpus, Some(demand.load()));
            debug_assert_eq!(served, demand.load(), "what was tested fits");
            self.granted.insert(id, (demand, placement));
        }
        placed
    }

    /// Gives a reservation back; whether there was one.
    pub fn release(&mut self, id: u32) -> bool {
        let Some((demand, placement)) = self.granted.remove(&id) else { return false };
        self.reserved -= demand.load();
        match &mut self.planner {
            Some(planner) => planner.remove(id.into()),
            None => drop(self.flows[placement.domain].remove(id.into())),
        }
        true
    }

    /// The demand and placement of a reservation.
    pub fn get(&self, id: u32) -> Option<&(Demand, Placement)> {
        self.granted.get(&id)
    }

    /// Sum of the reserved loads, in CPUs, to a billionth if it is no short fraction.
    pub fn reserved(&self) -> Fraction {
        amount::above(self.reserved, self.granted.len())
    }

    /// What reservations could still take over all CPUs, to a billionth if it is no short fraction.
    pub fn free(&self) -> Fraction {
        amount::below(self.offered.saturating_sub(self.reserved), self.slack())
    }

    /// By how many units what is free may be rounded up.
    fn slack(&self) -> usize {
        self.granted.len() + self.machine.slack()
    }

    /// Goes over to another machine, after CPUs came or went or others took time: books everything again in the order
    /// of ids. Returns the ids that no longer fit, with their refusals; they are no longer booked.
    pub fn rebook(&mut self, machine: Machine) -> Vec<(u32, Box<Refusal>)> {
        (self.flows, self.planner) = (machine.flows(), machine.planner());
        self.offered = machine.cpus.iter().map(Cpu::offer).sum();
        self.reserved = 0;
        self.machine = machine;
        let mut out = Vec::new();
        for (id, (demand, _)) in std::mem::take(&mut self.granted) {
            if let Err(refusal) = self.admit(id, demand) {
                out.push((id, refusal));
            }
        }
        out
    }

    /// Whether and where the demand would fit, without booking it.
    ///
    /// # Errors
    /// As [`Admission::admit`].
    pub fn test(&self, demand: &Demand) -> Result<Placement, Box<Refusal>> {
        let load = demand.load();
        if let Some(planner) = &self.planner {
            return self.test_split(planner.clone(), demand);
        }
        let free: Vec<(usize, Amount)> = self
            .machine
            .domains()
            .iter()
            .enumerate()
            .map(|(domain, cpus)| (domain, self.free_in(domain, cpus, demand)))
            .collect();
        let mut fits: Vec<&(usize, Amount)> = free.iter().filter(|f| load <= f.1).collect();
        if self.machine.fit == Fit::Worst {
            fits.sort_by_key(|fit| std::cmp::Reverse(fit.1)); // stable: the first among equals
        }
        match fits.first() {
            Some((domain, _)) => {
                let cpus = self.allowed(&self.machine.domains()[*domain], demand);
                let cpus = cpus.into_iter().map(|c| self.machine.cpus[c].id).collect();
                Ok(Placement { domain: *domain, cpus, split: None })
            }
            None => {
                let most = free.into_iter().map(|f| f.1).max().unwrap_or_default();
                Err(Box::new(self.refusal(demand, most)))
            }
        }
    }

    fn test_split(&self, mut planner: Planner, demand: &Demand) -> Result<Placement, Box<Refusal>> {
        let may = |cpu: usize| self.machine.may(cpu, demand);
        let id = |share: &Share| self.machine.cpus[share.cpu].id;
        let task = demand.sporadic();
        if let Some(shares) = planner.place(TRIAL, &task, may) {
            let mut cpus: Vec<u32> = shares.iter().map(id).collect();
            cpus.sort_unstable();
            let split = (shares.len() > 1).then(|| Split {
                window: shares[0].window,
                shares: shares.iter().map(|share| (id(share), share.wcet)).collect(),
            });
            return Ok(Placement { domain: shares[0].cpu, cpus, split });
        }
        let room = planner.room(&task, may).min(demand.budget - 1);
        let mut refusal = self.refusal(demand, amount::floor(room, task.deadline));
        // Windows change with the period: whether a longer one helps only a trial tells.
        let period = refusal.nearest.period_ns.filter(|period| {
            let longer = Sporadic { deadline: *period, period: *period, ..task };
            planner.place(TRIAL, &longer, may).is_some()
        });
        refusal.nearest.period_ns = period;
        Err(Box::new(refusal))
    }

    /// Indices of those of `cpus` the demand may use.
    fn allowed(&self, cpus: &[usize], demand: &Demand) -> Vec<usize> {
        cpus.iter().copied().filter(|c| self.machine.may(*c, demand)).collect()
    }

    /// The greatest load with this demand's affinity that this domain can take.
    fn free_in(&self, domain: usize, cpus: &[usize], demand: &Demand) -> Amount {
        let allowed = self.allowed(cpus, demand);
        let one_cpu = allowed.iter().map(|c| self.machine.offer(*c)).max().unwrap_or_default();
        self.flows[domain].clone().serve(TRIAL, &allowed, None).min(one_cpu)
    }

    fn refusal(&self, demand: &Demand, free: Amount) -> Refusal {
        let all: Vec<usize> = (0..self.machine.cpus.len()).collect();
        let allowed = self.allowed(&all, demand);
        let one_cpu = allowed.iter().map(|c| self.machine.offer(*c)).max().unwrap_or_default();
        let over = demand.over();
        let reason = if allowed.is_empty() {
            "none of the CPUs it may use is on line".to_string()
        } else if demand.load() > one_cpu {
            "it asks for more of a CPU than any CPU it may use offers to reservations".into()
        } else if self.machine.domains == Domains::Global {
            "the CPUs it may use have not enough left together".into()
        } else if self.machine.domains == Domains::Split {
            "no CPU it may use has enough left, nor have several together in their windows".into()
        } else {
            let group =
                if self.machine.domains == Domains::Partitioned { "CPU" } else { "cluster" };
            format!("no {group} it may use has enough left")
        };
        // Greatest whole budget with budget / min(D, P) <= free.
        let budget = Some(amount::budget(free, over)).filter(|b| (1..=demand.budget).contains(b));
        // Shortest whole period with the same budget; it helps only where the deadline moves with the period.
        let moves = demand.deadline == demand.period;
        let period = moves.then(|| amount::period(demand.budget, free, HOUR)).flatten();
        Refusal {
            reason: format!(
                "{reason} ({} every {})",
                format_duration(demand.budget),
                format_duration(over)
            ),
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
        let mut held: BTreeMap<&str, (Amount, usize)> = BTreeMap::new();
        for cpu in cpus {
            for (name, u) in &self.machine.cpus[*cpu].held {
                let sum = held.entry(name).or_default();
                *sum = (sum.0 + amount::of(*u), sum.1 + 1);
            }
        }
        let mut list: Vec<(String, (Amount, usize))> =
            held.into_iter().map(|(name, u)| (name.to_string(), u)).collect();
        let ids: Vec<u32> = cpus.iter().map(|c| self.machine.cpus[*c].id).collect();
        for (id, (demand, placement)) in &self.granted {
            if placement.cpus.iter().any(|c| ids.contains(c)) {
                list.push((format!("{} (reservation {id})", demand.name), (demand.load(), 1)));
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
