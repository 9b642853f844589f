// SPDX-License-Identifier: GPL-2.0-only
//! Tests with two sides: the host boots a guest with this very test program in it and runs its
//! ignored test `in_the_guest` there, which prints facts; the other tests make claims about them.
//! A guest is deterministic: what holds once holds always, however slow the host is.

#![allow(dead_code)] // each test program uses its own part

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use onbeat_client::Service;
use onbeat_lab::{Flavour, LabSpec, run};
use onbeat_model::protocol::Request;

/// What the guest said, by name.
pub type Facts = BTreeMap<String, String>;

const MARK: &str = "FACT ";

/// Builds the programs; where this one is.
pub fn built(program: &str) -> PathBuf {
    // …/target/PROFILE/deps/this-test
    let me = std::env::current_exe().unwrap();
    let folder = me.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // Of the whole workspace, and with its tests: else they are other programs, with other features of their libraries,
    // which would take turns with those that `cargo test` puts there, and a guest would boot now these, now those.
    cargo.args(["build", "--quiet", "--workspace", "--bins", "--tests"]);
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "{program} was not built");
    folder.join(program)
}

/// A guest that has not been booted yet.
pub struct Machine {
    /// May still be changed.
    pub spec: LabSpec,
    /// What is copied into it.
    folder: tempfile::TempDir,
}

impl Machine {
    /// One that will run `command`, with `programs` in its `/bin`.
    pub fn new(flavour: Flavour, cpus: u32, programs: &[&Path], command: &[&str]) -> Self {
        // SAFETY: called before this program has threads that read the environment for it.
        unsafe { std::env::set_var("ONBEAT_INIT", built("onbeat-init")) };
        let mut spec = LabSpec::new(command.iter().copied());
        spec.cpus = cpus;
        spec.kernel = flavour;
        spec.host_timeout = Duration::from_secs(1500);
        spec.guest_timeout = Some(Duration::from_secs(300));
        let mut machine = Self { spec, folder: tempfile::tempdir().unwrap() };
        for program in programs {
            machine.add(program, &program.file_name().unwrap().to_string_lossy());
        }
        machine
    }

    /// One that will run this test program's side in the guest.
    pub fn of_this_test(flavour: Flavour, cpus: u32, programs: &[&Path]) -> Self {
        let side = ["/bin/tests", "in_the_guest", "--exact", "--ignored", "--nocapture"];
        let mut machine = Self::new(flavour, cpus, programs, &side);
        machine.add(&std::env::current_exe().unwrap(), "tests");
        machine
    }

    fn add(&mut self, program: &Path, name: &str) {
        // Symbols would only fill the guest's memory.
        let to = self.folder.path().join(name);
        let done = Command::new("strip").arg("-o").arg(&to).arg(program).status().unwrap();
        assert!(done.success(), "strip {}", program.display());
        self.spec.programs.push(to);
    }

    /// Runs it: what the command printed; or what went wrong, in the command or the kernel.
    pub fn run(self) -> Result<String, String> {
        let outcome = run(&self.spec, &mut |_| ()).map_err(|e| format!("{e:#}"))?;
        if !outcome.exit.success() || outcome.kernel_in_trouble() {
            let (console, warnings) = (outcome.console, outcome.kernel_warnings.join("\n"));
            return Err(format!("the guest: {:?}\n{console}\n{warnings}", outcome.exit));
        }
        Ok(outcome.console)
    }

    /// Runs it and collects the facts it states.
    pub fn facts(self) -> Result<Facts, String> {
        let console = self.run()?;
        let facts = console.lines().filter_map(|l| l.split_once(MARK)?.1.split_once('='));
        Ok(facts.map(|(name, value)| (name.into(), unescape(value))).collect())
    }
}

/// Boots a guest with this program and `programs` and returns the facts it prints; or what went
/// wrong, so that many tests can share one attempt.
pub fn facts(flavour: Flavour, cpus: u32, programs: &[&Path]) -> Result<Facts, String> {
    Machine::of_this_test(flavour, cpus, programs).facts()
}

