// SPDX-License-Identifier: GPL-2.0-only
//! The sweep file: how sets are made, and who judges them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use onbeat_analysis::generate::{Generator, Periods};
use onbeat_analysis::registry::{Test, find};
use onbeat_analysis::sporadic::Sporadic;
use onbeat_model::policy::{CORE, Policy};
use onbeat_model::units::{SEC, parse_duration};
use serde::Deserialize;

use super::judge::{Jury, Played};
use crate::mistake;

/// Points in a curve, tests and sets a point: more is a mistake.
const POINTS_MOST: u32 = 1000;
const SETS_MOST: u64 = 1_000_000;
/// Longest time a set is played, ns: its jobs are listed beforehand.
const PLAYED_MOST: u64 = 3600 * SEC;
/// Bytes of a sweep file.
const FILE_MOST: u64 = 1 << 20;

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// CPUs of the machine.
    pub cpus: u32,
    /// Task sets a point.
    pub sets: u64,
    /// Of the generator.
    #[serde(default = "one")]
    pub seed: u64,
    pub utilization: Range,
    /// Tasks have utilizations in this range, and as many are made as it takes…
    each: Option<[f64; 2]>,
    /// …or there are so many, made by `method`.
    count: Option<usize>,
    method: Option<Method>,
    periods: Period,
    /// Deadlines between execution time and period instead of at its end.
    #[serde(default)]
    constrained: bool,
    /// Names of tests.
    #[serde(default)]
    tests: Vec<String>,
    /// How sets are played by the simulator…
    simulation: Option<Play>,
    /// …and how some of them in the lab.
    lab: Option<Play>,
}

/// How sets are played, in simulator or lab: accepted is what misses no deadline from a synchronous release on.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    policies: Vec<Policy>,
    duration: String,
    /// Only the first so many sets of a point.
    sets: Option<u64>,
    /// All times are multiplied by this first.
    #[serde(default = "one")]
    stretch: u64,
    /// A job that is late by less is on time.
    tolerance: Option<String>,
}

/// Who judges the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Schedulability tests: the file's `tests`
    Analysis,
    /// The simulator plays each set: the file's `[simulation]`
    Sim,
    /// The real kernel plays each set in the lab: the file's `[lab]`
    Lab,
}

/// How `count` utilizations are drawn that add up to the total.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    UUniFast,
    RandFixedSum,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub from: f64,
    pub to: f64,
    pub points: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Period {
    Uniform([String; 2]),
    LogUniform([String; 2]),
    Harmonic([String; 2]),
}

/// What to do about a key that belongs into a task-set file.
fn of_task_sets(text: &str) -> Option<anyhow::Error> {
    let table: toml::Table = text.parse().ok()?;
    let key = ["set", "group", "purse", "task"].into_iter().find(|key| table.contains_key(*key))?;
    Some(anyhow::anyhow!(
        "a sweep draws its tasks by itself and serves all of them on all CPUs under one policy: it has no [[{key}]]; \
         leave that out, or give the file to `onbeat analyze` or `onbeat sim` if it is a task set"
    ))
}

/// Where a key of the file stands, as `line 3: `; nothing if that cannot be told.
fn line_of(text: &str, key: &str) -> String {
    let Ok(table) = toml::de::DeTable::parse(text) else { return String::new() };
    let at = table.get_ref().get_key_value(key).map(|(key, _)| key.span().start);
    at.map_or(String::new(), |at| format!("line {}: ", 1 + text[..at].matches('\n').count()))
}

/// The text of a sweep file.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).context("cannot be read; check the path")?;
    let read = file.take(FILE_MOST + 1).read_to_string(&mut text);
    read.map_err(|e| mistake::unread(e, "a TOML file"))?;
    ensure!(text.len() as u64 <= FILE_MOST, "is too long for a sweep; give a TOML file");
    Ok(text)
}

impl Sweep {
    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn parse(text: &str) -> Result<Self> {
        let sweep: Sweep = toml::from_str(text).map_err(|error| {
            of_task_sets(text).unwrap_or_else(|| {
                mistake::in_toml(text, &error, "experiments/sweeps/kato-21.toml")
            })
        })?;
        sweep.check(text)?;
        sweep.no_name_twice()?;
        Ok(sweep)
    }

