// SPDX-License-Identifier: GPL-2.0-only
//! Classes hard and soft; best effort's servers in groups.

use onbeat_model::policy::Policy;
use onbeat_model::rank::{Rank, Servers};

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
    assert!(why.contains("knows no classes") && why.contains("edf-hsb"), "{why}");

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

#[test]
fn a_hard_one_that_is_to_have_its_budget_more_often_is_tested_anew_though_it_is_no_denser() {
    // With 1 ms, too: what it has of its present 5 may be due within its next period.
    for budget in [5, 1] {
        let (mut book, fake) = preset();
        (10..14).for_each(|pid| fake.process(pid, 0, 1));
        let Request::Reserve(r) = of_class(ask(10, 5, 1000), Rank::Hard, None) else { panic!() };
        let rare = Request::Reserve(Reserve { deadline_ns: Some(10 * MS), ..r });
        let id = granted(book.answer(ROOT, rare));
        let often = Request::Resize { id, budget_ns: budget * MS, period_ns: 10 * MS };
        granted(book.answer(ROOT, often));
        // Two CPUs less 0.2 have room for two of these beside 0.5, and for a third beside 0.005.
        let soft = |pid| of_class(ask(pid, 5, 10), Rank::Soft, None);
        granted(book.answer(ROOT, soft(11)));
        granted(book.answer(ROOT, soft(12)));
        refused(book.answer(ROOT, soft(13)));
    }
}

fn with_servers(name: &str, budget: u64, servers: Servers) -> Request {
    Request::Group(protocol::Group { servers: Some(servers), ..a_group(name, budget, 10) })
}

/// Two CPUs under a policy that does not rank.
fn drawing() -> (Book<Fake, Fake>, Fake) {
    let fake = Fake::new(2);
    let settings = Settings::whole(Order::GLOBAL_EDF, Server::hard(), 2, 1);
    (Book::new(fake.clone(), fake.clone(), settings), fake)
}

const TWO: Servers = Servers { count: 2, budget: MS, period: 10 * MS };

#[test]
fn a_group_has_the_servers_of_best_effort_that_root_asks_for_and_both_go_together() {
    let (mut book, fake) = drawing();
    let id = granted(book.answer(ROOT, with_servers("g", 4, TWO)));
    let servers = |fake: &Fake| {
        let world = fake.0.borrow();
        let draws = world.servers.values().filter(|(r, _)| r.draws).map(|(r, _)| r.clone());
        draws.collect::<Vec<_>>()
    };
    let made = servers(&fake);
    assert!(made.iter().all(|r| r.within == Some(id) && (r.budget, r.period) == (MS, 10 * MS)));
    assert_eq!(made.len(), 2);
    let why = failed(book.answer(ROOT, with_servers("h", 4, TWO)));
    assert!(why.contains("\"g\" has best effort's servers"), "{why}");
    assert!(matches!(
        book.answer(ROOT, Request::Release { id, own: false }),
        Response::Released(_)
    ));
    assert!(fake.0.borrow().servers.is_empty());
    granted(book.answer(ROOT, with_servers("h", 4, TWO)));
}

#[test]
fn servers_of_best_effort_that_cannot_be_are_refused_with_what_to_do_and_nothing_stays() {
    let said = |book: &mut Book<Fake, Fake>, peer, servers| {
        failed(book.answer(peer, with_servers("g", 4, servers)))
    };
    let (mut book, _) = preset();
    assert!(said(&mut book, ROOT, TWO).contains("--best-effort-servers 0:5ms:50ms"));
    let (mut book, fake) = drawing();
    let peer = Peer { uid: 1000, connection: 7, share: None };
    assert!(said(&mut book, peer, TWO).contains("root's to make"));
    assert!(said(&mut book, ROOT, Servers { count: 0, ..TWO }).contains("1 or more"));
    assert!(said(&mut book, ROOT, Servers { budget: 0, ..TWO }).contains("from 1ns"));
    assert!(
        said(&mut book, ROOT, Servers { budget: 5 * MS, ..TWO }).contains("more than the group")
    );
    // There are eight places in all.
    let many = Servers { count: 8, budget: MS / 8, period: 10 * MS };
    assert!(said(&mut book, ROOT, many).contains("no room"));
    assert!(fake.0.borrow().servers.is_empty());
    granted(book.answer(ROOT, with_servers("g", 4, TWO)));
}
