// SPDX-License-Identifier: GPL-2.0-only
//! The mixed-integer program of a stretch of time. program.md beside this file writes it out.
//!
//! Times and service are in ms from the stretch's beginning, so that coefficients are of one magnitude.

use std::time::{Duration, Instant};

use microlp::{
    ComparisonOp, Error, OptimizationDirection, Problem, ResumeOptions, Solution, SolveOptions,
    TerminationReason, Variable,
};

use super::crowds::crowds;

/// What the machine can give to the tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Machine {
    /// Number of CPUs.
    pub cpus: f64,
    /// CPUs that are left to the tasks in the long run.
    pub supply: f64,
    /// How much best-effort work may be behind its share in all, ms.
    pub lag: f64,
}

/// A job of the stretch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Release, ms; what was released before the stretch has 0.
    pub release: f64,
    /// Deadline, ms; after the beginning.
    pub deadline: f64,
    /// What its task must have had in the stretch for the job to be complete, ms.
    pub through: f64,
    /// What the task must have had by the deadline whether the job is late or not, ms.
    pub owed: f64,
    /// Whether its lateness counts.
    pub counted: bool,
}

/// A task's jobs in the stretch.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    /// Work left over from jobs whose deadlines have passed, ms.
    pub carried: f64,
    /// Its jobs in order.
    pub items: Vec<Item>,
    /// What the task must have had at [`Stretch::end`], ms.
    pub floor: f64,
}

impl Part {
    /// Work released before or at `time`, ms.
    pub fn released(&self, time: f64) -> f64 {
        let n = self.items.partition_point(|item| item.release <= time);
        n.checked_sub(1).map_or(self.carried, |last| self.items[last].through)
    }
}

/// A stretch of time with all jobs that matter in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Stretch {
    /// The tasks.
    pub parts: Vec<Part>,
    /// Lag of best-effort work at the beginning, ms.
    pub lag: f64,
    /// At this time as much service as possible is to have been given, ms: there the next stretch begins.
    pub commit: Option<f64>,
    /// Where [`Part::floor`] holds, ms.
    pub end: Option<f64>,
}

/// What came out.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// No schedule has fewer late jobs.
    pub bound: u64,
    /// A schedule, if one was found in time.
    pub plan: Option<Plan>,
}

/// A schedule of a stretch.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// For each part and item whether it is late.
    pub late: Vec<Vec<bool>>,
    /// Service of each part until [`Stretch::commit`], ms.
    pub served: Vec<f64>,
    /// Lag of best-effort work then, ms.
    pub lag: f64,
}

/// Times that differ by less are one, ms; they are whole nanoseconds.
const EPSILON: f64 = 4e-7;

/// The program's variables.
struct Program {
    problem: Problem,
    /// Service and lag, in the order in which every program of the stretch has them.
    real: Vec<Variable>,
    /// Service of each part until the commit, and the lag then.
    committed: Vec<Option<Variable>>,
    lag: Option<Variable>,
    /// For each part and item: late or not.
    late: Vec<Vec<Variable>>,
}

/// How the binaries are treated.
enum Lateness<'a> {
    /// 0 or 1.
    Whole,
    /// Any value between.
    Relaxed,
    /// As given; the service at the commit is maximized instead.
    Fixed(&'a [Vec<bool>]),
}

/// The times between which service is fluid, ascending.
fn events(stretch: &Stretch) -> Vec<f64> {
    let mut events = vec![0.0];
    events.extend(stretch.commit.iter().chain(&stretch.end));
    for item in stretch.parts.iter().flat_map(|part| &part.items) {
        events.extend([item.release, item.deadline]);
    }
    events.sort_by(f64::total_cmp);
    events.dedup_by(|b, a| *b - *a < EPSILON);
    events
}

/// The last event at or before `time`.
fn place(events: &[f64], time: f64) -> usize {
    events.partition_point(|e| *e <= time + EPSILON).saturating_sub(1)
}

/// Service of one part: a variable for each time between events, and the sums at the times that matter to it.
struct Service {
    /// Events, ascending, from 0.
    keys: Vec<usize>,
    /// Service until each key but the first.
    sums: Vec<Variable>,
}

