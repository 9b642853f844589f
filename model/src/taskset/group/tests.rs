// SPDX-License-Identifier: GPL-2.0-only
use std::path::Path;

use super::*;
use crate::taskset::LoadError;
use crate::units::MS;
use proptest::prelude::*;

/// Two movies in a group of their own, which is named before the one it is part of.
const WHOLE: &str = r#"
cpus = 4
duration = "1s"
policies = ["p-edf+cbs-hard"]

[[group]]
name = "video"
in = "multimedia"
order = "rm"
budget = "8ms"
period = "20ms"
deadline = "15ms"
rule = "cbs"
cpus = [2]

[[group]]
name = "multimedia"
budget = "10ms"
period = "20ms"
cpus = [3, 2]

[[task]]
name = "movie"
count = 2
period = "40ms"
budget = "5ms"
group = "video"
work = { constant = "4ms" }

[[task]]
name = "sound"
period = "10ms"
budget = "1ms"
group = "multimedia"
work = { constant = "1ms" }

[[task]]
name = "alone"
period = "10ms"
work = { constant = "1ms" }
"#;

fn parse(text: &str) -> Result<TaskSet, LoadError> {
    TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml"))
}

#[test]
fn groups_arrive_with_parents_first_and_what_is_left_out_has_its_default() {
    let set = parse(WHOLE).unwrap();
    let multimedia = Group {
        name: "multimedia".into(),
        parent: None,
        order: None,
        budget: 10 * MS,
        portion: Portion::Budget,
        period: 20 * MS,
        deadline: 20 * MS,
        rule: None,
        cpus: Some(vec![2, 3]),
        purse: None,
        set: None,
    };
    let video = Group {
        name: "video".into(),
        parent: Some(0),
        order: Some(Key::Rm),
        budget: 8 * MS,
        portion: Portion::Budget,
        period: 20 * MS,
        deadline: 15 * MS,
        rule: Some(Server::Cbs),
        cpus: Some(vec![2]),
        purse: None,
        set: None,
    };
    assert_eq!(set.groups, [multimedia, video]);
    let of: Vec<_> = set.tasks.iter().map(|task| task.group).collect();
    assert_eq!(of, [Some(1), Some(0), None]);
    assert_eq!(set.within(1).collect::<Vec<_>>(), [1, 0]);
    assert_eq!((set.group_cpus(0), set.group_cpus(1)), (0b1100, 0b100));
}

#[test]
fn a_group_that_names_no_cpus_has_those_it_is_part_of() {
    let set = parse(&WHOLE.replace("cpus = [2]\n", "")).unwrap();
    assert_eq!(set.group_cpus(1), 0b1100);
    let set = parse(&WHOLE.replace("cpus = [2]\n", "").replace("cpus = [3, 2]\n", "")).unwrap();
    assert_eq!(set.group_cpus(1), 0b1111);
}

#[test]
fn a_set_with_groups_is_read_as_it_is_written() {
    let set = parse(WHOLE).unwrap();
    let named = TaskSet { name: "set".into(), ..set };
    assert_eq!(parse(&named.to_toml()).unwrap(), named);
    let json = serde_json::to_string(&named).unwrap();
    assert!(json.contains("\"order\":\"rm\"") && json.contains("\"rule\":\"cbs\""), "{json}");
    assert_eq!(serde_json::from_str::<TaskSet>(&json).unwrap(), named);
}

#[test]
fn a_set_without_groups_says_nothing_of_them() {
    let text = "cpus = 1\nduration = \"1s\"\n[[task]]\nname = \"a\"\nperiod = \"1ms\"\nwork = { constant = \"1us\" }";
    let json = serde_json::to_string(&parse(text).unwrap()).unwrap();
    assert!(!json.contains("group"), "{json}");
}

