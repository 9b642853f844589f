// SPDX-License-Identifier: GPL-2.0-only
//! The book of reservations: answers requests, and ends what has ended. Knows nothing of sockets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use onbeat_analysis::admission::Admission;
use onbeat_analysis::plan::{Demand, Place};
use onbeat_model::metrics::{Cause, of_core};
use onbeat_model::others::Others;
use onbeat_model::policy::{CORE, Server};
use onbeat_model::protocol::{self, Holder, Refusal, Request, Reserve, Response};
use onbeat_model::rank::{Rank, Servers};
use onbeat_model::taskset::{Portion, VALUE};
use onbeat_model::units::{Fraction, format_duration};

use crate::engine::Engine;
use crate::limits;
use crate::machine::{cpus_of, format_cpus, mask_of, name_cpus};
use crate::rate::Notice;
use crate::scheduler::Reservation;
use crate::settings::Settings;
use crate::system::{Above, Facts, System, Watch};

mod accounts;
mod beats;
mod changes;
mod descend;
mod ends;
mod grant;
mod groups;
mod leaving;
mod needs;
mod parts;
mod purses;
mod ranks;
mod resize;
mod rooms;
mod swap;

use parts::Newcomer;
pub use rooms::Rights;
use rooms::{Room, sum};

/// How long a look at all threads of the machine is good for.
const ABOVE_FRESH: Duration = Duration::from_secs(1);
/// How often it is renewed while reservations are held.
const ABOVE_RENEW: Duration = Duration::from_secs(10);
/// How long a look at the CPUs' idle time is good for: half of the shortest time between two looks of `onbeat top`.
const IDLE_FRESH: Duration = Duration::from_millis(50);
/// How long a trial may last.
const TRIAL_MOST: Duration = Duration::from_secs(10);
/// How often a program that creates threads meanwhile is looked through again.
const LOOKS: usize = 100;
/// And no new look begins after that.
const LOOKING_MOST: Duration = Duration::from_secs(1);
/// Longest time that a thread that could run may have to rest, ns: below the 10 s of the kernel's watchdog.
const REST_MOST: u64 = 8_000_000_000;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// User.
    pub uid: u32,
    /// Connection, never the same number twice.
    pub connection: u64,
    /// What the user may hold of the usable CPUs' total, if not what the settings say of all users.
    pub share: Option<Fraction>,
}

/// What became of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In force.
    Live,
    /// Its program is gone. The place is kept until who asked has fetched what it got.
    Ended,
    /// Given back, but some thread has not left yet.
    Closing,
}

#[derive(Debug)]
struct Held {
    order: u64,
    state: State,
    guaranteed: bool,
    connection: Option<u64>,
    /// On its process; a group has none.
    watch: Option<Watch>,
    /// The set of CPUs that serves it.
    room: usize,
    demand: Demand,
    /// What is booked in its place from a time on.
    later: resize::Later,
    place: Place,
    since: Instant,
    record: protocol::Reservation,
    /// The group it is a member of.
    within: Option<u32>,
    /// If it is a group.
    members: Option<Inside>,
    /// Where its budget comes from, if it is a group.
    portion: Portion,
    /// Slot of the purse that it takes from, too.
    purse: Option<usize>,
    /// Best effort's servers that are members of it.
    draws: Vec<u32>,
}

/// What is a group's own, whatever policy serves the set that it is in.
#[derive(Debug, Clone, Copy)]
struct Inside {
    /// Core's number of the order over its members.
    order: u32,
    /// What enforces its budget.
    rule: Server,
    /// Best effort's servers among its members.
    servers: Option<Servers>,
}

/// A purse.
#[derive(Debug)]
struct Pooled {
    name: String,
    /// Slot of the purse that it is part of.
    within: Option<usize>,
}

/// A request that cannot be carried out: what is wrong, what to do.
#[derive(Debug)]
struct Problem(String, String);

