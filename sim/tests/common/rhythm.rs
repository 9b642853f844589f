// SPDX-License-Identifier: GPL-2.0-only
//! Periodic threads of best effort, of which nobody is told, beside loops: how many of their jobs are late.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Others;
use onbeat_model::taskset::Overheads;
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, NOBODY, Reservation};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
/// Jobs in which it becomes known what a thread needs.
const UNKNOWN: u64 = 10;

/// CPUs without reservations, threads of these weights in this order.
pub fn core(order: Others, cpus: u32, weights: &[u64]) -> Core {
    let mut core = Core::new(cpus, 1, 50, MS, weights.len(), 1 << 14);
    core.among_others(order.number());
    let all = (1 << cpus) - 1;
    weights.iter().enumerate().for_each(|(i, weight)| core.init_task(i, all, *weight));
    core
}

/// A periodic thread: period, and execution times of its jobs, ns. Its deadline is the period.
pub struct Periodic {
    pub first: u64,
    pub period: u64,
    pub times: Vec<u64>,
}

/// Jobs that vary as frames do, evenly between `least` and `most` thousandths of `mean`.
pub fn times(jobs: u64, mean: u64, least: u64, most: u64) -> Vec<u64> {
    let mut random = 88172645463325252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        mean * (least + random % (most - least + 1)) / 1000
    };
    (0..jobs).map(|_| next()).collect()
}

/// The part of the jobs of each periodic thread that are late on `cpus` CPUs beside loops of these weights.
pub fn late(order: Others, cpus: u32, periodic: &[Periodic], loops: &[u64]) -> Vec<f64> {
    let weights: Vec<u64> = periodic.iter().map(|_| NICE_0).chain(loops.iter().copied()).collect();
    let load = |p: &Periodic| Load::Jobs {
        first: p.first,
        period: p.period,
        delays: Vec::new(),
        deadline: p.period,
        times: p.times.clone(),
        marks: false,
    };
    let loads = periodic.iter().map(load).chain(loops.iter().map(|_| Load::Endless)).collect();
    let core = core(order, cpus, &weights);
    let mut engine = Engine::new(core, cpus, loads, Overheads::default(), Detail::Jobs);
    engine.run(0, 1000 * SECOND);
    let events = engine.finish();
    let rate = |(i, p): (usize, &Periodic)| {
        let done = |e: &&Event| e.kind() == Some(EventKind::Complete) && e.task as usize == i;
        let known = |e: &&Event| e.a >= UNKNOWN;
        let due = |job: u64| p.first + (job + 1) * p.period;
        let on_time =
            events.iter().filter(done).filter(known).filter(|e| e.time <= due(e.a)).count();
        1.0 - on_time as f64 / (p.times.len() as u64 - UNKNOWN) as f64
    };
    periodic.iter().enumerate().map(rate).collect()
}

/// The same of one thread that needs `permille` of a CPU, in jobs that vary by a tenth of that, on one CPU.
pub fn late_of_one(order: Others, period: u64, permille: u64, loops: &[u64]) -> f64 {
    let times = times(2000, period * permille / 1000, 900, 1100);
    late(order, 1, &[Periodic { first: 333 * US, period, times }], loops)[0]
}

/// How the threads of a program follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each sleeps by itself.
    Alone,
    /// One at a time works. Before it sleeps it wakes the next, or if it has a pause a timer does.
    Baton,
    /// Who has worked ends. After the pause an heir goes on, which it forked when it had worked for so long, us, at the
    /// latest at its end, and which waits for that.
    Heirs { after: u64 },
    /// A child of the thread does each work, for whose end it waits.
    Hires,
}

/// A thread, or a line of heirs: it begins, works for the next of these, pauses for the next of those, again and again,
/// us.
#[derive(Clone, Debug)]
pub struct Rhythm {
    pub first: u64,
    pub works: Vec<u64>,
    pub pauses: Vec<u64>,
}

