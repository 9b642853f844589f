// SPDX-License-Identifier: GPL-2.0-only
//! A player as in Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are
//! analysis-based schedulers really worth it?", section 2: a decode task and a display task of the same period, with a
//! [queue](queue()) of frames in between. The queue is filled first; then each begins a job in every period, and the
//! display shows the newest frame that is due, or leaves the last one on the screen.

pub mod queue;
pub mod reserve;
pub mod screen;
pub mod tally;
mod window;

use crate::movie::Movie;
use crate::sys;
use anyhow::{Context, Result, anyhow, ensure};
use ffmpeg_next::format::Pixel;
use ffmpeg_next::util::frame::Video;
use onbeat_client::Beat;
use onbeat_model::protocol::Reservation;
use queue::{Reader, Writer};
use reserve::{Budgets, reserve};
use screen::Screen;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tally::{Tally, next_instant};

/// What is to be played, and how.
#[derive(Debug)]
pub struct Wish {
    /// Time between two frames, ns.
    pub period: u64,
    /// How many frames are to be shown; at least 1.
    pub due: u64,
    /// Length of the queue.
    pub queue: u64,
    /// What to reserve; nothing.
    pub budgets: Option<Budgets>,
}

impl Wish {
    /// How many frames of this size the queue needs.
    ///
    /// # Errors
    /// The queue's length is 0, or it does not fit into memory.
    pub fn check(&self, (width, height): (u32, u32)) -> Result<usize> {
        let available = sys::available_memory().unwrap_or(u64::MAX);
        let bytes = u64::from(width) * u64::from(height) * 4;
        queue::frames(self.queue, bytes, available)
    }
}

/// What was played.
#[derive(Debug)]
pub struct Played {
    /// What became of the frames.
    pub tally: Tally,
    /// What was wrong with the movie.
    pub damage: Damage,
    reservations: Vec<Reservation>,
}

/// What is wrong with a movie, as far as it was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Damage {
    /// Pictures of which the decoder guessed a part.
    pub guessed: u64,
    /// Pictures of which it made nothing.
    pub lost: u64,
    /// Pictures that the file's index has and its data has not.
    pub missing: u64,
}

impl Damage {
    /// In one line, if there is any.
    pub fn text(&self) -> Option<String> {
        let Self { guessed, lost, missing } = self;
        let parts = [
            (*lost, format!("{lost} pictures cannot be decoded")),
            (*guessed, format!("{guessed} are shown with parts guessed")),
            (*missing, format!("the file breaks off, {missing} pictures are not in it")),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|(n, _)| *n > 0).map(|(_, p)| p).collect();
        (!parts.is_empty()).then(|| format!("the movie is damaged: {}", parts.join(", ")))
    }
}

impl Played {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = self.tally.text();
        for r in &self.reservations {
            let (exhausted, late) = (r.exhaustions, r.misses);
            text += &format!(
                "\nreservation of {}: {} jobs, {late} late, budget used up {exhausted} times",
                r.name, r.jobs
            );
        }
        text
    }

    /// For programs: one object, times in ns.
    pub fn json(&self) -> Value {
        let mut json = self.tally.json();
        json["damaged"] = json!(self.damage.guessed);
        json["lost"] = json!(self.damage.lost);
        json["missing"] = json!(self.damage.missing);
        json["reservations"] = json!(self.reservations);
        json
    }
}

