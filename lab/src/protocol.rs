// SPDX-License-Identifier: GPL-2.0-only
//! What the host and `onbeat-init` agree on.

use serde::{Deserialize, Serialize};

/// On the kernel's command line: let the host keep the machine's state before the run.
pub const PAUSE_ARGUMENT: &str = "onbeat.pause";
/// Where the guest finds its [`GuestSpec`] (JSON).
pub const SPEC_PATH: &str = "/etc/onbeat/run.json";
/// Where the modules to load lie, named so that their order by name is the order to load them.
pub const MODULES_PATH: &str = "/etc/onbeat/modules";
/// Where the command leaves its files.
pub const OUT_PATH: &str = "/out";

/// PCI vendor of the shared-memory device (QEMU's ivshmem).
pub const WINDOW_VENDOR: &str = "0x1af4";
/// PCI device id of the shared-memory device.
pub const WINDOW_DEVICE: &str = "0x1110";
/// First bytes of the window when the host has filled it: what to run.
pub const MAGIC_IN: [u8; 8] = *b"ONBEATin";
/// First bytes of the window when the guest has filled it: results. Written last.
pub const MAGIC_OUT: [u8; 8] = *b"ONBEATok";
/// Bytes before the archive: the magic, then its length (u64, little endian).
pub const HEADER: usize = 16;
/// Name of the [`GuestStatus`] (JSON) in the archive.
pub const STATUS_NAME: &str = "status.json";
/// Name of the kernel log in the archive.
pub const LOG_NAME: &str = "kernel.log";
/// Folder of the archive that holds the files of [`OUT_PATH`].
pub const OUT_NAME: &str = "out";

/// What init shall do.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestSpec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Seed for the kernel's random numbers.
    pub seed: Option<u64>,
    /// Kill the command after this much guest time.
    pub timeout_ns: Option<u64>,
    /// Rows and columns when the command gets a real terminal.
    pub terminal: Option<(u16, u16)>,
}

/// How it went.
#[derive(Debug, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Exit status, when the command exited.
    pub code: Option<i32>,
    /// Signal, when one killed it.
    pub signal: Option<i32>,
    /// Whether it was init that killed it, because its time was up.
    pub timed_out: bool,
    /// Kernel messages of level warning or worse since the command started.
    pub warnings: Vec<String>,
    /// `/proc/sys/kernel/tainted`.
    pub tainted: u64,
    /// How long the command ran in guest time.
    pub guest_ns: u64,
    /// `uname -r`.
    pub release: String,
}
