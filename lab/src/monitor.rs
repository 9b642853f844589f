// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's monitor, the one for humans: a prompt, a line to it, an answer.
//!
//! Not the one for machines (QMP): that lives in a thread of its own, and then every step of virtual time
//! of an idle guest wakes a thread and waits for another, which makes idle guests several times slower.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const POLL: Duration = Duration::from_millis(5);
const PROMPT: &str = "(qemu) ";

/// Fails when what is going on shall end.
pub type Stop<'a> = &'a dyn Fn() -> Result<()>;

/// One end of the control channel.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    greeted: bool,
}

impl Monitor {
    /// Takes our end of the channel.
    pub fn new(stream: UnixStream) -> Self {
        Monitor { stream, greeted: false }
    }

    /// Sends a command and returns what it prints.
    ///
    /// # Errors
    /// When QEMU refuses, or is gone.
    pub fn command(&mut self, line: &str) -> Result<String> {
        if !self.greeted {
            self.until_prompt()?;
            self.greeted = true;
        }
        self.stream.write_all(format!("{line}\n").as_bytes()).context("QEMU has gone")?;
        let said = self.until_prompt()?;
        let answer = printed(&said);
        if let Some(error) = answer.lines().find_map(|line| line.strip_prefix("Error: ")) {
            bail!("QEMU refuses `{line}`: {error}");
        }
        Ok(answer.to_owned())
    }

    /// Asks with `line` again and again until the status in the answer is one of `wanted`.
    ///
    /// # Errors
    /// When that takes longer than `limit`, `stop` says so, or QEMU has gone.
    pub fn await_status(
        &mut self,
        line: &str,
        wanted: &[&str],
        limit: Duration,
        stop: Stop,
    ) -> Result<String> {
        let start = Instant::now();
        loop {
            let answer = self.command(line)?;
            let status = status(&answer);
            if wanted.contains(&status) {
                return Ok(answer);
            }
            stop()?;
            if start.elapsed() > limit {
                bail!("QEMU's `{line}` stays at `{status}`");
            }
            sleep(POLL);
        }
    }

    fn until_prompt(&mut self) -> Result<String> {
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while !said.ends_with(PROMPT.as_bytes()) {
            let count = self.stream.read(&mut buffer).context("QEMU has gone")?;
            if count == 0 {
                bail!("QEMU has gone");
            }
            said.extend_from_slice(&buffer[..count]);
        }
        said.truncate(said.len() - PROMPT.len());
        Ok(String::from_utf8_lossy(&said).replace('\r', ""))
    }
}

/// What a command printed: all behind the line that echoes it.
fn printed(said: &str) -> &str {
    said.split_once('\n').map_or("", |(_, answer)| answer)
}

/// The status an answer tells, like `completed`; of a machine that was stopped the reason, like
/// `watchdog`.
pub fn status(answer: &str) -> &str {
    let told = answer.lines().find_map(|line| line.split_once("tatus:"));
    let told = told.map_or("", |(_, told)| told.trim());
    match told.split_once('(') {
        Some((_, reason)) => reason.trim_end_matches(')'),
        None => told,
    }
}

/// `text` as one argument.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_echo_of_a_command_is_not_its_answer() {
        let said = "i\u{1b}[K\u{1b}[Din\u{1b}[Kinfo status\u{1b}[K\nVM status: paused (watchdog)\n";
        assert_eq!(printed(said), "VM status: paused (watchdog)\n");
        assert_eq!(printed("cont\n"), "");
    }

    #[test]
    fn a_status_is_read_as_several_qemus_write_it() {
        assert_eq!(status("VM status: paused (watchdog)\n"), "watchdog");
        assert_eq!(status("VM status: running\n"), "running");
        assert_eq!(
            status("globals:\nMigration status: completed\ntotal time: 8 ms\n"),
            "completed"
        );
        assert_eq!(status("Status: \t\tactive\nTime (ms):\n"), "active");
        assert_eq!(status("nothing is known\n"), "");
    }

    #[test]
    fn a_path_with_quotes_and_blanks_stays_one_argument() {
        assert_eq!(quoted(r#"file:/a b/"c\d"#), r#""file:/a b/\"c\\d""#);
    }

    #[test]
    fn a_refusal_and_a_qemu_that_dies_are_errors() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let qemu = std::thread::spawn(move || {
            theirs.write_all(b"QEMU monitor\r\n(qemu) ").unwrap();
            let mut line = [0; 5];
            theirs.read_exact(&mut line).unwrap();
            theirs.write_all(b"cont\r\nError: no\r\n(qemu) ").unwrap();
        });
        let mut monitor = Monitor::new(ours);
        assert!(monitor.command("cont").unwrap_err().to_string().ends_with("`cont`: no"));
        qemu.join().unwrap();
        assert_eq!(monitor.command("cont").unwrap_err().to_string(), "QEMU has gone");
    }
}
