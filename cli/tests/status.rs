// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat status --watch`, `onbeat top` and `onbeat run` before a service that exists only here.

#[path = "common/fake.rs"]
mod fake;
mod run;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, complaint};
use onbeat_model::beat::Rhythm;
use onbeat_model::metrics::Cause;
use onbeat_model::protocol::{
    Beat, Cpu, REQUEST_BYTES, Request, Reservation, Response, Set, read_message, write_message,
};
use onbeat_model::units::Fraction;
use serde_json::Value;

fn answer(time_ns: u64) -> Response {
    let (reserved, free) = (Fraction::new(13, 8), Fraction::new(1, 4));
    let one = Reservation {
        id: 3,
        name: "decoder".into(),
        budget_ns: 1,
        period_ns: 2,
        ..Default::default()
    };
    Response::Status {
        policy: "g-edzl+cbs".into(),
        cpus: vec![0, 1],
        reserved,
        free,
        reservations: vec![one],
        sets: vec![],
        best_effort: "fair".into(),
        interrupt_cpu: None,
        reserved_cpus: reserved.into(),
        free_cpus: free.into(),
        time_ns,
        per_cpu: vec![Cpu::default()],
    }
}

/// Listens there, and answers each of `clients` connections so many times.
fn serve(socket: PathBuf, clients: Vec<usize>) {
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for answers in clients {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for time in 0..answers {
                let Ok(Some(Request::Status)) = read_message(&mut stream, REQUEST_BYTES) else {
                    break;
                };
                if write_message(stream.get_mut(), &answer(time as u64)).is_err() {
                    break;
                }
            }
        }
    });
}

fn onbeat(words: &[&str], socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat"));
    command.args(words).env("ONBEAT_SOCKET", socket).env_remove("NO_COLOR");
    command
}

fn ended(mut child: Child) -> i32 {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it does not end");
}

#[test]
fn watched_as_json_it_is_an_object_a_line_and_ends_well_when_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    serve(socket.clone(), vec![usize::MAX]);
    let words = ["status", "--watch", "100ms", "--json"];
    let mut child = onbeat(&words, &socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for time in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["time_ns"], &line["answer"]), (&time.into(), &"status".into()));
        let words = serde_json::json!({"cpus": 1.625, "numerator": 13, "denominator": 8});
        assert_eq!(
            (&line["reserved_cpus"], &line["reserved"]),
            (&words, &serde_json::json!([13, 8]))
        );
    }
    drop(lines);
    assert_eq!(ended(child), 0);
}

#[test]
fn watched_as_text_a_service_that_ends_is_told_waited_for_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    // The second connection only finds out that it is ready, and is the one that goes on.
    serve(socket.clone(), vec![1, usize::MAX]);
    let mut child = onbeat(&["status", "--watch=100ms"], &socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut tables = 0;
    while tables < 3 {
        tables += usize::from(lines.next().unwrap().unwrap().ends_with("CPU TIME"));
    }
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let words = complaint(&output);
    assert!(words.contains("waiting for it") && words.contains("the service is back"), "{words}");
}

/// Names of all fields of a value.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(all) => all.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            fields(value, names);
        }),
        Value::Array(all) => all.iter().for_each(|value| fields(value, names)),
        _ => (),
    }
}

/// Parts of the page in the marks of code.
fn documented(section: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(common::checkout().join("docs/json.md")).unwrap();
    let from =
        page.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let page = &page[from + 4..];
    let page = &page[..page.find("\n## ").unwrap_or(page.len())];
    page.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_field_of_the_answers_is_in_the_documentation_and_each_there_is_one() {
    let half = Fraction::new(1, 2);
    // What is left out where it does not apply, too.
    let Response::Status { policy, cpus, reserved, free, best_effort, per_cpu, .. } = answer(0)
    else {
        panic!()
    };
    let (thread, group, set) = (2, "media".into(), "default".into());
    let status = Response::Status {
        policy,
        cpus,
        reserved,
        free,
        best_effort,
        per_cpu,
        reservations: vec![Reservation {
            thread,
            group,
            set,
            unguaranteed: true,
            late_causes: Cause::OF_CORE.map(|cause| (cause, 1)).into(),
            late_by: Some(1),
            ..Default::default()
        }],
        sets: vec![Set {
            name: "default".into(),
            cpus: vec![0],
            policy: "g-edf+cbs".into(),
            reserved: half,
            free: half,
            reserved_cpus: half.into(),
            free_cpus: half.into(),
        }],
        interrupt_cpu: Some(1),
        reserved_cpus: half.into(),
        free_cpus: half.into(),
        time_ns: 1,
    };
    let rhythm = Rhythm { period_ns: 1, confidence: 0.5, used_ns: 1, used_max_ns: 1, periods: 1 };
    let (name, program) = (String::new(), String::new());
    let beat = Beat { pid: 1, thread: 1, uid: 1, name, program, reservation: None, rhythm };
    let beats = Response::Beats { threads: vec![beat], left_out: 0 };
    for (section, answer) in [("status", status), ("beats", beats)] {
        compare(section, &[], &[serde_json::to_value(answer).unwrap()]);
    }
}

#[test]
fn each_field_of_what_other_verbs_print_is_in_the_documentation() {
    let chrt = common::checkout().join("experiments/chrt.toml");
    let kenna = common::checkout().join("experiments/provision/kenna-t1.toml");
    let (chrt, kenna) = (chrt.to_str().unwrap(), kenna.to_str().unwrap());
    let json = |args: &[&str]| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_onbeat")).args(args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
    };
    let full = common::File::new(
        "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n[[task]]\nname = \"a\"\ncount = 2\n\
         period = \"10ms\"\nbudget = \"3ms\"\nwork = { constant = \"3ms\" }\n[[task]]\nname = \"b\"\n\
         period = \"20ms\"\nbudget = \"8ms\"\nwork = { constant = \"3ms\" }\n",
    );
    let analyze = |more: &[&str]| json(&[&["analyze", chrt], more].concat());
    let judged = [
        analyze(&["--json", "--all", "--admit", "g-edf+cbs"]),
        analyze(&["--policy", "g-edf", "--jsonl"]),
        json(&["analyze", full.path(), "--json"]),
    ];
    compare("onbeat analyze", &[], &judged);
    let one = [
        ["--cpus", "4"],
        ["--streams", "5"],
        ["--period", "40ms"],
        ["--mean", "12ms"],
        ["--deviation", "4ms"],
        ["--hard", "2ms"],
    ]
    .concat();
    let others = [
        json(&["policies", "--json"]),
        json(&["provision", kenna, "--json"]),
        json(&[&["provision", "--json"][..], &one].concat()),
        json(&["doctor", "--json"]),
    ];
    compare("onbeat sweep, provision, policies, doctor", &[], &others);
}

