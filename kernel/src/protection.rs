// SPDX-License-Identifier: GPL-2.0-only
//! Protection from SCHED_FIFO and SCHED_RR threads, which rank above sched_ext: since Linux 7 a deadline server of
//! the kernel's gives every CPU back to sched_ext for `runtime` of every `period` if they would take all of it, 5 %
//! unless told otherwise. Here it is told what has been admitted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use onbeat_model::units::{MS, US};

/// Where the kernel shows the servers: a folder for each CPU.
pub const SERVERS: &str = "/sys/kernel/debug/sched/ext_server";
/// Where the values found are noted while others are set, for the next start if this one is killed.
const FOUND: &str = "/run/onbeat/ext_server";
/// A CPU in billionths.
const WHOLE: u64 = 1_000_000_000;
/// What is left to real-time threads in any case.
const MOST: u64 = WHOLE / 100 * 95;
/// Periods that servers get: a shorter one costs more timers, a longer one more budget.
const PERIODS: (u64, u64) = (500 * US, 100 * MS);
/// What a kernel comes with.
const USUAL: Server = Server { runtime: 50 * MS, period: 1000 * MS };
/// Periods of the server within the shortest time in which a reservation must be served.
const PARTS: u64 = 8;

/// A server's values, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// What sched_ext gets at least; 0: the server is off.
    pub runtime: u64,
    /// Of every such time.
    pub period: u64,
}

/// What reservations need of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The CPU.
    pub cpu: u32,
    /// Share of it, in billionths, best effort's included.
    pub share: u64,
    /// The shortest time in which a reservation must get its budget, ns.
    pub within: u64,
}

impl Need {
    /// The server that gives this much in that time, if `most` billionths can be had.
    ///
    /// The kernel's server comes at the end of its period, so there can be a gap of 2 (Π − Θ): in D there is at least
    /// (D − 2 (Π − Θ)) Θ/Π (Shin and Lee 2003). With α = Θ/Π and ε = Π/D that is the share at 2εα² + (1 − 2ε)α =
    /// share.
    pub fn server(&self, most: u64) -> Server {
        let period = (self.within / PARTS).clamp(PERIODS.0, PERIODS.1) / US * US;
        let (share, e) =
            (self.share as f64 / WHOLE as f64, period as f64 / self.within.max(1) as f64);
        let b = 1.0 - 2.0 * e;
        let part = ((b * b + 8.0 * e * share).sqrt() - b) / (4.0 * e);
        let part = ((part * WHOLE as f64) as u64).min(most);
        let runtime = u128::from(period) * u128::from(part) / u128::from(WHOLE);
        Server { runtime: (runtime as u64).next_multiple_of(US).min(period), period }
    }
}

/// The servers below `folder`, by CPU.
///
/// # Errors
/// They cannot be read: an older kernel, no debugfs, or no privileges.
pub fn servers(folder: &Path) -> io::Result<BTreeMap<u32, Server>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("cpu"));
        let Some(cpu) = name.and_then(|n| n.parse().ok()) else { continue };
        let number = |file| {
            let text = fs::read_to_string(path.join(file))?;
            text.trim().parse::<u64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        all.insert(cpu, Server { runtime: number("runtime")?, period: number("period")? });
    }
    Ok(all)
}

/// The kernel's servers, in the hands of the service.
#[derive(Debug)]
pub struct Protection {
    folder: PathBuf,
    /// File with the values found.
    noted: PathBuf,
    found: BTreeMap<u32, Server>,
    set: BTreeMap<u32, Server>,
}

impl Protection {
    /// Reads what is there; puts right what a service that was killed has left, and then says what the servers have.
    ///
    /// # Errors
    /// There are no such servers, or they cannot be read or written.
    pub fn begin() -> Result<(Self, Option<String>)> {
        Self::at(Path::new(SERVERS), Path::new(FOUND))
    }

