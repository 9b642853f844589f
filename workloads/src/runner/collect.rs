// SPDX-License-Identifier: GPL-2.0-only
//! From everybody's records to one run.

use super::Options;
use super::counters::Counters;
use super::crew::{Crew, Role};
use anyhow::{Result, ensure};
use onbeat_model::event::{EVENT_BYTES, Event, EventKind, NONE};
use onbeat_model::run::{Platform, Run};
use onbeat_model::units::SEC;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// What the runner has gathered beside the board.
#[derive(Debug, Default)]
pub struct Records {
    /// What each task has used.
    pub usage: Vec<Counters>,
    /// Reservations: id and index of the task.
    pub grants: Vec<(u32, usize)>,
    /// The scheduler's events as it wrote them.
    pub events: Vec<u8>,
}

/// What each member has used since the origin. Best-effort processes first: they still run.
pub fn usage(crew: &Crew) -> Vec<Counters> {
    let mut usage = vec![Counters::default(); crew.members.len()];
    let best_effort = |i: &usize| crew.members[*i].role.is_best_effort();
    let (others, tasks): (Vec<_>, Vec<_>) = (0..usage.len()).partition(best_effort);
    for index in others {
        let member = &crew.members[index];
        let at_origin = crew.slot(index).cpu_at_origin.load(Relaxed);
        let cpu = crate::sys::process_cpu(member.pid()).unwrap_or(0);
        // One that has not run since the origin has got nothing.
        usage[index].cpu = if at_origin == 0 { 0 } else { cpu.saturating_sub(at_origin) };
    }
    for index in tasks {
        usage[index] = crew.members[index].used();
    }
    for (index, member) in crew.members.iter().enumerate() {
        if member.role.is_best_effort() {
            usage[index] = Counters { cpu: usage[index].cpu, ..member.used() };
        }
    }
    usage
}

/// Everything about the run, times relative to `origin`.
///
/// # Errors
/// When the scheduler's events are not whole.
pub fn into_run(
    options: &Options,
    crew: &Crew,
    origin: u64,
    horizon: u64,
    records: Records,
) -> Result<Run> {
    let mut events = jobs(crew, origin);
    let programs: HashMap<u32, u64> = crew
        .members
        .iter()
        .zip(0..)
        .filter(|(member, _)| member.role == Role::Program)
        .map(|(member, index)| (index, member.info.deadline))
        .collect();
    let (whole, rest) = records.events.as_chunks::<EVENT_BYTES>();
    ensure!(rest.is_empty(), "the scheduler's events end in the middle of one");
    let tids: HashMap<u32, u32> =
        crew.members.iter().zip(0..).map(|(member, index)| (member.pid(), index)).collect();
    let servers: HashMap<u32, u32> =
        records.grants.iter().map(|&(id, index)| (id, index as u32)).collect();
    let window = Window { origin, horizon, tids, servers };
    let scheduled = window.cut(whole.iter().map(Event::from_bytes));
    events.extend(program_jobs(&scheduled, &programs, &window.servers));
    events.extend(scheduled);
    for (index, used) in records.usage.iter().enumerate() {
        let usage = Event::new(horizon, EventKind::Usage, used.cpu, used.packed());
        events.push(usage.of(index as u32));
    }
    events.extend(seconds(crew, horizon, &records.usage));
    let mut run = Run {
        world: options.world,
        policy: options.policy.to_string(),
        platform: platform(options),
        tasks: crew.members.iter().map(|member| member.info.clone()).collect(),
        resources: Vec::new(),
        events,
        origin_ns: origin,
        horizon_ns: horizon,
    };
    run.sort_events();
    Ok(run)
}

fn platform(options: &Options) -> Platform {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Platform {
        cpus: options.set.cpus,
        onbeat: env!("CARGO_PKG_VERSION").into(),
        kernel: release.trim().into(),
        seed: options.set.seed,
        ..Platform::default()
    }
}

