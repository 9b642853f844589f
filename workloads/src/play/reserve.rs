// SPDX-License-Identifier: GPL-2.0-only
//! Reservations of the two tasks, if there is a service.

use anyhow::{Result, anyhow, bail};
use onbeat_client::{Error, Params, Service};
use onbeat_model::policy::Policy;
use onbeat_model::protocol::{Request, Reservation, Response};
use onbeat_model::rank::Rank;

const WITHOUT: &str = "lower --decode-budget or --display-budget, or play with --no-reservation";

/// What each of the two tasks is to get in every period, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of the task that decodes.
    pub decode: u64,
    /// Of the task that shows.
    pub display: u64,
}

/// The reservations in force.
#[derive(Debug)]
pub struct Reserved {
    service: Service,
    ids: Vec<u32>,
    /// In one line.
    pub text: String,
}

/// Reserves for the two threads, the display's as hard and the decoder's as soft if the policy ranks. `None`, and a
/// line that says why, where nobody grants reservations or the whole process has one already.
///
/// # Errors
/// The service refuses.
pub fn reserve(
    decode: u32,
    display: u32,
    period: u64,
    budgets: Budgets,
) -> Result<Option<Reserved>> {
    let mut service = match Service::connect() {
        Ok(service) => service,
        Err(error @ Error::NoService { .. }) => {
            eprintln!("onbeat-play: playing without reservations: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let Response::Status { policy, reservations, .. } = service.ask(&Request::Status)? else {
        bail!("the service does not tell its state; use the same version on both sides");
    };
    let me = std::process::id();
    if let Some(whole) = reservations.iter().find(|r| r.pid == me && r.thread == 0) {
        eprintln!("onbeat-play: both tasks share reservation {} of this process", whole.id);
        return Ok(None);
    }
    let ranks = matches!(policy.parse(), Ok(Policy::Core { order, .. }) if order.key.ranks());
    let mut reserved = Reserved { service, ids: Vec::new(), text: format!("under {policy}:") };
    for (tid, name, budget, class) in [
        (display, "display", budgets.display, Rank::Hard),
        (decode, "decode", budgets.decode, Rank::Soft),
    ] {
        let mut params = Params::new(budget, period).for_thread(tid);
        if ranks {
            params = params.of_class(class);
        }
        let granted = reserved.service.reserve(me, name, &params);
        let refused = |error| anyhow!("no reservation for the {name} task: {error}\n{WITHOUT}");
        let grant = granted.map_err(refused)?;
        reserved.ids.push(grant.id);
        let class = if ranks { format!(", {class}") } else { String::new() };
        let share = 100.0 * budget as f64 / period as f64;
        reserved.text += &format!(" {name} {share:.1} % of a CPU{class};");
    }
    reserved.text.pop();
    Ok(Some(reserved))
}

impl Reserved {
    /// Gives them back; returns what they got.
    ///
    /// # Errors
    /// The service has gone.
    pub fn release(mut self) -> Result<Vec<Reservation>> {
        let Self { service, ids, .. } = &mut self;
        ids.iter().map(|id| Ok(service.release_own(*id)?)).collect()
    }
}
