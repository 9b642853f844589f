// SPDX-License-Identifier: GPL-2.0-only
//! Keys and servers by their names in the core's registries, where a part of a policy stands alone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Key, Server};

/// A name that no registry has; displays the names that there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} \"{name}\"; {hint}")]
pub struct UnknownPart {
    what: &'static str,
    name: String,
    hint: String,
}

/// The one of `all` that is called `text`.
fn find<T: Copy>(
    what: &'static str,
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, UnknownPart> {
    let names = || all.iter().map(|part| name(*part)).filter(|name| !name.is_empty());
    let found = all.iter().find(|part| name(**part) == text && !text.is_empty());
    found.copied().ok_or_else(|| UnknownPart {
        what,
        name: crate::units::clip(text),
        hint: match crate::taskset::nearest(text, names()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write one of {}", names().collect::<Vec<_>>().join(", ")),
        },
    })
}

macro_rules! by_name {
    ($type:ident $what:literal) => {
        impl FromStr for $type {
            type Err = UnknownPart;

            fn from_str(text: &str) -> Result<Self, UnknownPart> {
                find($what, text, $type::ALL, $type::name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }
    };
}
by_name!(Key "order");
by_name!(Server "rule");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_as_it_prints_and_no_server_has_no_name() {
        for key in Key::ALL {
            assert_eq!(key.to_string().parse(), Ok(*key));
        }
        for server in Server::ALL.iter().filter(|server| server.enforces()) {
            assert_eq!(server.to_string().parse(), Ok(*server));
        }
        assert!("".parse::<Server>().is_err());
    }

    #[test]
    fn an_unknown_part_names_the_nearest_or_all() {
        let error = "cbs-hart".parse::<Server>().unwrap_err().to_string();
        assert_eq!(error, "there is no rule \"cbs-hart\"; did you mean \"cbs-hard\"?");
        let error = "whatever".parse::<Key>().unwrap_err().to_string();
        assert!(error.contains("write one of edf, rm,"), "{error}");
    }
}
