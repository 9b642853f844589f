// SPDX-License-Identifier: GPL-2.0-only
//! `[[best_effort.load]]` entries: best-effort work in bursts, with sleep between them.

use serde::{Deserialize, Serialize};

use super::parse::plain_name;
use super::table::{Fault, Table, fault};
use super::{BestEffort, GRACE, Generators, TaskEntry, TaskSet, Work, limits, work};
use crate::others::{Linux24, Others};
use crate::units::clip;

/// When bursts come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// One period after the other.
    Periodic,
    /// As a Poisson process: gaps are exponentially distributed, the period is their mean.
    Poisson,
}

impl Arrivals {
    /// All of them.
    pub const ALL: [Arrivals; 2] = [Self::Periodic, Self::Poisson];

    /// As it stands in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Poisson => "poisson",
        }
    }
}

/// `count` equal best-effort threads that work in bursts and sleep between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEffortLoad {
    /// Name of the entry; copies are called as those of tasks.
    pub name: String,
    /// Number of copies, at least 1.
    pub count: u32,
    /// Their nice value, −20 to 19.
    pub nice: i32,
    /// Time between bursts, or its mean, ns.
    pub period: u64,
    /// When bursts come.
    pub arrivals: Arrivals,
    /// What a burst takes; its length is known beforehand.
    pub work: Work,
}

impl BestEffortLoad {
    /// Name of one copy.
    pub fn copy_name(&self, copy: u32) -> String {
        if self.count == 1 { self.name.clone() } else { format!("{}-{copy}", self.name) }
    }
}

/// A thread that does best-effort work in bursts and sleeps between them.
#[derive(Debug, Clone, Copy)]
pub enum Sleeper<'a> {
    /// A copy of a load.
    Load {
        /// Index of the load in [`TaskSet::loads`].
        index: usize,
        /// The load.
        load: &'a BestEffortLoad,
        /// Copy of it.
        copy: u32,
    },
    /// A generator.
    Generator {
        /// What all of them are like.
        of: Generators,
        /// Its nice value.
        nice: i32,
        /// Its number.
        number: u32,
    },
}

impl Sleeper<'_> {
    /// Unique in the set.
    pub fn name(&self) -> String {
        match self {
            Self::Load { load, copy, .. } => load.copy_name(*copy),
            Self::Generator { number, .. } => Generators::name(*number),
        }
    }

    /// Number among those that are alike.
    pub fn number(&self) -> u32 {
        match *self {
            Self::Load { copy: number, .. } | Self::Generator { number, .. } => number,
        }
    }

    /// Its nice value, −20 to 19.
    pub fn nice(&self) -> i32 {
        match *self {
            Self::Load { load, .. } => load.nice,
            Self::Generator { nice, .. } => nice,
        }
    }

    /// Time between bursts, or its mean, ns, at least 1.
    pub fn gap(&self) -> u64 {
        match self {
            Self::Load { load, .. } => load.period,
            Self::Generator { of, .. } => (of.mean_gap() as u64).max(1),
        }
    }
}

impl TaskSet {
    /// What only the simulator can play of this set, and what to do about it; `None` if a kernel can play all.
    pub fn simulator_only(&self) -> Option<String> {
        let remedy = "(simulator only); use `onbeat sim`, or leave that out of the file";
        let task = |what: &str, has: &dyn Fn(&TaskEntry) -> bool| {
            let found = self.tasks.iter().find(|task| has(task))?;
            Some(format!("task {} has {what} {remedy}", found.name))
        };
        task("sections", &|t| !t.sections.is_empty())
            .or_else(|| task("frames from another one", &|t| t.frames.is_some()))
            .or_else(|| {
                let order = self.baseline()?.name();
                Some(format!("best effort has the order {order} {remedy}"))
            })
    }

    /// Threads that do best-effort work in bursts, in the order of every world: copies of loads, then generators.
    pub fn sleepers(&self) -> impl Iterator<Item = Sleeper<'_>> {
        let loads = self.loads.iter().enumerate().flat_map(|(index, load)| {
            (0..load.count).map(move |copy| Sleeper::Load { index, load, copy })
        });
        let generators = self.best_effort.zip(self.generators()).into_iter();
        loads.chain(generators.flat_map(|(best_effort, of)| {
            let nice = best_effort.nice;
            (0..of.count).map(move |number| Sleeper::Generator { of, nice, number })
        }))
    }

    /// Bursts of all of them until late jobs are no more waited for, on average.
    pub fn bursts(&self) -> u64 {
        let time = self.duration + GRACE;
        self.sleepers().map(|sleeper| time.div_ceil(sleeper.gap())).sum()
    }
}

