// SPDX-License-Identifier: GPL-2.0-only
//! What the service grants is served by the scheduler where the simulator serves it, on the same terms.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use onbeat_analysis::plan::Place;
use onbeat_core::ffi::ob_server;
use onbeat_kernel::arena::{Member, Wakes, Waking};
use onbeat_kernel::engine::Engine;
use onbeat_kernel::reservations::{Book, Peer};
use onbeat_kernel::scheduler::{Reservation, Rule};
use onbeat_kernel::settings::Settings;
use onbeat_kernel::system::{Above, Facts, Owner, System, Watch};
use onbeat_model::policy::{CORE, CorePolicy, Server};
use onbeat_model::protocol::{Request, Reserve, Response};
use onbeat_model::taskset::{Kernel, Overheads, TaskEntry, TaskSet, Work};
use onbeat_model::units::{Fraction, MS};
use onbeat_sim::reservations;
use proptest::prelude::*;

/// A scheduler that notes what it is asked for.
#[derive(Clone)]
struct Notes {
    made: Rc<RefCell<Vec<Reservation>>>,
    cpus: u32,
}

impl Engine for Notes {
    fn reserve(&mut self, r: &Reservation) -> anyhow::Result<u32> {
        self.made.borrow_mut().push(r.clone());
        Ok(self.made.borrow().len() as u32 - 1)
    }

