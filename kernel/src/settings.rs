// SPDX-License-Identifier: GPL-2.0-only
//! What the service was started with, and what follows from it for the core and for admission.

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::Plan;
use onbeat_model::policy::{Order, Policy, Server, Splits};
use onbeat_model::rank::{FLOOR, Servers};
use onbeat_model::units::{Fraction, format_percent};

use crate::system::Above;

/// Number of a server policy in the core's registry.
pub fn kind(server: Server) -> u32 {
    let at = onbeat_core::server_policies().iter().position(|name| *name == server.name());
    at.expect("every server of the model is in the core's registry") as u32
}

/// What the service was started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Order of service.
    pub order: Order,
    /// Enforcement.
    pub server: Server,
    /// CPUs of the core, on line or not.
    pub cpus: u32,
    /// Domains they form under a clustered order.
    pub clusters: u32,
    /// CPUs that reservations may use.
    pub usable: u64,
    /// Best effort's share of every CPU.
    pub best_effort_share: Fraction,
    /// Best effort's servers, where the order ranks.
    pub servers: Servers,
    /// What one ordinary user may hold, of the usable CPUs' total.
    pub user_share: Fraction,
}

impl Settings {
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

    /// Number of domains, which the core and the admission test must agree on.
    pub fn domains(&self) -> u32 {
        self.order.domains(self.cpus, self.clusters)
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

    /// Number of the server policy in the core's registry.
    pub fn kind(&self) -> u32 {
        kind(self.server)
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

    /// The machine as the admission test sees it: all CPUs, so that its domains are the core's; what
    /// cannot be reserved is held by somebody.
    pub fn machine(&self, online: u64, above: &Above) -> Machine {
        let (cpus, share) = (self.cpus, self.best_effort_share);
        let mut machine =
            Machine::under(self.order, cpus, self.clusters, share).drawing(self.servers);
        for cpu in 0..cpus {
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
