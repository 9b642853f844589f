// SPDX-License-Identifier: GPL-2.0-only
//! Linux 2.4's scheduler, to compare with: what Banachowski and Brandt, "Better real-time response for time-share
//! scheduling", WPDRTS 2003, section 4.1 describe, and call unmodified Linux (theirs is 2.4.9).
//!
//! Time passes in *ticks*. A process has a *counter*, the ticks it may still run in this *epoch*; whoever runs when a
//! tick comes pays it, whole. The runnable one of greatest *goodness* has the CPU: its counter, and a little for
//! niceness, for being there already, and for the CPU it last had. When the counters of all that are runnable are 0 an
//! epoch begins: everybody, asleep or not, keeps half of what it has left, and gets what its niceness is worth. Nobody
//! is compared with who runs but when that one's counter is 0 or it sleeps, and when a process wakes. Timers expire
//! with ticks, and so sleepers wake.
//!
//! It stands in the place of the C core: its answers (who must pick again, when the next tick is) are left where the
//! core leaves them.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Linux24;
use onbeat_model::units::SEC;

use super::NOBODY;

/// What the CPU a process last had is worth on a machine of several, in ticks.
const AFFINE: i64 = 15;

/// The scheduler's state.
pub struct Scheduler {
    /// ns between ticks.
    tick: u64,
    /// Ticks that a process of niceness 0 gets for each 20 of `20 − nice`, in quarters.
    quarters: i64,
    processes: Vec<Process>,
    cpus: Vec<Cpu>,
    /// Who is runnable, who became so last at the end.
    queue: Vec<usize>,
    /// Who wakes with the next tick.
    due: Vec<usize>,
    /// When it comes, ns, unless it has come unseen.
    next: u64,
    /// Where events are noted, if they are.
    events: Option<Vec<Event>>,
}

#[derive(Clone)]
struct Process {
    nice: i64,
    counter: i64,
    /// CPUs it may use.
    cpus: u64,
    /// The one it last had.
    last: u32,
    /// It has that one now.
    runs: bool,
}

#[derive(Clone)]
struct Cpu {
    /// Whom it has chosen, or NOBODY.
    has: usize,
    /// Who runs there, which for an instant is still the one before.
    runs: usize,
    /// It must choose anew.
    resched: bool,
}

impl Scheduler {
    /// For `processes` processes, which sleep, on `cpus` CPUs.
    pub fn new(like: Linux24, processes: usize, cpus: u32, noted: bool) -> Self {
        let process = Process { nice: 0, counter: 0, cpus: u64::MAX, last: 0, runs: false };
        Self {
            tick: SEC / like.hz(),
            // TICK_SCALE there, by the frequency of the clock.
            quarters: if like.hz() < 200 { 1 } else { 8 },
            processes: vec![process; processes],
            cpus: vec![Cpu { has: NOBODY, runs: NOBODY, resched: true }; cpus as usize],
            queue: Vec::new(),
            due: Vec::new(),
            next: 0,
            events: noted.then(Vec::new),
        }
    }

    /// Process `i`, asleep, may use these CPUs.
    pub fn init(&mut self, i: usize, cpus: u64) {
        let last = cpus.trailing_zeros();
        self.processes[i] = Process { cpus, last, ..self.processes[i].clone() };
        self.nice(i, 0);
    }

    /// Process `i`, new, has this niceness.
    pub fn nice(&mut self, i: usize, nice: i32) {
        self.processes[i].nice = nice.into();
        self.processes[i].counter = self.worth(nice.into());
    }

    /// Ticks that an epoch gives.
    fn worth(&self, nice: i64) -> i64 {
        (20 - nice) * self.quarters / 4 + 1
    }

    /// A timer wakes `i`.
    pub fn wakes(&mut self, ob: &mut ffi::ob, i: usize, now: u64) {
        if now.is_multiple_of(self.tick) {
            return self.ready(ob, i);
        }
        self.due.push(i);
        ob.alarm_at = self.after(now);
    }

    /// `i` woke, or was interrupted.
    pub fn ready(&mut self, ob: &mut ffi::ob, i: usize) {
        if !self.queue.contains(&i) {
            self.queue.push(i);
        }
        self.look_for_a_cpu(ob, i);
    }

