// SPDX-License-Identifier: GPL-2.0-only
//! The interrupt CPU's outside: device interrupts, the kernel's unbound work and this process's threads are steered to
//! it, and put back at the end (Kenna et al.; the scheduler's side is `bpf/apart.bpf.h`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::machine::{MAX_CPUS, cpus_of, format_cpus};

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
    /// Files that the kernel lets nobody write.
    fixed: BTreeSet<String>,
    in_force: bool,
    looked: Instant,
    renewed: Instant,
}

/// Puts right what a service that was killed has left; says so if there was anything.
///
/// # Errors
/// The note can be read, but not carried out or removed.
pub fn put_right() -> Result<Option<String>> {
    put_right_at(&Files { root: "/".into() }, Path::new(NOTED))
}

fn put_right_at(files: &Files, noted: &Path) -> Result<Option<String>> {
    let Ok(note) = fs::read(noted) else { return Ok(None) };
    let words = match parse(&String::from_utf8_lossy(&note)) {
        Some((cpu, found)) => {
            restore(files, &found, Some(cpu))?;
            "an earlier scx_onbeat was killed: interrupts go to the CPUs again that they had".into()
        }
        None => {
            // As the kernel begins.
            let all = text(files.online());
            let masks = files.all()?.into_iter().map(|file| (file, all.clone()));
            restore(files, &masks.collect(), None)?;
            format!(
                "an earlier scx_onbeat was killed: interrupts go to all CPUs, as {} is damaged",
                noted.display()
            )
        }
    };
    fs::remove_file(noted).with_context(|| format!("cannot remove {}", noted.display()))?;
    Ok(Some(words))
}

/// The note: the CPU, then a file and what stood there in each line.
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
    let found: Masks = lines.map(line).collect::<Option<_>>()?;
    (!found.is_empty()).then_some((cpu, found))
}

/// Writes what was found; with `cpu` only where that CPU alone still stands: others may have moved the rest.
fn restore(files: &Files, found: &Masks, cpu: Option<u32>) -> Result<()> {
    let mut failed = Vec::new();
    for (file, mask) in found {
        let Ok(now) = files.read(file) else { continue };
        if now == *mask || cpu.is_some_and(|cpu| bits(&now) != Some(1 << cpu)) {
            continue;
        }
        // With none of its CPUs on line the kernel would not take it.
        if bits(mask).is_some_and(|mask| mask & files.online() != 0)
            && let Err(e) = fs::write(files.at(file), mask)
            && cpu.is_some()
        {
            failed.push(format!("/{file} ({e})"));
        }
    }
    if !failed.is_empty() {
        bail!("cannot put back {}", failed.join(", "));
    }
    Ok(())
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
        let (noted, found, fixed) = (noted.to_path_buf(), Masks::new(), BTreeSet::new());
        let (looked, renewed) = (now, now);
        let mut all = Self { files, noted, cpu, found, fixed, in_force: true, looked, renewed };
        let words = all.steer()?;
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

    /// Steers what is not steered yet, having noted what was found.
    fn steer(&mut self) -> Result<String> {
        let (mine, first) = (1 << self.cpu, self.found.is_empty());
        let mut files = Vec::new();
        for file in self.files.all().context("cannot read /proc/irq; mount /proc")? {
            let Ok(now) = self.files.read(&file) else { continue };
            let there = bits(&now) == Some(mine);
            if self.fixed.contains(&file) || (there && self.found.contains_key(&file)) {
                continue;
            }
            // What has come since began where new ones are sent.
            let before = match self.found.get(DEFAULT) {
                Some(usual) if there && !first => usual.clone(),
                _ => now,
            };
            self.found.entry(file.clone()).or_insert(before);
            files.push(file);
        }
        if files.is_empty() {
            return Ok(String::new());
        }
        self.note()?;
        let fails = |file: &String| fs::write(self.files.at(file), text(mine)).is_err();
        let failed: Vec<String> = files.into_iter().filter(fails).collect();
        self.found.retain(|file, _| !failed.contains(file));
        self.fixed.extend(failed);
        Ok(self.say()?)
    }

    /// What is steered, and what not.
    fn say(&self) -> io::Result<String> {
        let (mut moved, mut fixed) = (0, vec![]);
        for (number, device) in self.files.interrupts()? {
            let Some(device) = device else { continue };
            match self.found.contains_key(&affinity(number)) {
                true => moved += 1,
                false => fixed.push(format!("{number} {device}")),
            }
        }
        let work = match self.found.contains_key(WORK) {
            true => " and the kernel's unbound work",
            false => ", not the kernel's unbound work",
        };
        let cpu = self.cpu;
        Ok(format!("CPU {cpu} has {moved} device interrupts{work}{}", stay(&fixed)))
    }

    /// Notes what was found, whole or not at all, whenever the service is killed.
    fn note(&self) -> Result<()> {
        let lines = self.found.iter().map(|(file, mask)| format!("{file} {mask}\n"));
        let text = format!("cpu {}\n", self.cpu) + &lines.collect::<String>();
        if let Some(folder) = self.noted.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = self.noted.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.noted))
            .with_context(|| format!("cannot write {}", self.noted.display()))
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
                "the interrupt CPU {cpu} is off line: interrupts go to CPUs {} until it is back{}",
                format_cpus(&cpus_of(online)),
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
            return self.steer().err().map(|e| format!("interrupts cannot be steered: {e:#}"));
        }
        self.renewed = Instant::now();
        Some(match self.steer() {
            Ok(words) => format!("the interrupt CPU is back: {words}"),
            Err(e) => format!("interrupts cannot be steered: {e:#}"),
        })
    }

    /// Puts back what was found; with `cpu` only what still stands there.
    fn put_back(&mut self, cpu: Option<u32>) -> Result<()> {
        let found = std::mem::take(&mut self.found);
        restore(&self.files, &found, cpu)?;
        match fs::remove_file(&self.noted) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", self.noted.display()))
            }
            _ => Ok(()),
        }
    }

    /// Puts all back.
    ///
    /// # Errors
    /// The kernel does not take what was found.
    pub fn end(&mut self) -> Result<()> {
        match self.found.is_empty() {
            true => Ok(()),
            false => self.put_back(Some(self.cpu)),
        }
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