/// A program that would have more than its part.
#[derive(Clone, Debug)]
pub struct Program {
    pub way: Way,
    /// Whom its threads wake the core takes to be woken by a thread; else by an interrupt, as messages by loopback do.
    pub told: bool,
    /// The last so many of its threads may go anywhere, and the very last one of these is always woken by another.
    pub free: usize,
    /// Where the others only help the last of its threads: the weight of that one. Then all wake by one clock, at
    /// multiples of their pauses.
    pub helped: Option<u64>,
    pub threads: Vec<Rhythm>,
}

impl Program {
    /// Threads without ties.
    pub fn of(threads: Vec<Rhythm>) -> Self {
        Self { way: Way::Alone, told: false, free: 0, helped: None, threads }
    }

    fn is_free(&self, line: usize) -> bool {
        line >= self.threads.len() - self.free
    }
}

/// Where a thread may run, and its weight.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub cpus: u64,
    pub weight: u64,
}

/// What makes a thread costs its parent, and what a parent needs to wait for a child, or the other way round.
const FORKS: u64 = 20 * US;
/// The kernel's, and the slice that its ticks end (`BE_SLICE` of the shell).
const TICK: u64 = 4 * MS;
const SLICE: u64 = 3_500 * US;
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq)]
enum Does {
    Sleeps,
    Works,
    /// It makes a child that works, and waits for it.
    Hires,
    /// It waits for the end of its parent.
    IsBorn,
}

#[derive(Clone, Copy)]
struct Thread {
    does: Does,
    /// Until it does something else, and at which of these it forks an heir; ns.
    left: u64,
    forks: u64,
    wake: u64,
}

#[derive(Clone, Copy)]
struct Seat {
    runs: usize,
    /// When what it runs was charged for last, and when its slice ends.
    since: u64,
    slice: u64,
}

/// The kernel shell, in short: CPUs without reservations, on which a program runs beside loops. Two threads of the core
/// are for each of the program's: itself, and its heir or child.
struct Rig<'a> {
    core: Core,
    now: u64,
    program: &'a Program,
    place: Place,
    threads: Vec<Thread>,
    /// How often each of the program's has paused.
    steps: Vec<usize>,
    seats: Vec<Seat>,
}

