// SPDX-License-Identifier: GPL-2.0-only
//! A run as a trace for the Perfetto UI (ui.perfetto.dev; opens local files without uploading them).
//!
//! Tracks: one for each CPU (who runs), and for each task one with its running times and instants (release, deadline,
//! exhaust, replenish, …), one with its jobs from start of service to completion, and a counter of its budget; for each
//! resource one with who holds it. Threads of a task that run at the same time have a track each.
//! A donation is a flow from giver to receiver.

mod proto;
mod shared;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, Write};

use onbeat_model::event::{Event, EventKind, NONE, StopReason};
use onbeat_model::metrics::server_tasks;
use onbeat_model::run::{Class, Run};
use onbeat_model::units::format_duration;

use writer::{Arg, Trace};

/// Writes the trace of a run.
///
/// # Errors
/// Whatever the writer reports.
pub fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let mut trace = Trace::default();
    let mut builder = Builder::new(run, &mut trace);
    let mut order: Vec<&Event> = run.events.iter().filter(|e| e.time <= run.horizon_ns).collect();
    order.sort_by_key(|e| e.time); // stable, and cheap when sorted already
    for event in order {
        builder.event(event);
    }
    builder.finish();
    trace.write(out)
}

/// Tracks of one task.
struct TaskTracks {
    running: u64,
    /// What holds its tracks.
    group: u64,
    /// Tracks for threads that run beside the first, and those that are in use by CPU.
    beside: Vec<u64>,
    /// None for best-effort tasks, which have no jobs.
    jobs: Option<u64>,
    budget: Option<u64>,
    /// Where it runs.
    on: Vec<On>,
    /// Releases that wait for service or completion: index and deadline.
    open: BTreeMap<u64, u64>,
    /// The job in service.
    served: Option<u64>,
}

/// A thread that runs.
struct On {
    cpu: u32,
    since: u64,
    /// The budget then.
    budget: Option<u64>,
    track: u64,
}

struct Builder<'r, 't> {
    run: &'r Run,
    trace: &'t mut Trace,
    owners: BTreeMap<u32, u32>,
    cpus: BTreeMap<u32, u64>,
    /// Task that runs on each CPU.
    running: BTreeMap<u32, u32>,
    /// Whether the best-effort share holds the CPU.
    shares: BTreeMap<u32, u64>,
    resources: Vec<u64>,
    tasks: Vec<TaskTracks>,
    flows: u64,
}

impl<'r, 't> Builder<'r, 't> {
    fn new(run: &'r Run, trace: &'t mut Trace) -> Self {
        let mut used: Vec<u32> = (0..run.platform.cpus.min(1024)).collect();
        used.extend(run.events.iter().map(|e| e.cpu).filter(|c| *c != NONE));
        used.sort_unstable();
        used.dedup();
        let root = trace.group(None, &format!("CPUs under {}", run.policy));
        let cpus = used.iter().map(|c| (*c, trace.track(root, &format!("CPU {c}")))).collect();
        let mut shares = BTreeMap::new();
        if run.events.iter().any(|e| e.kind() == Some(EventKind::Share)) {
            for cpu in &used {
                shares.insert(*cpu, trace.track(root, &format!("CPU {cpu} best-effort share")));
            }
        }
        let root = trace.group(None, "Tasks");
        let tasks = run
            .tasks
            .iter()
            .map(|t| {
                if t.class == Class::BestEffort {
                    let running = trace.track(root, &t.name);
                    let (open, served) = (BTreeMap::new(), None);
                    return TaskTracks {
                        running,
                        group: root,
                        beside: Vec::new(),
                        jobs: None,
                        budget: None,
                        on: Vec::new(),
                        open,
                        served,
                    };
                }
                let title = match t.budget {
                    0 => format!("{} ({})", t.name, format_duration(t.period)),
                    q => {
                        let (q, p) = (format_duration(q), format_duration(t.period));
                        format!("{} ({q} every {p})", t.name)
                    }
                };
                let group = trace.group(Some(root), &title);
                TaskTracks {
                    running: trace.track(group, "running"),
                    group,
                    beside: Vec::new(),
                    jobs: Some(trace.track(group, "jobs")),
                    budget: (t.budget > 0).then(|| trace.counter(group, "budget")),
                    on: Vec::new(),
                    open: BTreeMap::new(),
                    served: None,
                }
            })
            .collect();
        let root = (!run.resources.is_empty()).then(|| trace.group(None, "Resources"));
        let track = |(name, root): (&String, u64)| trace.track(root, name);
        let resources = run.resources.iter().zip(root.into_iter().cycle()).map(track).collect();
        let owners = server_tasks(&run.events);
        let (running, flows) = (BTreeMap::new(), 0);
        Self { run, trace, owners, cpus, running, shares, resources, tasks, flows }
    }

