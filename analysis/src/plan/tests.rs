// SPDX-License-Identifier: GPL-2.0-only
use num_bigint::BigInt;
use num_rational::BigRational;
use onbeat_model::policy::Order;
use proptest::prelude::*;

use super::*;
use crate::admission::Admission;

const US: u64 = 1_000;

fn demand(budget: u64, period: u64) -> Demand {
    Demand { name: String::new(), budget, period, deadline: period, cpus: None, hard: false }
}

fn machine(order: Order, cpus: u32) -> Machine {
    Machine::under(order, cpus, 1, Fraction::from_integer(0))
}

fn whole(domain: u32, cpus: u64) -> Place {
    Place { domain, cpus, apart: false, split: None }
}

/// A machine of any order, and what is asked of it: more than fits, mostly.
fn any_case() -> impl Strategy<Value = (Machine, Vec<Demand>)> {
    let order = prop::sample::select(Order::all().collect::<Vec<_>>());
    let clusters =
        prop::sample::select(vec![(1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (6, 2), (6, 3)]);
    let one = (1..900u64, 1..40u64, 0..3u64, 0..256u64);
    (order, clusters, 0..=12u64, prop::collection::vec(one, 1..24)).prop_map(
        |(order, (cpus, clusters), share, all)| {
            let demands = all.into_iter().map(|(part, periods, shorter, mask)| {
                let period = periods * 2_500 * US;
                let deadline = if shorter == 0 { period * 3 / 4 } else { period };
                let list: Vec<u32> = (0..cpus).filter(|cpu| mask >> cpu & 1 == 1).collect();
                // Half of them may go everywhere.
                let cpus = (mask < 128 && !list.is_empty()).then_some(list);
                Demand { deadline, cpus, ..demand((deadline * part / 1000).max(1), period) }
            });
            (Machine::under(order, cpus, clusters, Fraction::new(share, 40)), demands.collect())
        },
    )
}

#[test]
fn what_does_not_fit_goes_where_most_is_left_and_takes_nobodys_place() {
    for order in [Order::PARTITIONED_EDF, Order::EDF_WMR] {
        let mut plan = Plan::new(machine(order, 2));
        let mut put = |id, budget, period| plan.place(id, &demand(budget * US, period * US));
        assert_eq!(put(0, 750, 1000), (whole(0, 0b01), true), "{order:?}");
        assert_eq!(put(1, 800, 1000), (whole(1, 0b10), true), "{order:?}");
        // 1/4 and 1/5 are left, in windows not even that.
        assert_eq!(put(2, 600, 1000), (whole(0, 0b01), false), "{order:?}");
        assert_eq!(put(3, 600, 1000), (whole(1, 0b10), false), "{order:?}");
        // As if neither of these two were there.
        assert_eq!(put(4, 250, 1000), (whole(0, 0b01), true), "{order:?}");
    }
}

#[test]
fn who_fits_no_longer_stays_if_a_cpu_of_it_is_on_line_and_goes_to_one_that_is_otherwise() {
    let mut after = machine(Order::PARTITIONED_EDF, 3);
    after.offline(0);
    let mut plan = Plan::new(after);
    assert_eq!(plan.keep(0, &demand(3, 4), &whole(1, 0b010)), (whole(1, 0b010), true));
    assert_eq!(plan.keep(1, &demand(2, 4), &whole(2, 0b100)), (whole(2, 0b100), true));
    // It does not fit, and its CPU is there; it does not fit, and its CPU is gone; it may use that one only.
    assert_eq!(plan.keep(2, &demand(3, 4), &whole(1, 0b010)), (whole(1, 0b010), false));
    assert_eq!(plan.keep(3, &demand(3, 4), &whole(0, 0b001)), (whole(2, 0b100), false));
    let only = Demand { cpus: Some(vec![0]), ..demand(1, 4) };
    assert_eq!(plan.keep(4, &only, &whole(0, 0b001)), (whole(0, 0b001), false));
}

#[test]
fn who_stays_stays_in_its_domain_though_another_has_more_left() {
    let mut plan = Plan::new(machine(Order::PARTITIONED_EDF, 2));
    for id in 0..2 {
        assert_eq!(plan.keep(id, &demand(1, 2), &whole(1, 0b10)), (whole(1, 0b10), true));
    }
    assert_eq!(plan.keep(2, &demand(1, 2), &whole(1, 0b10)), (whole(0, 0b01), true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_the_service_grants_is_served_where_the_simulator_does_whatever_does_not_fit(
        (machine, demands) in any_case(),
    ) {
        // The service refuses what does not fit, but where the order chooses; the simulator serves it all the same.
        let (mut book, mut plan) = (Admission::new(machine.clone()), Plan::new(machine.clone()));
        for (id, demand) in (0..).zip(&demands) {
            let granted = book.admit(id, demand);
            let (at, fits) = plan.place(id, demand);
            let serves = fits || machine.takes_all;
            prop_assert_eq!(granted.ok(), serves.then_some(at.clone()));
            let domain = machine.domain_cpus(at.domain);
            prop_assert!(at.cpus != 0 && at.cpus & !domain == 0, "{:?} of {:b}", at, domain);
            prop_assert_eq!(at.all_cpus() & !demand.mask(), 0);
        }
    }

    #[test]
    fn what_is_given_back_leaves_no_trace((machine, demands) in any_case()) {
        let (mut used, mut new) = (Plan::new(machine.clone()), Plan::new(machine));
        for (id, demand) in (0..).zip(&demands) {
            used.place(id, demand);
        }
        for id in 0..demands.len() as u32 {
            prop_assert!(used.remove(id).is_some() && used.remove(id).is_none());
        }
        for (id, demand) in (100..).zip(&demands) {
            prop_assert_eq!(used.place(id, demand), new.place(id, demand));
        }
    }

    #[test]
    fn a_machine_that_did_not_change_moves_nobody((machine, demands) in any_case()) {
        let (mut before, mut after) = (Plan::new(machine.clone()), Plan::new(machine));
        for (id, demand) in (0..).zip(&demands) {
            let placed = before.place(id, demand);
            let kept = after.keep(id, demand, &placed.0);
            prop_assert_eq!(kept, placed);
        }
    }

    #[test]
    fn on_cpus_of_their_own_the_least_loaded_one_that_may_takes_each_by_exact_loads(
        asked in prop::collection::vec((1..400u64, 1..60u64, 1..16u64), 1..20),
    ) {
        let mut plan = Plan::new(machine(Order::PARTITIONED_EDF, 4));
        let mut loads = vec![BigRational::default(); 4];
        for (id, (budget, longer, mask)) in (0..).zip(asked) {
            let list: Vec<u32> = (0..4).filter(|cpu| mask >> cpu & 1 == 1).collect();
            let demand = Demand { cpus: Some(list.clone()), ..demand(budget, budget + 10 * longer) };
            let load = BigRational::new(budget.into(), demand.period.into());
            let least = list.iter().min_by_key(|cpu| loads[**cpu as usize].clone()).unwrap();
            let sum = &loads[*least as usize] + load;
            let fits = sum <= BigRational::from_integer(BigInt::from(1));
            prop_assert_eq!(plan.fit(id, &demand), fits.then(|| whole(*least, 1 << least)));
            if fits {
                loads[*least as usize] = sum;
            }
        }
    }
}
