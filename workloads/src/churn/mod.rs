// SPDX-License-Identifier: GPL-2.0-only
//! Does to a scheduler, at random, all that can be done to one, and looks whether any task is lost.
//!
//! The conductor (SCHED_FIFO 99, so that no scheduler under test can hold it up) keeps a troop of
//! children and in every step does something to one of them, to a CPU or to `scx_onbeat`. Each
//! child counts its own heartbeats in shared memory: one that could run and does not beat for
//! [`PATIENCE`] is lost. Needs root; meant for the lab, where the same seed gives the same run.

mod attacks;
mod board;
mod conductor;
mod hang;
mod kernel_log;
mod player;
mod roles;
mod scheduler;
mod swap;

use anyhow::Result;
use clap::Args;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// A child that could run and has not beaten for so long is lost. A heartbeat of the idle class takes several waits of
/// seconds each; a single one of 10 s is found by the kernel's watchdog.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// What to do, and for how long.
#[derive(Debug, Args)]
pub struct Options {
    /// How long, without the time that the scheduler takes to load
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    seconds: u64,
    /// The same seed does the same things
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Children at a time
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(2..=1000))]
    tasks: u16,
    /// Longest pause between two acts
    #[arg(long, default_value_t = 5, value_name = "MS")]
    pause: u64,
    /// Only this policy, not one at random at every load
    #[arg(long)]
    policy: Option<String>,
    /// End after so many swaps of policies and of best effort's order, all policies loaded, on two sets of CPUs
    #[arg(long, default_value_t = 0, value_name = "N")]
    swaps: u64,
    /// No CPU goes off line
    #[arg(long)]
    no_hotplug: bool,
    /// The scheduler is not reloaded
    #[arg(long)]
    no_reload: bool,
    /// Only moderate nice values, no SCHED_IDLE
    #[arg(long)]
    tame: bool,
    /// Say every act
    #[arg(long)]
    verbose: bool,
    /// Say every so many seconds how far it is
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    progress: u64,
    /// Where the scheduler writes what it has to say
    #[arg(long, default_value = "/tmp/onbeat-churn.log", value_name = "FILE")]
    log: PathBuf,
    /// What a child does
    #[arg(long, hide = true, requires = "board")]
    role: Option<String>,
    /// A child's first slot
    #[arg(long, hide = true, default_value_t = 0)]
    slot: usize,
    /// Descriptor of the board
    #[arg(long, hide = true)]
    board: Option<RawFd>,
}

/// Plays a child's role if told so, else conducts.
///
/// # Errors
/// A task was lost, the scheduler ended, the kernel complained, or something could not be done;
/// the error tells the story.
pub fn carry_out(options: Options) -> Result<()> {
    match (&options.role, options.board) {
        (Some(role), Some(board)) => roles::play(role, board, options.slot, options.seed),
        _ => conductor::conduct(options),
    }
}

/// CPUs that can be there. Asked for once: the answer is read from `/sys`, whose lock a CPU that comes or goes needs,
/// too, and children of nice 19 that ask all the time would keep it waiting for them.
fn cpus() -> u32 {
    static CPUS: OnceLock<u32> = OnceLock::new();
    // SAFETY: takes a number.
    *CPUS.get_or_init(|| (unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).max(1) as u32)
}
