// SPDX-License-Identifier: GPL-2.0-only
//! The player's window, on an X server without a screen (Debian package xvfb; `make setup` installs it).

mod common;

use common::{ffmpeg, player};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::image::Image;
use x11rb::protocol::xproto::{ClientMessageEvent, ConnectionExt, EventMask};
use x11rb::rust_connection::RustConnection;

const WIDTH: u16 = 320;
const HEIGHT: u16 = 180;
/// Only a player that hangs needs that long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    display: String,
}

impl Server {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match child {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            child => child.unwrap(),
        };
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        Some(Self { child, display: format!(":{}", number.trim()) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its left half is orange, its right half blue.
fn flag(folder: &Path) -> PathBuf {
    let path = folder.join("flag.mp4");
    let half = |colour: &str| format!("color=c={colour}:size=160x180:rate=25:duration=1");
    let (left, right) = (half("0xe08020"), half("0x2040c0"));
    let source = ["-f", "lavfi", "-i", &left, "-f", "lavfi", "-i", &right];
    let how = ["-filter_complex", "hstack", "-pix_fmt", "yuv420p", "-c:v", "libx264"];
    ffmpeg(&[&source[..], &how[..], &[path.to_str().unwrap()]].concat());
    path
}

/// Mean red, green and blue of a part of the screen, from `x` on.
fn mean(server: &RustConnection, (x, y): (i16, i16), (width, height): (u16, u16)) -> [u64; 3] {
    let root = server.setup().roots[0].root;
    let (image, _) = Image::get(server, root, x, y, width, height).unwrap();
    let mut sums = [0; 3];
    for at in 0..u32::from(width) * u32::from(height) {
        let (column, row) = (at % u32::from(width), at / u32::from(width));
        let pixel = u64::from(image.get_pixel(column as u16, row as u16));
        for (sum, shift) in sums.iter_mut().zip([16, 8, 0]) {
            *sum += pixel >> shift & 0xff;
        }
    }
    sums.map(|sum| sum / (u64::from(width) * u64::from(height)))
}

/// Whether it is that colour, as nearly as video is.
fn is(colour: [u64; 3], wanted: [u64; 3]) -> bool {
    colour.iter().zip(wanted).all(|(had, wanted)| had.abs_diff(wanted) <= 10)
}

fn soon(what: &str, mut true_now: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !true_now() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_window_shows_the_movies_frame_and_the_player_ends_when_it_is_closed() {
    let Some(x) = Server::start() else {
        println!("skipped: there is no Xvfb here; `make setup` installs it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--display", "window", "--json", "--no-reservation", "--duration", "1h"];
    let mut command = player(&flag(folder.path()), &arguments);
    let mut player = command.env("DISPLAY", &x.display).stdout(Stdio::piped()).spawn().unwrap();
    let (server, _) = RustConnection::connect(Some(&x.display)).unwrap();
    let half = (WIDTH / 2 - 8, HEIGHT);
    soon("no orange left half", || is(mean(&server, (0, 0), half), [0xe0, 0x80, 0x20]));
    let right = mean(&server, (WIDTH as i16 / 2 + 8, 0), half);
    assert!(is(right, [0x20, 0x40, 0xc0]), "{right:?}");
    let beside = mean(&server, (WIDTH as i16, 0), half);
    assert_eq!(beside, [0; 3], "the window is as large as the movie");
    if let Ok(path) = std::env::var("ONBEAT_SCREENSHOT") {
        let root = server.setup().roots[0].root;
        let (image, _) = Image::get(&server, root, 0, 0, 640, 480).unwrap();
        std::fs::write(path, image.data()).unwrap();
    }

    let root = server.setup().roots[0].root;
    let windows = server.query_tree(root).unwrap().reply().unwrap().children;
    let atom =
        |name: &str| server.intern_atom(false, name.as_bytes()).unwrap().reply().unwrap().atom;
    let (protocols, delete) = (atom("WM_PROTOCOLS"), atom("WM_DELETE_WINDOW"));
    for window in windows {
        let message = ClientMessageEvent::new(32, window, protocols, [delete, 0, 0, 0, 0]);
        server.send_event(false, window, EventMask::NO_EVENT, message).unwrap();
    }
    server.flush().unwrap();
    soon("it does not end", || player.try_wait().unwrap().is_some());
    let output = player.wait_with_output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| json[name].as_u64().unwrap();
    assert!(number("displayed") > 0, "{json}");
    assert_eq!(number("displayed") + number("dropped"), number("due"), "{json}");
    assert!(number("due") < 25 * 3600, "{json}");
}

#[test]
fn a_display_that_goes_away_ends_the_player_with_an_error() {
    let Some(x) = Server::start() else {
        println!("skipped: there is no Xvfb here; `make setup` installs it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--display", "window", "--no-reservation", "--duration", "1h"];
    let mut command = player(&flag(folder.path()), &arguments);
    let child = command.env("DISPLAY", &x.display).stderr(Stdio::piped()).spawn().unwrap();
    let (server, _) = RustConnection::connect(Some(&x.display)).unwrap();
    soon("nothing is shown", || mean(&server, (0, 0), (64, 64)) != [0; 3]);
    drop(x);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot play on: "), "{said}");
}
