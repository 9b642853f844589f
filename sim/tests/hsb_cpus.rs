// SPDX-License-Identifier: GPL-2.0-only
//! Servers that draw best effort, in all that a kernel may do: threads that vanish on their way to a CPU, CPUs that go
//! and come, timers that are late, hogs in every class, groups that are removed with them. And crowds of best effort
//! beside hard reservations that fill a CPU.

use onbeat_core::ffi;
use onbeat_model::event::EventKind;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, NOBODY, Reservation};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const CPUS: u32 = 3;
/// Tasks: a hard one for each CPU, soft ones, best effort; then servers that draw.
const HARD: usize = CPUS as usize;
const SOFT: usize = 2;
const OTHERS: usize = 5;
const TASKS: usize = HARD + SOFT + OTHERS;
const DRAWS: usize = 3;
/// The group that they may be members of, beside a soft task.
const GROUP: usize = TASKS + DRAWS;
/// Budget and period of one of these.
const DRAWN: (u64, u64) = (5 * MS, 20 * MS);

fn reservation(budget: u64, period: u64, cpus: u64) -> Reservation {
    let hard = onbeat_core::server_policies().iter().position(|name| *name == "cbs-hard");
    Reservation {
        budget,
        period,
        deadline: period,
        cpus,
        domain: 0,
        kind: hard.unwrap() as u32,
        order: ffi::OB_ORDER_HSB,
        marks: false,
        apart: false,
        split: None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Asleep,
    Waits,
    /// On its way to this CPU.
    Picked(u32),
    Runs(u32),
}

struct World {
    core: Core,
    grouped: bool,
    is: [Is; TASKS],
    online: u64,
    now: u64,
}

impl World {
    fn new(share: u32, grouped: bool) -> Self {
        let mut core = Core::new(CPUS, 1, share, MS, TASKS, 0);
        core.groups(DRAWS + 1);
        let all = (1 << CPUS) - 1;
        core.group(GROUP, &reservation(12 * MS, 20 * MS, all), None);
        let within = grouped.then_some(GROUP);
        for i in 0..DRAWS {
            core.draw(TASKS + i, &reservation(DRAWN.0, DRAWN.1, all), within);
        }
        for i in 0..TASKS {
            // The last of best effort are bound to a CPU each.
            let bound = (i >= TASKS - 2).then(|| 1 << (TASKS - 1 - i));
            core.init_task(i, bound.unwrap_or(all), NICE_0);
            if i < HARD {
                core.reserve(i, &reservation(3 * MS, 10 * MS, 1 << i));
                core.hard(i);
            } else if i == HARD {
                core.reserve_in(i, &reservation(4 * MS, 20 * MS, all), GROUP);
            } else if i < HARD + SOFT {
                core.reserve(i, &reservation(4 * MS, 20 * MS, all));
            }
        }
        Self { core, grouped, is: [Is::Asleep; TASKS], online: all, now: 0 }
    }

    fn at(&self, is: Is) -> usize {
        self.is.iter().position(|other| *other == is).unwrap_or(NOBODY)
    }

    /// As the kernel does: it picks before it stops what runs. `late`: what is picked is on its way for a while.
    fn pick(&mut self, cpu: u32, late: bool) {
        if self.at(Is::Picked(cpu)) != NOBODY || self.online >> cpu & 1 == 0 {
            return;
        }
        let prev = self.at(Is::Runs(cpu));
        let next = self.core.pick(cpu, prev, self.now);
        if next == prev {
            return;
        }
        if prev != NOBODY {
            self.core.stop(cpu, ffi::OB_STOP_PREEMPTED, self.now);
            self.core.ready(prev, self.now);
            self.is[prev] = Is::Waits;
        }
        if next != NOBODY {
            self.is[next] = Is::Picked(cpu);
            if !late {
                self.arrive(cpu);
            }
        }
    }

    fn arrive(&mut self, cpu: u32) {
        let next = self.at(Is::Picked(cpu));
        if next != NOBODY {
            self.core.run(cpu, next, self.now);
            self.is[next] = Is::Runs(cpu);
        }
    }

    fn settle(&mut self) {
        while let Some(cpu) = self.core.take_kick() {
            self.pick(cpu, false);
        }
    }

    fn pass(&mut self, time: u64) {
        for i in HARD + SOFT..TASKS {
            if matches!(self.is[i], Is::Runs(_)) {
                self.core.charge(i, time);
            }
        }
        self.now += time;
        if self.core.alarm_at() <= self.now {
            self.core.alarm(self.now);
        }
        for cpu in 0..CPUS {
            if self.core.timer(cpu) <= self.now && self.at(Is::Runs(cpu)) != NOBODY {
                self.core.tick(cpu, self.now);
            }
        }
    }

    /// The kernel changes the affinity of what is on its way: it is not there when it should run, and waits again.
    fn vanish(&mut self, cpu: u32) {
        let task = self.at(Is::Picked(cpu));
        if task != NOBODY {
            let all = (1 << CPUS) - 1;
            self.core.affinity(
                task,
                if task >= TASKS - 2 { 1 << (TASKS - 1 - task) } else { all },
                self.now,
            );
            self.is[task] = Is::Waits;
            self.pick(cpu, false);
        }
    }

    fn turn(&mut self, cpu: u32) {
        let on = self.online >> cpu & 1 == 0;
        if !on && self.online.count_ones() == 1 {
            return;
        }
        self.online ^= 1 << cpu;
        self.core.online(cpu, on, self.now);
        for task in 0..TASKS {
            if self.is[task] == Is::Runs(cpu) {
                self.core.stop(cpu, ffi::OB_STOP_PREEMPTED, self.now);
            }
            if matches!(self.is[task], Is::Runs(c) | Is::Picked(c) if c == cpu) {
                self.core.ready(task, self.now);
                self.is[task] = Is::Waits;
            }
        }
    }

    /// The servers are removed, whatever they do, and made anew.
    fn renew(&mut self) {
        let within = self.grouped.then_some(GROUP);
        (TASKS..TASKS + DRAWS).for_each(|i| self.core.unmake(i, self.now));
        self.settle();
        self.check();
        let r = reservation(DRAWN.0, DRAWN.1, (1 << CPUS) - 1);
        (TASKS..TASKS + DRAWS).for_each(|i| self.core.draw(i, &r, within));
    }

    fn step(&mut self, what: u8, which: usize, time: u64) {
        let cpu = which as u32 % CPUS;
        match what {
            0 | 1 if self.is[which] == Is::Asleep => {
                self.is[which] = Is::Waits;
                self.core.ready(which, self.now);
            }
            2 => {
                if let Is::Runs(cpu) = self.is[which] {
                    self.core.stop(cpu, ffi::OB_STOP_SLEPT, self.now);
                    self.core.sleep(which, self.now);
                    self.is[which] = Is::Asleep;
                    self.pick(cpu, time.is_multiple_of(2));
                }
            }
            3 => self.pick(cpu, true),
            4 => self.vanish(cpu),
            5 if time.is_multiple_of(8) => self.turn(cpu),
            6 => self.arrive(cpu),
            8 if time.is_multiple_of(4) => self.renew(),
            _ => self.pass(time),
        }
        if what != 7 {
            self.settle();
        }
    }

    /// What must be true of every server that draws.
    fn check(&self) {
        for i in TASKS..TASKS + DRAWS {
            let sv = self.core.server(i);
            let of = |at: *mut ffi::ob_server| std::ptr::eq(at, sv);
            let runs = (0..CPUS).filter(|cpu| of(self.core.cpu(*cpu).server)).count();
            let drawn = (0..CPUS).filter(|cpu| of(self.core.cpu(*cpu).draws)).count();
            assert_eq!((sv.running as usize, sv.drawn as usize), (runs, drawn), "server {i}");
            assert!(runs + drawn <= 1, "server {i} has {runs} CPUs and {drawn} to come");
            let waits = u32::from(sv.state) == ffi::OB_READY && runs + drawn == 0;
            // A hard one whose CPU has gone is best effort meanwhile.
            let may = (0..HARD).chain(HARD + SOFT..TASKS);
            let others = may.into_iter().any(|task| self.is[task] == Is::Waits);
            assert!(!waits || others, "server {i} has a job, and nobody waits");
            // Overdrawn by what timers are late, at most.
            assert!(sv.e >= -(8 * MS as i64), "server {i} is overdrawn by {} ns", -sv.e);
            let most = (self.now / DRAWN.1 + 2) * DRAWN.0 + 8 * MS;
            assert!(sv.consumed <= most, "server {i} had {} ns by {}", sv.consumed, self.now);
        }
        let members = (TASKS..TASKS + DRAWS).filter(|_| self.grouped).chain([HARD]);
        let members: Vec<_> = members.map(|i| self.core.server(i)).collect();
        let group = self.core.server(GROUP);
        let runs: u32 = members.iter().map(|sv| sv.running).sum();
        let wants = |sv: &&&ffi::ob_server| {
            u32::from(sv.state) == ffi::OB_READY && (sv.draws == 1 || sv.awake > 0)
        };
        assert_eq!(group.running, runs, "what runs in the group");
        assert_eq!(group.awake as usize, members.iter().filter(wants).count(), "who wants to");
        assert_eq!(group.awake > 0, u32::from(group.state) != ffi::OB_IDLE, "the group's job");
        for cpu in (0..CPUS).filter(|cpu| self.online >> cpu & 1 == 1) {
            let busy = self.at(Is::Runs(cpu)) != NOBODY || self.at(Is::Picked(cpu)) != NOBODY;
            let waits = self.is[HARD + SOFT..TASKS - 2].contains(&Is::Waits);
            assert!(busy || !waits, "CPU {cpu} idles, and best effort waits");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_each_server_that_draws_has_one_cpu_at_most_and_no_more_than_its_budget(
        share in prop::sample::select(vec![0u32, 10]),
        grouped: bool,
        steps in prop::collection::vec((0..9u8, 0..TASKS, 1..3_000_000u64), 1..400),
    ) {
        let mut world = World::new(share, grouped);
        for (what, which, time) in steps {
            world.step(what, which, time);
            world.settle();
            world.check();
        }
    }
}

/// The longest that one of `crowd` endless threads, all bound to one CPU, waits beside a hard reservation that has 99 %
/// of it and never sleeps.
fn longest_wait(crowd: usize) -> u64 {
    let mut core = Core::new(2, 1, 10, MS, crowd + 1, 1 << 14);
    core.groups(2);
    for i in 0..2 {
        core.draw(crowd + 1 + i, &reservation(5 * MS, 50 * MS, 0b11), None);
    }
    core.init_task(0, 1, NICE_0);
    core.reserve(0, &reservation(99 * MS, 100 * MS, 1));
    core.hard(0);
    let work = |times| Load::Jobs {
        first: 0,
        period: 100_000 * MS,
        delays: Vec::new(),
        deadline: 100_000 * MS,
        times,
        marks: false,
    };
    let mut loads = vec![work(vec![60_000 * MS])];
    for i in 1..=crowd {
        core.init_task(i, 1, NICE_0);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::All);
    let end = engine.run(30_000 * MS, 30_000 * MS);
    let (mut since, mut longest) = (vec![0; crowd + 1], 0);
    for event in engine.finish().iter().filter(|e| (1..=crowd).contains(&(e.task as usize))) {
        let since = &mut since[event.task as usize];
        match event.kind() {
            Some(EventKind::Run) => longest = longest.max(event.time - *since),
            Some(EventKind::Stop) => *since = event.time,
            _ => (),
        }
    }
    longest.max(since[1..].iter().map(|since| end - since).max().unwrap_or(0))
}

#[test]
fn thousands_bound_to_a_cpu_full_of_hard_ones_have_their_turns_before_the_watchdog() {
    let longest = longest_wait(2_000);
    assert!(longest < 9_000 * MS, "{longest} ns");
}
