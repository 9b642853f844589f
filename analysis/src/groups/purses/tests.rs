// SPDX-License-Identifier: GPL-2.0-only
//! Purses in ticks: every tick is taken from every purse on the way to the root, what expires first is spent first.

use std::path::Path;

use onbeat_model::policy::Policy;
use onbeat_model::taskset::Segment;
use onbeat_model::units::MS;

use super::super::Supply;
use super::super::oracle::{Inner, Numbers};
use super::*;

/// What is in each segment of each purse.
struct Money<'a> {
    purses: &'a [Purse],
    left: Vec<Vec<u64>>,
}

impl<'a> Money<'a> {
    fn new(purses: &'a [Purse]) -> Self {
        Self { purses, left: purses.iter().map(|p| vec![0; p.segments.len()]).collect() }
    }

    fn tick(&mut self, now: u64) {
        for (purse, left) in self.purses.iter().zip(&mut self.left) {
            if now.is_multiple_of(purse.period) {
                left.clone_from(&purse.segments.iter().map(|s| s.budget).collect());
            }
        }
    }

    /// Whether there was a tick's worth in all.
    fn take(&mut self, purse: usize, now: u64) -> bool {
        let path = std::iter::successors(Some(purse), |p| self.purses[*p].parent);
        path.fold(true, |all, p| {
            let at = now % self.purses[p].period;
            let segments = self.purses[p].segments.iter().enumerate();
            let there =
                segments.filter(|(i, s)| s.from <= at && at < s.until && self.left[p][*i] > 0);
            let first = there.min_by_key(|(_, s)| s.until).map(|(i, _)| i);
            first.into_iter().for_each(|i| self.left[p][i] -= 1);
            all && first.is_some()
        })
    }
}

/// When a taker runs: as late as it may at first and as early as it may then, or any time.
struct Runs {
    taker: Taker,
    purse: usize,
    /// Of a task: when jobs come next; what is left of the present one, and by when.
    next: u64,
    left: u64,
    due: u64,
    server: Option<Inner>,
    wants: bool,
    late_until: u64,
}

impl Runs {
    fn new(taker: Taker, purse: usize, numbers: &mut Numbers) -> Self {
        let server = match taker {
            Taker::Group(budget, deadline) => Some(Inner {
                supply: Supply::new(budget, deadline, deadline),
                deadline: 0,
                left: 0,
                rests: false,
                anew: false,
            }),
            Taker::Task(..) => None,
        };
        let (next, late_until) =
            (numbers.within(0, 12), numbers.within(0, 1) * numbers.within(0, 60));
        Self { taker, purse, next, left: 0, due: 0, server, wants: false, late_until }
    }

    /// Whether it runs in this tick.
    fn runs(&mut self, now: u64, numbers: &mut Numbers) -> bool {
        // Before a time of its own it comes as late as may be, then at once; or now and then.
        let chance = |numbers: &mut Numbers, until: u64| match until {
            0 => numbers.within(0, 1) == 1,
            until => now >= until,
        };
        match (self.taker, &mut self.server) {
            (Taker::Task(budget, deadline, period, _), _) => {
                if now == self.next {
                    (self.left, self.due) = (budget, now + deadline);
                    let more = numbers.within(0, 2) * numbers.within(0, 2);
                    self.next = now + period + if self.late_until > 0 { 0 } else { more };
                }
                let must = self.left > 0 && self.due - now <= self.left;
                let runs = self.left > 0 && (must || chance(numbers, self.late_until));
                self.left -= u64::from(runs);
                runs
            }
            (Taker::Group(..), Some(server)) => {
                server.tick(now);
                let wanted = self.wants;
                self.wants = if self.late_until > 0 { true } else { numbers.within(0, 4) > 0 };
                if self.wants && !wanted {
                    server.wake(now);
                }
                let due = server.deadline.saturating_sub(now) <= server.left;
                let may = self.wants && !server.rests && server.left > 0;
                let runs = may && (due || chance(numbers, self.late_until));
                if runs {
                    server.left -= 1;
                    server.rests = server.left == 0;
                }
                runs
            }
            _ => unreachable!("a group has a server"),
        }
    }
}

