// SPDX-License-Identifier: GPL-2.0-only
//! What programs and the reservation service say to each other: one JSON object a line, over a UNIX stream socket,
//! each request answered by one response. Times are ns; fractions are `[numerator, denominator]` of one CPU.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::rank::Rank;
use crate::taskset::{Segment, limits};
use crate::units::{Fraction, clip, format_duration, format_percent};

/// Longest line with a request, bytes.
pub const REQUEST_BYTES: u64 = 64 << 10;
/// Longest line with a response, bytes: a status may list a thousand reservations.
pub const RESPONSE_BYTES: u64 = 4 << 20;

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
    /// Another order of best-effort work; root's to choose.
    Reorder {
        /// Its name.
        order: String,
    },
}

/// Parameters of a reservation: `budget_ns` every `period_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// Process whose threads and children are served; must belong to the asker.
    pub pid: u32,
    /// Only this thread of it, and what that creates from then on; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// For people; 1 to 64 printable characters.
    pub name: String,
    /// CPU time per period, ns.
    pub budget_ns: u64,
    /// Period, ns.
    pub period_ns: u64,
    /// Relative deadline, ns, at most the period; the period if absent.
    #[serde(default)]
    pub deadline_ns: Option<u64>,
    /// CPUs it may use; all the process may use if absent.
    #[serde(default)]
    pub cpus: Option<Vec<u32>>,
    /// The program marks its jobs through the client library.
    #[serde(default)]
    pub marks: bool,
    /// What a job is worth that ends in time, to policies that choose; what its budget is in ms if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Its class, to policies that rank; soft there if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Rank>,
    /// Name of the group that serves it; absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of the purse that it takes from, too; absent: from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purse: Option<String>,
    /// Name of the set of CPUs that is to serve it; absent: the default set if it may use one of its CPUs, else the
    /// first other of which it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// A budget that reservations share, and who finds it empty sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purse {
    /// Its name: 1 to 64 printable characters, no other purse's.
    pub name: String,
    /// Name of the purse that it is part of; absent: of none. What is taken counts in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Of its cycles, ns; the first begins when it is made.
    pub period_ns: u64,
    /// What is in it; what expires first is spent first.
    pub segments: Vec<Segment>,
}

impl Purse {
    /// Whether the values make sense by themselves.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        check_time("period", self.period_ns, limits::PERIOD_MIN)?;
        if self.segments.is_empty() || self.segments.len() > limits::SEGMENTS {
            let count = self.segments.len();
            return Err(format!("it has {count} segments; give it 1 to {}", limits::SEGMENTS));
        }
        for Segment { budget, from, until } in &self.segments {
            check_time("budget", *budget, 1)?;
            if from >= until || *until > self.period_ns {
                return Err(format!(
                    "a segment lasts from {} until {}; end it later than it begins, and by the period",
                    format_duration(*from),
                    format_duration(*until)
                ));
            }
        }
        Ok(())
    }
}

/// What a group is to have: `budget_ns` every `period_ns` for all its members together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// By it members name it: 1 to 64 printable characters, no other group's.
    pub name: String,
    /// CPU time per period, ns.
    pub budget_ns: u64,
    /// Period, ns.
    pub period_ns: u64,
    /// Relative deadline, ns, at most the period; the period if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// CPUs its members may use; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
    /// Name of the group that serves it; absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Order over its members, such as `edf`; that of the policy in force if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Server policy of its own budget, such as `cbs-hard`; that of the policy in force if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Name of the purse that it takes from, too; absent: from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purse: Option<String>,
    /// Name of the set of CPUs that is to serve it; absent: the default set if it may use one of its CPUs, else the
    /// first other of which it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

impl Group {
    /// The same as a reservation of process `pid`.
    pub fn as_reserve(&self, pid: u32) -> Reserve {
        Reserve {
            pid,
            thread: None,
            name: self.name.clone(),
            budget_ns: self.budget_ns,
            period_ns: self.period_ns,
            deadline_ns: self.deadline_ns,
            cpus: self.cpus.clone(),
            marks: false,
            value: None,
            class: None,
            group: self.group.clone(),
            purse: self.purse.clone(),
            set: self.set.clone(),
        }
    }

