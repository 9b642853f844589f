// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's control channel (QMP): one JSON object a line, in both directions.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(5);

/// Fails when what is going on shall end.
pub type Stop<'a> = &'a dyn Fn() -> Result<()>;

/// One end of the control channel.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    ready: bool,
}

impl Qmp {
    /// Takes our end of the channel.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let lines = BufReader::new(stream.try_clone()?);
        Ok(Qmp { stream, lines, ready: false })
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// When QEMU refuses, or is gone.
    pub fn command(&mut self, name: &str, arguments: Value) -> Result<Value> {
        if !self.ready {
            self.receive().context("no greeting from QEMU")?;
            self.ready = true;
            self.command("qmp_capabilities", json!({}))?;
        }
        let line = json!({ "execute": name, "arguments": arguments }).to_string() + "\n";
        self.stream.write_all(line.as_bytes()).context("QEMU has gone")?;
        loop {
            let mut answer = self.receive()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses `{name}`: {}", error["desc"].as_str().unwrap_or_default());
            }
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }

    /// Asks with `name` again and again until the answer's `status` is one of `wanted`.
    ///
    /// # Errors
    /// When that takes longer than `limit`, `stop` says so, or QEMU has gone.
    pub fn await_status(
        &mut self,
        name: &str,
        wanted: &[&str],
        limit: Duration,
        stop: Stop,
    ) -> Result<Value> {
        let start = Instant::now();
        loop {
            let answer = self.command(name, json!({}))?;
            if answer["status"].as_str().is_some_and(|status| wanted.contains(&status)) {
                return Ok(answer);
            }
            stop()?;
            if start.elapsed() > limit {
                bail!("QEMU's `{name}` stays at {}", answer["status"]);
            }
            sleep(POLL);
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.lines.read_line(&mut line).context("QEMU has gone")? == 0 {
            bail!("QEMU has gone");
        }
        serde_json::from_str(&line).context("QEMU talks nonsense")
    }
}
