// SPDX-License-Identifier: GPL-2.0-only
//! Reserves 5 ms of CPU time every 20 ms and uses a little of it, ten times; beat.c in Rust.

use onbeat_client::{Beat, Error, Params, Reservation};

const MS: u64 = 1_000_000;

fn main() -> Result<(), Error> {
    let params = Params::new(5 * MS, 20 * MS).marking_jobs();
    let reservation = Reservation::of_this_process("beat", &params)?;
    let mut beat = Beat::marked(20 * MS);
    for job in 0..10 {
        let late = beat.wait();
        println!("job {job} begins {late:?} after its release");
        std::hint::black_box((0..500_000u64).sum::<u64>());
    }
    let got = reservation.release()?;
    println!("{} jobs, {} misses, {} ns of CPU time", got.jobs, got.misses, got.consumed_ns);
    Ok(())
}
