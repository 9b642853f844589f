// SPDX-License-Identifier: GPL-2.0-only
//! What a user's reservations may take ahead of best effort, overruns included; beyond that they are its equals.

use onbeat_core::ffi;
use onbeat_model::event::{Event, EventKind};
use onbeat_model::others::Others;
use onbeat_model::policy::{CORE, CorePolicy, Order};
use onbeat_model::taskset::{Overheads, TaskSet};
use onbeat_sim::{Core, Detail, Engine, Load, NOBODY, Reservation, SHARE_QUANTUM, simulate};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const HOUR: u64 = 3600 * SECOND;
const CPUS: u32 = 2;

/// One reservation: budget, period, work of each job, and whose it is.
#[derive(Clone, Copy)]
struct Task {
    budget: u64,
    period: u64,
    work: u64,
    user: u32,
    /// When its first job is released and how often, if not each period.
    beat: Option<(u64, u64)>,
}

/// A reservation of the first CPU.
fn reservation(policy: &CorePolicy, budget: u64, period: u64) -> Reservation {
    let kind = onbeat_core::server_policies().iter().position(|n| *n == policy.server.name());
    crate::common::reservation(budget, period, kind.unwrap() as u32, policy.order.number())
}

/// Plays for `seconds`, with users bound to `share` thousandths of all CPUs, beside `hogs` of best effort.
fn play(
    policy: (&CorePolicy, &Others),
    share: u64,
    tasks: &[Task],
    hogs: usize,
    seconds: u64,
) -> Vec<Event> {
    play_beside(50, policy, share, tasks, hogs, seconds)
}

/// The same with a best-effort share of so many thousandths.
fn play_beside(
    permille: u32,
    (policy, others): (&CorePolicy, &Others),
    share: u64,
    tasks: &[Task],
    hogs: usize,
    seconds: u64,
) -> Vec<Event> {
    let queues = policy.order.domains(CPUS, 1);
    let room = tasks.len() + hogs;
    let mut core = Core::new(CPUS, queues, permille, SHARE_QUANTUM, room, 1 << 12);
    core.among_others(others.number());
    let mut loads = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        core.init_task(i, 3, onbeat_sim::NICE_0);
        let of = reservation(policy, task.budget, task.period);
        core.reserve(i, &Reservation { cpus: 3, domain: i as u32 % queues, ..of });
        let all = u64::from(CPUS) << ffi::OB_SHARE_BITS;
        core.account(i, task.user, if task.user > 0 { all * share / 1000 } else { 0 });
        let (first, every) = task.beat.unwrap_or((0, task.period));
        let jobs = (seconds * SECOND / every + 1) as usize;
        loads.push(Load::Jobs {
            first,
            period: every,
            delays: Vec::new(),
            deadline: every,
            times: vec![task.work; jobs],
            marks: false,
        });
    }
    for i in 0..hogs {
        core.init_task(tasks.len() + i, 3, onbeat_sim::NICE_0);
        loads.push(Load::Endless);
    }
    let mut engine = Engine::new(core, CPUS, loads, Overheads::default(), Detail::All);
    engine.run(seconds * SECOND, seconds * SECOND);
    engine.finish()
}

