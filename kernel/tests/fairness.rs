// SPDX-License-Identifier: GPL-2.0-only
//! What best-effort work may expect of its equals. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::io::{Read, Write};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guest::{Facts, answers, child, counters, fact, finish, kill, pin, scheduler, signal, state};

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
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

/// The kernel's own scheduler: 60 us on average, 66 us at most, of which 50 are the timer's slack.
#[test]
fn who_sleeps_between_short_bursts_has_a_cpu_at_once_beside_two_busy_tasks_for_each() {
    for nice in [0, 10] {
        let [mean, most] = ["mean", "most"].map(|what| time(&format!("quick-{nice}-{what}")));
        assert!(mean < 100 && most < 1000, "nice {nice}: {mean} us on average, {most} us at most");
    }
}

/// Or within a slice of 4 ms, which is more than that for the least.
#[test]
fn busy_tasks_have_parts_of_a_second_as_their_weights_within_two_per_cent() {
    let weight = |nice: i32| 1.25_f64.powi(-nice);
    let sum: f64 = WEIGHED.iter().map(|nice| weight(*nice)).sum();
    let had: Vec<u64> = (0..WEIGHED.len()).map(|i| time(&format!("weight-{i}"))).collect();
    let all = had.iter().sum::<u64>() as f64;
    for (nice, had_us) in WEIGHED.iter().zip(&had) {
        let part = all * weight(*nice) / sum;
        let off = (*had_us as f64 - part).abs();
        assert!(off <= (0.02 * part).max(4_000.0), "nice {nice} in place of {part} us: {had:?}");
    }
}

#[test]
fn who_serves_messages_has_its_part_beside_a_busy_task() {
    let had = time("serves-had");
    assert!(had >= 450, "{had} ms of a second");
}

// In the guest.

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
        // It may run between the two, and later than `now`.
        let now = self.begin.elapsed().as_millis() as u64;
        self.gap.load(Relaxed).max(now.saturating_sub(self.last.load(Relaxed)))
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
    let scheduler = scheduler(&[]);
    equals();
    pinned();
    quick();
    weights();
    serves();
    nice();
    fact("nice-words", end(scheduler));
}

/// How long a task waits that wants to run for a moment every 5 ms, beside busy ones.
fn quick() {
    let tasks: Vec<Watched> = (0..4).map(|_| Watched::start(BUSY, || ())).collect();
    seconds(1);
    for nice in [0, 10] {
        let [sum, most, count] = counters(3) else { unreachable!() };
        let mut first = true;
        let quick = child(|| {
            if std::mem::take(&mut first) {
                pin_and_be_nice(0, nice);
            }
            let (begin, pause) = (Instant::now(), Duration::from_millis(5));
            std::thread::sleep(pause);
            let late = (begin.elapsed() - pause).as_micros() as u64;
            sum.fetch_add(late, Relaxed);
            most.fetch_max(late, Relaxed);
            count.fetch_add(1, Relaxed);
        });
        seconds(2);
        kill(&[quick]);
        fact(&format!("quick-{nice}-mean"), sum.load(Relaxed) / count.load(Relaxed));
        fact(&format!("quick-{nice}-most"), most.load(Relaxed));
    }
    kill_all(&tasks);
}

/// Of tasks that share a CPU.
const WEIGHED: [i32; 3] = [0, 5, 10];

fn weights() {
    let tasks = WEIGHED.map(|nice| Watched::start(BUSY, move || pin_and_be_nice(1, nice)));
    seconds(1);
    let had = || tasks.each_ref().map(|task| cpu_time(task.pid));
    let before = had();
    seconds(1);
    for (i, (now, before)) in had().iter().zip(before).enumerate() {
        fact(&format!("weight-{i}"), (now - before) / 1000);
    }
    kill_all(&tasks);
}

/// One computes for 0.2 ms for each message of another on its CPU, which waits for the answer.
fn serves() {
    let task = Watched::start(BUSY, || pin(1));
    let (mut from_asker, mut to_server) = std::io::pipe().unwrap();
    let (mut from_server, mut to_asker) = std::io::pipe().unwrap();
    // Its children are bound as it is.
    pin(1);
    let server = child(|| {
        from_asker.read_exact(&mut [0]).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(200) {}
        to_asker.write_all(&[0]).unwrap();
    });
    let asker = child(|| {
        to_server.write_all(&[0]).unwrap();
        from_server.read_exact(&mut [0]).unwrap();
    });
    pin(0);
    seconds(1);
    let before = cpu_time(server);
    seconds(1);
    fact("serves-had", (cpu_time(server) - before) / 1_000_000);
    kill(&[server, asker]);
    kill_all(&[task]);
}

/// In ns.
fn cpu_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

fn equals() {
    let tasks: Vec<Watched> = (0..4).map(|_| Watched::start(BUSY, || ())).collect();
    seconds(1);
    let asked = Instant::now();
    assert!(answers());
    fact("equals-answer", asked.elapsed().as_millis());
    seconds(1);
    fact("equals-gap", tasks.iter().map(Watched::longest_wait).max().unwrap());
    kill_all(&tasks);
}

/// On one CPU time passes four times as fast for each task as on the other.
fn pinned() {
    let mut tasks: Vec<Watched> =
        (0..5).map(|i| Watched::start(BUSY, move || pin(usize::from(i == 4)))).collect();
    seconds(3);
    tasks.push(Watched::start(Duration::from_millis(10), || pin(0)));
    seconds(3);
    fact("pinned-gap", tasks[5].longest_wait());
    kill_all(&tasks);
}

/// Longer than the kernel's watchdog allows a task to wait.
fn nice() {
    let nice = |i: usize| move || pin_and_be_nice(i % 2, if i < 2 { -20 } else { 19 });
    let tasks: Vec<Watched> = (0..4).map(|i| Watched::start(BUSY, nice(i))).collect();
    seconds(12);
    fact("nice-state", state());
    kill_all(&tasks);
}

fn pin_and_be_nice(cpu: usize, nice: i32) {
    pin(cpu);
    // SAFETY: takes only numbers.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
}
