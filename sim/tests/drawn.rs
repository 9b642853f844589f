// SPDX-License-Identifier: GPL-2.0-only
//! Best effort's servers as members of a group: they get their budgets where the group's is enough, nobody who keeps to
//! a reservation is late for them, and what they leave or cannot have is best effort's all the same.

use std::path::Path;

use onbeat_analysis::groups::judge::groups;
use onbeat_analysis::plan::lay_out;
use onbeat_model::event::EventKind;
use onbeat_model::metrics::metrics;
use onbeat_model::policy::{CORE, CorePolicy};
use onbeat_model::run::{Class, Run};
use onbeat_model::taskset::TaskSet;
use proptest::collection::vec;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn set(text: &str) -> TaskSet {
    TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml"))
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn policy(name: &str) -> &'static CorePolicy {
    CORE.iter().find(|p| p.name == name).unwrap()
}

fn played(set: &TaskSet, policy: &CorePolicy) -> Run {
    onbeat_sim::simulate(set, policy).unwrap()
}

/// When how many best-effort tasks begin (1) and stop (−1) to run.
fn turns(run: &Run) -> Vec<(u64, i64)> {
    let other = |task: u32| {
        run.tasks
            .get(task as usize)
            .is_some_and(|t| matches!(t.class, Class::BestEffort | Class::Periodic))
    };
    let turn = |event: &onbeat_model::event::Event| match event.kind() {
        Some(EventKind::Run) if other(event.task) => Some((event.time, 1)),
        Some(EventKind::Stop) if other(event.task) => Some((event.time, -1)),
        _ => None,
    };
    run.events.iter().filter_map(turn).collect()
}

/// What best effort had by each instant at which that begins to grow faster or slower, up to `end`.
fn had(run: &Run, end: u64) -> Vec<(u64, u64)> {
    let (mut all, mut runs, mut sum) = (vec![(0, 0)], 0i64, 0);
    for (time, change) in turns(run).into_iter().filter(|(time, _)| *time < end).chain([(end, 0)]) {
        sum += (time - all[all.len() - 1].0) * runs as u64;
        all.push((time, sum));
        runs += change;
    }
    all
}

/// The least that best effort had in any window of this length up to `end`.
fn least(run: &Run, window: u64, end: u64) -> u64 {
    let all = had(run, end);
    let by = |time: u64| {
        let after = all.partition_point(|(at, _)| *at <= time).clamp(1, all.len() - 1);
        let ((from, less), (to, more)) = (all[after - 1], all[after]);
        let part =
            u128::from(more - less) * u128::from(time - from) / u128::from((to - from).max(1));
        less + part as u64
    };
    // It is least where a window begins or ends with a change.
    let begins = all.iter().map(|(at, _)| *at).filter(|at| at + window <= end);
    let ends = all.iter().filter_map(|(at, _)| at.checked_sub(window));
    begins.chain(ends).map(|from| by(from + window) - by(from)).min().unwrap_or(u64::MAX)
}

/// A task: its share of what there is in hundredths, period in ms, work in per cent of its budget.
type Task = (u64, u64, u64);

fn task() -> impl Strategy<Value = Task> {
    (
        5..60u64,
        prop::sample::select(vec![4u64, 5, 8, 10, 16, 20, 32, 40]),
        prop_oneof![Just(100), 20..400u64],
    )
}

#[derive(Debug, Clone)]
struct Tree {
    cpus: u32,
    share: u32,
    outside: Vec<Task>,
    /// Of the outer group, and how many members it has beside.
    outer: (u64, u64),
    members: Vec<Task>,
    /// Thousandths of the outer one's rate that the inner one has, if there is one, and its period.
    inner: Option<(u64, u64)>,
    /// Best effort's servers: how many, thousandths of the group's rate for all, their period.
    servers: (u32, u64, u64),
    /// CPUs that best-effort tasks beside the hogs are bound to.
    bound: Vec<u32>,
}

fn trees(cpus: u32) -> impl Strategy<Value = Tree> {
    let period = || prop::sample::select(vec![4u64, 5, 8, 10, 20]);
    let inner = prop::option::of((300..1_000u64, period()));
    let servers = (1..4u32, 20..900u64, prop::sample::select(vec![10u64, 16, 20, 40, 50]));
    let all = (
        1..=cpus,
        0..2u32,
        vec(task(), 0..5),
        (15..80u64, period()),
        vec(task(), 0..3),
        inner,
        servers,
    );
    (all, vec(0..cpus, 0..3)).prop_map(
        |((cpus, share, outside, outer, members, inner, servers), bound)| Tree {
            cpus,
            share: share * 5,
            outside,
            outer,
            members,
            inner,
            servers,
            bound,
        },
    )
}

