// SPDX-License-Identifier: GPL-2.0-only
//! The task-set file: what runs, on how many CPUs, for how long, under which policies. docs/task-set.md is the
//! reference for its keys; this module is what the rooms see of it once it has been read and found sound.

mod bound;
mod frames;
mod generators;
mod group;
mod load;
mod parse;
mod plays;
mod pool;
mod purse;
mod rank;
#[cfg(test)]
mod samples;
mod sections;
mod sets;
mod table;
mod task;
mod waits;
mod work;
mod write;

pub use bound::Bound;
pub use frames::Frames;
pub use generators::Generators;
pub use group::{Division, Group, Portion};
pub use load::{Arrivals, BestEffortLoad, Sleeper};
pub use pool::Reel;
pub use purse::{Purse, Segment};
pub use sections::{Section, Step};
pub use sets::{CpuSet, DEFAULT_SET, Part, home};
pub use waits::Waits;
pub use work::load_trace;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::others::{Linux24, Others};
use crate::policy::Policy;
use crate::rank::{Rank, Servers};
use crate::units::{Fraction, HOUR, MS, SEC, US};

/// What a file may ask for at most, and why there is a limit at all: a mistake should be named, not simulated.
pub mod limits {
    use super::{HOUR, MS, US};

    /// CPUs of one machine; the lab's and the core's limit.
    pub const CPUS: u64 = crate::numbers::CPUS as u64;
    /// How deep groups are part of groups: that many from the outermost to the innermost.
    pub const GROUP_DEPTH: usize = crate::numbers::DEPTH;
    /// Groups in all; the core's limit, as are the next two.
    pub const GROUPS: usize = crate::numbers::GROUPS;
    /// Purses.
    pub const PURSES: usize = crate::numbers::PURSES;
    /// Segments of a purse.
    pub const SEGMENTS: usize = crate::numbers::SEGMENTS;
    /// Tasks over all entries and groups, and best-effort processes.
    pub const TASKS: u64 = 1000;
    /// Shortest period, ns: 1 µs.
    pub const PERIOD_MIN: u64 = US;
    /// Longest period, deadline, work, offset and duration, ns: one hour.
    pub const TIME: u64 = HOUR;
    /// Longest single overhead in the simulator, ns.
    pub const OVERHEAD: u64 = 1000 * MS;
    /// Jobs over all tasks, so that a run fits in memory.
    pub const JOBS: u64 = 50_000_000;
    /// Bytes of a task-set file.
    pub const FILE_BYTES: u64 = 1 << 20;
    /// Bytes of a trace file.
    pub const TRACE_BYTES: u64 = 64 << 20;
    /// Threads of a task.
    pub const THREADS: u64 = 64;
    /// Sections of a job.
    pub const SECTIONS: usize = 64;
    /// Users that a set limits: the core has one account for each, and one for root.
    pub const USERS: usize = crate::numbers::ACCOUNTS - 1;
    /// Fixed priority of a task, from 1.
    pub const PRIORITY: u32 = 1_000_000;
    /// What a job may be worth.
    pub const VALUE: u64 = 1_000_000;
    /// Weight of a group, from 1; as of control groups, as is the next.
    pub const WEIGHT: u64 = 10_000;
    /// Weight of a group of which nobody says one.
    pub const WEIGHT_USUAL: u64 = 100;
    /// Characters of a name.
    pub const NAME: usize = 64;
}

/// How long after a set's duration late jobs are still waited for, ns.
pub const GRACE: u64 = SEC;

/// A value of 1 as the core counts it: a job is worth its budget in ns there where nobody says.
pub const VALUE: u64 = MS;

/// The user whom no `max_share` limits.
pub const ROOT: &str = "root";

