// SPDX-License-Identifier: GPL-2.0-only
//! Follows a run event by event and holds it to what must be true of threads, jobs and resources.

use std::collections::{BTreeMap, VecDeque};

use onbeat_model::event::{Event, EventKind};
use onbeat_model::run::Run;
use onbeat_model::taskset::{TaskCopy, TaskSet};
use onbeat_model::workgen::thread_times;

/// A job that has been released.
#[derive(Debug, Default, Clone)]
struct Job {
    deadline: u64,
    ended: bool,
}

#[derive(Debug, Default)]
struct Task {
    jobs: BTreeMap<u64, Job>,
    next: u64,
    /// CPUs it runs on, and since when.
    on: BTreeMap<u32, u64>,
    ran: u64,
    /// How much it had run when its present job began; of one thread only.
    before: u64,
    used: u64,
    waits: usize,
}

#[derive(Debug, Default)]
struct Resource {
    holder: Option<(u32, u64)>,
    queue: VecDeque<(u32, u64)>,
    /// Given to the first of the queue, who has not taken it yet.
    given: Option<(u32, u64)>,
}

/// What came of it.
#[derive(Debug)]
pub struct Witness {
    /// Jobs that are released and not done.
    pub pending: usize,
    /// CPU time of each task by its switches, ns.
    pub ran: Vec<u64>,
    /// Whether it runs at the horizon.
    pub runs_at_the_end: Vec<bool>,
}

struct Watch<'s> {
    set: &'s TaskSet,
    run: &'s Run,
    tasks: Vec<Task>,
    /// Who runs on each CPU.
    cpus: BTreeMap<u32, u32>,
    resources: Vec<Resource>,
    /// Execution times of each copy's jobs, all threads together, and number of threads.
    times: Vec<(Vec<u64>, u32)>,
}

impl Witness {
    /// # Errors
    /// What is wrong with the run.
    pub fn of(set: &TaskSet, run: &Run) -> Result<Self, String> {
        let all = |copy: TaskCopy<'_>| {
            let mut sum = vec![0; copy.jobs as usize];
            for thread in 0..copy.spec.threads {
                let times = thread_times(set, &copy, thread).expect("known work");
                sum.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
            }
            (sum, copy.spec.threads)
        };
        let mut watch = Watch {
            set,
            run,
            tasks: run.tasks.iter().map(|_| Task::default()).collect(),
            cpus: BTreeMap::new(),
            resources: set.resources.iter().map(|_| Resource::default()).collect(),
            times: set.copies().map(all).collect(),
        };
        for (i, e) in run.events.iter().enumerate() {
            watch.event(e).map_err(|why| format!("{e}: {why}"))?;
            if run.events.get(i + 1).is_none_or(|next| next.time > e.time) {
                watch.between().map_err(|why| format!("after {e}: {why}"))?;
            }
        }
        let ran = |t: &Task| t.ran + t.on.values().map(|since| run.horizon_ns - since).sum::<u64>();
        Ok(Self {
            pending: watch
                .tasks
                .iter()
                .map(|t| t.jobs.values().filter(|job| !job.ended).count())
                .sum(),
            ran: watch.tasks.iter().map(ran).collect(),
            runs_at_the_end: watch.tasks.iter().map(|t| !t.on.is_empty()).collect(),
        })
    }
}

