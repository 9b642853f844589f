// SPDX-License-Identifier: GPL-2.0-only
//! The loader, and the service, among programs that take all the CPU time there is.

/// While it lives, the calling thread goes before everything of the ordinary classes.
///
/// Loading is a few seconds of one thread in the kernel's verifier. Nobody is served until it is done, and beside
/// hogs it would take their number times as long. A nice value does not help: it counts within a control group or
/// session only, and hogs are in others. SCHED_RR of the lowest priority does, and the kernel's server for ordinary
/// work still keeps 5 % of the CPU for that. Threads and children do not inherit it. Without CAP_SYS_NICE nothing
/// changes.
#[derive(Debug)]
pub struct Raised {
    before: Option<(i32, i32)>,
}

impl Raised {
    /// Raises the calling thread.
    pub fn now() -> Self {
        // SAFETY: plain numbers; 0 is the calling thread.
        let before = unsafe {
            let policy = libc::sched_getscheduler(0);
            let mut parameter: libc::sched_param = std::mem::zeroed();
            let known = policy >= 0 && libc::sched_getparam(0, &mut parameter) == 0;
            // Who was given a real-time class keeps it.
            let plain = matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE);
            let low = libc::sched_param { sched_priority: 1 };
            let raised = known
                && plain
                && libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &low)
                    == 0;
            raised.then_some((policy, parameter.sched_priority))
        };
        Self { before }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let Some((policy, sched_priority)) = self.before else { return };
        let parameter = libc::sched_param { sched_priority };
        // SAFETY: as above. The nice value has stayed as it was.
        unsafe { libc::sched_setscheduler(0, policy, &parameter) };
    }
}

/// The nice value with which requests are served. Beside 1500 loops of one user an answer took 23 s with 0, and takes
/// 1.6 s with this; what an ordinary user's requests take is bounded (`service.rs`).
const NICE: i32 = -10;

/// The calling thread answers requests from now on: beside a crowd of threads, too. One that has been given an even
/// better value keeps it. Without CAP_SYS_NICE nothing changes.
pub fn serve() {
    // SAFETY: plain numbers; 0 is the calling thread.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) > NICE {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_what_it_was_when_loading_is_done() {
        // SAFETY: 0 is the calling thread.
        let class = || unsafe { libc::sched_getscheduler(0) };
        let before = class();
        let raised = Raised::now();
        if raised.before.is_some() {
            assert_eq!(class(), libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);
            // SAFETY: 0 is the calling thread.
            let heir = std::thread::spawn(|| unsafe { libc::sched_getscheduler(0) });
            assert_eq!(heir.join().unwrap(), libc::SCHED_OTHER);
        }
        drop(raised);
        assert_eq!(class(), before);
    }
}
