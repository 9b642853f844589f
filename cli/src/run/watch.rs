// SPDX-License-Identifier: GPL-2.0-only
//! Looks after the reservation of a program that runs: whether it is still there, and if the service has ended, whether
//! it is back.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use onbeat_client::{Error, Grant, Params, Service};
use onbeat_model::protocol::{Request, Reservation, Response};
use onbeat_model::units::format_duration;

use super::fit;
use crate::guest::Signals;
use crate::launch;

/// How often it looks.
pub const LOOK: Duration = Duration::from_millis(500);
/// How often it asks a service that holds few reservations for its status; one that holds more it asks less often.
const ASK: Duration = Duration::from_secs(1);
/// How often it asks one that has refused a reservation.
const AGAIN: Duration = Duration::from_secs(2);
/// Reservations of which the status takes about as long as one request does.
const FEW: u32 = 50;

/// What has become of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The service has ended.
    Lost,
    /// Somebody has given it back.
    Released,
    /// The service is back, and has granted it again.
    Restored,
    /// The service is back, and has no room for it.
    Refused,
    /// Somebody has changed its budget or period: it has less of a CPU, or more.
    Shrunk,
    Grown,
    /// CPUs have gone, or SCHED_DEADLINE threads have come: it may not have its budget in time.
    Unguaranteed,
    /// It has again.
    Guaranteed,
}

impl Change {
    /// As `--on-change` is told.
    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Released => "released",
            Self::Restored => "restored",
            Self::Refused => "refused",
            Self::Shrunk => "shrunk",
            Self::Grown => "grown",
            Self::Unguaranteed => "unguaranteed",
            Self::Guaranteed => "guaranteed",
        }
    }
}

/// A reservation that is looked after.
pub struct Watch {
    /// The connection, as long as there is a service.
    pub service: Option<Service>,
    /// What was granted last.
    pub grant: Grant,
    /// Whether the program has run without it for a while.
    pub lost: bool,
    /// Whether it is in force.
    pub held: bool,
    /// Budget and period that it should have, ns.
    pub agreed: (u64, u64),
    /// A service that is back is asked until there is room, and for as much as there is room for.
    pub persists: bool,
    /// Such a service has refused it; it is not asked again before.
    refused: Option<Instant>,
    socket: PathBuf,
    unguaranteed: bool,
    asks: Instant,
    /// Nobody tries again.
    over: bool,
    on_change: Option<OsString>,
    told: Vec<Child>,
}

impl Watch {
    /// Looks after `grant` of this budget and period, ns; each change is told to the shell command `on_change`.
    pub fn new(
        service: Service,
        grant: Grant,
        agreed: (u64, u64),
        on_change: Option<OsString>,
    ) -> Self {
        Self {
            socket: service.socket().to_owned(),
            service: Some(service),
            grant,
            lost: false,
            held: true,
            agreed,
            persists: false,
            refused: None,
            unguaranteed: false,
            asks: Instant::now() + ASK,
            over: false,
            on_change,
            told: Vec::new(),
        }
    }

    /// The next look asks the service.
    #[cfg(test)]
    pub fn asks_now(&mut self) {
        self.asks = Instant::now();
        self.refused = self.refused.and_then(|at| at.checked_sub(AGAIN));
    }

    /// Looks; `name` is the program's, whose first process is `pid`.
    pub fn look(&mut self, pid: u32, name: &str, params: &Params, signals: &Signals) {
        self.told.retain_mut(|child| child.try_wait().is_ok_and(|status| status.is_none()));
        if self.over {
            return;
        }
        if self.service.is_none() {
            return self.come_back(pid, name, params, signals);
        }
        let open = self.service.as_ref().is_some_and(Service::is_open);
        if open && Instant::now() < self.asks {
            return;
        }
        // It keeps the connections of those who hold something: after one that is closed a service that answers is
        // another one.
        let service = self.service.as_mut().filter(|_| open);
        let answer = service.map(|service| service.ask(&Request::Status));
        match answer {
            Some(Ok(Response::Status { reservations, .. })) => {
                self.asks = Instant::now() + ASK * (1 + reservations.len() as u32 / FEW);
                let own = |r: &&Reservation| r.id == self.grant.id && r.pid == pid;
                if let Some(r) = reservations.iter().find(own) {
                    return self.compare(r, name, signals);
                }
                self.over = true;
                self.change(Change::Released, name, "somebody has given it back", signals);
            }
            // It is busy, or starts anew on the same socket.
            Some(Err(Error::Mute | Error::Starting(_))) => self.asks = Instant::now() + ASK,
            _ => {
                self.service = None;
                self.change(Change::Lost, name, "the service has ended", signals);
            }
        }
    }

