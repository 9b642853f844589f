// SPDX-License-Identifier: GPL-2.0-only
//! What best-effort work may expect of its equals. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guest::{Facts, child, counters, fact, finish, kill, pin, scheduler, signal, state};
use onbeat_client::Service;
use onbeat_lab::Flavour;
use onbeat_model::protocol::Request;

fn facts() -> &'static Facts {
    static FACTS: OnceLock<Result<Facts, String>> = OnceLock::new();
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let facts = FACTS.get_or_init(|| guest::facts(Flavour::Plain, 2, &[program]));
    facts.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

/// In ms.
fn time(name: &str) -> u64 {
    let value = facts().get(name).unwrap_or_else(|| panic!("the guest did not say {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

#[test]
fn two_busy_tasks_for_each_cpu_wait_for_each_other_no_longer_than_some_slices() {
    let gap = time("equals-gap");
    assert!(gap < 50, "{gap} ms with slices of 4 ms");
}

#[test]
fn the_service_answers_at_once_beside_busy_tasks() {
    let took = time("equals-answer");
    assert!(took < 100, "{took} ms");
}

#[test]
fn who_wakes_on_a_crowded_cpu_is_not_charged_for_a_quicker_one() {
    let gap = time("pinned-gap");
    assert!(gap < 500, "{gap} ms behind four others");
}

#[test]
fn the_least_of_tasks_beside_the_greatest_does_not_end_the_scheduler() {
    assert_eq!(facts()["nice-state"], "enabled", "{}", facts()["nice-words"]);
}

// In the guest.

fn answers() -> bool {
    Service::connect().is_ok_and(|mut s| s.ask(&Request::Status).is_ok())
}

/// Ends it; what it had to say, if it has not ended before.
fn end(scheduler: Child) -> String {
    if state() == "enabled" {
        signal(&scheduler, libc::SIGTERM);
    }
    finish(scheduler).1
}

/// A child whose waits are watched.
struct Watched {
    pid: i32,
    begin: Instant,
    /// Its longest wait, and when it ran last; ms.
    gap: &'static AtomicU64,
    last: &'static AtomicU64,
}

impl Watched {
    /// One that wants to run after each `pause`.
    fn start(pause: Duration, prepare: impl Fn()) -> Self {
        let [gap, last] = counters(2) else { unreachable!() };
        let (begin, mut prepared) = (Instant::now(), false);
        let pid = child(|| {
            if !prepared {
                prepare();
                prepared = true;
            }
            std::thread::sleep(pause);
            let now = begin.elapsed().as_millis() as u64;
            gap.fetch_max(now - last.swap(now, Relaxed), Relaxed);
        });
        Self { pid, begin, gap, last }
    }

    fn longest_wait(&self) -> u64 {
        let now = self.begin.elapsed().as_millis() as u64;
        self.gap.load(Relaxed).max(now - self.last.load(Relaxed))
    }
}

fn kill_all(tasks: &[Watched]) {
    kill(&tasks.iter().map(|task| task.pid).collect::<Vec<_>>());
}

const BUSY: Duration = Duration::ZERO;

fn seconds(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    equals();
    pinned();
    nice();
}

fn equals() {
    let scheduler = scheduler(&[]);
    let tasks: Vec<Watched> = (0..4).map(|_| Watched::start(BUSY, || ())).collect();
    seconds(1);
    let asked = Instant::now();
    assert!(answers());
    fact("equals-answer", asked.elapsed().as_millis());
    seconds(1);
    fact("equals-gap", tasks.iter().map(Watched::longest_wait).max().unwrap());
    kill_all(&tasks);
    end(scheduler);
}

/// On one CPU time passes four times as fast for each task as on the other.
fn pinned() {
    let scheduler = scheduler(&[]);
    let mut tasks: Vec<Watched> =
        (0..5).map(|i| Watched::start(BUSY, move || pin(usize::from(i == 4)))).collect();
    seconds(3);
    tasks.push(Watched::start(Duration::from_millis(10), || pin(0)));
    seconds(3);
    fact("pinned-gap", tasks[5].longest_wait());
    kill_all(&tasks);
    end(scheduler);
}

/// Longer than the kernel's watchdog allows a task to wait.
fn nice() {
    let scheduler = scheduler(&[]);
    let nice = |i: usize| move || pin_and_be_nice(i % 2, if i < 2 { -20 } else { 19 });
    let tasks: Vec<Watched> = (0..4).map(|i| Watched::start(BUSY, nice(i))).collect();
    seconds(12);
    fact("nice-state", state());
    kill_all(&tasks);
    fact("nice-words", end(scheduler));
}

fn pin_and_be_nice(cpu: usize, nice: i32) {
    pin(cpu);
    // SAFETY: takes only numbers.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
}
