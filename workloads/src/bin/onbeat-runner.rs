// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-runner`: carries out one policy of a task set on this machine.

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use onbeat_model::policy::Policy;
use onbeat_model::run::World;
use onbeat_model::taskset::TaskSet;
use onbeat_workloads::exit_code;
use onbeat_workloads::runner::{self, Options};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Carries out one policy of a task set on this machine and writes down what happened.
#[derive(Parser)]
#[command(name = "onbeat-runner", version)]
#[command(before_help = "Example: onbeat-runner system.toml --policy eevdf --out run.json")]
struct Args {
    /// The task set: a TOML file, or the JSON of a task set already read (`.json`)
    task_set: PathBuf,
    /// The policy; it need not be in the file's list
    #[arg(long)]
    policy: Policy,
    /// Where to write the run
    #[arg(long)]
    out: PathBuf,
    /// What to call this machine in the result
    #[arg(long, value_enum, default_value = "live")]
    world: Place,
    /// Folder with the movies
    #[arg(long, default_value = ".cache/movies")]
    movies: PathBuf,
    /// Folder with onbeat-work, onbeat-play and the schedulers [default: this program's own]
    #[arg(long)]
    programs: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Place {
    Live,
    Lab,
}

fn main() -> ExitCode {
    exit_code("onbeat-runner", run(onbeat_command::parse::<Args>()))
}

fn run(args: Args) -> Result<()> {
    let set = load(&args.task_set)?;
    let programs = match args.programs {
        Some(folder) => folder,
        None => std::env::current_exe()?.parent().unwrap_or(Path::new("/")).into(),
    };
    let world = match args.world {
        Place::Live => World::Live,
        Place::Lab => World::Lab,
    };
    // Known to be writable before the work, not after it.
    let place = || format!("cannot write {}", args.out.display());
    let file = File::create(&args.out).with_context(place)?;
    let result =
        runner::run(&Options { set, policy: args.policy, world, movies: args.movies, programs })
            .and_then(|run| {
                let mut out = BufWriter::new(file);
                run.write_to(&mut out).and_then(|()| out.flush()).with_context(place)
            });
    if result.is_err() {
        // Half a run is none.
        let _ = fs::remove_file(&args.out);
    }
    result
}

fn load(path: &Path) -> Result<TaskSet> {
    if path.extension().is_some_and(|e| e == "json") {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return serde_json::from_slice(&text)
            .with_context(|| format!("{} is not the JSON of a task set", path.display()));
    }
    Ok(TaskSet::load(path)?)
}
