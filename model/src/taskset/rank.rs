// SPDX-License-Identifier: GPL-2.0-only
//! Classes of tasks and servers of best effort, in files whose policies know them.

use super::table::{Fault, Table, fault};
use super::{Group, TaskSet, group, limits, task};
use crate::policy::Sets;
use crate::rank::{Rank, Servers};

/// The class of a task; `reserved`: it has a budget.
pub(super) fn of_task(t: &Table<'_, '_>, reserved: bool) -> Result<Option<Rank>, Fault> {
    let Some(class) = t.string("class")? else { return Ok(None) };
    let rank: Rank = match class.value.parse() {
        Ok(rank) => rank,
        Err(error) => {
            let error: String = error;
            let (reason, remedy) = error.split_once("; ").unwrap_or((&error, "see docs"));
            return fault(class.at, reason, remedy);
        }
    };
    if !reserved {
        let reason = "a task has a class, but no budget, so it is best effort";
        return fault(class.at, reason, "add a budget, or leave class out");
    }
    if t.value("group").is_some() {
        let reason = "a task in a group has a class, but takes its turns within the group";
        return fault(class.at, reason, "leave class or group out");
    }
    Ok(Some(rank))
}

/// The group whose members best effort's servers are.
pub(super) fn group(t: &Table<'_, '_>, groups: &[Group]) -> Result<Option<usize>, Fault> {
    let named = t.string("group")?;
    named.map(|name| group::named(&name, groups)).transpose()
}

/// The servers of best effort that [best_effort] describes; in a group one for each of its CPUs where the file does not
/// say how many.
pub(super) fn servers(
    t: &Table<'_, '_>,
    cpus: u32,
    groups: &[Group],
    inside: Option<usize>,
) -> Result<Option<Servers>, Fault> {
    let count = t.integer("servers", 0, limits::CPUS as i64)?;
    let budget = t.duration("budget", 1, limits::TIME)?;
    let period = t.duration("period", limits::PERIOD_MIN, limits::TIME)?;
    if count.is_none() && budget.is_none() && period.is_none() && inside.is_none() {
        return Ok(None);
    }
    let wide = inside.map_or(cpus, |inside| group::cpus_of(groups, inside, cpus).count_ones());
    let each = Servers::each(wide);
    let period = period.map_or(each.period, |p| p.value);
    if let Some(budget) = &budget {
        task::check_budget(budget, period, period)?;
    }
    let servers = Servers {
        count: count.map_or(each.count, |c| c.value as u32),
        budget: budget.map_or(each.budget.min(period), |b| b.value),
        period,
    };
    if inside.is_some() && servers.count == 0 {
        let reason = "best effort is in a group, but has no servers there";
        let remedy = "give servers = 1 or more, or leave group out";
        return fault(t.at_key("servers"), reason, remedy);
    }
    Ok(Some(servers))
}

/// Best effort's servers are in no group whose members, or which itself, an order chooses from.
fn check_choosers(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let Some((group, _)) = set.servers_of_group() else { return Ok(()) };
    let played = set.policies.iter().chain(set.sets.iter().map(|named| &named.policy));
    let played = played.filter_map(|policy| policy.order().map(|order| order.key));
    let own = set.within(group).filter_map(|group| set.groups[group].order);
    let Some(key) = played.chain(own).find(|key| key.chooses()) else { return Ok(()) };
    let at = top.value("best_effort").map_or(0, |table| table.span().start);
    let reason = format!(
        "{} chooses a set of jobs, and best effort's servers are in no such choice",
        key.name()
    );
    fault(at, reason, "play another policy, give the groups another order, or leave group out")
}

/// Under every policy that is played the CPUs of their group hold best effort's servers.
fn check_width(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    let Some((group, servers)) = set.servers_of_group() else { return Ok(()) };
    let part = set.parts().swap_remove(set.part_of_group(group));
    let of = &set.groups[group];
    let cpus = (part.cpus & set.group_cpus(group)).count_ones();
    let orders = set.policies.iter().filter_map(|policy| match part.set {
        Some(named) => set.sets[named].policy.order(),
        None => policy.order(),
    });
    for order in orders {
        let wide = match order.sets {
            Sets::Global => cpus,
            Sets::Clustered => cpus.min(part.cpus.count_ones() / part.clusters.max(1)),
            Sets::Partitioned => 1,
        };
        let asked = u128::from(servers.budget) * u128::from(servers.count);
        let there = u128::from(wide) * u128::from(of.budget) * u128::from(servers.period);
        if asked * u128::from(of.period) > there {
            let at = top.value("best_effort").map_or(0, |table| table.span().start);
            let on = if wide == 1 { "one CPU".into() } else { format!("{wide} CPUs") };
            let reason = format!(
                "best effort's servers, {servers}, are more than their group \"{}\" has, which {} serves on {on}",
                of.name,
                order.name()
            );
            return fault(at, reason, "say servers, budget and period, or give the group more");
        }
    }
    Ok(())
}

