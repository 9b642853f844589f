// SPDX-License-Identifier: GPL-2.0-only
//! A pool of recorded movies, of which each copy of a task plays another one, drawn by the set's seed.

use std::path::Path;
use std::sync::Arc;

use super::parse::line_of;
use super::table::{Fault, Table};
use super::{Work, limits};
use crate::units::{clip, parse_duration};

/// One movie of a pool: what each of its frames takes, ns; never empty.
pub type Reel = Arc<[u64]>;

/// Reads `pool` of a work; the file is looked for in `folder`.
pub(super) fn read(folder: &Path, w: &Table<'_, '_>) -> Result<Work, Fault> {
    let path = w.required("pool", "\"traces/pool.csv\"", w.string("pool")?)?;
    let file = folder.join(path.value);
    let bytes = super::read_limited(&file, limits::TRACE_BYTES).map_err(|(reason, remedy)| {
        Fault { at: path.at, reason: format!("the pool {} {reason}", file.display()), remedy }
    })?;
    let reels = reels(&bytes).map_err(|(line, reason, remedy)| {
        let place = line.map_or_else(String::new, |line| format!(":{line}"));
        let reason = format!("the pool {}{place} {reason}", file.display());
        Fault { at: path.at, reason, remedy: remedy.into() }
    })?;
    Ok(Work::Pool { path: path.value.into(), reels: reels.into() })
}

type Mistake = (Option<usize>, String, &'static str);

/// A movie a line: its name and the times of its frames in ms, all with commas between. Lines that are empty or begin
/// with `#` are skipped. On failure the line, the reason, and the remedy.
fn reels(bytes: &[u8]) -> Result<Vec<Reel>, Mistake> {
    const FORM: &str = "write the movie's name and then its times in ms, as in film,14.49,9.8";
    let text = std::str::from_utf8(bytes)
        .map_err(|e| (Some(line_of(bytes, e.valid_up_to())), "is not text".to_owned(), FORM))?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let mut reels = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(',').map(str::trim);
        words.next();
        let time = |word: &str| {
            let time = parse_duration(&format!("{word}ms")).ok();
            time.filter(|ns| (1..=limits::TIME).contains(ns)).ok_or_else(|| {
                let reason = format!("holds \"{}\", which is no time in ms", clip(word));
                (Some(number), reason, FORM)
            })
        };
        let reel = words.map(time).collect::<Result<Vec<u64>, _>>()?;
        if reel.is_empty() {
            return Err((Some(number), "names a movie without frames".into(), FORM));
        }
        reels.push(reel.into());
    }
    if reels.is_empty() { Err((None, "holds no movies".into(), FORM)) } else { Ok(reels) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_movie_and_its_times_are_exact() {
        let read = reels(b"# made by hand\nfilm,14.49,0.000001\n\nother, 3\n").unwrap();
        assert_eq!(read, [Reel::from([14_490_000, 1]), Reel::from([3_000_000])]);
    }

    #[test]
    fn a_line_that_is_no_movie_is_named() {
        for (text, line, word) in [
            ("film,1\nother,x\n", Some(2), "\"x\""),
            ("film,0\n", Some(1), "\"0\""),
            ("film,1,\n", Some(1), "no time"),
            ("film\n", Some(1), "without frames"),
            ("# nothing\n", None, "no movies"),
        ] {
            let (at, reason, _) = reels(text.as_bytes()).unwrap_err();
            assert_eq!(at, line, "{text}");
            assert!(reason.contains(word), "{reason}");
        }
        assert_eq!(reels(b"film,1\n\xff").unwrap_err().0, Some(2));
    }
}
