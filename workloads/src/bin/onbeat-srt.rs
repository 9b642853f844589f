// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-srt`: a soft real-time process that reserves nothing and says nothing to anybody, as `srtsim` in Banachowski
//! and Brandt, "Better real-time response for time-share scheduling", WPDRTS 2003: a frame is due every period, frames
//! vary, and what counts is how many were late.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use onbeat_command::{misuse, print};
use onbeat_model::taskset::Work;
use onbeat_model::units::{Fraction, HOUR, MS, parse_duration, parse_percent};
use onbeat_model::workgen::WorkGen;
use onbeat_workloads::board::Plan;
use onbeat_workloads::burn::Jobs;
use onbeat_workloads::exit_code;
use onbeat_workloads::pace::Seat;

/// Burns a varying amount of CPU time in every period and prints as JSON how many of these jobs were late
#[derive(Parser)]
#[command(name = "onbeat-srt", version)]
#[command(before_help = "Example: onbeat-srt --period 40ms --cpu 50% --duration 10s")]
struct Args {
    /// Time between releases, and until a job's deadline
    #[arg(long, value_parser = parse_duration, default_value = "40ms")]
    period: u64,
    /// Part of a CPU that jobs take on average
    #[arg(long, value_parser = parse_percent, default_value = "25%")]
    cpu: Fraction,
    /// Standard deviation of a job, in parts of the average; no job takes more than 1.5 times that
    #[arg(long, value_parser = parse_percent, default_value = "10%")]
    sd: Fraction,
    /// Finish jobs that are late, in place of giving them up at their deadlines
    #[arg(long)]
    finish: bool,
    /// How long jobs are released
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    duration: u64,
    /// Another one makes other jobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    exit_code("onbeat-srt", run(onbeat_command::parse()))
}

fn run(args: Args) -> Result<()> {
    let one = Fraction::from_integer(1);
    ensure!((MS..=HOUR).contains(&args.period), misuse("--period: give 1ms to 1h"));
    ensure!(
        (args.period..=HOUR).contains(&args.duration),
        misuse("--duration: give at least --period, for one job, and at most 1h")
    );
    ensure!(args.cpu <= one, misuse("--cpu: one thread has at most 100% of a CPU"));
    ensure!(args.sd <= one, misuse("--sd: give at most 100%"));
    let mean = (args.cpu * args.period).to_integer();
    ensure!(
        mean >= 2_000,
        misuse("--cpu: jobs would be shorter than 2us; give more, or a longer --period")
    );
    let sd = (args.sd * mean).to_integer();
    let work = Work::Normal { mean, sd, max: mean + mean / 2 };
    let jobs = args.duration.div_ceil(args.period) as usize;
    let work = WorkGen::new(&work, args.seed, 0, 0).into_iter().flatten().take(jobs).collect();
    let patience = if args.finish { 0 } else { args.period };
    let seat = Seat::alone(Plan { period: args.period, patience, work, ..Plan::default() })?;
    let mut burner = Jobs::calibrate();
    seat.run_jobs(true, |job, begin| Ok(burner.job(begin, job)))?;
    let ended = seat.ended();
    let object = serde_json::json!({
        "jobs": ended.jobs,
        "late": ended.late,
        "miss_ratio": ended.late as f64 / ended.jobs.max(1) as f64,
        "cpu_per_job_ms": ended.used as f64 / ended.jobs.max(1) as f64 / 1e6,
    });
    print(&format!("{object}\n"))?;
    Ok(())
}
