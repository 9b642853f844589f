// SPDX-License-Identifier: GPL-2.0-only
//! What `onbeat analyze` says of a set holds when it is played beside best effort: where it says that nobody is late
//! nobody is, else nobody by more than it says. Jobs take all of their budgets, which is the hardest.

use std::path::Path;

use onbeat_analysis::verdict::{Fits, judge};
use onbeat_model::metrics::{detailed, metrics};
use onbeat_model::policy::Policy;
use onbeat_model::taskset::{TaskSet, Work};
use proptest::prelude::*;

/// Of tasks, us.
const PERIODS: [u64; 10] =
    [1_000, 2_000, 5_000, 10_000, 16_700, 20_000, 33_300, 197_000, 200_000, 1_000_000];

/// Time beyond which a wait of several threads or a rounding is no lateness, ms.
const GRAIN: f64 = 0.000_1;

/// Tasks, each with its period, the part of it, in per cent, that is its deadline, its weight in what is filled of what
/// best effort leaves, in per cent, and its first release, in hundredths of the period.
#[derive(Debug, Clone)]
struct Draft {
    cpus: u32,
    fill: u64,
    tasks: Vec<(usize, u64, u64, u64)>,
}

fn draft() -> impl Strategy<Value = Draft> {
    let task = (
        prop_oneof![1 => 0..2usize, 1 => 0..10usize, 1 => 7..10usize],
        prop_oneof![4 => Just(100u64), 1 => 50..100u64],
        15..95u64,
        prop_oneof![1 => Just(0u64), 1 => 0..100u64],
    );
    (1..5u32, prop_oneof![1 => 30..90u64, 3 => 94..101u64], proptest::collection::vec(task, 2..6))
        .prop_map(|(cpus, fill, tasks)| Draft { cpus, fill, tasks })
}

impl Draft {
    /// Jobs take their budgets; those of the last `overrunning` tasks half as much again.
    fn set(&self, policy: &str, duration: &str, overrunning: usize) -> TaskSet {
        let weights: u64 = self.tasks.iter().map(|task| task.2).sum();
        let mut text = format!(
            "cpus = {}\nduration = \"{duration}\"\npolicies = [\"{policy}\"]\nbest_effort = {{ count = 2 }}\n",
            self.cpus
        );
        for (i, (period, deadline, weight, offset)) in self.tasks.iter().enumerate() {
            let period = PERIODS[*period];
            let most = 95 * period * deadline / 10_000;
            let budget = (u64::from(self.cpus) * 95 * period / 100 * self.fill / 100 * weight
                / weights)
                .clamp(50, most);
            let overruns = i + overrunning >= self.tasks.len();
            let work = if overruns { budget * 3 / 2 } else { budget };
            text += &format!(
                "[[task]]\nname = \"t{i}\"\nperiod = \"{period}us\"\ndeadline = \"{}us\"\noffset = \"{}us\"\n\
                 budget = \"{budget}us\"\n\
                 work = {{ constant = \"{work}us\" }}\n",
                period * deadline / 100,
                period * offset / 100
            );
        }
        TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).expect("a set")
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_later_than_the_verdict_says(draft in draft()) {
        for name in [
            "p-edf+cbs-hard", "g-edf+cbs-hard", "g-edf+cbs", "g-edzl+cbs-hard", "g-edzl+cbs-predict",
            "p-edf+cbs-predict", "edf-wm+cbs-hard", "p-rm+cbs-hard", "rm+cbs-hard",
            "g-edf+cbs-slack", "g-edzl+cbs-slack", "g-edf+fcbs", "rm",
        ] {
            let set = draft.set(name, "3s", 0);
            let policy = name.parse::<Policy>().unwrap();
            let policy = policy.core().unwrap();
            let judged = judge(&set, policy);
            let most = match judged.fits {
                Fits::Yes => 0.0,
                Fits::Late(ns) => ns as f64 / 1e6,
                _ => continue,
            };
            // The simulator plays all, also what the service would refuse.
            let run = onbeat_sim::simulate(&set, policy).unwrap();
            let late = metrics(&run).tardiness_max_ms;
            prop_assert!(late <= most + GRAIN, "{}: {} ms, {} said, in {}", name, late, most, set.to_toml());
        }
    }

    /// Also where threads wake as late as the set's jitter says, at random, and some jobs need less than others.
    #[test]
    fn jitter_covers_threads_that_wake_late(draft in draft(), percent in 1..60u64, least in 10..101u64) {
        let jitter = draft.tasks.iter().map(|task| PERIODS[task.0]).min().unwrap() * percent * 10;
        for name in ["p-edf+cbs-hard", "p-rm+cbs-hard", "p-edf+cbs-predict", "p-edf+cbs", "edf-wm+cbs-hard"] {
            let mut set = draft.set(name, "3s", 0);
            for task in &mut set.tasks {
                let budget = task.budget.expect("they have budgets");
                task.waits.jitter = jitter;
                task.work = Work::Uniform((budget * least / 100).max(1), budget);
            }
            set.overheads.wake = jitter;
            let policy = name.parse::<Policy>().unwrap();
            let policy = policy.core().unwrap();
            let most = match judge(&set, policy).fits {
                Fits::Yes => 0.0,
                Fits::Late(ns) => ns as f64 / 1e6,
                _ => continue,
            };
            let late = metrics(&onbeat_sim::simulate(&set, policy).unwrap()).tardiness_max_ms;
            prop_assert!(late <= most + GRAIN, "{}: {} ms, {} said, in {}", name, late, most, set.to_toml());
        }
    }

