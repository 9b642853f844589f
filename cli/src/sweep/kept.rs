// SPDX-License-Identifier: GPL-2.0-only
//! What is done of a sweep, kept in a CSV file: a row for each point that is done, and a comment for each part of one.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Bytes of a file of points: a thousand of them in as many columns take less.
const KEPT_MOST: u64 = 32 << 20;
/// Parts of a point.
const PARTS: u64 = 32;

/// How many sets are accepted by each judge, by number of the point.
pub type Points = BTreeMap<u32, Vec<u64>>;

/// What the rows are about.
#[derive(Debug, Clone)]
pub struct Frame {
    /// First lines of the file: they name the sweep.
    pub head: String,
    /// Utilization of each point.
    pub points: Vec<f64>,
    /// Sets a point.
    pub sets: u64,
    /// Columns.
    pub judges: usize,
}

impl Frame {
    fn part(&self) -> u64 {
        self.sets.div_ceil(PARTS).max(1)
    }

    /// The sets of the part that begins with set `first`.
    pub fn sets_of(&self, first: u64) -> std::ops::Range<u64> {
        first..(first + self.part()).min(self.sets)
    }

    fn row(&self, point: u32, counts: &[u64]) -> String {
        format!("{point},{:.4},{}\n", self.points[point as usize], list(counts))
    }
}

fn list(counts: &[u64]) -> String {
    counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// What is done; and the file it is kept in.
pub struct Kept {
    /// Whole points.
    pub done: Points,
    /// Parts of others, by their first set.
    parts: BTreeMap<u32, BTreeMap<u64, Vec<u64>>>,
    frame: Frame,
    out: Option<Out>,
}

struct Out {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    whole: u64,
}

impl Kept {
    /// What `out` holds of the same sweep.
    ///
    /// # Errors
    /// It cannot be read or written, is of another sweep, or another process writes it.
    pub fn open(out: Option<&Path>, frame: Frame) -> Result<Self> {
        let mut kept = Kept { done: BTreeMap::new(), parts: BTreeMap::new(), frame, out: None };
        let Some(path) = out else { return Ok(kept) };
        let place = || format!("cannot write {}", path.display());
        if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            bail!("{} is no ordinary file; --out keeps points in one", path.display());
        }
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .with_context(place)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{} is being written by another sweep; wait for it", path.display())
            }
            Err(TryLockError::Error(e)) => return Err(e).with_context(place),
        }
        let mut before = String::new();
        Read::by_ref(&mut file)
            .take(KEPT_MOST)
            .read_to_string(&mut before)
            .with_context(|| format!("cannot read {}", path.display()))?;
        // A line cut off by a crash is done again.
        let whole = before.rfind('\n').map_or(0, |end| end + 1);
        let mut rows = "";
        if !before.is_empty() {
            let Some(after) = before[..whole].strip_prefix(kept.frame.head.as_str()) else {
                bail!("{} is of another sweep; give another --out, or remove it", path.display());
            };
            rows = after;
        }
        for row in rows.lines() {
            if kept.read(row).is_none() {
                let place = path.display();
                bail!("{place}: \"{row}\" is no point of this sweep; remove that line");
            }
        }
        file.set_len(whole as u64).with_context(place)?;
        // At the end the file is replaced, not a link to it.
        let path = fs::canonicalize(path).with_context(place)?;
        let mut out = Out { path, file, whole: whole as u64 };
        if whole == 0 {
            out.append(&kept.frame.head).with_context(place)?;
        }
        kept.out = Some(out);
        Ok(kept)
    }

    fn read(&mut self, row: &str) -> Option<()> {
        let part = row.strip_prefix("# ");
        let fields: Vec<&str> = part.unwrap_or(row).split(',').collect();
        let (point, second, counts) = (fields.first()?, fields.get(1)?, fields.get(2..)?);
        let point: u32 = point.parse().ok()?;
        let counts: Vec<u64> = counts.iter().map(|f| f.parse().ok()).collect::<Option<_>>()?;
        let mut most = self.frame.sets;
        let first: Option<u64> = match part {
            Some(_) => Some(second.parse().ok()?),
            None => None,
        };
        if let Some(first) = first {
            if first >= most || !first.is_multiple_of(self.frame.part()) {
                return None;
            }
            most = self.frame.sets_of(first).count() as u64;
        }
        let ours = (point as usize) < self.frame.points.len() && counts.len() == self.frame.judges;
        if !ours || counts.iter().any(|count| *count > most) {
            return None;
        }
        match first {
            Some(first) => drop(self.parts.entry(point).or_default().insert(first, counts)),
            None => drop(self.done.insert(point, counts)),
        }
        Some(())
    }

    /// Points and first sets of the parts that are not done, in order.
    pub fn left(&self) -> Vec<(u32, u64)> {
        let firsts = || (0..self.frame.sets).step_by(self.frame.part() as usize);
        let points = (0..self.frame.points.len() as u32).filter(|p| !self.done.contains_key(p));
        let all = points.flat_map(|p| firsts().map(move |first| (p, first)));
        all.filter(|(p, first)| !self.parts.get(p).is_some_and(|done| done.contains_key(first)))
            .collect()
    }

    /// The part of `point` that begins with set `first` is done.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn add(&mut self, point: u32, first: u64, counts: Vec<u64>) -> Result<()> {
        let part = format!("# {point},{first},{}\n", list(&counts));
        let parts = self.parts.entry(point).or_default();
        parts.insert(first, counts);
        let mut line = part;
        if parts.len() as u64 == self.frame.sets.div_ceil(self.frame.part()) {
            let mut sum = vec![0; self.frame.judges];
            for counts in parts.values() {
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            line = self.frame.row(point, &sum);
            self.parts.remove(&point);
            self.done.insert(point, sum);
        }
        match &mut self.out {
            Some(out) => {
                out.append(&line).with_context(|| format!("cannot write {}", out.path.display()))
            }
            None => Ok(()),
        }
    }

    /// When all is done: leaves the points alone in the file, in order.
    ///
    /// # Errors
    /// It cannot be written; what was there stays.
    pub fn tidy(&self) -> Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        if self.done.len() < self.frame.points.len() {
            return Ok(());
        }
        let rows: String = self.done.iter().map(|(p, counts)| self.frame.row(*p, counts)).collect();
        crate::output::write(&out.path, |to| {
            to.write_all(self.frame.head.as_bytes())?;
            to.write_all(rows.as_bytes())
        })
    }
}

