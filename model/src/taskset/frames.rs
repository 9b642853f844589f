// SPDX-License-Identifier: GPL-2.0-only
//! `frames_from` of a task: it shows what another one decodes, with a queue of frames in between, as the two tasks of
//! `onbeat-play` (Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are
//! analysis-based schedulers really worth it?", section 2).

use serde::{Deserialize, Serialize};

use super::table::{Fault, Table, fault};
use super::{TaskEntry, limits, nearest};

/// From whom a task has its frames. Copy c shows those of copy c; its job k shows frame k.
///
/// The queue is full at first: of the decode task, job j makes frame j + queue + 1. Who shows waits for its frame; who
/// decodes waits, with a full queue, for the frame before to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Index of the decode task's entry.
    pub decoder: usize,
    /// So many frames may wait beside the one that is due next; at least 1.
    pub queue: u32,
    /// What both wait for, as an index in [`super::TaskSet::resources`].
    pub resource: usize,
}

/// Longest queue: minutes of any movie.
const QUEUE_MOST: i64 = 10_000;

/// Ties together the tasks that belong together.
pub(super) fn read(
    top: &Table<'_, '_>,
    known: &[&'static str],
    tasks: &mut [TaskEntry],
    resources: &mut Vec<String>,
) -> Result<(), Fault> {
    for (i, t) in top.tables("task", "[[task]]", known)?.enumerate() {
        let t = t?;
        let queue = t.integer("queue", 1, QUEUE_MOST)?;
        let Some(name) = t.string("frames_from")? else {
            if let Some(queue) = queue {
                let reason = "a task has a queue, but no frames come to it";
                return fault(queue.at, reason, "add frames_from = \"decode\", or leave queue out");
            }
            continue;
        };
        let queue = t.required("queue", "8", queue)?.value as u32;
        let Some(decoder) = tasks.iter().position(|task| task.name == name.value) else {
            let reason = format!("there is no task \"{}\"", crate::units::clip(name.value));
            let remedy = nearest(name.value, tasks.iter().map(|task| task.name.as_str()))
                .map_or("name a [[task]]".to_owned(), |near| format!("did you mean \"{near}\"?"));
            return fault(name.at, reason, remedy);
        };
        let (shows, decodes) = (&tasks[i], &tasks[decoder]);
        let beat = |t: &TaskEntry| (t.count, t.period, t.offset, t.stagger);
        if i == decoder || beat(shows) != beat(decodes) {
            let reason =
                format!("\"{}\" cannot show the frames of \"{}\"", shows.name, decodes.name);
            let remedy = "name another task of the same count, period, offset and stagger";
            return fault(name.at, reason, remedy);
        }
        let taken = tasks.iter().any(|task| task.frames.is_some_and(|f| f.decoder == decoder));
        if taken || decodes.frames.is_some() {
            let reason = format!("\"{}\" has its frames shown, or shows some itself", decodes.name);
            return fault(name.at, reason, "let each task be in one such pair");
        }
        for task in [shows, decodes] {
            if task.threads > 1 || !task.sections.is_empty() || task.abort || task.marks {
                let reason = format!(
                    "\"{}\" passes frames on, and has threads, sections, marks or an abort besides",
                    task.name
                );
                return fault(name.at, reason, "leave these out, or leave frames_from out");
            }
            if !task.work.is_replayable() {
                let reason = format!("\"{}\" passes frames on, but runs a program", task.name);
                return fault(
                    name.at,
                    reason,
                    "give it a constant, a distribution, a trace or a pool",
                );
            }
        }
        if resources.len() >= limits::TASKS as usize {
            return fault(name.at, "there are too many queues", "leave some tasks out");
        }
        resources.push(format!("queue-of-{}", shows.name));
        let resource = resources.len() - 1;
        tasks[i].frames = Some(Frames { decoder, queue, resource });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::TaskSet;

    const DECODE: &str = "name = \"decode\"\nperiod = \"40ms\"\nwork = { constant = \"9ms\" }";

    fn read(decode: &str, display: &str) -> Result<TaskSet, String> {
        let text = format!(
            "cpus = 1\nduration = \"1s\"\n[[task]]\n{DECODE}\n{decode}\n[[task]]\nname = \"display\"\n\
             work = {{ constant = \"1ms\" }}\n{display}\n"
        );
        TaskSet::from_bytes(text.as_bytes(), "s.toml".as_ref()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_task_shows_what_another_one_decodes() {
        let set = read("", "period = \"40ms\"\nframes_from = \"decode\"\nqueue = 3").unwrap();
        let frames = set.tasks[1].frames.unwrap();
        assert_eq!((frames.decoder, frames.queue), (0, 3));
        assert_eq!(set.resources[frames.resource], "queue-of-display");
        assert!(set.simulator_only().is_some());
    }

    #[test]
    fn pairs_that_cannot_be_are_refused_with_what_to_do() {
        let tie = "period = \"40ms\"\nqueue = 3\nframes_from";
        for (decode, display, reason) in [
            ("", "period = \"40ms\"\nqueue = 3", "no frames come to it"),
            ("", "period = \"40ms\"\nframes_from = \"decode\"", "has no \"queue\""),
            ("", &format!("{tie} = \"decoed\""), "did you mean \"decode\"?"),
            ("", &format!("{tie} = \"display\""), "cannot show"),
            ("count = 2", &format!("{tie} = \"decode\""), "the same count, period"),
            (
                "",
                "period = \"41ms\"\nqueue = 3\nframes_from = \"decode\"",
                "the same count, period",
            ),
            ("abort = \"at-deadline\"", &format!("{tie} = \"decode\""), "an abort besides"),
            ("", &format!("{}0\nframes_from = \"decode\"", &tie[..24]), "queue"),
        ] {
            let error = read(decode, display).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
