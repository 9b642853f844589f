// SPDX-License-Identifier: GPL-2.0-only
//! CPU time, switches and budget movements.

use std::collections::BTreeMap;

use super::server_tasks;
use crate::event::{Event, EventKind, NONE, StopReason};

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
    /// How long it waited each time between waking and running, ns; for best-effort loads.
    pub wakes: Vec<u64>,
    /// How often it waited for a resource, how long in all, and how long at most, ns.
    pub blocks: u64,
    pub blocked: u64,
    pub blocked_max: u64,
    /// For what and since when its threads wait.
    waits: Vec<(u64, u64)>,
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
    /// The least CPU time that best effort had in a second that was counted, ns.
    pub least_second: Option<u64>,
    counts: [u64; EventKind::ALL.len() + 1],
}

/// Usage, event by event, in ascending order of time.
pub(super) struct Collector<'e> {
    events: &'e [Event],
    usage: Usage,
    /// Looked up when the first event needs them.
    owners: Option<BTreeMap<u32, u32>>,
    /// Since when the share has which CPU.
    shares: BTreeMap<u32, u64>,
    /// What the world itself says of a task: CPU time and switches.
    totals: Vec<Option<(u64, u64)>>,
}

impl<'e> Collector<'e> {
    /// For `tasks` tasks, of all these events.
    pub fn new(events: &'e [Event], tasks: usize) -> Self {
        let usage = Usage {
            tasks: vec![TaskUsage::default(); tasks],
            donated: 0,
            bonus_given: 0,
            share_ns: 0,
            lost: 0,
            least_second: None,
            counts: [0; EventKind::ALL.len() + 1],
        };
        let (shares, totals) = (BTreeMap::new(), vec![None; tasks]);
        Self { events, usage, owners: None, shares, totals }
    }

    /// The task of a server.
    fn owner(&mut self, server: u32) -> Option<usize> {
        let owners = self.owners.get_or_insert_with(|| server_tasks(self.events));
        owners.get(&server).map(|task| *task as usize)
    }

    pub fn take(&mut self, e: &Event) {
        let Some(kind) = e.kind() else { return };
        self.usage.counts[kind as usize] += 1;
        match kind {
            EventKind::Run | EventKind::Stop | EventKind::Exhaust | EventKind::Throttle => {
                let owner =
                    if e.task == NONE { self.owner(e.server) } else { Some(e.task as usize) };
                let Some(task) = owner.and_then(|t| self.usage.tasks.get_mut(t)) else { return };
                match kind {
                    EventKind::Run => task.run(e),
                    EventKind::Stop => task.stop(e),
                    EventKind::Exhaust => task.exhaustions += 1,
                    _ => task.throttles += 1,
                }
            }
            EventKind::Block | EventKind::Unblock | EventKind::Wake => {
                let Some(task) = self.usage.tasks.get_mut(e.task as usize) else { return };
                match kind {
                    EventKind::Block => task.block(e),
                    EventKind::Unblock => task.unblock(e.a, e.time),
                    _ => task.wakes.push(e.a),
                }
            }
            EventKind::Donate => {
                self.usage.donated = self.usage.donated.saturating_add(e.a);
                let giver = self.owner(e.server);
                if let Some(t) = giver.and_then(|t| self.usage.tasks.get_mut(t)) {
                    t.donated = t.donated.saturating_add(e.a);
                }
                let taker = u32::try_from(e.b).ok().and_then(|server| self.owner(server));
                if let Some(t) = taker.and_then(|t| self.usage.tasks.get_mut(t)) {
                    t.received = t.received.saturating_add(e.a);
                }
            }
            EventKind::Bonus if e.server != NONE => {
                self.usage.bonus_given = self.usage.bonus_given.saturating_add(e.a);
            }
            EventKind::Share if e.a == 1 => {
                self.shares.entry(e.cpu).or_insert(e.time);
            }
            EventKind::Share => {
                let began = self.shares.remove(&e.cpu);
                let held = began.map_or(0, |b| e.time - b);
                self.usage.share_ns = self.usage.share_ns.saturating_add(held);
            }
            EventKind::Lost => self.usage.lost = self.usage.lost.saturating_add(e.a),
            EventKind::BestEffort => {
                let least = &mut self.usage.least_second;
                *least = Some(least.map_or(e.a, |least| least.min(e.a)));
            }
            EventKind::Usage => {
                if let Some(total) = self.totals.get_mut(e.task as usize) {
                    *total = Some((e.a, e.b));
                }
            }
            _ => {}
        }
    }

    /// What was used until `horizon`, ns.
    pub fn finish(self, horizon: u64) -> Usage {
        let mut usage = self.usage;
        for began in self.shares.values() {
            let open = horizon.saturating_sub(*began);
            usage.share_ns = usage.share_ns.saturating_add(open);
        }
        for (task, total) in usage.tasks.iter_mut().zip(self.totals) {
            while let Some((resource, _)) = task.waits.first().copied() {
                task.unblock(resource, horizon);
            }
            if let Some((since, _)) = task.running {
                let rest = horizon.saturating_sub(since);
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
}

impl Usage {
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

    fn block(&mut self, e: &Event) {
        self.blocks += 1;
        self.waits.push((e.a, e.time));
    }

    /// The thread that has waited longest for that resource does so no more.
    fn unblock(&mut self, resource: u64, now: u64) {
        let Some(at) = self.waits.iter().position(|wait| wait.0 == resource) else { return };
        let waited = now.saturating_sub(self.waits.remove(at).1);
        self.blocked = self.blocked.saturating_add(waited);
        self.blocked_max = self.blocked_max.max(waited);
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
