// SPDX-License-Identifier: GPL-2.0-only
//! Loading, attaching and talking to the kernel shell.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{AsRawLibbpf, Link, OpenObject, PrintLevel};
use onbeat_analysis::plan::Place;
use onbeat_core::ffi::{OB_MAX_GROUPS, OB_NO_ACCOUNT, ob_terms};
use scx_utils::{scx_ops_attach, scx_ops_load, scx_ops_open, uei_exited};

use crate::arena::{Arena, Layout, Member, Wakes, shell};
use crate::bpf_skel::{BpfSkel, BpfSkelBuilder};
use crate::costs::{Account, Cost};
use crate::exit::Exit;
use crate::machine::kernel_is_rt;

mod ask;
mod swap;

/// A loaded and attached scheduler; dropping it gives the machine back to the kernel's own.
pub struct Scheduler<'a> {
    skel: BpfSkel<'a>,
    link: Option<Link>,
    clocks: Vec<Link>,
    /// CPUs that `clocks` are for; none where timers do.
    clocked: Option<u64>,
    account: Option<Account>,
    /// Memory shared with the BPF side.
    pub arena: Arena,
}

/// A place's part of a reservation's terms.
fn terms(place: &Place) -> ob_terms {
    let (cpus, domain, apart) = (place.cpus, place.domain, place.apart.into());
    let terms = ob_terms { cpus, domain, apart, ..Default::default() };
    match &place.split {
        None => terms,
        Some(s) => onbeat_core::split(terms, s.window, s.postponed, &s.shares),
    }
}

/// What a new reservation is to be; times in ns.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// Q.
    pub budget: u64,
    /// P.
    pub period: u64,
    /// D, relative, budget ≤ deadline.
    pub deadline: u64,
    /// Where.
    pub place: Place,
    /// Server policy, index into the core's registry.
    pub kind: u32,
    /// 0 EDF, 1 RM, 2 EDZL.
    pub order: u32,
    /// The program marks its jobs.
    pub marks: bool,
    /// What a job is worth that ends in time, as the core counts it; 0: its budget.
    pub value: u64,
    /// Whose account it counts on; `None`: on nobody's, as what is in a group takes nothing but the group's time.
    pub account: Option<Limit>,
    /// It goes before those that are not, where the order ranks.
    pub hard: bool,
    /// It serves best effort, not threads of its own.
    pub draws: bool,
    /// It serves reservations, not threads.
    pub group: bool,
    /// The group it is a member of.
    pub within: Option<u32>,
    /// Slot of the purse that it takes from, too.
    pub purse: Option<usize>,
}

/// What a user's reservations may take ahead of best-effort work, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The user's account, below `OB_MAX_ACCOUNTS`; 0 is root's.
    pub account: u32,
    /// 2^-20 CPUs; 0: as much as they get.
    pub rate: u64,
}

/// By what a reservation goes on after a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Server policy, index into the core's registry.
    pub kind: u32,
    /// Order, likewise.
    pub order: u32,
    /// Its pair of budget and deadline is not kept (`core/ob_swap.h`).
    pub anew: bool,
}

/// How it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Tells what the verifier says.
    pub verbose: bool,
    /// Keeps account of what it costs.
    pub costs: bool,
    /// How long a thread may wait before the kernel takes the scheduler out, 30 s at most.
    pub watchdog: Duration,
    /// CPU that is kept for interrupts.
    pub interrupt_cpu: Option<u32>,
}

