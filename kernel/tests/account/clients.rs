// SPDX-License-Identifier: GPL-2.0-only
//! What an ordinary user's connections, requests, names and ends do to others.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use onbeat_client::{Params, Service, socket};
use onbeat_model::protocol::Request;

use crate::guest::{burn, child, fact, facts_of_two_cpus, finish, kill, part, soon, start};
use crate::{MS, USER, held};

/// Users who open all the connections that they may.
const CROWD: u32 = 9;
/// Requests that users may have said in the log.
const REQUESTS: usize = 200;
/// Rounds of a program that ends while it is asked for, by microseconds after the request.
const ROUNDS: u64 = 10;
/// Cut where the kernel cuts names, within a letter.
const NAME: &std::ffi::CStr = c"éééééééé";

fn said(name: &str) -> &'static str {
    &facts_of_two_cpus(env!("CARGO_BIN_EXE_scx_onbeat"))[name]
}

#[test]
fn silent_connections_of_nine_users_shut_out_neither_root_nor_another_user() {
    assert!(said("crowd-open").parse::<u32>().unwrap() > 300, "{}", said("crowd-open"));
    assert_eq!(said("crowd-root"), "true");
    assert_eq!(said("crowd-user"), "Ok(\"granted\")");
}

#[test]
fn what_a_user_asks_for_again_and_again_does_not_fill_the_log() {
    assert_eq!(said("flood-asked").parse(), Ok(REQUESTS));
    // 40 at once, one a second, and how many were left out.
    let lines: usize = said("flood-lines").parse().unwrap();
    assert!((10..120).contains(&lines), "{lines} lines");
}

#[test]
fn a_name_that_is_no_text_hides_no_process_from_the_check_of_its_owner() {
    assert!(said("name-foreign").contains("does not belong to user"), "{}", said("name-foreign"));
    assert_eq!(said("name-own"), "Ok(\"granted\")");
}

#[test]
fn who_comes_to_have_the_number_of_one_that_ended_is_not_served_in_its_place() {
    assert_eq!(said("reuse-rounds").parse(), Ok(ROUNDS));
    assert!(said("reuse-same").parse::<u64>().unwrap() > ROUNDS / 2, "{}", said("reuse-same"));
    assert_eq!(said("reuse-served"), "0");
}

// In the guest.

/// Beside a service.
pub fn all() {
    crowd();
    names();
    reuse();
    flood();
}

/// Test `name`, as a user's program.
pub fn as_user(name: &str, uid: u32) -> std::process::Command {
    let mut command = part(name);
    command.uid(uid).gid(uid);
    command
}

/// What it prints after a mark, a line at a time.
pub fn lines(program: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| Some(line.split_once("SAYS ")?.1.to_owned()))
}

fn granted(answer: Result<onbeat_client::Grant, onbeat_client::Error>) -> String {
    format!("{:?}", answer.map(|_| "granted").map_err(|e| e.to_string()))
}

fn crowd() {
    let mut open = 0;
    let mut users: Vec<Child> = (0..CROWD)
        .map(|i| {
            let mut user = start(&mut as_user("clients::holder", 2000 + i));
            open += lines(&mut user).next().unwrap().parse::<u32>().unwrap();
            user
        })
        .collect();
    fact("crowd-open", open);
    fact("crowd-root", Service::connect().is_ok_and(|mut s| s.ask(&Request::Status).is_ok()));
    let mut asker = start(&mut as_user("clients::asker", USER));
    fact("crowd-user", lines(&mut asker).next().unwrap());
    finish(asker);
    for user in &mut users {
        user.kill().unwrap();
        user.wait().unwrap();
    }
}

