// SPDX-License-Identifier: GPL-2.0-only
//! What a lab run needs, and what it gives back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

/// Which stock kernel boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// The distribution's ordinary kernel, in its smallest packaging (Debian's `cloud-amd64`).
    Plain,
    /// The PREEMPT_RT kernel (Debian's `rt-amd64`).
    Rt,
}

impl Flavour {
    /// The name used in task-set files, options and the cache: `plain` or `rt`.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Plain => "plain",
            Flavour::Rt => "rt",
        }
    }

    /// The suffix of Debian's package names for this flavour.
    pub fn package_suffix(self) -> &'static str {
        match self {
            Flavour::Plain => "cloud-amd64",
            Flavour::Rt => "rt-amd64",
        }
    }
}

impl std::str::FromStr for Flavour {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "plain" => Ok(Flavour::Plain),
            "rt" => Ok(Flavour::Rt),
            _ => Err(format!("there is no kernel `{name}`; choose `plain` or `rt`")),
        }
    }
}

/// How time passes in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One instruction is one nanosecond and idle time is skipped: two runs are identical.
    Deterministic {
        /// The longest turn one CPU gets while others wait, in microseconds (≥ 1; 20 is a good
        /// compromise between wake-up latency inside and run time outside).
        turn_us: u32,
        /// Seed of everything random the guest can see (KASLR, RDRAND, `/dev/urandom`).
        seed: u64,
    },
    /// Guest time is host time: quick, for functional tests and for the shell; not repeatable.
    RealTime,
}

impl Default for Mode {
    fn default() -> Self {
        Mode::Deterministic { turn_us: 20, seed: 42 }
    }
}

/// One run of one command in a fresh guest.
#[derive(Debug, Clone)]
pub struct LabSpec {
    /// Number of guest CPUs, 1 to [`LabSpec::MAX_CPUS`].
    pub cpus: u32,
    /// Guest memory in MiB; the programs and files live in it too.
    pub memory_mib: u32,
    /// Which kernel boots.
    pub kernel: Flavour,
    /// Extra arguments for the kernel's command line.
    pub kernel_args: Vec<String>,
    /// Kernel modules to load before the command, by name; their dependencies come along.
    pub extra_modules: Vec<String>,
    /// Files or whole directories to copy: (path on the host, absolute path in the guest).
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Programs to copy to `/bin` of the guest, each with every shared library it is linked to.
    pub programs: Vec<PathBuf>,
    /// What to run: program (looked up in the guest's `PATH`) and arguments. Ignored by
    /// `interactive`, which runs a shell when this is empty.
    pub command: Vec<String>,
    /// Environment of the command, beside `PATH`, `HOME` and `TERM`.
    pub env: Vec<(String, String)>,
    /// How time passes.
    pub mode: Mode,
    /// Give the command this much guest time, then kill it ([`Exit::TimedOut`]).
    pub guest_timeout: Option<Duration>,
    /// Give the whole run this much host time, then kill the guest (an error).
    pub host_timeout: Duration,
    /// Connect the guest's terminal to ours. Needs [`Mode::RealTime`].
    pub interactive: bool,
    /// Room for programs and files on their way in, and for `/out` on its way out, in MiB (a power
    /// of two).
    pub window_mib: u32,
    /// Where to put the files of `/out`; a temporary directory when `None`.
    pub out_dir: Option<PathBuf>,
    /// Set to true from elsewhere (a signal handler) to stop the run: the guest is killed and
    /// [`run`](crate::run) returns an error.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl LabSpec {
    /// The most CPUs a lab may have.
    pub const MAX_CPUS: u32 = 64;

    /// A deterministic four-CPU lab with the plain kernel that runs `command`.
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        LabSpec {
            cpus: 4,
            memory_mib: 2048,
            kernel: Flavour::Plain,
            kernel_args: Vec::new(),
            extra_modules: Vec::new(),
            files: Vec::new(),
            programs: Vec::new(),
            command: command.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            mode: Mode::default(),
            guest_timeout: None,
            host_timeout: Duration::from_secs(900),
            interactive: false,
            window_mib: 256,
            out_dir: None,
            cancel: None,
        }
    }
}

/// What happens while the guest runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// No machine of this kind was ever booted here; that is being done, once.
    Preparing,
    /// QEMU has started.
    Booting(&'a Platform),
    /// The command wrote this to its standard output or error.
    Output(&'a [u8]),
    /// The kernel wrote this to its console (errors only, the boot is quiet).
    Kernel(&'a [u8]),
    /// The guest has ended, its files are being copied out.
    Collecting,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It used up `guest_timeout` and was killed.
    TimedOut,
}

impl Exit {
    /// The status a shell would report: the code, 128 + signal, or 124 like timeout(1).
    pub fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
            Exit::TimedOut => 124,
        }
    }

    /// Whether the command ended by itself with status 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// What ran: everything a result depends on beside its inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Platform {
    /// Guest CPUs.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Kernel flavour.
    pub flavour: Flavour,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Version of the package the kernel came from.
    pub kernel_package: String,
    /// QEMU's version.
    pub qemu: String,
    /// `tcg` (emulation) or `kvm`.
    pub accel: String,
    /// `deterministic` or `realtime`.
    pub mode: String,
    /// Longest turn of a CPU in microseconds, deterministic mode only.
    pub turn_us: Option<u32>,
    /// Seed, deterministic mode only.
    pub seed: Option<u64>,
    /// The host's kernel release and machine; results of a deterministic run don't depend on it.
    pub host: String,
}

/// What a run gave.
#[derive(Debug)]
pub struct LabOutcome {
    /// How the command ended.
    pub exit: Exit,
    /// Everything the command wrote to standard output and error.
    pub console: String,
    /// The guest's complete kernel log.
    pub kernel_log: String,
    /// Kernel messages of level warning or worse that were logged while the command ran.
    pub kernel_warnings: Vec<String>,
    /// The kernel's taint flags at the end: bit 7 an oops happened, bit 9 a warning with trace.
    pub tainted: u64,
    /// How long the command ran in guest time, in nanoseconds.
    pub guest_ns: u64,
    /// Host time of the whole run. Never the same twice.
    pub host_time: Duration,
    /// The directory that now holds what the command left in `/out`.
    pub files: PathBuf,
    /// What ran.
    pub platform: Platform,
    /// Removes `files` when dropped, unless the caller named the directory.
    pub(crate) _scratch: Option<tempfile::TempDir>,
}

impl LabOutcome {
    /// Whether the kernel oopsed, or warned with a stack trace.
    pub fn kernel_in_trouble(&self) -> bool {
        const DIED: u64 = 1 << 7;
        const WARNED: u64 = 1 << 9;
        self.tainted & (DIED | WARNED) != 0
    }
}