/// What the tasks that `of` names have had in each whole second, in CPUs.
fn served(events: &[Event], seconds: u64, of: impl Fn(u32) -> bool) -> Vec<f64> {
    let mut had = vec![0; seconds as usize];
    let mut since = [None; CPUS as usize];
    let mut book = |from: u64, to: u64| {
        for (second, had) in (0..).zip(&mut had) {
            let (begin, end) = (second * SECOND, (second + 1) * SECOND);
            *had += to.min(end).saturating_sub(from.max(begin));
        }
    };
    for event in events {
        let begin = since.get_mut(event.cpu as usize);
        match event.kind() {
            Some(EventKind::Run) if of(event.task) => *begin.unwrap() = Some(event.time),
            Some(EventKind::Stop) => {
                if let Some(from) = begin.and_then(Option::take) {
                    book(from, event.time);
                }
            }
            _ => {}
        }
    }
    since.iter().flatten().for_each(|from| book(*from, seconds * SECOND));
    had.into_iter().map(|ns| ns as f64 / SECOND as f64).collect()
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Policies under each order of best effort.
fn soft() -> impl Iterator<Item = (&'static CorePolicy, &'static Others)> {
    let orders = [Order::GLOBAL_EDZL, Order::GLOBAL_EDF, Order::PARTITIONED_EDF];
    let servers = ["cbs", "cbs-slack", "cbs-predict"];
    CORE.iter()
        .filter(move |p| orders.contains(&p.order) && servers.contains(&p.server.name()))
        .flat_map(|p| Others::ALL.iter().map(move |others| (p, others)))
}

/// A tiny reservation that spins.
const TINY: Task = Task { budget: 50_000, period: HOUR, work: HOUR, user: 1, beat: None };

#[test]
fn a_user_s_tiny_reservations_that_spin_take_the_user_s_share_and_a_fair_part_of_the_rest() {
    for policy in soft() {
        for (share, hogs) in [(500, 2), (500, 20), (100, 2), (250, 4)] {
            let events = play(policy, share, &[TINY, TINY], hogs, 4);
            let user = served(&events, 4, |task| task < 2);
            let ahead = 2.0 * share as f64 / 1000.0;
            let fair = (2.0 - ahead) * 2.0 / (2 + hogs) as f64;
            let name = (policy.0.name, policy.1, share, hogs);
            assert!(most(&user) <= ahead + fair + 0.04, "{name:?}: {user:?}");
            assert!(least(&user) >= (ahead + fair - 0.1).min(1.9) - 0.04, "{name:?}: {user:?}");
        }
    }
}

/// Two that run for 0.39 of 0.8 ms in turn, so that neither runs for as long as an account goes unlooked at.
#[test]
fn who_sleeps_every_now_and_then_takes_no_more_either() {
    let baton = |first| Task { work: 390_000, beat: Some((first, 800_000)), ..TINY };
    for policy in soft() {
        for (share, hogs) in [(100, 8), (200, 16)] {
            let events = play(policy, share, &[baton(0), baton(400_000)], hogs, 4);
            let user = served(&events, 4, |task| task < 2);
            let ahead = 2.0 * share as f64 / 1000.0;
            let fair = (2.0 - ahead) * 2.0 / (2 + hogs) as f64;
            let name = (policy.0.name, policy.1, share, hogs);
            assert!(most(&user) <= ahead + fair + 0.04, "{name:?}: {user:?}");
        }
    }
}

#[test]
fn where_nobody_of_best_effort_waits_an_overrun_has_all_cpus() {
    for policy in soft() {
        let user = served(&play(policy, 100, &[TINY, TINY], 0, 2), 2, |_| true);
        assert!(least(&user) > 1.99, "{policy:?}: {user:?}");
    }
}

/// Each has a budget again every ms, which what it had of slack uses up at once.
#[test]
fn budgets_that_come_back_soon_and_are_used_up_then_lift_no_limit() {
    let spins = Task { budget: 50_000, period: MS, ..TINY };
    for policy in soft() {
        let user = served(&play(policy, 100, &[spins; 4], 20, 4), 4, |task| task < 4);
        let fair = 1.8 * 4.0 / 24.0;
        assert!(most(&user) <= 0.2 + fair + 0.06, "{policy:?}: {user:?}");
    }
}

#[test]
fn users_who_all_overrun_leave_each_other_nothing() {
    let half = |user| Task { budget: 50 * MS, period: 100 * MS, work: HOUR, user, beat: None };
    for policy in soft() {
        let events = play(policy, 250, &[half(1), half(2)], 20, 6);
        let both = served(&events, 6, |task| task < 2);
        let fair = 2.0 / 22.0;
        assert!(most(&both[1..]) <= 1.0 + fair + 0.06, "{policy:?}: {both:?}");
    }
}

/// A tiny one that overruns without end, and a budget of 0.4 s every now and then, which is charged when it is used up:
/// there is no share of best effort that is looked at before.
#[test]
fn what_a_long_budget_is_about_to_be_charged_for_an_overrun_does_not_take_meanwhile() {
    let rare = Task {
        budget: 400 * MS,
        period: SECOND,
        work: 400 * MS,
        user: 1,
        beat: Some((600 * MS, 3 * SECOND)),
    };
    for policy in soft() {
        let user = served(&play_beside(0, policy, 500, &[TINY, rare], 8, 7), 7, |task| task < 2);
        let fair = 1.0 / 9.0;
        assert!(most(&user) <= 1.0 + fair + 0.04, "{policy:?}: {user:?}");
    }
}

/// Jobs run for tens of ms at a stretch, which are charged at its end.
#[test]
fn a_limit_of_all_cpus_is_none_whatever_is_charged_at_once() {
    let burst = |first, user| Task {
        budget: 20 * MS,
        period: 100 * MS,
        work: 45 * MS,
        user,
        beat: Some((first, 100 * MS)),
    };
    for policy in soft() {
        // When jobs end on average.
        let ends = |user| {
            let tasks = [0, 3, 40].map(|first| burst(first * MS, user));
            let mut ends = play(policy, 1000, &tasks, 2, 10);
            ends.retain(|e| e.kind() == Some(EventKind::Complete));
            ends.iter().map(|e| e.time).sum::<u64>() / ends.len() as u64
        };
        // An account is one more reason to look, each a moment late, and others may go first.
        let later = ends(1).saturating_sub(ends(0));
        assert!(later < MS, "{policy:?}: {later} ns");
    }
}

#[test]
fn what_other_users_reservations_leave_is_taken_beside_the_user_s_share() {
    // 0.78 CPUs are left of root's; the rest is 0.7.
    let root = Task { budget: 40 * MS, period: 100 * MS, work: MS, user: 0, beat: None };
    let other = Task { user: 2, ..root };
    for policy in soft() {
        for donors in [[root, root], [root, other]] {
            let tasks = [TINY, TINY, donors[0], donors[1]];
            let user = served(&play(policy, 250, &tasks, 2, 4), 4, |task| task < 2);
            let expected = 0.5 + 0.78 + 0.7 / 2.0;
            assert!(most(&user) <= expected + 0.04, "{policy:?}: {user:?}");
            assert!(least(&user[1..]) >= expected - 0.14, "{policy:?}: {user:?}");
        }
    }
}

#[test]
fn what_the_user_s_own_reservations_leave_is_not() {
    let idle = Task { budget: 40 * MS, period: 100 * MS, work: MS, user: 1, beat: None };
    for policy in soft() {
        let events = play(policy, 500, &[TINY, TINY, idle, idle], 2, 4);
        let user = served(&events, 4, |task| task < 4);
        assert!(most(&user) <= 1.0 + 0.5 + 0.04, "{policy:?}: {user:?}");
    }
}

#[test]
fn a_huge_budget_beside_a_tiny_one_takes_no_more_in_any_second() {
    let huge = Task { budget: 2840 * SECOND, period: HOUR, work: HOUR, user: 1, beat: None };
    let tiny = Task { budget: 200_000, period: MS, work: HOUR, user: 1, beat: None };
    let root = Task { budget: 8 * MS, period: 20 * MS, work: 8 * MS, user: 0, beat: None };
    for policy in soft() {
        let events = play(policy, 500, &[huge, tiny, root, root], 2, 4);
        let user = served(&events, 4, |task| task < 2);
        // A fifth is nobody's; two hogs want it, too.
        assert!(most(&user) <= 1.0 + 0.1 + 0.04, "{policy:?}: {user:?}");
        let root = served(&events, 4, |task| task == 2 || task == 3);
        assert!(least(&root) >= 0.799, "{policy:?}: {root:?}");
    }
}

#[test]
fn users_of_a_task_set_are_limited_each_and_root_is_not() {
    let file = |max_share: &str, user: &str| {
        let task = |name| {
            format!(
                "[[task]]\nname = \"{name}\"\nbudget = \"50us\"\nperiod = \"1h\"\n{user}\n\
                 work = {{ constant = \"1h\" }}\n"
            )
        };
        let (a, b) = (task("a"), task("b"));
        let text =
            format!("cpus = 2\nduration = \"4s\"\n{max_share}\n{a}{b}[best_effort]\ncount = 2\n");
        TaskSet::from_bytes(text.as_bytes(), "set.toml".as_ref()).unwrap()
    };
    let had = |set: &TaskSet| {
        let policy = CORE.iter().find(|p| p.name == "g-edzl+cbs-predict").unwrap();
        let run = simulate(set, policy).unwrap();
        served(&run.events, 4, |task| task < 2)
    };
    let limited = had(&file("max_share = \"25%\"", "user = \"anna\""));
    assert!(most(&limited) <= 0.5 + 0.75 + 0.04, "{limited:?}");
    let together = had(&file("max_share = \"25%\"", ""));
    assert_eq!(together, limited);
    for unlimited in [file("", ""), file("max_share = \"25%\"", "user = \"root\"")] {
        assert!(least(&had(&unlimited)) > 1.85);
    }
}

/// How often the alarm and the timer of one CPU ring in two seconds for an ordinary user's reservation of 500 ms every
/// 4 s that spins beside a loop, and is to have its budget within `deadline`.
fn rings(policy: &CorePolicy, deadline: u64) -> u64 {
    let mut core = Core::new(1, 1, 50, SHARE_QUANTUM, 2, 1 << 12);
    (0..2).for_each(|i| core.init_task(i, 1, onbeat_sim::NICE_0));
    let of = reservation(policy, 500 * MS, 4 * SECOND);
    core.reserve(0, &Reservation { deadline, ..of });
    core.account(0, 1, (1 << ffi::OB_SHARE_BITS) / 2);
    (0..2).for_each(|i| core.ready(i, 0));
    let (mut running, mut now, mut rings) = (NOBODY, 0, 0);
    loop {
        if core.take_kick().is_some() || running == NOBODY {
            let next = core.pick(0, running, now);
            if next != running {
                if running != NOBODY {
                    core.stop(0, ffi::OB_STOP_PREEMPTED, now);
                    core.ready(running, now);
                }
                running = next;
                core.run(0, running, now);
            }
        }
        // Turns of best effort end with slices.
        let slice = now + u64::from(ffi::OB_SLICE);
        let next = core.alarm_at().min(core.timer(0)).min(slice).max(now);
        if running == 1 {
            core.charge(1, next - now);
        }
        now = next;
        if now >= 2 * SECOND {
            return rings;
        }
        rings += 1;
        if core.alarm_at() <= now {
            core.alarm(now);
        }
        if core.timer(0) <= now {
            core.tick(0, now);
        }
        if now == slice && running == 1 {
            core.stop(0, ffi::OB_STOP_PREEMPTED, now);
            core.ready(1, now);
            running = NOBODY;
        }
    }
}

#[test]
fn an_early_deadline_does_not_make_the_clock_ring_without_end() {
    for (policy, _) in soft().filter(|(policy, _)| policy.order != Order::PARTITIONED_EDF) {
        // A look each millisecond, and as many of budgets, turns and the share.
        for deadline in [2 * SECOND, 1100 * MS, 4 * SECOND] {
            let rings = rings(policy, deadline);
            assert!(rings < 3 * 2000, "{}, {deadline}: {rings}", policy.name);
        }
    }
}
