// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::machine::Fit;
use num_rational::BigRational;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

const SPLIT: Domains = Domains::Split { postponed: false };

fn share(n: u64, d: u64) -> Fraction {
    Fraction::new(n, d)
}

fn book(cpus: u32, best_effort: Fraction, domains: Domains, fit: Fit) -> Admission {
    let cpus: Vec<u32> = (0..cpus).collect();
    Admission::new(Machine::new(&cpus, best_effort, domains, fit))
}

fn demand(budget: u64, period: u64) -> Demand {
    Demand {
        name: format!("{budget}/{period}"),
        budget,
        period,
        deadline: period,
        cpus: None,
        hard: false,
    }
}

fn on(cpus: &[u32], budget: u64, period: u64) -> Demand {
    Demand { cpus: Some(cpus.to_vec()), ..demand(budget, period) }
}

#[test]
fn nine_tasks_of_a_ninth_fill_one_cpu_and_a_tenth_is_refused() {
    for domains in [Domains::Global, Domains::Partitioned, Domains::Clustered(1)] {
        let mut b = book(1, share(0, 1), domains, Fit::First);
        for id in 0..9 {
            b.admit(id, &demand(1, 9)).unwrap();
        }
        assert_eq!((b.free(), b.reserved()), (share(0, 1), share(1, 1)));
        let refusal = b.admit(9, &demand(1, 1_000_000_000)).unwrap_err();
        assert_eq!((refusal.free, refusal.nearest), (share(0, 1), Nearest::default()));
        assert_eq!(refusal.holders.len(), 9);
    }
}

#[test]
fn the_best_effort_share_is_never_given_away() {
    let mut b = book(1, share(1, 20), Domains::Global, Fit::First);
    let refusal = b.admit(1, &demand(96 * MS, 100 * MS)).unwrap_err();
    assert_eq!(refusal.nearest, Nearest { budget_ns: Some(95 * MS), period_ns: Some(101_052_632) });
    assert_eq!(refusal.holders[0].name, "best-effort share");
    b.admit(1, &demand(95 * MS, 100 * MS)).unwrap();
}

#[test]
fn six_movies_fit_on_four_cpus_and_a_seventh_is_told_what_would() {
    let mut b = book(4, share(1, 20), Domains::Global, Fit::First);
    for id in 0..6 {
        let place = b.admit(id, &demand(25 * MS, 41 * MS)).unwrap();
        assert_eq!(place, Place { domain: 0, cpus: 0b1111, apart: false, split: None });
    }
    // 4 × 19/20 − 6 × 25/41 = 29/205 of a CPU is left.
    let refusal = b.test(&demand(25 * MS, 41 * MS)).unwrap_err();
    assert_eq!(refusal.free, share(29, 205));
    assert_eq!(refusal.nearest.budget_ns, Some(5_800_000));
    assert_eq!(refusal.nearest.period_ns, Some(176_724_138));
    b.admit(7, &demand(5_800_000, 41 * MS)).unwrap();
    assert_eq!(b.free(), share(0, 1));
}

#[test]
fn partitioned_cpus_take_only_what_fits_on_one() {
    let mut b = book(4, share(1, 20), Domains::Partitioned, Fit::First);
    for id in 0..4 {
        assert_eq!(b.admit(id, &demand(25 * MS, 41 * MS)).unwrap().cpus, 1 << id);
    }
    let refusal = b.admit(4, &demand(25 * MS, 41 * MS)).unwrap_err();
    assert!(refusal.reason.starts_with("no CPU it may use has enough left"), "{}", refusal.reason);
    assert_eq!(b.admit(4, &demand(10 * MS, 41 * MS)).unwrap().cpus, 0b0001);
}

#[test]
fn worst_fit_levels_and_first_fit_fills() {
    let place = |fit| {
        let mut b = book(2, share(0, 1), Domains::Partitioned, fit);
        (0..3).map(|id| b.admit(id, &demand(1, 4)).unwrap().domain).collect::<Vec<_>>()
    };
    assert_eq!(place(Fit::First), [0, 0, 0]);
    assert_eq!(place(Fit::Worst), [0, 1, 0]);
}

#[test]
fn affinity_counts_against_the_cpus_named_only() {
    let mut b = book(2, share(0, 1), Domains::Global, Fit::First);
    b.admit(1, &on(&[0], 3, 4)).unwrap();
    assert_eq!(b.test(&on(&[0], 1, 2)).unwrap_err().free, share(1, 4));
    b.admit(2, &on(&[1], 1, 2)).unwrap();
    // 3/4 is free in all, but nobody could have it in one piece.
    assert_eq!(b.test(&demand(3, 4)).unwrap_err().free, share(1, 2));
    b.admit(3, &demand(1, 2)).unwrap();
    assert_eq!(b.place_of(3).map(|at| (at.cpus, at.apart)), Some((0b10, true)));
    let refusal = b.admit(4, &on(&[5], 1, 100)).unwrap_err();
    assert!(refusal.reason.contains("on line"), "{}", refusal.reason);
    assert!(refusal.holders.is_empty());
}

