// SPDX-License-Identifier: GPL-2.0-only
//! The `client` room of Onbeat: how a program asks for a reservation and keeps its beat.
//!
//! [`Service`] speaks with the reservation service, [`Reservation`] is what it grants, and
//! [`Beat`] releases jobs on time. Programs in C use the same through
//! `c/include/onbeat.h`.
//!
//! ```no_run
//! use onbeat_client::{Beat, Params, Reservation};
//!
//! const MS: u64 = 1_000_000;
//! let params = Params::new(25 * MS, 41 * MS).marking_jobs();
//! let _reservation = Reservation::of_this_process("player", &params)?;
//! let mut beat = Beat::marked(41 * MS);
//! loop {
//!     beat.wait();
//!     // one job: decode and show one frame
//! }
//! # Ok::<(), onbeat_client::Error>(())
//! ```

mod beat;
mod change;
mod params;
mod service;

pub use beat::{Beat, job_done};
pub use change::Change;
pub use params::Params;
pub use service::{
    DEFAULT_SOCKET, Error, Grant, Reservation, SOCKET_VARIABLE, STARTING, Service, socket,
};
