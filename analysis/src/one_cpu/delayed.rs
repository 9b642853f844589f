// SPDX-License-Identifier: GPL-2.0-only
//! Tasks whose jobs may be released late (release jitter) and may have to wait for less urgent ones (blocking), on one
//! CPU: response times under fixed priorities, and EDF.

use std::cmp::Ordering;

use super::edf::{deadline_before, demand, qpa};
use super::fixed::equals;
use super::{STEPS, fixed_point};
use crate::sporadic::{Load, Sporadic, Verdict, compare_utilization};

/// A sporadic task with delays; all times in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delayed {
    /// Execution time, deadline and period, which count from a job's arrival.
    pub task: Sporadic,
    /// A job is released no later than that after its arrival.
    pub jitter: u64,
    /// Longest time for which less urgent jobs keep a job waiting, once in a busy period.
    pub blocking: u64,
}

impl From<Sporadic> for Delayed {
    fn from(task: Sporadic) -> Self {
        Self { task, jitter: 0, blocking: 0 }
    }
}

/// Without any delay; `None` if there is one.
pub fn plain(tasks: &[Delayed]) -> Option<Vec<Sporadic>> {
    let none = |one: &Delayed| one.jitter == 0 && one.blocking == 0;
    tasks.iter().all(none).then(|| tasks.iter().map(|one| one.task).collect())
}

/// Longest response time, from arrival on, of each of `tasks`, the most important first, whatever the order among equal
/// `levels`; `None` where there is no bound, or none within reach.
///
/// Source: Audsley, Burns, Richardson, Tindell and Wellings, "Applying new scheduling theory to static priority
/// pre-emptive scheduling", 1993 (w = C + B + Σ⌈(w + J)/T⌉C, R = J + w); for deadlines beyond periods Tindell, Burns
/// and Wellings, "An extendible approach for analyzing fixed priority hard real-time tasks", 1994.
pub fn response_times(tasks: &[Delayed], levels: &[u64]) -> Vec<Option<u64>> {
    let time = |i: usize| {
        let upto = equals(levels, i).end;
        let all: Vec<Sporadic> = tasks[..upto].iter().map(|one| one.task).collect();
        if compare_utilization(&all, 1) == Ordering::Greater {
            return None;
        }
        response_time(
            &tasks[i],
            tasks[..upto].iter().enumerate().filter(|(j, _)| *j != i).map(|(_, t)| t),
        )
    };
    (0..tasks.len()).map(time).collect()
}

fn response_time<'a>(
    me: &Delayed,
    above: impl Iterator<Item = &'a Delayed> + Clone,
) -> Option<u64> {
    let (mut longest, mut end) = (0, 0);
    for job in 0..u64::from(STEPS) {
        let own = (job + 1).checked_mul(me.task.wcet)?.checked_add(me.blocking)?;
        end = fixed_point(STEPS, own.max(end), |w| {
            above.clone().try_fold(own, |sum, other| {
                let jobs = w.checked_add(other.jitter)?.div_ceil(other.task.period);
                sum.checked_add(jobs.checked_mul(other.task.wcet)?)
            })
        })?;
        let late = end.checked_add(me.jitter)?;
        longest = longest.max(late - job * me.task.period);
        // The level's busy period ends before the next release.
        if late <= (job + 1).checked_mul(me.task.period)? {
            return Some(longest);
        }
    }
    None
}

/// Whether EDF, by deadlines that count from arrival, is in time on one CPU. A job that may be released J late is asked
/// for D − J after its release; in an interval of length t at most one job due later blocks, for no longer than the
/// greatest B of the tasks that can be due within t. Exact without blocking; with it a set that only B makes late is
/// [`Verdict::Unknown`], as nobody says that a B is ever met.
///
/// Source: Spuri, "Holistic analysis for deadline scheduled real-time distributed systems", 1996 (jitter); Baker,
/// "Stack-based scheduling of realtime processes", 1991 (blocking), as demand of intervals; walked through as Zhang and
/// Burns 2009 do, which holds for any demand that grows.
pub fn edf(tasks: &[Delayed]) -> Verdict {
    let Some(early) = tasks.iter().map(due_early).collect::<Option<Vec<Sporadic>>>() else {
        return Verdict::Unschedulable;
    };
    let verdict = qpa(&early);
    if verdict != Verdict::Schedulable || tasks.iter().all(|one| one.blocking == 0) {
        return verdict;
    }
    let blocking: Vec<(u64, u64)> =
        early.iter().zip(tasks).map(|(early, one)| (early.deadline, one.blocking)).collect();
    Verdict::sufficient(blocked(&early, &blocking))
}

