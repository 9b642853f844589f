// SPDX-License-Identifier: GPL-2.0-only
//! Asks the service, in a thread of its own: one that does not answer must not hold up the keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{Uid, User};
use onbeat_client::{Error, Service};
use onbeat_model::protocol::{Request, Response};

use super::state::{Seen, Snapshot};

/// Who asks when told to.
pub struct Asker {
    asks: Sender<()>,
    answers: Receiver<Seen>,
}

impl Asker {
    /// Begins to; the service listens, or will, at `socket`.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(socket: PathBuf) -> Result<Self> {
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        let work = move || {
            let (mut service, mut users) = (None, BTreeMap::new());
            while asked.recv().is_ok() {
                if answer.send(look(&socket, &mut service, &mut users)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(work).context("cannot start a thread")?;
        Ok(Self { asks, answers })
    }

    /// Asks once.
    pub fn ask(&self) {
        let _ = self.asks.send(()); // that nobody is there is told by who wants the answer
    }

    /// What was answered.
    ///
    /// # Errors
    /// Nothing yet, or nothing will be.
    pub fn answer(&self) -> Result<Seen, TryRecvError> {
        self.answers.try_recv()
    }
}

/// Asks, over the old connection if it still holds.
fn look(socket: &Path, service: &mut Option<Service>, users: &mut BTreeMap<u32, String>) -> Seen {
    let there = match service.take() {
        Some(there) => Ok(there),
        None => Service::connect_to(socket).map(|there| there.waiting_at_most(Duration::ZERO)),
    };
    let answer = there.and_then(|mut there| {
        let answer = there.ask(&Request::Status)?;
        *service = Some(there);
        Ok(answer)
    });
    let mut snapshot = match answer.map(snapshot) {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => {
            return Seen::Down(
                "the service gave an unexpected answer; use the same version on both sides".into(),
            );
        }
        Err(Error::Starting(_)) => return Seen::Down("scx_onbeat is starting".into()),
        Err(error) => return Seen::Down(error.to_string()),
    };
    for r in &snapshot.reservations {
        users.entry(r.uid).or_insert_with(|| name_of(r.uid));
    }
    snapshot.users = users.clone();
    Seen::Status(Box::new(snapshot))
}

fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// What is shown of an answer.
fn snapshot(answer: Response) -> Option<Snapshot> {
    let Response::Status {
        policy,
        cpus,
        reserved_cpus,
        free_cpus,
        reservations,
        sets,
        best_effort,
        interrupt_cpu,
        time_ns,
        per_cpu,
        ..
    } = answer
    else {
        return None;
    };
    Some(Snapshot {
        policy,
        cpus,
        reserved: reserved_cpus.cpus,
        free: free_cpus.cpus,
        reservations,
        sets,
        best_effort,
        interrupt_cpu,
        time_ns,
        per_cpu,
        users: BTreeMap::new(),
    })
}
