// SPDX-License-Identifier: GPL-2.0-only
//! Where the kernel hangs while a CPU comes or goes, or a scheduler ends: who wants to run, who waits in the kernel and
//! for what.

use std::fmt::Write;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::sys::{self, Class};

/// Frames shown of a stack.
const FRAMES: usize = 16;

/// Looks around when it is not dropped in time.
#[derive(Debug)]
pub struct Watch {
    done: Sender<()>,
    thread: JoinHandle<Option<String>>,
}

impl Watch {
    /// Looks around after this time, and once more after twice as long, when `what` hangs.
    pub fn after(time: Duration, what: &'static str) -> Self {
        let (done, wait) = channel();
        let thread = thread::spawn(move || {
            let _ = sys::set_class(0, Class::Fifo { priority: 98, reset_on_fork: true });
            let mut seen = None;
            for _ in 0..2 {
                if wait.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                let sight = look();
                // At once: who waits for the CPU may wait for ever.
                eprintln!("onbeat-churn: {what} hangs{sight}");
                seen.get_or_insert_with(String::new).push_str(&sight);
            }
            seen
        });
        Self { done, thread }
    }

    /// What it saw, if it had to look.
    pub fn end(self) -> Option<String> {
        let _ = self.done.send(());
        self.thread.join().ok().flatten()
    }
}

/// All threads that run, want to, or wait uninterruptibly; and those that see to CPUs and to RCU.
fn look() -> String {
    let mut text = String::from("\n  looking around:");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let tasks = fs::read_dir(process.path().join("task")).into_iter().flatten().flatten();
        for task in tasks {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stat = read("stat");
            let Some((head, rest)) = stat.rsplit_once(')') else { continue };
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let name = head.split_once('(').map_or("", |(_, name)| name);
            let (state, cpu, nice) = (fields[0], fields.get(36), fields.get(16));
            let sees_to =
                ["cpuhp", "rcu", "migration", "ksoftirqd"].iter().any(|s| name.starts_with(s));
            if !matches!(state, "R" | "D") && !sees_to {
                continue;
            }
            let tid = task.file_name();
            let show = |x: Option<&&str>| x.copied().unwrap_or("?").to_owned();
            let _ = write!(
                text,
                "\n  {} {name} {state}, CPU {}, nice {}, ran {} ns",
                tid.display(),
                show(cpu),
                show(nice),
                read("schedstat").split(' ').next().unwrap_or("?")
            );
            // Who runs for ever is best known by what it goes through.
            if state != "R" || sees_to || name.starts_with("scx_") {
                let stack = read("stack");
                let frames = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
                let _ = write!(text, ": {}", frames.take(FRAMES).collect::<Vec<_>>().join(" "));
            }
        }
    }
    text
}
