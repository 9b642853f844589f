// SPDX-License-Identifier: GPL-2.0-only
//! Messages on the wire: one JSON object a line.

use std::io::{self, BufRead, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Longest line with a request, bytes.
pub const REQUEST_BYTES: u64 = 64 << 10;

/// Longest line with a response, bytes: a status may list a thousand reservations, beats four thousand threads.
pub const RESPONSE_BYTES: u64 = 4 << 20;

/// What goes wrong between the two ends of the socket.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// The line does not end within the limit.
    #[error("a line of more than {0} bytes; the other side does not speak this protocol")]
    TooLong(u64),
    /// The other side closed in the middle of a line.
    #[error("the connection was closed in the middle of a message; ask again")]
    CutOff,
    /// Not a message.
    #[error("not a message of this protocol ({0}); use the same version on both sides")]
    Malformed(String),
    /// The system reports.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Reads one message of at most `limit` bytes; `None` when the other side has closed.
///
/// # Errors
/// [`ProtocolError`]; never panics, whatever the bytes.
pub fn read_message<T: DeserializeOwned>(
    input: &mut impl BufRead,
    limit: u64,
) -> Result<Option<T>, ProtocolError> {
    let mut line = Vec::new();
    input.by_ref().take(limit + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) if line.len() as u64 >= limit => return Err(ProtocolError::TooLong(limit)),
        Some(_) => return Err(ProtocolError::CutOff),
    }
    parse_message(&line).map(Some)
}

/// Parses one line without its end.
///
/// # Errors
/// [`ProtocolError::Malformed`].
pub fn parse_message<T: DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(line).map_err(|e| ProtocolError::Malformed(clip_long(&e.to_string())))
}

fn clip_long(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Writes one message and its end in a single write, then flushes.
///
/// # Errors
/// Whatever the writer reports.
pub fn write_message<T: Serialize>(out: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}
