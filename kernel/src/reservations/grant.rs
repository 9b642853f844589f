// SPDX-License-Identifier: GPL-2.0-only
//! Granting: who may reserve for which process or thread, with what budget, on which CPUs; and what is done then.

use super::*;

impl<E: Engine, S: System> Book<E, S> {
    pub(super) fn reserve(&mut self, peer: Peer, r: &Reserve) -> Result<Response, Problem> {
        r.check().or_else(|e| problem(e, "ask again with other values"))?;
        let within = self.group_named(peer, r.group.as_deref())?;
        // What says no and costs little comes before a look at each of the threads.
        self.check_free(r, |h| h.record.uid == peer.uid)?;
        if let Some(refusal) = self.holds_too_many(peer, r, within)? {
            return Ok(self.refuse(*refusal));
        }
        let (watch, facts) = self.examine(peer, r)?;
        let affinity = facts.cpus;
        let room = self.room_for(r, affinity, within)?;
        let hard = r.class == Some(Rank::Hard);
        self.check_length(peer, r, room, self.rooms[room].settings.server_of(hard))?;
        self.check_class(r, room)?;
        self.check_value(r, room, within)?;
        self.purse_named(peer, r.purse.as_deref(), room)?;
        self.check_free(r, |_| true)?;
        let trials: Vec<u32> = self.holders_of(r).map(|h| h.record.id).collect();
        trials.into_iter().for_each(|id| self.end_trial(id));
        if let Some(group) = within {
            let (budget, period) = (r.budget_ns, r.period_ns);
            self.part(group, &Newcomer { uid: peer.uid, budget, period, weight: None })?;
        }
        let demand = self.demand(r, affinity, room)?;
        let mut space = self.space(peer, &demand, room, within)?;
        if space.is_err()
            && !r.trial
            && within.is_none()
            && self.are_trials_in_the_way(peer, &demand, room)
        {
            self.end_trials();
            space = self.space(peer, &demand, room, within)?;
        }
        match space {
            Ok(place) => self.grant(peer, r, (watch, &facts), demand, (room, place), within),
            Err(refusal) => Ok(self.refuse(*refusal)),
        }
    }

    /// Whether nobody of those that `of` says has a reservation for that process or thread but on trial.
    fn check_free(&self, r: &Reserve, of: impl Fn(&Held) -> bool) -> Result<(), Problem> {
        let stays = |h: &&Held| (r.trial || !h.record.trial) && of(h);
        let Some(h) = self.holders_of(r).find(stays) else { return Ok(()) };
        let whose = match h.record.thread {
            0 => format!("process {}", r.pid),
            tid => format!("thread {tid} of process {}", r.pid),
        };
        problem(
            format!("{whose} already has reservation {}", h.record.id),
            "release that one first",
        )
    }

    /// Who has a reservation for that process or thread already. Threads may have one each, but not beside one of the
    /// whole process, which is theirs, too.
    fn holders_of(&self, r: &Reserve) -> impl Iterator<Item = &Held> {
        let (pid, thread) = (r.pid, r.thread.unwrap_or(0));
        let same = move |h: &&Held| {
            h.state == State::Live
                && h.record.pid == pid
                && (thread == 0 || [0, thread].contains(&h.record.thread))
        };
        let lives = |h: &&Held| h.watch.as_ref().is_some_and(|watch| !self.system.gone(watch));
        self.held.values().filter(same).filter(lives)
    }

    /// The refusal, if this user holds as many reservations as one may.
    fn holds_too_many(
        &self,
        peer: Peer,
        r: &Reserve,
        within: Option<u32>,
    ) -> Result<Option<Box<Refusal>>, Problem> {
        let mine = self.held.values().filter(|h| h.record.uid == peer.uid && h.within.is_none());
        if peer.uid == 0 || within.is_some() || mine.count() < limits::RESERVATIONS {
            return Ok(None);
        }
        let room = self.room_for(r, u64::MAX, within)?;
        let demand = self.demand(r, u64::MAX, room)?;
        Ok(self.user_limit(peer, &demand, room, &|_| false, 0).err())
    }

