// SPDX-License-Identifier: GPL-2.0-only
//! EDF-HSB, with and without reclaiming: hard reservations are never late whatever the others do, soft ones by no more
//! than the bound, and best effort's servers give it their rate.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::scene::{Scene, Sort, plays, policies, scenes, window_lack};
use onbeat_analysis::global::hsb::hsb_tardiness;
use onbeat_analysis::sporadic::Sporadic;
use onbeat_model::event::EventKind;
use onbeat_model::rank::{Rank, Servers};
use onbeat_model::run::{Class, Run};
use onbeat_model::taskset::{TaskCopy, TaskSet};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// By how much each task's jobs were late at most, ns, of those that are done or should be; in the order of copies.
fn late(run: &Run) -> Vec<u64> {
    let mut due = BTreeMap::new();
    let mut late = vec![0; run.tasks.iter().filter(|task| task.class != Class::BestEffort).count()];
    for event in &run.events {
        match event.kind() {
            Some(EventKind::Release) => drop(due.insert((event.task, event.a), event.b)),
            Some(EventKind::Complete) => {
                let due = due.remove(&(event.task, event.a)).expect("it was released");
                let most = &mut late[event.task as usize];
                *most = (*most).max(event.time.saturating_sub(due));
            }
            _ => {}
        }
    }
    for ((task, _), due) in due {
        late[task as usize] = late[task as usize].max(run.horizon_ns.saturating_sub(due));
    }
    late
}

fn is_soft(copy: &TaskCopy<'_>) -> bool {
    copy.spec.class == Some(Rank::Soft)
}

/// Bounds of the soft tasks of a scene, in order; best effort's servers are among what delays them.
fn bounds(scene: &Scene) -> Option<Vec<u64>> {
    let set = scene.set();
    let of = |copy: &TaskCopy<'_>| Sporadic::implicit(copy.spec.budget.unwrap(), copy.spec.period);
    let mut hard = vec![Vec::new(); set.cpus as usize];
    let layout = scene.layout();
    for (copy, seat) in set.copies().zip(&layout.copies) {
        if copy.spec.class == Some(Rank::Hard) {
            hard[seat.as_ref().unwrap().at.cpus.trailing_zeros() as usize].push(of(&copy));
        }
    }
    let soft = set.copies().filter(is_soft);
    let mut soft: Vec<Sporadic> = soft.map(|copy| of(&copy)).collect();
    let Servers { count, budget, period } = set.servers();
    soft.extend(vec![Sporadic::implicit(budget, period); count as usize]);
    hsb_tardiness(&hard, &soft)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn who_is_hard_is_never_late_whatever_soft_ones_and_best_effort_do(
        scene in scenes(Sort { soft_overrun: 400, share: 1, ..Sort::ANY })
    ) {
        let set = scene.set();
        for (policy, run) in plays(&scene) {
            for (copy, late) in set.copies().zip(late(&run)) {
                let hard = copy.spec.class == Some(Rank::Hard);
                prop_assert!(!hard || late == 0, "{} is {late} ns late, {policy}, {}", copy.name(), scene.0);
            }
        }
    }

    #[test]
    fn who_is_soft_and_keeps_its_budget_is_late_by_no_more_than_the_bound(scene in scenes(Sort::ANY)) {
        let set = scene.set();
        let Some(bounds) = bounds(&scene) else {
            panic!("what is admitted has a bound: {}", set.to_toml());
        };
        for (policy, run) in plays(&scene) {
            let soft = set.copies().zip(late(&run)).filter(|(copy, _)| is_soft(copy));
            for ((copy, late), bound) in soft.zip(&bounds) {
                let name = copy.name();
                prop_assert!(late <= *bound, "{name} is {late} ns late, above {bound}, {policy}, {}", scene.0);
            }
        }
    }

    #[test]
    fn best_effort_gets_its_servers_rate_in_every_long_window_of_a_full_machine(
        scene in scenes(Sort { soft_overrun: 400, hard_overrun: 400, hogs: (8, 12), share: 0 })
    ) {
        // In a window of length l a server of tardiness t gets its budget in each of its periods that lie within it,
        // all but two and t.
        let set = scene.set();
        let Servers { count, budget, period } = set.servers();
        let late = bounds(&scene).expect("what is admitted has a bound").pop().unwrap_or(0);
        let each = budget as u128 * (2 * period + late) as u128 / period as u128 + budget as u128;
        let most = each as u64 * u64::from(count);
        for (policy, run) in plays(&scene) {
            let lack = window_lack(&run, u64::from(count) * budget, period);
            prop_assert!(lack <= most, "{lack} ns are missing, of at most {most}, {policy}, {}", scene.0);
        }
    }
}

fn set(text: &str) -> TaskSet {
    let top = "policies = [\"edf-hsb-ns\"]\nbest_effort_share = \"0%\"\n";
    TaskSet::from_bytes(format!("{top}{text}").as_bytes(), Path::new("set.toml")).unwrap()
}

fn simulated(set: &TaskSet) -> Run {
    let policy = onbeat_model::policy::CORE.iter().find(|p| p.name == "edf-hsb-ns").unwrap();
    onbeat_sim::simulate(set, policy).unwrap()
}

/// CPU time that best effort had, ns.
fn others(run: &Run) -> u64 {
    let cpus = onbeat_model::metrics::metrics(run).best_effort_cpus;
    (cpus * run.horizon_ns as f64) as u64
}

