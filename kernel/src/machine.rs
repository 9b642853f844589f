// SPDX-License-Identifier: GPL-2.0-only
//! What the running system is: its CPUs, its kernel, who schedules. Read from the kernel each time.

use std::fs;

/// `/sys/kernel/sched_ext/state`, or where it would be.
const STATE: &str = "/sys/kernel/sched_ext/state";

/// Most CPUs the core can hold.
pub const MAX_CPUS: u32 = onbeat_core::ffi::OB_MAX_CPUS;

/// CPU numbers of a list such as `0-3,6`, ascending, each once.
///
/// # Errors
/// Which part is no number or range.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').map(str::trim) {
        let bad = || format!("\"{part}\" is no CPU or range of CPUs; write for example 0-3,6");
        let number = |s: &str| s.trim().parse::<u32>().ok().filter(|n| *n < 8192).ok_or_else(bad);
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The opposite of [`parse_cpus`].
pub fn format_cpus(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let show = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.iter().map(show).collect::<Vec<_>>().join(",")
}

/// In words: `CPU 0`, `CPUs 0-3,6`.
pub fn name_cpus(cpus: &[u32]) -> String {
    let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("{word} {}", format_cpus(cpus))
}

/// CPUs in a list as bits; those beyond [`MAX_CPUS`] are left out.
pub fn mask_of(cpus: &[u32]) -> u64 {
    cpus.iter().filter(|c| **c < MAX_CPUS).fold(0, |mask, c| mask | 1 << c)
}

/// The CPUs of a mask, ascending.
pub fn cpus_of(mask: u64) -> Vec<u32> {
    (0..MAX_CPUS).filter(|c| mask >> c & 1 == 1).collect()
}

fn cpu_list(file: &str) -> Result<Vec<u32>, String> {
    let path = format!("/sys/devices/system/cpu/{file}");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    parse_cpus(&text).map_err(|e| format!("{path}: {e}"))
}

/// CPUs that are there, on line or not.
///
/// # Errors
/// What cannot be read.
pub fn present() -> Result<Vec<u32>, String> {
    cpu_list("present")
}

/// CPUs that are on line.
///
/// # Errors
/// What cannot be read.
pub fn online() -> Result<Vec<u32>, String> {
    cpu_list("online")
}

/// As many threads as the kernel allows in all, the smaller of `threads-max` and `pid_max`, or would if nobody had
/// raised that, one for each 128 KiB of memory; 2^12 at least, or if it cannot be read, and 2^22 at most, the greatest
/// `pid_max` there is. Room for all of them means that nobody fills the scheduler's table before the kernel refuses
/// threads.
pub fn threads_most() -> usize {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<usize>().ok()
    };
    let most = [limit("threads-max"), limit("pid_max"), usual()].into_iter().flatten().min();
    // Idle threads and the like count in neither.
    (most.unwrap_or(0) + 256).clamp(1 << 12, 1 << 22)
}

/// The kernel's own `threads-max` on a machine of this size, and a little more, as it reckoned with what it had when it
/// started.
fn usual() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kib.trim().trim_end_matches("kB").trim().parse::<usize>().ok()? / 128 * 9 / 8)
}

/// As `uname -r` prints it.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into()
}

/// Whether the running kernel is PREEMPT_RT.
pub fn kernel_is_rt() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|s| s.trim() == "1")
        || fs::read_to_string("/proc/version").is_ok_and(|s| s.contains("PREEMPT_RT"))
}

/// Whether the running kernel has sched_ext.
pub fn has_sched_ext() -> bool {
    fs::metadata(STATE).is_ok()
}

/// State and name of the sched_ext scheduler that is loaded, if one is.
pub fn loaded() -> Option<(String, String)> {
    let state = fs::read_to_string(STATE).ok()?.trim().to_string();
    if state == "disabled" {
        return None;
    }
    let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    Some((state, name.trim().to_string()))
}

/// The kernel's build configuration: where it was found, and its text.
pub fn kernel_config() -> Option<(String, String)> {
    let boot = format!("/boot/config-{}", kernel_release());
    if let Ok(text) = fs::read_to_string(&boot) {
        return Some((boot, text));
    }
    let packed = "/proc/config.gz";
    let out = std::process::Command::new("gzip").args(["-dc", packed]).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    (out.status.success() && !text.is_empty()).then(|| (packed.into(), text))
}

/// Whether this process may load BPF schedulers: it has CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON.
pub fn privileged() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let caps = caps.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    caps & SYS_ADMIN != 0 || caps & PERFMON_AND_BPF == PERFMON_AND_BPF
}

/// One check of what loading needs: what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

fn obstacle(what: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
    Obstacle { what: what.into(), remedy: remedy.into() }
}

const OTHER_KERNEL: &str =
    "boot Linux 7.2 or newer, built with CONFIG_SCHED_CLASS_EXT, or use the lab (`onbeat lab`)";

