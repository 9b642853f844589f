// SPDX-License-Identifier: GPL-2.0-only
//! Where each reservation goes: to a domain and its CPUs, or in parts to several CPUs. Simulator and service both ask
//! here, and so serve the same reservations in the same places.
//!
//! What fits (`admission` says what that is) is placed as if nothing else were there. What does not fit is served
//! beside it, where most is left, and takes nobody's place.

mod items;
mod ranked;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use onbeat_model::units::Fraction;

use crate::amount::{self, Amount};
use crate::islands::Islands;
use crate::machine::{Domains, Fit, Machine};
use crate::partition::Packing;
use crate::semi::{Planner, SHARE_LEAST, Share};
use crate::sporadic::Sporadic;

use ranked::Ranked;

pub use items::{Item, Layout, Of, Seat, items, lay_out, machine_of};

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
    /// CPUs it may use, below 64; `None` = all.
    pub cpus: Option<Vec<u32>>,
    /// It goes before those that are not, where the order ranks; elsewhere that means nothing.
    pub hard: bool,
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

    /// CPUs it may use.
    fn mask(&self) -> u64 {
        let Some(list) = &self.cpus else { return u64::MAX };
        list.iter().filter(|cpu| **cpu < u64::BITS).fold(0, |mask, cpu| mask | 1 << cpu)
    }
}

/// Where a reservation is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The lowest CPU of its domain, by which the core knows that; of the first CPU's, if it is split.
    pub domain: u32,
    /// CPUs of that domain on which it is served.
    pub cpus: u64,
    /// That is one CPU of several, which serves no others but those that are placed so.
    pub apart: bool,
    /// How it is split over several CPUs, if it is.
    pub split: Option<Split>,
}

impl Place {
    /// All CPUs on which it is served.
    pub fn all_cpus(&self) -> u64 {
        let shares = self.split.iter().flat_map(|split| &split.shares);
        shares.fold(self.cpus, |mask, (cpu, _)| mask | 1 << cpu)
    }
}

/// A reservation in parts: in the k-th window of a period it has its k-th share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Length of each window, ns.
    pub window: u64,
    /// It changes CPUs at windows' ends only.
    pub postponed: bool,
    /// CPU and budget, ns, of each window.
    pub shares: Vec<(u32, u64)>,
}

/// A reservation that has its place.
#[derive(Debug, Clone)]
pub struct Placed {
    /// What it asked for.
    pub demand: Demand,
    /// What it got.
    pub at: Place,
    /// Whether it fits beside the others that do.
    pub fits: bool,
    /// Its load, for which nobody needs to divide again.
    pub(crate) load: Amount,
}

/// A machine as plans look at it.
#[derive(Debug, Clone)]
struct Ground {
    machine: Machine,
    /// CPU indices of each domain.
    domains: Vec<Vec<usize>>,
    /// What each CPU offers.
    offers: Vec<Amount>,
}

/// What is taken of each CPU by reservations that fit.
#[derive(Debug, Clone)]
enum Taken {
    /// Who is served by which CPUs, by domain.
    Whole(Vec<Islands>),
    /// Who has which share of which CPU, where reservations may be split.
    Parts(Planner),
    /// Who is hard, and who is soft.
    Ranked(Box<Ranked>),
}

/// What has just been taken.
struct Taking {
    at: Place,
    /// Others have other CPUs of that domain for it.
    shifts: bool,
}

/// A machine and the reservations on it. One that comes or goes may change the CPUs on which others are served, within
/// their domain.
#[derive(Debug, Clone)]
pub struct Plan {
    ground: Ground,
    taken: Taken,
    placed: BTreeMap<u32, Placed>,
}

/// Key of a demand that is only tried; reservations have their 32-bit id.
const TRIAL: u64 = u64::MAX;

impl Ground {
    fn new(machine: Machine) -> Self {
        let domains = machine.domains();
        let offers = machine.cpus.iter().map(|cpu| cpu.offer()).collect();
        Self { machine, domains, offers }
    }

    /// The number of domain `index` in places.
    fn number(&self, index: usize) -> u32 {
        self.domains[index].first().map_or(0, |cpu| self.machine.cpus[*cpu].id)
    }

    /// Index of the domain of that number, if there is one.
    fn index(&self, number: u32) -> Option<usize> {
        (0..self.domains.len()).find(|index| self.number(*index) == number)
    }

    /// Whether CPUs of these indices are among those the demand may use.
    fn may(&self, demand: &Demand) -> impl Fn(usize) -> bool {
        let mask = demand.mask();
        move |cpu| mask >> self.machine.cpus[cpu].id & 1 == 1
    }

    /// Indices of the CPUs of a domain that the demand may use.
    fn allowed(&self, domain: usize, demand: &Demand) -> Vec<usize> {
        let may = self.may(demand);
        self.domains[domain].iter().copied().filter(|cpu| may(*cpu)).collect()
    }

