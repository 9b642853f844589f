// SPDX-License-Identifier: GPL-2.0-only
//! Which kind of file somebody gave, if it is not the kind that a verb reads.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Error, anyhow};

/// Kinds of files that verbs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    TaskSet,
    Sweep,
    Provision,
    Claims,
    Results,
}

/// Nothing longer is looked into.
const FILE_MOST: u64 = 1 << 20;

impl Kind {
    /// What it is, and the verbs that read it.
    fn about(self) -> (&'static str, &'static str) {
        match self {
            Kind::TaskSet => ("a task-set file", "`onbeat sim`, `lab` or `analyze`"),
            Kind::Sweep => ("a sweep file", "`onbeat sweep`"),
            Kind::Provision => ("a file of `onbeat provision`", "`onbeat provision`"),
            Kind::Claims => (
                "a file with claims of papers",
                "`onbeat report --claims`, which takes the folder above it",
            ),
            Kind::Results => ("a file of results", "`onbeat report`"),
        }
    }

    /// By its keys.
    fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            let object: serde_json::Value = serde_json::from_str(text).ok()?;
            return object.get("runs").map(|_| Kind::Results);
        }
        let table: toml::Table = text.parse().ok()?;
        let has = |key: &str| table.contains_key(key);
        if has("task") || has("best_effort") && has("duration") {
            Some(Kind::TaskSet)
        } else if has("utilization") || has("base") {
            Some(Kind::Sweep)
        } else if has("row") {
            Some(Kind::Provision)
        } else if has("claim") {
            Some(Kind::Claims)
        } else {
            None
        }
    }
}

/// What to say of a file that could not be read as `wanted`: which other kind it is, if that can be told, else `why`.
pub fn instead(file: &Path, wanted: Kind, why: Error) -> Error {
    let mut text = String::new();
    let read = File::open(file).map(|open| open.take(FILE_MOST).read_to_string(&mut text));
    let kind = read.ok().and_then(|_| Kind::of(&text)).filter(|kind| *kind != wanted);
    let Some((what, verbs)) = kind.map(Kind::about) else { return why };
    anyhow!("{}: this is {what}; you want {verbs}", file.display())
}
