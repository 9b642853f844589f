// SPDX-License-Identifier: GPL-2.0-only
//! Runs real guests. They need QEMU and a fetched kernel (`make setup`) and fail without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onbeat_lab::{Exit, Flavour, LabOutcome, LabSpec, Mode, Progress, run};

/// Cargo has built init for us; it says where. And QEMU shall announce a restored machine a thousand times
/// within seconds, if the lab does not tell it better: that makes deterministic runs differ.
fn use_our_init_and_qemu() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let qemu = Path::new(env!("CARGO_TARGET_TMPDIR")).join("announcing-qemu");
        let real = std::env::var("ONBEAT_QEMU").unwrap_or("qemu-system-x86_64".into());
        let often = ["rounds=1000", "initial=1", "step=1", "max=7"]
            .map(|word| format!("-global migration.announce-{word}"))
            .join(" ");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec '{real}' \"$@\"\nexec '{real}' {often} \"$@\"\n"
        );
        fs::write(&qemu, script).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        // SAFETY: every test comes here before it starts a thread or reads the environment.
        unsafe {
            std::env::set_var("ONBEAT_QEMU", qemu);
            std::env::set_var("ONBEAT_INIT", env!("CARGO_BIN_EXE_onbeat-init"));
        }
    });
}

fn shell(script: &str) -> LabSpec {
    use_our_init_and_qemu();
    let mut spec = LabSpec::new(["/bin/sh", "-c", script]);
    spec.host_timeout = Duration::from_secs(600);
    spec
}

fn quick(script: &str) -> LabSpec {
    LabSpec { cpus: 1, mode: Mode::RealTime, ..shell(script) }
}

fn outcome(spec: &LabSpec) -> LabOutcome {
    run(spec, &mut |_| ()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn refusal(spec: &LabSpec) -> String {
    format!("{:#}", run(spec, &mut |_| ()).expect_err("this run must fail"))
}

#[test]
fn exit_status_output_and_files_of_the_command_arrive() {
    let script = "echo to stdout; echo to stderr >&2; mkdir -p /out/deep/er; \
                  head -c 3000000 /dev/zero >/out/deep/er/zeros; ln -s deep /out/link; \
                  printf 'no newline' >/out/text; exit 37";
    let outcome = outcome(&quick(script));
    assert_eq!(outcome.exit, Exit::Code(37));
    assert_eq!(outcome.console, "to stdout\nto stderr\n");
    assert_eq!(fs::read_to_string(outcome.files.join("text")).unwrap(), "no newline");
    assert_eq!(fs::read(outcome.files.join("deep/er/zeros")).unwrap(), vec![0; 3_000_000]);
    assert_eq!(fs::read_link(outcome.files.join("link")).unwrap(), Path::new("deep"));
    assert!(outcome.platform.kernel.contains("-cloud-"), "{:?}", outcome.platform);
    let folder = outcome.files.clone();
    drop(outcome);
    assert!(!folder.exists(), "a temporary result folder must go with its outcome");
}

#[test]
fn a_program_runs_with_its_libraries_files_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("note"), "from the host").unwrap();
    // The very program this test runs is dynamically linked; run it in the lab.
    let program = std::env::current_exe().unwrap();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let mut spec = quick(&format!("cat /data/note; echo \" $COLOUR\"; {name} --list | tail -n 1"));
    spec.programs.push(program);
    spec.files.push((folder.path().into(), PathBuf::from("/data")));
    spec.env.push(("COLOUR".into(), "blue".into()));
    let outcome = outcome(&spec);
    assert!(outcome.console.starts_with("from the host blue\n"), "{}", outcome.console);
    assert!(outcome.console.contains(" tests, "), "{}", outcome.console);
}

#[test]
fn a_signal_and_a_missing_program_are_told_apart() {
    assert_eq!(outcome(&quick("kill -SEGV $$")).exit, Exit::Signal(11));
    let mut spec = quick("");
    spec.command = vec!["no-such-program".into()];
    let outcome = outcome(&spec);
    assert_eq!(outcome.exit, Exit::Code(127));
    assert!(outcome.console.contains("no-such-program"), "{}", outcome.console);
}

#[test]
fn guest_timeout_ends_the_command_but_keeps_its_files() {
    let mut spec = shell("echo early >/out/file; sleep 100000");
    spec.cpus = 1;
    spec.guest_timeout = Some(Duration::from_secs(3));
    let outcome = outcome(&spec);
    assert_eq!(outcome.exit, Exit::TimedOut);
    assert_eq!(fs::read_to_string(outcome.files.join("file")).unwrap(), "early\n");
}

#[test]
fn host_timeout_kills_the_guest_and_shows_its_last_words() {
    let mut spec = quick("echo these are my last words; sleep 100000");
    spec.host_timeout = Duration::from_secs(45);
    let text = refusal(&spec);
    assert!(text.contains("within 45 s") && text.contains("these are my last words"), "{text}");
}

#[test]
fn a_kernel_panic_is_reported_with_the_kernels_words() {
    let text = refusal(&quick("echo c >/proc/sysrq-trigger; sleep 100"));
    let first = text.lines().next().unwrap();
    assert!(first.contains("died") && first.contains("sysrq triggered crash"), "{text}");
}

