// SPDX-License-Identifier: GPL-2.0-only
//! What is asked for of the service, and whether the values make sense by themselves.

use serde::{Deserialize, Serialize};

use crate::rank::{Rank, Servers};
use crate::taskset::{Portion, Segment, limits};
use crate::units::{Fraction, clip, format_duration};

/// Parameters of a reservation: `budget_ns` every `period_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Processes that it has started already, and theirs, are served, too, as far as they act as the asker alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descendants: bool,
    /// It is on trial: it ends with the connection it was made over, 10 s after it began at the latest, or as soon as
    /// somebody asks for what does not fit beside it. Nobody is promised anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trial: bool,
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

/// What a group is to have: `budget_ns` every `period_ns` for all its members together; or, inside another, a part of
/// what that one leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Group {
    /// By it members name it: 1 to 64 printable characters, no other group's.
    pub name: String,
    /// CPU time per period, ns. Absent, inside another group: a part by weight of what that one's other members leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// Its weight in that; absent: the usual one, and it only orders its members, without a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// Period, ns; absent: that of the group that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Relative deadline, ns, at most the period; absent: the period, or with that the one of the group that serves it.
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
    /// Servers of best effort that are members of it; absent: none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
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
        if self.thread.is_some() && self.descendants {
            return Err("a reservation is for one thread, or for a process and its descendants; ask for one".into());
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

impl Group {
    /// Where its budget comes from.
    pub fn portion(&self) -> Portion {
        match (self.budget_ns, self.weight) {
            (Some(_), _) => Portion::Budget,
            (None, Some(weight)) => Portion::Weight(weight),
            (None, None) => Portion::Orders,
        }
    }

    /// Period and relative deadline, ns, with those of the group `around` it where it has none.
    pub fn times(&self, around: Option<(u64, u64)>) -> (u64, u64) {
        let (period, deadline) = match (self.period_ns, around) {
            (Some(period), _) => (period, period),
            (None, around) => around.unwrap_or_default(),
        };
        (period, self.deadline_ns.unwrap_or(deadline))
    }

    /// The same as a reservation of process `pid` with this budget, period and deadline, ns.
    pub fn as_reserve(
        &self,
        pid: u32,
        budget_ns: u64,
        (period_ns, deadline): (u64, u64),
    ) -> Reserve {
        Reserve {
            pid,
            name: self.name.clone(),
            budget_ns,
            period_ns,
            deadline_ns: Some(deadline),
            cpus: self.cpus.clone(),
            group: self.group.clone(),
            purse: self.purse.clone(),
            set: self.set.clone(),
            ..Default::default()
        }
    }

    /// Whether the values make sense by themselves.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        let name = clip(&self.name);
        if self.group.is_none() {
            for (word, missing) in
                [("budget", self.budget_ns.is_none()), ("period", self.period_ns.is_none())]
            {
                if missing {
                    return Err(format!(
                        "the group \"{name}\" is in no other and has no {word}; give it budget and period, or name \
                         the group that it is part of"
                    ));
                }
            }
        }
        match (self.weight, self.budget_ns) {
            (Some(weight), _) if !(1..=limits::WEIGHT).contains(&weight) => {
                return Err(format!("a weight is from 1 to {}", limits::WEIGHT));
            }
            (Some(_), Some(_)) => {
                return Err(format!(
                    "the group \"{name}\" has a budget and a weight; leave one out: a weight is for a part of what \
                     others' budgets leave"
                ));
            }
            (None, None) if self.rule.is_some() => {
                return Err(format!(
                    "the group \"{name}\" has a rule, but no budget to enforce; give it a weight or a budget, or \
                     leave the rule out: then it only orders"
                ));
            }
            _ => {}
        }
        // What is not there yet is another group's, and sound.
        let (period, _) = self.times(Some((limits::TIME, limits::TIME)));
        let budget = self.budget_ns.unwrap_or(1);
        self.as_reserve(1, budget, (period, self.deadline_ns.unwrap_or(period))).check()?;
        match &self.servers {
            Some(servers) if servers.count == 0 => Err("no servers of best effort are asked for; \
                 give 1 or more, or leave them out"
                .into()),
            Some(servers) => servers.check(),
            None => Ok(()),
        }
    }
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
    let value = show(value);
    Err(format!("the {word} {value} is not between {low} and {high}; choose one that is"))
}
