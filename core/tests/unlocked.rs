// SPDX-License-Identifier: GPL-2.0-only
//! The protocol of `ob_unlocked.h`: all orders in which CPUs can go through the real code, with writes that reach
//! memory late as on x86-64, under every order of best effort. And that each of its barriers and atomic accesses is
//! needed.

#[path = "unlocked/kernel.rs"]
mod kernel;
#[path = "unlocked/machine.rs"]
mod machine;

use std::mem::offset_of;
use std::ops::Range;

use kernel::Op::{self, Ask, Leave, Preempt, Reorder, Sleep, Swap, Wake};
use kernel::{THREADS, World};
use machine::{Machine, Mutation, Verdict, explore};
use onbeat_core::ffi;

/// Threads' affinities, what has happened by when all begins, and what each CPU does.
struct Scenario {
    affinity: [u64; THREADS],
    crowded: bool,
    before: &'static [(usize, Op)],
    cpus: &'static [&'static [Op]],
}

impl Scenario {
    fn explore(&self, mutation: Mutation) -> Verdict {
        self.explore_under(ffi::OB_OTHERS_FAIR, mutation)
    }

    fn explore_under(&self, others: u32, mutation: Mutation) -> Verdict {
        let mut world = World::new(self.cpus.len(), self.affinity, self.crowded, others);
        for (cpu, op) in self.before {
            world.act(*cpu, *op);
        }
        let (image, restore, memory) = (world.image(), world.save(), world.memory());
        // Coroutines that are given up keep what they hold.
        let (world, cpus): (&World, _) = (Box::leak(Box::new(world)), self.cpus);
        let mut machine = Machine::new(memory, World::layout(), mutation);
        let begin = || {
            restore(world);
            &*image
        };
        let program = move |cpu: usize| world.run(cpu, cpus[cpu]);
        let begun = std::time::Instant::now();
        let verdict =
            explore(&mut machine, cpus.len(), program, begin, || world.state(), || world.check());
        println!("{mutation:?}: {verdict:?} in {:.1} s", begun.elapsed().as_secs_f64());
        verdict
    }
}

const RUNNING: usize = offset_of!(ffi::ob_task, running);
const WANT: usize = offset_of!(ffi::ob_task, want);
const IDLE: usize = offset_of!(ffi::ob, idle);
const VTIME: usize = offset_of!(ffi::ob, vtime);

/// A thread that goes round the core begins to run on a CPU, while another asks it to join.
const BEGINS: Scenario = Scenario {
    affinity: [1, 2, 2],
    crowded: false,
    before: &[(1, Wake(0, 0))],
    cpus: &[&[Preempt(0)], &[Ask(0)]],
};

/// A thread sleeps, which began to run under the lock, while another CPU asks it to join.
const SLEEPS: Scenario = Scenario {
    affinity: [1, 2, 2],
    crowded: true,
    before: &[(1, Wake(0, 0)), (0, Preempt(0))],
    cpus: &[&[Sleep(1000)], &[Ask(0)]],
};

/// A thread is interrupted, sleeps and wakes, while it is asked to join and to leave again.
const RETURNS: Scenario = Scenario {
    affinity: [1, 2, 2],
    crowded: false,
    before: &[(1, Wake(0, 0)), (0, Preempt(0))],
    cpus: &[&[Preempt(1000), Sleep(0), Wake(0, 0)], &[Ask(0), Leave(0)]],
};

/// Two threads go from CPU to CPU, while a third one asks one of them to join.
const ROAMS: Scenario = Scenario {
    affinity: [3, 3, 3],
    crowded: false,
    before: &[(1, Wake(0, 0)), (0, Preempt(0)), (1, Wake(1, 1)), (1, Preempt(0))],
    cpus: &[&[Preempt(1000), Sleep(0)], &[Sleep(500), Wake(1, 1)], &[Ask(0)]],
};

/// A thread is on its way round the core to a CPU; through the core others wake, one of which may run there too.
const IDLES: Scenario = Scenario {
    affinity: [1, 2, 5],
    crowded: false,
    before: &[(1, Wake(0, 0))],
    cpus: &[&[Preempt(0)], &[Wake(1, 0), Wake(2, 1)], &[]],
};

