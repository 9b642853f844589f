// SPDX-License-Identifier: GPL-2.0-only
//! A file tree in memory that becomes a cpio archive, the same bytes for the same tree.
//!
//! Entries are sorted by path, owned by root and dated 0, so nothing of the host but names, modes
//! and contents reaches the guest. `/bin`, `/sbin`, `/lib` and `/lib64` are links into `/usr`, as
//! on today's distributions.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use cpio::newc;

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

#[derive(Debug, Clone)]
enum Node {
    Directory,
    Link(PathBuf),
    Bytes(Vec<u8>, u32),
    File(PathBuf, u32),
}

/// A file tree to pack.
#[derive(Debug, Clone)]
pub struct Archive {
    nodes: BTreeMap<PathBuf, Node>,
}

impl Archive {
    /// A tree with nothing but the links of a merged `/usr`.
    pub fn new() -> Self {
        let mut archive = Archive { nodes: BTreeMap::new() };
        for name in MERGED {
            archive.directory(&Path::new("/usr").join(name));
            archive.nodes.insert(name.into(), Node::Link(Path::new("usr").join(name)));
        }
        archive
    }

    /// Adds a directory and its parents.
    pub fn directory(&mut self, guest: &Path) {
        let path = normal(guest);
        self.parents(&path);
        if !path.as_os_str().is_empty() {
            self.nodes.entry(path).or_insert(Node::Directory);
        }
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, guest: &Path, target: impl Into<PathBuf>) {
        self.insert(guest, Node::Link(target.into()));
    }

    /// Adds a file with the given contents and permission bits.
    pub fn bytes(&mut self, guest: &Path, contents: impl Into<Vec<u8>>, mode: u32) {
        self.insert(guest, Node::Bytes(contents.into(), mode & 0o7777));
    }

    /// Adds a file of the host, or a directory with everything in it; symbolic links given as
    /// `host` are followed, those inside a directory are kept.
    pub fn copy(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let meta = fs::metadata(host)
            .with_context(|| format!("cannot copy `{}` into the lab", host.display()))?;
        if meta.is_dir() {
            self.directory(guest);
            self.copy_directory(host, guest)
        } else if meta.is_file() {
            self.insert(guest, Node::File(host.into(), meta.permissions().mode() & 0o777));
            Ok(())
        } else {
            bail!("cannot copy `{}` into the lab: not a file or directory", host.display())
        }
    }

    fn copy_directory(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let list = || format!("cannot read the directory `{}`", host.display());
        for entry in fs::read_dir(host).with_context(list)? {
            let entry = entry.with_context(list)?;
            let kind = entry.file_type()?;
            let guest = guest.join(entry.file_name());
            if kind.is_symlink() {
                self.link(&guest, fs::read_link(entry.path())?);
            } else if !(kind.is_socket() || kind.is_fifo()) {
                self.copy(&entry.path(), &guest)?;
            }
        }
        Ok(())
    }

    /// Whether the tree has something at this path.
    pub fn contains(&self, guest: &Path) -> bool {
        self.nodes.contains_key(&normal(guest))
    }

    /// Writes the archive.
    pub fn write(&self, mut out: impl Write) -> Result<()> {
        for (number, (path, node)) in self.nodes.iter().enumerate() {
            let name = path.to_str().with_context(|| {
                format!("`{}`: names in the lab must be valid UTF-8", path.display())
            })?;
            let mode = match node {
                Node::Directory => DIRECTORY | 0o755,
                Node::Link(_) => SYMLINK | 0o777,
                Node::Bytes(_, mode) | Node::File(_, mode) => REGULAR | mode,
            };
            let entry = newc::Builder::new(name).ino(number as u32 + 1).mode(mode);
            match node {
                Node::Directory => write_entry(entry, &mut out, &[])?,
                Node::Link(target) => {
                    write_entry(entry, &mut out, target.as_os_str().as_encoded_bytes())?
                }
                Node::Bytes(contents, _) => write_entry(entry, &mut out, contents)?,
                Node::File(host, _) => copy_entry(entry, &mut out, host)?,
            }
        }
        newc::trailer(&mut out)?;
        Ok(())
    }

    fn insert(&mut self, guest: &Path, node: Node) {
        let path = normal(guest);
        self.parents(&path);
        self.nodes.insert(path, node);
    }

    fn parents(&mut self, path: &Path) {
        for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            self.nodes.entry(parent.into()).or_insert(Node::Directory);
        }
    }
}

impl Default for Archive {
    fn default() -> Self {
        Self::new()
    }
}

fn write_entry(entry: newc::Builder, out: &mut impl Write, contents: &[u8]) -> Result<()> {
    let size = u32::try_from(contents.len()).context("a file in the lab must be below 4 GiB")?;
    let mut writer = entry.write(out, size);
    writer.write_all(contents)?;
    writer.finish()?;
    Ok(())
}

fn copy_entry(entry: newc::Builder, out: &mut impl Write, host: &Path) -> Result<()> {
    let failed = || format!("cannot copy `{}` into the lab", host.display());
    let mut file = File::open(host).with_context(failed)?;
    let size = u32::try_from(file.metadata()?.len())
        .with_context(failed)
        .context("a file in the lab must be below 4 GiB")?;
    let mut writer = entry.write(out, size);
    let copied = io::copy(&mut file, &mut writer).with_context(failed)?;
    if copied != u64::from(size) {
        bail!("`{}` changed while it was being copied into the lab", host.display());
    }
    writer.finish()?;
    Ok(())
}

/// The path as the archive spells it: relative, no dots, below `usr` where that is merged.
fn normal(guest: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in guest.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.pop();
            }
            _ => (),
        }
    }
    let first = path.components().next().map(|c| c.as_os_str().to_owned());
    if first.is_some_and(|first| MERGED.iter().any(|name| first == *name)) {
        path = Path::new("usr").join(path);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(archive: &Archive) -> Vec<u8> {
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_order_and_dates_of_files_do_not_change_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        let mut first = Archive::new();
        first.copy(&one, Path::new("/data/one")).unwrap();
        first.copy(&two, Path::new("/data/two")).unwrap();
        let first = packed(&first);
        File::options()
            .write(true)
            .open(&one)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let mut second = Archive::new();
        second.copy(&two, Path::new("data/./two")).unwrap();
        second.copy(&one, Path::new("/x/../data/one")).unwrap();
        assert_eq!(first, packed(&second));
    }

    #[test]
    fn a_file_for_bin_lands_below_usr_with_all_its_parents() {
        let mut archive = Archive::new();
        archive.bytes(Path::new("/bin/tool"), "x", 0o755);
        archive.bytes(Path::new("/a/b/c"), "x", 0o644);
        assert!(archive.contains(Path::new("/usr/bin/tool")));
        assert!(archive.contains(Path::new("/a/b")));
        let bytes = packed(&archive);
        let mut names = Vec::new();
        let mut rest: &[u8] = &bytes;
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push((reader.entry().name().to_owned(), reader.entry().mtime()));
            rest = reader.finish().unwrap();
        }
        assert!(names.iter().all(|(_, mtime)| *mtime == 0));
        let position = |wanted: &str| names.iter().position(|(name, _)| name == wanted).unwrap();
        assert!(position("a") < position("a/b") && position("a/b") < position("a/b/c"));
        assert!(position("usr/bin") < position("usr/bin/tool"));
    }

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let error = Archive::new().copy(Path::new("/no/such/file"), Path::new("/x")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/file"));
    }
}
