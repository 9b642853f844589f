// SPDX-License-Identifier: GPL-2.0-only
//! The options of `onbeat run`, and what they ask for.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use onbeat_client::Params;
use onbeat_model::rank::Rank;

use crate::arguments::{Budget, Cpus, Time, budget, cpus, duration, rate};
use crate::output::whole;

/// Run a program with a reservation: BUDGET of CPU time in every PERIOD
///
/// The reservation covers the program, its threads and its children; nothing about the program
/// needs to change. If no reservation service runs and this is run as root, the scheduler is
/// loaded for the time of the run.
///
/// Without a budget, or without both (--auto), the program is measured: how often it works, and
/// how much CPU time it then needs. That is reserved, and kept up to date. At the end standard
/// error says which numbers would have been enough.
///
/// With --pid the reservation is for a process that runs already, until that ends or Ctrl-C: then
/// it goes on without.
///
/// On exit, standard error says what the program got. A program that leaves processes behind
/// keeps its reservation until they have ended, or `onbeat release` ends it. If the service ends
/// the program goes on without a reservation, and has it again when the service is back; both are
/// said at once.
///
/// Exit status: the program's own (128 + N if signal N killed it); 75 the reservation does not fit;
/// 125 Onbeat failed, the options make no sense, or the program ended well but was without its
/// reservation for a while; 126 the program cannot be executed; 127 there is no such program.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(before_help = "Example: onbeat run --fps 24 --budget 60% mpv film.mkv")]
pub struct Options {
    /// Time between releases of work, such as 41.7ms; or --fps, or --hz. (`onbeat status --beats` tells the rhythms
    /// of programs that run)
    #[arg(short, long, value_parser = duration, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["fps", "hz"])]
    pub(super) period: Option<Time>,
    /// Frames a second, such as 24 or 59.94
    #[arg(long, value_name = "N", value_parser = rate, allow_hyphen_values = true, conflicts_with = "hz")]
    pub(super) fps: Option<Time>,
    /// How often a second work is released, such as 1000
    #[arg(long, value_name = "N", value_parser = rate, allow_hyphen_values = true)]
    pub(super) hz: Option<Time>,
    /// CPU time in each period, such as 25ms or 60% [default: measured, and kept up to date]
    #[arg(short, long, value_parser = budget, allow_hyphen_values = true)]
    pub(super) budget: Option<Budget>,
    /// Measure the program; the same as neither period nor budget
    #[arg(long, conflicts_with = "budget")]
    pub(super) auto: bool,
    /// Process that runs already, in place of a program to run
    #[arg(long, value_name = "PID", allow_hyphen_values = true, conflicts_with = "program")]
    #[arg(value_parser = whole::<u32>(0..=u32::MAX.into()))]
    pub(super) pid: Option<u32>,
    /// Time from release until the work must be done [default: the period]
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    pub(super) deadline: Option<Time>,
    /// CPUs to be served on, such as 0-3,6 [default: all the program may use]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub(super) cpus: Option<Cpus>,
    /// Group that serves it, see `onbeat group` [default: none]
    #[arg(long, value_name = "NAME")]
    pub(super) group: Option<String>,
    /// Class, hard or soft, under a policy that ranks, such as edf-hsb [default: soft]
    #[arg(long, value_name = "CLASS")]
    pub(super) class: Option<Rank>,
    /// What a job is worth that ends in time, 1 to 1000000, under a policy that chooses between jobs, such as g-dasa
    /// [default: what the budget is in ms]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) value: Option<u64>,
    /// Purse that it takes from, too, see `onbeat purse` [default: none]
    #[arg(long, value_name = "NAME")]
    pub(super) purse: Option<String>,
    /// Set of CPUs that serves it, see `onbeat policy` [default: the first with a CPU it may use]
    #[arg(long, value_name = "NAME")]
    pub(super) set: Option<String>,
    /// Policy, if the scheduler is loaded for this run; else it must be the running one
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub(super) policy: Option<String>,
    /// Load the scheduler even if its policy lets one reservation make others late
    #[arg(long)]
    pub(super) no_isolation: bool,
    /// Print what the program got as JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// The program marks its jobs through Onbeat's library
    #[arg(long)]
    pub(super) marks: bool,
    /// Shell command to run when the reservation is lost, released, restored, refused, shrunk, grown, unguaranteed or
    /// guaranteed: ONBEAT_CHANGE says which
    #[arg(long, value_name = "COMMAND")]
    pub(super) on_change: Option<OsString>,
    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "PROGRAM")]
    pub(super) program: Vec<OsString>,
}

/// What is to be reserved.
pub(super) enum Plan {
    /// These numbers.
    Fixed(Params),
    /// What it is measured to need: all but budget and period, and what the user has said of period and deadline.
    Auto(Params, Option<Time>, Option<Time>),
}

