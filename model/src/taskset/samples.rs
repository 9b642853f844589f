// SPDX-License-Identifier: GPL-2.0-only
//! What tests of parts of the file put around these.

use std::path::Path;

use super::TaskSet;

/// A set of one task `a` of 5 ms in 10 ms, with `more` lines at the end of its file.
pub fn beside_a_task(more: &str) -> Result<TaskSet, String> {
    let text = format!(
        "cpus = 1\nduration = \"9s\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\n\
         work = {{ constant = \"5ms\" }}\n{more}"
    );
    TaskSet::from_bytes(text.as_bytes(), Path::new("x.toml")).map_err(|e| e.to_string())
}
