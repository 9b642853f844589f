// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run --auto`: finds out how often a program works and how much CPU time it needs, reserves that, and keeps it
//! up to date. The rules are those of `onbeat_model::auto`; here are the service, the clock and the words.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use onbeat_client::{Error, Grant, Params, Service};
use onbeat_kernel::limits::BUDGET_MIN;
use onbeat_model::auto::watch::{Look, Pulse, Watcher};
use onbeat_model::auto::{Controller, Seen};
use onbeat_model::beat::Rhythm;
use onbeat_model::units::format_duration;

use super::needs::Needs;
use super::subject::Kin;
use super::watch::Watch;
use crate::guest::Signals;

/// How often it looks at the jobs of a program that has a reservation.
pub const LOOK: Duration = Duration::from_millis(100);
/// How often it looks for the rhythm of one that has none yet, ...
const LISTEN: Duration = Duration::from_millis(500);
/// ... for another rhythm, or for one after a long time in vain.
const LISTEN_ON: Duration = Duration::from_secs(1);
/// After so long in vain it says so.
const IN_VAIN: Duration = Duration::from_secs(3);
/// What did not fit is not asked for again within that.
const FULL: Duration = Duration::from_secs(2);
/// A change is told if it is by this part of what was told before, and not more often than that.
const TOLD: f64 = 0.25;
const TELL: Duration = Duration::from_secs(5);
/// The greatest budget, as a part of the deadline.
const MOST: f64 = 0.95;
/// Where only the period is known, the first budget, as a part of it.
const FIRST: f64 = 0.5;
/// Budgets and periods are multiples of this, ns, for people to read.
const GRAIN: u64 = 10_000;

/// What a program that is measured has.
enum State {
    /// Nothing yet.
    Listening(Service),
    /// A reservation, at least until it was lost.
    Holding(Box<Watch>, Box<Controller>),
    /// Nothing, and nobody tries any more.
    Over,
}

/// A program that is measured.
pub struct Auto {
    /// What is asked for, but for budget and period.
    params: Params,
    /// The period, if the user has said it.
    period: Option<u64>,
    deadline: Option<u64>,
    state: State,
    watcher: Watcher,
    kin: Kin,
    /// Its jobs.
    pub needs: Needs,
    begun: Instant,
    listened: Instant,
    looked: Instant,
    /// Jobs noted, and times its budget was used up, by the last look.
    noted: u32,
    exhausted: u64,
    full: Option<Instant>,
    told: Option<(Instant, u64)>,
    vain: bool,
    /// Why nobody tries to reserve any more.
    failed: Option<String>,
    /// Its budget cannot be changed.
    fixed: bool,
    on_change: Option<OsString>,
}

impl Auto {
    /// Of a program for which nothing is reserved yet; `period` and `deadline` are the user's, if said.
    pub fn new(
        service: Service,
        params: Params,
        period: Option<u64>,
        deadline: Option<u64>,
        on_change: Option<OsString>,
    ) -> Self {
        let now = Instant::now();
        Self {
            params: params.with_descendants(),
            period,
            deadline,
            state: State::Listening(service),
            watcher: Watcher::default(),
            kin: Kin::default(),
            needs: Needs::default(),
            begun: now,
            listened: now,
            looked: now,
            noted: 0,
            exhausted: 0,
            full: None,
            told: None,
            vain: false,
            failed: None,
            fixed: false,
            on_change,
        }
    }

    /// Reserves before the program begins, where the period is known.
    ///
    /// # Errors
    /// The service cannot reserve anything of this period.
    pub fn begin(&mut self, pid: u32, name: &str) -> Result<(), Error> {
        self.kin.look(pid);
        let Some(period) = self.period else { return Ok(()) };
        let budget = (period as f64 * FIRST) as u64;
        self.reserve(pid, name, Pulse { period, budget })
    }

