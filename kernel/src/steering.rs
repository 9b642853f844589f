// SPDX-License-Identifier: GPL-2.0-only
//! The interrupt CPU's outside: device interrupts, the kernel's unbound work and this process's threads are steered to
//! it, and put back at the end (Kenna et al.; the scheduler's side is `bpf/apart.bpf.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::machine::{MAX_CPUS, cpus_of, name_cpus};

mod files;

use files::{DEFAULT, Files, Masks, WORK, affinity, bits, stay, text};
pub use files::{Survey, balancer};

/// Where the values found are noted meanwhile, for the next start if this one is killed.
const NOTED: &str = "/run/onbeat/interrupts";
/// Between two looks whether the CPU is on line.
const LOOK: Duration = Duration::from_millis(500);
/// Between two looks for interrupts that are new, or that others have moved.
const RENEW: Duration = Duration::from_secs(10);

/// Interrupts and service threads in the hands of the service; dropping it puts all back.
#[derive(Debug)]
pub struct Steering {
    files: Files,
    noted: PathBuf,
    cpu: u32,
    found: Masks,
    /// Files that the kernel did not let it write when it last looked.
    fixed: BTreeSet<String>,
    in_force: bool,
    looked: Instant,
    renewed: Instant,
}

/// Puts right what a service that was killed has left; says so if there was anything.
///
/// # Errors
/// The note can be read, but not carried out, of which it keeps the rest, or removed.
pub fn put_right() -> Result<Option<String>> {
    put_right_at(&Files { root: "/".into() }, Path::new(NOTED))
}

fn put_right_at(files: &Files, noted: &Path) -> Result<Option<String>> {
    let Ok(note) = fs::read(noted) else { return Ok(None) };
    match parse(&String::from_utf8_lossy(&note)) {
        Some((cpu, found)) => {
            let left = restore(files, &found, Some(cpu));
            keep(noted, cpu, &masks_of(&left))?;
            complain(&left)?;
            Ok(Some(
                "an earlier scx_onbeat was killed: interrupts go to the CPUs again that they had"
                    .into(),
            ))
        }
        None => {
            // As the kernel begins.
            let all = text(files.online());
            let masks = files.all()?.into_iter().map(|file| (file, all.clone()));
            // Some are nobody's to write.
            restore(files, &masks.collect(), None);
            remove(noted)?;
            Ok(Some(format!(
                "an earlier scx_onbeat was killed: interrupts go to all CPUs, as {} is damaged",
                noted.display()
            )))
        }
    }
}

/// The note: the CPU, then a file and what stood there in each line. Lines that cannot be carried out are skipped;
/// without any other the note is damaged.
fn parse(note: &str) -> Option<(u32, Masks)> {
    let mut lines = note.lines();
    let cpu = lines.next()?.strip_prefix("cpu ")?.parse().ok().filter(|cpu| *cpu < MAX_CPUS)?;
    let line = |line: &str| {
        let (file, mask) = line.split_once(' ')?;
        let number = file.strip_prefix("proc/irq/").and_then(|f| f.strip_suffix("/smp_affinity"));
        let is_interrupt = number.is_some_and(|n| n.parse::<u32>().is_ok());
        let known = is_interrupt || file == DEFAULT || file == WORK;
        (known && bits(mask)? != 0).then(|| (file.to_string(), mask.to_string()))
    };
    let found: Masks = lines.filter_map(line).collect();
    (!found.is_empty()).then_some((cpu, found))
}

/// Notes `found` for `cpu`, whole or not at all, whenever the service is killed.
fn keep(noted: &Path, cpu: u32, found: &Masks) -> Result<()> {
    if found.is_empty() {
        return remove(noted);
    }
    let lines = found.iter().map(|(file, mask)| format!("{file} {mask}\n"));
    let text = format!("cpu {cpu}\n") + &lines.collect::<String>();
    if let Some(folder) = noted.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = noted.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, noted))
        .with_context(|| format!("cannot write {}", noted.display()))
}

fn remove(noted: &Path) -> Result<()> {
    match fs::remove_file(noted) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", noted.display()))
        }
        _ => Ok(()),
    }
}

/// What could not be put back: by file, what stood there, and why.
type Left = BTreeMap<String, (String, String)>;

fn masks_of(left: &Left) -> Masks {
    left.iter().map(|(file, (mask, _))| (file.clone(), mask.clone())).collect()
}

fn complain(left: &Left) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let all: Vec<_> = left.iter().map(|(file, (_, why))| format!("/{file} ({why})")).collect();
    bail!("cannot put back {}; the next start tries again", all.join(", "))
}

/// Writes what was found; with `cpu` only where that CPU alone still stands: others may have moved the rest. Returns
/// what is still to be put back.
fn restore(files: &Files, found: &Masks, cpu: Option<u32>) -> Left {
    let mut left = Left::new();
    for (file, mask) in found {
        let Ok(now) = files.read(file) else { continue };
        if now == *mask || cpu.is_some_and(|cpu| bits(&now) != Some(1 << cpu)) {
            continue;
        }
        // With none of its CPUs on line the kernel would not take it.
        let why = match bits(mask).is_some_and(|mask| mask & files.online() != 0) {
            true => fs::write(files.at(file), mask).err().map(|e| e.to_string()),
            false => Some("none of its CPUs is on line".into()),
        };
        if let Some(why) = why {
            left.insert(file.clone(), (mask.clone(), why));
        }
    }
    left
}

impl Steering {
    /// Steers all that can be steered to `cpu`, which is on line; says what, and what not.
    ///
    /// # Errors
    /// Interrupts cannot be read, or what was found cannot be noted.
    pub fn begin(cpu: u32) -> Result<(Self, String)> {
        Self::at(Files { root: "/".into() }, Path::new(NOTED), cpu)
    }

