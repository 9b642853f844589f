// SPDX-License-Identifier: GPL-2.0-only
//! Until the scheduler is loaded, which takes seconds, nobody can be served: who comes then is told so, and kept.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use anyhow::Result;
use onbeat_model::protocol::Response;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;

use super::{CLIENTS, CLIENTS_OF_A_USER, CLIENTS_OF_ROOT, Socket};

/// A connection with its user and group.
pub type Waiting = (UnixStream, u32, u32);

/// A thread that greets.
#[derive(Debug)]
pub struct Greeter {
    /// Closed when the thread is to end.
    stop: UnixStream,
    thread: JoinHandle<Vec<Waiting>>,
}

impl Socket {
    /// Begins to tell whoever comes that the service is starting.
    ///
    /// # Errors
    /// The system has no more files or threads.
    pub fn greet(&self) -> Result<Greeter> {
        let (stop, stopped) = UnixStream::pair()?;
        let listener = self.listener.try_clone()?;
        let thread = std::thread::Builder::new().spawn(move || greet(&listener, &stopped))?;
        Ok(Greeter { stop, thread })
    }
}

impl Greeter {
    /// Ends; returns the connections.
    pub fn end(self) -> Vec<Waiting> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
}

fn greet(listener: &UnixListener, stopped: &UnixStream) -> Vec<Waiting> {
    let mut kept: Vec<Waiting> = Vec::new();
    let mut hello = serde_json::to_vec(&Response::Starting).unwrap_or_default();
    hello.push(b'\n');
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let waited = poll(&mut fds, None);
        if !fds[1].revents().is_empty() || matches!(waited, Err(e) if e != rustix::io::Errno::INTR)
        {
            return kept;
        }
        let (mut stream, _) = match listener.accept() {
            Ok(new) => new,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return kept, // no more files; the others stay in the queue
        };
        let Ok(who) = socket_peercred(&stream) else { continue };
        let uid = who.uid.as_raw();
        let most = if uid == 0 { CLIENTS_OF_ROOT } else { CLIENTS_OF_A_USER };
        let fits = |kept: &[Waiting]| {
            let same = kept.iter().filter(|(_, user, _)| *user == uid).count();
            same < most && (uid == 0 || kept.len() < CLIENTS)
        };
        if !fits(&kept) {
            kept.retain(|(stream, ..)| !hung_up(stream));
        }
        if fits(&kept) && stream.set_nonblocking(true).is_ok() && stream.write_all(&hello).is_ok() {
            kept.push((stream, uid, who.gid.as_raw()));
        }
    }
}
