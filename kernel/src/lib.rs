// SPDX-License-Identifier: GPL-2.0-only
//! The kernel side: the BPF shell around the core, its loader, and the service `scx_onbeat`.
//!
//! [`scheduler`] loads the shell and talks to it through its [`arena`]; [`engine`] is what of it
//! the service needs. [`reservations`] is the book: who asked, what was admitted, when it ends;
//! [`service`] is the socket in front, [`shares`] what some users may hold beyond others; [`costs`]
//! what the scheduler costs. [`machine`] and [`system`] read the kernel and the processes.

pub mod arena;
pub mod bpf_skel;
pub mod costs;
pub mod engine;
pub mod exit;
pub mod limits;
pub mod log;
pub mod machine;
pub mod priority;
mod procfs;
pub mod protection;
pub mod rate;
pub mod recorder;
pub mod reservations;
pub mod scheduler;
pub mod service;
pub mod settings;
pub mod shares;
pub mod stats;
pub mod steering;
pub mod system;