    /// The reservation that it has or had.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        match &mut self.state {
            State::Holding(watch, _) => Some(watch),
            _ => None,
        }
    }

    /// The service, if there is one.
    pub fn service(self) -> Option<Service> {
        match self.state {
            State::Listening(service) => Some(service),
            State::Holding(watch, _) => watch.service,
            State::Over => None,
        }
    }

    /// Why nothing is reserved.
    pub fn why_nothing(&self) -> String {
        match &self.failed {
            Some(why) => why.clone(),
            None if !self.vain => "there was too little time to find its rhythm".into(),
            None => format!("it has no rhythm: {}", self.watcher.reason()),
        }
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, pid: u32, name: &str, signals: &Signals) {
        match &mut self.state {
            State::Over => (),
            State::Listening(_) => {
                let wait = if self.vain { LISTEN_ON } else { LISTEN };
                if self.listened.elapsed() >= wait {
                    self.listen(pid, name);
                }
            }
            State::Holding(watch, controller) => {
                let params = &self.params.clone().resized(controller.budget(), watch.agreed.1);
                let agreed = watch.agreed.0;
                watch.look(pid, name, params, signals);
                if !watch.held {
                    return;
                }
                // Somebody else has changed it, and may.
                if watch.agreed.0 != agreed {
                    controller.has(watch.agreed.0);
                }
                if self.looked.elapsed() >= LOOK {
                    self.keep_up(pid, name);
                }
                if self.period.is_none() && self.listened.elapsed() >= LISTEN_ON {
                    self.follow(pid, name);
                }
            }
        }
    }

    /// What beats in the program now, and the look of the watcher.
    fn rhythms(&mut self, pid: u32) -> Result<Option<Pulse>, Error> {
        let service = match &mut self.state {
            State::Listening(service) => Some(service),
            State::Holding(watch, _) => watch.service.as_mut(),
            State::Over => None,
        };
        let Some(service) = service else { return Ok(None) };
        let elapsed = self.listened.elapsed().as_nanos() as u64;
        self.listened = Instant::now();
        let (kin, used) = self.kin.look(pid);
        let (threads, _) = service.beats()?;
        let own = threads.iter().filter(|beat| kin.contains(&beat.pid));
        let rhythms: Vec<Rhythm> = own.map(|beat| beat.rhythm).collect();
        Ok(self.watcher.look(&Look { threads: &rhythms, used, elapsed }))
    }

    /// Looks for the rhythm of a program that has none yet.
    fn listen(&mut self, pid: u32, name: &str) {
        match self.rhythms(pid) {
            Ok(Some(pulse)) => {
                if let Err(error) = self.reserve(pid, name, pulse) {
                    self.give_up(name, &error);
                }
            }
            Ok(None) if !self.vain && self.begun.elapsed() >= IN_VAIN => {
                self.vain = true;
                complain!(
                    "onbeat: {name} has no rhythm: {}; it goes on without a reservation until it has one (--period and \
                     --budget reserve all the same)",
                    self.watcher.reason()
                );
            }
            // It is busy.
            Ok(None) | Err(Error::Mute | Error::Starting(_)) => (),
            Err(error) => {
                self.give_up(name, &error);
            }
        }
    }

    fn give_up(&mut self, name: &str, error: &Error) {
        complain!("onbeat: {name} goes on without a reservation: {error}");
        self.failed = Some(error.to_string());
        self.state = State::Over;
    }

    /// Reserves, as much of it as there is room for.
    fn reserve(&mut self, pid: u32, name: &str, pulse: Pulse) -> Result<(), Error> {
        let State::Listening(mut service) = std::mem::replace(&mut self.state, State::Over) else {
            return Ok(());
        };
        let period = pulse.period.next_multiple_of(GRAIN);
        let period = if self.period.is_some() { pulse.period } else { period };
        let most = self.most(period);
        let mut budget = rounded(pulse.budget, most);
        let mut ask =
            |budget: u64| service.reserve(pid, name, &self.params.clone().resized(budget, period));
        let grant: Grant = match ask(budget) {
            Err(Error::Refused(refusal)) => match refusal.nearest.budget_ns {
                Some(nearest) if nearest >= BUDGET_MIN => {
                    budget = nearest;
                    self.full = Some(Instant::now());
                    ask(budget)?
                }
                _ => return Err(Error::Refused(refusal)),
            },
            other => other?,
        };
        complain!(
            "onbeat: {name} has {} every {}{}",
            format_duration(budget),
            format_duration(period),
            if self.period.is_some() {
                ", to begin with"
            } else {
                ", as its rhythm and CPU time suggest"
            }
        );
        self.told = Some((Instant::now(), budget));
        self.noted = 0;
        self.exhausted = 0;
        let watch = Watch::new(service, grant, (budget, period), self.on_change.take());
        let controller = Controller::new(period, budget, BUDGET_MIN, most);
        self.state = State::Holding(Box::new(watch), Box::new(controller));
        Ok(())
    }

    fn most(&self, period: u64) -> u64 {
        (self.deadline.unwrap_or(period).min(period) as f64 * MOST) as u64
    }

    /// Looks at the jobs since the last look, and asks for another budget if that is called for.
    fn keep_up(&mut self, pid: u32, name: &str) {
        self.looked = Instant::now();
        let State::Holding(watch, controller) = &mut self.state else { return };
        let Some(service) = &mut watch.service else { return };
        // What goes wrong here the watch will find out about, too, and tell.
        let Ok(work) = service.work(watch.grant.id) else { return };
        if work.record.pid != pid {
            return;
        }
        if work.noted < self.noted {
            // The service was started anew.
            (self.noted, self.exhausted) = (0, 0);
        }
        let new = (work.noted - self.noted).min(work.recent.len() as u32) as usize;
        let jobs = &work.recent[work.recent.len() - new..];
        self.needs.note(jobs);
        let exhausted = work.record.exhaustions.saturating_sub(self.exhausted);
        (self.noted, self.exhausted) = (work.noted, work.record.exhaustions);
        let at = self.begun.elapsed().as_nanos() as u64;
        let before = controller.budget();
        let Some(wanted) = controller.look(&Seen { at, jobs, exhausted }) else { return };
        if self.fixed {
            return controller.has(before);
        }
        if wanted > before && self.full.is_some_and(|at| at.elapsed() < FULL) {
            return controller.has(before);
        }
        let most =
            (self.deadline.unwrap_or(watch.agreed.1).min(watch.agreed.1) as f64 * MOST) as u64;
        let has = match resize(watch, rounded(wanted, most), watch.agreed.1) {
            Ok(has) => has,
            Err(error) => {
                controller.has(before);
                return self.stay(name, &error);
            }
        };
        if has.refused {
            self.full = Some(Instant::now());
        }
        controller.has(has.budget);
        self.tell(name, has);
    }

    /// Looks whether the program has another rhythm now.
    fn follow(&mut self, pid: u32, name: &str) {
        // As above.
        let Ok(Some(pulse)) = self.rhythms(pid) else { return };
        let period = pulse.period.next_multiple_of(GRAIN);
        let most = self.most(period);
        let State::Holding(watch, controller) = &mut self.state else { return };
        let has = match resize(watch, rounded(pulse.budget, most), period) {
            Ok(has) => has,
            Err(error) => return self.stay(name, &error),
        };
        if has.period != period {
            // The old rhythm is the one that is reserved for: the new one is found again.
            self.watcher = Watcher::new(Some(Pulse { period: has.period, budget: has.budget }));
        } else {
            controller.restart(period, has.budget, most);
            self.told = None;
        }
        self.tell(name, has);
    }

    /// The budget cannot be changed; why, is said if it never can be: of a service that ends the watch tells.
    fn stay(&mut self, name: &str, error: &Error) {
        if matches!(error, Error::Failed { .. }) && !self.fixed {
            self.fixed = true;
            complain!("onbeat: {name} keeps what it has: {error}");
        }
    }

    /// Says what the program has now, if that is much of a change.
    fn tell(&mut self, name: &str, has: Has) {
        let much = self.told.is_none_or(|(at, budget)| {
            let by = has.budget.abs_diff(budget) as f64 / budget as f64;
            by > TOLD && at.elapsed() >= TELL
        });
        if !much {
            return;
        }
        self.told = Some((Instant::now(), has.budget));
        complain!(
            "onbeat: {name} now has {} every {}{}",
            format_duration(has.budget),
            format_duration(has.period),
            if has.refused { ": there is no room for more" } else { "" }
        );
    }
}

