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
    /// What that verb printed with --json.
    Answer(&'static str),
}

/// Nothing longer is looked into.
const FILE_MOST: u64 = 1 << 20;

impl Kind {
    /// What it is, and the verbs that read it.
    fn about(self) -> String {
        let (what, verbs) = match self {
            Kind::TaskSet => ("a task-set file", "`onbeat sim`, `lab` or `analyze`"),
            Kind::Sweep => ("a sweep file", "`onbeat sweep`"),
            Kind::Provision => ("a file of `onbeat provision`", "`onbeat provision`"),
            Kind::Claims => (
                "a file with claims of papers",
                "`onbeat report --claims`, which takes the folder above it",
            ),
            Kind::Results => ("a file of results", "`onbeat report`"),
            Kind::Answer(verb) => {
                return format!(
                    "what `{verb}` printed with --json, which no verb reads; `onbeat report` reads what `onbeat sim` \
                     and `lab` print"
                );
            }
        };
        format!("{what}; you want {verbs}")
    }

    /// By its keys.
    fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            let mut objects = serde_json::Deserializer::from_str(text).into_iter();
            let object: serde_json::Value = objects.next()?.ok()?;
            let printed = [
                ("runs", Kind::Results),
                ("repetitions", Kind::Results),
                ("verdict", Kind::Answer("onbeat analyze")),
                ("guaranteed", Kind::Answer("onbeat limit")),
                ("points", Kind::Answer("onbeat sweep")),
                ("families", Kind::Answer("onbeat family")),
            ];
            return printed.into_iter().find(|(key, _)| object.get(key).is_some()).map(|(_, k)| k);
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
    let Some(about) = kind.map(Kind::about) else { return why };
    anyhow!("{}: this is {about}", file.display())
}
