// SPDX-License-Identifier: GPL-2.0-only
//! The rhythm of a program, of the rhythms of its threads ([`crate::beat`]) and its CPU time; or that it has none.

use crate::beat::{LONGEST, Rhythm, SHORTEST};

/// A rhythm below this confidence is none.
const CONFIDENCE: f64 = 0.5;
/// Periods that differ by no more than that are the same.
const ALIKE: f64 = 0.04;
/// Threads that beat must use this part of the program's CPU time, or the rhythm is that of a sideline.
const EXPLAINED: f64 = 0.5;
/// Looks in a row that must agree on a first rhythm, and on another one.
const FIRST: u32 = 2;
const ANOTHER: u32 = 4;
/// A program that uses less of a CPU than this rests.
const RESTS: f64 = 0.002;
/// One that uses more is busy all the time.
const BUSY: f64 = 0.9;
/// A first budget is so much above what was seen.
const GENEROUS: f64 = 1.25;
/// A period is shared by a thread that beats so many times as slowly.
const SLOWER: f64 = 16.0;

/// What was seen of a program since the look before.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Its threads that beat.
    pub threads: &'a [Rhythm],
    /// CPU time of all its threads and children, ns.
    pub used: u64,
    /// How long that was, ns.
    pub elapsed: u64,
}

/// A program's rhythm: what to begin with, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// From one job to the next.
    pub period: u64,
    /// CPU time of a job, generously.
    pub budget: u64,
}

/// Why a program has no rhythm. Displays as a part of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It hardly uses a CPU.
    Rests,
    /// It works all the time.
    Busy,
    /// What beats is a sideline.
    Sideline,
    /// It wakes at irregular distances.
    Irregular,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rests => "it has hardly used a CPU",
            Self::Busy => "it works without a pause, as batch programs do",
            Self::Sideline => "the threads that wake at equal distances do little of its work",
            Self::Irregular => "its threads do not wake at equal distances",
        })
    }
}

/// Looks at a program again and again.
#[derive(Debug, Clone, Default)]
pub struct Watcher {
    /// The last looks agree on that rhythm, so many of them.
    candidate: Option<(Pulse, u32)>,
    /// The rhythm that was found last.
    found: Option<Pulse>,
    used: u64,
    elapsed: u64,
    /// Some thread had a rhythm.
    beats: bool,
}

impl Watcher {
    /// Of a program whose rhythm is known already, if it is.
    pub fn new(found: Option<Pulse>) -> Self {
        Self { found, ..Self::default() }
    }

    /// One more look: the program's rhythm, if it is found now, or another one than before. A rhythm that changes at
    /// each look is none: nobody could follow it.
    pub fn look(&mut self, look: &Look<'_>) -> Option<Pulse> {
        self.used += look.used;
        self.elapsed += look.elapsed;
        self.beats |= !look.threads.is_empty();
        let Some(pulse) = pulse(look) else {
            self.candidate = None;
            return None;
        };
        let seen = match self.candidate {
            Some((before, seen)) if alike(before.period, pulse.period) => {
                let budget = before.budget.max(pulse.budget);
                self.candidate = Some((Pulse { budget, ..pulse }, seen + 1));
                seen + 1
            }
            _ => {
                self.candidate = Some((pulse, 1));
                1
            }
        };
        if self.found.is_some_and(|found| alike(found.period, pulse.period)) {
            self.candidate = None;
            return None;
        }
        if seen < if self.found.is_some() { ANOTHER } else { FIRST } {
            return None;
        }
        self.found = self.candidate.take().map(|(pulse, _)| pulse);
        self.found
    }

    /// Why no rhythm has been found so far.
    pub fn reason(&self) -> Reason {
        let rate = self.used as f64 / self.elapsed.max(1) as f64;
        if rate < RESTS {
            Reason::Rests
        } else if self.beats {
            Reason::Sideline
        } else if rate > BUSY {
            Reason::Busy
        } else {
            Reason::Irregular
        }
    }
}

fn alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) as f64 <= ALIKE * a.max(b) as f64
}

