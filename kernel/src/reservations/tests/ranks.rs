// SPDX-License-Identifier: GPL-2.0-only
//! Classes hard and soft.

use onbeat_model::policy::Policy;
use onbeat_model::rank::Rank;

use super::*;

fn of_class(mut request: Request, class: Rank, group: Option<&str>) -> Request {
    if let Request::Reserve(r) = &mut request {
        (r.class, r.group) = (Some(class), group.map(str::to_owned));
    }
    request
}

/// Two CPUs under the preset.
fn preset() -> (Book<Fake, Fake>, Fake) {
    let policy: Policy = "edf-hsb-ns".parse().unwrap();
    let (mut book, fake) = book(policy.order().unwrap(), 2);
    book.draw().unwrap();
    (book, fake)
}

#[test]
fn a_class_means_nothing_where_the_order_does_not_rank_nor_in_a_group() {
    let (mut book, fake) = book(Order::GLOBAL_EDF, 2);
    fake.process(10, 0, 1);
    let why = failed(book.answer(ROOT, of_class(ask(10, 1, 10), Rank::Soft, None)));
    assert!(why.contains("knows no classes") && why.contains("edf-hsb-ns"), "{why}");

    let (mut book, fake) = preset();
    fake.process(10, 0, 1);
    let group = a_group("g", 1, 10);
    granted(book.answer(ROOT, Request::Group(group)));
    let why = failed(book.answer(ROOT, of_class(ask(10, 1, 10), Rank::Hard, Some("g"))));
    assert!(why.contains("turns within the group"), "{why}");
}

#[test]
fn hard_ones_have_a_cpu_each_and_what_one_cpu_cannot_hold_is_refused_though_two_could() {
    let (mut book, fake) = preset();
    let of = |pid, budget, class| of_class(ask(pid, budget, 10), class, None);
    (10..16).for_each(|pid| fake.process(pid, 0, 1));
    let first = granted(book.answer(ROOT, of(10, 5, Rank::Hard)));
    let second = granted(book.answer(ROOT, of(11, 5, Rank::Hard)));
    let cpus = |id: &u32| fake.0.borrow().servers[id].0.place.cpus;
    assert_eq!((cpus(&first).count_ones(), cpus(&second).count_ones()), (1, 1));
    assert_ne!(cpus(&first), cpus(&second));
    refused(book.answer(ROOT, of(12, 5, Rank::Hard)));
    let soft = granted(book.answer(ROOT, of(12, 3, Rank::Soft)));
    assert_eq!(cpus(&soft), 0b11);
    // Best effort's servers have 10 % of each CPU, whoever asks.
    granted(book.answer(ROOT, of(13, 3, Rank::Soft)));
    refused(book.answer(ROOT, of(14, 3, Rank::Soft)));
}