impl Options {
    /// What is to be reserved.
    ///
    /// # Errors
    /// The values make no sense; says what to write.
    pub(super) fn plan(&self) -> Result<Plan> {
        let period = self.period.or(self.fps).or(self.hz);
        let (Some(budget), Some(period)) = (self.budget, period) else {
            anyhow::ensure!(
                self.budget.is_none(),
                "--budget is of a period: give --period, --fps or --hz, too, or leave it out and have both measured"
            );
            anyhow::ensure!(
                self.deadline.is_none() || period.is_some(),
                "--deadline is within a period: give --period, --fps or --hz, too, or leave it out"
            );
            anyhow::ensure!(
                self.group.is_none(),
                "the budget of a member of a group is not measured: give --period and --budget, or leave --group out"
            );
            let some = period.unwrap_or(self.deadline.unwrap_or(1_000_000));
            let params = self.params(1, some);
            params.check().map_err(anyhow::Error::msg)?;
            return Ok(Plan::Auto(params, period, self.deadline));
        };
        let params = self.params(budget.of(period), period);
        params.check().map_err(anyhow::Error::msg)?;
        Ok(Plan::Fixed(params))
    }

    fn params(&self, budget: Time, period: Time) -> Params {
        let mut params = Params::new(budget, period);
        if let Some(deadline) = self.deadline {
            params = params.with_deadline(deadline);
        }
        if let Some(Cpus(list)) = &self.cpus {
            params = params.on_cpus(list.clone());
        }
        if self.marks {
            params = params.marking_jobs();
        }
        if let Some(group) = &self.group {
            params = params.in_group(group);
        }
        if let Some(class) = self.class {
            params = params.of_class(class);
        }
        if let Some(value) = self.value {
            params = params.worth(value);
        }
        if let Some(purse) = &self.purse {
            params = params.from_purse(purse);
        }
        if let Some(set) = &self.set {
            params = params.in_set(set);
        }
        params
    }

    /// What stands in the place of the program, for people to copy.
    pub(super) fn words(&self) -> String {
        if let Some(pid) = self.pid {
            return format!("--pid {pid}");
        }
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        let word = |word: &OsString| {
            let word = word.to_string_lossy();
            match !word.is_empty() && word.chars().all(plain) {
                true => word.into_owned(),
                false => format!("'{}'", word.replace('\'', "'\\''")),
            }
        };
        let words: Vec<String> = self.program.iter().map(word).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn read(words: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("run").chain(words.split(' '));
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn the_program_needs_no_dashes_before_it_and_keeps_its_own_options() {
        for dashes in ["", "-- "] {
            let options = read(&format!("-p 10ms -b 2ms {dashes}mpv -b --fs film.mkv")).unwrap();
            assert_eq!(options.program, ["mpv", "-b", "--fs", "film.mkv"]);
            assert!(fixed(&options) == Some(Params::new(2_000_000, 10_000_000)));
        }
        assert!(read("--perod 10ms -b 2ms mpv").is_err());
        assert!(read("-p 10ms -b 2ms").is_err());
        assert!(read("-p 10ms -b 2ms --pid 7 mpv").is_err());
        assert!(read("-p 10ms -b 2ms --pid 7").is_ok());
    }

    fn fixed(options: &Options) -> Option<Params> {
        if let Plan::Fixed(params) = options.plan().ok()? { Some(params) } else { None }
    }

    #[test]
    fn a_period_is_said_in_one_of_three_ways() {
        let of = |words| fixed(&read(words).unwrap());
        assert_eq!(of("--fps 25 -b 60% mpv"), Some(Params::new(24_000_000, 40_000_000)));
        assert_eq!(of("--hz 1000 -b 100us x"), Some(Params::new(100_000, 1_000_000)));
        for wrong in ["--fps 25 --hz 25 -b 1ms mpv", "--fps 25 -p 40ms -b 1ms mpv"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_budget_that_is_not_said_is_measured_and_so_is_the_period() {
        let period = |words| match read(words).unwrap().plan() {
            Ok(Plan::Auto(_, period, _)) => period,
            _ => panic!("{words}"),
        };
        assert_eq!(period("mpv film.mkv"), None);
        assert_eq!(period("--auto mpv film.mkv"), None);
        assert_eq!(period("--fps 25 mpv"), Some(40_000_000));
        assert_eq!(period("--auto -p 40ms mpv"), Some(40_000_000));
        assert!(read("--auto -p 40ms -b 1ms mpv").is_err());
        for (wrong, words) in
            [("-b 60% mpv", "--period, --fps or --hz"), ("--deadline 5ms mpv", "--period")]
        {
            let error = read(wrong).unwrap().plan().err().unwrap().to_string();
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_line_with_fixed_numbers_can_be_pasted_into_a_shell() {
        let options =
            Options { program: vec!["mpv".into(), "a film's.mkv".into()], ..read("x").unwrap() };
        assert_eq!(options.words(), r"mpv 'a film'\''s.mkv'");
    }
}
