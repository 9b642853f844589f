// SPDX-License-Identifier: GPL-2.0-only
//! The runner on this machine, with the kernel's own policies: function only, no timing.

use onbeat_model::event::{Event, EventKind};
use onbeat_model::run::Run;
use onbeat_workloads::sys;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(tasks: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let head = format!("name = \"t\"\ncpus = {}\npolicies = [\"eevdf\"]\n", cpus());
        fs::write(folder.path().join("t.toml"), head + tasks).unwrap();
        Self { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out.run")
    }

    fn command(&self, policy: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-runner"));
        command
            .arg(self.folder.path().join("t.toml"))
            .args(["--policy", policy, "--out"])
            .arg(self.out())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, policy: &str) -> Run {
        let output = self.command(policy).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Run::read_from(&mut &fs::read(self.out()).unwrap()[..]).unwrap()
    }

    fn complaint(&self, policy: &str) -> String {
        self.failed(self.command(policy).output().unwrap())
    }

    fn failed(&self, output: Output) -> String {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!self.out().exists(), "half a run was left behind");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

const BURNERS: &str = "duration = \"400ms\"\n\
    [[task]]\nname = \"a\"\ncount = 2\nperiod = \"20ms\"\nbudget = \"4ms\"\n\
    stagger = \"3ms\"\nwork = { uniform = [\"200us\", \"2ms\"] }\n\
    [best_effort]\ncount = 2\nnice = 5\n";

/// Long enough to be interfered with.
const LONG: &str = "duration = \"1h\"\n\
    [[task]]\nname = \"a\"\nperiod = \"20ms\"\nwork = { constant = \"1ms\" }\n\
    [best_effort]\ncount = 1\n";

fn of_kind(run: &Run, kind: EventKind) -> impl Iterator<Item = &Event> {
    run.events.iter().filter(move |e| e.kind() == Some(kind))
}

#[test]
fn a_run_records_every_release_and_for_each_completion_the_work_that_was_asked_for() {
    let place = Place::new(BURNERS);
    let run = place.run("eevdf");
    let set = onbeat_model::taskset::TaskSet::load(place.folder.path().join("t.toml")).unwrap();
    let copies: Vec<_> = set.copies().collect();
    let released: Vec<_> = of_kind(&run, EventKind::Release).collect();
    assert_eq!(released.len(), 40);
    for event in released {
        let copy = &copies[event.task as usize];
        assert_eq!((event.time, event.b), (copy.release(event.a), event.time + 20_000_000));
    }
    let mut used = [0; 2];
    for event in of_kind(&run, EventKind::Complete) {
        let copy = &copies[event.task as usize];
        let work = onbeat_model::workgen::execution_times(&set, copy).unwrap();
        let asked: u64 = work[..=event.a as usize].iter().sum();
        let used = &mut used[event.task as usize];
        *used += event.b;
        assert!(*used + 100_000 > asked, "{used} ns up to job {}, not {asked}", event.a);
        assert!(event.time > copy.release(event.a));
    }
    assert!(used.iter().any(|&used| used > 0));
    assert_eq!(of_kind(&run, EventKind::Usage).count(), run.tasks.len());
    assert_eq!(run.tasks.len(), 4);
    assert!(run.tasks.iter().all(|task| task.tid > 0));
    assert!(run.horizon_ns >= 400_000_000);
    let used = of_kind(&run, EventKind::Usage).filter(|e| e.task >= 2).map(|e| e.a).sum::<u64>();
    assert!(used > 0, "best-effort processes have used nothing");
}

#[test]
fn real_time_policies_run_where_they_are_allowed() {
    let fifo = sys::Class::Fifo { priority: 1, reset_on_fork: true };
    let allowed = std::thread::spawn(move || sys::set_class(0, fifo).is_ok());
    if !allowed.join().unwrap() {
        eprintln!("not allowed to use SCHED_FIFO here; not tested");
        return;
    }
    for policy in ["eevdf-nice", "fifo", "deadline", "deadline-reclaim"] {
        let run = Place::new(BURNERS).run(policy);
        assert_eq!(run.policy, policy);
        assert_eq!(of_kind(&run, EventKind::Release).count(), 40, "{policy}");
    }
}

#[test]
fn what_sched_deadline_cannot_do_is_said_before_anything_starts() {
    let pinned = BURNERS.replace("budget", "affinity = [0]\nbudget");
    let complaint = Place::new(&pinned).complaint("deadline");
    assert!(complaint.contains("remove `affinity`"), "{complaint}");
    let few = Place::new(BURNERS);
    let file = few.folder.path().join("t.toml");
    let text = fs::read_to_string(&file).unwrap();
    let more = text.replace(&format!("cpus = {}", cpus()), "cpus = 64");
    if cpus() < 64 {
        fs::write(&file, more).unwrap();
        assert!(few.complaint("eevdf").contains("wants 64 CPUs"));
    }
}

#[test]
fn a_program_runs_once_and_its_failure_is_the_runs_failure() {
    let program = |words: &str| {
        Place::new(&format!(
            "duration = \"300ms\"\n[[task]]\nname = \"p\"\nperiod = \"20ms\"\nwork = {{ program = {words} }}\n"
        ))
    };
    let run = program("[\"sleep\", \"0.05\"]").run("eevdf");
    assert_eq!(of_kind(&run, EventKind::Release).count(), 0);
    // One that would go on for ever is ended.
    program("[\"sleep\", \"3600\"]").run("eevdf");
    let complaint = program("[\"false\"]").complaint("eevdf");
    assert!(complaint.contains("program p failed with status 1"), "{complaint}");
    let complaint = program("[\"no-such-program\"]").complaint("eevdf");
    assert!(complaint.contains("there is no program \"no-such-program\""), "{complaint}");
}

#[test]
fn a_missing_movie_or_scheduler_is_named() {
    let movie = "duration = \"1s\"\n[[task]]\nname = \"m\"\nperiod = \"41ms\"\nwork = { movie = \"none.mp4\" }\n";
    assert!(Place::new(movie).complaint("eevdf").contains("there is no movie"));
    let complaint = Place::new(BURNERS).complaint("scx:none");
    let expected = ["no sched_ext", "no program scx_none"];
    assert!(expected.iter().any(|part| complaint.contains(part)), "{complaint}");
}

/// Starts a long run and waits until both its processes are under way.
fn started(place: &Place) -> (Child, Vec<u32>) {
    let runner = place.command("eevdf").spawn().unwrap();
    let mut pids = Vec::new();
    while pids.len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
        pids = workers(runner.id());
    }
    (runner, pids)
}

