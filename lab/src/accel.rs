// SPDX-License-Identifier: GPL-2.0-only
//! Whether this host's hardware virtualization can run the lab's kernel.
//!
//! That `/dev/kvm` can be opened says little (nested or restricted virtualization may still fail
//! on a stock guest), so a test boot decides, once per host kernel, QEMU and guest kernel.

use std::fs::{self, OpenOptions};
use std::time::Duration;

use crate::cache;
use crate::kernel::Kernel;
use crate::qemu::{Accel, Qemu};
use crate::run::run_on;
use crate::spec::{LabSpec, Mode};

/// The best accelerator for runs in real time.
pub(crate) fn choose(qemu: &Qemu, kernel: &Kernel) -> Accel {
    if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Accel::Tcg;
    }
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let key = format!("host {} qemu {} guest {}", host.trim(), qemu.version, kernel.release);
    let Ok(verdicts) = cache::root().map(|root| root.join("kvm")) else { return Accel::Tcg };
    let known = fs::read_to_string(&verdicts).unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix(&key)?.strip_prefix(": "));
    match line {
        Some("works") => return Accel::Kvm,
        Some(_) => return Accel::Tcg,
        None => (),
    }
    let works = test_boot(qemu, kernel);
    let verdict = if works { "works" } else { "fails" };
    // Without the note the test is only repeated.
    let _ = fs::write(&verdicts, format!("{known}{key}: {verdict}\n"));
    if works { Accel::Kvm } else { Accel::Tcg }
}

fn test_boot(qemu: &Qemu, kernel: &Kernel) -> bool {
    let mut spec = LabSpec::new(["/bin/true"]);
    spec.cpus = 2;
    spec.mode = Mode::RealTime;
    spec.host_timeout = Duration::from_secs(20);
    run_on(&spec, qemu, kernel, Accel::Kvm, &mut |_| ()).is_ok_and(|outcome| outcome.exit.success())
}
