// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-init`: process 1 of the guest. Prepares the machine, runs one command, fills the result
//! window and powers off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cpio::newc;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::termios;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use onbeat_lab::protocol::*;
use onbeat_lab::results::store;

/// How long what the command left running may take to clean up after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

fn main() {
    if let Err(error) = guest() {
        // The command's console may not be there yet.
        let text = format!("onbeat-init: {error:#}\r\n");
        let console = OpenOptions::new().write(true).open("/dev/ttyS0");
        let _ = console.and_then(|mut console| console.write_all(text.as_bytes()));
    }
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
}

fn guest() -> Result<()> {
    mount_all()?;
    nix::unistd::sethostname("onbeat")?;
    bring_up_loopback()?;
    pause_if_told()?;
    let window = Window::find()?;
    unpack(window.bytes)?;
    let spec: GuestSpec = serde_json::from_slice(&fs::read(SPEC_PATH)?)?;
    connect_console(spec.terminal)?;
    seed_random_numbers(spec.seed)?;
    load_modules()?;
    let mut log = KernelLog::open()?;
    let (mut text, _) = log.read()?;
    let started = now();
    let ended = run_command(&spec)?;
    let guest_ns = (now() - started).as_nanos() as u64;
    end_the_rest()?;
    let (rest, warnings) = log.read()?;
    text.push_str(&rest);
    let status = GuestStatus {
        code: ended.code,
        signal: ended.signal,
        timed_out: ended.timed_out,
        warnings,
        tainted: fs::read_to_string("/proc/sys/kernel/tainted")?.trim().parse()?,
        guest_ns,
        release: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
    };
    hand_over(window.bytes, &status, &text)
}