/// Each field of these answers is in that section, or in one of the others that it is said to be like; and each in the
/// section is one.
fn compare(section: &str, others: &[&str], answers: &[Value]) {
    let mut names = BTreeSet::new();
    answers.iter().for_each(|answer| fields(answer, &mut names));
    let own = documented(section);
    let mut all = own.clone();
    others.iter().for_each(|other| all.extend(documented(other)));
    let missing: Vec<_> = names.difference(&all).collect();
    assert!(missing.is_empty(), "{section}: not in docs/json.md: {missing:?}");
    let is_name = |text: &&String| {
        text.contains('_')
            && text.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let gone: Vec<_> = own.difference(&names).filter(is_name).collect();
    assert!(gone.is_empty(), "{section}: only in docs/json.md: {gone:?}");
}

#[test]
fn without_a_service_watching_fails_and_says_what_to_do() {
    let output = onbeat(&["status", "--watch"], Path::new("/nonexistent/s")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    // What to do depends on whether the kernel of this machine could serve at all.
    let remedies = ["systemctl start", "boot Linux 7.2", "none can run here"];
    let words = complaint(&output);
    assert!(remedies.iter().any(|remedy| words.contains(remedy)), "{words}");
    for wrong in ["0s", "1ms", "x"] {
        let output =
            onbeat(&["status", "--watch", wrong], Path::new("/nonexistent/s")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn top_without_a_terminal_names_what_to_use() {
    let output =
        onbeat(&["top"], Path::new("/nonexistent/s")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("use `onbeat status --watch`"), "{}", complaint(&output));
    assert!(output.stdout.is_empty());
}

/// A terminal of 80 columns and 24 lines: the program's side, and ours.
fn terminal() -> (OwnedFd, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let mut size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let null = std::ptr::null_mut();
    // SAFETY: both numbers are written before they are used, and are nobody else's.
    unsafe {
        assert_eq!(libc::openpty(&mut ours, &mut theirs, null, null.cast(), &raw mut size), 0);
        (OwnedFd::from_raw_fd(theirs), File::from_raw_fd(ours))
    }
}

/// Whether lines are edited and echoed by the terminal, as shells want it.
fn is_cooked(terminal: &OwnedFd) -> bool {
    modes(terminal) & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
}

fn modes(terminal: &OwnedFd) -> libc::tcflag_t {
    use std::os::fd::AsRawFd;
    // SAFETY: the kernel fills it.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut modes), 0);
        modes.c_lflag
    }
}

/// Reads what is shown until it holds that.
fn shown(terminal: &mut File, part: &str) -> String {
    let mut text = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&text).contains(part) {
        match terminal.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(_) => break, // nobody holds the other side any more
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn top_shows_reservations_and_gives_the_terminal_back_on_q_and_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    serve(socket.clone(), vec![usize::MAX; 2]);
    for by_key in [true, false] {
        let (theirs, mut ours) = terminal();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = onbeat(&["top"], &socket)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .spawn()
            .unwrap();
        let text = shown(&mut ours, "decoder");
        assert!(text.contains("\x1b[?1049h") && text.contains("decoder"), "{text:?}");
        assert!(!is_cooked(&theirs));
        match by_key {
            true => ours.write_all(b"q").unwrap(),
            // SAFETY: the child has not been waited for.
            false => assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0),
        }
        let text = shown(&mut ours, "\x1b[?1049l");
        assert!(text.contains("\x1b[?1049l"), "{text:?}");
        assert_eq!(ended(child), 0);
        assert!(is_cooked(&theirs));
    }
}