#[test]
fn clusters_are_separate_queues() {
    let mut b = book(4, share(0, 1), Domains::Clustered(2), Fit::First);
    assert_eq!(b.admit(0, &demand(1, 1)).unwrap().cpus, 0b0011);
    assert_eq!(b.admit(1, &demand(3, 4)).unwrap().domain, 0);
    assert_eq!(b.admit(2, &demand(3, 4)).unwrap().cpus, 0b1100);
    assert_eq!(
        b.admit(3, &on(&[0, 1], 1, 4)).unwrap(),
        Place { domain: 0, cpus: 0b0011, apart: false, split: None }
    );
    assert!(b.admit(4, &on(&[0, 1], 1, 1000)).is_err());
}

#[test]
fn other_classes_hold_their_part_and_are_named() {
    let mut machine = Machine::new(&[0, 1], share(1, 20), Domains::Partitioned, Fit::First);
    machine.hold(0, "SCHED_DEADLINE tasks", share(1, 2));
    machine.hold(7, "SCHED_FIFO tasks", share(1, 2));
    let b = Admission::new(machine);
    assert_eq!(b.free(), share(7, 5));
    assert_eq!(b.test(&demand(1, 2)).unwrap().cpus, 0b10);
    let refusal = b.test(&on(&[0], 1, 2)).unwrap_err();
    assert_eq!(refusal.free, share(9, 20));
    assert_eq!(refusal.holders[0].name, "SCHED_DEADLINE tasks");
}

#[test]
fn a_deadline_shorter_than_the_period_counts_as_density() {
    let b = book(1, share(0, 1), Domains::Global, Fit::First);
    let short = Demand { deadline: 4, ..demand(5, 10) };
    let refusal = b.test(&short).unwrap_err();
    assert_eq!(refusal.asked, share(5, 4));
    assert_eq!(refusal.nearest, Nearest { budget_ns: Some(4), period_ns: None });
    assert!(b.test(&Demand { deadline: 20, ..demand(10, 10) }).is_ok());
}

#[test]
fn a_changed_reservation_keeps_the_old_values_when_refused() {
    let mut b = book(1, share(0, 1), Domains::Global, Fit::First);
    b.admit(1, &demand(1, 2)).unwrap();
    b.admit(2, &demand(1, 4)).unwrap();
    b.admit(1, &demand(3, 4)).unwrap();
    b.admit(1, &demand(4, 5)).unwrap_err();
    assert_eq!(b.plan.get(1).unwrap().demand, demand(3, 4));
    assert!(b.release(1) && !b.release(1));
    assert_eq!(b.free(), share(3, 4));
}

