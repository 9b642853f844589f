// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::policy::DEFAULT;
use proptest::prelude::*;

/// A file that uses every key.
const WHOLE: &str = r#"
name = "kato-11"
title = "Six movies"
cpus = 4
duration = "10s"
seed = 7
policies = ["eevdf", "fcbs", "scx:flash"]
best_effort_share = "2.5%"
max_share = "97.5%"
clusters = 4
kernel = "rt"

[overheads]
dispatch = "2us"
preemption = "1us"
migration = "5us"

[[task]]
name = "movie"
count = 6
period = "41ms"
deadline = "40ms"
budget = "25ms"
offset = "1ms"
stagger = "160us"
affinity = [3, 0]
marks = true
user = "anna"
work = { normal = { mean = "15ms", sd = "5ms", max = "45ms" } }

[[task]]
name = "player"
period = "41ms"
work = { movie = "bigbuckbunny.mp4", width = 960, height = 540 }

[best_effort]
count = 8
nice = 5
"#;

fn parse(text: &str) -> Result<TaskSet, LoadError> {
    TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml"))
}

/// A small valid file with one task of the given lines.
fn with_task(lines: &str) -> String {
    format!("cpus = 2\nduration = \"1s\"\n[[task]]\n{lines}\n")
}

const PLAIN: &str = "name = \"a\"\nperiod = \"10ms\"\nwork = { constant = \"1ms\" }";

#[test]
fn every_key_arrives_where_it_belongs() {
    let set = parse(WHOLE).unwrap();
    assert_eq!((set.name.as_str(), set.title.as_str()), ("kato-11", "Six movies"));
    assert_eq!((set.cpus, set.duration, set.seed, set.clusters), (4, 10_000 * MS, 7, 4));
    let names: Vec<String> = set.policies.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["eevdf", "g-edf+fcbs", "scx:flash"]);
    assert_eq!(set.best_effort_share, Fraction::new(1, 40));
    assert_eq!(set.max_share, Some(Fraction::new(39, 40)));
    assert_eq!(set.kernel, Kernel::Rt);
    assert_eq!(
        set.overheads,
        Overheads { dispatch: 2 * US, preemption: US, migration: 5 * US, ..Overheads::default() }
    );
    let movie = &set.tasks[0];
    assert_eq!((movie.count, movie.period, movie.deadline), (6, 41 * MS, 40 * MS));
    assert_eq!((movie.budget, movie.offset, movie.stagger), (Some(25 * MS), MS, 160 * US));
    assert_eq!((movie.affinity.as_deref(), movie.marks), (Some(&[0, 3][..]), true));
    assert_eq!(movie.work, Work::Normal { mean: 15 * MS, sd: 5 * MS, max: 45 * MS });
    assert_eq!(movie.utilization(), Fraction::new(25, 41));
    assert_eq!((movie.user.as_deref(), set.limited_users()), (Some("anna"), vec![Some("anna")]));
    let player = Work::Movie { path: "bigbuckbunny.mp4".into(), size: Some((960, 540)) };
    assert_eq!(set.tasks[1].work, player);
    assert_eq!(
        set.best_effort,
        Some(BestEffort {
            count: 8,
            nice: 5,
            order: Others::Berate,
            baseline: None,
            servers: None,
            group: None,
            generators: None
        })
    );
    let back: TaskSet = serde_json::from_str(&serde_json::to_string(&set).unwrap()).unwrap();
    assert_eq!(back, set);
}

#[test]
fn what_is_left_out_has_the_documented_default() {
    let set = parse(&with_task(PLAIN)).unwrap();
    assert_eq!((set.name.as_str(), set.seed, set.kernel), ("set", 1, Kernel::Plain));
    assert_eq!(set.best_effort_share, Fraction::new(1, 20));
    assert_eq!((set.clusters, set.overheads), (2, Overheads::default()));
    assert_eq!((set.max_share, set.limited_users()), (None, vec![]));
    assert_eq!(set.policies, [DEFAULT.parse().unwrap()]);
    let task = &set.tasks[0];
    assert_eq!((task.count, task.deadline, task.budget), (1, 10 * MS, None));
    assert_eq!((task.offset, task.stagger, task.marks, &task.affinity), (0, 0, false, &None));
    assert_eq!(set.best_effort, None);
}

