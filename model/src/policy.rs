// SPDX-License-Identifier: GPL-2.0-only
//! The names of scheduling policies: Onbeat's own (an order and a server) and the baselines it is compared with.
//!
//! [`CORE`] lists the policies of the core; a test compares it with the core's registry in C.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// In which order reservations are served, and how far their queue reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Earliest server deadline first, one queue for all CPUs.
    GlobalEdf,
    /// Earliest server deadline first, one queue for each CPU.
    PartitionedEdf,
    /// Earliest server deadline first, one queue for each cluster of CPUs.
    ClusteredEdf,
    /// As global EDF, but a reservation without laxity goes first (EDZL).
    GlobalEdzl,
    /// Shortest period first (rate monotonic), one queue for all CPUs.
    RateMonotonic,
}

/// What enforces a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Server {
    /// Nothing: each job runs to its end with its own deadline.
    None,
    /// Hard CBS: at most Q every P.
    CbsHard,
    /// Soft CBS: at least Q every P; an overrun goes on with a later deadline.
    Cbs,
    /// FCBS: as soft CBS, and budget left over goes to reservations that overran.
    Fcbs,
    /// As FCBS, but only to those that overran, the furthest first.
    FcbsLag,
}

impl Server {
    /// Its name in the core's registry; "" is no server.
    pub fn name(self) -> &'static str {
        match self {
            Server::None => "",
            Server::CbsHard => "cbs-hard",
            Server::Cbs => "cbs",
            Server::Fcbs => "fcbs",
            Server::FcbsLag => "fcbs-lag",
        }
    }
}

/// One line of the policy table.
#[derive(Debug, Clone, Copy)]
pub struct CorePolicy {
    /// As written in task-set files and on the command line.
    pub name: &'static str,
    /// Its order.
    pub order: Order,
    /// Its server.
    pub server: Server,
    /// What it does, in one line.
    pub about: &'static str,
}

const fn core(name: &'static str, order: Order, server: Server, about: &'static str) -> CorePolicy {
    CorePolicy { name, order, server, about }
}

/// The policies of the core; order × server.
#[rustfmt::skip]
pub const CORE: [CorePolicy; 25] = [
    core("g-edf", Order::GlobalEdf, Server::None, "earliest deadline first on all CPUs, jobs not limited"),
    core("g-edf+cbs-hard", Order::GlobalEdf, Server::CbsHard, "global EDF; a reservation waits when its budget is used up"),
    core("g-edf+cbs", Order::GlobalEdf, Server::Cbs, "global EDF; an overrun continues at a later deadline"),
    core("g-edf+fcbs", Order::GlobalEdf, Server::Fcbs, "global EDF with soft CBS; unused budget goes to overruns"),
    core("g-edf+fcbs-lag", Order::GlobalEdf, Server::FcbsLag, "as g-edf+fcbs, but only overruns receive, the furthest first"),
    core("p-edf", Order::PartitionedEdf, Server::None, "earliest deadline first on each CPU, jobs not limited"),
    core("p-edf+cbs-hard", Order::PartitionedEdf, Server::CbsHard, "partitioned EDF; a reservation waits when its budget is used up"),
    core("p-edf+cbs", Order::PartitionedEdf, Server::Cbs, "partitioned EDF; an overrun continues at a later deadline"),
    core("p-edf+fcbs", Order::PartitionedEdf, Server::Fcbs, "partitioned EDF with soft CBS; unused budget goes to overruns on that CPU"),
    core("p-edf+fcbs-lag", Order::PartitionedEdf, Server::FcbsLag, "as p-edf+fcbs, but only overruns receive, the furthest first"),
    core("c-edf", Order::ClusteredEdf, Server::None, "earliest deadline first in each cluster, jobs not limited"),
    core("c-edf+cbs-hard", Order::ClusteredEdf, Server::CbsHard, "clustered EDF; a reservation waits when its budget is used up"),
    core("c-edf+cbs", Order::ClusteredEdf, Server::Cbs, "clustered EDF; an overrun continues at a later deadline"),
    core("c-edf+fcbs", Order::ClusteredEdf, Server::Fcbs, "clustered EDF with soft CBS; unused budget goes to overruns in that cluster"),
    core("c-edf+fcbs-lag", Order::ClusteredEdf, Server::FcbsLag, "as c-edf+fcbs, but only overruns receive, the furthest first"),
    core("g-edzl", Order::GlobalEdzl, Server::None, "global EDF; what can wait no longer goes first; jobs not limited"),
    core("g-edzl+cbs-hard", Order::GlobalEdzl, Server::CbsHard, "global EDZL; a reservation waits when its budget is used up"),
    core("g-edzl+cbs", Order::GlobalEdzl, Server::Cbs, "global EDZL; an overrun continues at a later deadline"),
    core("g-edzl+fcbs", Order::GlobalEdzl, Server::Fcbs, "global EDZL with soft CBS; unused budget goes to overruns"),
    core("g-edzl+fcbs-lag", Order::GlobalEdzl, Server::FcbsLag, "as g-edzl+fcbs, but only overruns receive, the furthest first"),
    core("rm", Order::RateMonotonic, Server::None, "shortest period first on all CPUs, jobs not limited"),
    core("rm+cbs-hard", Order::RateMonotonic, Server::CbsHard, "global rate monotonic; a reservation waits when its budget is used up"),
    core("rm+cbs", Order::RateMonotonic, Server::Cbs, "global rate monotonic; an overrun continues in a later period"),
    core("rm+fcbs", Order::RateMonotonic, Server::Fcbs, "global rate monotonic with soft CBS; unused budget goes to overruns"),
    core("rm+fcbs-lag", Order::RateMonotonic, Server::FcbsLag, "as rm+fcbs, but only overruns receive, the furthest first"),
];

