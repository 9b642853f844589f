// SPDX-License-Identifier: GPL-2.0-only
//! A service that exists only here: it books what fits in a room that tests choose, and can be ended and begun anew.

#![allow(dead_code)] // each test uses its own part

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use onbeat_model::protocol::{
    Beat, Nearest, REQUEST_BYTES, Refusal, Request, Reservation, Response, Work, read_message,
    write_message,
};
use onbeat_model::units::Fraction;

/// What it holds, and what tests make of it.
#[derive(Debug, Default)]
pub struct World {
    /// What is reserved, and over which connection.
    pub held: Vec<(Reservation, u64)>,
    /// All that was asked, but for the status.
    pub asked: Vec<Request>,
    /// The greatest budget that fits, ns; none fits if it is 0.
    pub room: u64,
    /// Nothing can be reserved at all: why.
    pub senseless: Option<String>,
    /// No budget can be changed: why.
    pub stuck: Option<String>,
    /// What is told of each reservation's work.
    pub work: Vec<(u64, u32)>,
    /// What beats.
    pub beats: Vec<Beat>,
    policy: String,
    connections: Vec<UnixStream>,
}

/// The service.
pub struct Fake {
    folder: tempfile::TempDir,
    world: Arc<Mutex<World>>,
}

impl Fake {
    /// It listens, under this policy.
    pub fn start(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World { room: u64::MAX, policy: policy.into(), ..World::default() };
        let fake = Self { folder, world: Arc::new(Mutex::new(world)) };
        let listener = UnixListener::bind(fake.socket()).unwrap();
        let world = Arc::clone(&fake.world);
        std::thread::spawn(move || {
            for (stream, number) in listener.incoming().map_while(Result::ok).zip(1..) {
                world.lock().unwrap().connections.push(stream.try_clone().unwrap());
                let world = Arc::clone(&world);
                std::thread::spawn(move || serve(stream, number, &world));
            }
        });
        fake
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it holds.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// It ends, and begins anew under another policy, with room for so much, ns.
    pub fn restart(&self, policy: &str, room: u64) {
        let mut world = self.world();
        (world.policy, world.room) = (policy.into(), room);
        world.held.clear();
        for connection in world.connections.drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Waits until that holds.
    pub fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let begin = Instant::now();
        while !holds(&self.world()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {:?}", self.world());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(stream: UnixStream, number: u64, world: &Mutex<World>) {
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = read_message::<Request>(&mut stream, REQUEST_BYTES) {
        let answer = world.lock().unwrap().answer(request, number);
        if write_message(stream.get_mut(), &answer).is_err() {
            return;
        }
    }
}

fn error(message: &str) -> Response {
    Response::Error { message: message.into(), remedy: "do something else".into() }
}

impl World {
    fn answer(&mut self, request: Request, connection: u64) -> Response {
        if !matches!(request, Request::Status) {
            self.asked.push(request.clone());
        }
        match request {
            Request::Reserve(_) if self.senseless.is_some() => {
                error(self.senseless.as_deref().unwrap_or_default())
            }
            Request::Reserve(r) if r.budget_ns > self.room => {
                self.refused(r.budget_ns, r.period_ns)
            }
            Request::Reserve(r) => {
                let ids = self.held.iter().map(|(r, _)| r.id);
                let id = ids.max().unwrap_or(0) + 1;
                let reservation = Reservation {
                    id,
                    pid: r.pid,
                    budget_ns: r.budget_ns,
                    period_ns: r.period_ns,
                    deadline_ns: r.deadline(),
                    name: r.name,
                    policy: self.policy.clone(),
                    cpus: vec![0],
                    ..Default::default()
                };
                self.held.push((reservation, connection));
                self.granted(id)
            }
            Request::Resize { id, budget_ns, period_ns } => match &self.stuck {
                Some(why) => error(why),
                None if budget_ns > self.room => self.refused(budget_ns, period_ns),
                None => {
                    let Some((held, _)) = self.held.iter_mut().find(|(r, _)| r.id == id) else {
                        return error("there is no such reservation");
                    };
                    (held.budget_ns, held.period_ns) = (budget_ns, period_ns);
                    self.granted(id)
                }
            },
            Request::Release { id, own } => {
                let mine = |(r, by): &(Reservation, u64)| r.id == id && (!own || *by == connection);
                match self.held.iter().position(mine) {
                    Some(at) => Response::Released(self.held.remove(at).0),
                    None => error("there is no such reservation of yours"),
                }
            }
            Request::Work { id } => match self.held.iter().find(|(r, _)| r.id == id) {
                Some((record, _)) => {
                    let (noted, record) = (self.work.len() as u32, record.clone());
                    let recent = self.work[self.work.len().saturating_sub(31)..].to_vec();
                    Response::Work(Work { noted, recent, record })
                }
                None => error("there is no such reservation"),
            },
            Request::Beats => Response::Beats { threads: self.beats.clone(), left_out: 0 },
            Request::Status => self.status(),
            _ => error("nobody asks that here"),
        }
    }

    fn granted(&self, id: u32) -> Response {
        Response::Granted { id, policy: self.policy.clone(), cpus: vec![0] }
    }

    fn refused(&self, budget_ns: u64, period_ns: u64) -> Response {
        Response::Refused(Refusal {
            reason: "the room is full".into(),
            budget_ns,
            period_ns,
            asked: Fraction::new(budget_ns, period_ns),
            free: Fraction::new(self.room, period_ns),
            holders: vec![],
            nearest: Nearest {
                budget_ns: Some(self.room).filter(|room| *room > 0),
                period_ns: None,
            },
        })
    }

    fn status(&self) -> Response {
        let half = Fraction::new(1, 2);
        Response::Status {
            policy: self.policy.clone(),
            cpus: vec![0],
            reserved: half,
            free: half,
            reservations: self.held.iter().map(|(r, _)| r.clone()).collect(),
            sets: vec![],
            best_effort: "fair".into(),
            interrupt_cpu: None,
            reserved_cpus: half.into(),
            free_cpus: half.into(),
            time_ns: 1,
            per_cpu: vec![],
        }
    }
}
