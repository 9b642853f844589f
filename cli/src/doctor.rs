// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat doctor`: what this machine can do, feature by feature, and what to do about the rest.
//! Features are probed, not guessed from version numbers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::styling::{AnsiColor, Style};

use crate::output::print;
use onbeat_client::Service;
use onbeat_kernel::machine::{self, Obstacle, name_cpus};
use onbeat_kernel::protection::{self, Server};
use onbeat_kernel::steering::{self, Survey};
use onbeat_lab::Flavour;
use onbeat_lab::kernel::Kernel;
use onbeat_lab::machine::Qemu;
use onbeat_model::protocol::{Request, Response};
use onbeat_model::units::format_duration;
use scx_utils::compat;
use serde::Serialize;

/// Say what this machine can do and what to install
///
/// Exit status: 0 if the scheduler can run on this kernel, 1 if not.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat doctor")]
pub struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Degraded,
    Missing,
}

/// What a feature is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum For {
    Live,
    Lab,
    Build,
}

#[derive(Debug, Clone, Serialize)]
struct Finding {
    feature: &'static str,
    needed_for: For,
    state: State,
    /// What was found.
    what: String,
    /// What to do, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(feature: &'static str, needed_for: For, what: impl Into<String>) -> Self {
        Self { feature, needed_for, state: State::Ok, what: what.into(), remedy: None }
    }

    fn bad(self, state: State, remedy: impl Into<String>) -> Self {
        Self { state, remedy: Some(remedy.into()), ..self }
    }
}

fn live(feature: &'static str, check: Result<(), Obstacle>, well: impl Into<String>) -> Finding {
    match check {
        Ok(()) => Finding::ok(feature, For::Live, well),
        Err(Obstacle { what, remedy }) => {
            Finding::ok(feature, For::Live, what).bad(State::Missing, remedy)
        }
    }
}

fn findings() -> Vec<Finding> {
    let mut all = vec![live(
        "sched_ext",
        machine::check_sched_ext(),
        format!("Linux {} has it", machine::kernel_release()),
    )];
    let btf = machine::check_btf();
    let readable = fs::metadata("/sys/kernel/btf/vmlinux").is_ok();
    all.push(live("type information (BTF)", btf, "well formed"));
    if readable && machine::has_sched_ext() {
        all.push(arena());
        all.push(functions());
    }
    all.push(jit());
    all.push(live("kernel configuration", machine::check_config(), "readable"));
    all.push(tracer());
    all.push(enforcement());
    let cpus = machine::online().map_or(0, |c| c.len());
    all.push(live("CPUs", machine::check_cpus(), format!("{cpus} on line, at most 64 are served")));
    all.push(match machine::privileged() {
        true => Finding::ok("privileges", For::Live, "may load a scheduler"),
        false => Finding::ok(
            "privileges",
            For::Live,
            "not root: programs can be run under a service, but not load it",
        )
        .bad(
            State::Degraded,
            "have the service started (systemctl enable --now scx_onbeat), or run onbeat as root",
        ),
    });
    all.push(service());
    all.push(realtime());
    all.push(interrupts());
    all.push(cgroups());
    all.extend(lab());
    all.push(clang());
    all
}

fn arena() -> Finding {
    let found = compat::read_enum("bpf_map_type", "BPF_MAP_TYPE_ARENA").is_ok();
    let finding = Finding::ok("BPF arena", For::Live, if found { "there" } else { "not there" });
    if found { finding } else { finding.bad(State::Missing, "use Linux 6.12 or newer") }
}

/// Functions of the kernel that the scheduler calls and that came late.
fn functions() -> Finding {
    let names = ["bpf_res_spin_lock_irqsave", "scx_bpf_tid_to_task", "scx_bpf_task_set_slice"];
    let missing: Vec<&str> =
        names.into_iter().filter(|n| !compat::ksym_exists(n).unwrap_or(false)).collect();
    if missing.is_empty() {
        return Finding::ok("kernel functions", For::Live, "all there");
    }
    Finding::ok("kernel functions", For::Live, format!("{} not there", missing.join(", ")))
        .bad(State::Missing, "use Linux 7.2 or newer, or the lab")
}