    fn at(folder: &Path, noted: &Path) -> Result<(Self, Option<String>)> {
        let set = servers(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let (folder, noted) = (folder.to_path_buf(), noted.to_path_buf());
        let mut all = Self { folder, noted, found: set.clone(), set };
        let Ok(text) = fs::read_to_string(&all.noted) else { return Ok((all, None)) };
        let old = parse(&text, &all.set).and_then(|old| {
            all.found.extend(old);
            all.restore()
        });
        let Err(e) = old else { return Ok((all, Some("their old values again".into()))) };
        all.found = all.set.keys().map(|cpu| (*cpu, USUAL)).collect();
        all.restore()?;
        let noted = all.noted.display();
        let words = format!("50ms in 1s, the kernel's default, as {noted} is damaged ({e:#})");
        Ok((all, Some(words)))
    }

    /// Gives each CPU what it needs, and those without need what they had. `most`: billionths of each that
    /// SCHED_DEADLINE leaves. Returns the CPUs that get less than they need, as the kernel admits no more.
    ///
    /// # Errors
    /// The kernel does not take the values.
    pub fn set(&mut self, needs: &[Need], most: u64) -> Result<Vec<u32>> {
        let most = most.min(MOST);
        let mut wanted = self.found.clone();
        for need in needs {
            if let Some(server) = wanted.get_mut(&need.cpu) {
                *server = need.server(most);
            }
        }
        if wanted == self.set {
            return Ok(Vec::new());
        }
        self.note()?;
        let mut short = Vec::new();
        // Those that give something back go first, so that others can have it.
        let mut cpus: Vec<u32> = wanted.keys().copied().collect();
        let part =
            |s: Server| u128::from(s.runtime) * u128::from(WHOLE) / u128::from(s.period.max(1));
        cpus.sort_by_key(|cpu| part(wanted[cpu]) > part(self.set[cpu]));
        for cpu in cpus {
            let Server { mut runtime, period } = wanted[&cpu];
            loop {
                match self.write(cpu, Server { runtime, period }) {
                    Ok(()) => break,
                    // SCHED_DEADLINE has admitted too much else: a little less, then.
                    Err(e) if e.kind() == io::ErrorKind::ResourceBusy && runtime > period / 10 => {
                        runtime -= period / 20;
                        short.push(cpu);
                    }
                    Err(e) => {
                        let folder = self.folder.display();
                        return Err(e).with_context(|| format!("cannot set {folder}/cpu{cpu}"));
                    }
                }
            }
        }
        let cut =
            needs.iter().filter(|need| need.server(most) != need.server(WHOLE)).map(|n| n.cpu);
        short.extend(cut);
        short.sort_unstable();
        short.dedup();
        Ok(short)
    }

    /// Gives every server the values it had.
    ///
    /// # Errors
    /// The kernel does not take them.
    pub fn restore(&mut self) -> Result<()> {
        for (cpu, server) in self.found.clone() {
            self.write(cpu, server)
                .with_context(|| format!("cannot restore the server of CPU {cpu}"))?;
        }
        match fs::remove_file(&self.noted) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", self.noted.display()))
            }
            _ => Ok(()),
        }
    }

    /// Notes what was found, once, before anything is changed.
    fn note(&self) -> Result<()> {
        if self.set != self.found {
            return Ok(());
        }
        let lines = self.found.iter().map(|(cpu, s)| format!("{cpu} {} {}\n", s.runtime, s.period));
        let lines: String = lines.collect();
        if let Some(folder) = self.noted.parent() {
            fs::create_dir_all(folder)?;
        }
        // Whole or not at all, whenever the service is killed.
        let new = self.noted.with_extension("new");
        fs::write(&new, lines)
            .and_then(|()| fs::rename(&new, &self.noted))
            .with_context(|| format!("cannot write {}", self.noted.display()))
    }

    /// The kernel takes one value at a time, and no runtime beyond the period, nor a greater share than can be had.
    fn write(&mut self, cpu: u32, to: Server) -> io::Result<()> {
        let now = self.set[&cpu];
        if now == to {
            return Ok(());
        }
        let put = |file: &str, value: u64| {
            fs::write(self.folder.join(format!("cpu{cpu}")).join(file), value.to_string())
        };
        let mut done = now;
        let result = if to.period >= now.period {
            let first = put("period", to.period).map(|()| done.period = to.period);
            first.and_then(|()| put("runtime", to.runtime)).map(|()| done.runtime = to.runtime)
        } else {
            let first = put("runtime", to.runtime).map(|()| done.runtime = to.runtime);
            first.and_then(|()| put("period", to.period)).map(|()| done.period = to.period)
        };
        self.set.insert(cpu, done);
        result
    }
}

/// What was noted, a line for a CPU: its number, runtime and period in ns.
fn parse(text: &str, there: &BTreeMap<u32, Server>) -> Result<BTreeMap<u32, Server>> {
    let server = |line: &str| {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let Ok(&[cpu, runtime, period]) = numbers.as_deref() else { return None };
        let cpu = u32::try_from(cpu).ok().filter(|cpu| there.contains_key(cpu))?;
        (period > 0 && runtime <= period).then_some((cpu, Server { runtime, period }))
    };
    text.lines()
        .map(|line| server(line).with_context(|| format!("not a server: {line:?}")))
        .collect()
}

