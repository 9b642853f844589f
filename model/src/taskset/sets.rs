// SPDX-License-Identifier: GPL-2.0-only
//! `[[set]]` entries: CPUs under a policy of their own. Those that no set names are the default set, which the policy
//! that is played serves.

use serde::{Deserialize, Serialize};

use super::parse::{clusters_of, cpu_list, plain_name};
use super::table::{Fault, Table, fault};
use super::{BestEffort, Group, TaskEntry, TaskSet};
use crate::policy::{CorePolicy, Order, Policy};
use crate::rank::Servers;
use crate::units::clip;

const SET: [&str; 4] = ["name", "cpus", "policy", "clusters"];

/// What CPUs are called that no set names.
pub const DEFAULT_SET: &str = "default";

/// CPUs under a policy of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet {
    /// Its name; no other set's, nor [`DEFAULT_SET`].
    pub name: String,
    /// Its CPUs, ascending, at least one, none of another set's.
    pub cpus: Vec<u32>,
    /// Its policy, one of Onbeat's own.
    pub policy: Policy,
    /// Number of equal clusters under the `c-…` orders; divides the number of its CPUs.
    pub clusters: u32,
}

impl CpuSet {
    /// Its CPUs, a bit for each.
    pub fn mask(&self) -> u64 {
        self.cpus.iter().fold(0, |mask, cpu| mask | 1 << cpu)
    }

    /// Its policy.
    ///
    /// # Panics
    /// The policy is none of Onbeat's own: no file says so.
    pub fn core(&self) -> &'static CorePolicy {
        self.policy.core().expect("a set has a policy of the core")
    }
}

/// CPUs that are under one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Index in [`TaskSet::sets`]; `None`: the default set.
    pub set: Option<usize>,
    /// A bit for each CPU.
    pub cpus: u64,
    /// Number of equal clusters under the `c-…` orders.
    pub clusters: u32,
}

/// The set of a reservation that names none and may use the CPUs `may`: the first, the default set before all others,
/// that has one of them. `None`: no set has.
pub fn home(sets: impl IntoIterator<Item = u64>, may: u64) -> Option<usize> {
    sets.into_iter().position(|cpus| cpus & may != 0)
}

fn mask(list: Option<&Vec<u32>>) -> u64 {
    list.map_or(u64::MAX, |list| list.iter().fold(0, |mask, cpu| mask | 1 << cpu))
}

impl TaskSet {
    /// The default set, if it has CPUs, and those of the file.
    pub fn parts(&self) -> Vec<Part> {
        let named = self.sets.iter().fold(0, |mask, set| mask | set.mask());
        let rest = u64::MAX >> (u64::BITS - self.cpus) & !named;
        let default = (rest != 0).then(|| Part {
            set: None,
            cpus: rest,
            clusters: clusters_of(rest.count_ones(), self.clusters),
        });
        let sets = self.sets.iter().enumerate().map(|(i, set)| Part {
            set: Some(i),
            cpus: set.mask(),
            clusters: set.clusters,
        });
        default.into_iter().chain(sets).collect()
    }

    /// The policy of a part, where `played` serves the default set.
    pub fn policy_of(&self, part: &Part, played: &CorePolicy) -> CorePolicy {
        part.set.map_or(*played, |set| *self.sets[set].core())
    }