/// The table `[best_effort]`.
pub(super) fn best_effort<'a, 'i>(top: &Table<'a, 'i>) -> Result<Option<Table<'a, 'i>>, Fault> {
    let known = [
        "count",
        "nice",
        "order",
        "group",
        "servers",
        "budget",
        "period",
        "load",
        "generators",
        "generator",
    ];
    top.table("best_effort", "[best_effort]", "{ count = 8 }", &known)
}

/// The nice value of best-effort work.
pub(super) fn nice(t: &Table<'_, '_>) -> Result<i32, Fault> {
    Ok(t.integer("nice", -20, 19)?.map_or(0, |n| n.value as i32))
}

/// All loads of the file.
pub(super) fn read(top: &Table<'_, '_>) -> Result<Vec<BestEffortLoad>, Fault> {
    const KNOWN: [&str; 6] = ["name", "count", "nice", "period", "arrivals", "work"];
    let Some(t) = best_effort(top)? else { return Ok(Vec::new()) };
    t.tables("load", "[[best_effort.load]]", &KNOWN)?.map(|t| load(&t?)).collect()
}

fn load(t: &Table<'_, '_>) -> Result<BestEffortLoad, Fault> {
    let name = t.required("name", "\"editor\"", t.string("name")?)?;
    let period = t.duration("period", limits::PERIOD_MIN, limits::TIME)?;
    let arrivals = match t.string("arrivals")? {
        None => Arrivals::Periodic,
        Some(text) => match Arrivals::ALL.into_iter().find(|a| a.name() == text.value) {
            Some(arrivals) => arrivals,
            None => {
                let reason = format!("bursts cannot come \"{}\"", clip(text.value));
                return fault(text.at, reason, "write \"periodic\" or \"poisson\"");
            }
        },
    };
    // No folder: the kinds below read no file.
    let work = work::work("".as_ref(), t)?;
    if matches!(
        work,
        Work::Trace { .. } | Work::Pool { .. } | Work::Movie { .. } | Work::Program(_)
    ) {
        let at = t.value("work").map_or(t.at, |v| v.span().start);
        let reason = "a burst has a work that is no constant and no distribution";
        return fault(
            at,
            reason,
            "write work = { exponential = { mean = \"1ms\", max = \"9ms\" } }",
        );
    }
    Ok(BestEffortLoad {
        name: plain_name(&name, "name")?,
        count: t.integer("count", 1, limits::TASKS as i64)?.map_or(1, |c| c.value as u32),
        nice: nice(t)?,
        period: t.required("period", "\"20ms\"", period)?.value,
        arrivals,
        work,
    })
}

/// No two are called alike, nor one as a task or group, and they are not too many.
pub(super) fn check(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let at = best_effort(top)?.map_or(0, |t| t.value("load").map_or(t.at, |v| v.span().start));
    let mut names: Vec<String> = set.groups.iter().map(|group| group.name.clone()).collect();
    names.extend(set.copies().map(|copy| copy.name()));
    names.extend((0..set.best_effort_count()).map(|copy| format!("best-effort-{copy}")));
    for sleeper in set.sleepers() {
        let name = sleeper.name();
        if names.contains(&name) {
            let what = if matches!(sleeper, Sleeper::Load { .. }) { "load" } else { "generator" };
            let reason = format!("a {what} is called \"{name}\", as something else is");
            return fault(at, reason, format!("give what is no {what} another name"));
        }
        names.push(name);
        let tasks = names.len() as u64 + set.helpers();
        if tasks > limits::TASKS {
            let reason = format!("with its best effort the file asks for {tasks} tasks or more");
            return fault(at, reason, format!("keep to {} in all", limits::TASKS));
        }
    }
    Ok(())
}

/// Where Linux 2.4 serves everything, nothing is reserved, and nothing but time makes anybody wait.
pub(super) fn check_baseline(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let Some(reason) = set.baseline().and_then(|baseline| unknown_to(set, baseline)) else {
        return Ok(());
    };
    let at = best_effort(top)?.map_or(0, |t| t.value("order").map_or(t.at, |v| v.span().start));
    fault(at, reason, format!("leave that out, or choose one of {}", Others::names()))
}

