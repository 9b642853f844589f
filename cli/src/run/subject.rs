// SPDX-License-Identifier: GPL-2.0-only
//! Whom a reservation is for: a program that `onbeat run` has started, or a process that runs already (`--pid`); and
//! the CPU time of all its processes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use onbeat_client::Service;
use onbeat_kernel::system::descendants;
use onbeat_model::protocol::{Request, Response};

use crate::guest::{self, End};

/// A process that is looked after.
pub struct Subject {
    /// Its number.
    pub pid: i32,
    /// Readable once it has ended; none: it is a child of this process.
    watch: Option<OwnedFd>,
}

impl Subject {
    /// A child of this process.
    pub fn child(pid: i32) -> Self {
        Self { pid, watch: None }
    }

    /// A process that runs already, and its name.
    ///
    /// # Errors
    /// It is none that this user may reserve for; says what to do.
    pub fn running(pid: u32) -> Result<(Self, String)> {
        let remedy = "give the pid of a program that runs (pgrep -a NAME finds it)";
        match pid {
            0 => bail!("0 is no process; {remedy}"),
            1 => bail!("process 1 starts all others: a reservation would be everybody's; {remedy}"),
            _ if pid > i32::MAX as u32 => bail!("{pid} is no process; {remedy}"),
            _ if pid == std::process::id() => bail!("process {pid} is this command; {remedy}"),
            _ => (),
        }
        // Before anything is read: so that is of this process, if it lives afterwards.
        // SAFETY: the call makes a descriptor that nobody else owns.
        let watch = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
        };
        let Ok(status) = fs::read(format!("/proc/{pid}/status")) else {
            bail!("there is no process {pid}; {remedy}");
        };
        let facts = Facts::read(&String::from_utf8_lossy(&status));
        if facts.process != pid {
            let (of, name) = (facts.process, facts.name);
            bail!(
                "{pid} is a thread of process {of} ({name}); give --pid {of}, which covers all of its threads"
            );
        }
        if facts.kernel {
            bail!("process {pid} ({}) is a thread of the kernel; {remedy}", facts.name);
        }
        let me = rustix::process::geteuid().as_raw();
        if me != 0 && facts.uids.iter().any(|uid| *uid != me) {
            bail!(
                "process {pid} ({}) does not belong to you alone; reserve for your own processes, or have root do it",
                facts.name
            );
        }
        let Some(watch) = watch else {
            bail!("process {pid} ({}) has just ended, or cannot be watched; {remedy}", facts.name);
        };
        let subject = Self { pid: pid as i32, watch: Some(watch) };
        if subject.ended().is_some() {
            bail!("process {pid} ({}) has ended; {remedy}", facts.name);
        }
        Ok((subject, facts.name))
    }

    /// Whether this process has started it.
    pub fn is_child(&self) -> bool {
        self.watch.is_none()
    }

    /// How it has ended, if it has; of what is no child nobody knows how.
    pub fn ended(&self) -> Option<End> {
        let Some(fd) = &self.watch else { return guest::ended(self.pid) };
        let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which outlives the call.
        let ready = unsafe { libc::poll(&mut one, 1, 0) } > 0;
        ready.then_some(End { code: 0, signal: None })
    }

    /// Says so if the service holds a reservation for it already.
    ///
    /// # Errors
    /// It does, or it does not answer.
    pub fn check_free(&self, service: &mut Service, name: &str) -> Result<()> {
        let Response::Status { reservations, .. } = service.ask(&Request::Status)? else {
            bail!("the service gave an unexpected answer; use the same version on both sides");
        };
        if let Some(held) = reservations.iter().find(|r| r.pid == self.pid as u32) {
            let (pid, id) = (self.pid, held.id);
            bail!(
                "process {pid} ({name}) already has reservation {id}; give it back first: onbeat release {id}"
            );
        }
        Ok(())
    }
}

/// What /proc says of a process.
struct Facts {
    name: String,
    process: u32,
    kernel: bool,
    uids: Vec<u32>,
}

