// SPDX-License-Identifier: GPL-2.0-only
//! A machine that is not there: its engine and its processes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use onbeat_core::ffi::ob_server;

use onbeat_model::units::MS;

use super::super::*;
use crate::arena::{Member, Wakes, Waking};
use crate::scheduler::Rule;
use crate::system::Owner;

/// A machine that is not there.
#[derive(Default)]
pub struct World {
    pub servers: BTreeMap<u32, (Reservation, BTreeSet<i32>)>,
    pub processes: BTreeMap<u32, (Facts, Vec<i32>)>,
    /// Processes and those that have started them.
    pub parents: BTreeMap<u32, u32>,
    /// Threads the scheduler does not hold.
    pub foreign: BTreeSet<i32>,
    pub above: Above,
    pub online: u64,
    pub places: usize,
    /// What happens to this process just before its threads are listed for the n-th time.
    pub turn: Option<(u32, usize, Turn)>,
    /// Domains by number, as far as they have been regrouped.
    pub domains: BTreeMap<u32, u64>,
    /// Swaps, in their order.
    pub rules: Vec<(u32, Rule)>,
    pub others: u32,
    /// Watched processes that are gone though another has their number.
    pub dead: BTreeSet<u32>,
    /// What the scheduler says of wake-ups, and how often it has been asked.
    pub wakes: Wakes,
    pub looks: usize,
    /// What servers have left, and their deadlines.
    pub pairs: BTreeMap<u32, (i64, u64)>,
    /// How often somebody has asked how long CPUs were idle.
    pub idled: u64,
    /// How often a process's threads were looked at.
    pub examined: usize,
    /// Threads that stay where they are, and how often one was told to leave.
    pub stuck: BTreeSet<i32>,
    pub left: usize,
    /// Reservations that are closed though they stay.
    pub retired: BTreeSet<u32>,
}

/// What can happen to a process between check and assignment.
#[derive(Clone, Copy)]
pub enum Turn {
    /// It ends, and one of that user gets its number.
    Replaced(u32),
    /// It becomes that user's.
    Becomes(u32),
    /// Its last thread ends, and a process of somebody else gets the number.
    Loses(i32),
}

#[derive(Clone, Default)]
pub struct Fake(pub Rc<RefCell<World>>);

impl Fake {
    pub fn new(cpus: u32) -> Self {
        let fake = Fake::default();
        let mut world = fake.0.borrow_mut();
        (world.online, world.places) = ((1 << cpus) - 1, 8);
        drop(world);
        fake
    }

    pub fn tids(&self, id: u32) -> Vec<i32> {
        self.members(id).iter().map(|member| member.tid).collect()
    }

    pub fn process(&self, pid: u32, uid: u32, threads: i32) {
        let facts = Facts { uids: [uid].into(), cpus: u64::MAX, ..Facts::default() };
        let threads = (0..threads).map(|i| pid as i32 + i).collect();
        self.0.borrow_mut().processes.insert(pid, (facts, threads));
    }

    pub fn turn(&self, pid: u32) {
        let mut world = self.0.borrow_mut();
        let Some((_, left, what)) = world.turn.filter(|turn| turn.0 == pid) else { return };
        world.turn = (left > 1).then_some((pid, left - 1, what));
        if left > 1 {
            return;
        }
        let process = world.processes.get_mut(&pid).unwrap();
        match what {
            Turn::Replaced(uid) => {
                *process = (Facts { uids: [uid].into(), ..process.0.clone() }, vec![4000, 4001]);
                world.dead.insert(pid);
            }
            Turn::Becomes(uid) => process.0.uids = [uid].into(),
            Turn::Loses(tid) => process.1.retain(|t| *t != tid),
        }
    }

    pub fn kill(&self, pid: u32) {
        let mut world = self.0.borrow_mut();
        let Some((_, threads)) = world.processes.remove(&pid) else { return };
        for (_, members) in world.servers.values_mut() {
            members.retain(|tid| !threads.contains(tid));
        }
    }
}

impl Engine for Fake {
    fn reserve(&mut self, r: &Reservation) -> anyhow::Result<u32> {
        let mut world = self.0.borrow_mut();
        let free = (0..world.places as u32).find(|id| !world.servers.contains_key(id));
        let id = free.ok_or_else(|| anyhow::anyhow!("no room for another reservation"))?;
        world.servers.insert(id, (r.clone(), BTreeSet::new()));
        Ok(id)
    }

    fn assign(&mut self, tid: i32, id: u32) -> anyhow::Result<()> {
        let mut world = self.0.borrow_mut();
        if world.foreign.contains(&tid) {
            anyhow::bail!("thread {tid} is not under this scheduler");
        }
        for (_, members) in world.servers.values_mut() {
            members.remove(&tid);
        }
        world.servers.get_mut(&id).expect("a reservation that exists").1.insert(tid);
        Ok(())
    }

    fn leave(&mut self, member: &Member) -> anyhow::Result<()> {
        let mut world = self.0.borrow_mut();
        world.left += 1;
        if !world.stuck.contains(&member.tid) {
            for (_, members) in world.servers.values_mut() {
                members.remove(&member.tid);
            }
        }
        Ok(())
    }

    fn retire(&mut self, id: u32) -> anyhow::Result<bool> {
        let mut world = self.0.borrow_mut();
        let empty = world.servers[&id].1.is_empty();
        if empty {
            world.retired.insert(id);
        }
        Ok(empty)
    }

    fn release(&mut self, id: u32) -> anyhow::Result<bool> {
        let mut world = self.0.borrow_mut();
        let inside = world.servers.values().any(|(r, _)| r.within == Some(id));
        let empty = world.servers.get(&id).expect("released once").1.is_empty() && !inside;
        if empty {
            world.servers.remove(&id);
        }
        Ok(empty)
    }

