// SPDX-License-Identifier: GPL-2.0-only
//! EDF-HSB on a real kernel: hard, soft and best-effort work in strict rank on two full CPUs, and what the service says
//! to classes. Needs QEMU and a fetched kernel (`make setup`).

mod guest;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use guest::{
    Facts, burn, child, consumed, fact, finish, kill, part, scheduler, signal, soon, start, state,
};
use onbeat_client::{Params, Service};
use onbeat_kernel::machine::monotonic;
use onbeat_model::protocol::{Request, Reservation, Response};
use onbeat_model::rank::Rank;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// How long all are watched.
const WATCHED: Duration = Duration::from_secs(1);
/// Two threads of one process.
const HOGS: [&str; 2] = ["pair-hard", "pair-soft"];

fn facts() -> &'static Facts {
    guest::facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))
}

/// Thousandths of a CPU.
fn share(name: &str) -> u64 {
    facts()[name].parse().unwrap()
}

#[test]
fn hard_and_soft_ones_that_never_sleep_get_their_budgets_and_no_more() {
    // A budget is had anywhere in its period, by soft ones later, too: one more or less, 8 of 1000 ms, is within the
    // time watched.
    for name in ["hard-0", "hard-1", "soft-0", "soft-1"] {
        let had = share(name);
        assert!((392..=408).contains(&had), "{name}: {had}");
    }
}

#[test]
fn best_effort_gets_its_servers_rate_and_what_is_left_however_busy_all_others_are() {
    // 80 % of each CPU is taken; servers guarantee 10 % of each, and nobody else wants the rest.
    assert!((370..=405).contains(&share("others")), "{}", share("others"));
}

#[test]
fn under_edf_hsb_soft_ones_that_never_sleep_have_what_hard_ones_and_best_efforts_servers_leave() {
    // Of each CPU 40 % is hard, 10 % best effort's servers', 1 % its share. Who watches is best effort, too, and so
    // begins and ends up to 25 ms off.
    for name in ["freed-hard-0", "freed-hard-1"] {
        assert!((380..=420).contains(&share(name)), "{name}: {}", share(name));
    }
    // Of equal deadlines the first in line may have more of what is left, so only the sum is known.
    let soft = ["freed-soft-0", "freed-soft-1"].map(share);
    assert!(soft.iter().all(|had| *had >= 380), "{soft:?}");
    assert!((930..=1030).contains(&soft.iter().sum::<u64>()), "{soft:?}");
    assert!((190..=235).contains(&share("freed-others")), "{}", share("freed-others"));
}

#[test]
fn where_soft_ones_leave_nothing_else_the_servers_are_what_best_effort_gets() {
    // Two hard ones of 40 %, two soft ones of 49 %: servers of 10 % each are all that is left but 2 %.
    assert!((195..=230).contains(&share("full-others")), "{}", share("full-others"));
}

#[test]
fn what_does_not_fit_its_class_is_refused_in_words() {
    let said = |name: &str| facts()[name].as_str();
    assert!(said("too-hard").contains("hard"), "{}", said("too-hard"));
    assert!(said("too-heavy").contains("soft"), "{}", said("too-heavy"));
    assert!(said("too-many").contains("do not fit"), "{}", said("too-many"));
}

#[test]
fn threads_of_one_process_have_a_hard_and_a_soft_reservation() {
    for name in HOGS {
        assert!((392..=408).contains(&share(name)), "{name}: {}", share(name));
    }
    assert_eq!(facts()["pair-threads"], "1 1");
    assert!(facts()["pair-whole"].contains("already has reservation"), "{}", facts()["pair-whole"]);
}

#[test]
fn the_scheduler_outlives_a_cpu_that_goes_and_comes_and_best_effort_bound_to_a_full_one() {
    assert_eq!(facts()["alive"], "enabled");
    assert!(share("bound") > 0, "{}", share("bound"));
}

// In the guest.

fn reserve(params: &Params) -> (Child, String) {
    let child = start(&mut part("hog"));
    let answer = Service::connect().unwrap().reserve(child.id(), "x", params);
    (child, answer.map_or_else(|e| e.to_string(), |_| "granted".into()))
}

fn held(budget: u64, period: u64, class: Rank) -> Child {
    let (child, answer) = reserve(&Params::new(budget, period).of_class(class));
    assert_eq!(answer, "granted");
    child
}

fn reservations() -> Vec<Reservation> {
    let answer = Service::connect().unwrap().ask(&Request::Status).unwrap();
    let Response::Status { reservations, .. } = answer else { panic!("{answer:?}") };
    reservations
}

/// The thread of process `pid` that has this name.
fn thread_named(pid: u32, name: &str) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let named = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    tasks.flatten().find(named)?.file_name().to_str()?.parse().ok()
}

