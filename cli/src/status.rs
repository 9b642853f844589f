// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat status` and `onbeat release`: what is reserved, and giving it back; `onbeat status --beats`: who has a
//! rhythm; `--watch`: again and again.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

mod beats;
mod watch;

use crate::arguments::{Time, interval};
use crate::launch::service;
use crate::output::print;
use onbeat_kernel::machine::name_cpus;
use onbeat_model::protocol::{Request, Response};
use onbeat_model::units::{Fraction, format_duration};

/// Show which reservations there are and what they have received
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat status")]
pub struct Options {
    /// Show which threads wake in a rhythm instead, reserved or not, and what they use; ordinary users see their own
    #[arg(long)]
    beats: bool,
    /// Print the service's answer as JSON, which docs/json.md explains; with --watch one line each time
    #[arg(long)]
    json: bool,
    /// Print it again each INTERVAL [1s if none is given], until nobody reads it any more
    #[arg(long, value_name = "INTERVAL", value_parser = interval, num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<Time>,
}

/// Give a reservation back; its program goes on without it
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat release 3")]
pub struct ReleaseOptions {
    /// The reservation's ID, as `onbeat status` shows it
    #[arg(value_parser = id, allow_hyphen_values = true)]
    id: u32,
}

fn id(text: &str) -> Result<u32, &'static str> {
    text.parse()
        .map_err(|_| "no reservation has such an ID; write the number that `onbeat status` shows")
}

fn percent(x: Fraction) -> String {
    format!("{:.1}%", 100.0 * *x.numer() as f64 / *x.denom() as f64)
}

