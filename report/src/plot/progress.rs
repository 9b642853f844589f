// SPDX-License-Identifier: GPL-2.0-only
//! How processes progress: the CPU time of each against time, with a cross below it where a job missed its deadline; as
//! figures 2 to 5 of Banachowski and Brandt, "Better real-time response for time-share scheduling", WPDRTS 2003.

use onbeat_model::event::EventKind;
use onbeat_model::run::Run;
use onbeat_model::units::SEC;
use plotters::element::{Cross, PathElement, Text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::lines::COLOURS;
use super::{INK, PlotError, draw, font, plain, written};

/// Of the chart without its key, and from one line of that to the next.
const SIZE: (u32, u32) = (570, 420);
const LINE: u32 = 22;
/// What a letter of the key may be wide, and what stands beside it.
const LETTER: u32 = 9;
const BESIDE: u32 = 46;
/// Tasks that the key names; how many more there are it says.
const NAMED: usize = 40;
/// How far below the line crosses stand, in parts of the picture's height.
const BELOW: f64 = 0.035;

/// What one task had of the CPUs.
struct Progress {
    name: String,
    /// Time and CPU time, s, wherever it begins or stops to run.
    corners: Vec<(f64, f64)>,
    /// Deadlines that were missed, and CPU time until then, s.
    missed: Vec<(f64, f64)>,
}

/// The progress of all tasks of `run` from `from` until `until`, ns, counted from then on; `None` if the run has no
/// events that say who ran.
///
/// # Errors
/// [`PlotError`], which no input should cause.
pub fn progress(run: &Run, from: u64, until: u64) -> Result<Option<String>, PlotError> {
    let tasks = progressed(run, from, until);
    if tasks.iter().all(|task| task.corners.len() < 3) {
        return Ok(None);
    }
    let seconds = |ns: u64| ns as f64 / SEC as f64;
    let most = tasks.iter().flat_map(|t| &t.corners).map(|c| c.1).fold(0.0, f64::max);
    let below = most * BELOW;
    let named = tasks.len().min(NAMED);
    let more = (tasks.len() > named).then(|| format!("and {} more", tasks.len() - named));
    let letters = tasks[..named].iter().map(|task| task.name.chars().count());
    let letters = letters.chain(["deadline missed".len()]).max().unwrap_or(0) as u32;
    let (beside, lines) = (BESIDE + LETTER * letters, named as u32 + 2);
    let size = (SIZE.0 + beside, SIZE.1.max(40 + LINE * lines));
    let drawn = draw(size, "CPU time of each task over time", |root| {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(root)
            .margin_left(8)
            .margin_right(beside)
            .margin_top(20)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(seconds(from)..seconds(until), -2.0 * below..most * 1.02)?;
        plain(&mut chart.configure_mesh())
            .x_desc("time, s")
            .y_desc("CPU time, s")
            .y_label_formatter(&|y| if *y < 0.0 { String::new() } else { written(*y) })
            .draw()?;
        let key = SIZE.0 as i32 + 14;
        let line = |i: usize| 40 + (LINE * i as u32) as i32;
        let word =
            |text: String, i| Text::new(text, (key + 24, line(i)), font(15, INK, HPos::Left));
        for (i, task) in tasks.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()].stroke_width(2);
            chart.draw_series(LineSeries::new(task.corners.clone(), colour))?;
            let crosses = task.missed.iter().map(|(x, y)| (*x, y - below));
            chart.draw_series(crosses.map(|at| Cross::new(at, 4, colour)))?;
            if i < named {
                root.draw(&PathElement::new([(key - 8, line(i)), (key + 16, line(i))], colour))?;
                root.draw(&word(task.name.clone(), i))?;
            }
        }
        let mut next = named;
        if let Some(more) = more {
            root.draw(&word(more, next))?;
            next += 1;
        }
        if tasks.iter().any(|task| !task.missed.is_empty()) {
            root.draw(&Cross::new((key + 4, line(next)), 4, INK.stroke_width(2)))?;
            root.draw(&word("deadline missed".into(), next))?;
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

fn progressed(run: &Run, from: u64, until: u64) -> Vec<Progress> {
    let seconds = |ns: u64| ns as f64 / SEC as f64;
    let mut tasks: Vec<Progress> = run
        .tasks
        .iter()
        .map(|task| Progress {
            name: task.name.clone(),
            corners: vec![(seconds(from), 0.0)],
            missed: Vec::new(),
        })
        .collect();
    // Of each task what it has had since `from`, and of each CPU who runs there, since when.
    let mut had = vec![0; tasks.len()];
    let mut on: Vec<Option<(usize, u64)>> = vec![None; run.platform.cpus as usize];
    // Jobs that are released and not complete, with their deadlines; of each task in order.
    let mut open: Vec<Vec<(u64, u64)>> = vec![Vec::new(); tasks.len()];
    let end = until.min(run.horizon_ns);
    let mut missed = Vec::new();
    for e in run.events.iter().take_while(|e| e.time <= end) {
        let (task, cpu) = (e.task as usize, e.cpu as usize);
        if task >= tasks.len() {
            continue;
        }
        match e.kind() {
            Some(EventKind::Run) if cpu < on.len() => {
                on[cpu] = Some((task, e.time));
                if e.time > from {
                    tasks[task].corners.push((seconds(e.time), seconds(had[task])));
                }
            }
            Some(EventKind::Stop) if cpu < on.len() => {
                let Some((task, since)) = on[cpu].take() else { continue };
                had[task] += e.time.max(from) - since.max(from);
                if e.time > from {
                    tasks[task].corners.push((seconds(e.time), seconds(had[task])));
                }
            }
            Some(EventKind::Release) => open[task].push((e.a, e.b)),
            Some(kind @ (EventKind::Complete | EventKind::Abort)) => {
                let Some(at) = open[task].iter().position(|(job, _)| *job == e.a) else { continue };
                let (_, due) = open[task].remove(at);
                if due >= from && (e.time > due || kind == EventKind::Abort) {
                    missed.push((task, due));
                }
            }
            _ => {}
        }
    }
    for (task, since) in on.into_iter().flatten() {
        had[task] += end.max(from) - since.max(from);
    }
    for (task, had) in tasks.iter_mut().zip(had) {
        task.corners.push((seconds(end), seconds(had)));
    }
    let late = |(task, jobs): (usize, Vec<(u64, u64)>)| {
        jobs.into_iter()
            .filter(|(_, due)| (from..=end).contains(due))
            .map(move |(_, due)| (task, due))
    };
    missed.extend(open.into_iter().enumerate().flat_map(late));
    for (task, due) in missed {
        let at = seconds(due);
        let y = reached(&tasks[task].corners, at);
        tasks[task].missed.push((at, y));
    }
    tasks
}

/// CPU time at `x`, between corners.
fn reached(corners: &[(f64, f64)], x: f64) -> f64 {
    let next = corners.partition_point(|corner| corner.0 < x);
    let (Some(after), Some(before)) = (corners.get(next), corners.get(next.wrapping_sub(1))) else {
        return corners.get(next).or(corners.last()).map_or(0.0, |corner| corner.1);
    };
    let width = after.0 - before.0;
    let part = if width > 0.0 { (x - before.0) / width } else { 1.0 };
    before.1 + part * (after.1 - before.1)
}

#[cfg(test)]
mod tests {
    use onbeat_model::event::Event;
    use onbeat_model::run::{Class, Platform, TaskInfo, World};
    use onbeat_model::units::MS;

    use super::*;

    /// Two tasks take turns of 5 ms; a job of the first that is due at 20 ms is complete at 25 ms, one due at 40 never.
    fn run() -> Run {
        let task = |name: &str| TaskInfo {
            name: name.into(),
            entry: 0,
            copy: 0,
            class: Class::Periodic,
            period: 0,
            deadline: 0,
            budget: 0,
            tid: 0,
        };
        let mut events = Vec::new();
        for turn in 0..10 {
            let (begin, task) = (turn * 5 * MS, (turn % 2) as u32);
            events.push(Event::new(begin, EventKind::Run, 0, 0).of(task).on(0));
            events.push(Event::new(begin + 5 * MS, EventKind::Stop, 0, 0).of(task).on(0));
        }
        for (job, due) in [(0, 20), (1, 40)] {
            events.push(Event::new(job * 20 * MS, EventKind::Release, job, due * MS).of(0));
        }
        events.push(Event::new(25 * MS, EventKind::Complete, 0, 15 * MS).of(0));
        let mut run = Run {
            world: World::Sim,
            policy: "g-edf".into(),
            platform: Platform { cpus: 1, ..Platform::default() },
            tasks: vec![task("a"), task("b")],
            resources: Vec::new(),
            events,
            origin_ns: 0,
            horizon_ns: 50 * MS,
        };
        run.sort_events();
        run
    }

    #[test]
    fn a_line_rises_while_its_task_runs_and_crosses_stand_at_missed_deadlines() {
        let tasks = progressed(&run(), 0, 50 * MS);
        assert_eq!(tasks[0].corners.last(), Some(&(0.05, 0.025)));
        assert_eq!(tasks[1].corners.last(), Some(&(0.05, 0.025)));
        assert!((reached(&tasks[0].corners, 0.0125) - 0.0075).abs() < 1e-9);
        assert!((reached(&tasks[0].corners, 0.0075) - 0.005).abs() < 1e-9);
        // By 20 ms it had two turns, by 40 ms four.
        assert_eq!(tasks[0].missed.len(), 2);
        for ((x, y), expected) in tasks[0].missed.iter().zip([(0.02, 0.01), (0.04, 0.02)]) {
            assert!((x - expected.0).abs() < 1e-9 && (y - expected.1).abs() < 1e-9, "{x} {y}");
        }
        let later = progressed(&run(), 12 * MS, 50 * MS);
        assert!((later[0].corners.last().unwrap().1 - 0.018).abs() < 1e-9);
    }

    #[test]
    fn every_name_has_room_and_a_crowd_is_summed_up() {
        let size = |run: &Run| -> (u32, u32) {
            let picture = progress(run, 0, 50 * MS).unwrap().unwrap();
            let numbers =
                picture.split("viewBox=\"0 0 ").nth(1).unwrap().split('"').next().unwrap();
            let (width, height) = numbers.split_once(' ').unwrap();
            (width.parse().unwrap(), height.parse().unwrap())
        };
        let mut run = run();
        let (width, height) = size(&run);
        run.tasks[1].name = "n".repeat(64);
        // A letter of that size is hardly 8 wide.
        assert!(size(&run).0 >= width - 14 * 8 + 64 * 8, "{width}");
        let more = run.tasks[1].clone();
        run.tasks.extend((0..20).map(|_| more.clone()));
        assert!(size(&run).1 >= height.max(24 * 20), "{height}");
        run.tasks.extend((0..978).map(|_| more.clone()));
        let picture = progress(&run, 0, 50 * MS).unwrap().unwrap();
        assert!(picture.contains("and 960 more") && size(&run).1 < 1000);
    }

    #[test]
    fn without_events_that_say_who_ran_there_is_no_picture() {
        let mut run = run();
        assert!(progress(&run, 0, 50 * MS).unwrap().unwrap().contains("deadline missed"));
        run.events.retain(|e| e.kind() == Some(EventKind::Release));
        assert_eq!(progress(&run, 0, 50 * MS).unwrap(), None);
    }
}
