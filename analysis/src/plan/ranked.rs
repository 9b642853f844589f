// SPDX-License-Identifier: GPL-2.0-only
//! What is taken of each CPU where hard reservations go before soft ones (EDF-HSB).
//!
//! A hard one has one CPU, which is tested exactly by its demand. Soft ones and best effort's servers share what is
//! left: with c = m − ΣU of the hard ones, all loads must be divisible among the CPUs they may use, and none that is
//! soft may reach c / (2m − 2). Then hard ones are never late, and soft ones by no more than a bound
//! (`global::hsb_tardiness`).
//!
//! Source: constraints 1 to 3 of Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors:
//! are analysis-based schedulers really worth it?".

use std::collections::BTreeMap;

use super::{Demand, Ground, Place, TRIAL};
use crate::amount::{self, Amount, WHOLE};
use crate::flow::Flow;
use crate::partition::Packing;
use crate::semi::Planner;

/// Who takes how much.
#[derive(Debug, Clone)]
pub(super) struct Ranked {
    /// The hard ones, by CPU.
    hard: Planner,
    /// All, by CPU.
    all: Flow,
    /// Q / P of each hard one.
    above: BTreeMap<u64, Amount>,
    /// Load of each soft one, of best effort's servers, too.
    soft: BTreeMap<u64, Amount>,
    /// What the CPUs offer together, and how many offer anything.
    offered: Amount,
    cpus: u128,
    /// Best effort's servers fit.
    drawn: bool,
}

impl Ranked {
    /// Nothing but best effort's servers.
    pub fn none(ground: &Ground) -> Self {
        let offered: Vec<_> = ground.machine.cpus.iter().map(|cpu| cpu.offered()).collect();
        let mut ranked = Self {
            hard: Planner::new(&offered, Packing::Worst, 1),
            all: Flow::new(ground.offers.clone()),
            above: BTreeMap::new(),
            soft: BTreeMap::new(),
            offered: ground.offers.iter().sum(),
            cpus: ground.offers.iter().filter(|offer| **offer > 0).count() as u128,
            drawn: true,
        };
        let every: Vec<usize> = (0..ground.offers.len()).collect();
        for (i, load) in ground.machine.drawn().enumerate() {
            let key = TRIAL - 1 - i as u64;
            let served = ranked.all.serve(key, &every, load);
            ranked.drawn &= served == load && load <= ranked.lightest();
            ranked.soft.insert(key, load);
        }
        ranked
    }

    /// Whether best effort's servers fit themselves.
    pub fn drawn(&self) -> bool {
        self.drawn
    }

    /// What hard ones leave, less what rounding may have added.
    fn left(&self) -> Amount {
        let above: Amount = self.above.values().sum();
        self.offered.saturating_sub(above + self.above.len() as Amount + 1)
    }

    /// What soft ones with a load of at most `heaviest` need hard ones to leave, so that lateness has a bound. One that
    /// is alone on its CPU needs nothing.
    fn needs(&self, heaviest: Amount) -> Amount {
        (2 * self.cpus).saturating_sub(2) * (heaviest + 1)
    }

    /// The heaviest load that may be soft.
    pub fn lightest(&self) -> Amount {
        match (2 * self.cpus).saturating_sub(2) {
            0 => WHOLE,
            rest => (self.left() / rest).saturating_sub(1),
        }
    }

    /// How much of the CPUs together, at Q / P, another hard one may take.
    fn spare(&self) -> Amount {
        let heaviest = self.soft.values().copied().max();
        self.left().saturating_sub(heaviest.map_or(0, |load| self.needs(load)) + 1)
    }

    /// Takes what the demand needs, where it fits.
    pub fn take(&mut self, ground: &Ground, key: u64, demand: &Demand) -> Option<Place> {
        if demand.hard {
            return self.take_hard(ground, key, demand);
        }
        let (cpus, load) = (ground.allowed(0, demand), demand.load());
        if load > self.lightest() {
            return None;
        }
        if self.all.serve(key, &cpus, load) < load {
            self.all.remove(key);
            return None;
        }
        self.soft.insert(key, load);
        Some(Place {
            domain: ground.number(0),
            cpus: ground.machine.mask(&cpus),
            apart: false,
            split: None,
        })
    }