#[test]
fn copies_are_released_staggered_and_only_before_the_end() {
    let mut set = parse(WHOLE).unwrap();
    set.duration = 83 * MS + 160 * US; // copy 0 is released at 1, 42, 83 ms; copy 1 first at 1.16 ms
    let jobs: Vec<u64> = set.copies().map(|c| c.jobs).collect();
    assert_eq!(jobs, [3, 2, 2, 2, 2, 2, 3]);
    let second = set.copies().nth(1).unwrap();
    assert_eq!((second.name().as_str(), second.release(1)), ("movie-1", 42 * MS + 160 * US));
    assert_eq!(set.copies().last().unwrap().name(), "player");
}

/// Everything that can be wrong: the file, the line that must be blamed, part of the message.
#[test]
fn rates_and_parts_of_the_period_are_times() {
    let of = |lines: &str| {
        let text = with_task(&format!("name = \"a\"\nwork = {{ constant = \"1ms\" }}\n{lines}"));
        let task = &parse(&text).unwrap().tasks[0];
        (task.period, task.deadline, task.budget)
    };
    assert_eq!(of("fps = 24\nbudget = \"60%\""), (41_666_667, 41_666_667, Some(25_000_000)));
    assert_eq!(of("fps = 59.94"), (16_683_350, 16_683_350, None));
    assert_eq!(of("period = \"3us\"\nbudget = \"0.001%\""), (3_000, 3_000, Some(1)));
}

