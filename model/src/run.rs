// SPDX-License-Identifier: GPL-2.0-only
//! What a world returns for one policy, and the file it travels in.
//!
//! The file: 8 bytes magic with the version, u32 length of a JSON header, the header, the events (40 bytes each),
//! u32 CRC-32 of all that; numbers little endian.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::{EVENT_BYTES, Event, EventKind};
use crate::taskset::{TaskEntry, TaskSet, Work};

const MAGIC: [u8; 8] = *b"OBRUN\0\0\x01";
const HEADER_LIMIT: u32 = 16 << 20;

/// Where a run took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Simulated CPUs.
    Sim,
    /// A real kernel in the deterministic virtual machine.
    Lab,
    /// This machine.
    Live,
}

/// On what a run took place. Empty texts mean "does not apply".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// Number of CPUs.
    pub cpus: u32,
    /// Version of Onbeat.
    pub onbeat: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
    /// Accelerator and mode, for example `tcg,icount`.
    pub accel: String,
    /// Seed of the task set.
    pub seed: u64,
    /// Anything else worth showing, name and value.
    pub more: Vec<(String, String)>,
}

/// What a task is entitled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It has a reservation.
    Reserved,
    /// It has one in a group, or takes from a purse, too: it gets what these leave it, and no job is owed.
    Member,
    /// Released and timed, but without one.
    Periodic,
    /// Takes what is left.
    BestEffort,
}

impl Class {
    /// Of the copies of a task.
    pub fn of(task: &TaskEntry) -> Self {
        match task.budget {
            None => Class::Periodic,
            Some(_) if task.group.is_some() || task.purse.is_some() => Class::Member,
            Some(_) => Class::Reserved,
        }
    }
}

/// One task of a run; times in ns, 0 where it does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Unique in the run.
    pub name: String,
    /// Index of the `[[task]]` entry; for best-effort tasks the number of entries.
    pub entry: u32,
    /// Copy within the entry.
    pub copy: u32,
    /// What it is entitled to.
    pub class: Class,
    /// Time between releases.
    pub period: u64,
    /// Relative deadline.
    pub deadline: u64,
    /// Reservation per period, 0 = none.
    pub budget: u64,
    /// Thread in the kernel, 0 in the simulator.
    pub tid: u32,
}

/// What happened under one policy. Event times are relative to `origin_ns`, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where.
    pub world: World,
    /// Name of the policy.
    pub policy: String,
    /// On what.
    pub platform: Platform,
    /// All tasks, best-effort ones included; events refer to them by index.
    pub tasks: Vec<TaskInfo>,
    /// Names of the resources that its tasks lock; events refer to them by index.
    pub resources: Vec<String>,
    /// All events.
    pub events: Vec<Event>,
    /// Time zero on the world's clock, ns.
    pub origin_ns: u64,
    /// End of observation relative to the origin, ns: nothing later was seen.
    pub horizon_ns: u64,
}

/// Header of a run file: everything but the events.
#[derive(Serialize, Deserialize)]
struct Header {
    world: World,
    policy: String,
    platform: Platform,
    tasks: Vec<TaskInfo>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    origin_ns: u64,
    horizon_ns: u64,
    events: u64,
}

/// Why a run file cannot be read.
#[derive(Debug, Error)]
pub enum RunFileError {
    /// It does not begin like one.
    #[error("not a run file (it begins with other bytes); give a file written by onbeat")]
    NotARun,
    /// Written by another version.
    #[error("a run file of version {0}, this program reads version 1; record the run again")]
    Version(u8),
    /// It ends too early.
    #[error("the run file is cut off after {0} events; record the run again")]
    Truncated(u64),
    /// Its contents contradict themselves.
    #[error("the run file is damaged ({0}); record the run again")]
    Damaged(String),
    /// The system could not read it.
    #[error("cannot read the run file: {0}")]
    Io(#[from] io::Error),
}

impl Run {
    /// Brings events into ascending order of time, keeping the order of simultaneous ones.
    pub fn sort_events(&mut self) {
        if !self.events.is_sorted_by_key(|e| e.time) {
            self.events.sort_by_key(|e| e.time);
        }
    }

    /// Adds the releases that no task came to note: one that is late notes its next release when it gets there, but
    /// the job was released all the same and may have missed its deadline by the horizon. `tasks` must begin with the
    /// copies of `set` in its order, as in every run. Jobs of arbitrary programs are not known beforehand.
    pub fn add_missing_releases(&mut self, set: &TaskSet) {
        let mut noted = Releases::new(set);
        self.events.iter().for_each(|e| noted.note(e));
        noted.missing(set, self.horizon_ns, |e| self.events.push(e));
        self.sort_events();
    }

