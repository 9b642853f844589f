// SPDX-License-Identifier: GPL-2.0-only
//! The player, against the ffmpeg program, with movies made here.

mod common;

use common::{complaint, ffmpeg, movie, play, printed};

#[test]
fn the_decoded_pictures_are_those_of_ffmpeg_also_when_the_movie_loops() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let name = movie.to_str().unwrap();
    let md5 = |loops: &str| {
        let source = ["-stream_loop", loops, "-i", name, "-map", "0:v"];
        ffmpeg(&[&source[..], &["-vsync", "passthrough", "-f", "md5", "-"]].concat())
    };
    assert_eq!(printed(play(&movie, &["--verify"])), md5("0"));
    assert_eq!(printed(play(&movie, &["--verify", "--frames", "90"])), md5("2"));
}

#[test]
fn late_pictures_are_not_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    // No computer converts a picture in a microsecond.
    let arguments = ["--period", "1us", "--frames", "70", "--size", "640x360"];
    let summary = printed(play(&movie, &arguments));
    assert!(summary.starts_with("70 jobs in"), "{summary}");
    assert!(summary.contains(", 70 late"), "{summary}");
}

#[test]
fn no_pictures_and_no_time_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for nothing in [["--frames", "0"], ["--duration", "0s"]] {
        let refused = complaint(play(&folder.path().join("any.mp4"), &nothing));
        assert!(refused.contains("there is nothing to play; give --frames"), "{refused}");
    }
}

#[test]
fn a_file_that_is_missing_cut_off_no_movie_or_not_h264_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let missing = complaint(play(&folder.path().join("none.mp4"), &[]));
    assert!(missing.contains("none.mp4") && missing.contains("No such file"), "{missing}");

    let mpeg4 = complaint(play(&movie(folder.path(), "mpeg4"), &[]));
    assert!(mpeg4.contains("MPEG4 video, not H.264; convert it"), "{mpeg4}");

    let text = folder.path().join("text.mp4");
    std::fs::write(&text, "no movie at all").unwrap();
    assert!(complaint(play(&text, &[])).contains("text.mp4 is not a movie"));
    assert!(complaint(play(folder.path(), &[])).contains("is not a file"));

    let whole = std::fs::read(movie(folder.path(), "libx264")).unwrap();
    std::fs::write(&text, &whole[..whole.len() / 2]).unwrap();
    assert!(complaint(play(&text, &[])).contains("text.mp4 is not a movie"));

    let sound = folder.path().join("sound.wav");
    ffmpeg(&["-f", "lavfi", "-i", "sine=duration=1", sound.to_str().unwrap()]);
    assert!(complaint(play(&sound, &[])).contains("holds no video"));
}

#[test]
fn damage_inside_the_pictures_ends_in_an_error_or_in_pictures_never_in_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let whole = std::fs::read(&movie).unwrap();
    for place in 1..12 {
        let mut damaged = whole.clone();
        let begin = damaged.len() * place / 12;
        for byte in damaged[begin..].iter_mut().take(60) {
            *byte ^= 0x5a;
        }
        std::fs::write(&movie, damaged).unwrap();
        let output = play(&movie, &["--verify"]);
        assert!(output.status.code().is_some_and(|code| code < 2), "{place}: {output:?}");
    }
}

#[test]
fn a_recording_has_a_time_for_every_picture() {
    let folder = tempfile::tempdir().unwrap();
    let movie = movie(folder.path(), "libx264");
    let trace = printed(play(&movie, &["--record", "--passes", "2", "--scale"]));
    let times = trace.lines().filter(|line| !line.starts_with('#'));
    let times: Vec<u64> = times.map(|line| line.parse().unwrap()).collect();
    assert_eq!(times.len(), 30);
    assert_eq!(times.iter().max(), Some(&45_000_000));
}