impl Tree {
    /// The file: what `policy` admits of it.
    fn text(&self, policy: &CorePolicy) -> String {
        let Self { cpus, share, .. } = self;
        let mut text = format!(
            "cpus = {cpus}\nduration = \"1s\"\npolicies = [\"{}\"]\nbest_effort_share = \"{share}%\"\n",
            policy.name
        );
        let group = |name: &str, up: &str, budget: u64, period: u64| {
            format!(
                "[[group]]\nname = \"{name}\"\n{up}budget = \"{budget}us\"\nperiod = \"{period}ms\"\n\
                 rule = \"cbs-hard\"\norder = \"edf\"\n"
            )
        };
        let budget = self.outer.0 * self.outer.1 * 10;
        text += &group("outer", "", budget, self.outer.1);
        let (mut within, mut rate) = ("outer", budget as f64 / (self.outer.1 * 1_000) as f64);
        if let Some((part, period)) = self.inner {
            rate *= part as f64 / 1_000.0;
            text += &group(
                "inner",
                "in = \"outer\"\n",
                ((rate * (period * 1_000) as f64) as u64).max(1),
                period,
            );
            within = "inner";
        }
        let (count, part, period) = self.servers;
        let each = rate * part as f64 / 1_000.0 / f64::from(count) * (period * 1_000) as f64;
        let hogs = count + cpus;
        text += &format!(
            "[best_effort]\ncount = {hogs}\ngroup = \"{within}\"\nservers = {count}\nbudget = \"{}us\"\n\
             period = \"{period}ms\"\n",
            (each as u64).max(1)
        );
        for (i, cpu) in self.bound.iter().enumerate() {
            text += &format!(
                "[[task]]\nname = \"bound{i}\"\nperiod = \"{}ms\"\naffinity = [{}]\nwork = {{ constant = \"3ms\" }}\n",
                7 + i,
                cpu % cpus
            );
        }
        let one = |name: String, (share, period, work): Task, of: f64, more: &str| {
            let budget = ((share * period * 10) as f64 * of) as u64;
            format!(
                "[[task]]\nname = \"{name}\"\nbudget = \"{}us\"\nperiod = \"{period}ms\"\n\
                 {more}work = {{ constant = \"{}us\" }}\n",
                budget.max(1),
                (budget.max(1) * work / 100).max(1)
            )
        };
        for (i, task) in self.members.iter().enumerate() {
            text += &one(format!("member{i}"), *task, rate, "group = \"outer\"\n");
        }
        for (i, task) in self.outside.iter().enumerate() {
            let with = text.clone() + &one(format!("outside{i}"), *task, 1.0, "");
            let layout = lay_out(&set(&with), policy, 1);
            if layout.copies.iter().flatten().all(|seat| seat.fits) {
                text = with;
            }
        }
        text
    }
}

/// Whether every group that best effort's servers are in is enough for its members, provided that it gets its budget.
fn enough(set: &TaskSet, policy: &CorePolicy) -> bool {
    let said = groups(set, Some((policy.order, policy.server)));
    let inside = set.servers_of_group().unwrap().0;
    set.within(inside).all(|group| said[group].fits == Some(true))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Servers are always wanted, so one of their periods follows upon the other, and two of them hold a whole one.
    #[test]
    fn where_the_groups_are_enough_their_servers_of_best_effort_get_their_budget_in_any_two_periods(
        tree in trees(1), isolating in prop::sample::select(vec!["p-edf+cbs-hard", "p-edf+cbs", "g-edzl+cbs-slack"]),
    ) {
        let policy = policy(isolating);
        let set = set(&tree.text(policy));
        prop_assume!(enough(&set, policy));
        let (_, servers) = set.servers_of_group().unwrap();
        let run = played(&set, policy);
        let least = least(&run, 2 * servers.period, SECOND);
        let due = servers.budget * u64::from(servers.count);
        prop_assert!(least >= due, "{} of {} ns in {}", least, due, set.to_toml());
        // Nor are members late that keep to their budgets.
        let late = |task: &&onbeat_model::taskset::TaskEntry| {
            task.group.is_some() && task.work.longest() <= task.budget
        };
        for task in set.tasks.iter().filter(late) {
            let of = run.tasks.iter().position(|t| t.name == task.name).unwrap() as u32;
            let mut due = std::collections::BTreeMap::new();
            for event in run.events.iter().filter(|e| e.task == of) {
                match event.kind() {
                    Some(EventKind::Release) => drop(due.insert(event.a, event.b)),
                    Some(EventKind::Complete) => {
                        prop_assert!(event.time <= due[&event.a], "{} in {}", task.name, set.to_toml())
                    }
                    _ => (),
                }
            }
        }
    }

    #[test]
    fn nobody_outside_is_late_within_the_budget_whatever_the_servers_and_members_do(
        tree in trees(3), isolating in prop::sample::select(vec!["p-edf+cbs-hard", "p-edf+cbs", "p-edzl+cbs-predict"]),
    ) {
        let policy = policy(isolating);
        let set = set(&tree.text(policy));
        let layout = lay_out(&set, policy, 1);
        prop_assume!(layout.groups.iter().all(|seat| seat.fits));
        let figures = metrics(&played(&set, policy));
        prop_assert_eq!(figures.owed_late, 0, "in {}", set.to_toml());
    }
}

