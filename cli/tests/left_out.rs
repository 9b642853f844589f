// SPDX-License-Identifier: GPL-2.0-only
//! What verbs make of purses, sets of CPUs and threads of a file: tested, refused, or said to be left out.

use crate::common::{File, answered, complaint, onbeat, said};

/// Two CPUs under `policies`; `tables` stand before a task of 8 ms every 40 ms, whose last lines are `task`.
fn file(policies: &str, tables: &str, task: &str) -> File {
    File::new(format!(
        "cpus = 2\nduration = \"1s\"\nbest_effort_share = \"0%\"\npolicies = [{policies}]\n{tables}\n\
         [[task]]\nname = \"a\"\ncount = 2\nperiod = \"40ms\"\nbudget = \"8ms\"\n\
         work = {{ constant = \"8ms\" }}\n{task}\n"
    ))
}

const SET: &str = "[[set]]\nname = \"quiet\"\ncpus = [1]\npolicy = \"p-edf+cbs\"";

#[test]
fn a_purse_is_said_to_fit_or_what_would_is_said() {
    let with = |budget: &str| {
        let purse =
            format!("[[purse]]\nname = \"disk\"\nperiod = \"100ms\"\nbudget = \"{budget}\"");
        file("\"p-edf+cbs-hard\"", &purse, "purse = \"disk\"")
    };
    // In 100 ms three jobs of each and a fourth that was due at the beginning: docs/analysis.md has the formula.
    let enough = with("64ms");
    let table = said(&onbeat(&["analyze", enough.path()]));
    let row = table.lines().find(|line| line.starts_with("disk")).expect(&table);
    assert!(row.contains("40.00%") && row.contains("64.00%") && row.ends_with("yes"), "{row}");
    let less = with("63ms");
    let table = said(&onbeat(&["analyze", less.path()]));
    assert!(table.contains("64ms may be taken, and 63ms is there; make it 64ms"), "{table}");
    let json = answered(&onbeat(&["analyze", less.path(), "--json"]));
    let one = &json["purses"][0]["purses"][0];
    assert_eq!(
        (&one["least_budget_ns"], one["fits"].is_null()),
        (&64_000_000.into(), true),
        "{json}"
    );
    let none = with("30ms");
    let table = said(&onbeat(&["analyze", none.path()]));
    assert!(table.contains("no, in the long run budgets ask for more than is in it"), "{table}");
}

#[test]
fn tests_that_do_not_hold_for_threads_are_named() {
    let threads = file("\"g-edf+cbs\"", "", "threads = 2");
    let table = said(&onbeat(&["analyze", threads.path(), "--all"]));
    let line = table.lines().find(|line| line.starts_with("Not asked: ")).expect(&table);
    assert!(line.contains("g-edf-any") && line.contains("threads of a"), "{line}");
    let json = answered(&onbeat(&["analyze", threads.path(), "--all", "--json"]));
    let named = json["tests_that_do_not_hold"][0]["tests"].as_array().expect("tests");
    assert!(named.iter().any(|name| name == "g-edf-any"), "{json}");
    let single = file("\"g-edf+cbs\"", "", "");
    assert!(!said(&onbeat(&["analyze", single.path(), "--all"])).contains("Not asked"));
}

#[test]
fn the_limit_and_sweeps_have_no_sets_of_cpus_and_say_so() {
    let sets = file("\"g-edf+cbs\"", SET, "");
    let refused = onbeat(&["limit", sets.path()]);
    assert!(!refused.status.success() && complaint(&refused).contains("a file for each set"));
    for (key, says) in [
        ("set", "no [[set]]"),
        ("group", "no [[group]]"),
        ("purse", "no [[purse]]"),
        ("task", "this is a task-set file; you want `onbeat sim`"),
    ] {
        let sweep = File::new(format!("cpus = 2\nsets = 1\n[[{key}]]\nname = \"x\"\n"));
        let refused = onbeat(&["sweep", sweep.path()]);
        let why = complaint(&refused);
        assert!(!refused.status.success() && why.contains(says), "{why}");
    }
}

