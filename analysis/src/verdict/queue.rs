// SPDX-License-Identifier: GPL-2.0-only
//! What can be proven of one queue of a policy: of its CPUs, and the tasks that it serves there.

mod edf;

use num_traits::Zero;
use onbeat_model::numbers::SHARE_QUANTUM;
use onbeat_model::policy::{CorePolicy, Key, Server};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::{Fraction, format_duration, format_percent};

use super::Asked;
use crate::global::{fixed, rta};
use crate::machine::Machine;
use crate::one_cpu::delayed::{self, Delayed};
use crate::sporadic::{Sporadic, compare_utilization};
use std::cmp::Ordering;

/// Shares of smaller parts than this are rounded: an hour in such parts fits 64 bits.
const PARTS_MOST: u64 = 100_000;

/// What is said of a task.
pub(super) enum Said {
    /// It is late by no more than that, ns.
    Late(u64),
    /// No test can tell, and why.
    Unknown(String),
    /// It has no bound, and why.
    Never(String),
}

impl Said {
    /// Nothing of that kind is known, for `why`.
    pub(super) fn doubt(&mut self, why: &str) {
        if let Said::Late(_) = self {
            *self = Said::Unknown(why.into());
        }
    }

    /// By how much it is late at most, ns, if that is known.
    pub(super) fn late(&self) -> Option<u64> {
        match self {
            Said::Late(late) => Some(*late),
            _ => None,
        }
    }
}

/// Whether a job may be released before the deadline of the last one's server, as that was released late.
fn wakes_early(one: &Delayed) -> bool {
    one.jitter > 0 && one.task.deadline.saturating_add(one.jitter) > one.task.period
}

/// By how much a job is late that ends `end` after its release, which is `jitter` after its arrival.
fn after(end: u64, jitter: u64, task: &Sporadic) -> u64 {
    end.saturating_add(jitter).saturating_sub(task.deadline)
}

impl Asked {
    /// That a job ends no later than `end` after its release.
    pub(super) fn ends(&self, end: u64) -> Said {
        let Delayed { task, jitter, .. } = self.one;
        if self.marks && end > task.period {
            let why = "it may be late beyond its next release, which a program that marks its jobs then begins late";
            return Said::Unknown(why.into());
        }
        Said::Late(after(end, jitter, &task))
    }
}

/// CPUs of each queue of a machine, a bit for each. Where reservations are split over CPUs all are looked at together.
pub(super) fn domains(policy: &CorePolicy, machine: &Machine) -> Vec<u64> {
    let all = machine.domain_masks();
    match policy.order.splits() {
        true => vec![all.iter().fold(0, |sum, mask| sum | mask)],
        false => all,
    }
}

/// A queue.
pub(super) struct Queue<'a> {
    pub cpus: u64,
    pub tasks: &'a [&'a Asked],
    pub policy: &'a CorePolicy,
    pub set: &'a TaskSet,
    /// By the tasks' own priorities in place of their periods, where the order is one of fixed priorities.
    pub by_priority: bool,
}

/// What all tasks of a queue are told, or each.
type Answer = Result<Vec<Said>, Said>;

impl<'a> Queue<'a> {
    /// The part of the CPUs that is asked for, and the same in words.
    pub(super) fn load(&self) -> (f64, String) {
        let m = f64::from(self.cpus.count_ones());
        let of = |one: &&Asked| one.one.task.wcet as f64 / one.one.task.period as f64;
        let asked: f64 = self.tasks.iter().map(of).sum();
        let there = m * (1.0 - percent(self.share()) / 100.0);
        let words = format!(
            "{} {} asked for {:.1}% of {:.1}%",
            self.name(),
            if m > 1.0 { "are" } else { "is" },
            100.0 * asked,
            100.0 * there
        );
        (asked / there, words)
    }