    /// One of [`TaskSet::parts`] and what it serves as a task set of its own, on CPUs from 0 on.
    ///
    /// # Panics
    /// There is no part of that number.
    pub fn alone(&self, number: usize) -> TaskSet {
        let part = self.parts().swap_remove(number);
        let own: Vec<u32> = (0..self.cpus).filter(|cpu| part.cpus >> cpu & 1 == 1).collect();
        let here = |list: &Option<Vec<u32>>| {
            let list = list.as_ref()?;
            let at = |cpu: &u32| own.iter().position(|own| own == cpu).map(|at| at as u32);
            Some(list.iter().filter_map(at).collect::<Vec<u32>>())
                .filter(|list| list.len() < own.len())
        };
        let kept: Vec<usize> =
            (0..self.groups.len()).filter(|g| self.part_of_group(*g) == number).collect();
        let index = |g: usize| kept.iter().position(|kept| *kept == g);
        let mut set = TaskSet {
            cpus: own.len() as u32,
            clusters: part.clusters,
            sets: Vec::new(),
            tasks: Vec::new(),
            groups: Vec::new(),
            ..self.clone()
        };
        if let Some(named) = part.set.map(|named| &self.sets[named]) {
            set.name = format!("{}, set {}", self.name, named.name);
            set.policies = vec![named.policy.clone()];
        }
        for group in kept.iter().map(|g| &self.groups[*g]) {
            set.groups.push(Group {
                parent: group.parent.and_then(index),
                cpus: here(&group.cpus),
                set: None,
                ..group.clone()
            });
        }
        if let Some((group, servers)) = self.servers_of_group() {
            let group = index(group);
            // Elsewhere they are none of this part's, and none are here in their place.
            let count = if group.is_some() { servers.count } else { 0 };
            let servers = Some(Servers { count, ..servers });
            set.best_effort = self.best_effort.map(|all| BestEffort { group, servers, ..all });
        }
        for task in self.tasks.iter().filter(|task| self.part_of(task) == number) {
            set.tasks.push(TaskEntry {
                group: task.group.and_then(index),
                affinity: here(&task.affinity),
                set: None,
                ..task.clone()
            });
        }
        set
    }

    /// Which of [`TaskSet::parts`] serves a group: its own, or that of the group it is in.
    pub fn part_of_group(&self, group: usize) -> usize {
        let outermost = self.within(group).last().unwrap_or(group);
        let named = self.within(group).find_map(|group| self.groups[group].set);
        self.part(named, self.group_cpus(outermost))
    }

    /// Which of them serves a task that has a budget.
    pub fn part_of(&self, task: &TaskEntry) -> usize {
        match task.group {
            Some(group) => self.part_of_group(group),
            None => self.part(task.set, mask(task.affinity.as_ref())),
        }
    }

    fn part(&self, named: Option<usize>, may: u64) -> usize {
        let parts = self.parts();
        match named {
            Some(_) => parts.iter().position(|part| part.set == named),
            None => home(parts.iter().map(|part| part.cpus), may),
        }
        .unwrap_or(0)
    }
}

/// All sets of the file.
pub(super) fn read(top: &Table<'_, '_>, cpus: u32) -> Result<Vec<CpuSet>, Fault> {
    let mut sets: Vec<CpuSet> = Vec::new();
    for t in top.tables("set", "[[set]]", &SET)? {
        let t = t?;
        let set = one(&t, cpus)?;
        if set.name == DEFAULT_SET || sets.iter().any(|other| other.name == set.name) {
            let reason = match set.name == DEFAULT_SET {
                true => format!("\"{DEFAULT_SET}\" are the CPUs that no [[set]] names"),
                false => format!("two sets are called \"{}\"", set.name),
            };
            return fault(t.at_key("name"), reason, "give each [[set]] its own name");
        }
        if let Some(other) = sets.iter().find(|other| other.mask() & set.mask() != 0) {
            let both = (other.mask() & set.mask()).trailing_zeros();
            let reason =
                format!("CPU {both} is in the sets \"{}\" and \"{}\"", other.name, set.name);
            return fault(t.at_key("cpus"), reason, "name each CPU in one set only");
        }
        sets.push(set);
    }
    Ok(sets)
}

fn one(t: &Table<'_, '_>, cpus: u32) -> Result<CpuSet, Fault> {
    let name = t.required("name", "\"quiet\"", t.string("name")?)?;
    let Some(list) = cpu_list(t, "cpus", cpus)? else {
        return fault(t.at, "[[set]] has no \"cpus\"", "add cpus = [2, 3]");
    };
    let policy = t.required("policy", "\"p-edf+cbs\"", t.string("policy")?)?;
    let known: Result<Policy, _> = policy.value.parse();
    let policy = match known {
        Ok(known) if known.is_core() => known,
        Ok(known) => {
            let reason = format!("{known} serves all CPUs of a kernel, not a set of them");
            return fault(policy.at, reason, "choose one of Onbeat's own (`onbeat policies`)");
        }
        Err(e) => {
            let all = e.to_string();
            let (reason, remedy) = all.split_once("; ").unwrap_or((&all, "see docs"));
            return fault(policy.at, reason, remedy);
        }
    };
    let clusters = super::parse::clusters(t, list.len() as u32)?;
    Ok(CpuSet { name: plain_name(&name, "name")?, cpus: list, policy, clusters })
}

