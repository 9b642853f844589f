// SPDX-License-Identifier: GPL-2.0-only
//! Policies swapped at random while all else happens.

use std::fmt;

use anyhow::Result;
use onbeat_client::{Error, Service};
use onbeat_model::others::Others;
use onbeat_model::policy::CORE;
use onbeat_model::protocol::{Request, Response};
use onbeat_model::taskset::DEFAULT_SET;

use super::conductor::{Conductor, answer};
use super::cpus;

/// The set of the upper half of the CPUs.
pub const HALF: &str = "half";

/// What of swaps there was.
#[derive(Debug, Default)]
pub struct Swaps {
    /// Policies or orders that were others afterwards.
    pub done: u64,
    /// The service said no.
    refused: u64,
    /// Reservations that went on, the most at a time and in all.
    most: usize,
    all: u64,
    /// The longest that one took, and all together, ns.
    longest: u64,
    sum: u64,
}

impl fmt::Display for Swaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, refused, most, all, longest, sum } = self;
        if done + refused == 0 {
            return Ok(());
        }
        let us = |ns: u64| ns / 1000;
        write!(
            f,
            ", {done} swaps ({refused} refused) of {all} reservations, {most} at most, in {} us at most, \
             {} us on average",
            us(*longest),
            us(sum / (*done).max(1))
        )
    }
}

/// Options of `scx_onbeat` for it.
pub fn options() -> Vec<String> {
    let half = cpus().div_ceil(2);
    let set = format!("--set={HALF}={half}-{}:p-edf+cbs-hard:1", cpus() - 1);
    (cpus() > 1).then_some(set).into_iter().collect()
}

impl Conductor {
    /// Swaps the policy of a set, or best effort's order.
    pub(super) fn swap(&mut self) -> Result<()> {
        let set = if cpus() > 1 && self.rng.bool() { HALF } else { DEFAULT_SET };
        let policy = CORE[self.rng.usize(0..CORE.len())].name;
        let order = Others::ALL[self.rng.usize(0..Others::ALL.len())].name();
        let asked = match self.rng.u8(0..5) {
            0 => Request::Reorder { order: order.into() },
            _ => Request::Swap { set: set.into(), policy: policy.into() },
        };
        let done: Result<Response, Error> = Service::connect().and_then(|mut s| s.ask(&asked));
        match &done {
            Ok(Response::Swapped { from, to, reservations, took_ns }) if from != to => {
                let swaps = &mut self.swaps;
                swaps.done += 1;
                swaps.most = swaps.most.max(*reservations);
                swaps.all += *reservations as u64;
                swaps.longest = swaps.longest.max(*took_ns);
                swaps.sum += took_ns;
            }
            Ok(_) => {}
            Err(_) => self.swaps.refused += 1,
        }
        let done = answer(done)?;
        self.remember(&format!("{asked:?}: {done}"));
        Ok(())
    }
}