#[test]
fn results_that_do_not_fit_are_refused_with_the_reason() {
    let mut spec = quick("head -c 2000000 /dev/zero >/out/big");
    spec.window_mib = 1;
    let text = refusal(&spec);
    assert!(text.contains("do not fit") && text.contains("big"), "{text}");
}

#[test]
fn a_result_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = quick("echo x >/out/file");
    fs::create_dir_all(folder.path().join("out/file")).unwrap();
    spec.out_dir = Some(folder.path().join("out"));
    let text = refusal(&spec);
    assert!(text.contains("cannot write the result file") && text.contains("out/file"), "{text}");
}

#[test]
fn cancelling_stops_the_guest() {
    let mut spec = quick("echo started; sleep 100000");
    let cancel = Arc::new(AtomicBool::new(false));
    spec.cancel = Some(cancel.clone());
    let error = run(&spec, &mut |progress| {
        if matches!(progress, Progress::Output(_)) {
            cancel.store(true, Ordering::Relaxed);
        }
    })
    .expect_err("a cancelled run must fail");
    assert!(format!("{error:#}").contains("stopped on request"), "{error:#}");
}

#[test]
fn modules_load_with_what_they_depend_on() {
    let mut spec = quick("cut -d ' ' -f 1 /proc/modules; cat /proc/cmdline");
    spec.extra_modules = vec!["nd_pmem".into()];
    spec.kernel_args = vec!["onbeat.hello=1".into()];
    let outcome = outcome(&spec);
    for word in ["nd_pmem", "nd_btt", "libnvdimm", "onbeat.hello=1"] {
        assert!(outcome.console.contains(word), "no {word} in: {}", outcome.console);
    }
}

#[test]
fn processes_left_behind_do_not_outlive_the_command() {
    let script = "(trap '' TERM; echo >/tmp/ready; sleep 100000) & \
                  while ! [ -e /tmp/ready ]; do sleep 0.01; done; exit 5";
    assert_eq!(outcome(&quick(script)).exit, Exit::Code(5));
}

#[test]
fn kernel_warnings_during_the_command_are_counted() {
    // Deterministic: in real time a busy host can give the kernel reason to warn.
    let one_cpu = |script| LabSpec { cpus: 1, ..shell(script) };
    let clean = outcome(&one_cpu("true"));
    assert_eq!(clean.kernel_warnings, Vec::<String>::new());
    assert!(!clean.kernel_in_trouble());
    let noisy = outcome(&one_cpu("echo '<4>a warning from the test' >/dev/kmsg"));
    assert_eq!(noisy.kernel_warnings.len(), 1);
    assert!(noisy.kernel_warnings[0].contains("a warning from the test"));
}

#[test]
fn the_rt_kernel_is_fully_preemptible() {
    let mut spec = quick("uname -v; cat /sys/kernel/sched_ext/state");
    spec.kernel = Flavour::Rt;
    let outcome = outcome(&spec);
    assert!(outcome.console.contains("PREEMPT_RT"), "{}", outcome.console);
    assert!(outcome.console.ends_with("disabled\n"), "{}", outcome.console);
}

#[test]
fn broken_type_information_is_told_from_good() {
    let outcome = outcome(&quick("cat /sys/kernel/btf/vmlinux >/out/btf"));
    let good = fs::read(outcome.files.join("btf")).unwrap();
    onbeat_lab::btf::check(&good).unwrap();
    // What Debian's 7.2 for trixie-backports looks like: the plain name keeps the hidden argument.
    let name = b"scx_bpf_dsq_insert_impl\0";
    let place = good.windows(name.len()).position(|bytes| bytes == name).unwrap();
    let mut broken = good.clone();
    broken[place + 18] = 0;
    let error = onbeat_lab::btf::check(&broken).unwrap_err().to_string();
    assert!(error.contains("lacks its twin"), "{error}");
    assert!(onbeat_lab::btf::check(&good[..1000]).is_err());
}

/// Does something while each CPU of the host has other work, too, now and then.
fn beside_busy_threads<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_millis(7) {}
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
        let result = std::panic::catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Four CPUs, eight busy processes, timers, pipes, random numbers.
const BUSY: &str = "
    for i in 1 2 3 4 5 6 7 8; do
        (n=0; while [ $n -lt 3000 ]; do n=$((n+1)); done; echo worker $i done) &
    done
    for i in 1 2 3 4 5; do sleep 0.05; head -c 16 /dev/urandom | md5sum; done
    wait
    cat /proc/stat /proc/interrupts /proc/schedstat /proc/uptime /proc/meminfo >/out/state
    cat /proc/sys/kernel/random/boot_id /proc/self/stat; date +%s.%N
    ls -lR --full-time /etc /bin | md5sum";

#[test]
fn two_deterministic_runs_of_busy_cpus_are_the_same_byte_for_byte() {
    let spec = shell(BUSY);
    let first = outcome(&spec);
    let second = beside_busy_threads(|| outcome(&spec));
    assert!(first.exit.success(), "{}", first.console);
    assert_eq!(first.console, second.console);
    assert_eq!(first.kernel_log, second.kernel_log);
    assert_eq!(first.guest_ns, second.guest_ns);
    let state = |outcome: &LabOutcome| fs::read_to_string(outcome.files.join("state")).unwrap();
    assert_eq!(state(&first), state(&second));
    let other = outcome(&LabSpec { mode: Mode::Deterministic { turn_us: 20, seed: 7 }, ..spec });
    assert_ne!(first.console, other.console, "another seed must show");
}
