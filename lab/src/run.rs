// SPDX-License-Identifier: GPL-2.0-only
//! One run, from specification to outcome.

use std::fs;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::accel;
use crate::archive::Archive;
use crate::initramfs;
use crate::kernel::Kernel;
use crate::machine::{Machine, Media, Seat, Shared};
use crate::protocol::{HEADER, MAGIC_IN};
use crate::qemu::{Accel, Qemu, Setting};
use crate::results;
use crate::snapshot;
use crate::spec::{Exit, LabOutcome, LabSpec, Mode, Platform, Progress};
use crate::terminal;

const POLL: Duration = Duration::from_millis(10);
/// The kernel's last words in every run, of interest to nobody.
const FAREWELL: &[u8] = b"reboot: Power down";
/// How many of the console's last lines an error shows.
const TAIL_LINES: usize = 25;

/// Boots a fresh guest, runs the command, brings back what it left.
///
/// # Errors
/// When the specification makes no sense, a tool or the kernel is missing or damaged, the guest
/// dies (panic, `host_timeout`), or the results cannot be stored. A command that fails is no
/// error: see [`LabOutcome::exit`].
pub fn run(spec: &LabSpec, progress: &mut dyn FnMut(Progress)) -> Result<LabOutcome> {
    check(spec)?;
    let qemu = Qemu::find()?;
    let kernel = Kernel::load(spec.kernel)?;
    let accel = match spec.mode {
        Mode::Deterministic { .. } => Accel::Tcg,
        Mode::RealTime => accel::choose(&qemu, &kernel),
    };
    run_on(spec, &qemu, &kernel, accel, progress)
}

/// Like [`run`], without hardware virtualization and with a kernel that need not be in the cache.
pub(crate) fn run_emulated(
    spec: &LabSpec,
    kernel: &Kernel,
    progress: &mut dyn FnMut(Progress),
) -> Result<LabOutcome> {
    check(spec)?;
    run_on(spec, &Qemu::find()?, kernel, Accel::Tcg, progress)
}

pub(crate) fn run_on(
    spec: &LabSpec,
    qemu: &Qemu,
    kernel: &Kernel,
    accel: Accel,
    progress: &mut dyn FnMut(Progress),
) -> Result<LabOutcome> {
    let started = Instant::now();
    let (scratch, out) = out_folder(spec)?;
    let media = media(spec, kernel)?;
    let payload = initramfs::payload(spec, kernel, spec.interactive.then(terminal::size))?;
    let platform = platform(spec, kernel, qemu, accel);
    let setting = Setting { spec, kernel, accel };
    let stop = || match &spec.cancel {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(anyhow!("stopped on request")),
        _ => Ok(()),
    };

    let mut machine = if let Mode::Deterministic { .. } = spec.mode {
        let state = snapshot::booted(&setting, qemu, &media, &stop, progress)?;
        let mut machine =
            Machine::start(qemu, &setting.resume(&media, &state), &media, Seat::OneCpu)?;
        snapshot::restored(&mut machine, &stop)?;
        fill_window(spec, &media, &payload)?;
        snapshot::resume(&mut machine)?;
        machine
    } else {
        fill_window(spec, &media, &payload)?;
        let seat = if spec.interactive { Seat::Terminal } else { Seat::Anywhere };
        Machine::start(qemu, &setting.boot(&media), &media, seat)?
    };
    let _terminal = spec.interactive.then(terminal::Guard::new);
    progress(Progress::Booting(&platform));
    let mut consoles = Consoles::default();
    let complaint = loop {
        let ended = machine.wait(POLL)?;
        consoles.follow(&media, progress)?;
        if let Some(status) = ended {
            let words = machine.stop();
            break if status.success() { None } else { Some(format!("QEMU failed: {words}")) };
        }
        stop()?;
        if started.elapsed() > spec.host_timeout {
            let limit = spec.host_timeout.as_secs_f64();
            break Some(format!("the guest did not end within {limit} s and was killed"));
        }
    };
    drop(machine);
    if let Some(complaint) = complaint {
        bail!("{complaint}{}", consoles.tail());
    }

    progress(Progress::Collecting);
    let mut window = media.window.file();
    window.rewind()?;
    let Some(report) = results::unpack(window, &out)? else {
        let cause = consoles.panic().map_or(String::new(), |line| format!(": {line}"));
        bail!("the guest died before its command ended{cause}{}", consoles.tail());
    };
    let status = report.status;
    let exit = match (status.timed_out, status.code, status.signal) {
        (true, ..) => Exit::TimedOut,
        (_, Some(code), _) => Exit::Code(code),
        (_, _, Some(signal)) => Exit::Signal(signal),
        _ => bail!("the guest did not say how its command ended"),
    };
    Ok(LabOutcome {
        exit,
        console: String::from_utf8_lossy(&consoles.command).into_owned(),
        kernel_log: report.kernel_log,
        kernel_warnings: status.warnings,
        tainted: status.tainted,
        guest_ns: status.guest_ns,
        host_time: started.elapsed(),
        files: out,
        platform: Platform { kernel: status.release, ..platform },
        _scratch: scratch,
    })
}