    fn take_hard(&mut self, ground: &Ground, key: u64, demand: &Demand) -> Option<Place> {
        let load = amount::floor(demand.budget, demand.period);
        if load > self.spare() {
            return None;
        }
        for cpu in self.hard.emptiest(ground.may(demand)) {
            if !self.hard.place_on(key, &demand.sporadic(), cpu) {
                continue;
            }
            if self.all.serve(key, &[cpu], load) == load {
                self.above.insert(key, load);
                let cpus = ground.machine.mask(&[cpu]);
                return Some(Place { domain: ground.number(0), cpus, apart: false, split: None });
            }
            self.all.remove(key);
            self.hard.remove(key);
        }
        None
    }

    /// Gives back what `key` has taken.
    pub fn remove(&mut self, key: u64) {
        self.all.remove(key);
        self.soft.remove(&key);
        if self.above.remove(&key).is_some() {
            self.hard.remove(key);
        }
    }

    /// The greatest load with this demand's class and affinity that fits.
    pub fn room(&mut self, ground: &Ground, demand: &Demand) -> Amount {
        let cpus = ground.allowed(0, demand);
        let most = ground.greatest(&cpus);
        if !demand.hard {
            let free = self.all.serve(TRIAL, &cpus, most.min(self.lightest()));
            self.all.remove(TRIAL);
            return free;
        }
        let (task, spare) = (demand.sporadic(), self.spare());
        let of = |cpu: &usize| {
            let free = self.all.serve(TRIAL, &[*cpu], most.min(spare));
            self.all.remove(TRIAL);
            let budget = amount::budget(free, demand.period).min(self.hard.most_on(*cpu, &task));
            amount::floor(budget, demand.over())
        };
        cpus.iter().map(of).max().unwrap_or_default()
    }

