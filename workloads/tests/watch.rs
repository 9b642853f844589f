// SPDX-License-Identifier: GPL-2.0-only
//! The player with a display: frames, damage, reservations. Function only, no timing.

mod common;

use common::{complaint, ffmpeg, movie, play, player, printed};
use onbeat_model::protocol::{
    REQUEST_BYTES, Request, Reservation, Response, read_message, write_message,
};
use onbeat_model::units::Fraction;
use serde_json::Value;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;

/// All of the movie is decoded before the first frame is shown: how fast that is does not matter.
const WHOLE: [&str; 6] = ["--display", "null", "--queue", "40", "--period", "2ms"];

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"))
}

/// The figures of a play, and what was said on stderr.
fn figures(output: Output) -> (Value, String) {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let json: Value = serde_json::from_str(&printed(output)).unwrap();
    let [due, displayed, late, dropped] =
        ["due", "displayed", "late", "dropped"].map(|name| number(&json, name));
    assert!(displayed > 0 && displayed + dropped == due && late <= displayed, "{json}");
    (json, said)
}

fn watch(movie: &Path, more: &[&str]) -> (Value, String) {
    figures(play(movie, &[&WHOLE[..], &["--json", "--no-reservation"], more].concat()))
}

#[test]
fn every_frame_is_accounted_for_on_a_display_in_memory_also_when_the_movie_loops() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let (json, said) = watch(&movie, &[]);
    assert_eq!((number(&json, "due"), number(&json, "period_ns")), (30, 2_000_000));
    assert_eq!(["damaged", "lost", "missing"].map(|name| number(&json, name)), [0; 3]);
    assert_eq!(said, "");
    let (json, _) = watch(&movie, &["--frames", "70"]);
    assert_eq!(number(&json, "due"), 70);
    assert_eq!(number(&json, "lost"), 0, "{json}");
    let short = ["--display", "null", "--queue", "1", "--no-reservation"];
    let text = printed(play(&movie, &[&short[..], &["--frames", "5"]].concat()));
    assert!(text.starts_with("5 frames due, "), "{text}");
    for word in ["displayed", "late", "dropped", "relative jitter", "tardiness", "at most"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let (json, _) =
        figures(play(&movie, &[&short[..], &["--json", "--duration", "90ms"]].concat()));
    // 30 pictures a second, as it was made.
    assert_eq!((number(&json, "due"), number(&json, "period_ns")), (3, 33_333_333));
}

#[test]
fn a_queue_that_cannot_be_and_nothing_to_play_are_refused_before_anything_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let refused = |more: &[&str]| complaint(play(&movie, &[&["--display", "null"], more].concat()));
    let zero = refused(&["--queue", "0"]);
    assert!(zero.contains("--queue 0") && zero.contains("give it 1 or more"), "{zero}");
    for huge in ["99999999999", "18446744073709551615"] {
        let error = refused(&["--queue", huge]);
        assert!(error.contains("MiB of memory") && error.contains("at most"), "{error}");
    }
    assert!(refused(&["--frames", "0"]).contains("nothing to play"));
    assert!(refused(&["--period", "0ms"]).contains("--period must be more than 0"));
}

#[test]
fn without_a_display_the_error_names_the_variable_and_the_way_without() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let unset = complaint(play(&movie, &["--display", "window"]));
    let mut command = player(&movie, &["--display", "window"]);
    // Nobody listens at a display of that number.
    let wrong = complaint(command.env("DISPLAY", ":54321").output().unwrap());
    assert!(wrong.contains(":54321"), "{wrong}");
    for error in [unset, wrong] {
        assert!(error.contains("DISPLAY") && error.contains("--display null"), "{error}");
    }
}

/// The movie with `part` (percent from, until) of its pictures overwritten.
fn damaged(folder: &Path, part: (usize, usize)) -> PathBuf {
    let path = movie(folder, "libx264");
    let mut bytes = std::fs::read(&path).unwrap();
    let data = bytes.windows(4).position(|w| w == b"mdat").unwrap() + 4;
    // ffmpeg writes the index last; the encoder's words before the first picture are of no use.
    let end = bytes.windows(4).position(|w| w == b"moov").unwrap() - 4;
    let at = |percent: usize| data + (end - data) * percent / 100;
    bytes[at(part.0)..at(part.1)].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_movie_damaged_in_the_middle_is_played_and_what_is_lost_is_counted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let (json, said) = watch(&damaged(folder.path(), (50, 80)), &[]);
    let hurt = number(&json, "damaged") + number(&json, "lost");
    assert!(hurt > 0, "{json}");
    assert!(number(&json, "dropped") >= number(&json, "lost"), "{json}");
    assert!(said.contains("the movie is damaged: "), "{said}");
    // The present job loop gives up instead.
    assert!(!play(&folder.path().join("libx264.mp4"), &["--verify"]).status.success());
}

