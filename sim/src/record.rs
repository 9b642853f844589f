// SPDX-License-Identifier: GPL-2.0-only
//! The events of a simulation, in order of time.

use onbeat_model::event::Event;

/// So many events are brought into order at a time: what fits into a cache.
const BATCH: usize = 8192;

/// Events as they come: nearly in order, as the release of a job is noted when its task gets to it, and what the core
/// has written down follows when its ring is full.
#[derive(Default)]
pub(crate) struct Record {
    events: Vec<Event>,
    /// Those before this one have been brought into order, but for what came much later than its time.
    ordered: usize,
    /// How many have been passed on and are not here any more.
    passed: usize,
}

impl Record {
    /// Number of events so far.
    pub fn len(&self) -> usize {
        self.passed + self.events.len()
    }

    /// Passes all that are here on, as they came, and keeps none.
    pub fn pass(&mut self, take: &mut dyn FnMut(&Event)) {
        self.events.iter().for_each(take);
        self.passed += self.events.len();
        self.events.clear();
        self.ordered = 0;
    }

    /// Notes an event.
    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Notes all that `write` adds.
    pub fn take(&mut self, write: impl FnOnce(&mut Vec<Event>)) {
        write(&mut self.events);
        self.order();
    }

    /// Whether `take` has enough to do.
    pub fn batched(&self) -> bool {
        self.events.len() - self.ordered >= BATCH
    }

    /// All events; simultaneous ones are in the order in which they came.
    pub fn finish(mut self) -> Vec<Event> {
        self.events.sort_by_key(|e| e.time);
        self.events
    }

    /// Orders those that have come since, and those shortly before that are later than one of them. All steps keep the
    /// order of simultaneous ones, so their outcome is that of one sort at the end.
    fn order(&mut self) {
        let (before, new) = self.events.split_at(self.ordered);
        let first = new.iter().map(|e| e.time).min().unwrap_or(u64::MAX);
        let later = before.iter().rev().take(BATCH).take_while(|e| e.time > first).count();
        let from = before.len() - later;
        self.events[from..].sort_by_key(|e| e.time);
        self.ordered = self.events.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_model::event::EventKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_end_in_the_same_order_as_one_stable_sort(
            batches in proptest::collection::vec(proptest::collection::vec(0u64..50, 0..20), 0..20),
        ) {
            let mut record = Record::default();
            let mut all = Vec::new();
            for (i, batch) in batches.iter().enumerate() {
                record.take(|events| {
                    for time in batch {
                        let event = Event::new(*time + 3 * i as u64, EventKind::Run, all.len() as u64, 0);
                        events.push(event);
                        all.push(event);
                    }
                });
                // Nothing here is later than a batch, so all that has come is in order.
                prop_assert!(record.events.is_sorted_by_key(|e| e.time));
            }
            all.sort_by_key(|e| e.time);
            prop_assert_eq!(record.finish(), all);
        }
    }
}
