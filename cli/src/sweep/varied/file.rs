// SPDX-License-Identifier: GPL-2.0-only
//! The file of a sweep over a task set: what is varied, what is compared, what is measured, what is claimed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use onbeat_model::metrics::Metrics;
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::parse_duration;
use serde::Deserialize;
use toml::{Table, Value};

use super::claims::Claim;
use crate::mistake;

/// Runs in all, and of each point: more is a mistake.
const RUNS_MOST: u64 = 100_000;
/// Bytes of a task-set file.
const BASE_MOST: u64 = 1 << 20;

/// What the file says, checked.
pub struct Varied {
    /// For people.
    pub title: String,
    /// The task sets that are varied: one, or one for each point.
    pub bases: Vec<Base>,
    /// How often each point is played, at most.
    pub replications: u64,
    /// What x is.
    pub axis: String,
    /// At least one.
    pub points: Vec<Point>,
    /// At least one.
    pub configurations: Vec<Configuration>,
    /// At least one.
    pub figures: Vec<Figure>,
    /// Tardiness in intervals of so many ns instead of points.
    pub over_time: Option<u64>,
    /// What is expected.
    pub claims: Vec<Claim>,
}

/// A task set that is varied.
pub struct Base {
    /// Its file.
    pub path: PathBuf,
    /// Its keys, with those values that the sweep gives all of them.
    table: Table,
    /// Its seed; replication r has this one and r more.
    seed: u64,
}

/// A value of what is varied.
pub struct Point {
    /// Index of its task set.
    base: usize,
    /// Where it stands in plots and claims.
    pub x: f64,
    /// Keys and their values there.
    values: Vec<(String, Value)>,
}

/// One of what is compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// In plots and claims; without spaces.
    pub name: String,
    policy: String,
    /// Keys of the task set that it does not have.
    #[serde(default)]
    without: Vec<String>,
    /// And those that it has instead.
    #[serde(default)]
    with: Table,
    /// The same at single points, by their x.
    #[serde(default)]
    at: BTreeMap<String, Table>,
}

impl Configuration {
    /// What it has at `x` alone.
    fn at(&self, x: f64) -> impl Iterator<Item = (&String, &Value)> {
        let own = self.at.iter().filter(move |(at, _)| at.parse() == Ok(x));
        own.flat_map(|(_, with)| with)
    }
}

/// What is measured.
pub struct Figure {
    /// In claims, and before the title.
    pub name: String,
    pub title: String,
    /// The entry of the task set whose copies it is a mean over; `None`: it is the run's.
    pub entry: Option<String>,
    /// A key of the metrics.
    pub key: String,
    pub unit: String,
    /// Values are multiplied by this first.
    pub scale: f64,
    /// What it is held against, and what that is called.
    pub level: Option<(f64, String)>,
    pub logarithmic: bool,
    /// Replications go on until its confidence interval reaches no further, in `unit`.
    pub reach: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    base: RawBase,
    #[serde(default)]
    with: Table,
    #[serde(default = "one")]
    replications: u64,
    vary: Option<Vary>,
    over_time: Option<String>,
    #[serde(rename = "configuration")]
    configurations: Vec<Configuration>,
    #[serde(rename = "figure")]
    figures: Vec<RawFigure>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
}

/// One task set, or those that are the points.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawBase {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    axis: String,
    keys: Vec<String>,
    /// A row a point: the values of the keys, in their order; x is the first of them.
    points: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    name: String,
    title: String,
    of: String,
    unit: String,
    #[serde(default = "unscaled")]
    scale: f64,
    level: Option<f64>,
    level_name: Option<String>,
    #[serde(default)]
    logarithmic: bool,
    reach: Option<f64>,
}

fn unscaled() -> f64 {
    1.0
}