impl Service {
    fn new(
        stretch: &Stretch,
        part: &Part,
        events: &[f64],
        rewarded: Option<usize>,
        problem: &mut Problem,
        between: &mut [Vec<(Variable, f64)>],
    ) -> Self {
        let mut keys = vec![0];
        keys.extend(stretch.commit.iter().chain(&stretch.end).map(|time| place(events, *time)));
        for item in &part.items {
            keys.extend([place(events, item.release), place(events, item.deadline)]);
        }
        keys.sort_unstable();
        keys.dedup();
        let mut sums: Vec<Variable> = Vec::with_capacity(keys.len());
        for pair in keys.windows(2) {
            let most = part.released(events[pair[1] - 1] + EPSILON);
            let cost = if rewarded == Some(pair[1]) { -1.0 } else { 0.0 };
            let sum = problem.add_var(cost, (0.0, most));
            let mut row = vec![(sum, -1.0)];
            row.extend(sums.last().map(|before| (*before, 1.0)));
            for e in (pair[0]..pair[1]).filter(|_| most > 0.0) {
                let served = problem.add_var(0.0, (0.0, events[e + 1] - events[e]));
                row.push((served, 1.0));
                between[e].push((served, 1.0));
            }
            problem.add_constraint(&row[..], ComparisonOp::Eq, 0.0);
            sums.push(sum);
        }
        Self { keys, sums }
    }

    /// Service until an event that is a key; `None` at the beginning.
    fn until(&self, event: usize) -> Option<Variable> {
        self.keys.binary_search(&event).ok()?.checked_sub(1).map(|key| self.sums[key])
    }
}

fn build(stretch: &Stretch, machine: &Machine, events: &[f64], lateness: &Lateness<'_>) -> Program {
    use ComparisonOp::{Ge, Le};
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let at = |time: f64| place(events, time);
    let fixed = matches!(lateness, Lateness::Fixed(_));
    let commit = stretch.commit.map(at);
    let rewarded = commit.filter(|_| fixed);
    let mut between: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); events.len() - 1];
    let service: Vec<Service> = (stretch.parts.iter())
        .map(|part| Service::new(stretch, part, events, rewarded, &mut problem, &mut between))
        .collect();
    let lag: Vec<Variable> = match machine.lag > 0.0 {
        true => (0..events.len())
            .map(|e| {
                let begin = stretch.lag.min(machine.lag);
                problem.add_var(0.0, if e == 0 { (begin, begin) } else { (0.0, machine.lag) })
            })
            .collect(),
        false => Vec::new(),
    };
    for (e, mut sum) in between.iter().cloned().enumerate() {
        let length = events[e + 1] - events[e];
        if let (Some(then), Some(now)) = (lag.get(e + 1), lag.get(e)) {
            problem.add_constraint(&sum[..], Le, machine.cpus * length);
            sum.extend([(*now, 1.0), (*then, -1.0)]);
        }
        problem.add_constraint(&sum[..], Le, machine.supply * length);
    }
    let mut late = Vec::new();
    for (i, (part, service)) in stretch.parts.iter().zip(&service).enumerate() {
        let mut before = part.carried;
        let mut of_part = Vec::new();
        for (j, item) in part.items.iter().enumerate() {
            let cost = if item.counted && !fixed { 1.0 } else { 0.0 };
            let y = match lateness {
                Lateness::Whole => problem.add_binary_var(cost),
                Lateness::Relaxed => problem.add_var(cost, (0.0, 1.0)),
                Lateness::Fixed(late) => {
                    let value = f64::from(u8::from(late[i][j]));
                    problem.add_var(0.0, (value, value))
                }
            };
            of_part.push(y);
            let work = item.through - before;
            before = item.through;
            let Some(done) = service.until(at(item.deadline)) else { continue };
            let owed = item.owed.clamp(0.0, item.through);
            problem.add_constraint([(done, 1.0), (y, item.through - owed)], Ge, item.through);
            // Implied, but stronger while binaries are relaxed: a job on time gets its own work in its own time.
            if let Some(had) = service.until(at(item.release)) {
                problem.add_constraint([(done, 1.0), (had, -1.0), (y, work)], Ge, work);
            }
            if owed > 0.0 {
                problem.add_constraint([(done, 1.0)], Ge, owed);
            }
        }
        if let Some(end) = stretch.end
            && let Some(had) = service.until(at(end))
            && part.floor > 0.0
        {
            let floor = part.floor.min(part.released(end - EPSILON));
            problem.add_constraint([(had, 1.0)], Ge, floor);
        }
        late.push(of_part);
    }
    if !fixed {
        for crowd in crowds(stretch, machine) {
            let row: Vec<(Variable, f64)> = (late.iter().zip(&crowd.items))
                .flat_map(|(late, range)| late[range.clone()].iter().map(|y| (*y, 1.0)))
                .collect();
            problem.add_constraint(&row[..], Ge, crowd.late as f64);
        }
    }
    let committed = service.iter().map(|of| commit.and_then(|event| of.until(event))).collect();
    let real = service.iter().flat_map(|of| of.sums.iter().copied());
    let real = real.chain(between.iter().flatten().map(|(served, _)| *served)).chain(lag.clone());
    Program {
        real: real.collect(),
        problem,
        committed,
        lag: commit.and_then(|event| lag.get(event).copied()),
        late,
    }
}