    /// Whether what is asked for would fit if there were no trials.
    fn are_trials_in_the_way(&self, peer: Peer, demand: &Demand, room: usize) -> bool {
        let tried = |h: &Held| h.state == State::Live && h.record.trial;
        if !self.held.values().any(tried) {
            return false;
        }
        let mut admission = self.rooms[room].admission.clone();
        let trials = self.held.values().filter(|h| tried(h) && h.room == room);
        trials.for_each(|h| {
            admission.release(h.record.id);
        });
        let left = self.leaving_keys(room);
        left.into_iter().for_each(|key| {
            admission.release(key);
        });
        self.user_limit(peer, demand, room, &tried, u64::MAX).is_ok()
            && admission.test(demand).is_ok()
    }

    /// Whether budget and period are such as can be served.
    pub(super) fn check_length(
        &self,
        peer: Peer,
        r: &Reserve,
        room: usize,
        server: Server,
    ) -> Result<(), Problem> {
        if peer.uid != 0 && r.budget_ns < limits::BUDGET_MIN {
            let least = format_duration(limits::BUDGET_MIN);
            let asked = format_duration(r.budget_ns);
            return problem(
                format!("a budget of {asked} is too short to be enforced"),
                format!("ask for at least {least}; a longer period keeps the share the same"),
            );
        }
        self.check_rest(r, room, server)
    }

    /// Whether nobody has to rest for longer than the kernel lets anybody wait.
    pub(super) fn check_rest(
        &self,
        r: &Reserve,
        room: usize,
        server: Server,
    ) -> Result<(), Problem> {
        let settings = &self.rooms[room].settings;
        if settings.longest_rest(server, r.budget_ns, r.period_ns) > REST_MOST {
            let rests = server.rests();
            let policy = if rests { server.name().into() } else { settings.policy() };
            let most = format_duration(REST_MOST);
            return problem(
                format!(
                    "under {policy} a program that has used up its budget waits for the next period: {} here, \
                     and the kernel ends a scheduler that keeps anybody waiting for 10s",
                    format_duration(r.period_ns - r.budget_ns)
                ),
                format!(
                    "ask for a period at most {most} longer than the budget; the same share will do"
                ),
            );
        }
        Ok(())
    }

    /// Whether there is room for what is asked for, and where. A member is where its group is.
    pub(super) fn space(
        &mut self,
        peer: Peer,
        demand: &Demand,
        room: usize,
        within: Option<u32>,
    ) -> Result<Result<Place, Box<Refusal>>, Problem> {
        self.refresh_above(ABOVE_FRESH);
        self.look_at_cpus();
        if let Some(group) = within {
            return self.member_place(peer, demand, group).map(Ok);
        }
        self.lapse();
        self.soon = None;
        let mine = |at| self.user_limit(peer, demand, room, &|_| false, at);
        Ok(match mine(0) {
            Ok(()) => self.rooms[room].admission.test(demand).map_err(|mut refusal| {
                self.soon = self.fits_at(room, demand);
                self.name_leaving(room, &mut refusal, self.soon);
                if let Some(cpu) = self.common().interrupt_cpu {
                    let name = format!("CPU {cpu} is kept for interrupts");
                    let utilization = Fraction::from_integer(1);
                    refusal.holders.insert(0, Holder { name, utilization });
                }
                refusal
            }),
            Err(mut refusal) => {
                self.soon = self.ends_of(peer.uid).into_iter().find(|at| mine(*at).is_ok());
                self.name_leaving(room, &mut refusal, self.soon);
                Err(refusal)
            }
        })
    }

    /// Values that would fit are rounded to what people like to read, on the side that fits.
    pub(super) fn refuse(&mut self, mut refusal: Refusal) -> Response {
        refusal.nearest = refusal.nearest.rounded();
        Response::Refused(refusal)
    }