impl Varied {
    /// Reads and checks a file, whose text is given.
    ///
    /// # Errors
    /// It says what cannot be, or its task set cannot be read.
    pub fn read(path: &Path, text: &str) -> Result<Self> {
        let raw: Raw = toml::from_str(text)
            .map_err(|e| mistake::in_toml(text, &e, "experiments/sweeps/berate.toml"))?;
        let (paths, several) = match raw.base {
            RawBase::One(base) => (vec![base], false),
            RawBase::Several(bases) => (bases, true),
        };
        ensure!(!paths.is_empty(), "base = []: name a task-set file");
        let folder = path.parent().unwrap_or(Path::new(""));
        let bases: Vec<Base> =
            paths.iter().map(|base| Base::read(folder, base, &raw.with)).collect::<Result<_>>()?;
        let over_time = raw.over_time.as_ref().map(|text| {
            parse_duration(text).map_err(|e| anyhow!("over_time: {e}")).and_then(|every| {
                ensure!(every >= 1_000_000, "over_time = \"{text}\": give 1ms or more");
                Ok(every)
            })
        });
        let (axis, points) = match (several, &raw.vary, &over_time) {
            (true, None, None) => {
                let point = |base| Point { base, x: (base + 1) as f64, values: Vec::new() };
                ("task set".into(), (0..bases.len()).map(point).collect())
            }
            (true, ..) => bail!(
                "base is a list, whose task sets are the points; leave out [vary] and over_time"
            ),
            _ => points(raw.vary, over_time.is_some())?,
        };
        let figures: Vec<Figure> = raw.figures.into_iter().map(figure).collect::<Result<_>>()?;
        let late = |f: &Figure| f.entry.is_some() && f.key == "tardiness_mean_ms";
        ensure!(
            over_time.is_none() || figures.iter().all(late),
            "over_time goes with figures such as \"display.tardiness_mean_ms\" only"
        );
        let sweep = Self {
            title: raw.title,
            bases,
            replications: raw.replications,
            axis,
            points,
            configurations: raw.configurations,
            figures,
            over_time: over_time.transpose()?,
            claims: raw.claims,
        };
        sweep.check()?;
        Ok(sweep)
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.configurations.is_empty(), "there is no [[configuration]] to compare");
        ensure!(!self.figures.is_empty(), "there is no [[figure]] to measure");
        let each = (self.points.len() * self.configurations.len()) as u64;
        let runs = self.replications.checked_mul(each);
        ensure!(
            runs.is_some_and(|runs| (1..=RUNS_MOST).contains(&runs)),
            "{} replications of {each} runs each; take 1 to {RUNS_MOST} runs in all",
            self.replications
        );
        let configurations = self.configurations.iter().map(|c| c.name.as_str());
        let figures = self.figures.iter().map(|f| f.name.as_str());
        for names in [configurations.collect::<Vec<_>>(), figures.collect()] {
            for (i, name) in names.iter().enumerate() {
                ensure!(!names[..i].contains(name), "two are called \"{name}\"; rename one");
                let plain = !name.is_empty() && !name.contains(char::is_whitespace);
                ensure!(plain, "\"{name}\": give a name without spaces");
            }
        }
        for (of, at) in self.configurations.iter().flat_map(|c| c.at.keys().map(move |at| (c, at)))
        {
            let known = self.points.iter().any(|point| at.parse() == Ok(point.x));
            ensure!(known, "{}: at.{at}: there is no such point", of.name);
        }
        self.claims.iter().try_for_each(|claim| claim.check(self))?;
        ensure!(
            self.over_time.is_none() || self.figures.iter().all(|f| f.reach.is_none()),
            "a sweep over_time has no reach"
        );
        // All mistakes are named before the first run.
        let mut seen: Vec<&str> = Vec::new();
        for (point, configuration) in self.each() {
            let set = self.task_set(point, configuration, 0)?;
            for figure in &self.figures {
                let Some(name) = &figure.entry else { continue };
                let there = set.tasks.iter().any(|task| task.name == *name);
                if there {
                    seen.push(name);
                }
                // Of several task sets one has it.
                let last = self.bases.len() > 1 && point + 1 == self.points.len();
                ensure!(
                    there || seen.contains(&name.as_str()) || self.bases.len() > 1 && !last,
                    "figure \"{}\" is of \"{name}\", but no task of {} at {} is called so",
                    figure.name,
                    self.configurations[configuration].name,
                    self.points[point].x
                );
            }
        }
        Ok(())
    }

    /// Every point with every configuration.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let configurations = self.configurations.len();
        (0..self.points.len()).flat_map(move |p| (0..configurations).map(move |c| (p, c)))
    }

    /// The task set of one run.
    ///
    /// # Errors
    /// There is no such key, or the set makes no sense so.
    pub fn task_set(
        &self,
        point: usize,
        configuration: usize,
        replication: u64,
    ) -> Result<TaskSet> {
        let (point, of) = (&self.points[point], &self.configurations[configuration]);
        let place = || format!("{} at {}", of.name, point.x);
        let base = &self.bases[point.base];
        let mut table = base.table.clone();
        let mut set = |path: &str, value: Option<Value>| put(&mut table, path, value);
        for (path, value) in &point.values {
            set(path, Some(value.clone())).with_context(place)?;
        }
        for path in &of.without {
            set(path, None).with_context(place)?;
        }
        for (path, value) in of.with.iter().chain(of.at(point.x)) {
            set(path, Some(value.clone())).with_context(place)?;
        }
        table.insert("policies".into(), Value::Array(vec![of.policy.clone().into()]));
        let seed = i64::try_from(base.seed + replication).context("the seed is too large")?;
        table.insert("seed".into(), seed.into());
        let set = TaskSet::from_bytes(table.to_string().as_bytes(), &base.path);
        // Its lines are not those of a file that anybody has.
        let set = set.map_err(|e| anyhow!("{}; {}", e.reason, e.remedy)).with_context(place)?;
        super::policy_of(&set).with_context(place)?;
        Ok(set)
    }
}