/// Whether somebody finds a purse on the way to the root empty within `ticks`.
fn waits(purses: &[Purse], takers: &[Vec<Taker>], ticks: u64, seed: u64) -> bool {
    let mut numbers = Numbers(seed);
    let mut money = Money::new(purses);
    let all = takers.iter().enumerate().flat_map(|(purse, of)| of.iter().map(move |t| (*t, purse)));
    let mut all: Vec<Runs> = all.map(|(t, purse)| Runs::new(t, purse, &mut numbers)).collect();
    (0..ticks).any(|now| {
        money.tick(now);
        let running: Vec<usize> = all
            .iter_mut()
            .filter_map(|one| one.runs(now, &mut numbers).then_some(one.purse))
            .collect();
        // All of them take, whoever finds nothing.
        running.into_iter().filter(|purse| !money.take(*purse, now)).count() > 0
    })
}

fn purse(parent: Option<usize>, period: u64, segments: &[(u64, u64, u64)]) -> Purse {
    let one = |&(budget, from, until): &(u64, u64, u64)| Segment { budget, from, until };
    Purse { name: "p".into(), parent, period, segments: segments.iter().map(one).collect() }
}

fn any_takers(numbers: &mut Numbers, most: u64) -> Vec<Taker> {
    let one = |numbers: &mut Numbers| {
        let (budget, deadline) = (numbers.within(1, 3), numbers.within(4, 9));
        match numbers.within(0, 2) {
            0 => Taker::Group(budget, deadline),
            _ => Taker::Task(budget, deadline, deadline + numbers.within(0, 9), 1),
        }
    };
    (0..numbers.within(0, most)).map(|_| one(numbers)).collect()
}

#[test]
fn who_takes_from_purses_that_fit_up_to_the_root_never_waits() {
    let (mut fitting, mut waiting) = (0, 0);
    for seed in 0..30_000 {
        let mut numbers = Numbers(seed);
        let mut one = |parent| {
            let period = numbers.within(6, 30);
            let mut segments = vec![(numbers.within(2, 24), 0, period)];
            if numbers.within(0, 1) == 1 {
                let cut = numbers.within(1, period - 1);
                let over = numbers.within(0, 1) * numbers.within(0, period - cut);
                segments = vec![
                    (numbers.within(2, 16), 0, cut + over),
                    (numbers.within(2, 16), cut, period),
                ];
            }
            purse(parent, period, &segments)
        };
        let purses = [one(None), one(Some(0))];
        let takers = vec![any_takers(&mut numbers, 2), any_takers(&mut numbers, 2)];
        let all = Takers::new(&purses, takers.clone(), 4);
        let fits = all.short(0).is_none() && all.short(1).is_none();
        let empty = (0..3).any(|run| waits(&purses, &takers, 400, seed * 3 + run));
        assert!(!fits || !empty, "{seed}: {purses:?} {takers:?}");
        fitting += u64::from(fits && takers.iter().any(|of| !of.is_empty()));
        waiting += u64::from(empty);
    }
    assert!(
        fitting > 2000 && waiting > 2000,
        "{fitting} that fit and {waiting} that wait say little"
    );
}

#[test]
fn what_one_task_may_take_in_a_cycle_is_taken_and_a_tick_less_is_not_enough() {
    // Of a job that ends just at its deadline all comes at the beginning of a cycle, and the next job at once.
    for (budget, deadline, period, cycle) in
        [(2, 5, 5, 10), (3, 7, 9, 20), (1, 4, 6, 25), (3, 3, 8, 8)]
    {
        let task = vec![vec![Taker::Task(budget, deadline, period, 1)]];
        let with = |amount| [purse(None, cycle, &[(amount, 0, cycle)])];
        let most = Takers::new(&with(1), task.clone(), 4).within(0, cycle) as u64;
        assert!(Takers::new(&with(most), task.clone(), 4).short(0).is_none());
        let (enough, less) = (with(most), with(most - 1));
        assert!(Takers::new(&less, task.clone(), 4).short(0).is_some());
        let found = |purses: &[Purse]| (0..4000).any(|seed| waits(purses, &task, 20 * cycle, seed));
        assert!(found(&less) && !found(&enough), "{budget} {deadline} {period} {cycle}: {most}");
    }
}

