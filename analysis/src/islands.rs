// SPDX-License-Identifier: GPL-2.0-only
//! Who is served where within one domain.
//!
//! As long as all may use each of its CPUs, all CPUs serve all. One that may use fewer gets a CPU that is *apart*: it
//! serves nobody but those that are put there, tested as one CPU is, and the rest serves those that may go everywhere.
//! Loads that can be divided among the CPUs that each may use could be more than that. But no order by deadlines
//! follows such a division: of 9 in 9.9 ms twice, which may go to both CPUs, and 4.5 in 10 ms twice on the first, EDF
//! and EDZL serve the latter late by 3.5 ms, though all loads together are 1.8.

use std::collections::BTreeMap;

use crate::amount::Amount;

/// The CPUs of a domain, and who takes how much of which. CPUs are indices below 64 and sets of them masks, demands
/// have keys.
#[derive(Debug, Clone)]
pub(crate) struct Islands {
    /// What each CPU of the machine offers.
    offers: Vec<Amount>,
    /// CPUs of the domain.
    all: u64,
    held: BTreeMap<u64, Held>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    /// CPUs of the domain that it may use.
    may: u64,
    load: Amount,
    /// The CPU apart that serves it; `None`: the rest does.
    on: Option<usize>,
}

/// Where a demand could be served.
struct Seat {
    /// The greatest load there.
    free: Amount,
    on: Option<usize>,
    /// Who would have to move to `on` for it.
    moved: Vec<u64>,
}

fn cpus(mask: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |cpu| mask >> cpu & 1 == 1)
}

impl Islands {
    pub fn new(offers: Vec<Amount>, domain: &[usize]) -> Self {
        // Those that are not there for reservations matter to nobody's affinity.
        let there = domain.iter().filter(|cpu| offers[**cpu] > 0);
        let all = there.fold(0, |mask, cpu| mask | 1 << cpu);
        Self { offers, all, held: BTreeMap::new() }
    }

    /// The greatest load that one that may use these CPUs could have.
    pub fn free(&self, may: u64) -> Amount {
        self.seats(may & self.all, None).into_iter().map(|seat| seat.free).max().unwrap_or(0)
    }

    /// Serves a demand if it fits; rather on CPU `prefer`, as one apart. Whether others have other CPUs now.
    pub fn serve(
        &mut self,
        key: u64,
        may: u64,
        load: Amount,
        prefer: Option<usize>,
    ) -> Option<bool> {
        let may = may & self.all;
        let seat = self.seats(may, prefer).into_iter().find(|seat| seat.free >= load)?;
        let before = self.apart();
        self.held.insert(key, Held { may, load, on: seat.on });
        for key in &seat.moved {
            self.held.get_mut(key).expect("it was looked at").on = seat.on;
        }
        Some(before != self.apart())
    }

    /// Another load in a demand's place, if it fits there.
    pub fn change(&mut self, key: u64, may: u64, load: Amount) -> bool {
        let may = may & self.all;
        let Some(held) = self.held.get(&key).filter(|held| held.may == may) else { return false };
        let (on, others) = (held.on, self.taken(held.on) - held.load);
        let cpus = on.map_or(self.all & !self.apart(), |cpu| 1 << cpu);
        let fits = others + load <= self.offer(cpus) && load <= self.greatest(cpus);
        if fits {
            self.held.get_mut(&key).expect("just read").load = load;
        }
        fits
    }

    /// A demand has another key from now on.
    pub fn rename(&mut self, key: u64, to: u64) {
        if let Some(held) = self.held.remove(&key) {
            self.held.insert(to, held);
        }
    }

    /// A CPU is apart only for those that need it; whether others have other CPUs now.
    pub fn tidy(&mut self) -> bool {
        let (all, before) = (self.all, self.apart());
        let needed = self.held.values().filter(|held| held.may != all).filter_map(|held| held.on);
        let needed = needed.fold(0u64, |mask, cpu| mask | 1 << cpu);
        let needless = |held: &&mut Held| held.on.is_some_and(|cpu| needed >> cpu & 1 == 0);
        self.held.values_mut().filter(needless).for_each(|held| held.on = None);
        before != self.apart()
    }

    /// Takes a demand back; whether others have other CPUs now.
    pub fn remove(&mut self, key: u64) -> bool {
        let before = self.apart();
        self.held.remove(&key);
        self.tidy();
        before != self.apart()
    }

