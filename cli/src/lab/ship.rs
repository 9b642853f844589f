// SPDX-License-Identifier: GPL-2.0-only
//! What goes into the guest: Onbeat's programs without debug information, movies, other programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use onbeat_lab::cache;
use onbeat_model::policy::Policy;
use onbeat_model::taskset::{TaskSet, Work};

use crate::guest;

/// The folder of the guest with the task set, its movies and the script.
pub const PLACE: &str = "/lab";
/// Folders of the cache with movies: as they came, and re-encoded or made at set-up.
const MOVIES: [&str; 3] = ["movies", "movies-small", "movies-pool"];

/// Programs of Onbeat's, ready to be shipped.
pub struct Programs {
    /// Stripped copies, made once.
    folder: tempfile::TempDir,
}

impl Programs {
    /// None copied yet.
    ///
    /// # Errors
    /// There is no room for temporary files.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("onbeat-programs-").tempdir();
        Ok(Self { folder: folder.context("cannot create a temporary folder")? })
    }

    /// The path of a copy, without debug information, of the program that lies beside this one.
    ///
    /// # Errors
    /// It is not there, or cannot be copied.
    pub fn own(&self, name: &str) -> Result<PathBuf> {
        let Some(program) = beside(name)? else {
            bail!("`{name}` is not beside this program; build it with `make build`");
        };
        self.stripped(&program)
    }

    /// Those of the programs that lie beside this one.
    ///
    /// # Errors
    /// One cannot be copied.
    pub fn own_if_there(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        names.iter().filter_map(|n| beside(n).transpose()).map(|p| self.stripped(&p?)).collect()
    }

    fn stripped(&self, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().context("a program without a name")?;
        let copy = self.folder.path().join(name);
        if copy.exists() {
            return Ok(copy);
        }
        let strip = Command::new("strip")
            .args(["--strip-all", "-o"])
            .args([&copy, program])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(program, &copy)
                .with_context(|| format!("cannot copy {}", program.display()))?;
        }
        Ok(copy)
    }
}

/// A program in `$ONBEAT_PROGRAMS`, or in the folder of this one.
fn beside(name: &str) -> Result<Option<PathBuf>> {
    if let Some(folder) = std::env::var_os("ONBEAT_PROGRAMS") {
        return Ok(Some(Path::new(&folder).join(name)).filter(|p| p.is_file()));
    }
    let me = std::env::current_exe().context("cannot tell where this program lies")?;
    Ok(Some(me.with_file_name(name)).filter(|p| p.is_file()))
}

/// A task set as the guest will see it, and what it needs there.
pub struct Cargo {
    /// Paths of movies and programs are those of the guest.
    pub set: TaskSet,
    /// To be copied: path here, path there.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// To be copied to `/bin`, with their libraries.
    programs: Vec<PathBuf>,
    /// The same, for one policy only.
    schedulers: Vec<(Policy, PathBuf)>,
}

impl Cargo {
    /// Finds everything that a task set needs under some policies. `folder` is where its file lies.
    ///
    /// # Errors
    /// Something is missing, or a movie cannot be played.
    pub fn load(
        set: &TaskSet,
        folder: &Path,
        policies: &[Policy],
        programs: &Programs,
    ) -> Result<Self> {
        let mut cargo = Cargo {
            set: set.clone(),
            files: Vec::new(),
            programs: Vec::new(),
            schedulers: Vec::new(),
        };
        let mut own = BTreeSet::from(["onbeat-runner", "onbeat-work"]);
        for task in &mut cargo.set.tasks {
            match &mut task.work {
                Work::Movie { path, .. } => {
                    own.insert("onbeat-play");
                    let movie =
                        find_movie(path, folder).with_context(|| format!("task {}", task.name))?;
                    let name = movie.file_name().context("a movie without a name")?.to_owned();
                    let there = Path::new(PLACE).join("movies").join(&name);
                    let other = cargo.files.iter().any(|(h, g)| *g == there && *h != movie);
                    if other {
                        bail!("two different movies are called {}", name.display());
                    }
                    cargo.files.push((movie, there));
                    *path = name.into();
                }
                Work::Program(words) => {
                    let Some(word) = words.first_mut() else { continue };
                    let found = guest::find(word.as_ref())
                        .map_err(|(_, why)| anyhow::anyhow!("task {}: {why}", task.name))?;
                    let name = found.file_name().context("a program without a name")?;
                    *word = name.to_string_lossy().into_owned();
                    cargo.programs.push(found);
                }
                _ => (),
            }
        }
        for name in own {
            cargo.programs.push(programs.own(name)?);
        }
        for policy in policies {
            let scheduler = match policy {
                Policy::Core { .. } => programs.own("scx_onbeat")?,
                Policy::Scx(name) => find_peer(name)?,
                Policy::Baseline(_) => continue,
            };
            cargo.schedulers.push((policy.clone(), scheduler));
        }
        if let Some(player) = beside("onbeat-play")? {
            cargo.files.iter().try_for_each(|(movie, _)| try_movie(&player, movie))?;
        }
        Ok(cargo)
    }

    /// The programs for one of the policies.
    pub fn programs_of(&self, policy: &Policy) -> impl Iterator<Item = PathBuf> {
        let scheduler = self.schedulers.iter().find(|(p, _)| p == policy).map(|(_, path)| path);
        self.programs.iter().chain(scheduler).cloned()
    }
}

/// A movie: at the path as given, beside the task set, or in the cache.
fn find_movie(path: &Path, folder: &Path) -> Result<PathBuf> {
    let beside = folder.join(path);
    if beside.is_file() {
        return Ok(beside);
    }
    let cache = cache::root()?;
    for name in MOVIES {
        let movie = cache.join(name).join(path);
        if path.is_relative() && movie.is_file() {
            cache::verify(&cache.join(name))
                .context("the movies in the cache are not usable; run `make setup`")?;
            return Ok(movie);
        }
    }
    bail!(
        "there is no movie {} beside the task set or in {}; run `make setup`, or correct `movie`",
        path.display(),
        cache.join(MOVIES[0]).display()
    )
}

/// Decodes one picture here, where it is quick, so that a bad file is known before the boot.
fn try_movie(player: &Path, movie: &Path) -> Result<()> {
    let output = Command::new(player)
        .args(["--verify", "--frames", "1"])
        .arg(movie)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", player.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{}", words.trim().trim_start_matches("onbeat-play: "));
    }
    Ok(())
}

/// A published scheduler: in the cache, or wherever programs are.
fn find_peer(name: &str) -> Result<PathBuf> {
    let program = format!("scx_{name}");
    let cached = cache::root()?.join("peers/bin").join(&program);
    if cached.is_file() {
        return Ok(cached);
    }
    guest::find(program.as_ref()).map_err(|(_, why)| {
        anyhow::anyhow!("policy scx:{name}: {why}; scripts/fetch-peers.sh builds some of them")
    })
}
