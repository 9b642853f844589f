// SPDX-License-Identifier: GPL-2.0-only
//! A task set as the text of a file.

use std::fmt::Write;

use super::{
    BestEffortLoad, CpuSet, Generators, Group, Kernel, Overheads, Portion, Purse, Section, Segment,
    TaskEntry, TaskSet, Waits, Work,
};
use crate::units::{format_duration, format_percent};

impl TaskSet {
    /// The text of a file that says the same. Traces are named, not included. The best-effort share must be a decimal
    /// percentage.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("# SPDX-License-Identifier: GPL-2.0-only\n");
        let policies: Vec<String> = self.policies.iter().map(|p| quoted(&p.to_string())).collect();
        let kernel = match self.kernel {
            Kernel::Plain => "plain",
            Kernel::Rt => "rt",
        };
        for (key, value) in [
            ("name", quoted(&self.name)),
            ("title", quoted(&self.title)),
            ("cpus", self.cpus.to_string()),
            ("duration", time(self.duration)),
            ("seed", self.seed.to_string()),
            ("policies", format!("[{}]", policies.join(", "))),
            ("best_effort_share", quoted(&format_percent(self.best_effort_share))),
            ("clusters", self.clusters.to_string()),
            ("kernel", quoted(kernel)),
        ] {
            line(&mut text, key, &value);
        }
        if let Some(share) = self.max_share {
            line(&mut text, "max_share", &quoted(&format_percent(share)));
        }
        if self.overheads != Overheads::default() {
            let Overheads { dispatch, preemption, migration, wake, tick, tick_phase } =
                self.overheads;
            text.push_str("\n[overheads]\n");
            for (key, ns) in [
                ("dispatch", dispatch),
                ("preemption", preemption),
                ("migration", migration),
                ("wake", wake),
                ("tick", tick),
                ("tick_phase", tick_phase),
            ] {
                line(&mut text, key, &time(ns));
            }
        }
        self.sets.iter().for_each(|set| set.to_toml(&mut text));
        self.purses.iter().for_each(|purse| purse.to_toml(self, &mut text));
        self.groups.iter().for_each(|group| group.to_toml(self, &mut text));
        self.tasks.iter().for_each(|task| task.to_toml(self, &mut text));
        if let Some(best_effort) = self.best_effort {
            let _ = write!(text, "\n[best_effort]\ncount = {}\n", best_effort.count);
            line(&mut text, "nice", &best_effort.nice.to_string());
            let order = best_effort.baseline.map_or(best_effort.order.name(), |old| old.name());
            line(&mut text, "order", &quoted(order));
            if let Some(group) = best_effort.group {
                line(&mut text, "group", &quoted(&self.groups[group].name));
            }
            if let Some(servers) = best_effort.servers {
                line(&mut text, "servers", &servers.count.to_string());
                line(&mut text, "budget", &time(servers.budget));
                line(&mut text, "period", &time(servers.period));
            }
        }
        if let Some(of) = self.best_effort.and_then(|b| b.generators) {
            of.to_toml(&mut text);
        }
        self.loads.iter().for_each(|load| load.to_toml(&mut text));
        text
    }
}

impl CpuSet {
    fn to_toml(&self, text: &mut String) {
        text.push_str("\n[[set]]\n");
        line(text, "name", &quoted(&self.name));
        line(text, "cpus", &format!("{:?}", self.cpus));
        line(text, "policy", &quoted(&self.policy.to_string()));
        line(text, "clusters", &self.clusters.to_string());
    }
}

impl Purse {
    fn to_toml(&self, set: &TaskSet, text: &mut String) {
        text.push_str("\n[[purse]]\n");
        line(text, "name", &quoted(&self.name));
        if let Some(parent) = self.parent {
            line(text, "in", &quoted(&set.purses[parent].name));
        }
        line(text, "period", &time(self.period));
        let one = |s: &Segment| {
            let (budget, from, until) = (time(s.budget), time(s.from), time(s.until));
            format!("{{ budget = {budget}, from = {from}, until = {until} }}")
        };
        let all: Vec<String> = self.segments.iter().map(one).collect();
        line(text, "segments", &format!("[{}]", all.join(", ")));
    }
}