    /// The CPUs that serve a demand, and whether that is one apart.
    pub fn place(&self, key: u64) -> Option<(u64, bool)> {
        let held = self.held.get(&key)?;
        Some(held.on.map_or((self.all & !self.apart(), false), |cpu| (1 << cpu, true)))
    }

    /// CPUs that are apart.
    fn apart(&self) -> u64 {
        self.held.values().filter_map(|held| held.on).fold(0, |mask, cpu| mask | 1 << cpu)
    }

    fn taken(&self, on: Option<usize>) -> Amount {
        self.held.values().filter(|held| held.on == on).map(|held| held.load).sum()
    }

    fn offer(&self, mask: u64) -> Amount {
        cpus(mask).map(|cpu| self.offers[cpu]).sum()
    }

    fn greatest(&self, mask: u64) -> Amount {
        cpus(mask).map(|cpu| self.offers[cpu]).max().unwrap_or_default()
    }

    /// Where one could be served, the best first.
    fn seats(&self, may: u64, prefer: Option<usize>) -> Vec<Seat> {
        let apart = self.apart();
        let rest = self.all & !apart;
        let on = |cpu: usize| {
            let free = self.offers[cpu].saturating_sub(self.taken(Some(cpu)));
            Seat { free, on: Some(cpu), moved: Vec::new() }
        };
        // The fullest first, so that the others stay as empty as they are.
        let mut seats: Vec<Seat> = cpus(may & apart).map(on).collect();
        seats.sort_by_key(|seat| seat.free);
        if may == self.all {
            let free = self.offer(rest).saturating_sub(self.taken(None)).min(self.greatest(rest));
            seats.insert(0, Seat { free, on: None, moved: Vec::new() });
            // It was there when others needed that CPU, who are about to come back.
            seats.extend(
                prefer
                    .filter(|cpu| rest >> cpu & 1 == 1)
                    .and_then(|cpu| self.apart_from(rest, cpu)),
            );
        } else {
            let mut new: Vec<Seat> =
                cpus(may & rest).filter_map(|cpu| self.apart_from(rest, cpu)).collect();
            new.sort_by_key(|seat| std::cmp::Reverse(seat.free));
            seats.extend(new);
        }
        if let Some(at) = seats.iter().position(|seat| seat.on.is_some() && seat.on == prefer) {
            seats[..=at].rotate_right(1);
        }
        seats
    }