/// The set that a task or group names.
pub(super) fn of(t: &Table<'_, '_>, sets: &[CpuSet]) -> Result<Option<usize>, Fault> {
    let Some(asked) = t.string("set")? else { return Ok(None) };
    let found = sets.iter().position(|set| set.name == asked.value);
    let names = || sets.iter().map(|set| set.name.as_str());
    match (found, super::nearest(asked.value, names())) {
        (Some(set), _) => Ok(Some(set)),
        (None, near) => {
            let remedy = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None if asked.value == DEFAULT_SET => {
                    "leave set out: the CPUs of no set are meant".into()
                }
                None if sets.is_empty() => "add a [[set]] of that name".into(),
                None => format!("the sets here are {}", names().collect::<Vec<_>>().join(", ")),
            };
            fault(asked.at, format!("there is no set \"{}\"", clip(asked.value)), remedy)
        }
    }
}

/// Whom a set is to serve it can serve, and what stays together is in one.
pub(super) fn check(top: &Table<'_, '_>, set: &TaskSet) -> Result<(), Fault> {
    if set.sets.is_empty() {
        return Ok(());
    }
    let parts = set.parts();
    let tables = |key: &str| top.value(key).and_then(|list| list.get_ref().as_array());
    let at = |key: &str, i: usize| {
        tables(key).and_then(|list| list.get(i)).map_or(0, |t| t.span().start)
    };
    let ranks = |order: Option<Order>| order.is_some_and(|order| order.key.ranks());
    let named = set.sets.iter().position(|named| ranks(Some(named.core().order)));
    if named.is_some() || set.policies.iter().any(|policy| ranks(policy.order())) {
        let reason = "a policy that ranks, and has servers for best effort, serves all CPUs";
        let place = named.map_or(0, |i| at("set", i));
        return fault(place, reason, "leave [[set]] out, or choose another policy");
    }
    for (i, task) in set.tasks.iter().enumerate() {
        let Some(named) = task.set else { continue };
        let CpuSet { name, .. } = &set.sets[named];
        if task.budget.is_none() {
            let reason = format!("the task \"{}\" is in a set, but has no budget", task.name);
            return fault(at("task", i), reason, "add budget = \"5ms\", or leave set out");
        }
        if let Some(group) = task.group
            && set.parts()[set.part_of_group(group)].set != Some(named)
        {
            let group = &set.groups[group].name;
            let reason = format!("the group \"{group}\" is not in the set \"{name}\"");
            return fault(at("task", i), reason, "leave set out: a task is where its group is");
        }
        if mask(task.affinity.as_ref()) & set.sets[named].mask() == 0 {
            let reason = format!("the set \"{name}\" has none of the CPUs of \"{}\"", task.name);
            return fault(at("task", i), reason, "change affinity, or leave set out");
        }
    }
    for (i, task) in set.tasks.iter().enumerate().filter(|(_, task)| task.budget.is_some()) {
        let Some(group) = task.group else { continue };
        let part = &parts[set.part_of_group(group)];
        if mask(task.affinity.as_ref()) & set.group_cpus(group) & part.cpus == 0 {
            let (name, group) = (&task.name, &set.groups[group].name);
            let reason = format!(
                "\"{name}\" may use none of the CPUs that the set leaves its group \"{group}\""
            );
            return fault(at("task", i), reason, "change affinity, or the group's cpus or set");
        }
    }
    let at_group = |name: &str| {
        let is = |t: &&_| -> bool {
            let t: &toml::Spanned<toml::de::DeValue<'_>> = t;
            t.get_ref().get("name").and_then(|n| n.get_ref().as_str()) == Some(name)
        };
        tables("group").and_then(|list| list.iter().find(is)).map_or(0, |t| t.span().start)
    };
    let own = |part: usize| parts[part].set.map(|set_of| set.sets[set_of].core());
    for (g, group) in set.groups.iter().enumerate() {
        let part = set.part_of_group(g);
        let outermost = set.within(g).last().unwrap_or(g);
        if group.set.is_some() && group.set != parts[set.part_of_group(outermost)].set {
            let reason =
                format!("the group \"{}\" is in another set than the one around it", group.name);
            return fault(at_group(&group.name), reason, "name a set at the outermost group only");
        }
        if set.group_cpus(g) & parts[part].cpus == 0 {
            let reason = format!("its set has none of the CPUs of the group \"{}\"", group.name);
            return fault(at_group(&group.name), reason, "change cpus, or leave set out");
        }
        if let Some(policy) = own(part).filter(|p| p.order.splits() || !p.server.enforces()) {
            let reason = format!(
                "the group \"{}\" is in a set under {}, which has no groups",
                group.name, policy.name
            );
            return fault(
                at_group(&group.name),
                reason,
                "give the set another policy, say \"p-edf+cbs-hard\"",
            );
        }
    }
    check_purses(set, &parts, at)
}

