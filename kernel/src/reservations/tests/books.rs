// SPDX-License-Identifier: GPL-2.0-only
//! Whatever is asked in whatever order, the books of service and scheduler agree.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Ask(Peer, Box<Request>),
    Kill(u32),
    Spawn(u32, u32),
    Cpus(u64),
    Deadline(u64),
    Tick,
    Close(u64),
}

fn any_peer() -> impl Strategy<Value = Peer> {
    prop_oneof![Just(ROOT), Just(USER), Just(OTHER)]
}

fn any_request() -> impl Strategy<Value = Request> {
    let times = prop_oneof![Just(0), Just(u64::MAX), 1..50 * MS];
    let cpus = proptest::option::of(proptest::collection::vec(0u32..6, 0..4));
    let group =
        proptest::option::weighted(0.3, prop_oneof![Just("a".to_owned()), Just("b".to_owned())]);
    let deadline = proptest::option::of(times.clone());
    let terms = (0u32..8, times.clone(), times, deadline, cpus, group).prop_map(
        |(pid, budget_ns, period_ns, deadline_ns, cpus, group)| {
            let name = "x".into();
            Reserve {
                pid,
                thread: None,
                name,
                budget_ns,
                period_ns,
                deadline_ns,
                cpus,
                group,
                ..Default::default()
            }
        },
    );
    let portion = prop_oneof![2 => Just(None), 1 => Just(Some(None)), 1 => (1u64..200).prop_map(|w| Some(Some(w)))];
    let names = prop_oneof![Just("a"), Just("b"), Just("c")];
    let groups = (terms.clone(), names, portion).prop_map(|(r, name, portion)| {
        Request::Group(protocol::Group {
            name: name.into(),
            budget_ns: portion.is_none().then_some(r.budget_ns),
            weight: portion.flatten(),
            period_ns: r.group.is_none().then_some(r.period_ns),
            deadline_ns: r.deadline_ns.filter(|_| portion.is_none()),
            cpus: r.cpus,
            group: r.group,
            ..Default::default()
        })
    });
    prop_oneof![
        6 => terms.prop_map(Request::Reserve),
        2 => groups,
        3 => (0u32..10).prop_map(|id| Request::Release { id, own: false }),
        1 => Just(Request::Status),
        1 => Just(Request::Stats),
        1 => Just(Request::Beats),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_peer(), any_request()).prop_map(|(p, r)| Step::Ask(p, Box::new(r))),
        1 => (1u32..8).prop_map(Step::Kill),
        3 => (1u32..8, prop_oneof![Just(0), Just(1000), Just(1001)]).prop_map(|(p, u)| Step::Spawn(p, u)),
        1 => (1u64..16).prop_map(Step::Cpus),
        1 => (0u64..2_000_000_000).prop_map(Step::Deadline),
        2 => Just(Step::Tick),
        1 => (1u64..4).prop_map(Step::Close),
    ]
}

