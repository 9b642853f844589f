// SPDX-License-Identifier: GPL-2.0-only
//! Movies, and the player.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What ffmpeg prints.
pub fn ffmpeg(arguments: &[&str]) -> String {
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-y"])
        .args(arguments)
        .output()
        .expect("the program ffmpeg (Debian package ffmpeg)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A second: 30 pictures with B-frames, which the decoder must reorder, in an odd size.
pub fn movie(folder: &Path, codec: &str) -> PathBuf {
    let path = folder.join(format!("{codec}.mp4"));
    let source = "testsrc2=size=322x182:rate=30:duration=1";
    let name = path.to_str().unwrap();
    ffmpeg(&["-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", "-c:v", codec, name]);
    path
}

/// The player, without a display, and with a service at a place where none is.
pub fn player(movie: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-play"));
    command.arg(movie).args(arguments).env_remove("DISPLAY").env("ONBEAT_SOCKET", "/nobody/here");
    command
}

/// What the player does.
pub fn play(movie: &Path, arguments: &[&str]) -> Output {
    player(movie, arguments).output().unwrap()
}

/// What it prints, having ended well.
pub fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it complains of.
pub fn complaint(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}
