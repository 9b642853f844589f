// SPDX-License-Identifier: GPL-2.0-only
//! How much more fits where demands may use only some CPUs: a transport problem, solved by augmenting paths.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::amount::Amount;

/// How much of each CPU each demand takes, and what remains. CPUs are indices, demands have keys.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Capacity not yet taken, by CPU.
    left: Vec<Amount>,
    demands: BTreeMap<u64, Demand>,
}

#[derive(Debug, Clone)]
struct Demand {
    /// CPUs it may use.
    cpus: Vec<usize>,
    /// What it takes, where it takes anything.
    takes: BTreeMap<usize, Amount>,
}

impl Flow {
    pub fn new(capacity: Vec<Amount>) -> Self {
        Self { left: capacity, demands: BTreeMap::new() }
    }

    /// Adds a demand that may use `cpus` and serves as much of `amount` as can be, by moving earlier demands among
    /// their CPUs. Returns what was served. Earlier demands keep their totals.
    ///
    /// Each round finds a shortest path demand → CPU → (a demand that takes some of it) → another of its CPUs … → a
    /// CPU with capacity left (Edmonds and Karp 1972); what is served in the end is exact, by max-flow min-cut.
    pub fn serve(&mut self, key: u64, cpus: &[usize], amount: Amount) -> Amount {
        self.remove(key);
        self.demands.insert(key, Demand { cpus: cpus.to_vec(), takes: BTreeMap::new() });
        let mut served = 0;
        while served < amount {
            let Some(path) = self.path(key) else { break };
            let Some((_, last)) = path.last().copied() else { break };
            let mut step = self.left[last];
            for pair in path.windows(2) {
                // The next demand gives up some of this CPU.
                step = step.min(*self.taken(pair[1].0, pair[0].1));
            }
            step = step.min(amount - served);
            for (i, (demand, cpu)) in path.iter().enumerate() {
                *self.taken(*demand, *cpu) += step;
                if let Some((next, _)) = path.get(i + 1) {
                    *self.taken(*next, *cpu) -= step;
                }
            }
            self.left[last] -= step;
            served += step;
        }
        served
    }

    /// Takes a demand back; whether there was one.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(demand) = self.demands.remove(&key) else { return false };
        for (cpu, amount) in demand.takes {
            self.left[cpu] += amount;
        }
        true
    }

    fn taken(&mut self, key: u64, cpu: usize) -> &mut Amount {
        let demand = self.demands.get_mut(&key).expect("paths go through known demands");
        demand.takes.entry(cpu).or_default()
    }

    /// The shortest chain of (demand, CPU it takes more of) that ends at a CPU with something left.
    fn path(&self, from: u64) -> Option<Vec<(u64, usize)>> {
        // By which demand, and from which CPU that one was reached, each CPU was first reached.
        let mut reached: Vec<Option<(u64, Option<usize>)>> = vec![None; self.left.len()];
        let mut queue = VecDeque::from([(from, None)]);
        let mut seen = BTreeSet::from([from]);
        while let Some((key, via)) = queue.pop_front() {
            let own = &self.demands[&key].cpus;
            // The usual case first: one of its own CPUs has something left.
            let open = own.iter().find(|c| reached[**c].is_none() && self.left[**c] != 0);
            if let Some(cpu) = open {
                reached[*cpu] = Some((key, via));
                return Some(unwind(&reached, *cpu));
            }
            for cpu in own {
                if reached[*cpu].is_some() {
                    continue;
                }
                reached[*cpu] = Some((key, via));
                for (other, demand) in &self.demands {
                    let takes = demand.takes.get(cpu).is_some_and(|x| *x != 0);
                    if takes && seen.insert(*other) {
                        queue.push_back((*other, Some(*cpu)));
                    }
                }
            }
        }
        None
    }
}

fn unwind(reached: &[Option<(u64, Option<usize>)>], last: usize) -> Vec<(u64, usize)> {
    let mut path = Vec::new();
    let mut cpu = Some(last);
    while let Some(c) = cpu {
        let (demand, via) = reached[c].expect("only reached CPUs are walked");
        path.push((demand, c));
        cpu = via;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// In sixths.
    fn r(n: Amount, d: Amount) -> Amount {
        n * 6 / d
    }

    #[test]
    fn earlier_demands_move_out_of_the_way() {
        let mut flow = Flow::new(vec![r(1, 1), r(1, 1)]);
        assert_eq!(flow.serve(1, &[0, 1], r(1, 1)), r(1, 1)); // takes CPU 0 first
        assert_eq!(flow.serve(2, &[0], r(1, 2)), r(1, 2));
        assert_eq!(flow.serve(3, &[0], Amount::MAX), r(1, 2));
        assert_eq!(flow.serve(4, &[0, 1], Amount::MAX), r(0, 1));
        assert!(flow.remove(1) && !flow.remove(1));
        assert_eq!(flow.serve(4, &[0, 1], Amount::MAX), r(1, 1));
    }

    proptest! {
        /// Hall's condition over every set of CPUs is the independent answer.
        #[test]
        fn what_is_served_equals_the_tightest_set_of_cpus(
            capacity in proptest::collection::vec(0u128..10, 1..5),
            demands in proptest::collection::vec((1usize..32, 0u128..8), 0..6),
            mask in 1usize..32,
            leaver in 0usize..9,
        ) {
            let n = capacity.len();
            let cpus = |mask: usize| (0..n).filter(|c| mask >> c & 1 == 1).collect::<Vec<_>>();
            let mut flow = Flow::new(capacity.iter().map(|c| r(*c, 3)).collect());
            let mut held = Vec::new();
            for (key, (m, amount)) in demands.into_iter().enumerate() {
                let served = flow.serve(key as u64, &cpus(m), r(amount, 3));
                held.push((m & ((1 << n) - 1), served));
            }
            if leaver < held.len() {
                flow.remove(leaver as u64);
                held.remove(leaver);
            }
            let mask = mask & ((1 << n) - 1);
            let most = (0..1usize << n).filter(|set| mask & !set == 0).map(|set| {
                let room: Amount = cpus(set).iter().map(|c| r(capacity[*c], 3)).sum();
                let inside = held.iter().filter(|(m, _)| m & !set == 0);
                room - inside.map(|(_, x)| *x).sum::<Amount>()
            }).min().unwrap();
            prop_assert_eq!(flow.serve(99, &cpus(mask), Amount::MAX), most);
        }
    }
}