    fn assign(&mut self, _: i32, _: u32) -> anyhow::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _: &Member) -> anyhow::Result<()> {
        Ok(())
    }

    fn retire(&mut self, _: u32) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn release(&mut self, _: u32) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn place(&mut self, id: u32, place: &Place, _: u64) -> anyhow::Result<()> {
        self.made.borrow_mut()[id as usize].place = place.clone();
        Ok(())
    }

    fn swap(&mut self, id: u32, place: &Place, rate: u64, _: Rule) -> anyhow::Result<()> {
        self.place(id, place, rate)
    }

    fn resize(&mut self, id: u32, budget: u64, _period: u64) -> anyhow::Result<()> {
        self.made.borrow_mut()[id as usize].budget = budget;
        Ok(())
    }

    fn regroup(&mut self, _: u64) -> anyhow::Result<()> {
        Ok(())
    }

    fn reorder(&mut self, _: u32) -> anyhow::Result<()> {
        Ok(())
    }

    fn purse(&mut self, _: usize, _: &onbeat_kernel::arena::Purse) {}

    fn server(&self, _: u32) -> Option<ob_server> {
        None
    }

    fn members(&self, _: u32) -> Vec<Member> {
        Vec::new()
    }

    fn wakes(&mut self) -> anyhow::Result<Wakes> {
        Ok(Wakes::default())
    }

    fn lives(&self, _: &Waking) -> bool {
        false
    }

    fn online(&self) -> u64 {
        u64::MAX >> (64 - self.cpus)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// Every number is a process of root's with one thread.
struct Crowd;

impl System for Crowd {
    fn watch(&self, pid: u32, _: Option<u32>) -> io::Result<Watch> {
        Ok(Watch { pid, fd: None })
    }

    fn crowd(&self, _: u32) -> io::Result<usize> {
        Ok(1)
    }

    fn gone(&self, _: &Watch) -> bool {
        false
    }

    fn facts(&self, _: u32, _: Option<u32>) -> io::Result<Facts> {
        Ok(Facts { uids: [0].into(), cpus: u64::MAX, ..Facts::default() })
    }

    fn threads(&self, pid: u32) -> io::Result<Vec<i32>> {
        Ok(vec![pid as i32])
    }

    fn descendants(&self, _: u32, _: &BTreeSet<u32>) -> Vec<u32> {
        Vec::new()
    }

    fn owner(&self, _: i32) -> io::Result<Owner> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn above(&self) -> Above {
        Above::default()
    }
}

/// What the scheduler is asked for when the set's tasks come one after the other; nothing for those that are refused.
fn granted(set: &TaskSet, policy: &CorePolicy) -> Vec<Option<Reservation>> {
    let engine = Notes { made: Rc::default(), cpus: set.cpus };
    let settings = Settings {
        best_effort_share: set.best_effort_share,
        servers: set.servers(),
        user_share: Fraction::from_integer(1),
        ..Settings::whole(policy.order, policy.server, set.cpus, set.clusters)
    };
    let mut book = Book::new(engine.clone(), Crowd, settings);
    let ask = |(copy, pid): (onbeat_model::taskset::TaskCopy<'_>, u32)| {
        let reserve = Reserve {
            pid,
            thread: None,
            descendants: false,
            trial: false,
            name: copy.name(),
            budget_ns: copy.spec.budget.unwrap(),
            period_ns: copy.spec.period,
            deadline_ns: Some(copy.spec.deadline),
            cpus: copy.spec.affinity.clone(),
            marks: copy.spec.marks,
            value: None,
            class: None,
            group: None,
            purse: None,
            set: None,
        };
        match book.answer(Peer { uid: 0, connection: 1, share: None }, Request::Reserve(reserve)) {
            Response::Granted { id, .. } => Some(id),
            Response::Refused(_) => None,
            other => panic!("{other:?}"),
        }
    };
    let ids: Vec<Option<u32>> = set.copies().zip(1..).map(ask).collect();
    // Those that came later may have changed where others are.
    let made = engine.made.borrow();
    ids.into_iter().map(|id| made.get(id? as usize).cloned()).collect()
}

/// Sets of up to twice what fits, with affinities and deadlines before the period's end.
fn any_set() -> impl Strategy<Value = TaskSet> {
    let machine = prop::sample::select(vec![(1, 1), (2, 1), (2, 2), (4, 2), (6, 3), (8, 2)]);
    let task = (1..800u64, 20..1000u64, 0..3u32, 0..512u32, 1..=2u32, any::<bool>());
    (machine, 0..4u64, prop::collection::vec(task, 1..20)).prop_map(
        |((cpus, clusters), share, tasks)| {
            let entry = |(i, (part, period, shorter, mask, count, marks))| {
                let period: u64 = period * MS / 10;
                let deadline = if shorter == 0 { period * 4 / 5 } else { period };
                let list: Vec<u32> = (0..cpus).filter(|cpu| mask >> cpu & 1 == 1).collect();
                let budget = deadline * part / 1000;
                TaskEntry {
                    name: format!("task{i}"),
                    count,
                    period,
                    deadline,
                    budget: Some(budget),
                    offset: 0,
                    stagger: 0,
                    affinity: (mask < 256 && !list.is_empty()).then_some(list),
                    marks,
                    user: None,
                    value: None,
                    class: None,
                    group: None,
                    purse: None,
                    threads: 1,
                    sections: Vec::new(),
                    abort: false,
                    frames: None,
                    set: None,
                    bound: None,
                    waits: Default::default(),
                    work: Work::Uniform(budget, budget),
                }
            };
            TaskSet {
                name: "any".into(),
                title: String::new(),
                cpus,
                duration: 100 * MS,
                seed: 1,
                policies: Vec::new(),
                best_effort_share: Fraction::new(share, 40),
                max_share: None,
                clusters,
                kernel: Kernel::Plain,
                overheads: Overheads::default(),
                groups: Vec::new(),
                purses: Vec::new(),
                resources: Vec::new(),
                loads: Vec::new(),
                sets: Vec::new(),
                tasks: (0..).zip(tasks).map(entry).collect(),
                best_effort: None,
            }
        },
    )
}

proptest! {
    #[test]
    fn the_service_and_the_simulator_serve_what_is_granted_in_the_same_places(
        set in any_set(), server in prop::sample::select(Server::ALL),
    ) {
        for policy in CORE.iter().filter(|p| p.server == server) {
            let simulated = reservations(&set, policy);
            for (i, (ours, theirs)) in simulated.into_iter().zip(granted(&set, policy)).enumerate() {
                let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
                let place = Place { domain: ours.domain, cpus: ours.cpus, apart: ours.apart, split: ours.split };
                prop_assert_eq!(place, theirs.place, "task {} under {}", i, policy.name);
                let ours = (ours.budget, ours.period, ours.deadline, ours.kind, ours.order, ours.marks);
                let Reservation { budget, period, deadline, kind, order, marks, .. } = theirs;
                prop_assert_eq!(ours, (budget, period, deadline, kind, order, marks));
            }
        }
    }
}

#[test]
fn of_seven_movies_on_four_cpus_the_service_grants_six_if_it_may_split_and_the_simulator_serves_all()
 {
    let text = "cpus = 4\nduration = \"1s\"\n[[task]]\nname = \"movie\"\ncount = 7\nperiod = \"41ms\"\n\
                budget = \"25ms\"\nwork = { constant = \"20ms\" }\n";
    let set = TaskSet::from_bytes(text.as_bytes(), "set.toml".as_ref()).unwrap();
    for (name, fit) in [("p-edf+cbs", 4), ("c-edf+cbs", 6), ("g-edf+cbs", 6), ("edf-wm+cbs", 6)] {
        let policy = CORE.iter().find(|p| p.name == name).unwrap();
        assert_eq!(granted(&set, policy).iter().flatten().count(), fit, "{name}");
        assert_eq!(reservations(&set, policy).iter().flatten().count(), 7, "{name}");
    }
}
