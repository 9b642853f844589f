// SPDX-License-Identifier: GPL-2.0-only
//! A task set on a machine: its reservations that are in no group and its outermost groups are placed, and members go
//! where their group goes.

use onbeat_model::policy::CorePolicy;
use onbeat_model::rank::Rank;
use onbeat_model::taskset::{Part, TaskCopy, TaskSet};

use super::{Demand, Place, Placed, Plan};
use crate::machine::Machine;

/// What is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The group of that index in [`TaskSet::groups`], which is in no other.
    Group(usize),
    /// The task of that number in [`TaskSet::copies`], which has a reservation and is in no group.
    Copy(usize),
}

/// A reservation at the top level of a task set.
#[derive(Debug, Clone)]
pub struct Item {
    /// Whose it is.
    pub of: Of,
    /// Its id in plans: the number of the copy; groups follow after all copies.
    pub id: u32,
    /// What it asks for.
    pub demand: Demand,
    /// CPUs that each member may use, of those in its groups, too; a bit for each CPU.
    members: Vec<u64>,
}

impl Item {
    /// Whether each of its members may use all CPUs of that place.
    pub fn holds(&self, at: &Place) -> bool {
        self.members.iter().all(|cpus| at.cpus & !cpus == 0)
    }
}

/// Where a reservation is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The place, of a member within that of its group.
    pub at: Place,
    /// Whether it fits beside what was placed before; of a member: its group does. Whether the budget of a group is
    /// enough for its members is another matter (`groups`).
    pub fits: bool,
}

/// Where all reservations of a task set are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Of each group, as in [`TaskSet::groups`].
    pub groups: Vec<Seat>,
    /// Of each task, as in [`TaskSet::copies`]; `None` without a reservation.
    pub copies: Vec<Option<Seat>>,
}

fn mask(list: Option<&Vec<u32>>) -> u64 {
    list.map_or(u64::MAX, |list| list.iter().fold(0, |mask, cpu| mask | 1 << cpu))
}

/// CPUs that a task may use.
fn cpus_of(set: &TaskSet, copy: &TaskCopy<'_>) -> u64 {
    let group = copy.spec.group.map_or(u64::MAX, |group| set.group_cpus(group));
    mask(copy.spec.affinity.as_ref()) & group
}

/// What is to be placed of `set`, in this order: the outermost groups, then tasks that are in none. A group may use the
/// domains of `machine` where each of its members may use a CPU, if there are any.
pub fn items(set: &TaskSet, machine: &Machine) -> Vec<Item> {
    let copies: Vec<TaskCopy<'_>> = set.copies().collect();
    let outermost = |group: usize| set.within(group).last();
    let group = |g: usize| {
        let group = &set.groups[g];
        let inner = (0..set.groups.len()).filter(|inner| outermost(*inner) == Some(g));
        let tasks = copies.iter().filter(|copy| copy.spec.group.and_then(outermost) == Some(g));
        let members: Vec<u64> = inner
            .map(|inner| set.group_cpus(inner))
            .chain(tasks.map(|copy| cpus_of(set, copy)))
            .collect();
        let all = set.group_cpus(g);
        let common = machine
            .domain_masks()
            .into_iter()
            .filter(|domain| members.iter().all(|cpus| cpus & domain != 0))
            .fold(0, |sum, domain| sum | (domain & all));
        // Where all may use the same CPUs the group is to be there: bound to one of several its budget would count on
        // all of them.
        let within = |cpus: u64| members.iter().fold(cpus, |common, member| common & member);
        let cpus = if common == 0 { all } else { common };
        let cpus = if within(cpus) == 0 { cpus } else { within(cpus) };
        let everywhere = cpus == u64::MAX >> (u64::BITS - set.cpus);
        let list = || (0..set.cpus).filter(|cpu| cpus >> cpu & 1 == 1).collect();
        let demand = Demand {
            name: group.name.clone(),
            budget: group.budget,
            period: group.period,
            deadline: group.deadline.min(group.period),
            cpus: (!everywhere).then(list),
            hard: false,
        };
        Item { of: Of::Group(g), id: (copies.len() + g) as u32, demand, members }
    };
    let alone = |(i, copy): (usize, &TaskCopy<'_>)| {
        let demand = Demand {
            name: copy.name(),
            budget: copy.spec.budget.filter(|_| copy.spec.group.is_none())?,
            period: copy.spec.period,
            deadline: copy.spec.deadline.min(copy.spec.period),
            cpus: copy.spec.affinity.clone(),
            hard: copy.spec.class == Some(Rank::Hard),
        };
        Some(Item { of: Of::Copy(i), id: i as u32, demand, members: Vec::new() })
    };
    let groups = (0..set.groups.len()).filter(|g| set.groups[*g].parent.is_none()).map(group);
    groups.chain(copies.iter().enumerate().filter_map(alone)).collect()
}

