// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat top`: reservations and CPUs, live in the terminal. Here are the terminal, the clock and the service; what is
//! shown is a pure function (`draw`) of a state (`state`), which keys and answers change.

mod ask;
mod columns;
mod draw;
mod state;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_client::socket;
use onbeat_kernel::machine;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::arguments::{Time, interval};
use crate::launch::service;
use ask::Asker;
use draw::draw;
use state::{Next, State};

/// How soon a signal, or an answer, is seen to.
const LOOK: Duration = Duration::from_millis(100);
/// From the first answer to the second: rates need two.
const SOON: Duration = Duration::from_millis(400);

/// Show reservations and CPUs live in the terminal
///
/// Keys are those of htop: h or F1 shows them, q or F10 ends it. Elsewhere than in a terminal use `onbeat status
/// --watch`.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat top")]
pub struct Options {
    /// Time between two looks
    #[arg(short, long, value_name = "INTERVAL", value_parser = interval, default_value = "1s")]
    delay: Time,
}

/// Shows them until the user has seen enough.
pub fn run(options: &Options) -> Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal; use `onbeat status --watch`");
    }
    // One that may come is waited for.
    if machine::hopeless().is_some() && !socket().exists() {
        drop(service()?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let asker = Asker::start(socket())?;
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(Duration::from_nanos(options.delay), colour);
    // It also sees to it that a panic gives the terminal back before it speaks.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let shown = show(&mut terminal, &mut state, &asker, &stop);
    let restored = ratatui::try_restore().context("cannot give the terminal back");
    shown.and(restored).map(|()| ExitCode::SUCCESS)
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    asker: &Asker,
    stop: &AtomicBool,
) -> Result<()> {
    let (mut due, mut waits, mut changed) = (Instant::now(), false, true);
    while !stop.load(Ordering::Relaxed) {
        match asker.answer() {
            Ok(seen) => {
                state.take(seen);
                (waits, changed) = (false, true);
            }
            Err(TryRecvError::Empty) => (),
            Err(TryRecvError::Disconnected) => bail!("nobody asks the service any more"),
        }
        if !waits && !state.paused && due <= Instant::now() {
            asker.ask();
            waits = true;
            due = Instant::now()
                + if state.has_rates() { state.delay } else { SOON.min(state.delay) };
        }
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw(frame, state)).context("cannot draw")?;
        }
        let patience = if waits || state.paused {
            LOOK
        } else {
            due.saturating_duration_since(Instant::now()).min(LOOK)
        };
        if !event::poll(patience).context("cannot read the terminal")? {
            continue;
        }
        changed = true;
        if let Event::Key(key) = event::read().context("cannot read the terminal")?
            && key.kind != KeyEventKind::Release
        {
            let size = terminal.size().context("cannot read the terminal's size")?;
            match state.key(key, draw::rows_of(state, size.into())) {
                Next::Go => (),
                Next::Look => due = Instant::now(),
                Next::Quit => break,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
