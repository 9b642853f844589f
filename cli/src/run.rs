// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat run`: a program under a reservation.

mod auto;
mod fit;
mod needs;
mod options;
mod report;
mod subject;
mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onbeat_client::{Error, Grant, Params, Service};
use onbeat_command::FAILED_ITSELF;
use onbeat_model::policy::Policy;
use onbeat_model::protocol::{self, Request, Response};

use crate::guest::{self, End, Held, Signals};
use crate::launch::{self, Own};
use auto::Auto;
use needs::Summary;
pub use options::Options;
use options::Plan;
use report::{nothing, report};
use subject::Subject;
use watch::Watch;

/// The reservation does not fit (sysexits' EX_TEMPFAIL: it may fit later).
const REFUSED: u8 = 75;
/// How long the last threads of a program that has ended may take to vanish.
const VANISH: Duration = Duration::from_millis(500);

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

fn supervise(options: &Options) -> Result<ExitCode> {
    // A typing error should not cost a second of loading.
    let program = match &options.program[..] {
        [] => None,
        [program, ..] => match guest::find(program) {
            Ok(path) => Some(path),
            Err((code, why)) => {
                complain!("onbeat: {why}");
                return Ok(ExitCode::from(code));
            }
        },
    };
    let plan = options.plan()?;
    if let Some(policy) = &options.policy {
        let policy: Policy = policy.parse()?;
        anyhow::ensure!(policy.is_core(), "{policy} makes no reservations; see `onbeat policies`");
    }
    let running = options.pid.map(Subject::running).transpose()?;
    let signals = Signals::block().context("cannot wait for signals")?;
    let wish =
        launch::Wish { policy: options.policy.as_deref(), no_isolation: options.no_isolation };
    let (mut service, own) = launch::connect(&wish, &signals)?;
    let name = match (&program, &running) {
        (Some(program), _) => name_of(program),
        (_, Some((_, name))) => name.clone(),
        (None, None) => unreachable!("one of them is required"),
    };
    let mut run = Run { own, signals, name };
    if let Err(error) = run.check(&mut service, &plan, running.as_ref().map(|(subject, _)| subject))
    {
        run.finish(Some(service));
        return Err(error);
    }
    match (running, program) {
        (Some((subject, _)), _) => run.attach(options, subject, plan, service),
        (None, Some(program)) => run.run(options, &program, plan, service),
        (None, None) => unreachable!("one of them is required"),
    }
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

/// What looks after the reservation.
enum Keeper {
    /// Of fixed numbers.
    Fixed(Box<Watch>, Params),
    /// It is measured.
    Auto(Box<Auto>),
}

impl Keeper {
    fn look(&mut self, pid: u32, name: &str, signals: &Signals) {
        match self {
            Self::Fixed(watch, params) => watch.look(pid, name, params, signals),
            Self::Auto(auto) => auto.look(pid, name, signals),
        }
    }

    /// How often it looks.
    fn pace(&self) -> Duration {
        if matches!(self, Self::Fixed(..)) { watch::LOOK } else { auto::LOOK }
    }

    fn watch(&mut self) -> Option<&mut Watch> {
        match self {
            Self::Fixed(watch, _) => Some(watch),
            Self::Auto(auto) => auto.watch(),
        }
    }

    fn needs(&self) -> Option<Summary> {
        if let Self::Auto(auto) = self { auto.needs.summary() } else { None }
    }

    fn service(self) -> Option<Service> {
        match self {
            Self::Fixed(watch, _) => watch.service,
            Self::Auto(auto) => auto.service(),
        }
    }
}

impl Run {
    /// Whether the service can do what is planned, before anything begins.
    fn check(&self, service: &mut Service, plan: &Plan, running: Option<&Subject>) -> Result<()> {
        if let Some(subject) = running {
            subject.check_free(service, &self.name)?;
        }
        if let Plan::Auto(..) = plan {
            // There is no such reservation, which a service that understands says.
            match service.work(u32::MAX) {
                Err(Error::Failed { message, .. }) if message.contains("not a message") => {
                    anyhow::bail!(
                        "the service is older than this command and cannot measure programs; restart \
                         scx_onbeat, or give --period and --budget"
                    )
                }
                Ok(_) | Err(Error::Failed { .. }) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reserves for a process as planned, or begins to measure it.
    fn keeper(
        &self,
        options: &Options,
        pid: i32,
        plan: Plan,
        mut service: Service,
    ) -> Result<Keeper, Box<(Error, Option<Service>)>> {
        let on_change = options.on_change.clone();
        match plan {
            Plan::Fixed(params) => {
                let params = if options.pid.is_some() { params.with_descendants() } else { params };
                match service.reserve(pid as u32, &self.name, &params) {
                    Ok(grant) => {
                        let agreed = (params.budget(), params.period());
                        let watch = Watch::new(service, grant, agreed, on_change);
                        Ok(Keeper::Fixed(Box::new(watch), params))
                    }
                    Err(error) => Err(Box::new((error, Some(service)))),
                }
            }
            Plan::Auto(params, period, deadline) => {
                let mut auto = Auto::new(service, params, period, deadline, on_change);
                match auto.begin(pid as u32, &self.name) {
                    Ok(()) => Ok(Keeper::Auto(Box::new(auto))),
                    Err(error) => Err(Box::new((error, auto.service()))),
                }
            }
        }
    }

    /// Runs a program, and takes the scheduler out again if it was loaded for this run and nobody else needs it.
    fn run(
        &mut self,
        options: &Options,
        program: &Path,
        plan: Plan,
        service: Service,
    ) -> Result<ExitCode> {
        let held = Held::fork(program, &options.program, &self.signals)?;
        let pid = held.pid;
        let mut keeper = match self.keeper(options, pid, plan, service) {
            Ok(keeper) => keeper,
            Err(failed) => {
                let (error, service) = *failed;
                held.dismiss();
                self.finish(service);
                return Err(error.into());
            }
        };
        let begin = Instant::now();
        if let Err(error) = held.go() {
            if let Some(Watch { service: Some(service), grant, .. }) = keeper.watch() {
                let _ = service.release_own(grant.id); // it ends with the process anyway
            }
            complain!("onbeat: \"{}\" cannot be executed: {error}", program.display());
            self.finish(keeper.service());
            return Ok(ExitCode::from(match error.raw_os_error() {
                Some(libc::ENOENT) => guest::NOT_FOUND,
                _ => guest::NOT_EXECUTABLE,
            }));
        }
        let end =
            self.wait(&Subject::child(pid), &mut keeper).unwrap_or(End { code: 0, signal: None });
        if let Some(signal) = end.signal {
            complain!(
                "onbeat: {} was ended by signal {}",
                self.name,
                guest::name_of_signal(signal)
            );
        }
        self.conclude(options, pid, keeper, begin.elapsed(), Some(end))
    }

    /// Reserves for a process that runs already, until it ends or this command is told to.
    fn attach(
        &mut self,
        options: &Options,
        subject: Subject,
        plan: Plan,
        service: Service,
    ) -> Result<ExitCode> {
        let pid = subject.pid;
        let mut keeper = match self.keeper(options, pid, plan, service) {
            Ok(keeper) => keeper,
            Err(failed) => {
                let (error, service) = *failed;
                self.finish(service);
                return Err(error.into());
            }
        };
        complain!("onbeat: looking after {} (process {pid}) until it ends, or Ctrl-C", self.name);
        let begin = Instant::now();
        let end = self.wait(&subject, &mut keeper);
        match end {
            Some(_) => complain!("onbeat: {} (process {pid}) has ended", self.name),
            None => {
                complain!("onbeat: {} (process {pid}) goes on without a reservation", self.name)
            }
        }
        self.conclude(options, pid, keeper, begin.elapsed(), end)
    }

    /// Says what it got, and gives the reservation back. `end`: how the program has ended, if it has.
    fn conclude(
        &mut self,
        options: &Options,
        pid: i32,
        mut keeper: Keeper,
        elapsed: Duration,
        end: Option<End>,
    ) -> Result<ExitCode> {
        let code = end.map_or(0, |end| end.code);
        let needs = keeper.needs();
        let mut lost = false;
        if let Some(watch) = keeper.watch() {
            lost = watch.lost;
            if watch.held
                && let Some(service) = &mut watch.service
            {
                let got = match end {
                    Some(_) => self.settle(service, &watch.grant, pid as u32),
                    None => service.release_own(watch.grant.id).map(Some).map_err(Into::into),
                };
                match got {
                    Ok(Some(got)) => {
                        let words = options.words();
                        report(options.json, &watch.grant, &got, elapsed, code, needs, &words)?;
                    }
                    Ok(None) => (),
                    Err(error) => {
                        lost = true;
                        complain!("onbeat: what {} got is not known: {error}", self.name);
                    }
                }
            }
        } else if let Keeper::Auto(auto) = &keeper {
            nothing(options.json, &self.name, &auto.why_nothing(), code)?;
        }
        self.finish(keeper.service());
        Ok(ExitCode::from(if lost && code == 0 { FAILED_ITSELF } else { code }))
    }

    /// Waits until the program ends, and looks after its reservation. A child has signals passed on; by them this stops
    /// looking after another process: then there is no end.
    fn wait(&mut self, subject: &Subject, keeper: &mut Keeper) -> Option<End> {
        let mut next = Instant::now() + keeper.pace();
        loop {
            if let Some(end) = subject.ended() {
                return Some(end);
            }
            let left = next.saturating_duration_since(Instant::now());
            match self.signals.wait(Some(left)) {
                Some((libc::SIGCHLD, _)) => self.watch_own(),
                None => {
                    keeper.look(subject.pid as u32, &self.name, &self.signals);
                    next = Instant::now() + keeper.pace();
                }
                Some((signal, _)) if !subject.is_child() => {
                    if ![libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
                        return None;
                    }
                }
                // What the terminal sends goes to the program, too.
                Some((_, true)) => (),
                Some((signal, false)) => {
                    // SAFETY: the child has not been waited for, so its number is still its own.
                    unsafe { libc::kill(subject.pid, signal) };
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
                return match service.release_own(grant.id) {
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