    /// Whether the values make sense by themselves.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        self.as_reserve(1).check()
    }
}

impl Reserve {
    /// Relative deadline, ns.
    pub fn deadline(&self) -> u64 {
        self.deadline_ns.unwrap_or(self.period_ns)
    }

    /// Budget over period.
    ///
    /// # Panics
    /// If the period is zero; [`Reserve::check`] refuses that.
    pub fn utilization(&self) -> Fraction {
        Fraction::new(self.budget_ns, self.period_ns)
    }

    /// Whether the values make sense by themselves.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        let Reserve { budget_ns, period_ns, .. } = *self;
        let show = format_duration;
        if self.pid == 0 || self.pid > i32::MAX as u32 {
            return Err(format!("{} is no process; give a pid", self.pid));
        }
        if let Some(thread) = self.thread.filter(|t| *t == 0 || *t > i32::MAX as u32) {
            return Err(format!("{thread} is no thread; give a tid (gettid)"));
        }
        check_name(&self.name)?;
        for (word, value, min) in [
            ("period", period_ns, limits::PERIOD_MIN),
            ("budget", budget_ns, 1),
            ("deadline", self.deadline(), 1),
        ] {
            check_time(word, value, min)?;
        }
        for (word, limit) in [("period", period_ns), ("deadline", self.deadline())] {
            if budget_ns > limit {
                return Err(format!(
                    "the budget {} is above the {word} {}; lower the budget",
                    show(budget_ns),
                    show(limit)
                ));
            }
        }
        if self.deadline() > period_ns {
            return Err(format!(
                "the deadline {} is longer than the period {}; leave the deadline out (a job that is not done by \
                 the next release goes on in the next period), or shorten it",
                show(self.deadline()),
                show(period_ns)
            ));
        }
        if self.value.is_some_and(|value| !(1..=limits::VALUE).contains(&value)) {
            return Err(format!("a value is from 1 to {}", limits::VALUE));
        }
        match &self.cpus {
            Some(cpus) if cpus.is_empty() => {
                Err("the list of CPUs is empty; name at least one".into())
            }
            Some(cpus) if cpus.len() > limits::CPUS as usize => {
                Err(format!("{} CPUs are listed; at most {} can be", cpus.len(), limits::CPUS))
            }
            _ => Ok(()),
        }
    }
}

/// Whether people can read it.
fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if (1..=limits::NAME).contains(&length) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let (name, most) = (clip(name), limits::NAME);
    Err(format!("\"{name}\" is no name; use 1 to {most} printable characters"))
}

/// A time of at least `min` ns, and not beyond all measure.
fn check_time(word: &str, value: u64, min: u64) -> Result<(), String> {
    if (min..=limits::TIME).contains(&value) {
        return Ok(());
    }
    let show = format_duration;
    let (low, high) = (show(min), show(limits::TIME));
    Err(format!("the {word} {} is not between {low} and {high}", show(value)))
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

/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Name of the group that serves it; empty: none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Name of the set of CPUs that serves it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
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
    /// Times the budget was used up.
    pub exhaustions: u64,
    /// CPU time received.
    pub consumed_ns: u64,
    /// Greatest tardiness of a job.
    pub tardiness_max_ns: u64,
    /// Sum of the tardiness of all jobs.
    pub tardiness_sum_ns: u64,
    /// Budget left over that went to others (FCBS).
    pub donated_ns: u64,
    /// Budget that came from others (FCBS).
    pub received_ns: u64,
    /// Threads that belong to it now.
    pub threads: u32,
    /// Time since it was granted.
    pub age_ns: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How the paragraph of a [`Refusal`] begins: who sees only the output of a program knows it by that.
pub const DOES_NOT_FIT: &str = "the reservation does not fit";

/// What the runner says when the kernel's own admission test rejects a set.
pub const DEADLINE_REFUSES: &str = "SCHED_DEADLINE refuses it: all budgets together are too much";

/// Why a reservation does not fit, and what would. Displays as a paragraph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One sentence: which limit is exceeded.
    pub reason: String,
    /// Budget asked for, ns.
    pub budget_ns: u64,
    /// Period asked for, ns.
    pub period_ns: u64,
    /// Utilization asked for, of one CPU.
    pub asked: Fraction,
    /// Greatest utilization that would be granted now under the same conditions.
    pub free: Fraction,
    /// What holds the rest, greatest share first.
    pub holders: Vec<Holder>,
    /// Nearest values that fit.
    pub nearest: Nearest,
}

