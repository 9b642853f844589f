// SPDX-License-Identifier: GPL-2.0-only
//! `--config FILE`: options from a file. Its keys are the options' names, so that everything an option may be is said
//! in one place; what the command line gives comes before what the file says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command, FromArgMatches};
use onbeat_command::MISUSED;
use onbeat_model::units::clip;
use toml::de::{DeTable, DeValue};

use crate::options::Options;

/// Options for one start from the command line, which mean nothing in a file.
const NOT_IN_FILES: [&str; 7] =
    ["config", "check", "with", "monitor", "help-stats", "help", "version"];
/// Longest file, bytes.
const LONGEST: u64 = 1 << 20;

/// The options in force, and where the file says those that come from there.
#[derive(Debug)]
pub struct Given {
    /// In force.
    pub options: Options,
    file: PathBuf,
    /// By option, the line of the file.
    lines: BTreeMap<String, usize>,
}

impl Given {
    /// The options of the command line and of the file that it names. Ends the process where clap does: after help,
    /// and with status 2 if the command line makes no sense.
    ///
    /// # Errors
    /// The file cannot be read or is wrong: which line, why, what to do.
    pub fn read() -> Result<Self> {
        let mut command = onbeat_command::command::<Options>();
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let matches =
            command.clone().try_get_matches().unwrap_or_else(|e| onbeat_command::end(&e, MISUSED));
        let Some(file) = matches.get_one::<PathBuf>("config") else {
            let options = Options::from_arg_matches(&matches)
                .unwrap_or_else(|e| onbeat_command::end(&e.format(&mut command), MISUSED));
            return Ok(Self { options, file: PathBuf::new(), lines: BTreeMap::new() });
        };
        let remedy = "correct --config, or leave it out";
        let length = std::fs::metadata(file).map_or(0, |meta| meta.len());
        if length > LONGEST {
            bail!("{}: {length} bytes are no configuration; {remedy}", file.display());
        }
        let text = std::fs::read_to_string(file).map_err(|e| {
            anyhow!("cannot read the configuration {}: {e}; {remedy}", file.display())
        })?;
        Self::merge(file, &text, &arguments)
    }

    /// The options of `text`, the contents of `file`, and those of the command line `arguments`.
    fn merge(file: &Path, text: &str, arguments: &[OsString]) -> Result<Self> {
        let command = onbeat_command::command::<Options>();
        let parse = |words: &[OsString]| {
            let name = OsString::from("scx_onbeat");
            command.clone().try_get_matches_from(std::iter::once(&name).chain(words))
        };
        let given = parse(arguments)?;
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let wrong = |line: usize, what: String| anyhow!("{}:{line}: {what}", file.display());
        let table = DeTable::parse(text).map_err(|e| {
            let line = line_of(e.span().map_or(0, |span| span.start.min(text.len())));
            wrong(line, format!("{}; write TOML, such as max-share = \"50%\"", e.message()))
        })?;
        let (mut all, mut lines) = (Vec::new(), BTreeMap::new());
        for (key, value) in table.get_ref() {
            let (name, line) = (key.get_ref().as_ref(), line_of(key.span().start));
            let option = known(&command, name).map_err(|what| wrong(line, what))?;
            let words = words(option, name, value.get_ref()).map_err(|what| wrong(line, what))?;
            // Alone, so that a mistake is told with its line.
            if let Err(error) = parse(&words) {
                return Err(wrong(line, reason(&error)));
            }
            let id = option.get_id().as_str();
            if given.value_source(id) != Some(ValueSource::CommandLine) {
                all.extend(words);
                lines.insert(name.to_string(), line);
            }
        }
        all.extend_from_slice(arguments);
        let options = Options::from_arg_matches(&parse(&all)?)?;
        Ok(Self { options, file: file.to_path_buf(), lines })
    }

    /// A mistake in what options say, with the line of the first that it names, if that stands in the file.
    pub fn located(&self, mistake: anyhow::Error) -> anyhow::Error {
        let text = format!("{mistake:#}");
        let named = text.split("--").skip(1).map(|rest| {
            rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default()
        });
        match named.filter_map(|name| self.lines.get(name)).next() {
            Some(line) => anyhow!("{}:{line}: {text}", self.file.display()),
            None => anyhow!(text),
        }
    }
}

/// The option of this name, if files may have it.
fn known<'a>(command: &'a Command, name: &str) -> Result<&'a Arg, String> {
    if NOT_IN_FILES.contains(&name) {
        return Err(format!("{name} is for the command line only; remove the line"));
    }
    let found = command.get_arguments().find(|arg| arg.get_long() == Some(name));
    found.ok_or_else(|| {
        let asked = command.clone().try_get_matches_from(["scx_onbeat", &format!("--{name}")]);
        let near = asked.err().and_then(|error| match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(near)) => Some(near.trim_start_matches('-').to_string()),
            _ => None,
        });
        let remedy = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "the keys are the options in `scx_onbeat --help`, without their dashes".into(),
        };
        format!("unknown key \"{}\"; {remedy}", clip(name))
    })
}