/// A thread that joins a reservation switches, and that is taken to another CPU, which is another domain's from then
/// on, and on which a thread of best effort begins to run.
const SWAPS: Scenario = Scenario {
    affinity: [3, 2, 2],
    crowded: false,
    before: &[(0, Wake(0, 0)), (0, Preempt(0)), (1, Ask(0))],
    cpus: &[&[Preempt(1000), Swap], &[Wake(1, 1), Preempt(0)]],
};

/// Threads of best effort run, wait, sleep and wake while its order changes.
const REORDERS: Scenario = Scenario {
    affinity: [1, 1, 2],
    crowded: false,
    before: &[(1, Wake(0, 0)), (0, Preempt(0)), (1, Wake(1, 1))],
    cpus: &[&[Preempt(1000), Sleep(500), Wake(0, 0)], &[Reorder(2), Reorder(0)]],
};

fn holds(scenario: &Scenario) {
    holds_under(scenario, 0..ffi::OB_OTHERS_COUNT);
}

fn holds_under(scenario: &Scenario, orders: Range<u32>) {
    for others in orders {
        if let Err(wrong) = scenario.explore_under(others, Mutation::None) {
            panic!("order {others}: {wrong}");
        }
    }
}

/// Without what is taken away it does not hold, and this is what breaks.
fn needs(scenario: &Scenario, mutation: Mutation, breaks: &str) {
    let wrong = scenario.explore(mutation).expect_err("it holds without it");
    assert!(wrong.contains(breaks), "{mutation:?}: {wrong}");
}

#[test]
fn who_begins_to_run_joins_then_or_with_its_next_switch_in_all_orders() {
    holds(&BEGINS);
}

#[test]
fn who_goes_to_sleep_leaves_no_job_without_a_thread_in_all_orders() {
    holds(&SLEEPS);
}

#[test]
fn who_joins_leaves_sleeps_and_wakes_is_counted_right_in_all_orders() {
    holds(&RETURNS);
}

#[test]
fn who_goes_from_cpu_to_cpu_is_never_lost_in_all_orders() {
    holds(&ROAMS);
}

#[test]
fn no_cpu_idles_beside_a_thread_that_waits_for_it_in_all_orders() {
    holds_under(&IDLES, ffi::OB_OTHERS_FAIR + 1..ffi::OB_OTHERS_COUNT);
}

/// It takes longer than all that is here together, by the same ways through the core as the others.
#[test]
#[ignore = "takes minutes"]
fn nor_where_best_effort_is_fair() {
    holds_under(&IDLES, ffi::OB_OTHERS_FAIR..ffi::OB_OTHERS_FAIR + 1);
}

#[test]
fn who_waits_in_a_reservation_that_is_swapped_to_another_cpu_has_it_in_all_orders() {
    holds(&SWAPS);
}

#[test]
fn nobody_is_lost_and_words_are_their_cpu_s_while_best_effort_s_order_changes() {
    holds(&REORDERS);
}

const TWO: &str = "two at once write to thread 0";

#[test]
fn each_barrier_of_the_hand_over_is_needed() {
    let (running, want) = (World::word(0, RUNNING), World::word(0, WANT));
    needs(&BEGINS, Mutation::Swap(running), "the reservation counts 0 running, there are 1");
    needs(&BEGINS, Mutation::Swap(want), "the reservation counts 0 awake, there are 1");
    needs(&SLEEPS, Mutation::Swap(running), TWO);
    needs(&SLEEPS, Mutation::Swap(want), TWO);
}

#[test]
fn who_lets_go_of_a_thread_must_do_so_last() {
    needs(&SLEEPS, Mutation::Publish(World::word(0, RUNNING)), TWO);
    needs(
        &SLEEPS,
        Mutation::Publish(World::word(0, WANT)),
        "is awake for the kernel or for the core only",
    );
}

#[test]
fn without_atomic_bits_a_cpu_that_runs_is_said_to_idle() {
    needs(&IDLES, Mutation::Atomic(World::word_of_ob(IDLE)), "and is said to idle");
}

#[test]
fn raised_by_a_plain_write_virtual_time_goes_back() {
    needs(&ROAMS, Mutation::Atomic(World::word_of_ob(VTIME)), "virtual time goes back");
}
