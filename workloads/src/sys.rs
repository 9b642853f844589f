// SPDX-License-Identifier: GPL-2.0-only
//! The few system calls a periodic program needs, in nanoseconds.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// CPU time the calling thread has used, ns. A real system call, unlike [`monotonic`].
pub fn thread_cpu() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The calling thread's number.
pub fn thread_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Memory that can be had without swapping, bytes (MemAvailable); `None` when the kernel does not tell.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// CPU time all threads of process `pid` have used, ns; `None` when it is gone.
pub fn process_cpu(pid: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for the answer.
    let found = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) } == 0;
    found.then(|| read_clock(clock))
}

/// Sleeps until CLOCK_MONOTONIC has reached `time` (ns), through signals.
pub fn sleep_until(time: u64) {
    let at = libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `at` is a valid timespec; an absolute sleep needs no place for the time that remains.
    while unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut())
    } == libc::EINTR
    {}
}

/// Makes the calling thread's timers fire when they should: the default slack of 50 us would
/// delay every release. Threads of real-time classes have none anyway.
pub fn no_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one plain number and cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize) };
}

/// Waits until `word`, in memory shared between processes, differs from `expected`; returns
/// early on a signal or after `timeout`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: the word is a live, aligned u32; the timeout is null or a valid timespec.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout) };
}

/// Sets `word` to `value` and wakes all who wait for it.
pub fn futex_set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::SeqCst);
    // SAFETY: the word is a live, aligned u32.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Keeps the process's present and future memory in RAM, so that no job waits for a page. Needs
/// a privilege or a high RLIMIT_MEMLOCK; doing without is fine on a machine that does not swap.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: takes only flags.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the nice value of process `pid`, -20 to 19.
///
/// # Errors
/// EACCES or EPERM when a lower value than the present one is not allowed.
pub fn set_nice(pid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: takes only numbers.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restricts process `pid` to `cpus`.
///
/// # Errors
/// EINVAL when none of them exists; EPERM without a right to the process.
pub fn set_affinity(pid: u32, cpus: impl IntoIterator<Item = u32>) -> io::Result<()> {
    // SAFETY: a cpu_set_t is a bit mask for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.into_iter().filter(|&cpu| cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: `cpu` lies inside the set.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is valid and its size is given.
    match unsafe { libc::sched_setaffinity(pid as libc::pid_t, std::mem::size_of_val(&set), &set) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How a process is to be scheduled by the kernel's own classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// SCHED_OTHER.
    Ordinary {
        /// -20 to 19.
        nice: i32,
    },
    /// SCHED_FIFO with a priority of 1 to 99. `reset_on_fork`: children are ordinary.
    Fifo {
        /// 1 (least) to 99.
        priority: u32,
        /// Whether children start as ordinary processes.
        reset_on_fork: bool,
    },
    /// SCHED_DEADLINE; all in ns, budget <= deadline <= period.
    Deadline {
        /// CPU time per period, ns.
        budget: u64,
        /// Relative deadline, ns.
        deadline: u64,
        /// Period, ns.
        period: u64,
        /// SCHED_FLAG_RECLAIM (GRUB): may use bandwidth that others leave. Children are ordinary
        /// in any case: the kernel does not let them inherit a bandwidth.
        reclaim: bool,
    },
}

/// Puts process `pid` (0: the calling one) into `class`.
///
/// # Errors
/// EPERM without CAP_SYS_NICE, or for SCHED_DEADLINE with a restricted affinity; EBUSY when
/// SCHED_DEADLINE's admission refuses; EINVAL for values out of range.
pub fn set_class(pid: u32, class: Class) -> io::Result<()> {
    const SIZE: u32 = 48;
    const RESET_ON_FORK: u64 = 1;
    const RECLAIM: u64 = 2;
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attr = SchedAttr { size: SIZE, ..Default::default() };
    match class {
        Class::Ordinary { nice } => attr.nice = nice,
        Class::Fifo { priority, reset_on_fork } => {
            attr.policy = libc::SCHED_FIFO as u32;
            attr.priority = priority;
            attr.flags = if reset_on_fork { RESET_ON_FORK } else { 0 };
        }
        Class::Deadline { budget, deadline, period, reclaim } => {
            attr.policy = libc::SCHED_DEADLINE as u32;
            (attr.runtime, attr.deadline, attr.period) = (budget, deadline, period);
            attr.flags = RESET_ON_FORK | if reclaim { RECLAIM } else { 0 };
        }
    }
    // SAFETY: the structure is the kernel's first version of sched_attr and says its size.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, pid as libc::pid_t, &attr, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