impl<'a> Scheduler<'a> {
    /// Loads the scheduler and makes it the machine's.
    ///
    /// # Errors
    /// The kernel lacks something, another scheduler runs, or privileges are missing.
    pub fn start(
        layout: &Layout,
        Loading { verbose, costs, watchdog, interrupt_cpu }: Loading,
        object: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Scheduler<'a>> {
        scx_utils::try_set_rlimit_infinity();
        if !verbose {
            libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| crate::log::raw(text))));
        }
        let mut builder = BpfSkelBuilder::default();
        builder.obj_builder.debug(verbose);
        let opts: Option<libbpf_rs::libbpf_sys::bpf_object_open_opts> = None;
        let mut skel = scx_ops_open!(builder, object, onbeat_ops, opts)?;
        let rt = kernel_is_rt();
        let rodata = skel.maps.rodata_data.as_mut().context("rodata of the scheduler")?;
        rodata.use_timers = !rt;
        rodata.tracing = layout.ring > 0;
        rodata.measuring = costs;
        rodata.interrupt_cpu = interrupt_cpu.map_or(-1, |cpu| cpu as i32);
        rodata.service = std::process::id() as i32;
        rodata.exile_lap = watchdog.as_nanos() as u64 / 4;
        rodata.weights = std::array::from_fn(|i| weight(i as i32 - 20));
        rodata.weight_idle = weight(IDLE);
        skel.struct_ops.onbeat_ops_mut().timeout_ms = watchdog.as_millis() as u32;
        skel.maps.arena.set_max_entries(layout.pages())?;
        if verbose {
            // The verifier's statistics: how many instructions it looked at for each program.
            for mut prog in skel.open_object_mut().progs_mut() {
                prog.set_log_level(4);
            }
        }
        let mut skel = scx_ops_load!(skel, onbeat_ops, uei)
            .context("the kernel refuses the scheduler (`scx_onbeat -v` shows its reasons)")?;

        let mut size = 0;
        // SAFETY: the map is loaded; libbpf has mapped the arena at its final address.
        let base = unsafe {
            libbpf_rs::libbpf_sys::bpf_map__initial_value(
                skel.maps.arena.as_libbpf_object().as_ptr(),
                &mut size,
            )
        };
        if base.is_null() {
            bail!("the scheduler's arena is not mapped");
        }
        // SAFETY: libbpf keeps the mapping until the object is closed, which `skel` owns.
        let arena = unsafe { Arena::init(base.cast(), layout)? };
        skel.maps.bss_data.as_mut().context("bss of the scheduler")?.shell =
            arena.address() as *mut _;
        let clocks = if rt { attach_clocks(&mut skel, layout.online)? } else { Vec::new() };
        let account = costs.then(Account::open).transpose()?;
        let link = Some(scx_ops_attach!(skel, onbeat_ops)?);
        let clocked = rt.then_some(layout.online);
        Ok(Scheduler { skel, link, clocks, clocked, account, arena })
    }

    /// Sees to it that every CPU on line has a clock; to be called now and then. Where timers
    /// enforce budgets it does nothing.
    ///
    /// # Errors
    /// A clock cannot be had.
    pub fn renew_clocks(&mut self) -> Result<()> {
        let online = self.arena.shell().ob.online;
        if self.clocked.is_some_and(|cpus| cpus != online) {
            // Those of a CPU that went do not come back with it.
            self.clocks.clear();
            self.clocks = attach_clocks(&mut self.skel, online)?;
            self.clocked = Some(online);
        }
        Ok(())
    }

    /// What its entry points have cost so far, if that is counted.
    pub fn costs(&self) -> Option<BTreeMap<String, Cost>> {
        self.account.as_ref().map(|account| account.costs(self.arena.shell()))
    }

    /// Whether the kernel has taken the scheduler out.
    pub fn exited(&self) -> bool {
        uei_exited!(&self.skel, uei)
    }

    /// Gives the machine back to the kernel's scheduler; the arena can still be read.
    pub fn detach(&mut self) {
        drop(self.link.take());
        self.clocks.clear();
    }

    /// Why the kernel took the scheduler out, if it did. A scheduler that was detached in good
    /// order has no such reason.
    pub fn exit(&self) -> Option<Exit> {
        let uei = &self.skel.maps.data_data.as_ref()?.uei;
        let text = |bytes: &[std::ffi::c_char]| {
            let bytes = bytes.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect::<Vec<_>>();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let dump = scx_utils::UEI_DUMP_PTR_MUTEX.lock().unwrap_or_else(|e| e.into_inner()).ptr;
        let dump = match dump.is_null() {
            true => String::new(),
            // SAFETY: the dump is a terminated string in a map that `skel` keeps mapped.
            false => unsafe { std::ffi::CStr::from_ptr(dump) }.to_string_lossy().into_owned(),
        };
        Exit::new(uei.kind, text(&uei.reason), text(&uei.msg), dump)
    }

    /// Makes a reservation without threads; returns its id.
    ///
    /// # Errors
    /// All places for reservations are taken.
    pub fn reserve(&mut self, r: &Reservation) -> Result<u32> {
        self.arena.set_terms(ob_terms {
            budget: r.budget,
            period: r.period,
            deadline: r.deadline,
            rate: r.account.map_or(0, |limit| limit.rate),
            account: r.account.map_or(OB_NO_ACCOUNT, |limit| limit.account),
            kind: r.kind,
            order: r.order,
            marks: r.marks.into(),
            value: r.value,
            hard: r.hard.into(),
            draws: r.draws.into(),
            group: r.group.into(),
            purse: r.purse.map_or(0, |slot| slot as u32 + 1),
            ..terms(&r.place)
        });
        let up = r.within.map_or(-1, |up| up as i32);
        let made = self.ask(shell::SHELL_RESERVE, |ask| ask.reserve.up = up)?.reserve;
        u32::try_from(made.id).map_err(|_| {
            let (all, groups) = (self.arena.shell().nr_servers, OB_MAX_GROUPS);
            anyhow!("no room for another one: there can be {all} reservations and {groups} groups")
        })
    }

    /// Reservation `id`, which is not split, has `budget` ns in each `period` ns from its next one on.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn resize(&mut self, id: u32, budget: u64, period: u64) -> Result<()> {
        let to = shell::shell_resize { id: id as i32, pad: 0, budget, period };
        self.ask(shell::SHELL_RESIZE, |ask| ask.resize = to).map(drop)
    }

    /// Threads that have woken of late, and when.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn wakes(&mut self) -> Result<Wakes> {
        self.ask(shell::SHELL_CLOCK, |_| ())?;
        Ok(self.arena.wakes())
    }

    /// Puts thread `tid` under reservation `id`. Returns whether that is done (true) or will be at the thread's next
    /// switch.
    ///
    /// # Errors
    /// No such thread, or one that the scheduler does not hold (a real-time or kernel thread).
    pub fn assign(&mut self, tid: i32, id: u32) -> Result<bool> {
        let assign = shell::shell_assign { tid, id: id as i32, ..Default::default() };
        let done = self.ask(shell::SHELL_ASSIGN, |ask| ask.assign = assign)?.assign;
        match done.result {
            0 => Ok(true),
            1 => Ok(false),
            _ => bail!("thread {tid} is not under this scheduler"),
        }
    }

    /// Puts a thread of a reservation back to best effort, unless it has ended.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn leave(&mut self, member: &Member) -> Result<()> {
        let Member { slot, payload, .. } = *member;
        // SAFETY: a slot of the pool, as `Arena::members` found it; only its address is reckoned.
        let task = unsafe { self.arena.shell().tasks.add(slot) };
        let assign = shell::shell_assign { task, payload, tid: 0, id: -1, ..Default::default() };
        self.ask(shell::SHELL_ASSIGN, |ask| ask.assign = assign).map(drop)
    }

    /// Closes reservation `id`, if it has no threads, to those that have been told to join it, too; returns whether it
    /// has none.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn retire(&mut self, id: u32) -> Result<bool> {
        let release = shell::shell_release { id: id as i32, stays: 1, ..Default::default() };
        let done = self.ask(shell::SHELL_RELEASE, |ask| ask.release = release)?.release;
        Ok(done.result == 0)
    }

    /// Moves reservation `id` to `cpus` of `domain`, or splits it anew; its account's rate is `rate` from now on, which
    /// changes nothing for those that are not limited.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn place(&mut self, id: u32, place: &Place, rate: u64) -> Result<()> {
        let to = shell::shell_place { id: id as i32, swap: 0 };
        self.arena.set_terms(ob_terms { rate, ..terms(place) });
        self.ask(shell::SHELL_PLACE, |ask| ask.place = to).map(drop)
    }

    /// Closes reservation `id` to new threads and frees it if it has none; returns whether it had
    /// none.
    ///
    /// # Errors
    /// The kernel side does not answer.
    pub fn release(&mut self, id: u32) -> Result<bool> {
        let release = shell::shell_release { id: id as i32, ..Default::default() };
        let done = self.ask(shell::SHELL_RELEASE, |ask| ask.release = release)?.release;
        Ok(done.result == 0)
    }
}