/// What of the set Linux 2.4 knows nothing of, in words.
fn unknown_to(set: &TaskSet, baseline: Linux24) -> Option<String> {
    let has = |t: &&TaskEntry| t.budget.is_some() || !t.sections.is_empty() || t.frames.is_some();
    let what = match set.tasks.iter().find(has) {
        Some(task) => format!("task {} has a budget, sections or frames", task.name),
        None if !set.groups.is_empty() => "there are groups".into(),
        None => return None,
    };
    Some(format!("{what}, of which {} knows nothing", baseline.name()))
}

impl TaskSet {
    /// Everything without a reservation is served in the order of that name.
    ///
    /// # Errors
    /// There is none, or the set has what it knows nothing of.
    pub fn serve_others_by(&mut self, name: &str) -> Result<(), String> {
        let baseline = Linux24::named(name);
        let known = Others::ALL.iter().find(|order| order.name() == name).copied();
        let order = known.or(baseline.map(|_| Others::default())).ok_or_else(|| {
            let (name, there) = (clip(name), Linux24::simulated());
            format!("no order of best effort is called \"{name}\"; there are {there}")
        })?;
        if let Some(reason) = baseline.and_then(|baseline| unknown_to(self, baseline)) {
            return Err(format!("{reason}; choose one of {}", Others::names()));
        }
        let none = BestEffort {
            count: 0,
            nice: 0,
            order,
            baseline,
            servers: None,
            group: None,
            generators: None,
        };
        let best_effort = self.best_effort.get_or_insert(none);
        (best_effort.order, best_effort.baseline) = (order, baseline);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::beside_a_task;
    use super::*;

    fn parse(load: &str) -> Result<TaskSet, String> {
        beside_a_task(&format!("[[best_effort.load]]\n{load}"))
    }

    #[test]
    fn a_load_needs_no_hogs_and_its_bursts_are_counted_until_the_end_of_patience() {
        let set = parse("name = \"b\"\ncount = 2\nperiod = \"1ms\"\nwork = { constant = \"1us\" }")
            .unwrap();
        assert_eq!((set.best_effort_count(), set.bursts()), (0, 20_000));
        assert_eq!(set.loads[0].arrivals, Arrivals::Periodic);
    }

    #[test]
    fn a_load_that_cannot_be_is_refused_with_a_remedy() {
        let of = |name: &str, more: &str| {
            parse(&format!("name = \"{name}\"\nperiod = \"1ms\"\n{more}")).unwrap_err()
        };
        let work = "work = { constant = \"1us\" }";
        assert!(of("a", work).contains("as something else is"));
        assert!(of("b", "work = { program = [\"x\"] }").contains("no distribution"));
        assert!(of("b", &format!("arrivals = \"bursty\"\n{work}")).contains("\"poisson\""));
        assert!(of("b", &format!("nice = 20\n{work}")).contains("-20 and 19"));
        assert!(of("b", &format!("count = 1000\n{work}")).contains("keep to 1000 in all"));
    }
    #[test]
    fn linux_24_is_the_simulators_and_knows_no_reservations() {
        let file = |task: &str| {
            let text = format!(
                "cpus = 1\nduration = \"1s\"\n[best_effort]\ncount = 1\norder = \"linux-2.4-800\"\n\
                 [[task]]\nname = \"a\"\nperiod = \"10ms\"\n{task}work = {{ constant = \"1ms\" }}"
            );
            TaskSet::from_bytes(text.as_bytes(), "x".as_ref()).map_err(|e| e.to_string())
        };
        let set = file("").unwrap();
        assert_eq!(set.baseline(), Some(Linux24::Hz800));
        assert!(set.simulator_only().unwrap().contains("linux-2.4-800"));
        assert_eq!(TaskSet::from_bytes(set.to_toml().as_bytes(), "x".as_ref()).unwrap(), set);
        let error = file("budget = \"2ms\"\n").unwrap_err();
        assert!(
            error.contains("x:5:") && error.contains("knows nothing; leave that out"),
            "{error}"
        );
        assert!("linux-2.4-800".parse::<Others>().unwrap_err().contains("simulator only"));
        let mut other = file("").unwrap();
        other.serve_others_by("fair").unwrap();
        assert_eq!((other.baseline(), other.others()), (None, Others::Fair));
        let unknown = other.serve_others_by("linux-2.6").unwrap_err();
        assert!(unknown.ends_with("best, linux-2.4-100, linux-2.4-800"), "{unknown}");
    }
}
