// SPDX-License-Identifier: GPL-2.0-only
//! The smallest cases that were found of reservations that harm others.

use onbeat_analysis::machine::Machine;
use onbeat_analysis::plan::{Demand, Plan, Split};
use onbeat_model::event::EventKind;
use onbeat_model::policy::{Order, Server};
use onbeat_model::units::Fraction;
use onbeat_sim::{Detail, Load};

use crate::sets::{Set, Task};
use crate::{MS, US, events, named, sets, worst};

/// Jobs of these times from `first` on.
fn jobs(first: u64, period: u64, delays: &[u64], times: &[u64]) -> Load {
    let (delays, times) = (delays.to_vec(), times.to_vec());
    Load::Jobs { first, period, delays, deadline: period, times, marks: false }
}

fn task(budget: u64, period: u64, honest: bool, threads: Vec<Load>) -> Task {
    Task {
        home: 0,
        budget,
        period,
        honest,
        marks: false,
        threads,
        split: None,
        at: None,
        bound: None,
    }
}

fn set(cpus: u32, best_effort: usize, tasks: Vec<Task>) -> Set {
    let (users, rates) = (vec![0; tasks.len()], vec![0]);
    Set { cpus, tasks, best_effort, fcbs: None, users, rates, until: 240 * MS }
}

#[test]
fn threads_of_one_reservation_do_not_preempt_each_other_all_the_time() {
    let short = jobs(500 * US, 4 * MS, &[], &[100 * US]);
    let threads = vec![Load::Endless, short, Load::Endless, Load::Endless];
    let set = set(3, 0, vec![task(3 * MS, 34 * MS, false, threads)]);
    let (events, end) = events(&set, named("g-edzl+cbs-predict"), Detail::Jobs);
    let usage = events.iter().filter(|e| e.kind() == Some(EventKind::Usage));
    let preemptions: u64 = usage.map(|e| e.b >> 32).sum();
    assert!(preemptions < 1000, "{preemptions} in {} ms", end / MS);
}

