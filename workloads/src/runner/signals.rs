// SPDX-License-Identifier: GPL-2.0-only
//! Waiting for time to pass, a child to die, or someone to say stop, without missing any of them.

use anyhow::{Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Holds back the signals the runner waits for, so that none is lost between two waits.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The time is over.
    Time,
    /// Some child ended.
    Child,
}

impl Signals {
    /// From now on SIGINT, SIGTERM, SIGHUP and SIGCHLD reach this thread, and those it starts,
    /// only through [`Signals::wait`].
    pub fn hold() -> Self {
        // SAFETY: the set is initialised by sigemptyset before any use.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Self { set }
        }
    }

    /// Waits for `time` to pass or a child to end.
    ///
    /// # Errors
    /// When a signal asks the runner to stop.
    pub fn wait(&self, time: Duration) -> Result<Waited> {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: set and time are valid, and no details of the signal are asked for.
        match unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &time) } {
            libc::SIGCHLD => Ok(Waited::Child),
            libc::SIGINT => bail!("interrupted"),
            libc::SIGTERM => bail!("told to terminate"),
            libc::SIGHUP => bail!("the terminal went away"),
            _ => Ok(Waited::Time),
        }
    }
}

/// Makes a command's process hear signals again, belong to its own group, so that the terminal's
/// Ctrl-C reaches only the runner, and get `at_our_death` when the runner dies whatever way.
pub fn tie(command: &mut Command, at_our_death: i32) -> &mut Command {
    command.process_group(0);
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            libc::prctl(libc::PR_SET_PDEATHSIG, at_our_death);
            Ok(())
        })
    }
}