/// Plays; returns when the last frame is over or the user has closed the window.
///
/// # Errors
/// The queue does not fit into memory, a reservation is refused, or the display has gone.
pub fn play(mut movie: Movie, screen: Screen, wish: &Wish) -> Result<Played> {
    let (width, height) = movie.size();
    // More than are shown are of no use.
    let count = wish.check((width, height))?.min(usize::try_from(wish.due)?.saturating_add(1));
    let blank = move || {
        let mut frame = Video::new(Pixel::BGRZ, width, height);
        // Written to, so that no job waits for a page.
        frame.data_mut(0).fill(0);
        frame
    };
    let (mut writer, reader) = queue::queue((0..count).map(|_| blank()).collect());
    let (over, missing) = (AtomicBool::new(false), movie.missing());
    std::thread::scope(|scope| {
        let ((tell, tids), (tell_too, tids_too)) = (channel(), channel());
        let ((go, start), (go_too, start_too)) = (channel(), channel());
        let (begin, begun) = channel();
        let (over, movie) = (&over, &mut movie);
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let decoder = named("decode").spawn_scoped(scope, move || {
            report_and_wait(&tell, &start)
                .map_or(Damage::default(), |()| decode(movie, &mut writer, wish, &begin, over))
        })?;
        let display = named("display").spawn_scoped(scope, move || {
            let mut screen = screen;
            // A dark screen first: what is there from then on, memory and code, no frame has to wait for.
            let dark = screen.show(&blank());
            let ready = report_and_wait(&tell_too, &start_too).and_then(|()| begun.recv().ok());
            let none = || Ok(Tally::new(0, wish.period));
            let shown = dark.and_then(|()| {
                ready.map_or_else(none, |origin| show(screen, reader, wish, origin))
            });
            over.store(true, Relaxed);
            shown
        })?;
        let gone = "a task has died";
        let (decode, display_tid) = (tids.recv().context(gone)?, tids_too.recv().context(gone)?);
        let reserved = match wish.budgets {
            Some(budgets) => reserve(decode, display_tid, wish.period, budgets)?,
            None => None,
        };
        if let Some(reserved) = &reserved {
            eprintln!("onbeat-play: {}", reserved.text);
        }
        // The display first, which waits for the other: in between, who tells them may wait for a CPU itself. If one of
        // them has died, the joins below tell.
        let _ = (go_too.send(()), go.send(()));
        let tally = display.join().map_err(|_| anyhow!("the display task has died"))?;
        let mut damage = decoder.join().map_err(|_| anyhow!("the decode task has died"))?;
        let reservations = reserved.map_or(Ok(Vec::new()), |r| r.release());
        let reservations = reservations.unwrap_or_else(|error| {
            eprintln!("onbeat-play: what the reservations got is not known: {error:#}");
            Vec::new()
        });
        let tally = tally.context("cannot play on")?;
        ensure!(tally.due() > 0, "no picture of the movie can be decoded");
        damage.missing = missing;
        Ok(Played { tally, damage, reservations })
    })
}

/// Tells the thread's number and waits until it may begin; `None` if it may not.
fn report_and_wait(tell: &Sender<u32>, start: &Receiver<()>) -> Option<()> {
    tell.send(sys::thread_id()).ok()?;
    start.recv().ok()
}

/// The decode task: fills the queue, sets the origin, then decodes a frame in every period; late jobs follow at once.
fn decode(
    movie: &mut Movie,
    writer: &mut Writer<Video>,
    wish: &Wish,
    begin: &Sender<u64>,
    over: &AtomicBool,
) -> Damage {
    sys::no_timer_slack();
    let (mut damage, mut beat) = (Damage::default(), None);
    let (mut next, mut jobs) = (0, 0);
    while next < wish.due && !over.load(Relaxed) {
        // One frame is left to decode into.
        if beat.is_none() && jobs > wish.queue {
            beat = Some(start(wish.period, begin));
        }
        if let Some(beat) = &mut beat {
            beat.wait();
        }
        jobs += 1;
        let Some(number) = movie.decode_on() else { break };
        let number = number.max(next);
        damage.lost += number.min(wish.due) - next;
        next = number + 1;
        if number >= wish.due {
            break;
        }
        damage.guessed += u64::from(movie.is_damaged());
        // The display may itself be late, but a frame it is done with comes.
        let mut frame = loop {
            match writer.blank() {
                Some(frame) => break frame,
                None if over.load(Relaxed) => return damage,
                None => std::thread::sleep(Duration::from_nanos(wish.period / 16)),
            }
        };
        match movie.paint(&mut frame) {
            Ok(()) => writer.push(number, frame),
            Err(_) => {
                damage.lost += 1;
                writer.spare(frame);
            }
        }
    }
    if beat.is_none() && jobs > 0 {
        start(wish.period, begin);
    }
    damage
}

/// Sets the origin a moment ahead and tells the display.
fn start(period: u64, begin: &Sender<u64>) -> Beat {
    let origin = sys::monotonic() + 1_000_000;
    // A display that has gone has said that it is over.
    let _ = begin.send(origin);
    Beat::starting_at(origin, period)
}

/// The display task.
fn show(mut screen: Screen, mut reader: Reader<Video>, wish: &Wish, origin: u64) -> Result<Tally> {
    sys::no_timer_slack();
    let mut tally = Tally::new(origin, wish.period);
    let mut instant = 0;
    while instant < wish.due {
        sys::sleep_until(origin + instant * wish.period);
        if let Some((number, frame)) = reader.newest(instant) {
            screen.show(&frame)?;
            tally.shown(number, sys::monotonic());
            reader.give_back(frame);
        }
        if screen.closed()? {
            tally.finish(instant + 1);
            return Ok(tally);
        }
        instant = next_instant(instant, sys::monotonic() - origin, wish.period, wish.due);
    }
    // The last frame has its period on the screen, too.
    sys::sleep_until(origin + wish.due * wish.period);
    tally.finish(wish.due);
    Ok(tally)
}
