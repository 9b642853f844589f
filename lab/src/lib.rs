// SPDX-License-Identifier: GPL-2.0-only
//! The lab: run any program on a stock Linux kernel inside QEMU, in deterministic virtual time.
//!
//! Say what should run in a [`LabSpec`], hand it to [`run`], get a [`LabOutcome`]. On the way:
//! the programs and their shared libraries become an archive ([`initramfs`], [`closure`]), QEMU
//! runs a machine that was booted before ([`machine`], [`qemu`]), `onbeat-init` runs the command
//! inside, and everything the command left in `/out` comes back ([`results`]), both ways through a
//! window of shared memory ([`protocol`]).
//! The kernels and the movies live in a checked cache ([`cache`], [`kernel`], [`movie`], filled by
//! [`fetch`]).

mod accel;
mod apt;
pub mod archive;
pub mod btf;
pub mod cache;
pub mod closure;
pub mod fetch;
mod host_cpu;
pub mod initramfs;
pub mod kernel;
pub mod machine;
pub mod monitor;
pub mod movie;
pub mod options;
pub mod protocol;
pub mod qemu;
pub mod results;
mod run;
mod snapshot;
mod spec;
mod terminal;

pub use run::run;
pub use spec::{Exit, Flavour, LabOutcome, LabSpec, Mode, Platform, Progress};
