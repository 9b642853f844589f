// SPDX-License-Identifier: GPL-2.0-only
//! The library, from Rust and from C, against a service that answers as told.

use onbeat_client::{Error, Params, Service};
use onbeat_model::protocol::{
    Nearest, REQUEST_BYTES, Refusal, Request, Reservation, Response, read_message, write_message,
};
use onbeat_model::units::Fraction;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

struct Fake {
    folder: tempfile::TempDir,
    seen: JoinHandle<Vec<Request>>,
}

impl Fake {
    /// Serves one connection; answers each request by `answer`.
    fn start(answer: fn(&Request) -> Response) -> Self {
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

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }
}

fn agree(request: &Request) -> Response {
    match request {
        Request::Reserve(_) => {
            Response::Granted { id: 7, policy: "g-edf+fcbs".into(), cpus: vec![0, 1] }
        }
        Request::Release { id } => {
            Response::Released(Reservation { id: *id, jobs: 10, ..Default::default() })
        }
        _ => Response::Error { message: "what?".into(), remedy: "ask otherwise".into() },
    }
}

fn refuse(_: &Request) -> Response {
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

#[test]
fn a_reservation_is_asked_for_as_given_and_given_back() {
    let fake = Fake::start(agree);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let params = Params::new(25, 41_000).with_deadline(40_000).on_cpus(vec![1]).marking_jobs();
    let grant = service.reserve(42, "movie", &params).unwrap();
    assert_eq!((grant.id, grant.cpus), (7, vec![0, 1]));
    assert_eq!(service.release(7).unwrap().jobs, 10);
    drop(service);
    let seen = fake.seen.join().unwrap();
    let Request::Reserve(reserve) = &seen[0] else { panic!("{seen:?}") };
    assert_eq!((reserve.pid, reserve.budget_ns, reserve.period_ns), (42, 25, 41_000));
    assert_eq!((reserve.deadline_ns, reserve.marks), (Some(40_000), true));
    assert_eq!(reserve.cpus, Some(vec![1]));
    assert_eq!(seen[1], Request::Release { id: 7 });
}

#[test]
fn every_kind_of_failure_is_told_apart() {
    let fake = Fake::start(refuse);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let error = service.reserve(1, "x", &Params::new(5, 20_000)).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("all CPUs are full"), "{error}");
    let error = service.reserve(1, "x", &Params::new(5, 0)).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");

    let fake = Fake::start(agree);
    let mut service = Service::connect_to(&fake.socket()).unwrap();
    let error = service.ask(&Request::Stats).unwrap_err();
    assert_eq!(error.to_string(), "what?; ask otherwise");

    let error = Service::connect_to("/nonexistent/socket".as_ref()).unwrap_err();
    assert!(error.to_string().contains("start scx_onbeat"), "{error}");
}

/// Compiles the C example against the static library beside this test.
fn c_example(folder: &std::path::Path) -> PathBuf {
    let room = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libonbeat_client.a");
    assert!(library.exists(), "{} was not built", library.display());
    let program = folder.join("beat");
    let compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(room.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(room.join("examples/beat.c"))
        .arg(&library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .expect("a C compiler, `cc`");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    program
}

#[test]
fn the_c_example_compiles_and_runs_and_reports_refusals() {
    let fake = Fake::start(agree);
    let program = c_example(fake.folder.path());
    let run =
        |socket: PathBuf| Command::new(&program).env("ONBEAT_SOCKET", socket).output().unwrap();
    let output = run(fake.socket());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 10);
    assert_eq!(fake.seen.join().unwrap().last(), Some(&Request::Release { id: 7 }));

    let output = run(Fake::start(refuse).socket());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("beat: the reservation does not fit"), "{message}");

    let output = run("/nonexistent/socket".into());
    assert_eq!(output.status.code(), Some(1));
}
