// SPDX-License-Identifier: GPL-2.0-only
//! What operations of the core cost, in turns of loops, from 10 to 10,000 reservations: logarithmically more.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use onbeat_core::{counted, ffi, server_policies};

/// Of one operation.
#[derive(Default, Clone, Copy)]
struct Cost {
    calls: u64,
    steps: u64,
}

/// One CPU with `n` reservations that fill it, whose jobs need less than their budgets or more.
struct World {
    ob: Box<ffi::ob>,
    tasks: Box<[ffi::ob_task]>,
    servers: Box<[ffi::ob_server]>,
    /// Work that is left, ns.
    left: Vec<u64>,
    releases: BinaryHeap<Reverse<(u64, usize)>>,
    running: Option<usize>,
    random: u64,
    costs: BTreeMap<&'static str, Cost>,
}

const BUDGET: u64 = 100_000;

impl World {
    fn new(n: usize, kind: u32, order: u32) -> Self {
        let mut world = World {
            ob: Box::default(),
            tasks: vec![ffi::ob_task::default(); n].into(),
            servers: vec![ffi::ob_server::default(); n].into(),
            left: vec![0; n],
            releases: BinaryHeap::new(),
            running: None,
            random: 1,
            costs: BTreeMap::new(),
        };
        let ob = &raw mut *world.ob;
        for i in 0..n {
            let (task, server) = (&raw mut world.tasks[i], &raw mut world.servers[i]);
            // Between 1 and 1.5 times what fills 90 % in all.
            let period = BUDGET * n as u64 * 10 / 9 * (1000 + world.below(500)) / 1000;
            // SAFETY: zeroed memory of the world's own, which stays where it is.
            unsafe {
                if i == 0 {
                    assert_eq!(
                        counted::onbeat_counted_init(ob, 1, 1, 50, ffi::OB_SHARE_QUANTUM.into()),
                        0
                    );
                }
                let mut terms = ffi::ob_terms {
                    budget: BUDGET,
                    period,
                    deadline: period,
                    cpus: 1,
                    account: ffi::OB_NO_ACCOUNT,
                    kind,
                    order,
                    ..Default::default()
                };
                counted::onbeat_counted_task_make(task, i as u32, 1, u64::from(ffi::OB_WEIGHT));
                counted::onbeat_counted_make(ob, server, &raw mut terms, std::ptr::null_mut(), 0);
                counted::onbeat_counted_attach(ob, task, server, 0);
            }
            let first = world.below(period);
            world.releases.push(Reverse((first, i)));
        }
        world
    }