    /// Compares what the reservation is with what it should be.
    fn compare(&mut self, r: &Reservation, name: &str, signals: &Signals) {
        let (budget, period) = (r.budget_ns, r.period_ns);
        if (budget, period) != self.agreed {
            let old = std::mem::replace(&mut self.agreed, (budget, period));
            let less =
                u128::from(budget) * u128::from(old.1) < u128::from(old.0) * u128::from(period);
            let change = if less { Change::Shrunk } else { Change::Grown };
            let (budget, period) = (format_duration(budget), format_duration(period));
            complain!("onbeat: {name} now has {budget} every {period}: somebody has changed that");
            self.tell(change, signals);
        }
        if r.unguaranteed != self.unguaranteed {
            self.unguaranteed = r.unguaranteed;
            let (change, words) = if r.unguaranteed {
                (Change::Unguaranteed, "may not get its budget in time any more")
            } else {
                (Change::Guaranteed, "gets its budget in time again")
            };
            complain!("onbeat: {name} {words}: CPUs or SCHED_DEADLINE threads have come or gone");
            self.tell(change, signals);
        }
    }

    /// Asks for the reservation again, if there is a service.
    fn come_back(&mut self, pid: u32, name: &str, params: &Params, signals: &Signals) {
        if self.refused.is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        let Some(mut service) = launch::ready(&self.socket) else { return };
        // It has children by now.
        let params = params.clone().with_descendants();
        let granted = match self.persists {
            true => fit::reserve(&mut service, pid, name, &params),
            false => service.reserve(pid, name, &params).map(|grant| (grant, params.budget())),
        };
        match granted {
            Ok((grant, budget)) => {
                let period = params.period();
                let less = match budget < params.budget() {
                    true => {
                        format!(
                            ", with room for {} every {}",
                            format_duration(budget),
                            format_duration(period)
                        )
                    }
                    false => String::new(),
                };
                self.grant = grant;
                self.agreed = (budget, period);
                (self.unguaranteed, self.refused) = (false, None);
                self.service = Some(service);
                self.asks = Instant::now() + ASK;
                let why = format!("the service is back{less}");
                self.change(Change::Restored, name, &why, signals);
            }
            Err(error @ (Error::Refused(_) | Error::Failed { .. })) => {
                self.over = !self.persists;
                let again = if self.persists { ", and is asked again" } else { "" };
                let why = format!("the service is back, and refuses it{again}: {error}");
                if self.refused.replace(Instant::now()).is_none() {
                    self.change(Change::Refused, name, &why, signals);
                }
            }
            // Not yet.
            Err(_) => (),
        }
    }

    fn change(&mut self, change: Change, name: &str, why: &str, signals: &Signals) {
        self.held = change == Change::Restored;
        self.lost |= !self.held;
        let what =
            if self.held { "has its reservation again" } else { "goes on without a reservation" };
        complain!("onbeat: {name} {what}: {why}");
        self.tell(change, signals);
    }

    /// Tells the command of `--on-change`.
    fn tell(&mut self, change: Change, signals: &Signals) {
        let Some(command) = &self.on_change else { return };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).env("ONBEAT_CHANGE", change.name());
        match signals.restored(&mut shell).spawn() {
            Ok(child) => self.told.push(child),
            Err(e) => complain!("onbeat: the command of --on-change cannot be started: {e}"),
        }
    }
}