fn check(spec: &LabSpec) -> Result<()> {
    if !(1..=LabSpec::MAX_CPUS).contains(&spec.cpus) {
        bail!("the lab has 1 to {} CPUs, not {}", LabSpec::MAX_CPUS, spec.cpus);
    }
    if spec.memory_mib < 256 {
        bail!("the lab needs at least 256 MiB of memory, not {}", spec.memory_mib);
    }
    if !spec.window_mib.is_power_of_two() {
        bail!("the lab's window must be a power of two in MiB, not {}", spec.window_mib);
    }
    if spec.command.is_empty() && !spec.interactive {
        bail!("no command to run in the lab");
    }
    match spec.mode {
        Mode::Deterministic { .. } if spec.interactive => {
            bail!("a shell waits for a human, which cannot be deterministic; use real time")
        }
        Mode::Deterministic { turn_us: 0, .. } => bail!("a CPU's turn must be at least 1 µs"),
        _ => Ok(()),
    }
}

fn out_folder(spec: &LabSpec) -> Result<(Option<tempfile::TempDir>, PathBuf)> {
    match &spec.out_dir {
        Some(named) => {
            fs::create_dir_all(named).with_context(|| {
                format!("cannot create the result folder `{}`", named.display())
            })?;
            Ok((None, named.clone()))
        }
        None => {
            let scratch = tempfile::Builder::new()
                .prefix("onbeat-lab-")
                .tempdir()
                .context("cannot create a temporary folder for results")?;
            let path = scratch.path().to_owned();
            Ok((Some(scratch), path))
        }
    }
}

fn media(spec: &LabSpec, kernel: &Kernel) -> Result<Media> {
    let initramfs = Shared::new(c"onbeat-initramfs")?;
    write_archive(&initramfs, &initramfs::base(kernel)?)?;
    let window = Shared::new(c"onbeat-window")?;
    window.file().set_len(u64::from(spec.window_mib) << 20)?;
    Ok(Media {
        initramfs,
        kernel_console: Shared::new(c"onbeat-kernel-console")?,
        console: Shared::new(c"onbeat-console")?,
        window,
    })
}

/// Writes an archive from the file's current position on; returns the position behind it.
fn write_archive(shared: &Shared, archive: &Archive) -> Result<u64> {
    let mut writer = BufWriter::with_capacity(1 << 20, shared.file());
    archive.write(&mut writer)?;
    writer.flush().context("no memory left for the lab's files")?;
    drop(writer);
    Ok(shared.file().stream_position()?)
}

/// Puts what the run needs where init looks for it.
fn fill_window(spec: &LabSpec, media: &Media, payload: &Archive) -> Result<()> {
    let mut window = media.window.file();
    window.seek(SeekFrom::Start(HEADER as u64))?;
    let end = write_archive(&media.window, payload)?;
    let mib = (end >> 20) + 1;
    if mib > u64::from(spec.window_mib) {
        bail!(
            "{mib} MiB of programs and files do not fit into the lab's window of {} MiB",
            spec.window_mib
        );
    }
    // Files lie in a file system that gets half of the memory.
    if mib * 2 + 64 > u64::from(spec.memory_mib) {
        bail!(
            "{mib} MiB of programs and files do not fit into a guest with {} MiB of memory",
            spec.memory_mib
        );
    }
    let mut header = MAGIC_IN.to_vec();
    header.extend((end - HEADER as u64).to_le_bytes());
    window.rewind()?;
    window.write_all(&header)?;
    Ok(())
}

fn platform(spec: &LabSpec, kernel: &Kernel, qemu: &Qemu, accel: Accel) -> Platform {
    let (mode, turn_us, seed) = match spec.mode {
        Mode::Deterministic { turn_us, seed } => ("deterministic", Some(turn_us), Some(seed)),
        Mode::RealTime => ("realtime", None, None),
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Platform {
        cpus: spec.cpus,
        memory_mib: spec.memory_mib,
        flavour: spec.kernel,
        kernel: kernel.release.clone(),
        kernel_package: kernel.package.clone(),
        qemu: qemu.version.clone(),
        accel: accel.name().into(),
        mode: mode.into(),
        turn_us,
        seed,
        host: format!("{} {}", release.trim(), std::env::consts::ARCH),
    }
}

/// What the guest has said so far.
#[derive(Default)]
struct Consoles {
    kernel: Vec<u8>,
    command: Vec<u8>,
    kernel_offset: u64,
    kernel_told: usize,
    command_offset: u64,
}

impl Consoles {
    fn follow(&mut self, media: &Media, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        self.kernel.extend(media.kernel_console.read_from(&mut self.kernel_offset)?);
        // Whole lines, and not the farewell that ends every run.
        while let Some(length) = self.kernel[self.kernel_told..].iter().position(|b| *b == b'\n') {
            let line = &self.kernel[self.kernel_told..=self.kernel_told + length];
            self.kernel_told += line.len();
            if !line.windows(FAREWELL.len()).any(|words| words == FAREWELL) {
                progress(Progress::Kernel(line));
            }
        }
        let command = media.console.read_from(&mut self.command_offset)?;
        if !command.is_empty() {
            progress(Progress::Output(&command));
            self.command.extend(command);
        }
        Ok(())
    }

    /// The line that says why the kernel gave up.
    fn panic(&self) -> Option<String> {
        let all = String::from_utf8_lossy(&self.kernel);
        let start = all.find("Kernel panic")?;
        all[start..].lines().next().map(|line| line.trim_end().to_owned())
    }

    /// The last lines of both consoles, for errors.
    fn tail(&self) -> String {
        let mut text = String::new();
        for (title, bytes) in [("the kernel", &self.kernel), ("the command", &self.command)] {
            let all = String::from_utf8_lossy(bytes);
            let lines = all.lines().collect::<Vec<_>>();
            if !lines.is_empty() {
                text.push_str(&format!("\n  last words of {title}:"));
            }
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                text.push_str("\n    ");
                text.push_str(line.trim_end());
            }
        }
        if text.is_empty() {
            text.push_str(" without a word");
        }
        text
    }
}
