// SPDX-License-Identifier: GPL-2.0-only
//! An H.264 movie, decoded by the FFmpeg libraries one picture at a time.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ffmpeg_next as ffmpeg;
use ffmpeg_next::codec::{self, threading};
use ffmpeg_next::format::Pixel;
use ffmpeg_next::software::scaling;
use ffmpeg_next::util::frame::Video;
use std::collections::VecDeque;
use std::path::Path;

/// A movie that plays in a loop. All of its compressed data is in memory, so that playing it
/// does no input.
pub struct Movie {
    packets: Vec<ffmpeg::Packet>,
    next_packet: usize,
    decoder: ffmpeg::decoder::Video,
    /// How often the movie has been played to its end.
    passes: u64,
    /// Pictures decoded but not yet shown, each with its number: the codec reorders them, and gives the last ones of
    /// the movie all at once.
    ahead: VecDeque<(u64, Video)>,
    /// Number of the picture that was decoded last.
    newest: Option<u64>,
    current: Video,
    scaler: Option<scaling::Context>,
    shown: Video,
    /// Size of the picture as it is shown; `None`: as it is coded.
    size: Option<(u32, u32)>,
    /// Time stamps of all pictures, in order; empty if some have none.
    stamps: Vec<i64>,
    /// Time between two pictures, ns, if the file says it.
    period: Option<u64>,
    /// Pictures that the file's index has and its data has not.
    missing: u64,
}

// SAFETY: of what it holds only the scaler is not known to be Send; libswscale's contexts have no tie to a thread, and
// nobody else has this one.
unsafe impl Send for Movie {}

impl std::fmt::Debug for Movie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Movie of {} packets", self.packets.len())
    }
}

impl Movie {
    /// Reads all of the movie at `path` and decodes its first picture. Pictures will be converted
    /// to RGB at `size` (width, height), or at their own size.
    ///
    /// # Errors
    /// When the file cannot be read, is no movie, or has no H.264 video in it.
    pub fn open(path: &Path, size: Option<(u32, u32)>) -> Result<Self> {
        Self::read(path, size, false)
    }

    /// As [`Movie::open`], but takes what there is where the file is damaged or breaks off.
    ///
    /// # Errors
    /// As [`Movie::open`]; and if not one picture can be decoded.
    pub fn salvage(path: &Path, size: Option<(u32, u32)>) -> Result<Self> {
        Self::read(path, size, true)
    }

