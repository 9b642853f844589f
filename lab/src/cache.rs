// SPDX-License-Identifier: GPL-2.0-only
//! The cache of downloaded things: folders that are complete or absent, and checked before use.
//!
//! A folder is filled under a temporary name and renamed when it is whole; its `MANIFEST` holds a
//! SHA-256 of every file in it, in the format of sha256sum(1).

use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

pub(crate) const MANIFEST: &str = "MANIFEST";
const DRAFT: &str = ".draft-";

/// The cache's folder: `$ONBEAT_CACHE`; else `.cache` of the checkout that this program or the
/// current folder lies in; else `onbeat` in the user's cache folder.
///
/// # Errors
/// When there is no home directory either.
pub fn root() -> Result<PathBuf> {
    if let Some(named) = env::var_os("ONBEAT_CACHE") {
        return Ok(PathBuf::from(named));
    }
    let program = env::current_exe().context("cannot tell where this program lies")?;
    let current = env::current_dir().unwrap_or_default();
    let mut around = program.ancestors().chain(current.ancestors());
    if let Some(checkout) = around.find(|dir| dir.join("lab/Cargo.toml").exists()) {
        return Ok(checkout.join(".cache"));
    }
    let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let user = user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    Ok(user.context("no cache folder: set ONBEAT_CACHE")?.join("onbeat"))
}

/// Makes sure that the folder `target` is there and whole; fills it as [`publish`] does if not.
pub fn ensure(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if verify(target).is_ok() {
        return Ok(());
    }
    let parent = parent(target)?;
    let _lock = lock(parent)?;
    // Another process may have been quicker.
    if verify(target).is_ok() { Ok(()) } else { replace(parent, target, fill) }
}

/// Replaces the folder `target` by what `fill` puts into the empty folder it is given. When
/// anything fails, `target` stays as it was.
pub fn publish(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = parent(target)?;
    let _lock = lock(parent)?;
    replace(parent, target, fill)
}

fn parent(target: &Path) -> Result<&Path> {
    let parent = target.parent().context("a cache folder needs a parent")?;
    fs::create_dir_all(parent).with_context(|| refused("create", parent))?;
    Ok(parent)
}

/// Needs the lock of `parent`.
fn replace(parent: &Path, target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        // Whoever wrote this was killed, or it would hold the lock.
        if entry.file_name().to_string_lossy().starts_with(DRAFT) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let draft = tempfile::Builder::new()
        .prefix(DRAFT)
        .tempdir_in(parent)
        .with_context(|| refused("write to", parent))?;
    let whole = draft.path().join("whole");
    fs::create_dir(&whole)?;
    fill(&whole)?;
    write_manifest(&whole)?;
    if target.exists() {
        fs::rename(target, draft.path().join("old"))?;
    }
    fs::rename(&whole, target).with_context(|| format!("cannot create `{}`", target.display()))
}

/// Whether every file of the folder is there and unchanged.
///
/// # Errors
/// When the folder is missing or damaged; the message says which file.
pub fn verify(folder: &Path) -> Result<()> {
    if !folder.join(MANIFEST).exists() {
        bail!("`{}` is missing", folder.display());
    }
    let output = Command::new("sha256sum")
        .args(["--check", "--quiet", "--strict", MANIFEST])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start `sha256sum`")?;
    if !output.status.success() {
        let bad = String::from_utf8_lossy(&output.stdout).trim().replace('\n', ", ");
        bail!("`{}` is damaged ({bad})", folder.display());
    }
    Ok(())
}

fn write_manifest(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(folder, Path::new(""), &mut files)?;
    files.sort();
    let output = Command::new("sha256sum")
        .arg("--")
        .args(&files)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start `sha256sum`")?;
    if !output.status.success() {
        bail!("sha256sum: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    fs::write(folder.join(MANIFEST), output.stdout)?;
    for file in files.iter().map(PathBuf::as_path).chain([Path::new(MANIFEST)]) {
        File::open(folder.join(file))?.sync_all()?;
    }
    Ok(())
}

fn list(folder: &Path, prefix: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder.join(prefix))? {
        let entry = entry?;
        let path = prefix.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(folder, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// What to say where the cache, another user's perhaps, cannot be used.
pub(crate) fn refused(what: &str, folder: &Path) -> String {
    format!(
        "cannot {what} the cache `{}`; name a folder of your own in ONBEAT_CACHE, and fill it by `onbeat-fetch`",
        folder.display()
    )
}

/// Keeps two processes from filling the same folder at once; released when dropped.
fn lock(parent: &Path) -> Result<File> {
    let file = File::create(parent.join(".lock")).with_context(|| refused("write to", parent))?;
    // SAFETY: the descriptor is open for as long as `file` lives.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot lock the cache");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with_two_files() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("thing");
        publish(&target, |draft| {
            fs::create_dir(draft.join("sub"))?;
            fs::write(draft.join("a"), "aaaa")?;
            fs::write(draft.join("sub/b"), "bbbb")?;
            Ok(())
        })
        .unwrap();
        (dir, target)
    }

    #[test]
    fn what_was_published_verifies() {
        let (_dir, target) = folder_with_two_files();
        verify(&target).unwrap();
    }

    #[test]
    fn one_changed_byte_is_noticed_and_named() {
        let (_dir, target) = folder_with_two_files();
        fs::write(target.join("sub/b"), "bbbc").unwrap();
        let error = format!("{:#}", verify(&target).unwrap_err());
        assert!(error.contains("damaged") && error.contains("sub/b"), "{error}");
    }

    #[test]
    fn a_cache_that_cannot_be_used_is_told_with_the_variable_that_names_another() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = ensure(&dir.path().join("file/thing"), |_| Ok(())).unwrap_err();
        assert!(format!("{error:#}").contains("in ONBEAT_CACHE"), "{error:#}");
    }

    #[test]
    fn a_missing_file_is_noticed() {
        let (_dir, target) = folder_with_two_files();
        fs::remove_file(target.join("a")).unwrap();
        assert!(verify(&target).is_err());
    }

    #[test]
    fn a_half_finished_download_is_removed_by_the_next_one() {
        let (dir, target) = folder_with_two_files();
        fs::create_dir_all(dir.path().join(".draft-killed/whole")).unwrap();
        fs::remove_file(target.join("a")).unwrap();
        ensure(&target, |draft| Ok(fs::write(draft.join("a"), "new")?)).unwrap();
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "new");
        assert!(!dir.path().join(".draft-killed").exists());
    }

    #[test]
    fn a_failed_refill_leaves_the_old_folder_whole() {
        let (dir, target) = folder_with_two_files();
        let failed = publish(&target, |draft| {
            fs::write(draft.join("a"), "half")?;
            bail!("network went away")
        });
        assert!(failed.is_err());
        verify(&target).unwrap();
        let left = fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
        let left = left.filter(|e| e.file_name().to_string_lossy().starts_with(".draft"));
        assert_eq!(left.count(), 0);
    }
}
