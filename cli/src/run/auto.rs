// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run --auto`: finds out how often a program works and how much CPU time it needs, reserves that, and keeps it
//! up to date. The rules are those of `onbeat_model::auto`; here are the service, the clock and the words. Neither a
//! refusal nor an end of the service is the end of that: it is asked again.

mod trial;

use std::ffi::OsString;
use std::mem::discriminant;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use onbeat_client::{Error, Params, Service};
use onbeat_kernel::limits::BUDGET_MIN;
use onbeat_model::auto::watch::{Look, Pulse, Reason, Watcher};
use onbeat_model::auto::{Controller, Seen};
use onbeat_model::beat::Rhythm;
use onbeat_model::units::format_duration;

use super::fit::{self, GRAIN, Has, rounded};
use super::needs::Needs;
use super::subject::Kin;
use super::watch::Watch;
use crate::guest::Signals;
use crate::launch;
use trial::Trials;

/// How often it looks at the jobs of a program that has a reservation.
pub const LOOK: Duration = Duration::from_nanos(onbeat_model::auto::LOOK);
/// How often it looks for the rhythm of one that has none yet, ...
const LISTEN: Duration = Duration::from_millis(500);
/// ... for another rhythm, or for one after a long time in vain or a refusal.
const LISTEN_ON: Duration = Duration::from_secs(1);
/// After so long in vain it says so, ...
const IN_VAIN: Duration = Duration::from_secs(3);
/// ... and after so long it gives a program that waits for CPUs a trial.
const IN_VAIN_WAITING: Duration = Duration::from_secs(2);
/// What did not fit is not asked for again within that, ...
const FULL: Duration = Duration::from_secs(2);
/// ... and what could not be changed at all not within that.
const FIXED: Duration = Duration::from_secs(10);
/// A change is told if it is by this part of what was told before, and not more often than that.
const TOLD: f64 = 0.25;
const TELL: Duration = Duration::from_secs(5);
/// Period of the least budget, reserved for a moment to see whether that can be, ns.
const PROBED: u64 = 100_000_000;
/// The greatest budget, as a part of the deadline.
const MOST: f64 = 0.95;
/// Where only the period is known, the first budget, as a part of it.
const FIRST: f64 = 0.5;