fn claim(holds: bool, why: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

impl Watch<'_> {
    fn event(&mut self, e: &Event) -> Result<(), String> {
        let Some(kind) = e.kind() else { return Err("unknown".into()) };
        let who = (e.task, e.b);
        match kind {
            EventKind::Release => {
                let deadline = e.b;
                let fresh = self.task(e).jobs.insert(e.a, Job { deadline, ended: false });
                claim(fresh.is_none(), "released twice")
            }
            EventKind::Complete | EventKind::Abort => self.end(e, kind == EventKind::Abort),
            EventKind::Run => {
                claim(self.cpus.insert(e.cpu, e.task).is_none(), "the CPU was busy")?;
                self.task(e).on.insert(e.cpu, e.time);
                Ok(())
            }
            EventKind::Stop => {
                claim(self.cpus.remove(&e.cpu) == Some(e.task), "it did not run there")?;
                let task = self.task(e);
                let since = task.on.remove(&e.cpu).ok_or("it did not run")?;
                task.ran += e.time - since;
                Ok(())
            }
            EventKind::Block => {
                self.task(e).waits += 1;
                let resource = &mut self.resources[e.a as usize];
                resource.queue.push_back(who);
                claim(resource.holder.is_some(), "it waits for what is free")
            }
            EventKind::Unblock => {
                self.task(e).waits -= 1;
                let resource = &mut self.resources[e.a as usize];
                let at = resource.queue.iter().position(|waits| *waits == who);
                resource.queue.remove(at.ok_or("it did not wait")?);
                if resource.holder.is_none() {
                    // Threads of a job cannot be told apart.
                    let several = self.times[e.task as usize].1 > 1;
                    resource.given = Some(who);
                    return claim(at == Some(0) || several, "it was not the first");
                }
                let aborts = self.set.tasks[self.run.tasks[e.task as usize].entry as usize].abort;
                claim(aborts, "it was given what is held")
            }
            EventKind::Lock => {
                let resource = &mut self.resources[e.a as usize];
                claim(resource.holder.is_none(), "another holds it")?;
                let given = resource.given.take();
                claim(given.is_none_or(|given| given == who), "it was given to another")?;
                resource.holder = Some(who);
                self.at_a_step(e, |from, _| from)
            }
            EventKind::Unlock => {
                let resource = &mut self.resources[e.a as usize];
                claim(resource.holder.take() == Some(who), "it did not hold it")?;
                self.at_a_step(e, |_, until| until)
            }
            EventKind::Usage => {
                let horizon = self.run.horizon_ns;
                let task = self.task(e);
                let open: u64 = task.on.values().map(|since| horizon - since).sum();
                claim(task.ran + open == e.a, "it did not run for as long")
            }
            _ => Ok(()),
        }
    }

    fn task(&mut self, e: &Event) -> &mut Task {
        &mut self.tasks[e.task as usize]
    }

    /// How much the task of `e` has run by then.
    fn ran(&self, e: &Event) -> u64 {
        let task = &self.tasks[e.task as usize];
        task.ran + task.on.values().map(|since| e.time - since).sum::<u64>()
    }

    /// Jobs end in their order, after what they need, or at their deadlines.
    fn end(&mut self, e: &Event, aborted: bool) -> Result<(), String> {
        let ran = self.ran(e);
        let (times, threads) = &self.times[e.task as usize];
        let (time, threads) = (times[e.a as usize], *threads);
        let task = self.task(e);
        claim(task.next == e.a, "jobs end in their order")?;
        task.next += 1;
        let job = task.jobs.get_mut(&e.a).ok_or("it was not released")?;
        claim(!std::mem::replace(&mut job.ended, true), "it ends twice")?;
        task.used += e.b;
        claim(task.used <= ran, "it has not run for so long")?;
        claim(threads > 1 || task.used == ran, "it ran between its jobs")?;
        task.before = ran;
        if aborted {
            claim(e.time == job.deadline, "it is given up at another time")?;
            return claim(e.b <= time, "it ran on");
        }
        claim(e.b == time, "it ran for another time")
    }

    /// A thread takes and releases a resource where its section begins and ends, or at the end of its job.
    fn at_a_step(&self, e: &Event, edge: fn(u64, u64) -> u64) -> Result<(), String> {
        let (times, threads) = &self.times[e.task as usize];
        if *threads > 1 {
            return Ok(());
        }
        let task = &self.tasks[e.task as usize];
        let at = self.ran(e) - task.before;
        let sections = &self.set.tasks[self.run.tasks[e.task as usize].entry as usize].sections;
        let mut of = sections.iter().filter(|s| s.resource as u64 == e.a);
        let deadline = task.jobs.get(&e.b).map_or(0, |job| job.deadline);
        let over = at == times[e.b as usize] || e.time == deadline;
        let step = of.any(|s| edge(s.from, s.until()) == at);
        claim(
            step || over && e.kind() == Some(EventKind::Unlock),
            &format!("after {at}: not a step"),
        )
    }

    /// At rest between two instants: nobody waits for what is free, and who waits does not run.
    fn between(&self) -> Result<(), String> {
        for (task, (_, threads)) in self.tasks.iter().zip(&self.times) {
            claim(task.on.len() + task.waits <= *threads as usize, "who waits cannot run")?;
        }
        for resource in &self.resources {
            claim(resource.queue.is_empty() || resource.holder.is_some(), "a wake-up was lost")?;
            claim(resource.given.is_none(), "nobody took it")?;
            let waits = resource.holder.is_some_and(|holder| resource.queue.contains(&holder));
            let several = resource.holder.is_some_and(|of| self.times[of.0 as usize].1 > 1);
            claim(!waits || several, "it waits for itself")?;
        }
        Ok(())
    }
}
