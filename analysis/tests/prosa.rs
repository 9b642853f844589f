// SPDX-License-Identifier: GPL-2.0-only
//! Response times against those of a judge who knows nothing of this code: `response-time-analysis` for Rust, whose
//! analyses are those proven in Coq (Bozhko and Brandenburg, "Abstract response-time analysis: a formal foundation for
//! the busy-window principle", 2020). It counts time in whole units, as we do, so answers must be equal, not close.

use num_traits::ToPrimitive;
use onbeat_analysis::groups::Supply;
use onbeat_analysis::one_cpu::{edf, fixed};
use onbeat_analysis::sporadic::{Sporadic, Verdict, compare_utilization, utilization};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use response_time_analysis::arrival;
use response_time_analysis::demand::RBF;
use response_time_analysis::supply::{Periodic, SupplyBound};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use response_time_analysis::{edf as judge_edf, fixed_priority as judge_fixed};
use std::cmp::Ordering;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the judge gives up, in units of time.
const LIMIT: u64 = 2_000_000;

type Demand = RBF<arrival::Sporadic, Scalar>;

fn demand(task: &Sporadic) -> Demand {
    let arrivals = arrival::Sporadic::new_zero_jitter(Duration::from(task.period));
    RBF::new(arrivals, Scalar::new(Service::from(task.wcet)))
}

/// Whom the judge gives up on although it need not: whose busy periods are long because hardly any time is left.
fn is_nearly_full(tasks: &[Sporadic]) -> bool {
    utilization(tasks).to_f64().is_none_or(|u| u > 0.98)
}

/// What the judge says of each task under EDF; `None` where it finds no bound below [`LIMIT`].
fn judged_edf(tasks: &[Sporadic]) -> Vec<Option<u64>> {
    let demands: Vec<Demand> = tasks.iter().map(demand).collect();
    let of = |i: usize| judge_edf::fully_preemptive::Task {
        rbf: &demands[i],
        deadline: Duration::from(tasks[i].deadline),
    };
    let time = |i: usize| {
        let others: Vec<_> = (0..tasks.len()).filter(|j| *j != i).map(of).collect();
        judge_edf::fully_preemptive::dedicated_uniproc_rta(&of(i), &others, Duration::from(LIMIT))
    };
    (0..tasks.len()).map(|i| time(i).ok().map(u64::from)).collect()
}

/// The same under fixed priorities: a task waits for those at a level as important as its own, too.
fn judged_fixed(tasks: &[Sporadic], levels: &[u64]) -> Vec<Option<u64>> {
    let demands: Vec<Demand> = tasks.iter().map(demand).collect();
    let time = |i: usize| {
        let before = |j: &usize| *j != i && levels[*j] <= levels[i];
        let others: Vec<Demand> =
            (0..tasks.len()).filter(before).map(|j| demands[j].clone()).collect();
        let limit = Duration::from(LIMIT);
        judge_fixed::fully_preemptive::dedicated_uniproc_rta(&demands[i], &others, limit)
    };
    (0..tasks.len()).map(|i| time(i).ok().map(u64::from)).collect()
}

/// Equal wherever the judge found an answer; where it did not the CPU is nearly full, or too full.
fn agrees(
    tasks: &[Sporadic],
    ours: &[Option<u64>],
    judged: &[Option<u64>],
) -> Result<(), TestCaseError> {
    for (i, (ours, judged)) in ours.iter().zip(judged).enumerate() {
        if judged.is_some() || !is_nearly_full(tasks) {
            prop_assert_eq!(ours, judged, "task {} of {:?}", i, tasks);
        } else {
            prop_assert!(ours.is_none_or(|time| time > 50_000), "{:?}: {:?}", tasks, ours);
        }
    }
    Ok(())
}

