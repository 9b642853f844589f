// SPDX-License-Identifier: GPL-2.0-only
//! Equal periods under EDZL on several CPUs: nobody is late there, though best effort's share takes its pieces and
//! slack is lent. Each of these sets had owed jobs late while the pieces were 1 ms, and all slack was lent.

use std::fmt::Write as _;
use std::path::Path;

use crate::common::{policy, reservation};
use onbeat_core::ffi;
use onbeat_model::metrics::detailed;
use onbeat_model::taskset::{Overheads, TaskSet};
use onbeat_sim::{Core, Detail, Engine, Load, NICE_0, Reservation, SHARE_QUANTUM, simulate};

const MS: u64 = 1_000_000;
const POLICIES: [&str; 3] = ["g-edzl+cbs-predict", "g-edzl+cbs-slack", "g-edzl+cbs-hard"];

/// Of a task: budget, least and most work, first release, ns, and whether it marks its jobs.
type Row = (u64, u64, u64, u64, bool);

/// Tasks of one period on so many CPUs, beside eight loops, late at waking by `wake` us.
fn owed_late(cpus: u32, period: u64, (seed, wake): (u64, u64), rows: &[Row]) {
    let mut text = format!(
        "cpus = {cpus}\nduration = \"600ms\"\nseed = {seed}\nbest_effort = {{ count = 8 }}\n\
         overheads = {{ wake = \"{wake}us\" }}\n"
    );
    for (i, (budget, least, most, offset, marks)) in rows.iter().enumerate() {
        writeln!(
            text,
            "[[task]]\nname = \"t{i}\"\nperiod = \"{period}ns\"\nbudget = \"{budget}ns\"\noffset = \"{offset}ns\"\n\
             marks = {marks}\nwork = {{ uniform = [\"{least}ns\", \"{most}ns\"] }}"
        )
        .unwrap();
    }
    let set = TaskSet::from_bytes(text.as_bytes(), Path::new("set.toml")).unwrap();
    for name in POLICIES {
        let (_, tasks) = detailed(&simulate(&set, policy(name)).unwrap());
        let worst = tasks.iter().map(|task| task.owed_tardiness_max_ms).fold(0.0, f64::max);
        assert!(tasks.iter().map(|task| task.owed).sum::<u64>() > 20);
        // Who wakes late may have a deadline that is as much later.
        assert!(worst <= wake as f64 * 1e-3, "{name}: {worst} ms late, periods of {period} ns");
    }
}

#[test]
fn nobody_is_late_by_pieces_of_best_effort_that_periods_of_a_few_ms_cannot_spare() {
    owed_late(
        3,
        1_581_000,
        (835_322_262, 20),
        &[
            (889_876, 889_876, 889_876, 0, true),
            (72_811, 728, 72_811, 0, true),
            (232_514, 232_514, 232_514, 0, false),
            (206_510, 2_066, 2_066, 6_000_000, true),
            (1_501_948, 1_501_948, 1_501_948, 21_057_421, true),
            (1_501_948, 1_426_850, 1_501_948, 0, true),
        ],
    );
    owed_late(
        2,
        2_316_000,
        (663_839_447, 20),
        &[
            (283_636, 283_636, 283_636, 59_721_882, false),
            (795_811, 795_811, 795_811, 0, true),
            (1_120_748, 1_120_748, 1_120_748, 0, true),
            (1_023_966, 1_228_759, 1_228_759, 0, true),
            (216_454, 1, 432_909, 0, true),
            (383_291, 383_291, 383_291, 0, false),
            (65_718, 46_002, 65_718, 23_000_000, false),
            (510_764, 127_691, 1_532_293, 0, true),
        ],
    );
    owed_late(
        3,
        1_061_000,
        (440_289_348, 0),
        &[
            (1_007_948, 1_007_948, 1_007_948, 40_851_304, true),
            (365_565, 365_565, 365_565, 27_000_000, true),
            (253_089, 75_926, 253_089, 32_243_724, false),
            (389_292, 389_292, 389_292, 0, false),
            (131_075, 91_752, 131_075, 0, false),
            (400_959, 400_959, 400_959, 30_809_896, false),
            (475_911, 452_115, 475_911, 0, true),
        ],
    );
}

#[test]
fn nobody_is_late_by_slack_that_is_lent_where_nearly_all_is_reserved() {
    owed_late(
        2,
        43_044_000,
        (612_689_941, 0),
        &[
            (6_611_682, 66_117, 66_117, 20_570_990, true),
            (13_860_513, 13_860_513, 13_860_513, 0, false),
            (2_910_790, 58_215_800, 58_215_800, 43_000_000, false),
            (4_823_483, 1, 9_646_967, 0, false),
            (40_891_798, 28_624_258, 40_891_798, 0, false),
        ],
    );
}

/// What a CPU owes best effort at most, ns, of which two loops fill two and a third reservation of 20 us has a period
/// of 2 ms for a second, and of 100 ms for another.
fn owed_at_most() -> [u64; 2] {
    let kind = onbeat_core::server_policies().iter().position(|s| *s == "cbs").unwrap();
    let mut core = Core::new(2, 1, 50, SHARE_QUANTUM, 4, 0);
    for (i, (budget, period)) in
        [(94 * MS, 100 * MS), (94 * MS, 100 * MS), (20_000, 2 * MS)].into_iter().enumerate()
    {
        core.init_task(i, 3, NICE_0);
        let of = reservation(budget, period, kind as u32, ffi::OB_ORDER_EDZL);
        core.reserve(i, &Reservation { cpus: 3, ..of });
    }
    core.init_task(3, 3, NICE_0);
    let loads = (0..4).map(|_| Load::Endless).collect();
    let mut engine = Engine::new(core, 2, loads, Overheads::default(), Detail::Jobs);
    let mut longest = [0; 2];
    for (part, longest) in longest.iter_mut().enumerate() {
        for step in (1..20_000).map(|step| step * MS / 20) {
            let now = part as u64 * 1_000 * MS + step;
            engine.run(now, now);
            // What was owed before is served as it was.
            if step > 100 * MS {
                let owed = (0..2).map(|cpu| engine.core().cpu(cpu).owed).max().unwrap();
                *longest = owed.max(*longest);
            }
        }
        engine.change(|core, now| core.resize_to(2, MS, 100 * MS, now));
    }
    longest
}

#[test]
fn pieces_of_best_effort_are_long_again_when_no_period_is_short_any_more() {
    let [short, long] = owed_at_most();
    assert!((50_000..=100_000).contains(&short), "{short} ns");
    assert!((500_000..=SHARE_QUANTUM).contains(&long), "{long} ns");
}