/// A sound task set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSet {
    /// Short name, usable in file names (letters, digits, `.`, `_`, `-`).
    pub name: String,
    /// One line for people; may be empty.
    pub title: String,
    /// Number of CPUs, 1 to 64.
    pub cpus: u32,
    /// Jobs are released from time 0 up to, not including, this time (ns).
    pub duration: u64,
    /// Seed of all random work.
    pub seed: u64,
    /// Policies to compare, at least one, no two equal.
    pub policies: Vec<Policy>,
    /// Share of every CPU that best-effort work is guaranteed, 0 up to but not including 1.
    pub best_effort_share: Fraction,
    /// What a user's reservations may take ahead of best-effort work, of all CPUs, above 0 up to 1; `None` = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<Fraction>,
    /// Number of equal clusters under the `c-…` orders; divides `cpus`.
    pub clusters: u32,
    /// The `[[set]]` entries in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<CpuSet>,
    /// Kernel the lab boots.
    pub kernel: Kernel,
    /// Costs in the simulator.
    pub overheads: Overheads,
    /// The `[[group]]` entries: who is part of another comes after it, otherwise in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The `[[purse]]` entries in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub purses: Vec<Purse>,
    /// The `[[task]]` entries in the order of the file.
    pub tasks: Vec<TaskEntry>,
    /// What tasks lock, in the order in which the file first names them; sections refer to them by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// CPU-bound best-effort processes, if any, and the order of all best-effort work.
    pub best_effort: Option<BestEffort>,
    /// The `[[best_effort.load]]` entries in the order of the file: best-effort work that sleeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<BestEffortLoad>,
}

/// Which kernel the lab boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// The distribution's usual kernel.
    #[default]
    Plain,
    /// The PREEMPT_RT kernel.
    Rt,
}

/// What the simulator charges to the CPU, and how late it wakes threads, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overheads {
    /// Each switch to another task on a CPU.
    pub dispatch: u64,
    /// In addition, when the switch preempted a job.
    pub preemption: u64,
    /// In addition, when the task last ran on another CPU.
    pub migration: u64,
    /// A job's thread wakes up to that much after its release; no CPU time.
    pub wake: u64,
    /// Turns of best effort end with ticks so far apart, as a kernel's do (250 a second: 4 ms); 0: each after 4 ms. No
    /// CPU time.
    #[serde(default)]
    pub tick: u64,
    /// When one of these ticks is, below `tick`.
    #[serde(default)]
    pub tick_phase: u64,
}

/// One `[[task]]` entry: `count` equal periodic tasks. Times in ns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskEntry {
    /// Name of the entry; a copy is `NAME` or `NAME-0`, `NAME-1`, … see [`TaskEntry::copy_name`].
    pub name: String,
    /// Number of copies, at least 1.
    pub count: u32,
    /// Time between releases.
    pub period: u64,
    /// Relative deadline.
    pub deadline: u64,
    /// Reservation per period; without one the task is released and timed, but has none.
    pub budget: Option<u64>,
    /// First release of copy 0.
    pub offset: u64,
    /// Each further copy is released that much later.
    pub stagger: u64,
    /// CPUs it may use, ascending; `None` = all.
    pub affinity: Option<Vec<u32>>,
    /// Whether the program marks its jobs.
    pub marks: bool,
    /// Whose reservation it is, where `max_share` limits users; [`ROOT`] is not limited, `None` is one user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What a job is worth that ends in time, from 1 to [`limits::VALUE`]; `None` = what its budget is in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Its class, to policies that rank; `None` = soft there. Such a task has a budget and is in no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Rank>,
    /// Index of the group it is part of in [`TaskSet::groups`]; such a task has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Index of the purse it takes from, too, in [`TaskSet::purses`]; such a task has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purse: Option<usize>,
    /// Threads of a copy; each release wakes them all, each has its own `work`, and one reservation serves them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads: u32,
    /// What each thread locks in a job, by the execution time at which it does; properly nested, outer ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// A job that is not complete at its deadline is given up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub abort: bool,
    /// It shows what another task decodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// Index of the set that is to serve it in [`TaskSet::sets`]; `None` = as [`TaskSet::part_of`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<usize>,
    /// By how much it is late at most, as analysis says; only results speak of it. Such a task has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// What only analysis uses. Such a task has a budget.
    #[serde(default)]
    pub waits: Waits,
    /// What each job does.
    pub work: Work,
}

fn one() -> u32 {
    1
}

