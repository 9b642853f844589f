// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-work`: a periodic process that burns exact amounts of CPU time, or a best-effort one.

use anyhow::{Context, Result, bail};
use clap::Parser;
use onbeat_command::{misuse, print};
use onbeat_model::units::parse_duration;
use onbeat_workloads::board::Plan;
use onbeat_workloads::burn::Jobs;
use onbeat_workloads::exit_code;
use onbeat_workloads::pace::Seat;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Burns a given amount of CPU time in every period, or all it can get.
#[derive(Parser)]
#[command(name = "onbeat-work", version)]
#[command(before_help = "Example: onbeat-work --period 40ms --work 10ms --duration 5s --mark")]
struct Args {
    /// Time between releases
    #[arg(long, value_parser = parse_duration, default_value = "41ms")]
    period: u64,
    /// CPU time of each job
    #[arg(long, value_parser = parse_duration, default_value = "20ms", conflicts_with = "hog")]
    work: u64,
    /// How long jobs are released, all of which are done however late; or a hog goes on
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    duration: u64,
    /// Take all CPU time there is instead
    #[arg(long)]
    hog: bool,
    /// Mark the end of each job for a reservation made with marks
    #[arg(long)]
    mark: bool,
    /// Start this program at the first release instead, in this process
    #[arg(last = true, requires = "board", hide = true)]
    program: Vec<String>,
    /// Descriptor of a runner's board
    #[arg(long, hide = true, requires = "slot")]
    board: Option<RawFd>,
    /// Place on that board
    #[arg(long, hide = true, requires = "board")]
    slot: Option<usize>,
    /// Do that place's bursts of best-effort work
    #[arg(long, hide = true, requires = "board", conflicts_with = "hog")]
    bursts: bool,
    /// Place there for what best effort had at the end of each second
    #[arg(long, hide = true, requires = "board")]
    seconds: Option<usize>,
    /// Place there of a further thread, which does jobs as the first (repeatable)
    #[arg(long, hide = true, requires = "board")]
    thread: Vec<usize>,
}

/// What is noted of each takes some 100 bytes.
const JOBS_MOST: u64 = 10_000_000;

fn main() -> ExitCode {
    exit_code("onbeat-work", run(onbeat_command::parse()))
}

fn run(args: Args) -> Result<()> {
    let alone = args.board.is_none();
    let seat = match (args.board, args.slot) {
        (Some(board), Some(slot)) => Seat::given(board, slot)?,
        _ => {
            if args.period == 0 {
                bail!(misuse("--period must be more than 0"));
            }
            let jobs = if args.hog { 0 } else { args.duration.div_ceil(args.period) };
            if jobs > JOBS_MOST {
                bail!(misuse(format!(
                    "{jobs} jobs are more than {JOBS_MOST}; give a shorter --duration or a longer --period"
                )));
            }
            let work = vec![args.work; jobs as usize];
            Seat::alone(Plan { period: args.period, marks: args.mark, work, ..Plan::default() })?
        }
    };
    if let Some((program, words)) = args.program.split_first() {
        if seat.wait_for_first_release() {
            let error = Command::new(program).args(words).exec();
            return Err(error).with_context(|| format!("cannot start {program}"));
        }
    } else if args.hog {
        let count = seat.hog(alone.then_some(args.duration), args.seconds);
        if alone {
            print(&format!("counted to {count}\n"))?;
        }
    } else if args.bursts {
        seat.bursts(args.seconds);
    } else {
        let seats: Vec<Seat> =
            args.thread.iter().map(|slot| seat.beside(*slot)).collect::<Result<_>>()?;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                seats.iter().map(|seat| scope.spawn(|| burn(seat, false))).collect();
            burn(&seat, alone)?;
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(_) => bail!("a thread has died"),
            })
        })?;
        if alone {
            print(&format!("{}\n", seat.summary()))?;
        }
    }
    Ok(())
}

/// Does the jobs of a place.
fn burn(seat: &Seat, alone: bool) -> Result<()> {
    let mut jobs = Jobs::calibrate();
    seat.run_jobs(alone, |job, begin| Ok(jobs.job(begin, job)))
}
