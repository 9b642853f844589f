// SPDX-License-Identifier: GPL-2.0-only
//! One verdict on a task set under one policy of Onbeat: nobody is late, nobody is late by more than so much, or it
//! does not fit; what binds; and what would make it fit (`remedy`).
//!
//! Each task is asked for as its reservation is: its budget and its overhead in every period, due by its deadline, or
//! by the end of its period if that is earlier, for servers see no releases of a program that is behind. What is said
//! of a task holds for jobs within its budget; where others take more than theirs and nothing keeps that from it,
//! nothing is said. Tasks are where `plan` puts them, and each queue (`queue`) is tested for itself, beside best
//! effort's share. Jitter adds to what a queue promises: the server's k-th budget begins no later than J after the
//! k-th arrival, by induction over k.

mod queue;
pub mod remedy;
#[cfg(test)]
mod tests;

use onbeat_model::policy::{CorePolicy, Order, Server};
use onbeat_model::rank::Rank;
use onbeat_model::taskset::{TaskCopy, TaskEntry, TaskSet};

use crate::global::hsb::hsb_tardiness;
use crate::groups::judge;
use crate::groups::purses::purses;
use crate::one_cpu::delayed::Delayed;
use crate::plan::{Item, Layout, Of, Place, Seat, items, lay_out, machine_of};
use crate::semi::SHARE_LEAST;
use crate::sporadic::Sporadic;
use queue::{Queue, Said};

/// Whether a set fits, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fits {
    /// Nobody is late.
    Yes,
    /// Nobody is late by more than that, ns, above 0.
    Late(u64),
    /// No test proves either.
    Unproven,
    /// Somebody may be late, without a bound.
    No,
}

impl Fits {
    /// Whether how late anybody may be has a bound.
    pub fn bounded(self) -> bool {
        matches!(self, Fits::Yes | Fits::Late(_))
    }
}

/// What is said of a set under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The worst of all tasks.
    pub fits: Fits,
    /// Where least is left or what is wrong, in words.
    pub binds: String,
    /// Of each of [`names`], ns; 0: it is in time; `None`: nobody can tell.
    pub late: Vec<Option<u64>>,
    /// How many of them the service would refuse.
    pub refused: usize,
}

/// What is judged of a set: its outermost groups, then its tasks that have a budget and are in none.
pub fn names(set: &TaskSet) -> Vec<String> {
    let groups = set.groups.iter().filter(|group| group.parent.is_none());
    let tasks = set.copies().filter(alone);
    groups.map(|group| group.name.clone()).chain(tasks.map(|copy| copy.name())).collect()
}

/// Those of its tasks that are left out, as nobody says how long their jobs take.
pub fn left_out(set: &TaskSet) -> Vec<&str> {
    set.tasks.iter().filter(|task| task.budget.is_none()).map(|task| task.name.as_str()).collect()
}

fn alone(copy: &TaskCopy<'_>) -> bool {
    copy.spec.group.is_none() && copy.spec.budget.is_some()
}

/// One that is judged, where it is served.
struct Asked {
    name: String,
    /// Served: a group, whose members' releases nobody knows.
    one: Delayed,
    threads: u32,
    marks: bool,
    /// What enforces its budget, where its jobs may take more than that; else `None`.
    overruns: Option<Server>,
    /// What may work for longer, in words.
    what: String,
    rank: Option<Rank>,
    priority: Option<u32>,
    seat: Seat,
    part: usize,
}

/// Says how `set` fares under `played`, and those of its sets of CPUs under their own policies.
pub fn judge(set: &TaskSet, played: &CorePolicy) -> Judged {
    judge_by(set, played, false)
}

/// Says how `set` would fare if its tasks' own fixed priorities were the order, one queue for all CPUs, budgets were
/// enforced, and best effort's share were served as beside Onbeat's fixed priorities; `None` if tasks have none.
pub fn judge_priorities(set: &TaskSet) -> Option<Judged> {
    let there = set.tasks.iter().any(|task| task.waits.priority.is_some()) && set.groups.is_empty();
    let order = Order::RATE_MONOTONIC;
    let played = CorePolicy { name: "priority", order, server: Server::CbsHard, about: "" };
    there.then(|| judge_by(set, &played, true))
}