/// 3 ms of every 10 ms on a full CPU.
const FULL: &str = "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\nbest_effort_share = \"0%\"\n\
                    [[group]]\nname = \"g\"\nbudget = \"3ms\"\nperiod = \"10ms\"\n\
                    [[task]]\nname = \"t\"\nbudget = \"7ms\"\nperiod = \"10ms\"\nwork = { constant = \"7ms\" }\n";

#[test]
fn beside_a_reservation_that_leaves_nothing_else_best_effort_has_its_groups_budget_and_no_more() {
    for (name, servers, budget, most) in
        [("all", 1, 3, 300), ("half", 1, 2, 300), ("more than it has", 3, 1, 300)]
    {
        let text = format!(
            "{FULL}[best_effort]\ncount = 3\ngroup = \"g\"\nservers = {servers}\nbudget = \"{budget}ms\"\n\
             period = \"10ms\"\n"
        );
        let run = played(&set(&text), policy("p-edf+cbs-hard"));
        assert_eq!(metrics(&run).misses, 0, "{name}");
        // What the task does not want of its 7 ms is nobody's here.
        let had = had(&run, SECOND).last().unwrap().1;
        assert_eq!(had / MS, most, "{name}");
    }
}

#[test]
fn when_the_groups_budget_is_used_up_best_effort_still_has_idle_cpus_and_its_share() {
    // A hog in the group uses up its budget; one outside takes all but the share of the first CPU.
    for (share, least) in [(0, 1_000), (10, 1_060)] {
        let text = format!(
            "cpus = 2\nduration = \"1s\"\npolicies = [\"p-edf+cbs\"]\nbest_effort_share = \"{share}%\"\n\
             [[group]]\nname = \"g\"\nbudget = \"1ms\"\nperiod = \"100ms\"\nrule = \"cbs-hard\"\ncpus = [0]\n\
             [[task]]\nname = \"hog\"\nbudget = \"1ms\"\nperiod = \"100ms\"\ngroup = \"g\"\n\
             work = {{ constant = \"2s\" }}\n\
             [[task]]\nname = \"other\"\nbudget = \"80ms\"\nperiod = \"100ms\"\naffinity = [0]\n\
             work = {{ constant = \"2s\" }}\n\
             [best_effort]\ncount = 4\ngroup = \"g\"\nservers = 1\nbudget = \"1ms\"\nperiod = \"100ms\"\n"
        );
        let had = had(&played(&set(&text), policy("p-edf+cbs")), SECOND).last().unwrap().1;
        assert!(had >= least * MS, "{share} %: {had}");
    }
}

#[test]
fn servers_of_a_group_whose_cpus_nobody_waits_for_put_no_budget_by() {
    // Who is bound to CPU 1 waits for long; then one comes to CPU 0, and must not have old budgets at old deadlines:
    // the task there, due 3 ms after its release, would be late.
    let text = "cpus = 2\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\nbest_effort_share = \"0%\"\n\
                [[group]]\nname = \"g\"\nbudget = \"10ms\"\nperiod = \"40ms\"\ncpus = [0]\n\
                [[task]]\nname = \"t\"\nbudget = \"3ms\"\nperiod = \"4ms\"\naffinity = [0]\noffset = \"199ms\"\n\
                work = { constant = \"3ms\" }\n\
                [[task]]\nname = \"u\"\nbudget = \"1s\"\nperiod = \"1s\"\naffinity = [1]\n\
                work = { constant = \"1s\" }\n\
                [[task]]\nname = \"there\"\nperiod = \"1s\"\naffinity = [1]\nwork = { constant = \"500ms\" }\n\
                [[task]]\nname = \"here\"\nperiod = \"400ms\"\naffinity = [0]\noffset = \"200ms\"\n\
                work = { constant = \"60ms\" }\n\
                [best_effort]\ncount = 0\ngroup = \"g\"\nservers = 2\nbudget = \"5ms\"\nperiod = \"40ms\"\n";
    let run = played(&set(text), policy("p-edf+cbs-hard"));
    assert_eq!(metrics(&run).owed_late, 0);
}