fn problem<T>(message: impl Into<String>, remedy: impl Into<String>) -> Result<T, Problem> {
    Err(Problem(message.into(), remedy.into()))
}

/// The book.
pub struct Book<E, S> {
    /// The scheduler.
    pub engine: E,
    /// The interrupt CPU, while there is one.
    pub interrupt_cpu: Option<u32>,
    system: S,
    /// The sets of CPUs, the default one before all others.
    rooms: Vec<Room>,
    rights: Rights,
    /// Order of best effort in force.
    others: Others,
    held: BTreeMap<u32, Held>,
    /// By their numbers, from 1 on.
    accounts: Vec<accounts::Account>,
    /// By their slots.
    purses: Vec<Option<Pooled>>,
    granted: u64,
    refused: u64,
    /// How many loads have stayed booked longer than their reservations.
    left: u32,
    /// When what does not fit now will, ns of the monotonic clock, if it is only for those.
    soon: Option<u64>,
    online: u64,
    above: Above,
    above_at: Instant,
    /// How long it took to look.
    above_took: Duration,
    /// When those whose threads had not left are looked at again, at the earliest; of the monotonic clock, ns.
    lapse_at: u64,
    notices: Vec<Notice>,
    /// Who beats, as found when it was looked last.
    beating: Option<beats::Beating>,
    /// How long each CPU had been idle, and when that was looked up.
    idle: RefCell<Option<(Instant, BTreeMap<u32, u64>)>>,
}

impl<E: Engine, S: System> Book<E, S> {
    /// An empty book of one set of CPUs.
    pub fn new(engine: E, system: S, settings: Settings) -> Self {
        Self::of(engine, system, vec![settings], Rights::default())
    }

    /// An empty book of these sets of CPUs, at least one, the default one, if there is one, before all others.
    pub fn of(engine: E, system: S, sets: Vec<Settings>, rights: Rights) -> Self {
        let (online, above) = (engine.online(), system.above());
        let room = |settings: Settings| {
            let admission = Admission::new(settings.machine(online, &above));
            Room { settings, admission, leaving: Vec::new() }
        };
        let rooms = sets.into_iter().map(room).collect();
        let others = rights.others;
        let mut book = Self {
            engine,
            interrupt_cpu: None,
            system,
            rooms,
            rights,
            others,
            held: BTreeMap::new(),
            accounts: Vec::new(),
            purses: Vec::new(),
            granted: 0,
            refused: 0,
            left: 0,
            soon: None,
            online,
            above: Above::default(),
            above_at: Instant::now(),
            above_took: Duration::ZERO,
            lapse_at: 0,
            notices: Vec::new(),
            beating: None,
            idle: RefCell::new(None),
        };
        book.note_above(above);
        book
    }

    /// Answers one request at once.
    pub fn answer(&mut self, peer: Peer, request: Request) -> Response {
        let answer = self.carry_out_request(peer, request);
        self.refused += u64::from(matches!(answer, Response::Refused(_)));
        answer
    }

    /// Answers one request which has waited for so long; or says after what time to ask again, as what is asked for is
    /// about to be free.
    pub fn answer_or_wait(
        &mut self,
        peer: Peer,
        request: Request,
        waited: Duration,
    ) -> Result<Response, Duration> {
        let answer = self.carry_out_request(peer, request);
        if !matches!(answer, Response::Refused(_)) {
            return Ok(answer);
        }
        if let Some(wait) = self.soon.and_then(|at| leaving::wait(at, waited)) {
            return Err(wait);
        }
        self.refused += 1;
        Ok(answer)
    }

