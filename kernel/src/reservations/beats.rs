// SPDX-License-Identifier: GPL-2.0-only
//! Which threads wake in a rhythm, and who may know.

use std::time::{Duration, Instant};

use onbeat_model::beat::rhythm;
use onbeat_model::protocol::{Beat, Response};

use super::{Book, Peer, Problem};
use crate::arena::Waking;
use crate::engine::Engine;
use crate::system::System;

/// How long a look at all threads is good for, at least, and how many times as long as it took: who asks again and
/// again takes no more of the service than a tenth.
const FRESH: Duration = Duration::from_millis(200);
const TIMES: u32 = 10;

/// Who beats.
#[derive(Debug)]
pub(super) struct Beating {
    at: Instant,
    took: Duration,
    /// And whether it acts as its user alone.
    threads: Vec<(Beat, bool)>,
    left_out: u64,
}

impl<E: Engine, S: System> Book<E, S> {
    /// Root sees all threads; others see those that act as them alone, as they may reserve for no others.
    pub(super) fn beats(&mut self, peer: Peer) -> Result<Response, Problem> {
        if self.beating.as_ref().is_none_or(|b| b.at.elapsed() > FRESH.max(b.took * TIMES)) {
            self.beating = Some(self.look_for_beats()?);
        }
        let Beating { threads, left_out, .. } = self.beating.as_ref().expect("it was just made");
        let own = |(beat, alone): &&(Beat, bool)| peer.uid == 0 || *alone && beat.uid == peer.uid;
        let threads = threads.iter().filter(own).map(|(beat, _)| beat.clone()).collect();
        Ok(Response::Beats { threads, left_out: *left_out })
    }

    fn look_for_beats(&mut self) -> Result<Beating, Problem> {
        let begin = Instant::now();
        let wakes = self.engine.wakes().map_err(|e| {
            Problem(
                format!("wake-ups cannot be read: {e:#}"),
                "see the log of scx_onbeat, and ask again".into(),
            )
        })?;
        let mut threads: Vec<_> =
            wakes.threads.iter().filter_map(|t| self.beat(t, wakes.now)).collect();
        threads.sort_by_key(|(beat, _)| (beat.pid, beat.thread));
        Ok(Beating { at: Instant::now(), took: begin.elapsed(), threads, left_out: wakes.left_out })
    }

    /// What is told of a thread that beats, and whether it acts as its user alone.
    fn beat(&self, thread: &Waking, now: u64) -> Option<(Beat, bool)> {
        let mut rhythm = rhythm(&thread.series, now)?;
        rhythm.confidence = (rhythm.confidence * 1000.0).round() / 1000.0;
        let owner = self.system.owner(thread.tid).ok()?;
        // Its number may have become another thread's before that was read, perhaps another user's.
        if !self.engine.lives(thread) {
            return None;
        }
        let beat = Beat {
            pid: owner.pid,
            thread: thread.tid as u32,
            uid: owner.uid,
            name: owner.name,
            program: owner.program,
            reservation: thread.reservation,
            rhythm,
        };
        Some((beat, owner.alone))
    }
}
