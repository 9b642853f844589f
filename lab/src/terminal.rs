// SPDX-License-Identifier: GPL-2.0-only
//! Our own terminal while a guest's shell uses it.

use std::io;
use std::os::fd::AsFd;

use nix::sys::termios::{self, SetArg, Termios};

/// Remembers the terminal's settings and restores them when dropped.
pub(crate) struct Guard(Option<Termios>);

impl Guard {
    pub(crate) fn new() -> Self {
        Guard(termios::tcgetattr(io::stdin().as_fd()).ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Nothing can be done when this fails; the terminal is likely gone.
            let _ = termios::tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, before);
        }
    }
}

/// Rows and columns of our terminal; 24 × 80 when it won't say.
pub(crate) fn size() -> (u16, u16) {
    // SAFETY: a zeroed winsize is valid, and TIOCGWINSZ fills exactly one.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(libc::STDIN_FILENO, libc::TIOCGWINSZ, &mut size);
        size
    };
    if size.ws_row == 0 || size.ws_col == 0 { (24, 80) } else { (size.ws_row, size.ws_col) }
}