/// What the kernel lets SCHED_DEADLINE have of each CPU, in billionths, less what its threads hold of `cpus` CPUs
/// in all.
pub fn deadline_leaves(held: u64, cpus: u32) -> u64 {
    let read = |file| fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{file}_us"));
    let number = |text: io::Result<String>| text.ok()?.trim().parse::<u64>().ok();
    // A runtime of -1 is no limit.
    let all = match (number(read("runtime")), number(read("period"))) {
        (Some(runtime), Some(period)) if period > 0 => {
            (u128::from(runtime) * u128::from(WHOLE) / u128::from(period)) as u64
        }
        _ => WHOLE,
    };
    all.min(WHOLE).saturating_sub(held.div_ceil(u64::from(cpus.max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine(cpus: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for cpu in 0..cpus {
            let here = folder.path().join(format!("servers/cpu{cpu}"));
            fs::create_dir_all(&here).unwrap();
            fs::write(here.join("runtime"), "50000000\n").unwrap();
            fs::write(here.join("period"), "1000000000\n").unwrap();
        }
        folder
    }

    fn begin(folder: &Path) -> (Protection, Option<String>) {
        Protection::at(&folder.join("servers"), &folder.join("noted")).unwrap()
    }

    #[test]
    fn servers_get_what_is_admitted_and_their_old_values_at_the_end() {
        let folder = machine(2);
        let (mut all, left) = begin(folder.path());
        assert_eq!(left, None);
        let need = Need { cpu: 1, share: WHOLE * 3 / 10, within: 40 * MS };
        assert_eq!(all.set(&[need], WHOLE).unwrap(), [0; 0]);
        let now = servers(&folder.path().join("servers")).unwrap();
        assert_eq!((now[&0], now[&1].period), (USUAL, 5 * MS));
        assert!(now[&1].runtime * 10 > 3 * now[&1].period, "{:?}", now[&1]);
        // What SCHED_DEADLINE holds cannot be had.
        assert_eq!(all.set(&[need], WHOLE / 5).unwrap(), [1]);
        all.set(&[], WHOLE).unwrap();
        all.restore().unwrap();
        let now = servers(&folder.path().join("servers")).unwrap();
        assert!(
            now.values().all(|server| *server == USUAL) && !folder.path().join("noted").exists()
        );
    }

    #[test]
    fn what_a_killed_service_has_left_is_put_right_by_the_next() {
        let folder = machine(2);
        let (mut killed, _) = begin(folder.path());
        let need = Need { cpu: 0, share: WHOLE / 2, within: 10 * MS };
        killed.set(&[need], WHOLE).unwrap();
        drop(killed);
        assert_ne!(servers(&folder.path().join("servers")).unwrap()[&0], USUAL);
        let (_, left) = begin(folder.path());
        assert_eq!(left.unwrap(), "their old values again");
        assert_eq!(servers(&folder.path().join("servers")).unwrap()[&0], USUAL);
        assert_eq!(begin(folder.path()).1, None);
    }

    #[test]
    fn where_the_note_of_old_values_is_damaged_servers_get_those_that_kernels_come_with() {
        let whole = "0 50000000 1000000000\n";
        let damaged = [
            "0 5 0\n",
            "0 9 8\n",
            "0 5 -8\n",
            "7 5 8\n",
            "0 5\n",
            "0 5 8 9\n",
            "\u{0}",
            "0 5 99999999999999999999\n",
        ];
        for text in damaged {
            let folder = machine(1);
            let server = folder.path().join("servers/cpu0");
            fs::write(server.join("runtime"), "7000000\n").unwrap();
            for text in [text.into(), format!("{whole}{text}")] {
                fs::write(folder.path().join("noted"), &text).unwrap();
                let words = begin(folder.path()).1.unwrap();
                assert!(
                    words.contains("damaged") && words.contains("not a server"),
                    "{text:?}: {words}"
                );
                assert_eq!(servers(&folder.path().join("servers")).unwrap()[&0], USUAL, "{text:?}");
                assert!(!folder.path().join("noted").exists(), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn in_every_stretch_of_time_the_server_gives_what_is_needed(
            share in 1u64..WHOLE, within in MS..60_000 * MS,
        ) {
            let Server { runtime, period } = Need { cpu: 0, share, within }.server(WHOLE);
            prop_assert!(runtime <= period && period >= 100 * US);
            let gap = 2.0 * (period - runtime) as f64;
            let least = (within as f64 - gap) * runtime as f64 / period as f64;
            let needed = within as f64 * share as f64 / WHOLE as f64;
            prop_assert!(least >= needed - 1000.0, "{least} < {needed}");
        }
    }
}
