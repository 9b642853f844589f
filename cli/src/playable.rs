// SPDX-License-Identifier: GPL-2.0-only
//! Whether a policy can play a task set.

use anyhow::{Result, anyhow, bail};
use onbeat_analysis::plan::lay_out;
use onbeat_analysis::semi::SHARE_LEAST;
use onbeat_kernel::settings::Settings;
use onbeat_model::policy::{CorePolicy, Policy};
use onbeat_model::rank::Rank;
use onbeat_model::taskset::{Part, TaskEntry, TaskSet};
use onbeat_model::units::{Fraction, format_duration};

/// What the service would be told for one of the set's parts, where `played` serves the default one.
pub fn settings(set: &TaskSet, part: &Part, played: &CorePolicy) -> Settings {
    let of = set.policy_of(part, played);
    Settings {
        set: part.cpus,
        best_effort_share: set.best_effort_share,
        servers: set.servers(),
        user_share: Fraction::from_integer(1),
        ..Settings::whole(of.order, of.server, set.cpus, part.clusters)
    }
}

/// Whether `policy` can serve the set's default part.
///
/// # Errors
/// It knows nothing of what is in the file, or best effort's servers do not fit.
pub fn check(set: &TaskSet, policy: &CorePolicy) -> Result<()> {
    let named = onbeat_model::policy::Policy::Core { order: policy.order, server: policy.server };
    set.plays(&named).map_err(|why| anyhow!(why))?;
    for part in set.parts().iter().filter(|part| part.set.is_none()) {
        settings(set, part, policy).check_servers().map_err(|why| anyhow!(why))?;
    }
    Ok(())
}

/// Whether all tasks that `wanted` names fit, where `policy` ranks: the simulator would play the others all the same,
/// and hard ones would be late.
///
/// # Errors
/// The first one does not.
pub fn check_fit(
    set: &TaskSet,
    policy: &CorePolicy,
    wanted: impl Fn(&TaskEntry) -> bool,
) -> Result<()> {
    if !policy.order.key.ranks() {
        return Ok(());
    }
    let seats = lay_out(set, policy, SHARE_LEAST).copies;
    let mut placed = set.copies().zip(seats).filter_map(|(copy, seat)| Some((copy, seat?)));
    let Some((copy, _)) = placed.find(|(copy, seat)| !seat.fits && wanted(copy.spec)) else {
        return Ok(());
    };
    let budget = format_duration(copy.spec.budget.unwrap_or_default());
    let (what, remedy) = match copy.spec.class {
        Some(Rank::Hard) => ("is hard and fits no CPU", ", or leave class out"),
        _ => ("does not fit", ""),
    };
    bail!(
        "task {} ({budget} in {}) {what} beside those before it in the file under {}; lower budgets or take fewer \
         tasks{remedy} (`onbeat analyze --admit edf-hsb-ns` says who fits where)",
        copy.name(),
        format_duration(copy.spec.period),
        policy.name
    )
}

/// Says on standard error what a world does not show: where the service would refuse what is played all the same, and
/// which keys only analysis uses.
pub fn warn(verb: &str, set: &TaskSet, policies: &[&CorePolicy]) {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for policy in policies {
        let Some(refused) = refused(set, policy) else { continue };
        match told.iter_mut().find(|(other, _)| *other == refused) {
            Some((_, names)) => names.push(policy.name),
            None => told.push((refused, vec![policy.name])),
        }
    }
    for (refused, names) in told {
        complain!(
            "onbeat {verb}: {}: under {} the service would refuse {refused}; what is shown is no promise (`onbeat \
             analyze` says what would fit)",
            set.name,
            names.join(", ")
        );
    }
    for task in &set.tasks {
        if let Some(keys) = task.waits.named() {
            complain!("onbeat {verb}: {keys} of {}: only `onbeat analyze` uses that", task.name);
        }
    }
}

/// Who has no room beside those before, in words, if there is somebody.
fn refused(set: &TaskSet, policy: &CorePolicy) -> Option<String> {
    let layout = lay_out(set, policy, SHARE_LEAST);
    let outermost =
        set.groups.iter().zip(&layout.groups).filter(|(group, _)| group.parent.is_none());
    let groups = outermost.filter(|(_, seat)| !seat.fits).map(|(group, _)| group.name.clone());
    let alone = set.copies().zip(&layout.copies).filter(|(copy, _)| copy.spec.group.is_none());
    let tasks = alone.filter(|(_, seat)| seat.as_ref().is_some_and(|seat| !seat.fits));
    let names: Vec<String> = groups.chain(tasks.map(|(copy, _)| copy.name())).collect();
    match &names[..] {
        [] => None,
        [a] => Some(a.clone()),
        [a, b] => Some(format!("{a} and {b}")),
        [a, rest @ ..] => Some(format!("{a} and {} more", rest.len())),
    }
}

/// Which of `policies` know nothing of the set's groups, purses or sets of CPUs, in words; `None` if all do.
pub fn ignored(set: &TaskSet, policies: &[Policy]) -> Option<String> {
    let there = [
        ("groups", !set.groups.is_empty()),
        ("purses", !set.purses.is_empty()),
        ("sets of CPUs", !set.sets.is_empty()),
    ];
    let what: Vec<&str> = there.into_iter().filter(|(_, is)| *is).map(|(what, _)| what).collect();
    let of: Vec<String> =
        policies.iter().filter(|p| !p.is_core()).map(ToString::to_string).collect();
    let (last, others) = what.split_last()?;
    let what = match others {
        [] => (*last).to_owned(),
        others => format!("{} and {last}", others.join(", ")),
    };
    let know = if of.len() == 1 { "knows" } else { "know" };
    (!of.is_empty()).then(|| {
        format!(
            "{} {know} nothing of {what}: tasks are served there as if these were not in the file",
            of.join(", ")
        )
    })
}