    #[test]
    fn nobody_within_the_budget_is_later_than_the_verdict_says_whatever_others_take(
        draft in draft(), overrunning in 1..4usize
    ) {
        for name in [
            "p-edf+cbs", "g-edf+cbs-hard", "g-edf+cbs", "g-edzl+cbs-hard", "g-edzl+cbs", "g-edzl+cbs-predict",
            "g-edzl+cbs-slack", "p-edf+cbs-predict", "c-edzl+cbs-predict", "rm+cbs-hard", "p-rm+cbs-hard", "p-rm+cbs",
            "p-rm+cbs-predict", "rm+cbs", "g-edf+fcbs", "p-edf+fcbs", "p-edf+fcbs-lag", "p-edf+cash", "g-edf+cash",
            "edf-wm+cbs-hard", "edf-wmr+cbs-hard", "edf-wmr+cbs", "edf-wmr+fcbs", "p-edf", "p-rm", "p-edzl+cbs",
        ] {
            let set = draft.set(name, "3s", overrunning);
            let policy = name.parse::<Policy>().unwrap();
            let policy = policy.core().unwrap();
            let judged = judge(&set, policy);
            let run = onbeat_sim::simulate(&set, policy).unwrap();
            let (_, figures) = detailed(&run);
            for (i, task) in figures.iter().enumerate().take(draft.tasks.len().saturating_sub(overrunning)) {
                let Some(most) = judged.late[i] else { continue };
                let (late, most) = (task.tardiness_max_ms, most as f64 / 1e6);
                prop_assert!(
                    late <= most + GRAIN, "{}: {} {} ms, {} said, in {}", name, task.name, late, most, set.to_toml()
                );
            }
        }
    }

    /// No more reservations than CPUs, each with nearly all that is proven to fit, whatever the others take.
    #[test]
    fn no_more_reservations_than_cpus_are_in_time_whatever_the_others_take(
        cpus in 2..5u32, share in prop_oneof![Just(5u64), 1..20u64],
        hogs in prop_oneof![4 => 1..4usize, 1 => 4..40usize],
        tasks in proptest::collection::vec((4..10usize, 90..101u64, 0..100u64, 100..300u64), 2..5),
    ) {
        let n = tasks.len().min(cpus as usize);
        // C + m/(m - n + 1) (0.01 share r + (1 - 0.01 share) 3 ms) = r.
        let times = f64::from(cpus) / f64::from(cpus - n as u32 + 1);
        let part = share as f64 / 100.0;
        let mut text = format!(
            "cpus = {cpus}\nduration = \"3s\"\nbest_effort_share = \"{share}%\"\nbest_effort = {{ count = {hogs} }}\n"
        );
        for (i, (period, fill, offset, work)) in tasks.iter().take(n).enumerate() {
            let period = PERIODS[*period];
            let most = period as f64 * (1.0 - times * part) - times * (1.0 - part) * 3_000.0;
            let budget = (most * *fill as f64 / 100.0).max(50.0) as u64;
            let work = if i == 0 { budget } else { budget * work / 100 };
            text += &format!(
                "[[task]]\nname = \"t{i}\"\nperiod = \"{period}us\"\nbudget = \"{budget}us\"\noffset = \"{}us\"\n\
                 work = {{ constant = \"{work}us\" }}\n",
                period * offset / 100
            );
        }
        for name in [
            "g-edf+cbs-hard", "g-edf+cbs", "g-edzl+cbs-hard", "g-edzl+cbs-predict", "g-edzl+cbs-slack",
            "g-edf+cbs-slack",
            "rm+cbs-hard", "rm+cbs",
        ] {
            let set = TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap();
            let policy = name.parse::<Policy>().unwrap();
            let policy = policy.core().unwrap();
            let judged = judge(&set, policy);
            let within = PERIODS[tasks[0].0] as f64 * (1.0 - times * part) > times * (1.0 - part) * 3_000.0 + 50.0;
            prop_assert!(!within || judged.late[0] == Some(0), "{}: {:?} of {}", name, judged, text);
            let run = onbeat_sim::simulate(&set, policy).unwrap();
            let (_, figures) = detailed(&run);
            if judged.late[0] == Some(0) {
                let late = figures[0].tardiness_max_ms;
                prop_assert!(late <= GRAIN, "{}: {} ms in {}", name, late, text);
            }
        }
    }
}
