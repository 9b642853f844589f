// SPDX-License-Identifier: GPL-2.0-only
//! The names of scheduling policies: Onbeat's own (an order and a server) and the baselines it is compared with.
//!
//! [`Server`] is made from the core's registry (`core/policies/registry.h`) when this is compiled, and [`CORE`] from both.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

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
    /// First released, first served, one queue for all CPUs: what threads of one SCHED_FIFO priority get.
    GlobalFifo,
    /// As partitioned EDF, and what fits no CPU whole is split over several (EDF-WM).
    SplitEdf,
    /// The same with even loads, and changes of CPU at windows' ends only (EDF-WMR).
    SplitEdfPostponed,
}

impl Order {
    /// Whether reservations may be split over CPUs.
    pub fn splits(self) -> bool {
        matches!(self, Order::SplitEdf | Order::SplitEdfPostponed)
    }

    /// Whether a server that isolates does so in this order too. First come, first served and shortest period first
    /// know no deadlines, by which servers put overruns off and admission tells what fits. EDF on several CPUs may
    /// serve what is admitted late (Dhall and Liu, "On a real-time scheduling problem", 1978).
    pub fn isolates(self) -> bool {
        match self {
            Order::GlobalEdzl
            | Order::PartitionedEdf
            | Order::SplitEdf
            | Order::SplitEdfPostponed => true,
            Order::GlobalEdf | Order::ClusteredEdf | Order::RateMonotonic | Order::GlobalFifo => {
                false
            }
        }
    }

    /// The number of the core's queues on so many CPUs, which `clusters` share under a clustered order.
    pub fn domains(self, cpus: u32, clusters: u32) -> u32 {
        match self {
            Order::GlobalEdf | Order::GlobalEdzl | Order::RateMonotonic | Order::GlobalFifo => 1,
            Order::ClusteredEdf => clusters.clamp(1, cpus),
            Order::PartitionedEdf | Order::SplitEdf | Order::SplitEdfPostponed => cpus,
        }
    }
}

/// The orders with their names and what they do.
const ORDERS: [(Order, &str, &str); 8] = [
    (Order::GlobalEdf, "g-edf", "earliest deadline first on all CPUs"),
    (Order::PartitionedEdf, "p-edf", "earliest deadline first on each CPU"),
    (Order::ClusteredEdf, "c-edf", "earliest deadline first in each cluster of CPUs"),
    (Order::GlobalEdzl, "g-edzl", "as g-edf, but what can wait no longer goes first"),
    (Order::RateMonotonic, "rm", "shortest period first on all CPUs"),
    (Order::GlobalFifo, "g-fifo", "first come, first served on all CPUs, as SCHED_FIFO does"),
    (Order::SplitEdf, "edf-wm", "as p-edf, and what fits no CPU is split over several"),
    (
        Order::SplitEdfPostponed,
        "edf-wmr",
        "as edf-wm, evenly, and CPUs change only between windows",
    ),
];

macro_rules! servers {
    ($($variant:ident $name:literal $isolates:literal $about:literal,)*) => {
        /// What enforces a reservation: one for each line of the core's registry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Server {
            $(#[doc = $about] $variant,)*
        }

        impl Server {
            /// All, in the order of the core's registry.
            pub const ALL: &[Server] = &[$(Server::$variant,)*];

            /// Its name in the core's registry; "" is no server.
            pub fn name(self) -> &'static str {
                match self {
                    $(Server::$variant => $name,)*
                }
            }

            /// What it does, in a few words.
            pub fn about(self) -> &'static str {
                match self {
                    $(Server::$variant => $about,)*
                }
            }

            /// Whether what is admitted gets its budget in time whatever the other reservations do.
            pub fn isolates(self) -> bool {
                match self {
                    $(Server::$variant => $isolates,)*
                }
            }
        }
    };
}
include!(concat!(env!("OUT_DIR"), "/servers.rs"));

/// A policy of the core: an order and a server.
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

/// The policies of the core: every order with every server. Made once, so its texts may live for ever.
pub static CORE: LazyLock<Vec<CorePolicy>> = LazyLock::new(|| {
    let every = |(order, name, about): &'static (Order, &str, &str)| {
        Server::ALL.iter().map(move |server| CorePolicy {
            name: match server.name() {
                "" => name,
                server => format!("{name}+{server}").leak(),
            },
            order: *order,
            server: *server,
            about: format!("{about}; {}", server.about()).leak(),
        })
    };
    ORDERS.iter().flat_map(every).collect()
});

/// What serves reservations where nobody names a policy: task sets, the service, `onbeat family`.
pub const DEFAULT: &str = "g-edzl+cbs-predict";

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
    fn what_is_unlimited_or_shares_as_published_does_not_isolate() {
        let isolating: Vec<_> = Server::ALL.iter().filter(|s| s.isolates()).collect();
        assert!(isolating.contains(&&Server::Cbs) && isolating.contains(&&Server::CbsHard));
        for server in [Server::None, Server::Fcbs, Server::FcbsLag] {
            assert!(!server.isolates(), "{server:?}");
        }
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
