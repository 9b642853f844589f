// SPDX-License-Identifier: GPL-2.0-only
//! All schedulability tests by name. A test is a function and a line in [`TESTS`]; what makes one accept: `change`.

mod change;

pub use change::{cpus_needed, scale_that_fits};

use crate::global::tardiness::Supply;
use crate::global::{
    bak, bar, bcl, ff_dbf, fixed as global_fixed, gel, gfb, rta, tardiness, union,
};
use crate::one_cpu::delayed::{self, Delayed};
use crate::one_cpu::{bounds, edf, fixed};
use crate::partition::{Local, Packing, partition};
use crate::semi::{Plan, edf_wm};
use crate::split_cd::edf_cd;
use crate::sporadic::{Sporadic, Verdict, compare_utilization, utilization};
use std::borrow::Cow;
use std::cmp::Ordering;

use num_bigint::BigInt;
use num_rational::BigRational;

/// What a test says about a set; the vectors have an entry for each task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Schedulable or not.
    pub verdict: Verdict,
    /// CPU of each task, if the algorithm assigns them.
    pub cpus: Option<Vec<usize>>,
    /// Shares of each task, if the algorithm splits.
    pub plan: Option<Plan>,
    /// Longest response times, where the test bounds them.
    pub responses: Option<Vec<Option<u64>>>,
    /// Greatest tardiness, where the test bounds it.
    pub tardiness: Option<Vec<u64>>,
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, cpus: None, plan: None, responses: None, tardiness: None }
    }
}

/// A schedulability test.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// Its name: algorithm, then method.
    pub name: &'static str,
    /// One line: what it is good for, and its source.
    pub about: &'static str,
    /// It is for one CPU only.
    pub one_cpu: bool,
    /// Tells about a set on so many CPUs.
    pub run: fn(&[Sporadic], usize) -> Answer,
}

const fn test(
    name: &'static str,
    about: &'static str,
    one_cpu: bool,
    run: fn(&[Sporadic], usize) -> Answer,
) -> Test {
    Test { name, about, one_cpu, run }
}

impl Test {
    /// What it tells, with the response times that the verdict does not need and that are slow to find.
    pub fn answer(&self, tasks: &[Sporadic], cpus: usize) -> Answer {
        let answer = (self.run)(tasks, cpus);
        match self.name {
            "edf-qpa" => Answer { responses: Some(edf::response_times(tasks)), ..answer },
            _ => answer,
        }
    }

    /// What it tells of tasks with jitter or blocking on one CPU, and their fixed priorities, if it knows of these: 1
    /// goes first.
    pub fn answer_delayed(&self, tasks: &[Delayed], priorities: Option<&[u64]>) -> Option<Answer> {
        let level = |i: &usize| match self.name {
            "fp-exact" => priorities.map(|all| all[*i]),
            "rm-exact" => Some(tasks[*i].task.period),
            "dm-exact" => Some(tasks[*i].task.deadline),
            _ => None,
        };
        if self.name == "edf-qpa" {
            return Some(delayed::edf(tasks).into());
        }
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        let all: Vec<u64> = order.iter().map(level).collect::<Option<_>>()?;
        order.sort_by_key(|i| all[*i]);
        let sorted: Vec<Delayed> = order.iter().map(|i| tasks[*i]).collect();
        let levels: Vec<u64> = order.iter().map(|i| all[*i]).collect();
        let mut responses = vec![None; tasks.len()];
        let times = delayed::response_times(&sorted, &levels);
        order.iter().zip(times).for_each(|(i, time)| responses[*i] = time);
        let late =
            |(time, one): (&Option<u64>, &Delayed)| time.is_none_or(|t| t > one.task.deadline);
        let in_time = !responses.iter().zip(tasks).any(late);
        Some(Answer { responses: Some(responses), ..Verdict::sufficient(in_time).into() })
    }
}

