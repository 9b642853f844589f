// SPDX-License-Identifier: GPL-2.0-only
//! Downloads a kernel into the cache, and makes sure that it works before it stays.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::kernel::Kernel;
use crate::spec::{Flavour, LabSpec, Mode};
use crate::{apt, btf, cache, initramfs, run};

/// The suite whose kernels have working sched_ext (found by trying all of them).
const SUITE: &str = "forky";

/// Modules worth keeping: block devices in memory, with delay, and persistent memory for swap.
const MODULES: [&str; 11] = [
    "null_blk",
    "zram",
    "loop",
    "brd",
    "dm_mod",
    "dm_delay",
    "libnvdimm",
    "nd_btt",
    "nd_pmem",
    "nd_e820",
    "dm_flakey",
];

/// Lists kernel releases of a flavour, newest first.
const LIST: &str = r#"
apt-cache pkgnames linux-binary- |
    sed -n "s/^linux-binary-\([0-9].*-$1\)\$/\1/p" | sort -rV
"#;

/// Downloads one release's packages; apt checks them against the signed package list.
const DOWNLOAD: &str = r#"
apt-get -qq download "linux-binary-$1" "linux-base-$1" "linux-modules-$1"
"#;

/// Puts the newest kernel that works into the cache, unless a good one is there. `say` gets a
/// line for each slow step.
///
/// # Errors
/// When nothing can be downloaded, or no kernel of the suite can run sched_ext schedulers.
pub fn kernel(flavour: Flavour, refresh: bool, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    if !refresh && let Ok(kernel) = Kernel::load(flavour) {
        return Ok(kernel);
    }
    let cache = cache::root()?;
    fs::create_dir_all(&cache).with_context(|| cache::refused("create", &cache))?;
    let releases = apt::run(SUITE, &cache, LIST, &[flavour.package_suffix()])
        .with_context(|| format!("cannot look for the `{}` kernel", flavour.name()))?;
    let mut refusals = String::new();
    for release in releases.lines() {
        say(&format!("fetching the `{}` kernel {release}", flavour.name()));
        let target = cache.join("kernel").join(flavour.name());
        match cache::publish(&target, |draft| fill(draft, flavour, release, say)) {
            Ok(()) => return Kernel::load(flavour),
            Err(error) => refusals.push_str(&format!("\n  {release}: {error:#}")),
        }
    }
    bail!("no kernel of Debian's `{SUITE}` can be used as `{}`{refusals}", flavour.name())
}

fn fill(draft: &Path, flavour: Flavour, release: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    let scratch = tempfile::tempdir_in(draft.parent().context("a draft has a parent")?)?;
    apt::run(SUITE, scratch.path(), DOWNLOAD, &[release]).context("the download failed")?;
    let packages = fs::read_dir(scratch.path())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    let tree = scratch.path().join("tree");
    for package in &packages {
        output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&tree))?;
    }
    let package = packages.first().context("apt downloaded nothing")?;
    let version = output(Command::new("dpkg-deb").arg("-f").arg(package).arg("Version"))?;
    let home = tree.join("usr/lib/modules").join(release);
    for name in ["vmlinuz", "config"] {
        fs::copy(home.join(name), draft.join(name))
            .with_context(|| format!("the packages of {release} hold no `{name}`"))?;
    }
    keep_modules(&home, &draft.join("modules"))?;
    let version = String::from_utf8_lossy(&version);
    fs::write(draft.join("version"), format!("release {release}\npackage {}\n", version.trim()))?;

    say(&format!("booting {release} to see that it works"));
    let kernel = Kernel::unchecked(draft, flavour)?;
    prove(&kernel)
}

/// Boots the kernel once and looks at its type information.
fn prove(kernel: &Kernel) -> Result<()> {
    let show = "cat /sys/kernel/btf/vmlinux >/out/btf; cat /sys/kernel/sched_ext/state";
    let mut spec = LabSpec::new(["/bin/sh", "-c", show]);
    spec.cpus = 1;
    spec.mode = Mode::RealTime;
    spec.host_timeout = Duration::from_secs(180);
    let outcome = run::run_emulated(&spec, kernel, &mut |_| ()).context("it does not boot")?;
    if !outcome.exit.success() {
        bail!("it has no sched_ext: {}", outcome.console.trim());
    }
    btf::check(&fs::read(outcome.files.join("btf"))?)
}

/// Copies the wanted modules and all they depend on, unpacked, as `name_with_underscores.ko`.
fn keep_modules(home: &Path, target: &Path) -> Result<()> {
    fs::create_dir(target)?;
    let mut available = HashMap::new();
    find_modules(&home.join("kernel"), &mut available)?;
    let mut wanted = MODULES.map(str::to_owned).to_vec();
    while let Some(name) = wanted.pop() {
        let kept = target.join(format!("{name}.ko"));
        // What this flavour has built in, or lacks, is reported when a run asks for it.
        let Some(path) = available.get(&name).filter(|_| !kept.exists()) else { continue };
        let bytes = if path.extension().is_some_and(|suffix| suffix == "xz") {
            output(Command::new("xz").args(["-dc", "--"]).arg(path))?
        } else {
            fs::read(path)?
        };
        let needed = initramfs::module_dependencies(&bytes)
            .with_context(|| format!("the module `{name}` is damaged"))?;
        wanted.extend(needed.iter().map(|name| name.replace('-', "_")));
        fs::write(kept, bytes)?;
    }
    Ok(())
}

fn find_modules(folder: &Path, found: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_modules(&path, found)?;
        } else if let Some((name, _)) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(".ko"))
        {
            found.insert(name.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

/// Runs a tool to its end and returns what it printed.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{name}`; run `make setup`"))?;
    if !done.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(done.stdout)
}
