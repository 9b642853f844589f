// SPDX-License-Identifier: GPL-2.0-only
//! Which task is released next: a tournament of all tasks by time of release, then by number.

/// Each task has at most one release ahead. A change costs as many comparisons as the tournament has rounds, whatever
/// the times are, and none of them is a branch that could be mispredicted.
pub(crate) struct Releases {
    /// Times in a binary tree: node k has the lesser of its children 2k and 2k + 1; 1 is the root, the leaves are the
    /// tasks.
    nodes: Vec<u64>,
    /// Number of leaves, a power of two.
    leaves: usize,
}

/// The time of what is not ahead.
const NEVER: u64 = u64::MAX;

impl Releases {
    /// No release is ahead of any of `tasks` tasks.
    pub fn new(tasks: usize) -> Self {
        let leaves = tasks.next_power_of_two();
        Self { nodes: vec![NEVER; 2 * leaves], leaves }
    }

    /// When the next release is, ns; u64::MAX: there is none.
    pub fn next(&self) -> u64 {
        self.nodes[1]
    }

    /// Whose release is next, if there is one: of several at that time that of the first task.
    pub fn first(&self) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node = 2 * node + usize::from(self.nodes[2 * node] != self.nodes[node]);
        }
        node - self.leaves
    }

    /// Task `i` is released at `time`, ns.
    pub fn set(&mut self, i: usize, time: u64) {
        let mut node = self.leaves + i;
        let mut least = time;
        self.nodes[node] = least;
        while node > 1 {
            least = least.min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = least;
        }
    }

    /// No release of task `i` is ahead any more.
    pub fn clear(&mut self, i: usize) {
        self.set(i, NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_first_is_that_of_a_sorted_set(
            tasks in 1usize..40,
            turns in proptest::collection::vec((any::<usize>(), any::<u64>(), any::<bool>()), 0..200),
        ) {
            let mut releases = Releases::new(tasks);
            let mut sorted: BTreeSet<(u64, usize)> = BTreeSet::new();
            for (i, time, ahead) in turns {
                let (i, time) = (i % tasks, time % 8); // so few times that many are equal
                sorted.retain(|(_, j)| *j != i);
                if ahead {
                    sorted.insert((time, i));
                    releases.set(i, time);
                } else {
                    releases.clear(i);
                }
                prop_assert_eq!(releases.next(), sorted.first().map_or(NEVER, |first| first.0));
                if let Some((_, i)) = sorted.first() {
                    prop_assert_eq!(releases.first(), *i);
                }
            }
        }
    }
}
