// SPDX-License-Identifier: GPL-2.0-only
//! What became of the frames: which were shown, how late, how evenly.

use serde_json::{Value, json};

/// Mean and greatest of some times, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    count: u64,
    sum: u64,
    /// The greatest, ns.
    pub max: u64,
}

impl Spread {
    fn note(&mut self, time: u64) {
        self.count += 1;
        self.sum += time;
        self.max = self.max.max(time);
    }

    /// The mean, ns; 0 of none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    fn text(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!("{:.3} ms on average, {:.3} ms at most", ms(self.mean()), ms(self.max))
    }
}

/// The figures of one play. Frame k is due at origin + k periods and should be on the screen before the next is due;
/// that is the deadline of its display job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    origin: u64,
    period: u64,
    /// The first frame of which it is not known yet what became of it.
    next: u64,
    last: Option<u64>,
    /// Frames shown, late ones too.
    pub displayed: u64,
    /// Of those, shown only after the next was due.
    pub late: u64,
    /// Frames never shown, as they were not there in time.
    pub dropped: u64,
    /// |t − (t' + p)| for successive times t', t at which frames were shown, ns (relative jitter as in Kenna et al.,
    /// section 5; a dropped frame is a deviation of a period).
    pub jitter: Spread,
    /// By how much frames missed their deadlines, those in time by 0, ns.
    pub tardiness: Spread,
}

impl Tally {
    /// Of a play that begins at `origin` (CLOCK_MONOTONIC, ns).
    pub fn new(origin: u64, period: u64) -> Self {
        Self {
            origin,
            period,
            next: 0,
            last: None,
            displayed: 0,
            late: 0,
            dropped: 0,
            jitter: Spread::default(),
            tardiness: Spread::default(),
        }
    }

    /// Frame `number`, a later one than any before, has been put on the screen at time `at`.
    pub fn shown(&mut self, number: u64, at: u64) {
        self.dropped += number - self.next;
        self.next = number + 1;
        self.displayed += 1;
        let deadline = self.origin + (number + 1) * self.period;
        let tardiness = at.saturating_sub(deadline);
        self.late += u64::from(tardiness > 0);
        self.tardiness.note(tardiness);
        if let Some(last) = self.last.replace(at) {
            self.jitter.note(at.abs_diff(last + self.period));
        }
    }

    /// The play is over; `due` frames should have been shown.
    pub fn finish(&mut self, due: u64) {
        self.dropped += due.saturating_sub(self.next);
        self.next = self.next.max(due);
    }

    /// The frames that should have been shown.
    pub fn due(&self) -> u64 {
        self.next
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "{} frames due, {} displayed ({} of them late), {} dropped\n\
             relative jitter {}\n\
             tardiness       {}",
            self.due(),
            self.displayed,
            self.late,
            self.dropped,
            self.jitter.text(),
            self.tardiness.text(),
        )
    }

    /// For programs; times in ns.
    pub fn json(&self) -> Value {
        json!({
            "period_ns": self.period,
            "due": self.due(),
            "displayed": self.displayed,
            "late": self.late,
            "dropped": self.dropped,
            "jitter_mean_ns": self.jitter.mean(),
            "jitter_max_ns": self.jitter.max,
            "tardiness_mean_ns": self.tardiness.mean(),
            "tardiness_max_ns": self.tardiness.max,
        })
    }
}

/// The instant at which the display looks next, `elapsed` ns after the origin: the one after `instant`, or the present
/// one if some have passed meanwhile, but in any case that of the last of `due` frames.
pub fn next_instant(instant: u64, elapsed: u64, period: u64, due: u64) -> u64 {
    (instant + 1).max((elapsed / period).min(due - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_play_with_one_late_and_two_dropped_frames() {
        let mut tally = Tally::new(1000, 100);
        tally.shown(0, 1010);
        tally.shown(1, 1110); // 100 after the one before
        tally.shown(3, 1420); // due at 1300, its deadline was 1400; 310 after the one before
        tally.shown(4, 1500);
        tally.finish(6);
        assert_eq!((tally.due(), tally.displayed, tally.late, tally.dropped), (6, 4, 1, 2));
        assert_eq!((tally.jitter.mean(), tally.jitter.max), ((210 + 20) / 3, 210));
        assert_eq!((tally.tardiness.mean(), tally.tardiness.max), (5, 20));
    }

    #[test]
    fn a_display_that_overslept_goes_on_with_the_present_instant_and_never_leaves_out_the_last() {
        assert_eq!(next_instant(3, 310, 100, 10), 4);
        assert_eq!(next_instant(3, 780, 100, 10), 7);
        assert_eq!(next_instant(3, 99_999, 100, 10), 9);
        assert_eq!(next_instant(9, 99_999, 100, 10), 10, "over");
    }
}
