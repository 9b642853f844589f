// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-play`: plays an H.264 movie without a screen, one job a picture.

use anyhow::{Result, ensure};
use clap::Parser;
use onbeat_model::units::parse_duration;
use onbeat_workloads::board::Plan;
use onbeat_workloads::exit_code;
use onbeat_workloads::movie::{Movie, visible_bytes};
use onbeat_workloads::pace::Seat;
use onbeat_workloads::{record, sys};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Plays an H.264 movie: decodes and converts one picture in every period, late ones too.
#[derive(Parser)]
#[command(name = "onbeat-play", version)]
struct Args {
    /// The movie
    movie: PathBuf,
    /// Time between two pictures
    #[arg(long, value_parser = parse_duration, default_value = "41ms")]
    period: u64,
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

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("\"{text}\" is not a size; write WIDTHxHEIGHT, 16x16 to 8192x8192");
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let side = |s: &str| s.parse().ok().filter(|n| (16..=8192).contains(n)).ok_or_else(wrong);
    Ok((side(width)?, side(height)?))
}

fn main() -> ExitCode {
    exit_code("onbeat-play", run(Args::parse()))
}

fn run(args: Args) -> Result<()> {
    let mut movie = Movie::open(&args.movie, args.size)?;
    let once = movie.pictures() as u64;
    if args.verify {
        let mut digest = md5::Context::new();
        for _ in 0..args.frames.unwrap_or(once) {
            visible_bytes(movie.decode()?, |bytes| digest.consume(bytes));
        }
        println!("MD5={:x}", digest.finalize());
        return Ok(());
    }
    if args.record {
        let times = record::frame_times(&mut movie, args.passes)?;
        let movie = args.movie.file_name().unwrap_or_default().to_string_lossy();
        print!("{}", record::trace(&movie, &times, args.passes, args.scale)?);
        return Ok(());
    }
    let alone = args.board.is_none();
    let seat = match (args.board, args.slot) {
        (Some(board), Some(slot)) => Seat::given(board, slot)?,
        _ => {
            ensure!(args.period > 0, "--period must be more than 0");
            let jobs = args.duration.map(|d| d.div_ceil(args.period)).or(args.frames);
            let work = vec![0; jobs.unwrap_or(once) as usize];
            Seat::alone(Plan { offset: 0, period: args.period, marks: args.marks, work })?
        }
    };
    // One picture touches all code and buffers; play then begins with the second.
    movie.show()?;
    seat.run_jobs(alone, |_, _| {
        movie.show()?;
        Ok(sys::thread_cpu())
    })?;
    if alone {
        println!("{}", seat.summary());
    }
    Ok(())
}