/// Every test there is.
pub const TESTS: &[Test] = &[
    test(
        "utilization",
        "upper limit for all: U ≤ m and no task above 1; rejects only",
        false,
        limit,
    ),
    test(
        "edf-qpa",
        "EDF on one CPU, exact (Zhang and Burns 2009; response times: Spuri 1996)",
        true,
        |t, _| edf::qpa(t).into(),
    ),
    test(
        "rm-exact",
        "rate monotonic on one CPU, exact (Joseph and Pandya 1986; Lehoczky 1990)",
        true,
        |t, _| priorities(t, |t| t.period),
    ),
    test(
        "dm-exact",
        "deadline monotonic on one CPU, exact (Joseph and Pandya 1986)",
        true,
        |t, _| priorities(t, |t| t.deadline),
    ),
    test(
        "fp-exact",
        "the file's own priorities on one CPU, with jitter and blocking (Audsley et al. 1993; Tindell et al. 1994)",
        true,
        |_, _| Verdict::Unknown.into(), // they are no part of a Sporadic: `answer_delayed`
    ),
    test(
        "rm-liu-layland",
        "rate monotonic on one CPU by utilization (Liu and Layland 1973)",
        true,
        |t, _| bounds::liu_layland(t).into(),
    ),
    test(
        "rm-hyperbolic",
        "rate monotonic on one CPU by product (Bini et al. 2003)",
        true,
        |t, _| bounds::hyperbolic(t).into(),
    ),
    test("p-edf-ff", "partitioned EDF, first fit", false, |t, m| {
        pack(t, m, Local::Edf, Packing::First, false)
    }),
    test("p-edf-bf", "partitioned EDF, best fit", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Best, false)
    }),
    test("p-edf-wf", "partitioned EDF, worst fit", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Worst, false)
    }),
    test("p-edf-nf", "partitioned EDF, next fit", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Next, false)
    }),
    test("p-edf-ffd", "partitioned EDF, first fit by decreasing utilization", false, |t, m| {
        pack(t, m, Local::Edf, Packing::First, true)
    }),
    test("p-edf-bfd", "partitioned EDF, best fit by decreasing utilization", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Best, true)
    }),
    test("p-edf-wfd", "partitioned EDF, worst fit by decreasing utilization", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Worst, true)
    }),
    test("p-edf-nfd", "partitioned EDF, next fit by decreasing utilization", false, |t, m| {
        pack(t, m, Local::Edf, Packing::Next, true)
    }),
    test("p-rm-ff", "partitioned rate monotonic, first fit", false, |t, m| {
        pack(t, m, Local::RateMonotonic, Packing::First, false)
    }),
    test(
        "p-rm-ffd",
        "partitioned rate monotonic, first fit by decreasing utilization",
        false,
        |t, m| pack(t, m, Local::RateMonotonic, Packing::First, true),
    ),
    test(
        "edf-wm",
        "semi-partitioned EDF with windows, first fit (Kato et al. 2009)",
        false,
        |t, m| windows(t, m, Packing::First),
    ),
    test(
        "edf-wmr",
        "semi-partitioned EDF with windows, worst fit (Kato, Ishikawa and Rajkumar)",
        false,
        |t, m| windows(t, m, Packing::Worst),
    ),
    test(
        "edf-cd",
        "semi-partitioned EDF, C=D splitting, first fit (Burns et al. 2012)",
        false,
        |t, m| planned(edf_cd(t, m)),
    ),
    test("g-edf-gfb", "global EDF by density (Goossens, Funk and Baruah 2003)", false, |t, m| {
        gfb::gfb(t, m).into()
    }),
    test(
        "g-edf-bak",
        "global EDF by load of busy intervals (Baker 2003 and 2005)",
        false,
        |t, m| bak::bak(t, m).into(),
    ),
    test("g-edf-bar", "global EDF by demand since a CPU was free (Baruah 2007)", false, |t, m| {
        bar::bar(t, m).into()
    }),
    test(
        "g-edf-bcl",
        "global EDF by interference (Bertogna, Cirinei and Lipari 2005)",
        false,
        |t, m| bcl::bcl(t, m).into(),
    ),
    test(
        "g-edf-bcl-iterative",
        "global EDF by interference less slack (Bertogna, Cirinei and Lipari 2009)",
        false,
        |t, m| bcl::bcl_iterative(t, m).into(),
    ),
    test("g-edf-rta", "global EDF by response times (Bertogna and Cirinei 2007)", false, |t, m| {
        bounded(rta::edf(t, m))
    }),
    test(
        "g-edf-ff-dbf",
        "global EDF by forced-forward demand (Baruah, Bonifaci et al. 2010)",
        false,
        |t, m| ff_dbf::ff_dbf(t, m).into(),
    ),
    test("g-edf-any", "global EDF: any of the tests above; exact on one CPU", false, |t, m| {
        union::any(t, m).into()
    }),
    test(
        "g-rm-rta",
        "global rate monotonic by response times (Bertogna and Cirinei 2007)",
        false,
        |t, m| by_priority(t, |t| t.period, |t, levels| rta::fixed(t, levels, m)),
    ),
    test(
        "g-dm-rta",
        "global deadline monotonic by response times (Bertogna and Cirinei 2007)",
        false,
        |t, m| by_priority(t, |t| t.deadline, |t, levels| rta::fixed(t, levels, m)),
    ),
    test(
        "g-rm-guan",
        "global rate monotonic with limited carry-in (Guan et al. 2009)",
        false,
        |t, m| by_priority(t, |t| t.period, |t, levels| global_fixed::guan(t, levels, m)),
    ),
    test(
        "g-dm-guan",
        "global deadline monotonic with limited carry-in (Guan et al. 2009)",
        false,
        |t, m| by_priority(t, |t| t.deadline, |t, levels| global_fixed::guan(t, levels, m)),
    ),
    test(
        "g-edf-tardiness",
        "global EDF, soft: bounded tardiness (Devi and Anderson 2005)",
        false,
        |t, m| soft(tardiness::devi_anderson(t, m)),
    ),
    test(
        "g-edzl-tardiness",
        "global EDZL, soft: bounded tardiness (docs/slack.md)",
        false,
        |t, m| soft(tardiness::edzl(t, &vec![Supply::WHOLE; m], 0)),
    ),
    test(
        "g-edf-gel",
        "global EDF, soft: response times (Erickson, Devi and Baruah 2010)",
        false,
        |t, m| like_edf(t, gel::g_edf(t, m)),
    ),
    test(
        "g-fl-tardiness",
        "global fair lateness, soft: response times (Erickson and Anderson 2012)",
        false,
        |t, m| like_edf(t, gel::g_fl(t, m)),
    ),
];

