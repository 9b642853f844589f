// SPDX-License-Identifier: GPL-2.0-only
//! The control socket: many clients, none of which can hold up another. One thread, nothing blocks;
//! what a client may keep waiting, send or leave unread is limited.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use onbeat_model::protocol::{REQUEST_BYTES, Request, Response, parse_message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::time::{ClockId, clock_gettime};

use crate::engine::Engine;
use crate::reservations::{Book, Peer};
use crate::shares::Shares;
use crate::system::System;

/// Connections of ordinary users at a time.
const CLIENTS: usize = 512;
/// Connections of root at a time, beside those.
const CLIENTS_OF_ROOT: usize = 256;
/// Connections of one ordinary user at a time.
const CLIENTS_OF_A_USER: usize = 64;
/// A request must be whole, and an answer read, within this.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who holds no reservation and asks nothing for so long is cut off.
const SILENCE: Duration = Duration::from_secs(10);
/// How often silent ones are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Requests answered before others get their turn.
const TURN: usize = 16;
/// How long the requests of an ordinary user are answered before others get their turn; the last may take longer.
const TIME_OF_A_USER: Duration = Duration::from_millis(5);
/// The service goes before crowds, so requests of an ordinary user have one part in so many of a CPU's time, ...
const PARTS: u32 = 10;
/// ... and so much more of it at once, in parts.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The listening socket; its file goes when this does.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Whether one could listen at `path`, whose folder may have to be made; makes nothing.
    ///
    /// # Errors
    /// Others could put another in its place, or something else is there.
    pub fn check(path: &Path) -> Result<()> {
        let there = path.ancestors().skip(1).find(|folder| folder.is_dir());
        check_folders(there.unwrap_or(Path::new(".")))?;
        is_taken(path).map(drop)
    }

    /// Listens at `path`, open to everybody: who may do what is decided by request.
    ///
    /// # Errors
    /// Somebody listens there, something else is there, or the folder cannot be written.
    pub fn bind(path: &Path) -> Result<Self> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            check_folders(folder)?;
        }
        if is_taken(path)? {
            if UnixStream::connect(path).is_ok() {
                bail!("a service already listens at {shown}; stop it or choose another --socket");
            }
            fs::remove_file(path).with_context(|| format!("cannot replace the old {shown}"))?;
        }
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.into() })
    }
}

/// Whether nobody but root and this process's user can put another socket in the place of one in `folder`.
fn check_folders(folder: &Path) -> Result<()> {
    let whole = folder.canonicalize().with_context(|| format!("{}", folder.display()))?;
    let me = rustix::process::geteuid().as_raw();
    for folder in whole.ancestors() {
        let meta = folder.metadata().with_context(|| format!("{}", folder.display()))?;
        let shown = folder.display();
        let remedy = "whoever writes there can put a service of their own in its place; choose another --socket";
        if ![0, me].contains(&meta.uid()) {
            bail!("the socket cannot be in {shown}: it belongs to user {}; {remedy}", meta.uid());
        }
        // Where the sticky bit is set only a file's owner can take it away; root's group is as good as root.
        let others = if meta.gid() == 0 { 0o002 } else { 0o022 };
        if meta.mode() & others != 0 && meta.mode() & 0o1000 == 0 {
            bail!(
                "the socket cannot be in {shown}: others can write there; {remedy}, or: chmod go-w {shown}"
            );
        }
    }
    Ok(())
}

/// Whether a socket is there.
///
/// # Errors
/// Something else is.
fn is_taken(path: &Path) -> Result<bool> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(false) };
    if !meta.file_type().is_socket() {
        let shown = path.display();
        bail!("{shown} is in the way: it is no socket; remove it or choose another --socket");
    }
    Ok(true)
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // somebody may have removed it before
    }
}

struct Client {
    stream: UnixStream,
    peer: Peer,
    input: Vec<u8>,
    /// Since when an unfinished request has been waiting for its rest.
    begun: Option<Instant>,
    output: Vec<u8>,
    /// Since when an answer has been waiting to be read.
    unread: Option<Instant>,
    /// Since when it has asked nothing.
    silent: Instant,
    /// Since when its request waits for what is about to be free, and when it is to be asked again.
    waits: Option<(Instant, Instant)>,
    /// No more requests: what is left to say is said, then it is closed.
    done: bool,
}

