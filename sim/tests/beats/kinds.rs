// SPDX-License-Identifier: GPL-2.0-only
//! Twenty kinds of programs, ten with a rhythm and ten without, as one thread of each runs and sleeps. Times in ms.

use super::Dice;

/// What a thread has done.
pub struct Thread {
    /// It went to sleep, woke, and had used so much CPU time by then.
    pub sleeps: Vec<(f64, f64, f64)>,
    pub now: f64,
    pub used: f64,
}

impl Thread {
    pub fn new(dice: &mut Dice) -> Self {
        // A clock of any origin.
        Self { sleeps: Vec::new(), now: dice.within(1e3, 1e8), used: dice.within(0.0, 1e4) }
    }

    pub fn run(&mut self, time: f64) {
        self.now += time;
        self.used += time;
    }

    pub fn sleep(&mut self, time: f64) {
        self.sleeps.push((self.now, self.now + time, self.used));
        self.now += time;
    }

    /// Sleeps until `at`, unless that has passed.
    pub fn until(&mut self, at: f64) {
        if at > self.now {
            self.sleep(at - self.now);
        }
    }

    /// A job of so much CPU time in which it blocks `times`, for `least` to `most` each.
    fn job(&mut self, dice: &mut Dice, time: f64, times: u32, least: f64, most: f64) {
        for _ in 0..times {
            self.run(time / f64::from(times + 1));
            self.sleep(dice.within(least, most));
        }
        self.run(time / f64::from(times + 1));
    }
}

/// Plays one thread; the periods that may be told of it, none for one without a rhythm.
pub type Play = fn(&mut Dice, &mut Thread) -> Vec<f64>;

/// A period between two, evenly over their orders of magnitude.
fn period(dice: &mut Dice, least: f64, most: f64) -> f64 {
    dice.within(least.ln(), most.ln()).exp()
}

/// Ten periods at least.
fn periods(dice: &mut Dice) -> u32 {
    11 + (30.0 * dice.part().powi(2)) as u32
}

/// Releases on a grid, each late by up to `jitter` periods.
fn on_grid(
    dice: &mut Dice,
    t: &mut Thread,
    p: f64,
    jitter: f64,
    mut job: impl FnMut(&mut Dice, &mut Thread),
) {
    let begin = t.now;
    for i in 1..=periods(dice) {
        t.until(begin + (f64::from(i) + jitter * dice.part()) * p);
        job(dice, t);
    }
}

pub const RHYTHMIC: [(&str, Play); 10] = [
    ("a timer", |dice, t| {
        let (p, load) = (period(dice, 5.0, 1000.0), dice.within(0.01, 0.5));
        on_grid(dice, t, p, 0.002, |dice, t| t.run(load * p * dice.within(0.5, 1.0)));
        vec![p]
    }),
    ("releases late by up to 20 %", |dice, t| {
        let p = period(dice, 5.0, 1000.0);
        on_grid(dice, t, p, 0.2, |dice, t| t.run(dice.within(0.05, 0.5) * p));
        vec![p]
    }),
    ("distances that vary by 20 %", |dice, t| {
        let p = period(dice, 5.0, 1000.0);
        for _ in 0..periods(dice) {
            let next = t.now + p * dice.within(0.8, 1.2);
            t.run(dice.within(0.01, 0.5) * p);
            t.until(next);
        }
        vec![p]
    }),
    ("video that waits for its decoder's helpers", |dice, t| {
        let p = [1e3 / 24.0, 1e3 / 25.0, 1e3 / 30.0, 1e3 / 60.0][dice.below(4)];
        on_grid(dice, t, p, 0.03, |dice, t| {
            let (time, times) = (p * dice.within(0.1, 0.4), dice.below(7) as u32);
            t.job(dice, time, times, 0.05, 0.04 * p);
        });
        vec![p]
    }),
    ("audio, and the hand on its controls", |dice, t| {
        let p = dice.within(5.0, 25.0);
        let mut touch = t.now + dice.exponential(10.0 * p);
        on_grid(dice, t, p, 0.02, |dice, t| {
            t.run(dice.within(0.05, 0.3) * p);
            if touch < t.now + 0.6 * p {
                t.sleep(dice.within(0.05, 0.3) * p);
                t.run(0.2);
                touch = t.now + dice.exponential(10.0 * p);
            }
        });
        vec![p]
    }),
    ("two rhythms in one thread", |dice, t| {
        let p = dice.within(8.0, 30.0);
        let q = p * dice.within(3.3, 5.2);
        let (begin, count) = (t.now, 6 * periods(dice));
        let (mut a, mut b) = (begin + p, begin + q * dice.part());
        for _ in 0..count {
            t.until(a.min(b));
            t.run(dice.within(0.02, 0.1) * p);
            (a, b) = if a < b { (a + p, b) } else { (a, b + q) };
        }
        vec![p, q]
    }),
    ("a rhythm that drifts", |dice, t| {
        let (mut p, drift) = (period(dice, 6.0, 800.0), dice.within(0.985, 1.015));
        let mut next = t.now;
        for _ in 0..periods(dice) {
            next += p;
            t.until(next);
            t.run(dice.within(0.05, 0.4) * p);
            p *= drift;
        }
        vec![p]
    }),
    ("a game that skips frames", |dice, t| {
        let p = [1e3 / 60.0, 1e3 / 50.0, 1e3 / 75.0][dice.below(3)];
        let (begin, mut i) = (t.now, 0.0);
        for _ in 0..periods(dice) {
            i += if dice.part() < 0.07 { 2.0 } else { 1.0 };
            t.until(begin + (i + 0.05 * dice.part()) * p);
            t.run(dice.within(0.3, 0.8) * p);
        }
        vec![p]
    }),
    ("a control loop that needs nearly all", |dice, t| {
        let p = period(dice, 5.0, 100.0);
        on_grid(dice, t, p, 0.01, |dice, t| t.run(dice.within(0.75, 0.9) * p));
        vec![p]
    }),
    ("a batch that flushes now and then", |dice, t| {
        let p = dice.within(300.0, 1000.0);
        on_grid(dice, t, p, 0.05, |dice, t| {
            let (time, times) = (p * dice.within(0.02, 0.2), dice.below(12) as u32);
            t.job(dice, time, times, 0.3, 10.0);
        });
        vec![p]
    }),
];