/// Releases and completions of the tasks that record their jobs themselves. A job is released
/// when its time has come, whether or not its task got to it.
fn jobs(crew: &Crew, origin: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for (index, member) in (0..).zip(&crew.members) {
        if member.role == Role::Bursts {
            events.extend(wakes(crew, index, origin));
            continue;
        }
        let slot = crew.slot(index as usize);
        let first = slot.offset.load(Relaxed);
        // A job is complete when the last thread has done its part.
        let slots = crew.slots(index as usize);
        let done = slots.clone().map(|slot| slot.completed.load(Relaxed)).min().unwrap_or(0);
        let jobs = |number| slots.clone().map(move |slot| &crew.board.jobs(slot)[number as usize]);
        for number in 0..crew.board.jobs(slot).len() as u64 {
            let release = first + number * member.info.period;
            let deadline = release + member.info.deadline;
            events.push(Event::new(release, EventKind::Release, number, deadline).of(index));
            if number < done {
                let last = jobs(number).map(|job| job.finish.load(Relaxed)).max().unwrap_or(0);
                let finish = last.saturating_sub(origin);
                let used = jobs(number).map(|job| job.used.load(Relaxed)).sum();
                let aborted = jobs(number).any(|job| job.aborted.load(Relaxed) != 0);
                let kind = if aborted { EventKind::Abort } else { EventKind::Complete };
                events.push(Event::new(finish, kind, number, used).of(index));
            }
        }
    }
    events
}

/// How long a load or generator waited each time it had slept.
fn wakes(crew: &Crew, index: u32, origin: u64) -> Vec<Event> {
    let slot = crew.slot(index as usize);
    let (mut events, mut free) = (Vec::new(), 0);
    let done = slot.completed.load(Relaxed) as usize;
    for job in crew.board.jobs(slot).iter().take(done) {
        let (came, began) = (job.release.load(Relaxed), job.start.load(Relaxed));
        let began = began.saturating_sub(origin);
        if came > free {
            let waited = began.saturating_sub(came);
            events.push(Event::new(began, EventKind::Wake, waited, 0).of(index));
        }
        free = job.finish.load(Relaxed).saturating_sub(origin);
    }
    events
}

/// What best effort had in each whole second until `horizon`; `usage` is what each member had in all.
fn seconds(crew: &Crew, horizon: u64, usage: &[Counters]) -> Vec<Event> {
    let mut had = vec![0u64; usize::try_from(horizon / SEC).unwrap_or(0)];
    let mut counted = false;
    for index in (0..usage.len()).filter(|i| crew.members[*i].role.is_best_effort()) {
        counted = true;
        let (at_origin, all) = (crew.slot(index).cpu_at_origin.load(Relaxed), usage[index].cpu);
        let mut before = 0;
        let ends = crew.seconds(index).chain(std::iter::repeat(0));
        for (had, used) in had.iter_mut().zip(ends) {
            // Who has not run since had then what it had in the end.
            let until = if used == 0 { all } else { used.saturating_sub(at_origin).min(all) };
            *had += until.saturating_sub(before);
            before = until.max(before);
        }
    }
    let ends = (0..).zip(had).filter(|_| counted);
    ends.map(|(k, had)| Event::new((k + 1) * SEC, EventKind::BestEffort, had, k)).collect()
}

/// The part of the scheduler's life that is the run.
#[derive(Debug)]
struct Window {
    origin: u64,
    horizon: u64,
    /// Index of the task by process.
    tids: HashMap<u32, u32>,
    /// Index of the task by reservation.
    servers: HashMap<u32, u32>,
}

impl Window {
    /// Events inside the window, in the run's terms. Who was running when it opened begins to run
    /// there; of who is no task of the run only is told that somebody has the CPU.
    fn cut(&self, events: impl Iterator<Item = Event>) -> Vec<Event> {
        let mut running: HashMap<u32, Event> = HashMap::new();
        let mut opened = false;
        let mut inside = Vec::new();
        for event in events {
            let Some(event) = self.translate(event) else { continue };
            if event.time < self.origin {
                match event.kind() {
                    Some(EventKind::Run) => drop(running.insert(event.cpu, event)),
                    Some(EventKind::Stop) => drop(running.remove(&event.cpu)),
                    _ => (),
                }
                continue;
            }
            if !std::mem::replace(&mut opened, true) {
                self.open(&mut running, &mut inside);
            }
            let event = event.since(self.origin);
            if event.time <= self.horizon {
                inside.push(event);
            }
        }
        self.open(&mut running, &mut inside);
        inside
    }

    fn open(&self, running: &mut HashMap<u32, Event>, inside: &mut Vec<Event>) {
        let mut first: Vec<Event> =
            running.drain().map(|(_, event)| event.since(self.origin)).collect();
        first.sort();
        inside.extend(first);
    }