impl Client {
    /// Reads what is there. Only once per turn: the rest waits in the socket.
    fn read(&mut self) {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.done = true,
            Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.done = true,
        }
    }

    /// The next whole request, without its end.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|b| *b == b'\n')?;
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Whether a whole request waits.
    fn whole(&self) -> bool {
        self.input.contains(&b'\n')
    }

    fn say(&mut self, answer: &Response) {
        match serde_json::to_vec(answer) {
            Ok(text) => self.output.extend(text),
            Err(_) => self.done = true,
        }
        self.output.push(b'\n');
    }

    fn write(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(_) => {
                    self.output.clear();
                    self.done = true;
                }
            }
        }
        self.unread = (!self.output.is_empty()).then(|| self.unread.unwrap_or_else(Instant::now));
    }

    /// Answers the requests that are whole, as long as this user has had less than its time in this turn; whether more
    /// wait for another turn.
    fn serve<E: Engine, S: System>(&mut self, book: &mut Book<E, S>, times: &mut Times) -> bool {
        let uid = self.peer.uid;
        for _ in 0..TURN {
            let had = times.turn.entry(uid).or_default();
            if uid != 0 && *had >= TIME_OF_A_USER {
                break;
            }
            if !self.output.is_empty() {
                break; // an answer must be read before the next is worked out
            }
            let begin = Instant::now();
            if self.whole()
                && let Some(until) = times.held(uid, begin)
            {
                self.waits = Some((self.waits.map_or(begin, |(since, _)| since), until));
                return false;
            }
            let Some(line) = self.line() else { break };
            let spent = Spent::from_now();
            self.silent = begin;
            let answer = match parse_message::<Request>(&line) {
                _ if line.len() as u64 > REQUEST_BYTES => too_long(),
                Ok(request) => {
                    let since = self.waits.take().map_or_else(Instant::now, |(since, _)| since);
                    match book.answer_or_wait(self.peer, request, since.elapsed()) {
                        Ok(answer) => answer,
                        Err(wait) => {
                            times.has_had(uid, begin, &spent);
                            self.waits = Some((since, Instant::now() + wait));
                            self.input.splice(0..0, line.into_iter().chain([b'\n']));
                            return false;
                        }
                    }
                }
                Err(e) => error(
                    &e.to_string(),
                    "send one JSON object a line, such as {\"op\":\"status\"}",
                ),
            };
            self.say(&answer);
            self.write();
            times.has_had(uid, begin, &spent);
        }
        let whole = self.whole();
        if !whole && self.input.len() as u64 > REQUEST_BYTES {
            self.say(&too_long());
            self.input.clear();
            self.done = true;
            self.write();
        }
        let unfinished = !self.input.is_empty() && !whole;
        self.begun = unfinished.then(|| self.begun.unwrap_or_else(Instant::now));
        whole && self.output.is_empty()
    }

    fn over(&self) -> bool {
        let late = |since: Option<Instant>| since.is_some_and(|t| t.elapsed() > PATIENCE);
        late(self.begun)
            || late(self.unread)
            || (self.done && self.output.is_empty() && !self.whole())
    }
}

/// How long users have been served.
#[derive(Debug, Default)]
struct Times {
    /// In this turn.
    turn: BTreeMap<u32, Duration>,
    /// By when CPU time that their requests took has come to one part in [`PARTS`].
    paid: BTreeMap<u32, Instant>,
}

impl Times {
    /// Until when an ordinary user's next request has to wait, if it has to.
    fn held(&self, uid: u32, now: Instant) -> Option<Instant> {
        let until = self.paid.get(&uid).and_then(|paid| paid.checked_sub(AT_ONCE))?;
        (uid != 0 && until > now).then_some(until)
    }

    /// A request has been answered that came at `begin`.
    fn has_had(&mut self, uid: u32, begin: Instant, spent: &Spent) {
        *self.turn.entry(uid).or_default() += begin.elapsed();
        let paid = self.paid.entry(uid).or_insert(begin);
        *paid = begin.max(*paid) + spent.time() * PARTS;
    }
}

/// CPU time of this thread since then.
struct Spent(Duration);

impl Spent {
    fn from_now() -> Self {
        Self(used())
    }

    fn time(&self) -> Duration {
        used().saturating_sub(self.0)
    }
}

fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

fn error(message: &str, remedy: &str) -> Response {
    Response::Error { message: message.into(), remedy: remedy.into() }
}

fn too_long() -> Response {
    error(&format!("a request of more than {REQUEST_BYTES} bytes"), "send one request a line")
}

/// The service: socket, clients, book.
pub struct Service<E, S> {
    /// Reservations.
    pub book: Book<E, S>,
    /// Users who may hold another share than all.
    pub shares: Shares,
    socket: Socket,
    clients: BTreeMap<u64, Client>,
    connections: u64,
    /// Some client has whole requests that wait for their turn.
    pending: bool,
    /// The client that was the first in the last turn.
    first: u64,
    /// When silent clients were last looked for.
    swept: Instant,
    times: Times,
}

impl<E: Engine, S: System> Service<E, S> {
    /// A service that has not answered anybody yet.
    pub fn new(book: Book<E, S>, socket: Socket) -> Self {
        Self {
            book,
            shares: Shares::default(),
            socket,
            clients: BTreeMap::new(),
            connections: 0,
            pending: false,
            first: 0,
            swept: Instant::now(),
            times: Times::default(),
        }
    }

