// SPDX-License-Identifier: GPL-2.0-only
use std::path::Path;

use onbeat_model::policy::Policy;
use onbeat_model::units::MS;

use super::*;

/// Two CPUs; `inside` stands in a group, `outer` are more lines of it.
fn set(outer: &str, inside: &[(u64, u64)], more: &str) -> TaskSet {
    let mut text = format!(
        "cpus = 2\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n\
         [[group]]\nname = \"g\"\n{outer}\n{more}\n"
    );
    for (i, (budget, period)) in inside.iter().enumerate() {
        text += &format!(
            "[[task]]\nname = \"t{i}\"\nbudget = \"{budget}us\"\nperiod = \"{period}us\"\ngroup = \"g\"\n\
             work = {{ constant = \"1us\" }}\n"
        );
    }
    TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap()
}

fn played(policy: &str) -> Option<(Order, Server)> {
    match policy.parse().unwrap() {
        Policy::Core { order, server } => Some((order, server)),
        _ => None,
    }
}

fn of(set: &TaskSet, policy: &str) -> Vec<Judgement> {
    groups(set, played(policy))
}

#[test]
fn the_least_budget_for_1_every_5_is_3_every_5() {
    // A tick of work needs B + 1 ≤ 5 where B = 2(5 − Q): Q ≥ 3, whatever the unit but the tick: 2·(5 − Q) + 1 = 5.
    let set = set("budget = \"4ms\"\nperiod = \"5ms\"", &[(1000, 5000)], "");
    let said = &of(&set, "p-edf+cbs-hard")[0];
    assert_eq!((said.fits, said.least), (Some(true), Some(3 * MS)));
    let binds = said.binds.unwrap();
    // There is nothing for 2 ms now, and 3 ms in 5.
    assert_eq!((binds.at, binds.demand, binds.supply), (5 * MS, 1_000_000, 3 * MS));
}

#[test]
fn who_only_orders_beside_best_efforts_servers_does_not_have_all_that_its_group_has() {
    // Of 10 ms in 20 the servers have 9.
    let inner = "[[group]]\nname = \"o\"\nin = \"g\"\n[best_effort]\ncount = 1\ngroup = \"g\"\nservers = 1\n\
                 budget = \"9ms\"\nperiod = \"20ms\"\n";
    let task = "[[task]]\nname = \"t\"\nbudget = \"4ms\"\nperiod = \"40ms\"\ngroup = \"o\"\n\
                work = { constant = \"4ms\" }\n";
    let set = set("budget = \"10ms\"\nperiod = \"20ms\"", &[], &format!("{inner}{task}"));
    let said = of(&set, "p-edf+cbs-hard");
    assert_eq!(said[1].fits, None, "{said:?}");
    assert_ne!(said[0].fits, Some(true), "{said:?}");
}

#[test]
fn a_group_that_does_not_fit_says_where_and_what_would() {
    let short = set("budget = \"2ms\"\nperiod = \"5ms\"", &[(1000, 5000)], "");
    let said = &of(&short, "p-edf+cbs-hard")[0];
    assert_eq!((said.fits, said.least), (Some(false), Some(3 * MS)));
    let binds = said.binds.unwrap();
    assert_eq!((binds.at, binds.demand, binds.supply), (5 * MS, 1_000_000, 0));
    // Under rate monotonic order the same, and it says whom it is about.
    let said = &of(&short, "p-rm+cbs-hard")[0];
    assert_eq!(
        (said.fits, said.least, said.member.as_deref()),
        (Some(false), Some(3 * MS), Some("t0"))
    );
}

#[test]
fn the_least_budget_is_enough_and_a_microsecond_less_is_not() {
    for policy in ["p-edf+cbs-hard", "p-rm+cbs-hard"] {
        let with = |us: u64| {
            let lines = format!("budget = \"{us}us\"\nperiod = \"7ms\"");
            of(&set(&lines, &[(1000, 9000), (2000, 23_000), (500, 11_000)], ""), policy).remove(0)
        };
        let least = with(6000).least.unwrap() / US;
        assert_eq!((with(least).fits, with(least - 1).fits), (Some(true), Some(false)), "{policy}");
    }
}

#[test]
fn members_that_ask_for_more_than_the_whole_cpu_have_no_budget_that_is_enough() {
    let set = set("budget = \"5ms\"\nperiod = \"5ms\"", &[(3000, 5000), (3000, 5000)], "");
    let said = &of(&set, "p-edf+cbs-hard")[0];
    assert_eq!((said.fits, said.least, said.why.as_deref()), (Some(false), None, Some(OVER)));
}