/// One purse of `purse`, from which two tasks of 8 ms every 40 ms take.
fn set(purse: &str, policy: &str) -> TaskSet {
    let text = format!(
        "cpus = 1\nduration = \"1s\"\npolicies = [\"{policy}\"]\n\
         [[purse]]\nname = \"disk\"\nperiod = \"100ms\"\n{purse}\n\
         [[task]]\nname = \"a\"\ncount = 2\nperiod = \"40ms\"\nbudget = \"8ms\"\npurse = \"disk\"\n\
         work = {{ constant = \"8ms\" }}\n"
    );
    TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).unwrap()
}

fn said(lines: &str, policy: &str) -> Judgement {
    let set = set(lines, policy);
    let played = match policy.parse().unwrap() {
        Policy::Core { order, server } => Some((order, server)),
        _ => None,
    };
    purses(&set, played).remove(0)
}

#[test]
fn an_inner_purse_asks_its_outer_one_for_no_more_than_it_has() {
    // 14 ms of 20 ms are 0.7 CPUs, of which 0.1 come through.
    let text = "cpus = 1\nduration = \"1s\"\npolicies = [\"p-edf+cbs-hard\"]\n\
         [[purse]]\nname = \"disk\"\nperiod = \"100ms\"\nbudget = \"60ms\"\n\
         [[purse]]\nname = \"logs\"\nin = \"disk\"\nperiod = \"100ms\"\nbudget = \"10ms\"\n\
         [[task]]\nname = \"a\"\nperiod = \"20ms\"\nbudget = \"14ms\"\npurse = \"logs\"\n\
         work = { constant = \"14ms\" }\n";
    let set = TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).unwrap();
    let Ok(Policy::Core { order, server }) = "p-edf+cbs-hard".parse() else { panic!() };
    let all = purses(&set, Some((order, server)));
    assert!((all[0].asked - 0.1).abs() < 1e-9 && (all[1].asked - 0.7).abs() < 1e-9);
    assert_eq!((all[0].fits, all[1].fits), (Some(true), Some(false)));
}

#[test]
fn what_is_said_of_a_purse_is_what_its_takers_may_take_in_a_cycle() {
    // In 100 ms of each task: 8 of a job that ends at its deadline, 8 of the next, which begins then, and 40 and 80 ms
    // after that 8 each; the last is whole, for 100 − 88 are left.
    let hard = "p-edf+cbs-hard";
    let one = said("budget = \"64ms\"", hard);
    assert_eq!((one.fits, one.least), (Some(true), Some(64 * MS)));
    assert!((one.asked - 0.4).abs() < 1e-9 && (one.there - 0.64).abs() < 1e-9);
    let less = said("budget = \"63ms\"", hard);
    let wanted = Short { from: 0, until: 100 * MS, taken: 64_000_000, there: 63_000_000 };
    assert_eq!((less.fits, less.least, less.short), (None, Some(64 * MS), Some(wanted)));
    assert_eq!(said("budget = \"39ms\"", hard).fits, Some(false));
    let gap = said("segments = [{ budget = \"90ms\", until = \"90ms\" }]", hard);
    assert_eq!((gap.fits, gap.short.map(|s| (s.from, s.there))), (None, Some((90 * MS, 0))));
    let soft = said("budget = \"90ms\"", "p-edf+cbs");
    assert!(soft.fits.is_none() && soft.why.unwrap().contains("a-0 may have more"));
}
