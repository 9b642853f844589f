// SPDX-License-Identifier: GPL-2.0-only
//! What programs and the reservation service say to each other: one JSON object a line, over a UNIX stream socket,
//! each request answered by one response. Times are ns; fractions are `[numerator, denominator]` of one CPU.

mod refusal;
mod terms;
mod wire;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::beat::Rhythm;
use crate::metrics::Causes;
use crate::units::Fraction;

pub use refusal::{DEADLINE_REFUSES, DOES_NOT_FIT, Holder, Nearest, Refusal};
pub use terms::{Group, Purse, Reserve};
pub use wire::{
    ProtocolError, REQUEST_BYTES, RESPONSE_BYTES, parse_message, read_message, write_message,
};

/// What a program asks of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// A reservation for a process, its threads and children.
    Reserve(Reserve),
    /// A group: a reservation that serves reservations. It is held until it is given back.
    Group(Group),
    /// A purse: a budget that reservations share wherever they stand. Root's to make; held until it is emptied.
    Purse(Purse),
    /// Takes away a purse that nobody takes from any more.
    DropPurse {
        /// Its name.
        name: String,
    },
    /// Gives a reservation back.
    Release {
        /// As in [`Response::Granted`].
        id: u32,
        /// Only if it was made over this connection: a number may be somebody else's by now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        own: bool,
    },
    /// Which reservations there are.
    Status,
    /// Counters of the scheduler.
    Stats,
    /// Which policies the service has.
    Policies,
    /// Another policy for a set of CPUs; root's to choose. What is held there goes on under it.
    Swap {
        /// Name of the set; [`crate::taskset::DEFAULT_SET`] are the CPUs that no set names.
        set: String,
        /// Name of the policy.
        policy: String,
    },
    /// Which threads wake in a rhythm: of all for root, else of those that act as the asking user alone.
    Beats,
    /// Another budget and period for a reservation in force, from its next period on; a deadline that is the period
    /// goes with it. Answered as [`Request::Reserve`].
    Resize {
        /// As in [`Response::Granted`].
        id: u32,
        /// CPU time per period, ns.
        budget_ns: u64,
        /// Period, ns.
        period_ns: u64,
    },
    /// What the program of a reservation has needed of late.
    Work {
        /// As in [`Response::Granted`].
        id: u32,
    },
    /// Another order of best-effort work; root's to choose.
    Reorder {
        /// Its name.
        order: String,
    },
}

/// What the service answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Response {
    /// Said without being asked to who connects while the scheduler is being loaded; requests are answered afterwards.
    Starting,
    /// It is done.
    Done,
    /// The reservation is in force.
    Granted {
        /// Names it in later requests.
        id: u32,
        /// Policy that serves it.
        policy: String,
        /// CPUs on which it is served.
        cpus: Vec<u32>,
    },
    /// It does not fit.
    Refused(Refusal),
    /// It is given back; what it got.
    Released(Reservation),
    /// All reservations.
    Status {
        /// Policy in force, of the first set.
        policy: String,
        /// CPUs on line.
        cpus: Vec<u32>,
        /// Sum of the reserved utilizations, in CPUs.
        reserved: Fraction,
        /// What is still free for reservations, in CPUs.
        free: Fraction,
        /// In order of their ids.
        reservations: Vec<Reservation>,
        /// The sets of CPUs, the default one before all others.
        #[serde(default)]
        sets: Vec<Set>,
        /// Order of best-effort work in force.
        #[serde(default)]
        best_effort: String,
        /// CPU that is kept for interrupts: on line, but no reservation's and not among `cpus`.
        #[serde(default)]
        interrupt_cpu: Option<u32>,
        /// `reserved` in words.
        #[serde(default)]
        reserved_cpus: Cpus,
        /// `free` in words.
        #[serde(default)]
        free_cpus: Cpus,
        /// When that was so, ns of CLOCK_MONOTONIC: what counts on divided by its differences is a rate.
        #[serde(default)]
        time_ns: u64,
        /// In order of their numbers, those on line.
        #[serde(default)]
        per_cpu: Vec<Cpu>,
    },
    /// The set is under another policy.
    Swapped {
        /// The one before.
        from: String,
        /// The one in force now.
        to: String,
        /// Reservations that go on under it.
        reservations: usize,
        /// From the first step to the last, ns.
        took_ns: u64,
    },
    /// Counters by name.
    Stats {
        /// Name and value.
        counters: BTreeMap<String, u64>,
    },
    /// Threads that wake in a rhythm.
    Beats {
        /// In order of their processes, and there of their own numbers.
        threads: Vec<Beat>,
        /// Threads that nobody has looked at, as too many had woken of late.
        left_out: u64,
    },
    /// What the program of a reservation has needed of late.
    Work(Work),
    /// Policies.
    Policies {
        /// Name and one line about it.
        policies: Vec<(String, String)>,
        /// The one in force, of the default set.
        current: String,
    },
    /// The request could not be carried out.
    Error {
        /// What is wrong.
        message: String,
        /// What to do.
        remedy: String,
    },
}