/// The same for a test program whose guest has two CPUs and only the scheduler beside it: boots it once and prints what
/// it said.
pub fn facts_of_two_cpus(scheduler: &str) -> &'static Facts {
    static FACTS: OnceLock<Result<Facts, String>> = OnceLock::new();
    let facts = FACTS.get_or_init(|| {
        let facts = facts(Flavour::Plain, 2, &[Path::new(scheduler)]);
        facts.iter().flatten().for_each(|(name, value)| println!("{name}: {value}"));
        facts
    });
    facts.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

fn unescape(text: &str) -> String {
    text.trim_end_matches('\r').replace("\\n", "\n")
}

// What follows runs in the guest.

/// States a fact.
pub fn fact(name: &str, value: impl ToString) {
    println!("{MARK}{name}={}", value.to_string().trim_end().replace('\n', "\\n"));
}

/// Whether it becomes true within a minute.
pub fn soon(mut is: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// State of sched_ext: `enabled` or `disabled`.
pub fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim().into()
}

/// A process that says it all when it has ended.
pub fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether the service answers, and so whether its scheduler is in force.
pub fn answers() -> bool {
    Service::connect().is_ok_and(|mut s| s.ask(&Request::Status).is_ok())
}

/// `scx_onbeat`, once it is in force. The kernel takes it out if it keeps a thread waiting for 10 s.
pub fn scheduler(options: &[&str]) -> Child {
    let mut child =
        start(Command::new("/bin/scx_onbeat").args(options).args(["--watchdog", "10s"]));
    let mut ended = false;
    let ready = soon(|| {
        ended = child.try_wait().unwrap().is_some();
        ended || answers()
    });
    if ready && !ended {
        return child;
    }
    let _ = child.kill();
    panic!("{:?}", finish(child))
}

/// Waits for it: how it ended, and what it wrote to both outputs.
pub fn finish(child: Child) -> (ExitStatus, String) {
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status, text)
}

/// Sends a signal.
pub fn signal(child: &Child, signal: i32) {
    // SAFETY: the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// This program again, to play the part of test `part` in a process of its own.
pub fn part(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([part, "--exact", "--ignored", "--nocapture"]);
    command
}

/// Takes all CPU time there is. No PAUSE: it would give up a virtual CPU's turn.
pub fn burn() -> ! {
    loop {
        std::hint::black_box(0);
    }
}

/// CPU time of processes so far, ns.
pub fn consumed(pids: &[i32]) -> u64 {
    let time = |pid: &i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    pids.iter().map(time).sum()
}

/// Stays on one CPU from now on.
pub fn pin(cpu: usize) {
    pin_to(0, cpu);
}

/// Binds a thread to a CPU; 0: this one.
pub fn pin_to(tid: i32, cpu: usize) {
    // SAFETY: the set is plain data.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

/// Is busy until it has had so much CPU time, however long that takes.
pub fn spin(time: Duration) {
    let used = || {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel fills it.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) };
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    };
    let end = used() + time;
    while used() < end {}
}

/// Counters that children share with us.
pub fn counters(number: usize) -> &'static [AtomicU64] {
    let size = number * size_of::<AtomicU64>();
    let (read_write, shared) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: fresh zeroed memory that is never unmapped; zero is a valid counter.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), size, read_write, shared, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        std::slice::from_raw_parts(memory.cast(), number)
    }
}

/// Forks a child that does `act` until it is killed.
pub fn child(mut act: impl FnMut()) -> i32 {
    // SAFETY: the child only counts, reads the clock and sleeps; it takes no lock.
    match unsafe { libc::fork() } {
        0 => loop {
            act();
        },
        pid => {
            assert!(pid > 0, "cannot fork");
            pid
        }
    }
}

/// Kills children.
pub fn kill(pids: &[i32]) {
    // SAFETY: our own children, not waited for.
    pids.iter().for_each(|pid| assert_eq!(unsafe { libc::kill(*pid, libc::SIGKILL) }, 0));
    for pid in pids {
        // SAFETY: as above.
        unsafe { libc::waitpid(*pid, std::ptr::null_mut(), 0) };
    }
}
