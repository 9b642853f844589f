// SPDX-License-Identifier: GPL-2.0-only
//! Sets of families as files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use onbeat_analysis::family::Family;
use onbeat_model::policy::Policy;
use onbeat_model::taskset::{TaskSet, Work};

use crate::output::{self, print};

/// Writes the sets and their traces into `folder`, which is made if need be, and prints the files' names.
///
/// # Errors
/// Names what cannot be written.
pub fn sets(
    folder: &Path,
    sets: &[(Family, u64)],
    duration: u64,
    policies: &[Policy],
) -> Result<ExitCode> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (family, seed) in sets {
        let set = family.generate(*seed, duration, policies.to_vec());
        let file = folder.join(format!("{}.toml", set.name));
        traces(folder, &set)?;
        output::write(&file, |out| out.write_all(set.to_toml().as_bytes()))?;
        print(&format!("{}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn traces(folder: &Path, set: &TaskSet) -> Result<()> {
    for task in &set.tasks {
        let Work::Trace { path, values, .. } = &task.work else { continue };
        let mut text = format!(
            "# SPDX-License-Identifier: GPL-2.0-only\n# CPU time per job in ns, of {} in {}, made by onbeat family.\n",
            task.name, set.name
        );
        for value in &values[..] {
            let _ = writeln!(text, "{value}");
        }
        output::write(&folder.join(path), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}