/// Where no policy ranks, classes and servers mean nothing.
pub(super) fn check(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    check_choosers(top, set)?;
    check_width(top, set)?;
    if set.policies.iter().any(|policy| policy.order().is_some_and(|order| order.key.ranks())) {
        return Ok(());
    }
    let what = if let Some(i) = set.tasks.iter().position(|task| task.class.is_some()) {
        let list = top.value("task").and_then(|list| list.get_ref().as_array());
        let at = list.and_then(|list| list.get(i)).map_or(0, |task| task.span().start);
        Some((at, format!("the task \"{}\" has a class", set.tasks[i].name), "class"))
    } else if set.best_effort.is_some_and(|b| b.servers.is_some() && b.group.is_none()) {
        let at = top.value("best_effort").map_or(0, |table| table.span().start);
        Some((at, "best effort has servers".into(), "servers, budget and period"))
    } else {
        None
    };
    let Some((at, what, keys)) = what else { return Ok(()) };
    let reason = format!("{what}, but none of the policies knows classes");
    let remedy = format!("add \"edf-hsb\" to policies, or leave {keys} out");
    let or = if keys == "class" { "" } else { "; or name a group in [best_effort]" };
    fault(at, reason, remedy + or)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::taskset::TaskSet;
    use crate::units::MS;

    const GROUP: &str = "[[group]]\nname = \"g\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n";

    fn read(policy: &str, task: &str, best_effort: &str) -> Result<TaskSet, String> {
        let text = format!(
            "cpus = 2\nduration = \"1s\"\npolicies = [\"{policy}\"]\n[best_effort]\ncount = 1\n{best_effort}\n\
             {}[[task]]\nname = \"t\"\nperiod = \"10ms\"\nwork = {{ constant = \"1ms\" }}\n{task}\n",
            if task.contains("group") { GROUP } else { "" },
        );
        TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn classes_and_servers_are_read_and_have_defaults() {
        let set = read("edf-hsb-ns", "budget = \"1ms\"\nclass = \"hard\"", "servers = 3").unwrap();
        assert_eq!(set.tasks[0].class, Some(Rank::Hard));
        let each = Servers::each(2);
        assert_eq!((each.count, each.budget, each.period), (2, 5 * MS, 50 * MS));
        assert_eq!(set.servers(), Servers { count: 3, ..each });
        let set = read("edf-hsb-ns", "budget = \"1ms\"", "").unwrap();
        assert_eq!((set.tasks[0].class, set.servers()), (None, each));
        assert_eq!(each.to_string().parse(), Ok(each));
    }

    #[test]
    fn a_group_may_have_best_efforts_servers_under_any_policy_and_be_there_for_them_alone() {
        for policy in ["g-rm+cbs-hard", "edf-hsb-ns", "g-edzl+cbs-predict"] {
            let best_effort = "group = \"g\"\nbudget = \"1ms\"\nperiod = \"10ms\"";
            let text = format!(
                "cpus = 2\nduration = \"1s\"\npolicies = [\"{policy}\"]\n{GROUP}[best_effort]\ncount = 1\n\
                 {best_effort}\n"
            );
            let set = TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).unwrap();
            let servers = Servers { count: 2, budget: MS, period: 10 * MS };
            assert_eq!(set.servers_of_group(), Some((0, servers)));
            assert_eq!(set.servers().count, 0, "none outside");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_with_what_to_do() {
        let hard = "budget = \"1ms\"\nclass = \"hard\"";
        let group = "budget = \"1us\"\ngroup = \"g\"";
        for (policy, task, best_effort, reason) in [
            ("edf-hsb-ns", "class = \"hard\"", "", "no budget"),
            (
                "edf-hsb-ns",
                "budget = \"1ms\"\ngroup = \"g\"\nclass = \"soft\"",
                "",
                "in a group has a class",
            ),
            ("edf-hsb-ns", "budget = \"1ms\"\nclass = \"firm\"", "", "there is no class \"firm\""),
            ("g-edf+cbs-hard", hard, "", "none of the policies knows classes"),
            ("g-edf+cbs-hard", "", "servers = 2", "none of the policies knows classes"),
            ("edf-hsb-ns", "", "servers = 65", "65"),
            ("edf-hsb-ns", "", "budget = \"51ms\"", "above the period"),
            ("g-edf+cbs", "", "group = \"h\"", "there is no group \"h\""),
            ("g-edf+cbs", group, "group = \"h\"", "did you mean \"g\"?"),
            ("g-edf+cbs", group, "group = \"g\"\nservers = 0", "no servers there"),
            // Two CPUs with 1 ms in 10 ms each.
            (
                "g-edf+cbs",
                group,
                "group = \"g\"\nservers = 3\nperiod = \"10ms\"\nbudget = \"1ms\"",
                "more than",
            ),
            (
                "p-edf+cbs-hard",
                group,
                "group = \"g\"\nperiod = \"10ms\"\nbudget = \"1ms\"",
                "p-edf serves on one CPU",
            ),
            ("g-dasa+cbs", group, "group = \"g\"\nbudget = \"1ms\"", "chooses a set"),
            ("g-edf", group, "group = \"g\"\nbudget = \"1ms\"", "enforces no budgets"),
        ] {
            let error = read(policy, task, best_effort).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        for wrong in
            ["", "4", "4:5ms", "4:5ms:4ms", "65:1ms:2ms", "4:0ms:1ms", "4:1ms:2h", "x:1ms:2ms"]
        {
            assert!(wrong.parse::<Servers>().is_err(), "{wrong}");
        }
    }
}