/// One who holds CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Reservation, or "best-effort share", "SCHED_DEADLINE tasks" and the like.
    pub name: String,
    /// CPUs' worth of time it holds.
    pub utilization: Fraction,
}

/// The nearest values that would be granted, each with the other value as asked; `None` where none would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Nearest {
    /// Greatest budget with the period asked for, ns.
    pub budget_ns: Option<u64>,
    /// Shortest period with the budget asked for, ns.
    pub period_ns: Option<u64>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |x: Fraction| approximate_percent(x);
        let (budget, period) = (format_duration(self.budget_ns), format_duration(self.period_ns));
        writeln!(f, "{DOES_NOT_FIT}: {}", self.reason)?;
        writeln!(f, "  asked: {budget} every {period}, {} of a CPU", percent(self.asked))?;
        writeln!(f, "  free:  {} of a CPU", percent(self.free))?;
        if !self.holders.is_empty() {
            writeln!(f, "  held:")?;
            for h in &self.holders {
                writeln!(f, "    {:>8}  {}", percent(h.utilization), clip(&h.name))?;
            }
        }
        match (self.nearest.budget_ns, self.nearest.period_ns) {
            (Some(b), Some(p)) => {
                let (b, p) = (format_duration(b), format_duration(p));
                write!(f, "  would fit: a budget of {b} every {period}, or {budget} every {p}")
            }
            (Some(b), None) => {
                write!(f, "  would fit: a budget of {} every {period}", format_duration(b))
            }
            (None, Some(p)) => write!(f, "  would fit: {budget} every {}", format_duration(p)),
            (None, None) => write!(f, "  nothing would fit until another reservation is released"),
        }
    }
}

/// The exact percentage if it is short, else rounded down to hundredths and marked as such.
fn approximate_percent(x: Fraction) -> String {
    let exact = format_percent(x);
    if exact.len() <= 7 && !exact.contains('/') {
        return exact;
    }
    let hundredths = u128::from(*x.numer()) * 10_000 / u128::from(*x.denom());
    format!("~{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// What goes wrong between the two ends of the socket.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// The line does not end within the limit.
    #[error("a line of more than {0} bytes; the other side does not speak this protocol")]
    TooLong(u64),
    /// The other side closed in the middle of a line.
    #[error("the connection was closed in the middle of a message; ask again")]
    CutOff,
    /// Not a message.
    #[error("not a message of this protocol ({0}); use the same version on both sides")]
    Malformed(String),
    /// The system reports.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Reads one message of at most `limit` bytes; `None` when the other side has closed.
///
/// # Errors
/// [`ProtocolError`]; never panics, whatever the bytes.
pub fn read_message<T: DeserializeOwned>(
    input: &mut impl BufRead,
    limit: u64,
) -> Result<Option<T>, ProtocolError> {
    let mut line = Vec::new();
    input.by_ref().take(limit + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) if line.len() as u64 >= limit => return Err(ProtocolError::TooLong(limit)),
        Some(_) => return Err(ProtocolError::CutOff),
    }
    parse_message(&line).map(Some)
}

/// Parses one line without its end.
///
/// # Errors
/// [`ProtocolError::Malformed`].
pub fn parse_message<T: DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(line).map_err(|e| ProtocolError::Malformed(clip_long(&e.to_string())))
}

