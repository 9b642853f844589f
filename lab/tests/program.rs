// SPDX-License-Identifier: GPL-2.0-only
//! The program `onbeat-lab` as its users meet it: exit status, Ctrl-C, the shell.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-lab"));
    command.env("ONBEAT_INIT", env!("CARGO_BIN_EXE_onbeat-init"));
    command
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Waits until the process is gone; a zombie is gone too.
fn ends(pid: u32) -> bool {
    (0..1000).any(|_| {
        sleep(Duration::from_millis(20));
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')),
            Err(_) => true,
        }
    })
}

fn stopped_by(signal: i32) {
    let script = ["--realtime", "--cpus", "1", "--", "sh", "-c", "echo ready; sleep 100000"];
    let mut program = lab().args(script).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let guests = children(program.id());
    assert_eq!(guests.len(), 1, "one QEMU");
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, signal) }, 0);
    assert!(!program.wait().unwrap().success());
    assert!(ends(guests[0]), "QEMU outlived the program");
}

#[test]
fn the_guest_dies_with_the_program_on_ctrl_c() {
    stopped_by(libc::SIGINT);
}

#[test]
fn the_guest_dies_with_the_program_even_on_sigkill() {
    stopped_by(libc::SIGKILL);
}

#[test]
fn output_is_the_commands_and_so_is_the_status() {
    let script = ["--realtime", "--cpus", "1", "--", "sh", "-c", "echo only this; exit 9"];
    let output = lab().args(script).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "only this\n");
}

#[test]
fn a_seed_that_is_none_is_refused_with_the_range() {
    let output = lab().args(["--seed", "-1", "--", "true"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.contains("write a whole number from 0 to 9223372036854775807"), "{text}");
}

#[test]
fn a_missing_qemu_is_explained_with_the_remedy() {
    let output = lab().args(["--", "true"]).env("ONBEAT_QEMU", "/no/qemu").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.contains("/no/qemu") && text.contains("make setup"), "{text}");
}

#[test]
fn an_old_qemu_is_refused_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let fake = folder.path().join("qemu");
    fs::write(&fake, "#!/bin/sh\necho QEMU emulator version 7.2.22 '(Debian)'\n").unwrap();
    Command::new("chmod").arg("755").arg(&fake).status().unwrap();
    let output = lab().args(["--", "true"]).env("ONBEAT_QEMU", &fake).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("7.2.22") && text.contains("8.2"), "{text}");
}

#[test]
fn a_missing_or_damaged_kernel_is_explained_with_the_remedy() {
    let cache = tempfile::tempdir().unwrap();
    let explain = || {
        let output = lab().args(["--", "true"]).env("ONBEAT_CACHE", cache.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = explain();
    assert!(text.contains("missing") && text.contains("make setup"), "{text}");
    let kernel = cache.path().join("kernel/plain");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(kernel.join("vmlinuz"), "half of a kern").unwrap();
    fs::write(kernel.join("MANIFEST"), format!("{}  vmlinuz\n", "0".repeat(64))).unwrap();
    let text = explain();
    assert!(text.contains("damaged (vmlinuz") && text.contains("make setup"), "{text}");
}

#[test]
fn the_shell_answers_and_the_terminal_is_restored() {
    let (mut keys, terminal) = pseudo_terminal();
    let before = nix::sys::termios::tcgetattr(&terminal).unwrap();
    let mut shell = lab()
        .args(["--shell", "--cpus", "1"])
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut screen = String::new();
    let mut wait_for = |keys: &mut fs::File, wanted: &str| {
        let mut buffer = [0; 4096];
        while !screen.contains(wanted) {
            let count = keys.read(&mut buffer).unwrap();
            screen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    wait_for(&mut keys, "# ");
    keys.write_all(b"echo $((6 * 7))-$(nproc); exit 4\n").unwrap();
    wait_for(&mut keys, "42-1");
    assert_eq!(shell.wait().unwrap().code(), Some(4));
    let after = nix::sys::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(before.local_flags, after.local_flags);
    assert_eq!(before.output_flags, after.output_flags);
}

fn pseudo_terminal() -> (fs::File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: openpty fills the two descriptors; the other arguments may be null.
    unsafe {
        let done = libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        );
        assert_eq!(done, 0);
        (fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
