// SPDX-License-Identifier: GPL-2.0-only
//! The kernel side: the BPF shell around the core, its loader, and the service `scx_onbeat`.

pub mod arena;
pub mod bpf_skel;
pub mod scheduler;
