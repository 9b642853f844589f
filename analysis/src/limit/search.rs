// SPDX-License-Identifier: GPL-2.0-only
//! From stretches to the whole run: a schedule stretch after stretch, and bounds of stretches that add up.

use std::cell::Cell;
use std::time::Instant;

use onbeat_model::taskset::TaskSet;
use onbeat_model::units::MS;

use super::jobs::{Stream, streams};
use super::program::{Item, Known, Machine, Part, Plan, Stretch, solve};
use super::{Limit, LimitError, Options, Progress};

/// Most jobs of a stretch for which bounds are proven, and how far its beginnings are shifted, in stretches.
const PASSES: [(usize, f64); 6] =
    [(24, 0.0), (48, 0.0), (48, 0.5), (24, 0.5), (84, 0.0), (84, 0.5)];
/// Most jobs of a stretch that is scheduled; half of it is kept, the rest is looked ahead to.
const AHEAD: usize = 48;
/// What sums of the solver's numbers may be off by, ms.
const ROUNDING: f64 = 1e-6;
/// Part of the time for the schedule.
const FOR_SCHEDULE: f64 = 0.5;

/// For each stream the late jobs of a schedule.
type Late = Vec<Vec<bool>>;

struct Search {
    streams: Vec<Stream>,
    /// Stream and index of all jobs by release.
    order: Vec<(usize, usize)>,
    machine: Machine,
    /// The time for some stretch, or for all, was over before it was solved.
    timed_out: Cell<bool>,
}

