// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run`: a program under a reservation.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use onbeat_client::{Error, Grant, Params, Service};
use onbeat_command::FAILED_ITSELF;
use onbeat_kernel::machine::name_cpus;
use onbeat_model::policy::Policy;
use onbeat_model::protocol::{self, Request, Response};
use onbeat_model::rank::Rank;
use onbeat_model::units::format_duration;
use serde::Serialize;

use crate::arguments::{Cpus, Time, cpus, duration};
use crate::guest::{self, Held, Signals};
use crate::launch::{self, Own};
use crate::output::print;

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
/// keeps its reservation until they have ended, or `onbeat release` ends it.
///
/// Exit status: the program's own (128 + N if signal N killed it); 75 the reservation does not fit;
/// 125 Onbeat failed, or the options make no sense; 126 the program cannot be executed; 127 there is
/// no such program.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(before_help = "Example: onbeat run --period 41.7ms --budget 25ms -- mpv film.mkv")]
pub struct Options {
    /// Time between releases of work, such as 41.7ms for 24 frames a second
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    period: Time,
    /// CPU time in each period, such as 25ms
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    budget: Time,
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
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
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
        let mut params = Params::new(self.budget, self.period);
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
    let mut run = Run { service, own, signals, name: name_of(&program) };
    let result = run.run(options, &program);
    run.finish();
    result
}

/// The program's name as reservations carry it.
fn name_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "program".into() } else { name }
}

struct Run {
    service: Service,
    own: Option<Own>,
    signals: Signals,
    name: String,
}

impl Run {
    fn run(&mut self, options: &Options, program: &Path) -> Result<ExitCode> {
        let held = Held::fork(program, &options.program, &self.signals)?;
        let params = options.params();
        let pid = held.pid;
        let grant = match self.service.reserve(pid as u32, &self.name, &params) {
            Ok(grant) => grant,
            Err(error) => {
                held.dismiss();
                return Err(error.into());
            }
        };
        let begin = Instant::now();
        if let Err(error) = held.go() {
            let _ = self.service.release(grant.id); // it ends with the process anyway
            complain!("onbeat: \"{}\" cannot be executed: {error}", program.display());
            return Ok(ExitCode::from(match error.raw_os_error() {
                Some(libc::ENOENT) => guest::NOT_FOUND,
                _ => guest::NOT_EXECUTABLE,
            }));
        }
        let code = self.wait(pid);
        let elapsed = begin.elapsed();
        match self.settle(&grant, pid as u32) {
            Ok(Some(got)) => report(options, &grant, &got, elapsed, code)?,
            Ok(None) => (),
            Err(error) => {
                let lost = matches!(
                    error.downcast_ref(),
                    Some(Error::Protocol(_) | Error::NoService { .. })
                );
                let since =
                    if lost { "; the service has ended, and the reservation with it" } else { "" };
                complain!("onbeat: what {} got is not known: {error}{since}", self.name);
            }
        }
        Ok(ExitCode::from(code))
    }

    /// Passes signals on until the program ends.
    fn wait(&mut self, pid: i32) -> u8 {
        loop {
            if let Some(code) = guest::ended(pid) {
                return code;
            }
            match self.signals.wait(None) {
                Some((libc::SIGCHLD, _)) => self.watch_service(),
                // What the terminal sends goes to the program, too.
                Some((_, true)) | None => (),
                Some((signal, false)) => {
                    // SAFETY: the child has not been waited for, so its number is still its own.
                    unsafe { libc::kill(pid, signal) };
                }
            }
        }
    }

    fn watch_service(&mut self) {
        if let Some(words) = self.own.as_mut().and_then(Own::ended) {
            complain!(
                "onbeat: the scheduler has ended, {} goes on without a reservation ({words})",
                self.name
            );
            self.own = None;
        }
    }