    fn event(&mut self, e: &Event) {
        let Some(kind) = e.kind() else { return };
        let owner = if e.task == NONE { self.owner(e.server) } else { Some(e.task as usize) };
        let owner = owner.filter(|t| *t < self.tasks.len());
        match (kind, owner) {
            (EventKind::Release, Some(t)) => self.release(e, t),
            (EventKind::Complete | EventKind::Abort, Some(t)) => self.complete(e, t),
            (EventKind::Block | EventKind::Unblock, Some(t)) => {
                self.wait(e, t, kind == EventKind::Block);
            }
            (EventKind::Lock | EventKind::Unlock, Some(t)) => {
                self.hold(e, t, kind == EventKind::Lock)
            }
            (EventKind::Wake, Some(t)) => {
                let args = vec![Arg::time("after", e.a)];
                self.trace.instant(e.time, self.tasks[t].running, "woke", args);
            }
            (EventKind::Run, Some(t)) => self.begin(e, t),
            (EventKind::Stop, Some(t)) => self.stop(e.time, t, e.cpu, StopReason::from_u64(e.a)),
            (EventKind::Activate, Some(t)) => self.budget_event(e, t, "activate", Some(e.a)),
            (EventKind::Idle, Some(t)) => self.budget_event(e, t, "idle", Some(e.a)),
            (EventKind::Exhaust, Some(t)) => self.budget_event(e, t, "exhaust", Some(0)),
            (EventKind::Replenish, Some(t)) => self.budget_event(e, t, "replenish", Some(e.a)),
            (EventKind::Restore, Some(t)) => self.budget_event(e, t, "restore", Some(e.a)),
            (EventKind::Throttle, Some(t)) => self.budget_event(e, t, "throttle", None),
            (EventKind::Donate, _) => self.donate(e),
            (EventKind::Bonus, Some(t)) => {
                let args = vec![Arg::time("amount", e.a)];
                self.trace.instant(e.time, self.tasks[t].running, "bonus", args);
            }
            (EventKind::Lend, Some(t)) => {
                let args = vec![Arg::time("amount", e.a), Arg::time("deadline", e.b)];
                self.trace.instant(e.time, self.tasks[t].running, "lend", args);
            }
            (EventKind::Plan, _) => {
                let args = vec![Arg::number("chosen", e.a), Arg::number("left out", e.b)];
                if let Some(track) = self.cpus.get(&e.cpu) {
                    self.trace.instant(e.time, *track, "plan", args);
                }
            }
            (EventKind::Share, _) => self.share(e),
            (EventKind::Online, _) => {
                let name = if e.a == 1 { "on line" } else { "off line" };
                if let Some(track) = self.cpus.get(&e.cpu) {
                    self.trace.instant(e.time, *track, name, vec![]);
                }
            }
            _ => {}
        }
    }

    fn owner(&self, server: u32) -> Option<usize> {
        self.owners.get(&server).map(|t| *t as usize)
    }

    fn release(&mut self, e: &Event, t: usize) {
        let task = &mut self.tasks[t];
        if task.jobs.is_none() {
            return;
        }
        task.open.insert(e.a, e.b);
        let track = task.running;
        let args = vec![Arg::number("job", e.a), Arg::time("deadline", e.b)];
        self.trace.instant(e.time, track, "release", args);
        if e.b <= self.run.horizon_ns {
            self.trace.instant(e.b, track, "deadline", vec![Arg::number("job", e.a)]);
        }
        self.serve(e.time, t);
    }

    /// Jobs of a task are served one after another: the next one begins when none is open.
    fn serve(&mut self, time: u64, t: usize) {
        let task = &mut self.tasks[t];
        if task.served.is_none()
            && let Some((job, deadline)) = task.open.first_key_value()
            && let Some(track) = task.jobs
        {
            task.served = Some(*job);
            let args = vec![Arg::number("job", *job), Arg::time("deadline", *deadline)];
            self.trace.begin(time, track, &format!("job {job}"), args);
        }
    }

    fn complete(&mut self, e: &Event, t: usize) {
        let task = &mut self.tasks[t];
        let Some(deadline) = task.open.remove(&e.a) else { return };
        let Some(track) = task.jobs.filter(|_| task.served == Some(e.a)) else {
            return; // overtook the job in service; it has no slice of its own
        };
        task.served = None;
        let mut args = vec![Arg::time("execution", e.b)];
        if e.kind == EventKind::Abort as u32 {
            args.push(Arg::text("aborted", "yes".into()));
            self.trace.instant(e.time, task.running, "aborted", vec![]);
        } else if e.time > deadline {
            args.push(Arg::time("tardiness", e.time - deadline));
        }
        self.trace.end(e.time, track, args);
        if e.time > deadline && e.kind == EventKind::Complete as u32 {
            let args = vec![Arg::time("tardiness", e.time - deadline)];
            self.trace.instant(e.time, task.running, "late", args);
        }
        self.serve(e.time, t);
    }