    /// `i`, which wants to run: the CPU it last had if that idles, another idle one, or the one where the gain is
    /// greatest.
    fn look_for_a_cpu(&mut self, ob: &mut ffi::ob, i: usize) {
        let may = |cpu: u32| self.processes[i].cpus & 1 << cpu != 0;
        let last = self.processes[i].last;
        let cpus = [last].into_iter().chain(0..self.cpus.len() as u32).filter(|cpu| may(*cpu));
        let idles = |cpu: &u32| self.cpus[*cpu as usize].has == NOBODY;
        let idle = cpus.clone().find(|cpu| idles(cpu) && ob.kick & 1 << cpu == 0);
        let gain = |cpu: &u32| {
            let has = self.cpus[*cpu as usize].has;
            self.goodness(i, *cpu, has) - self.goodness(has, *cpu, has)
        };
        let best = || {
            let busy = cpus.filter(|cpu| !idles(cpu));
            let gains = busy.map(|cpu| (gain(&cpu), cpu)).filter(|(gain, _)| *gain > 0);
            // Of several the first.
            gains.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|b| b.1)
        };
        if let Some(cpu) = idle.or_else(best) {
            self.resched(ob, cpu);
        }
    }

    fn resched(&mut self, ob: &mut ffi::ob, cpu: u32) {
        self.cpus[cpu as usize].resched = true;
        ob.kick |= 1 << cpu;
    }

    /// How much `i` is to have `cpu`, where `has` was last: memory they share would be worth 1, and nobody shares any.
    fn goodness(&self, i: usize, cpu: u32, has: usize) -> i64 {
        let p = &self.processes[i];
        if p.counter == 0 {
            return 0;
        }
        let affine = if self.cpus.len() > 1 && p.last == cpu { AFFINE } else { 0 };
        p.counter + affine + i64::from(i == has) + 20 - p.nice
    }

    /// `i`, which runs nowhere any more, sleeps.
    pub fn sleep(&mut self, i: usize) {
        self.queue.retain(|other| *other != i);
    }

    /// Who is to run on `cpu`, where `prev` (or NOBODY) runs and wants to go on.
    pub fn pick(&mut self, ob: &mut ffi::ob, cpu: u32, prev: usize, now: u64) -> usize {
        ob.kick &= !(1 << cpu);
        // The kernel chooses when it must, not when somebody asks.
        if prev != NOBODY && !self.cpus[cpu as usize].resched {
            return prev;
        }
        let next = loop {
            match self.best(cpu, prev) {
                Some((0, _)) => self.begin_epoch(),
                found => break found.map_or(NOBODY, |(_, i)| i),
            }
        };
        (self.cpus[cpu as usize].has, self.cpus[cpu as usize].resched) = (next, false);
        if next != NOBODY {
            let p = &mut self.processes[next];
            (p.runs, p.last) = (true, cpu);
            ob.cpu[cpu as usize].timer = self.after(now);
        }
        next
    }

    /// Who is best on `cpu`: `prev`, or who became runnable last, of several.
    fn best(&self, cpu: u32, prev: usize) -> Option<(i64, usize)> {
        let may = |i: &&usize| {
            let p = &self.processes[**i];
            **i != prev && !p.runs && p.cpus & 1 << cpu != 0
        };
        let first = (prev != NOBODY).then_some(prev);
        let all = first.into_iter().chain(self.queue.iter().rev().filter(may).copied());
        let rated = all.map(|i| (self.goodness(i, cpu, prev), i));
        rated.reduce(|best, other| if other.0 > best.0 { other } else { best })
    }

    fn begin_epoch(&mut self) {
        for i in 0..self.processes.len() {
            let Process { counter, nice, .. } = self.processes[i];
            self.processes[i].counter = counter / 2 + self.worth(nice);
        }
    }

    /// `i` begins to run on `cpu`.
    pub fn run(&mut self, cpu: u32, i: usize, now: u64) {
        self.cpus[cpu as usize].runs = i;
        if let Some(events) = &mut self.events {
            events.push(Event::new(now, EventKind::Run, 0, 0).of(i as u32).on(cpu));
        }
    }

    /// Who runs on `cpu` stops.
    pub fn stop(&mut self, cpu: u32, reason: u32, now: u64) {
        let c = &mut self.cpus[cpu as usize];
        let i = std::mem::replace(&mut c.runs, NOBODY);
        if c.has == i {
            (c.has, c.resched) = (NOBODY, true);
        }
        self.processes[i].runs = false;
        if let Some(events) = &mut self.events {
            events.push(Event::new(now, EventKind::Stop, reason.into(), 0).of(i as u32).on(cpu));
        }
    }

    /// When the tick after `now` comes, ns.
    fn after(&self, now: u64) -> u64 {
        (now / self.tick + 1) * self.tick
    }

    /// A tick has come, which one of the CPUs or the alarm tells of: who runs pays it, then sleepers wake.
    pub fn tick(&mut self, ob: &mut ffi::ob, now: u64) {
        if now < self.next {
            return;
        }
        self.next = self.after(now);
        ob.alarm_at = u64::MAX;
        for cpu in 0..self.cpus.len() as u32 {
            let has = self.cpus[cpu as usize].has;
            ob.cpu[cpu as usize].timer = self.next;
            if has == NOBODY {
                continue;
            }
            let p = &mut self.processes[has];
            p.counter = (p.counter - 1).max(0);
            if p.counter == 0 {
                self.resched(ob, cpu);
            }
        }
        for i in std::mem::take(&mut self.due) {
            self.ready(ob, i);
        }
    }

    /// Moves what has been noted to `out`.
    pub fn drain(&mut self, out: &mut Vec<Event>) {
        out.append(self.events.as_mut().unwrap_or(&mut Vec::new()));
    }

    /// Whether there is much of it.
    pub fn nearly_full(&self) -> bool {
        self.events.as_ref().is_some_and(|events| events.len() > 8192)
    }
}