/// Tests that hold for deadlines within periods only.
const WITHIN_PERIODS: [&str; 12] = [
    "edf-wm",
    "edf-wmr",
    "edf-cd",
    "g-edf-bar",
    "g-edf-bcl",
    "g-edf-bcl-iterative",
    "g-edf-rta",
    "g-edf-ff-dbf",
    "g-rm-rta",
    "g-dm-rta",
    "g-rm-guan",
    "g-dm-guan",
];

/// Tests that hold for deadlines at the ends of periods only.
const PERIODS_END: [&str; 2] = ["g-edf-tardiness", "g-edzl-tardiness"];

/// Why a test has said [`Verdict::Unknown`], where it is not that it tried and could not tell.
pub fn why_unknown(test: &Test, tasks: &[Sporadic], cpus: usize) -> Option<String> {
    let late = |t: &&Sporadic| t.deadline > t.period;
    if WITHIN_PERIODS.contains(&test.name) && tasks.iter().any(|t| late(&t)) {
        let instead = match test.name {
            name if name.starts_with("g-rm") || name.starts_with("g-dm") => "p-rm-ff",
            name if name.starts_with("g-edf") => "g-edf-gfb, g-edf-bak or g-edf-any",
            _ => "p-edf-ff",
        };
        return Some(format!("does not hold for deadlines beyond periods; see {instead}"));
    }
    if PERIODS_END.contains(&test.name) && tasks.iter().any(|t| t.deadline != t.period) {
        return Some("holds for deadlines at the ends of periods only; see g-edf-gel".into());
    }
    if compare_utilization(tasks, cpus as u64) == Ordering::Greater {
        return Some("asks for more than all CPUs: tardiness has no bound".into());
    }
    let level: Option<fn(&Sporadic) -> u64> = match test.name {
        "rm-exact" => Some(|t| t.period),
        "dm-exact" => Some(|t| t.deadline),
        _ => None,
    };
    if let Some(level) = level {
        let (_, levels) = fixed::by_priority(tasks, level);
        if levels.windows(2).any(|w| w[0] == w[1]) {
            return Some("depends on who comes first of those with equal priority".into());
        }
    }
    // These are exact: they never just cannot tell.
    let exact = ["edf-qpa", "rm-exact", "dm-exact"].contains(&test.name);
    exact.then(|| "gave up: its busy periods are too long to be gone through".into())
}

/// The set as Onbeat's policies play it: EDF serves what is due after the next release as if due then, as a thread that
/// is behind has no releases to be seen. Fixed priorities do not go by deadlines.
pub fn as_played<'a>(test: &Test, tasks: &'a [Sporadic]) -> Cow<'a, [Sporadic]> {
    let fixed = ["rm-", "dm-"].iter().any(|word| test.name.contains(word));
    if fixed || tasks.iter().all(|t| t.deadline <= t.period) {
        return Cow::Borrowed(tasks);
    }
    tasks.iter().map(|t| Sporadic { deadline: t.deadline.min(t.period), ..*t }).collect()
}

/// The test of that name.
pub fn find(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|test| test.name == name)
}

fn limit(tasks: &[Sporadic], cpus: usize) -> Answer {
    let most = BigRational::from_integer(BigInt::from(cpus));
    let one = BigRational::from_integer(BigInt::from(1));
    let over = utilization(tasks) > most || tasks.iter().any(|t| t.density() > one);
    if over { Verdict::Unschedulable.into() } else { Verdict::Unknown.into() }
}