    fn read(path: &Path, size: Option<(u32, u32)>, salvage: bool) -> Result<Self> {
        // Told apart here, because the library's own message names neither file nor remedy.
        let readable = std::fs::metadata(path)
            .with_context(|| format!("cannot open the movie {}", path.display()))?;
        ensure!(readable.is_file(), "{} is not a file; name a movie", path.display());
        ffmpeg::init().context("the FFmpeg libraries do not start")?;
        ffmpeg::log::set_level(ffmpeg::log::Level::Fatal);
        let what = || {
            format!("{} is not a movie FFmpeg can read; name one with H.264 video", path.display())
        };
        let mut input = ffmpeg::format::input(path).with_context(what)?;
        let stream = input
            .streams()
            .best(ffmpeg::media::Type::Video)
            .with_context(|| format!("{} holds no video", path.display()))?;
        let (index, parameters) = (stream.index(), stream.parameters());
        let promised = u64::try_from(stream.frames()).unwrap_or(0);
        let rate = stream.avg_frame_rate();
        let rate = (u64::try_from(rate.numerator()), u64::try_from(rate.denominator()));
        let period = match rate {
            (Ok(pictures), Ok(seconds)) => (seconds * 1_000_000_000).checked_div(pictures),
            _ => None,
        };
        if parameters.id() != codec::Id::H264 {
            bail!(
                "{} is {:?} video, not H.264; convert it: ffmpeg -i IN -an -c:v libx264 OUT.mp4",
                path.display(),
                parameters.id()
            );
        }
        let mut packets = Vec::new();
        loop {
            let mut packet = ffmpeg::Packet::empty();
            match packet.read(&mut input) {
                Ok(()) if packet.stream() == index => packets.push(packet),
                Ok(()) => (),
                Err(ffmpeg::Error::Eof) => break,
                Err(_) if salvage && !packets.is_empty() => break,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read {}", path.display()));
                }
            }
        }
        ensure!(!packets.is_empty(), "the video in {} has no pictures", path.display());
        let mut context = codec::Context::from_parameters(parameters)?;
        // One thread: the frame is one sequential job.
        context.set_threading(threading::Config { count: 1, ..Default::default() });
        let decoder = context.decoder().video().context("the H.264 decoder does not open")?;
        let mut stamps: Vec<i64> = packets.iter().filter_map(ffmpeg::Packet::pts).collect();
        stamps.sort_unstable();
        stamps.dedup();
        if stamps.len() < packets.len() {
            stamps.clear();
        }
        let mut movie = Self {
            missing: promised.saturating_sub(packets.len() as u64),
            packets,
            next_packet: 0,
            decoder,
            passes: 0,
            ahead: VecDeque::new(),
            newest: None,
            current: Video::empty(),
            scaler: None,
            shown: Video::empty(),
            size,
            stamps,
            period: period.filter(|p| *p > 0),
        };
        while movie.ahead.is_empty() {
            match movie.decode_packet() {
                Err(_) if salvage && movie.passes == 0 => (),
                decoded => decoded.with_context(|| format!("cannot decode {}", path.display()))?,
            }
        }
        Ok(movie)
    }

    /// Time between two pictures, ns, if the file says it.
    pub fn period(&self) -> Option<u64> {
        self.period
    }

    /// Pictures that the file's index has and its data has not: the file breaks off.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Size of the pictures as they are shown.
    pub fn size(&self) -> (u32, u32) {
        let first = self.ahead.front().map_or(&self.current, |(_, picture)| picture);
        self.size.unwrap_or((first.width(), first.height()))
    }

    /// Pictures in the movie.
    pub fn pictures(&self) -> usize {
        self.packets.len()
    }

    /// Number of the packet the next call decodes, from 0.
    pub fn position(&self) -> usize {
        self.next_packet
    }

    /// The next picture, which is the first again after the last, without conversion. Each call
    /// decodes one packet, so that the work of a picture never falls on another's job.
    ///
    /// # Errors
    /// When the video is damaged.
    pub fn decode(&mut self) -> Result<&Video> {
        self.decode_packet()?;
        (_, self.current) = self.ahead.pop_front().context("the video misses pictures")?;
        Ok(&self.current)
    }

    /// As [`Movie::decode`], but goes on where the video is damaged. Returns the picture's number, which counts from 0
    /// on through all passes and leaves out pictures that cannot be decoded; `None` if no other picture can.
    pub fn decode_on(&mut self) -> Option<u64> {
        for _ in 0..=self.packets.len() {
            // What is lost shows in the numbers.
            let _ = self.decode_packet();
            if let Some((number, picture)) = self.ahead.pop_front() {
                self.current = picture;
                return Some(number);
            }
        }
        None
    }

    /// Whether parts of the picture that was decoded last are the decoder's guess.
    pub fn is_damaged(&self) -> bool {
        self.current.is_corrupt() || self.current.has_decode_errors()
    }

    /// Decodes the next picture and converts it to RGB: the work of one job.
    ///
    /// # Errors
    /// When the video is damaged, or its pictures change size.
    pub fn show(&mut self) -> Result<&Video> {
        self.decode()?;
        let (scaler, shown) = (&mut self.scaler, &mut self.shown);
        convert(scaler, &self.current, Pixel::RGB24, self.size, shown)?;
        Ok(&self.shown)
    }

    /// Converts the picture that was decoded last into `frame`: blue, green, red and an unused byte a pixel.
    ///
    /// # Errors
    /// When the pictures have changed their size.
    pub fn paint(&mut self, frame: &mut Video) -> Result<()> {
        convert(&mut self.scaler, &self.current, Pixel::BGRZ, self.size, frame)
    }

    /// Goes on to the next packet, also if this one is damaged.
    fn decode_packet(&mut self) -> Result<()> {
        let sent = self.decoder.send_packet(&self.packets[self.next_packet]);
        let mut received = self.receive();
        self.next_packet += 1;
        if self.next_packet == self.packets.len() {
            self.next_packet = 0;
            let ended = self.decoder.send_eof();
            let rest = self.receive();
            self.decoder.flush();
            self.passes += 1;
            received = received.and(ended.map_err(Into::into)).and(rest);
            ensure!(!self.ahead.is_empty(), "no picture can be decoded from it");
        }
        sent?;
        received
    }

    /// Which picture of all passes this is: its time stamp tells, or else the one before.
    fn number(&self, picture: &Video) -> u64 {
        let first = self.passes * self.packets.len() as u64;
        let stamp = picture.timestamp().filter(|_| !self.stamps.is_empty());
        match stamp.map(|stamp| self.stamps.binary_search(&stamp)) {
            Some(Ok(index)) => first + index as u64,
            _ => self.newest.map_or(first, |newest| newest + 1),
        }
    }

    /// Takes all pictures the decoder has ready.
    fn receive(&mut self) -> Result<()> {
        loop {
            let mut picture = Video::empty();
            match self.decoder.receive_frame(&mut picture) {
                Ok(()) => {
                    let number = self.number(&picture);
                    self.newest = Some(number);
                    self.ahead.push_back((number, picture));
                }
                Err(ffmpeg::Error::Eof | ffmpeg::Error::Other { errno: libc::EAGAIN }) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Converts `picture` into `out`, at `size` or its own; the scaler is made for the first one.
fn convert(
    scaler: &mut Option<scaling::Context>,
    picture: &Video,
    format: Pixel,
    size: Option<(u32, u32)>,
    out: &mut Video,
) -> Result<()> {
    let (width, height) = (picture.width(), picture.height());
    let scaler = match scaler {
        Some(scaler) => scaler,
        none => {
            let (to_width, to_height) = size.unwrap_or((width, height));
            let (from, quality) = (picture.format(), scaling::Flags::BILINEAR);
            let made =
                scaling::Context::get(from, width, height, format, to_width, to_height, quality);
            none.insert(made.map_err(|error| {
                anyhow!("cannot scale {width}x{height} to {to_width}x{to_height}: {error}")
            })?)
        }
    };
    scaler.run(picture, out).context("the pictures change their size")
}

/// Feeds the visible part of a picture, plane by plane, to `take`.
pub fn visible_bytes(picture: &Video, mut take: impl FnMut(&[u8])) {
    for plane in 0..picture.planes() {
        let per_pixel = match picture.format() {
            Pixel::BGRZ => 4,
            Pixel::RGB24 => 3,
            _ => 1,
        };
        let width = picture.plane_width(plane) as usize * per_pixel;
        for line in picture.data(plane).chunks(picture.stride(plane)) {
            take(&line[..width.min(line.len())]);
        }
    }
}