#[test]
fn the_limit_says_that_it_leaves_groups_out() {
    let group = "[[group]]\nname = \"g\"\nbudget = \"30ms\"\nperiod = \"40ms\"";
    let grouped = file("\"p-edf+cbs-hard\"", group, "group = \"g\"");
    let folder = tempfile::tempdir().unwrap();
    let limit = std::process::Command::new(env!("CARGO_BIN_EXE_onbeat"));
    let limit =
        { limit }.args(["limit", grouped.path()]).current_dir(folder.path()).output().unwrap();
    assert!(
        limit.status.success() && complaint(&limit).contains("groups are left out"),
        "{limit:?}"
    );
}

#[test]
fn schedulers_that_know_nothing_of_groups_and_sets_are_named() {
    let group = "[[group]]\nname = \"g\"\nbudget = \"30ms\"\nperiod = \"40ms\"\nset = \"quiet\"";
    let both = file(
        "\"eevdf\", \"scx:flash\", \"p-edf+cbs-hard\"",
        &format!("{SET}\n{group}"),
        "group = \"g\"",
    );
    let table = said(&onbeat(&["analyze", both.path()]));
    assert!(table.contains("eevdf, scx:flash know nothing of groups and sets of CPUs"), "{table}");
    let own = file("\"p-edf+cbs-hard\"", &format!("{SET}\n{group}"), "group = \"g\"");
    assert!(!said(&onbeat(&["analyze", own.path()])).contains("nothing of"));
}

#[test]
fn the_simulator_warns_where_the_service_would_refuse_and_is_silent_where_it_would_not() {
    let three = |count: u32| {
        File::new(format!(
            "cpus = 1\nduration = \"100ms\"\n[[task]]\nname = \"a\"\ncount = {count}\nperiod = \"10ms\"\n\
             budget = \"6ms\"\nwork = {{ constant = \"2ms\" }}\n"
        ))
    };
    // Jobs of 2 ms are all in time, but 18 of 10 were asked for.
    let played = onbeat(&["sim", three(3).path()]);
    let why = complaint(&played);
    assert!(
        played.status.success() && why.contains("the service would refuse a-1 and a-2"),
        "{why}"
    );
    assert_eq!(complaint(&onbeat(&["sim", three(1).path()])), "");
}

#[test]
fn files_of_another_kind_are_recognised_and_ranges_of_a_sweep_name_their_line() {
    let sweep = "cpus = 2\nsets = 5\neach = [0.1, 0.9]\nutilization = { from = 1.5, to = 1.0, points = 3 }\n\
                 periods = { uniform = [\"1ms\", \"20ms\"] }\ntests = [\"p-edf-ff\"]\n";
    let why = complaint(&onbeat(&["sim", File::new(sweep).path()]));
    assert!(why.contains("this is a sweep file; you want `onbeat sweep`"), "{why}");
    let set = file("\"p-edf+cbs\"", "", "");
    let why = complaint(&onbeat(&["provision", set.path()]));
    assert!(why.contains("this is a task-set file; you want `onbeat sim`"), "{why}");
    let good = sweep.replace("1.5", "0.5");
    assert!(onbeat(&["sweep", File::new(&good).path()]).status.success());
    for (from, to, says) in [
        ("0.5", "1.5", "line 4: utilization: from = 1.5 is above to = 1"),
        ("points = 3", "points = 0", "line 4: utilization: points = 0"),
        ("[0.1, 0.9]", "[0.9, 0.1]", "line 3: each = [0.9, 0.1]"),
        ("\"1ms\", \"20ms\"", "\"20ms\", \"1ms\"", "line 5: periods: 20ms is above 1ms"),
    ] {
        let why = complaint(&onbeat(&["sweep", File::new(good.replace(from, to)).path()]));
        assert!(why.contains(says), "{why}");
    }
}
