// SPDX-License-Identifier: GPL-2.0-only
//! The names of scheduling policies: Onbeat's own (an order and a server) and the baselines it is compared with.
//!
//! [`Key`] and [`Server`] are made from the core's registries (`core/orders/registry.h`, `core/policies/registry.h`)
//! when this is compiled, and [`CORE`] from all their pairs.

mod names;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::units::Fraction;
use serde::{Deserialize, Serialize};

macro_rules! keys {
    ($($variant:ident $name:literal $deadlines:literal $laxity:literal $chooses:literal $ranks:literal
        $isolates:literal $about:literal,)*) => {
        /// What goes first in a queue: one for each line of the core's registry of orders.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Key {
            $(#[doc = $about] $variant,)*
        }

        impl Key {
            /// All, in the order of the core's registry, by whose numbers the core knows them.
            pub const ALL: &[Key] = &[$(Key::$variant,)*];

            /// Its name in the core's registry.
            pub fn name(self) -> &'static str {
                match self {
                    $(Key::$variant => $name,)*
                }
            }

            /// What it does, in a few words.
            pub fn about(self) -> &'static str {
                match self {
                    $(Key::$variant => $about,)*
                }
            }

            /// Whether it goes by the servers' deadlines.
            pub fn goes_by_deadlines(self) -> bool {
                match self {
                    $(Key::$variant => $deadlines,)*
                }
            }

            /// Whether what is without laxity goes first.
            pub fn heeds_laxity(self) -> bool {
                match self {
                    $(Key::$variant => $laxity,)*
                }
            }

            /// Whether it chooses a set of jobs in place of comparing two: what goes before what is not for two to say.
            pub fn chooses(self) -> bool {
                match self {
                    $(Key::$variant => $chooses,)*
                }
            }

            /// Whether hard reservations go before soft ones, and best effort has servers among these: such an order
            /// has one queue for all CPUs.
            pub fn ranks(self) -> bool {
                match self {
                    $(Key::$variant => $ranks,)*
                }
            }

            /// On how many CPUs of one queue it isolates: 0 on none, 1 on one, 2 on any number.
            fn isolates_on(self) -> u32 {
                match self {
                    $(Key::$variant => $isolates,)*
                }
            }
        }
    };
}
include!(concat!(env!("OUT_DIR"), "/keys.rs"));

/// How far a queue reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sets {
    /// All CPUs.
    Global,
    /// A cluster of CPUs.
    Clustered,
    /// One CPU.
    Partitioned,
}

impl Sets {
    const ALL: [Sets; 3] = [Sets::Global, Sets::Clustered, Sets::Partitioned];

    fn prefix(self) -> &'static str {
        match self {
            Sets::Global => "g-",
            Sets::Clustered => "c-",
            Sets::Partitioned => "p-",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Sets::Global => "on all CPUs",
            Sets::Clustered => "in each cluster of CPUs",
            Sets::Partitioned => "on each CPU",
        }
    }
}

/// Whether what fits no CPU whole is split over several, each with a window of time of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Splits {
    /// It is not.
    Never,
    /// First fit, and it changes CPU as soon as a share is used up (EDF-WM).
    Early,
    /// With even loads, and changes of CPU at windows' ends only (EDF-WMR).
    Postponed,
}

/// In which order reservations are served, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Order {
    /// What goes first in a queue.
    pub key: Key,
    /// How far a queue reaches.
    pub sets: Sets,
    /// Whether what fits no CPU is split.
    pub splits: Splits,
}

impl Order {
    /// `g-edf`.
    pub const GLOBAL_EDF: Order = Order::whole(Key::Edf, Sets::Global);
    /// `c-edf`.
    pub const CLUSTERED_EDF: Order = Order::whole(Key::Edf, Sets::Clustered);
    /// `p-edf`.
    pub const PARTITIONED_EDF: Order = Order::whole(Key::Edf, Sets::Partitioned);
    /// `g-edzl`.
    pub const GLOBAL_EDZL: Order = Order::whole(Key::Edzl, Sets::Global);
    /// `rm`.
    pub const RATE_MONOTONIC: Order = Order::whole(Key::Rm, Sets::Global);
    /// `g-fifo`.
    pub const GLOBAL_FIFO: Order = Order::whole(Key::Fifo, Sets::Global);
    /// `edf-wm`.
    pub const EDF_WM: Order = Order { splits: Splits::Early, ..Order::PARTITIONED_EDF };
    /// `edf-wmr`.
    pub const EDF_WMR: Order = Order { splits: Splits::Postponed, ..Order::PARTITIONED_EDF };

    /// Without splitting.
    pub const fn whole(key: Key, sets: Sets) -> Order {
        Order { key, sets, splits: Splits::Never }
    }

    /// All: every key on every set of CPUs, one that ranks on all of them, then those that split, whose windows are
    /// tested for EDF.
    pub fn all() -> impl Iterator<Item = Order> {
        let sets = |key: &Key| Sets::ALL.map(|sets| Order::whole(*key, sets));
        let goes = |order: &Order| !order.key.ranks() || order.sets == Sets::Global;
        Key::ALL.iter().flat_map(sets).filter(goes).chain([Order::EDF_WM, Order::EDF_WMR])
    }

    /// Its name, made of its parts but for names older than that.
    pub fn name(self) -> String {
        match self {
            Order::RATE_MONOTONIC => "rm".into(),
            Order::EDF_WM => "edf-wm".into(),
            Order::EDF_WMR => "edf-wmr".into(),
            _ => format!("{}{}", self.sets.prefix(), self.key.name()),
        }
    }