impl Out {
    /// All of `text` or nothing.
    fn append(&mut self, text: &str) -> std::io::Result<()> {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            let _ = self.file.set_len(self.whole);
            return Err(error);
        }
        self.whole += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sets: u64) -> Frame {
        Frame { head: "# head\n".into(), points: vec![1.0, 2.0], sets, judges: 2 }
    }

    #[test]
    fn parts_in_any_order_make_a_point_and_those_missing_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.csv");
        let mut kept = Kept::open(Some(&path), frame(70)).unwrap();
        // 24 parts of three sets, the last of one.
        let mut left = kept.left();
        assert_eq!(left.len(), 48);
        assert_eq!(kept.frame.sets_of(69), 69..70);
        left.reverse();
        for (point, first) in left.drain(..30) {
            kept.add(point, first, vec![1, 0]).unwrap();
        }
        assert_eq!(kept.done[&1], [24, 0]);
        drop(kept);
        let text = fs::read_to_string(&path).unwrap();
        // As a crash leaves it.
        fs::write(&path, &text[..text.len() - 2]).unwrap();
        let mut kept = Kept::open(Some(&path), frame(70)).unwrap();
        let left = kept.left();
        assert_eq!(left.len(), 19);
        for (point, first) in left {
            kept.add(point, first, vec![1, 0]).unwrap();
        }
        kept.tidy().unwrap();
        drop(kept);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# head\n0,1.0000,24,0\n1,2.0000,24,0\n");
    }

    #[test]
    fn rows_of_no_part_or_point_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.csv");
        for row in
            ["2,1.0,1,1", "0,1.0,1", "0,1.0,71,1", "# 0,1,1,1", "# 0,3,4,1", "# 0,72,1,1", "x"]
        {
            fs::write(&path, format!("# head\n{row}\n")).unwrap();
            let error = Kept::open(Some(&path), frame(70)).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("no point of this sweep"), "{row}: {error}");
        }
    }

    #[test]
    fn a_file_that_another_sweep_writes_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.csv");
        let first = Kept::open(Some(&path), frame(1)).unwrap();
        let error = Kept::open(Some(&path), frame(1)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
        drop(first);
        let link = folder.path().join("link.csv");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut kept = Kept::open(Some(&link), frame(1)).unwrap();
        (0..2).for_each(|point| kept.add(point, 0, vec![1, 0]).unwrap());
        kept.tidy().unwrap();
        assert!(link.is_symlink());
        assert!(fs::read_to_string(&path).unwrap().ends_with("1,2.0000,1,0\n"));
    }
}