/// An entry of the file as words of a command line.
fn words(option: &Arg, name: &str, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(format!("--{name}={text}").into()),
        DeValue::Integer(number) => Some(format!("--{name}={}", number.as_str()).into()),
        DeValue::Float(number) => Some(format!("--{name}={}", number.as_str()).into()),
        _ => None,
    };
    let many = matches!(option.get_action(), ArgAction::Append);
    let all: Option<Vec<OsString>> = match (value, option.get_action()) {
        (DeValue::Boolean(on), ArgAction::SetTrue) => {
            Some(on.then(|| format!("--{name}").into()).into_iter().collect())
        }
        (_, ArgAction::SetTrue) => None,
        (DeValue::Array(list), _) if many => list.iter().map(|item| word(item.get_ref())).collect(),
        (single, _) => word(single).map(|word| vec![word]),
    };
    all.ok_or_else(|| match option.get_action() {
        ArgAction::SetTrue => format!("{name} is true or false; write {name} = true"),
        _ if many => format!("{name} is a list of texts; write {name} = [\"…\", \"…\"]"),
        _ => format!("{name} is a text or a number; write {name} = \"…\""),
    })
}

/// What clap says first, without its hints for command lines.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first).to_string();
    let values = text.lines().find(|line| line.trim_start().starts_with("[possible values"));
    values.map_or(first.clone(), |values| format!("{first} {}", values.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(text: &str, arguments: &[&str]) -> Result<Given> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        Given::merge(Path::new("/etc/o.toml"), text, &arguments)
    }

    #[test]
    fn the_file_says_what_options_would_and_the_command_line_wins() {
        let text = "# Ours.\nmax-share = \"30%\"\nwatchdog = \"5s\"\nno-isolation = true\ncosts = false\n\
                    event-room = 4096\nlimit = [\"@audio=80%\", \"anna=10%\"]\nset = [\"a=1:p-edf+cbs\"]\n";
        let Options { max_share, watchdog, no_isolation, costs, event_room, limits, sets, .. } =
            merge(text, &["--watchdog", "9s", "--set", "b=0:p-edf+cbs"]).unwrap().options;
        assert_eq!((max_share.as_str(), watchdog.as_secs()), ("30%", 9));
        assert_eq!((no_isolation, costs, event_room), (true, false, 4096));
        assert_eq!(
            limits.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["@audio=80%", "anna=10%"]
        );
        assert_eq!(sets, ["b=0:p-edf+cbs"]);
        // What nobody says is as without a file.
        let without = merge("", &[]).unwrap().options;
        assert_eq!((without.max_share.as_str(), without.limits.len()), ("50%", 0));
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_what_to_write() {
        for (text, line, words) in [
            ("\nmax-shore = \"5%\"\n", 2, "unknown key \"max-shore\"; did you mean max-share?"),
            ("zzz = 1\n", 1, "the keys are the options in `scx_onbeat --help`"),
            ("\n\nwatchdog = \"99s\"\n", 3, "the kernel's watchdog takes 1s to 30s"),
            ("no-isolation = \"yes\"\n", 1, "write no-isolation = true"),
            ("cpus = [1, 2]\n", 1, "write cpus = \"…\""),
            ("limit = [true]\n", 1, "write limit = [\"…\", \"…\"]"),
            ("limit = [\"@audio\"]\n", 1, "such as @audio=80%"),
            ("policy = \"a\"\npolicy = \"b\"\n", 2, "write TOML"),
            ("max-share 50%\n", 1, "write TOML"),
            ("with = 1\n", 1, "with is for the command line only; remove the line"),
        ] {
            let said = format!("{:#}", merge(text, &[]).unwrap_err());
            assert!(said.starts_with(&format!("/etc/o.toml:{line}: ")), "{said}");
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn what_only_the_machine_shows_to_be_wrong_is_told_with_its_line_too() {
        let given = merge("policy = \"g-edf+cbs\"\nmax-share = \"150%\"\n", &[]).unwrap();
        let said = |text: &str| given.located(anyhow!("{text}")).to_string();
        assert_eq!(
            said("--max-share 150%: at most 100%"),
            "/etc/o.toml:2: --max-share 150%: at most 100%"
        );
        assert_eq!(said("choose another --policy"), "/etc/o.toml:1: choose another --policy");
        // From the command line.
        assert_eq!(said("--cpus: there is no CPU 9"), "--cpus: there is no CPU 9");
    }

    #[test]
    fn the_file_that_is_installed_changes_nothing_and_what_it_shows_can_be_taken() {
        let shipped = include_str!("../../packaging/onbeat.toml");
        let plain = format!("{:?}", merge("", &[]).unwrap().options);
        assert_eq!(format!("{:?}", merge(shipped, &[]).unwrap().options), plain);
        let example = |line: &str| line.starts_with('#') && line.contains(" = ");
        let taken: Vec<_> = shipped.lines().filter(|l| example(l)).map(|l| &l[1..]).collect();
        let all = merge(&taken.join("\n"), &[]).unwrap();
        assert!(taken.len() > 4 && all.lines.len() == taken.len(), "{taken:?}");
    }
}
