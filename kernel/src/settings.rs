// SPDX-License-Identifier: GPL-2.0-only
//! What the service was started with, and what follows from it for the core and for admission.

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::Plan;
use onbeat_model::policy::{DEFAULT_SHARE, Order, Policy, Server, Splits};
use onbeat_model::rank::{FLOOR, Servers};
use onbeat_model::taskset::DEFAULT_SET;
use onbeat_model::units::{Fraction, format_percent};

use crate::machine::cpus_of;
use crate::system::Above;

/// Number of a server policy in the core's registry.
pub fn kind(server: Server) -> u32 {
    let at = onbeat_core::server_policies().iter().position(|name| *name == server.name());
    at.expect("every server of the model is in the core's registry") as u32
}

/// What the service was started with, of one set of CPUs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the set.
    pub name: String,
    /// Its CPUs, a bit for each, on line or not.
    pub set: u64,
    /// Order of service.
    pub order: Order,
    /// Enforcement.
    pub server: Server,
    /// CPUs of the core, on line or not.
    pub cpus: u32,
    /// Domains that those of the set form under a clustered order.
    pub clusters: u32,
    /// CPUs that reservations may use.
    pub usable: u64,
    /// Best effort's share of every CPU.
    pub best_effort_share: Fraction,
    /// Best effort's servers, where the order ranks.
    pub servers: Servers,
    /// What one ordinary user may hold, of the usable CPUs' total.
    pub user_share: Fraction,
    /// CPU that is kept for interrupts: in no set, and not usable.
    pub interrupt_cpu: Option<u32>,
}

impl Settings {
    /// The whole machine under one policy, its CPUs 0 to `cpus` − 1, at most 64, in `clusters` under a clustered order.
    pub fn whole(order: Order, server: Server, cpus: u32, clusters: u32) -> Self {
        let all = u64::MAX >> (64 - cpus.clamp(1, 64));
        Self {
            name: DEFAULT_SET.into(),
            set: all,
            order,
            server,
            cpus,
            clusters,
            usable: all,
            best_effort_share: DEFAULT_SHARE,
            servers: Servers::each(cpus),
            user_share: Fraction::new(1, 2),
            interrupt_cpu: None,
        }
    }

    /// CPUs of each domain, a bit for each, which the core and the admission test must agree on.
    pub fn domains(&self) -> Vec<u64> {
        self.machine(u64::MAX, &Above::default()).domain_masks()
    }

    /// Whether what is admitted gets its budget in time whatever others do.
    pub fn isolates(&self) -> bool {
        self.server.isolates() && self.order.isolates()
    }

    /// Whether best effort's servers, where the order ranks, fit on the CPUs.
    ///
    /// # Errors
    /// They do not: what to write instead.
    pub fn check_servers(&self) -> Result<(), String> {
        let all = u64::MAX >> (64 - self.cpus);
        if Plan::new(self.machine(all, &Above::default())).holds_servers() {
            return Ok(());
        }
        let (servers, cpus) = (self.servers, self.usable.count_ones());
        Err(format!(
            "best effort's servers, {servers}, do not fit on {cpus} CPUs: together they may have these less {}, and \
             with m > 1 CPUs one less than m / (2m - 2); choose fewer, smaller budgets or longer periods",
            format_percent(FLOOR)
        ))
    }

    /// Name of the policy.
    pub fn policy(&self) -> String {
        Policy::Core { order: self.order, server: self.server }.to_string()
    }

    /// How long a program that wants to run may have to wait, ns, because its budget is used up: until
    /// the next period where budgets are hard, until the next window where it changes CPUs at windows' ends.
    pub fn longest_rest(&self, server: Server, budget: u64, period: u64) -> u64 {
        let rests = server.rests() || self.order.splits == Splits::Postponed;
        if rests { period.saturating_sub(budget) } else { 0 }
    }

    /// Number of the server policy in the core's registry, for a reservation of a hard task or another.
    pub fn kind(&self, hard: bool) -> u32 {
        kind(self.server_of(hard))
    }

    /// What enforces such a reservation.
    pub fn server_of(&self, hard: bool) -> Server {
        self.server.of_class(self.order.key, hard)
    }

    /// The rule that a group may have for its budget beside the policy's own: nothing beyond it, so that the rest is
    /// surely others'. The kernel side is loaded with these two alone.
    pub fn hard(&self) -> Server {
        Server::hard()
    }

    /// Number of the order in the core.
    pub fn core_order(&self) -> u32 {
        self.order.number()
    }

    /// The set as the admission test sees it: all of its CPUs, so that its domains are the core's; what
    /// cannot be reserved is held by somebody.
    pub fn machine(&self, online: u64, above: &Above) -> Machine {
        let cpus = cpus_of(self.set & u64::MAX >> (64 - self.cpus.clamp(1, 64)));
        let machine = Machine::of(self.order, &cpus, self.clusters, self.best_effort_share);
        let mut machine = machine.drawing(self.servers);
        for cpu in cpus {
            if online >> cpu & 1 == 0 {
                machine.offline(cpu);
            } else if self.usable >> cpu & 1 == 0 {
                let whole = Fraction::from_integer(1);
                machine.hold(cpu, "CPUs that are not for reservations", whole);
            } else if above.deadline > 0 {
                // They migrate over all CPUs.
                let count = u64::from(online.count_ones());
                let each = Fraction::new(above.deadline, 1_000_000_000 * count);
                machine.hold(cpu, "SCHED_DEADLINE tasks", each);
            }
        }
        machine
    }
}
