// SPDX-License-Identifier: GPL-2.0-only
//! What comes back: the window of memory that the guest fills when it ends.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use cpio::newc::Reader;

use crate::protocol::{GuestStatus, HEADER, LOG_NAME, MAGIC_OUT, OUT_NAME, STATUS_NAME};

const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// What the guest said about itself.
#[derive(Debug)]
pub struct Report {
    /// How the command went.
    pub status: GuestStatus,
    /// The whole kernel log.
    pub kernel_log: String,
}

/// Reads the window `memory`; the files of `/out` go to the folder `out`. `Ok(None)` when the
/// guest never got to fill the window.
///
/// # Errors
/// When the window is damaged or a file cannot be written (a full disk).
pub fn unpack(mut memory: impl Read, out: &Path) -> Result<Option<Report>> {
    let mut header = [0; HEADER];
    memory.read_exact(&mut header).context("cannot read the guest's result window")?;
    if header[..8] != MAGIC_OUT {
        return Ok(None);
    }
    let length = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
    let mut stream = std::io::BufReader::with_capacity(1 << 20, memory.take(length));
    let (mut status, mut kernel_log) = (None, None);
    loop {
        let mut entry = Reader::new(stream).context("the guest's results are damaged")?;
        if entry.entry().is_trailer() {
            break;
        }
        let name = entry.entry().name().to_owned();
        let mode = entry.entry().mode();
        if name == STATUS_NAME {
            let text = contents(&mut entry)?;
            status = Some(serde_json::from_slice(&text).context("the guest's status is damaged")?);
        } else if name == LOG_NAME {
            kernel_log = Some(String::from_utf8_lossy(&contents(&mut entry)?).into_owned());
        } else {
            let target = place(out, &name)?;
            store(&mut entry, mode, &target)
                .with_context(|| format!("cannot write the result file `{}`", target.display()))?;
        }
        stream = entry.finish().context("the guest's results are damaged")?;
    }
    Ok(Some(Report {
        status: status.context("the guest left no status")?,
        kernel_log: kernel_log.unwrap_or_default(),
    }))
}

fn contents(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where a file of the archive belongs; never outside `out`.
fn place(out: &Path, name: &str) -> Result<PathBuf> {
    let inner = Path::new(name).strip_prefix(OUT_NAME);
    match inner {
        Ok(inner) if inner.components().all(|part| matches!(part, Component::Normal(_))) => {
            Ok(out.join(inner))
        }
        _ => bail!("the guest sent a file with the odd name `{name}`"),
    }
}

/// Writes one entry of an archive to `target`, replacing what is there.
pub fn store(entry: &mut impl Read, mode: u32, target: &Path) -> Result<()> {
    // What an earlier run left here must not be followed (a link) nor keep this one from writing.
    if target.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
        fs::remove_file(target)?;
    }
    if mode & KIND == DIRECTORY {
        fs::create_dir_all(target)?;
        return Ok(());
    }
    match mode & KIND {
        REGULAR => {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode((mode & 0o777) | 0o600)
                .open(target)?;
            std::io::copy(entry, &mut file)?;
        }
        SYMLINK => symlink(String::from_utf8(contents(entry)?)?, target)?,
        _ => (),
    }
    Ok(())
}
