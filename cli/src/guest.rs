// SPDX-License-Identifier: GPL-2.0-only
//! The program of `onbeat run`: forked, held until its reservation is in force, then executed.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Why a program cannot be executed, as shells tell by their exit status.
pub const NOT_FOUND: u8 = 127;
/// It is there, but may not be executed.
pub const NOT_EXECUTABLE: u8 = 126;

/// Signals that are passed on, and SIGCHLD. Blocked while the program runs, and waited for.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks them in this process.
    pub fn block() -> io::Result<Self> {
        // SAFETY: both sets are plain data that the calls fill.
        unsafe {
            let mut signals = Self { set: std::mem::zeroed(), before: std::mem::zeroed() };
            libc::sigemptyset(&mut signals.set);
            for signal in [
                libc::SIGINT,
                libc::SIGTERM,
                libc::SIGHUP,
                libc::SIGQUIT,
                libc::SIGUSR1,
                libc::SIGUSR2,
                libc::SIGCHLD,
            ] {
                libc::sigaddset(&mut signals.set, signal);
            }
            match libc::sigprocmask(libc::SIG_BLOCK, &signals.set, &mut signals.before) {
                0 => Ok(signals),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Has `command` start with the signals as they were before.
    pub fn restored<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let before = self.before;
        // SAFETY: sigprocmask may be called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                match libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            })
        }
    }

    /// Waits for one, at most this long: its number, and whether a terminal sent it, which then
    /// sent it to the program too.
    pub fn wait(&self, patience: Option<std::time::Duration>) -> Option<(i32, bool)> {
        let limit = patience.map(|p| libc::timespec {
            tv_sec: p.as_secs() as libc::time_t,
            tv_nsec: p.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: set, info and limit outlive the call.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(&self.set, &mut info, limit);
            (signal > 0).then_some((signal, info.si_code == SI_KERNEL))
        }
    }
}

/// asm-generic/siginfo.h: sent by the kernel from somewhere, for these signals a terminal.
const SI_KERNEL: i32 = 0x80;

/// Where the program is, as execvp would find it.
///
/// # Errors
/// The exit status for it, and why.
pub fn find(program: &OsStr) -> Result<PathBuf, (u8, String)> {
    let shown = program.to_string_lossy();
    let missing = || {
        (
            NOT_FOUND,
            format!("there is no program \"{shown}\"; give a path, or the name of one in PATH"),
        )
    };
    if program.is_empty() {
        return Err(missing());
    }
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![program.into()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let there: Vec<&PathBuf> = candidates.iter().filter(|p| p.exists()).collect();
    match there.iter().find(|p| executable(p)) {
        Some(path) => Ok((*path).clone()),
        None if there.is_empty() => Err(missing()),
        None => Err((NOT_EXECUTABLE, format!("\"{}\" cannot be executed", there[0].display()))),
    }
}

fn executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the name is terminated.
    path.is_file() && unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0
}

/// A process that waits to become the program.
pub struct Held {
    /// Its number.
    pub pid: i32,
    go: OwnedFd,
    failure: OwnedFd,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the call fills both descriptors, which nobody else owns.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Held {
    /// Forks. The child executes `path` with `words` once it is let go, and vanishes if this
    /// process dies before.
    pub fn fork(path: &Path, words: &[OsString], signals: &Signals) -> Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).context("a program's name")?;
        let words: Vec<CString> = words
            .iter()
            .map(|w| CString::new(w.as_bytes()))
            .collect::<Result<_, _>>()
            .context("an argument")?;
        let mut pointers: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (wait, go) = pipe().context("making a pipe")?;
        let (failure, report) = pipe().context("making a pipe")?;
        // SAFETY: this process has one thread; the child makes only calls that are allowed there.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error()).context("cannot start another process");
        }
        if pid == 0 {
            // SAFETY: as above; all memory used was made before the fork.
            unsafe {
                libc::close(go.as_raw_fd());
                let mut byte = 0u8;
                loop {
                    match libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) {
                        1 => break,
                        -1 if *libc::__errno_location() == libc::EINTR => (),
                        _ => libc::_exit(0),
                    }
                }
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::sigprocmask(libc::SIG_SETMASK, &signals.before, std::ptr::null_mut());
                libc::execv(path.as_ptr(), pointers.as_ptr());
                let errno = *libc::__errno_location();
                libc::write(report.as_raw_fd(), (&raw const errno).cast(), size_of::<i32>());
                libc::_exit(i32::from(NOT_EXECUTABLE));
            }
        }
        Ok(Self { pid, go, failure })
    }

    /// Lets it become the program.
    ///
    /// # Errors
    /// It could not; the process is gone.
    pub fn go(self) -> io::Result<()> {
        use std::io::{Read, Write};
        std::fs::File::from(self.go).write_all(&[1])?;
        let mut errno = [0; size_of::<i32>()];
        match std::fs::File::from(self.failure).read_exact(&mut errno) {
            // The program has it closed: it runs.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                let _ = wait_for(self.pid);
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
        }
    }

    /// Sends it away.
    pub fn dismiss(self) {
        drop(self.go);
        let _ = wait_for(self.pid);
    }
}

/// Waits until process `pid` ends; its status as shells report it.
fn wait_for(pid: i32) -> Option<u8> {
    loop {
        let mut status = 0;
        // SAFETY: the status outlives the call.
        match unsafe { libc::waitpid(pid, &mut status, 0) } {
            p if p == pid => return Some(code(status)),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => (),
            _ => return None,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Its status as shells report it.
    pub code: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
}

/// How process `pid` has ended, if it has.
pub fn ended(pid: i32) -> Option<End> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let done = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid;
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    done.then(|| End { code: code(status), signal })
}

/// What a signal is called, such as "9 (Killed)".
pub fn name_of_signal(signal: i32) -> String {
    // SAFETY: it returns a string of its own, or none; this process has no other thread that asks.
    let name = unsafe {
        let name = libc::strsignal(signal);
        (!name.is_null()).then(|| std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    name.map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

fn code(status: i32) -> u8 {
    match libc::WIFSIGNALED(status) {
        true => (128 + libc::WTERMSIG(status)) as u8,
        false => libc::WEXITSTATUS(status) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them_or_the_reason_told() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("no-such-program")).unwrap_err().0, 127);
        assert_eq!(find(OsStr::new("/no/such")).unwrap_err().0, 127);
        assert_eq!(find(OsStr::new("")).unwrap_err().0, 127);
        assert_eq!(find(OsStr::new("/etc/passwd")).unwrap_err().0, 126);
        assert_eq!(find(OsStr::new("/tmp")).unwrap_err().0, 126);
    }
}