/// Children of process `parent` that have become workers.
fn workers(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    // Between fork and exec a child still is the runner.
    let worker = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "onbeat-work")
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(worker).collect()
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: the process is one this test has started.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

fn wait_until_gone(pids: &[u32]) {
    let alive = |pid: &&u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while pids.iter().find(alive).is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_runner_told_to_stop_leaves_nothing_behind_and_fails() {
    for (number, word) in [(libc::SIGINT, "interrupted"), (libc::SIGTERM, "told to terminate")] {
        let place = Place::new(LONG);
        let (runner, pids) = started(&place);
        signal(runner.id(), number);
        let complaint = place.failed(runner.wait_with_output().unwrap());
        assert!(complaint.contains(word), "{complaint}");
        wait_until_gone(&pids);
    }
}

#[test]
fn a_task_that_dies_ends_the_run_with_its_name() {
    let place = Place::new(LONG);
    let (runner, pids) = started(&place);
    signal(pids[0], libc::SIGKILL);
    let complaint = place.failed(runner.wait_with_output().unwrap());
    assert!(complaint.contains("was killed by signal 9"), "{complaint}");
    wait_until_gone(&pids);
}

#[test]
fn a_runner_that_is_killed_takes_its_processes_along() {
    let place = Place::new(LONG);
    let (mut runner, pids) = started(&place);
    signal(runner.id(), libc::SIGKILL);
    runner.wait().unwrap();
    wait_until_gone(&pids);
}

#[test]
fn threads_of_a_task_each_do_their_work_and_its_jobs_are_complete_with_the_last() {
    let place = Place::new(
        "duration = \"200ms\"\n[[task]]\nname = \"a\"\nperiod = \"50ms\"\nbudget = \"20ms\"\nthreads = 3\n\
         work = { constant = \"2ms\" }\n",
    );
    let run = place.run("eevdf");
    let completed: Vec<_> = of_kind(&run, EventKind::Complete).collect();
    assert_eq!((run.tasks.len(), completed.len()), (1, 4));
    let mut done = 0;
    for (event, jobs) in completed.iter().zip(1..) {
        // Three times 2 ms a job, of which a busy host's clock may miss some, and what one job had too much the next
        // has too little: together more than two threads could have done.
        done += event.b;
        assert!(done > jobs * 4_500_000, "{event}, {done} ns so far");
    }
    assert!(place.complaint("deadline").contains("no reservation for the 3 threads of a"));
}

#[test]
fn loads_and_generators_sleep_between_bursts_and_what_best_effort_had_in_a_second_is_counted() {
    let place = Place::new(
        "duration = \"1100ms\"\n[best_effort]\ncount = 1\ngenerators = 1\n\
         generator = { gap = \"20ms\", mean = \"2ms\" }\n\
         [[best_effort.load]]\nname = \"ed\"\nperiod = \"50ms\"\nwork = { constant = \"1ms\" }\n",
    );
    let run = place.run("eevdf");
    let names: Vec<&str> = run.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["best-effort-0", "ed", "generator-0"]);
    let set = onbeat_model::taskset::TaskSet::load(place.folder.path().join("t.toml")).unwrap();
    for (task, sleeper) in (1..).zip(set.sleepers()) {
        let (arrivals, _) = onbeat_model::workgen::bursts(&set, &sleeper);
        let woke: Vec<u64> = of_kind(&run, EventKind::Wake)
            .filter(|e| e.task == task)
            .map(|e| e.time - e.a)
            .collect();
        assert!(!woke.is_empty() && woke.iter().all(|time| arrivals.contains(time)), "{woke:?}");
    }
    let seconds: Vec<&Event> = of_kind(&run, EventKind::BestEffort).collect();
    let used: Vec<u64> = of_kind(&run, EventKind::Usage).map(|e| e.a).collect();
    assert!(used.iter().all(|used| *used > 0), "{used:?}");
    assert_eq!((seconds[0].time, seconds[0].b), (1_000_000_000, 0));
    assert!((1..=used.iter().sum()).contains(&seconds[0].a), "{seconds:?} of {used:?}");
}

#[test]
fn what_only_the_simulator_can_play_is_refused_before_anything_runs() {
    let task = "[[task]]\nname = \"a\"\nperiod = \"50ms\"\nwork = { constant = \"2ms\" }\n";
    let more = "sections = [{ resource = \"bus\", length = \"1ms\" }]\n";
    let complaint = Place::new(&format!("duration = \"200ms\"\n{task}{more}")).complaint("eevdf");
    let said = complaint.contains("a has sections")
        && complaint.contains("(simulator only); use `onbeat sim`");
    assert!(said, "{complaint}");
}