    /// Whether this user may reserve for this process or thread; returns a watch on it and what was found.
    pub(super) fn examine(&self, peer: Peer, r: &Reserve) -> Result<(Watch, Facts), Problem> {
        let pid = r.pid;
        let none = || match r.thread {
            None => Problem(format!("there is no process {pid}"), "give a pid that lives".into()),
            Some(tid) => Problem(
                format!("process {pid} has no thread {tid}"),
                "give a tid that lives, and the pid of its process".into(),
            ),
        };
        let watch = self.system.watch(pid, r.thread).map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Problem(
                format!("process {pid} cannot be watched: {e}"),
                "give reservations back, or raise the limit of open files".into(),
            ),
            _ => none(),
        })?;
        if peer.uid != 0 {
            let threads = self.system.crowd(pid).map_err(|_| none())?;
            if threads > limits::THREADS {
                return problem(
                    format!(
                        "process {pid} has {threads} threads, and each would have to be looked at"
                    ),
                    format!(
                        "reserve while it has no more than {} (those that come later are covered, too), or ask root to",
                        limits::THREADS
                    ),
                );
            }
        }
        let facts = self.system.facts(pid, r.thread).map_err(|_| none())?;
        if self.system.gone(&watch) {
            return Err(none());
        }
        owned(peer, pid, &facts)?;
        if facts.kernel {
            return problem(
                format!("process {pid} is a thread of the kernel"),
                "reserve for a program",
            );
        }
        Ok((watch, facts))
    }

    /// Whether a process whose threads have just joined a reservation is still the one that was examined, and its
    /// user's.
    pub(super) fn confirm(&self, peer: Peer, id: u32) -> Result<(), Problem> {
        let held = &self.held[&id];
        let watch = held.watch.as_ref().expect("a process's reservation has a watch");
        let pid = watch.pid;
        let ended = || match held.record.thread {
            0 => Problem(format!("process {pid} has ended"), "give a pid that lives".into()),
            tid => Problem(
                format!("thread {tid} of process {pid} has ended"),
                "give a tid that lives".into(),
            ),
        };
        if peer.uid != 0 {
            let facts = self.system.facts(pid, None).map_err(|_| ended())?;
            owned(peer, pid, &facts)?;
        }
        if self.system.gone(watch) { Err(ended()) } else { Ok(()) }
    }

    /// What is asked of the admission test.
    pub(super) fn demand(
        &self,
        r: &Reserve,
        affinity: u64,
        room: usize,
    ) -> Result<Demand, Problem> {
        let settings = &self.rooms[room].settings;
        let all = u64::MAX >> (64 - settings.cpus);
        let asked = match &r.cpus {
            None => all,
            Some(list) => {
                if let Some(cpu) = list.iter().find(|c| **c >= settings.cpus) {
                    let there = format_cpus(&cpus_of(all));
                    return problem(
                        format!("there is no CPU {cpu}"),
                        format!("the CPUs are {there}"),
                    );
                }
                mask_of(list)
            }
        };
        let cpus = asked & affinity & settings.usable & settings.set;
        if cpus == 0 {
            let show = |mask| format_cpus(&cpus_of(mask & all));
            if let Some(cpu) =
                settings.interrupt_cpu.filter(|cpu| asked & affinity & all == 1 << cpu)
            {
                return problem(
                    format!("CPU {cpu} is kept for interrupts (--interrupt-cpu of scx_onbeat)"),
                    "choose other CPUs, or change the process's affinity (taskset)",
                );
            }
            return problem(
                format!(
                    "no CPU is left: asked for are {}, the process may run on {}, reservations on {}",
                    show(asked),
                    show(affinity),
                    show(settings.usable & settings.set)
                ),
                "choose CPUs that are in all three, or change the process's affinity (taskset)",
            );
        }
        Ok(Demand {
            name: r.name.clone(),
            budget: r.budget_ns,
            period: r.period_ns,
            deadline: r.deadline(),
            cpus: (cpus != all & settings.set).then(|| cpus_of(cpus)),
            hard: r.class == Some(Rank::Hard),
        })
    }

    /// What ordinary users may hold at that time; it takes the place of those that `of` says.
    pub(super) fn user_limit(
        &self,
        peer: Peer,
        demand: &Demand,
        room: usize,
        of: &dyn Fn(&Held) -> bool,
        at: u64,
    ) -> Result<(), Box<Refusal>> {
        if peer.uid == 0 {
            return Ok(());
        }
        // What has ended counts until its last words are fetched: it has a place, too.
        let counts = |h: &&Held| h.record.uid == peer.uid && !of(h);
        let mine = || self.held.values().filter(counts);
        // Members take of what their groups hold. Whose threads have not left yet holds what it held, until they have.
        let clings = |h: &&Held| h.state == State::Closing && at == 0;
        let live = mine().filter(|h| h.state == State::Live || clings(h));
        let live = live.filter(|h| h.within.is_none());
        let total = self.user_total(peer.share);
        let mut held: Vec<(u32, &Demand)> = live.map(|h| (h.record.id, &h.demand)).collect();
        let live = held.len();
        held.extend(self.leaving_of(peer.uid, at));
        let ended = mine().filter(|h| h.state != State::Live && !clings(h)).count();
        limits::user(total, &held, held.len() - live, ended, demand, |smaller| {
            let mut admission = self.rooms[room].admission.clone();
            // What it takes the place of is its own to have.
            let replaced = self.held.values().filter(|h| of(h));
            replaced.for_each(|h| {
                admission.release(h.record.id);
            });
            admission.test(smaller)
        })
    }

    pub(super) fn grant(
        &mut self,
        peer: Peer,
        r: &Reserve,
        (watch, facts): (Watch, &Facts),
        demand: Demand,
        (room, place): (usize, Place),
        within: Option<u32>,
    ) -> Result<Response, Problem> {
        let settings = &self.rooms[room].settings;
        let (kind, policy, set) =
            (settings.kind(demand.hard), settings.policy(), settings.name.clone());
        let wanted = Reservation {
            budget: r.budget_ns,
            period: r.period_ns,
            deadline: r.deadline(),
            place: place.clone(),
            kind,
            order: self.order_within(within, room),
            marks: r.marks,
            value: r.value.unwrap_or(0) * VALUE,
            account: self.account_within(peer, within)?,
            hard: demand.hard,
            draws: false,
            group: false,
            within,
            purse: self.purse_named(peer, r.purse.as_deref(), room)?,
        };
        let id = match self.enter(&wanted, &demand, room)? {
            Ok(id) => id,
            Err(refusal) => return Ok(self.refuse(*refusal)),
        };
        let cpus = cpus_of(place.all_cpus() & self.online);
        let record = protocol::Reservation {
            id,
            name: r.name.clone(),
            pid: r.pid,
            thread: r.thread.unwrap_or(0),
            uid: peer.uid,
            budget_ns: r.budget_ns,
            period_ns: r.period_ns,
            deadline_ns: r.deadline(),
            trial: r.trial,
            group: r.group.clone().unwrap_or_default(),
            set,
            ..Default::default()
        };
        self.granted += 1;
        let held = Held {
            order: self.granted,
            state: State::Live,
            guaranteed: true,
            connection: Some(peer.connection),
            watch: Some(watch),
            room,
            demand,
            later: None,
            place,
            since: Instant::now(),
            record,
            within,
            members: None,
            portion: Portion::Budget,
            purse: wanted.purse,
            draws: Vec::new(),
        };
        self.held.insert(id, held);
        let until = Instant::now() + LOOKING_MOST;
        let (joined, left_out) = self.enlist(r.pid, r.thread, id, until);
        // What was looked at by number may have been another process since: the watch says whether it was.
        if let Err(problem) = self.confirm(peer, id) {
            self.close(id);
            return Err(problem);
        }
        if joined == 0 {
            self.close(id);
            let which = r.thread.map_or("no thread".into(), |tid| format!("thread {tid}"));
            let cannot = if r.thread.is_some() { "cannot" } else { "can" };
            return problem(
                format!("{which} of process {} {cannot} be served", r.pid),
                "give its threads the policy SCHED_OTHER (chrt --other --pid 0 PID) and ask again",
            );
        }
        if r.descendants {
            self.enlist_descendants(peer, r.pid, id, until);
        }
        self.divide(within);
        if left_out > 0 {
            let what = format!(
                "reservation {id} ({}) does not cover {left_out} of its threads, which have a \
                 policy of their own (SCHED_FIFO, SCHED_RR or SCHED_DEADLINE)",
                r.name
            );
            self.note(Some(peer.uid), what);
        }
        let served = mask_of(&cpus);
        let narrow =
            facts.bound.iter().filter(|(may, _)| r.thread.is_none() && served & !**may != 0);
        let narrow: usize = narrow.map(|(_, count)| count).sum();
        if narrow > 0 {
            let what = format!(
                "reservation {id} ({}) does not cover {narrow} of its threads while they are bound to fewer CPUs than \
                 {}, which serve it; reserve for CPUs that all may use (--cpus)",
                r.name,
                name_cpus(&cpus)
            );
            self.note(Some(peer.uid), what);
        }
        let thread = r.thread.map(|tid| format!("thread {tid} of ")).unwrap_or_default();
        let what = format!(
            "reservation {id}: {} every {} for {} ({thread}process {}, user {})",
            format_duration(r.budget_ns),
            format_duration(r.period_ns),
            r.name,
            r.pid,
            peer.uid
        );
        self.note(Some(peer.uid), what);
        Ok(Response::Granted { id, policy, cpus })
    }

    /// Has the scheduler make a reservation, and books it if it takes CPU time of its own. Returns its id.
    pub(super) fn enter(
        &mut self,
        wanted: &Reservation,
        demand: &Demand,
        room: usize,
    ) -> Result<Result<u32, Box<Refusal>>, Problem> {
        let failed =
            |e: anyhow::Error| Problem(format!("{e:#}"), "release a reservation first".into());
        let id = self.engine.reserve(wanted).map_err(failed)?;
        if wanted.within.is_none()
            && let Err(refusal) = self.rooms[room].admission.admit(id, demand)
        {
            let _ = self.engine.release(id); // it has no threads yet
            return Ok(Err(refusal));
        }
        self.rearrange(room);
        Ok(Ok(id))
    }

    /// Puts all threads of a process, or one, under a reservation: how many joined, how many could not.
    /// What they create meanwhile inherits, or is found by another look.
    pub(super) fn enlist(
        &mut self,
        pid: u32,
        only: Option<u32>,
        id: u32,
        until: Instant,
    ) -> (usize, usize) {
        let wanted = |tid: &i32| only.is_none_or(|only| *tid as u32 == only);
        let (mut joined, mut left_out) = (0, Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..LOOKS {
            // Whoever goes on making threads is not to keep everybody waiting.
            if Instant::now() > until {
                break;
            }
            let threads = self.system.threads(pid).unwrap_or_default();
            let mut new: Vec<i32> = threads.into_iter().filter(wanted).collect();
            new.retain(|tid| seen.insert(*tid));
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.engine.assign(tid, id) {
                    Ok(()) => joined += 1,
                    Err(_) => left_out.push(tid),
                }
            }
        }
        // Some have merely ended, and their numbers may be others' by now.
        let threads = self.system.threads(pid).unwrap_or_default();
        left_out.retain(|tid| threads.contains(tid));
        if seen.iter().any(|tid| !threads.contains(tid)) {
            let strange = |tid: &i32| seen.contains(tid) && !threads.contains(tid);
            for member in self.engine.members(id).iter().filter(|m| strange(&m.tid)) {
                let _ = self.engine.leave(member);
            }
        }
        (joined, left_out.len())
    }
}

/// Whether a process acts as who asks and nobody else.
fn owned(peer: Peer, pid: u32, facts: &Facts) -> Result<(), Problem> {
    if peer.uid == 0 || facts.uids.iter().eq([&peer.uid]) {
        return Ok(());
    }
    problem(
        format!("process {pid} does not belong to user {} alone", peer.uid),
        "reserve for your own processes only, or ask root to",
    )
}
