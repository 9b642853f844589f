// SPDX-License-Identifier: GPL-2.0-only
//! Speaking with the reservation service.

use crate::Params;
use crate::change::{Change, Known};
use onbeat_model::protocol::{self, ProtocolError, RESPONSE_BYTES, Refusal, Request, Response};
use std::io::{self, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where the service listens: what [`SOCKET_VARIABLE`] says if it is there and says something, else the usual place.
pub fn socket() -> PathBuf {
    let named = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// Where the service listens unless [`SOCKET_VARIABLE`] says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/onbeat/control.sock";
/// Environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "ONBEAT_SOCKET";
/// The service cuts off who has asked nothing for 10 s and holds no reservation: who comes back later connects anew.
const SILENCE: Duration = Duration::from_secs(5);
/// A service that takes longer than this to answer is as good as none.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the service may take to start: seconds on an idle machine, longer where the kernel's verifier is slow.
pub const STARTING: Duration = Duration::from_secs(120);

/// Why there is no reservation.
#[derive(Debug, Error)]
pub enum Error {
    /// Nobody answers at the socket.
    #[error(
        "no reservation service at {}: {error}; have it started (as root: systemctl start scx_onbeat), or name its \
         socket in {}",
        .socket.display(), SOCKET_VARIABLE
    )]
    NoService {
        /// The socket that was tried.
        socket: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke, or the other side speaks something else.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Somebody holds the socket and says nothing.
    #[error(
        "the service did not answer within {} s; \
         check that scx_onbeat holds the socket and is not stopped",
        PATIENCE.as_secs()
    )]
    Mute,
    /// The scheduler is being loaded, for longer than the asker waits.
    #[error(
        "scx_onbeat is starting, and was not ready after {} s; try again later, or see its log", .0.as_secs()
    )]
    Starting(Duration),
    /// The reservation does not fit; says what would.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The service cannot carry the request out.
    #[error("{message}; {remedy}")]
    Failed {
        /// What is wrong.
        message: String,
        /// What to do.
        remedy: String,
    },
}

/// What the service has granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Names the reservation in later requests.
    pub id: u32,
    /// Policy that serves it.
    pub policy: String,
    /// CPUs on which it is served.
    pub cpus: Vec<u32>,
}

/// A connection to the reservation service.
#[derive(Debug)]
pub struct Service {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    /// When it last answered.
    last: Instant,
    /// Answers that are still to come: more than one where those before were given up.
    late: u32,
    /// How long to wait for a service that is starting.
    starting: Duration,
    /// Told when it is.
    on_starting: Option<fn()>,
}

impl Service {
    /// Connects to the socket named in ONBEAT_SOCKET, or to the usual one.
    ///
    /// # Errors
    /// [`Error::NoService`].
    pub fn connect() -> Result<Self, Error> {
        Self::connect_to(&socket())
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`Error::NoService`].
    pub fn connect_to(path: &Path) -> Result<Self, Error> {
        let patient = |stream: UnixStream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = UnixStream::connect(path)
            .and_then(patient)
            .map_err(|error| Error::NoService { socket: path.into(), error })?;
        Ok(Self {
            stream: BufReader::new(stream),
            socket: path.into(),
            last: Instant::now(),
            late: 0,
            starting: STARTING,
            on_starting: None,
        })
    }

    /// Waits for a service that is starting no longer than that, from each request on; else it waits for [`STARTING`].
    pub fn waiting_at_most(mut self, limit: Duration) -> Self {
        self.starting = limit;
        self
    }

    /// Calls `tell` when a request has to wait because the service is starting.
    pub fn telling(mut self, tell: fn()) -> Self {
        self.on_starting = Some(tell);
        self
    }