    /// Writes the run file.
    ///
    /// # Errors
    /// Whatever the writer reports.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let header = Header {
            world: self.world,
            policy: self.policy.clone(),
            platform: self.platform.clone(),
            tasks: self.tasks.clone(),
            resources: self.resources.clone(),
            origin_ns: self.origin_ns,
            horizon_ns: self.horizon_ns,
            events: self.events.len() as u64,
        };
        let header = serde_json::to_vec(&header)?;
        let mut crc = crc32fast::Hasher::new();
        let mut put = |bytes: &[u8]| {
            crc.update(bytes);
            out.write_all(bytes)
        };
        put(&MAGIC)?;
        put(&(header.len() as u32).to_le_bytes())?;
        put(&header)?;
        let mut block = Vec::with_capacity(1024 * EVENT_BYTES);
        for events in self.events.chunks(1024) {
            block.clear();
            events.iter().for_each(|e| block.extend_from_slice(&e.to_bytes()));
            put(&block)?;
        }
        out.write_all(&crc.finalize().to_le_bytes())
    }

    /// Reads a run file.
    ///
    /// # Errors
    /// [`RunFileError`] for anything but a whole, undamaged file; never panics, and never takes more memory than
    /// the input has bytes for.
    pub fn read_from(input: &mut impl Read) -> Result<Run, RunFileError> {
        let mut input = Summed { input, crc: crc32fast::Hasher::new() };
        let mut magic = [0; 8];
        input.fill(&mut magic).map_err(|e| cut(e, RunFileError::NotARun))?;
        if magic[..7] != MAGIC[..7] {
            return Err(RunFileError::NotARun);
        }
        if magic[7] != MAGIC[7] {
            return Err(RunFileError::Version(magic[7]));
        }
        let mut word = [0; 4];
        input.fill(&mut word).map_err(|e| cut(e, RunFileError::Truncated(0)))?;
        let length = u32::from_le_bytes(word);
        if length > HEADER_LIMIT {
            return Err(RunFileError::Damaged(format!("a header of {length} bytes")));
        }
        let mut header = Vec::new();
        input.append(u64::from(length), &mut header)?;
        if header.len() < length as usize {
            return Err(RunFileError::Truncated(0));
        }
        let header: Header = serde_json::from_slice(&header)
            .map_err(|e| RunFileError::Damaged(format!("header: {e}")))?;
        let mut events = Vec::new();
        let mut block = Vec::new();
        while (events.len() as u64) < header.events {
            let want = (header.events - events.len() as u64).min(4096) * EVENT_BYTES as u64;
            block.clear();
            input.append(want, &mut block)?;
            let (whole, _) = block.as_chunks::<EVENT_BYTES>();
            events.extend(whole.iter().map(Event::from_bytes));
            if (block.len() as u64) < want {
                return Err(RunFileError::Truncated(events.len() as u64));
            }
        }
        let sum = input.crc.clone().finalize();
        input.fill(&mut word).map_err(|e| cut(e, RunFileError::Truncated(header.events)))?;
        if u32::from_le_bytes(word) != sum {
            return Err(RunFileError::Damaged("its checksum does not match".into()));
        }
        let Header { world, policy, platform, tasks, resources, origin_ns, horizon_ns, .. } =
            header;
        Ok(Run { world, policy, platform, tasks, resources, events, origin_ns, horizon_ns })
    }
}

/// Which jobs of a set's tasks were released.
pub struct Releases {
    tasks: Vec<Noted>,
}

impl Releases {
    /// None was.
    pub fn new(set: &TaskSet) -> Self {
        Self { tasks: set.copies().map(|c| Noted::new(c.jobs)).collect() }
    }

    /// Notes what `e` says of that.
    pub fn note(&mut self, e: &Event) {
        if e.kind == EventKind::Release as u32
            && let Some(noted) = self.tasks.get_mut(e.task as usize)
        {
            noted.note(e.a);
        }
    }

    /// Tells `take` of those until `horizon`, ns, that have not been noted ([`Run::add_missing_releases`]).
    pub fn missing(&self, set: &TaskSet, horizon: u64, mut take: impl FnMut(Event)) {
        for ((i, copy), noted) in (0..).zip(set.copies()).zip(&self.tasks) {
            if matches!(copy.spec.work, Work::Program(_)) {
                continue;
            }
            for job in noted.first..copy.jobs {
                let time = copy.release(job);
                if time <= horizon && !noted.has(job) {
                    let deadline = time + copy.spec.deadline;
                    take(Event::new(time, EventKind::Release, job, deadline).of(i));
                }
            }
        }
    }
}