#[test]
fn where_nobody_is_best_effort_its_servers_cost_nobody_anything() {
    let text = "cpus = 1\nduration = \"1s\"\n[best_effort]\ncount = 0\nservers = 1\nbudget = \"40ms\"\n\
                period = \"50ms\"\n[[task]]\nname = \"s\"\nbudget = \"10ms\"\nperiod = \"10ms\"\n\
                work = { constant = \"10ms\" }\n";
    assert_eq!(late(&simulated(&set(text))), [0]);
}

#[test]
fn a_cpu_that_would_idle_runs_best_effort_beyond_its_servers() {
    // Two CPUs, 40 % of one is reserved; best effort has 10 % of each by its servers, and all that is left.
    let text = "cpus = 2\nduration = \"2s\"\n[best_effort]\ncount = 5\n[[task]]\nname = \"s\"\nbudget = \"4ms\"\n\
                period = \"10ms\"\nwork = { constant = \"4ms\" }\n";
    let run = simulated(&set(text));
    let had = others(&run);
    assert!((3_199 * MS..=3_200 * MS).contains(&had), "{had}");
}

#[test]
fn generators_have_what_they_ask_for_where_there_is_room_and_their_servers_rate_each_second_where_not()
 {
    // 0.118 CPUs each (e^-2 of the gaps and 1 - e^-0.2 of the times are cut), from which a minute of twelve deviates by
    // 0.05: a burst and a gap deviate by about their means, and there are 700 a minute of each.
    let text = "cpus = 8\nduration = \"60s\"\nbest_effort = { generators = 12 }\n";
    let figures = |set: &TaskSet| onbeat_model::metrics::detailed(&simulated(set));
    let (idle, tasks) = figures(&set(text));
    assert!((1.30..1.53).contains(&idle.best_effort_cpus), "{}", idle.best_effort_cpus);
    assert!(tasks.iter().all(|t| t.wakes > 300), "each comes to rest");

    // Where soft ones that never sleep leave 0.3 CPUs, of which two servers guarantee 0.2, thirty want 3.5.
    let text = "cpus = 2\nduration = \"5s\"\nbest_effort = { generators = 30 }\n\
                [[task]]\nname = \"s\"\ncount = 2\nbudget = \"17ms\"\nperiod = \"20ms\"\n\
                work = { constant = \"20ms\" }\n";
    let full = set(text);
    let (busy, _) = figures(&full);
    let least = busy.best_effort_least_cpus.unwrap();
    assert!((0.29..0.31).contains(&busy.best_effort_cpus), "{}", busy.best_effort_cpus);
    assert!((0.2..0.31).contains(&least), "{least}");
    let policy = onbeat_model::policy::CORE.iter().find(|p| p.name == "edf-hsb-ns").unwrap();
    let brief = onbeat_sim::figures(&full, policy).unwrap().1;
    assert_eq!(brief.best_effort_least_cpus, Some(least), "without events it is the same");
}

#[test]
fn an_overrunning_hard_one_takes_nothing_from_a_soft_one_that_fills_the_cpu() {
    let text = "cpus = 1\nduration = \"1s\"\nbest_effort = { count = 4, servers = 0 }\n\
                [[task]]\nname = \"h\"\nclass = \"hard\"\nbudget = \"4ms\"\nperiod = \"10ms\"\n\
                work = { constant = \"9ms\" }\n\
                [[task]]\nname = \"s\"\nbudget = \"12ms\"\nperiod = \"20ms\"\nwork = { constant = \"12ms\" }\n";
    assert_eq!(late(&simulated(&set(text)))[1], 0);
    for policy in onbeat_model::policy::CORE.iter().filter(|p| p.order.key.ranks()) {
        let run = onbeat_sim::simulate(&set(text), policy).unwrap();
        let isolates = policy.server.isolates();
        assert!(late(&run)[1] == 0 || !isolates, "{}", policy.name);
    }
}

/// The mean tardiness of all jobs of soft tasks, ms, without and with reclaiming.
fn tardiness(set: &TaskSet) -> Vec<f64> {
    let mean = |policy| {
        let run = onbeat_sim::simulate(set, policy).unwrap();
        onbeat_model::metrics::metrics(&run).tardiness_mean_ms.expect("jobs")
    };
    policies().map(mean).collect()
}

#[test]
fn reclaiming_and_background_lower_tardiness_by_two_orders_of_magnitude_at_the_edge() {
    // As many videos as the paper's machine takes but one, with the budgets that fill it; best effort wants all.
    let text = "cpus = 11\nduration = \"60s\"\nseed = 7\nbest_effort = { count = 36, servers = 11 }\n\
                [[task]]\nname = \"show\"\nclass = \"hard\"\ncount = 21\nbudget = \"4ms\"\nperiod = \"41.708ms\"\n\
                stagger = \"1.9ms\"\nwork = { uniform = [\"1ms\", \"4ms\"] }\n\
                [[task]]\nname = \"decode\"\ncount = 21\nbudget = \"15.7ms\"\nperiod = \"41.708ms\"\n\
                stagger = \"1.9ms\"\n\
                work = { normal = { mean = \"14.49ms\", sd = \"5.19ms\", max = \"60ms\" } }\n";
    let [without, with] = tardiness(&set(text))[..] else { panic!("two policies") };
    assert!(without > 100.0 * with, "{without} ms, with {with} ms");
}
