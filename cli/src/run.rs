// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run`: a program under a reservation.

mod report;
mod watch;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use onbeat_client::{Error, Grant, Params, Service};
use onbeat_command::FAILED_ITSELF;
use onbeat_model::policy::Policy;
use onbeat_model::protocol::{self, Request, Response};
use onbeat_model::rank::Rank;

use crate::arguments::{Budget, Cpus, Time, budget, cpus, duration, rate};
use crate::guest::{self, End, Held, Signals};
use crate::launch::{self, Own};
use report::report;
use watch::Watch;

/// The reservation does not fit (sysexits' EX_TEMPFAIL: it may fit later).
const REFUSED: u8 = 75;
/// How long the last threads of a program that has ended may take to vanish.
const VANISH: Duration = Duration::from_millis(500);

/// Run a program with a reservation: BUDGET of CPU time in every PERIOD
///
/// The reservation covers the program, its threads and its children; nothing about the program
/// needs to change. If no reservation service runs and this is run as root, the scheduler is
/// loaded for the time of the run.
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
    #[arg(required_unless_present_any = ["fps", "hz"], conflicts_with_all = ["fps", "hz"])]
    period: Option<Time>,
    /// Frames a second, such as 24 or 59.94
    #[arg(long, value_name = "N", value_parser = rate, allow_hyphen_values = true, conflicts_with = "hz")]
    fps: Option<Time>,
    /// How often a second work is released, such as 1000
    #[arg(long, value_name = "N", value_parser = rate, allow_hyphen_values = true)]
    hz: Option<Time>,
    /// CPU time in each period, such as 25ms or 60%
    #[arg(short, long, value_parser = budget, allow_hyphen_values = true)]
    budget: Budget,
    /// Time from release until the work must be done [default: the period]
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    deadline: Option<Time>,
    /// CPUs to be served on, such as 0-3,6 [default: all the program may use]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<Cpus>,
    /// Group that serves it, see `onbeat group` [default: none]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Class, hard or soft, under a policy that ranks, such as edf-hsb [default: soft]
    #[arg(long, value_name = "CLASS")]
    class: Option<Rank>,
    /// What a job is worth that ends in time, 1 to 1000000, under a policy that chooses between jobs, such as g-dasa
    /// [default: what the budget is in ms]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    value: Option<u64>,
    /// Purse that it takes from, too, see `onbeat purse` [default: none]
    #[arg(long, value_name = "NAME")]
    purse: Option<String>,
    /// Set of CPUs that serves it, see `onbeat policy` [default: the first with a CPU it may use]
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// Policy, if the scheduler is loaded for this run; else it must be the running one
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    policy: Option<String>,
    /// Load the scheduler even if its policy lets one reservation make others late
    #[arg(long)]
    no_isolation: bool,
    /// Print what the program got as JSON on standard output
    #[arg(long)]
    json: bool,
    /// The program marks its jobs through Onbeat's library
    #[arg(long)]
    marks: bool,
    /// Shell command to run when the reservation is lost, released, restored or refused: ONBEAT_CHANGE says which
    #[arg(long, value_name = "COMMAND")]
    on_change: Option<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program.
pub fn run(options: &Options) -> Result<ExitCode> {
    match supervise(options) {
        Ok(code) => Ok(code),
        Err(error) => {
            let code = match error.downcast_ref() {
                Some(Error::Refused(_)) => REFUSED,
                _ => FAILED_ITSELF,
            };
            complain!("onbeat: {error:#}");
            Ok(ExitCode::from(code))
        }
    }
}

impl Options {
    fn params(&self) -> Params {
        let period = self.period.or(self.fps).or(self.hz).expect("one of them is required");
        let mut params = Params::new(self.budget.of(period), period);
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
}

fn supervise(options: &Options) -> Result<ExitCode> {
    // A typing error should not cost a second of loading.
    let program = match guest::find(&options.program[0]) {
        Ok(path) => path,
        Err((code, why)) => {
            complain!("onbeat: {why}");
            return Ok(ExitCode::from(code));
        }
    };
    options.params().check().map_err(anyhow::Error::msg)?;
    if let Some(policy) = &options.policy {
        let policy: Policy = policy.parse()?;
        anyhow::ensure!(policy.is_core(), "{policy} makes no reservations; see `onbeat policies`");
    }
    let signals = Signals::block().context("cannot wait for signals")?;
    let wish =
        launch::Wish { policy: options.policy.as_deref(), no_isolation: options.no_isolation };
    let (service, own) = launch::connect(&wish, &signals)?;
    let mut run = Run { own, signals, name: name_of(&program) };
    run.run(options, &program, service)
}

/// The program's name as reservations carry it.
fn name_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "program".into() } else { name }
}

struct Run {
    own: Option<Own>,
    signals: Signals,
    name: String,
}

