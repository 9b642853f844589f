// SPDX-License-Identifier: GPL-2.0-only
//! A window of the X Window System.

use anyhow::{Context, Result, bail, ensure};
use std::borrow::Cow;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::image::{BitsPerPixel, Image, ImageOrder, ScanlinePad};
use x11rb::properties::WmSizeHints;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt, CreateGCAux, CreateWindowAux, EventMask, Gcontext, Pixmap, PropMode,
    Screen, VisualClass, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// How long the window may take to appear: a window manager may ask its user first.
const PATIENCE: Duration = Duration::from_secs(2);
const INSTEAD: &str = "or play without one: --display null";

/// A window of fixed size, with what it shows kept by the server.
#[derive(Debug)]
pub struct Window {
    server: RustConnection,
    window: u32,
    /// What the window shows, also for what was covered.
    picture: Pixmap,
    gc: Gcontext,
    depth: u8,
    width: u16,
    height: u16,
    /// Sent when the user closes the window.
    delete: u32,
    closed: bool,
}

impl Window {
    /// Opens a window on the display that DISPLAY names, and waits until it can be seen.
    ///
    /// # Errors
    /// DISPLAY names no display that can be used, or frames are too large for a window.
    pub fn open(width: u32, height: u32, title: &str) -> Result<Self> {
        let name = std::env::var("DISPLAY").unwrap_or_default();
        ensure!(
            !name.is_empty(),
            "there is no display: DISPLAY is not set; set it (DISPLAY=:0), {INSTEAD}"
        );
        let (server, screen) = RustConnection::connect(None).with_context(|| {
            format!(
                "the display that DISPLAY names, {name}, does not answer; correct it, {INSTEAD}"
            )
        })?;
        Self::on(server, screen, (width, height), title).with_context(|| {
            format!("the display {name} shows no such window; use another, {INSTEAD}")
        })
    }

    fn on(server: RustConnection, screen: usize, size: (u32, u32), title: &str) -> Result<Self> {
        let side = |n: u32| i16::try_from(n).map(|n| n as u16).context("the frames are too large");
        let (width, height) = (side(size.0)?, side(size.1)?);
        let screen = &server.setup().roots[screen];
        let (root, depth, white) = (screen.root, screen.root_depth, screen.white_pixel);
        ensure!(true_colour(screen), "it has no true colour of 24 bits a pixel");
        let [window, picture, gc] =
            [server.generate_id()?, server.generate_id()?, server.generate_id()?];
        let events = EventMask::EXPOSURE | EventMask::STRUCTURE_NOTIFY;
        let how = CreateWindowAux::new().event_mask(events).background_pixel(screen.black_pixel);
        let class = WindowClass::INPUT_OUTPUT;
        server
            .create_window(depth, window, root, 0, 0, width, height, 0, class, 0, &how)?
            .check()?;
        server.create_pixmap(depth, picture, window, width, height)?.check()?;
        let how = CreateGCAux::new().graphics_exposures(0).foreground(white);
        server.create_gc(gc, window, &how)?.check()?;
        let atom = |name: &str| -> Result<u32> {
            Ok(server.intern_atom(false, name.as_bytes())?.reply()?.atom)
        };
        let (protocols, delete) = (atom("WM_PROTOCOLS")?, atom("WM_DELETE_WINDOW")?);
        let (replace, named) = (PropMode::REPLACE, AtomEnum::WM_NAME);
        server.change_property32(replace, window, protocols, AtomEnum::ATOM, &[delete])?;
        server.change_property8(replace, window, named, AtomEnum::STRING, title.as_bytes())?;
        let fixed = Some((i32::from(width), i32::from(height)));
        let hints = WmSizeHints { min_size: fixed, max_size: fixed, ..WmSizeHints::new() };
        hints.set_normal_hints(&server, window)?;
        server.map_window(window)?.check()?;
        let closed = false;
        let mut this = Self { server, window, picture, gc, depth, width, height, delete, closed };
        this.wait_until_seen()?;
        Ok(this)
    }

    fn wait_until_seen(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.server.poll_for_event()? {
                Some(Event::Expose(_)) => break,
                Some(event) => self.heed(&event),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }

    /// Shows a frame: blue, green, red and an unused byte a pixel.
    ///
    /// # Errors
    /// The server has gone.
    pub fn put(&mut self, frame: &[u8]) -> Result<()> {
        let image = Image::new(
            self.width,
            self.height,
            ScanlinePad::Pad32,
            self.depth,
            BitsPerPixel::B32,
            ImageOrder::LsbFirst,
            Cow::Borrowed(frame),
        )?;
        let image = image.native(self.server.setup())?;
        image.put(&self.server, self.picture, self.gc, 0, 0)?;
        self.draw()
    }

    fn draw(&self) -> Result<()> {
        let (from, to, gc) = (self.picture, self.window, self.gc);
        self.server.copy_area(from, to, gc, 0, 0, 0, 0, self.width, self.height)?;
        self.server.flush().context("the display's server has gone")
    }

    /// Whether the user has closed the window; also redraws what was covered.
    ///
    /// # Errors
    /// The server has gone, or says that a request was wrong.
    pub fn closed(&mut self) -> Result<bool> {
        let mut uncovered = false;
        while let Some(event) =
            self.server.poll_for_event().context("the display's server has gone")?
        {
            match event {
                Event::Expose(_) => uncovered = true,
                Event::Error(error) => bail!("the display's server refuses: {error:?}"),
                event => self.heed(&event),
            }
        }
        if uncovered && !self.closed {
            self.draw()?;
        }
        Ok(self.closed)
    }

    fn heed(&mut self, event: &Event) {
        self.closed |= match event {
            Event::ClientMessage(message) => message.data.as_data32()[0] == self.delete,
            Event::DestroyNotify(_) => true,
            _ => false,
        };
    }
}

/// Whether a pixel is 32 bits with red, green and blue in its lower three bytes.
fn true_colour(screen: &Screen) -> bool {
    let depths = screen.allowed_depths.iter().filter(|d| d.depth == screen.root_depth);
    let mut visuals = depths.flat_map(|d| &d.visuals);
    visuals.find(|v| v.visual_id == screen.root_visual).is_some_and(|v| {
        let masks = (v.red_mask, v.green_mask, v.blue_mask);
        v.class == VisualClass::TRUE_COLOR && masks == (0xff_0000, 0xff00, 0xff)
    })
}