#[test]
fn each_mistake_is_blamed_on_its_line_with_a_remedy() {
    let top = |line: &str| format!("cpus = 2\nduration = \"1s\"\n{line}\n[[task]]\n{PLAIN}\n");
    let task = |line: &str| with_task(&format!("{PLAIN}\n{line}"));
    let work = |w: &str| with_task(&format!("name = \"a\"\nperiod = \"10ms\"\nwork = {w}"));
    let cases: Vec<(String, usize, &str)> = vec![
        (top("cpu = 3"), 3, "did you mean \"cpus\"?"),
        (task("fps = 100"), 7, "both period and fps"),
        (with_task("name = \"a\"\nfps = 0\nwork = { constant = \"1ms\" }"), 5, "0.001 to 1000000"),
        (
            with_task("name = \"a\"\nfps = \"24\"\nwork = { constant = \"1ms\" }"),
            5,
            "must be a number",
        ),
        (task("budget = \"0%\""), 7, "budget"),
        (task("budget = \"101%\""), 7, "above the period 10ms"),
        (top("colour = 3"), 3, "the keys here are name, title"),
        (top("cpus = 3"), 3, "not valid TOML"),
        (top("x = "), 3, "not valid TOML"),
        (format!("cpus = 65\nduration = \"1s\"\n[[task]]\n{PLAIN}"), 1, "between 1 and 64"),
        (format!("cpus = 0\nduration = \"1s\"\n[[task]]\n{PLAIN}"), 1, "between 1 and 64"),
        (
            format!("cpus = \"4\"\nduration = \"1s\"\n[[task]]\n{PLAIN}"),
            1,
            "a whole number, not a TOML string",
        ),
        (
            format!("cpus = 99999999999999999999\nduration = \"1s\"\n[[task]]\n{PLAIN}"),
            1,
            "between 1 and 64",
        ),
        (format!("duration = \"1s\"\n[[task]]\n{PLAIN}"), 1, "add cpus = 4"),
        (format!("cpus = 2\n[[task]]\n{PLAIN}"), 1, "add duration"),
        (format!("cpus = 2\nduration = \"2h\"\n[[task]]\n{PLAIN}"), 2, "at most 3600s"),
        (format!("cpus = 2\nduration = \"0s\"\n[[task]]\n{PLAIN}"), 2, "duration is zero"),
        (format!("cpus = 2\nduration = 10\n[[task]]\n{PLAIN}"), 2, "write duration = \"10ms\""),
        (format!("cpus = 2\nduration = 1.5\n[[task]]\n{PLAIN}"), 2, "duration in quotes"),
        (top("seed = -1"), 3, "outside 0 to"),
        (top("name = \"../x\""), 3, "not a plain name"),
        (top("title = \"a\\nb\""), 3, "not one short line"),
        (top("policies = []"), 3, "empty list"),
        (top("policies = [\n\"rm\",\n\"edf\"]"), 5, "did you mean \"g-edf\""),
        (top("policies = [\"fcbs\", \"g-edf+fcbs\"]"), 3, "listed twice"),
        (top("best_effort_share = \"100%\""), 3, "is too much"),
        (top("best_effort_share = 5"), 3, "a percentage in quotes"),
        (top("max_share = \"0%\""), 3, "above 0% and at most 100%"),
        (top("max_share = \"101%\""), 3, "is no limit"),
        (top("max_share = 50"), 3, "a percentage in quotes"),
        (task("user = \"anna\""), 3, "add max_share"),
        (task("user = \"a b\""), 7, "plain name"),
        (task("user = 3"), 7, "TOML"),
        (
            top("max_share = \"20%\"") + "budget = \"5ms\"",
            3,
            "tasks without a user ask for 0.50 CPUs, above 20% of 2",
        ),
        (top("clusters = 3"), 3, "choose one of 1, 2"),
        (top("kernel = \"windows\""), 3, "\"plain\" or \"rt\""),
        (top("overheads = { dispatch = \"2s\" }"), 3, "at most 1s"),
        (top("overheads = { despatch = \"2us\" }"), 3, "did you mean \"dispatch\"?"),
        (
            top("overheads = { tick = \"4ms\", tick_phase = \"4ms\" }"),
            3,
            "there is no tick after 4ms",
        ),
        (top("overheads = { tick_phase = \"1us\" }"), 3, "below `tick`"),
        (top("best_effort = { nice = 1 }"), 3, "add count = 8"),
        (top("best_effort = { count = 1, nice = 20 }"), 3, "between -20 and 19"),
        (top("best_effort = { count = 1001 }"), 3, "between 0 and 1000"),
        (top("best_effort = { count = 1, order = \"worst\" }"), 3, "berate, fair, best"),
        ("cpus = 2\nduration = \"1s\"\n".into(), 1, "describes no work"),
        ("cpus = 2\nduration = \"1s\"\ntask = 3".into(), 3, "[[task]]"),
        ("cpus = 2\nduration = \"1s\"\n[task]\nname = \"a\"".into(), 3, "two brackets"),
        (with_task("period = \"10ms\"\nwork = { constant = \"1ms\" }"), 3, "has no \"name\""),
        (
            with_task("name = \"a\"\nwork = { constant = \"1ms\" }\nbudget = \"1ms\""),
            3,
            "has no \"period\"",
        ),
        (with_task("name = \"a\"\nperiod = \"1ms\""), 3, "has no \"work\""),
        (
            with_task("name = \"a\"\nperiod = \"0ms\"\nwork = { constant = \"1ms\" }"),
            5,
            "period is zero",
        ),
        (
            with_task("name = \"a\"\nperiod = \"-10ms\"\nwork = { constant = \"1ms\" }"),
            5,
            "period: \"-10ms\" is negative; choose at least 1us",
        ),
        (
            with_task("name = \"a\"\nperiod = \"2h\"\nwork = { constant = \"1ms\" }"),
            5,
            "above the largest",
        ),
        (
            with_task("name = \"a\"\nperiod = \"10ns\"\nwork = { constant = \"1ms\" }"),
            5,
            "at least 1us",
        ),
        (with_task("name = \"a\"\nperiod = \"5\"\nwork = { constant = \"1ms\" }"), 5, "no unit"),
        (task("budget = \"11ms\""), 7, "above the period 10ms; lower it to 10ms"),
        (task("deadline = \"5ms\"\nbudget = \"6ms\""), 8, "above the deadline 5ms"),
        (task("deadline = \"0ms\""), 7, "deadline is zero"),
        (task("deadline = \"-1ms\""), 7, "negative; choose at least 1ns"),
        (task("budget = \"-1ms\""), 7, "negative; choose at least 1ns"),
        (task("budget = \"0ms\""), 7, "budget is zero"),
        (task("count = 0"), 7, "between 1 and 1000"),
        (task("count = 1001"), 7, "between 1 and 1000"),
        (task("marks = 1"), 7, "true or false"),
        (task("affinity = []"), 7, "allows no CPU"),
        (task("affinity = [0, 2]"), 7, "use CPUs 0 to 1"),
        (task("affinity = [1, 1]"), 7, "twice"),
        (task("affinity = [-1]"), 7, "outside"),
        (task("offset = \"1s\""), 7, "after the end"),
        (task("stagger = \"600ms\"\ncount = 3"), 3, "after the end"),
        (
            task("[[task]]\nname = \"a\"\nperiod = \"1ms\"\nwork = { constant = \"1ms\" }"),
            8,
            "own name",
        ),
        (
            task(
                "count = 600\n[[task]]\nname = \"b\"\ncount = 600\nperiod = \"1ms\"\nwork = { constant = \"1ms\" }",
            ),
            10,
            "keep to 1000",
        ),
        (
            with_task("name = \"a b\"\nperiod = \"1ms\"\nwork = { constant = \"1ms\" }"),
            4,
            "plain name",
        ),
        (work("{}"), 6, "names no kind"),
        (work("\"1ms\""), 6, "must be a table"),
        (work("{ constant = \"1ms\", uniform = [\"1ms\", \"2ms\"] }"), 6, "keep exactly one"),
        (work("{ constant = \"0ms\" }"), 6, "constant is zero"),
        (work("{ constant = \"-1ms\" }"), 6, "negative; choose at least 1ns"),
        (work("{ constant = \"1ms\", start = 3 }"), 6, "belongs to trace"),
        (work("{ uniform = [\"1ms\"] }"), 6, "has 1 bound instead of two"),
        (work("{ uniform = [\"2ms\", \"1ms\"] }"), 6, "smaller bound first"),
        (work("{ uniform = \"2ms\" }"), 6, "must be a list"),
        (work("{ normal = { mean = \"5ms\", sd = \"1ms\" } }"), 6, "no \"max\""),
        (
            work("{ normal = { mean = \"5ms\", sd = \"1ms\", max = \"4ms\" } }"),
            6,
            "mean is above the max",
        ),
        (work("{ normal = { mean = \"1ms\", sd = \"9ms\", max = \"4ms\" } }"), 6, "use uniform"),
        (work("{ exponential = { mean = \"5ms\", max = \"4ms\" } }"), 6, "mean is above the max"),
        (work("{ exponential = { max = \"4ms\" } }"), 6, "no \"mean\""),
        (work("{ trace = \"no-such-file\" }"), 6, "check the path"),
        (work("{ trace = \".\" }"), 6, "ordinary file"),
        (work("{ movie = \"\" }"), 6, "names no file"),
        (work("{ movie = \"m\", width = 640 }"), 6, "give both or none"),
        (work("{ movie = \"m\", width = 8, height = 640 }"), 6, "between 16 and 8192"),
        (work("{ program = [] }"), 6, "names no command"),
        (work("{ program = [3] }"), 6, "text in quotes"),
        (work("{ sleep = \"1ms\" }"), 6, "the keys here are constant"),
    ];
    for (text, line, part) in cases {
        let error = parse(&text).expect_err(&text);
        let shown = error.to_string();
        assert!(shown.contains(part), "wanted {part:?} in {shown:?} for\n{text}");
        assert_eq!(error.line, Some(line), "{shown} for\n{text}");
        assert!(shown.starts_with(&format!("set.toml:{line}: ")), "{shown}");
        assert!(!error.remedy.is_empty() && !shown.contains('\n'), "{shown}");
    }
}

