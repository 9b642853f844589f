// SPDX-License-Identifier: GPL-2.0-only
//! QEMU: finding it, its command line, its life.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::kernel::Kernel;
use crate::spec::{LabSpec, Mode};

/// Older ones let one CPU run far ahead of the others in deterministic mode.
const OLDEST_QEMU: (u32, u32) = (8, 1);

/// A QEMU that can run the lab.
#[derive(Debug, Clone)]
pub struct Qemu {
    program: PathBuf,
    /// As `--version` says, like `10.0.2`.
    pub version: String,
}

impl Qemu {
    /// Finds QEMU: `$ONBEAT_QEMU`, else `qemu-system-x86_64` in `PATH`.
    ///
    /// # Errors
    /// When there is none, or it is older than 8.1.
    pub fn find() -> Result<Self> {
        let program = env::var_os("ONBEAT_QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
        let program = PathBuf::from(program);
        let output =
            Command::new(&program).arg("--version").stdin(Stdio::null()).output().with_context(
                || {
                    format!(
                        "the lab needs QEMU: cannot start `{}`; run `make setup`",
                        program.display()
                    )
                },
            )?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .split_once("version ")
            .and_then(|(_, rest)| rest.split([' ', '\n']).next())
            .with_context(|| format!("`{}` does not tell its version", program.display()))?;
        if number(version).is_none_or(|number| number < OLDEST_QEMU) {
            bail!("QEMU {version} is too old for the lab, it needs 8.1 or newer; run `make setup`");
        }
        Ok(Qemu { program, version: version.to_owned() })
    }
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// How QEMU executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By translating them.
    Tcg,
    /// On the host's CPUs, with their virtualization support.
    Kvm,
}

impl Accel {
    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Tcg => "tcg",
            Accel::Kvm => "kvm",
        }
    }
}

/// Memory that this process and QEMU share; it has no name, so nothing is left behind.
#[derive(Debug)]
pub struct Shared(File);

impl Shared {
    /// Creates one; `name` is for debugging only.
    pub fn new(name: &std::ffi::CStr) -> Result<Self> {
        // SAFETY: `name` is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("cannot get memory for the lab");
        }
        // SAFETY: `fd` is open and owned by nobody else.
        Ok(Shared(unsafe { File::from_raw_fd(fd) }))
    }

    /// The memory as a file.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// The name under which a child that inherits the descriptor can open it.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// What was written since `offset`, which moves on.
    pub fn read_from(&self, offset: &mut u64) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = [0; 1 << 16];
        loop {
            let count = self.0.read_at(&mut buffer, *offset)?;
            if count == 0 {
                return Ok(all);
            }
            all.extend_from_slice(&buffer[..count]);
            *offset += count as u64;
        }
    }
}

/// What the guest reads and writes.
#[derive(Debug)]
pub struct Media {
    /// The initramfs.
    pub initramfs: Shared,
    /// What the kernel writes to its console.
    pub kernel_console: Shared,
    /// What the command writes.
    pub console: Shared,
    /// Where init puts the results.
    pub window: Shared,
}

/// A running QEMU. Killed when dropped, and by the kernel when this process dies.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    complaints: Option<thread::JoinHandle<String>>,
}

impl Machine {
    /// Boots the guest.
    pub fn start(
        qemu: &Qemu,
        spec: &LabSpec,
        kernel: &Kernel,
        accel: Accel,
        media: &Media,
    ) -> Result<Self> {
        let mut command = Command::new(&qemu.program);
        command.args(arguments(spec, kernel, accel, media));
        let inherited = [&media.initramfs, &media.kernel_console, &media.console, &media.window]
            .map(|shared| shared.0.as_raw_fd());
        let parent = std::process::id() as libc::pid_t;
        let interactive = spec.interactive;
        // SAFETY: the closure only makes system calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                if libc::getppid() != parent {
                    return Err(io::Error::other("the lab was stopped"));
                }
                // Only a shell shares our terminal; otherwise Ctrl-C is for us alone.
                if !interactive && libc::setpgid(0, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
                inherited.iter().try_for_each(|fd| keep_open(*fd))
            });
        }
        if !interactive {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", qemu.program.display()))?;
        let complaints = child
            .stderr
            .take()
            .map(|stderr| thread::spawn(move || io::read_to_string(stderr).unwrap_or_default()));
        Ok(Machine { child, complaints })
    }

    /// The exit status once QEMU has ended; waits no longer than `patience`.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("lost QEMU")?;
        if status.is_none() {
            thread::sleep(patience);
        }
        Ok(status)
    }

    /// Kills QEMU, and says what it complained about.
    pub fn stop(&mut self) -> String {
        // Failure means it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok());
        complaints.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn keep_open(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD touches nothing but the descriptor's flags.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn arguments(spec: &LabSpec, kernel: &Kernel, accel: Accel, media: &Media) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-machine", "pc", "-smp", &spec.cpus.to_string()]);
    add(&["-m", &spec.memory_mib.to_string()]);
    match spec.mode {
        Mode::Deterministic { turn_us, seed } => {
            add(&["-accel", "tcg", "-cpu", "max", "-icount", "shift=0,sleep=off"]);
            add(&["-seed", &seed.to_string(), "-rtc", "base=2026-01-01,clock=vm"]);
            // Nothing is on this network. Its filter is a free-running virtual timer, and QEMU
            // ends a CPU's turn at the latest when the next virtual timer is due.
            add(&["-netdev", "hubport,id=turn,hubid=0", "-object"]);
            add(&[&format!("filter-buffer,id=turns,netdev=turn,interval={turn_us}")]);
        }
        Mode::RealTime => match accel {
            Accel::Kvm => add(&["-accel", "kvm", "-cpu", "host"]),
            Accel::Tcg => add(&["-accel", "tcg,thread=multi", "-cpu", "max"]),
        },
    }
    add(&["-kernel", &kernel.image().to_string_lossy()]);
    add(&["-initrd", &media.initramfs.path(), "-append", &kernel_line(spec)]);
    // Consoles go to files because a file never makes the guest wait for its reader.
    add(&["-chardev", &format!("file,id=kernel,path={}", media.kernel_console.path())]);
    add(&["-serial", "chardev:kernel"]);
    if spec.interactive {
        add(&["-chardev", "stdio,id=command,signal=off"]);
    } else {
        add(&["-chardev", &format!("file,id=command,path={}", media.console.path())]);
    }
    add(&["-serial", "chardev:command"]);
    let window = format!(
        "memory-backend-file,id=window,share=on,size={}M,mem-path={}",
        spec.results_mib,
        media.window.path()
    );
    add(&["-object", &window, "-device", "ivshmem-plain,memdev=window"]);
    args
}

fn kernel_line(spec: &LabSpec) -> String {
    let mut line = String::from("console=ttyS0 quiet panic=-1 cryptomgr.notests log_buf_len=1M");
    for extra in &spec.kernel_args {
        line.push(' ');
        line.push_str(extra);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_not_by_text() {
        assert!(number("10.0.2").unwrap() > OLDEST_QEMU);
        assert!(number("7.2.22").unwrap() < OLDEST_QEMU);
        assert_eq!(number("8.1.0"), Some(OLDEST_QEMU));
        assert_eq!(number("unknown"), None);
    }
}