fn mount_all() -> Result<()> {
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for (kind, target, flags, data) in [
        ("proc", "/proc", quiet, ""),
        ("sysfs", "/sys", quiet, ""),
        ("devtmpfs", "/dev", MsFlags::MS_NOSUID, "mode=0755"),
        ("devpts", "/dev/pts", MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, "mode=0620,ptmxmode=0666"),
        ("tmpfs", "/dev/shm", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=1777"),
        ("tmpfs", "/tmp", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=1777"),
        ("tmpfs", "/run", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=0755"),
        ("cgroup2", "/sys/fs/cgroup", quiet, "memory_recursiveprot"),
        ("bpf", "/sys/fs/bpf", quiet, "mode=0700"),
        ("debugfs", "/sys/kernel/debug", quiet, ""),
        ("tracefs", "/sys/kernel/tracing", quiet, ""),
    ] {
        if target.starts_with("/dev/") {
            fs::create_dir_all(target)?;
        }
        mount(Some(kind), target, Some(kind), flags, Some(data))
            .with_context(|| format!("cannot mount {kind} on {target}"))?;
    }
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        std::os::unix::fs::symlink(target, link)?;
    }
    Ok(())
}

/// When the kernel's command line says so: sets the ISA watchdog (an ib700, whose port takes an
/// index into a table of seconds) and sleeps past its time. QEMU stops the machine when it bites;
/// the host keeps the state, and every run continues from there.
fn pause_if_told() -> Result<()> {
    const PORT: u16 = 0x443;
    const TWO_SECONDS: u8 = 14;
    let line = fs::read_to_string("/proc/cmdline")?;
    if !line.split_whitespace().any(|word| word == PAUSE_ARGUMENT) {
        return Ok(());
    }
    // SAFETY: ioperm permits this one port, which nothing else uses.
    unsafe {
        if libc::ioperm(PORT.into(), 1, 1) != 0 {
            return Err(io::Error::last_os_error()).context("no access to the watchdog");
        }
        std::arch::asm!("out dx, al", in("dx") PORT, in("al") TWO_SECONDS);
        libc::ioperm(PORT.into(), 1, 0);
    }
    std::thread::sleep(Duration::from_secs(3));
    Ok(())
}

/// Unpacks what the host has put into the window.
fn unpack(window: &[u8]) -> Result<()> {
    let (header, body) = window.split_at(HEADER);
    if header[..8] != MAGIC_IN {
        bail!("the host has left nothing to run");
    }
    let length = u64::from_le_bytes(header[8..].try_into()?) as usize;
    let mut rest = body.get(..length).context("the host's files are cut off")?;
    loop {
        let mut entry = newc::Reader::new(rest).context("the host's files are damaged")?;
        if entry.entry().is_trailer() {
            return Ok(());
        }
        let target = Path::new("/").join(entry.entry().name());
        let mode = entry.entry().mode();
        store(&mut entry, mode, &target)
            .with_context(|| format!("no room for {} in the guest's memory", target.display()))?;
        rest = entry.finish()?;
    }
}

/// Makes the kernel's random numbers, same in every booted machine, those of this run.
fn seed_random_numbers(seed: Option<u64>) -> Result<()> {
    const RNDRESEEDCRNG: libc::c_ulong = 0x5207;
    let Some(seed) = seed else { return Ok(()) };
    let mut source = OpenOptions::new().write(true).open("/dev/urandom")?;
    source.write_all(&seed.to_le_bytes())?;
    // SAFETY: this request has no argument.
    if unsafe { libc::ioctl(source.as_raw_fd(), RNDRESEEDCRNG) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot seed the random numbers");
    }
    Ok(())
}

/// Makes the second serial line standard output and error. Without a terminal it is raw and
/// standard input is empty; with one it has the size of the host's.
fn connect_console(terminal: Option<(u16, u16)>) -> Result<()> {
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/ttyS1")
        .context("cannot open /dev/ttyS1")?;
    let mut settings = termios::tcgetattr(line.as_fd())?;
    if let Some((rows, columns)) = terminal {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize.
        unsafe { libc::ioctl(line.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    } else {
        termios::cfmakeraw(&mut settings);
    }
    termios::cfsetspeed(&mut settings, termios::BaudRate::B115200)?;
    termios::tcsetattr(line.as_fd(), termios::SetArg::TCSANOW, &settings)?;
    let input = if terminal.is_some() { line.try_clone()? } else { File::open("/dev/null")? };
    nix::unistd::dup2_stdin(&input)?;
    nix::unistd::dup2_stdout(&line)?;
    nix::unistd::dup2_stderr(&line)?;
    Ok(())
}

fn bring_up_loopback() -> Result<()> {
    // SAFETY: a zeroed ifreq is valid; the name fits and is terminated; both calls take an ifreq.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let done = socket >= 0 && libc::ioctl(socket, libc::SIOCSIFFLAGS, &request) == 0;
        let error = io::Error::last_os_error();
        libc::close(socket);
        if done { Ok(()) } else { Err(error).context("cannot bring up the loopback device") }
    }
}

fn load_modules() -> Result<()> {
    let mut modules = fs::read_dir(MODULES_PATH)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    modules.sort();
    for module in modules {
        let file = File::open(&module)?;
        finit_module(&file, c"", ModuleInitFlags::empty())
            .with_context(|| format!("cannot load the module {}", module.display()))?;
    }
    Ok(())
}

struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
}

/// Runs the command to its end, or to the end of its time; reaps every orphan meanwhile.
fn run_command(spec: &GuestSpec) -> Result<Ended> {
    let children = SigSet::from(Signal::SIGCHLD);
    children.thread_block()?;
    let (program, arguments) = spec.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(spec.env.iter().cloned()).current_dir("/root");
    let terminal = spec.terminal.is_some();
    // SAFETY: only system calls allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // A blocked SIGCHLD would be inherited, and shells would wait for ever.
            SigSet::empty().thread_set_mask()?;
            libc::setsid();
            if terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(error) => {
            // The same answers as a shell's.
            eprintln!("onbeat-init: cannot run `{program}`: {error}");
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            return Ok(Ended { code: Some(code), signal: None, timed_out: false });
        }
    };
    let deadline = spec.timeout_ns.map(|limit| now().saturating_add(Duration::from_nanos(limit)));
    let mut timed_out = false;
    loop {
        while let Some(status) = reap()? {
            let (code, signal) = match status {
                WaitStatus::Exited(pid, code) if pid == child => (Some(code), None),
                WaitStatus::Signaled(pid, signal, _) if pid == child => (None, Some(signal as i32)),
                _ => continue,
            };
            return Ok(Ended { code, signal, timed_out });
        }
        wait_for_child(&children, deadline.filter(|_| !timed_out));
        if deadline.is_some_and(|deadline| now() >= deadline) && !timed_out {
            timed_out = true;
            let _ = kill(child, Signal::SIGKILL);
        }
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Collects one ended process, if any.
fn reap() -> Result<Option<WaitStatus>> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => Ok(None),
        Ok(status) => Ok(Some(status)),
        Err(error) => Err(error).context("cannot wait for the command"),
    }
}

/// Sleeps until a child ends or the deadline is there.
fn wait_for_child(children: &SigSet, deadline: Option<Duration>) {
    let left = deadline.map(|deadline| deadline.saturating_sub(now()));
    let limit = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the set and the timespec outlive the call, and no siginfo is wanted.
    unsafe { libc::sigtimedwait(children.as_ref(), std::ptr::null_mut(), limit) };
}

/// Ends whatever the command left running: SIGTERM, some time, SIGKILL. Every process is a child
/// of ours or of one that is, so all are gone when we have no child left.
fn end_the_rest() -> Result<()> {
    let children = SigSet::from(Signal::SIGCHLD);
    let everyone = Pid::from_raw(-1);
    let mut deadline = now() + GRACE;
    let mut signal = Signal::SIGTERM;
    let _ = kill(everyone, signal);
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(nix::Error::ECHILD) => return Ok(()),
            Ok(WaitStatus::StillAlive) => wait_for_child(&children, Some(deadline)),
            Ok(_) => (),
            Err(error) => return Err(error).context("cannot wait for the last processes"),
        }
        if now() >= deadline {
            if signal == Signal::SIGKILL {
                bail!("a process does not end, not even by SIGKILL");
            }
            signal = Signal::SIGKILL;
            let _ = kill(everyone, signal);
            deadline = now() + GRACE;
        }
    }
}

