// SPDX-License-Identifier: GPL-2.0-only
//! What can be proven of one queue of a policy: of its CPUs, and the tasks that it serves there.

use num_traits::Zero;
use onbeat_model::numbers::{LAXITY_MARGIN, SHARE_QUANTUM};
use onbeat_model::policy::{CorePolicy, Key, Server};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::{Fraction, format_duration, format_percent};

use super::Asked;
use crate::global::{fixed, gel, tardiness, tardiness::Supply, union};
use crate::machine::Machine;
use crate::one_cpu::delayed::{self, Delayed};
use crate::one_cpu::edf;
use crate::sporadic::{Sporadic, Verdict, compare_utilization};
use std::cmp::Ordering;

/// More tasks than this in a queue make exact response times under EDF too slow.
const TASKS_TIMED: usize = 64;
/// Shares of smaller parts than this are rounded: an hour in such parts fits 64 bits.
const PARTS_MOST: u64 = 100_000;
/// Lateness that nobody looks beyond, ns: an hour, as the longest deadline.
const LATE_MOST: u64 = 3_600_000_000_000;

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
    /// By how much it is late at most, ns, if that is known.
    pub(super) fn late(&self) -> Option<u64> {
        match self {
            Said::Late(late) => Some(*late),
            _ => None,
        }
    }
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

