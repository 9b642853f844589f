// SPDX-License-Identifier: GPL-2.0-only
//! The table of threads that wake in a rhythm.

use std::fmt::Write;

use onbeat_model::beat::{LONGEST, SHORTEST};
use onbeat_model::protocol::Beat;
use onbeat_model::units::format_duration;

/// A line for each thread; or that there is none, and what that means.
pub fn text(threads: &[Beat], left_out: u64) -> String {
    let mut text = String::new();
    if threads.is_empty() {
        let (least, most) = (format_duration(SHORTEST), format_duration(LONGEST));
        let _ = writeln!(
            text,
            "no thread beats: none has been waking at regular distances of {least} to {most}\n\
             (root is told of everybody's threads, others of their own)"
        );
    } else {
        let _ = writeln!(
            text,
            "{:>8} {:>8} {:>6} {:<15} {:<20} {:>10} {:>10} {:>10} {:>10} {:>4}",
            "PID",
            "THREAD",
            "UID",
            "NAME",
            "PROGRAM",
            "PERIOD",
            "CONFIDENCE",
            "CPU TIME",
            "AT MOST",
            "ID"
        );
    }
    for t in threads {
        let ms = |ns: u64| format!("{:.2}ms", ns as f64 / 1e6);
        let _ = writeln!(
            text,
            "{:>8} {:>8} {:>6} {:<15} {:<20} {:>10} {:>9.0}% {:>10} {:>10} {:>4}",
            t.pid,
            t.thread,
            t.uid,
            t.name,
            t.program,
            ms(t.rhythm.period_ns),
            100.0 * t.rhythm.confidence,
            ms(t.rhythm.used_ns),
            ms(t.rhythm.used_max_ns),
            t.reservation.map_or("-".into(), |id| id.to_string()),
        );
    }
    if left_out > 0 {
        let _ = writeln!(
            text,
            "{left_out} more threads were not looked at: too many have woken of late"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_model::beat::Rhythm;

    fn beat(thread: u32, reservation: Option<u32>) -> Beat {
        let rhythm = Rhythm {
            period_ns: 41_708_333,
            confidence: 0.934,
            used_ns: 8_250_000,
            used_max_ns: 21_004_000,
            periods: 15,
        };
        let (name, program) = ("decoder".into(), "mpv".into());
        Beat { pid: 7, thread, uid: 1000, name, program, reservation, rhythm }
    }

    #[test]
    fn each_thread_has_a_line_with_its_period_what_it_uses_and_its_reservation_if_it_has_one() {
        let text = text(&[beat(7, None), beat(8, Some(3))], 0);
        let cells: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        let line = ["7", "8", "1000", "decoder", "mpv", "41.71ms", "93%", "8.25ms", "21.00ms", "3"];
        assert_eq!(cells[2], line);
        assert_eq!(
            (cells.len(), cells[1].last(), text.lines().map(str::len).max()),
            (3, Some(&"-"), Some(110)),
            "{text}"
        );
        assert!(text.lines().all(|l| l.len() == 110), "{text}");
    }

    #[test]
    fn where_nobody_beats_it_says_so_and_who_is_told_of_whom() {
        let text = text(&[], 2);
        assert!(
            text.starts_with(
                "no thread beats: none has been waking at regular distances of 4ms to 1.25s\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("root is told of everybody's") && text.contains("2 more threads"),
            "{text}"
        );
    }
}
