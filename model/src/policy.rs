// SPDX-License-Identifier: GPL-2.0-only
//! The names of scheduling policies: Onbeat's own (an order and a server) and the baselines it is compared with.
//! [`CORE`] is all pairs of orders and servers.

mod names;
mod parts;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::units::Fraction;
use serde::{Deserialize, Serialize};

pub use parts::{Key, Order, Server, Sets, Splits};

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
                "" => called(order, order.name()),
                server => called(order, format!("{}+{server}", order.name())),
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
pub const ALIASES: [(&str, &str); 3] =
    [("fcbs", "g-edf+fcbs"), ("edf-hsb", "g-hsb+cash"), ("edf-hsb-ns", "g-hsb+cbs-hard")];

/// What a policy with these parts is called: where its order ranks it has an alias's name, that of the published system
/// which it is.
fn called(order: Order, parts: String) -> &'static str {
    match ALIASES.iter().find(|alias| order.key.ranks() && alias.1 == parts) {
        Some(alias) => alias.0,
        None => parts.leak(),
    }
}

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

/// A policy by name. Prints as its line in [`CORE`], whatever name it was made from.
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

/// A name that is no policy; displays the nearest names that are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy \"{name}\"; {hint}`onbeat policies` lists all")]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    hint: String,
}

/// So many names are proposed in place of one that is no policy.
const PROPOSED: usize = 3;

/// Those that are no names of lines in [`CORE`].
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES.iter().copied().filter(|alias| CORE.iter().all(|p| p.name != alias.0))
}

/// All names in the order of the tables, with `scx:NAME` standing for its family.
pub fn known_names() -> Vec<&'static str> {
    let core = CORE.iter().map(|p| p.name);
    core.chain(aliases().map(|a| a.0))
        .chain(BASELINES.iter().map(|b| b.0))
        .chain(["scx:NAME"])
        .collect()
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
        let parts = ALIASES.iter().find(|a| a.0 == text).map_or(text, |a| a.1);
        // By its parts it would be called so.
        let parts = if parts.starts_with("g-rm") { &parts[2..] } else { parts };
        let alias = ALIASES.iter().find(|a| a.1 == parts).map_or(parts, |a| a.0);
        if let Some(p) = CORE.iter().find(|p| [parts, alias].contains(&p.name)) {
            return Ok(Policy::Core { order: p.order, server: p.server });
        }
        if let Some((_, baseline, _)) = BASELINES.iter().find(|b| b.0 == text) {
            return Ok(Policy::Baseline(*baseline));
        }
        // The name becomes part of a file name: keep it plain.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if let Some(scx) = text.strip_prefix("scx:")
            && (1..=32).contains(&scx.len())
            && scx.chars().all(plain)
        {
            return Ok(Policy::Scx(scx.into()));
        }
        let near = crate::taskset::near(text, known_names());
        let near: Vec<String> = near.iter().take(PROPOSED).map(|n| format!("\"{n}\"")).collect();
        let hint = match &near[..] {
            [] => String::new(),
            near => format!("did you mean {}? ", near.join(" or ")),
        };
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
    fn an_unknown_policy_gets_the_nearest_names_and_not_all() {
        let error = "g-edf+fbcs".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"g-edf+fcbs\" or "), "{error}");
        assert!(error.ends_with("`onbeat policies` lists all") && error.len() < 150, "{error}");
        let error = "nothing-like-it".parse::<Policy>().unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
        for bad in ["", "scx:", "scx:../x", "G-EDF", "rm+", "scx:NAME"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad}");
        }
    }
}