    /// Where the service listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether the service has not closed the connection: it does so when nothing is asked for long, or when it ends.
    pub fn is_open(&self) -> bool {
        let mut byte = 0u8;
        let (fd, how) = (self.stream.get_ref().as_raw_fd(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
        // SAFETY: there is room for the byte, which stays where it is.
        match unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, how) } {
            0 => false,
            n if n > 0 => true,
            _ => io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Sends one request and returns its answer; connects anew if the service has closed a silent connection.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the connection breaks, [`Error::Mute`] when nothing comes, [`Error::Starting`];
    /// [`Error::Failed`] and [`Error::Refused`] when that is the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Error> {
        let silent = self.last.elapsed() > SILENCE;
        let mut answer = self.ask_once(request);
        if silent && answer.as_ref().is_err_and(closed) {
            let (starting, on_starting) = (self.starting, self.on_starting);
            *self = Self { starting, on_starting, ..Self::connect_to(&self.socket)? };
            answer = self.ask_once(request);
        }
        self.last = Instant::now();
        answer
    }

    fn ask_once(&mut self, request: &Request) -> Result<Response, Error> {
        let mute = |error: ProtocolError| match error {
            ProtocolError::Io(e) if e.kind() == io::ErrorKind::WouldBlock => Error::Mute,
            other => other.into(),
        };
        let mut until = None;
        protocol::write_message(self.stream.get_mut(), request).map_err(|e| mute(e.into()))?;
        self.late += 1;
        self.skip().map_err(mute)?;
        let answer = loop {
            let answer = protocol::read_message(&mut self.stream, RESPONSE_BYTES);
            match (answer, until) {
                (Ok(Some(Response::Starting)), _) => {
                    self.on_starting.iter().for_each(|tell| tell());
                    until = Some(Instant::now() + self.starting);
                    // A read cannot wait for no time at all.
                    let limit = self.starting.max(Duration::from_millis(1));
                    self.stream
                        .get_ref()
                        .set_read_timeout(Some(limit))
                        .map_err(ProtocolError::from)?;
                }
                (Err(ProtocolError::Io(e)), Some(end))
                    if e.kind() == io::ErrorKind::WouldBlock && Instant::now() >= end =>
                {
                    return Err(Error::Starting(self.starting));
                }
                (answer, _) => break answer,
            }
        };
        if until.is_some() {
            self.stream.get_ref().set_read_timeout(Some(PATIENCE)).map_err(ProtocolError::from)?;
        }
        let answer = answer.map_err(mute);
        if !matches!(answer, Err(Error::Mute)) {
            self.late = 0;
        }
        match answer? {
            None => Err(ProtocolError::CutOff.into()),
            Some(Response::Refused(refusal)) => Err(Error::Refused(Box::new(refusal))),
            Some(Response::Error { message, remedy }) => Err(Error::Failed { message, remedy }),
            Some(answer) => Ok(answer),
        }
    }

    /// Reads past what came too late: answers to requests before this one.
    fn skip(&mut self) -> Result<(), ProtocolError> {
        while self.late > 1 {
            match protocol::read_message::<Response>(&mut self.stream, RESPONSE_BYTES) {
                Ok(Some(Response::Starting)) => (),
                Ok(None) => return Err(ProtocolError::CutOff),
                Err(error @ ProtocolError::Io(_)) => return Err(error),
                // Its beginning may have been read when it was given up.
                Ok(Some(_)) | Err(_) => self.late -= 1,
            }
        }
        Ok(())
    }

    /// Makes a reservation for process `pid`, its threads and children.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the values make no sense, [`Error::Refused`] when they do not
    /// fit, else as [`Service::ask`].
    pub fn reserve(&mut self, pid: u32, name: &str, params: &Params) -> Result<Grant, Error> {
        let reserve = params.request(pid, name);
        reserve.check().map_err(Error::Invalid)?;
        match self.ask(&Request::Reserve(reserve))? {
            Response::Granted { id, policy, cpus } => Ok(Grant { id, policy, cpus }),
            other => Err(unexpected(&other)),
        }
    }

    /// Has reservation `id` have `budget` ns in each `period` ns from its next period on.
    ///
    /// # Errors
    /// [`Error::Refused`] when that does not fit: then it stays as it is; else as [`Service::ask`].
    pub fn resize(&mut self, id: u32, budget: u64, period: u64) -> Result<Grant, Error> {
        match self.ask(&Request::Resize { id, budget_ns: budget, period_ns: period })? {
            Response::Granted { id, policy, cpus } => Ok(Grant { id, policy, cpus }),
            other => Err(unexpected(&other)),
        }
    }

    /// What the program of reservation `id` has needed of late.
    ///
    /// # Errors
    /// As [`Service::ask`].
    pub fn work(&mut self, id: u32) -> Result<protocol::Work, Error> {
        match self.ask(&Request::Work { id })? {
            Response::Work(work) => Ok(work),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a group: a reservation that serves those of its members. It is held until it is released.
    ///
    /// # Errors
    /// As [`Service::reserve`].
    pub fn group(&mut self, group: &protocol::Group) -> Result<Grant, Error> {
        group.check().map_err(Error::Invalid)?;
        match self.ask(&Request::Group(group.clone()))? {
            Response::Granted { id, policy, cpus } => Ok(Grant { id, policy, cpus }),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a purse: a budget that reservations share wherever they stand. Root's to make.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the values make no sense, else as [`Service::ask`].
    pub fn purse(&mut self, purse: &protocol::Purse) -> Result<(), Error> {
        purse.check().map_err(Error::Invalid)?;
        match self.ask(&Request::Purse(purse.clone()))? {
            Response::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The threads that wake in a rhythm, all users' for root, else one's own; and how many threads the service had no
    /// time to look at.
    ///
    /// # Errors
    /// As [`Service::ask`].
    pub fn beats(&mut self) -> Result<(Vec<protocol::Beat>, u64), Error> {
        match self.ask(&Request::Beats)? {
            Response::Beats { threads, left_out } => Ok((threads, left_out)),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives reservation or group `id` back, whoever of this user made it; returns what it got.
    ///
    /// # Errors
    /// As [`Service::ask`].
    pub fn release(&mut self, id: u32) -> Result<protocol::Reservation, Error> {
        self.give_back(id, false)
    }

    /// Gives back reservation `id`, which was made over this connection; returns what it got. If it has ended, or the
    /// service has, another that has its number by now is left alone.
    ///
    /// # Errors
    /// As [`Service::ask`]; [`Error::Failed`] if it is no more.
    pub fn release_own(&mut self, id: u32) -> Result<protocol::Reservation, Error> {
        self.give_back(id, true)
    }

    fn give_back(&mut self, id: u32, own: bool) -> Result<protocol::Reservation, Error> {
        match self.ask(&Request::Release { id, own })? {
            Response::Released(got) => Ok(got),
            other => Err(unexpected(&other)),
        }
    }
}

/// Whether the other side had closed before it read the request.
fn closed(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error {
        Error::Protocol(ProtocolError::CutOff) => true,
        Error::Protocol(ProtocolError::Io(e)) => matches!(e.kind(), BrokenPipe | ConnectionReset),
        _ => false,
    }
}

fn unexpected(answer: &Response) -> Error {
    let mut text = format!("{answer:?}");
    text.truncate(text.floor_char_boundary(60));
    ProtocolError::Malformed(format!("it answered {text}")).into()
}

/// A reservation of this process. Dropping it gives it back.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) service: Service,
    pub(crate) grant: Grant,
    pub(crate) known: Known,
    /// It is lost or released.
    pub(crate) over: Option<Change>,
    released: bool,
}

impl Reservation {
    /// Asks the usual service for a reservation for this process, its threads and children.
    /// `name` is for people.
    ///
    /// # Errors
    /// As [`Service::connect`] and [`Service::reserve`].
    pub fn of_this_process(name: &str, params: &Params) -> Result<Self, Error> {
        Self::by(Service::connect()?, name, params)
    }

    /// Asks this service.
    pub(crate) fn by(mut service: Service, name: &str, params: &Params) -> Result<Self, Error> {
        let grant = service.reserve(std::process::id(), name, params)?;
        let (budget, period) = (params.budget(), params.period());
        let known = Known { budget, period, unguaranteed: false };
        Ok(Self { service, grant, known, over: None, released: false })
    }

    /// What was granted.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Gives it back; returns what it got.
    ///
    /// # Errors
    /// As [`Service::release`]. The reservation ends with the process in any case.
    pub fn release(mut self) -> Result<protocol::Reservation, Error> {
        self.released = true;
        self.service.release_own(self.grant.id)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.released {
            // Nobody is left to tell; without a service there is no reservation either.
            let _ = self.service.release_own(self.grant.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that has as good as no time to answer, and the other side.
    fn hasty() -> (Service, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let service = Service {
            stream: BufReader::new(here),
            socket: PathBuf::new(),
            last: Instant::now(),
            late: 0,
            starting: STARTING,
            on_starting: None,
        };
        (service, there)
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_request() {
        let (mut service, mut there) = hasty();
        for _ in 0..2 {
            assert!(matches!(service.ask(&Request::Stats), Err(Error::Mute)));
        }
        let counters = |n: u64| Response::Stats { counters: [("n".to_owned(), n)].into() };
        for n in 1..=3 {
            protocol::write_message(&mut there, &counters(n)).unwrap();
        }
        let answer = service.ask(&Request::Stats).unwrap();
        assert_eq!(format!("{answer:?}"), format!("{:?}", counters(3)));
        // And then all is as before.
        protocol::write_message(&mut there, &counters(4)).unwrap();
        assert!(service.ask(&Request::Stats).is_ok());
    }

    #[test]
    fn who_holds_the_socket_and_says_nothing_is_called_mute() {
        let (mut service, _there) = hasty();
        let error = service.ask(&Request::Stats).unwrap_err();
        assert!(matches!(error, Error::Mute), "{error}");
        assert!(error.to_string().contains("10 s"), "{error}");
    }

    #[test]
    fn a_service_that_is_starting_is_waited_for_and_who_asks_is_told() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static TOLD: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (go, ready) = std::sync::mpsc::channel::<()>();
        let service = std::thread::spawn(move || {
            for served in [false, true] {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                protocol::write_message(stream.get_mut(), &Response::Starting).unwrap();
                ready.recv().unwrap();
                if served {
                    // Before it goes it must have heard who asks.
                    let _: Option<Request> = protocol::read_message(&mut stream, 1 << 16).unwrap();
                    let answer = Response::Stats { counters: Default::default() };
                    protocol::write_message(stream.get_mut(), &answer).unwrap();
                }
            }
        });
        let tell = || {
            TOLD.fetch_add(1, Ordering::Relaxed);
        };
        let hasty = Service::connect_to(&path).unwrap().waiting_at_most(Duration::ZERO);
        let error = hasty.telling(tell).ask(&Request::Stats).unwrap_err();
        assert!(matches!(error, Error::Starting(_)), "{error}");
        go.send(()).unwrap();
        let mut patient = Service::connect_to(&path).unwrap().telling(tell);
        go.send(()).unwrap();
        assert!(matches!(patient.ask(&Request::Stats), Ok(Response::Stats { .. })));
        assert_eq!(TOLD.load(Ordering::Relaxed), 2);
        service.join().unwrap();
    }

    #[test]
    fn who_was_silent_for_long_and_was_cut_off_connects_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let service = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let request: Option<Request> = protocol::read_message(&mut stream, 1 << 16).unwrap();
            let answer = Response::Stats { counters: Default::default() };
            protocol::write_message(stream.get_mut(), &answer).unwrap();
            request
        });
        let mut client = Service::connect_to(&path).unwrap();
        client.last = Instant::now() - 2 * SILENCE;
        assert!(matches!(client.ask(&Request::Stats), Ok(Response::Stats { .. })));
        assert_eq!(service.join().unwrap(), Some(Request::Stats));
    }
}