/// Other names for policies of [`CORE`].
pub const ALIASES: [(&str, &str); 1] = [("fcbs", "g-edf+fcbs")];

/// What the kernel brings itself; only the lab and live systems have these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Baseline {
    /// The kernel's fair scheduler, all tasks at the same nice value.
    Eevdf,
    /// The same, with the reserved tasks at nice −20.
    EevdfNice,
    /// SCHED_FIFO for the reserved tasks.
    Fifo,
    /// SCHED_DEADLINE with the budgets as given.
    Deadline,
    /// SCHED_DEADLINE with reclaiming (GRUB).
    DeadlineReclaim,
}

/// The baselines: name, value, description.
pub const BASELINES: [(&str, Baseline, &str); 5] = [
    ("eevdf", Baseline::Eevdf, "the kernel's fair scheduler, reservations ignored"),
    ("eevdf-nice", Baseline::EevdfNice, "the kernel's fair scheduler, reserved tasks at nice -20"),
    ("fifo", Baseline::Fifo, "SCHED_FIFO, reserved tasks above everything else"),
    ("deadline", Baseline::Deadline, "SCHED_DEADLINE with the given budgets"),
    (
        "deadline-reclaim",
        Baseline::DeadlineReclaim,
        "SCHED_DEADLINE that reclaims unused bandwidth",
    ),
];

/// A policy by name. Prints as the name it was made from, aliases resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// One of [`CORE`].
    Core {
        /// Order of service.
        order: Order,
        /// Enforcement.
        server: Server,
    },
    /// One of [`BASELINES`].
    Baseline(Baseline),
    /// `scx:NAME`, a published sched_ext scheduler, `scx_NAME` on disk.
    Scx(String),
}

/// A name that is no policy; displays the names that are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy \"{name}\"; {hint}the policies are {}", known_names().join(", "))]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    hint: String,
}

/// All names in the order of the tables, with `scx:NAME` standing for its family.
pub fn known_names() -> Vec<&'static str> {
    let core = CORE.iter().map(|p| p.name);
    let aliases = ALIASES.iter().map(|a| a.0);
    core.chain(aliases).chain(BASELINES.iter().map(|b| b.0)).chain(["scx:NAME"]).collect()
}

impl Policy {
    /// One line about it, for lists.
    pub fn about(&self) -> String {
        match self {
            Policy::Core { order, server } => CORE
                .iter()
                .find(|p| (p.order, p.server) == (*order, *server))
                .map_or_else(String::new, |p| p.about.into()),
            Policy::Baseline(b) => BASELINES
                .iter()
                .find(|(_, value, _)| value == b)
                .map_or_else(String::new, |(.., about)| (*about).into()),
            Policy::Scx(name) => format!("the published sched_ext scheduler scx_{name}"),
        }
    }

    /// Whether it is one of Onbeat's own, which run in every world.
    pub fn is_core(&self) -> bool {
        matches!(self, Policy::Core { .. })
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let name = ALIASES.iter().find(|a| a.0 == text).map_or(text, |a| a.1);
        if let Some(p) = CORE.iter().find(|p| p.name == name) {
            return Ok(Policy::Core { order: p.order, server: p.server });
        }
        if let Some((_, baseline, _)) = BASELINES.iter().find(|b| b.0 == name) {
            return Ok(Policy::Baseline(*baseline));
        }
        // The name becomes part of a file name: keep it plain.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if let Some(scx) = name.strip_prefix("scx:")
            && (1..=32).contains(&scx.len())
            && scx.chars().all(plain)
        {
            return Ok(Policy::Scx(scx.into()));
        }
        let hint = crate::taskset::nearest(text, known_names())
            .map_or_else(String::new, |n| format!("did you mean \"{n}\"? "));
        Err(UnknownPolicy { name: crate::units::clip(text), hint })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Policy::Core { order, server } => {
                CORE.iter().find(|p| (p.order, p.server) == (*order, *server)).map(|p| p.name)
            }
            Policy::Baseline(b) => BASELINES.iter().find(|x| x.1 == *b).map(|x| x.0),
            Policy::Scx(name) => return f.pad(&format!("scx:{name}")),
        };
        f.pad(name.expect("every order, server and baseline has a line in the tables"))
    }
}

impl TryFrom<String> for Policy {
    type Error = UnknownPolicy;

    fn try_from(text: String) -> Result<Self, UnknownPolicy> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_and_prints_as_itself() {
        let names = CORE.iter().map(|p| p.name).chain(BASELINES.iter().map(|b| b.0));
        for name in names.chain(["scx:flash"]) {
            let policy: Policy = name.parse().unwrap();
            assert_eq!(policy.to_string(), name);
            assert!(!policy.about().is_empty(), "{name}");
            assert!(!policy.about().contains('\n'), "{name}");
        }
    }

    #[test]
    fn every_order_has_every_server_once() {
        let mut pairs: Vec<_> = CORE.iter().map(|p| (p.order, p.server)).collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), CORE.len());
    }

    #[test]
    fn fcbs_alone_means_global_edf_with_fcbs() {
        assert_eq!("fcbs".parse::<Policy>(), "g-edf+fcbs".parse());
    }

    #[test]
    fn an_unknown_policy_lists_the_known_ones_and_the_nearest() {
        let error = "g-edf+fbcs".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"g-edf+fcbs\"?"), "{error}");
        assert!(error.contains("deadline-reclaim"), "{error}");
        for bad in ["", "scx:", "scx:../x", "G-EDF", "rm+", "scx:NAME"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad}");
        }
    }
}
