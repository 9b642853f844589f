// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of a reservation while it is held: others may give it back or change it, CPUs may go, the service may
//! end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use onbeat_model::protocol::{Request, Response};

use crate::{Error, Reservation};

/// How often the service is asked.
const LOOK: Duration = Duration::from_millis(250);

/// A change of a reservation that its program did not ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The service has ended; the program goes on without a reservation, and may ask for a new one.
    Lost,
    /// Somebody has given it back; likewise.
    Released,
    /// Somebody has changed its budget or period: it has less of a CPU ...
    Shrunk,
    /// ... or more.
    Grown,
    /// It may not get its budget in time: CPUs have gone, or SCHED_DEADLINE threads have come.
    Unguaranteed,
    /// It gets it in time again.
    Guaranteed,
}

/// What a reservation is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) budget: u64,
    pub(crate) period: u64,
    pub(crate) unguaranteed: bool,
}

impl Known {
    /// What has changed if it is `now`, one thing at a time; that is known from then on.
    fn compare(&mut self, now: &Self) -> Option<Change> {
        if (self.budget, self.period) != (now.budget, now.period) {
            let load = |a: &Self, b: &Self| u128::from(a.budget) * u128::from(b.period);
            let less = load(now, self) < load(self, now);
            (self.budget, self.period) = (now.budget, now.period);
            return Some(if less { Change::Shrunk } else { Change::Grown });
        }
        if self.unguaranteed == now.unguaranteed {
            return None;
        }
        self.unguaranteed = now.unguaranteed;
        Some(if now.unguaranteed { Change::Unguaranteed } else { Change::Guaranteed })
    }
}

impl Reservation {
    /// Waits for the next change of this reservation, for at most `patience` (zero: looks once); `None` if there is
    /// none. It is noticed within about a quarter of a second. What is lost or released stays so: it is told at each
    /// call.
    ///
    /// # Errors
    /// The service answers something else; that it has ended is a change, and no error.
    pub fn wait_change(&mut self, patience: Duration) -> Result<Option<Change>, Error> {
        let end = Instant::now() + patience;
        loop {
            if let Some(change) = self.look()? {
                return Ok(Some(change));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            sleep(left.min(LOOK));
        }
    }

    fn look(&mut self) -> Result<Option<Change>, Error> {
        if let Some(over) = self.over {
            return Ok(Some(over));
        }
        let id = self.grant.id;
        self.over = match self.service.ask(&Request::Status) {
            Ok(Response::Status { reservations, .. }) => {
                let pid = std::process::id();
                match reservations.iter().find(|r| r.id == id && r.pid == pid) {
                    None => Some(Change::Released),
                    Some(r) => {
                        let now = Known {
                            budget: r.budget_ns,
                            period: r.period_ns,
                            unguaranteed: r.unguaranteed,
                        };
                        return Ok(self.known.compare(&now));
                    }
                }
            }
            // It is busy, or starts anew on the same socket.
            Err(Error::Mute | Error::Starting(_)) => None,
            Err(error @ Error::Failed { .. }) => return Err(error),
            _ => Some(Change::Lost),
        };
        Ok(self.over)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::net::UnixListener;

    use onbeat_model::protocol::{Reservation as Record, read_message, write_message};
    use onbeat_model::units::Fraction;

    use super::*;
    use crate::{Params, Service};

    /// A service that grants, and then tells of the reservation as it was granted, with less, and that it is gone.
    fn serve(listener: &UnixListener) {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut budgets = [Some(5_000_000), Some(4_000_000), Some(4_000_000), None].into_iter();
        while let Ok(Some(request)) = read_message::<Request>(&mut stream, 1 << 16) {
            let (policy, cpus) = (String::from("g-edf+fcbs"), vec![0]);
            let answer = match request {
                Request::Reserve(_) => Response::Granted { id: 7, policy, cpus },
                Request::Status => {
                    let of = |budget_ns| Record {
                        id: 7,
                        pid: std::process::id(),
                        budget_ns,
                        period_ns: 20_000_000,
                        ..Default::default()
                    };
                    Response::Status {
                        policy,
                        cpus,
                        reserved: Fraction::new(1, 4),
                        free: Fraction::new(1, 2),
                        reservations: budgets.next().flatten().map(of).into_iter().collect(),
                        sets: vec![],
                        best_effort: String::new(),
                        interrupt_cpu: None,
                        reserved_cpus: Default::default(),
                        free_cpus: Default::default(),
                        time_ns: 0,
                        per_cpu: Vec::new(),
                    }
                }
                _ => return,
            };
            write_message(stream.get_mut(), &answer).unwrap();
        }
    }

    #[test]
    fn a_program_is_told_what_becomes_of_its_reservation_and_an_end_at_each_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let service = std::thread::spawn(move || serve(&listener));
        let params = Params::new(5_000_000, 20_000_000);
        let mut held = Reservation::by(Service::connect_to(&path).unwrap(), "x", &params).unwrap();
        let mut look = |patience| held.wait_change(patience).unwrap();
        assert_eq!(look(Duration::ZERO), None);
        assert_eq!(look(Duration::from_secs(60)), Some(Change::Shrunk));
        assert_eq!(look(Duration::from_secs(60)), Some(Change::Released));
        assert_eq!(look(Duration::ZERO), Some(Change::Released));
        drop(held);
        service.join().unwrap();
    }

    #[test]
    fn less_of_a_cpu_is_told_from_more_and_each_change_once() {
        let mut known = Known { budget: 10, period: 40, unguaranteed: false };
        for (budget, period, unguaranteed, change) in [
            (10, 40, false, None),
            (12, 60, false, Some(Change::Shrunk)),
            (12, 60, false, None),
            (11, 40, true, Some(Change::Grown)),
            (11, 40, true, Some(Change::Unguaranteed)),
            (11, 40, false, Some(Change::Guaranteed)),
        ] {
            let now = Known { budget, period, unguaranteed };
            assert_eq!(known.compare(&now), change, "{now:?}");
        }
    }
}