#[test]
fn a_reservation_of_which_one_thread_runs_and_another_waits_is_not_without_laxity() {
    let (steady, crowd) =
        (160 * US, vec![Load::Endless, jobs(21_600 * US, 33 * MS, &[], &[12 * MS])]);
    let tasks = vec![
        task(steady, 2_938 * US, true, vec![jobs(18_800 * US, 2_938 * US, &[], &[steady; 25])]),
        task(25_650 * US, 63_533 * US, false, vec![Load::Endless]),
        task(12_429 * US, 33_432 * US, false, crowd),
    ];
    // On one CPU EDZL is EDF.
    let late = worst(&set(1, 1, tasks), named("g-edzl+cbs-slack"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn an_overrun_in_parts_harms_nobody_on_the_cpus_of_its_windows() {
    let shares = vec![(0, 28_904 * US), (1, 3_347 * US)];
    let over = 38_702 * US;
    let mut split = task(
        32_251 * US,
        80_128 * US,
        false,
        vec![jobs(12 * MS, 80_128 * US, &[6_678 * US, 27_304 * US], &[over, over])],
    );
    split.split = Some(Split { window: 40_064 * US, postponed: false, shares });
    let steady = jobs(17_600 * US, 7_687 * US, &[], &[1_329 * US; 18]);
    let whole = task(1_330 * US, 7_687 * US, true, vec![steady]);
    let late = worst(&set(2, 0, vec![whole, split]), named("edf-wm+cbs-hard"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn an_overrun_on_a_full_cpu_takes_slack_only_where_there_is_some() {
    let (over, full) = (54_253_455, 27_517_655);
    let hostile = jobs(25_800_000, 59_816_000, &[], &[over]);
    let delays = [20_024_413, 22_264_900, 25_559_535];
    let honest = jobs(20_400_000, 43_551_000, &delays, &[full, full]);
    let tasks = vec![
        task(19_030_520, 59_816_000, false, vec![hostile]),
        task(full, 43_551_000, true, vec![honest]),
    ];
    for server in ["cbs-slack", "cbs-predict"] {
        assert_eq!(worst(&set(1, 2, tasks.clone()), named(&format!("p-edf+{server}"))), 0);
    }
}

#[test]
fn what_must_be_served_of_later_budgets_is_no_slack_on_several_cpus() {
    let period = 35 * MS;
    let of = |budget, first, honest, times: &[u64]| {
        task(budget, period, honest, vec![jobs(first, period, &[], times)])
    };
    let mut tasks = vec![
        of(6_164_235, 25_500_000, true, &[6_164_235]),
        of(8_775_900, 8_700_000, false, &[25_526_269]),
        of(5_696_985, 22_900_000, false, &[22_130_068]),
        // At 45.7 ms it has 12.6 ms left until 70.9, so 2.6 of them must be served by 60.9.
        of(12_612_880, 900_000, false, &[24_400_385, 41_880_138]),
        of(4_730_775, 25_900_000, false, &[94_615_500]),
        of(5_968_200, 9_400_000, false, &[17_904_600]),
        of(11_067_700, 6_900_000, false, &[38_514_271]),
    ];
    tasks[4].marks = true;
    let late = worst(&set(2, 1, tasks), named("g-edzl+cbs-predict"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn threads_of_a_reservation_without_laxity_take_one_cpu_of_others() {
    let steady = 9_138_279;
    let wakes = jobs(6_053_039, 7_137_120, &[], &[4_804_339]);
    let honest = vec![jobs(4_500 * US, 10_894 * US, &[], &[steady])];
    let tasks = vec![
        task(steady, 10_894 * US, true, honest),
        task(27_263_304, 38_005 * US, false, vec![Load::Endless, Load::Endless]),
        task(64_886_408, 72_685 * US, false, vec![wakes, Load::Endless, Load::Endless]),
    ];
    let late = worst(&set(3, 0, tasks), named("g-edzl+cbs-hard"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn who_is_beside_split_ones_and_wakes_early_has_a_period_for_what_is_left() {
    let late = worst(&sets::split(2_002_022, true, false), named("edf-wmr+cbs-slack"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn who_is_split_and_wakes_within_a_window_has_a_whole_one_for_what_is_left() {
    let late = worst(&sets::split(2_003_073, false, true), named("edf-wm+cbs-hard"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn a_budget_taken_early_is_no_longer_ahead_when_it_is_due_though_the_account_is_empty() {
    let late = worst(&sets::split(2_000_641, false, false), named("edf-wm+cbs-slack"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn what_must_be_served_of_later_budgets_is_more_where_best_effort_has_its_share() {
    // Served from 86.3 ms until 100.7 one has all of a CPU but best effort's quantum.
    let late = worst(&sets::whole(1_027_204, true, true), named("g-edzl+cbs-slack"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn laxity_ends_earlier_where_best_effort_has_its_share() {
    // Of the time from s - e until s the first one has 95 %: it was late by 39 and 16 ms.
    let of = |budget, period, honest, time, count| {
        task(budget, period, honest, vec![jobs(0, period, &[], &vec![time; count])])
    };
    let tasks = vec![
        of(1_584_083_759, 1_903 * MS, true, 1_584_083_759, 1),
        of(2_186_863, 4_342_000, false, 2_624_235, 500),
        of(1_155_589, 2_589_000, false, 1_386_706, 900),
    ];
    for server in ["cbs-predict", "cbs-slack", "cbs-hard"] {
        let set = Set { until: 3_000 * MS, ..set(2, 8, tasks.clone()) };
        assert_eq!(worst(&set, named(&format!("g-edzl+{server}"))), 0, "ns late under {server}");
    }
}

#[test]
fn siblings_that_wait_are_watched_when_the_one_that_ran_goes_to_sleep() {
    for seed in [1_070_439, 1_193_994] {
        let late = worst(&sets::whole(seed, true, true), named("g-edzl+cbs-slack"));
        assert_eq!(late, 0, "ns late, seed {seed}");
    }
}

#[test]
fn of_those_without_laxity_the_earliest_deadline_is_first() {
    for (seed, policy) in [
        (1_057_389, "g-edzl+cbs-hard"),
        (1_012_451, "g-edzl+cbs-slack"),
        (1_028_043, "g-edzl+cbs-predict"),
    ] {
        let late = worst(&sets::whole(seed, false, true), named(policy));
        assert_eq!(late, 0, "ns late, seed {seed}");
    }
}

/// Reservations of these budgets and periods, which admission takes, and jobs that need just that.
fn admitted(cpus: u32, asked: &[(u64, u64)]) -> Set {
    let machine = Machine::under(Order::GLOBAL_EDF, cpus, 1, Fraction::new(1, 20));
    let mut plan = Plan::new(machine);
    let mut tasks = Vec::new();
    for (id, &(budget, period)) in (0..).zip(asked) {
        let demand = Demand {
            name: String::new(),
            budget,
            period,
            deadline: period,
            cpus: None,
            hard: false,
        };
        assert!(plan.fit(id, &demand).is_some());
        tasks.push(task(budget, period, true, vec![jobs(0, period, &[], &[budget; 8])]));
    }
    set(cpus, 0, tasks)
}

#[test]
fn in_rate_monotonic_order_what_is_admitted_can_be_late_though_all_keep_to_their_budgets() {
    let set = admitted(1, &[(5 * MS, 10 * MS), (6_300 * US, 14 * MS)]);
    for server in Server::ALL.iter().filter(|s| s.isolates()).map(|s| s.name()) {
        assert!(worst(&set, named(&format!("rm+{server}"))) > MS, "{server}");
        assert_eq!(worst(&set, named(&format!("g-edf+{server}"))), 0, "{server}");
    }
}

#[test]
fn under_global_and_clustered_edf_what_is_admitted_can_be_late_and_under_edzl_it_is_not() {
    // Two run for 12 ms, and the third begins 8 ms before its deadline.
    let set = admitted(2, &[(12 * MS, 20 * MS); 3]);
    for server in Server::ALL.iter().filter(|s| s.isolates()).map(|s| s.name()) {
        assert!(worst(&set, named(&format!("g-edf+{server}"))) >= 4 * MS, "{server}");
        assert_eq!(worst(&set, named(&format!("g-edzl+{server}"))), 0, "{server}");
    }
    assert!(!Order::GLOBAL_EDF.isolates() && !Order::CLUSTERED_EDF.isolates());
}

/// A reservation that its own deadline serves in an hour, with many threads that never sleep, and one that has all the
/// rest of the CPU. For longer than anybody's patience.
fn patience(budget: u64, period: u64, rest: u64) -> Set {
    let crowd = task(budget, period, false, vec![Load::Endless; 64]);
    let steady = task(rest, 10 * MS, true, vec![jobs(0, 10 * MS, &[], &[rest; 790])]);
    Set { until: 8_000 * MS, ..set(1, 1, vec![steady, crowd]) }
}

#[test]
fn threads_that_lose_their_patience_are_served_at_the_expense_of_best_effort_only() {
    const SECOND: u64 = 1_000 * MS;
    for (budget, period, rest) in
        [(50 * US, 3_600 * SECOND, 9_400 * US), (360 * SECOND, 3_600 * SECOND, 8_400 * US)]
    {
        let set = patience(budget, period, rest);
        for policy in
            ["p-edf+cbs", "p-edf+cbs-hard", "p-edf+cbs-slack", "g-edzl+cbs-predict", "g-edzl+cbs"]
        {
            let late = worst(&set, named(policy));
            assert_eq!(late, 0, "ns late beside {budget} of {period} under {policy}");
        }
    }
}

#[test]
fn what_a_job_leaves_is_no_capacity_any_more_when_the_cpu_has_idled_in_its_stead() {
    let late = worst(&sets::whole(1624, false, true), named("p-edzl+cash"));
    assert_eq!(late, 0, "ns late");
}

#[test]
fn what_a_job_leaves_is_no_capacity_as_far_as_its_owner_may_claim_it_when_it_wakes_again() {
    let late = worst(&sets::whole(1542, false, true), named("p-edzl+cash"));
    assert_eq!(late, 0, "ns late");
}
