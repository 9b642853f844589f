// SPDX-License-Identifier: GPL-2.0-only
//! Random task sets of hard, soft and best-effort work that admission takes, and what the simulator makes of them.

use std::path::Path;

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::{Layout, Plan};
use onbeat_model::event::EventKind;
use onbeat_model::policy::{CORE, CorePolicy, Order};
use onbeat_model::run::{Class, Run};
use onbeat_model::taskset::TaskSet;
use proptest::collection::vec;
use proptest::prelude::*;

/// What kinds of sets are wanted.
#[derive(Clone, Copy)]
pub struct Sort {
    /// How much of its budget a job of a soft one may need, per cent; of a hard one.
    pub soft_overrun: u64,
    pub hard_overrun: u64,
    /// Endless best-effort tasks.
    pub hogs: (u32, u32),
    /// Best effort's share, per cent.
    pub share: u32,
}

impl Sort {
    pub const ANY: Sort = Sort { soft_overrun: 100, hard_overrun: 100, hogs: (0, 9), share: 0 };
}

/// A set as a file: what fits of what was asked for.
#[derive(Debug, Clone)]
pub struct Scene(pub String);

pub fn policy() -> &'static CorePolicy {
    CORE.iter().find(|p| p.name == "edf-hsb-ns").unwrap()
}

/// EDF-HSB without reclaiming, and with it.
pub fn policies() -> impl Iterator<Item = &'static CorePolicy> {
    CORE.iter().filter(|p| ["edf-hsb-ns", "edf-hsb"].contains(&p.name))
}

fn parse(text: &str) -> TaskSet {
    TaskSet::from_bytes(text.as_bytes(), Path::new("scene.toml")).unwrap()
}

fn laid(set: &TaskSet) -> Layout {
    let order: Order = policy().order;
    let machine = Machine::under(order, set.cpus, set.clusters, set.best_effort_share);
    Plan::new(machine.drawing(set.servers())).lay_out(set)
}

impl Scene {
    pub fn set(&self) -> TaskSet {
        parse(&self.0)
    }

    pub fn layout(&self) -> Layout {
        laid(&self.set())
    }
}

/// Sets of several tasks that fit, on 1 to 4 CPUs, two seconds long.
pub fn scenes(sort: Sort) -> impl Strategy<Value = Scene> {
    let period = prop::sample::select(vec![5u64, 8, 10, 16, 20, 25, 40]);
    let task = (any::<bool>(), 1..70u64, period, 0..40u64, 1..=100u64, any::<bool>());
    let servers = (0..=6u32, 1..12u64, 20..60u64);
    let hogs = sort.hogs.0..=sort.hogs.1;
    // Best effort that sleeps and wakes, bound to a CPU or not.
    let sleeper = (1..20u64, 5..60u64, 0..8u32);
    let all = (1..=4u32, vec(task, 1..14), servers, hogs, vec(sleeper, 0..4));
    let scenes = all.prop_map(move |(cpus, tasks, servers, hogs, sleepers)| {
        let (count, budget, each) = servers;
        // At most half a CPU each, and no more than all of them.
        let budget = budget.min(each / 2 - 1).min(each * u64::from(cpus) / (u64::from(cpus) + 1));
        let top = format!(
            "cpus = {cpus}\nduration = \"2s\"\npolicies = [\"edf-hsb-ns\"]\n\
             best_effort_share = \"{}%\"\nbest_effort = {{ count = {hogs}, servers = {}, \
             budget = \"{budget}ms\", period = \"{each}ms\" }}\n",
            sort.share,
            count.min(cpus + 1),
        );
        let mut text = top;
        for (i, (hard, part, period, offset, least, whole)) in tasks.into_iter().enumerate() {
            let overrun = if hard { sort.hard_overrun } else { sort.soft_overrun };
            let budget = period * 10 * part;
            let most = budget * overrun / 100;
            let work = if whole { format!("constant = \"{most}us\"") } else {
                format!("uniform = [\"{}us\", \"{most}us\"]", (budget * least / 100).max(1))
            };
            let class = if hard { "hard" } else { "soft" };
            let one = format!(
                "[[task]]\nname = \"t{i}\"\nclass = \"{class}\"\nbudget = \"{budget}us\"\nperiod = \"{period}ms\"\n\
                 offset = \"{offset}ms\"\nwork = {{ {work} }}\n",
            );
            let with = text.clone() + &one;
            if laid(&parse(&with)).copies.iter().flatten().all(|seat| seat.fits) {
                text = with;
            }
        }
        for (i, (period, part, cpu)) in sleepers.into_iter().enumerate() {
            let affinity = if cpu < cpus { format!("affinity = [{cpu}]") } else { String::new() };
            text += &format!(
                "[[task]]\nname = \"z{i}\"\nperiod = \"{period}ms\"\n{affinity}\n\
                 work = {{ constant = \"{}us\" }}\n",
                period * 10 * part,
            );
        }
        Scene(text)
    });
    scenes.prop_filter("something fits", |scene| scene.0.contains("class"))
}

/// What it comes to under each of [`policies`].
pub fn plays(scene: &Scene) -> impl Iterator<Item = (&'static str, Run)> + use<> {
    let set = scene.set();
    policies().map(move |policy| (policy.name, onbeat_sim::simulate(&set, policy).unwrap()))
}

/// How much best effort lacks at most of `budget` in every `period`, in any window of the run's first two seconds, ns.
pub fn window_lack(run: &Run, budget: u64, period: u64) -> u64 {
    let (mut running, mut since, mut ahead, mut most, mut lack) = (0i64, 0u64, 0i128, 0i128, 0i128);
    for event in run.events.iter().filter(|event| event.time <= 2_000_000_000) {
        let Some(task) = run.tasks.get(event.task as usize) else { continue };
        if task.class == Class::Reserved {
            continue;
        }
        let change = match event.kind() {
            Some(EventKind::Run) => 1,
            Some(EventKind::Stop) => -1,
            _ => continue,
        };
        let time = i128::from(event.time - since);
        // What it is ahead of its rate; a window that ends here began best where it was most ahead.
        ahead += i128::from(running) * time * i128::from(period) - time * i128::from(budget);
        most = most.max(ahead);
        lack = lack.max(most - ahead);
        (running, since) = (running + change, event.time);
    }
    (lack / i128::from(period)) as u64
}