/// What can be wrong: a text of the file and what stands for it instead, the line to be blamed, part of the message.
#[test]
fn each_mistake_with_groups_is_blamed_on_its_line_with_a_remedy() {
    let deep = |n: usize| {
        let group = |i: usize| {
            let inside = if i == 0 { String::new() } else { format!("in = \"g{}\"\n", i - 1) };
            format!("[[group]]\nname = \"g{i}\"\n{inside}budget = \"1ms\"\nperiod = \"10ms\"\n")
        };
        let groups: String = (0..n).map(group).collect();
        format!(
            "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs\"]\n{groups}[[task]]\nname = \"a\"\n\
             period = \"10ms\"\nbudget = \"1ms\"\ngroup = \"g{}\"\nwork = {{ constant = \"1ms\" }}",
            n - 1
        )
    };
    assert!(parse(&deep(limits::GROUP_DEPTH)).is_ok());
    let with = |from: &str, to: &str| {
        assert!(WHOLE.contains(from), "{from}");
        WHOLE.replacen(from, to, 1)
    };
    let cases: Vec<(String, usize, &str)> = vec![
        (deep(7), 35, "\"g6\" is 7 groups deep; nest at most 6 groups"),
        (with("in = \"multimedia\"", "in = \"multimedai\""), 8, "did you mean \"multimedia\"?"),
        (with("in = \"multimedia\"", "in = \"no-such-thing\""), 8, "are video, multimedia"),
        (with("in = \"multimedia\"", "in = \"video\""), 8, "\"video\" is in itself"),
        (
            with("name = \"multimedia\"", "name = \"multimedia\"\nin = \"video\""),
            8,
            "is in itself, or in one that is; leave out \"in\"",
        ),
        (with("name = \"multimedia\"", "name = \"video\""), 17, "two groups are called \"video\""),
        (with("name = \"alone\"", "name = \"video\""), 38, "a task and a group are called"),
        (WHOLE.replace("\"video\"", "\"movie-1\""), 23, "called \"movie-1\""),
        (with("name = \"video\"", "name = \"a b\""), 7, "plain name"),
        (with("name = \"video\"\n", ""), 6, "[[group]] has no \"name\""),
        (with("order = \"rm\"", "order = \"rn\""), 9, "no order \"rn\"; did you mean \"rm\"?"),
        (with("rule = \"cbs\"", "rule = \"none\""), 13, "there is no rule \"none\""),
        (with("rule = \"cbs\"", "rule = \"\""), 13, "there is no rule"),
        (with("budget = \"8ms\"\n", ""), 12, "a rule, but no budget to enforce"),
        (
            with("budget = \"10ms\"\nperiod = \"20ms\"\n", ""),
            16,
            "has no budget and is in no other",
        ),
        (
            with("budget = \"10ms\"\nperiod = \"20ms\"", "budget = \"10ms\""),
            16,
            "has no \"period\"",
        ),
        (with("deadline = \"15ms\"", "deadline = \"5ms\""), 10, "above the deadline 5ms; lower it"),
        (with("budget = \"8ms\"", "budget = \"21ms\""), 10, "above the period 20ms"),
        (with("deadline = \"15ms\"", "colour = 3"), 12, "the keys here are name, in"),
        (with("cpus = [2]", "cpus = [4]"), 14, "use CPUs 0 to 3"),
        (
            with("cpus = [2]", "cpus = [1, 2]"),
            14,
            "names CPU 1, which is none of the group's, multimedia; use CPUs of 2, 3",
        ),
        (with("cpus = [2]", "cpus = []"), 14, "allows no CPU"),
        // 8/20 of the one CPU of video; 2 · 10/20 of multimedia is more than any task can ask.
        (
            with("budget = \"5ms\"", "budget = \"17ms\""),
            26,
            "17ms every 40ms is more than its group \"video\" has, 8ms every 20ms; lower it to 16ms or less",
        ),
        (
            with("cpus = [3, 2]", "cpus = [2]").replacen(
                "budget = \"8ms\"",
                "budget = \"11ms\"",
                1,
            ),
            10,
            "11ms every 20ms is more than its group \"multimedia\"",
        ),
        (with("group = \"video\"", "group = \"vidoe\""), 27, "did you mean \"video\"?"),
        (with("budget = \"5ms\"\n", ""), 26, "in a group, but has no budget; add budget"),
        (
            with("group = \"video\"", "group = \"video\"\naffinity = [2, 3]"),
            28,
            "affinity names CPU 3",
        ),
        (with("group = \"video\"\n", ""), 6, "\"video\" has no task in it or below"),
        (with("p-edf+cbs-hard", "edf-wm+cbs"), 4, "groups cannot be split"),
        (
            with("[\"p-edf+cbs-hard\"]", "[\n\"eevdf\", \"g-edf\"]"),
            5,
            "add a server to it, say \"g-edf+cbs-hard\"",
        ),
        (format!("group = 3\n{WHOLE}").replace("[[group]]", "[[task]]"), 1, "two brackets"),
        (WHOLE.replace("[[group]]", "[[gruop]]"), 6, "did you mean \"group\"?"),
    ];
    for (text, line, part) in cases {
        let error = parse(&text).expect_err(part);
        let shown = error.to_string();
        assert!(shown.contains(part), "wanted {part:?} in {shown:?} for\n{text}");
        assert_eq!(error.line, Some(line), "{shown} for\n{text}");
        assert!(!error.remedy.is_empty() && !shown.contains('\n'), "{shown}");
    }
}