/// With its deadline J earlier; `None` if a job that is released late cannot even be done by itself.
fn due_early(one: &Delayed) -> Option<Sporadic> {
    let deadline = one.task.deadline.checked_sub(one.jitter)?;
    (one.task.wcet <= deadline).then_some(Sporadic { deadline, ..one.task })
}

/// Whether demand and blocking are no more than t for every t; `false` also where that takes too long to find out.
/// `blocking`: from which t on it counts, and how long it is.
fn blocked(tasks: &[Sporadic], blocking: &[(u64, u64)]) -> bool {
    let within = |t: u64| {
        let all = blocking.iter().filter(|(from, _)| *from <= t).map(|(_, b)| *b);
        u128::from(all.max().unwrap_or(0))
    };
    let Some(horizon) = horizon(tasks, within(u64::MAX)) else { return false };
    let Some(mut t) = deadline_before(tasks, horizon.saturating_add(1)) else { return true };
    for _ in 0..STEPS {
        let asked = demand(tasks, t) + within(t);
        t = match asked.cmp(&u128::from(t)) {
            Ordering::Greater => return false,
            Ordering::Less => match deadline_before(tasks, asked as u64 + 1) {
                Some(before) => before,
                None => return true,
            },
            Ordering::Equal => match deadline_before(tasks, t) {
                Some(before) => before,
                None => return true,
            },
        };
    }
    false
}

/// From where on demand and `blocking` are always less than t: where t·(1 − U) is more than the blocking and what
/// deadlines before ends of periods add; `None` if U is too near to 1.
fn horizon(tasks: &[Sporadic], blocking: u128) -> Option<u64> {
    let left = Load::of(tasks).left(1);
    if left == 0 {
        return None;
    }
    let added = tasks.iter().filter(|task| task.deadline < task.period).map(|task| {
        let gap = u128::from(task.period - task.deadline);
        (u128::from(task.wcet) * gap).div_ceil(u128::from(task.period))
    });
    let all = u64::try_from(added.sum::<u128>() + blocking).ok()?;
    let far = u64::try_from((u128::from(all) << 64).div_ceil(left)).ok()?;
    let longest = tasks.iter().map(|task| task.deadline.saturating_sub(task.period)).max()?;
    Some(far.max(longest))
}

#[cfg(test)]
mod tests {
    use super::super::fixed::{self, strict};
    use super::super::oracle::{few_tasks, few_that_fit};
    use super::*;
    use proptest::prelude::*;

    fn delayed(wcet: u64, deadline: u64, period: u64, jitter: u64, blocking: u64) -> Delayed {
        Delayed { task: Sporadic { wcet, deadline, period }, jitter, blocking }
    }

    /// The three tasks by which Burns and Wellings, "Real-time systems and programming languages", explain response
    /// times: C and T are 3 and 7, 3 and 12, 5 and 20, and R = 3, 6, 20.
    #[test]
    fn response_times_of_the_textbook_are_3_6_20_and_blocking_and_jitter_add_to_them() {
        let of = |jitter: u64, blocking: u64| {
            let all = [(3, 7), (3, 12), (5, 20)];
            let mut all = all.map(|(c, t)| delayed(c, t, t, 0, 0));
            (all[0].jitter, all[0].blocking) = (jitter, blocking);
            response_times(&all, &strict(3))
        };
        assert_eq!(of(0, 0), [Some(3), Some(6), Some(20)]);
        // Blocking delays the blocked task only, jitter also whom it preempts: a second job of a within 12 hits b at
        // once: w = 3 + 3·⌈(w + 2)/7⌉ has its fixed point at 9, and c never gets by in 20.
        assert_eq!(of(0, 4)[..2], [Some(7), Some(6)]);
        assert_eq!(of(2, 0)[..2], [Some(5), Some(9)]);
        assert!(of(2, 0)[2].is_none_or(|time| time > 20));
    }