/// A number of CPUs that need not be whole: as a number, and exactly. Programs read it more easily than a [`Fraction`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cpus {
    /// The number, 1.5 for three halves.
    pub cpus: f64,
    /// What it is exactly: this ...
    pub numerator: u64,
    /// ... divided by this.
    pub denominator: u64,
}

impl From<Fraction> for Cpus {
    fn from(x: Fraction) -> Self {
        let (numerator, denominator) = (*x.numer(), *x.denom());
        Self { cpus: numerator as f64 / denominator as f64, numerator, denominator }
    }
}

impl Default for Cpus {
    fn default() -> Self {
        Fraction::from_integer(0).into()
    }
}

/// A CPU, and what has had it since the scheduler was loaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Name of the set that it is in; empty: in none.
    pub set: String,
    /// Its part of what is reserved, in CPUs: the utilization of each reservation in equal parts on the CPUs that serve
    /// it, or in those that it is split into.
    pub reserved: f64,
    /// Time that it has run reservations, ns.
    pub served_ns: u64,
    /// Time that it has been idle since the machine started, ns, to 10 ms; `None`: the kernel does not tell. What is in
    /// neither was best effort's, real-time threads' and the kernel's.
    pub idle_ns: Option<u64>,
}

/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Its policy.
    pub policy: String,
    /// Sum of the reserved utilizations, in CPUs.
    pub reserved: Fraction,
    /// What is still free for reservations, in CPUs.
    pub free: Fraction,
    /// `reserved` in words.
    #[serde(default)]
    pub reserved_cpus: Cpus,
    /// `free` in words.
    #[serde(default)]
    pub free_cpus: Cpus,
}

/// A thread that wakes in a rhythm, and which: [`Rhythm`], flat on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub thread: u32,
    /// User that it acts for (its real one).
    pub uid: u32,
    /// Name of the thread.
    pub name: String,
    /// Name of the program's file, or of its first thread where that cannot be told.
    pub program: String,
    /// The reservation that it is under; none: it is best effort.
    pub reservation: Option<u32>,
    /// As inferred from its last wake-ups.
    #[serde(flatten)]
    pub rhythm: Rhythm,
}

/// What the program of a reservation has needed of late, period by period (`core/ob_work.h`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Jobs noted since the reservation was made; it begins anew at 2^32. A job is the work of a period here, however
    /// often the program sleeps within it.
    pub noted: u32,
    /// The last of these, oldest first, at most 31: CPU time, ns, and how many periods in a row went without a pause
    /// for it.
    pub recent: Vec<(u64, u32)>,
    /// The reservation.
    pub record: Reservation,
}

/// A reservation and what it has received so far. Times in ns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservation {
    /// Identity.
    pub id: u32,
    /// For people.
    pub name: String,
    /// Process it was made for; 0: it is a group, which serves reservations.
    pub pid: u32,
    /// Thread of the process that it was made for; 0: all.
    #[serde(skip_serializing_if = "is_zero")]
    pub thread: u32,
    /// It is on trial, and ends within seconds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trial: bool,
    /// Name of the group that serves it; empty: none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Name of the set of CPUs that serves it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// Policy of that set.
    pub policy: String,
    /// CPUs on which it is served.
    pub cpus: Vec<u32>,
    /// User who asked.
    pub uid: u32,
    /// Budget per period.
    pub budget_ns: u64,
    /// Period.
    pub period_ns: u64,
    /// Relative deadline.
    pub deadline_ns: u64,
    /// Jobs finished.
    pub jobs: u64,
    /// Jobs finished after their deadline.
    pub misses: u64,
    /// Jobs that exactly the budget in each period would have finished in time (docs/events.md).
    pub owed: u64,
    /// Of those, how many were late: broken promises.
    pub owed_late: u64,
    /// Greatest tardiness of an owed job.
    pub owed_tardiness_max_ns: u64,
    /// How many of `misses` have which cause, as far as the scheduler sees it (docs/events.md).
    #[serde(skip_serializing_if = "Causes::is_empty")]
    pub late_causes: Causes,
    /// The reservation behind which the last of those was that have the cause `reservation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_by: Option<u32>,
    /// Times the budget was used up.
    pub exhaustions: u64,
    /// CPU time received.
    pub consumed_ns: u64,
    /// Greatest tardiness of a job.
    pub tardiness_max_ns: u64,
    /// Sum of the tardiness of all jobs.
    pub tardiness_sum_ns: u64,
    /// Budget left over that went to others (FCBS, and policies with capacities).
    pub donated_ns: u64,
    /// Budget that came from others (likewise).
    pub received_ns: u64,
    /// CPU time beyond the budget that it had of its domain's slack, nobody's in particular (docs/slack.md).
    pub slack_ns: u64,
    /// Threads that belong to it now.
    pub threads: u32,
    /// Time since it was granted.
    pub age_ns: u64,
    /// It may not get its budget in time: CPUs have gone, or SCHED_DEADLINE threads have come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unguaranteed: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
