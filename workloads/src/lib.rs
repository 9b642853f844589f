// SPDX-License-Identifier: GPL-2.0-only
//! The `workloads` room of Onbeat: programs with deadlines to try schedulers on.
//!
//! - `onbeat-play` plays an H.264 movie ([`movie`]): one job a picture, or a decode and a display task ([`play`]).
//! - `onbeat-work` burns given amounts of CPU time, or all it can get ([`burn`]).
//! - `onbeat-srt` is late or not with varying jobs that nobody was told of, and says how often.
//! - `onbeat-runner` carries out one policy of a task set on this machine ([`runner`]).
//! - `onbeat-churn` gives a scheduler random trouble and looks for lost tasks ([`churn`]).
//!
//! The first four share [`pace`], which releases jobs on time, and [`board`], the shared memory
//! through which the runner tells them what to do and they tell what happened.

mod best_effort;
pub mod board;
pub mod burn;
pub mod churn;
pub mod movie;
pub mod pace;
pub mod play;
pub mod record;
pub mod runner;
pub mod sys;

/// How a program ends: the whole chain of an error on one line of stderr, and status 1.
pub fn exit_code(program: &str, result: anyhow::Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            match error.is::<onbeat_command::Misuse>() {
                true => onbeat_command::MISUSED.into(),
                false => std::process::ExitCode::FAILURE,
            }
        }
    }
}
