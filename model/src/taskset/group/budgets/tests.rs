// SPDX-License-Identifier: GPL-2.0-only
//! What is divided by weight, among whom, and what cannot be.

use std::path::Path;

use super::*;
use crate::policy::Server;
use crate::taskset::TaskSet;
use crate::units::MS;
use proptest::prelude::*;

/// `groups` beside the outermost one, of 12 ms in 20 ms, and a task of 1 ns in 40 ms in each of `fill`.
fn parse(groups: &str, fill: &[&str]) -> Result<TaskSet, String> {
    let mut text = format!(
        "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n[[group]]\nname = \"out\"\n\
         budget = \"12ms\"\nperiod = \"20ms\"\n{groups}\n"
    );
    for group in fill {
        text += &format!(
            "[[task]]\nname = \"in-{group}\"\nperiod = \"40ms\"\nbudget = \"1ns\"\ngroup = \"{group}\"\n\
             work = {{ constant = \"1us\" }}\n"
        );
    }
    TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).map_err(|e| e.to_string())
}

fn group(name: &str, more: &str) -> String {
    format!("[[group]]\nname = \"{name}\"\nin = \"out\"\n{more}\n")
}

fn member(budget: &str, period: &str, count: u32) -> String {
    format!(
        "[[task]]\nname = \"t{count}\"\ncount = {count}\nperiod = \"{period}\"\nbudget = \"{budget}\"\n\
         group = \"out\"\nwork = {{ constant = \"1us\" }}\n"
    )
}

fn of<'a>(set: &'a TaskSet, name: &str) -> &'a Group {
    set.groups.iter().find(|group| group.name == name).unwrap()
}

#[test]
fn what_budgets_leave_is_divided_by_weight_in_the_period_of_each() {
    // Of 12 in 20 tasks have 2 · 2, a group 2: 6 are left, for weights of 50, 150 and the usual 100.
    let text = group("own", "budget = \"1ms\"\nperiod = \"10ms\"")
        + &group("light", "weight = 50")
        + &group("heavy", "weight = 150\nperiod = \"10ms\"")
        + &group("orders", "period = \"40ms\"")
        + &member("1ms", "10ms", 2);
    let set = parse(&text, &["own", "light", "heavy", "orders"]).unwrap();
    let had = |name: &str| (of(&set, name).budget, of(&set, name).period, of(&set, name).deadline);
    assert_eq!(had("light"), (MS, 20 * MS, 20 * MS));
    assert_eq!(had("heavy"), (3 * MS / 2, 10 * MS, 10 * MS));
    assert_eq!(had("orders"), (4 * MS, 40 * MS, 40 * MS));
    // Only what has no limit of its own has another rule than the policy's.
    assert_eq!((of(&set, "light").rule, of(&set, "orders").rule), (None, Some(Server::Cbs)));
}

#[test]
fn an_only_member_has_all_and_what_it_holds_is_limited_by_the_group_around_alone() {
    let deep = group("orders", "order = \"rm\"")
        + "[[group]]\nname = \"deep\"\nin = \"orders\"\nperiod = \"10ms\"\n"
        + &member("12ms", "20ms", 1).replace("\"out\"", "\"deep\"");
    let set = parse(&deep, &[]).unwrap();
    assert_eq!((of(&set, "orders").budget, of(&set, "orders").period), (12 * MS, 20 * MS));
    assert_eq!((of(&set, "deep").budget, of(&set, "deep").period), (6 * MS, 10 * MS));
    let more = deep.replace("budget = \"12ms\"", "budget = \"13ms\"");
    assert!(parse(&more, &[]).unwrap_err().contains("more than its group \"out\" has"), "{more}");
    // Beside another its part is half, but it limits nothing.
    let beside = deep + &group("other", "weight = 100");
    let set = parse(&beside, &["other"]).unwrap();
    assert_eq!(of(&set, "orders").budget, of(&set, "other").budget);
}

#[test]
fn what_cannot_be_divided_is_blamed_on_its_line_with_a_remedy() {
    let lone = |more: &str| format!("[[group]]\nname = \"g\"\n{more}\n");
    let full = member("6ms", "10ms", 1);
    for (text, line, says) in [
        (group("g", "budget = \"1ms\"\nperiod = \"9ms\"\nweight = 3"), 13, "a budget and a weight"),
        (
            lone("weight = 3"),
            10,
            "has a weight, but is in no other group; give it budget and period",
        ),
        (
            lone("order = \"rm\""),
            8,
            "no budget and is in no other group; give it budget and period",
        ),
        (group("g", "weight = 0"), 11, "outside 1 to 10000"),
        (group("g", "weight = 10001"), 11, "outside 1 to 10000"),
        (group("g", "weight = \"3\""), 11, "whole number"),
        (group("g", "rule = \"cbs-hard\""), 11, "add a weight or a budget"),
        (full.clone() + &group("g", "weight = 7"), 18, "nothing is left for the group \"g\""),
        (full + &group("g", ""), 15, "lower these budgets, or raise that of \"out\""),
        (group("g", "weight = 7\ndeadline = \"11ms\""), 12, "raise the deadline to 12ms or more"),
    ] {
        let error = parse(&text, &["g"]).unwrap_err();
        assert!(
            error.contains(says) && error.starts_with(&format!("s.toml:{line}:")),
            "{text}: {error}"
        );
    }
}

proptest! {
    #[test]
    fn parts_are_as_their_weights_and_with_the_budgets_never_more_than_there_is(
        weights in prop::collection::vec((1u64..=10_000, 1u64..40), 1..8),
        budgets in prop::collection::vec((1u64..3000, 1u64..40), 0..4),
    ) {
        let mut text = String::new();
        let mut names = Vec::new();
        for (i, (weight, period)) in weights.iter().enumerate() {
            text += &group(&format!("w{i}"), &format!("weight = {weight}\nperiod = \"{period}ms\""));
            names.push(format!("w{i}"));
        }
        for (i, (budget, period)) in budgets.iter().enumerate() {
            let budget = budget % (period * 600);
            text += &group(&format!("b{i}"), &format!("budget = \"{}us\"\nperiod = \"{period}ms\"", budget + 1));
            names.push(format!("b{i}"));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // The whole is 12/20; beside it what the file asks for is reckoned in parts of a CPU.
        let asked: f64 = budgets.iter().map(|(b, p)| (b % (p * 600) + 1) as f64 / 1e3 / *p as f64).sum();
        match parse(&text, &names) {
            Err(error) => prop_assert!(asked > 0.599_99, "{asked}: {error}"),
            Ok(set) => {
                let load = |g: &Group| g.budget as f64 / g.period as f64;
                let sum: f64 = set.groups.iter().filter(|g| g.parent.is_some()).map(load).sum();
                prop_assert!(sum <= 0.6 + 1e-12, "{sum}");
                let all: u64 = weights.iter().map(|(weight, _)| weight).sum();
                for (i, (weight, _)) in weights.iter().enumerate() {
                    let due = (0.6 - asked) * *weight as f64 / all as f64;
                    let had = load(of(&set, &format!("w{i}")));
                    // Rounded down by a ns of its period, after a ns of 20 ms for each budget.
                    prop_assert!(had <= due + 1e-12 && had > due - 2e-6, "{had} of {due}");
                }
                let again = TaskSet::from_bytes(set.to_toml().as_bytes(), Path::new("s.toml"));
                prop_assert_eq!(again.unwrap(), set);
            }
        }
    }
}