    fn translate(&self, event: Event) -> Option<Event> {
        // A reservation serves all threads of its program.
        let served = self.servers.get(&event.server).copied();
        if event.task == NONE {
            return (event.server == NONE || served.is_some()).then_some(event);
        }
        match served.or_else(|| self.tids.get(&event.task).copied()) {
            Some(task) => Some(Event { task, ..event }),
            None => {
                let switch = matches!(event.kind(), Some(EventKind::Run | EventKind::Stop));
                switch.then_some(Event { task: NONE, server: NONE, ..event })
            }
        }
    }
}

/// Jobs of programs, with relative deadlines, as the scheduler recognised them: from activation to idleness of the
/// reservation.
fn program_jobs(
    events: &[Event],
    programs: &HashMap<u32, u64>,
    servers: &HashMap<u32, u32>,
) -> Vec<Event> {
    let mut jobs: HashMap<u32, (u64, bool)> = HashMap::new();
    let mut out = Vec::new();
    for event in events {
        let task = servers.get(&event.server);
        let Some((&task, deadline)) = task.and_then(|task| programs.get_key_value(task)) else {
            continue;
        };
        let (number, open) = jobs.entry(task).or_insert((0, false));
        match event.kind() {
            Some(EventKind::Activate) => {
                let due = event.time.saturating_add(*deadline);
                let release = Event::new(event.time, EventKind::Release, *number, due).of(task);
                // The second in a row: the job that a mark began has begun only now.
                let marked =
                    out.iter_mut().rfind(|e: &&mut Event| e.task == task).filter(|_| *open);
                match marked {
                    Some(before) => *before = release,
                    None => out.push(release),
                }
                *open = true;
            }
            Some(EventKind::Idle) if *open => {
                *open = false;
                out.push(Event::new(event.time, EventKind::Complete, *number, 0).of(task));
                *number += 1;
            }
            _ => (),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window {
            origin: 1000,
            horizon: 100,
            tids: HashMap::from([(70, 0), (71, 1)]),
            servers: HashMap::from([(5, 0)]),
        }
    }

    #[test]
    fn who_runs_when_the_window_opens_begins_there_and_strangers_have_cpus_but_no_names() {
        let run = |time, cpu, task| Event::new(time, EventKind::Run, 0, 0).on(cpu).of(task);
        let stop = |time, cpu, task| Event::new(time, EventKind::Stop, 0, 0).on(cpu).of(task);
        let events = [
            run(900, 0, 70),
            run(910, 1, 71),
            stop(950, 0, 70),
            run(960, 0, 99),
            stop(1040, 1, 71),
            run(1050, 0, 70),
            stop(2000, 0, 70),
        ];
        let cut = window().cut(events.into_iter());
        assert_eq!(cut, [run(0, 0, NONE), run(0, 1, 1), stop(40, 1, 1), run(50, 0, 0)]);
    }

    #[test]
    fn a_thread_of_a_program_counts_for_the_reservation_it_runs_in() {
        let event = Event::new(1010, EventKind::Run, 0, 0).on(0).of(4242).by(5);
        let cut = window().cut([event].into_iter());
        assert_eq!(cut, [Event { time: 10, task: 0, ..event }]);
    }

    #[test]
    fn what_events_tell_of_times_is_relative_to_the_origin_too() {
        let on = |time, kind, a, b| Event::new(time, kind, a, b).by(5);
        let events = [
            on(1010, EventKind::Activate, 500, 1090),
            on(1010, EventKind::Run, 1090, 500).on(0).of(4242),
            on(1020, EventKind::Replenish, 500, 990),
        ];
        let expected = [
            on(10, EventKind::Activate, 500, 90),
            on(10, EventKind::Run, 90, 500).on(0).of(0),
            on(20, EventKind::Replenish, 500, 1),
        ];
        assert_eq!(window().cut(events.into_iter()), expected);
    }

    #[test]
    fn a_programs_jobs_last_from_the_last_activation_to_idleness() {
        let on = |time, kind| Event::new(time, kind, 7, 0).by(5);
        let events = [
            on(1, EventKind::Idle),
            on(10, EventKind::Activate),
            on(20, EventKind::Activate),
            on(30, EventKind::Idle),
            on(50, EventKind::Activate),
        ];
        let servers = HashMap::from([(5, 3)]);
        let jobs = program_jobs(&events, &HashMap::from([(3, 41)]), &servers);
        let expected = [
            Event::new(20, EventKind::Release, 0, 61).of(3),
            Event::new(30, EventKind::Complete, 0, 0).of(3),
            Event::new(50, EventKind::Release, 1, 91).of(3),
        ];
        assert_eq!(jobs, expected);
        assert_eq!(program_jobs(&events, &HashMap::new(), &servers), []);
    }
}
