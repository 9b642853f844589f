// SPDX-License-Identifier: GPL-2.0-only
//! A kernel thread that is bound to a CPU goes on while it has something to do. Needs QEMU and a fetched kernel
//! (`make setup`).

mod guest;

use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use guest::{fact, finish, pin, scheduler, signal};
use onbeat_kernel::machine::monotonic;
use onbeat_lab::Flavour;
use onbeat_model::units::MS;

/// Packets of a burst: the kernel queues a thousand.
const BURST: usize = 900;
const BURSTS: usize = 6;
/// Instructions that each packet costs where it arrives: 10 ms for a burst, more than a slice.
const FILTER: u16 = 4000;
const MOST: u64 = 2_000 * MS;

/// With its slice over, and nobody else there, the CPU had picked nobody before the thread was in its queue, and idled
/// until something else woke it: packets waited for 430 ms.
#[test]
fn packets_are_dealt_with_at_once_on_an_interrupt_cpu_that_does_nothing_else() {
    let program = Path::new(env!("CARGO_BIN_EXE_scx_onbeat"));
    let facts = guest::facts(Flavour::Plain, 2, &[program]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(facts["lost"], "0");
    let worst: f64 = facts["worst-ms"].parse().unwrap();
    println!("{worst} ms at most");
    assert!(worst < 40.0, "a packet took {worst} ms");
}

// In the guest.

/// # Panics
/// The kernel refuses it.
fn set<T>(socket: RawFd, option: i32, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: a value of that size.
    let done = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, option, (&raw const *value).cast(), size)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The loopback device is up, and CPU 1 deals with what arrives.
fn loopback(socket: RawFd) {
    // SAFETY: a zeroed request, then one with a name.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request), 0);
    }
    fs::write("/sys/class/net/lo/queues/rx-0/rps_cpus", "2").unwrap();
}

/// Each packet costs so many instructions before it is in the socket's queue.
fn dear(socket: RawFd) {
    let step = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let multiply = step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, 12345);
    let mut filter = vec![multiply; usize::from(FILTER)];
    *filter.last_mut().unwrap() = step(libc::BPF_RET | libc::BPF_K, 0xffff);
    let program = libc::sock_fprog { len: FILTER, filter: filter.as_mut_ptr() };
    set(socket, libc::SO_ATTACH_FILTER, &program);
    set(socket, libc::SO_RCVBUFFORCE, &(4 << 20));
}

#[test]
#[ignore = "the guest's side"]
fn in_the_guest() {
    let scheduler = scheduler(&["--interrupt-cpu=1"]);
    pin(0);
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    loopback(sender.as_raw_fd());
    let receiver = UdpSocket::bind("127.0.0.1:7777").unwrap();
    receiver.set_nonblocking(true).unwrap();
    dear(receiver.as_raw_fd());
    let (mut worst, mut lost) = (0, 0);
    for _ in 0..BURSTS {
        let begin = monotonic();
        for _ in 0..BURST {
            sender.send_to(&monotonic().to_ne_bytes(), "127.0.0.1:7777").unwrap();
        }
        let (mut came, mut sent) = (0, [0; 8]);
        while came < BURST && monotonic() < begin + MOST {
            match receiver.recv(&mut sent) {
                Ok(_) => {
                    came += 1;
                    worst = worst.max(monotonic() - u64::from_ne_bytes(sent));
                }
                Err(_) => std::thread::sleep(Duration::from_micros(500)),
            }
        }
        lost += BURST - came;
        std::thread::sleep(Duration::from_millis(30));
    }
    fact("worst-ms", worst as f64 / MS as f64);
    fact("lost", lost);
    signal(&scheduler, libc::SIGTERM);
    finish(scheduler);
}