/// `/dev/kmsg`, read as far as it goes each time.
struct KernelLog(File);

impl KernelLog {
    fn open() -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        Ok(KernelLog(file.context("cannot read the kernel log")?))
    }

    /// All new messages as text, and those of level warning or worse once more.
    fn read(&mut self) -> Result<(String, Vec<String>)> {
        let mut text = String::new();
        let mut warnings = Vec::new();
        let mut record = vec![0; 8192];
        loop {
            let count = match self.0.read(&mut record) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Messages were overwritten before we read them; go on with the oldest left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
                Err(error) => return Err(error).context("cannot read the kernel log"),
            };
            let line = String::from_utf8_lossy(&record[..count]).into_owned();
            let Some((prefix, message)) = line.split_once(';') else { continue };
            let message = message.lines().next().unwrap_or_default();
            let mut fields = prefix.split(',');
            let level = fields.next().and_then(|f| f.parse::<u32>().ok()).unwrap_or(0) & 7;
            let at = fields.nth(1).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
            let line = format!("[{:5}.{:06}] {message}", at / 1_000_000, at % 1_000_000);
            text.push_str(&format!("<{level}>{line}\n"));
            if level <= 4 {
                warnings.push(line);
            }
        }
        Ok((text, warnings))
    }
}

/// Fills the window: header, status, kernel log, the files of `/out`.
fn hand_over(window: &mut [u8], status: &GuestStatus, log: &str) -> Result<()> {
    let (header, body) = window.split_at_mut(HEADER);
    let whole = body.len();
    let mut rest: &mut [u8] = body;
    let full = |what: &Path| {
        format!(
            "the results do not fit into the {} MiB of room for them (at {})",
            whole >> 20,
            what.display()
        )
    };
    let status = serde_json::to_vec(status)?;
    for (name, contents) in [(STATUS_NAME, status.as_slice()), (LOG_NAME, log.as_bytes())] {
        let mut writer =
            newc::Builder::new(name).mode(0o100_644).write(&mut rest, contents.len() as u32);
        writer.write_all(contents).and_then(|()| writer.finish().map(drop))?;
    }
    pack(Path::new(OUT_PATH), Path::new(OUT_NAME), &mut rest, &full)?;
    newc::trailer(&mut rest).with_context(|| full(Path::new(OUT_PATH)))?;
    let used = whole - rest.len();
    header[8..].copy_from_slice(&(used as u64).to_le_bytes());
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    header[..8].copy_from_slice(&MAGIC_OUT);
    Ok(())
}

/// Packs a directory and what is in it, sorted.
fn pack(
    folder: &Path,
    name: &Path,
    out: &mut &mut [u8],
    full: &dyn Fn(&Path) -> String,
) -> Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        let name = name.join(entry.file_name());
        let meta = entry.metadata()?;
        let text = name.to_str().context("a name in /out is not valid UTF-8")?;
        let builder = newc::Builder::new(text).mode(meta.mode());
        let store = |contents: &mut dyn Read, size: u64| -> Result<()> {
            let size = u32::try_from(size).with_context(|| full(&path))?;
            let mut writer = builder.write(&mut *out, size);
            io::copy(contents, &mut writer).with_context(|| full(&path))?;
            writer.finish().with_context(|| full(&path))?;
            Ok(())
        };
        if meta.is_dir() {
            store(&mut io::empty(), 0)?;
            pack(&path, &name, out, full)?;
        } else if meta.is_symlink() {
            let target = fs::read_link(&path)?;
            let target = target.as_os_str().as_encoded_bytes();
            store(&mut &*target, target.len() as u64)?;
        } else if meta.is_file() {
            store(&mut File::open(&path)?.take(meta.len()), meta.len())?;
        }
    }
    Ok(())
}

/// The memory of the shared-memory device.
struct Window {
    bytes: &'static mut [u8],
}

impl Window {
    fn find() -> Result<Self> {
        for entry in fs::read_dir("/sys/bus/pci/devices")? {
            let device = entry?.path();
            let is = |file: &str, value: &str| {
                fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim() == value)
            };
            if is("vendor", WINDOW_VENDOR) && is("device", WINDOW_DEVICE) {
                fs::write(device.join("enable"), "1")?;
                return Self::map(&device.join("resource2"));
            }
        }
        bail!("the result window's PCI device is missing")
    }

    fn map(resource: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(resource)?;
        let length = file.metadata()?.len() as usize;
        // SAFETY: a fresh shared mapping of the whole resource; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map the result window");
        }
        // SAFETY: the mapping is `length` bytes, never unmapped, and used through this slice only.
        Ok(Window { bytes: unsafe { std::slice::from_raw_parts_mut(address.cast(), length) } })
    }
}
