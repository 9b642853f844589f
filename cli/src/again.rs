// SPDX-License-Identifier: GPL-2.0-only
//! `--seed`, `--duration` and `--repeat` of `onbeat sim` and `onbeat lab`: a task set with other random work, for
//! another time, or several times.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use clap::Args;
use onbeat_command::misuse;
use onbeat_model::taskset::{TaskSet, limits};
use onbeat_model::units::{format_duration, parse_duration};

use crate::means::Means;
use crate::output::{print, whole};
use crate::results::Results;

/// Repetitions that can be asked for.
const REPEAT_MOST: u64 = 10_000;

/// The options that say how often and for how long.
#[derive(Debug, Clone, Args)]
pub struct Again {
    /// Run for this long instead of the file's `duration`, such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    duration: Option<u64>,
    /// Run so often, with seeds one after the other, and show means with their 95 % confidence intervals (Student's t)
    #[arg(
        long,
        value_name = "N",
        value_parser = whole::<u32>(2..=REPEAT_MOST),
        allow_hyphen_values = true,
        conflicts_with_all = ["html", "trace", "detail"]
    )]
    pub repeat: Option<u32>,
}

impl Again {
    /// Gives the set another seed and duration, if these are asked for.
    ///
    /// # Errors
    /// The duration is too short or too long for it.
    pub fn change(&self, set: &mut TaskSet, seed: Option<u64>) -> Result<()> {
        set.seed = seed.unwrap_or(set.seed);
        let last = set.seed.checked_add(u64::from(self.repeat.unwrap_or(1)) - 1);
        ensure!(
            last.is_some_and(|last| last <= i64::MAX as u64),
            misuse(format!(
                "--repeat: seeds from {} on go beyond {}; give a smaller --seed",
                set.seed,
                i64::MAX
            ))
        );
        let Some(duration) = self.duration else { return Ok(()) };
        let shown = format_duration(duration);
        let wrong = |why: String| misuse(format!("--duration {shown}: {why}"));
        let most = format_duration(limits::TIME);
        ensure!(
            (1..=limits::TIME).contains(&duration),
            wrong(format!("give a time above 0 and up to {most}"))
        );
        set.duration = duration;
        if let Some(copy) = set.copies().find(|copy| copy.first_release >= duration) {
            let name = copy.name();
            bail!(wrong(format!("{name} is first released after that; give a longer one")));
        }
        let jobs = set.copies().map(|copy| copy.jobs * u64::from(copy.spec.threads));
        let jobs = jobs.sum::<u64>() + set.bursts();
        ensure!(
            jobs <= limits::JOBS,
            wrong(format!(
                "tasks would release {jobs} jobs, more than {}; give a shorter one",
                limits::JOBS
            ))
        );
        Ok(())
    }

    /// The set once for each repetition, with its seed.
    pub fn sets(&self, set: &TaskSet) -> Vec<TaskSet> {
        let seeds = (0..u64::from(self.repeat.unwrap_or(1))).map(|i| set.seed.wrapping_add(i));
        seeds.map(|seed| TaskSet { seed, ..set.clone() }).collect()
    }
}

/// Carries out `one` for each of the files, of several each with its name above; `named`: outputs are for one file.
/// None is begun once `cancel` is true.
///
/// # Errors
/// An output is for one file only, or what one file says cannot be done; the others are carried out all the same. Or it
/// was stopped, and some are left.
pub fn each_file(
    files: &[PathBuf],
    named: bool,
    json: bool,
    cancel: &AtomicBool,
    mut one: impl FnMut(&Path) -> Result<()>,
) -> Result<ExitCode> {
    if let [file] = files {
        return one(file).map(|()| ExitCode::SUCCESS);
    }
    ensure!(
        !named,
        misuse(
            "--html, --trace and --progress are for one task-set file; give one, or leave them out"
        )
    );
    let mut wrong = 0;
    for (i, file) in files.iter().enumerate() {
        if !json {
            print(&format!("{}{}:\n", if i > 0 { "\n" } else { "" }, file.display()))?;
        }
        if let Err(why) = one(file) {
            wrong += 1;
            // What is wrong within a file names it already.
            let (name, why) = (format!("{}:", file.display()), format!("{why:#}"));
            match why.starts_with(&name) {
                true => complain!("onbeat: {why}"),
                false => complain!("onbeat: {name} {why}"),
            }
        }
        let left = files.len() - i - 1;
        let stopped = left > 0 && cancel.load(Ordering::Relaxed);
        ensure!(!stopped, "stopped on request: {left} of {} files were not begun", files.len());
    }
    ensure!(wrong == 0, "{wrong} of {} files could not be carried out", files.len());
    Ok(ExitCode::SUCCESS)
}

/// Prints what came of runs of `set` with the seeds that follow its own.
///
/// # Errors
/// Some policies came to no end, or nothing can be printed.
pub fn show(set: &TaskSet, runs: &[Results], json: bool) -> Result<()> {
    let means = Means::of(set, runs);
    print(&if json { format!("{:#}\n", serde_json::to_value(&means)?) } else { means.text() })?;
    let failed: usize = runs.iter().map(|run| run.failures().count()).sum();
    ensure!(failed == 0, "{failed} runs came to no end");
    Ok(())
}