/// Two threads of one process, which never sleep: one hard, one soft.
fn pair() {
    let child = start(&mut part("two_hogs"));
    let mut tids = Vec::new();
    assert!(soon(|| {
        tids = HOGS.iter().filter_map(|name| thread_named(child.id(), name)).collect();
        tids.len() == HOGS.len()
    }));
    let params = [
        Params::new(4 * MS, 10 * MS).of_class(Rank::Hard).for_thread(tids[0]),
        Params::new(8 * MS, 20 * MS).of_class(Rank::Soft).for_thread(tids[1]),
    ];
    let mut service = Service::connect().unwrap();
    for params in &params {
        service.reserve(child.id(), "x", params).unwrap();
    }
    let whole = service.reserve(child.id(), "x", &Params::new(MS, 10 * MS));
    fact("pair-whole", whole.unwrap_err());
    let (before, since) = (reservations(), Instant::now());
    std::thread::sleep(WATCHED);
    let (after, watched) = (reservations(), since.elapsed());
    for (tid, name) in tids.iter().zip(HOGS) {
        let had = |all: &[Reservation]| all.iter().find(|r| r.thread == *tid).unwrap().consumed_ns;
        fact(name, (had(&after) - had(&before)) * 1000 / watched.as_nanos() as u64);
    }
    let threads: Vec<String> = after.iter().map(|r| r.threads.to_string()).collect();
    fact("pair-threads", threads.join(" "));
    end([child]);
}

/// CPU time of each reservation, then of best effort's hogs, ns, and when that was so.
fn had(children: &[Child], others: &[i32]) -> Vec<(u64, u64)> {
    let answer = Service::connect().unwrap().ask(&Request::Status).unwrap();
    let Response::Status { reservations, time_ns, .. } = answer else { panic!("{answer:?}") };
    let of = |c: &Child| reservations.iter().find(|r| r.pid == c.id()).unwrap().consumed_ns;
    let all = children.iter().map(|child| (of(child), time_ns));
    all.chain([(consumed(others), monotonic())]).collect()
}

/// Thousandths of a CPU that each of `names` gets while it is watched; the last is best effort.
fn watch(names: &[&str], children: &[Child], others: &[i32]) {
    let before = had(children, others);
    std::thread::sleep(WATCHED);
    // Who watches is best effort, and may wake up late, or wait between two looks.
    let after = had(children, others);
    for ((name, after), before) in names.iter().zip(after).zip(before) {
        fact(name, (after.0 - before.0) * 1000 / (after.1 - before.1));
    }
}

fn end(children: impl IntoIterator<Item = Child>) {
    for child in children {
        signal(&child, libc::SIGKILL);
        finish(child);
    }
    assert!(soon(|| reservations().is_empty()));
}

/// Puts another policy in force.
fn swap(policy: &str) {
    let (set, policy) = ("default".into(), policy.into());
    let answer = Service::connect().unwrap().ask(&Request::Swap { set, policy });
    assert!(matches!(answer, Ok(Response::Swapped { .. })), "{answer:?}");
}

fn online(cpu: u32, on: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    std::fs::write(path, if on { "1" } else { "0" }).unwrap();
}

#[test]
#[ignore = "the guest's side"]
fn hog() {
    burn();
}

#[test]
#[ignore = "the guest's side"]
fn two_hogs() {
    let hog = |name: &str| std::thread::Builder::new().name(name.into()).spawn(|| burn()).unwrap();
    let _ = HOGS.map(hog).map(std::thread::JoinHandle::join);
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let service = scheduler(&["--policy", "edf-hsb-ns"]);
    let others = [(); 4].map(|()| child(|| burn()));
    let hard = [held(4 * MS, 10 * MS, Rank::Hard), held(4 * MS, 10 * MS, Rank::Hard)];
    let soft = [held(8 * MS, 20 * MS, Rank::Soft), held(8 * MS, 20 * MS, Rank::Soft)];
    let children: Vec<Child> = hard.into_iter().chain(soft).collect();
    watch(&["hard-0", "hard-1", "soft-0", "soft-1", "others"], &children, &others);
    swap("edf-hsb");
    let freed = ["freed-hard-0", "freed-hard-1", "freed-soft-0", "freed-soft-1", "freed-others"];
    watch(&freed, &children, &others);
    swap("edf-hsb-ns");
    let (child_too, answer) = reserve(&Params::new(6 * MS, 10 * MS).of_class(Rank::Hard));
    fact("too-hard", answer);
    let (another, answer) = reserve(&Params::new(14 * MS, 20 * MS).of_class(Rank::Soft));
    fact("too-heavy", answer);
    end(children.into_iter().chain([child_too, another]));
    pair();

    let mut children = vec![held(4 * MS, 10 * MS, Rank::Hard), held(4 * MS, 10 * MS, Rank::Hard)];
    children.extend([held(9_800 * US, 20 * MS, Rank::Soft), held(9_800 * US, 20 * MS, Rank::Soft)]);
    watch(&["h", "h", "s", "s", "full-others"], &children, &others);
    end(children);

    // Hard ones fill both CPUs but for best effort's own share and its servers.
    let children = vec![held(85 * MS, 100 * MS, Rank::Hard), held(85 * MS, 100 * MS, Rank::Hard)];
    let bound = [child(|| {
        guest::pin(1);
        burn()
    })];
    watch(&["h", "h", "bound"], &children, &bound);
    online(1, false);
    std::thread::sleep(Duration::from_millis(300));
    online(1, true);
    std::thread::sleep(Duration::from_millis(300));
    fact("alive", state());
    end(children);
    kill(&bound);
    kill(&others);
    signal(&service, libc::SIGINT);
    assert!(finish(service).0.success());

    let many = ["--policy", "edf-hsb-ns", "--best-effort-servers", "8:10ms:20ms"];
    let output = Command::new("/bin/scx_onbeat").args(many).output().unwrap();
    fact("too-many", String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "));
}
