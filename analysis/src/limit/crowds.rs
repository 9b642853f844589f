// SPDX-License-Identifier: GPL-2.0-only
//! Between a release and a deadline only so much can be served: how many of the jobs in between must be late.
//!
//! A job that is late saves capacity only if all later ones of its task in that time are late too, since they are
//! served in order. So each task saves the work of a number of its last jobs there, less what it is owed.

use std::ops::Range;

use super::program::{Machine, Stretch};

/// At least `late` of these jobs are late, whatever the schedule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Crowd {
    /// For each part the items.
    pub items: Vec<Range<usize>>,
    /// How many.
    pub late: usize,
}

/// More rows than these would cost the solver more than they save it.
const MOST: usize = 400;

/// All crowds worth a row: those that no shorter time says as well.
pub(super) fn crowds(stretch: &Stretch, machine: &Machine) -> Vec<Crowd> {
    let all = || stretch.parts.iter().flat_map(|part| &part.items);
    let sorted = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.dedup();
        times
    };
    let begins = sorted(all().map(|item| item.release).collect());
    let ends = sorted(all().map(|item| item.deadline).collect());
    let mut crowds: Vec<Crowd> = Vec::new();
    // How many must be late from a later beginning until each end.
    let mut later = vec![0; ends.len()];
    for begin in begins.iter().rev() {
        let mut shorter = 0;
        for (e, end) in ends.iter().enumerate().filter(|(_, end)| *end > begin) {
            let needless = shorter.max(later[e]);
            let items: Vec<Range<usize>> = (stretch.parts.iter())
                .map(|part| {
                    let from = part.items.partition_point(|item| item.release < *begin);
                    from..part.items.partition_point(|item| item.deadline <= *end).max(from)
                })
                .collect();
            let late = least_late(stretch, machine, *begin, *end, &items);
            if late > needless {
                crowds.push(Crowd { items, late });
            }
            shorter = late.max(needless);
            later[e] = shorter;
        }
    }
    // The shortest say most about single jobs.
    crowds.sort_by_key(|crowd| crowd.items.iter().map(ExactSizeIterator::len).sum::<usize>());
    crowds.truncate(MOST);
    crowds
}

/// How many of the items must be late, because the others and what is owed fill the time from `begin` to `end`.
fn least_late(
    stretch: &Stretch,
    machine: &Machine,
    begin: f64,
    end: f64,
    items: &[Range<usize>],
) -> usize {
    let length = end - begin;
    let room = (machine.supply * length + machine.lag).min(machine.cpus * length) + 1e-6;
    // No more than that can have been served before.
    let before = |i: usize| match begin > 0.0 {
        true if items[i].start > 0 => stretch.parts[i].items[items[i].start - 1].through,
        true => stretch.parts[i].carried,
        false => 0.0,
    };
    let lists = || {
        let all = stretch.parts.iter().zip(items).enumerate();
        all.map(|(i, (part, range))| (i, &part.items[range.clone()])).filter(|l| !l.1.is_empty())
    };
    let all: f64 = lists().map(|(i, list)| list[list.len() - 1].through - before(i)).sum();
    if all <= room {
        return 0;
    }
    // least[k]: service that k late jobs leave necessary.
    let mut least = vec![0.0];
    for (i, list) in lists() {
        let (before, last) = (before(i), list[list.len() - 1]);
        let need = |late: usize| -> f64 {
            let on_time = list.len() - late;
            let through = if on_time == 0 { before } else { list[on_time - 1].through };
            (through.max(last.owed) - before).max(0.0)
        };
        let mut next = vec![f64::INFINITY; least.len() + list.len()];
        for (k, sum) in least.iter().enumerate() {
            for late in 0..=list.len() {
                next[k + late] = next[k + late].min(sum + need(late));
            }
        }
        least = next;
    }
    least.iter().position(|sum| *sum <= room).unwrap_or(least.len() - 1)
}