impl Group {
    fn to_toml(&self, set: &TaskSet, text: &mut String) {
        text.push_str("\n[[group]]\n");
        line(text, "name", &quoted(&self.name));
        if let Some(parent) = self.parent {
            line(text, "in", &quoted(&set.groups[parent].name));
        }
        if let Some(order) = self.order {
            line(text, "order", &quoted(order.name()));
        }
        match self.portion {
            Portion::Budget => line(text, "budget", &time(self.budget)),
            Portion::Weight(weight) => line(text, "weight", &weight.to_string()),
            Portion::Orders => {}
        }
        line(text, "period", &time(self.period));
        line(text, "deadline", &time(self.deadline));
        if let Some(rule) = self.rule.filter(|_| self.portion != Portion::Orders) {
            line(text, "rule", &quoted(rule.name()));
        }
        if let Some(cpus) = &self.cpus {
            line(text, "cpus", &format!("{cpus:?}"));
        }
        if let Some(purse) = self.purse {
            line(text, "purse", &quoted(&set.purses[purse].name));
        }
        if let Some(named) = self.set {
            line(text, "set", &quoted(&set.sets[named].name));
        }
    }
}

impl TaskEntry {
    fn to_toml(&self, set: &TaskSet, text: &mut String) {
        text.push_str("\n[[task]]\n");
        line(text, "name", &quoted(&self.name));
        line(text, "count", &self.count.to_string());
        line(text, "period", &time(self.period));
        line(text, "deadline", &time(self.deadline));
        if let Some(budget) = self.budget {
            line(text, "budget", &time(budget));
        }
        line(text, "offset", &time(self.offset));
        line(text, "stagger", &time(self.stagger));
        if let Some(cpus) = &self.affinity {
            line(text, "affinity", &format!("{cpus:?}"));
        }
        line(text, "marks", &self.marks.to_string());
        if let Some(user) = &self.user {
            line(text, "user", &quoted(user));
        }
        if let Some(value) = self.value {
            line(text, "value", &value.to_string());
        }
        if let Some(class) = self.class {
            line(text, "class", &quoted(class.name()));
        }
        if let Some(group) = self.group {
            line(text, "group", &quoted(&set.groups[group].name));
        }
        if let Some(purse) = self.purse {
            line(text, "purse", &quoted(&set.purses[purse].name));
        }
        if let Some(named) = self.set {
            line(text, "set", &quoted(&set.sets[named].name));
        }
        if self.threads > 1 {
            line(text, "threads", &self.threads.to_string());
        }
        if !self.sections.is_empty() {
            let one = |s: &Section| {
                let (from, length) = (time(s.from), time(s.length));
                let resource = quoted(&set.resources[s.resource]);
                format!("{{ resource = {resource}, from = {from}, length = {length} }}")
            };
            let all: Vec<String> = self.sections.iter().map(one).collect();
            line(text, "sections", &format!("[{}]", all.join(", ")));
        }
        if self.abort {
            line(text, "abort", &quoted("at-deadline"));
        }
        if let Some(bound) = self.bound {
            let one = |(key, ns): (&str, Option<u64>)| Some(format!("{key} = {}", time(ns?)));
            let parts = [("tardiness", bound.tardiness), ("expected", bound.expected)];
            let parts: Vec<String> = parts.into_iter().filter_map(one).collect();
            line(text, "bound", &format!("{{ {} }}", parts.join(", ")));
        }
        if let Some(priority) = self.waits.priority {
            line(text, "priority", &priority.to_string());
        }
        let Waits { jitter, blocking, overhead, .. } = self.waits;
        for (key, ns) in [("jitter", jitter), ("blocking", blocking), ("overhead", overhead)] {
            if ns > 0 {
                line(text, key, &time(ns));
            }
        }
        if let Some(frames) = self.frames {
            line(text, "frames_from", &quoted(&set.tasks[frames.decoder].name));
            line(text, "queue", &frames.queue.to_string());
        }
        line(text, "work", &format!("{{ {} }}", self.work.to_toml()));
    }
}

impl Generators {
    fn to_toml(self, text: &mut String) {
        line(text, "generators", &self.count.to_string());
        let times = [
            ("gap", self.gap),
            ("longest_gap", self.longest_gap),
            ("mean", self.mean),
            ("least", self.least),
            ("most", self.most),
        ];
        let all = times.map(|(key, ns)| format!("{key} = {}", time(ns)));
        line(text, "generator", &format!("{{ {} }}", all.join(", ")));
    }
}

