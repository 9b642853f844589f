// SPDX-License-Identifier: GPL-2.0-only
//! The guest's files: what it boots with, and what a run adds.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::endian::AnyEndian;

use crate::archive::Archive;
use crate::closure;
use crate::kernel::Kernel;
use crate::protocol::{self, GuestSpec};
use crate::spec::{LabSpec, Mode};

const DIRECTORIES: [&str; 12] = [
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "root",
    "out",
    "mnt",
    "var/tmp",
    "etc/onbeat/modules",
    "usr/lib/modules",
    "boot",
];
/// Where the dynamic linker looks without being told.
const STANDARD_LIBRARIES: [&str; 6] = [
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
];

/// What the guest boots with: init and a shell. Always the same for one kernel.
pub fn base(kernel: &Kernel) -> Result<Archive> {
    let mut archive = Archive::new();
    for directory in DIRECTORIES {
        archive.directory(Path::new(directory));
    }
    archive.bytes(Path::new("/etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n", 0o644);
    archive.bytes(Path::new("/etc/group"), "root:x:0:\n", 0o644);
    archive.bytes(Path::new("/etc/hostname"), "onbeat\n", 0o644);
    archive.bytes(Path::new("/etc/hosts"), "127.0.0.1 localhost onbeat\n", 0o644);
    let config = format!("/boot/config-{}", kernel.release);
    archive.copy(&kernel.config(), Path::new(&config))?;
    add_busybox(&mut archive)?;
    add_program(&mut archive, &init_program()?, Path::new("/init"), &mut Vec::new())?;
    Ok(archive)
}

/// What a run adds: programs, files, modules, and what to do with them.
pub fn payload(spec: &LabSpec, kernel: &Kernel, terminal: Option<(u16, u16)>) -> Result<Archive> {
    let mut archive = Archive::new();
    let mut search = Vec::new();
    for program in &spec.programs {
        let name = program
            .file_name()
            .with_context(|| format!("`{}` is not a program", program.display()))?;
        add_program(&mut archive, program, &Path::new("/bin").join(name), &mut search)?;
    }
    for (host, guest) in &spec.files {
        if !guest.is_absolute() {
            bail!("`{}`: paths in the guest start with `/`", guest.display());
        }
        archive.copy(host, guest)?;
    }
    for (number, module) in module_order(kernel, &spec.extra_modules)?.iter().enumerate() {
        let name = module.file_name().context("a module without a name")?.to_string_lossy();
        let guest = format!("{}/{number:03}-{name}", protocol::MODULES_PATH);
        archive.copy(module, Path::new(&guest))?;
    }
    let guest = guest_spec(spec, terminal, &search);
    archive.bytes(Path::new(protocol::SPEC_PATH), serde_json::to_vec(&guest)?, 0o644);
    Ok(archive)
}

fn guest_spec(spec: &LabSpec, terminal: Option<(u16, u16)>, search: &[PathBuf]) -> GuestSpec {
    let mut environment: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/usr/sbin:/bin:/sbin"),
        ("HOME", "/root"),
        ("TERM", if terminal.is_some() { "linux" } else { "dumb" }),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into();
    if !search.is_empty() {
        let list = search.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join(":");
        environment.insert("LD_LIBRARY_PATH".into(), list);
    }
    environment.extend(spec.env.iter().cloned());
    let command = if spec.interactive && spec.command.is_empty() {
        vec!["/bin/sh".into(), "-l".into()]
    } else {
        spec.command.clone()
    };
    GuestSpec {
        command,
        env: environment.into_iter().collect(),
        seed: match spec.mode {
            Mode::Deterministic { seed, .. } => Some(seed),
            Mode::RealTime => None,
        },
        timeout_ns: spec.guest_timeout.map(|t| t.as_nanos().min(u64::MAX.into()) as u64),
        terminal,
    }
}

/// Copies a program and its libraries; remembers folders the linker must be told of.
fn add_program(
    archive: &mut Archive,
    host: &Path,
    guest: &Path,
    search: &mut Vec<PathBuf>,
) -> Result<()> {
    let libraries = closure::libraries(host)?;
    archive.copy(host, guest)?;
    for library in libraries {
        archive.copy(&library, &library)?;
        let folder = library.parent().unwrap_or(Path::new("/")).to_owned();
        let standard = STANDARD_LIBRARIES.iter().any(|known| folder == Path::new(known));
        if !standard && !search.contains(&folder) {
            search.push(folder);
        }
    }
    Ok(())
}

fn add_busybox(archive: &mut Archive) -> Result<()> {
    let found = ["/bin/busybox", "/usr/bin/busybox", "/sbin/busybox"];
    let Some(host) = found.iter().map(Path::new).find(|path| path.exists()) else {
        bail!("busybox, the lab's shell, is not installed; run `make setup`");
    };
    if !closure::libraries(host)?.is_empty() {
        bail!("`{}` is not a static busybox; run `make setup`", host.display());
    }
    archive.copy(host, Path::new("/bin/busybox"))?;
    let output = Command::new(host)
        .arg("--list")
        .output()
        .with_context(|| format!("cannot start `{}`", host.display()))?;
    for applet in String::from_utf8_lossy(&output.stdout).lines().map(str::trim) {
        if !applet.is_empty() && applet != "busybox" {
            archive.link(&Path::new("/bin").join(applet), "busybox");
        }
    }
    Ok(())
}

/// Finds `onbeat-init`: `$ONBEAT_INIT`, or beside this program (tests lie one folder deeper).
fn init_program() -> Result<PathBuf> {
    if let Some(named) = env::var_os("ONBEAT_INIT") {
        return Ok(PathBuf::from(named));
    }
    let program = env::current_exe().context("cannot tell where this program lies")?;
    let found =
        program.ancestors().skip(1).take(2).map(|dir| dir.join("onbeat-init")).find(|p| p.exists());
    found.with_context(|| {
        format!(
            "`onbeat-init` is not beside `{}`; build it with `cargo build -p onbeat-lab`",
            program.display()
        )
    })
}

/// The modules' files, dependencies first.
fn module_order(kernel: &Kernel, wanted: &[String]) -> Result<Vec<PathBuf>> {
    fn visit(kernel: &Kernel, name: &str, order: &mut Vec<PathBuf>) -> Result<()> {
        let path = kernel.modules().join(format!("{}.ko", name.replace('-', "_")));
        if order.contains(&path) {
            return Ok(());
        }
        let bytes = fs::read(&path).with_context(|| {
            format!("the `{}` kernel in the cache has no module `{name}`", kernel.flavour.name())
        })?;
        for needed in module_dependencies(&bytes)
            .with_context(|| format!("`{}` is a damaged module", path.display()))?
        {
            visit(kernel, &needed, order)?;
        }
        order.push(path);
        Ok(())
    }
    let mut order = Vec::new();
    for name in wanted {
        visit(kernel, name, &mut order)?;
    }
    Ok(order)
}

/// The names in the `depends=` line of a module's `.modinfo` section.
pub(crate) fn module_dependencies(module: &[u8]) -> Result<Vec<String>> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(module)?;
    let section = file.section_header_by_name(".modinfo")?.context("no .modinfo section")?;
    let (info, _) = file.section_data(&section)?;
    let depends = info.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"depends="));
    let depends = String::from_utf8_lossy(depends.unwrap_or_default()).into_owned();
    Ok(depends.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