/// The niceness that has the weight of SCHED_IDLE's threads, 3.
const IDLE: i32 = 26;

/// What a thread of this niceness has beside others: each step is a factor of 1.25, as in the kernel's own scheduler.
fn weight(nice: i32) -> u32 {
    (f64::from(onbeat_core::ffi::OB_WEIGHT) * 1.25_f64.powi(-nice)).round() as u32
}

/// PREEMPT_RT: a clock event on every CPU each 100 µs in place of timers.
fn attach_clocks(skel: &mut BpfSkel<'_>, online: u64) -> Result<Vec<Link>> {
    #[repr(C)]
    #[derive(Default)]
    struct PerfEventAttr {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        rest: [u64; 13],
    }
    let attr = PerfEventAttr {
        kind: 1, // PERF_TYPE_SOFTWARE
        size: size_of::<PerfEventAttr>() as u32,
        config: 0, // PERF_COUNT_SW_CPU_CLOCK
        sample_period: 100_000,
        ..Default::default()
    };
    crate::machine::cpus_of(online)
        .into_iter()
        .map(|cpu| {
            // SAFETY: the attribute block is valid and as long as it says.
            let fd = unsafe {
                libc::syscall(libc::SYS_perf_event_open, &attr, -1, cpu as i32, -1, 8u64)
            };
            if fd < 0 {
                return Err(std::io::Error::last_os_error())
                    .with_context(|| format!("clock event of CPU {cpu}"));
            }
            skel.progs
                .clock_event
                .attach_perf_event(fd as i32)
                .with_context(|| format!("clock event of CPU {cpu}"))
        })
        .collect()
}