pub const OTHERS: [(&str, Play); 10] = [
    ("random requests", |dice, t| {
        let (mean, end) = (period(dice, 2.0, 300.0), t.now + 20e3);
        while t.now < end {
            t.sleep(dice.exponential(mean));
            t.run(dice.exponential(0.2 * mean));
        }
        vec![]
    }),
    ("bursts of messages", |dice, t| {
        let (pause, inside, end) =
            (period(dice, 50.0, 2000.0), period(dice, 0.3, 10.0), t.now + 20e3);
        while t.now < end {
            t.sleep(dice.exponential(pause));
            for _ in 0..3 + dice.below(30) {
                t.run(dice.exponential(0.3));
                t.sleep(dice.exponential(inside));
            }
        }
        vec![]
    }),
    ("sleeps with a heavy tail", |dice, t| {
        let (least, end) = (period(dice, 0.3, 50.0), t.now + 20e3);
        while t.now < end {
            t.sleep((least * (1.0 - dice.part()).powf(-1.0 / 1.2)).min(5e3));
            t.run(dice.exponential(0.3 * least));
        }
        vec![]
    }),
    ("a computation that is preempted and seldom blocks", |dice, t| {
        let end = t.now + 10e3;
        while t.now < end {
            for _ in 0..1 + dice.below(40) {
                t.run(3.5);
                t.now += dice.exponential(4.0);
            }
            t.sleep(dice.exponential(3.0));
        }
        vec![]
    }),
    ("one end of a pipe", |dice, t| {
        let (mine, theirs, end) =
            (period(dice, 0.02, 20.0), period(dice, 0.02, 20.0), t.now + 10e3);
        while t.now < end {
            t.run(mine * dice.log_normal(0.8));
            t.sleep(theirs * dice.log_normal(0.8));
        }
        vec![]
    }),
    ("a shell that is typed into", |dice, t| {
        let end = t.now + 30e3;
        while t.now < end {
            for _ in 0..2 + dice.below(20) {
                t.sleep(160.0 * dice.log_normal(0.6));
                t.run(0.3);
            }
            t.sleep(dice.exponential(600.0));
            t.run(2.0);
        }
        vec![]
    }),
    ("a compiler that reads files", |dice, t| {
        let (disk, end) = (period(dice, 0.1, 12.0), t.now + 10e3);
        while t.now < end {
            t.run(20.0 * dice.log_normal(1.2));
            for _ in 0..dice.below(8) {
                t.sleep(dice.exponential(disk));
                t.run(0.4 * dice.log_normal(1.0));
            }
        }
        vec![]
    }),
    ("a browser", |dice, t| {
        let end = t.now + 20e3;
        while t.now < end {
            match dice.below(4) {
                // An event, and what it sets in motion.
                0 => (0..1 + dice.below(6)).for_each(|_| {
                    t.sleep(dice.exponential(4.0));
                    t.run(dice.exponential(2.0));
                }),
                // A timer of some script.
                1 => t.sleep([4.0, 10.0, 50.0, 100.0, 250.0][dice.below(5)]),
                2 => t.sleep(dice.exponential(200.0)),
                _ => t.sleep(20.0 * dice.log_normal(1.0)),
            }
            t.run(dice.exponential(1.5));
        }
        vec![]
    }),
    ("somebody who tries again ever later", |dice, t| {
        let end = t.now + 20e3;
        while t.now < end {
            let (mut wait, tries) = (period(dice, 1.0, 50.0), 2 + dice.below(7));
            for _ in 0..tries {
                t.run(0.1);
                t.sleep(wait);
                wait *= 2.0;
            }
        }
        vec![]
    }),
    ("requests answered in three steps", |dice, t| {
        let (mean, step, end) = (period(dice, 20.0, 400.0), dice.within(1.0, 15.0), t.now + 20e3);
        while t.now < end {
            t.sleep(dice.exponential(mean));
            for _ in 0..2 {
                t.run(dice.exponential(0.5));
                t.sleep(step * dice.within(0.9, 1.1));
            }
            t.run(0.2);
        }
        vec![]
    }),
];