/// What a program that is measured has.
enum State {
    /// Nothing yet; the service, while there is one.
    Listening(Option<Service>),
    /// A reservation, at least until it was lost.
    Holding(Box<Watch>, Box<Controller>),
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
    socket: PathBuf,
    begun: Instant,
    listened: Instant,
    looked: Instant,
    /// Jobs noted, and times its budget was used up, by the last look.
    noted: u32,
    exhausted: u64,
    full: Option<Instant>,
    told: Option<(Instant, u64)>,
    /// Why it has none, once that was said.
    vain: Option<Reason>,
    /// Reservations to show its rhythm with.
    trials: Trials,
    /// Why nothing could be reserved when it was tried last.
    failed: Option<Error>,
    /// When its budget could not be changed, if that was the case at the last try.
    fixed: Option<Instant>,
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
            socket: service.socket().to_owned(),
            state: State::Listening(Some(service)),
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
            vain: None,
            trials: Trials::default(),
            failed: None,
            fixed: None,
            on_change,
        }
    }

    /// Reserves before the program begins, where the period is known.
    ///
    /// # Errors
    /// The service cannot reserve anything of this period.
    pub fn begin(&mut self, pid: u32, name: &str) -> Result<(), Error> {
        self.kin.look(pid);
        self.kin.waited();
        let Some(period) = self.period else { return self.probe(pid, name) };
        let budget = (period as f64 * FIRST) as u64;
        self.reserve(pid, name, Pulse { period, budget })
    }

    /// Whether anything can be reserved as asked for; not now, perhaps, for want of room.
    fn probe(&mut self, pid: u32, name: &str) -> Result<(), Error> {
        let State::Listening(Some(service)) = &mut self.state else { return Ok(()) };
        let params = self.params.clone().resized(BUDGET_MIN, PROBED).on_trial();
        match service.reserve(pid, name, &params) {
            Ok(grant) => service.release_own(grant.id).map(drop),
            Err(Error::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The reservation that it has or had.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        match &mut self.state {
            State::Holding(watch, _) => Some(watch),
            _ => None,
        }
    }

    /// The service, if there is one.
    pub fn service(mut self) -> Option<Service> {
        self.end_trial();
        match self.state {
            State::Listening(service) => service,
            State::Holding(watch, _) => watch.service,
        }
    }

    /// Why nothing is reserved.
    pub fn why_nothing(&self) -> String {
        match &self.failed {
            Some(why) => why.to_string(),
            None => match self.vain {
                None => "there was too little time to find its rhythm".into(),
                Some(why) => format!("it has no rhythm: {why}"),
            },
        }
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, pid: u32, name: &str, signals: &Signals) {
        match &mut self.state {
            State::Listening(_) => {
                let long = (self.vain.is_some() || self.failed.is_some()) && !self.trials.is_on();
                let wait = if long { LISTEN_ON } else { LISTEN };
                if self.listened.elapsed() >= wait {
                    self.listen(pid, name);
                }
            }
            State::Holding(watch, controller) => {
                let params = &self.params.clone().resized(controller.budget(), watch.agreed.1);
                let (agreed, held) = (watch.agreed.0, watch.held);
                watch.look(pid, name, params, signals);
                if !watch.held {
                    return;
                }
                if !held {
                    // It is another reservation, of perhaps another service.
                    (self.noted, self.exhausted, self.fixed) = (0, 0, None);
                    self.full = Some(Instant::now()).filter(|_| watch.agreed.0 < agreed);
                }
                // Somebody else has changed it, and may; or there was no room for all of it again.
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
        let (service, listens) = match &mut self.state {
            State::Listening(service) => (service.as_mut(), true),
            State::Holding(watch, _) => (watch.service.as_mut(), false),
        };
        let Some(service) = service else { return Ok(None) };
        let elapsed = self.listened.elapsed().as_nanos() as u64;
        self.listened = Instant::now();
        let (kin, used) = self.kin.look(pid);
        if listens {
            self.trials.note(used, self.kin.waited());
        }
        let (threads, _) = service.beats()?;
        let own = threads.iter().filter(|beat| kin.contains(&beat.pid));
        let rhythms: Vec<Rhythm> = own.map(|beat| beat.rhythm).collect();
        Ok(self.watcher.look(&Look { threads: &rhythms, used, elapsed }))
    }

    /// Looks for the rhythm of a program that has none yet.
    fn listen(&mut self, pid: u32, name: &str) {
        if let State::Listening(service @ None) = &mut self.state {
            *service = launch::ready(&self.socket);
            if service.is_none() {
                self.listened = Instant::now();
                return;
            }
            complain!("onbeat: the service is back, and {name} is measured again");
            self.failed = None;
        }
        match self.rhythms(pid) {
            Ok(Some(pulse)) => {
                self.end_trial();
                if let Err(error) = self.reserve(pid, name, pulse) {
                    self.put_off(name, error);
                }
            }
            Ok(None) if self.trials.is_on() => {
                if self.trials.is_over() {
                    self.end_trial();
                    self.in_vain(name);
                }
            }
            Ok(None) if self.begun.elapsed() >= IN_VAIN_WAITING => {
                let State::Listening(Some(service)) = &mut self.state else { return };
                if self.trials.begin(service, pid, name, &self.params) {
                    self.watcher = Watcher::default();
                } else if self.failed.is_none() && self.begun.elapsed() >= IN_VAIN {
                    self.in_vain(name);
                }
            }
            // It is busy.
            Ok(None) | Err(Error::Mute | Error::Starting(_)) => (),
            Err(error) => self.put_off(name, error),
        }
    }

    fn end_trial(&mut self) {
        if let State::Listening(Some(service)) = &mut self.state {
            self.trials.end(service);
        }
    }

    /// Says that it has no rhythm, once.
    fn in_vain(&mut self, name: &str) {
        let why = self.watcher.reason();
        if self.vain.replace(why).is_some() {
            return;
        }
        complain!(
            "onbeat: {name} has no rhythm: {why}; it goes on without a reservation until it has one. If it has one \
             that cannot be seen, --period 40ms or --fps 25, whichever is its own, reserves from the beginning"
        );
    }

    /// Nothing is reserved for now. It is tried again, with what the program needs by then; why is said once.
    fn put_off(&mut self, name: &str, error: Error) {
        self.watcher = Watcher::default();
        if matches!(error, Error::NoService { .. } | Error::Protocol(_)) {
            self.trials.lost();
            self.state = State::Listening(None);
        }
        self.end_trial();
        let same = |before: &Error| discriminant(before) == discriminant(&error);
        if !self.failed.as_ref().is_some_and(same) {
            complain!(
                "onbeat: {name} goes on without a reservation, and it is tried again: {error}"
            );
        }
        self.failed = Some(error);
    }

    /// Reserves, as much of it as there is room for.
    fn reserve(&mut self, pid: u32, name: &str, pulse: Pulse) -> Result<(), Error> {
        let State::Listening(service) = &mut self.state else { return Ok(()) };
        let Some(mut there) = service.take() else { return Ok(()) };
        let period = pulse.period.next_multiple_of(GRAIN);
        let period = if self.period.is_some() { pulse.period } else { period };
        let most = self.most(period);
        let wanted = rounded(pulse.budget, most);
        let params = self.params.clone().resized(wanted, period);
        let granted = fit::reserve(&mut there, pid, name, &params);
        let (grant, budget) = match granted {
            Ok(granted) => granted,
            Err(error) => {
                self.state = State::Listening(Some(there));
                return Err(error);
            }
        };
        self.full = Some(Instant::now()).filter(|_| budget < wanted);
        (self.failed, self.fixed) = (None, None);
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
        let mut watch = Watch::new(there, grant, (budget, period), self.on_change.take());
        watch.persists = true;
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
        // What it was in the midst of when it got its reservation counts with the job after that, as one.
        let first = usize::from(self.noted == 0 && work.noted as usize <= work.recent.len());
        let jobs = &work.recent[(work.recent.len() - new + first).min(work.recent.len())..];
        self.needs.note(jobs);
        let exhausted = work.record.exhaustions.saturating_sub(self.exhausted);
        (self.noted, self.exhausted) = (work.noted, work.record.exhaustions);
        let at = self.begun.elapsed().as_nanos() as u64;
        let before = controller.budget();
        let Some(wanted) = controller.look(&Seen { at, jobs, exhausted }) else { return };
        if self.fixed.is_some_and(|at| at.elapsed() < FIXED) {
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
        self.fixed = None;
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
            Err(error) => {
                let (budget, period) = watch.agreed;
                self.watcher = Watcher::new(Some(Pulse { period, budget }));
                return self.stay(name, &error);
            }
        };
        if has.period != period {
            // The old rhythm is the one that is reserved for: the new one is found again.
            self.watcher = Watcher::new(Some(Pulse { period: has.period, budget: has.budget }));
        } else {
            controller.restart(period, has.budget, most);
            // What was enough for jobs of another period says nothing of these.
            self.needs = Needs::default();
            self.told = None;
        }
        self.tell(name, has);
    }

    /// The budget cannot be changed for now; why, is said once: of a service that ends the watch tells.
    fn stay(&mut self, name: &str, error: &Error) {
        if matches!(error, Error::Failed { .. }) && self.fixed.replace(Instant::now()).is_none() {
            complain!("onbeat: {name} keeps what it has, and it is tried again: {error}");
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

/// Asks for another budget and period, or as much of it as there is room for.
fn resize(watch: &mut Watch, budget: u64, period: u64) -> Result<Has, Error> {
    let old = watch.agreed;
    let Some(service) = &mut watch.service else {
        return Ok(Has { budget: old.0, period: old.1, refused: true });
    };
    let has = fit::resize(service, watch.grant.id, old, (budget, period))?;
    watch.agreed = (has.budget, has.period);
    Ok(has)
}

#[cfg(test)]
mod tests;