/// sched_ext is in the kernel.
///
/// # Errors
/// It is not.
pub fn check_sched_ext() -> Result<(), Obstacle> {
    match has_sched_ext() {
        true => Ok(()),
        false => Err(obstacle(
            format!("this kernel ({}) has no sched_ext", kernel_release()),
            OTHER_KERNEL,
        )),
    }
}

/// The kernel describes its types, and describes those of sched_ext as programs expect them.
///
/// # Errors
/// There is no description, or one written by a tool that is too old.
pub fn check_btf() -> Result<(), Obstacle> {
    if fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
        let what = "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF is off)";
        return Err(obstacle(what, OTHER_KERNEL));
    }
    let bad = scx_utils::compat::malformed_scx_kfuncs();
    if bad.is_empty() {
        return Ok(());
    }
    Err(obstacle(
        format!(
            "the type information of this kernel ({}) is malformed: {} of sched_ext's functions \
             (first {}) show an argument that they should hide, so the kernel refuses every \
             scheduler (\"malformed scx kfunc prototype\")",
            kernel_release(),
            bad.len(),
            bad[0]
        ),
        "the kernel was built with pahole older than 1.26: install another build of it, or use \
         the lab (`onbeat lab`)",
    ))
}

/// Its configuration can be read, which libbpf needs.
///
/// # Errors
/// It is neither in /boot nor in /proc.
pub fn check_config() -> Result<(), Obstacle> {
    if fs::metadata("/proc/config.gz").is_ok() || kernel_config().is_some() {
        return Ok(());
    }
    let release = kernel_release();
    Err(obstacle(
        format!("the configuration of this kernel is not in /boot/config-{release}"),
        "install the package that holds that file (in Debian the kernel's linux-base package)",
    ))
}

/// No scheduler is loaded.
///
/// # Errors
/// One is, by name.
pub fn check_unloaded() -> Result<(), Obstacle> {
    match loaded() {
        None => Ok(()),
        Some((state, name)) => Err(obstacle(
            format!("another sched_ext scheduler is already loaded: \"{name}\" ({state})"),
            "stop it first; its process can be found with `pgrep scx_`",
        )),
    }
}

/// This process may load a scheduler.
///
/// # Errors
/// It may not.
pub fn check_privileges() -> Result<(), Obstacle> {
    match privileged() {
        true => Ok(()),
        false => Err(obstacle(
            "loading a scheduler needs root (CAP_SYS_ADMIN, or CAP_BPF with CAP_PERFMON)",
            "run it as root, for example with sudo",
        )),
    }
}

/// There are no more CPUs than the core can hold.
///
/// # Errors
/// There are, or their list cannot be read.
pub fn check_cpus() -> Result<(), Obstacle> {
    let cpus = present().map_err(|e| obstacle(e, "mount /sys"))?;
    match cpus.last() {
        Some(last) if *last < MAX_CPUS => Ok(()),
        _ => Err(obstacle(
            format!("{} are too many", name_cpus(&cpus)),
            format!(
                "Onbeat serves CPUs 0 to {}; start the kernel with nr_cpus={MAX_CPUS}",
                MAX_CPUS - 1
            ),
        )),
    }
}

/// Why no scheduler can be loaded here by anybody, whatever is installed or started.
pub fn hopeless() -> Option<Obstacle> {
    [check_sched_ext, check_btf, check_cpus].iter().find_map(|check| check().err())
}

/// All that stands in the way of loading the scheduler here, most basic first.
pub fn obstacles() -> Vec<Obstacle> {
    let checks =
        [check_sched_ext, check_btf, check_config, check_cpus, check_privileges, check_unloaded];
    checks.iter().filter_map(|check| check().err()).collect()
}

/// Now, by the clock that the scheduler goes by, ns.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_all_threads_the_kernel_allows() {
        let allowed = |name| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
            text.trim().parse::<usize>().unwrap()
        };
        let most = allowed("threads-max").min(allowed("pid_max"));
        let most = most.min(usual().unwrap());
        assert!(threads_most() > most || threads_most() == 1 << 22, "{most}");
    }

    #[test]
    fn lists_of_cpus_read_and_print_as_the_kernel_writes_them() {
        assert_eq!(parse_cpus("0-3,6\n"), Ok(vec![0, 1, 2, 3, 6]));
        assert_eq!(parse_cpus("5,1,1-2"), Ok(vec![1, 2, 5]));
        assert_eq!(format_cpus(&[0, 1, 2, 3, 6]), "0-3,6");
        assert_eq!(format_cpus(&[]), "");
        assert_eq!([&[5][..], &[0, 1, 5]].map(name_cpus), ["CPU 5", "CPUs 0-1,5"]);
        assert_eq!(cpus_of(mask_of(&[0, 63, 64])), [0, 63]);
    }

    #[test]
    fn bad_lists_of_cpus_are_named_and_huge_ones_cost_nothing() {
        for bad in ["", "x", "3-1", "1,,2", "-1", "0-99999999999", "0-4294967295"] {
            assert!(parse_cpus(bad).is_err_and(|e| e.contains("write for example")), "{bad}");
        }
    }
}
