// SPDX-License-Identifier: GPL-2.0-only
//! What an ordinary user may try against all others, until it is killed. Nobody waits for a heartbeat of these: what
//! counts is that the others' go on and that the scheduler stays.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use onbeat_client::{DEFAULT_SOCKET, Params, Service};

use crate::burn::spin;
use crate::sys;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;
/// The users that they are, each with a group of its own: more than the service listens to at a time.
const USERS: std::ops::Range<u32> = 65_500..65_512;
/// Threads of a herd, at most, and of one that fills the scheduler's table.
const HERD: usize = 700;
const FILL: usize = 3_000;
/// Bytes of a stack of these.
const STACK: usize = 32 << 10;
/// Those who have a reservation ask again so often: the scheduler may have been loaded anew.
const AGAIN: Duration = Duration::from_millis(500);

/// Plays one.
///
/// # Errors
/// There is no such role, or the system gives out.
pub fn play(role: &str, mut rng: Rng) -> Result<()> {
    let user = rng.u32(USERS);
    // SAFETY: these only take numbers; the group first, as its change needs root.
    if unsafe { libc::setgid(user) != 0 || libc::setuid(user) != 0 } {
        bail!("cannot become an ordinary user: {}", std::io::Error::last_os_error());
    }
    match role {
        // A budget that is next to nothing, and threads that never sleep.
        "hoarder" => {
            spinners(3);
            loop {
                reserve_for_me(&Params::new(50 * US, rng.u64(8 * SECOND..HOUR)));
            }
        }
        // A huge budget that sleeps, and a small one that would like to have it.
        "launderer" => {
            if let Some(donor) = sleeping_child() {
                reserve(donor, &Params::new(HOUR / 100 * rng.u64(20..80), HOUR));
            }
            spinners(1);
            loop {
                reserve_for_me(&Params::new(200 * US, MS));
            }
        }
        // Many that sleep, and wake all at once, on one CPU.
        "herd" => {
            let cpu = rng.u32(0..super::cpus());
            let beat = rng.u64(5..40) * MS;
            for _ in 0..rng.usize(60..HERD) {
                std::thread::spawn(move || {
                    let _ = sys::set_affinity(0, [cpu]);
                    loop {
                        sys::sleep_until((sys::monotonic() / beat + 1) * beat);
                        spin(30);
                    }
                });
            }
            loop {
                std::thread::sleep(AGAIN);
            }
        }
        // Ends of jobs that are none, by threads with names that are no text.
        "liar" => {
            for _ in 0..2 {
                let mut rng = rng.fork();
                std::thread::spawn(move || {
                    // SAFETY: a C string.
                    unsafe { libc::prctl(libc::PR_SET_NAME, c"\xff\xfe) R 1".as_ptr()) };
                    loop {
                        spin(rng.u64(1..600));
                        std::thread::yield_now();
                    }
                });
            }
            let budget = rng.u64(1..20) * MS;
            loop {
                reserve_for_me(&Params::new(budget, 40 * MS).marking_jobs());
            }
        }
        // Sleeps just before its turn or its budget ends, to collect.
        "collector" => {
            reserve_for_me(&Params::new(MS, 10 * MS));
            loop {
                spin(rng.u64(500..1_250));
                std::thread::sleep(Duration::from_micros(rng.u64(10..200)));
            }
        }
        // Connections that say nothing, or what is no request.
        "visitor" => loop {
            let mut open: Vec<_> =
                (0..12).filter_map(|_| UnixStream::connect(DEFAULT_SOCKET).ok()).collect();
            for stream in &mut open {
                let words: Vec<u8> = (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
                let _ = stream.write_all(&words);
            }
            std::thread::sleep(Duration::from_millis(rng.u64(0..2_000)));
        },
        // Thousands of threads that only sleep, and end together.
        "filler" => loop {
            let sleeps = Duration::from_millis(rng.u64(500..3_000));
            let one = || {
                std::thread::Builder::new().stack_size(STACK).spawn(move || {
                    std::thread::sleep(sleeps);
                })
            };
            let all: Vec<_> = (0..FILL).map_while(|_| one().ok()).collect();
            all.into_iter().for_each(|thread| drop(thread.join()));
        },
        // Reservations with odd periods, which come and go.
        "asker" => {
            let children: Vec<_> = (0..8).filter_map(|_| sleeping_child()).collect();
            loop {
                for &child in &children {
                    let period = rng.u64(HOUR - SECOND..HOUR) | 1;
                    let id = reserve(child, &Params::new(rng.u64(50 * US..SECOND), period));
                    std::thread::sleep(Duration::from_millis(rng.u64(0..100)));
                    if let Some(id) = id {
                        let _ = Service::connect().and_then(|mut s| s.release(id));
                    }
                }
            }
        }
        _ => bail!("no role {role}"),
    }
}

/// Threads that never sleep.
fn spinners(count: usize) {
    for _ in 0..count {
        std::thread::spawn(|| {
            loop {
                spin(25_000);
            }
        });
    }
}

/// Asks, and waits a moment. It may be refused, or have one already.
fn reserve_for_me(params: &Params) {
    reserve(std::process::id(), params);
    std::thread::sleep(AGAIN);
}

fn reserve(pid: u32, params: &Params) -> Option<u32> {
    let service = Service::connect().map(|s| s.waiting_at_most(Duration::ZERO));
    service.and_then(|mut s| s.reserve(pid, "attack", params)).ok().map(|grant| grant.id)
}

/// A child that only sleeps, and dies with us.
fn sleeping_child() -> Option<u32> {
    let parent = std::process::id();
    // SAFETY: the child only sleeps, and touches no lock.
    match unsafe { libc::fork() } {
        0 => unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // We may have been killed before it came so far.
            if libc::getppid() as u32 != parent {
                libc::_exit(0);
            }
            loop {
                libc::pause();
            }
        },
        pid => u32::try_from(pid).ok(),
    }
}