    fn at(files: Files, noted: &Path, cpu: u32) -> Result<(Self, String)> {
        let now = Instant::now();
        // What an earlier one has moved and nobody could put back is not what was there before.
        let left = fs::read(noted).ok().and_then(|note| parse(&String::from_utf8_lossy(&note)));
        let found = left.map_or_else(Masks::new, |(_, found)| found);
        let (noted, fixed) = (noted.to_path_buf(), BTreeSet::new());
        let (looked, renewed) = (now, now);
        let mut all = Self { files, noted, cpu, found, fixed, in_force: true, looked, renewed };
        let words = all.steer(true)?;
        Ok((all, words))
    }

    /// The CPU, if it is on line and so all is steered to it.
    pub fn cpu_in_force(&self) -> Option<u32> {
        self.in_force.then_some(self.cpu)
    }

    /// Has this process's threads run there.
    pub fn take_threads(&self) {
        let mut cpus = CpuSet::new();
        match self.in_force {
            true => cpus.set(self.cpu as usize),
            false => (0..MAX_CPUS).for_each(|cpu| cpus.set(cpu as usize)),
        }
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        for thread in threads.filter_map(|t| t.file_name().to_str()?.parse().ok()) {
            // One that has ended meanwhile needs nothing.
            let _ = sched_setaffinity(Pid::from_raw(thread), &cpus);
        }
    }

    /// Steers what is not steered yet, having noted what was found; `first`: nothing is.
    fn steer(&mut self, first: bool) -> Result<String> {
        let mine = 1 << self.cpu;
        let (mut files, mut new) = (Vec::new(), BTreeSet::new());
        for file in self.files.all().context("cannot read /proc/irq; mount /proc")? {
            let Ok(now) = self.files.read(&file) else { continue };
            let there = bits(&now) == Some(mine);
            // What is on none of the CPUs that can be named here could not be put back.
            if bits(&now).is_none_or(|now| now == 0) || (there && self.found.contains_key(&file)) {
                continue;
            }
            // What has come since began where new ones are sent.
            let before = match self.found.get(DEFAULT) {
                Some(usual) if there && !first => usual.clone(),
                _ => now,
            };
            if !self.found.contains_key(&file) {
                self.found.insert(file.clone(), before);
                new.insert(file.clone());
            }
            files.push(file);
        }
        self.fixed.clear();
        if files.is_empty() && !first {
            return Ok(String::new());
        }
        keep(&self.noted, self.cpu, &self.found)?;
        let fails = |file: &String| fs::write(self.files.at(file), text(mine)).is_err();
        self.fixed = files.into_iter().filter(fails).collect();
        if !self.fixed.is_empty() {
            // What was noted before is still to be put back.
            self.found.retain(|file, _| !(self.fixed.contains(file) && new.contains(file)));
            keep(&self.noted, self.cpu, &self.found)?;
        }
        Ok(self.say()?)
    }

    fn has(&self, file: &str) -> bool {
        self.found.contains_key(file) && !self.fixed.contains(file)
    }

    /// What is steered, and what not.
    fn say(&self) -> io::Result<String> {
        let (mut moved, mut fixed) = (0, vec![]);
        for (number, device) in self.files.interrupts()? {
            let Some(device) = device else { continue };
            match self.has(&affinity(number)) {
                true => moved += 1,
                false => fixed.push(format!("{number} {device}")),
            }
        }
        let work = match self.has(WORK) {
            true => " and the kernel's unbound work",
            false => ", not the kernel's unbound work",
        };
        let cpu = self.cpu;
        Ok(format!("CPU {cpu} has {moved} device interrupts{work}{}", stay(&fixed)))
    }

    /// To be called now and then: falls back while the CPU is off line, and steers what is new. Returns what people
    /// should know.
    pub fn look(&mut self) -> Option<String> {
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        self.review()
    }

    fn review(&mut self) -> Option<String> {
        let (cpu, online) = (self.cpu, self.files.online());
        if self.in_force && online >> cpu & 1 == 0 {
            self.in_force = false;
            let put = self.put_back(None).err().map(|e| format!("; {e:#}"));
            self.take_threads();
            return Some(format!(
                "the interrupt CPU {cpu} is off line: interrupts go to {} until it is back{}",
                name_cpus(&cpus_of(online)),
                put.unwrap_or_default()
            ));
        }
        if !self.in_force && online >> cpu & 1 == 1 {
            self.in_force = true;
            self.take_threads();
        } else if !self.in_force || self.renewed.elapsed() < RENEW {
            return None;
        } else {
            self.renewed = Instant::now();
            return self.steer(false).err().map(|e| format!("interrupts cannot be steered: {e:#}"));
        }
        self.renewed = Instant::now();
        Some(match self.steer(true) {
            Ok(words) => format!("the interrupt CPU is back: {words}"),
            Err(e) => format!("interrupts cannot be steered: {e:#}"),
        })
    }

    /// Puts back what was found, as far as can be; with `cpu` only what still stands there.
    fn put_back(&mut self, cpu: Option<u32>) -> Result<Left> {
        let left = restore(&self.files, &self.found, cpu);
        self.found = masks_of(&left);
        keep(&self.noted, self.cpu, &self.found)?;
        Ok(left)
    }

    /// Puts all back.
    ///
    /// # Errors
    /// The kernel does not take what was found, or not yet: that stays noted for the next start.
    pub fn end(&mut self) -> Result<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        let left = self.put_back(Some(self.cpu))?;
        self.found.clear();
        complain(&left)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            crate::log::say(format_args!("{e:#}"));
        }
    }
}

#[cfg(test)]
mod tests;