    /// The same as a mask.
    fn indices(&self, domain: usize, demand: &Demand) -> u64 {
        self.allowed(domain, demand).into_iter().fold(0, |mask, cpu| mask | 1 << cpu)
    }

    /// The most that one of these CPUs offers.
    fn greatest(&self, cpus: &[usize]) -> Amount {
        cpus.iter().map(|cpu| self.offers[*cpu]).max().unwrap_or_default()
    }

    /// Where a domain serves who has that key.
    fn place(&self, domain: usize, islands: &Islands, key: u64) -> Option<Place> {
        let (mask, apart) = islands.place(key)?;
        let cpus: Vec<usize> = (0..self.offers.len()).filter(|cpu| mask >> cpu & 1 == 1).collect();
        Some(Place {
            domain: self.number(domain),
            cpus: self.machine.mask(&cpus),
            apart,
            split: None,
        })
    }

    fn parts(&self, shares: &[Share]) -> Place {
        let part = |share: &Share| (self.machine.cpus[share.cpu].id, share.wcet);
        let split = || Split {
            window: shares[0].window,
            postponed: self.machine.domains == Domains::Split { postponed: true },
            shares: shares.iter().map(part).collect(),
        };
        Place {
            domain: part(&shares[0]).0,
            cpus: 1 << part(&shares[0]).0,
            apart: false,
            split: (shares.len() > 1).then(split),
        }
    }
}

impl Taken {
    /// Nothing yet; shares will be `least` ns at least.
    fn none(ground: &Ground, least: u64) -> Self {
        let Ground { machine, domains, offers } = ground;
        if machine.servers.is_some() {
            return Taken::Ranked(Box::new(Ranked::none(ground)));
        }
        let Domains::Split { .. } = machine.domains else {
            let islands = |domain: &Vec<usize>| Islands::new(offers.clone(), domain);
            return Taken::Whole(domains.iter().map(islands).collect());
        };
        let fit = if machine.fit == Fit::Worst { Packing::Worst } else { Packing::First };
        let offered: Vec<_> = machine.cpus.iter().map(|cpu| cpu.offered()).collect();
        Taken::Parts(Planner::new(&offered, fit, least))
    }

    /// Takes what the demand needs, where it fits: rather where it is `at`, if anywhere.
    fn take(
        &mut self,
        ground: &Ground,
        key: u64,
        demand: &Demand,
        at: Option<&Place>,
    ) -> Option<Taking> {
        let alone = |at| Taking { at, shifts: false };
        let domains = match self {
            Taken::Whole(domains) => domains,
            Taken::Ranked(ranked) => return ranked.take(ground, key, demand).map(alone),
            Taken::Parts(planner) => {
                let shares = planner.place(key, &demand.sporadic(), ground.may(demand))?;
                return Some(alone(ground.parts(&shares)));
            }
        };
        let load = demand.load();
        let home = at.and_then(|at| ground.index(at.domain));
        let mut best: Option<(Amount, usize)> = None;
        for (domain, islands) in domains.iter().enumerate() {
            if best.is_some() && ground.machine.fit == Fit::First {
                break;
            }
            let free = islands.free(ground.indices(domain, demand));
            if load > free {
                continue;
            }
            if home == Some(domain) {
                best = Some((free, domain));
                break;
            }
            if best.is_none_or(|(most, _)| free > most) {
                best = Some((free, domain));
            }
        }
        let domain = best?.1;
        let one = at.filter(|at| at.apart).map(|at| at.cpus.trailing_zeros());
        let prefer = ground.machine.cpus.iter().position(|cpu| Some(cpu.id) == one);
        let shifts = domains[domain].serve(key, ground.indices(domain, demand), load, prefer)?;
        let at = ground.place(domain, &domains[domain], key)?;
        Some(Taking { at, shifts })
    }

    /// The greatest load with this demand's affinity that fits; of one that does not fit itself.
    fn room(&mut self, ground: &Ground, demand: &Demand) -> Amount {
        match self {
            Taken::Ranked(ranked) => ranked.room(ground, demand),
            Taken::Parts(planner) => {
                let task = demand.sporadic();
                let room = planner.room(&task, ground.may(demand)).min(demand.budget - 1);
                amount::floor(room, task.deadline)
            }
            Taken::Whole(domains) => {
                let free = |(domain, islands): (usize, &Islands)| {
                    islands.free(ground.indices(domain, demand))
                };
                domains.iter().enumerate().map(free).max().unwrap_or_default()
            }
        }
    }
}

impl Plan {
    /// No reservations yet.
    pub fn new(machine: Machine) -> Self {
        Self::with_shares(machine, SHARE_LEAST)
    }