    /// Serves whoever wants something, or returns after `patience`, or when `wake` is readable.
    ///
    /// # Errors
    /// The system cannot wait; nothing a client does leads to one.
    pub fn turn(&mut self, patience: Duration, wake: &impl AsFd) -> Result<()> {
        let waits = self.clients.values().filter_map(|client| client.waits);
        let wait = waits.map(|(_, until)| until.saturating_duration_since(Instant::now())).min();
        let patience = if self.pending { Duration::ZERO } else { patience };
        let patience = wait.map_or(patience, |wait| patience.min(wait));
        let mut fds = vec![
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.listener.as_fd(), PollFlags::IN),
        ];
        let mut who = Vec::with_capacity(self.clients.len());
        // Who has to wait says nothing more meanwhile.
        for (id, client) in self.clients.iter().filter(|(_, client)| client.waits.is_none()) {
            let want = if client.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), want));
            who.push(*id);
        }
        let limit = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e).context("waiting for clients"),
        }
        let knock = !fds[1].revents().is_empty();
        let mut ready: Vec<(u64, PollFlags)> =
            who.into_iter().zip(fds[2..].iter().map(PollFd::revents)).collect();
        // Who has waited for long enough asks again.
        let now = Instant::now();
        let due = |c: &Client| c.waits.is_some_and(|(_, until)| until <= now);
        let due = self.clients.iter().filter(|(_, client)| due(client));
        ready.extend(due.map(|(id, _)| (*id, PollFlags::empty())));
        ready.sort_by_key(|(id, _)| *id);
        self.pending = false;
        self.times.turn.clear();
        // Who is first in this turn is last in the next, lest one connection have all of its user's time.
        let first = ready.iter().position(|(id, _)| *id > self.first).unwrap_or(0);
        ready.rotate_left(first);
        self.first = ready.first().map_or(0, |(id, _)| *id);
        for (id, flags) in ready {
            let client = self.clients.get_mut(&id).expect("it was just polled");
            if flags.contains(PollFlags::OUT) {
                client.write();
            }
            // One that hung up may have left requests behind.
            if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                && client.output.is_empty()
                && !client.whole()
                && !client.done
            {
                client.read();
            }
            self.pending |= client.serve(&mut self.book, &mut self.times);
        }
        // It looks at all reservations: not after every request.
        let sweep = self.swept.elapsed() > SWEEP;
        if sweep {
            self.swept = Instant::now();
            self.times.paid.retain(|_, paid| *paid > now);
        }
        let idle = |c: &Client| {
            sweep && c.silent.elapsed() > SILENCE && !self.book.serves(c.peer.connection)
        };
        let over: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| client.over() || idle(client))
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().for_each(|id| self.hang_up(id));
        if knock {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        // No more than can be refused in one turn either.
        for _ in 0..TURN {
            let Ok((stream, _)) = self.socket.listener.accept() else { return };
            let Ok(who) = socket_peercred(&stream) else { continue };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.welcome(stream, who.uid.as_raw(), who.gid.as_raw());
        }
    }

    /// Takes a new connection of user `uid` and group `gid`, or says why not.
    pub fn welcome(&mut self, stream: UnixStream, uid: u32, gid: u32) {
        self.connections += 1;
        let share = self.shares.of_peer(&stream, uid, gid);
        let mut client = Client {
            stream,
            peer: Peer { uid, connection: self.connections, share },
            input: Vec::new(),
            begun: None,
            output: Vec::new(),
            unread: None,
            silent: Instant::now(),
            waits: None,
            done: false,
        };
        if self.room(uid) {
            self.clients.insert(self.connections, client);
        } else {
            client.say(&error("too many connections", "close some, or try again later"));
            client.write();
        }
    }

    /// Whether there is room for one more connection of user `uid`; another user's may have to go for it.
    fn room(&mut self, uid: u32) -> bool {
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        for client in self.clients.values() {
            *users.entry(client.peer.uid).or_default() += 1;
        }
        let roots = users.remove(&0).unwrap_or(0);
        if uid == 0 {
            return roots < CLIENTS_OF_ROOT;
        }
        let mine = users.get(&uid).copied().unwrap_or(0);
        if mine >= CLIENTS_OF_A_USER {
            return false;
        }
        if users.values().sum::<usize>() < CLIENTS {
            return true;
        }
        // Who has most gives up the one that has been silent longest, unless it holds a reservation.
        let idle = |c: &&Client| {
            let theirs = users.get(&c.peer.uid).copied().unwrap_or(0);
            theirs > mine + 1 && !self.book.serves(c.peer.connection)
        };
        let silent = |c: &&Client| (users[&c.peer.uid], std::cmp::Reverse(c.silent));
        let loser = self.clients.values().filter(idle).max_by_key(silent);
        let Some(loser) = loser.map(|c| c.peer.connection) else { return false };
        self.hang_up(loser);
        true
    }

    fn hang_up(&mut self, connection: u64) {
        self.clients.remove(&connection);
        self.book.disconnected(connection);
    }
}

mod greeter;
pub use greeter::Greeter;

#[cfg(test)]
mod tests;
