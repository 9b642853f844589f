// SPDX-License-Identifier: GPL-2.0-only
//! What the children do, until they are killed.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::attacks;
use super::board::{Board, CREW};
use crate::burn::spin;
use crate::sys;

/// Roles, and how many slots each uses; those with none are attacks.
pub const ROLES: [(&str, usize); 17] = [
    ("sleeper", 1),
    ("waker", 2),
    ("forker", 1),
    ("spawner", 1),
    ("burner", 1),
    ("yielder", 1),
    ("threads", CREW),
    ("execer", 1),
    ("pinner", 2),
    ("hoarder", 0),
    ("launderer", 0),
    ("herd", 0),
    ("liar", 0),
    ("collector", 0),
    ("visitor", 0),
    ("filler", 0),
    ("asker", 0),
];
/// So many of them sleep often enough to be given a real-time class for a moment.
pub const SLEEPY: usize = 4;

/// The words that start a child of this program.
pub fn words(role: &str, slot: usize, board: RawFd, seed: u64) -> Vec<String> {
    let (slot, board, seed) = (slot.to_string(), board.to_string(), seed.to_string());
    ["--role", role, "--slot", &slot, "--board", &board, "--seed", &seed]
        .map(ToString::to_string)
        .to_vec()
}

fn pause(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

fn work(rng: &mut Rng) {
    spin(rng.u64(64..25_000));
}

/// Plays a role.
///
/// # Errors
/// There is no such role, or the system gives out.
pub fn play(role: &str, fd: RawFd, slot: usize, seed: u64) -> Result<()> {
    let board = Board::open(fd)?;
    let mut rng = Rng::with_seed(seed);
    let beat = |of: usize| board.beat(slot + of);
    match role {
        "sleeper" => loop {
            work(&mut rng);
            beat(0);
            pause(rng.u64(50..20_000));
        },
        "waker" => wake_each_other(rng, beat),
        "forker" => loop {
            fork_and_wait(rng.u64(64..12_500));
            beat(0);
            pause(rng.u64(0..5_000));
        },
        "spawner" => loop {
            let amount = rng.u64(64..12_500);
            std::thread::scope(|s| {
                for _ in 0..rng.u8(1..4) {
                    s.spawn(|| spin(amount));
                }
            });
            beat(0);
            pause(rng.u64(0..3_000));
        },
        "burner" => loop {
            work(&mut rng);
            beat(0);
        },
        "yielder" => loop {
            spin(rng.u64(64..6_250));
            beat(0);
            // Also the mark of a job's end, if the reservation is one with marks.
            std::thread::yield_now();
        },
        "threads" => crowd(CREW, &mut rng, |of, rng| {
            work(rng);
            beat(of);
            if of % 2 == 0 {
                pause(rng.u64(50..5_000));
            }
        }),
        "execer" => {
            for _ in 0..rng.u8(1..20) {
                work(&mut rng);
                beat(0);
                pause(rng.u64(0..3_000));
            }
            let again = words(role, slot, fd, rng.u64(..));
            Err(Command::new("/proc/self/exe").args(again).exec().into())
        }
        // Each thread is bound to a CPU of its own choice, which it changes all the time.
        "pinner" => crowd(2, &mut rng, |of, rng| {
            // It may be off line: then the old one stays.
            let _ = sys::set_affinity(0, [rng.u32(0..super::cpus())]);
            work(rng);
            beat(of);
        }),
        attack => attacks::play(attack, rng),
    }
}

/// So many threads that do something over and over.
fn crowd(threads: usize, rng: &mut Rng, act: impl Fn(usize, &mut Rng) + Sync) -> ! {
    std::thread::scope(|s| {
        for of in 0..threads {
            let (mut rng, act) = (rng.fork(), &act);
            s.spawn(move || {
                loop {
                    act(of, &mut rng);
                }
            });
        }
    });
    unreachable!("they never end")
}

/// Two threads that wake each other.
fn wake_each_other(mut rng: Rng, beat: impl Fn(usize) + Sync) -> Result<()> {
    let ((to_b, from_a), (to_a, from_b)) = (sync_channel(0), sync_channel(0));
    let mut rng_b = rng.fork();
    std::thread::scope(|s| {
        let beat = &beat;
        s.spawn(move || {
            while from_a.recv().is_ok() {
                spin(rng_b.u64(6..3_125));
                beat(1);
                let _ = to_a.send(());
            }
        });
        loop {
            to_b.send(())?;
            from_b.recv()?;
            beat(0);
            spin(rng.u64(6..3_125));
        }
    })
}

fn fork_and_wait(amount: u64) {
    // SAFETY: the child only counts and leaves, and touches no lock.
    match unsafe { libc::fork() } {
        0 => {
            spin(amount);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) };
        }
        -1 => pause(1_000),
        // SAFETY: our own child.
        pid => unsafe {
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        },
    }
}
