// SPDX-License-Identifier: GPL-2.0-only
//! Which policies can play a set: what a file is refused for says the line, what is asked for on the command line comes
//! here.

use super::TaskSet;
use crate::policy::Policy;

impl TaskSet {
    /// Whether `policy` can serve what no set of CPUs with a policy of its own does.
    ///
    /// # Errors
    /// It cannot: why, and what to do.
    pub fn plays(&self, policy: &Policy) -> Result<(), String> {
        let Policy::Core { order, server } = policy else { return Ok(()) };
        if order.key.ranks() && !self.sets.is_empty() {
            return Err(format!(
                "{policy} ranks, has servers for best effort and serves all CPUs; leave [[set]] out, or choose another"
            ));
        }
        let parts = self.parts();
        let unnamed = |part: usize| parts[part].set.is_none();
        let groups = (0..self.groups.len()).any(|group| unnamed(self.part_of_group(group)));
        let purses =
            self.tasks.iter().any(|task| task.purse.is_some() && unnamed(self.part_of(task)));
        if order.splits() && (groups || purses) {
            return Err(format!(
                "{policy} splits reservations, and those have no groups or purses; choose another, say \
                 \"p-edf+cbs-hard\""
            ));
        }
        if groups && !server.enforces() {
            return Err(format!(
                "{policy} enforces no budgets, which groups need; add a server to it, say \"{policy}+cbs-hard\""
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn says(more: &str, policy: &str) -> Result<(), String> {
        let text = format!(
            "cpus = 2\nduration = \"1s\"\npolicies = [\"p-edf+cbs\"]\n{more}\n[[task]]\nname = \"t\"\n\
             period = \"10ms\"\nbudget = \"1ms\"\nwork = {{ constant = \"1ms\" }}\n{}",
            if more.contains("group") { "group = \"g\"\n" } else { "" },
        );
        let set = TaskSet::from_bytes(text.as_bytes(), Path::new("s.toml")).unwrap();
        set.plays(&policy.parse().unwrap())
    }

    #[test]
    fn what_is_asked_for_on_the_command_line_is_held_against_the_file() {
        let set = "[[set]]\nname = \"a\"\ncpus = [1]\npolicy = \"p-edf+cbs\"";
        let group = "[[group]]\nname = \"g\"\nbudget = \"5ms\"\nperiod = \"10ms\"";
        for (more, policy, word) in [
            (set, "edf-hsb-ns", "serves all CPUs"),
            (group, "edf-wm+cbs", "splits"),
            (group, "g-edf", "enforces no budgets"),
        ] {
            let why = says(more, policy).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(says("", "edf-hsb-ns"), Ok(()));
        assert_eq!(says(group, "g-edf+cbs"), Ok(()));
        assert_eq!(says(set, "eevdf"), Ok(()));
    }
}
