// SPDX-License-Identifier: GPL-2.0-only
//! Sets of families as files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use onbeat_analysis::family::Family;
use onbeat_model::taskset::{TaskSet, Work};

use crate::output::{self, print};

/// Writes the sets and their traces into `folder`, which is made if need be, and prints the files' names. What is there
/// already with other contents is somebody's work: only `force` replaces it.
///
/// # Errors
/// Names what cannot be written, or what is there; then nothing is written.
pub fn sets(
    folder: &Path,
    sets: &[(Family, u64)],
    made: &dyn Fn((Family, u64)) -> TaskSet,
    force: bool,
) -> Result<ExitCode> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let files = |set: &TaskSet| {
        let file = folder.join(format!("{}.toml", set.name));
        [traces(folder, set), vec![(file, set.to_toml())]].concat()
    };
    if !force {
        sets.iter().flat_map(|set| files(&made(*set))).try_for_each(|(file, text)| -> Result<()> {
            ensure!(
                output::special(&file) || is_new_or_holds(&file, &text),
                "{} is there already with other contents; give --force to replace it, or another folder",
                file.display()
            );
            Ok(())
        })?;
    }
    for set in sets.iter().map(|set| made(*set)) {
        for (file, text) in files(&set) {
            output::write(&file, |out| out.write_all(text.as_bytes()))?;
        }
        print(&format!("{}\n", folder.join(format!("{}.toml", set.name)).display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_new_or_holds(file: &Path, text: &str) -> bool {
    fs::symlink_metadata(file).is_err() || fs::read(file).is_ok_and(|old| old == text.as_bytes())
}

/// The files of a set's traces, and what they are to hold.
fn traces(folder: &Path, set: &TaskSet) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for task in &set.tasks {
        let Work::Trace { path, values, .. } = &task.work else { continue };
        let mut text = format!(
            "# SPDX-License-Identifier: GPL-2.0-only\n# CPU time per job in ns, of {} in {}, made by onbeat family.\n",
            task.name, set.name
        );
        for value in &values[..] {
            let _ = writeln!(text, "{value}");
        }
        files.push((folder.join(path), text));
    }
    files
}