#[test]
fn what_no_longer_fits_after_a_cpu_went_is_said() {
    let mut b = book(2, share(0, 1), Domains::Partitioned, Fit::First);
    b.admit(1, &demand(3, 4)).unwrap();
    b.admit(2, &demand(1, 2)).unwrap();
    b.admit(3, &demand(1, 4)).unwrap();
    let mut machine = Machine::new(&[0, 1], share(0, 1), Domains::Partitioned, Fit::First);
    machine.offline(0);
    let mut after = Admission::new(machine);
    let moved: Vec<_> = b.granted().map(|(id, p)| (id, after.keep(id, &p.demand, &p.at))).collect();
    let one = Place { domain: 1, cpus: 0b10, apart: false, split: None };
    assert!(moved.iter().all(|(_, (at, _))| *at == one));
    assert_eq!(moved.iter().map(|(_, (_, fits))| *fits).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(after.reserved(), share(1, 1));
}

#[test]
fn a_thousand_odd_periods_near_an_hour_are_tested_and_summed_up_with_a_few_divisions() {
    let divisions = || crate::amount::DIVISIONS.with(|n| n.get());
    let mut b = book(4, share(1, 20), Domains::Global, Fit::First);
    for id in 0..1024u32 {
        // No two of these periods have much of a common factor: exact sums would have 40 000 bits.
        b.admit(id, &demand(3 * MS, HOUR - 2 * u64::from(id) - 1)).unwrap();
    }
    let before = divisions();
    let (reserved, free) = (b.reserved(), b.free());
    assert_eq!(divisions() - before, 0);
    assert!(reserved + free > share(379, 100) && reserved + free <= share(19, 5));
    b.test(&demand(3 * MS, HOUR - 5)).unwrap();
    assert!(divisions() - before < 100, "{} divisions", divisions() - before);
    let refusal = b.test(&demand(HOUR - 1, HOUR)).unwrap_err();
    assert!(b.test(&demand(refusal.nearest.budget_ns.unwrap(), HOUR)).is_ok());
    for id in 0..1024 {
        b.release(id);
    }
    assert_eq!((b.reserved(), b.free()), (share(0, 1), share(19, 5)));
}

#[test]
fn what_fits_exactly_is_granted_whatever_the_periods() {
    // Each CPU's last place is what odd periods leave, to the last nanosecond of an hour.
    for domains in [Domains::Global, Domains::Partitioned, Domains::Clustered(1), SPLIT] {
        let mut b = book(1, share(0, 1), domains, Fit::First);
        for id in 0..417 {
            b.admit(id, &demand(100_000, 41_700_000))
                .unwrap_or_else(|r| panic!("{domains:?}: {r}"));
        }
        assert_eq!(b.free(), share(0, 1));
        assert!(b.test(&demand(1, HOUR)).is_err());
    }
}

#[test]
fn two_hundred_holders_make_a_short_list() {
    let mut b = book(4, share(0, 1), Domains::Global, Fit::First);
    for id in 0..200 {
        b.admit(id, &demand(3, 200 + u64::from(id))).unwrap();
    }
    let refusal = b.test(&demand(3, 2)).unwrap_err();
    assert_eq!(refusal.holders.len(), HOLDERS_SHOWN + 1);
    assert_eq!(refusal.holders[HOLDERS_SHOWN].name, "180 others together");
}

proptest! {
    #[test]
    fn nothing_admitted_exceeds_the_machine_and_what_is_nearest_fits(
        cpus in 1u32..5,
        kind in 0u32..4,
        worst in any::<bool>(),
        demands in proptest::collection::vec((1u64..40, 1u64..60, 0u32..32), 1..25),
    ) {
        let domains =
            [Domains::Global, Domains::Clustered(2), Domains::Partitioned, SPLIT][kind as usize];
        let mut b = book(cpus, share(1, 20), domains, if worst { Fit::Worst } else { Fit::First });
        for (id, (budget, slack, mask)) in demands.into_iter().enumerate() {
            let list: Vec<u32> = (0..cpus).filter(|c| mask >> c & 1 == 1).collect();
            let mut d = demand(budget * 1_000_000, (budget + slack) * 1_000_000);
            d.cpus = (!list.is_empty()).then_some(list);
            let before = b.free();
            match b.admit(id as u32, &d) {
                Ok(p) => {
                    prop_assert!(d.density() <= before);
                    prop_assert!(p.cpus != 0);
                    let mask = |list: &Vec<u32>| list.iter().fold(0, |mask, c| mask | 1 << c);
                    prop_assert_eq!(p.all_cpus() & !d.cpus.as_ref().map_or(u64::MAX, mask), 0);
                }
                Err(r) => {
                    if let Some(budget) = r.nearest.budget_ns {
                        let with = |budget| Demand { budget, ..d.clone() };
                        prop_assert!(b.test(&with(budget)).is_ok());
                        // Where several CPUs have parts of it the nearest is near, not the greatest.
                        prop_assert!(domains == SPLIT || b.test(&with(budget + 1)).is_err());
                    }
                    if let Some(p) = r.nearest.period_ns {
                        let with = |p| Demand { period: p, deadline: p, ..d.clone() };
                        prop_assert!(b.test(&with(p)).is_ok());
                        prop_assert!(domains == SPLIT || b.test(&with(p - 1)).is_err());
                    }
                }
            }
        }
        let exact = |d: &Demand| BigRational::new(d.budget.into(), d.over().into());
        let granted: BigRational = b.granted().map(|(_, g)| exact(&g.demand)).sum();
        prop_assert!(granted <= BigRational::new((19 * cpus).into(), 20.into()));
    }
}

#[test]
fn under_an_order_that_chooses_all_are_granted_and_under_another_what_fits() {
    use onbeat_model::policy::{Key, Order, Sets};

    for key in Key::ALL {
        let machine = Machine::under(Order::whole(*key, Sets::Global), 1, 1, share(1, 20));
        let mut book = Admission::new(machine);
        let granted = (0..4).filter(|id| book.admit(*id, &demand(15, 40)).is_ok()).count();
        assert_eq!(granted, if key.chooses() { 4 } else { 2 }, "{key:?}");
        assert_eq!(book.test(&demand(15, 40)).is_ok(), key.chooses());
        // What fits is counted as reserved; what does not is served beside it.
        assert_eq!(book.reserved(), share(3, 4));
    }
}
