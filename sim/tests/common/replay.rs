// SPDX-License-Identifier: GPL-2.0-only
//! Reads an event log as an outsider: who runs where, who waits, and a second account of every
//! budget, kept from the rules of the papers and the log alone.

use std::collections::BTreeMap;

use onbeat_model::event::{Event, EventKind, NONE};
use onbeat_model::policy::{CorePolicy, Key, Server};

use super::{Case, Played, domain_of, domains, late_kept};

/// What is known of a task and its server at some moment.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Jobs released and not complete.
    pub pending: u64,
    /// The CPU it runs on.
    pub on: Option<u32>,
    /// It waits for its replenishment.
    pub throttled: bool,
    /// Budget left, by our own account.
    pub e: i64,
    /// Server deadline.
    pub s: u64,
    /// FCBS: the own pair while another is in use.
    pub saved: Option<(i64, u64)>,
    /// CPU time it has had.
    pub served: u64,
    /// Budget that was made for it.
    pub issued: u64,
    /// Budget that nobody will ever use.
    pub dropped: i64,
    /// Service since the last replenishment of its own.
    pub since_replenished: u64,
    active: bool,
    exhausted: bool,
    /// FCBS: deadline of the budget it may give away.
    gives: u64,
}

/// The system at some moment.
#[derive(Debug)]
pub struct View<'a> {
    pub case: &'a Case,
    pub policy: &'a CorePolicy,
    pub now: u64,
    /// Tasks, then best-effort ones.
    pub tasks: Vec<State>,
    /// Who runs on each CPU.
    pub cpus: Vec<Option<usize>>,
    /// Whether each CPU serves the best-effort share.
    pub share: Vec<bool>,
    /// Whether a budget that differs from our account is a failure.
    strict: bool,
    /// FCBS: the bonus of each domain, and since when it melts.
    bonus: BTreeMap<u32, (i64, u64)>,
    /// Who completed last, and what may be given away of it.
    last_idle: usize,
    gift: i64,
}

/// How many events a failure shows.
const LAST: usize = 40;

type Claim = Result<(), String>;

macro_rules! claim {
    ($view:expr, $true:expr, $($what:tt)*) => {
        if !$true {
            let (policy, now) = ($view.policy.name, $view.now);
            return Err(format!("{policy} at {now}: {}", format!($($what)*)));
        }
    };
}

/// Goes through the log of `played`, checks that it is well formed and that the budgets' account is
/// right, and asks `look` after all events of every moment but the last.
pub fn audit(
    case: &Case,
    policy: &CorePolicy,
    played: &Played,
    look: impl FnMut(&View) -> Claim,
) -> Claim {
    go_through(case, policy, played, true, look)
}

/// As [`audit`], without the account: budgets and server deadlines are not known then.
pub fn replay(
    case: &Case,
    policy: &CorePolicy,
    played: &Played,
    look: impl FnMut(&View) -> Claim,
) -> Claim {
    go_through(case, policy, played, false, look)
}

fn go_through(
    case: &Case,
    policy: &CorePolicy,
    played: &Played,
    strict: bool,
    mut look: impl FnMut(&View) -> Claim,
) -> Claim {
    let all = case.tasks.len() + case.best_effort;
    let mut tasks = vec![State::default(); all];
    tasks[case.tasks.len()..].iter_mut().for_each(|hog| hog.pending = 1);
    let mut view = View {
        case,
        policy,
        now: 0,
        tasks,
        cpus: vec![None; case.cpus as usize],
        share: vec![false; case.cpus as usize],
        strict,
        bonus: BTreeMap::new(),
        last_idle: usize::MAX,
        gift: 0,
    };
    for moment in played.events.chunk_by(|a, b| a.time == b.time) {
        claim!(view, moment[0].time >= view.now, "time goes back to {}", moment[0].time);
        if moment[0].time >= played.horizon {
            break;
        }
        view.advance(moment[0].time);
        let taken = moment.iter().try_for_each(|event| view.take(event));
        taken.and_then(|()| view.budgets()).and_then(|()| look(&view)).map_err(|why| {
            let end = played.events.partition_point(|e| e.time <= view.now);
            let last = &played.events[end.saturating_sub(LAST)..end];
            let lines: Vec<String> = last.iter().map(|e| format!("  {}", line(e))).collect();
            format!("{why}\n{}", lines.join("\n"))
        })?;
    }
    Ok(())
}