pub(super) fn search(
    set: &TaskSet,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Limit, LimitError> {
    let begin = Instant::now();
    let mut streams = streams(set)?;
    let density: f64 = streams.iter().map(|s| s.budget as f64 / s.window as f64).sum();
    if !options.guarantee {
        for stream in &mut streams {
            stream.jobs.iter_mut().for_each(|job| job.owed = 0);
            stream.given.fill(0);
        }
    } else if density > options.capacity + 1e-9 {
        return Err(LimitError::Overcommitted(density, options.capacity));
    }
    let mut order: Vec<(usize, usize)> = (streams.iter().enumerate())
        .flat_map(|(i, stream)| (0..stream.jobs.len()).map(move |j| (i, j)))
        .collect();
    order.sort_by_key(|(i, j)| (streams[*i].jobs[*j].release, *i));
    let cpus = f64::from(set.cpus);
    let supply = options.capacity.min(cpus);
    let lag = if supply < cpus { cpus * ms(options.lag) } else { 0.0 };
    let machine = Machine { cpus, supply, lag };
    let jobs = streams.iter().flat_map(|s| &s.jobs).filter(|job| job.counted).count() as u64;
    let search = Search { streams, order, machine, timed_out: Cell::new(false) };
    let half = begin + options.time_limit.mul_f64(FOR_SCHEDULE);
    let found = search.schedule(half, progress);
    let bound = search.prove(found.as_ref(), begin + options.time_limit, progress);
    let found = found.map(|late| late.iter().flatten().filter(|late| **late).count() as u64);
    Ok(Limit { jobs, bound, found, timed_out: search.timed_out.get() })
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}

/// Each of the `left` stretches gets its part of the time, and some of what the others don't need.
fn fair(until: Instant, left: usize) -> Instant {
    let now = Instant::now();
    now + until.saturating_duration_since(now).mul_f64((4.0 / left.max(1) as f64).min(1.0))
}

impl Search {
    /// Whether it is later than `until`, which is noted.
    fn is_over(&self, until: Instant) -> bool {
        let over = Instant::now() >= until;
        self.timed_out.set(self.timed_out.get() || over);
        over
    }

    /// Where a stretch that begins with job `from` (in order of release) ends: after at most `most` jobs, where the
    /// tasks pause longest.
    fn next(&self, from: usize, most: usize) -> usize {
        let all = self.order.len();
        if from + most >= all {
            return all;
        }
        let release = |n: usize| {
            let (i, j) = self.order[n];
            self.streams[i].jobs[j].release
        };
        let pause = |n: &usize| release(*n) - release(*n - 1);
        (from + most.div_ceil(2)..=from + most).max_by_key(|n| (pause(n), *n)).unwrap_or(all)
    }

    fn cuts(&self, most: usize, shift: f64) -> Vec<usize> {
        let mut cuts = vec![0];
        let mut size = match shift > 0.0 {
            true => (most as f64 * shift) as usize,
            false => most,
        };
        while let Some(last) = cuts.last().copied().filter(|last| *last < self.order.len()) {
            cuts.push(self.next(last, size));
            size = most;
        }
        cuts
    }

    /// Sums up bounds of disjoint sets of jobs.
    ///
    /// Any schedule, looked at for the jobs of one set only, is a schedule of that set alone, with the same jobs late;
    /// so it has at least as many late ones as the set's own program says.
    fn prove(
        &self,
        found: Option<&Late>,
        until: Instant,
        progress: &mut dyn FnMut(Progress),
    ) -> u64 {
        let all = self.order.len();
        // Bounds of the jobs from .. to.
        let mut proven: Vec<(usize, usize, u64)> = Vec::new();
        for (pass, (most, shift)) in PASSES.into_iter().enumerate() {
            let late = found.map(|found| found.iter().flatten().filter(|late| **late).count());
            if late.is_some_and(|late| sum(&proven, 0, all) >= late as u64) {
                break;
            }
            let cuts = self.cuts(most, shift);
            for (n, pair) in cuts.windows(2).enumerate() {
                if self.is_over(until) {
                    return sum(&proven, 0, all);
                }
                let (from, to) = (pair[0], pair[1]);
                let (stretch, known) = self.alone(from, to, found);
                // It cannot be better than a schedule, and the bounds of its parts may have shown that it is not.
                let inside: Vec<(usize, usize, u64)> =
                    proven.iter().copied().filter(|(a, b, _)| *a >= from && *b <= to).collect();
                let most = known.as_ref().map_or(u64::MAX, |known| known.count);
                if sum(&inside, from, to) < most && !inside.iter().any(|p| (p.0, p.1) == (from, to))
                {
                    let until = fair(until, cuts.len() - n);
                    // Where the solver fails, 0 is a bound as well.
                    let answer = solve(&stretch, &self.machine, known.as_ref(), until);
                    self.is_over(until);
                    proven.push((from, to, answer.map_or(0, |answer| answer.bound)));
                }
                progress(Progress { jobs: to as u64, of: all as u64, pass: pass + 1 });
            }
        }
        sum(&proven, 0, all)
    }

    /// The jobs from .. to by release, as if there were no others; and which of them are late in a schedule.
    fn alone(&self, from: usize, to: usize, found: Option<&Late>) -> (Stretch, Option<Known>) {
        let mut parts = Vec::new();
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new(); self.streams.len()];
        self.order[from..to].iter().for_each(|(i, j)| chosen[*i].push(*j));
        let (i, j) = self.order[from];
        let begin = self.streams[i].jobs[j].release;
        let mut late = Vec::new();
        for (i, (stream, chosen)) in self.streams.iter().zip(&chosen).enumerate() {
            let Some(first) = chosen.first() else { continue };
            let before = stream.before(*first);
            let item = |j: &usize| {
                let job = &stream.jobs[*j];
                Item {
                    release: ms(job.release - begin),
                    deadline: ms(job.deadline - begin),
                    through: ms(job.through - before),
                    owed: ms(job.owed.saturating_sub(before)),
                    counted: job.counted,
                }
            };
            parts.push(Part { items: chosen.iter().map(item).collect(), ..Part::default() });
            late.extend(found.map(|found| chosen.iter().map(|j| found[i][*j]).collect()));
        }
        let known = found.map(|_| {
            let count = late.iter().flatten().filter(|late: &&bool| **late).count() as u64;
            Known { late, count }
        });
        (Stretch { parts, ..Stretch::default() }, known)
    }

    /// Makes a schedule of the whole run and counts its late jobs; `None` if the time is too short.
    fn schedule(&self, until: Instant, progress: &mut dyn FnMut(Progress)) -> Option<Late> {
        let all = self.order.len();
        let mut state = State {
            now: 0,
            served: vec![0.0; self.streams.len()],
            next: vec![0; self.streams.len()],
            lag: 0.0,
            late: self.streams.iter().map(|s| vec![false; s.jobs.len()]).collect(),
        };
        let release = |n: usize| {
            let (i, j) = self.order[n];
            self.streams[i].jobs[j].release
        };
        let mut from = 0;
        let mut steps = (2 * all / AHEAD).max(1);
        state.now = release(0);
        while from < all {
            if self.is_over(until) {
                return None;
            }
            let keep = self.next(from, AHEAD / 2);
            let ahead = self.next(keep.min(all - 1), AHEAD / 2);
            let commit = (keep < all).then(|| release(keep));
            let end = (keep < all && ahead < all).then(|| release(ahead));
            let until = fair(until, steps);
            self.advance(&mut state, commit, end, until)?;
            from = keep;
            steps = steps.saturating_sub(1);
            progress(Progress { jobs: keep as u64, of: all as u64, pass: 0 });
        }
        Some(state.late)
    }

    /// Schedules until `commit`, with all jobs in view that are released before `end`. `None` if time is up.
    fn advance(
        &self,
        state: &mut State,
        commit: Option<u64>,
        end: Option<u64>,
        until: Instant,
    ) -> Option<()> {
        let at = |time: u64| ms(time.saturating_sub(state.now));
        let mut stretch = Stretch {
            lag: state.lag,
            commit: commit.map(at),
            end: end.map(at),
            parts: Vec::with_capacity(self.streams.len()),
        };
        for (i, stream) in self.streams.iter().enumerate() {
            let (served, first) = (state.served[i], state.next[i]);
            let due = if first == 0 { 0 } else { stream.jobs[first - 1].through };
            let item = |job: &super::jobs::Job| Item {
                release: at(job.release),
                deadline: at(job.deadline),
                through: (ms(job.through) - served).max(0.0),
                owed: (ms(job.owed) - served - ROUNDING).max(0.0),
                counted: job.counted,
            };
            let seen = |job: &&super::jobs::Job| end.is_none_or(|end| job.release < end);
            stretch.parts.push(Part {
                carried: (ms(due) - served).max(0.0),
                items: stream.jobs[first..].iter().take_while(seen).map(item).collect(),
                floor: end.map_or(0.0, |end| {
                    (stream.evenly(end) / MS as f64 - served - ROUNDING).max(0.0)
                }),
            });
        }
        let answer = solve(&stretch, &self.machine, None, until).ok()?;
        self.is_over(until);
        let Plan { late, served, lag } = answer.plan?;
        for (i, stream) in self.streams.iter().enumerate() {
            let first = state.next[i];
            let left = &stream.jobs[first..];
            let over = left.partition_point(|job| commit.is_none_or(|c| job.deadline <= c));
            for (n, job) in left[..over].iter().enumerate() {
                state.late[i][first + n] = late[i][n] && job.counted;
            }
            state.next[i] = first + over;
            if let Some(served) = served.get(i) {
                state.served[i] += served;
            }
        }
        state.lag = lag;
        state.now = commit.unwrap_or(state.now);
        Some(())
    }
}

/// Where the schedule has got to.
struct State {
    /// The time, ns.
    now: u64,
    /// Service of each task so far, ms.
    served: Vec<f64>,
    /// The first job of each task whose deadline has not passed.
    next: Vec<usize>,
    /// Lag of best-effort work, ms.
    lag: f64,
    /// Late jobs so far.
    late: Late,
}

/// The greatest sum of bounds that do not overlap, all of them of jobs within `begin..end`.
fn sum(known: &[(usize, usize, u64)], begin: usize, end: usize) -> u64 {
    let mut best = vec![0; end - begin + 1];
    let mut sorted = known.to_vec();
    sorted.sort_by_key(|(_, to, _)| *to);
    let mut next = sorted.iter().peekable();
    for at in begin + 1..=end {
        let here = at - begin;
        best[here] = best[here - 1];
        while let Some((from, _, bound)) = next.next_if(|(_, to, _)| *to == at) {
            best[here] = best[here].max(best[*from - begin] + bound);
        }
    }
    best[end - begin]
}