impl BestEffortLoad {
    fn to_toml(&self, text: &mut String) {
        text.push_str("\n[[best_effort.load]]\n");
        line(text, "name", &quoted(&self.name));
        line(text, "count", &self.count.to_string());
        line(text, "nice", &self.nice.to_string());
        line(text, "period", &time(self.period));
        line(text, "arrivals", &quoted(self.arrivals.name()));
        line(text, "work", &format!("{{ {} }}", self.work.to_toml()));
    }
}

impl Work {
    /// What stands in the braces.
    fn to_toml(&self) -> String {
        match self {
            Work::Constant(ns) => format!("constant = {}", time(*ns)),
            Work::Uniform(low, high) => format!("uniform = [{}, {}]", time(*low), time(*high)),
            Work::Normal { mean, sd, max } => {
                let (mean, sd, max) = (time(*mean), time(*sd), time(*max));
                format!("normal = {{ mean = {mean}, sd = {sd}, max = {max} }}")
            }
            Work::Exponential { mean, max } => {
                format!("exponential = {{ mean = {}, max = {} }}", time(*mean), time(*max))
            }
            Work::Trace { path, start, .. } => {
                format!("trace = {}, start = {start}", quoted(&path.to_string_lossy()))
            }
            Work::Pool { path, .. } => format!("pool = {}", quoted(&path.to_string_lossy())),
            Work::Movie { path, size } => {
                let size =
                    size.map_or_else(String::new, |(w, h)| format!(", width = {w}, height = {h}"));
                format!("movie = {}{size}", quoted(&path.to_string_lossy()))
            }
            Work::Program(words) => {
                let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                format!("program = [{}]", words.join(", "))
            }
        }
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key} = {value}");
}

fn time(ns: u64) -> String {
    quoted(&format_duration(ns))
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_written_reads_as_the_same_set() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t \"x\".csv"), "5\n6\n").unwrap();
        std::fs::write(folder.path().join("p.csv"), "film,5,6\n").unwrap();
        let text = r#"
            title = 'a "title" \ here'
            cpus = 3
            duration = "1.000000001s"
            seed = 9223372036854775807
            policies = ["g-fifo", "scx:flash", "rm+cbs", "edf-hsb-ns"]
            best_effort_share = "2.5%"
            max_share = "37.5%"
            clusters = 3
            kernel = "rt"
            overheads = { dispatch = "1us", migration = "7ns", wake = "20us" }
            [best_effort]
            count = 2
            nice = -3
            order = "berate"
            servers = 2
            budget = "3ms"
            generators = 5
            generator = { gap = "50ms", least = "1ms" }
            [[best_effort.load]]
            name = "editor"
            count = 2
            nice = 4
            period = "20ms"
            arrivals = "poisson"
            work = { exponential = { mean = "1ms", max = "9ms" } }
            [[task]]
            name = "a"
            count = 2
            period = "33333us"
            deadline = "20ms"
            budget = "5ms"
            offset = "1ms"
            stagger = "160us"
            affinity = [0, 2]
            user = "anna"
            value = 7
            class = "hard"
            abort = "at-deadline"
            bound = { expected = "9ms" }
            priority = 4
            jitter = "1us"
            blocking = "2us"
            overhead = "3ns"
            threads = 3
            sections = [
                { resource = "bus", from = "1ns", length = "4ns" },
                { resource = "disk", from = "1ns", length = "2ns" },
            ]
            work = { trace = 't "x".csv', start = 1 }
        "#;
        let kinds = [
            "constant = \"3ms\"",
            "uniform = [\"1ms\", \"2ms\"]",
            "normal = { mean = \"5ms\", sd = \"0s\", max = \"6ms\" }",
            "exponential = { mean = \"5ms\", max = \"6ms\" }",
            "pool = \"p.csv\"",
            "movie = \"m.mp4\", width = 16, height = 32",
            "movie = \"m.mp4\"",
            "program = [\"a\", \"b \\\" c\"]",
        ];
        let mut text = text.to_owned();
        for (i, kind) in kinds.iter().enumerate() {
            let _ =
                write!(text, "\n[[task]]\nname = \"t{i}\"\nperiod = \"9ms\"\nwork = {{ {kind} }}");
        }
        let _ = write!(
            text,
            "\n[[task]]\nname = \"show\"\nperiod = \"9ms\"\nframes_from = \"t4\"\nqueue = 2\nwork = {{ {} }}",
            kinds[0]
        );
        let path = folder.path().join("set.toml");
        let read = |text: &str| TaskSet::from_bytes(text.as_bytes(), Path::new(&path)).unwrap();
        let set = read(&text);
        assert_eq!(read(&set.to_toml()), set);
    }
}
