// SPDX-License-Identifier: GPL-2.0-only
//! Booted machines in the cache: a deterministic boot always ends in the same state, so it is done
//! once and every run continues from there.
//!
//! The guest decides when it is ready: init sets a watchdog and goes to sleep, and QEMU stops the
//! machine when the watchdog bites. At that moment all CPUs sleep and QEMU's main thread, which
//! stops them, has just moved virtual time to the watchdog's deadline: no instruction of the guest
//! can slip in between, so the state does not depend on the host's timing.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::machine::{Machine, Media, Seat};
use crate::monitor::{self, Monitor, Stop};
use crate::qemu::{Qemu, Setting};
use crate::spec::Progress;

/// A boot takes a few seconds to a minute, also on a busy host.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
const COPY_LIMIT: Duration = Duration::from_secs(60);
/// Each is about 200 MB.
const KEEP: usize = 8;
const STATE: &str = "state";

/// The file with the state of the booted machine; boots it when there is none yet.
///
/// # Errors
/// When the machine does not boot, or its state cannot be stored.
pub(crate) fn booted(
    setting: &Setting,
    qemu: &Qemu,
    media: &Media,
    stop: Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    qemu.version.hash(&mut hasher);
    setting.machine().hash(&mut hasher);
    setting.spec.window_mib.hash(&mut hasher); // the state holds the window, too
    setting.kernel_line().hash(&mut hasher);
    setting.kernel.fingerprint()?.hash(&mut hasher);
    media.initramfs.read_from(&mut 0)?.hash(&mut hasher);
    let folder = cache::root()?.join("boot");
    let target = folder.join(format!("{:016x}", hasher.finish()));
    cache::ensure(&target, |draft| {
        progress(Progress::Preparing);
        let mut machine = Machine::start(qemu, &setting.boot(media), media, Seat::OneCpu)?;
        save(&mut machine.monitor, &draft.join(STATE), stop)
            .with_context(|| trouble(&mut machine, "cannot boot the lab's machine"))
    })?;
    // The time of last use decides what goes when there are too many.
    let now = fs::File::open(target.join(STATE))?.set_modified(SystemTime::now());
    now.context("cannot mark the use of a booted machine")?;
    prune(&folder);
    Ok(target.join(STATE))
}

fn save(monitor: &mut Monitor, state: &Path, stop: Stop) -> Result<()> {
    monitor.await_status("info status", &["watchdog"], BOOT_LIMIT, stop)?;
    monitor.command("migrate_set_parameter max-bandwidth 1T")?;
    let to = monitor::quoted(&format!("file:{}", state.display()));
    monitor.command(&format!("migrate -d {to}"))?;
    let end = monitor.await_status("info migrate", &["completed", "failed"], COPY_LIMIT, stop)?;
    if monitor::status(&end) == "failed" {
        bail!("cannot store the state of the booted machine in the cache; is the disk full?");
    }
    Ok(())
}

/// Waits until a machine that was started with a state has taken it in.
pub(crate) fn restored(machine: &mut Machine, stop: Stop) -> Result<()> {
    machine
        .monitor
        .await_status("info status", &["watchdog"], COPY_LIMIT, stop)
        .with_context(|| trouble(machine, "cannot continue from the booted machine"))?;
    Ok(())
}

/// Lets it run.
pub(crate) fn resume(machine: &mut Machine) -> Result<()> {
    machine
        .monitor
        .command("cont")
        .with_context(|| trouble(machine, "cannot continue from the booted machine"))?;
    Ok(())
}

/// Ends a machine that failed, and adds what QEMU complained about.
fn trouble(machine: &mut Machine, what: &str) -> String {
    match machine.stop() {
        words if words.is_empty() => what.to_owned(),
        words => format!("{what} ({words})"),
    }
}

fn prune(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut found = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((fs::metadata(path.join(STATE)).ok()?.modified().ok()?, path))
        })
        .collect::<Vec<_>>();
    found.sort();
    for (_, path) in found.iter().rev().skip(KEEP) {
        // Another lab may be removing the same one.
        let _ = fs::remove_dir_all(path);
    }
}