    /// No reservations yet, none of which will be split into shares shorter than `least` ns.
    pub fn with_shares(machine: Machine, least: u64) -> Self {
        let ground = Ground::new(machine);
        let taken = Taken::none(&ground, least);
        Self { ground, taken, placed: BTreeMap::new() }
    }

    /// Places the demand under `id` if it fits, without `id`'s old place if it had one; says where.
    pub fn fit(&mut self, id: u32, demand: &Demand) -> Option<Place> {
        self.fit_at(id, demand, None)
    }

    /// The same, rather where it is `at`, if anywhere.
    fn fit_at(&mut self, id: u32, demand: &Demand, at: Option<&Place>) -> Option<Place> {
        self.remove(id);
        let Taking { at, shifts } = self.taken.take(&self.ground, id.into(), demand, at)?;
        self.note(id, demand, &at, true);
        if shifts {
            self.shift(at.domain);
        }
        Some(at)
    }

    /// Those in that domain may have other CPUs now.
    fn shift(&mut self, number: u32) {
        let Taken::Whole(domains) = &self.taken else { return };
        let Some(index) = self.ground.index(number) else { return };
        let here = |placed: &&mut Placed| placed.fits && placed.at.domain == number;
        for (id, placed) in &mut self.placed {
            let Some(placed) = Some(placed).filter(here) else { continue };
            if let Some(at) = self.ground.place(index, &domains[index], (*id).into()) {
                placed.at = at;
            }
        }
    }

    /// Places the demand under `id` whether it fits or not; says where, and whether it does.
    pub fn place(&mut self, id: u32, demand: &Demand) -> (Place, bool) {
        if let Some(at) = self.fit(id, demand) {
            return (at, true);
        }
        let at = self.beside(demand, None);
        self.note(id, demand, &at, false);
        (at, false)
    }

    /// As [`Plan::place`], of a reservation that is `at` some place now: it stays on those CPUs if it fits there, or if
    /// it fits nowhere and one of those on which its periods begin is on line.
    pub fn keep(&mut self, id: u32, demand: &Demand, at: &Place) -> (Place, bool) {
        if let Some(at) = self.fit_near(id, demand, at) {
            return (at, true);
        }
        let at = self.beside(demand, Some(at));
        self.note(id, demand, &at, false);
        (at, false)
    }

    /// Places it if it fits, on the CPUs it has or else elsewhere.
    fn fit_near(&mut self, id: u32, demand: &Demand, at: &Place) -> Option<Place> {
        if let Taken::Whole(domains) = &mut self.taken {
            let was =
                self.placed.get(&id).filter(|placed| placed.fits).map(|placed| placed.at.clone());
            if let Some(at) = was
                && let Some(index) = self.ground.index(at.domain)
                && domains[index].change(
                    id.into(),
                    self.ground.indices(index, demand),
                    demand.load(),
                )
            {
                self.note(id, demand, &at, true);
                return Some(at);
            }
            return self.fit_at(id, demand, Some(at));
        }
        let all = at.all_cpus();
        let cpus = (0..u64::BITS).filter(|cpu| all >> cpu & 1 == 1).collect();
        let here = Demand { cpus: Some(cpus), ..demand.clone() };
        self.fit(id, &here).or_else(|| self.fit(id, demand))
    }

    /// Gives a place back; who had it.
    pub fn remove(&mut self, id: u32) -> Option<Placed> {
        let placed = self.placed.remove(&id)?;
        match &mut self.taken {
            _ if !placed.fits => {}
            Taken::Parts(planner) => planner.remove(id.into()),
            Taken::Ranked(ranked) => ranked.remove(id.into()),
            Taken::Whole(domains) => {
                let number = placed.at.domain;
                let index = self.ground.index(number);
                if index.is_some_and(|index| domains[index].remove(id.into())) {
                    self.shift(number);
                }
            }
        }
        Some(placed)
    }

    /// The one of that id goes on under another in its place, where that is possible at once; whether so.
    pub fn rename(&mut self, id: u32, to: u32) -> bool {
        let Taken::Whole(domains) = &mut self.taken else { return false };
        let Some(placed) = self.placed.remove(&id) else { return false };
        if placed.fits
            && let Some(index) = self.ground.index(placed.at.domain)
        {
            domains[index].rename(id.into(), to.into());
        }
        self.placed.insert(to, placed);
        true
    }

    /// After all have been taken over from another plan: nobody is apart for the sake of who is not there any more.
    pub fn tidy(&mut self) {
        let Taken::Whole(domains) = &mut self.taken else { return };
        let changed = |(index, islands): (usize, &mut Islands)| islands.tidy().then_some(index);
        let changed: Vec<usize> = domains.iter_mut().enumerate().filter_map(changed).collect();
        changed.into_iter().for_each(|index| self.shift(self.ground.number(index)));
    }

