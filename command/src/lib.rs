// SPDX-License-Identifier: GPL-2.0-only
//! The `command` room of Onbeat: what all its programs have in common as commands. Their manual pages and completions
//! come from their own definitions: `PROGRAM --generate FOLDER` writes them, which nobody but the build needs.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::exit;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Command, CommandFactory, Parser};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

/// Colours of help and errors, where a terminal is: clap leaves them out elsewhere, and with NO_COLOR.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Prints to stdout. A reader that has gone away (`| head`) is no error.
///
/// # Errors
/// Any other failure to write.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A whole number of `range`, for clap, which itself complains of an "invalid digit".
pub fn whole<T>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!("write a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// Makes manual pages and completions instead of anything else.
const GENERATE: &str = "--generate";

/// The command that `P` describes, as all of Onbeat's programs show it.
pub fn command<P: CommandFactory>() -> Command {
    P::command().styles(STYLES)
}

/// Exit status of a command whose command line cannot be read.
pub const MISUSED: u8 = 2;
/// Exit status of commands that pass on that of a program, if they fail themselves, whatever the reason: as timeout(1),
/// env(1) and the like.
pub const FAILED_ITSELF: u8 = 125;

/// A command line that can be read and makes no sense: its exit status is that of one that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misuse(String);

/// A command line makes no sense, for this reason.
pub fn misuse(why: impl std::fmt::Display) -> Misuse {
    Misuse(why.to_string())
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// What the command line says. Ends the process with status [`MISUSED`] if that makes no sense, with 0 after help and
/// the like, and with 1 if manual pages were asked for and cannot be written.
pub fn parse<P: Parser>() -> P {
    parse_as(MISUSED)
}

/// The same with another status than [`MISUSED`].
pub fn parse_as<P: Parser>(misused: u8) -> P {
    generate_if_asked::<P>();
    let mut command = command::<P>();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let options = matches
        .and_then(|matches| P::from_arg_matches(&matches).map_err(|e| e.format(&mut command)));
    options.unwrap_or_else(|error| end(&error, misused))
}

/// Ends the process as clap's answer to a command line would have it: with `misused` if that makes no sense, with 0
/// after help and the like, and with 1 if these cannot be written.
pub fn end(error: &clap::Error, misused: u8) -> ! {
    if error.use_stderr() {
        let _ = error.print(); // there may be nobody to read it
        exit(misused.into());
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "cannot write to standard output: {why}");
            exit(1)
        }
        _ => exit(0),
    }
}

/// Writes manual pages and completions, and ends the process, if it was started as `PROGRAM --generate FOLDER`.
pub fn generate_if_asked<P: CommandFactory>() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [asked, folder] = &arguments[..] else { return };
    if asked == GENERATE {
        let done = generate(command::<P>(), Path::new(folder));
        if let Err(error) = &done {
            eprintln!("{}: cannot write: {error}", folder.display());
        }
        exit(i32::from(done.is_err()));
    }
}

/// Writes below `folder`: `man/NAME.1` (.8 for a daemon, `NAME-VERB.1` for verbs), `bash/NAME`, `zsh/_NAME` and
/// `fish/NAME.fish`.
///
/// # Errors
/// Something cannot be written.
pub fn generate(command: Command, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_string();
    let completions = [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")];
    for (shell, place) in completions {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        let made = generate_to(shell, &mut command.clone(), &name, &place)?;
        if shell == Shell::Bash {
            fs::rename(made, place.join(&name))?; // bash looks for a file named as the command
        }
    }
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    let section = if name.starts_with("scx_") { "8" } else { "1" };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, section, &pages)
}

fn write_pages(command: &Command, section: &str, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, section, folder)?;
    }
    let page = Man::new(command.clone()).section(section).manual("Onbeat");
    let mut text = Vec::new();
    page.render(&mut text)?;
    if let Some(example) = command.get_before_help() {
        let example = example.to_string().replace('\\', "\\e").replace('-', "\\-");
        text.extend(format!(".SH EXAMPLE\n.nf\n{example}\n.fi\n").into_bytes());
    }
    fs::write(folder.join(page.get_filename()), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns things.
    #[derive(Debug, Parser)]
    #[command(name = "turn", version, before_help = "Example: turn --times 3 left")]
    struct Turn {
        /// How often
        #[arg(long)]
        times: Option<u32>,
        #[arg(long, hide = true)]
        secret: bool,
        #[command(subcommand)]
        verb: Option<Verb>,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Verb {
        /// Turns them left.
        Left,
    }

    #[test]
    fn pages_and_completions_name_every_verb_and_option_that_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        generate(command::<Turn>(), folder.path()).unwrap();
        let read = |file| fs::read_to_string(folder.path().join(file)).unwrap();
        for file in ["man/turn.1", "bash/turn", "zsh/_turn", "fish/turn.fish"] {
            let text = read(file).replace("\\-", "-");
            assert!(text.contains("times") && text.contains("left"), "{file}: {text}");
        }
        assert!(!read("man/turn.1").contains("secret"));
        assert!(read("man/turn.1").contains("Example: turn \\-\\-times 3 left"));
        assert!(read("man/turn-left.1").contains("Turns them left"));
        generate(Command::new("scx_turn"), folder.path()).unwrap();
        assert!(read("man/scx_turn.8").contains("scx_turn 8"));
    }
}