    #[test]
    fn edf_with_blocking_takes_what_is_left_before_the_first_deadline_and_no_more() {
        // 2 of 4 and 3 of 12 fill the CPU to 3/4; before the first deadline 2 are left.
        let of = |blocking| edf(&[delayed(2, 4, 4, 0, blocking), delayed(3, 12, 12, 0, 0)]);
        assert_eq!((of(2), of(3)), (Verdict::Schedulable, Verdict::Unknown));
        // Jitter takes from the deadline.
        let of = |jitter| edf(&[delayed(2, 4, 4, jitter, 0), delayed(3, 12, 12, 0, 0)]);
        assert_eq!(of(2), Verdict::Schedulable);
        assert_eq!(of(3), Verdict::Unschedulable, "2 cannot be done in 1");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn without_delays_all_is_as_it_is_without(tasks in few_tasks()) {
            let (tasks, levels) = fixed::by_priority(&tasks, |t| t.period);
            let all: Vec<Delayed> = tasks.iter().copied().map(Delayed::from).collect();
            prop_assert_eq!(response_times(&all, &levels), fixed::response_times(&tasks, &levels));
            let verdict = if tasks.iter().any(|t| t.wcet > t.deadline) { Verdict::Unschedulable } else { qpa(&tasks) };
            prop_assert_eq!(edf(&all), verdict);
        }

        // The first job of each comes its jitter late, the others on time.
        #[test]
        fn jobs_that_come_late_answer_within_their_bounds(
            tasks in few_that_fit(), jitter in prop::collection::vec(0u64..4, 4), step in 0u64..12,
        ) {
            let (tasks, _) = fixed::by_priority(&tasks, |t| t.period);
            let levels = strict(tasks.len());
            let all: Vec<Delayed> =
                tasks.iter().zip(&jitter).map(|(t, j)| Delayed { jitter: *j, ..(*t).into() }).collect();
            let bounds = response_times(&all, &levels);
            let fits = edf(&all) == Verdict::Schedulable;
            let offsets: Vec<u64> = (0..tasks.len() as u64).map(|i| step * (2 * i + 1) % 12).collect();
            let rm = late_first(&all, &offsets, 120, |i, _| levels[i]);
            let by_deadline = late_first(&all, &offsets, 120, |i, arrival| arrival + tasks[i].deadline);
            for i in 0..tasks.len() {
                prop_assert!(bounds[i].is_none_or(|bound| bound >= rm[i]), "{:?} {:?}", bounds, rm);
                prop_assert!(!fits || by_deadline[i] <= tasks[i].deadline, "{:?}", by_deadline);
            }
        }

        // A job that nobody preempts, of a task that is last in order, keeps the first one waiting.
        #[test]
        fn edf_accepts_no_more_blocking_than_leaves_demand_room(tasks in few_that_fit(), blocking in 0u64..6) {
            let all: Vec<Delayed> = tasks.iter().map(|t| Delayed { blocking, ..(*t).into() }).collect();
            if edf(&all) == Verdict::Schedulable {
                for t in 1..200 {
                    let due = tasks.iter().any(|task| task.deadline <= t);
                    prop_assert!(!due || demand(&tasks, t) + u128::from(blocking) <= u128::from(t), "{}", t);
                }
            } else if edf(&tasks.iter().copied().map(Delayed::from).collect::<Vec<_>>()) == Verdict::Schedulable
                && crate::sporadic::Load::of(&tasks).left(1) > 0
            {
                let short = |t: u64| demand(&tasks, t) + u128::from(blocking) > u128::from(t);
                prop_assert!((1..2000).any(|t| tasks.iter().any(|task| task.deadline <= t) && short(t)));
            }
        }
    }

    /// Longest responses from arrival on where the first job of each task is released its jitter late and the others at
    /// once.
    fn late_first(
        tasks: &[Delayed],
        offsets: &[u64],
        end: u64,
        key: impl Fn(usize, u64) -> u64,
    ) -> Vec<u64> {
        // (task, arrival, release, what is left)
        let mut jobs: Vec<(usize, u64, u64, u64)> = Vec::new();
        for (i, one) in tasks.iter().enumerate() {
            let arrivals = (0..).map(|n| offsets[i] + n * one.task.period).take_while(|a| *a < end);
            jobs.extend(arrivals.enumerate().map(|(n, arrival)| {
                (i, arrival, arrival + if n == 0 { one.jitter } else { 0 }, one.task.wcet)
            }));
        }
        let mut longest = vec![0; tasks.len()];
        for now in 0..end {
            let ready = jobs.iter_mut().filter(|job| job.2 <= now && job.3 > 0);
            if let Some(job) = ready.min_by_key(|job| (key(job.0, job.1), job.0, job.1)) {
                job.3 -= 1;
                if job.3 == 0 {
                    longest[job.0] = longest[job.0].max(now + 1 - job.1);
                }
            }
        }
        longest
    }
}