#[test]
fn groups_count_with_the_tasks_that_a_file_may_have() {
    let many = |tasks: usize| {
        parse(&WHOLE.replace("name = \"alone\"", &format!("name = \"x\"\ncount = {tasks}")))
    };
    // 2 groups, 2 movies and a sound.
    assert!(many(995).is_ok());
    let error = many(996).unwrap_err().to_string();
    assert!(error.contains("1001 tasks and groups"), "{error}");
}

proptest! {
    #[test]
    fn no_mutation_of_groups_makes_the_loader_panic(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>(), 0u8..3), 1..8),
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(set) = TaskSet::from_bytes(&bytes, Path::new("x")) {
            prop_assert!(set.groups.iter().enumerate().all(|(i, g)| g.parent.is_none_or(|p| p < i)));
        }
    }

    // Groups in any tree and any order in the file.
    #[test]
    fn any_tree_in_any_order_is_read_with_parents_first_and_written_as_it_was_read(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..12), shuffle in any::<u64>(),
    ) {
        let mut order: Vec<usize> = (0..parents.len()).collect();
        order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(shuffle | 1) >> 7);
        let mut text = String::from("cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs\"]\n");
        for i in order {
            text += &format!("[[group]]\nname = \"g{i}\"\nbudget = \"1ms\"\nperiod = \"9ms\"\n");
            // Of one of those before it, or of none.
            let parent = parents[i].index(i + 1);
            if parent < i {
                text += &format!("in = \"g{parent}\"\n");
            }
        }
        for i in 0..parents.len() {
            text += &format!("[[task]]\nname = \"t{i}\"\nperiod = \"9ms\"\nbudget = \"1us\"\ngroup = \"g{i}\"\n");
            text += "work = { constant = \"1us\" }\n";
        }
        let depth = |i: usize| {
            std::iter::successors(Some(i), |i| Some(parents[*i].index(*i + 1)).filter(|p| p < i)).count()
        };
        match parse(&text) {
            Err(error) => {
                prop_assert!((0..parents.len()).any(|i| depth(i) > limits::GROUP_DEPTH), "{}", error);
            }
            Ok(set) => {
                for task in &set.tasks {
                    let group = task.group.unwrap();
                    prop_assert_eq!(&set.groups[group].name[1..], &task.name[1..]);
                    let number: usize = task.name[1..].parse().unwrap();
                    let parent = set.groups[group].parent;
                    prop_assert!(parent.is_none_or(|p| p < group));
                    let named = parent.map(|p| set.groups[p].name[1..].parse::<usize>().unwrap());
                    prop_assert_eq!(named, Some(parents[number].index(number + 1)).filter(|p| *p < number));
                }
                prop_assert_eq!(parse(&set.to_toml()).unwrap(), set);
            }
        }
    }
}