    /// Where a hard one that fits nowhere is served as well as can be: on the CPU with least hard ones that `may` have
    /// it.
    pub fn emptiest(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        self.hard.emptiest(may).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use onbeat_model::policy::Policy;
    use onbeat_model::rank::Servers;
    use onbeat_model::units::{Fraction, MS};
    use proptest::prelude::*;

    use crate::admission::Admission;
    use crate::machine::Machine;
    use crate::one_cpu::edf;
    use crate::plan::Demand;
    use crate::sporadic::{Sporadic, Verdict};

    fn machine(cpus: u32, servers: Servers) -> Machine {
        let order = "edf-hsb-ns".parse::<Policy>().unwrap().order().unwrap();
        Machine::under(order, cpus, 1, Fraction::from_integer(0)).drawing(servers)
    }

    fn demand(hard: bool, budget: u64, period: u64, deadline: u64) -> Demand {
        Demand { name: "x".into(), budget, period, deadline, cpus: None, hard }
    }

    #[test]
    fn the_papers_example_fits_and_no_video_more() {
        let servers = Servers { count: 4, budget: 10 * MS, period: 40 * MS };
        let mut book = Admission::new(machine(4, servers));
        for id in 0..5 {
            book.admit(2 * id, &demand(true, 4 * MS, 40 * MS, 40 * MS)).unwrap();
            book.admit(2 * id + 1, &demand(false, 20 * MS, 40 * MS, 40 * MS)).unwrap();
        }
        assert_eq!(book.free(), Fraction::from_integer(0));
        // Five on four CPUs, a hard one each, and one has two.
        let mut placed = [0; 4];
        for (_, hard) in book.granted().filter(|(_, p)| p.demand.hard) {
            placed[hard.at.cpus.trailing_zeros() as usize] += 1;
        }
        placed.sort_unstable();
        assert_eq!(placed, [1, 1, 1, 2]);
        let refusal = book.test(&demand(true, 4 * MS, 40 * MS, 40 * MS)).unwrap_err();
        assert!(refusal.reason.contains("hard"), "{}", refusal.reason);
    }

    #[test]
    fn a_soft_one_has_less_than_what_hard_ones_leave_over_2m_minus_2() {
        let mut book = Admission::new(machine(4, Servers { count: 0, ..Servers::each(4) }));
        book.admit(0, &demand(true, 4 * MS, 10 * MS, 10 * MS)).unwrap();
        // 3.6 / 6 of a CPU is too much.
        let refusal = book.admit(1, &demand(false, 6 * MS, 10 * MS, 10 * MS)).unwrap_err();
        assert!(refusal.reason.contains("too heavy"), "{}", refusal.reason);
        assert_eq!(refusal.nearest.budget_ns, Some(6 * MS - 1));
        book.admit(1, &demand(false, 6 * MS - 1, 10 * MS, 10 * MS)).unwrap();
        // It needs the hard ones to stay as few.
        assert!(book.admit(2, &demand(true, MS, 10 * MS, 10 * MS)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_granted_keeps_all_constraints_and_what_is_said_to_fit_does(
            cpus in 1..5u32,
            asked in prop::collection::vec((any::<bool>(), 1..100u64, 1..40u64, 50..=100u64, 0..32u32), 1..24),
            servers in (0..5u32, 1..20u64),
        ) {
            let servers = Servers { count: servers.0, budget: servers.1, period: 50 };
            let mut book = Admission::new(machine(cpus, servers));
            let part = |(_, p): (u32, &crate::plan::Placed)| {
                (p.demand.budget as f64 / p.demand.period as f64, p.demand.density())
            };
            for (id, (hard, part, period, shorter, mask)) in (0..).zip(asked) {
                let period = period * 20;
                let deadline = if hard { period * shorter / 100 } else { period };
                let list: Vec<u32> = (0..cpus).filter(|cpu| mask >> cpu & 1 == 1).collect();
                let cpus = (!list.is_empty()).then_some(list);
                let d = Demand { cpus, ..demand(hard, (period * part / 100).clamp(1, deadline), period, deadline) };
                let Err(refusal) = book.admit(id, &d) else { continue };
                if let Some(budget) = refusal.nearest.budget_ns {
                    prop_assert!(book.test(&Demand { budget, ..d.clone() }).is_ok(), "{d:?}: {refusal}");
                }
                if let Some(period) = refusal.nearest.period_ns {
                    let longer = Demand { period, deadline: period, ..d.clone() };
                    prop_assert!(book.test(&longer).is_ok(), "{d:?}: {refusal}");
                }
            }
            let mut left = f64::from(cpus);
            for cpu in 0..cpus {
                let here = book.granted().filter(|(_, p)| p.demand.hard && p.at.cpus == 1 << cpu);
                let tasks: Vec<Sporadic> = here.map(|(_, p)| p.demand.sporadic()).collect();
                prop_assert_eq!(edf::qpa(&tasks), Verdict::Schedulable);
            }
            let (mut soft, mut heaviest) = (0.0, 0f64);
            for granted in book.granted() {
                if granted.1.demand.hard {
                    left -= part(granted).0;
                } else {
                    soft += part(granted).0;
                    heaviest = heaviest.max(part(granted).0);
                }
            }
            if book.granted().count() > 0 && servers.count > 0 {
                let each = servers.budget as f64 / servers.period as f64;
                soft += each * f64::from(servers.count);
                heaviest = heaviest.max(each);
            }
            let granted = book.granted().any(|(_, p)| !p.demand.hard);
            prop_assert!(!granted || soft <= left + 1e-9, "{soft} of {left}");
            prop_assert!(!granted || heaviest * (2.0 * f64::from(cpus) - 2.0) < left + 1e-9);
        }
    }
}
