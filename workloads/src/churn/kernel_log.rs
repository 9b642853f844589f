// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's log from now on: read often, for CPUs that come and go fill it quickly.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

/// Words that must not appear.
const BAD: [&str; 8] = [
    "stall",
    "WARNING:",
    "BUG:",
    "Oops",
    "hung",
    "blocked for more",
    "disabled due to",
    "runtime error",
];
/// Lines kept for the story.
const KEPT: usize = 60;

/// `/dev/kmsg`, from where it was when this was made.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    last: VecDeque<String>,
    bad: bool,
}

impl KernelLog {
    /// Starts to listen.
    pub fn open() -> Result<Self> {
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let mut file = file.context("cannot read the kernel's log")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, last: VecDeque::new(), bad: false })
    }

    /// Reads what is new; whether all of it so far is as it should be.
    pub fn is_clean(&mut self) -> Result<bool> {
        let mut record = vec![0; 8192];
        loop {
            let length = match self.file.read(&mut record) {
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(!self.bad),
                // Messages were overwritten before we read them: go on with the oldest left.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => continue,
                Err(e) => return Err(e).context("cannot read the kernel's log"),
            };
            let text = String::from_utf8_lossy(&record[..length]);
            let message = text.split_once(';').map_or(&*text, |(_, message)| message);
            self.add(message.lines().next().unwrap_or_default());
        }
    }

    fn add(&mut self, line: &str) {
        self.bad |= BAD.iter().any(|word| line.contains(word));
        self.last.push_back(line.into());
        // What led to the first bad line stays, and what follows from it.
        if self.last.len() > KEPT && !self.bad {
            self.last.pop_front();
        }
    }

    /// Its last lines.
    pub fn last_lines(&self) -> String {
        let lines: Vec<_> = self.last.iter().take(4 * KEPT).map(String::as_str).collect();
        lines.join("\n")
    }
}