fn is_one(threads: &u32) -> bool {
    *threads == 1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as the macro wants it
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Every job takes that many ns.
    Constant(u64),
    /// Uniform between both bounds, inclusive, ns.
    Uniform(u64, u64),
    /// Normal, drawn again until within [1 µs, max]; ns.
    Normal {
        /// Mean before truncation.
        mean: u64,
        /// Standard deviation before truncation.
        sd: u64,
        /// Largest value.
        max: u64,
    },
    /// Exponential, drawn again until within [1 µs, max]; ns.
    Exponential {
        /// Mean before truncation.
        mean: u64,
        /// Largest value.
        max: u64,
    },
    /// Recorded: job j takes `values[(start + j) % len]` ns.
    Trace {
        /// The file, as written in the task set.
        path: PathBuf,
        /// Index of the first job's value.
        start: usize,
        /// Its contents, never empty.
        values: Arc<[u64]>,
    },
    /// Each copy plays another recorded movie of several while there are some left, from a frame on that is drawn, too.
    Pool {
        /// The file, as written in the task set.
        path: PathBuf,
        /// Its movies, at least one.
        reels: Arc<[Reel]>,
    },
    /// Decodes a movie, one job a frame; lab only.
    Movie {
        /// As written in the task set; the lab finds or fetches it.
        path: PathBuf,
        /// Output width and height in pixels; `None` = as in the movie.
        size: Option<(u32, u32)>,
    },
    /// Runs a program with its arguments; lab and live only.
    Program(Vec<String>),
}

impl Work {
    /// Longest job, ns; `None` where only a run tells.
    pub fn longest(&self) -> Option<u64> {
        match self {
            Work::Constant(most)
            | Work::Uniform(_, most)
            | Work::Normal { max: most, .. }
            | Work::Exponential { max: most, .. } => Some(*most),
            Work::Trace { values, .. } => values.iter().max().copied(),
            Work::Pool { reels, .. } => reels.iter().flat_map(|reel| reel.iter()).max().copied(),
            Work::Movie { .. } | Work::Program(_) => None,
        }
    }
}

impl Work {
    /// Whether job lengths are known before the run, so that the simulator can run it.
    pub fn is_replayable(&self) -> bool {
        !matches!(self, Work::Movie { .. } | Work::Program(_))
    }
}

/// Processes without any reservation: CPU-bound ones and generators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestEffort {
    /// How many CPU-bound ones.
    pub count: u32,
    /// Their nice value, −20 to 19.
    pub nice: i32,
    /// In which order everything without a reservation is served among itself.
    #[serde(default)]
    pub order: Others,
    /// The simulator's stand-in for that order; then nothing in the set has a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Linux24>,
    /// What serves it among the soft reservations, to policies that rank, or in its group; `None` = [`Servers::each`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
    /// Index in [`TaskSet::groups`] of the group whose members its servers are; they are then what `servers` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Programs to which jobs come at random, with the same nice value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generators: Option<Generators>,
}

/// One periodic task: a copy of an entry.
#[derive(Debug, Clone, Copy)]
pub struct TaskCopy<'a> {
    /// Index of the entry in [`TaskSet::tasks`].
    pub entry: usize,
    /// Copy within the entry.
    pub copy: u32,
    /// The entry itself.
    pub spec: &'a TaskEntry,
    /// Time of its first release, ns.
    pub first_release: u64,
    /// Jobs it releases before the set's duration is over.
    pub jobs: u64,
}

impl TaskCopy<'_> {
    /// `movie` if it is the only copy, else `movie-0`, `movie-1`, …
    pub fn name(&self) -> String {
        self.spec.copy_name(self.copy)
    }

    /// Release time of job `j`, ns.
    pub fn release(&self, j: u64) -> u64 {
        self.first_release + j * self.spec.period
    }
}

impl TaskEntry {
    /// Name of one copy.
    pub fn copy_name(&self, copy: u32) -> String {
        if self.count == 1 { self.name.clone() } else { format!("{}-{copy}", self.name) }
    }

    /// Utilization of the reservation, budget over period; 0 without one.
    pub fn utilization(&self) -> Fraction {
        Fraction::new(self.budget.unwrap_or(0), self.period)
    }
}

impl TaskSet {
    /// Reads a file. Traces are read too, relative to the file's folder.
    ///
    /// # Errors
    /// The first thing wrong with the file, with its line and a remedy. Never panics, whatever the bytes.
    pub fn load(path: impl AsRef<Path>) -> Result<TaskSet, LoadError> {
        let path = path.as_ref();
        let bytes = read_limited(path, limits::FILE_BYTES).map_err(|(reason, remedy)| {
            LoadError { file: path.to_owned(), line: None, reason, remedy }
        })?;
        TaskSet::from_bytes(&bytes, path)
    }

