// SPDX-License-Identifier: GPL-2.0-only
//! Queues of frames between a task that decodes and one that shows.

use onbeat_model::event::EventKind;

use super::Engine;

/// One end of a queue.
pub(super) struct QueueEnd {
    /// The task at the other end.
    other: usize,
    /// Frames that may wait beside the one that is due next, at the end that shows; `None`: this end decodes.
    shows: Option<usize>,
    /// What it waits for, in the events.
    resource: usize,
    /// Its job has begun and waits.
    waits: bool,
}

impl Engine {
    /// Task `display` shows what `decoder` decodes, through a queue for `length` frames that is called `resource`.
    pub fn frames(&mut self, decoder: usize, display: usize, length: usize, resource: usize) {
        let end = |other, shows| QueueEnd { other, shows, resource, waits: false };
        self.special(decoder).queue = Some(end(display, None));
        self.special(display).queue = Some(end(decoder, Some(length)));
    }

    fn queue_end(&mut self, i: usize) -> Option<&mut QueueEnd> {
        let at = self.tasks[i].special?;
        self.special.threads[at as usize].queue.as_mut()
    }

    /// Whether the job of task `i` that has just begun waits, for its frame or for a place to put it.
    pub(super) fn waits_for_frames(&mut self, i: usize) -> bool {
        if self.tasks[i].special.is_none() || !self.lacks_frames(i) {
            return false;
        }
        let job = self.tasks[i].job as u64;
        let Some(end) = self.queue_end(i) else { return false };
        end.waits = true;
        let resource = end.resource as u64;
        self.note(i, EventKind::Block, resource, job);
        true
    }

    /// Whether task `i` sleeps until the other end of its queue gets on.
    pub(super) fn blocked_by_frames(&self, i: usize) -> bool {
        let end = self.tasks[i].special.map(|at| &self.special.threads[at as usize].queue);
        end.is_some_and(|end| end.as_ref().is_some_and(|end| end.waits))
    }

    /// Of a queue that was full at first: frame k is there when decode job k - length - 1 has ended, and job j has room
    /// for what it decodes when frame j - 1 has been shown.
    fn lacks_frames(&mut self, i: usize) -> bool {
        let job = self.tasks[i].job;
        let Some(end) = self.queue_end(i) else { return false };
        let (other, shows) = (end.other, end.shows);
        let done = self.tasks[other].job;
        match shows {
            Some(length) => job > done + length,
            None => job > done,
        }
    }

    /// A job of task `i` has ended: the other end goes on if it has waited for that.
    pub(super) fn frame_done(&mut self, i: usize) {
        let Some(other) = self.queue_end(i).map(|end| end.other) else { return };
        if !self.blocked_by_frames(other) || self.lacks_frames(other) {
            return;
        }
        let job = self.tasks[other].job as u64;
        let Some(end) = self.queue_end(other) else { return };
        end.waits = false;
        let resource = end.resource as u64;
        self.note(other, EventKind::Unblock, resource, job);
        self.note(other, EventKind::Segment, job, 0);
        self.core.ready(other, self.now);
    }
}
