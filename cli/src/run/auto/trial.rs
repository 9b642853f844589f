// SPDX-License-Identifier: GPL-2.0-only
//! A reservation for a short while, for a program whose rhythm cannot be seen because it waits for CPUs: who is always
//! behind never sleeps. With it the program catches up, and sleeps until its next job is due; if it has a rhythm. The
//! service ends a trial with this command, and for whoever asks for what does not fit beside it.

use std::time::{Duration, Instant};

use onbeat_client::{Grant, Params, Service};
use onbeat_model::units::{MS, format_duration};

use crate::run::fit;

/// What it has, ns: enough to catch up with, often enough for periods of a few milliseconds.
const BUDGET: u64 = 9 * MS;
const PERIOD: u64 = 10 * MS;
/// Less than this is no trial, ns.
const ENOUGH: u64 = BUDGET / 3;
/// For so long: it catches up in the first part.
const LASTS: Duration = Duration::from_secs(4);
/// Who waits for CPUs for more than this part of the time it has them may wait too long to show a rhythm.
const WAITS: f64 = 0.25;
/// A program that shows none has so many, that long apart: it may have paused when it had the first.
const MOST: u32 = 3;
const APART: Duration = Duration::from_secs(30);

/// A program's trials.
#[derive(Default)]
pub struct Trials {
    /// The one that goes on, and when the last one began.
    grant: Option<Grant>,
    begun: Option<Instant>,
    count: u32,
    /// CPU time of late, and time it has waited for CPUs, ns.
    used: u64,
    waited: u64,
}

impl Trials {
    /// It has had so much CPU time since the look before, and has waited so long for CPUs, ns. Of looks long ago little
    /// counts.
    pub fn note(&mut self, used: u64, waited: u64) {
        self.used = self.used / 4 * 3 + used;
        self.waited = self.waited / 4 * 3 + waited;
    }

    /// Begins one, as `params` say but for budget and period, if it is worth one, and there is room for any.
    pub fn begin(&mut self, service: &mut Service, pid: u32, name: &str, params: &Params) -> bool {
        let soon = self.begun.is_some_and(|at| at.elapsed() < APART);
        if self.count == MOST || soon || self.waited as f64 <= WAITS * self.used as f64 {
            return false;
        }
        let params = params.clone().resized(BUDGET, PERIOD).on_trial();
        let granted = fit::reserve(service, pid, name, &params);
        let Some((grant, budget)) = granted.ok().filter(|(_, budget)| *budget >= ENOUGH) else {
            if self.begun.replace(Instant::now()).is_none() {
                complain!(
                    "onbeat: {name} waits for CPUs, which hides its rhythm if it has one, and there is no room to \
                     have it show that"
                );
            }
            return false;
        };
        if self.count == 0 {
            complain!(
                "onbeat: {name} waits for CPUs, which hides its rhythm if it has one; it has {} every {} for {}, to \
                 show it",
                format_duration(budget),
                format_duration(PERIOD),
                format_duration(LASTS.as_nanos() as u64)
            );
        }
        let begun = Some(Instant::now());
        *self = Self { grant: Some(grant), begun, count: self.count + 1, ..Self::default() };
        true
    }

    /// Whether one goes on.
    pub fn is_on(&self) -> bool {
        self.grant.is_some()
    }

    /// Whether it has lasted long enough.
    pub fn is_over(&self) -> bool {
        self.begun.is_some_and(|at| at.elapsed() >= LASTS)
    }

    /// It has ended with its service: it does not count.
    pub fn lost(&mut self) {
        if self.grant.take().is_some() {
            *self = Self { count: self.count - 1, ..Self::default() };
        }
    }

    /// Gives it back.
    pub fn end(&mut self, service: &mut Service) {
        if let Some(grant) = self.grant.take() {
            // A service that has ended, or somebody else, has done so already.
            let _ = service.release_own(grant.id);
        }
    }

    /// As if it had waited for an hour.
    #[cfg(test)]
    pub fn starve(&mut self) {
        self.waited = 3_600_000_000_000;
    }

    /// As if the last one had begun so long before.
    #[cfg(test)]
    pub fn earlier(&mut self, by: Duration) {
        self.begun = self.begun.and_then(|at| at.checked_sub(by));
    }
}