/// Seats that are taken so far.
struct Seats {
    groups: Vec<Option<Seat>>,
    copies: Vec<Option<Seat>>,
}

impl Seats {
    fn none(set: &TaskSet) -> Self {
        Self { groups: vec![None; set.groups.len()], copies: vec![None; set.copies().count()] }
    }

    /// Places in `plan` those of [`items`] that `here` says.
    fn fill(&mut self, set: &TaskSet, plan: &mut Plan, here: impl Fn(Of) -> bool) {
        let mut placed = Vec::new();
        for item in items(set, plan.machine()).into_iter().filter(|item| here(item.of)) {
            plan.place(item.id, &item.demand);
            placed.push(item);
        }
        // One that comes later may have changed where others are.
        for item in placed {
            let Some(Placed { at, fits, .. }) = plan.get(item.id).cloned() else { continue };
            let seat = Seat { fits: fits && item.holds(&at), at };
            match item.of {
                Of::Group(group) => self.groups[group] = Some(seat),
                Of::Copy(copy) => self.copies[copy] = Some(seat),
            }
        }
    }

    /// Members have theirs where their group is.
    fn layout(self, set: &TaskSet) -> Layout {
        let Self { mut groups, mut copies } = self;
        let inside = |seat: &Seat, cpus: u64| match seat.at.cpus & cpus {
            0 => Seat { fits: false, ..seat.clone() },
            cpus => Seat { at: Place { cpus, ..seat.at.clone() }, ..seat.clone() },
        };
        // Whom a group is part of comes before it.
        for g in 0..groups.len() {
            if let Some(parent) = set.groups[g].parent {
                groups[g] = groups[parent].as_ref().map(|seat| inside(seat, set.group_cpus(g)));
            }
        }
        for (i, copy) in set.copies().enumerate() {
            if let Some(group) = copy.spec.group {
                copies[i] = groups[group].as_ref().map(|seat| inside(seat, cpus_of(set, &copy)));
            }
        }
        Layout { groups: groups.into_iter().flatten().collect(), copies }
    }
}

impl Plan {
    /// Places all reservations of `set`, whether they fit or not: what [`items`] says under the ids that it says, and
    /// members where their group is. Sets of CPUs within `set` are another matter ([`lay_out`]).
    pub fn lay_out(&mut self, set: &TaskSet) -> Layout {
        let mut seats = Seats::none(set);
        seats.fill(set, self, |_| true);
        seats.layout(set)
    }
}

/// The machine that one of [`TaskSet::parts`] is, where `played` serves the default set.
pub fn machine_of(set: &TaskSet, part: &Part, played: &CorePolicy) -> Machine {
    let cpus: Vec<u32> = (0..set.cpus).filter(|cpu| part.cpus >> cpu & 1 == 1).collect();
    let order = set.policy_of(part, played).order;
    Machine::of(order, &cpus, part.clusters, set.best_effort_share).drawing(set.servers())
}