    /// Whether its numbers make sense.
    fn check(&self, text: &str) -> Result<()> {
        let sweep = self;
        let line = |key| line_of(text, key);
        ensure!(
            (1..=64).contains(&sweep.cpus),
            "{}cpus = {}: 1 to 64 can be had",
            line("cpus"),
            sweep.cpus
        );
        let sets = sweep.sets;
        ensure!(
            (1..=SETS_MOST).contains(&sets),
            "{}sets = {sets}: choose 1 to {SETS_MOST}",
            line("sets")
        );
        let Range { from, to, points } = sweep.utilization;
        let at = line("utilization");
        ensure!(
            (1..=POINTS_MOST).contains(&points),
            "{at}utilization: points = {points}: choose 1 to {POINTS_MOST}"
        );
        ensure!(from > 0.0, "{at}utilization: from = {from} is no load; choose one above 0");
        ensure!(to <= 64.0, "{at}utilization: to = {to} is more than 64 CPUs; lower it");
        ensure!(from <= to, "{at}utilization: from = {from} is above to = {to}; exchange them");
        ensure!(
            points == 1 || from < to,
            "{at}utilization: {points} points from {from} to {to} are all the same; say points = 1, or raise to"
        );
        match (sweep.each, sweep.count) {
            (Some([low, high]), None) => ensure!(
                0.001 <= low && low <= high && high <= 1.0,
                "{}each = [{low}, {high}]: utilizations of tasks lie between 0.001 and 1, the lower first",
                line("each")
            ),
            (None, Some(n)) => {
                ensure!(
                    (1..=1000).contains(&n),
                    "{}count = {n}: choose 1 to 1000 tasks",
                    line("count")
                );
                ensure!(
                    to <= n as f64,
                    "{at}utilization up to {to} is too much for {n} tasks; lower it to {n}, or raise count"
                );
            }
            _ => bail!("say either each = [LOW, HIGH] or count = N"),
        }
        ensure!(
            sweep.method.is_none() || sweep.count.is_some(),
            "{}method says how `count` tasks are drawn; give count = N with it",
            line("method")
        );
        sweep.periods().map(drop).with_context(|| format!("{}periods", line("periods")))
    }

    fn no_name_twice(&self) -> Result<()> {
        let plays = [("simulation", &self.simulation), ("lab", &self.lab)];
        let policies = plays.into_iter().filter_map(|(place, play)| {
            let names = play.as_ref()?.policies.iter().map(Policy::to_string).collect();
            Some((place, names))
        });
        let lists: Vec<(&str, Vec<String>)> =
            policies.chain([("tests", self.tests.clone())]).collect();
        for (place, names) in lists {
            let twice = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
            if let Some((_, name)) = twice {
                bail!("{place} names {name} twice; leave one out");
            }
        }
        Ok(())
    }

