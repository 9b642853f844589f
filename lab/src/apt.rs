// SPDX-License-Identifier: GPL-2.0-only
//! Debian packages without touching the host's package state.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;

/// The script that sets up the private apt, also used by the set-up scripts.
const PRIVATE_APT: &str = include_str!("../../scripts/private-apt.sh");

/// Runs a shell script whose apt commands see nothing but `suite`; returns its standard output.
///
/// # Errors
/// With what the script wrote to standard error, when it fails.
pub fn run(suite: &str, folder: &Path, script: &str, arguments: &[&str]) -> Result<String> {
    let state = cache::root()?.join("apt");
    let output = Command::new("sh")
        .args(["-c", PRIVATE_APT, "private-apt"])
        .arg(state)
        .args([suite, "sh", "-euc", script, "apt"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start `sh`")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
