// SPDX-License-Identifier: GPL-2.0-only
//! Why the kernel took the scheduler out, for people.

use std::fmt;

/// Lines of the kernel's dump that are shown.
const DUMP_LINES: usize = 400;

// include/linux/sched/ext.h, enum scx_exit_kind.
const UNREGISTERED_BY_KERNEL: i32 = 66;
const SYSRQ: i32 = 67;
const ERROR_BPF: i32 = 1025;
const ERROR_STALL: i32 = 1026;

/// The scheduler was taken out by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    kind: i32,
    reason: String,
    message: String,
    dump: String,
}

impl Exit {
    /// From what the kernel recorded; `None` if it recorded nothing or an exit that was asked for.
    pub fn new(kind: i32, reason: String, message: String, dump: String) -> Option<Self> {
        (kind >= UNREGISTERED_BY_KERNEL).then_some(Self { kind, reason, message, dump })
    }

    /// One line: what most likely happened and what to do.
    pub fn cause(&self) -> &'static str {
        let has = |word| self.message.contains(word);
        match self.kind {
            SYSRQ => {
                "somebody asked the kernel to (SysRq-S): start scx_onbeat again if you want it"
            }
            UNREGISTERED_BY_KERNEL => "the kernel ended it, most likely because a CPU came or went",
            ERROR_STALL if has("failed to run for") => {
                "a thread that wanted to run was not run for 10 s: either real-time threads \
                 (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) kept its CPUs busy, or this is a bug of \
                 Onbeat; the dump names the thread and its CPUs"
            }
            ERROR_STALL => {
                "the kernel's watchdog was not served: the machine (or its host, in a virtual \
                 one) stood still, or real-time threads keep a CPU busy"
            }
            ERROR_BPF => "the scheduler gave up by itself: this is a bug of Onbeat",
            _ if has("lock") => "the kernel found a deadlock in the scheduler: a bug of Onbeat",
            _ => "the scheduler did something the kernel does not allow: a bug of Onbeat",
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel took the scheduler out: {}", self.reason)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        let dump: Vec<&str> = self.dump.lines().filter(|l| !l.trim().is_empty()).collect();
        if !dump.is_empty() {
            write!(f, "\n  the kernel's dump:")?;
        }
        for line in dump.iter().take(DUMP_LINES) {
            write!(f, "\n    {line}")?;
        }
        if dump.len() > DUMP_LINES {
            write!(f, "\n    ({} more lines)", dump.len() - DUMP_LINES)?;
        }
        write!(f, "\n  likely cause: {}", self.cause())?;
        write!(
            f,
            "\n  all threads run under the kernel's own scheduler again; no reservation holds"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_that_was_asked_for_is_no_failure() {
        for kind in [0, 1, 64, 65] {
            assert_eq!(Exit::new(kind, "unregistered".into(), String::new(), String::new()), None);
        }
    }

    #[test]
    fn a_stall_is_explained_and_its_dump_shortened() {
        let dump = (0..460).map(|i| format!("line {i}\n\n")).collect();
        let message = "work[7] failed to run for 10.01s".into();
        let exit = Exit::new(1026, "runnable task stall".into(), message, dump).unwrap();
        let text = exit.to_string();
        assert!(text.contains("runnable task stall (work[7] failed to run for 10.01s)"), "{text}");
        assert!(text.contains("line 399") && !text.contains("line 400\n"), "{text}");
        assert!(text.contains("(60 more lines)") && text.contains("real-time threads"), "{text}");
    }
}