    /// A random number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % most
    }

    fn op<T>(&mut self, name: &'static str, act: impl FnOnce(*mut ffi::ob) -> T) -> T {
        // SAFETY: it reads this thread's count.
        unsafe { counted::onbeat_counted_steps() };
        let result = act(&raw mut *self.ob);
        // SAFETY: as above.
        let steps = unsafe { counted::onbeat_counted_steps() };
        let cost = self.costs.entry(name).or_default();
        cost.calls += 1;
        cost.steps += steps;
        result
    }

    /// Plays `jobs` jobs, as a shell does.
    fn play(&mut self, jobs: u64) {
        let (mut now, mut released) = (0, 0);
        while released < jobs {
            let then = now;
            let ends = self.running.map_or(u64::MAX, |i| now + self.left[i]);
            let release = self.releases.peek().expect("there is always one").0.0;
            now = ends.min(release).min(self.ob.cpu[0].timer).min(self.ob.alarm_at).max(now);
            if let Some(i) = self.running {
                self.left[i] -= now - then;
            }
            // SAFETY, here and below: tasks and servers of this world, as its shell knows them.
            if self.ob.alarm_at <= now {
                self.op("alarm", |ob| unsafe { counted::onbeat_counted_alarm(ob, now) });
            }
            if self.ob.cpu[0].timer <= now {
                self.op("tick", |ob| unsafe { counted::onbeat_counted_tick(ob, 0, now) });
            }
            while let Some(&Reverse((at, i))) = self.releases.peek().filter(|r| r.0.0 <= now) {
                self.releases.pop();
                self.releases.push(Reverse((at + self.servers[i].period, i)));
                released += 1;
                let sleeps = self.left[i] == 0;
                self.left[i] += BUDGET / 2 + self.below(BUDGET);
                let task = &raw mut self.tasks[i];
                if sleeps && self.running != Some(i) {
                    self.op("ready", |ob| unsafe { counted::onbeat_counted_ready(ob, task, now) });
                }
            }
            self.leave(now);
            if self.running.is_none() || self.ob.kick & 1 != 0 {
                self.pick(now);
            }
        }
    }

    /// Who is done sleeps.
    fn leave(&mut self, now: u64) {
        let Some(i) = self.running.filter(|i| self.left[*i] == 0) else { return };
        let task = &raw mut self.tasks[i];
        self.running = None;
        let slept = u64::from(ffi::OB_STOP_SLEPT);
        // SAFETY: it runs.
        self.op("stop", |ob| unsafe { counted::onbeat_counted_stop(ob, 0, slept, now) });
        // SAFETY: it does not any more.
        self.op("sleep", |ob| unsafe { counted::onbeat_counted_sleep(ob, task, now) });
    }

    fn pick(&mut self, now: u64) {
        let prev = self.running.map_or(std::ptr::null_mut(), |i| &raw mut self.tasks[i]);
        // SAFETY: `prev` runs, or is nobody.
        let next = self.op("pick", |ob| unsafe { counted::onbeat_counted_pick(ob, 0, prev, now) });
        if next == prev {
            return;
        }
        if !prev.is_null() {
            let preempted = u64::from(ffi::OB_STOP_PREEMPTED);
            // SAFETY: it runs.
            self.op("stop", |ob| unsafe { counted::onbeat_counted_stop(ob, 0, preempted, now) });
            // SAFETY: it does not any more.
            self.op("ready", |ob| unsafe { counted::onbeat_counted_ready(ob, prev, now) });
        }
        self.running = None;
        if !next.is_null() {
            // SAFETY: the core has taken it from its queue.
            self.op("run", |ob| unsafe { counted::onbeat_counted_run(ob, 0, next, now) });
            // SAFETY: as above.
            self.running = Some(unsafe { (*next).tid } as usize);
        }
    }
}

/// Plays sets of many sizes under every policy and order: what costs more than `most` says.
fn dear(lends: bool, most: impl Fn(f64) -> f64) -> String {
    let mut dear = Vec::new();
    for (kind, name) in (0..).zip(server_policies()) {
        // SAFETY: any number is a valid argument.
        if lends != (unsafe { counted::onbeat_counted_policy_lends(kind) } != ffi::OB_LENDS_NOT) {
            continue;
        }
        // SAFETY: any number is a valid argument.
        let compares = |order: &u32| unsafe { counted::onbeat_counted_order_chooses(*order) == 0 };
        for order in (0..ffi::OB_ORDER_COUNT).filter(compares) {
            for n in [10, 100, 1000, 10_000] {
                let mut world = World::new(n, kind, order);
                world.play(5000);
                for (op, cost) in &world.costs {
                    let mean = cost.steps as f64 / cost.calls as f64;
                    if mean > most(n as f64) {
                        dear.push(format!("{op} under {name:?}, order {order}, {n}: {mean:.0}"));
                    }
                }
            }
        }
    }
    dear.join("\n")
}

#[test]
fn operations_take_logarithmically_many_steps() {
    assert_eq!(dear(false, |n| 4.0 * n.log2() + 15.0), "");
}

