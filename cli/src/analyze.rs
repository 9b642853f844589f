// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat analyze`: does a task set fit, how late is it at most, and what would make it fit?

mod admit;
mod columns;
mod groups;
mod purses;
mod remarks;
mod shared;
mod tests;
mod verdict;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onbeat_analysis::registry::{TESTS, Test};
use onbeat_command::misuse;
use onbeat_kernel::machine::cpus_of;
use onbeat_model::policy::Policy;
use onbeat_model::taskset::{Part, TaskSet, limits};
use serde_json::{Value, json};

use crate::kind::{self, Kind};
use crate::output::print;
use tests::Judgement;
use verdict::Verdict;

/// Exit status of a set that does not fit, or is not proven to.
const DOES_NOT_FIT: u8 = 3;

/// Say whether a task set fits, how late its jobs are at most, or what to change
///
/// The verdict is on all policies that the file names, beside best effort's share. A task counts with its budget, and
/// so does a group for its members, of which is said whether the group's budget is enough for them; of purses, whether
/// they make anybody wait. What is said is proven; "?" means that no test can tell. Exit status: 0 it fits, perhaps
/// with a bound on how late jobs are; 3 it does not, or is not proven to; 1 a file cannot be used. With --admit the
/// service's own admission test is asked, too.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat analyze system.toml")]
pub struct Options {
    /// Task-set files, `-` for standard input; of several each gets a line
    #[arg(required_unless_present = "list", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A policy instead of those that the file names (repeatable)
    #[arg(long = "policy", value_name = "P")]
    policies: Vec<Policy>,
    /// What every schedulability test says, too, on whole CPUs, with its bounds for each task
    #[arg(long)]
    all: bool,
    /// The same of this test alone (repeatable)
    #[arg(long = "test", value_name = "T", value_parser = tests::named)]
    tests: Vec<&'static Test>,
    /// List the tests and their sources
    #[arg(long, conflicts_with_all = ["json", "jsonl", "files", "tests", "all", "policies"])]
    list: bool,
    /// Say also what the service would answer to these tasks, in the file's order, under this policy; tests then take
    /// deadlines as the service serves them
    #[arg(long, value_name = "POLICY")]
    admit: Option<Policy>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,
    /// Print one JSON object a line, for each file
    #[arg(long)]
    jsonl: bool,
}

/// Carries out the verb.
///
/// # Errors
/// A file is bad, or there is no such test.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        let lines: Vec<String> =
            TESTS.iter().map(|t| format!("{:<20} {}\n", t.name, t.about)).collect();
        print(&lines.concat())?;
        return Ok(ExitCode::SUCCESS);
    }
    let several = options.files.len() > 1;
    ensure!(
        !(several && options.json),
        misuse("--json is one object; give one file, or --jsonl for several")
    );
    let (mut bounded, mut wrong) = (true, 0);
    for file in &options.files {
        // One that is wrong keeps nobody else from an answer.
        let (text, fits) = match one(options, file, several) {
            Ok(answer) => answer,
            Err(why) if several || options.jsonl => {
                wrong += 1;
                let why = format!("{why:#}");
                complain!("onbeat analyze: {why}");
                (
                    if options.jsonl {
                        line(file, &json!({ "error": why }))
                    } else {
                        String::new()
                    },
                    true,
                )
            }
            Err(why) => return Err(why),
        };
        bounded &= fits;
        print(&text)?;
    }
    ensure!(wrong == 0, "{wrong} of {} files could not be analysed", options.files.len());
    Ok(if bounded { ExitCode::SUCCESS } else { ExitCode::from(DOES_NOT_FIT) })
}

/// One object of many.
fn line(file: &Path, object: &Value) -> String {
    let mut all = json!({ "file": file.display().to_string() });
    if let (Some(all), Some(object)) = (all.as_object_mut(), object.as_object()) {
        all.extend(object.clone());
    }
    format!("{all}\n")
}

/// What is to be printed of a file, and whether lateness has a bound.
fn one(options: &Options, file: &Path, several: bool) -> Result<(String, bool)> {
    let set = load(file)?;
    shared::no_waiting(&set)?;
    if onbeat_analysis::verdict::names(&set).is_empty() {
        bail!(
            "{}: no task has a budget, so nobody knows how long jobs take; add budget to those that are to be in time",
            file.display()
        );
    }
    let policies = if options.policies.is_empty() { &set.policies } else { &options.policies };
    let said = Verdict::of(&set, policies);
    let bounded = said.fits().bounded();
    if several && !options.jsonl && !options.all && options.tests.is_empty() {
        return Ok((format!("{}: {}\n", file.display(), said.line()), bounded));
    }
    let admitted = options.admit.as_ref().map(|policy| admit::admit(&set, policy)).transpose()?;
    let judged = judgements(&set, options)?;
    if options.json || options.jsonl {
        let mut objects = judged.iter().map(Judgement::object);
        let mut object = match set.sets.is_empty() {
            true => objects.next().unwrap_or_default(),
            false => json!({ "name": set.name, "sets": objects.collect::<Value>() }),
        };
        if let (Some(all), Value::Object(verdict)) = (object.as_object_mut(), said.object()) {
            all.extend(verdict);
        }
        if let Some(admitted) = &admitted {
            object["admission"] = admitted.object();
        }
        let text = if options.json { format!("{object:#}\n") } else { line(file, &object) };
        return Ok((text, bounded));
    }
    let head = if several { format!("{}: ", file.display()) } else { String::new() };
    let each = if options.all { said.each() } else { String::new() };
    let tables: String = judged.iter().map(Judgement::table).collect();
    let admitted = admitted.map_or(String::new(), |admitted| admitted.table());
    let tested = options.all || !options.tests.is_empty();
    let text = head + &said.text(&set) + &each + &tables + &admitted;
    Ok((text + &remarks::remarks(&set, tested), bounded))
}

/// The set of that file, or of standard input.
fn load(file: &Path) -> Result<TaskSet> {
    if file != Path::new("-") {
        return TaskSet::load(file).map_err(|why| kind::instead(file, Kind::TaskSet, why.into()));
    }
    let mut bytes = Vec::new();
    let most = limits::FILE_BYTES + 1;
    std::io::stdin().take(most).read_to_end(&mut bytes).context("cannot read standard input")?;
    ensure!(
        (bytes.len() as u64) < most,
        "standard input is too long for a task-set file; give a smaller one"
    );
    Ok(TaskSet::from_bytes(&bytes, Path::new("stdin"))?)
}

/// What tests say of the set, or of each of its sets of CPUs, which are machines of their own.
fn judgements(set: &TaskSet, options: &Options) -> Result<Vec<Judgement>> {
    if set.sets.is_empty() {
        return Ok(vec![Judgement::of(set, options)?]);
    }
    let parts = set.parts().into_iter().enumerate().map(|(i, part)| (part, set.alone(i)));
    let parts = parts.filter(|(_, alone)| !alone.tasks.is_empty());
    let judged = |(part, alone): (Part, TaskSet)| {
        Judgement::of(&alone, options).map(|judged| judged.on(&cpus_of(part.cpus)))
    };
    parts.map(judged).collect()
}
