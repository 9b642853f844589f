// SPDX-License-Identifier: GPL-2.0-only
//! The library from C, against a service that answers as told.

#[path = "../../tests/fake/mod.rs"]
mod fake;

use fake::{Fake, agree, refuse};
use onbeat_model::protocol::Request;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

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
