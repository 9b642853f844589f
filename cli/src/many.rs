// SPDX-License-Identifier: GPL-2.0-only
//! Many simulations on all processors, and how far they are.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// At least so long between two lines of progress where nobody watches a bar.
const BETWEEN_LINES: Duration = Duration::from_secs(2);

/// How many of them are done: a bar where somebody watches, else a line now and then. It goes when it is dropped.
pub struct Tally {
    verb: &'static str,
    what: &'static str,
    bar: ProgressBar,
    said: Mutex<Instant>,
}

impl Tally {
    /// For `total` of `what`, such as "runs", that `verb` has to do.
    pub fn new(verb: &'static str, total: u64, what: &'static str) -> Self {
        let target = match stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let style = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{eta}} left");
        bar.set_style(ProgressStyle::with_template(&style).expect("a sound template"));
        Self { verb, what, bar, said: Mutex::new(Instant::now()) }
    }

    /// There are so many more to do.
    pub fn more(&self, count: u64) {
        self.bar.inc_length(count);
    }

    /// One is done.
    pub fn add(&self) {
        self.bar.inc(1);
        let mut said = self.said.lock().unwrap_or_else(|e| e.into_inner());
        if self.bar.is_hidden() && said.elapsed() >= BETWEEN_LINES {
            *said = Instant::now();
            let (done, of) = (self.bar.position(), self.bar.length().unwrap_or(0));
            complain!("onbeat {}: {done} of {of} {} done", self.verb, self.what);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What comes of `one` for 0 to `count` − 1, begun in this order on all processors. None is begun after one that
/// failed, or once `cancel` is true.
pub fn on_all_processors<T: Send>(
    count: usize,
    cancel: &AtomicBool,
    one: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(count) {
            scope.spawn(|| {
                while let Some(i) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count)
                    && !failed.load(Ordering::Relaxed)
                    && !cancel.load(Ordering::Relaxed)
                {
                    let came = one(i);
                    failed.fetch_or(came.is_err(), Ordering::Relaxed);
                    *done[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(came);
                }
            });
        }
    });
    done.into_iter().map(|one| one.into_inner().unwrap_or_else(|e| e.into_inner())).collect()
}