impl Base {
    /// Reads a task set's keys, some of which have the values that `with` says; `path` is relative to `folder`.
    fn read(folder: &Path, path: &Path, with: &Table) -> Result<Self> {
        let place = || format!("base = \"{}\"", path.display());
        let path = folder.join(path);
        let length = std::fs::metadata(&path).with_context(place)?.len();
        ensure!(length <= BASE_MOST, "{}: is too long for a task set", place());
        let mut table: Table =
            std::fs::read_to_string(&path).with_context(place)?.parse().with_context(place)?;
        for (path, value) in with {
            put(&mut table, path, Some(value.clone())).context("with")?;
        }
        let seed = match table.get("seed") {
            Some(seed) => seed.as_integer().and_then(|seed| u64::try_from(seed).ok()),
            None => Some(1),
        };
        let seed = seed.with_context(|| format!("{}: seed is no number", place()))?;
        Ok(Self { path, table, seed })
    }
}

fn points(vary: Option<Vary>, over_time: bool) -> Result<(String, Vec<Point>)> {
    let Some(vary) = vary else {
        ensure!(
            over_time,
            "says neither what to vary nor over_time; add [vary] with keys and points"
        );
        return Ok(("time, s".into(), vec![Point { base: 0, x: 0.0, values: Vec::new() }]));
    };
    ensure!(!over_time, "says both what to vary and over_time; leave one out");
    ensure!(!vary.keys.is_empty() && !vary.points.is_empty(), "vary has no keys, or no points");
    let point = |row: Vec<Value>| {
        ensure!(
            row.len() == vary.keys.len(),
            "a point has {} values, not one for each key",
            row.len()
        );
        let x = row[0].as_float().or(row[0].as_integer().map(|x| x as f64));
        let x = x.context("the first value of a point is where it stands: a number")?;
        Ok(Point { base: 0, x, values: vary.keys.iter().cloned().zip(row).collect() })
    };
    let points: Vec<Point> = vary.points.into_iter().map(point).collect::<Result<_>>()?;
    ensure!(points.is_sorted_by(|a, b| a.x < b.x), "points stand in ascending order, none twice");
    Ok((vary.axis, points))
}

fn figure(raw: RawFigure) -> Result<Figure> {
    let (entry, key) = match raw.of.split_once('.') {
        Some((entry, key)) => (Some(entry.to_owned()), key),
        None => (None, raw.of.as_str()),
    };
    let known = serde_json::to_value(Metrics::default())?;
    ensure!(known.get(key).is_some(), "there is no figure \"{key}\"; see docs/events.md");
    ensure!(raw.reach.is_none_or(|reach| reach > 0.0), "reach: give more than 0");
    let level = raw.level.map(|level| (level, raw.level_name.unwrap_or_else(|| "level".into())));
    Ok(Figure {
        name: raw.name,
        title: raw.title,
        entry,
        key: key.to_owned(),
        unit: raw.unit,
        scale: raw.scale,
        level,
        logarithmic: raw.logarithmic,
        reach: raw.reach,
    })
}

/// Puts a value at a path such as `task.decode.count`, where `decode` is the name of one of several tables; or removes
/// what is there.
fn put(table: &mut Table, path: &str, value: Option<Value>) -> Result<()> {
    let mut words: Vec<&str> = path.split('.').collect();
    let key = words
        .pop()
        .filter(|key| !key.is_empty())
        .with_context(|| format!("\"{path}\" is no key"))?;
    let mut at = table;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let missing = || format!("the task set has no \"{word}\" on the way to {path}");
        at = match at.get_mut(word).with_context(missing)? {
            Value::Table(inner) => inner,
            Value::Array(list) => {
                let name =
                    words.next().with_context(|| format!("{path}: which {word}? name one"))?;
                let named =
                    |item: &&mut Value| item.get("name").and_then(Value::as_str) == Some(name);
                let found = list.iter_mut().find(named).and_then(Value::as_table_mut);
                found.with_context(|| format!("{path}: no {word} is called \"{name}\""))?
            }
            _ => bail!("{path}: \"{word}\" is no table"),
        };
    }
    match value {
        Some(value) => {
            at.insert(key.into(), value);
        }
        None => {
            at.remove(key).with_context(|| format!("there is no {path} to leave out"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_named_table_and_mistakes_on_it_are_named() {
        let text = "a = 1\n[b]\nc = 2\n[[task]]\nname = \"x\"\n[[task]]\nname = \"y\"\ncount = 3";
        let mut table: Table = text.parse().unwrap();
        put(&mut table, "task.y.count", Some(5.into())).unwrap();
        put(&mut table, "task.x.count", Some(7.into())).unwrap();
        put(&mut table, "b.c", None).unwrap();
        assert_eq!(table["task"][1]["count"], 5.into());
        assert_eq!(table["task"][0]["count"], 7.into());
        assert!(table["b"].get("c").is_none());
        for (path, word) in [
            ("task.z.count", "no task is called \"z\""),
            ("tusk.z.count", "no \"tusk\""),
            ("b.d", "no b.d to leave out"),
            ("a.b", "\"a\" is no table"),
            ("", "no key"),
        ] {
            let error = format!("{:#}", put(&mut table, path, None).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
