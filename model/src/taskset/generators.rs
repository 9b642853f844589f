// SPDX-License-Identifier: GPL-2.0-only
//! `generators` of best effort, as in Kenna et al. ("Soft real-time on multiprocessors: are analysis-based schedulers
//! really worth it?", 2011): programs of one thread, to each of which jobs come at random and wait in its queue.

use serde::{Deserialize, Serialize};

use super::table::{Fault, Table, fault};
use super::{TaskSet, limits};
use crate::units::{MS, format_duration};

/// `count` equal generators. Gaps between arrivals and execution times are exponentially distributed; a draw outside
/// its limits becomes the nearer limit. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generators {
    /// How many.
    pub count: u32,
    /// Mean gap before the limit.
    pub gap: u64,
    /// Longest gap.
    pub longest_gap: u64,
    /// Mean execution time before the limits.
    pub mean: u64,
    /// Least execution time.
    pub least: u64,
    /// Most execution time.
    pub most: u64,
}

impl Generators {
    /// Those of the paper: 0.01 jobs a ms, with gaps of up to 200 ms, of 10 ms on average, between 2 ms and 100 ms.
    pub fn paper(count: u32) -> Self {
        let (gap, longest_gap) = (100 * MS, 200 * MS);
        Self { count, gap, longest_gap, mean: 10 * MS, least: 2 * MS, most: 100 * MS }
    }

    /// Name of one of them.
    pub fn name(number: u32) -> String {
        format!("generator-{number}")
    }

    /// The mean of a gap after the limit, ns.
    pub fn mean_gap(&self) -> f64 {
        let gap = self.gap as f64;
        gap * (1.0 - libm::exp(-(self.longest_gap as f64) / gap))
    }

    /// The mean of an execution time after the limits, ns.
    pub fn mean_time(&self) -> f64 {
        let mean = self.mean as f64;
        let beyond = |limit: u64| mean * libm::exp(-(limit as f64) / mean);
        self.least as f64 + beyond(self.least) - beyond(self.most)
    }

    /// What one of them asks for on average, in CPUs.
    pub fn utilization(&self) -> f64 {
        self.mean_time() / self.mean_gap()
    }
}

impl TaskSet {
    /// Its generators of best effort, if it has some.
    pub fn generators(&self) -> Option<Generators> {
        self.best_effort.and_then(|b| b.generators).filter(|g| g.count > 0)
    }
}

/// Reads the generators that [best_effort] describes.
pub(super) fn read(t: &Table<'_, '_>) -> Result<Option<Generators>, Fault> {
    const KNOWN: [&str; 5] = ["gap", "longest_gap", "mean", "least", "most"];
    let count = t.integer("generators", 0, limits::TASKS as i64)?;
    let given =
        t.table("generator", "generator", "{ gap = \"100ms\", mean = \"10ms\" }", &KNOWN)?;
    let Some(count) = count else {
        return match given {
            Some(g) => {
                let reason = "[best_effort] says how a generator is, but not how many there are";
                fault(g.at, reason, "add generators = 18, say, or leave generator out")
            }
            None => Ok(None),
        };
    };
    let paper = Generators::paper(count.value as u32);
    let Some(g) = given else { return Ok(Some(paper)) };
    let time = |key: &str, usual: u64| {
        Ok(g.duration(key, limits::PERIOD_MIN, limits::TIME)?.map_or(usual, |d| d.value))
    };
    let of = Generators {
        count: paper.count,
        gap: time("gap", paper.gap)?,
        longest_gap: time("longest_gap", paper.longest_gap)?,
        mean: time("mean", paper.mean)?,
        least: time("least", paper.least)?,
        most: time("most", paper.most)?,
    };
    // Each pair in ascending order; whichever the file gives is what is named.
    for (small, low, great, high) in [
        ("gap", of.gap, "longest_gap", of.longest_gap),
        ("least", of.least, "mean", of.mean),
        ("mean", of.mean, "most", of.most),
    ] {
        if low > high {
            let at = g.value(small).or(g.value(great)).map_or(g.at, |v| v.span().start);
            let (low, high) = (format_duration(low), format_duration(high));
            let reason = format!("a generator's {small} {low} is above its {great} {high}");
            let remedy =
                format!("give {small} = \"{high}\" or less, or a {great} of {low} or more");
            return fault(at, reason, remedy);
        }
    }
    Ok(Some(of))
}

#[cfg(test)]
mod tests {
    use super::super::samples::beside_a_task;
    use super::*;

    fn parse(best_effort: &str) -> Result<TaskSet, String> {
        beside_a_task(&format!("[best_effort]\n{best_effort}"))
    }

    #[test]
    fn generators_need_a_number_only_and_are_then_those_of_the_paper() {
        let of = parse("generators = 18").unwrap().generators().unwrap();
        assert_eq!(of, Generators::paper(18));
        // e^-2, e^-0.2 and e^-10 by hand. With 0.118 of a CPU each, 57 generators ask for 6.7 CPUs and 36 for 4.2: what
        // the paper's figures 3 (a) and (c) show under CFS. Drawn again instead, it would be 10 and 6.3.
        assert!((of.mean_gap() / 1e6 - 100.0 * (1.0 - 0.135_335)).abs() < 1e-3);
        assert!((of.mean_time() / 1e6 - (2.0 + 8.187_308 - 0.000_454)).abs() < 1e-3);
        assert!((of.utilization() - 0.1178).abs() < 1e-4);
        let one = parse("generators = 2\ngenerator = { gap = \"50ms\", most = \"20ms\" }").unwrap();
        let paper = Generators::paper(2);
        assert_eq!(one.generators(), Some(Generators { gap: 50 * MS, most: 20 * MS, ..paper }));
        assert_eq!(parse("generators = 0").unwrap().generators(), None);
    }

    #[test]
    fn generators_that_cannot_be_are_refused_with_line_and_remedy() {
        for (more, reason, remedy) in [
            ("generators = -1", "outside 0 to 1000", "between 0 and 1000"),
            ("generators = 1.5", "a whole number", "generators = 1"),
            ("generator = { gap = \"1ms\" }", "not how many", "add generators"),
            ("generators = 1\ngenerator = { gap = \"0ms\" }", "gap is zero", "at least 1us"),
            ("generators = 1\ngenerator = { mean = 10 }", "has no unit", "\"10ms\""),
            ("generators = 1\ngenerator = { rate = 0.01 }", "unknown key \"rate\"", "gap"),
            (
                "generators = 1\ngenerator = { gap = \"300ms\" }",
                "gap 300ms is above its longest_gap 200ms",
                "a longest_gap of 300ms",
            ),
            ("generators = 1\ngenerator = { mean = \"1ms\" }", "least 2ms is above", "\"1ms\""),
            ("generators = 1\ngenerator = { most = \"9ms\" }", "mean 10ms is above", "\"9ms\""),
            ("generators = 1000", "asks for 1001 tasks", "keep to 1000"),
        ] {
            let error = parse(more).unwrap_err();
            assert!(error.contains(reason) && error.contains(remedy), "{more}: {error}");
            assert!(error.starts_with("x.toml:"), "{error}");
        }
    }
}
