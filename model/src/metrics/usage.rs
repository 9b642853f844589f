// SPDX-License-Identifier: GPL-2.0-only
//! CPU time, switches and budget movements.

use super::server_tasks;
use crate::event::{Event, EventKind, NONE, StopReason};
use crate::run::Run;

/// What one task used and what happened to its server.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskUsage {
    pub cpu_ns: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub exhaustions: u64,
    pub throttles: u64,
    pub donated: u64,
    pub received: u64,
    /// Since when and where it runs.
    running: Option<(u64, u32)>,
    last_cpu: Option<u32>,
}

/// Totals over a run.
pub(super) struct Usage {
    pub tasks: Vec<TaskUsage>,
    pub donated: u64,
    pub bonus_given: u64,
    pub share_ns: u64,
    pub lost: u64,
    counts: [u64; EventKind::ALL.len() + 1],
}

impl Usage {
    /// Events in ascending order of time.
    pub fn collect(events: &[Event], run: &Run) -> Usage {
        let mut usage = Usage {
            tasks: vec![TaskUsage::default(); run.tasks.len()],
            donated: 0,
            bonus_given: 0,
            share_ns: 0,
            lost: 0,
            counts: [0; EventKind::ALL.len() + 1],
        };
        let owners = server_tasks(events);
        let mut shares: std::collections::BTreeMap<u32, u64> = Default::default();
        let mut totals: Vec<Option<(u64, u64)>> = vec![None; run.tasks.len()];
        for e in events {
            let Some(kind) = e.kind() else { continue };
            usage.counts[kind as usize] += 1;
            let owner = if e.task == NONE { owners.get(&e.server).copied() } else { Some(e.task) };
            let task = owner.and_then(|t| usage.tasks.get_mut(t as usize));
            match kind {
                EventKind::Run => task.into_iter().for_each(|t| t.run(e)),
                EventKind::Stop => task.into_iter().for_each(|t| t.stop(e)),
                EventKind::Exhaust => task.into_iter().for_each(|t| t.exhaustions += 1),
                EventKind::Throttle => task.into_iter().for_each(|t| t.throttles += 1),
                EventKind::Donate => {
                    usage.donated = usage.donated.saturating_add(e.a);
                    let giver = owners.get(&e.server).map(|t| *t as usize);
                    if let Some(t) = giver.and_then(|t| usage.tasks.get_mut(t)) {
                        t.donated = t.donated.saturating_add(e.a);
                    }
                    let server = u32::try_from(e.b).ok();
                    let taker = server.and_then(|s| owners.get(&s)).map(|t| *t as usize);
                    if let Some(t) = taker.and_then(|t| usage.tasks.get_mut(t)) {
                        t.received = t.received.saturating_add(e.a);
                    }
                }
                EventKind::Bonus if e.server != NONE => {
                    usage.bonus_given = usage.bonus_given.saturating_add(e.a);
                }
                EventKind::Share if e.a == 1 => {
                    shares.entry(e.cpu).or_insert(e.time);
                }
                EventKind::Share => {
                    let began = shares.remove(&e.cpu);
                    let held = began.map_or(0, |b| e.time - b);
                    usage.share_ns = usage.share_ns.saturating_add(held);
                }
                EventKind::Lost => usage.lost = usage.lost.saturating_add(e.a),
                EventKind::Usage => {
                    if let Some(total) = totals.get_mut(e.task as usize) {
                        *total = Some((e.a, e.b));
                    }
                }
                _ => {}
            }
        }
        for began in shares.values() {
            let open = run.horizon_ns.saturating_sub(*began);
            usage.share_ns = usage.share_ns.saturating_add(open);
        }
        for (task, total) in usage.tasks.iter_mut().zip(totals) {
            if let Some((since, _)) = task.running {
                let rest = run.horizon_ns.saturating_sub(since);
                task.cpu_ns = task.cpu_ns.saturating_add(rest);
            }
            // A total from the world itself beats what the switches add up to: some may have been lost.
            if let Some((cpu_ns, switches)) = total {
                task.cpu_ns = cpu_ns;
                task.preemptions = switches >> 32;
                task.migrations = switches & u64::from(u32::MAX);
            }
        }
        usage
    }

    pub fn count(&self, kind: EventKind) -> u64 {
        self.counts[kind as usize]
    }
}

impl TaskUsage {
    fn run(&mut self, e: &Event) {
        if self.last_cpu.is_some_and(|last| last != e.cpu) {
            self.migrations += 1;
        }
        self.last_cpu = Some(e.cpu);
        // Running already (the same CPU with a new deadline, say): the time so far counts.
        if let Some((since, _)) = self.running.replace((e.time, e.cpu)) {
            self.cpu_ns = self.cpu_ns.saturating_add(e.time - since);
        }
    }

    fn stop(&mut self, e: &Event) {
        if let Some((since, _)) = self.running.take() {
            self.cpu_ns = self.cpu_ns.saturating_add(e.time - since);
            if StopReason::from_u64(e.a) == Some(StopReason::Preempted) {
                self.preemptions += 1;
            }
        }
    }
}
