// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat sweep`: the part of random task sets that is accepted, against utilization; or figures of a task set,
//! against a key of its file (`varied`).

mod file;
mod judge;
mod kept;
mod varied;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_analysis::generate::Periods;
use onbeat_command::misuse;
use onbeat_report::plot::{Curve, Panel, panels};
use serde_json::json;

use crate::kind::{self, Kind};
use crate::lab::{cancel_on_signals, carry::guests_at_a_time};
use crate::many::Tally;
use crate::output::{self, Form, print};
use file::{By, Sweep};
use judge::{Jury, Lab, Means};
use kept::{Frame, Kept, Points};

/// Count how many random task sets are schedulable, against utilization; or vary a task set
///
/// The file says how sets are made and who judges them: schedulability tests, or policies that play them in the
/// simulator or in the lab; experiments/sweeps/kato-21.toml is one. With --out what is done is kept, and the same
/// command goes on where it was stopped. A file with a `base` simulates that task set with other values of its keys
/// under several configurations and prints figures with their confidence intervals; kenna-3-videos.toml is one. Such a
/// sweep does not go on where it was stopped.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat sweep experiments/sweeps/kato-21.toml")]
pub struct Options {
    /// The sweep file
    file: PathBuf,
    /// Who judges random sets [default: analysis]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Keep results here (CSV), and with random sets go on from what is there
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
    /// Draw the curves
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Replace the files of --out and --plot in a sweep over a task set
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Carries out the verb.
///
/// # Errors
/// The file is bad, what is kept is of another sweep, it was stopped, or results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let place = || options.file.display().to_string();
    let text = file::read(&options.file).with_context(place)?;
    if varied::is_one(&text) {
        return varied::run(options, &text);
    }
    if options.force {
        bail!(misuse(format!(
            "{}: random sets go on from what is there; leave --force out",
            place()
        )));
    }
    let sweep = Sweep::parse(&text).with_context(place);
    let sweep = sweep.map_err(|why| kind::instead(&options.file, Kind::Sweep, why))?;
    let by = options.by.unwrap_or(By::Analysis);
    let (jury, periods) =
        (sweep.jury(by).with_context(place)?, sweep.periods().with_context(place)?);
    let outputs: Vec<&Path> =
        [&options.out, &options.plot].into_iter().flatten().map(PathBuf::as_path).collect();
    output::distinct(&[&options.file], &outputs)?;
    if let Some(plot) = &options.plot {
        output::check(plot, Form::Picture)?;
    }
    let names = jury.names();
    let sets = jury.sets(sweep.sets);
    // The file itself names the sweep: another one's points do not belong here, nor another version's.
    let head = format!(
        "# onbeat {} sweep {:08x} {}, {sets} sets a point\npoint,utilization,{}\n",
        env!("CARGO_PKG_VERSION"),
        crc32fast::hash(text.as_bytes()),
        jury.world(),
        names.join(",")
    );
    let frame = Frame {
        head,
        points: (0..sweep.utilization.points).map(|point| sweep.point(point)).collect(),
        sets,
        judges: names.len(),
    };
    let kept = Kept::open(options.out.as_deref(), frame.clone())?;
    let done = all_points(&sweep, &jury, periods, &frame, kept)?;
    print(&if options.json {
        object(&sweep, &jury, &names, &done)
    } else {
        table(&sweep, &jury, &names, &done)
    })?;
    if let Some(plot) = &options.plot {
        draw(&sweep, &jury, &names, &done, plot)?;
    }
    let points = sweep.utilization.points;
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

/// Judges the points that are not kept yet, on all processors; those that were done when it was stopped.
fn all_points(
    sweep: &Sweep,
    jury: &Jury,
    periods: Periods,
    frame: &Frame,
    kept: Kept,
) -> Result<Points> {
    let left = kept.left();
    let sets: u64 = left.iter().map(|(_, first)| frame.sets_of(*first).count() as u64).sum();
    let in_lab = matches!(jury, Jury::Lab(..));
    // In the lab each guest has a line.
    let tally = (!in_lab).then(|| Tally::new("sweep", sets, "sets"));
    let guests = sets as usize * jury.names().len();
    let lab = in_lab.then(|| Lab::new(guests)).transpose()?;
    let means = Means { cancel: cancel_on_signals()?, lab };
    let workers = match in_lab {
        true => guests_at_a_time(),
        false => thread::available_parallelism().map_or(1, usize::from),
    };
    let (next, kept, failed) = (AtomicU64::new(0), Mutex::new(kept), Mutex::new(None));
    let one_part = |(point, first): (u32, u64)| -> Result<bool> {
        let mut accepted = vec![0; jury.names().len()];
        for set in frame.sets_of(first) {
            if means.cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let name = format!("U {:.2}, set {set}", sweep.point(point));
            // To leave it out would change what is counted, to count it as refused would be wrong.
            let Some(tasks) = sweep.draw(point, set, periods) else {
                bail!("{name}: {}", sweep.nothing_drawn())
            };
            let Some(yes) = jury.judge(&name, &tasks, sweep.cpus, &means)? else {
                return Ok(false);
            };
            accepted.iter_mut().zip(yes).for_each(|(count, yes)| *count += u64::from(yes));
            tally.iter().for_each(Tally::add);
        }
        let mut kept = kept.lock().unwrap_or_else(|e| e.into_inner());
        kept.add(point, first, accepted).map(|()| true)
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(part) = left.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    match one_part(*part) {
                        Ok(true) => (),
                        Ok(false) => return,
                        Err(error) => {
                            // The others would fail in the same way, or could not be kept either.
                            means.cancel.store(true, Ordering::Relaxed);
                            failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    drop(tally);
    if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(error);
    }
    let kept = kept.into_inner().unwrap_or_else(|e| e.into_inner());
    kept.tidy()?;
    Ok(kept.done)
}

fn draw(sweep: &Sweep, jury: &Jury, names: &[String], done: &Points, plot: &Path) -> Result<()> {
    let sets = jury.sets(sweep.sets) as f64;
    let curve = |(i, name): (usize, &String)| Curve {
        name: name.clone(),
        points: done.iter().map(|(p, n)| (sweep.point(*p), n[i] as f64 / sets)).collect(),
        ..Curve::default()
    };
    let cpus = f64::from(sweep.cpus);
    let (from, to) = (sweep.utilization.from, sweep.utilization.to);
    let panel = Panel {
        title: format!("success ratio, {}, {} CPUs, {sets} sets a point", jury.world(), sweep.cpus),
        axes: ("utilization of a set, CPUs".into(), "accepted".into()),
        x: (from.min(cpus), to.max(cpus) + 0.05),
        y: (0.0, 1.02),
        curves: names.iter().enumerate().map(curve).collect(),
        limit: Some((cpus, "U = m: the limit".into())),
        ..Panel::default()
    };
    let svg = panels(&[panel])?;
    output::write(plot, |out| out.write_all(svg.as_bytes()))
}

fn table(sweep: &Sweep, jury: &Jury, names: &[String], done: &Points) -> String {
    let sets = jury.sets(sweep.sets);
    let (world, cpus) = (jury.world(), sweep.cpus);
    let mut text = format!("success ratio ({world}), {sets} sets a point, {cpus} CPUs\n");
    let _ = write!(text, "{:>6}", "U");
    for name in names {
        let _ = write!(text, " {name:>12}");
    }
    text.push('\n');
    for (point, counts) in done {
        let _ = write!(text, "{:>6.3}", sweep.point(*point));
        for count in counts {
            let _ = write!(text, " {:>12.3}", *count as f64 / sets as f64);
        }
        text.push('\n');
    }
    text
}

fn object(sweep: &Sweep, jury: &Jury, names: &[String], done: &Points) -> String {
    let sets = jury.sets(sweep.sets);
    let ratio = |counts: &Vec<u64>| -> serde_json::Map<String, serde_json::Value> {
        let of = |count: &u64| json!(*count as f64 / sets as f64);
        names.iter().zip(counts).map(|(name, count)| (name.to_string(), of(count))).collect()
    };
    let points: Vec<_> = done
        .iter()
        .map(
            |(point, counts)| json!({"utilization": sweep.point(*point), "success": ratio(counts)}),
        )
        .collect();
    format!(
        "{:#}\n",
        json!({"world": jury.world(), "cpus": sweep.cpus, "sets": sets, "points": points})
    )
}
