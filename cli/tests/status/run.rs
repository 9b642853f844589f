// SPDX-License-Identifier: GPL-2.0-only
//! What `onbeat run` tells programs, and what it gives back.

use std::process::{Command, Stdio};

use onbeat_model::protocol::{Request, Reservation};

use super::fake::Fake;
use super::{compare, onbeat};
use crate::common::{complaint, object};

const MS: u64 = 1_000_000;

#[test]
fn each_field_that_run_tells_is_in_the_documentation_and_each_there_is_one() {
    let fake = Fake::start("g-edf+cbs");
    // What the program needs is as if it had been seen.
    fake.world().work = vec![(5 * MS, 1); 20];
    let run = |words: &[&str]| {
        let all = [&["run", "--json"], words].concat();
        object(&onbeat(&all, &fake.socket()).output().unwrap())
    };
    let had = run(&["--fps", "25", "--", "sleep", "0.4"]);
    assert_eq!(had["measured"]["max_ns"], 5 * MS, "{had}");
    let nothing = run(&["--", "sleep", "0"]);
    assert_eq!(nothing["reserved"], false, "{nothing}");
    compare("onbeat run", &["status"], &[had, nothing]);
}

#[test]
fn ctrl_c_gives_back_the_reservation_of_a_process_and_not_what_has_come_to_have_its_number() {
    for taken in [false, true] {
        let fake = Fake::start("g-edf+cbs");
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = sleeper.id().to_string();
        let words = ["run", "--period", "40ms", "--budget", "5ms", "--pid", &pid];
        let child = onbeat(&words, &fake.socket()).stderr(Stdio::piped()).spawn().unwrap();
        fake.until("it is reserved", |world| !world.held.is_empty());
        if taken {
            // Somebody gives it back, and somebody else's is the next of that number.
            let held = &mut fake.world().held;
            let id = held[0].0.id;
            *held = vec![(Reservation { id, pid: 1, ..Default::default() }, u64::MAX)];
        }
        // SAFETY: neither child has been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let output = child.wait_with_output().unwrap();
        let _ = sleeper.kill();
        sleeper.wait().unwrap();
        let world = fake.world();
        assert_eq!(world.held.len(), usize::from(taken), "{}", complaint(&output));
        let released = |r: &&Request| matches!(r, Request::Release { own: false, .. });
        assert_eq!(world.asked.iter().find(released), None, "it names only what is its own");
        assert_eq!(output.status.success(), !taken, "{}", complaint(&output));
    }
}
