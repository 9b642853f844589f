// SPDX-License-Identifier: GPL-2.0-only
//! How far the guests are: a bar and a line for each guest when a human watches, else a plain line
//! now and then.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// At least so long between two plain lines.
const BETWEEN_LINES: Duration = Duration::from_secs(3);

/// Progress of everything.
pub struct Board {
    /// The bar of all works, and what draws all lines.
    bars: Option<(MultiProgress, ProgressBar)>,
    total: usize,
    done: AtomicUsize,
    last_line: Mutex<Option<Instant>>,
}

/// Progress of one guest.
pub struct Line<'a> {
    board: &'a Board,
    spinner: Option<ProgressBar>,
    name: String,
    ran: Once,
    /// Whether it ends without a word.
    left: bool,
}

impl Board {
    /// For that many works.
    pub fn new(total: usize) -> Self {
        let style = |text| ProgressStyle::with_template(text).expect("a sound template");
        let bars = stderr().is_terminal().then(|| {
            let bars = MultiProgress::new();
            let bar = bars.add(ProgressBar::new(total as u64));
            bar.set_style(style("{bar:40} {pos} of {len}, {elapsed}"));
            bar.enable_steady_tick(Duration::from_millis(500));
            (bars, bar)
        });
        Self { bars, total, done: AtomicUsize::new(0), last_line: Mutex::new(None) }
    }

    /// A work begins; it ends when the line is dropped.
    pub fn begin(&self, name: &str) -> Line<'_> {
        let spinner = self.bars.as_ref().map(|(bars, _)| {
            let spinner = bars.add(ProgressBar::new_spinner());
            spinner.set_prefix(name.to_owned());
            let style = ProgressStyle::with_template("  {prefix}: {msg}, {elapsed}");
            spinner.set_style(style.expect("a sound template"));
            spinner.enable_steady_tick(Duration::from_millis(500));
            spinner
        });
        Line { board: self, spinner, name: name.to_owned(), ran: Once::new(), left: false }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bars {
            Some((bars, _)) => bars.suspend(|| complain!("{line}")),
            None => complain!("{line}"),
        }
    }

    /// A line that is left out soon after another one unless it `must` be seen.
    fn plain(&self, line: &str, must: bool) {
        let mut told = self.last_line.lock().unwrap_or_else(|e| e.into_inner());
        if must || told.is_none_or(|told| told.elapsed() >= BETWEEN_LINES) {
            *told = Some(Instant::now());
            complain!("{line}");
        }
    }
}

impl Line<'_> {
    /// What is being done now, for a moment.
    pub fn show(&self, what: &str) {
        self.say(what, false);
    }

    /// The long part begins. Later calls change nothing.
    pub fn running(&self) {
        self.ran.call_once(|| self.say("running", true));
    }

    /// The work was stopped: it is not done, and whoever stopped it knows.
    pub fn leave(mut self) {
        self.left = true;
    }

    fn say(&self, what: &str, must: bool) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(what.to_owned());
            return;
        }
        let (done, total) = (self.board.done.load(Ordering::Relaxed), self.board.total);
        self.board.plain(&format!("{}: {what} ({done} of {total} done)", self.name), must);
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let more = usize::from(!self.left);
        let done = self.board.done.fetch_add(more, Ordering::Relaxed) + more;
        let total = self.board.total;
        match (&self.spinner, &self.board.bars) {
            (Some(spinner), Some((bars, bar))) => {
                spinner.finish_and_clear();
                bars.remove(spinner);
                bar.set_position(done as u64);
            }
            _ if self.left => (),
            _ => {
                let line = format!("{}: ended ({done} of {total} done)", self.name);
                self.board.plain(&line, done == total);
            }
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if let Some((_, bar)) = &self.bars {
            bar.finish_and_clear();
        }
    }
}
