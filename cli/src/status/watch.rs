// SPDX-License-Identifier: GPL-2.0-only
//! What the service tells, again and again: for scripts, pipes, logs and terminals without `onbeat top`.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onbeat_client::socket;
use onbeat_model::protocol::{Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::launch::{ready, service};

/// Prints what `show` makes of an answer to `request` each `interval` until nobody reads it. A service that ends is
/// waited for.
///
/// # Errors
/// There is no service at the beginning, or standard output cannot be written.
pub fn watch(
    request: &Request,
    interval: Duration,
    show: impl Fn(Response) -> Result<String>,
) -> Result<()> {
    let mut service = Some(service()?);
    let mut due = Instant::now();
    loop {
        if service.is_none() {
            service = ready(&socket()).inspect(|_| complain!("onbeat: the service is back"));
        }
        if let Some(there) = &mut service {
            match there.ask(request) {
                Ok(answer) => {
                    if !said(&show(answer)?)? {
                        return Ok(());
                    }
                }
                Err(error) => {
                    complain!("onbeat: {error}; waiting for it");
                    service = None;
                }
            }
        }
        // Looks stay an interval apart, but none is made up for.
        due = (due + interval).max(Instant::now());
        if !read_until(due)? {
            return Ok(());
        }
    }
}

/// Writes it; whether somebody reads.
fn said(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
        Ok(()) => Ok(true),
    }
}

/// Waits until then, or until nobody reads a pipe any more: whether somebody does.
fn read_until(due: Instant) -> Result<bool> {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let out = io::stdout();
        let mut fds = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
        match poll(&mut fds, Some(&limit)) {
            Ok(0) => return Ok(true),
            Ok(_)
                if fds[0]
                    .revents()
                    .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) =>
            {
                return Ok(false);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error).context("waiting"),
        }
    }
}
