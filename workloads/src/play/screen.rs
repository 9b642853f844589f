// SPDX-License-Identifier: GPL-2.0-only
//! Where frames are shown.

use super::window::Window;
use crate::movie::visible_bytes;
use anyhow::Result;
use ffmpeg_next::util::frame::Video;

/// A screen of one frame's size. What was shown last stays on it.
#[derive(Debug)]
pub struct Screen {
    /// Pixels as [`crate::movie::Movie::paint`] makes them, line after line.
    frame: Vec<u8>,
    window: Option<Window>,
}

/// Which screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Display {
    /// A frame buffer in memory
    Null,
    /// A window on the X display that DISPLAY names
    Window,
}

impl Screen {
    /// Opens it.
    ///
    /// # Errors
    /// There is no display, or it has no window for such frames.
    pub fn open(display: Display, (width, height): (u32, u32), title: &str) -> Result<Self> {
        let window = match display {
            Display::Null => None,
            Display::Window => Some(Window::open(width, height, title)?),
        };
        Ok(Self { frame: Vec::with_capacity(width as usize * height as usize * 4), window })
    }

    /// Shows a frame. Returns once it is in the frame buffer, or handed to the display's server.
    ///
    /// # Errors
    /// The display's server has gone.
    pub fn show(&mut self, picture: &Video) -> Result<()> {
        self.frame.clear();
        visible_bytes(picture, |line| self.frame.extend_from_slice(line));
        // Somebody might look at it.
        std::hint::black_box(&self.frame);
        self.window.as_mut().map_or(Ok(()), |window| window.put(&self.frame))
    }

    /// Whether the user has closed the window; also redraws what was covered.
    ///
    /// # Errors
    /// The display's server has gone.
    pub fn closed(&mut self) -> Result<bool> {
        self.window.as_mut().map_or(Ok(false), Window::closed)
    }
}
