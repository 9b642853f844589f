// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sweep`: the part of random task sets that tests accept, against utilization.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal, Read, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use onbeat_analysis::generate::{Generator, Periods};
use onbeat_analysis::registry::{Test, find};
use onbeat_analysis::sporadic::Verdict;
use onbeat_model::units::parse_duration;
use serde::Deserialize;
use serde_json::json;

use crate::lab::cancel_on_signals;
use crate::output::print;

/// Points in a curve, tests and sets a point: more is a mistake.
const POINTS_MOST: u32 = 1000;
const SETS_MOST: u64 = 1_000_000;
/// Bytes of a sweep file.
const FILE_MOST: u64 = 1 << 20;

/// Count how many random task sets schedulability tests accept
///
/// The file says how sets are made and which tests judge them; experiments/sweeps/kato-21.toml is one. With --out each point is
/// kept when it is done, and the same command goes on where it was stopped.
#[derive(Debug, Args)]
pub struct Options {
    /// The sweep file
    file: PathBuf,
    /// Keep results here (CSV), and go on from what is there
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    /// CPUs of the machine.
    cpus: u32,
    /// Task sets a point.
    sets: u64,
    /// Of the generator.
    #[serde(default = "one")]
    seed: u64,
    utilization: Range,
    /// Tasks have utilizations in this range, and as many are made as it takes…
    each: Option<[f64; 2]>,
    /// …or so many are made by UUniFast.
    count: Option<usize>,
    periods: Period,
    /// Deadlines between execution time and period instead of at its end.
    #[serde(default)]
    constrained: bool,
    /// Names of tests.
    tests: Vec<String>,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: f64,
    to: f64,
    points: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Period {
    Uniform([String; 2]),
    LogUniform([String; 2]),
    Harmonic([String; 2]),
}

impl Sweep {
    fn load(path: &Path) -> Result<(Self, String)> {
        let mut text = String::new();
        let file = File::open(path).context("cannot be read; check the path")?;
        file.take(FILE_MOST + 1)
            .read_to_string(&mut text)
            .context("is no text; give a TOML file")?;
        ensure!(text.len() as u64 <= FILE_MOST, "is too long for a sweep; give a TOML file");
        let sweep: Sweep = toml::from_str(&text)?;
        ensure!((1..=64).contains(&sweep.cpus), "cpus = {}: 1 to 64 can be had", sweep.cpus);
        ensure!((1..=SETS_MOST).contains(&sweep.sets), "sets = {}: 1 to {SETS_MOST}", sweep.sets);
        let Range { from, to, points } = sweep.utilization;
        ensure!(
            (1..=POINTS_MOST).contains(&points) && from > 0.0 && from <= to && to <= 64.0,
            "utilization: from, above 0, up to 64, in 1 to {POINTS_MOST} points"
        );
        match (sweep.each, sweep.count) {
            (Some([low, high]), None) => ensure!(
                0.001 <= low && low <= high && high <= 1.0,
                "each = [{low}, {high}]: utilizations of tasks lie between 0.001 and 1"
            ),
            (None, Some(n)) => ensure!((1..=1000).contains(&n), "count = {n}: 1 to 1000 tasks"),
            _ => bail!("say either each = [LOW, HIGH] or count = N"),
        }
        ensure!(!sweep.tests.is_empty(), "tests names none; see `onbeat analyze --list`");
        Ok((sweep, text))
    }

    fn periods(&self) -> Result<Periods> {
        let both = |[low, high]: &[String; 2]| -> Result<(u64, u64)> {
            let parse =
                |text: &str| parse_duration(text).map_err(|e| anyhow::anyhow!("periods: {e}"));
            let (low, high) = (parse(low)?, parse(high)?);
            ensure!(1000 <= low && low <= high, "periods go from 1us up, the shorter first");
            Ok((low, high))
        };
        Ok(match &self.periods {
            Period::Uniform(p) => both(p).map(|(a, b)| Periods::Uniform(a, b))?,
            Period::LogUniform(p) => both(p).map(|(a, b)| Periods::LogUniform(a, b))?,
            Period::Harmonic(p) => both(p).map(|(a, b)| Periods::Harmonic(a, b))?,
        })
    }

    fn tests(&self) -> Result<Vec<&'static Test>> {
        let test = |name: &String| {
            let test = find(name).with_context(|| {
                format!("there is no test \"{name}\"; `onbeat analyze --list` names them")
            })?;
            ensure!(!test.one_cpu || self.cpus == 1, "the test {name} is for one CPU");
            Ok(test)
        };
        self.tests.iter().map(test).collect()
    }

    fn point(&self, i: u32) -> f64 {
        let Range { from, to, points } = self.utilization;
        if points == 1 { from } else { from + (to - from) * f64::from(i) / f64::from(points - 1) }
    }

    /// How many of the sets at one point each test accepts.
    fn judge(
        &self,
        point: u32,
        tests: &[&Test],
        periods: Periods,
        go_on: &dyn Fn() -> bool,
    ) -> Option<Vec<u64>> {
        let mut accepted = vec![0; tests.len()];
        for set in 0..self.sets {
            if !go_on() {
                return None;
            }
            let mut generator = Generator::new(self.seed, u64::from(point) << 32 | set);
            let total = self.point(point);
            let tasks = match (self.each, self.count) {
                (Some([low, high]), _) => Some(generator.until(total, low, high, periods)),
                (_, n) => generator.uunifast_discard(n.unwrap_or(1), total, periods),
            };
            // No such set exists: nobody accepts it.
            let Some(mut tasks) = tasks else { continue };
            if self.constrained {
                generator.constrain(&mut tasks);
            }
            for (count, test) in accepted.iter_mut().zip(tests) {
                let answer = (test.run)(&tasks, self.cpus as usize);
                *count += u64::from(answer.verdict == Verdict::Schedulable);
            }
        }
        Some(accepted)
    }
}