/// What is known of a stretch before its program is solved.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Late jobs in a schedule of it, for each part and item.
    pub late: Vec<Vec<bool>>,
    /// Their number.
    pub count: u64,
}

/// Nodes of the search between two looks at the bound.
const NODES: u64 = 100;

/// Least number of late jobs of a stretch, as far as it can be told until `until`. No plan is made if one is known.
///
/// # Errors
/// What is owed cannot be given ([`Error::Infeasible`]), or the solver fails.
pub(super) fn solve(
    stretch: &Stretch,
    machine: &Machine,
    known: Option<&Known>,
    until: Instant,
) -> Result<Answer, Error> {
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let events = events(stretch);
    let whole = |bound: f64| (bound - 1e-4).ceil().max(0.0) as u64;
    // With binaries relaxed first: a bound at once, and its service makes a schedule in which some are late.
    let relaxed = build(stretch, machine, &events, &Lateness::Relaxed);
    let mut options = SolveOptions::default();
    options.time_limit = Some(left());
    let Ok(first) = relaxed.problem.solve_with(options)?.into_solution() else {
        return Ok(Answer { bound: 0, plan: None });
    };
    let mut bound = whole(first.objective());
    let late_in = |first: &Solution| -> Vec<Vec<bool>> {
        let late = |y: &Variable| first.var_value(*y) > 1e-7;
        relaxed.late.iter().map(|of| of.iter().map(late).collect()).collect()
    };
    let mut late = known.map_or_else(|| late_in(&first), |known| known.late.clone());
    let counted = |late: &[Vec<bool>]| -> u64 {
        let all = stretch.parts.iter().flat_map(|part| &part.items).zip(late.iter().flatten());
        all.filter(|(item, late)| item.counted && **late).count() as u64
    };
    let most = known.map_or_else(|| counted(&late), |known| known.count);
    if most > bound {
        let program = build(stretch, machine, &events, &Lateness::Whole);
        let value = |late: &bool| f64::from(u8::from(*late));
        let mut start: Vec<(Variable, f64)> = (program.late.iter().flatten())
            .zip(late.iter().flatten().map(value))
            .map(|(y, late)| (*y, late))
            .collect();
        if known.is_none() {
            let both = program.real.iter().zip(&relaxed.real);
            start.extend(both.map(|(new, old)| (*new, first.var_value(*old))));
        }
        let mut options = SolveOptions::default();
        options.time_limit = Some(left());
        options.node_limit = Some(NODES);
        options.warm_start = Some(start);
        let mut outcome = program.problem.solve_with(options)?;
        loop {
            bound = bound.max(outcome.stats().best_bound.map_or(0, whole));
            let best = outcome.solution().map_or(most, |best| whole(best.objective()));
            let paused = outcome.termination_reason() == TerminationReason::NodeLimit;
            if !paused || bound >= best.min(most) || Instant::now() >= until {
                break;
            }
            let mut options = ResumeOptions::default();
            options.time_limit = Some(left());
            options.node_limit = Some(NODES);
            outcome = outcome.resume_with(options)?;
        }
        if let Ok(best) = outcome.into_solution() {
            let chosen = |y: &Variable| best.var_value(*y) > 0.5;
            let found: Vec<Vec<bool>> =
                program.late.iter().map(|of| of.iter().map(chosen).collect()).collect();
            if counted(&found) < counted(&late) {
                late = found;
            }
        }
    }
    if known.is_some() {
        return Ok(Answer { bound: bound.min(most), plan: None });
    }
    if stretch.commit.is_none() {
        let plan = Plan { late, served: Vec::new(), lag: 0.0 };
        return Ok(Answer { bound, plan: Some(plan) });
    }
    let program = build(stretch, machine, &events, &Lateness::Fixed(&late));
    let most = program.problem.solve_with(SolveOptions::default())?.into_solution();
    let value = |most: &Solution, of: &Option<Variable>| of.map_or(0.0, |v| most.var_value(v));
    let plan = most.ok().map(|most| Plan {
        served: program.committed.iter().map(|of| value(&most, of).max(0.0)).collect(),
        lag: value(&most, &program.lag),
        late,
    });
    Ok(Answer { bound, plan })
}
