// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler's entry points cost: the kernel's own account of BPF programs.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::ProgInfoIter;
use serde::Serialize;

use crate::arena::shell::shell;

/// The kernel's account of the run time of BPF programs, kept while this lives. It costs some tens
/// of nanoseconds for each call itself.
#[derive(Debug)]
pub struct Account {
    _open: OwnedFd,
}

/// What the calls of one entry point took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// How many there were.
    pub calls: u64,
    /// All of them together, ns.
    pub total_ns: u64,
    /// One of them, ns.
    pub mean_ns: f64,
}

impl Cost {
    fn new(calls: u64, total_ns: u64) -> Self {
        Self { calls, total_ns, mean_ns: total_ns as f64 / calls.max(1) as f64 }
    }
}

impl Account {
    /// Opens the account.
    ///
    /// # Errors
    /// The kernel lacks it (Linux 5.8) or privileges are missing.
    pub fn open() -> Result<Self> {
        // SAFETY: the call takes no pointers; its result is a descriptor of our own.
        let fd = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd))
                .context("the kernel keeps no account of the scheduler's cost");
        }
        // SAFETY: as above.
        Ok(Self { _open: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// What the entry points called so far have cost, by name; `budget` are the timers that
    /// enforce budgets.
    pub fn costs(&self, shell: &shell) -> BTreeMap<String, Cost> {
        let mut costs: BTreeMap<String, Cost> = ProgInfoIter::default()
            .filter(|program| program.run_cnt > 0)
            .filter_map(|program| {
                let name = program.name.to_str()?.strip_prefix("onbeat_")?.to_string();
                Some((name, Cost::new(program.run_cnt, program.run_time_ns)))
            })
            .collect();
        if shell.ticks > 0 {
            costs.insert("budget".into(), Cost::new(shell.ticks, shell.ticks_ns));
        }
        costs
    }
}