    fn begin(&mut self, e: &Event, t: usize) {
        if let Some(other) = self.running.get(&e.cpu).copied() {
            self.stop(e.time, other as usize, e.cpu, None); // its own Stop is missing
        }
        let Some(cpu) = self.cpus.get(&e.cpu).copied() else { return };
        let name = self.run.tasks[t].name.clone();
        let mut args = Vec::new();
        if e.a != 0 {
            args.push(Arg::time("server deadline", e.a));
            args.push(Arg::time("remaining budget", e.b));
        }
        self.trace.begin(e.time, cpu, &name, args.clone());
        let track = self.free_track(t);
        self.trace.begin(e.time, track, &format!("CPU {}", e.cpu), args);
        let budget = (e.a != 0).then_some(e.b);
        self.tasks[t].on.push(On { cpu: e.cpu, since: e.time, budget, track });
        self.running.insert(e.cpu, t as u32);
        if let Some(budget) = budget {
            self.count(e.time, t, budget);
        }
    }

    fn stop(&mut self, time: u64, t: usize, cpu: u32, reason: Option<StopReason>) {
        let Some(at) = self.tasks[t].on.iter().position(|on| on.cpu == cpu) else { return };
        let On { since, budget, track, .. } = self.tasks[t].on.swap_remove(at);
        self.running.remove(&cpu);
        let args = match reason {
            Some(reason) => vec![Arg::text("stopped", format!("{reason:?}").to_lowercase())],
            None => vec![],
        };
        self.trace.end(time, self.cpus[&cpu], args.clone());
        self.trace.end(time, track, args);
        if let Some(budget) = budget {
            self.count(time, t, budget.saturating_sub(time - since));
        }
    }

    fn count(&mut self, time: u64, t: usize, ns: u64) {
        if let Some(track) = self.tasks[t].budget {
            self.trace.count(time, track, ns);
        }
    }

    /// An instant on the task, and its new budget. While the task runs, its budget counts down from there.
    fn budget_event(&mut self, e: &Event, t: usize, name: &str, budget: Option<u64>) {
        let what = if name == "throttle" { "until" } else { "server deadline" };
        let mut args = vec![Arg::time(what, e.b)];
        args.extend(budget.map(|b| Arg::time("budget", b)));
        self.trace.instant(e.time, self.tasks[t].running, name, args);
        if let Some(budget) = budget {
            self.count(e.time, t, budget);
            for on in &mut self.tasks[t].on {
                (on.since, on.budget) = (e.time, Some(budget));
            }
        }
    }

    fn donate(&mut self, e: &Event) {
        let giver = self.owner(e.server).filter(|t| *t < self.tasks.len());
        let taker = u32::try_from(e.b).ok().and_then(|s| self.owner(s));
        let taker = taker.filter(|t| *t < self.tasks.len());
        self.flows += 1;
        let name =
            |t: Option<usize>| t.map_or("unknown".into(), |t| self.run.tasks[t].name.clone());
        let (from, to) = (name(giver), name(taker));
        let args = |who: &str, name: &str| {
            vec![Arg::time("amount", e.a), Arg::text(who, name.to_string())]
        };
        let track = |t: Option<usize>| t.map(|t| self.tasks[t].running);
        match (track(giver), track(taker)) {
            (Some(from_track), Some(to_track)) => {
                self.trace.flow_from(e.time, from_track, "donate", args("to", &to), self.flows);
                self.trace.flow_to(e.time, to_track, "receive", args("from", &from), self.flows);
            }
            (Some(track), None) => self.trace.instant(e.time, track, "donate", args("to", &to)),
            (None, Some(track)) => {
                self.trace.instant(e.time, track, "receive", args("from", &from))
            }
            (None, None) => {}
        }
    }

    fn share(&mut self, e: &Event) {
        let Some(track) = self.shares.get(&e.cpu).copied() else { return };
        match (e.a, self.trace.is_open(track)) {
            (1, false) => self.trace.begin(e.time, track, "best-effort share", vec![]),
            (0, true) => self.trace.end(e.time, track, vec![]),
            _ => {}
        }
    }

    /// Ends what is still open at the horizon.
    fn finish(&mut self) {
        let end = self.run.horizon_ns;
        for t in 0..self.tasks.len() {
            while let Some(on) = self.tasks[t].on.last() {
                self.stop(end, t, on.cpu, None);
            }
            let served = self.tasks[t].served.take();
            if let (Some(_), Some(track)) = (served, self.tasks[t].jobs) {
                self.trace.end(end, track, vec![Arg::text("unfinished", "yes".into())]);
            }
        }
        let open: Vec<u64> = self.shares.values().chain(&self.resources).copied().collect();
        for track in open {
            if self.trace.is_open(track) {
                self.trace.end(end, track, vec![]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