/// Prints the reservations, or the rhythms.
pub fn run(options: &Options) -> Result<ExitCode> {
    let request = if options.beats { Request::Beats } else { Request::Status };
    if let Some(interval) = options.watch {
        let show = |answer| match options.json {
            true => Ok(serde_json::to_string(&answer)? + "\n"),
            false => Ok(shown(answer)? + "\n"),
        };
        watch::watch(&request, Duration::from_nanos(interval), show)?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = service()?.ask(&request)?;
    match options.json {
        true => print(&(serde_json::to_string_pretty(&answer)? + "\n"))?,
        false => print(&shown(answer)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer for people.
fn shown(answer: Response) -> Result<String> {
    match answer {
        Response::Beats { threads, left_out } => Ok(beats::text(&threads, left_out)),
        status => text(status),
    }
}

/// The answer for people: what is free, a line for each reservation, and where an owed job was late, by how much.
fn text(answer: Response) -> Result<String> {
    let Response::Status {
        policy, cpus, reserved, free, reservations, sets, interrupt_cpu, ..
    } = answer
    else {
        bail!("the service gave an unexpected answer; use the same version on both sides");
    };
    let mut text = String::new();
    let mut line = |name: String, policy: &str, cpus: &[u32], reserved, free| {
        let (reserved, free) = (percent(reserved), percent(free));
        let cpus = name_cpus(cpus);
        let _ =
            writeln!(text, "{name}{policy} on {cpus}: {reserved} of a CPU reserved, {free} free");
    };
    if sets.len() > 1 {
        for set in &sets {
            let there: Vec<u32> = set.cpus.iter().copied().filter(|c| cpus.contains(c)).collect();
            line(format!("{}: ", set.name), &set.policy, &there, set.reserved, set.free);
        }
    } else {
        line(String::new(), &policy, &cpus, reserved, free);
    }
    if let Some(cpu) = interrupt_cpu {
        let _ = writeln!(text, "CPU {cpu} is kept for interrupts");
    }
    if !reservations.is_empty() {
        let _ = writeln!(
            text,
            "{:>4} {:>8} {:>6} {:<20} {:>10} {:>10} {:>7} {:>8} {:>6} {:>8} {:>9} {:>9}",
            "ID",
            "PID",
            "UID",
            "NAME",
            "BUDGET",
            "PERIOD",
            "THREADS",
            "JOBS",
            "LATE",
            "OWED",
            "OWED LATE",
            "CPU TIME"
        );
        if sets.len() > 1 {
            text.truncate(text.trim_end().len());
            text.push_str("  SET\n");
        }
    }
    for r in &reservations {
        let set = if sets.len() > 1 { format!("  {}", r.set) } else { String::new() };
        let _ = writeln!(
            text,
            "{:>4} {:>8} {:>6} {:<20} {:>10} {:>10} {:>7} {:>8} {:>6} {:>8} {:>9} {:>8.2}s{set}",
            r.id,
            r.pid,
            r.uid,
            r.name,
            format_duration(r.budget_ns),
            format_duration(r.period_ns),
            r.threads,
            r.jobs,
            r.misses,
            r.owed,
            r.owed_late,
            r.consumed_ns as f64 / 1e9
        );
    }
    for r in reservations.iter().filter(|r| r.owed_late > 0) {
        let worst = r.owed_tardiness_max_ns as f64 / 1e6;
        let jobs = if r.owed_late == 1 { "job was" } else { "jobs were" };
        let _ = writeln!(
            text,
            "reservation {} ({}): {} owed {jobs} late, by {worst:.2}ms at worst",
            r.id, r.name, r.owed_late
        );
    }
    Ok(text)
}

/// Gives one back.
pub fn release(options: &ReleaseOptions) -> Result<ExitCode> {
    let got = service()?.release(options.id)?;
    complain!("onbeat: reservation {} ({}) is given back", got.id, got.name);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_model::protocol::{Reservation, Set};

    fn status(reservations: Vec<Reservation>) -> String {
        let (reserved, free) = (Fraction::new(1, 2), Fraction::new(7, 5));
        let answer = Response::Status {
            policy: "g-edzl+cbs".into(),
            cpus: vec![0, 1],
            reserved,
            free,
            reservations,
            sets: vec![],
            best_effort: "fair".into(),
            interrupt_cpu: None,
            reserved_cpus: reserved.into(),
            free_cpus: free.into(),
            time_ns: 1,
            per_cpu: vec![],
        };
        text(answer).unwrap()
    }

    #[test]
    fn each_set_has_its_line_and_each_reservation_names_its_own() {
        let half = Fraction::new(1, 2);
        let set = |name: &str, cpus: &[u32], policy: &str| Set {
            name: name.into(),
            cpus: cpus.into(),
            policy: policy.into(),
            reserved: half,
            free: half,
            reserved_cpus: half.into(),
            free_cpus: half.into(),
        };
        let sets = vec![set("default", &[0, 3], "g-edzl+cbs"), set("b", &[1, 2], "p-edf+cbs")];
        let reservation = Reservation { id: 1, set: "b".into(), ..Default::default() };
        let text = text(Response::Status {
            policy: "g-edzl+cbs".into(),
            cpus: vec![0, 1, 2],
            reserved: half,
            free: half,
            reservations: vec![reservation],
            sets,
            best_effort: "fair".into(),
            interrupt_cpu: Some(4),
            reserved_cpus: half.into(),
            free_cpus: half.into(),
            time_ns: 1,
            per_cpu: vec![],
        })
        .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "default: g-edzl+cbs on CPU 0: 50.0% of a CPU reserved, 50.0% free",
                "b: p-edf+cbs on CPUs 1-2: 50.0% of a CPU reserved, 50.0% free",
                "CPU 4 is kept for interrupts",
            ]
        );
        assert!(lines[3].ends_with("  SET") && lines[4].ends_with("s  b"), "{text}");
    }

    #[test]
    fn owed_jobs_and_late_ones_of_them_stand_under_their_heads() {
        let kept = Reservation { id: 1, jobs: 1000, misses: 70, owed: 930, ..Default::default() };
        let broken = Reservation {
            id: 2,
            name: "player".into(),
            owed: 900,
            owed_late: 2,
            owed_tardiness_max_ns: 4_120_000,
            ..kept.clone()
        };
        let text = status(vec![kept, broken]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "g-edzl+cbs on CPUs 0-1: 50.0% of a CPU reserved, 140.0% free");
        let ends = |line: &str, what: &str| line.find(what).map(|at| at + what.len());
        for (head, first, second) in [(" OWED", " 930", " 900"), ("OWED LATE", " 0 ", " 2 ")] {
            let end = ends(lines[1], head).unwrap();
            assert!(lines[2][..=end].ends_with(&format!("{} ", first.trim_end())), "{text}");
            assert!(lines[3][..=end].ends_with(&format!("{} ", second.trim_end())), "{text}");
        }
        let more = "reservation 2 (player): 2 owed jobs were late, by 4.12ms at worst";
        assert_eq!(lines[4..], [more], "{text}");
    }

    #[test]
    fn without_reservations_there_is_no_table() {
        assert_eq!(status(vec![]).lines().count(), 1);
    }
}