impl Rig<'_> {
    fn work(&self, line: usize) -> u64 {
        let works = &self.program.threads[line].works;
        works[self.steps[line] % works.len()] * US
    }

    /// The pause that is next, ns.
    fn pause(&mut self, line: usize) -> u64 {
        let pauses = &self.program.threads[line].pauses;
        let pause = pauses[self.steps[line] % pauses.len()] * US;
        self.steps[line] += 1;
        pause
    }

    fn born(&mut self, i: usize, parent: usize, ran: u64) {
        let free = self.program.is_free(i / 2);
        let cpus = if free { (1 << self.seats.len()) - 1 } else { self.place.cpus };
        let last = i / 2 + 1 == self.program.threads.len();
        let weight = self.program.helped.filter(|_| last).unwrap_or(self.place.weight);
        self.core.init_task(i, cpus, weight);
        self.core.born(i, parent, ran);
        // The kernel does not ask where one that is bound to a CPU is to go.
        self.core.told_if(i, parent != NOBODY && self.place.cpus.count_ones() > 1);
    }

    /// Thread `i` is to work, woken by a thread or by a timer.
    fn rouse(&mut self, i: usize, by_a_thread: bool) {
        let (line, does) = (i / 2, self.threads[i].does);
        let work = self.work(line);
        let thread = &mut self.threads[i];
        thread.wake = NEVER;
        thread.does = Does::Works;
        thread.left = work;
        if let Way::Heirs { after } = self.program.way {
            thread.forks = work.saturating_sub((after * US).max(FORKS));
        }
        match (self.program.way, does) {
            (Way::Hires, _) => (thread.does, thread.left) = (Does::Hires, FORKS),
            // It finds that it need not wait.
            (_, Does::IsBorn) => thread.left += FORKS,
            _ => {}
        }
        if does == Does::Sleeps {
            let reads = self.program.free > 0 && line + 1 == self.program.threads.len();
            let told = by_a_thread && self.program.told || reads;
            self.core.told_if(i, told);
            self.core.ready(i, self.now);
        }
    }

    /// Thread `i` is to work after `pause` ns.
    fn rouse_after(&mut self, i: usize, pause: u64) {
        if pause == 0 {
            self.rouse(i, true);
        } else {
            self.threads[i].wake = self.now + pause;
        }
    }

    /// What runs on `cpu` forks the other thread of its line.
    fn fork(&mut self, cpu: usize, does: Does, left: u64) {
        let Seat { runs, since, .. } = self.seats[cpu];
        self.born(runs ^ 1, runs, self.now - since);
        self.threads[runs ^ 1] = Thread { does, left, forks: NEVER, wake: NEVER };
        self.threads[runs].forks = NEVER;
        self.core.ready(runs ^ 1, self.now);
    }

    /// What runs on `cpu` stops. The kernel charges for what it had then.
    fn stop(&mut self, cpu: usize, why: u32) {
        let seat = &mut self.seats[cpu];
        self.core.charge(seat.runs, self.now - seat.since);
        self.core.stop(cpu as u32, why, self.now);
        if why == ffi::OB_STOP_SLEPT {
            self.core.sleep(seat.runs, self.now);
            self.threads[seat.runs].does = Does::Sleeps;
            seat.runs = NOBODY;
        }
    }

    /// What runs on `cpu` has done what it was to do.
    fn done(&mut self, cpu: usize) {
        let i = self.seats[cpu].runs;
        let line = i / 2;
        match (self.threads[i].does, self.program.way) {
            (Does::IsBorn, _) => self.stop(cpu, ffi::OB_STOP_SLEPT),
            (Does::Hires, _) => {
                self.fork(cpu, Does::Works, self.work(line));
                self.stop(cpu, ffi::OB_STOP_SLEPT);
            }
            (_, Way::Alone) => {
                let pause = self.pause(line);
                self.stop(cpu, ffi::OB_STOP_SLEPT);
                self.threads[i].wake = match self.program.helped {
                    // All by one clock.
                    Some(_) => (self.now + 1).next_multiple_of(pause),
                    None => self.now + pause,
                };
            }
            (_, Way::Baton) => {
                let pause = self.pause(line);
                self.rouse_after((i + 2) % (2 * self.steps.len()), pause);
                self.stop(cpu, ffi::OB_STOP_SLEPT);
            }
            (_, Way::Heirs { .. } | Way::Hires) => {
                if self.threads[i].forks != NEVER {
                    self.fork(cpu, Does::IsBorn, FORKS);
                }
                let pause = self.pause(line);
                self.rouse_after(i ^ 1, pause);
                self.stop(cpu, ffi::OB_STOP_SLEPT);
                self.core.ends(i);
            }
        }
        self.pick(cpu);
    }

    /// `cpu` asks what to run.
    fn pick(&mut self, cpu: usize) {
        let Seat { runs, since, .. } = self.seats[cpu];
        if runs != NOBODY {
            self.core.charge(runs, self.now - since);
        }
        let next = self.core.pick(cpu as u32, runs, self.now);
        let slice = (self.now + SLICE).next_multiple_of(TICK);
        self.seats[cpu] = Seat { runs, since: self.now, slice };
        if next == runs {
            return;
        }
        if runs != NOBODY {
            self.stop(cpu, ffi::OB_STOP_PREEMPTED);
            self.core.ready(runs, self.now);
        }
        if next != NOBODY {
            self.core.run(cpu as u32, next, self.now);
        }
        self.seats[cpu].runs = next;
    }

    /// All that is due by now.
    fn step(&mut self) {
        for i in 0..2 * self.steps.len() {
            if self.threads[i].wake <= self.now {
                self.rouse(i, false);
            }
        }
        for cpu in 0..self.seats.len() {
            if self.core.timer(cpu as u32) <= self.now {
                self.core.tick(cpu as u32, self.now);
            }
            if self.seats[cpu].runs != NOBODY && self.seats[cpu].slice <= self.now {
                self.pick(cpu);
            }
        }
        if self.core.alarm_at() <= self.now {
            self.core.alarm(self.now);
        }
        while let Some(cpu) = self.core.take_kick() {
            self.pick(cpu as usize);
        }
    }

    /// When something is due next.
    fn next(&self) -> u64 {
        let mut next = self.core.alarm_at();
        next = self.threads.iter().fold(next, |next, thread| next.min(thread.wake));
        for (cpu, seat) in self.seats.iter().enumerate() {
            next = next.min(self.core.timer(cpu as u32));
            if seat.runs != NOBODY {
                let Thread { left, forks, .. } = self.threads[seat.runs];
                let until = if forks < left { left - forks } else { left };
                next = next.min(seat.slice).min(self.now.saturating_add(until));
            }
        }
        next.max(self.now + 1)
    }
}