    /// What to do if [`Sweep::draw`] draws nothing.
    pub fn nothing_drawn(&self) -> &'static str {
        match self.method {
            Some(Method::RandFixedSum) => "there is no such set; lower utilization, or raise count",
            _ => {
                "uunifast found no set without a task above 1 in a thousand draws; say method = \
                 \"randfixedsum\", which finds one at once"
            }
        }
    }

    /// How periods are drawn.
    ///
    /// # Errors
    /// They are no times, or none could be drawn.
    pub fn periods(&self) -> Result<Periods> {
        let both = |[low, high]: &[String; 2]| -> Result<(u64, u64)> {
            let (from, to) = (parse_duration(low)?, parse_duration(high)?);
            ensure!(from >= 1000, "{low} is too short; periods go from 1us up");
            ensure!(to <= PLAYED_MOST, "{high} is too long; periods go up to 1h");
            ensure!(from <= to, "{low} is above {high}; give the shorter first");
            Ok((from, to))
        };
        Ok(match &self.periods {
            Period::Uniform(p) => both(p).map(|(a, b)| Periods::Uniform(a, b))?,
            Period::LogUniform(p) => both(p).map(|(a, b)| Periods::LogUniform(a, b))?,
            Period::Harmonic(p) => both(p).map(|(a, b)| Periods::Harmonic(a, b))?,
        })
    }

    /// Who judges, and with what.
    ///
    /// # Errors
    /// The file does not say, or names what there is not.
    pub fn jury(&self, by: By) -> Result<Jury> {
        match by {
            By::Analysis => self.tests().map(Jury::Tests),
            By::Sim => {
                let play = self.simulation.as_ref().context(
                    "says nothing of simulations; add [simulation] with policies and a duration",
                )?;
                ensure!(play.tolerance.is_none(), "tolerance: the simulator needs none");
                let core = |p: &Policy| {
                    let found = CORE.iter().find(|core| core.name == p.to_string());
                    found.with_context(|| {
                        format!("the simulator does not play {p}; only Onbeat's own policies")
                    })
                };
                let policies = play.policies.iter().map(core).collect::<Result<_>>()?;
                Ok(Jury::Sim(policies, self.played(play)?))
            }
            By::Lab => {
                let play = self.lab.as_ref().context(
                    "says nothing of the lab; add [lab] with policies, a duration and sets",
                )?;
                Ok(Jury::Lab(play.policies.clone(), self.played(play)?))
            }
        }
    }

    fn tests(&self) -> Result<Vec<&'static Test>> {
        ensure!(!self.tests.is_empty(), "the list `tests` is empty; see `onbeat analyze --list`");
        let test = |name: &String| {
            let test = find(name).with_context(|| {
                format!("there is no test \"{name}\"; `onbeat analyze --list` names them")
            })?;
            ensure!(!test.one_cpu || self.cpus == 1, "the test {name} is for one CPU");
            ensure!(
                name != "fp-exact",
                "fp-exact is for priorities of a file, and a sweep draws none; see rm-exact"
            );
            Ok(test)
        };
        self.tests.iter().map(test).collect()
    }

    fn played(&self, play: &Play) -> Result<Played> {
        let time = |name: &str, text: &str| {
            parse_duration(text).map_err(|e| anyhow::anyhow!("{name}: {e}"))
        };
        let tolerance = play.tolerance.as_ref().map_or(Ok(0), |text| time("tolerance", text))?;
        let duration = time("duration", &play.duration)?;
        ensure!(!play.policies.is_empty(), "the list `policies` is empty; see `onbeat policies`");
        ensure!(
            (1..=PLAYED_MOST).contains(&duration),
            "duration = \"{}\": give a time up to an hour, such as \"10min\"",
            play.duration
        );
        ensure!((1..=1000).contains(&play.stretch), "stretch = {}: 1 to 1000", play.stretch);
        let sets = play.sets.unwrap_or(self.sets);
        ensure!((1..=self.sets).contains(&sets), "sets = {sets}: 1 to the file's {}", self.sets);
        Ok(Played { duration, sets, stretch: play.stretch, tolerance, seed: self.seed })
    }

    /// Utilization of point `i`.
    pub fn point(&self, i: u32) -> f64 {
        let Range { from, to, points } = self.utilization;
        if points == 1 { from } else { from + (to - from) * f64::from(i) / f64::from(points - 1) }
    }

    /// Set number `set` of a point; `None` if there is none with so much utilization.
    pub fn draw(&self, point: u32, set: u64, periods: Periods) -> Option<Vec<Sporadic>> {
        let mut generator = Generator::new(self.seed, u64::from(point) << 32 | set);
        let total = self.point(point);
        let n = self.count.unwrap_or(1);
        let mut tasks = match (self.each, self.method) {
            (Some([low, high]), _) => generator.until(total, low, high, periods),
            (_, Some(Method::RandFixedSum)) => generator.randfixedsum(n, total, periods)?,
            _ => generator.uunifast_discard(n, total, periods)?,
        };
        if self.constrained {
            generator.constrain(&mut tasks);
        }
        Some(tasks)
    }
}