impl Run {
    /// Runs it, and takes the scheduler out again if it was loaded for this run and nobody else needs it.
    fn run(&mut self, options: &Options, program: &Path, mut service: Service) -> Result<ExitCode> {
        let held = Held::fork(program, &options.program, &self.signals)?;
        let params = options.params();
        let pid = held.pid;
        let grant = match service.reserve(pid as u32, &self.name, &params) {
            Ok(grant) => grant,
            Err(error) => {
                held.dismiss();
                self.finish(Some(service));
                return Err(error.into());
            }
        };
        let begin = Instant::now();
        if let Err(error) = held.go() {
            let _ = service.release(grant.id); // it ends with the process anyway
            complain!("onbeat: \"{}\" cannot be executed: {error}", program.display());
            self.finish(Some(service));
            return Ok(ExitCode::from(match error.raw_os_error() {
                Some(libc::ENOENT) => guest::NOT_FOUND,
                _ => guest::NOT_EXECUTABLE,
            }));
        }
        let mut watch = Watch::new(service, grant, options.on_change.clone());
        let end = self.wait(pid, &params, &mut watch);
        let elapsed = begin.elapsed();
        if let Some(signal) = end.signal {
            complain!(
                "onbeat: {} was ended by signal {}",
                self.name,
                guest::name_of_signal(signal)
            );
        }
        if watch.held
            && let Some(service) = &mut watch.service
        {
            match self.settle(service, &watch.grant, pid as u32) {
                Ok(Some(got)) => report(options.json, &watch.grant, &got, elapsed, end.code)?,
                Ok(None) => (),
                Err(error) => {
                    watch.lost = true;
                    complain!("onbeat: what {} got is not known: {error}", self.name);
                }
            }
        }
        self.finish(watch.service.take());
        Ok(ExitCode::from(if watch.lost && end.code == 0 { FAILED_ITSELF } else { end.code }))
    }

    /// Passes signals on until the program ends, and looks after its reservation.
    fn wait(&mut self, pid: i32, params: &Params, watch: &mut Watch) -> End {
        loop {
            if let Some(end) = guest::ended(pid) {
                return end;
            }
            match self.signals.wait(Some(watch::LOOK)) {
                Some((libc::SIGCHLD, _)) => self.watch_own(),
                None => watch.look(pid as u32, &self.name, params, &self.signals),
                // What the terminal sends goes to the program, too.
                Some((_, true)) => (),
                Some((signal, false)) => {
                    // SAFETY: the child has not been waited for, so its number is still its own.
                    unsafe { libc::kill(pid, signal) };
                }
            }
        }
    }

    fn watch_own(&mut self) {
        if let Some(words) = self.own.as_mut().and_then(Own::ended) {
            complain!(
                "onbeat: the scheduler that was loaded for {} has ended ({words})",
                self.name
            );
            self.own = None;
        }
    }

    /// What the program got; `None` if part of it lives on.
    fn settle(
        &self,
        service: &mut Service,
        grant: &Grant,
        pid: u32,
    ) -> Result<Option<protocol::Reservation>> {
        let begin = Instant::now();
        loop {
            let Response::Status { reservations, .. } = service.ask(&Request::Status)? else {
                anyhow::bail!("the service gave an unexpected answer");
            };
            let now = reservations.iter().find(|r| r.id == grant.id);
            if now.is_some_and(|r| r.pid != pid) {
                anyhow::bail!(
                    "its reservation was given back before it ended; the service's log has its figures"
                );
            }
            let left = now.map_or(0, |r| r.threads);
            if left == 0 {
                return match service.release(grant.id) {
                    // Somebody else has ended it.
                    Err(Error::Failed { .. }) => anyhow::bail!(
                        "its reservation was given back before it ended; the service's log has its figures"
                    ),
                    got => Ok(Some(got?)),
                };
            }
            if begin.elapsed() > VANISH {
                let threads = if left == 1 { "thread" } else { "threads" };
                complain!(
                    "onbeat: {} has left {left} {threads} running under reservation {}, which ends \
                     with them or by `onbeat release {}`",
                    self.name,
                    grant.id,
                    grant.id
                );
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes the scheduler out again if it was loaded for this run and nobody else needs it.
    fn finish(&mut self, service: Option<Service>) {
        let Some(own) = self.own.take() else { return };
        match service.map(|mut service| service.ask(&Request::Status)) {
            Some(Ok(Response::Status { reservations, .. })) if !reservations.is_empty() => {
                complain!(
                    "onbeat: the scheduler stays loaded until the last of {} reservations ends",
                    reservations.len()
                );
            }
            _ => own.stop(),
        }
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
            assert_eq!(options.params(), Params::new(2_000_000, 10_000_000));
        }
        assert!(read("--perod 10ms -b 2ms mpv").is_err());
        assert!(read("-p 10ms -b 2ms").is_err());
    }

    #[test]
    fn a_period_is_said_in_one_of_three_ways() {
        assert_eq!(
            read("--fps 25 -b 60% mpv").unwrap().params(),
            Params::new(24_000_000, 40_000_000)
        );
        assert_eq!(read("--hz 1000 -b 100us x").unwrap().params(), Params::new(100_000, 1_000_000));
        for wrong in ["-b 60% mpv", "--fps 25 --hz 25 -b 1ms mpv", "--fps 25 -p 40ms -b 1ms mpv"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