/// One to eight tasks of any deadlines which together ask for a third to all of a CPU, and sometimes more.
fn sets() -> impl Strategy<Value = Vec<Sporadic>> {
    let task = (2u64..=500, 1u64..=100, 1u64..=200);
    let tasks = prop::collection::vec(task, 1..=8);
    (tasks, 330u64..=1030).prop_map(|(tasks, load)| {
        let sum: u64 = tasks.iter().map(|(_, weight, _)| weight).sum();
        let sized = |(period, weight, deadline): (u64, u64, u64)| Sporadic {
            wcet: (period * weight * load / sum / 1000).clamp(1, period),
            deadline: (period * deadline / 100).max(1),
            period,
        };
        tasks.into_iter().map(sized).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn response_times_under_edf_are_the_judges_and_so_is_what_fits(tasks in sets()) {
        let judged = judged_edf(&tasks);
        agrees(&tasks, &edf::response_times(&tasks), &judged)?;
        let full = compare_utilization(&tasks, 1) == Ordering::Greater;
        if full || judged.iter().all(Option::is_some) {
            let in_time = judged.iter().zip(&tasks).all(|(t, task)| t.is_some_and(|t| t <= task.deadline));
            prop_assert_eq!(edf::qpa(&tasks) == Verdict::Schedulable, in_time, "{:?}", tasks);
        }
    }

    #[test]
    fn response_times_under_fixed_priorities_are_the_judges_and_so_is_what_fits(tasks in sets()) {
        let (tasks, _) = fixed::by_priority(&tasks, |t| t.deadline);
        let levels = fixed::strict(tasks.len());
        let judged = judged_fixed(&tasks, &levels);
        agrees(&tasks, &fixed::response_times(&tasks, &levels), &judged)?;
        if compare_utilization(&tasks, 1) != Ordering::Greater && judged.iter().all(Option::is_some) {
            let in_time = judged.iter().zip(&tasks).all(|(t, task)| t.is_some_and(|t| t <= task.deadline));
            prop_assert_eq!(fixed::exact(&tasks, &levels) == Verdict::Schedulable, in_time);
        }
    }

    #[test]
    fn response_times_beside_equals_are_the_judges(tasks in sets(), classes in 1u64..=3) {
        let (tasks, levels) = fixed::by_priority(&tasks, |t| t.period * classes / 501);
        agrees(&tasks, &fixed::response_times(&tasks, &levels), &judged_fixed(&tasks, &levels))?;
    }

    #[test]
    fn a_group_has_as_much_as_the_judges_periodic_supply(
        period in 1u64..=60, part in 1u64..=60, t in 0u64..=400
    ) {
        let budget = part.min(period);
        let judge = Periodic::new(Service::from(budget), Duration::from(period));
        let ours = Supply::new(budget, period, period).within(t);
        prop_assert_eq!(Service::from(ours), judge.provided_service(Duration::from(t)));
    }
}

/// A line of answers: response times, `None` where the judge found none.
fn read(answers: &str) -> Vec<Option<u64>> {
    answers.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// The package of the same name for Python is another program by the same authors, newer, and the one whose results
/// their tool POET certifies.
#[test]
fn two_hundred_sets_have_the_response_times_of_the_python_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let judges = root.join(".cache/judges");
    if judges.join("absent").exists() {
        eprintln!("skipped: scripts/judges.sh could not fetch the package, there was no network");
        return;
    }
    assert!(judges.join("stamp").exists(), "run scripts/judges.sh first, as `make test` does");
    let mut runner = TestRunner::deterministic();
    let mut draw =
        || fixed::by_priority(&sets().new_tree(&mut runner).unwrap().current(), |t| t.deadline).0;
    let drawn: Vec<Vec<Sporadic>> = (0..200).map(|_| draw()).collect();
    let of = |t: &Sporadic| format!("{},{},{} ", t.wcet, t.deadline, t.period);
    let lines: Vec<String> = drawn.iter().map(|tasks| tasks.iter().map(of).collect()).collect();
    let mut input = tempfile::tempfile().unwrap();
    input.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    input.rewind().unwrap();
    let output = Command::new("python3")
        .arg(root.join("analysis/tests/judges/ask_prosa.py"))
        .env("PYTHONPATH", &judges)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::from(input))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().count(), drawn.len());
    for (tasks, line) in drawn.iter().zip(said.lines()) {
        let (under_edf, under_fixed) = line.split_once('|').unwrap();
        agrees(tasks, &edf::response_times(tasks), &read(under_edf)).unwrap();
        let levels = fixed::strict(tasks.len());
        agrees(tasks, &fixed::response_times(tasks, &levels), &read(under_fixed)).unwrap();
    }
}