impl Facts {
    fn read(status: &str) -> Self {
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim()
        };
        let name: String = field("Name:").chars().filter(|c| !c.is_control()).collect();
        Self {
            name: if name.is_empty() { "program".into() } else { name },
            process: field("Tgid:").parse().unwrap_or(0),
            kernel: field("Kthread:") == "1",
            uids: field("Uid:").split_whitespace().filter_map(|uid| uid.parse().ok()).collect(),
        }
    }
}

/// The processes of a program: it, and what descends from it.
#[derive(Debug, Default)]
pub struct Kin {
    /// CPU time of each, when it was looked at last, ns.
    used: BTreeMap<u32, u64>,
    /// How long each of their threads had waited for CPUs by then, ns.
    waited: BTreeMap<PathBuf, u64>,
}

impl Kin {
    /// Looks at them: their numbers, and the CPU time they have used since the look before, ns.
    pub fn look(&mut self, pid: u32) -> (Vec<u32>, u64) {
        let mut all = descendants(pid, &Default::default());
        all.push(pid);
        let now: BTreeMap<u32, u64> =
            all.iter().filter_map(|pid| Some((*pid, cpu_time(*pid).ok()?))).collect();
        let since = |(pid, used): (&u32, &u64)| {
            used.saturating_sub(self.used.get(pid).copied().unwrap_or(0))
        };
        let used = now.iter().map(since).sum();
        self.used = now;
        (all, used)
    }

    /// How long the threads of those that were looked at last have waited for CPUs since this was asked before, ns.
    pub fn waited(&mut self) -> u64 {
        let threads = |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let paths = self.used.keys().flat_map(threads).flatten().map(|at| at.path());
        let now: BTreeMap<PathBuf, u64> =
            paths.filter_map(|path| Some((path.clone(), waited(&path)?))).collect();
        let since = |(path, all): (&PathBuf, &u64)| {
            all.saturating_sub(self.waited.get(path).copied().unwrap_or(0))
        };
        let more = now.iter().map(since).sum();
        self.waited = now;
        more
    }
}

/// How long a thread has been ready without a CPU, ns: the second number of its `schedstat`. None without such a file.
fn waited(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of a process, all its threads together, ns.
fn cpu_time(pid: u32) -> io::Result<u64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both places outlive the calls.
    let error = unsafe {
        match libc::clock_getcpuclockid(pid as i32, &mut clock) {
            0 if libc::clock_gettime(clock, &mut time) == 0 => 0,
            0 => libc::ESRCH,
            error => error,
        }
    };
    match error {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pid: u32) -> String {
        Subject::running(pid).err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn what_is_no_program_that_runs_is_refused_with_what_to_do() {
        assert!(refused(0).contains("0 is no process"));
        assert!(refused(1).contains("process 1 starts all others"));
        assert!(refused(u32::MAX).contains("no process"));
        assert!(refused(std::process::id()).contains("is this command"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(refused(child.id()).contains("there is no process"), "{}", refused(child.id()));
    }

    #[test]
    fn a_thread_is_refused_with_the_number_of_its_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = end.recv();
        });
        let said = refused(told.recv().unwrap());
        let me = std::process::id();
        assert!(said.contains(&format!("is a thread of process {me}")), "{said}");
        assert!(said.contains(&format!("--pid {me}")), "{said}");
        drop(go);
        thread.join().unwrap();
    }

    #[test]
    fn another_process_is_watched_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (subject, _) = Subject::running(child.id()).unwrap();
        assert!(subject.ended().is_none() && !subject.is_child());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(subject.ended().is_some());
    }

    #[test]
    fn the_cpu_time_of_children_counts() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done & read x; kill $!"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut kin = Kin::default();
        // However slow the machine is, sometime the loop has begun and had a while.
        let (mut used, mut of_loop) = (0, 0);
        while of_loop < 2_000_000 {
            let (all, more) = kin.look(child.id());
            assert!(all.contains(&child.id()) && all.len() <= 2, "{all:?}");
            used += more;
            of_loop =
                kin.used.iter().filter(|(pid, _)| **pid != child.id()).map(|(_, ns)| ns).sum();
        }
        assert!(used >= of_loop, "{used} {of_loop}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
