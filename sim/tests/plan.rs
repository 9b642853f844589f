// SPDX-License-Identifier: GPL-2.0-only
//! The core serves reservations where the plan puts them: its domains are the plan's, it changes nothing, and the
//! numbers that both must keep to are the same.

use onbeat_analysis::machine::Machine;
use onbeat_core::ffi;
use onbeat_model::numbers;
use onbeat_model::policy::{CORE, Order, Sets};
use onbeat_model::taskset::TaskSet;
use onbeat_model::units::Fraction;
use onbeat_sim::{Core, reservations};

#[test]
fn the_domains_of_the_plan_are_those_of_the_core() {
    for cpus in [1, 2, 3, 5, 8, 12, 63, 64] {
        for (clusters, order) in (1..=cpus).flat_map(|c| Order::all().map(move |o| (c, o))) {
            if clusters > 1 && order.sets != Sets::Clustered {
                continue;
            }
            let machine = Machine::under(order, cpus, clusters, Fraction::new(1, 20));
            let masks = machine.domain_masks();
            assert_eq!(masks.len() as u32, order.domains(cpus, clusters));
            let mut core = Core::new(cpus, 1, 50, 1, 1, 0);
            masks.iter().for_each(|mask| core.regroup(*mask, 0));
            for cpu in 0..cpus {
                // SAFETY: a domain of the core, which lives.
                let theirs = unsafe { (*core.cpu(cpu).domain).cpus };
                let ours = masks.iter().find(|mask| **mask >> cpu & 1 == 1);
                assert_eq!(
                    ours,
                    Some(&theirs),
                    "CPU {cpu} of {cpus} under {order:?} in {clusters}"
                );
            }
            for mask in masks {
                assert_eq!(machine.domain_cpus(mask.trailing_zeros()), mask);
            }
        }
    }
}

#[test]
fn the_numbers_of_the_model_are_those_the_core_is_compiled_with() {
    assert_eq!(numbers::CPUS, ffi::OB_MAX_CPUS);
    assert_eq!(numbers::LEGS, ffi::OB_MAX_LEGS as usize);
    assert_eq!(numbers::ACCOUNTS, ffi::OB_MAX_ACCOUNTS as usize);
    assert_eq!(numbers::OWED_GRAIN, u64::from(ffi::OB_OWED_GRAIN));
}

#[test]
fn the_core_takes_reservations_as_they_are_planned() {
    let text = r#"
        cpus = 4
        clusters = 2
        duration = "1s"
        [[task]]
        name = "movie"
        count = 7
        period = "41ms"
        budget = "25ms"
        work = { constant = "20ms" }
        [[task]]
        name = "bound"
        period = "10ms"
        budget = "1ms"
        affinity = [1, 2]
        work = { constant = "1ms" }
    "#;
    let set = TaskSet::from_bytes(text.as_bytes(), "set.toml".as_ref()).unwrap();
    let mut parts = 0;
    for policy in CORE.iter() {
        let planned = reservations(&set, policy);
        let mut core = Core::new(4, 1, 50, 1, planned.len(), 0);
        let machine = Machine::under(policy.order, 4, 2, Fraction::new(1, 20));
        machine.domain_masks().into_iter().for_each(|mask| core.regroup(mask, 0));
        for (i, r) in planned.iter().enumerate() {
            let r = r.as_ref().unwrap();
            core.init_task(i, 0b1111, 1);
            core.reserve(i, r);
            let server = core.server(i);
            assert_eq!((server.cpus, server.budget, server.period), (r.cpus, r.budget, r.period));
            // SAFETY: a domain of the core, which lives.
            assert_eq!(r.cpus & !unsafe { (*server.domain).cpus }, 0, "{}", policy.name);
            let legs: Vec<_> = server.windows.plan[..server.windows.legs as usize]
                .iter()
                .map(|leg| (leg.cpus.trailing_zeros(), leg.budget))
                .collect();
            assert_eq!(legs, r.split.as_ref().map_or(vec![], |split| split.shares.clone()));
            parts += legs.len();
        }
    }
    assert!(parts > 0, "who is split is tried, too");
}