#[test]
fn a_movie_that_breaks_off_is_played_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = movie(folder.path(), "libx264");
    let cut = folder.path().join("cut.mp4");
    let (from, to) = (whole.to_str().unwrap(), cut.to_str().unwrap());
    ffmpeg(&["-i", from, "-c", "copy", "-movflags", "+faststart", to]);
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() * 3 / 4]).unwrap();
    let (json, said) = watch(&cut, &[]);
    let missing = number(&json, "missing");
    assert!(missing > 0, "{json}");
    assert_eq!(number(&json, "due") + missing, 30, "{json}");
    assert!(said.contains(&format!("breaks off, {missing} pictures are not in it")), "{said}");
}

#[test]
fn a_movie_of_which_nothing_can_be_decoded_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = complaint(play(&damaged(folder.path(), (0, 100)), &WHOLE));
    assert!(error.contains("no picture can be decoded"), "{error}");
}

/// A service under `policy`, which grants what it is asked for, or refuses; serves one connection.
fn service(
    folder: &Path,
    policy: &'static str,
    grants: bool,
) -> std::thread::JoinHandle<Vec<Request>> {
    let listener = UnixListener::bind(folder.join("s")).unwrap();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut seen = Vec::new();
        while let Ok(Some(request)) = read_message::<Request>(&mut stream, REQUEST_BYTES) {
            let zero = Fraction::new(0, 1);
            let answer = match &request {
                Request::Status => Response::Status {
                    policy: policy.into(),
                    cpus: vec![0],
                    reserved: zero,
                    free: zero,
                    reservations: vec![],
                    sets: vec![],
                    best_effort: "fair".into(),
                    interrupt_cpu: None,
                    reserved_cpus: zero.into(),
                    free_cpus: zero.into(),
                    time_ns: 0,
                    per_cpu: vec![],
                },
                Request::Reserve(_) if grants => Response::Granted {
                    id: seen.len() as u32,
                    policy: policy.into(),
                    cpus: vec![0],
                },
                Request::Release { id, .. } => Response::Released(Reservation {
                    id: *id,
                    name: "task".into(),
                    jobs: 42,
                    ..Default::default()
                }),
                _ => Response::Error { message: "all is full".into(), remedy: "wait".into() },
            };
            write_message(stream.get_mut(), &answer).unwrap();
            seen.push(request);
        }
        seen
    })
}

fn served(movie: &Path, folder: &Path) -> Output {
    let mut command = player(movie, &[&WHOLE[..], &["--json"]].concat());
    command.env("ONBEAT_SOCKET", folder.join("s")).output().unwrap()
}

#[test]
fn the_two_tasks_have_a_hard_and_a_soft_reservation_where_the_policy_ranks() {
    for (policy, classes) in
        [("edf-hsb-ns", ["Some(Hard)", "Some(Soft)"]), ("g-edzl+cbs-predict", ["None", "None"])]
    {
        let folder = tempfile::tempdir().unwrap();
        let movie = movie(folder.path(), "libx264");
        let service = service(folder.path(), policy, true);
        let (json, said) = figures(served(&movie, folder.path()));
        assert!(said.contains(policy), "{said}");
        assert_eq!(json["reservations"][1]["jobs"], 42, "{json}");
        let seen = service.join().unwrap();
        let [Request::Status, Request::Reserve(display), Request::Reserve(decode), rest @ ..] =
            &seen[..]
        else {
            panic!("{seen:?}")
        };
        assert_eq!((&display.name[..], &decode.name[..]), ("display", "decode"));
        assert_eq!((display.budget_ns, decode.budget_ns), (200_000, 1_000_000));
        assert_eq!((display.period_ns, decode.period_ns), (2_000_000, 2_000_000));
        assert_eq!([display, decode].map(|r| format!("{:?}", r.class)), classes);
        let threads = [display.thread.unwrap(), decode.thread.unwrap()];
        assert!(threads[0] != threads[1] && !threads.contains(&display.pid), "{seen:?}");
        assert_eq!(rest, [1, 2].map(|id| Request::Release { id, own: true }));
    }
}

#[test]
fn a_refused_reservation_ends_the_play_and_no_service_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let service = service(folder.path(), "edf-hsb-ns", false);
    let error = complaint(served(&movie, folder.path()));
    assert!(error.contains("all is full") && error.contains("--no-reservation"), "{error}");
    service.join().unwrap();
    let (json, said) = figures(play(&movie, &[&WHOLE[..], &["--json"]].concat()));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("playing without reservations"), "{said}");
    assert_eq!(json["reservations"], serde_json::json!([]));
}
