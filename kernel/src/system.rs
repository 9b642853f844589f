// SPDX-License-Identifier: GPL-2.0-only
//! Processes: whom they belong to, which threads they have, when they are gone. Behind a trait so
//! that the service can be tested without a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::procfs;

/// A process, or one thread of it, that is watched: its number cannot come to mean another one unnoticed.
#[derive(Debug)]
pub struct Watch {
    /// The process's number.
    pub pid: u32,
    /// Readable once it is gone; none in tests.
    pub fd: Option<OwnedFd>,
}

/// What is known of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Every user id that any of its threads acts as (real, effective, saved).
    pub uids: BTreeSet<u32>,
    /// CPUs its first thread may use.
    pub cpus: u64,
    /// How many of its threads may use which CPUs.
    pub bound: BTreeMap<u64, usize>,
    /// It is the kernel's.
    pub kernel: bool,
}

/// Whose a thread is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// Its real user.
    pub uid: u32,
    /// It acts as that user only (effective, saved, for files).
    pub alone: bool,
    /// Its name; no control characters.
    pub name: String,
    /// Name of its program's file, or of its process's first thread; likewise.
    pub program: String,
}

/// CPU time that ranks above reservations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Above {
    /// Bandwidth of all SCHED_DEADLINE threads, in billionths of a CPU, rounded up.
    pub deadline: u64,
    /// Names of the programs with SCHED_FIFO or SCHED_RR threads, the kernel's own left out.
    pub realtime: BTreeSet<String>,
}

/// Characters of a name that are shown.
const NAME: usize = 64;

/// The processes of this machine.
pub trait System {
    /// Begins to watch a process, or that thread of it.
    ///
    /// # Errors
    /// There is no such process, or it has no such thread.
    fn watch(&self, pid: u32, thread: Option<u32>) -> io::Result<Watch>;
    /// Whether what is watched is gone.
    fn gone(&self, watch: &Watch) -> bool;
    /// What is known of it.
    ///
    /// # Errors
    /// It cannot be read, most likely because it is gone.
    fn facts(&self, pid: u32, thread: Option<u32>) -> io::Result<Facts>;
    /// Its threads.
    ///
    /// # Errors
    /// As [`System::facts`].
    fn threads(&self, pid: u32) -> io::Result<Vec<i32>>;
    /// How many threads a process has.
    ///
    /// # Errors
    /// As [`System::facts`].
    fn crowd(&self, pid: u32) -> io::Result<usize>;
    /// Processes that descend from it, in no order, as far as their parents live, without those `but` and what descends
    /// from these.
    fn descendants(&self, pid: u32, but: &BTreeSet<u32>) -> Vec<u32>;
    /// Whose a thread is.
    ///
    /// # Errors
    /// As [`System::facts`].
    fn owner(&self, tid: i32) -> io::Result<Owner>;
    /// What ranks above reservations.
    fn above(&self) -> Above;
    /// How long each CPU has been idle since the machine started, ns, by its number; of those not there it is not
    /// known.
    fn idle(&self) -> BTreeMap<u32, u64> {
        BTreeMap::new()
    }
}

/// pidfd_open(2), Linux 6.9: of a thread, readable when that ends.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// The real one: /proc.
#[derive(Debug, Default)]
pub struct Proc;