/// Points that are done, by number; and the file they are kept in.
struct Kept {
    done: BTreeMap<u32, Vec<u64>>,
    out: Option<File>,
}

impl Kept {
    /// What `out` holds of the same sweep.
    fn open(out: Option<&Path>, head: &str, tests: usize) -> Result<Self> {
        let mut kept = Kept { done: BTreeMap::new(), out: None };
        let Some(path) = out else { return Ok(kept) };
        let place = || format!("cannot write {}", path.display());
        let before = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(place),
        };
        if !before.is_empty() {
            let Some(rows) = before.strip_prefix(head) else {
                bail!("{} is of another sweep; give another --out, or remove it", path.display());
            };
            // A line cut off by a crash is done again.
            for row in rows.split_inclusive('\n').filter(|row| row.ends_with('\n')) {
                let fields: Vec<&str> = row.trim_end().split(',').collect();
                let point = fields.first().and_then(|f| f.parse().ok());
                let counts: Vec<u64> =
                    fields.iter().skip(2).filter_map(|f| f.parse().ok()).collect();
                if let (Some(point), true) = (point, counts.len() == tests) {
                    kept.done.insert(point, counts);
                }
            }
        }
        let whole: usize = before.rfind('\n').map_or(0, |end| end + 1);
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).with_context(place)?;
        file.set_len(whole as u64).with_context(place)?;
        if whole == 0 {
            file.write_all(head.as_bytes()).with_context(place)?;
        }
        kept.out = Some(file);
        Ok(kept)
    }

    fn add(&mut self, point: u32, u: f64, counts: Vec<u64>) -> Result<()> {
        if let Some(out) = &mut self.out {
            let list: Vec<String> = counts.iter().map(u64::to_string).collect();
            writeln!(out, "{point},{u:.4},{}", list.join(",")).context("cannot keep a point")?;
        }
        self.done.insert(point, counts);
        Ok(())
    }
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, what is kept is of another sweep, it was stopped, or results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let place = || options.file.display().to_string();
    let (sweep, text) = Sweep::load(&options.file).with_context(place)?;
    let (tests, periods) =
        (sweep.tests().with_context(place)?, sweep.periods().with_context(place)?);
    let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
    // The file itself names the sweep: another one's points do not belong here.
    let head = format!(
        "# onbeat sweep {:08x}, {} sets a point\npoint,utilization,{}\n",
        crc32fast::hash(text.as_bytes()),
        sweep.sets,
        names.join(",")
    );
    let kept = Kept::open(options.out.as_deref(), &head, tests.len())?;
    let points = sweep.utilization.points;
    let left: Vec<u32> = (0..points).filter(|p| !kept.done.contains_key(p)).collect();
    let cancel = cancel_on_signals()?;
    let bar = ProgressBar::new(left.len() as u64 * sweep.sets);
    if stderr().is_terminal() {
        bar.set_style(ProgressStyle::with_template("{bar:40} {percent}%, {eta} left")?);
    } else {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let (next, kept) = (AtomicU64::new(0), Mutex::new(kept));
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(point) = left.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let go_on = || {
                        bar.inc(1);
                        !cancel.load(Ordering::Relaxed)
                    };
                    let Some(counts) = sweep.judge(*point, &tests, periods, &go_on) else { return };
                    let mut kept = kept.lock().unwrap_or_else(|e| e.into_inner());
                    if let Err(error) = kept.add(*point, sweep.point(*point), counts) {
                        *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                        return;
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let done = kept.into_inner().unwrap_or_else(|e| e.into_inner()).done;
    if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(error);
    }
    print(&if options.json {
        object(&sweep, &names, &done)
    } else {
        table(&sweep, &names, &done)
    })?;
    if (done.len() as u32) < points {
        let how = if options.out.is_some() {
            "the same command goes on from here"
        } else {
            "with --out FILE.csv it could go on from here"
        };
        bail!("stopped on request after {} of {points} points; {how}", done.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn table(sweep: &Sweep, names: &[&str], done: &BTreeMap<u32, Vec<u64>>) -> String {
    let mut text = format!("success ratio, {} sets a point, {} CPUs\n", sweep.sets, sweep.cpus);
    let _ = write!(text, "{:>6}", "U");
    for name in names {
        let _ = write!(text, " {name:>12}");
    }
    text.push('\n');
    for (point, counts) in done {
        let _ = write!(text, "{:>6.3}", sweep.point(*point));
        for count in counts {
            let _ = write!(text, " {:>12.3}", *count as f64 / sweep.sets as f64);
        }
        text.push('\n');
    }
    text
}

fn object(sweep: &Sweep, names: &[&str], done: &BTreeMap<u32, Vec<u64>>) -> String {
    let ratio = |counts: &Vec<u64>| -> serde_json::Map<String, serde_json::Value> {
        let of = |count: &u64| json!(*count as f64 / sweep.sets as f64);
        names.iter().zip(counts).map(|(name, count)| (name.to_string(), of(count))).collect()
    };
    let points: Vec<_> = done
        .iter()
        .map(
            |(point, counts)| json!({"utilization": sweep.point(*point), "success": ratio(counts)}),
        )
        .collect();
    format!("{:#}\n", json!({"cpus": sweep.cpus, "sets": sweep.sets, "points": points}))
}