fn judge_by(set: &TaskSet, played: &CorePolicy, by_priority: bool) -> Judged {
    let set = &with_overhead(set);
    let asked = asked(set, played);
    let refused = asked.iter().filter(|one| !one.seat.fits).count();
    let mut said: Vec<Option<Said>> = asked.iter().map(|_| None).collect();
    // What is left of the fullest queue, in parts of its CPUs, and which that is.
    let mut fullest: Option<(f64, String)> = None;
    for (number, part) in set.parts().iter().enumerate() {
        let of = set.policy_of(part, played);
        let machine = machine_of(set, part, played);
        let here: Vec<usize> = (0..asked.len()).filter(|i| asked[*i].part == number).collect();
        for domain in queue::domains(&of, &machine) {
            let inside =
                |i: &&usize| of.order.splits() || domain >> asked[**i].seat.at.domain & 1 == 1;
            let inside: Vec<usize> = here.iter().filter(inside).copied().collect();
            if inside.is_empty() {
                continue;
            }
            let tasks: Vec<&Asked> = inside.iter().map(|i| &asked[*i]).collect();
            let queue = Queue { cpus: domain, tasks: &tasks, policy: &of, set, by_priority };
            let (load, words) = queue.load();
            if fullest.as_ref().is_none_or(|(most, _)| load > *most) {
                fullest = Some((load, words));
            }
            let mut answers = match of.order.key.ranks() {
                true => ranked(set, &asked, &inside),
                false => queue.judge(),
            };
            if let Some(why) = queue.unlimited() {
                answers.iter_mut().for_each(|said| said.doubt(&why));
            }
            inside.iter().zip(answers).for_each(|(i, answer)| said[*i] = Some(answer));
        }
    }
    let said: Vec<Said> =
        said.into_iter().map(|one| one.unwrap_or(Said::Unknown("it has no CPU".into()))).collect();
    let mut late: Vec<Option<u64>> = said.iter().map(Said::late).collect();
    let (mut fits, mut binds) =
        worst(&asked, &said, fullest.map_or(String::new(), |(_, words)| words));
    for group in judge::groups(set, Some((played.order, played.server))) {
        let name = &set.groups[group.group].name;
        let (worse, word) = match group.fits {
            Some(true) => continue,
            Some(false) => (Fits::No, "is too small for its members"),
            None => (Fits::Unproven, "may be too small for its members"),
        };
        if worse > fits {
            let why = group.why.map_or(String::new(), |why| format!(": {why}"));
            (fits, binds) = (worse, format!("group {name} {word}{why}"));
        }
    }
    for purse in purses(set, Some((played.order, played.server))) {
        let name = &set.purses[purse.purse].name;
        let (worse, word) = match purse.fits {
            Some(true) => continue,
            Some(false) => (Fits::No, "makes them wait: budgets ask for more than is in it"),
            None => (Fits::Unproven, "may make them wait"),
        };
        // Who waits for it may be late, and delay others then.
        late.fill(None);
        if worse > fits {
            (fits, binds) = (worse, format!("purse {name} {word}"));
        }
    }
    Judged { fits, binds, late, refused }
}

/// Whether jobs of a task, whose overhead is in its budget, may take more than that. What a program needs, or a movie,
/// nobody knows.
fn overruns(task: &TaskEntry) -> bool {
    if task.work.longest().is_none() {
        return true;
    }
    let budget = task.budget.map(|budget| budget.saturating_sub(task.waits.overhead));
    remedy::beyond(&TaskEntry { budget, ..task.clone() }).is_some()
}

/// Budgets that hold what no budget counts, too.
fn with_overhead(set: &TaskSet) -> TaskSet {
    let mut set = set.clone();
    for task in &mut set.tasks {
        task.budget = task.budget.map(|budget| budget.saturating_add(task.waits.overhead));
    }
    set
}

fn asked(set: &TaskSet, played: &CorePolicy) -> Vec<Asked> {
    let Layout { groups, copies: seats } = lay_out(set, played, SHARE_LEAST);
    let copies: Vec<TaskCopy<'_>> = set.copies().collect();
    let machine = machine_of(set, &set.parts()[0], played);
    let parts = set.parts();
    let policy = |part: usize| set.policy_of(&parts[part], played);
    let one = |Item { of, demand, .. }: Item| match of {
        Of::Group(group) => Some(Asked {
            name: demand.name,
            one: Sporadic::served(demand.budget, demand.period, demand.deadline).into(),
            // Its members may run at a time.
            threads: groups.get(group)?.at.cpus.count_ones(),
            marks: false,
            // What its members want in all nobody knows.
            overruns: Some(
                set.groups[group].rule.unwrap_or(policy(set.part_of_group(group)).server),
            ),
            what: format!("what is in {}", set.groups[group].name),
            rank: None,
            priority: None,
            seat: groups.get(group)?.clone(),
            part: set.part_of_group(group),
        }),
        Of::Copy(i) => {
            let spec = copies[i].spec;
            let task =
                Sporadic { wcet: demand.budget, deadline: spec.deadline, period: spec.period };
            Some(Asked {
                name: demand.name,
                one: Delayed { task, jitter: spec.waits.jitter, blocking: spec.waits.blocking },
                threads: spec.threads,
                marks: spec.marks,
                overruns: overruns(spec).then(|| {
                    let CorePolicy { order, server, .. } = policy(set.part_of(spec));
                    server.of_class(order.key, spec.class == Some(Rank::Hard))
                }),
                what: spec.name.clone(),
                rank: spec.class,
                priority: spec.waits.priority,
                seat: seats[i].clone()?,
                part: set.part_of(spec),
            })
        }
    };
    items(set, &machine).into_iter().filter_map(one).collect()
}

