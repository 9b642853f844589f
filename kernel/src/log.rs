// SPDX-License-Identifier: GPL-2.0-only
//! What is said on standard error. A thread of its own writes it, so that reservations are served on when the
//! reader is slow, stopped or gone.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait for a slow reader; more are dropped.
const WAITING: usize = 1024;
/// How long the end waits for the last lines to be written.
const LAST: Duration = Duration::from_secs(1);

static LINES: OnceLock<SyncSender<Line>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Line {
    Text(String),
    /// To be answered when all before is written.
    Written(SyncSender<()>),
}

/// Says `text`, which ends its own lines; returns at once.
pub fn raw(text: String) {
    let lines = LINES.get_or_init(|| {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::spawn(move || write(&receiver, std::io::stderr()));
        sender
    });
    if lines.try_send(Line::Text(text)).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Says a line as this program's.
pub fn say(text: impl std::fmt::Display) {
    raw(format!("scx_onbeat: {text}\n"));
}

/// Waits, not for ever, until all is written.
pub fn flush() {
    let Some(lines) = LINES.get() else { return };
    let (sender, receiver) = sync_channel(1);
    if lines.try_send(Line::Written(sender)).is_ok() {
        let _ = receiver.recv_timeout(LAST);
    }
}

fn write(lines: &Receiver<Line>, mut to: impl Write) {
    while let Ok(line) = lines.recv() {
        // Nothing is left to be done for a reader that has gone.
        let _ = match line {
            Line::Text(text) => to.write_all(text.as_bytes()),
            Line::Written(sender) => sender.send(()).map_err(std::io::Error::other),
        };
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let _ = writeln!(to, "scx_onbeat: {dropped} messages were dropped: nobody read them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails as a pipe whose reader has gone.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_does_not_end_the_writing() {
        let (sender, receiver) = sync_channel(2);
        let writer = std::thread::spawn(move || write(&receiver, Broken));
        sender.send(Line::Text("lost\n".into())).unwrap();
        let (asked, answer) = sync_channel(1);
        sender.send(Line::Written(asked)).unwrap();
        answer.recv().unwrap();
        drop(sender);
        writer.join().unwrap();
    }
}
