// SPDX-License-Identifier: GPL-2.0-only
//! In which order best-effort work is served among itself: one for each line of the core's registry
//! (`core/others/registry.h`), from which this is made; and that of Linux 2.4, which only the simulator has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! others {
    ($($variant:ident $name:literal $about:literal,)*) => {
        /// Who of best-effort work goes first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Others {
            $(#[doc = $about] $variant,)*
        }

        impl Others {
            /// All, in the order of the core's registry, by whose numbers the core knows them.
            pub const ALL: &[Others] = &[$(Others::$variant,)*];

            /// Its name in the core's registry.
            pub fn name(self) -> &'static str {
                match self {
                    $(Others::$variant => $name,)*
                }
            }

            /// What it does, in a few words.
            pub fn about(self) -> &'static str {
                match self {
                    $(Others::$variant => $about,)*
                }
            }
        }
    };
}
include!(concat!(env!("OUT_DIR"), "/others.rs"));

impl Others {
    /// Its number in the core.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The names of all, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = Others::ALL.iter().map(|o| o.name()).collect();
        names.join(", ")
    }
}

/// Linux 2.4's scheduler, to compare with, by the frequency of its clock. Only the simulator has it: everything is best
/// effort there, and nobody reserves anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Linux24 {
    /// The usual clock.
    #[serde(rename = "linux-2.4-100")]
    Hz100,
    /// The clock of Banachowski and Brandt, "Better real-time response for time-share scheduling", 2003.
    #[serde(rename = "linux-2.4-800")]
    Hz800,
}

impl Linux24 {
    /// Both of them.
    pub const ALL: [Linux24; 2] = [Self::Hz100, Self::Hz800];

    /// Its name, which begins as all of them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hz100 => "linux-2.4-100",
            Self::Hz800 => "linux-2.4-800",
        }
    }

    /// What it does, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Hz100 => "Linux 2.4's epochs and counters, with ticks of 10 ms; simulator only",
            Self::Hz800 => "the same with ticks of 1.25 ms; simulator only",
        }
    }

    /// Ticks of its clock in a second.
    pub fn hz(self) -> u64 {
        match self {
            Self::Hz100 => 100,
            Self::Hz800 => 800,
        }
    }

    /// The names of all orders that the simulator has, these and Onbeat's, for messages.
    pub fn simulated() -> String {
        let old: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
        format!("{}, {}", Others::names(), old.join(", "))
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl Default for Others {
    /// The first of the core's registry, which is in force where nobody names one.
    fn default() -> Self {
        Others::ALL[0]
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Others {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || match Linux24::named(name) {
            Some(_) => format!(
                "\"{name}\" is in the simulator only (`onbeat sim`); choose one of {}",
                Others::names()
            ),
            None => format!(
                "no order of best effort is called \"{name}\"; there are {}",
                Others::names()
            ),
        };
        Others::ALL.iter().find(|o| o.name() == name).copied().ok_or_else(unknown)
    }
}

impl TryFrom<String> for Others {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Others> for String {
    fn from(order: Others) -> Self {
        order.name().into()
    }
}