    /// CPU `cpu` of the rest as one apart: whom the others cannot serve without it moves there.
    fn apart_from(&self, rest: u64, cpu: usize) -> Option<Seat> {
        let left = rest & !(1 << cpu);
        let (offer, greatest) = (self.offer(left), self.greatest(left));
        let mut wide: Vec<(Amount, u64)> = self
            .held
            .iter()
            .filter(|(_, h)| h.on.is_none())
            .map(|(key, h)| (h.load, *key))
            .collect();
        wide.sort_unstable();
        let mut over = self.taken(None).saturating_sub(offer);
        let mut moved = wide.split_off(wide.partition_point(|(load, _)| *load <= greatest));
        over = over.saturating_sub(moved.iter().map(|(load, _)| load).sum());
        while over > 0 {
            // The smallest that is enough, or else the greatest.
            let at = wide.partition_point(|(load, _)| *load < over).min(wide.len().checked_sub(1)?);
            let one = wide.remove(at);
            over = over.saturating_sub(one.0);
            moved.push(one);
        }
        let sum: Amount = moved.iter().map(|(load, _)| load).sum();
        let free = self.offers[cpu].checked_sub(sum)?;
        Some(Seat { free, on: Some(cpu), moved: moved.into_iter().map(|(_, key)| key).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_may_go_everywhere_leaves_the_cpu_that_another_needs() {
        let mut two = Islands::new(vec![10, 10], &[0, 1]);
        assert_eq!(two.serve(1, 0b11, 9, None), Some(false));
        assert_eq!(two.place(1), Some((0b11, false)));
        assert_eq!(two.serve(2, 0b01, 5, None), Some(true));
        assert_eq!((two.place(1), two.place(2)), (Some((0b10, false)), Some((0b01, true))));
        assert_eq!((two.free(0b01), two.free(0b11), two.free(0b10)), (5, 5, 1));
        // It fits beside that one only.
        assert_eq!(two.serve(3, 0b11, 4, None), Some(false));
        assert_eq!(two.place(3), Some((0b01, true)));
        assert!(two.remove(2));
        assert_eq!((two.place(1), two.place(3)), (Some((0b11, false)), Some((0b11, false))));
        assert!(!two.remove(2));
    }

    #[test]
    fn whom_the_rest_cannot_serve_any_more_moves() {
        let mut three = Islands::new(vec![10; 3], &[0, 1, 2]);
        for (key, load) in [(1, 8), (2, 8), (3, 6)] {
            assert_eq!(three.serve(key, 0b111, load, None), Some(false));
        }
        // 22 are too many for two; 6 of them beside it leave 4.
        assert_eq!((three.free(0b001), three.free(0b110)), (4, 4));
        assert_eq!(three.serve(4, 0b001, 5, None), None);
        assert_eq!(three.serve(4, 0b001, 4, None), Some(true));
        assert_eq!((three.place(3), three.place(4)), (Some((0b001, true)), Some((0b001, true))));
        assert_eq!(three.place(2), Some((0b110, false)));
    }

    #[test]
    fn who_asks_for_less_stays_though_all_would_not_fit_anew() {
        let mut two = Islands::new(vec![10, 10], &[0, 1]);
        for (key, may, load) in
            [(1, 0b11, 9), (2, 0b01, 3), (3, 0b11, 1), (4, 0b11, 3), (5, 0b11, 4)]
        {
            assert!(two.serve(key, may, load, None).is_some(), "{key}");
        }
        assert!(two.change(2, 0b01, 2) && !two.change(2, 0b01, 4) && !two.change(2, 0b10, 1));
        assert_eq!(two.place(2), Some((0b01, true)));
        two.rename(2, 9);
        assert_eq!((two.place(9), two.place(2)), (Some((0b01, true)), None));
    }

    #[test]
    fn cpus_that_are_not_there_make_nobody_narrow() {
        let mut two = Islands::new(vec![10, 10, 0], &[0, 1, 2]);
        assert_eq!(two.serve(1, 0b011, 6, None), Some(false));
        assert_eq!(two.place(1), Some((0b011, false)));
    }

    proptest! {
        /// In the same order, each where it was: whatever fitted fits again.
        #[test]
        fn all_come_back_to_where_they_were(
            demands in proptest::collection::vec((1u64..32, 1u128..8), 0..12),
        ) {
            let mut book = Islands::new(vec![10; 4], &[0, 1, 2, 3]);
            for (key, (may, load)) in (0..).zip(&demands) {
                book.serve(key, if *may >= 16 { 15 } else { *may }, *load, None);
            }
            let mut again = Islands::new(vec![10; 4], &[0, 1, 2, 3]);
            for (key, held) in &book.held {
                prop_assert!(again.serve(*key, held.may, held.load, held.on).is_some());
            }
            again.tidy();
            prop_assert_eq!(again.held, book.held);
        }

        /// Each CPU apart is tested alone, and the rest as one: nobody is promised more than there is.
        #[test]
        fn no_cpu_is_promised_twice(
            offers in proptest::collection::vec(0u128..10, 1..5),
            demands in proptest::collection::vec((1u64..32, 1u128..8, any::<bool>()), 0..12),
        ) {
            let all: Vec<usize> = (0..offers.len()).collect();
            let whole = (1u64 << offers.len()) - 1;
            let mut book = Islands::new(offers.clone(), &all);
            for (key, (may, load, leaves)) in (0..).zip(demands) {
                let may = if may >= 16 { whole } else { may };
                let (free, before) = (book.free(may), book.clone());
                let served = book.serve(key, may, load, None);
                prop_assert_eq!(served.is_some(), free >= load && free > 0);
                for (other, held) in &before.held {
                    let now = book.place(*other).unwrap();
                    prop_assert!(now.0 & !held.may == 0 && now.0 != 0, "{other} is served");
                    prop_assert!(served == Some(true) || Some(now) == before.place(*other));
                }
                for cpu in cpus(book.apart()) {
                    prop_assert!(book.taken(Some(cpu)) <= offers[cpu]);
                }
                let rest = whole & !book.apart();
                prop_assert!(book.taken(None) <= book.offer(rest));
                prop_assert!(book.held.values().all(|h| h.on.is_some() || h.load <= book.greatest(rest)));
                if leaves && key > 0 {
                    book.remove(key / 2);
                }
            }
            let keys: Vec<u64> = book.held.keys().copied().collect();
            keys.iter().for_each(|key| { book.remove(*key); });
            prop_assert_eq!(book.free(whole), *offers.iter().max().unwrap());
        }
    }
}
