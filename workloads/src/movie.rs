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
    /// Pictures decoded but not yet shown: the codec reorders them, and gives the last ones of
    /// the movie all at once.
    ahead: VecDeque<Video>,
    current: Video,
    scaler: Option<scaling::Context>,
    shown: Video,
    /// Size of the picture as it is shown; `None`: as it is coded.
    size: Option<(u32, u32)>,
}

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
        let mut movie = Self {
            packets,
            next_packet: 0,
            decoder,
            ahead: VecDeque::new(),
            current: Video::empty(),
            scaler: None,
            shown: Video::empty(),
            size,
        };
        while movie.ahead.is_empty() {
            movie.decode_packet().with_context(|| format!("cannot decode {}", path.display()))?;
        }
        Ok(movie)
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
        self.current = self.ahead.pop_front().context("the video misses pictures")?;
        Ok(&self.current)
    }

    /// Decodes the next picture and converts it to RGB: the work of one job.
    ///
    /// # Errors
    /// When the video is damaged, or its pictures change size.
    pub fn show(&mut self) -> Result<&Video> {
        self.decode()?;
        let (width, height) = (self.current.width(), self.current.height());
        let scaler = match &mut self.scaler {
            Some(scaler) => scaler,
            none => {
                let (to_width, to_height) = self.size.unwrap_or((width, height));
                let quality = scaling::Flags::BILINEAR;
                let scaler = scaling::Context::get(
                    self.current.format(),
                    width,
                    height,
                    Pixel::RGB24,
                    to_width,
                    to_height,
                    quality,
                );
                none.insert(scaler.map_err(|error| {
                    anyhow!("cannot scale {width}x{height} to {to_width}x{to_height}: {error}")
                })?)
            }
        };
        scaler.run(&self.current, &mut self.shown).context("the pictures change their size")?;
        Ok(&self.shown)
    }

    fn decode_packet(&mut self) -> Result<()> {
        self.decoder.send_packet(&self.packets[self.next_packet])?;
        self.receive()?;
        self.next_packet += 1;
        if self.next_packet == self.packets.len() {
            self.next_packet = 0;
            self.decoder.send_eof()?;
            self.receive()?;
            self.decoder.flush();
            ensure!(!self.ahead.is_empty(), "no picture can be decoded from it");
        }
        Ok(())
    }

    /// Takes all pictures the decoder has ready.
    fn receive(&mut self) -> Result<()> {
        loop {
            let mut picture = Video::empty();
            match self.decoder.receive_frame(&mut picture) {
                Ok(()) => self.ahead.push_back(picture),
                Err(ffmpeg::Error::Eof | ffmpeg::Error::Other { errno: libc::EAGAIN }) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Feeds the visible part of a picture, plane by plane, to `take`.
pub fn visible_bytes(picture: &Video, mut take: impl FnMut(&[u8])) {
    for plane in 0..picture.planes() {
        let per_pixel = if picture.format() == Pixel::RGB24 { 3 } else { 1 };
        let width = picture.plane_width(plane) as usize * per_pixel;
        for line in picture.data(plane).chunks(picture.stride(plane)) {
            take(&line[..width.min(line.len())]);
        }
    }
}