#[test]
fn where_slack_is_lent_a_look_at_it_takes_linearly_many_more_and_no_more_than_its_limits() {
    // It goes through the reservations of its domain, if they are few, and through pairs of them.
    let limit = f64::from(ffi::OB_SLACK_MOST + ffi::OB_SLACK_PAIRS);
    assert_eq!(dear(true, |n| limit.min(6.0 * n) + 4.0 * n.log2() + 15.0), "");
}

/// `n` reservations that are ready on `cpus` CPUs under order `order`, with random deadlines that some can keep.
fn ready(cpus: u32, n: usize, order: u32, seed: u64) -> World {
    let mut world = World {
        ob: Box::default(),
        tasks: vec![ffi::ob_task::default(); n].into(),
        servers: vec![ffi::ob_server::default(); n].into(),
        left: Vec::new(),
        releases: BinaryHeap::new(),
        running: None,
        random: seed,
        costs: BTreeMap::new(),
    };
    let ob = &raw mut *world.ob;
    // Between what nearly none can keep and what all can.
    let most = BUDGET * (n as u64 * (1 + world.below(8)) / 4 / u64::from(cpus) + 2);
    // SAFETY: zeroed memory of the world's own, which stays where it is.
    assert_eq!(unsafe { counted::onbeat_counted_init(ob, cpus, 1, 0, 0) }, 0);
    for i in 0..n {
        let (task, server) = (&raw mut world.tasks[i], &raw mut world.servers[i]);
        let budget = 1 + world.below(2 * BUDGET);
        let mut terms = ffi::ob_terms {
            budget,
            period: 1 << 40,
            deadline: budget + world.below(most),
            cpus: u64::MAX,
            value: 1 + world.below(100 * budget),
            account: ffi::OB_NO_ACCOUNT,
            order,
            ..Default::default()
        };
        // SAFETY: as above.
        unsafe {
            counted::onbeat_counted_task_make(task, i as u32, u64::MAX, u64::from(ffi::OB_WEIGHT));
            counted::onbeat_counted_make(ob, server, &raw mut terms, std::ptr::null_mut(), 0);
            counted::onbeat_counted_attach(ob, task, server, 0);
        }
        world.op("ready", |ob| unsafe { counted::onbeat_counted_ready(ob, task, 0) });
    }
    world
}

/// The most steps that a pick takes which has to choose.
fn choosing(cpus: u32, n: usize, order: u32) -> u64 {
    let pick = |seed| {
        let mut world = ready(cpus, n, order, seed);
        world.pick(0);
        world.costs["pick"].steps
    };
    (0..300).map(pick).max().unwrap()
}

#[test]
fn choosing_takes_quadratically_many_steps_of_few_jobs_and_logarithmically_many_of_too_many() {
    // SAFETY: any number is a valid argument.
    let chooses = |order: &u32| unsafe { counted::onbeat_counted_order_chooses(*order) != 0 };
    for order in (0..ffi::OB_ORDER_COUNT).filter(chooses) {
        for cpus in [1, 4, 16, 64] {
            for n in [1, 4, 16, 64] {
                let steps = choosing(cpus, n as usize, order);
                println!("order {order}, {cpus} CPUs, {n} jobs: {steps} steps");
                // Each job meets each that is in a lane, and each lane; each that is to run looks at each CPU. The rest
                // is keeping two trees of them.
                let lanes = n.min(u64::from(cpus));
                let most =
                    n * (n - 1) / 2 + n * lanes + lanes * u64::from(cpus) + 8 * u64::from(cpus);
                let trees = n * (24.0 * (n as f64).log2() + 12.0) as u64 + 30;
                assert!(steps <= most + trees, "order {order}, {cpus} CPUs, {n} jobs: {steps}");
            }
            let steps = choosing(cpus, 1000, order);
            println!("order {order}, {cpus} CPUs, 1000 jobs: {steps} steps");
            assert!(steps <= 64 * 40 + 8 * u64::from(cpus), "too many jobs: {steps}");
        }
    }
}