/// Fixed priorities on one CPU, the smallest level first.
fn priorities(tasks: &[Sporadic], level: fn(&Sporadic) -> u64) -> Answer {
    let mut verdict = Verdict::Unknown;
    let answer = by_priority(tasks, level, |sorted, levels| {
        verdict = fixed::exact(sorted, levels);
        fixed::response_times(sorted, levels)
    });
    Answer { verdict, ..answer }
}

/// Fixed priorities, the smallest level first; `times` gives response times of tasks in that order with these levels,
/// none where they are not within deadlines.
fn by_priority(
    tasks: &[Sporadic],
    level: fn(&Sporadic) -> u64,
    times: impl FnOnce(&[Sporadic], &[u64]) -> Vec<Option<u64>>,
) -> Answer {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|i| level(&tasks[*i]));
    let (sorted, levels) = fixed::by_priority(tasks, level);
    let mut responses = vec![None; tasks.len()];
    for (i, time) in order.iter().zip(times(&sorted, &levels)) {
        responses[*i] = time;
    }
    let verdict = Verdict::sufficient(responses.iter().all(Option::is_some));
    Answer { responses: Some(responses), ..verdict.into() }
}

/// Of a test whose response times are all within deadlines, or none is known.
fn bounded(responses: Option<Vec<u64>>) -> Answer {
    let verdict = Verdict::sufficient(responses.is_some());
    let responses = responses.map(|all| all.into_iter().map(Some).collect());
    Answer { responses, ..verdict.into() }
}

fn pack(
    tasks: &[Sporadic],
    cpus: usize,
    local: Local,
    packing: Packing,
    decreasing: bool,
) -> Answer {
    match partition(tasks, cpus, local, packing, decreasing) {
        Ok(place) => Answer { cpus: Some(place), ..Verdict::Schedulable.into() },
        Err(_) => Verdict::Unknown.into(),
    }
}

fn windows(tasks: &[Sporadic], cpus: usize, fit: Packing) -> Answer {
    planned(edf_wm(tasks, cpus, fit))
}

fn planned(plan: Result<Plan, usize>) -> Answer {
    match plan {
        Ok(plan) => Answer { plan: Some(plan), ..Verdict::Schedulable.into() },
        Err(_) => Verdict::Unknown.into(),
    }
}

/// Not a hard promise unless nobody is ever late: the verdict stays open, the bound is what there is.
fn soft(tardiness: Option<Vec<u64>>) -> Answer {
    let in_time = tardiness.as_ref().is_some_and(|late| late.iter().all(|t| *t == 0));
    Answer { tardiness, ..Verdict::sufficient(in_time).into() }
}

/// The same, from response times.
fn like_edf(tasks: &[Sporadic], responses: Option<Vec<u64>>) -> Answer {
    let answer = soft(responses.as_ref().map(|all| gel::late(tasks, all)));
    Answer { responses: responses.map(|all| all.into_iter().map(Some).collect()), ..answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_test_answers_for_no_tasks() {
        for (i, test) in TESTS.iter().enumerate() {
            assert!(TESTS[..i].iter().all(|other| other.name != test.name), "{}", test.name);
            assert_ne!((test.run)(&[], 1).verdict, Verdict::Unschedulable, "{}", test.name);
        }
    }

    #[test]
    fn tests_for_deadlines_within_periods_say_so_and_no_others() {
        // So light that every test that holds for it accepts it; with deadlines within periods all but the bounds do.
        let light = |deadline| {
            let task = Sporadic { wcet: 100, deadline, period: 100_000 };
            vec![task, Sporadic { period: 130_000, ..task }]
        };
        for test in TESTS.iter().filter(|t| t.name != "utilization") {
            let cpus = if test.one_cpu { 1 } else { 2 };
            let (short, long) = (light(90_000), light(300_000));
            let long_fails = (test.run)(&long, cpus).verdict == Verdict::Unknown;
            let short_fits = (test.run)(&short, cpus).verdict == Verdict::Schedulable;
            let named = WITHIN_PERIODS.contains(&test.name);
            if PERIODS_END.contains(&test.name) {
                assert!(!short_fits && why_unknown(test, &short, cpus).is_some());
                continue;
            }
            assert_eq!(named, short_fits && long_fails, "{}", test.name);
            assert_eq!(
                named,
                why_unknown(test, &long, cpus).is_some_and(|w| w.contains("beyond")),
                "{}",
                test.name
            );
            assert!(
                why_unknown(test, &vec![Sporadic::implicit(2, 3); 9], cpus).is_some(),
                "{}",
                test.name
            );
        }
    }
}
