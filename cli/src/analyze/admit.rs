// SPDX-License-Identifier: GPL-2.0-only
//! What the reservation service would say of a task set: the same admission, without a kernel.

use std::fmt::Write;

use anyhow::{Result, bail};
use onbeat_analysis::admission::Admission;
use onbeat_analysis::plan::{Item, Of, Place, items};
use onbeat_analysis::sporadic::Sporadic;
use onbeat_command::misuse;
use onbeat_kernel::machine::{cpus_of, format_cpus};
use onbeat_kernel::system::Above;
use onbeat_model::policy::{Policy, Server};
use onbeat_model::taskset::{TaskEntry, TaskSet};
use onbeat_model::units::{Fraction, format_duration, format_percent};
use serde_json::{Value, json};

use crate::playable;

/// How the outermost groups and the tasks fare, in the file's order: placed, or refused with the reason.
pub struct Admitted {
    policy: String,
    /// Whether there are jobs whose end nobody sees if the next follows at once.
    blind: bool,
    /// What best effort keeps of each CPU.
    share: Fraction,
    /// By how much soft ones can be late, ns, where the order ranks and that is known.
    late: Option<u64>,
    ranks: bool,
    tasks: Vec<(String, Result<Place, String>)>,
}

/// Asks for all groups of `set` that are in no other, then for all tasks that are in none, one after the other, under
/// `policy`, and those of sets of CPUs under theirs.
///
/// # Errors
/// The policy is none of Onbeat's own.
pub fn admit(set: &TaskSet, policy: &Policy) -> Result<Admitted> {
    let Some(played) = policy.core() else {
        bail!(misuse(format!(
            "--admit {policy}: only Onbeat's own policies admit; `onbeat policies` lists them"
        )));
    };
    playable::check(set, played)?;
    if set.parts().iter().all(|part| part.set.is_some()) {
        bail!(
            "--admit {policy}: sets of CPUs with policies of their own leave it no CPU; leave a CPU out of [[set]]"
        );
    }
    let copies: Vec<_> = set.copies().collect();
    let mut tasks = Vec::new();
    let (mut names, mut blind) = (Vec::new(), false);
    for (number, part) in set.parts().iter().enumerate() {
        let of = set.policy_of(part, played);
        let machine = playable::settings(set, part, played).machine(u64::MAX, &Above::default());
        let here = |item: &Item| {
            number
                == match item.of {
                    Of::Group(group) => set.part_of_group(group),
                    Of::Copy(copy) => set.part_of(copies[copy].spec),
                }
        };
        let wanted: Vec<Item> = items(set, &machine).into_iter().filter(here).collect();
        let mut admission = Admission::new(machine);
        let mut asked = Vec::new();
        for item in wanted {
            let answer = admission.admit(item.id, &item.demand).map_err(|mut refusal| {
                refusal.nearest = refusal.nearest.rounded();
                refusal.to_string()
            });
            let answer = match answer {
                Ok(at) if !item.holds(&at) => {
                    admission.release(item.id);
                    Err("some of its members may use none of the CPUs of one domain".into())
                }
                answer => answer,
            };
            asked.push((item, answer));
        }
        // One that comes later may have changed where others are served.
        for (item, answer) in asked {
            let now = |at: Place| admission.place_of(item.id).cloned().unwrap_or(at);
            tasks.push((item.demand.name, answer.map(now)));
        }
        let unmarked = |task: &&TaskEntry| !task.marks && set.part_of(task) == number;
        blind |= of.server == Server::None && set.tasks.iter().any(|task| unmarked(&task));
        names.push(match part.set {
            Some(named) => format!("{} in set {}", of.name, set.sets[named].name),
            None => of.name.to_owned(),
        });
    }
    let share = played.order.share(set.best_effort_share);
    let ranks = played.order.key.ranks();
    let late = ranks.then(|| lateness(set, &tasks)).flatten();
    Ok(Admitted { policy: names.join(", "), blind, share, late, ranks, tasks })
}

/// The greatest bound of tardiness of soft ones, ns, if all that is asked for is admitted.
fn lateness(set: &TaskSet, tasks: &[(String, Result<Place, String>)]) -> Option<u64> {
    let mut asked = Vec::new();
    for copy in set.copies().filter(|copy| copy.spec.group.is_none()) {
        let Some(budget) = copy.spec.budget else { continue };
        let (_, placed) = tasks.iter().find(|(name, _)| *name == copy.name())?;
        let one = Sporadic::served(budget, copy.spec.period, copy.spec.deadline);
        asked.push((one.into(), copy.spec.class, Some(placed.as_ref().ok()?)));
    }
    let tasks = asked.len();
    let groups = set.groups.iter().filter(|g| g.parent.is_none());
    let placed = asked.first().and_then(|(_, _, place)| *place);
    let served = groups.map(|g| Sporadic::served(g.budget, g.period, g.deadline));
    asked.extend(served.map(|one| (one.into(), None, placed)));
    onbeat_analysis::verdict::lateness(set, &asked)?.into_iter().take(tasks).max()
}

impl Admitted {
    /// For people.
    pub fn table(&self) -> String {
        let Admitted { policy, blind, share, late, ranks, tasks } = self;
        let mut text =
            format!("\nadmission under {policy}, beside {} of each CPU:\n", format_percent(*share));
        let width = tasks.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, answer) in tasks {
            let said = match answer {
                Ok(Place { split: Some(split), .. }) => {
                    let window = format_duration(split.window);
                    let share = |(cpu, budget): &(u32, u64)| {
                        format!("CPU {cpu}: {}", format_duration(*budget))
                    };
                    let shares: Vec<String> = split.shares.iter().map(share).collect();
                    format!("{}, one after the other in windows of {window}", shares.join(", "))
                }
                Ok(place) => match &cpus_of(place.cpus)[..] {
                    [cpu] => format!("CPU {cpu}"),
                    cpus => format!("CPUs {}", format_cpus(cpus)),
                },
                Err(why) => why.replace('\n', "\n    "),
            };
            let _ = writeln!(text, "{name:<width$}  {}", said.trim_end());
        }
        if *ranks {
            let _ = match late {
                Some(late) => writeln!(
                    text,
                    "Hard ones are never late within their budgets, soft ones at most {} late.",
                    format_duration(*late)
                ),
                None => writeln!(
                    text,
                    "Hard ones are never late within their budgets; soft ones have no bound here."
                ),
            };
        }
        if *blind {
            let _ = writeln!(
                text,
                "Without a server a job that follows another without a sleep keeps the other's deadline, \
                 and may\ndelay others: use {policy}+cbs, or marks = true."
            );
        }
        text
    }

    /// For machines.
    pub fn object(&self) -> Value {
        let one = |(name, answer): &(String, Result<Place, String>)| match answer {
            Ok(place @ Place { split, .. }) => {
                let cpus = cpus_of(place.all_cpus());
                let share = |(cpu, budget): &(u32, u64)| json!({"cpu": cpu, "budget_ns": budget});
                let shares = split.as_ref().map(|s| s.shares.iter().map(share).collect::<Value>());
                let window = split.as_ref().map(|s| s.window);
                json!({"task": name, "cpus": cpus, "shares": shares, "window_ns": window})
            }
            Err(why) => json!({"task": name, "refused": why}),
        };
        json!({
            "policy": self.policy,
            "admitted": self.tasks.iter().all(|(_, answer)| answer.is_ok()),
            "tasks": self.tasks.iter().map(one).collect::<Value>(),
        })
    }
}