    fn place(&mut self, id: u32, place: &Place, rate: u64) -> anyhow::Result<()> {
        let mut world = self.0.borrow_mut();
        let server = &mut world.servers.get_mut(&id).expect("a reservation that exists").0;
        server.place = place.clone();
        if let Some(account) = server.account.as_mut().filter(|account| account.rate > 0) {
            account.rate = rate;
        }
        Ok(())
    }

    fn swap(&mut self, id: u32, place: &Place, rate: u64, rule: Rule) -> anyhow::Result<()> {
        self.place(id, place, rate)?;
        let mut world = self.0.borrow_mut();
        assert!(world.domains.contains_key(&place.domain), "{place:?} of {:?}", world.domains);
        let server = &mut world.servers.get_mut(&id).expect("a reservation that exists").0;
        (server.kind, server.order) = (rule.kind, rule.order);
        world.rules.push((id, rule));
        Ok(())
    }

    fn resize(&mut self, id: u32, budget: u64, period: u64) -> anyhow::Result<()> {
        let mut world = self.0.borrow_mut();
        let server = &mut world.servers.get_mut(&id).expect("a reservation that exists").0;
        (server.budget, server.period) = (budget, period);
        Ok(())
    }

    fn regroup(&mut self, cpus: u64) -> anyhow::Result<()> {
        let mut world = self.0.borrow_mut();
        for others in world.domains.values_mut() {
            *others &= !cpus;
        }
        world.domains.retain(|_, cpus| *cpus != 0);
        world.domains.insert(cpus.trailing_zeros(), cpus);
        Ok(())
    }

    fn reorder(&mut self, order: u32) -> anyhow::Result<()> {
        self.0.borrow_mut().others = order;
        Ok(())
    }

    fn purse(&mut self, _: usize, _: &crate::arena::Purse) {}

    fn server(&self, id: u32) -> Option<ob_server> {
        let world = self.0.borrow();
        let (r, members) = world.servers.get(&id)?;
        let (e, s) = world.pairs.get(&id).copied().unwrap_or_default();
        let Reservation { budget, period, deadline, .. } = *r;
        let threads = members.len() as u32;
        Some(ob_server {
            used: 1,
            threads,
            jobs: 7,
            budget,
            period,
            deadline,
            e,
            s,
            ..Default::default()
        })
    }

    fn members(&self, id: u32) -> Vec<Member> {
        let world = self.0.borrow();
        let member = |tid: &i32| Member { tid: *tid, slot: 0, payload: 0 };
        world.servers.get(&id).map_or(vec![], |s| s.1.iter().map(member).collect())
    }

    fn wakes(&mut self) -> anyhow::Result<Wakes> {
        let mut world = self.0.borrow_mut();
        world.looks += 1;
        Ok(world.wakes.clone())
    }

    fn lives(&self, thread: &Waking) -> bool {
        !self.0.borrow().foreign.contains(&thread.tid)
    }

    fn online(&self) -> u64 {
        self.0.borrow().online
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

impl System for Fake {
    fn watch(&self, pid: u32, thread: Option<u32>) -> io::Result<Watch> {
        let world = self.0.borrow();
        let has = |threads: &[i32]| thread.is_none_or(|tid| threads.contains(&(tid as i32)));
        let known = world.processes.get(&pid).is_some_and(|(_, threads)| has(threads));
        known.then_some(Watch { pid, fd: None }).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn gone(&self, watch: &Watch) -> bool {
        let world = self.0.borrow();
        !world.processes.contains_key(&watch.pid) || world.dead.contains(&watch.pid)
    }

    fn facts(&self, pid: u32, _: Option<u32>) -> io::Result<Facts> {
        let mut world = self.0.borrow_mut();
        world.examined += 1;
        world.processes.get(&pid).map(|p| p.0.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn threads(&self, pid: u32) -> io::Result<Vec<i32>> {
        self.turn(pid);
        let world = self.0.borrow();
        world.processes.get(&pid).map(|p| p.1.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn crowd(&self, pid: u32) -> io::Result<usize> {
        let world = self.0.borrow();
        let process = world.processes.get(&pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(process.1.len())
    }

    fn descendants(&self, pid: u32, but: &BTreeSet<u32>) -> Vec<u32> {
        let world = self.0.borrow();
        let mine = |child: u32| {
            let way = std::iter::successors(Some(child), |pid| world.parents.get(pid).copied());
            let way: Vec<u32> = way.take_while(|p| *p != pid).collect();
            !way.iter().any(|p| but.contains(p))
        };
        let above =
            |pid: u32| std::iter::successors(Some(pid), |pid| world.parents.get(pid).copied());
        world
            .parents
            .keys()
            .copied()
            .filter(|child| above(*child).skip(1).any(|p| p == pid) && mine(*child))
            .collect()
    }

    fn owner(&self, tid: i32) -> io::Result<Owner> {
        let world = self.0.borrow();
        let mut all = world.processes.iter();
        let (pid, (facts, _)) =
            all.find(|(_, (_, threads))| threads.contains(&tid)).ok_or(io::ErrorKind::NotFound)?;
        let (name, program) = (format!("thread {tid}"), format!("program {pid}"));
        let uid = *facts.uids.first().unwrap();
        Ok(Owner { pid: *pid, uid, alone: facts.uids.len() == 1, name, program })
    }

    fn above(&self) -> Above {
        self.0.borrow().above.clone()
    }

    fn idle(&self) -> BTreeMap<u32, u64> {
        let mut world = self.0.borrow_mut();
        world.idled += 1;
        [(0, world.idled * MS)].into()
    }
}
