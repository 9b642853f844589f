// SPDX-License-Identifier: GPL-2.0-only
//! The kernel shell of one CPU, in short: tasks that wake, run and sleep by the clock.

use onbeat_core::ffi;
use onbeat_sim::{Core, NOBODY};

const MS: u64 = 1_000_000;
pub const EVER: u64 = u64::MAX;

/// From `first` on a task wants to run for `work` in every `period`. It goes without jobs that begin before it is done.
#[derive(Clone, Copy)]
pub struct Part {
    pub first: u64,
    pub work: u64,
    pub period: u64,
}

/// It wants to run for ever.
pub fn endless(first: u64) -> Part {
    Part { first, work: EVER, period: EVER }
}

/// What a task had of the CPU, the longest that it waited, and how long it did in all.
#[derive(Debug, Default, Clone, Copy)]
pub struct Got {
    pub had: u64,
    pub waited: u64,
    pub waits: u64,
}

impl Got {
    fn has_waited(&mut self, time: u64) {
        self.waited = self.waited.max(time);
        self.waits += time;
    }
}

/// Plays the shell until `end`: to the ns, so that no turn ends unseen.
pub fn play(core: Core, parts: &[Part], end: u64) -> Vec<Got> {
    play_woken(core, parts, &[], end)
}

/// The same, where the second of each of these pairs is woken by the first, as that is done.
pub fn play_woken(
    core: Core,
    parts: &[Part],
    wakes_another: &[(usize, usize)],
    end: u64,
) -> Vec<Got> {
    play_disturbed(core, parts, wakes_another, (EVER, |_: &mut Core, _| 0), end)
}

/// The same, where something happens to the core in every so many ns, after which the clock may be ahead by what that
/// returns.
pub fn play_disturbed(
    mut core: Core,
    parts: &[Part],
    wakes_another: &[(usize, usize)],
    (each, mut happens): (u64, impl FnMut(&mut Core, u64) -> u64),
    end: u64,
) -> Vec<Got> {
    let mut next_time = each;
    let mut got = vec![Got::default(); parts.len()];
    let (mut now, mut runs) = (0, NOBODY);
    let mut wakes: Vec<u64> = parts.iter().map(|p| p.first).collect();
    let mut left = vec![0; parts.len()];
    let mut since = vec![EVER; parts.len()];
    while now < end {
        if now >= next_time {
            next_time += each;
            now += happens(&mut core, now);
            next_time = next_time.max(now);
            wakes.iter_mut().for_each(|wake| *wake = now.max(*wake));
        }
        for (i, part) in parts.iter().enumerate() {
            if wakes[i] > now {
                continue;
            }
            wakes[i] = wakes[i].saturating_add(part.period);
            // Who has not done its job yet goes without the next.
            if left[i] == 0 {
                (left[i], since[i]) = (part.work, now);
                core.ready(i, now);
            }
        }
        if core.alarm_at() <= now {
            core.alarm(now);
        }
        if core.timer(0) <= now {
            core.tick(0, now);
        }
        if core.take_kick().is_some() || runs == NOBODY {
            let next = core.pick(0, runs, now);
            if next != runs {
                if runs != NOBODY {
                    core.stop(0, ffi::OB_STOP_PREEMPTED, now);
                    core.ready(runs, now);
                    since[runs] = now;
                }
                if next != NOBODY {
                    core.run(0, next, now);
                    got[next].has_waited(now - since[next]);
                    since[next] = EVER;
                }
                runs = next;
            }
        }
        let mut then = core.alarm_at().min(core.timer(0)).max(now + 1).min(end.max(now + 1));
        then = then.min(next_time.max(now + 1));
        then = wakes.iter().fold(then, |then, wake| then.min(*wake));
        if runs != NOBODY {
            then = then.min(now.saturating_add(left[runs]));
            // Best effort has slices, which the kernel's tick ends.
            if core.cpu(0).server.is_null() {
                then = then.min(now + 4 * MS);
                core.charge(runs, then - now);
            }
            got[runs].had += then - now;
            left[runs] -= if left[runs] == EVER { 0 } else { then - now };
        }
        now = then;
        if runs != NOBODY && left[runs] == 0 {
            for &(by, i) in wakes_another {
                if by == runs && left[i] == 0 {
                    (left[i], since[i]) = (parts[i].work, now);
                    core.told(i);
                    core.ready(i, now);
                }
            }
            core.stop(0, ffi::OB_STOP_SLEPT, now);
            core.sleep(runs, now);
            runs = NOBODY;
        } else if runs != NOBODY && core.cpu(0).server.is_null() {
            // As the kernel does at the end of a slice.
            let next = core.pick(0, runs, now);
            if next != runs {
                core.stop(0, ffi::OB_STOP_PREEMPTED, now);
                core.ready(runs, now);
                since[runs] = now;
                if next != NOBODY {
                    core.run(0, next, now);
                    got[next].has_waited(now - since[next]);
                    since[next] = EVER;
                }
                runs = next;
            }
        }
    }
    for (got, since) in got.iter_mut().zip(since) {
        got.waited = got.waited.max(now.saturating_sub(since));
    }
    got
}
