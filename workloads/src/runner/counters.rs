// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own counts of what a task went through.

use std::fs;
use std::ops::Sub;

/// Counts since a task's start, or the difference of two such.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time, ns.
    pub cpu: u64,
    /// Involuntary context switches.
    pub preemptions: u64,
    /// Changes of CPU.
    pub migrations: u64,
}

impl Counters {
    /// Those of process `pid`: CPU time of all its threads, the rest of its first thread.
    /// Zeroes for a process that is gone.
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // Only kernels with scheduler debugging have this one; Debian's do.
        let sched = fs::read_to_string(format!("/proc/{pid}/sched")).unwrap_or_default();
        Self {
            cpu: crate::sys::process_cpu(pid).unwrap_or(0),
            preemptions: field(&status, "nonvoluntary_ctxt_switches"),
            migrations: field(&sched, "se.nr_migrations"),
        }
    }

    /// The two counts as a Usage event packs them.
    pub fn packed(&self) -> u64 {
        let clamp = |n: u64| n.min(u64::from(u32::MAX));
        clamp(self.preemptions) << 32 | clamp(self.migrations)
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            preemptions: self.preemptions.saturating_sub(before.preemptions),
            migrations: self.migrations.saturating_sub(before.migrations),
        }
    }
}

/// The number behind `name` and a colon; 0 when there is none.
fn field(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().parse().ok())?
    };
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_both_of_the_kernels_layouts() {
        let status = "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t12\n";
        assert_eq!(field(status, "nonvoluntary_ctxt_switches"), 12);
        let sched = "se.exec_start         :   1.5\nse.nr_migrations     :         42\n";
        assert_eq!(field(sched, "se.nr_migrations"), 42);
        assert_eq!(field(sched, "se.load.weight"), 0);
    }

    #[test]
    fn this_process_has_used_cpu_time_and_a_dead_one_none() {
        assert!(Counters::of(std::process::id()).cpu > 0);
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        assert_eq!(Counters::of(dead.id()), Counters::default());
    }
}
