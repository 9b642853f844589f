// SPDX-License-Identifier: GPL-2.0-only
//! A running QEMU: what it shares with us, its life, its death.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::host_cpu::HostCpu;
use crate::monitor::Monitor;
pub use crate::qemu::Qemu;

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
    pub(crate) fn path(&self) -> String {
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
    /// Where init finds what to run, and puts the results.
    pub window: Shared,
}

/// Where QEMU sits in the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// On a CPU of its own, if one is free.
    OneCpu,
    /// Wherever there is room.
    Anywhere,
    /// That too, at our terminal.
    Terminal,
}

/// A running QEMU. Killed when dropped, and by the kernel when this process dies.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    /// The control channel.
    pub monitor: Monitor,
    /// All of its threads run on this CPU, and other labs' elsewhere.
    _cpu: Option<HostCpu>,
    complaints: Option<thread::JoinHandle<String>>,
}

impl Machine {
    /// Starts QEMU with these arguments and a control channel.
    ///
    /// # Errors
    /// When it cannot be started. What else is wrong shows in [`Machine::wait`].
    pub fn start(qemu: &Qemu, args: &[String], media: &Media, seat: Seat) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("cannot talk to QEMU")?;
        let mut command = Command::new(&qemu.program);
        command.args(args);
        command.args(["-chardev", &format!("socket,id=control,fd={}", theirs.as_raw_fd())]);
        command.args(["-mon", "chardev=control,mode=readline"]);
        let shared = [&media.initramfs, &media.kernel_console, &media.console, &media.window];
        let mut inherited = shared.map(|shared| shared.0.as_raw_fd()).to_vec();
        inherited.push(theirs.as_raw_fd());
        let parent = std::process::id() as libc::pid_t;
        let cpu = if seat == Seat::OneCpu { HostCpu::take() } else { None };
        let interactive = seat == Seat::Terminal;
        let number = cpu.as_ref().map(HostCpu::number);
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
                if let Some(number) = number {
                    HostCpu::confine(number)?;
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
        Ok(Machine { child, monitor: Monitor::new(ours), _cpu: cpu, complaints })
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
        remedied(complaints.unwrap_or_default().trim())
    }
}

/// What QEMU complained about, and what to do where that can be told.
fn remedied(complaint: &str) -> String {
    // As it says of memory of the guest's that the host does not have.
    match complaint.contains("cannot set up guest memory") {
        true => format!("{complaint}; give the guest less, by --memory"),
        false => complaint.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_more_memory_than_there_is_is_told_which_option_to_lower() {
        let said = "qemu: cannot set up guest memory 'pc.ram': Cannot allocate memory";
        assert!(
            remedied(said).ends_with("Cannot allocate memory; give the guest less, by --memory")
        );
        assert_eq!(remedied("qemu: no such machine"), "qemu: no such machine");
    }
}