/// The worst of what is said, and why.
fn worst(asked: &[Asked], said: &[Said], fullest: String) -> (Fits, String) {
    let mut all = asked.iter().zip(said);
    let count = |kind: fn(&Said) -> bool| said.iter().filter(|one| kind(one)).count();
    let and_more = |count: usize| match count {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    if let Some((_, Said::Never(why))) =
        all.clone().find(|(_, said)| matches!(said, Said::Never(_)))
    {
        return (Fits::No, why.clone());
    }
    if let Some((one, Said::Unknown(why))) = all.find(|(_, said)| matches!(said, Said::Unknown(_)))
    {
        let more = and_more(count(|one| matches!(one, Said::Unknown(_))));
        return (Fits::Unproven, format!("{}{more}: {why}", one.name));
    }
    let latest = asked.iter().zip(said).max_by_key(|(_, said)| said.late());
    match latest {
        Some((one, Said::Late(late))) if *late > 0 => {
            let more = and_more(count(|one| matches!(one, Said::Late(late) if *late > 0)));
            (Fits::Late(*late), format!("{} is the latest{more}; {fullest}", one.name))
        }
        _ => (Fits::Yes, fullest),
    }
}

/// Where hard ones go before soft ones: those that have their place are in time, and soft ones late by no more than
/// theorem 2 of Kenna et al. says.
fn ranked(set: &TaskSet, asked: &[Asked], inside: &[usize]) -> Vec<Said> {
    let all: Vec<(Delayed, Option<Rank>, Option<&Place>)> = asked
        .iter()
        .map(|one| (one.one, one.rank, one.seat.fits.then_some(&one.seat.at)))
        .collect();
    let bounds = lateness(set, &all);
    let jitter = asked.iter().any(|one| one.one.jitter > 0);
    let one = |i: &usize| {
        let Delayed { task, blocking, .. } = asked[*i].one;
        if !asked[*i].seat.fits {
            return Said::Never(format!("{} has no room beside those before it", asked[*i].name));
        }
        if blocking > 0 {
            return Said::Unknown("no test of hard and soft ones covers blocking".into());
        }
        if jitter {
            return Said::Unknown("no test of hard and soft ones covers jitter".into());
        }
        match (asked[*i].rank, &bounds) {
            (Some(Rank::Hard), _) => asked[*i].ends(task.deadline.min(task.period)),
            (_, Some(bounds)) => {
                let end = task.deadline.min(task.period).saturating_add(bounds[*i]);
                asked[*i].ends(end)
            }
            (_, None) => Said::Unknown("soft ones have no bound here".into()),
        }
    };
    inside.iter().map(one).collect()
}

/// By how much those that are asked for can be late under EDF-HSB, ns, with their classes and places; `None` if one has
/// no place or nothing bounds it. Best effort's servers are among the soft ones: theorem 2 of Kenna, Herman,
/// Brandenburg, Mills and Anderson.
pub fn lateness(
    set: &TaskSet,
    asked: &[(Delayed, Option<Rank>, Option<&Place>)],
) -> Option<Vec<u64>> {
    let mut hard = vec![Vec::new(); set.cpus as usize];
    let mut soft = Vec::new();
    for (one, rank, place) in asked {
        let Sporadic { wcet, period, deadline } = one.task;
        let served = Sporadic::served(wcet, period, deadline);
        match rank {
            Some(Rank::Hard) => hard[(*place)?.cpus.trailing_zeros() as usize].push(served),
            _ => {
                (*place)?;
                soft.push(served);
            }
        }
    }
    let servers = set.servers();
    let each = Sporadic::served(servers.budget, servers.period, servers.period);
    soft.extend((0..servers.count).map(|_| each));
    let mut bounds = hsb_tardiness(&hard, &soft)?.into_iter();
    let of = |(_, rank, _): &(Delayed, Option<Rank>, Option<&Place>)| match rank {
        Some(Rank::Hard) => Some(0),
        _ => bounds.next(),
    };
    asked.iter().map(of).collect()
}
