// SPDX-License-Identifier: GPL-2.0-only
//! What is done of a sweep, kept point by point.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Bytes of a file of points: a thousand of them in as many columns take less.
const KEPT_MOST: u64 = 32 << 20;

/// Points that are done, by number; and the file they are kept in.
pub struct Kept {
    pub done: BTreeMap<u32, Vec<u64>>,
    out: Option<File>,
}

impl Kept {
    /// What `out` holds of the same sweep.
    ///
    /// # Errors
    /// It cannot be read or written, or is of another sweep.
    pub fn open(
        out: Option<&Path>,
        head: &str,
        points: u32,
        sets: u64,
        tests: usize,
    ) -> Result<Self> {
        let mut kept = Kept { done: BTreeMap::new(), out: None };
        let Some(path) = out else { return Ok(kept) };
        let place = || format!("cannot write {}", path.display());
        if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            bail!("{} is no ordinary file; --out keeps points in one", path.display());
        }
        let mut before = String::new();
        match File::open(path) {
            Ok(file) => drop(file.take(KEPT_MOST).read_to_string(&mut before).with_context(place)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(place),
        }
        if !before.is_empty() {
            let Some(rows) = before.strip_prefix(head) else {
                bail!("{} is of another sweep; give another --out, or remove it", path.display());
            };
            // A line cut off by a crash is done again.
            for row in rows.split_inclusive('\n').filter(|row| row.ends_with('\n')) {
                let row = row.trim_end();
                let fields: Vec<&str> = row.split(',').collect();
                let point = fields.first().and_then(|f| f.parse().ok());
                let counts: Vec<u64> =
                    fields.iter().skip(2).filter_map(|f| f.parse().ok()).collect();
                match point {
                    Some(point)
                        if point < points
                            && counts.len() == tests
                            && fields.len() == tests + 2
                            && counts.iter().all(|count| *count <= sets) =>
                    {
                        kept.done.insert(point, counts)
                    }
                    _ => bail!(
                        "{}: \"{row}\" is no point of this sweep; remove that line",
                        path.display()
                    ),
                };
            }
        }
        let whole: usize = before.rfind('\n').map_or(0, |end| end + 1);
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).with_context(place)?;
        file.set_len(whole as u64).with_context(place)?;
        if whole == 0 {
            file.write_all(head.as_bytes()).with_context(place)?;
        }
        kept.out = Some(file);
        Ok(kept)
    }

    /// A point is done.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn add(&mut self, point: u32, u: f64, counts: Vec<u64>) -> Result<()> {
        if let Some(out) = &mut self.out {
            let list: Vec<String> = counts.iter().map(u64::to_string).collect();
            writeln!(out, "{point},{u:.4},{}", list.join(",")).context("cannot keep a point")?;
        }
        self.done.insert(point, counts);
        Ok(())
    }
}