/// The rhythm in one look: that of the threads that use most, or a faster one that they share.
fn pulse(look: &Look<'_>) -> Option<Pulse> {
    let beating: Vec<&Rhythm> =
        look.threads.iter().filter(|rhythm| rhythm.confidence >= CONFIDENCE).collect();
    let rate = |r: &Rhythm| r.used_ns as f64 / r.period_ns.max(1) as f64;
    let together = |period: u64| {
        let same = beating.iter().filter(|r| alike(r.period_ns, period));
        same.map(|r| rate(r)).sum::<f64>()
    };
    let most = |a: &&&Rhythm, b: &&&Rhythm| {
        let all = together(a.period_ns).total_cmp(&together(b.period_ns));
        all.then(rate(a).total_cmp(&rate(b)))
    };
    let main = *beating.iter().max_by(most)?;
    let explained: f64 = beating.iter().map(|r| rate(r)).sum();
    let all = look.used as f64 / look.elapsed.max(1) as f64;
    if explained < EXPLAINED * all {
        return None;
    }
    // Decoders may take turns: each works for every fourth frame, say, and who shows the frames wakes for each.
    let shares = |r: &&&Rhythm| {
        let times = main.period_ns as f64 / r.period_ns as f64;
        times > 1.5
            && times < SLOWER
            && (times - times.round()).abs() <= ALIKE * times.round()
            && (main.used_max_ns as f64) < 0.9 * r.period_ns as f64
    };
    let shared = beating.iter().filter(shares).map(|r| r.period_ns).min();
    let period = shared.unwrap_or(main.period_ns).clamp(SHORTEST, LONGEST);
    let per_job =
        |r: &&Rhythm| r.used_max_ns as f64 * (period as f64 / r.period_ns as f64).min(1.0);
    let jobs: f64 = beating.iter().map(per_job).sum();
    let rest = (all - explained).max(0.0) * period as f64;
    let budget = ((jobs + rest) * GENEROUS).max(all * period as f64 * GENEROUS);
    Some(Pulse { period, budget: (budget as u64).clamp(1, period) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn beat(period_ms: u64, used_ms: u64) -> Rhythm {
        Rhythm {
            period_ns: period_ms * MS,
            confidence: 0.9,
            used_ns: used_ms * MS,
            used_max_ns: used_ms * MS + MS,
            periods: 15,
        }
    }

    /// What is found at each of these looks, half a second apart.
    fn looks(watcher: &mut Watcher, looks: &[(&[Rhythm], u64)]) -> Vec<Option<u64>> {
        let one = |(threads, used_ms): &(&[Rhythm], u64)| {
            let look = Look { threads, used: used_ms * MS, elapsed: 500 * MS };
            watcher.look(&look).map(|pulse| pulse.period / MS)
        };
        looks.iter().map(one).collect()
    }

    #[test]
    fn a_rhythm_that_two_looks_agree_on_is_the_program_s_with_room_for_its_greatest_job() {
        let mut watcher = Watcher::default();
        let threads = [beat(40, 10), beat(41, 2)];
        assert_eq!(looks(&mut watcher, &[(&threads, 150), (&threads, 150)]), [None, Some(40)]);
        let found = watcher.found.unwrap();
        assert!((14 * MS..=40 * MS).contains(&found.budget), "{found:?}");
    }

    #[test]
    fn decoders_that_take_turns_beat_with_the_thread_that_shows_each_frame() {
        let threads = [beat(160, 20), beat(160, 22), beat(40, 1)];
        let mut watcher = Watcher::default();
        assert_eq!(looks(&mut watcher, &[(&threads, 150), (&threads, 150)])[1], Some(40));
        // But not with one whose period their work does not fit.
        let threads = [beat(160, 60), beat(40, 1)];
        let mut watcher = Watcher::default();
        assert_eq!(looks(&mut watcher, &[(&threads, 200), (&threads, 200)])[1], Some(160));
    }

    #[test]
    fn a_batch_program_has_no_rhythm_though_a_thread_of_it_beats_nor_has_one_that_rests() {
        let progress = [beat(500, 1)];
        for (threads, used, reason) in [
            (&progress[..], 490, Reason::Sideline),
            (&[], 490, Reason::Busy),
            (&[], 0, Reason::Rests),
            (&[], 100, Reason::Irregular),
        ] {
            let mut watcher = Watcher::default();
            assert_eq!(looks(&mut watcher, &[(threads, used); 8]), [None; 8]);
            assert_eq!(watcher.reason(), reason);
        }
    }

    #[test]
    fn another_rhythm_is_followed_once_it_lasts_and_one_that_keeps_changing_is_not_chased() {
        let (slow, fast, other) = ([beat(40, 10)], [beat(20, 5)], [beat(30, 7)]);
        let mut watcher = Watcher::new(Some(Pulse { period: 40 * MS, budget: 12 * MS }));
        let restless: Vec<(&[Rhythm], u64)> = (0..20)
            .map(|i| {
                let threads: &[Rhythm] = [&slow, &fast, &other][i / 2 % 3];
                (threads, 125)
            })
            .collect();
        assert_eq!(looks(&mut watcher, &restless), [None; 20]);
        let lasts: [(&[Rhythm], u64); 4] = [(&fast, 125); 4];
        assert_eq!(looks(&mut watcher, &lasts), [None, None, None, Some(20)]);
        assert_eq!(looks(&mut watcher, &lasts), [None; 4]);
    }
}
