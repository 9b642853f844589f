// SPDX-License-Identifier: GPL-2.0-only
//! What a program asks for.

use onbeat_model::protocol::Reserve;
use onbeat_model::rank::Rank;

/// What to reserve; times in ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    budget: u64,
    period: u64,
    thread: Option<u32>,
    deadline: Option<u64>,
    cpus: Option<Vec<u32>>,
    marks: bool,
    descendants: bool,
    trial: bool,
    value: Option<u64>,
    class: Option<Rank>,
    group: Option<String>,
    purse: Option<String>,
    set: Option<String>,
}

impl Params {
    /// `budget` ns of CPU time in every `period` ns.
    pub fn new(budget: u64, period: u64) -> Self {
        let (thread, deadline, cpus, value, class) = (None, None, None, None, None);
        let (group, purse, set) = (None, None, None);
        let (marks, descendants, trial) = (false, false, false);
        Self {
            budget,
            period,
            thread,
            deadline,
            cpus,
            marks,
            descendants,
            trial,
            value,
            class,
            group,
            purse,
            set,
        }
    }

    /// The same with another budget and period, ns.
    pub fn resized(mut self, budget: u64, period: u64) -> Self {
        (self.budget, self.period) = (budget, period);
        self
    }

    /// Budget, ns.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Period, ns.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// With the processes that the program has started already, and theirs, as far as they act as who asks.
    pub fn with_descendants(mut self) -> Self {
        self.descendants = true;
        self
    }

    /// On trial, to see what the program does when it need not wait: it ends with this connection, within 10 s, or when
    /// somebody asks for what does not fit beside it.
    pub fn on_trial(mut self) -> Self {
        self.trial = true;
        self
    }

    /// Only for thread `tid` of the process (gettid), and what that creates from then on: so the threads of one program
    /// can have budgets of their own.
    pub fn for_thread(mut self, tid: u32) -> Self {
        self.thread = Some(tid);
        self
    }

    /// With a relative deadline (ns) other than the period.
    pub fn with_deadline(mut self, deadline: u64) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Only on these CPUs.
    pub fn on_cpus(mut self, cpus: Vec<u32>) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// As a member of this group, see [`crate::Service::group`].
    pub fn in_group(mut self, name: &str) -> Self {
        self.group = Some(name.to_owned());
        self
    }

    /// A job that ends in time is worth so much, from 1 to 1,000,000, to policies that choose (`g-dasa`); without it,
    /// what the budget is in ms.
    pub fn worth(mut self, value: u64) -> Self {
        self.value = Some(value);
        self
    }

    /// Of this class, to policies that rank (`edf-hsb`); without it, soft there.
    pub fn of_class(mut self, class: Rank) -> Self {
        self.class = Some(class);
        self
    }

    /// Taking from this purse, too, see [`crate::Service::purse`].
    pub fn from_purse(mut self, name: &str) -> Self {
        self.purse = Some(name.to_owned());
        self
    }

    /// On the CPUs of this set (`scx_onbeat --set`), under its policy.
    pub fn in_set(mut self, name: &str) -> Self {
        self.set = Some(name.to_owned());
        self
    }

    /// The program says itself when a job is complete, see [`crate::job_done`].
    pub fn marking_jobs(mut self) -> Self {
        self.marks = true;
        self
    }

    /// Whether the values make sense by themselves, whatever is free.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        self.request(1, "program").check()
    }

    /// The request for process `pid`, under this name.
    pub(crate) fn request(&self, pid: u32, name: &str) -> Reserve {
        Reserve {
            pid,
            thread: self.thread,
            name: name.into(),
            budget_ns: self.budget,
            period_ns: self.period,
            deadline_ns: self.deadline,
            cpus: self.cpus.clone(),
            marks: self.marks,
            descendants: self.descendants,
            trial: self.trial,
            value: self.value,
            class: self.class,
            group: self.group.clone(),
            purse: self.purse.clone(),
            set: self.set.clone(),
        }
    }
}