fn jit() -> Finding {
    let setting = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
    let always = machine::kernel_config().is_some_and(|(_, c)| has(&c, "CONFIG_BPF_JIT_ALWAYS_ON"));
    match setting {
        Ok(s) if s.trim() == "0" && !always => Finding::ok("BPF JIT", For::Live, "off")
            .bad(State::Missing, "sysctl net.core.bpf_jit_enable=1"),
        Err(_) if !always => Finding::ok("BPF JIT", For::Live, "not known")
            .bad(State::Degraded, "mount /proc/sys, or ask as root"),
        _ => Finding::ok("BPF JIT", For::Live, "on"),
    }
}

fn has(config: &str, option: &str) -> bool {
    config.lines().any(|l| l.strip_prefix(option) == Some("=y"))
}

/// sched_ext's loader hooks a kernel function, which needs the function tracer.
fn tracer() -> Finding {
    const FEATURE: &str = "function tracer";
    match machine::kernel_config() {
        Some((_, config)) if has(&config, "CONFIG_FUNCTION_TRACER") => {
            Finding::ok(FEATURE, For::Live, "there")
        }
        Some((file, _)) => {
            Finding::ok(FEATURE, For::Live, format!("CONFIG_FUNCTION_TRACER is off in {file}"))
                .bad(State::Missing, "use a kernel built with it, or the lab")
        }
        None => Finding::ok(FEATURE, For::Live, "not known without the kernel's configuration")
            .bad(State::Degraded, "install the package with /boot/config-$(uname -r)"),
    }
}

fn enforcement() -> Finding {
    const FEATURE: &str = "budget enforcement";
    if machine::kernel_is_rt() {
        let what = "PREEMPT_RT has no timers for BPF: each CPU looks at its clock every 100us, \
                    budgets hold to within 200us";
        return Finding::ok(FEATURE, For::Live, what)
            .bad(State::Degraded, "fine as it is; a kernel without PREEMPT_RT holds to 50us");
    }
    Finding::ok(FEATURE, For::Live, "by timers, to within 50us")
}

fn service() -> Finding {
    const FEATURE: &str = "reservation service";
    let socket = onbeat_client::socket();
    let answer = Service::connect_to(&socket)
        .and_then(|s| s.waiting_at_most(Duration::ZERO).ask(&Request::Status));
    match (answer, machine::loaded()) {
        (Err(onbeat_client::Error::Starting(_)), _) => {
            Finding::ok(FEATURE, For::Live, format!("is starting at {}", socket.display()))
        }
        (Ok(Response::Status { policy, reservations, .. }), _) => {
            let count = reservations.len();
            Finding::ok(FEATURE, For::Live, format!("runs {policy}, {count} reservations"))
        }
        (_, Some((state, name))) => {
            Finding::ok(FEATURE, For::Live, format!("the scheduler \"{name}\" is loaded ({state})"))
                .bad(State::Missing, "stop that one first: there can be one at a time")
        }
        _ => Finding::ok(FEATURE, For::Live, format!("none at {}", socket.display())).bad(
            State::Degraded,
            "start it as root (systemctl enable --now scx_onbeat), or let `onbeat run` as root do so for each run",
        ),
    }
}

/// Real-time threads rank above sched_ext: what keeps them from taking whole CPUs?
fn realtime() -> Finding {
    const FEATURE: &str = "protection from real-time threads";
    if let Ok(servers) = protection::servers(Path::new(protection::SERVERS)) {
        return kept(FEATURE, &servers);
    }
    let what = "not known: /sys/kernel/debug/sched/ext_server cannot be read";
    let remedy = match machine::privileged() {
        true => "mount debugfs on /sys/kernel/debug; older kernels have no such server",
        false => "ask as root, with debugfs mounted on /sys/kernel/debug",
    };
    Finding::ok(FEATURE, For::Live, what).bad(State::Degraded, remedy)
}

