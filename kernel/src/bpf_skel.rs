// SPDX-License-Identifier: GPL-2.0-only
//! The skeleton that the build generates from `bpf/main.bpf.c`.
#![allow(missing_docs, clippy::all, unsafe_op_in_unsafe_fn)]
include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
