// SPDX-License-Identifier: GPL-2.0-only
//! The library, from Rust and from C, against a service that answers as told.

use onbeat_client::{Error, Params, Service};
use onbeat_model::protocol::{
    Nearest, REQUEST_BYTES, Refusal, Request, Reservation, Response, read_message, write_message,
};
use onbeat_model::units::Fraction;
use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
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
        Request::Release { id, .. } => {
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
    assert_eq!(seen[1], Request::Release { id: 7, own: false });
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

/// The folder of this test, in which its libraries are built, too.
fn built() -> PathBuf {
    let mut test = std::env::current_exe().unwrap();
    test.pop();
    test
}

/// Compiles the C example into `folder`, and links it as told.
fn c_example(folder: &Path, link: &[OsString]) -> PathBuf {
    let room = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("beat");
    let compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(room.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(room.join("examples/beat.c"))
        .args(link)
        .output()
        .expect("a C compiler, `cc`");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    program
}

#[test]
fn the_c_example_compiles_and_runs_and_reports_refusals() {
    let fake = Fake::start(agree);
    let library = built().join("libonbeat_client.a").into_os_string();
    let link = [library, "-lpthread".into(), "-ldl".into(), "-lm".into(), "-lgcc_s".into()];
    let program = c_example(fake.folder.path(), &link);
    let run =
        |socket: PathBuf| Command::new(&program).env("ONBEAT_SOCKET", socket).output().unwrap();
    let output = run(fake.socket());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 10);
    assert_eq!(fake.seen.join().unwrap().last(), Some(&Request::Release { id: 7, own: true }));

    let output = run(Fake::start(refuse).socket());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("beat: the reservation does not fit"), "{message}");

    let output = run("/nonexistent/socket".into());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn programs_linked_with_the_shared_library_ask_for_the_version_of_its_interface() {
    let folder = tempfile::tempdir().unwrap();
    let link = ["-L".into(), built().into_os_string(), "-lonbeat_client".into()];
    let program = c_example(folder.path(), &link);
    let name = format!("libonbeat_client.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    let bytes = std::fs::read(&program).unwrap();
    let asked = format!("{name}\0").into_bytes();
    assert!(bytes.windows(asked.len()).any(|b| b == asked), "not linked with {name}");
    std::os::unix::fs::symlink(built().join("libonbeat_client.so"), folder.path().join(name))
        .unwrap();
    let mut run = Command::new(&program);
    run.env("LD_LIBRARY_PATH", folder.path()).env("ONBEAT_SOCKET", "/nonexistent/socket");
    let words = String::from_utf8(run.output().unwrap().stderr).unwrap();
    assert!(words.contains("/nonexistent/socket"), "{words}");
}