/// What the program had in each of ten seconds, each of its threads in this place, beside loops.
pub fn had_beside(
    order: Others,
    program: &Program,
    place: Place,
    cpus: usize,
    loops: &[Place],
) -> Vec<u64> {
    had_beside_reserved(order, program, place, cpus, loops, 0)
}

/// Best effort's share of each CPU.
pub const SHARE: f64 = 0.05;

/// The same where reservations take all of so many of the CPUs, the last, but for best effort's share.
pub fn had_beside_reserved(
    order: Others,
    program: &Program,
    place: Place,
    cpus: usize,
    loops: &[Place],
    reserved: usize,
) -> Vec<u64> {
    let lines = program.threads.len();
    let first = 2 * lines + loops.len();
    let share = (1000.0 * SHARE) as u32;
    let mut core = Core::new(cpus as u32, cpus as u32, share, MS, first + reserved, 0);
    core.among_others(order.number());
    for at in 0..reserved {
        let (i, cpu) = (first + at, cpus - 1 - at);
        core.init_task(i, 1 << cpu, NICE_0);
        let of = super::reservation(10 * MS, 10 * MS, 1, ffi::OB_ORDER_EDF);
        core.reserve(i, &Reservation { cpus: 1 << cpu, domain: cpu as u32, ..of });
        core.ready(i, 0);
    }
    let thread = Thread { does: Does::Sleeps, left: NEVER, forks: NEVER, wake: NEVER };
    let mut rig = Rig {
        core,
        now: 0,
        program,
        place,
        threads: vec![thread; first + reserved],
        steps: vec![0; lines],
        seats: vec![Seat { runs: NOBODY, since: 0, slice: NEVER }; cpus],
    };
    for (i, place) in (2 * lines..).zip(loops) {
        rig.core.init_task(i, place.cpus, place.weight);
        rig.core.born(i, NOBODY, 0);
        rig.core.ready(i, 0);
    }
    for (line, rhythm) in program.threads.iter().enumerate() {
        rig.born(2 * line, NOBODY, 0);
        // Of a baton there is one.
        if program.way != Way::Baton || line == 0 {
            rig.threads[2 * line].wake = rhythm.first * US;
        }
    }
    let mut had = vec![0; 10];
    while rig.now < 10 * SECOND {
        rig.step();
        let second = rig.now / SECOND;
        let then = rig.next().min((second + 1) * SECOND);
        for seat in &rig.seats {
            if seat.runs < 2 * lines {
                rig.threads[seat.runs].left -= then - rig.now;
                had[second as usize] += then - rig.now;
            }
        }
        rig.now = then;
        for cpu in 0..cpus {
            let runs = rig.seats[cpu].runs;
            if runs >= 2 * lines {
                continue;
            }
            let Thread { left, forks, .. } = rig.threads[runs];
            if left == forks && left > 0 {
                rig.fork(cpu, Does::IsBorn, FORKS);
            } else if left == 0 {
                rig.done(cpu);
            }
        }
    }
    had
}

/// What a thread of one CPU had in each of ten seconds, beside so many loops, that runs for the next of `works` and
/// sleeps for the next of `pauses`, again and again, us.
pub fn had_by_a_liar(order: Others, loops: usize, works: &[u64], pauses: &[u64]) -> Vec<u64> {
    let rhythm = Rhythm { first: 0, works: works.to_vec(), pauses: pauses.to_vec() };
    let program = Program::of(vec![rhythm]);
    let place = Place { cpus: 1, weight: NICE_0 };
    had_beside(order, &program, place, 1, &vec![place; loops])
}
