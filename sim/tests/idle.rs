// SPDX-License-Identifier: GPL-2.0-only
//! No CPU idles, or serves one that comes later, while a reservation that may run there waits: whatever budgets come
//! back at one instant, whatever CPUs each may use.

use onbeat_core::ffi;
use onbeat_model::policy::{CORE, Splits};
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A task: periods of 10 ms, thousandths of its period that it may have, per cent of its budget that jobs need, CPUs.
type Task = (u64, u64, u64, u64);

fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let task = (1..4u64, 100..700u64, 30..300u64, prop_oneof![1 => Just(0b111), 1 => 1..8u64]);
    prop::collection::vec(task, 3..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_cpu_idles_or_serves_a_later_one_while_a_reservation_waits_for_it(tasks in tasks()) {
        for policy in CORE.iter().filter(|p| p.name.starts_with("g-") && p.order.splits == Splits::Never) {
            let mut core = Core::new(3, 1, 0, MS, tasks.len(), 0);
            let mut loads = Vec::new();
            for (i, (tens, share, need, cpus)) in tasks.iter().enumerate() {
                let period = tens * 10 * MS;
                let budget = period * share / 1_000;
                core.init_task(i, *cpus, NICE_0);
                let server = policy.server.name();
                let kind = onbeat_core::server_policies().iter().position(|n| *n == server);
                core.reserve(i, &Reservation {
                    budget,
                    period,
                    deadline: period,
                    cpus: *cpus,
                    domain: 0,
                    kind: kind.unwrap() as u32,
                    order: policy.order.number(),
                    marks: false,
                    split: None,
                });
                let times = vec![budget * need / 100; 20];
                let (first, delays, deadline, marks) = (0, Vec::new(), period, false);
                loads.push(Load::Jobs { first, period, delays, deadline, times, marks });
            }
            let mut engine = Engine::new(core, 3, loads, Overheads::default(), Detail::Counters);
            for step in 1..=1_000 {
                let now = step * 200_000 + 1;
                engine.run(now, now);
                let idle = (0..3).filter(|c| engine.core().cpu(*c).curr.is_null());
                let idle = idle.fold(0u64, |mask, cpu| mask | 1 << cpu);
                for i in 0..tasks.len() {
                    let sv = engine.core().server(i);
                    let waits = sv.waiting > 0 && u32::from(sv.state) == ffi::OB_READY;
                    prop_assert!(!waits || sv.cpus & idle == 0, "{} at {}: {}", policy.name, now, i);
                    let behind = |cpu: u32| engine.core().cpu(cpu).key > sv.node.key;
                    let passed = (0..3).any(|cpu| sv.cpus >> cpu & 1 == 1 && behind(cpu));
                    prop_assert!(!waits || !passed || policy.server.lends(), "{} at {}: {} passed over", policy.name, now, i);
                }
            }
        }
    }
}