impl System for Proc {
    fn watch(&self, pid: u32, thread: Option<u32>) -> io::Result<Watch> {
        // Before anything is looked for in its folder there is such a process.
        if thread.is_some() {
            let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
            drop(pidfd_open(process.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?);
        }
        let number = i32::try_from(thread.unwrap_or(pid)).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        let flags = if thread.is_some() { PIDFD_THREAD } else { PidfdFlags::empty() };
        let watch = Watch { pid, fd: Some(pidfd_open(number, flags)?) };
        // Looked at afterwards: the number is the watched thread's, and its process's.
        if thread.is_some() && !self.threads(pid)?.contains(&number.as_raw_nonzero().get()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(watch)
    }

    fn gone(&self, watch: &Watch) -> bool {
        let Some(fd) = &watch.fd else { return false };
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
    }

    fn facts(&self, pid: u32, thread: Option<u32>) -> io::Result<Facts> {
        let mut facts = Facts::default();
        for tid in self.threads(pid)? {
            // As bytes: names need be no UTF-8.
            let status = match procfs::read(&format!("{pid}/task/{tid}/status")) {
                Ok(status) => status,
                Err(e) if tid as u32 == pid => return Err(e),
                Err(_) => continue, // it ended meanwhile
            };
            let status = String::from_utf8_lossy(&status);
            note_status(&status, &mut facts);
            let cpus = affinity(&status);
            *facts.bound.entry(cpus).or_default() += 1;
            if tid as u32 == thread.unwrap_or(pid) {
                facts.cpus = cpus;
            }
        }
        // That thread has ended meanwhile.
        if facts.cpus == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(facts)
    }

    fn threads(&self, pid: u32) -> io::Result<Vec<i32>> {
        procfs::numbers(&format!("{pid}/task"))
    }

    fn crowd(&self, pid: u32) -> io::Result<usize> {
        // Each has a folder in that one, whose links say how many there are without a look at them.
        Ok(procfs::links(&format!("{pid}/task"))?.saturating_sub(2) as usize)
    }

    fn descendants(&self, pid: u32, but: &BTreeSet<u32>) -> Vec<u32> {
        descendants(pid, but)
    }

    fn owner(&self, tid: i32) -> io::Result<Owner> {
        let status = procfs::read(&format!("{tid}/status"))?;
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim()
        };
        let uids: Vec<u32> =
            field("Uid:").split_whitespace().filter_map(|u| u.parse().ok()).collect();
        let (Ok(pid), Some(&uid)) = (field("Tgid:").parse(), uids.first()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let file = procfs::link(&format!("{pid}/exe")).ok();
        let file = file.as_ref().and_then(|path| path.file_name()?.to_str());
        let program = match file {
            Some(name) => name.trim_end_matches(" (deleted)").to_owned(),
            None => String::from_utf8_lossy(&procfs::read(&format!("{pid}/comm"))?).into_owned(),
        };
        let alone = uids.iter().all(|u| *u == uid);
        Ok(Owner { pid, uid, alone, name: printable(field("Name:")), program: printable(&program) })
    }

    fn above(&self) -> Above {
        let mut above = Above::default();
        for pid in procfs::numbers(".").unwrap_or_default() {
            for tid in self.threads(pid).unwrap_or_default() {
                if let Ok(stat) = procfs::read(&format!("{pid}/task/{tid}/stat")) {
                    note_class(&String::from_utf8_lossy(&stat), tid, &mut above);
                }
            }
        }
        above
    }

    fn idle(&self) -> BTreeMap<u32, u64> {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        note_idle(&String::from_utf8_lossy(&procfs::read("stat").unwrap_or_default()), tick)
    }
}

/// Looks at /proc/stat (proc(5)): time that CPUs were idle, ns. Unlike what it says of a busy CPU, which is what ticks
/// have found there, this is measured.
fn note_idle(stat: &str, tick: u64) -> BTreeMap<u32, u64> {
    let one = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?; // the first line is all CPUs'
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [_user, _nice, _system, idle, waits, ..] = ticks[..] else { return None };
        Some((cpu, idle.saturating_add(waits).saturating_mul(tick)))
    };
    stat.lines().filter_map(one).collect()
}

/// Processes that descend from process `pid`, in no order, as far as their parents live, without those `but` and what
/// descends from these: by one look at all there are.
pub fn descendants(pid: u32, but: &BTreeSet<u32>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for child in procfs::numbers(".").unwrap_or_default() {
        let Ok(stat) = procfs::read(&format!("{child}/stat")) else { continue };
        // proc(5): field 4, behind a name that may hold anything.
        let stat = String::from_utf8_lossy(&stat);
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok())
            && !but.contains(&child)
        {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        found.extend(children.remove(parent).unwrap_or_default());
        at += 1;
    }
    found
}

/// What of a name can be shown: names are anybody's to choose.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME).collect()
}

/// Looks at /proc/PID/status, in which the kernel escapes ends of lines in names.
fn note_status(status: &str, facts: &mut Facts) {
    for line in status.lines() {
        if let Some(uids) = line.strip_prefix("Uid:") {
            facts.uids.extend(uids.split_whitespace().filter_map(|u| u.parse::<u32>().ok()));
        } else if let Some(is) = line.strip_prefix("Kthread:") {
            facts.kernel |= is.trim() == "1";
        }
    }
}

/// CPUs below 64 that a thread may use by /proc/PID/status, those off line, too.
fn affinity(status: &str) -> u64 {
    let words = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"));
    let words = words.unwrap_or("").trim().rsplit(',').take(2).enumerate();
    words.fold(0, |mask, (at, word)| mask | u64::from_str_radix(word, 16).unwrap_or(0) << (32 * at))
}

