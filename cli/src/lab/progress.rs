// SPDX-License-Identifier: GPL-2.0-only
//! How far the guests are: bars when a human watches, a line now and then otherwise.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// At least so long between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(3);

/// Progress of all guests.
pub struct Board {
    bars: Option<MultiProgress>,
    last_line: Mutex<Option<Instant>>,
}

/// Progress of one guest.
pub struct Guest<'a> {
    board: &'a Board,
    bar: Option<ProgressBar>,
    name: String,
    policies: usize,
}

impl Board {
    /// One that shows nothing yet.
    pub fn new() -> Self {
        let watched = stderr().is_terminal();
        Self { bars: watched.then(MultiProgress::new), last_line: Mutex::new(None) }
    }

    /// A guest is about to start.
    pub fn guest(&self, name: &str, policies: usize) -> Guest<'_> {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new(policies as u64));
            let style = "{prefix:<16} {bar:24} {pos:>2}/{len} {msg:<20} {elapsed}";
            bar.set_style(ProgressStyle::with_template(style).expect("a sound template"));
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let guest = Guest { board: self, bar, name: name.to_owned(), policies };
        guest.show(0, "booting");
        guest
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Guest<'_> {
    /// So many policies are done, and this is being done.
    pub fn show(&self, done: usize, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
            return;
        }
        let mut last = self.board.last_line.lock().unwrap_or_else(|e| e.into_inner());
        if last.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
            *last = Some(Instant::now());
            eprintln!("{}: {done}/{} {what}", self.name, self.policies);
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
