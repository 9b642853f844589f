// SPDX-License-Identifier: GPL-2.0-only
//! What can be steered: the kernel's files that hold masks of CPUs for interrupts and unbound work.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::machine::{mask_of, parse_cpus};
use crate::procfs;

/// How many interrupts are named that cannot be moved.
const NAMED: usize = 5;

/// What can be steered, in the kernel's files below a root.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) root: PathBuf,
}

/// By file, below the root, what stood there.
pub(super) type Masks = BTreeMap<String, String>;

impl Files {
    pub(super) fn at(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Interrupts by number, with the name of the first device of each that has one.
    pub(super) fn interrupts(&self) -> io::Result<BTreeMap<u32, Option<String>>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.at("proc/irq"))? {
            let entry = entry?;
            let Some(number) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let device = |entry: fs::DirEntry| {
                let is = entry.file_type().is_ok_and(|kind| kind.is_dir());
                is.then(|| entry.file_name().to_string_lossy().into_owned())
            };
            // It may have gone meanwhile.
            let Ok(inside) = fs::read_dir(entry.path()) else { continue };
            all.insert(number, inside.flatten().find_map(device));
        }
        Ok(all)
    }

    /// All files that hold a mask of CPUs: for new interrupts, for each interrupt, for the kernel's unbound work.
    pub(super) fn all(&self) -> io::Result<Vec<String>> {
        let numbers = self.interrupts()?.into_keys().map(affinity);
        let fixed = [DEFAULT, WORK].map(String::from);
        Ok(fixed.into_iter().chain(numbers).filter(|file| self.at(file).exists()).collect())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.at(file))?.trim().to_string())
    }

    pub(super) fn online(&self) -> u64 {
        let text = fs::read_to_string(self.at("sys/devices/system/cpu/online"));
        text.ok().and_then(|text| parse_cpus(&text).ok()).map_or(u64::MAX, |cpus| mask_of(&cpus))
    }
}

/// CPUs of interrupts that come later.
pub(super) const DEFAULT: &str = "proc/irq/default_smp_affinity";
/// CPUs of the kernel's work that is bound to none.
pub(super) const WORK: &str = "sys/devices/virtual/workqueue/cpumask";

/// CPUs of one interrupt.
pub(super) fn affinity(number: u32) -> String {
    format!("proc/irq/{number}/smp_affinity")
}

/// CPUs 0 to 63 of a mask as the kernel writes it, hexadecimal words of 32 bits with commas between.
pub(super) fn bits(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().filter(|c| *c != ',').collect();
    let low = digits.get(digits.len().saturating_sub(16)..)?;
    u64::from_str_radix(low, 16).ok()
}

/// The opposite of [`bits`].
pub(super) fn text(mask: u64) -> String {
    match mask >> 32 {
        0 => format!("{mask:x}"),
        high => format!("{high:x},{:08x}", mask as u32),
    }
}

/// What of this machine can be steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Interrupts of devices that can be moved.
    pub movable: usize,
    /// Those that cannot, by number and device.
    pub fixed: Vec<String>,
    /// The kernel's unbound work can be moved.
    pub work: bool,
}

impl Survey {
    /// Looks at the kernel's files.
    ///
    /// # Errors
    /// There is no /proc/irq.
    pub fn new() -> io::Result<Self> {
        Self::of(&Files { root: "/".into() })
    }

    pub(super) fn of(files: &Files) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let mut all = Self { movable: 0, fixed: vec![], work: files.at(WORK).exists() };
        for (number, device) in files.interrupts()? {
            let Some(device) = device else { continue };
            // The kernel lets nobody write where the driver, or it itself, has chosen for good.
            let mode = fs::metadata(files.at(&affinity(number))).map(|m| m.permissions().mode());
            match mode {
                Ok(mode) if mode & 0o200 != 0 => all.movable += 1,
                _ => all.fixed.push(format!("{number} {device}")),
            }
        }
        Ok(all)
    }

    /// In words.
    pub fn say(&self) -> String {
        let mut words = format!("{} device interrupts can be moved", self.movable);
        if !self.work {
            words += ", the kernel's unbound work cannot";
        }
        words + &stay(&self.fixed)
    }
}

/// Those that stay, if any, some by name.
pub(super) fn stay(fixed: &[String]) -> String {
    if fixed.is_empty() {
        return String::new();
    }
    let more = if fixed.len() > NAMED { ", …" } else { "" };
    let names = fixed.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("; {} cannot: {names}{more}", fixed.len())
}

/// The process that moves interrupts, too, if one runs.
pub fn balancer() -> Option<u32> {
    let is = |pid: &u32| {
        procfs::read(&format!("{pid}/comm")).is_ok_and(|name| name.trim_ascii() == b"irqbalance")
    };
    procfs::numbers(".").ok()?.into_iter().find(is)
}
