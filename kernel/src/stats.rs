// SPDX-License-Identifier: GPL-2.0-only
//! Statistics in the way of the scx schedulers: a socket that describes itself, `--stats`,
//! `--monitor`, `--help-stats`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use onbeat_model::protocol::Reservation;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

/// One reservation.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "One reservation, totals since it was made", _om_prefix = "r_", _om_label = "id")]
pub struct Held {
    /// For people.
    #[stat(desc = "Name of the program")]
    pub name: String,
    /// Threads.
    #[stat(desc = "Threads that belong to it")]
    pub threads: u64,
    /// Budget.
    #[stat(desc = "Budget per period, ns")]
    pub budget_ns: u64,
    /// Period.
    #[stat(desc = "Period, ns")]
    pub period_ns: u64,
    /// Jobs.
    #[stat(desc = "Jobs finished")]
    pub jobs: u64,
    /// Misses.
    #[stat(desc = "Jobs finished after their deadline")]
    pub misses: u64,
    /// Owed jobs.
    #[stat(
        desc = "Jobs finished that exactly the budget in each period would have finished in time"
    )]
    pub owed: u64,
    /// Broken promises.
    #[stat(desc = "Owed jobs finished after their deadline")]
    pub owed_late: u64,
    /// How badly.
    #[stat(desc = "Greatest tardiness of an owed job, ns")]
    pub owed_tardiness_max_ns: u64,
    /// Exhaustions.
    #[stat(desc = "Times the budget was used up")]
    pub exhaustions: u64,
    /// CPU time.
    #[stat(desc = "CPU time received, ns")]
    pub consumed_ns: u64,
}

/// The scheduler as a whole.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    /// Reservations.
    #[stat(desc = "Reservations in force")]
    pub reservations: u64,
    /// Threads under them.
    #[stat(desc = "Threads under reservations")]
    pub reserved_threads: u64,
    /// Granted.
    #[stat(desc = "Reservations granted since the start")]
    pub granted: u64,
    /// Refused.
    #[stat(desc = "Reservations refused since the start")]
    pub refused: u64,
    /// Kicks.
    #[stat(desc = "CPUs made to pick again, in the interval")]
    pub kicks: u64,
    /// Ticks.
    #[stat(desc = "Budget timers that fired, in the interval")]
    pub timer_ticks: u64,
    /// Lateness.
    #[stat(desc = "Worst delay of a budget timer since the start, ns")]
    pub timer_late_max_ns: u64,
    /// Lock failures.
    #[stat(desc = "Times the scheduler's lock was not to be had, since the start")]
    pub lock_failed: u64,
    /// Timers.
    #[stat(desc = "Timers that could not be set at once, since the start")]
    pub timer_failed: u64,
    /// Pool.
    #[stat(desc = "Threads that found no place in the scheduler's memory, since the start")]
    pub threads_without_place: u64,
    /// Events.
    #[stat(desc = "Events recorded, in the interval")]
    pub events: u64,
    /// Lost ones.
    #[stat(desc = "Events lost for want of room, since the start")]
    pub events_lost: u64,
    /// Each reservation.
    #[stat(desc = "Each reservation")]
    pub held: BTreeMap<u32, Held>,
}

impl Metrics {
    /// From the service's counters and reservations.
    pub fn new(counters: &BTreeMap<String, u64>, held: Vec<Reservation>) -> Self {
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let one = |r: Reservation| {
            let held = Held {
                name: r.name,
                threads: r.threads.into(),
                budget_ns: r.budget_ns,
                period_ns: r.period_ns,
                jobs: r.jobs,
                misses: r.misses,
                owed: r.owed,
                owed_late: r.owed_late,
                owed_tardiness_max_ns: r.owed_tardiness_max_ns,
                exhaustions: r.exhaustions,
                consumed_ns: r.consumed_ns,
            };
            (r.id, held)
        };
        Self {
            reservations: count("reservations"),
            reserved_threads: count("reserved_threads"),
            granted: count("granted"),
            refused: count("refused"),
            kicks: count("kicks"),
            timer_ticks: count("timer_ticks"),
            timer_late_max_ns: count("timer_late_max_ns"),
            lock_failed: count("lock_failed"),
            timer_failed: count("timer_failed"),
            threads_without_place: count("threads_without_place"),
            events: count("events"),
            events_lost: count("events_lost"),
            held: held.into_iter().map(one).collect(),
        }
    }

    fn delta(&self, before: &Self) -> Self {
        Self {
            kicks: self.kicks - before.kicks,
            timer_ticks: self.timer_ticks - before.timer_ticks,
            events: self.events - before.events,
            ..self.clone()
        }
    }

    fn print(&self, w: &mut impl Write) -> Result<()> {
        writeln!(
            w,
            "[onbeat] reservations: {:>3} threads: {:>4} | kicks: {:>6} timers: {:>6} late: {:>5} us \
             | events: {:>7} lost: {}",
            self.reservations,
            self.reserved_threads,
            self.kicks,
            self.timer_ticks,
            self.timer_late_max_ns / 1000,
            self.events,
            self.events_lost,
        )?;
        for (id, r) in &self.held {
            writeln!(
                w,
                "  {id:>4} {:<24} jobs: {:>7} misses: {:>5} owed: {:>7} late: {:>3} exhausted: {:>5} \
                 cpu: {:>9.3} s",
                r.name,
                r.jobs,
                r.misses,
                r.owed,
                r.owed_late,
                r.exhaustions,
                r.consumed_ns as f64 / 1e9,
            )?;
        }
        Ok(())
    }
}

/// What the statistics socket serves: the latest of `now`, which the service keeps up to date.
pub fn server_data(now: &Arc<Mutex<Metrics>>) -> StatsServerData<(), ()> {
    let now = Arc::clone(now);
    let latest = move |now: &Mutex<Metrics>| now.lock().unwrap_or_else(|e| e.into_inner()).clone();
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let now = Arc::clone(&now);
        let mut before = latest(&now);
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |_, _| {
            let metrics = latest(&now);
            let delta = metrics.delta(&before);
            before = metrics;
            delta.to_json()
        });
        Ok(read)
    });
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(Held::meta())
        .add_ops("top", StatsOps { open, close: None })
}

/// Prints the statistics of the running scheduler each `interval` until told to stop.
///
/// # Errors
/// The output cannot be written.
pub fn monitor(interval: Duration, stop: &AtomicBool) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || stop.load(Ordering::Relaxed),
        |metrics| metrics.print(&mut std::io::stdout()),
    )
}