fn clip_long(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Writes one message and its end in a single write, then flushes.
///
/// # Errors
/// Whatever the writer reports.
pub fn write_message<T: Serialize>(out: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reserve() -> Reserve {
        Reserve {
            pid: 42,
            thread: None,
            name: "mpv".into(),
            budget_ns: 25_000_000,
            period_ns: 41_700_000,
            deadline_ns: None,
            cpus: None,
            marks: false,
            value: None,
            class: None,
            group: None,
            purse: None,
            set: None,
        }
    }

    #[test]
    fn requests_look_like_this_on_the_wire() {
        let text = serde_json::to_string(&Request::Reserve(reserve())).unwrap();
        assert_eq!(
            text,
            "{\"op\":\"reserve\",\"pid\":42,\"name\":\"mpv\",\"budget_ns\":25000000,\
             \"period_ns\":41700000,\"deadline_ns\":null,\"cpus\":null,\"marks\":false}"
        );
        let short =
            br#"{"op":"reserve","pid":42,"name":"mpv","budget_ns":25000000,"period_ns":41700000}"#;
        assert_eq!(parse_message::<Request>(short).unwrap(), Request::Reserve(reserve()));
        assert_eq!(parse_message::<Request>(br#"{"op":"status"}"#).unwrap(), Request::Status);
    }

    #[test]
    fn messages_arrive_in_order_until_the_other_side_closes() {
        let mut wire = Vec::new();
        write_message(&mut wire, &Request::Status).unwrap();
        write_message(&mut wire, &Request::Release { id: 7 }).unwrap();
        let mut input = &wire[..];
        let mut next = || read_message::<Request>(&mut input, REQUEST_BYTES).unwrap();
        assert_eq!(next(), Some(Request::Status));
        assert_eq!(next(), Some(Request::Release { id: 7 }));
        assert_eq!(next(), None);
    }

    #[test]
    fn long_and_cut_off_lines_are_told_apart() {
        let read = |bytes: &[u8]| read_message::<Request>(&mut &bytes[..], 20).unwrap_err();
        assert!(matches!(read(&[b' '; 21]), ProtocolError::TooLong(20)));
        assert!(matches!(read(b"{\"op\":\"stat"), ProtocolError::CutOff));
        assert!(matches!(read(b"{\"op\":\"no\"}\n"), ProtocolError::Malformed(_)));
        assert!(matches!(read(b"\n"), ProtocolError::Malformed(_)));
        assert!(read_message::<Request>(&mut &b"{\"op\":\"status\"}    \n"[..], 20).is_ok());
    }

    #[test]
    fn impossible_reservations_are_named() {
        type Change = fn(&mut Reserve);
        let cases: [(Change, &str); 11] = [
            (|r| r.period_ns = 0, "the period"),
            (|r| r.period_ns = u64::MAX, "not between"),
            (|r| r.budget_ns = 0, "the budget"),
            (|r| r.budget_ns = 50_000_000, "above the period"),
            (|r| r.deadline_ns = Some(20_000_000), "above the deadline"),
            (|r| r.deadline_ns = Some(r.period_ns + 1), "longer than the period"),
            (|r| r.pid = 0, "no process"),
            (|r| r.thread = Some(0), "no thread"),
            (|r| r.name = "a\nb".into(), "no name"),
            (|r| r.cpus = Some(vec![]), "name at least one"),
            (|r| r.cpus = Some(vec![0; 65]), "at most 64"),
        ];
        for (change, part) in cases {
            let mut r = reserve();
            change(&mut r);
            let error = r.check().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(reserve().check(), Ok(()));
    }

    #[test]
    fn a_refusal_says_all_it_must() {
        let refusal = Refusal {
            reason: "CPU 0 is full".into(),
            budget_ns: 25_000_000,
            period_ns: 41_000_000,
            asked: Fraction::new(25, 41),
            free: Fraction::new(1, 4),
            holders: vec![Holder { name: "mpv".into(), utilization: Fraction::new(7, 10) }],
            nearest: Nearest { budget_ns: Some(10_250_000), period_ns: Some(100_000_000) },
        };
        let text = refusal.to_string();
        for part in [
            "CPU 0 is full",
            "25ms every 41ms",
            "~60.97%",
            "25%",
            "70%  mpv",
            "10.25ms",
            "every 100ms",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = &bytes[..];
            while let Ok(Some(_)) = read_message::<Request>(&mut input, 50) {}
            let _ = parse_message::<Response>(&bytes);
        }

        #[test]
        fn no_mutation_of_a_message_makes_the_parser_panic(at in 0usize..150, byte in any::<u8>()) {
            let mut line = serde_json::to_vec(&Request::Reserve(reserve())).unwrap();
            let at = at % line.len();
            line[at] = byte;
            if let Ok(Request::Reserve(r)) = parse_message::<Request>(&line) {
                let _ = r.check();
            }
        }
    }
}