/// All that take from a purse are in one set, which does not split them.
fn check_purses(
    set: &TaskSet,
    parts: &[Part],
    at: impl Fn(&str, usize) -> usize,
) -> Result<(), Fault> {
    let root = |purse: usize| {
        std::iter::successors(Some(purse), |p| set.purses[*p].parent).last().unwrap_or(purse)
    };
    let tasks = set.tasks.iter().filter_map(|t| Some((t.purse?, set.part_of(t))));
    let groups =
        (0..set.groups.len()).filter_map(|g| Some((set.groups[g].purse?, set.part_of_group(g))));
    let mut of: Vec<Option<usize>> = vec![None; set.purses.len()];
    for (purse, part) in tasks.chain(groups) {
        let purse = root(purse);
        if of[purse].is_some_and(|other| other != part) {
            let reason =
                format!("the purse \"{}\" is used in two sets of CPUs", set.purses[purse].name);
            return fault(at("purse", purse), reason, "make one for each set");
        }
        of[purse] = Some(part);
        let own = parts[part].set.map(|set_of| set.sets[set_of].core());
        if let Some(policy) = own.filter(|p| p.order.splits()) {
            let reason = format!("{} splits reservations, and those have no purses", policy.name);
            return fault(
                at("purse", purse),
                reason,
                "give the set another policy, say \"p-edf+cbs\"",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<TaskSet, String> {
        let top = "cpus = 4\nduration = \"1s\"\npolicies = [\"g-edf+cbs\"]\n";
        TaskSet::from_bytes(format!("{top}{text}").as_bytes(), Path::new("set.toml"))
            .map_err(|e| e.to_string())
    }

    const TWO: &str = "[[set]]\nname = \"a\"\ncpus = [1]\npolicy = \"p-edf+cbs-hard\"\n\
                       [[set]]\nname = \"b\"\ncpus = [3, 2]\npolicy = \"c-edf+cbs\"\nclusters = 2\n";

    fn task(more: &str) -> String {
        format!(
            "[[task]]\nname = \"t\"\nperiod = \"10ms\"\nbudget = \"1ms\"\nwork = {{ constant = \"1ms\" }}\n{more}\n"
        )
    }

    #[test]
    fn cpus_that_no_set_names_are_the_default_set_where_a_task_goes_that_may() {
        let parts = parse(&(TWO.to_owned() + &task(""))).unwrap().parts();
        assert_eq!(
            parts.iter().map(|p| (p.set, p.cpus)).collect::<Vec<_>>(),
            [(None, 0b0001), (Some(0), 0b0010), (Some(1), 0b1100)]
        );
        for (more, part) in [
            ("", 0),
            ("affinity = [0, 3]", 0),
            ("affinity = [3]", 2),
            ("affinity = [1, 2]", 1),
            ("set = \"b\"", 2),
            ("set = \"b\"\naffinity = [0, 3]", 2),
        ] {
            let set = parse(&(TWO.to_owned() + &task(more))).unwrap();
            assert_eq!(set.part_of(&set.tasks[0]), part, "{more}");
            assert_eq!(parse_again(&set), set, "{more}");
        }
    }

    fn parse_again(set: &TaskSet) -> TaskSet {
        TaskSet::from_bytes(set.to_toml().as_bytes(), Path::new("set.toml")).unwrap()
    }

    #[test]
    fn a_part_alone_has_its_own_tasks_on_cpus_from_0_on() {
        let group = "[[group]]\nname = \"g\"\nbudget = \"2ms\"\nperiod = \"10ms\"\nset = \"b\"\n";
        let more = task("group = \"g\"\naffinity = [3]").replace("\"t\"", "\"u\"");
        let set = parse(&(TWO.to_owned() + group + &task("affinity = [0, 1]") + &more)).unwrap();
        let (first, last) = (set.alone(0), set.alone(2));
        assert_eq!((first.cpus, first.tasks.len(), &first.tasks[0].affinity), (1, 1, &None));
        assert_eq!((last.cpus, last.groups.len(), last.tasks[0].group), (2, 1, Some(0)));
        assert_eq!(last.tasks[0].affinity, Some(vec![1]));
        assert_eq!(last.policies, ["c-edf+cbs".parse().unwrap()]);
        assert!(set.alone(1).tasks.is_empty());
    }

    #[test]
    fn best_efforts_servers_stay_with_their_group_and_are_in_no_other_part() {
        let group = |name: &str, set: &str| {
            format!("[[group]]\nname = \"{name}\"\nbudget = \"5ms\"\nperiod = \"10ms\"\n{set}\n")
        };
        let drawn = "[best_effort]\ncount = 1\ngroup = \"h\"\nservers = 1\nbudget = \"1ms\"\n";
        let of = |group: &str| {
            task(&format!("group = \"{group}\"")).replace("\"t\"", &format!("\"t-{group}\""))
        };
        let text = [TWO, drawn, &group("g", ""), &group("h", "set = \"b\""), &of("g"), &of("h")];
        let set = parse(&text.concat()).unwrap();
        let inside = |part: usize| set.alone(part).servers_of_group().map(|(group, _)| group);
        assert_eq!((inside(0), inside(1), inside(2)), (None, None, Some(0)));
        assert_eq!(set.alone(0).servers().count, 0, "nor outside of groups");
    }

    #[test]
    fn what_cannot_be_is_named_with_a_remedy() {
        let set = |name: &str, cpus: &str, policy: &str| {
            format!("[[set]]\nname = \"{name}\"\ncpus = {cpus}\npolicy = \"{policy}\"\n")
        };
        let purses = "[[purse]]\nname = \"p\"\nperiod = \"10ms\"\n\
                      segments = [{ budget = \"1ms\", from = \"0s\", until = \"10ms\" }]\n";
        let group = "[[group]]\nname = \"g\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n";
        for (text, says) in [
            (set("default", "[1]", "p-edf+cbs") + &task(""), "CPUs that no [[set]] names"),
            (set("a", "[1]", "eevdf") + &task(""), "choose one of Onbeat's own"),
            (set("a", "[]", "p-edf+cbs") + &task(""), "name at least one"),
            (set("a", "[4]", "p-edf+cbs") + &task(""), "use CPUs 0 to 3"),
            (
                TWO.to_owned() + &set("c", "[0, 2]", "p-edf+cbs") + &task(""),
                "name each CPU in one set only",
            ),
            (TWO.to_owned() + &set("a", "[0]", "p-edf+cbs") + &task(""), "two sets are called"),
            (TWO.to_owned() + &task("set = \"c\""), "there is no set \"c\""),
            (TWO.to_owned() + &task("set = \"a\"\naffinity = [0]"), "has none of the CPUs"),
            (
                set("a", "[1]", "edf-wm+cbs") + group + "set = \"a\"\n" + &task("group = \"g\""),
                "has no groups",
            ),
            (TWO.to_owned() + group + &task("group = \"g\"\nset = \"a\""), "is not in the set"),
            (
                TWO.to_owned()
                    + purses
                    + &task("purse = \"p\"")
                    + &task("purse = \"p\"\nset = \"a\"").replace("\"t\"", "\"u\""),
                "two sets of CPUs",
            ),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(says), "{error}");
            assert!(error.contains("; "), "{error}");
        }
    }
}