    /// Where the demand would fit, if it would.
    pub fn trial(&self, demand: &Demand) -> Option<Place> {
        self.taken.clone().take(&self.ground, TRIAL, demand, None).map(|taking| taking.at)
    }

    /// The greatest load with this demand's affinity that fits; of one that does not fit itself.
    pub(crate) fn room(&self, demand: &Demand) -> Amount {
        self.taken.clone().room(&self.ground, demand)
    }

    /// All that have a place, by id.
    pub fn placed(&self) -> impl Iterator<Item = (u32, &Placed)> {
        self.placed.iter().map(|(id, placed)| (*id, placed))
    }

    /// The one of that id.
    pub fn get(&self, id: u32) -> Option<&Placed> {
        self.placed.get(&id)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.ground.machine
    }

    /// The heaviest load that may be soft for lateness to have a bound, where the order ranks.
    pub(crate) fn lightest(&self) -> Option<Amount> {
        match &self.taken {
            Taken::Ranked(ranked) => Some(ranked.lightest()),
            _ => None,
        }
    }

    /// Whether best effort's servers, where it has any, fit on the CPUs without anybody else.
    pub fn holds_servers(&self) -> bool {
        match &self.taken {
            Taken::Ranked(ranked) => ranked.drawn(),
            _ => true,
        }
    }

    /// Indices of the CPUs the demand may use.
    pub(crate) fn allowed(&self, demand: &Demand) -> Vec<usize> {
        (0..self.ground.offers.len()).filter(|cpu| self.ground.may(demand)(*cpu)).collect()
    }

    /// What the CPUs offer, all together.
    pub(crate) fn offered(&self) -> Amount {
        self.ground.offers.iter().sum()
    }

    /// The most that one of these CPUs offers.
    pub(crate) fn greatest(&self, cpus: &[usize]) -> Amount {
        self.ground.greatest(cpus)
    }

    fn note(&mut self, id: u32, demand: &Demand, at: &Place, fits: bool) {
        let (demand, at, load) = (demand.clone(), at.clone(), demand.load());
        self.placed.insert(id, Placed { demand, at, fits, load });
    }

    /// What is left of each domain when all have what they ask for, those that do not fit, too.
    fn left(&self) -> Vec<i128> {
        let Ground { machine, domains, offers } = &self.ground;
        let offer = |cpus: &Vec<usize>| cpus.iter().map(|cpu| offers[*cpu] as i128).sum();
        let mut left: Vec<i128> = domains.iter().map(offer).collect();
        for Placed { demand, at, load, .. } in self.placed.values() {
            let Some(split) = &at.split else {
                if let Some(index) = self.ground.index(at.domain) {
                    left[index] -= *load as i128;
                }
                continue;
            };
            for (id, budget) in &split.shares {
                // Each CPU is a domain then.
                if let Some(cpu) = machine.cpus.iter().position(|cpu| cpu.id == *id) {
                    left[cpu] -= amount::floor(*budget, demand.over()) as i128;
                }
            }
        }
        left
    }

    /// Where a demand that fits nowhere is served as well as can be: where it is, or in the domain with most left that
    /// has one of its CPUs on line.
    fn beside(&self, demand: &Demand, at: Option<&Place>) -> Place {
        let machine = &self.ground.machine;
        let online = machine.online();
        let whole = |domain, cpus| Place { domain, cpus, apart: false, split: None };
        if let Taken::Ranked(ranked) = &self.taken
            && demand.hard
        {
            let one = |at: &&Place| (at.cpus & online).count_ones() == 1;
            let may = self.ground.may(demand);
            let there = |cpu: usize| may(cpu) && online >> machine.cpus[cpu].id & 1 == 1;
            let cpu = ranked.emptiest(there).unwrap_or(0);
            return at
                .filter(one)
                .cloned()
                .unwrap_or_else(|| whole(self.ground.number(0), machine.mask(&[cpu])));
        }
        // Under another policy its domain may be no more, and a CPU apart serves who fits.
        let there = |at: &&Place| machine.domain_cpus(at.domain) & at.cpus == at.cpus;
        if let Some(at) = at.filter(|at| at.cpus & online != 0).filter(there) {
            return whole(at.domain, at.cpus);
        }
        let left = self.left();
        (0..self.ground.domains.len())
            .filter(|domain| machine.mask(&self.ground.allowed(*domain, demand)) & online != 0)
            .min_by_key(|domain| Reverse(left[*domain]))
            .map(|d| whole(self.ground.number(d), machine.mask(&self.ground.allowed(d, demand))))
            .or_else(|| at.filter(there).cloned())
            .unwrap_or_else(|| {
                let first = self.ground.domains.first();
                whole(machine.cpus[0].id, first.map_or(0, |cpus| machine.mask(cpus)))
            })
    }
}

#[cfg(test)]
mod tests;