/// What a reservation has after another budget was asked for, ns.
#[derive(Debug, Clone, Copy)]
struct Has {
    budget: u64,
    period: u64,
    /// It is less than asked for.
    refused: bool,
}

/// Asks for another budget and period, or as much of it as there is room for.
fn resize(watch: &mut Watch, budget: u64, period: u64) -> Result<Has, Error> {
    let (id, old) = (watch.grant.id, watch.agreed);
    let unchanged = Has { budget: old.0, period: old.1, refused: true };
    let Some(service) = &mut watch.service else { return Ok(unchanged) };
    let (budget, refused) = match service.resize(id, budget, period) {
        Err(Error::Refused(refusal)) => {
            let better = |nearest: &u64| *nearest > old.0 || period != old.1;
            let nearest = refusal.nearest.budget_ns.filter(|n| *n >= BUDGET_MIN).filter(better);
            let Some(nearest) = nearest else { return Ok(unchanged) };
            match service.resize(id, nearest, period) {
                Err(Error::Refused(_)) => return Ok(unchanged),
                other => (nearest, other.map(|_| true)?),
            }
        }
        other => (budget, other.map(|_| false)?),
    };
    watch.agreed = (budget, period);
    Ok(Has { budget, period, refused })
}

/// A budget that people like to read, at most `most`.
fn rounded(budget: u64, most: u64) -> u64 {
    budget.next_multiple_of(GRAIN).min(most / GRAIN * GRAIN).max(BUDGET_MIN)
}
