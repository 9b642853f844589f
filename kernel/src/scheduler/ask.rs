// SPDX-License-Identifier: GPL-2.0-only
//! Requests: laid into the shared memory, and carried out by the kernel side in a moment, not by the program that is
//! called here (`kernel/src/bpf/requests.bpf.h` says why).

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libbpf_rs::ProgramInput;

use super::Scheduler;
use crate::arena::shell;

/// So long a request may take. It waits for a timer, or for a CPU's next look at its clock; in the worst case for one
/// that the kernel had no memory for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has been answered: at first, and at most.
const LOOKS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

impl Scheduler<'_> {
    /// Asks the kernel side for what `kind` says and `fill` describes; returns that with the answer.
    pub(super) fn ask(
        &mut self,
        kind: shell::shell_kind,
        fill: impl FnOnce(&mut shell::shell_request),
    ) -> Result<shell::shell_request> {
        let mut request = shell::shell_request { kind, ..Default::default() };
        fill(&mut request);
        self.arena.ask(request);
        let (begin, mut look) = (Instant::now(), LOOKS[0]);
        loop {
            // Told again, it sets the timer if that could not be had before.
            if let Err(e) = self.wake()
                && self.arena.withdraw()
            {
                return Err(e);
            }
            if let Some(answer) = self.arena.answer() {
                if answer.result != 0 {
                    bail!("the scheduler in the kernel answered {}", answer.result);
                }
                return Ok(answer);
            }
            if (self.exited() || begin.elapsed() > PATIENCE) && self.arena.withdraw() {
                bail!("the scheduler in the kernel does not answer");
            }
            sleep(look);
            look = (2 * look).min(LOOKS[1]);
        }
    }

    fn wake(&mut self) -> Result<()> {
        let out = self.skel.progs.ask.test_run(ProgramInput::default());
        let value = out.context("calling the scheduler in the kernel")?.return_value;
        if value != 0 {
            bail!("the scheduler in the kernel answered {value}");
        }
        Ok(())
    }
}