#[test]
fn files_that_are_no_text_are_refused_as_a_whole() {
    let refuse = |bytes: &[u8], part: &str| {
        let error = TaskSet::from_bytes(bytes, Path::new("x")).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refuse(b"", "the file is empty");
    refuse(b" \n\t\n", "the file is empty");
    refuse(b"cpus = 1\n\xff\xfe", "x:2: the file is not text");
    refuse(b"\x7fELF\0\0\0", "the file is binary");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = TaskSet::load(folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(error.contains("none.toml") && error.contains("check the path"), "{error}");
    let error = TaskSet::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("ordinary file"), "{error}");
    let big = folder.path().join("big.toml");
    std::fs::write(&big, vec![b'#'; limits::FILE_BYTES as usize + 1]).unwrap();
    let error = TaskSet::load(&big).unwrap_err().to_string();
    assert!(error.contains("larger than 1048576 bytes"), "{error}");
}

#[test]
fn traces_are_read_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set.toml");
    let load = |trace: &str, start: u64| {
        std::fs::write(folder.path().join("t.csv"), trace).unwrap();
        let work = format!("work = {{ trace = \"t.csv\", start = {start} }}");
        let text = with_task(&format!("name = \"a\"\nperiod = \"10ms\"\n{work}"));
        std::fs::write(&set, text).unwrap();
        TaskSet::load(&set).map(|s| s.tasks[0].work.clone()).map_err(|e| e.to_string())
    };
    let values = vec![1000, 2000].into();
    let good = Work::Trace { path: "t.csv".into(), start: 1, values };
    assert_eq!(load("# recorded\n1000\r\n\n 2000\n", 1), Ok(good));
    for (trace, start, part) in [
        ("", 0, "holds no values"),
        ("# only a note\n", 0, "holds no values"),
        ("1000\n12x\n", 0, "t.csv:2 holds \"12x\", which is no number"),
        ("1000\n0\n", 0, "t.csv:2 holds 0 ns"),
        ("-3\n", 0, "no number"),
        ("9000000000000\n", 0, "between 1 ns and 1 h"),
        ("1000\n", 1, "choose start between 0 and 0"),
    ] {
        let error = load(trace, start).unwrap_err();
        assert!(error.contains(part) && error.contains("set.toml:6:"), "{error}");
    }
}

#[test]
fn more_jobs_than_memory_are_refused() {
    let text = "cpus = 2\nduration = \"1h\"\n[[task]]\nname = \"a\"\nperiod = \"1us\"\nwork = { constant = \"1us\" }";
    let error = parse(text).unwrap_err();
    assert_eq!(error.line, Some(2));
    assert!(error.to_string().contains("3600000000 jobs"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_loader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = TaskSet::from_bytes(&bytes, Path::new("x"));
    }

    #[test]
    fn no_mutation_of_a_valid_file_makes_the_loader_panic(
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
            prop_assert!(set.copies().all(|c| c.jobs >= 1));
        }
    }

    #[test]
    fn no_shuffled_values_make_the_loader_panic(
        values in proptest::collection::vec("[-0-9a-z\"{}\\[\\]=., %]{0,12}", 24),
    ) {
        let keys = WHOLE.lines().map(|l| l.split('=').next().unwrap_or(l));
        let lines: Vec<String> = keys.zip(values).map(|(k, v)| if k.contains('[') || k.is_empty() {
            k.to_string()
        } else {
            format!("{k}= {v}")
        }).collect();
        let _ = parse(&lines.join("\n"));
    }
}