    /// What it does, in a few words.
    pub fn about(self) -> String {
        let whole = format!("{} {}", self.key.about(), self.sets.about());
        match self.splits {
            Splits::Never => whole,
            Splits::Early => format!("{whole}, and what fits none is split over several"),
            Splits::Postponed => {
                format!(
                    "{whole}, as edf-wm, but split evenly, and jobs change CPUs at windows' ends only"
                )
            }
        }
    }

    /// Whether reservations may be split over CPUs.
    pub fn splits(self) -> bool {
        self.splits != Splits::Never
    }

    /// Whether a server that isolates does so in this order too. First come, first served and shortest period first
    /// know no deadlines, by which servers put overruns off and admission tells what fits. EDF on several CPUs may
    /// serve what is admitted late (Dhall and Liu, "On a real-time scheduling problem", 1978).
    pub fn isolates(self) -> bool {
        self.key.isolates_on() > u32::from(self.sets != Sets::Partitioned)
    }

    /// The number of the core's queues on so many CPUs, which `clusters` share under a clustered order.
    pub fn domains(self, cpus: u32, clusters: u32) -> u32 {
        match self.sets {
            Sets::Global => 1,
            Sets::Clustered => clusters.clamp(1, cpus),
            Sets::Partitioned => cpus,
        }
    }

    /// What of each CPU best effort keeps as its own share, of `asked`: where it has servers, at most
    /// [`crate::rank::FLOOR`].
    pub fn share(self, asked: Fraction) -> Fraction {
        if self.key.ranks() { asked.min(crate::rank::FLOOR) } else { asked }
    }

    /// The core's number of its key.
    pub fn number(self) -> u32 {
        self.key as u32
    }
}

macro_rules! servers {
    ($($variant:ident $name:literal $enforces:literal $rests:literal $isolates:literal $lends:literal
        $about:literal,)*) => {
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

            /// Whether budgets are enforced.
            pub fn enforces(self) -> bool {
                match self {
                    $(Server::$variant => $enforces,)*
                }
            }

            /// Whether who has used up the budget waits for the next, whatever is free.
            pub fn rests(self) -> bool {
                match self {
                    $(Server::$variant => $rests,)*
                }
            }

            /// Whether slack goes to those who have used up theirs, without a charge.
            pub fn lends(self) -> bool {
                match self {
                    $(Server::$variant => $lends,)*
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

impl Server {
    /// The one that isolates and gives nothing beyond the budget.
    ///
    /// # Panics
    /// The registry has none.
    pub fn hard() -> Server {
        let hard = Server::ALL.iter().find(|server| server.rests() && server.isolates());
        *hard.expect("the registry has a server that rests")
    }
}

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
    let every = |order: Order| {
        Server::ALL.iter().map(move |server| CorePolicy {
            name: match server.name() {
                "" => order.name().leak(),
                server => format!("{}+{server}", order.name()).leak(),
            },
            order,
            server: *server,
            about: format!("{}; {}", order.about(), server.about()).leak(),
        })
    };
    Order::all().flat_map(every).collect()
});

/// What serves reservations where nobody names a policy: task sets, the service, `onbeat family`.
pub const DEFAULT: &str = "g-edzl+cbs-predict";

/// The share of every CPU that best-effort work keeps where nobody says how much.
pub const DEFAULT_SHARE: Fraction = Fraction::new_raw(1, 20);

/// Other names for policies of [`CORE`].
pub const ALIASES: [(&str, &str); 2] = [("fcbs", "g-edf+fcbs"), ("edf-hsb-ns", "g-hsb+cbs-hard")];

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
#[error("there is no policy \"{name}\"; {hint}{}", known())]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    hint: String,
}

/// What there is, by parts: all pairs would be too many to read.
fn known() -> String {
    let orders: Vec<String> = Order::all().map(Order::name).collect();
    let servers: Vec<&str> =
        Server::ALL.iter().map(|s| s.name()).filter(|n| !n.is_empty()).collect();
    let others = ALIASES.iter().map(|a| a.0).chain(BASELINES.iter().map(|b| b.0));
    let others: Vec<&str> = others.chain(["scx:NAME"]).collect();
    format!(
        "a policy is ORDER or ORDER+SERVER, of the orders {} and the servers {}, or one of {}",
        orders.join(", "),
        servers.join(", "),
        others.join(", ")
    )
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

    /// Its line in [`CORE`], if it is one of Onbeat's own.
    pub fn core(&self) -> Option<&'static CorePolicy> {
        let Policy::Core { order, server } = self else { return None };
        CORE.iter().find(|p| (p.order, p.server) == (*order, *server))
    }

    /// Its order, if it is one of Onbeat's own.
    pub fn order(&self) -> Option<Order> {
        match self {
            Policy::Core { order, .. } => Some(*order),
            _ => None,
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
        // By its parts it would be called so.
        let name = if name.starts_with("g-rm") { &name[2..] } else { name };
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
    fn every_key_goes_with_every_set_of_cpus_and_every_server_and_old_names_stay() {
        let sets = |key: &Key| if key.ranks() { 1 } else { Sets::ALL.len() };
        let orders = Key::ALL.iter().map(sets).sum::<usize>() + 2;
        assert_eq!(CORE.len(), orders * Server::ALL.len());
        for name in ["p-rm+cbs-hard", "c-edzl+fcbs", "c-fifo", "p-edzl+cbs-predict"] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        assert_eq!("g-rm+cbs".parse::<Policy>().unwrap().to_string(), "rm+cbs");
        assert!("g-rmx".parse::<Policy>().is_err());
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