    fn carry_out_request(&mut self, peer: Peer, request: Request) -> Response {
        self.soon = None;
        self.lapse();
        let answer = match request {
            Request::Reserve(r) => self.reserve(peer, &r),
            Request::Group(group) => self.group(peer, &group),
            Request::Purse(purse) => self.purse(peer, &purse),
            Request::DropPurse { name } => self.drop_purse(peer, &name),
            Request::Release { id, own } => self.release(peer, id, own).map(Response::Released),
            Request::Status => Ok(self.status()),
            Request::Stats => Ok(Response::Stats { counters: self.counters() }),
            Request::Policies => Ok(Response::Policies {
                policies: CORE.iter().map(|p| (p.name.into(), p.about.into())).collect(),
                current: self.common().policy(),
            }),
            Request::Beats => self.beats(peer),
            Request::Work { id } => self.work(peer, id),
            Request::Resize { id, budget_ns, period_ns } => {
                self.resize(peer, id, budget_ns, period_ns)
            }
            Request::Swap { set, policy } => self.swap(peer, &set, &policy),
            Request::Reorder { order } => self.reorder(peer, &order),
        };
        answer.unwrap_or_else(|Problem(message, remedy)| Response::Error { message, remedy })
    }

    /// What happened that people should know, since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn note(&mut self, user: Option<u32>, text: String) {
        self.notices.push(Notice { user, text });
    }

    /// Counters of service and scheduler.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut all = self.engine.counters();
        let live = self.held.values().filter(|h| h.state == State::Live);
        let servers = live.clone().filter_map(|h| self.engine.server(h.record.id));
        let threads = servers.map(|s| u64::from(s.threads)).sum();
        all.insert("reserved_threads".into(), threads);
        all.insert("reservations".into(), live.count() as u64);
        all.insert("granted".into(), self.granted);
        all.insert("refused".into(), self.refused);
        all
    }

    /// How many reservations are in force.
    pub fn live(&self) -> usize {
        self.held.values().filter(|h| h.state == State::Live).count()
    }

    fn status(&self) -> Response {
        let reserved = sum(self.rooms.iter().map(|room| room.admission.reserved()));
        let free = sum(self.rooms.iter().map(|room| room.admission.free()));
        Response::Status {
            policy: self.common().policy(),
            cpus: cpus_of(self.online),
            reserved,
            free,
            sets: self.rooms.iter().map(Room::state).collect(),
            best_effort: self.others.name().into(),
            // It may serve alone.
            interrupt_cpu: self.interrupt_cpu.filter(|cpu| self.online >> cpu & 1 == 0),
            reserved_cpus: reserved.into(),
            free_cpus: free.into(),
            time_ns: crate::machine::monotonic(),
            per_cpu: self.per_cpu(),
            reservations: self.reservations(),
        }
    }

    /// Those in force, and what they have received so far.
    pub fn reservations(&self) -> Vec<protocol::Reservation> {
        let live = self.held.values().filter(|h| h.state == State::Live);
        live.map(|h| self.record(h)).collect()
    }

    /// What a reservation has received so far.
    fn record(&self, held: &Held) -> protocol::Reservation {
        let mut record = held.record.clone();
        record.policy = self.rooms[held.room].settings.policy();
        record.cpus = cpus_of(held.place.all_cpus());
        record.unguaranteed = !held.guaranteed;
        if let (State::Live, Some(server)) = (held.state, self.engine.server(record.id)) {
            record.jobs = server.jobs;
            record.misses = server.misses;
            record.late_causes = of_core(&server.late_for);
            let behind = record.late_causes.contains_key(&Cause::Reservation);
            record.late_by = behind.then_some(server.late_by);
            record.exhaustions = server.exhaustions;
            record.consumed_ns = server.consumed;
            record.tardiness_max_ns = server.tardiness_max;
            record.tardiness_sum_ns = server.tardiness_sum;
            record.owed = server.owed;
            record.owed_late = server.owed_late;
            record.owed_tardiness_max_ns = server.owed_tardiness_max;
            record.donated_ns = server.donated;
            record.received_ns = server.received;
            record.slack_ns = server.slack + server.lent;
            record.threads = server.threads;
            record.age_ns = held.since.elapsed().as_nanos() as u64;
        }
        record
    }
}

#[cfg(test)]
mod tests;
