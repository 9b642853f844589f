// SPDX-License-Identifier: GPL-2.0-only
//! What jobs leave goes to who ran dry, and to nobody's harm: what could make others late, or end it for all.

use std::path::Path;

use onbeat_model::policy::Policy;
use onbeat_model::run::Run;
use onbeat_model::taskset::TaskSet;

/// `text` played under the first of its policies.
fn played(text: &str) -> Run {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("set.toml");
    let set = TaskSet::from_bytes(text.as_bytes(), &path).unwrap();
    let policy: &Policy = &set.policies[0];
    onbeat_sim::simulate(&set, policy.core().unwrap()).unwrap()
}

/// Owed jobs that were late, of all tasks.
fn owed_late(run: &Run) -> u64 {
    onbeat_model::metrics::metrics(run).owed_late
}

#[test]
fn a_hard_one_that_sleeps_in_the_middle_of_its_jobs_leaves_no_budget_that_it_still_uses() {
    // H waits for L's lock early in each job; what it has left then must not be S's, too, at the expense of V.
    let text = "cpus = 1\nduration = \"20s\"\npolicies = [\"edf-hsb\"]\nbest_effort_share = \"0%\"\n\
                best_effort = { count = 0, servers = 0 }\n\
                [[task]]\nname = \"H\"\nclass = \"hard\"\nperiod = \"20ms\"\noffset = \"10ms\"\nbudget = \"9ms\"\n\
                sections = [{ resource = \"bus\", from = \"100us\", length = \"10us\" }]\n\
                work = { constant = \"8900us\" }\n\
                [[task]]\nname = \"L\"\nperiod = \"20ms\"\noffset = \"9500us\"\nbudget = \"1ms\"\n\
                sections = [{ resource = \"bus\", from = \"1us\", length = \"890us\" }]\n\
                work = { constant = \"900us\" }\n\
                [[task]]\nname = \"S\"\nperiod = \"100ms\"\nbudget = \"4ms\"\nwork = { constant = \"500ms\" }\n\
                [[task]]\nname = \"V\"\nperiod = \"40ms\"\nbudget = \"17ms\"\nwork = { constant = \"16ms\" }\n";
    assert_eq!(owed_late(&played(text)), 0);
}

#[test]
fn one_that_sleeps_for_ever_on_narrower_cpus_ends_nobodys_capacities() {
    let text = "cpus = 2\nduration = \"10s\"\npolicies = [\"edf-hsb\"]\nbest_effort_share = \"0%\"\n\
                best_effort = { count = 0, servers = 0 }\n\
                [[task]]\nname = \"E\"\ncount = 2\nperiod = \"30ms\"\nbudget = \"12ms\"\n\
                work = { constant = \"11900us\" }\n\
                [[task]]\nname = \"D\"\nperiod = \"40ms\"\nbudget = \"16ms\"\nwork = { constant = \"1ms\" }\n\
                [[task]]\nname = \"A\"\nperiod = \"100ms\"\nbudget = \"2ms\"\nwork = { constant = \"60ms\" }\n\
                [[task]]\nname = \"N\"\nperiod = \"1h\"\ndeadline = \"100ms\"\nbudget = \"10ms\"\naffinity = [0]\n\
                work = { constant = \"1ms\" }\n";
    let donated = |text: &str| {
        let run = played(text);
        let kind = Some(onbeat_model::event::EventKind::Donate);
        run.events.iter().filter(|e| e.kind() == kind).map(|e| e.a).sum::<u64>()
    };
    let alone = &text[..text.find("[[task]]\nname = \"N\"").unwrap()];
    assert!(donated(text) * 2 > donated(alone) && donated(alone) > 0);
}

#[test]
fn an_empty_purse_makes_no_budget_of_a_capacity() {
    // A's purse is empty every other millisecond, also while A runs on what D leaves.
    let text = "cpus = 1\nduration = \"30s\"\npolicies = [\"p-edf+cash\"]\nbest_effort_share = \"0%\"\n\
                [[purse]]\nname = \"money\"\nperiod = \"1ms\"\nbudget = \"500us\"\n\
                [[task]]\nname = \"E\"\nperiod = \"30ms\"\nbudget = \"15ms\"\nwork = { constant = \"14999us\" }\n\
                [[task]]\nname = \"D\"\nperiod = \"40ms\"\nbudget = \"8ms\"\nwork = { trace = \"d.csv\" }\n\
                [[task]]\nname = \"A\"\nperiod = \"300ms\"\nbudget = \"21ms\"\npurse = \"money\"\n\
                work = { constant = \"599ms\" }\n\
                [[task]]\nname = \"V\"\nperiod = \"1210ms\"\nbudget = \"276ms\"\nwork = { constant = \"275900us\" }\n";
    let jobs =
        [7999, 7999, 7999, 1000, 7999, 7999, 1000, 7999, 7999, 7999, 7999, 7999, 1000, 7999, 7999];
    let trace: String = jobs.map(|us: u64| format!("{}\n", us * 1000)).concat();
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("d.csv"), trace).unwrap();
    assert_eq!(owed_late(&played(text)), 0);
}
