// SPDX-License-Identifier: GPL-2.0-only
//! Mistakes in files that are read by their types, in the words of people who write them.

use std::io;

use anyhow::{Error, anyhow};

/// What the reader calls things, and what people do.
const WORDS: [(&str, &str); 11] = [
    ("invalid type: ", "what stands here is "),
    ("invalid value: ", "what stands here is "),
    ("unknown field ", "there is no key "),
    ("expected one of", "the keys here are"),
    ("expected u64", "write a whole number"),
    ("expected u32", "write a whole number"),
    ("expected usize", "write a whole number"),
    ("expected f64", "write a number"),
    ("expected a sequence", "write a list, such as [1, 2]"),
    ("expected a string", "write a text in quotes"),
    ("expected a borrowed string", "write a text in quotes"),
];

/// A file that cannot be read to its end; `wanted` is what to give instead of one that is no text.
pub fn unread(error: io::Error, wanted: &str) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => anyhow!("is no text; give {wanted}"),
        io::ErrorKind::IsADirectory => anyhow!("is a folder; name a file in it"),
        _ => Error::new(error).context("cannot be read; check that it is an ordinary file"),
    }
}

/// The line of the mistake and what to write there; `example` names a good file.
pub fn in_toml(text: &str, error: &toml::de::Error, example: &str) -> Error {
    if text.trim().is_empty() {
        return anyhow!("the file is empty; {example} is an example of what to write");
    }
    let message = error.message().trim();
    let missing = message.strip_prefix("missing field ");
    let words = match missing {
        Some(key) => format!("there is no {key}; add it, as in {example}"),
        None => plain(message),
    };
    let line = |at: usize| {
        1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count()
    };
    match error.span().filter(|_| missing.is_none()) {
        Some(span) => anyhow!("line {}: {words}", line(span.start)),
        None => anyhow!("{words}"),
    }
}

/// The same of what is read as JSON.
pub fn in_json(error: &serde_json::Error) -> Error {
    anyhow!("{}", plain(&error.to_string()))
}

fn plain(message: &str) -> String {
    WORDS.iter().fold(message.replace('\n', ", "), |all, (from, to)| all.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[allow(dead_code)]
        cpus: u32,
    }

    fn words(text: &str) -> String {
        let error = toml::from_str::<File>(text).unwrap_err();
        in_toml(text, &error, "good.toml").to_string()
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_in_no_types() {
        assert!(words("\n").contains("empty; good.toml"));
        assert_eq!(words("# none\n"), "there is no `cpus`; add it, as in good.toml");
        let text = words("# x\ncpus = \"four\"");
        assert!(text.starts_with("line 2: what stands here is string"), "{text}");
        assert!(text.ends_with("write a whole number"), "{text}");
        let text = words("cpus = 4\n\nspeed = 3");
        assert!(text.starts_with("line 3: there is no key `speed`"), "{text}");
    }
}
