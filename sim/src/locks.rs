// SPDX-License-Identifier: GPL-2.0-only
//! Resources that one thread at a time can hold.
//!
//! A protocol is a rule of who gets what he asks for, and when ([`Locks::ask`]), and of who gets what is released
//! ([`Locks::release`]); the engine only does what these answer. This one: who comes first is served first.

use std::collections::VecDeque;

/// One resource.
#[derive(Debug, Default)]
struct Resource {
    holder: Option<usize>,
    /// Who waits for it, in the order in which they get it.
    queue: VecDeque<usize>,
}

/// A thread, what it holds, and for what it waits.
#[derive(Debug, Default)]
struct Thread {
    /// In the order in which it took them.
    held: Vec<usize>,
    waits: Option<usize>,
}

/// All resources and threads, by number.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    resources: Vec<Resource>,
    threads: Vec<Thread>,
}

/// A thread of a circle, what it waits for, and who holds that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub thread: usize,
    pub resource: usize,
    pub holder: usize,
}

impl Locks {
    /// There are at least so many.
    pub fn reserve(&mut self, resources: usize, threads: usize) {
        let resources = resources.max(self.resources.len());
        self.resources.resize_with(resources, Resource::default);
        self.threads.resize_with(threads.max(self.threads.len()), Thread::default);
    }

    /// Whether `thread` gets `resource` at once; else it waits, and gets it from [`Locks::release`].
    pub fn ask(&mut self, thread: usize, resource: usize) -> bool {
        let wanted = &mut self.resources[resource];
        if wanted.holder.is_some() {
            wanted.queue.push_back(thread);
            self.threads[thread].waits = Some(resource);
            return false;
        }
        wanted.holder = Some(thread);
        self.threads[thread].held.push(resource);
        true
    }

    /// `thread` releases `resource`, which it holds. Who gets it and waits no more, if anybody.
    pub fn release(&mut self, thread: usize, resource: usize) -> Option<usize> {
        debug_assert_eq!(self.resources[resource].holder, Some(thread));
        self.threads[thread].held.retain(|held| *held != resource);
        let next = self.resources[resource].queue.pop_front();
        self.resources[resource].holder = next;
        if let Some(next) = next {
            self.threads[next].waits = None;
            self.threads[next].held.push(resource);
        }
        next
    }

    /// `thread` waits no more, if it did: for what.
    pub fn leave(&mut self, thread: usize) -> Option<usize> {
        let resource = self.threads[thread].waits.take()?;
        self.resources[resource].queue.retain(|waits| *waits != thread);
        Some(resource)
    }

    /// What `thread` took last of what it holds.
    pub fn last_held(&self, thread: usize) -> Option<usize> {
        self.threads[thread].held.last().copied()
    }

    /// The circle that `thread`, which has just begun to wait, has closed, if it has: each waits for what the next one
    /// holds. The way from it ends, comes back to it, or leads into an older circle.
    pub fn circle(&self, thread: usize) -> Option<Vec<Wait>> {
        let mut waits = Vec::new();
        let mut at = thread;
        while let Some(resource) = self.threads[at].waits
            && waits.len() < self.threads.len()
        {
            let holder = self.resources[resource].holder?;
            waits.push(Wait { thread: at, resource, holder });
            if holder == thread {
                return Some(waits);
            }
            at = holder;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> Locks {
        let mut locks = Locks::default();
        locks.reserve(3, 4);
        locks
    }

    #[test]
    fn who_asks_first_gets_it_first_and_who_leaves_does_not() {
        let mut locks = locks();
        assert!(locks.ask(0, 0));
        assert!(!locks.ask(1, 0) && !locks.ask(2, 0) && !locks.ask(3, 0));
        assert_eq!(locks.leave(2), Some(0));
        assert_eq!((locks.leave(2), locks.leave(0)), (None, None));
        assert_eq!(locks.release(0, 0), Some(1));
        assert_eq!((locks.last_held(0), locks.last_held(1)), (None, Some(0)));
        assert_eq!(locks.release(1, 0), Some(3));
        assert_eq!(locks.release(3, 0), None);
        assert!(locks.ask(2, 0));
    }

    #[test]
    fn a_circle_is_found_by_who_closes_it_and_a_chain_is_none() {
        let mut locks = locks();
        for thread in 0..3 {
            assert!(locks.ask(thread, thread));
        }
        assert!(!locks.ask(0, 1));
        assert_eq!(locks.circle(0), None);
        assert!(!locks.ask(3, 0));
        assert_eq!(locks.circle(3), None);
        assert!(!locks.ask(1, 2));
        assert_eq!(locks.circle(1), None);
        assert!(!locks.ask(2, 0));
        let wait = |thread, resource, holder| Wait { thread, resource, holder };
        assert_eq!(locks.circle(2), Some(vec![wait(2, 0, 0), wait(0, 1, 1), wait(1, 2, 2)]));
        assert_eq!(locks.circle(3), None, "its way leads into the circle and not back");
    }
}
