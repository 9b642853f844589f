// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of the core that all rooms must keep to, from its headers.

include!(concat!(env!("OUT_DIR"), "/numbers.rs"));