/// Looks at one line of /proc/PID/stat (proc(5): field 2 name, 9 flags, 41 policy).
fn note_class(stat: &str, tid: i32, above: &mut Above) {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let Some((name, rest)) = stat.split_once('(').and_then(|(_, s)| s.rsplit_once(')')) else {
        return;
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    if field(9).is_none_or(|flags| flags & KERNEL_THREAD != 0) {
        return;
    }
    match field(41) {
        // It will be printed.
        Some(1 | 2) => {
            above.realtime.insert(name.chars().filter(|c| !c.is_control()).collect());
        }
        Some(6) => above.deadline += deadline_bandwidth(tid),
        _ => (),
    }
}

/// Runtime over period of a SCHED_DEADLINE thread, in billionths, rounded up.
fn deadline_bandwidth(tid: i32) -> u64 {
    // SAFETY: all zeroes is a valid sched_attr; the kernel writes no more than the size it is given.
    let attr = unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as u32;
        match libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, size, 0) {
            0 => attr,
            _ => return 0,
        }
    };
    let period = if attr.sched_period == 0 { attr.sched_deadline } else { attr.sched_period };
    let exact = u128::from(attr.sched_runtime) * 1_000_000_000;
    exact.div_ceil(u128::from(period.max(1))).min(1_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_threads_cpus_are_read_with_those_off_line() {
        assert_eq!(affinity("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"), 0b1111);
        assert_eq!(affinity("Cpus_allowed:\t1,00000002,80000001\n"), 0x2_8000_0001);
        assert_eq!(affinity("Cpus_allowed:\tffffffff,ffffffff\n"), u64::MAX);
        assert_eq!(affinity("Name:\tx\n"), 0);
    }

    #[test]
    fn this_process_is_known_and_watched() {
        let me = std::process::id();
        let watch = Proc.watch(me, None).unwrap();
        assert!(!Proc.gone(&watch));
        let facts = Proc.facts(me, None).unwrap();
        assert!(facts.uids.contains(&rustix::process::getuid().as_raw()));
        assert!(!facts.kernel && facts.cpus != 0);
        let (stop, waits) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || waits.recv());
        let crowd = Proc.crowd(me).unwrap();
        assert!(crowd >= 2 && crowd.abs_diff(Proc.threads(me).unwrap().len()) < 100, "{crowd}");
        drop(stop);
        let _ = other.join().unwrap();
        let owner = Proc.owner(me as i32).unwrap();
        assert_eq!(
            (owner.pid, owner.uid, owner.alone),
            (me, rustix::process::getuid().as_raw(), true)
        );
        let file = std::env::current_exe().unwrap();
        assert_eq!(owner.program, file.file_name().unwrap().to_str().unwrap());
        assert!(file.to_str().unwrap().contains(&owner.name), "{owner:?}");
        assert!(Proc.threads(me).unwrap().contains(&(me as i32)));
    }

    #[test]
    fn a_name_that_is_no_utf8_hides_neither_owner_nor_class() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let name = std::ffi::OsStr::from_bytes(b"caf\xc3 (\xff");
        std::os::unix::fs::symlink("/bin/sleep", folder.path().join(name)).unwrap();
        let mut child =
            std::process::Command::new(folder.path().join(name)).arg("60").spawn().unwrap();
        let path = format!("/proc/{}/stat", child.id());
        // The name changes when the program begins.
        while !fs::read(&path).unwrap().contains(&b'\xff') {
            std::thread::yield_now();
        }
        let facts = Proc.facts(child.id(), None);
        let stat = fs::read(path).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(facts.unwrap().uids, [rustix::process::getuid().as_raw()].into());
        let mut stat = String::from_utf8_lossy(&stat).into_owned();
        let policy = stat.trim_end().rsplitn(12, ' ').last().unwrap().len() - 1;
        stat.replace_range(policy..=policy, "1");
        let mut above = Above::default();
        note_class(&stat, 7, &mut above);
        assert_eq!(above.realtime.len(), 1, "{stat}");
    }

    #[test]
    fn a_watched_thread_is_gone_when_it_ends_though_its_process_is_not() {
        let me = std::process::id();
        let (tell, tid) = std::sync::mpsc::channel();
        let (go, end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = end.recv();
        });
        let tid = tid.recv().unwrap();
        let watch = Proc.watch(me, Some(tid)).unwrap();
        assert!(!Proc.gone(&watch));
        assert!(Proc.watch(1, Some(tid)).is_err(), "a thread of another process");
        drop(go);
        thread.join().unwrap();
        while !Proc.gone(&watch) {
            std::thread::yield_now();
        }
        assert!(!Proc.gone(&Proc.watch(me, None).unwrap()));
        assert!(Proc.watch(me, Some(tid)).is_err());
    }

    #[test]
    fn a_process_that_ended_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let watch = Proc.watch(child.id(), None).unwrap();
        while !Proc.gone(&watch) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(Proc.gone(&watch));
        assert!(Proc.watch(child.id(), None).is_err());
    }

    #[test]
    fn a_cpu_is_idle_while_it_waits_for_disks_too() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 8 16 32 64 128 256 512\ncpu3 5 0 0 1 0 0 0 0 0 0\nintr 7\n";
        assert_eq!(note_idle(stat, 10), BTreeMap::from([(0, 240), (3, 10)]));
        assert_eq!(note_idle("cpu0 1 2\ncpux 1 2 3 4 5 6 7\n", 10), BTreeMap::new());
        assert!(!Proc.idle().is_empty(), "this machine tells");
    }

    #[test]
    fn real_time_programs_are_noted_by_name_and_kernel_threads_are_not() {
        let stat = |name: &str, flags: u32, policy: u32| {
            let middle = "0 ".repeat(31);
            format!("7 ({name}) S 1 1 1 0 -1 {flags} {middle}{policy} 0 0")
        };
        let mut above = Above::default();
        note_class(&stat("pipe) wire", 0x40_0000, 1), 7, &mut above);
        note_class(&stat("migration/0", 0x20_8040, 1), 7, &mut above);
        note_class(&stat("bash", 0x40_0000, 0), 7, &mut above);
        note_class("garbage", 7, &mut above);
        assert_eq!(above.realtime, BTreeSet::from(["pipe) wire".to_string()]));
        assert_eq!(above.deadline, 0);
    }
}
