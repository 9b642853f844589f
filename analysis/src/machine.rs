// SPDX-License-Identifier: GPL-2.0-only
//! CPUs, the domains they form, and what each of them offers to reservations.

use num_traits::Zero;

use onbeat_model::policy::{Order, Sets, Splits};
use onbeat_model::rank::Servers;
use onbeat_model::units::Fraction;

use crate::amount::{self, Amount, WHOLE};

/// How far a queue reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domains {
    /// One queue for all CPUs.
    Global,
    /// One queue for each of that many equal, contiguous groups of CPUs.
    Clustered(u32),
    /// One queue for each CPU.
    Partitioned,
    /// The same, and what fits no CPU is split over several, which are changed at windows' ends only if that is said.
    Split {
        /// Changes of CPU wait for windows' ends.
        postponed: bool,
    },
}

/// Which domain gets a reservation that fits in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fit {
    /// The first in the order of the CPUs.
    #[default]
    First,
    /// The one with most left (Kato's EDF-WMR), so that loads stay even.
    Worst,
}

/// One CPU and who holds how much of it beside reservations.
#[derive(Debug, Clone)]
pub(crate) struct Cpu {
    pub id: u32,
    pub held: Vec<(String, Fraction)>,
    pub online: bool,
}

impl Cpu {
    /// What it offers to reservations, rounded up; 0 or more.
    pub fn offer(&self) -> Amount {
        WHOLE.saturating_sub(self.held.iter().map(|(_, u)| amount::of(*u)).sum())
    }

    /// The same, as a fraction.
    pub fn offered(&self) -> Fraction {
        amount::below(self.offer(), self.held.len())
    }
}

/// CPUs, their domains, and how reservations are placed.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) domains: Domains,
    pub(crate) fit: Fit,
    /// Who does not fit is served all the same: the order chooses what is in time.
    pub(crate) takes_all: bool,
    /// Those of best effort, where hard reservations go before soft ones.
    pub(crate) servers: Option<Servers>,
}

impl Machine {
    /// CPUs 0 to `cpus` − 1, at most 64, under `order`: they form `clusters` equal groups if it is clustered. Each
    /// keeps `share` (0 to 1) for best-effort work, or less ([`Order::share`]) where that has servers: then these are
    /// [`Servers::each`].
    pub fn under(order: Order, cpus: u32, clusters: u32, share: Fraction) -> Self {
        Self::of(order, &(0..cpus).collect::<Vec<_>>(), clusters, share)
    }

    /// The same of these CPUs, a set under a policy of its own.
    pub fn of(order: Order, cpus: &[u32], clusters: u32, share: Fraction) -> Self {
        let domains = match (order.splits, order.sets) {
            (Splits::Early, _) => Domains::Split { postponed: false },
            (Splits::Postponed, _) => Domains::Split { postponed: true },
            (Splits::Never, Sets::Global) => Domains::Global,
            (Splits::Never, Sets::Clustered) => Domains::Clustered(clusters),
            (Splits::Never, Sets::Partitioned) => Domains::Partitioned,
        };
        // Even loads bear overruns better; EDF-WM is first fit by definition.
        let fit = if order.splits == Splits::Early { Fit::First } else { Fit::Worst };
        let servers = order.key.ranks().then(|| Servers::each(cpus.len() as u32));
        let (takes_all, share) = (order.key.chooses(), order.share(share));
        Self { takes_all, servers, ..Self::new(cpus, share, domains, fit) }
    }

    /// With these servers for best effort, where the order ranks; elsewhere that means nothing.
    pub fn drawing(mut self, servers: Servers) -> Self {
        self.servers = self.servers.map(|_| servers);
        self
    }

    /// Loads of best effort's servers.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = Amount> + use<> {
        let one = |s: Servers| vec![amount::floor(s.budget, s.period); s.count as usize];
        self.servers.map_or(vec![], one).into_iter()
    }

    /// CPUs by number, all on line.
    pub(crate) fn new(cpus: &[u32], share: Fraction, domains: Domains, fit: Fit) -> Self {
        let held = match share.is_zero() {
            true => vec![],
            false => vec![("best-effort share".to_string(), share)],
        };
        let cpu = |id: &u32| Cpu { id: *id, held: held.clone(), online: true };
        Self { cpus: cpus.iter().map(cpu).collect(), domains, fit, takes_all: false, servers: None }
    }

    /// Notes that somebody else, such as SCHED_DEADLINE or SCHED_FIFO tasks, holds part of a CPU.
    /// A CPU that is not there is ignored.
    pub fn hold(&mut self, cpu: u32, name: &str, utilization: Fraction) {
        if let Some(cpu) = self.cpus.iter_mut().find(|c| c.id == cpu) {
            cpu.held.push((name.to_string(), utilization));
        }
    }

    /// Notes that a CPU, which stays in its domain, is off line. One that is not there is ignored.
    pub fn offline(&mut self, cpu: u32) {
        self.hold(cpu, &format!("CPU {cpu} is off line"), Fraction::from_integer(1));
        self.cpus.iter_mut().filter(|c| c.id == cpu).for_each(|c| c.online = false);
    }

    /// CPUs of each domain, a bit for each. The lowest of them is the domain's number in [`crate::plan::Place`], and
    /// its slot in the core.
    pub fn domain_masks(&self) -> Vec<u64> {
        self.domains().iter().map(|cpus| self.mask(cpus)).collect()
    }

    /// CPUs of the domain of that number; 0 if there is none.
    pub fn domain_cpus(&self, domain: u32) -> u64 {
        let masks = self.domain_masks().into_iter();
        masks.filter(|cpus| cpus.trailing_zeros() == domain).fold(0, |_, cpus| cpus)
    }

    /// CPUs that are on line.
    pub(crate) fn online(&self) -> u64 {
        self.cpus.iter().filter(|c| c.online).fold(0, |mask, c| mask | 1 << c.id)
    }

    /// CPU indices of each domain, as the core divides its CPUs.
    pub(crate) fn domains(&self) -> Vec<Vec<usize>> {
        let n = self.cpus.len();
        let count = match self.domains {
            Domains::Global => n.min(1),
            Domains::Clustered(k) => n.min(k.max(1) as usize),
            Domains::Partitioned | Domains::Split { .. } => n,
        };
        let mut domains = vec![Vec::new(); count];
        (0..n).for_each(|cpu| domains[cpu * count / n].push(cpu));
        domains
    }

    /// The CPUs of these indices.
    pub(crate) fn mask(&self, cpus: &[usize]) -> u64 {
        cpus.iter().fold(0, |mask, cpu| mask | 1 << self.cpus[*cpu].id)
    }

    /// By how many units the sum of all offers may be rounded up.
    pub(crate) fn slack(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.held.len()).sum()
    }
}
