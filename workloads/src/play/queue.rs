// SPDX-License-Identifier: GPL-2.0-only
//! The queue of frames between decoding and display: wait-free, for one writer and one reader. It never allocates, as
//! frames go round: filled ones one way, shown ones back.

use anyhow::{Result, ensure};
use rtrb::{Consumer, Producer, RingBuffer};

/// The end that decodes.
#[derive(Debug)]
pub struct Writer<T> {
    filled: Producer<(u64, T)>,
    blank: Consumer<T>,
    spare: Option<T>,
}

/// The end that shows.
#[derive(Debug)]
pub struct Reader<T> {
    filled: Consumer<(u64, T)>,
    blank: Producer<T>,
}

/// A queue of these frames, all of them blank.
pub fn queue<T>(frames: Vec<T>) -> (Writer<T>, Reader<T>) {
    let (filled, to_show) = RingBuffer::new(frames.len());
    let (mut shown, blank) = RingBuffer::new(frames.len());
    for frame in frames {
        // There is room for each.
        let _ = shown.push(frame);
    }
    (Writer { filled, blank, spare: None }, Reader { filled: to_show, blank: shown })
}

impl<T> Writer<T> {
    /// A frame to decode into, if one is free.
    pub fn blank(&mut self) -> Option<T> {
        self.spare.take().or_else(|| self.blank.pop().ok())
    }

    /// Keeps a frame that nothing came to for the next [`Writer::blank`].
    pub fn spare(&mut self, frame: T) {
        self.spare = Some(frame);
    }

    /// Queues a frame that came from [`Writer::blank`]; numbers rise.
    pub fn push(&mut self, number: u64, frame: T) {
        // There is room for all frames that there are.
        let _ = self.filled.push((number, frame));
    }
}

impl<T> Reader<T> {
    /// The newest frame whose number is at most `due`, with its number; those before it are passed over.
    pub fn newest(&mut self, due: u64) -> Option<(u64, T)> {
        let mut newest = None;
        while self.filled.peek().is_ok_and(|(number, _)| *number <= due) {
            if let Some((_, passed)) = newest.take() {
                self.give_back(passed);
            }
            newest = self.filled.pop().ok();
        }
        newest
    }

    /// Returns a frame that has been shown.
    pub fn give_back(&mut self, frame: T) {
        // There is room for all frames that there are.
        let _ = self.blank.push(frame);
    }
}

/// How many frames a queue of `length` needs: `length` may wait besides the one that is due next, and one is being
/// shown. A decode job that is late by `length` periods is then still in time for the display, as its job began
/// `length` + 1 periods before its frame is due.
///
/// # Errors
/// The length is 0, or so many frames of `frame` bytes do not fit into `available` bytes of memory.
pub fn frames(length: u64, frame: u64, available: u64) -> Result<usize> {
    ensure!(
        length > 0,
        "--queue 0 leaves no frame to wait for its turn; give it 1 or more (`onbeat provision` says how many)"
    );
    let needed = u128::from(frame) * (u128::from(length) + 2);
    ensure!(
        needed <= u128::from(available),
        "--queue {length} needs {} MiB of memory, and {} MiB are available; at most {} frames fit",
        needed >> 20,
        available >> 20,
        (available / frame.max(1)).saturating_sub(2)
    );
    Ok(length as usize + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_frame_that_is_due_is_shown_and_older_ones_are_passed_over() {
        let (mut writer, mut reader) = queue(vec!['a', 'b', 'c']);
        for number in [0, 1, 4] {
            let frame = writer.blank().unwrap();
            writer.push(number, frame);
        }
        assert_eq!(writer.blank(), None);
        assert_eq!(reader.newest(3), Some((1, 'b')));
        assert_eq!(writer.blank(), Some('a'), "it was passed over");
        assert_eq!(reader.newest(3), None, "the next is not due yet");
        reader.give_back('b');
        assert_eq!(writer.blank(), Some('b'));
        assert_eq!(reader.newest(4), Some((4, 'c')));
    }

    #[test]
    fn a_queue_of_nothing_and_one_that_does_not_fit_into_memory_are_refused() {
        assert!(frames(0, 1, 1000).unwrap_err().to_string().contains("--queue 0"));
        assert_eq!(frames(8, 100, 1000).unwrap(), 10);
        let error = frames(9, 100, 1000).unwrap_err().to_string();
        assert!(error.contains("at most 8 frames fit"), "{error}");
        assert!(frames(u64::MAX, u64::MAX, u64::MAX).is_err());
    }
}