    /// Reads the contents of a file; `path` serves error messages, the default name and relative traces.
    ///
    /// # Errors
    /// As [`TaskSet::load`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<TaskSet, LoadError> {
        parse::task_set(bytes, path)
    }

    /// All periodic tasks in the order every world uses: by entry, then by copy.
    pub fn copies(&self) -> impl Iterator<Item = TaskCopy<'_>> {
        self.tasks.iter().enumerate().flat_map(move |(entry, spec)| {
            (0..spec.count).map(move |copy| {
                let first_release = spec.offset + u64::from(copy) * spec.stagger;
                let jobs = self.duration.saturating_sub(first_release).div_ceil(spec.period);
                TaskCopy { entry, copy, spec, first_release, jobs }
            })
        })
    }

    /// The users that `max_share` limits, in the order of the file; `None` is one of them where tasks name nobody.
    pub fn limited_users(&self) -> Vec<Option<&str>> {
        let mut users = Vec::new();
        for task in self.tasks.iter().filter(|t| self.max_share.is_some() && t.budget.is_some()) {
            let user = task.user.as_deref();
            if user != Some(ROOT) && !users.contains(&user) {
                users.push(user);
            }
        }
        users
    }

    /// Threads beside the first of each copy, in the order of [`TaskSet::copies`].
    pub fn helpers(&self) -> u64 {
        self.tasks.iter().map(|t| u64::from(t.count) * u64::from(t.threads - 1)).sum()
    }

    /// Number of CPU-bound best-effort processes.
    pub fn best_effort_count(&self) -> u32 {
        self.best_effort.map_or(0, |b| b.count)
    }

    /// What serves best effort where the policy ranks, in no group.
    pub fn servers(&self) -> Servers {
        let servers = self.best_effort.and_then(|b| b.servers);
        let servers = servers.unwrap_or(Servers::each(self.cpus));
        let inside = self.servers_of_group().is_some();
        Servers { count: if inside { 0 } else { servers.count }, ..servers }
    }

    /// The group whose members best effort's servers are, by its index, and these.
    pub fn servers_of_group(&self) -> Option<(usize, Servers)> {
        let best_effort = self.best_effort?;
        Some((best_effort.group?, best_effort.servers?))
    }

    /// In which order everything without a reservation is served.
    pub fn others(&self) -> Others {
        self.best_effort.map_or_else(Others::default, |b| b.order)
    }

    /// What serves everything in the simulator in place of the core, if anything does.
    pub fn baseline(&self) -> Option<Linux24> {
        self.best_effort.and_then(|b| b.baseline)
    }
}

/// Why a task-set file cannot be used. Displays as `FILE:LINE: reason; remedy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The task-set file.
    pub file: PathBuf,
    /// Line, from 1; `None` when it concerns the whole file.
    pub line: Option<usize>,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}; {}", self.reason, self.remedy)
    }
}

impl std::error::Error for LoadError {}

/// Reads a whole file of at most `limit` bytes; otherwise what is wrong with it, to be said after its name, and a
/// remedy.
fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, (String, String)> {
    let io = |e: std::io::Error| {
        let remedy = match e.kind() {
            std::io::ErrorKind::NotFound if path.as_os_str() == "-" => {
                "standard input is /dev/stdin here; only `onbeat analyze` calls it `-`"
            }
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "make the file readable",
            _ => "check that it is an ordinary file",
        };
        (format!("cannot be read: {e}"), remedy.to_string())
    };
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > limit {
        return Err((format!("is larger than {limit} bytes"), "give a smaller file".into()));
    }
    Ok(bytes)
}

/// The known word nearest to a misspelled one, if any is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    near(word, known).into_iter().next()
}

/// The known words that are near to a misspelled one, the nearest first.
pub(crate) fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if word.len() > limits::NAME {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(distance, k)| *distance <= k.len().max(word.len()) / 3 + 1)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().map(|(_, k)| k).collect()
}

#[cfg(test)]
mod tests;