proptest! {
    /// Whatever is asked in whatever order: the books of service and scheduler agree, no CPU is
    /// promised twice by what was granted since the last change, users stay within their share.
    #[test]
    fn the_books_agree_whatever_is_asked(
        order in prop_oneof![
            Just(Order::GLOBAL_EDF), Just(Order::PARTITIONED_EDF), Just(Order::CLUSTERED_EDF),
            Just(Order::EDF_WM), Just(Order::EDF_WMR)
        ],
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let (mut book, fake) = book(order, 4);
        for step in steps {
            match step {
                Step::Ask(peer, request) => {
                    let before = fake.0.borrow().servers.len();
                    let answer = book.answer(peer, (*request).clone());
                    if let (Response::Granted { id, cpus, .. }, Request::Reserve(r)) = (&answer, &*request) {
                        let world = fake.0.borrow();
                        let (server, members) = &world.servers[id];
                        prop_assert!(r.check().is_ok());
                        prop_assert!(peer.uid == 0 || world.processes[&r.pid].0.uids == [peer.uid].into());
                        prop_assert_eq!(members, &world.processes[&r.pid].1.iter().copied().collect());
                        prop_assert!(server.place.cpus & world.online != 0 && !cpus.is_empty());
                        let machine = book.common().machine(u64::MAX, &Above::default());
                        let domain = machine.domain_cpus(server.place.domain);
                        prop_assert!(server.within.is_some() || server.place.cpus & !domain == 0);
                        prop_assert_eq!(server.within.is_some(), r.group.is_some());
                        prop_assert_eq!(server.within.is_some(), server.account.is_none());
                        if let Some(split) = &server.place.split {
                            let sum: u64 = split.shares.iter().map(|(_, budget)| budget).sum();
                            prop_assert_eq!(sum, r.budget_ns);
                            prop_assert!(split.shares.iter().all(|(cpu, _)| cpus.contains(cpu)));
                            prop_assert_eq!(1 << split.shares[0].0, server.place.cpus);
                        }
                        if let Some(list) = &r.cpus {
                            prop_assert_eq!(server.place.cpus & !mask_of(list), 0);
                        }
                    } else if matches!(answer, Response::Refused(_) | Response::Error { .. }) {
                        prop_assert_eq!(fake.0.borrow().servers.len(), before);
                    }
                }
                Step::Kill(pid) => fake.kill(pid * 10),
                Step::Spawn(pid, uid) => {
                    if !fake.0.borrow().processes.contains_key(&pid) {
                        fake.process(pid, uid, 3);
                    }
                }
                Step::Cpus(mask) => fake.0.borrow_mut().online = mask,
                Step::Deadline(bandwidth) => fake.0.borrow_mut().above.deadline = bandwidth,
                Step::Tick => book.tick(),
                Step::Close(connection) => book.disconnected(connection),
            }
            for (h, up) in book.held.values().filter_map(|h| h.within.map(|up| (h, &book.held[&up]))) {
                let whose = [0, up.record.uid].contains(&h.record.uid);
                prop_assert!(up.members.is_some() && whose, "{h:?} in {up:?}");
            }
            for (id, held) in book.held.iter().filter(|(_, h)| h.state == State::Live) {
                prop_assert_eq!(fake.0.borrow().servers[id].0.budget, held.record.budget_ns);
                // Budgets of whose members there may be any number; what is left is never divided twice.
                let inside = || book.held.values().filter(|h| h.within == Some(*id) && h.state == State::Live);
                let load = |h: &Held| h.record.budget_ns as f64 / h.record.period_ns as f64;
                let weighted = inside().filter(|h| h.portion.weight().is_some()).count();
                let sum: f64 = inside().map(load).sum();
                prop_assert!(weighted == 0 || sum <= load(held) * (1.0 + 1e-9), "{sum} in {held:?}");
            }
            let world = fake.0.borrow();
            let held: BTreeSet<u32> = book.held.keys().copied().collect();
            prop_assert_eq!(held, world.servers.keys().copied().collect());
            let billionths = |h: &&Held| h.record.budget_ns * 1_000 / h.record.period_ns.min(h.record.deadline_ns);
            let live = || book.held.values().filter(|h| h.state == State::Live);
            let outermost = || live().filter(|h| h.within.is_none());
            let sure: u64 = outermost().filter(|h| h.guaranteed).map(|h| billionths(&h)).sum();
            prop_assert!(sure <= 4 * 950, "{sure} thousandths of a CPU are promised");
            for uid in [1000, 1001] {
                let mine = || outermost().filter(|h| h.record.uid == uid);
                prop_assert!(mine().filter(|h| h.members.is_some()).count() <= 1);
                let mine = mine().map(|h| billionths(&h)).sum::<u64>();
                prop_assert!(mine <= 2000, "user {uid} holds {mine} thousandths of a CPU");
            }
        }
    }
}