impl Queue<'_> {
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
        let apart =
            !self.policy.order.key.goes_by_deadlines() || self.policy.server == Server::None;
        if apart && !self.share().is_zero() { SHARE_QUANTUM } else { 0 }
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
    fn served(&self, all: &[Delayed], unit: u64) -> Vec<Delayed> {
        let delay = self.delay() * unit;
        let due = |task: &Sporadic| task.deadline.min(task.period).saturating_sub(delay).max(1);
        let one = |one: &Delayed| {
            let task = Sporadic { deadline: due(&one.task), ..one.task };
            Delayed { task, jitter: 0, blocking: one.blocking }
        };
        all.iter().map(one).collect()
    }

    /// That each ends no later than `end` after its release, in an order by deadlines.
    ///
    /// A program that is behind has no releases to be seen. Without a server it keeps its deadline, and goes before others
    /// that are due earlier than its next job is; if it marks its jobs the next begins only then, with a deadline that
    /// much later, and so on.
    fn each(&self, end: impl Fn(usize) -> u64) -> Answer {
        let loose = self.policy.server == Server::None;
        let behind = |i: usize| end(i) >= self.tasks[i].one.task.period;
        if let Some(i) =
            (0..self.tasks.len()).find(|i| loose && !self.tasks[*i].marks && behind(*i))
        {
            return Err(Said::Unknown(format!(
                "without a server a job of {} that ends when the next is due may keep its deadline and delay others; \
                 take a server, or say marks = true",
                self.tasks[i].name
            )));
        }
        let one = |(i, one): (usize, &&Asked)| one.ends(end(i));
        Ok(self.tasks.iter().enumerate().map(one).collect())
    }

    /// All by their deadlines, or by the ends of their periods.
    fn in_time(&self) -> Answer {
        self.each(|i| self.tasks[i].one.task.deadline.min(self.tasks[i].one.task.period))
    }

    /// Whether each has its load, over its deadline if that is earlier than the end of its period, on one CPU: then
    /// servers that lend are proven, too (docs/slack.md).
    fn dense(&self, all: &[Delayed]) -> bool {
        let served: Vec<Sporadic> = all
            .iter()
            .map(|one| Sporadic::served(one.task.wcet, one.task.period, one.task.deadline))
            .collect();
        compare_utilization(&served, 1) != Ordering::Greater && delayed::plain(all).is_some()
    }

    fn edf_on_one(&self) -> Answer {
        let (exact, unit) = self.exact();
        let served = self.served(&exact, unit);
        if self.policy.server.lends() {
            return match self.dense(&served) {
                true => self.in_time(),
                false => Err(Said::Unknown(format!(
                    "servers that lend are proven to be in time only where Σ Q/min(D, P) fits a CPU, without \
                     blocking; {}",
                    self.load().1
                ))),
            };
        }
        let late = least_late(&served, unit)
            .ok_or_else(|| Said::Unknown("EDF gives no bound within reach".into()))?;
        if late > 0 && self.policy.order.key.heeds_laxity() {
            let why = "EDF alone would be late, and no test of EDZL on one CPU says more";
            return Err(Said::Unknown(why.into()));
        }
        // Exact times of each only where they matter: jitter comes on top of them.
        let loose = self.policy.server == Server::None;
        let matter = loose || late > 0 || self.tasks.iter().any(|one| one.one.jitter > 0);
        let plain = delayed::plain(&served).filter(|all| matter && all.len() <= TASKS_TIMED);
        let times = plain.map_or(Vec::new(), |all| edf::response_times(&all));
        // A quantum of best effort's may be due before a job that is alone.
        let quantum = if self.share().is_zero() { 0 } else { SHARE_QUANTUM };
        self.each(|i| {
            let by_deadline = served[i].task.deadline.saturating_add(late).div_ceil(unit);
            let time = times.get(i).copied().flatten().map(|time| time.div_ceil(unit) + quantum);
            time.unwrap_or(by_deadline).min(by_deadline).saturating_add(self.delay())
        })
    }

    /// Levels of fixed priorities, and the tasks in their order.
    fn levels(&self) -> (Vec<usize>, Vec<u64>) {
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        let level = |i: &usize| match self.tasks[*i].priority.filter(|_| self.by_priority) {
            Some(priority) => priority.into(),
            None => self.tasks[*i].one.task.period,
        };
        order.sort_by_key(level);
        let levels = order.iter().map(level).collect();
        (order, levels)
    }

    fn fixed_on_one(&self) -> Answer {
        let (order, levels) = self.levels();
        let (all, unit) = self.exact();
        // What is added for jitter here is the interference of others; each one's own comes on top.
        let sorted: Vec<Delayed> = order.iter().map(|i| all[*i]).collect();
        let times = delayed::response_times(&sorted, &levels);
        let mut said: Vec<Option<Said>> = order.iter().map(|_| None).collect();
        for (i, time) in order.iter().zip(times) {
            let task = &self.tasks[*i].one.task;
            said[*i] = Some(match time {
                Some(time) => {
                    Said::Late(after(time.div_ceil(unit).saturating_add(self.delay()), 0, task))
                }
                None => Said::Unknown("its response time has no bound within reach".into()),
            });
        }
        Ok(said.into_iter().flatten().collect())
    }

    /// Tests of several CPUs know no affinities, several threads or blocking.
    fn holds_globally(&self) -> Result<(), Said> {
        for one in self.tasks {
            let why = match one {
                _ if one.seat.at.cpus != self.cpus => "may use some of the CPUs only",
                _ if one.threads > 1 => "has several threads",
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

    fn edf_on_several(&self) -> Answer {
        let m = self.cpus.count_ones() as usize;
        let (laxity, lends) = (self.policy.order.key.heeds_laxity(), self.policy.server.lends());
        let tight: Vec<Sporadic> =
            self.served(&self.scaled(), 1).iter().map(|one| one.task).collect();
        // Where EDF is never late no job ever waits without laxity, else it could still take all its time and be late:
        // so EDZL serves all as EDF does.
        if !lends && union::any(&tight, m) == Verdict::Schedulable {
            return self.in_time();
        }
        if lends && !laxity {
            return Err(Said::Unknown("no test of global EDF covers servers that lend".into()));
        }
        let served: Vec<Sporadic> = self
            .tasks
            .iter()
            .map(|one| {
                Sporadic::served(one.one.task.wcet, one.one.task.period, one.one.task.deadline)
            })
            .collect();
        let supplies = vec![supply(self.share()); m];
        let bounds = match laxity {
            true => tardiness::edzl(&served, &supplies, if lends { LAXITY_MARGIN } else { 0 }),
            false => tardiness::restricted(&served, &supplies),
        };
        // By theorem 1 of Erickson, Devi and Baruah, for deadlines before ends of periods.
        let own = (!laxity && self.share().is_zero()).then(|| gel::g_edf(&tight, m)).flatten();
        if bounds.is_none() && own.is_none() {
            return Err(Said::Unknown(format!(
                "tardiness has no bound by theorem here; {}",
                self.load().1
            )));
        }
        self.each(|i| {
            let by_theorem = bounds.as_ref().map(|all| served[i].deadline.saturating_add(all[i]));
            let by_time = own.as_ref().map(|all| all[i]);
            by_theorem
                .unwrap_or(u64::MAX)
                .min(by_time.unwrap_or(u64::MAX))
                .saturating_add(self.delay())
        })
    }

    fn fixed_on_several(&self) -> Answer {
        let m = self.cpus.count_ones() as usize;
        let (order, levels) = self.levels();
        let all = self.served(&self.scaled(), 1);
        let sorted: Vec<Sporadic> = order.iter().map(|i| all[*i].task).collect();
        let times = fixed::guan(&sorted, &levels, m);
        let mut ends = vec![None; order.len()];
        order.iter().zip(times).for_each(|(i, time)| ends[*i] = time);
        let one = |(one, end): (&&Asked, Option<u64>)| match end {
            Some(end) => {
                Said::Late(after(end.saturating_add(self.delay()), one.one.jitter, &one.one.task))
            }
            None => Said::Unknown(
                "the test of global fixed priorities (Guan et al.) does not accept it".into(),
            ),
        };
        Ok(self.tasks.iter().zip(ends).map(one).collect())
    }

    /// Each CPU has been tested exactly when the parts were placed.
    fn split(&self) -> Answer {
        if let Some(one) = self.tasks.iter().find(|one| one.one.blocking > 0) {
            return Err(Said::Unknown(format!(
                "{} has blocking, which no test of splitting covers",
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

/// What reservations have of a CPU: (1 − σ)(l − 3 q) in any window of length l (`edzl-tardiness.md`).
fn supply(share: Fraction) -> Supply {
    match share.is_zero() {
        true => Supply::WHOLE,
        false => Supply {
            budget: share.denom() - share.numer(),
            period: *share.denom(),
            blackout: 3 * SHARE_QUANTUM,
        },
    }
}

fn percent(share: Fraction) -> f64 {
    100.0 * *share.numer() as f64 / *share.denom() as f64
}

/// By how much jobs are late at most under EDF on one CPU: deadlines that are all later by as much change nothing of
/// the order, so it is the least by which the exact test accepts them; `None` beyond an hour of so many units a ns.
fn least_late(tasks: &[Delayed], unit: u64) -> Option<u64> {
    let fits = |late: u64| {
        let later = |one: &Delayed| {
            let task = Sporadic { deadline: one.task.deadline.saturating_add(late), ..one.task };
            Delayed { task, ..*one }
        };
        delayed::edf(&tasks.iter().map(later).collect::<Vec<_>>()) == Verdict::Schedulable
    };
    if fits(0) {
        return Some(0);
    }
    let (mut low, mut high) = (0, 1);
    while !fits(high) {
        if high > LATE_MOST * unit {
            return None;
        }
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}