/// Which jobs of a task were released: most note one after another.
struct Noted {
    /// All before this one.
    first: u64,
    /// Of all jobs, once they did not.
    others: Vec<bool>,
    jobs: u64,
}

impl Noted {
    fn new(jobs: u64) -> Self {
        Self { first: 0, others: Vec::new(), jobs }
    }

    fn note(&mut self, job: u64) {
        if job == self.first && job < self.jobs {
            self.first += 1;
        } else if (self.first..self.jobs).contains(&job) {
            self.others.resize(self.jobs as usize, false);
            self.others[job as usize] = true;
        }
    }

    fn has(&self, job: u64) -> bool {
        job < self.first || self.others.get(job as usize).is_some_and(|noted| *noted)
    }
}

/// A reader that sums up what it has read.
struct Summed<'r, R> {
    input: &'r mut R,
    crc: crc32fast::Hasher,
}

impl<R: Read> Summed<'_, R> {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.crc.update(bytes);
        Ok(())
    }

    /// Appends up to `want` bytes; fewer only at the end of the input.
    fn append(&mut self, want: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.input.by_ref().take(want).read_to_end(bytes)?;
        self.crc.update(bytes);
        Ok(())
    }
}

fn cut(error: io::Error, truncated: RunFileError) -> RunFileError {
    if error.kind() == io::ErrorKind::UnexpectedEof { truncated } else { error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(events: usize) -> Run {
        Run {
            world: World::Lab,
            policy: "g-edf+fcbs".into(),
            platform: Platform { cpus: 4, kernel: "7.2.12".into(), ..Platform::default() },
            tasks: vec![TaskInfo {
                name: "movie-0".into(),
                entry: 0,
                copy: 0,
                class: Class::Reserved,
                period: 41_000_000,
                deadline: 41_000_000,
                budget: 25_000_000,
                tid: 7,
            }],
            resources: vec!["bus".into()],
            events: (0..events as u64)
                .map(|i| Event::new(i * 10, EventKind::Release, i, i + 5).of(0))
                .collect(),
            origin_ns: 123,
            horizon_ns: 1_000,
        }
    }

    fn bytes(run: &Run) -> Vec<u8> {
        let mut out = Vec::new();
        run.write_to(&mut out).unwrap();
        out
    }

    #[test]
    fn a_run_file_reads_back_the_same() {
        for n in [0, 1, 5000, 9000] {
            let run = sample(n);
            assert_eq!(Run::read_from(&mut &bytes(&run)[..]).unwrap(), run);
        }
    }

    #[test]
    fn releases_that_a_late_task_never_noted_are_added_up_to_the_horizon() {
        let file = "cpus = 1\nduration = \"50ns\"\n[[task]]\nname = \"a\"\nperiod = \"1us\"\n\
                    work = { constant = \"1us\" }";
        let mut set = TaskSet::from_bytes(file.as_bytes(), "x".as_ref()).unwrap();
        set.tasks[0].period = 10; // below the file's limit, to keep the numbers small
        set.tasks[0].deadline = 15;
        let mut run = sample(0);
        run.horizon_ns = 30;
        let note = |job: u64| Event::new(job * 10, EventKind::Release, job, job * 10 + 15).of(0);
        run.events = vec![note(0), note(2)];
        run.add_missing_releases(&set);
        assert_eq!(run.events, [note(0), note(1), note(2), note(3)]);
    }

    #[test]
    fn every_cut_off_file_is_refused() {
        let whole = bytes(&sample(3));
        for n in 0..whole.len() {
            let error = Run::read_from(&mut &whole[..n]).unwrap_err();
            assert!(
                matches!(error, RunFileError::NotARun | RunFileError::Truncated(_)),
                "{n}: {error}"
            );
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = bytes(&sample(2));
        for i in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[i] ^= 0x10;
            assert!(Run::read_from(&mut &damaged[..]).is_err(), "byte {i}");
        }
    }

    #[test]
    fn a_lying_event_count_takes_no_memory() {
        let mut file = MAGIC.to_vec();
        let header = serde_json::json!({"world": "sim", "policy": "x", "platform": {}, "tasks": [],
            "origin_ns": 0, "horizon_ns": 0, "events": u64::MAX});
        let header = header.to_string();
        file.extend((header.len() as u32).to_le_bytes());
        file.extend(header.as_bytes());
        let error = Run::read_from(&mut &file[..]).unwrap_err();
        assert!(matches!(error, RunFileError::Truncated(0)), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
            let mut file = if magic { MAGIC.to_vec() } else { Vec::new() };
            file.extend(tail);
            prop_assert!(Run::read_from(&mut &file[..]).is_err());
        }
    }
}
