// SPDX-License-Identifier: GPL-2.0-only
//! Queues in the order of deadlines, EDF and EDZL: who is in time, and how late others are.

use num_traits::Zero;
use onbeat_model::numbers::{LAXITY_MARGIN, SHARE_QUANTUM};
use onbeat_model::policy::Server;
use onbeat_model::units::Fraction;

use super::{Answer, Asked, Queue, Said, wakes_early};
use crate::global::{bcl::bcl_on, gel, gfb::gfb, rta, tardiness, tardiness::Supply, union};
use crate::one_cpu::delayed::{self, Delayed};
use crate::one_cpu::edf;
use crate::sporadic::{Sporadic, Verdict, compare_utilization};
use std::cmp::Ordering;

/// More tasks than this in a queue make exact response times under EDF too slow.
const TASKS_TIMED: usize = 64;
/// Lateness that nobody looks beyond, ns: an hour, as the longest deadline.
const LATE_MOST: u64 = 3_600_000_000_000;

impl Queue<'_> {
    /// That each ends no later than `end` after its release, in an order by deadlines.
    ///
    /// A program that is behind has no releases to be seen. Without a server it keeps its deadline, and goes before
    /// others that are due earlier than its next job is; if it marks its jobs the next begins only then, with a
    /// deadline that much later, and so on.
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
    pub(super) fn in_time(&self) -> Answer {
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

    pub(super) fn edf_on_one(&self) -> Answer {
        let (exact, unit) = self.exact();
        let served = self.served(&exact, unit);
        if self.policy.server.lends() {
            if self.share().is_zero() && self.set.best_effort.is_some() {
                return Err(Said::Unknown(
                    "without a share best effort's turns are at the expense of all, which no test of servers that lend \
                     counts"
                        .into(),
                ));
            }
            return match self.dense(&served) {
                true => self.in_time(),
                false => Err(Said::Unknown(format!(
                    "servers that lend are proven to be in time only where Σ Q/min(D, P) fits a CPU, without \
                     blocking; {}",
                    self.load().1
                ))),
            };
        }
        // Who wakes before its deadline asks for as much as a server of Q/min(D, P) may, which in short intervals is
        // more than a sporadic task does (Abeni and Buttazzo 1998); all have their budgets by their servers' deadlines.
        let early = self.tasks.iter().any(|one| wakes_early(&one.one));
        if early && self.policy.server != Server::None {
            return match self.dense(&served) {
                true => self.in_time(),
                false => Err(Said::Unknown(format!(
                    "with jitter beyond P − D servers are proven to be in time only where Σ Q/min(D, P) fits a CPU, \
                     without blocking; {}",
                    self.load().1
                ))),
            };
        }
        let late = least_late(&served, unit)
            .ok_or_else(|| Said::Unknown("EDF gives no bound within reach".into()))?;
        // Its quanta are a task in deadline order among those that are in time; and who is late for long begins anew.
        if late > 0 && !self.share().is_zero() {
            return Err(Said::Unknown(
                "EDF would be late, and no test says by how much beside best effort's share".into(),
            ));
        }
        if late > 0 && self.policy.order.key.heeds_laxity() {
            let why = "EDF alone would be late, and no test of EDZL on one CPU says more";
            return Err(Said::Unknown(why.into()));
        }
        // Exact times of each only where they matter: jitter comes on top of them.
        let loose = self.policy.server == Server::None;
        let matter = loose || late > 0 || self.jitter();
        // Best effort's share is one more task, of a quantum (docs/decisions.md): others come as ever while it runs.
        let raw: Vec<Delayed> = self.tasks.iter().map(|one| one.one).collect();
        let mut whole = self.served(&raw, 1);
        if !self.share().is_zero() {
            let period = SHARE_QUANTUM * self.share().denom() / self.share().numer();
            let task = Sporadic { wcet: SHARE_QUANTUM, deadline: period, period };
            whole.push(Delayed { task, jitter: 0, blocking: 0 });
        }
        let plain = delayed::plain(&whole).filter(|all| matter && all.len() <= TASKS_TIMED);
        let times = plain.map_or(Vec::new(), |all| edf::response_times(&all));
        self.each(|i| {
            let by_deadline = served[i].task.deadline.saturating_add(late).div_ceil(unit);
            let time = times.get(i).copied().flatten();
            time.unwrap_or(by_deadline).min(by_deadline).saturating_add(self.delay())
        })
    }

    pub(super) fn edf_on_several(&self) -> Answer {
        let m = self.cpus.count_ones() as usize;
        let (laxity, lends) = (self.policy.order.key.heeds_laxity(), self.policy.server.lends());
        let tight: Vec<Sporadic> =
            self.served(&self.scaled(), 1).iter().map(|one| one.task).collect();
        // Where EDF is never late no job ever waits without laxity, else it could still take all its time and be late:
        // so EDZL serves all as EDF does. No test counts best effort's quanta, which are bound to CPUs and go first
        // when they are due: a job can pay for those of all CPUs, one after the other.
        let whole = self.share().is_zero();
        let test = if self.jitter() { gfb } else { union::any };
        if !lends && whole && test(&tight, m) == Verdict::Schedulable {
            return self.in_time();
        }
        let served: Vec<Sporadic> = self
            .tasks
            .iter()
            .map(|one| {
                Sporadic::served(one.one.task.wcet, one.one.task.period, one.one.task.deadline)
            })
            .collect();
        let each = supply(self.share());
        let bounds = match laxity {
            _ if lends && !laxity => None,
            true => tardiness::edzl(&served, &vec![each; m], if lends { LAXITY_MARGIN } else { 0 }),
            false => tardiness::restricted(&served, &vec![each; m]),
        };
        // By theorem 1 of Erickson, Devi and Baruah, for deadlines before ends of periods.
        let own =
            (!laxity && !lends && whole && !self.jitter()).then(|| gel::g_edf(&tight, m)).flatten();
        let times = self.times_on_several();
        let why = || {
            match lends && !laxity {
            true if self.tasks.len() <= m => {
                "best effort's quanta leave no room by its deadline, and no other test of global EDF covers servers \
                 that lend"
                    .into()
            }
            true => "no test of global EDF covers servers that lend".into(),
            false => format!("tardiness has no bound by theorem here; {}", self.load().1),
        }
        };
        if bounds.is_none() && own.is_none() && times.iter().all(Option::is_none) {
            return Err(Said::Unknown(why()));
        }
        let end = |i: usize| {
            let by_theorem = bounds.as_ref().map(|all| served[i].deadline.saturating_add(all[i]));
            let by_time = own.as_ref().map(|all| all[i]);
            let late = [by_theorem, by_time].into_iter().flatten().min();
            let late = late.map(|end| end.saturating_add(self.delay()));
            [late, times[i]].into_iter().flatten().min()
        };
        let said = self.each(|i| end(i).unwrap_or(u64::MAX))?;
        let unknown = || Said::Unknown(why());
        Ok(said
            .into_iter()
            .enumerate()
            .map(|(i, one)| end(i).map_or_else(unknown, |_| one))
            .collect())
    }

    /// Response times within deadlines, best effort's quanta counted.
    fn times_on_several(&self) -> Vec<Option<u64>> {
        let (m, each) = (self.cpus.count_ones() as usize, supply(self.share()));
        let tasks = self.capped();
        // Others' budgets must begin a period apart, and be served by their own deadlines alone. Those of soft servers
        // begin early, but are due a period apart; under EDZL who overruns may go first for want of laxity.
        let laxity = self.policy.order.key.heeds_laxity();
        let all = match self.policy.server {
            _ if self.jitter() => None,
            Server::None | Server::CbsHard if !laxity => rta::edf_on(&tasks, m, each),
            Server::CbsHard => rta::any_order_on(&tasks, m, each),
            Server::Cbs if !laxity && bcl_on(&tasks, m, each) == Verdict::Schedulable => {
                Some(tasks.iter().map(|task| task.deadline).collect())
            }
            _ => None,
        };
        let one = |(i, task): (usize, &Sporadic)| {
            let alone = rta::beside(task, tasks.len() - 1, m, each);
            let together = all.as_ref().map(|all| all[i]);
            [alone, together].into_iter().flatten().min()
        };
        tasks.iter().enumerate().map(one).collect()
    }
}

/// What reservations have of a CPU: (1 − σ)(l − 3 q) in any window of length l (`edzl-tardiness.md`).
pub(super) fn supply(share: Fraction) -> Supply {
    match share.is_zero() {
        true => Supply::WHOLE,
        false => Supply {
            budget: share.denom() - share.numer(),
            period: *share.denom(),
            blackout: 3 * SHARE_QUANTUM,
        },
    }
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