#[test]
fn what_no_test_covers_is_said() {
    let lines = "budget = \"4ms\"\nperiod = \"5ms\"";
    let set_ = set(lines, &[(1000, 5000)], "");
    for (policy, why) in [
        ("g-edf+cbs-hard", "several CPUs"),
        ("c-edf+cbs", "the rule cbs,"),
        ("p-edf+cbs", "the rule cbs,"),
        ("p-edzl+cbs-hard", "the order edzl"),
        ("eevdf", "several CPUs"),
    ] {
        let said = &of(&set_, policy)[0];
        assert_eq!(said.fits, None, "{policy}");
        assert!(said.why.as_ref().unwrap().contains(why), "{policy}: {said:?}");
    }
    // Its own order, rule and CPU count before those of the policy.
    let own = set(
        &format!("{lines}\norder = \"edf\"\nrule = \"cbs-hard\"\ncpus = [1]"),
        &[(1000, 5000)],
        "",
    );
    for policy in ["g-edf+cbs-hard", "g-edzl+cbs-predict", "eevdf"] {
        assert_eq!(of(&own, policy)[0].fits, Some(true), "{policy}");
    }
}

#[test]
fn on_several_cpus_what_is_more_than_the_budget_is_refused() {
    let lines = "budget = \"4ms\"\nperiod = \"5ms\"";
    let said = of(&set(lines, &[(3000, 5000), (3000, 5000)], ""), "g-edf+cbs-hard").remove(0);
    assert_eq!((said.fits, said.why.as_deref()), (Some(false), Some(OVER)));
}

#[test]
fn a_group_in_a_group_counts_with_its_budget_and_its_members_no_more() {
    let inner = "[[group]]\nname = \"h\"\nin = \"g\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
                 [[task]]\nname = \"deep\"\nbudget = \"900us\"\nperiod = \"50ms\"\ngroup = \"h\"\n\
                 work = { constant = \"1us\" }";
    let set = set("budget = \"4ms\"\nperiod = \"5ms\"", &[], inner);
    let said = of(&set, "p-edf+cbs-hard");
    assert_eq!((said[0].fits, said[1].fits), (Some(true), Some(true)));
    // At the latest 2·9 ms and 0.9 ms after that: long before 50 ms.
    assert!(said[1].least.unwrap() < MS);
    let said = of(&set, "p-rm+cbs-hard");
    assert_eq!((said[0].fits, said[1].fits), (None, Some(true)));
}

#[test]
fn an_only_member_that_only_orders_is_judged_with_the_budget_around_it() {
    let with = |name: &str, order: &str| {
        let task = format!(
            "[[task]]\nname = \"deep\"\nbudget = \"1ms\"\nperiod = \"5ms\"\ngroup = \"{name}\"\n\
             work = {{ constant = \"1us\" }}"
        );
        let inner = format!("[[group]]\nname = \"h\"\nin = \"g\"\n{order}\n");
        if name == "h" { inner + &task } else { task }
    };
    let of_both = |inside: &str| {
        of(&set("budget = \"3ms\"\nperiod = \"5ms\"", &[], inside), "p-edf+cbs-hard")
    };
    let (direct, through) = (of_both(&with("g", "")), of_both(&with("h", "order = \"rm\"")));
    assert_eq!((direct[0].fits, direct[0].least), (Some(true), Some(3 * MS)));
    for said in &through {
        assert_eq!((said.fits, said.least, said.order), (Some(true), Some(3 * MS), Some(Key::Rm)));
    }
    // Beside another nobody knows what it has; and weights leave nothing for gaps.
    let beside = with("h", "")
        + "\n[[group]]\nname = \"i\"\nin = \"g\"\nweight = 100\n[[task]]\nname = \"other\"\nbudget = \"1us\"\n\
           period = \"50ms\"\ngroup = \"i\"\nwork = { constant = \"1us\" }";
    let said = of_both(&beside);
    let why = |one: &Judgement| one.why.clone().unwrap();
    assert!(said[0].fits == Some(false) && why(&said[0]).contains("weights divide"), "{said:?}");
    assert!(said[1].fits.is_none() && why(&said[1]).contains("only orders"), "{said:?}");
    assert_eq!((said[2].fits, said[0].least), (Some(true), None));
}