/// What the kernel keeps for sched_ext, CPUs with the same values together.
fn kept(feature: &'static str, servers: &BTreeMap<u32, Server>) -> Finding {
    let mut alike: BTreeMap<Server, Vec<u32>> = BTreeMap::new();
    servers.iter().for_each(|(cpu, server)| alike.entry(*server).or_default().push(*cpu));
    let show = |(server, cpus): (&Server, &Vec<u32>)| {
        let Server { runtime, period } = *server;
        let percent = 100.0 * runtime as f64 / period.max(1) as f64;
        let (runtime, period) = (format_duration(runtime), format_duration(period));
        format!("{runtime} every {period} ({percent:.1}%) on {}", name_cpus(cpus))
    };
    let all: Vec<String> = alike.iter().map(show).collect();
    let finding = Finding::ok(
        feature,
        For::Live,
        format!("the kernel keeps {} for sched_ext", all.join(", ")),
    );
    let off: Vec<u32> =
        servers.iter().filter(|(_, s)| s.runtime == 0).map(|(cpu, _)| *cpu).collect();
    if off.is_empty() {
        return finding;
    }
    let cpus = name_cpus(&off);
    finding.bad(
        State::Degraded,
        format!("on {cpus} it is off: write ns to {}/cpuN/runtime", protection::SERVERS),
    )
}

/// Whether a CPU can be kept for interrupts.
fn interrupts() -> Finding {
    const FEATURE: &str = "interrupt CPU";
    let survey = match Survey::new() {
        Ok(survey) => survey,
        Err(e) => {
            return Finding::ok(FEATURE, For::Live, format!("not known: /proc/irq: {e}"))
                .bad(State::Degraded, "mount /proc to use scx_onbeat --interrupt-cpu");
        }
    };
    let finding = Finding::ok(FEATURE, For::Live, survey.say());
    if machine::online().is_ok_and(|cpus| cpus.len() < 2) {
        return Finding { what: "there is one CPU only".into(), ..finding }
            .bad(State::Degraded, "scx_onbeat --interrupt-cpu needs another for programs");
    }
    if let Some(pid) = steering::balancer() {
        return finding.bad(
            State::Degraded,
            format!(
                "stop irqbalance (process {pid}), which moves them, too, under --interrupt-cpu"
            ),
        );
    }
    if survey.movable == 0 {
        return finding.bad(State::Degraded, "scx_onbeat --interrupt-cpu steers no device here");
    }
    finding
}

fn cgroups() -> Finding {
    match fs::metadata("/sys/fs/cgroup/cgroup.controllers") {
        Ok(_) => Finding::ok("cgroup v2", For::Live, "mounted"),
        Err(_) => Finding::ok(
            "cgroup v2",
            For::Live,
            "not on /sys/fs/cgroup; nothing needs it yet (reservations of memory will)",
        ),
    }
}

fn lab() -> Vec<Finding> {
    let mut all = Vec::new();
    let qemu = Qemu::find();
    all.push(match &qemu {
        Ok(qemu) => Finding::ok("QEMU", For::Lab, qemu.version.clone()),
        Err(e) => Finding::ok("QEMU", For::Lab, format!("{e:#}"))
            .bad(State::Missing, "install qemu-system-x86 8.2 or newer (`make setup` does)"),
    });
    for flavour in [Flavour::Plain, Flavour::Rt] {
        let feature = match flavour {
            Flavour::Plain => "lab kernel",
            Flavour::Rt => "lab kernel, PREEMPT_RT",
        };
        // Everything but task sets with kernel = "rt" works without the second.
        let state = if flavour == Flavour::Plain { State::Missing } else { State::Degraded };
        all.push(match Kernel::load(flavour) {
            Ok(kernel) => Finding::ok(feature, For::Lab, kernel.release),
            Err(e) => Finding::ok(feature, For::Lab, format!("{e:#}"))
                .bad(state, "`make setup` fetches it"),
        });
    }
    all.push(kvm());
    all
}

/// Opening the device says little; the lab notes in its cache whether a guest has booted with it.
fn kvm() -> Finding {
    let finding = |what: &str| Finding::ok("hardware virtualization", For::Lab, what);
    let open = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    let tried = onbeat_lab::cache::root().and_then(|r| Ok(fs::read_to_string(r.join("kvm"))?));
    let tried = tried.ok().and_then(|t| t.lines().last().map(|l| l.ends_with(": works")));
    match (open, tried) {
        (false, _) => finding("none: runs in real time are emulated, too")
            .bad(State::Degraded, "nothing: the deterministic lab does not use it"),
        (true, Some(true)) => finding("works"),
        (true, Some(false)) => finding("there, but guests do not boot with it: emulated")
            .bad(State::Degraded, "nothing: the deterministic lab does not use it"),
        (true, None) => finding("there; the first run in real time tries it"),
    }
}

