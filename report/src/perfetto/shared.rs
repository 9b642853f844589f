// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a task that run at the same time, and resources that jobs hold and wait for.

use onbeat_model::event::Event;

use super::Builder;
use super::writer::Arg;

impl Builder<'_, '_> {
    /// A thread of the task begins to wait for a resource, or waits no more.
    pub(super) fn wait(&mut self, e: &Event, t: usize, begins: bool) {
        let what = if begins { "waits for" } else { "waits no more for" };
        let name = format!("{what} {}", self.resource(e.a));
        let args = vec![Arg::number("job", e.b)];
        self.trace.instant(e.time, self.tasks[t].running, &name, args);
    }

    pub(super) fn resource(&self, index: u64) -> String {
        let name = usize::try_from(index).ok().and_then(|index| self.run.resources.get(index));
        name.map_or_else(|| format!("resource {index}"), Clone::clone)
    }

    /// The task takes a resource, or releases it.
    pub(super) fn hold(&mut self, e: &Event, t: usize, takes: bool) {
        let track = usize::try_from(e.a).ok().and_then(|index| self.resources.get(index).copied());
        let Some(track) = track else { return };
        if self.trace.is_open(track) {
            self.trace.end(e.time, track, vec![]);
        }
        if takes {
            let name = self.run.tasks[t].name.clone();
            self.trace.begin(e.time, track, &name, vec![Arg::number("job", e.b)]);
        }
    }

    /// A track of the task on which none of its threads runs.
    pub(super) fn free_track(&mut self, t: usize) -> u64 {
        let task = &mut self.tasks[t];
        let mut tracks = std::iter::once(&task.running).chain(&task.beside);
        if let Some(track) = tracks.find(|track| task.on.iter().all(|on| on.track != **track)) {
            return *track;
        }
        let name = format!("running, thread {}", task.beside.len() + 2);
        let track = self.trace.track(task.group, &name);
        task.beside.push(track);
        track
    }
}
