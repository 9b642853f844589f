// SPDX-License-Identifier: GPL-2.0-only
//! What Onbeat's own policies are made of: an order and a server. [`Key`] and [`Server`] are made from the core's
//! registries (`core/orders/registry.h`, `core/policies/registry.h`) when this is compiled.

use crate::units::Fraction;

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
    pub(super) const ALL: [Sets; 3] = [Sets::Global, Sets::Clustered, Sets::Partitioned];

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
    /// [`crate::rank::FLOOR`]; in whole thousandths, as the core counts, rounded up.
    pub fn share(self, asked: Fraction) -> Fraction {
        let thousandths = (asked * 1000).ceil() / 1000;
        if self.key.ranks() { thousandths.min(crate::rank::FLOOR) } else { thousandths }
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

    /// What enforces a reservation of this policy under `key`, whose task is `hard` or not. Where hard ones go before
    /// all soft ones, however late their deadlines, one that has used up its budget rests (as it does under `cash`).
    pub fn of_class(self, key: Key, hard: bool) -> Server {
        let goes_on = !self.rests() && self != Server::Cash;
        if key.ranks() && hard && goes_on { Server::hard() } else { self }
    }
}
