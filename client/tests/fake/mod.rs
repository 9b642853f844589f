// SPDX-License-Identifier: GPL-2.0-only
//! A service that answers as told, for the tests from Rust and from C.

use onbeat_model::protocol::{
    Nearest, REQUEST_BYTES, Refusal, Request, Reservation, Response, read_message, write_message,
};
use onbeat_model::units::Fraction;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

pub struct Fake {
    pub folder: tempfile::TempDir,
    pub seen: JoinHandle<Vec<Request>>,
}

impl Fake {
    /// Serves one connection; answers each request by `answer`.
    pub fn start(answer: fn(&Request) -> Response) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let seen = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut seen = Vec::new();
            while let Ok(Some(request)) = read_message::<Request>(&mut stream, REQUEST_BYTES) {
                write_message(stream.get_mut(), &answer(&request)).unwrap();
                seen.push(request);
            }
            seen
        });
        Self { folder, seen }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }
}

pub fn agree(request: &Request) -> Response {
    match request {
        Request::Reserve(_) => {
            Response::Granted { id: 7, policy: "g-edf+fcbs".into(), cpus: vec![0, 1] }
        }
        Request::Release { id, .. } => {
            Response::Released(Reservation { id: *id, jobs: 10, ..Default::default() })
        }
        _ => Response::Error { message: "what?".into(), remedy: "ask otherwise".into() },
    }
}

pub fn refuse(_: &Request) -> Response {
    Response::Refused(Refusal {
        reason: "all CPUs are full".into(),
        budget_ns: 5,
        period_ns: 20,
        asked: Fraction::new(1, 4),
        free: Fraction::new(1, 8),
        holders: vec![],
        nearest: Nearest::default(),
    })
}
