// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-play`: plays an H.264 movie, on a screen or without one.

use anyhow::{Result, ensure};
use clap::Parser;
use onbeat_command::print;
use onbeat_model::units::parse_duration;
use onbeat_workloads::board::Plan;
use onbeat_workloads::exit_code;
use onbeat_workloads::movie::{Movie, visible_bytes};
use onbeat_workloads::pace::Seat;
use onbeat_workloads::play::reserve::Budgets;
use onbeat_workloads::play::screen::{Display, Screen};
use onbeat_workloads::play::{Wish, play};
use onbeat_workloads::{record, sys};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Plays an H.264 movie
///
/// With --display, a decode task and a display task with a queue of frames in between, which reserve CPU time for
/// themselves if a service runs; else one task without a screen, which decodes and converts a picture in every period,
/// late ones too.
#[derive(Parser)]
#[command(name = "onbeat-play", version)]
#[command(before_help = "Example: onbeat-play --display window film.mkv")]
struct Args {
    /// The movie
    movie: PathBuf,
    /// Show the pictures
    #[arg(long, value_enum, conflicts_with_all = ["marks", "verify", "record", "board"])]
    display: Option<Display>,
    /// How many frames may wait between decoding and display (`onbeat provision` says how many it takes)
    #[arg(long, requires = "display", default_value_t = 8, allow_hyphen_values = true)]
    queue: u64,
    /// What the decode task reserves in every period [default: half of it]
    #[arg(long, requires = "display", value_parser = parse_duration)]
    decode_budget: Option<u64>,
    /// What the display task reserves in every period [default: a tenth of it]
    #[arg(long, requires = "display", value_parser = parse_duration)]
    display_budget: Option<u64>,
    /// Reserve nothing, also if a service runs
    #[arg(long, requires = "display", conflicts_with_all = ["decode_budget", "display_budget"])]
    no_reservation: bool,
    /// Print the figures as one JSON object
    #[arg(long, requires = "display")]
    json: bool,
    /// Time between two pictures [default: the movie's own with --display, else 41ms]
    #[arg(long, value_parser = parse_duration)]
    period: Option<u64>,
    /// Size to show the pictures at, as 960x540 [default: the movie's own]
    #[arg(long, value_parser = parse_size)]
    size: Option<(u32, u32)>,
    /// How many pictures to play; the movie loops [default: the movie once]
    #[arg(long, conflicts_with = "duration")]
    frames: Option<u64>,
    /// How long to play; the movie loops
    #[arg(long, value_parser = parse_duration)]
    duration: Option<u64>,
    /// Mark the end of each job for a reservation made with marks
    #[arg(long)]
    marks: bool,
    /// Instead of playing, print the MD5 of all decoded pictures, as `ffmpeg -f md5` does
    #[arg(long)]
    verify: bool,
    /// Instead of playing, record the CPU time of each picture as a trace on stdout
    #[arg(long, conflicts_with = "verify")]
    record: bool,
    /// With --record: scale to the shape of the movie of Kato et al. (experiments/traces)
    #[arg(long, requires = "record")]
    scale: bool,
    /// With --record: best of how many passes
    #[arg(long, requires = "record", default_value_t = 9)]
    passes: u32,
    /// Descriptor of a runner's board
    #[arg(long, hide = true, requires = "slot")]
    board: Option<RawFd>,
    /// Place on that board
    #[arg(long, hide = true, requires = "board")]
    slot: Option<usize>,
}

/// Time between two pictures unless told, ns.
const PERIOD: u64 = 41_000_000;

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("\"{text}\" is not a size; write WIDTHxHEIGHT, 16x16 to 8192x8192");
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let side = |s: &str| s.parse().ok().filter(|n| (16..=8192).contains(n)).ok_or_else(wrong);
    Ok((side(width)?, side(height)?))
}

fn main() -> ExitCode {
    exit_code("onbeat-play", run(onbeat_command::parse()))
}

/// Jobs or pictures that `--duration` and `--frames` ask for.
fn count(args: &Args, period: u64) -> Option<u64> {
    args.duration.map(|d| d.div_ceil(period)).or(args.frames)
}

fn run(args: Args) -> Result<()> {
    ensure!(args.period != Some(0), "--period must be more than 0");
    let nothing = args.frames == Some(0) || args.duration == Some(0);
    ensure!(!nothing, "there is nothing to play; give --frames or --duration more than 0");
    if let Some(display) = args.display {
        return watch(&args, display);
    }
    let period = args.period.unwrap_or(PERIOD);
    let mut movie = Movie::open(&args.movie, args.size)?;
    let once = movie.pictures() as u64;
    if args.verify {
        let mut digest = md5::Context::new();
        for _ in 0..args.frames.unwrap_or(once) {
            visible_bytes(movie.decode()?, |bytes| digest.consume(bytes));
        }
        print(&format!("MD5={:x}\n", digest.finalize()))?;
        return Ok(());
    }
    if args.record {
        let times = record::frame_times(&mut movie, args.passes)?;
        let movie = args.movie.file_name().unwrap_or_default().to_string_lossy();
        print(&record::trace(&movie, &times, args.passes, args.scale)?)?;
        return Ok(());
    }
    let alone = args.board.is_none();
    let seat = match (args.board, args.slot) {
        (Some(board), Some(slot)) => Seat::given(board, slot)?,
        _ => {
            let work = vec![0; count(&args, period).unwrap_or(once) as usize];
            Seat::alone(Plan { period, marks: args.marks, work, ..Plan::default() })?
        }
    };
    // One picture touches all code and buffers; play then begins with the second.
    movie.show()?;
    seat.run_jobs(alone, |_, _| {
        movie.show()?;
        Ok(sys::thread_cpu())
    })?;
    if alone {
        print(&format!("{}\n", seat.summary()))?;
    }
    Ok(())
}

/// Plays for somebody to watch.
fn watch(args: &Args, display: Display) -> Result<()> {
    let movie = Movie::salvage(&args.movie, args.size)?;
    let period = args.period.or(movie.period()).unwrap_or(PERIOD);
    let due = count(args, period).unwrap_or(movie.pictures() as u64);
    ensure!(due > 0, "there is nothing to play; give --frames or --duration more than 0");
    let budgets = (!args.no_reservation).then(|| Budgets {
        decode: args.decode_budget.unwrap_or(period / 2),
        display: args.display_budget.unwrap_or(period / 10),
    });
    let wish = Wish { period, due, queue: args.queue, budgets };
    let title = args.movie.file_name().unwrap_or_default().to_string_lossy();
    // An impossible queue is told of before a window opens.
    wish.check(movie.size())?;
    let screen = Screen::open(display, movie.size(), &title)?;
    let played = play(movie, screen, &wish)?;
    if args.json {
        print(&format!("{}\n", played.json()))?;
    } else {
        print(&format!("{}\n", played.text()))?;
    }
    if let Some(damage) = played.damage.text() {
        eprintln!("onbeat-play: {damage}");
    }
    ensure!(played.tally.displayed > 0, "nothing could be played");
    Ok(())
}