/// Where all reservations of `set` are served, each in its part of the CPUs ([`TaskSet::parts`]), where `played` serves
/// the default set; none is split into shares shorter than `least` ns.
pub fn lay_out(set: &TaskSet, played: &CorePolicy, least: u64) -> Layout {
    let mut seats = Seats::none(set);
    let copies: Vec<usize> = set.copies().map(|copy| copy.entry).collect();
    for (number, part) in set.parts().iter().enumerate() {
        let mut plan = Plan::with_shares(machine_of(set, part, played), least);
        seats.fill(set, &mut plan, |of| {
            number
                == match of {
                    Of::Group(group) => set.part_of_group(group),
                    Of::Copy(copy) => set.part_of(&set.tasks[copies[copy]]),
                }
        });
    }
    seats.layout(set)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onbeat_model::policy::Order;
    use onbeat_model::units::Fraction;
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> TaskSet {
        let top = "duration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n";
        TaskSet::from_bytes(format!("{top}{text}").as_bytes(), Path::new("set.toml")).unwrap()
    }

    fn group(name: &str, budget: u64, more: &str) -> String {
        format!(
            "[[group]]\nname = \"{name}\"\nbudget = \"{budget}ms\"\nperiod = \"10ms\"\n{more}\n"
        )
    }

    fn task(name: &str, budget: u64, more: &str) -> String {
        format!(
            "[[task]]\nname = \"{name}\"\nbudget = \"{budget}ms\"\nperiod = \"10ms\"\n{more}\n\
             work = {{ constant = \"1ms\" }}\n"
        )
    }

    fn laid(set: &TaskSet, order: Order) -> Layout {
        let share = Fraction::from_integer(0);
        Plan::new(Machine::under(order, set.cpus, set.clusters, share)).lay_out(set)
    }

    fn cpus(seat: &Seat) -> (u64, bool) {
        (seat.at.cpus, seat.fits)
    }

    #[test]
    fn members_go_where_their_group_goes_and_take_no_place_of_their_own() {
        let text = "cpus = 2\n".to_string()
            + &group("g", 6, "")
            + &group("h", 5, "in = \"g\"")
            + &task("a", 5, "group = \"h\"")
            + &task("b", 1, "group = \"g\"")
            + &task("c", 9, "")
            + &task("d", 4, "");
        let layout = laid(&set(&text), Order::PARTITIONED_EDF);
        // c does not fit beside the group, d does.
        assert_eq!(layout.groups.iter().map(cpus).collect::<Vec<_>>(), [(0b01, true); 2]);
        let all: Vec<_> = layout.copies.iter().flatten().map(cpus).collect();
        assert_eq!(all, [(0b01, true), (0b01, true), (0b10, true), (0b01, true)]);
        let layout = laid(&set(&text), Order::GLOBAL_EDF);
        assert!(
            layout
                .groups
                .iter()
                .chain(layout.copies.iter().flatten())
                .all(|s| cpus(s) == (0b11, true))
        );
    }

    #[test]
    fn a_group_goes_where_all_of_its_members_may() {
        let two = |affinity: &str| {
            "cpus = 4\n".to_string()
                + &group("g", 6, "cpus = [1, 2, 3]")
                + &task("a", 1, "group = \"g\"\naffinity = [1, 2]")
                + &task("b", 1, &format!("group = \"g\"\naffinity = {affinity}"))
        };
        let layout = laid(&set(&two("[2, 3]")), Order::PARTITIONED_EDF);
        assert_eq!(cpus(&layout.groups[0]), (0b100, true));
        // In the cluster of 2 and 3 there is one CPU for both.
        let layout = laid(&set(&two("[2, 3]")), Order::CLUSTERED_EDF);
        let all: Vec<_> = layout.copies.iter().flatten().map(cpus).collect();
        assert_eq!((cpus(&layout.groups[0]), all), ((0b100, true), vec![(0b100, true); 2]));
        // No CPU is for both.
        let layout = laid(&set(&two("[3]")), Order::PARTITIONED_EDF);
        assert!(!layout.groups[0].fits);
        assert!(layout.copies.iter().flatten().any(|seat| !seat.fits));
        let layout = laid(&set(&two("[3]")), Order::GLOBAL_EDF);
        assert!(!layout.groups[0].fits);
    }

    #[test]
    fn a_group_that_fits_no_cpu_is_served_all_the_same_and_its_members_do_not_fit() {
        let text = "cpus = 1\n".to_string()
            + &group("g", 6, "")
            + &group("h", 6, "")
            + &task("a", 1, "group = \"g\"")
            + &task("b", 1, "group = \"h\"");
        let layout = laid(&set(&text), Order::PARTITIONED_EDF);
        assert_eq!(layout.groups.iter().map(cpus).collect::<Vec<_>>(), [(1, true), (1, false)]);
        let all: Vec<_> = layout.copies.iter().flatten().map(cpus).collect();
        assert_eq!(all, [(1, true), (1, false)]);
    }

    proptest! {
        #[test]
        fn without_groups_all_are_placed_as_one_after_the_other(
            asked in prop::collection::vec((1..10u64, 0..16u64), 1..12), which in any::<prop::sample::Index>(),
        ) {
            let mut text = "cpus = 4\n".to_string();
            for (i, (budget, mask)) in asked.iter().enumerate() {
                let list: Vec<u32> = (0..4).filter(|cpu| mask >> cpu & 1 == 1).collect();
                let affinity = if list.is_empty() { String::new() } else { format!("affinity = {list:?}") };
                text += &task(&format!("t{i}"), *budget, &affinity);
            }
            let set = set(&text);
            let orders: Vec<Order> = Order::all().collect();
            let order = orders[which.index(orders.len())];
            let mut plan = Plan::new(Machine::under(order, 4, set.clusters, Fraction::from_integer(0)));
            for (id, copy) in (0..).zip(set.copies()) {
                let spec = copy.spec;
                plan.place(id, &Demand {
                    name: copy.name(),
                    budget: spec.budget.unwrap(),
                    period: spec.period,
                    deadline: spec.deadline,
                    cpus: spec.affinity.clone(),
                    hard: false,
                });
            }
            let seat = |(_, placed): (u32, &Placed)| Some(Seat { at: placed.at.clone(), fits: placed.fits });
            let copies = plan.placed().map(seat).collect();
            prop_assert_eq!(laid(&set, order), Layout { groups: vec![], copies });
        }
    }
}
