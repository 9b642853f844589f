// SPDX-License-Identifier: GPL-2.0-only
//! Which QEMU, and its command line.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::kernel::Kernel;
use crate::machine::Media;
use crate::protocol::PAUSE_ARGUMENT;
use crate::spec::{LabSpec, Mode};

/// Older ones let one CPU run far ahead of the others in deterministic mode (before 8.1), or
/// cannot keep a machine's state in a file (before 8.2).
const OLDEST_QEMU: (u32, u32) = (8, 2);

/// A QEMU that can run the lab.
#[derive(Debug, Clone)]
pub struct Qemu {
    pub(crate) program: PathBuf,
    /// As `--version` says, like `10.0.2`.
    pub version: String,
}

impl Qemu {
    /// Finds QEMU: `$ONBEAT_QEMU`, else `qemu-system-x86_64` in `PATH`.
    ///
    /// # Errors
    /// When there is none, or it is older than 8.2.
    pub fn find() -> Result<Self> {
        let program = env::var_os("ONBEAT_QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
        let program = PathBuf::from(program);
        let output =
            Command::new(&program).arg("--version").stdin(Stdio::null()).output().with_context(
                || {
                    format!(
                        "the lab needs QEMU: cannot start `{}`; run `make setup`",
                        program.display()
                    )
                },
            )?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .split_once("version ")
            .and_then(|(_, rest)| rest.split([' ', '\n']).next())
            .with_context(|| format!("`{}` does not tell its version", program.display()))?;
        if number(version).is_none_or(|number| number < OLDEST_QEMU) {
            bail!("QEMU {version} is too old for the lab, it needs 8.2 or newer; run `make setup`");
        }
        Ok(Qemu { program, version: version.to_owned() })
    }
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// How QEMU executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By translating them.
    Tcg,
    /// On the host's CPUs, with their virtualization support.
    Kvm,
}

impl Accel {
    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Tcg => "tcg",
            Accel::Kvm => "kvm",
        }
    }
}

/// All that QEMU can translate, but for the flags by which the kernel copies and clears memory with repeated string
/// instructions: QEMU goes through those byte by byte, each counted as an instruction, and takes long for each.
const CPU_TCG: &str = "max,-erms,-fsrm";

/// Everything that decides what QEMU is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) spec: &'a LabSpec,
    pub(crate) kernel: &'a Kernel,
    pub(crate) accel: Accel,
}

impl Setting<'_> {
    /// The machine itself: two QEMUs with the same of these can exchange their state.
    pub(crate) fn machine(&self) -> Vec<String> {
        let spec = self.spec;
        let mut args = Words::default();
        args.add("-nodefaults -no-user-config -display none -no-reboot -machine pc");
        args.add(&format!("-smp {} -m {}", spec.cpus, spec.memory_mib));
        match (spec.mode, self.accel) {
            (Mode::Deterministic { .. }, _) => {
                args.add(&format!("-accel tcg -cpu {CPU_TCG} -icount shift=0,sleep=off"));
                args.add("-rtc base=2026-01-01,clock=vm -device ib700 -action watchdog=pause");
            }
            (Mode::RealTime, Accel::Kvm) => args.add("-accel kvm -cpu host"),
            (Mode::RealTime, Accel::Tcg) => {
                args.add(&format!("-accel tcg,thread=multi -cpu {CPU_TCG}"));
            }
        }
        args.0
    }

    /// The kernel's command line. Its crypto self tests would take a third of a CPU for seconds.
    pub(crate) fn kernel_line(&self) -> String {
        let mut line =
            String::from("console=ttyS0 quiet panic=-1 cryptomgr.notests log_buf_len=1M");
        line.push(' ');
        line.push_str(match self.spec.mode {
            Mode::Deterministic { .. } => PAUSE_ARGUMENT,
            // A busy host must not make the kernel mistrust its timers.
            Mode::RealTime => "no_timer_check tsc=reliable",
        });
        for extra in &self.spec.kernel_args {
            line.push(' ');
            line.push_str(extra);
        }
        line
    }

    /// Arguments for a boot. A deterministic machine is always booted with the same seed, and in
    /// long turns, which is quicker; what a run asks for applies from its beginning.
    pub(crate) fn boot(&self, media: &Media) -> Vec<String> {
        let mut args = self.connected(media);
        if let Mode::Deterministic { .. } = self.spec.mode {
            args.add("-seed 42");
        }
        args.0
    }

    /// Arguments to continue from the state of a booted machine.
    pub(crate) fn resume(&self, media: &Media, state: &Path) -> Vec<String> {
        let mut args = self.connected(media);
        if let Mode::Deterministic { turn_us, seed } = self.spec.mode {
            args.add(&format!("-seed {seed}"));
            // A machine that continues elsewhere is announced to its network, five times by timers of
            // the host's clock, also without a network. QEMU ends a CPU's turn when such a timer is due.
            args.add("-global migration.announce-rounds=0");
            // Nothing is on this network. Its filter is a free-running virtual timer, and QEMU
            // ends a CPU's turn at the latest when the next virtual timer is due. One CPU alone
            // has nobody to give way to.
            if self.spec.cpus > 1 {
                args.add("-netdev hubport,id=turn,hubid=0 -object");
                args.add(&format!("filter-buffer,id=turns,netdev=turn,interval={turn_us}"));
            }
        }
        args.0.extend(["-incoming".into(), format!("file:{}", state.display())]);
        args.0
    }

    fn connected(&self, media: &Media) -> Words {
        let mut args = Words(self.machine());
        args.0.extend(["-kernel".into(), self.kernel.image().to_string_lossy().into_owned()]);
        args.0.extend(["-append".into(), self.kernel_line()]);
        args.add(&format!("-initrd {}", media.initramfs.path()));
        // Consoles go to files because a file never makes the guest wait for its reader.
        args.add(&format!("-chardev file,id=kernel,path={}", media.kernel_console.path()));
        args.add("-serial chardev:kernel");
        if self.spec.interactive {
            args.add("-chardev stdio,id=command,signal=off");
        } else {
            args.add(&format!("-chardev file,id=command,path={}", media.console.path()));
        }
        args.add("-serial chardev:command -object");
        args.add(&format!(
            "memory-backend-file,id=window,share=on,size={}M,mem-path={}",
            self.spec.window_mib,
            media.window.path()
        ));
        args.add("-device ivshmem-plain,memdev=window,master=on");
        args
    }
}

/// Arguments, collected word by word.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, words: &str) {
        self.0.extend(words.split(' ').map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_not_by_text() {
        assert!(number("10.0.2").unwrap() > OLDEST_QEMU);
        assert!(number("7.2.22").unwrap() < OLDEST_QEMU);
        assert_eq!(number("8.2.0"), Some(OLDEST_QEMU));
        assert_eq!(number("unknown"), None);
    }
}