fn clang() -> Finding {
    let name = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let run = Command::new(&name).arg("--version").stdin(Stdio::null()).output();
    match run {
        Ok(out) if out.status.success() => Finding::ok("clang for BPF", For::Build, name),
        _ => Finding::ok("clang for BPF", For::Build, format!("{name} cannot be run")).bad(
            State::Degraded,
            "only building needs it: install clang-19 or name another in BPF_CLANG",
        ),
    }
}

#[derive(Serialize)]
struct Diagnosis {
    live: bool,
    lab: bool,
    findings: Vec<Finding>,
}

/// Prints the diagnosis.
pub fn run(options: &Options) -> Result<ExitCode> {
    let findings = findings();
    let can = |what| !findings.iter().any(|f| f.needed_for == what && f.state == State::Missing);
    let diagnosis = Diagnosis { live: can(For::Live), lab: can(For::Lab), findings };
    let code = if diagnosis.live { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if options.json {
        print(&(serde_json::to_string_pretty(&diagnosis)? + "\n"))?;
        return Ok(code);
    }
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print(&diagnosis.text(colours))?;
    Ok(code)
}

impl Diagnosis {
    /// What can be done here and, if not all, what to do first; then each finding.
    fn text(&self, colours: bool) -> String {
        let mut text = String::new();
        let word = |yes| if yes { "can" } else { "cannot" };
        let _ = writeln!(
            text,
            "The scheduler {} run on this kernel; the lab {} run here.",
            word(self.live),
            word(self.lab)
        );
        // What is more basic was looked at first.
        let first = |part| {
            let lacks = |f: &&Finding| f.needed_for == part && f.state == State::Missing;
            self.findings.iter().find(lacks)
        };
        for (part, what) in [(For::Live, "the scheduler"), (For::Lab, "the lab")] {
            if let Some(Finding { feature, remedy: Some(remedy), .. }) = first(part) {
                let _ = writeln!(text, "First, for {what} ({feature}): {remedy}.");
            }
        }
        let width = self.findings.iter().map(|f| f.feature.len()).max().unwrap_or(0);
        for (part, title) in
            [(For::Live, "This kernel"), (For::Lab, "The lab"), (For::Build, "Building")]
        {
            let _ = writeln!(text, "\n{title}");
            for f in self.findings.iter().filter(|f| f.needed_for == part) {
                let (state, colour) = match f.state {
                    State::Ok => ("ok", AnsiColor::Green),
                    State::Degraded => ("degraded", AnsiColor::Yellow),
                    State::Missing => ("MISSING", AnsiColor::Red),
                };
                let style = if colours { colour.on_default() } else { Style::new() };
                let _ = writeln!(
                    text,
                    "  {style}{state:<8}{style:#}  {:width$}  {}",
                    f.feature, f.what
                );
                if let Some(remedy) = &f.remedy {
                    let _ = writeln!(text, "  {:8}  {:width$}  -> {remedy}", "", "");
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_keeps_is_told_with_its_period_for_every_cpu() {
        let usual = Server { runtime: 50_000_000, period: 1_000_000_000 };
        let set = Server { runtime: 2_000_000, period: 5_000_000 };
        let mut servers: BTreeMap<u32, Server> = (0..3).map(|cpu| (cpu, usual)).collect();
        servers.insert(3, set);
        let finding = kept("x", &servers);
        assert!(finding.what.contains("50ms every 1s (5.0%) on CPUs 0-2"), "{}", finding.what);
        assert!(finding.what.contains("2ms every 5ms (40.0%) on CPU 3"), "{}", finding.what);
        assert!(finding.remedy.is_none());
        servers.insert(1, Server { runtime: 0, ..usual });
        let finding = kept("x", &servers);
        assert!(finding.remedy.unwrap().contains("on CPU 1 it is off"));
    }

    #[test]
    fn it_begins_with_what_can_be_done_and_the_first_remedy() {
        let bad =
            |what, remedy: &str| Finding::ok("thing", For::Live, what).bad(State::Missing, remedy);
        let findings = vec![bad("is off", "switch it on"), bad("is old", "buy a new one")];
        let text = Diagnosis { live: false, lab: true, findings }.text(false);
        let lines: Vec<&str> = text.lines().take(2).collect();
        assert_eq!(lines[0], "The scheduler cannot run on this kernel; the lab can run here.");
        assert_eq!(lines[1], "First, for the scheduler (thing): switch it on.");
        assert!(!text.contains('\x1b'), "colours where nobody asked for them");
    }
}