fn line(e: &Event) -> String {
    let number = |n: u32| if n == NONE { "-".into() } else { n.to_string() };
    let (cpu, task, server) = (number(e.cpu), number(e.task), number(e.server));
    let kind = e.kind().map_or_else(String::new, |kind| format!("{kind:?}"));
    format!("{} {kind} cpu {cpu} task {task} server {server} {} {}", e.time, e.a as i64, e.b)
}

impl View<'_> {
    /// Whether task `i` is ready but does not run.
    pub fn waits(&self, i: usize) -> bool {
        let t = &self.tasks[i];
        t.pending > 0 && t.on.is_none() && !t.throttled
    }

    /// Whether task `i` has a reservation.
    pub fn reserved(&self, i: usize) -> bool {
        self.case.tasks.get(i).is_some_and(|t| t.budget.is_some())
    }

    /// CPUs that task `i` may run on.
    pub fn cpus_of(&self, i: usize) -> u64 {
        let all = u64::MAX >> (64 - self.case.cpus);
        let Some(task) = self.case.tasks.get(i) else { return all };
        if task.budget.is_none() {
            return task.cpus & all;
        }
        let order = self.policy.order;
        let domain = domain_of(order, self.case.cpus, task.home);
        let size = self.case.cpus / domains(order, self.case.cpus);
        let domain = (u64::MAX >> (64 - size)) << (domain * size);
        task.cpus & domain
    }

    /// By what a reserved task's order is decided, least first; EDZL's zero laxity is not in it.
    pub fn key(&self, i: usize) -> u64 {
        match self.policy.order.key {
            Key::Rm => self.case.tasks[i].period,
            _ => self.tasks[i].s,
        }
    }

    /// Whether budgets are enforced.
    pub fn enforces(&self) -> bool {
        self.policy.server != Server::None
    }

    /// The bonus of `domain` that is left.
    pub fn bonus(&self, domain: u32) -> i64 {
        self.bonus.get(&domain).map_or(0, |(b, since)| (b - (self.now - since) as i64).max(0))
    }

    fn advance(&mut self, now: u64) {
        let ran = now - self.now;
        self.now = now;
        for t in self.tasks.iter_mut().filter(|t| t.on.is_some()) {
            t.served += ran;
            t.since_replenished += ran;
            t.e -= ran as i64;
        }
    }

    fn domain(&self, i: usize) -> u32 {
        domain_of(self.policy.order, self.case.cpus, self.case.tasks[i].home)
    }

    fn take(&mut self, event: &Event) -> Claim {
        let kind = event.kind().ok_or_else(|| format!("unknown event {event:?}"))?;
        let i = if event.task == NONE { event.server } else { event.task } as usize;
        let cpu = event.cpu as usize;
        match kind {
            EventKind::Release => self.tasks[i].pending += 1,
            EventKind::Complete => {
                claim!(self, self.tasks[i].pending > 0, "{i} completes what was not released");
                self.tasks[i].pending -= 1;
            }
            EventKind::Run => {
                claim!(self, self.cpus[cpu].is_none(), "{i} runs where another one does");
                claim!(self, self.tasks[i].on.is_none(), "{i} runs twice");
                claim!(self, self.cpus_of(i) >> cpu & 1 == 1, "{i} may not run on {cpu}");
                claim!(self, !self.tasks[i].throttled, "{i} runs throttled");
                self.cpus[cpu] = Some(i);
                self.tasks[i].on = Some(event.cpu);
            }
            EventKind::Stop => {
                claim!(self, self.cpus[cpu] == Some(i), "{i} stops where it does not run");
                self.cpus[cpu] = None;
                self.tasks[i].on = None;
            }
            EventKind::Share => self.share[cpu] = event.a == 1,
            EventKind::Throttle => self.tasks[i].throttled = true,
            EventKind::Replenish | EventKind::Idle => self.tasks[i].throttled = false,
            EventKind::Lost => return Err("events were lost".into()),
            _ => (),
        }
        if self.strict { self.account(i, kind, event) } else { Ok(()) }
    }

    /// What an event says of a budget, against our own account.
    fn account(&mut self, i: usize, kind: EventKind, event: &Event) -> Claim {
        match kind {
            EventKind::Run if self.reserved(i) => {
                let (e, s, left) = (self.tasks[i].e, self.tasks[i].s, event.b as i64);
                claim!(self, event.a == s, "{i} has deadline {} instead of {s}", event.a);
                claim!(self, left == e || !self.enforces(), "{i} has {left} instead of {e}");
            }
            EventKind::Activate => {
                let t = &mut self.tasks[i];
                (t.active, t.exhausted) = (true, false);
            }
            EventKind::Idle => self.idle(i, event)?,
            EventKind::Exhaust => {
                claim!(self, self.tasks[i].e <= 0, "{i} exhausted with {}", self.tasks[i].e);
                self.tasks[i].exhausted = true;
            }
            EventKind::Replenish => self.replenish(i, event)?,
            EventKind::Throttle => {
                let t = &self.tasks[i];
                let task = &self.case.tasks[i];
                claim!(self, t.e <= 0, "{i} throttled with {}", t.e);
                let until = t.s - task.deadline + task.period;
                claim!(self, event.b == until, "{i} waits until {}, not {until}", event.b);
            }
            EventKind::Donate => self.donate(i, event)?,
            EventKind::Bonus => self.bonus_event(event)?,
            EventKind::Restore => {
                let saved = self.tasks[i].saved.take();
                claim!(self, saved.is_some(), "{i} restores what was not saved");
                let (e, s) = saved.unwrap_or_default();
                self.tasks[i].e += e;
                self.tasks[i].s = s;
            }
            _ => (),
        }
        Ok(())
    }

    /// A new budget: at a release by the rule of the CBS, after exhaustion one deadline later.
    fn replenish(&mut self, i: usize, event: &Event) -> Claim {
        let task = &self.case.tasks[i];
        let (q, p, d) = (task.budget.unwrap_or(0), task.period, task.deadline);
        let (new, s) = (event.a as i64, event.b);
        let now = self.now;
        let enforces = self.enforces();
        let anew = matches!(self.policy.server, Server::Cbs | Server::CbsHard);
        let too_late = late_kept(self.policy, self.case.cpus);
        let t = &self.tasks[i];
        if (!t.active || task.marks) && !t.exhausted && s == now + d && new == q as i64 {
            let left = t.s.saturating_sub(now);
            let fair = t.e >= 0 && t.e as u128 * u128::from(d) >= u128::from(left) * u128::from(q);
            claim!(
                self,
                left == 0 || fair || !enforces,
                "{i} gets a new budget at its release with {} until {}",
                t.e,
                t.s
            );
            let t = &mut self.tasks[i];
            t.dropped += t.e;
            t.e = new;
        } else if self.policy.server == Server::CbsHard
            && self.policy.order.key.chooses()
            && (t.s <= now, s, new) == (true, now + d, q as i64)
        {
            // Who chooses drops what is late: nothing is made up for.
            let t = &mut self.tasks[i];
            t.dropped += t.e;
            t.e = new;
        } else if anew && t.exhausted && t.s + p + too_late <= now {
            // Who is that late begins anew.
            claim!(self, (s, new) == (now + d, q as i64), "{i}: {new} until {s} after {}", t.s);
            let t = &mut self.tasks[i];
            t.dropped += t.e;
            t.e = new;
        } else {
            claim!(self, t.e <= 0, "{i} replenished with {} left", t.e);
            claim!(self, s == t.s + p, "{i}: deadline {s} after {}", t.s);
            claim!(self, new == t.e + q as i64, "{i}: budget {new} after {}", t.e);
            claim!(
                self,
                self.policy.server != Server::CbsHard || now + d >= t.s + p,
                "{i} replenished too early"
            );
            self.tasks[i].e = new;
        }
        let t = &mut self.tasks[i];
        t.issued += q;
        t.since_replenished = 0;
        t.s = s;
        Ok(())
    }

    fn idle(&mut self, i: usize, event: &Event) -> Claim {
        let t = &self.tasks[i];
        let same = event.a as i64 == t.e && event.b == t.s;
        claim!(self, same || !self.enforces(), "{i} idle with {event:?}, not {t:?}");
        self.last_idle = i;
        let fcbs = matches!(self.policy.server, Server::Fcbs | Server::FcbsLag);
        let now = self.now;
        let t = &mut self.tasks[i];
        (t.active, t.exhausted) = (false, false);
        if fcbs {
            t.gives = t.s;
            let left = t.e.max(0);
            t.e -= left;
            // Whoever gets it adds it to his own account.
            t.dropped += left;
            if let Some((e, s)) = t.saved.take() {
                t.e += e;
                t.s = s;
            }
            self.gift = if t.gives > now { left } else { 0 };
        }
        Ok(())
    }

    fn donate(&mut self, from: usize, event: &Event) -> Claim {
        let to = event.b as usize;
        let amount = event.a as i64;
        let deadline = self.tasks[from].gives;
        claim!(self, from == self.last_idle, "{from} gives without having completed");
        claim!(self, self.gift == amount, "{from} gives {amount} of {}", self.gift);
        claim!(self, self.domain(from) == self.domain(to), "{from} gives to another domain");
        let period = self.case.tasks[to].period;
        let now = self.now;
        self.gift = 0;
        self.tasks[from].dropped -= amount;
        let t = &mut self.tasks[to];
        if t.s > now + period && t.saved.is_none() {
            t.saved = Some((t.e, t.s));
            (t.e, t.s) = (amount, deadline);
        } else {
            t.e += amount;
        }
        Ok(())
    }

    fn bonus_event(&mut self, event: &Event) -> Claim {
        let amount = event.a as i64;
        if event.server == NONE {
            let from = self.last_idle;
            let domain = self.domain(from);
            claim!(self, self.gift == amount, "{from} leaves {amount} of {}", self.gift);
            self.gift = 0;
            self.bonus.insert(domain, (amount, self.now));
            return Ok(());
        }
        let to = event.server as usize;
        let there = self.bonus(self.domain(to));
        claim!(self, amount <= there, "{to} gets a bonus of {amount}, there is {there}");
        self.bonus.remove(&self.domain(to));
        self.tasks[to].e += amount;
        // Counted as lost when it was kept; found again.
        let from = self.last_idle;
        self.tasks[from].dropped -= amount;
        Ok(())
    }

    /// Nobody has had more than was made for all, and no budget is below zero for any time.
    fn budgets(&self) -> Claim {
        if !self.strict || !self.enforces() {
            return Ok(());
        }
        let mut balance = 0i64;
        for (i, t) in self.tasks.iter().enumerate().filter(|(i, _)| self.reserved(*i)) {
            claim!(self, t.on.is_none() || t.e > 0, "{i} runs on a budget of {}", t.e);
            let saved = t.saved.map_or(0, |(e, _)| e);
            balance += t.issued as i64 - t.served as i64 - t.e - saved - t.dropped;
        }
        claim!(self, balance == 0, "the budgets' balance is {balance}");
        Ok(())
    }
}