#[test]
#[ignore = "the guest's user"]
fn holder() {
    let mut open: Vec<UnixStream> = Vec::new();
    while open.len() < 100 {
        let Ok(stream) = UnixStream::connect(socket()) else { break };
        open.push(stream);
    }
    // Those that the service has taken and not closed.
    std::thread::sleep(Duration::from_millis(300));
    open.retain(|stream| {
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let ended = std::io::Read::read(&mut &*stream, &mut byte);
        ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    });
    println!("SAYS {}", open.len());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
#[ignore = "the guest's user"]
fn asker() {
    let own = child(|| burn());
    let params = Params::new(MS, 20 * MS);
    println!("SAYS {}", granted(Service::connect().unwrap().reserve(own as u32, "own", &params)));
    kill(&[own]);
}

fn rename() {
    // SAFETY: the name ends.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
}

fn names() {
    let root = child(|| {
        rename();
        std::thread::sleep(Duration::from_secs(600));
    });
    let name = format!("/proc/{root}/comm");
    assert!(soon(|| std::fs::read_to_string(&name).is_err()), "the name is text");
    let mut user = start(as_user("clients::named", USER).env("FOREIGN", root.to_string()));
    let mut lines = lines(&mut user);
    fact("name-foreign", lines.next().unwrap());
    fact("name-own", lines.next().unwrap());
    finish(user);
    kill(&[root]);
    assert!(soon(|| held().is_empty()));
}

#[test]
#[ignore = "the guest's user"]
fn named() {
    let foreign: u32 = std::env::var("FOREIGN").unwrap().parse().unwrap();
    let params = Params::new(MS, 20 * MS);
    let mut service = Service::connect().unwrap();
    println!("SAYS {}", granted(service.reserve(foreign, "foreign", &params)));
    rename();
    let own = child(|| {
        rename();
        std::thread::sleep(Duration::from_secs(600));
    });
    std::thread::sleep(Duration::from_millis(50));
    println!("SAYS {}", granted(service.reserve(own as u32, "own", &params)));
    kill(&[own]);
}

/// A user's program ends while it is asked for, and root's next one has its number.
fn reuse() {
    let last = Path::new("/proc/sys/kernel/ns_last_pid");
    let mut user = start(&mut as_user("clients::racer", USER));
    let (mut rounds, mut same, mut served) = (0, 0, 0);
    for pid in lines(&mut user) {
        let pid: i32 = pid.parse().unwrap();
        std::fs::write(last, (pid - 1).to_string()).unwrap();
        let root = child(|| burn());
        same += u64::from(root == pid);
        std::thread::sleep(Duration::from_millis(30));
        let theirs = |id: i32| held().iter().any(|r| r.uid == USER && r.pid as i32 == id);
        // What ended is given back within moments, what serves another stays.
        served += u64::from(!soon_within(Duration::from_secs(2), || !theirs(root)));
        kill(&[root]);
        rounds += 1;
    }
    finish(user);
    fact("reuse-rounds", rounds);
    fact("reuse-same", same);
    fact("reuse-served", served);
}

fn soon_within(time: Duration, mut is: impl FnMut() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while !is() {
        if begin.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
#[ignore = "the guest's user"]
fn racer() {
    for round in 0..ROUNDS {
        let own = child(|| burn());
        let mut service = Service::connect().unwrap();
        let asked = std::thread::spawn(move || {
            let _ = service.reserve(own as u32, "short", &Params::new(MS, 20 * MS));
        });
        std::thread::sleep(Duration::from_micros(round * 60));
        kill(&[own]);
        println!("SAYS {own}");
        let _ = asked.join();
        std::thread::sleep(Duration::from_millis(60));
    }
}

fn flood() {
    let mut user = start(&mut as_user("clients::flooder", USER));
    fact("flood-asked", lines(&mut user).next().unwrap());
    finish(user);
}

#[test]
#[ignore = "the guest's user"]
fn flooder() {
    let own = child(|| std::thread::sleep(Duration::from_secs(600)));
    let mut service = Service::connect().unwrap();
    let mut asked = 0;
    while asked < REQUESTS {
        let answer = service.reserve(own as u32, "flood", &Params::new(MS, 20 * MS));
        if let Ok(grant) = answer {
            let _ = service.release(grant.id);
        }
        asked += 1;
    }
    println!("SAYS {asked}");
    kill(&[own]);
}