    /// What the program got; `None` if part of it lives on.
    fn settle(&mut self, grant: &Grant, pid: u32) -> Result<Option<protocol::Reservation>> {
        let begin = Instant::now();
        loop {
            let Response::Status { reservations, .. } = self.service.ask(&Request::Status)? else {
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
                return match self.service.release(grant.id) {
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
    fn finish(mut self) {
        let Some(own) = self.own else { return };
        match self.service.ask(&Request::Status) {
            Ok(Response::Status { reservations, .. }) if !reservations.is_empty() => complain!(
                "onbeat: the scheduler stays loaded until the last of {} reservations ends",
                reservations.len()
            ),
            _ => own.stop(),
        }
    }
}

/// What a program got, for people and programs.
#[derive(Serialize)]
struct Report<'a> {
    program: &'a str,
    policy: &'a str,
    cpus: &'a [u32],
    budget_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
    elapsed_ns: u64,
    jobs: u64,
    misses: u64,
    owed: u64,
    owed_late: u64,
    owed_tardiness_max_ns: u64,
    tardiness_max_ns: u64,
    tardiness_mean_ns: u64,
    budget_used_per_period_ns: u64,
    exhaustions: u64,
    cpu_time_ns: u64,
    donated_ns: u64,
    received_ns: u64,
    exit_status: u8,
}

fn report(
    options: &Options,
    grant: &Grant,
    got: &protocol::Reservation,
    elapsed: Duration,
    exit_status: u8,
) -> Result<()> {
    let elapsed_ns = elapsed.as_nanos() as u64;
    // What ended sooner had one period all the same.
    let lasted = u128::from(elapsed_ns.max(got.period_ns).max(1));
    let per_period = u128::from(got.consumed_ns) * u128::from(got.period_ns) / lasted;
    let report = Report {
        program: &got.name,
        policy: &grant.policy,
        cpus: &grant.cpus,
        budget_ns: got.budget_ns,
        period_ns: got.period_ns,
        deadline_ns: got.deadline_ns,
        elapsed_ns,
        jobs: got.jobs,
        misses: got.misses,
        owed: got.owed,
        owed_late: got.owed_late,
        owed_tardiness_max_ns: got.owed_tardiness_max_ns,
        tardiness_max_ns: got.tardiness_max_ns,
        tardiness_mean_ns: got.tardiness_sum_ns / got.jobs.max(1),
        budget_used_per_period_ns: per_period as u64,
        exhaustions: got.exhaustions,
        cpu_time_ns: got.consumed_ns,
        donated_ns: got.donated_ns,
        received_ns: got.received_ns,
        exit_status,
    };
    if options.json {
        print(&(serde_json::to_string(&report)? + "\n"))?;
    } else {
        // The program's own status is not to be lost because nobody can read this.
        let _ = write!(std::io::stderr(), "{report}");
    }
    Ok(())
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: u64| format!("{:.2}ms", ns as f64 / 1e6);
        let s = |ns: u64| format!("{:.3}s", ns as f64 / 1e9);
        let percent = |a: u64, b: u64| format!("{:.1}%", 100.0 * a as f64 / b.max(1) as f64);
        writeln!(
            f,
            "onbeat: {} had {} every {} under {} on {} for {}",
            self.program,
            format_duration(self.budget_ns),
            format_duration(self.period_ns),
            self.policy,
            name_cpus(self.cpus),
            s(self.elapsed_ns)
        )?;
        let (jobs, misses) = (self.jobs, self.misses);
        writeln!(f, "  jobs       {jobs}, {misses} late ({})", percent(misses, jobs))?;
        let (owed, broken) = (self.owed, self.owed_late);
        write!(f, "  promise    {broken} of {owed} owed jobs late")?;
        if broken > 0 {
            write!(f, ", by {} at worst", ms(self.owed_tardiness_max_ns))?;
        }
        writeln!(f, "; {} others late, beyond the budget", misses.saturating_sub(broken))?;
        let (worst, mean) = (ms(self.tardiness_max_ns), ms(self.tardiness_mean_ns));
        writeln!(f, "  tardiness  {worst} at worst, {mean} on average")?;
        let used = self.budget_used_per_period_ns;
        writeln!(
            f,
            "  budget     {} used per period on average ({}), used up {} times",
            ms(used),
            percent(used, self.budget_ns),
            self.exhaustions
        )?;
        write!(f, "  CPU time   {}", s(self.cpu_time_ns))?;
        if self.donated_ns + self.received_ns > 0 {
            let (given, got) = (s(self.donated_ns), s(self.received_ns));
            write!(f, "; {given} left over to others, {got} received from others")?;
        }
        writeln!(f)
    }
}
