// SPDX-License-Identifier: GPL-2.0-only
//! Finds the reservation service, or starts one for the time of a run.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use onbeat_client::{STARTING, Service, socket};
use onbeat_kernel::machine;
use onbeat_model::protocol::{Request, Response};

use crate::guest::Signals;

/// The verifier is slow on slow machines.
const PATIENCE: Duration = STARTING;
/// Lines of the service that are kept, should it end.
const WORDS: usize = 100;

/// The service that runs.
///
/// # Errors
/// There is none, or there cannot be one on this machine; says what to do.
pub fn service() -> Result<Service> {
    let socket = socket();
    let service = Service::connect_to(&socket).map(|service| service.telling(starting));
    service.map_err(|error| match machine::hopeless() {
        Some(obstacle) => {
            let place = socket.display();
            anyhow!("no reservation service at {place}, and none can run here: {obstacle}")
        }
        None => error.into(),
    })
}

/// What the scheduler is to be, should it be started.
#[derive(Debug)]
pub struct Wish<'a> {
    /// Its policy; the running one must have it, too.
    pub policy: Option<&'a str>,
    /// The policy need not isolate.
    pub no_isolation: bool,
}

/// Says why a request takes its time.
pub fn starting() {
    complain!("onbeat: scx_onbeat is starting; waiting for it, {} s at most", STARTING.as_secs());
}

/// A service that this process has started.
pub struct Own {
    child: Child,
    /// Reads what it says, so that it need not wait; returns the last of it.
    reader: Option<JoinHandle<String>>,
}

/// Connects to the service, or starts it if there is none and this process may.
///
/// # Errors
/// There is none and it cannot be started; says what to do.
pub fn connect(wish: &Wish<'_>, signals: &Signals) -> Result<(Service, Option<Own>)> {
    let socket = socket();
    match service() {
        Ok(mut service) => {
            check_policy(&mut service, wish.policy)?;
            if wish.no_isolation && wish.policy.is_none() {
                complain!(
                    "onbeat: --no-isolation says nothing here: a service runs already, under its own policy"
                );
            }
            Ok((service, None))
        }
        Err(error) if machine::hopeless().is_some() => Err(error),
        Err(error) if !machine::privileged() => {
            let root = rustix::process::geteuid().is_root();
            let may = if root { "with CAP_SYS_ADMIN" } else { "as root" };
            bail!(
                "{error}. Or run this {may}, which starts it for the time of the run; `onbeat doctor` says what this \
                 machine still needs"
            )
        }
        Err(_) => {
            if let Some(obstacle) = machine::obstacles().first() {
                bail!("no reservation service runs and none can be started: {obstacle}");
            }
            let own = start(&socket, wish, signals)?;
            wait(own, &socket, signals).map(|(service, own)| (service, Some(own)))
        }
    }
}

fn check_policy(service: &mut Service, wanted: Option<&str>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let wanted: onbeat_model::policy::Policy = wanted.parse()?;
    let Response::Policies { current, .. } = service.ask(&Request::Policies)? else {
        bail!("the service does not tell its policy; use the same version on both sides");
    };
    if current != wanted.to_string() {
        bail!(
            "the running service serves {current}, not {wanted}; leave --policy out, or restart \
             scx_onbeat with --policy {wanted}"
        );
    }
    Ok(())
}

/// `scx_onbeat`: beside this program, or where programs are.
fn program() -> Result<PathBuf> {
    if let Ok(me) = std::env::current_exe() {
        let beside = me.with_file_name("scx_onbeat");
        if beside.is_file() {
            return Ok(beside);
        }
    }
    crate::guest::find("scx_onbeat".as_ref())
        .map_err(|(_, why)| anyhow!("{why}; install it beside onbeat or in PATH"))
}

fn start(socket: &Path, wish: &Wish<'_>, signals: &Signals) -> Result<Own> {
    let program = program()?;
    let mut command = Command::new(&program);
    if let Some(policy) = wish.policy {
        command.args(["--policy", policy]);
    }
    if wish.no_isolation {
        command.arg("--no-isolation");
    }
    command
        .arg("--socket")
        .arg(socket)
        .args(["--with", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for the program; the scheduler goes when that has gone.
        .process_group(0);
    let mut child = signals
        .restored(&mut command)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let reader = child.stderr.take().map(|stderr| std::thread::spawn(move || last_words(stderr)));
    Ok(Own { child, reader })
}

/// Reads to the end; returns the last lines.
fn last_words(stderr: impl Read) -> String {
    let mut last = std::collections::VecDeque::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        if last.len() == WORDS {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    Vec::from(last).join("\n")
}

/// A service that is ready: the socket is there before the scheduler is in force, an answer says that it is. (Who
/// starts would carry out later what it is asked for now.)
pub fn ready(socket: &Path) -> Option<Service> {
    let mut service = Service::connect_to(socket).ok()?.waiting_at_most(Duration::ZERO);
    service.ask(&Request::Status).is_ok().then_some(service)
}

fn wait(mut own: Own, socket: &Path, signals: &Signals) -> Result<(Service, Own)> {
    let begin = Instant::now();
    loop {
        if let Some(status) = own.child.try_wait()? {
            bail!("scx_onbeat, started for this run, ended ({status}){}", own.words());
        }
        // Signals and its end are looked after meanwhile.
        if let Some(service) = ready(socket) {
            return Ok((service, own));
        }
        if begin.elapsed() > PATIENCE {
            own.stop();
            bail!("scx_onbeat, started for this run, is not ready after {PATIENCE:?}");
        }
        if let Some((signal, _)) = signals.wait(Some(Duration::from_millis(20)))
            && signal != libc::SIGCHLD
        {
            own.stop();
            bail!("stopped by signal {signal} while the scheduler was starting");
        }
    }
}

impl Own {
    /// What it said on its standard error; it must have ended.
    fn words(&mut self) -> String {
        let text = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        match text.trim() {
            "" => String::new(),
            text => format!(":\n{text}"),
        }
    }

    /// Whether it has ended by itself; what it said.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{status}{}", self.words()))
    }

    /// Unloads the scheduler and waits until that is done.
    pub fn stop(mut self) {
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
    }
}