    fn name(&self) -> String {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in (0..u64::BITS).filter(|cpu| self.cpus >> cpu & 1 == 1) {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let run = |(first, last): &(u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let list: Vec<String> = runs.iter().map(run).collect();
        format!("CPU{} {}", if self.cpus.count_ones() == 1 { "" } else { "s" }, list.join(","))
    }

    /// What best effort keeps of each CPU.
    fn share(&self) -> Fraction {
        self.policy.order.share(self.set.best_effort_share)
    }

    /// By how much best effort's share can delay a job beyond what its CPU time takes, ns: where it is no task in
    /// deadline order among others that keep to their budgets.
    fn delay(&self) -> u64 {
        let blackout = edf::supply(self.share()).blackout;
        match self.policy.order.key.goes_by_deadlines() {
            false => blackout,
            true if self.policy.server == Server::None => blackout.min(SHARE_QUANTUM),
            true => 0,
        }
    }

    /// Those whose jobs may take more than their budgets, if there are others in the queue, and what enforces these.
    fn overruns(&self) -> impl Iterator<Item = (&'a Asked, Server)> {
        let beside = self.tasks.len() > 1;
        let one = move |one: &&'a Asked| {
            let by = one.overruns.filter(|by| beside || !by.enforces())?;
            Some((*one, by))
        };
        self.tasks.iter().filter_map(one)
    }

    /// Why nobody is proven to be in time: one may take more than its budget, and no server keeps that from others.
    pub(super) fn unlimited(&self) -> Option<String> {
        self.overruns().find_map(|(one, by)| {
            let what = &one.what;
            match by {
                _ if !by.enforces() => {
                    Some(format!("{what} may work for longer than its budget, which nothing enforces here"))
                }
                _ if !by.isolates() => Some(format!(
                    "{what} may work for longer than its budget, which under {} can make others late",
                    by.name()
                )),
                _ => None,
            }
        })
    }

    /// The first level from which on the same is so where the order knows no deadlines, by which servers put overruns
    /// off: who overruns goes on before whoever comes after it, unless it has to rest. (Who is dry under `cash` goes
    /// behind all who have budget.)
    fn heedless(&self) -> Option<(u64, String)> {
        let goes_on = |by: Server| !by.rests() && by != Server::Cash;
        let level = |one: &Asked| self.level(one);
        let first = self.overruns().filter(|(_, by)| goes_on(*by)).map(|(one, _)| one);
        let first = first.min_by_key(|one| level(one))?;
        Some((
            level(first),
            format!(
                "{} may work for longer than its budget, and goes on before those after it under {}",
                first.what, self.policy.name
            ),
        ))
    }

    /// What is said of each task.
    pub(super) fn judge(&self) -> Vec<Said> {
        self.answer().unwrap_or_else(|all| {
            let again = || match &all {
                Said::Late(late) => Said::Late(*late),
                Said::Unknown(why) => Said::Unknown(why.clone()),
                Said::Never(why) => Said::Never(why.clone()),
            };
            self.tasks.iter().map(|_| again()).collect()
        })
    }

    fn answer(&self) -> Answer {
        let (key, m) = (self.policy.order.key, self.cpus.count_ones());
        let (exact, _) = self.exact();
        let over = |one: &Delayed| compare_utilization(&[one.task], 1) == Ordering::Greater;
        let alone =
            self.tasks.iter().zip(&exact).find(|(one, exact)| one.threads == 1 && over(exact));
        if let Some((one, _)) = alone {
            let there = format_percent(Fraction::from_integer(1) - self.share());
            let asked = 100.0 * one.one.task.wcet as f64 / one.one.task.period as f64;
            return Err(Said::Never(format!(
                "{} asks for {asked:.1}% of a CPU that offers {there}",
                one.name
            )));
        }
        let all: Vec<Sporadic> = exact.iter().map(|one| one.task).collect();
        if compare_utilization(&all, m.into()) == Ordering::Greater {
            return Err(Said::Never(self.load().1));
        }
        if self.policy.server == Server::None && self.tasks.iter().any(|one| one.one.jitter > 0) {
            return Err(Said::Unknown("without a server no test covers jitter".into()));
        }
        match (self.policy.order.splits(), key, m) {
            (true, ..) => self.split(),
            (_, Key::Edf | Key::Edzl, 1) => self.edf_on_one(),
            (_, Key::Rm, 1) => self.fixed_on_one(),
            (_, Key::Edf | Key::Edzl, _) => {
                self.holds_globally().and_then(|()| self.edf_on_several())
            }
            (_, Key::Rm, _) => self.holds_globally().and_then(|()| self.fixed_on_several()),
            _ => Err(Said::Unknown(format!("no test covers the order {}", key.name()))),
        }
    }

    /// Each with the time that it takes beside best effort's share, rounded up.
    fn scaled(&self) -> Vec<Delayed> {
        let share = self.share();
        self.tasks
            .iter()
            .map(|one| Delayed { task: scaled(&one.one.task, share), ..one.one })
            .collect()
    }

    /// The same without rounding, in units of which a ns has so many.
    fn exact(&self) -> (Vec<Delayed>, u64) {
        let share = self.share();
        let (whole, left) = (*share.denom(), share.denom() - share.numer());
        if whole > PARTS_MOST || left == 0 {
            return (self.scaled(), 1);
        }
        let one = |one: &&Asked| {
            let Delayed { task: Sporadic { wcet, deadline, period }, jitter, blocking } = one.one;
            Delayed {
                task: Sporadic {
                    wcet: wcet * whole,
                    deadline: deadline * left,
                    period: period * left,
                },
                jitter: jitter * left,
                blocking: blocking * whole,
            }
        };
        (self.tasks.iter().map(one).collect(), left)
    }

    /// With deadlines as servers have them, less `delay`, in units of which a ns has so many; 0 counts as due at once.
    /// A server whose deadline has passed does not wait for the end of its period: where jobs are released up to J late
    /// budgets are P − J apart.
    fn served(&self, all: &[Delayed], unit: u64) -> Vec<Delayed> {
        let delay = self.delay() * unit;
        let due = |task: &Sporadic| task.deadline.min(task.period).saturating_sub(delay).max(1);
        let one = |one: &Delayed| {
            let apart = match wakes_early(one) {
                true => one.task.period,
                false => one.task.period - one.jitter,
            };
            let task = Sporadic { deadline: due(&one.task), period: apart, ..one.task };
            Delayed { task, jitter: 0, blocking: one.blocking }
        };
        all.iter().map(one).collect()
    }

    /// That a job ends no later than `end` after its release, in an order that does not go by deadlines: a server's
    /// budget still comes by its own.
    fn ends(&self, one: &Asked, end: u64) -> Said {
        match self.policy.server {
            Server::None => Said::Late(after(end, one.one.jitter, &one.one.task)),
            _ => one.ends(end),
        }
    }

    /// Its fixed priority: the less, the earlier.
    fn level(&self, one: &Asked) -> u64 {
        match one.priority.filter(|_| self.by_priority) {
            Some(priority) => priority.into(),
            None => one.one.task.period,
        }
    }

    /// Levels of fixed priorities, and the tasks in their order.
    fn levels(&self) -> (Vec<usize>, Vec<u64>) {
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        let level = |i: &usize| self.level(self.tasks[*i]);
        order.sort_by_key(level);
        let levels = order.iter().map(level).collect();
        (order, levels)
    }

    fn fixed_on_one(&self) -> Answer {
        let (order, levels) = self.levels();
        let (all, unit) = self.exact();
        // These count from arrivals on. What best effort's share delays is a time in which others come as ever.
        let apart = self.delay() * unit;
        let one = |i: &usize| Delayed { blocking: all[*i].blocking + apart, ..all[*i] };
        let sorted: Vec<Delayed> = order.iter().map(one).collect();
        let times = delayed::response_times(&sorted, &levels);
        let mut said: Vec<Option<Said>> = order.iter().map(|_| None).collect();
        for (i, time) in order.iter().zip(times) {
            let one = self.tasks[*i];
            said[*i] = Some(match time {
                Some(time) => {
                    let end = time.div_ceil(unit).saturating_sub(one.one.jitter);
                    self.ends(one, end)
                }
                None => Said::Unknown("its response time has no bound within reach".into()),
            });
        }
        let mut said: Vec<Said> = said.into_iter().flatten().collect();
        if let Some((from, why)) = self.heedless() {
            let behind = |(one, _): &(&&Asked, &mut Said)| self.level(one) >= from;
            self.tasks.iter().zip(&mut said).filter(behind).for_each(|(_, said)| said.doubt(&why));
        }
        Ok(said)
    }

    /// Tests of several CPUs know no affinities, several threads or blocking.
    fn holds_globally(&self) -> Result<(), Said> {
        for one in self.tasks {
            let why = match one {
                _ if one.seat.at.cpus != self.cpus => "may use some of the CPUs only",
                _ if one.threads > 1 => "has several threads or members",
                _ if one.one.blocking > 0 => "has blocking",
                _ => continue,
            };
            return Err(Said::Unknown(format!(
                "{} {why}, which no test of several CPUs covers",
                one.name
            )));
        }
        Ok(())
    }

    fn fixed_on_several(&self) -> Answer {
        let m = self.cpus.count_ones() as usize;
        let (order, levels) = self.levels();
        let (tasks, there) = (self.capped(), edf::supply(self.share()));
        let sorted: Vec<Sporadic> = order.iter().map(|i| tasks[*i]).collect();
        let heedless = self.heedless();
        let (mut times, mut why) = match self.share().is_zero() {
            _ if self.jitter() => {
                (vec![None; order.len()], "no test of several CPUs covers jitter")
            }
            true => (
                fixed::guan(&sorted, &levels, m),
                "the test of global fixed priorities (Guan et al.) does not accept it",
            ),
            false => (
                rta::fixed_on(&sorted, &levels, m, there),
                "response times beside best effort's quanta (Bertogna and Cirinei) do not accept it",
            ),
        };
        if let Some((from, overruns)) = &heedless {
            let behind = times.iter_mut().zip(&levels).filter(|(_, level)| *level >= from);
            behind.for_each(|(time, _)| *time = None);
            why = overruns;
        }
        let beside = |task: &Sporadic| rta::beside(task, tasks.len() - 1, m, there);
        let ends = times.into_iter().zip(&sorted);
        let ends = ends.map(|(time, task)| time.into_iter().chain(beside(task)).min());
        let mut by_task = vec![None; order.len()];
        order.iter().zip(ends).for_each(|(i, end)| by_task[*i] = end);
        let one = |(one, end): (&&Asked, Option<u64>)| match end {
            Some(end) => self.ends(one, end),
            None => Said::Unknown(why.into()),
        };
        Ok(self.tasks.iter().zip(by_task).map(one).collect())
    }

    fn jitter(&self) -> bool {
        self.tasks.iter().any(|one| one.one.jitter > 0)
    }

    /// Tasks with deadlines by the ends of their periods.
    fn capped(&self) -> Vec<Sporadic> {
        let one = |one: &&Asked| {
            let task = one.one.task;
            Sporadic { deadline: task.deadline.min(task.period), ..task }
        };
        self.tasks.iter().map(one).collect()
    }

    /// Each CPU has been tested exactly when the parts were placed.
    fn split(&self) -> Answer {
        let delayed = |one: &&&Asked| one.one.blocking > 0 || one.one.jitter > 0;
        if let Some(one) = self.tasks.iter().find(delayed) {
            return Err(Said::Unknown(format!(
                "{} has blocking or jitter, which no test of splitting covers",
                one.name
            )));
        }
        match self.tasks.iter().find(|one| !one.seat.fits) {
            Some(one) => {
                let (Sporadic { wcet, .. }, words) = (one.one.task, self.load().1);
                let budget = format_duration(wcet);
                Err(Said::Unknown(format!(
                    "{} ({budget}) fits no CPU and is not split beside those before it; {words}",
                    one.name
                )))
            }
            None => self.in_time(),
        }
    }
}

/// With the time that its job takes on what best effort leaves of a CPU.
fn scaled(task: &Sporadic, share: Fraction) -> Sporadic {
    let left = u128::from(share.denom() - share.numer());
    let time = (u128::from(task.wcet) * u128::from(*share.denom())).div_ceil(left.max(1));
    Sporadic { wcet: u64::try_from(time).unwrap_or(u64::MAX), ..*task }
}

fn percent(share: Fraction) -> f64 {
    100.0 * *share.numer() as f64 / *share.denom() as f64
}
