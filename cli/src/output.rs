// SPDX-License-Identifier: GPL-2.0-only
//! Where results go: stdout, and files that are whole or not there.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onbeat_command::misuse;
pub use onbeat_command::whole;
use onbeat_model::run::Run;
use onbeat_report::html::{Page, render};
use onbeat_report::perfetto;

use crate::results::{Ended, Results, claims_beside};

/// Traces of more bytes are told of: nobody expects them of a short command, and a browser has trouble with them.
const TRACE_LARGE: u64 = 100_000_000;

/// The options of `onbeat sim` and `onbeat lab` that say what is to come out.
#[derive(Debug, Clone, Args)]
pub struct Outputs {
    /// Print a JSON object instead of a table, of several files one for each
    #[arg(long)]
    json: bool,
    /// Write a report that opens in a browser
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Write a trace for the Perfetto UI; with several policies one file for each
    #[arg(long, value_name = "FILE.perfetto-trace")]
    pub trace: Option<PathBuf>,
    /// Print the figures of each task, too
    #[arg(long, conflicts_with = "json")]
    detail: bool,
    /// Fail, with status 1, if a promise is broken under a policy: if an owed job is late
    #[arg(long)]
    strict: bool,
}

impl Outputs {
    /// Finds out before the work, not after it, that a file cannot be written, or one of the `pictures`.
    ///
    /// # Errors
    /// Names the file.
    pub fn check(&self, input: &Path, policies: &[String], pictures: &[PathBuf]) -> Result<()> {
        let traces = policies.iter().filter_map(|p| self.trace_of(p, policies.len() > 1));
        let traces = traces.map(|file| (file, Form::Trace));
        let page = self.html.iter().map(|file| (file.clone(), Form::Page));
        let pictures = pictures.iter().map(|file| (file.clone(), Form::Picture));
        let files: Vec<(PathBuf, Form)> = page.chain(traces).chain(pictures).collect();
        distinct(&[input], &files.iter().map(|(file, _)| file.as_path()).collect::<Vec<_>>())?;
        files.iter().try_for_each(|(file, form)| check(file, *form))?;
        match &self.trace {
            Some(trace) if policies.len() > 1 && special(trace) => {
                bail!(misuse(format!(
                    "{} cannot hold the traces of several policies",
                    trace.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Whether files are written, which are one task set's.
    pub fn named(&self) -> bool {
        self.html.is_some() || self.trace.is_some()
    }

    /// Whether standard output is for machines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Where the trace of a policy goes, if traces are wanted.
    pub fn trace_of(&self, policy: &str, several: bool) -> Option<PathBuf> {
        self.trace.as_ref().map(|file| file_of(file, policy, several))
    }

    /// Prints the results and writes the page. `folder` is the task set's, where claims may lie.
    ///
    /// # Errors
    /// Something cannot be written; the rest is.
    pub fn finish(&self, results: &Results, folder: &Path) -> Result<()> {
        let printed = match self.json {
            true => print(&format!("{:#}\n", results.to_json())),
            false => print(&results.to_text(self.detail)),
        };
        let written = self.html.as_ref().map_or(Ok(()), |html| {
            let mut section = results.section(&claims_beside(folder)?);
            for run in results.runs.iter().filter(|run| run.outcome.is_ok()) {
                if let Some(trace) = self.trace_of(&run.policy, results.runs.len() > 1) {
                    section.traces.push((run.policy.clone(), seen_from(html, &trace)));
                }
            }
            let title = section.title.clone();
            let page = Page { title, experiments: vec![section], ..Page::default() };
            write(html, |out| out.write_all(render(&page).map_err(io::Error::other)?.as_bytes()))
        });
        printed.and(written)
    }

    /// With `--strict`, that all promises were kept in these runs.
    ///
    /// # Errors
    /// Names the policies under which one was not.
    pub fn promised<'a>(&self, runs: impl IntoIterator<Item = &'a Results>) -> Result<()> {
        if !self.strict {
            return Ok(());
        }
        let all = runs.into_iter().flat_map(|results| &results.runs);
        let broken = |run: &&Ended| run.outcome.as_ref().is_ok_and(|of| of.metrics.owed_late > 0);
        let mut names: Vec<&str> = all.filter(broken).map(|run| run.policy.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        ensure!(names.is_empty(), "owed jobs were late under {}", names.join(", "));
        Ok(())
    }
}

/// Where what concerns one policy of `several` goes: `file`, or one beside it.
pub fn file_of(file: &Path, policy: &str, several: bool) -> PathBuf {
    if !several {
        return file.to_owned();
    }
    let policy = policy.replace(':', "-");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let suffix = file.extension().map(|s| format!(".{}", s.to_string_lossy()));
    file.with_file_name(format!("{stem}.{policy}{}", suffix.unwrap_or_default()))
}

/// Finds out before the work that no output would overwrite an input or another output.
///
/// # Errors
/// Names the file.
pub fn distinct(inputs: &[&Path], outputs: &[&Path]) -> Result<()> {
    // One that is not there yet is known by its folder.
    let real = |file: &Path| {
        let beside = || Some(fs::canonicalize(folder_of(file)).ok()?.join(file.file_name()?));
        fs::canonicalize(file).ok().or_else(beside).unwrap_or_else(|| file.to_owned())
    };
    let mut files: Vec<PathBuf> = inputs.iter().map(|file| real(file)).collect();
    for file in outputs.iter().filter(|file| !special(file)) {
        if files.contains(&real(file)) {
            bail!(misuse(format!(
                "{} is named twice; give each file its own name",
                file.display()
            )));
        }
        files.push(real(file));
    }
    Ok(())
}

/// The path a page's link must have.
fn seen_from(page: &Path, file: &Path) -> String {
    let beside = page.parent() == file.parent();
    let name = if beside { file.file_name().map(Path::new).unwrap_or(file) } else { file };
    name.display().to_string()
}

/// Writes the trace of a run.
///
/// # Errors
/// Names the file.
pub fn write_trace(run: &Run, file: &Path) -> Result<()> {
    write(file, |out| perfetto::write(run, &mut &mut *out))?;
    let size = fs::metadata(file).map_or(0, |meta| meta.len());
    if size > TRACE_LARGE {
        complain!(
            "onbeat: {} has {} MB; a shorter duration gives less",
            file.display(),
            size / 1_000_000
        );
    }
    Ok(())
}

/// Prints to stdout. A reader that has gone away (`| head`) is no error.
///
/// # Errors
/// Any other failure to write.
pub fn print(text: &str) -> Result<()> {
    Ok(onbeat_command::print(text)?)
}

/// Whether a name stands for something else than an ordinary file: a device, a pipe.
pub fn special(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// The folder a file is in.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file beside `file`, to be renamed when it is whole.
fn draft(file: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".onbeat-")
        .permissions(fs::Permissions::from_mode(0o666)) // less the umask
        .tempfile_in(folder_of(file))
        .map_err(|error| {
            // Without the name of the draft, which nobody has asked for.
            let (kind, text) = (error.kind(), error.to_string());
            io::Error::new(kind, text.split(" at path ").next().unwrap_or(&text))
        })
}

/// What a file is to hold. One that is there and holds something else is not replaced.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Page,
    Picture,
    Trace,
    /// Whatever is there: somebody has said so.
    Any,
}

impl Form {
    /// What it is called, and whether that is how one begins.
    fn about(self) -> (&'static str, fn(&[u8]) -> bool) {
        let markup = |begin: &[u8]| begin.trim_ascii_start().starts_with(b"<");
        // The tag of a packet, then numbers that no text has.
        let packets = |begin: &[u8]| begin[0] == b'\n' && begin.iter().any(|byte| *byte < b'\t');
        match self {
            Self::Page => ("page", markup),
            Self::Picture => ("picture", markup),
            Self::Trace => ("trace", packets),
            Self::Any => ("file", |_| true),
        }
    }

    /// The name says nothing else.
    fn fits(self, file: &Path) -> Result<()> {
        let svg = file.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
        if matches!(self, Self::Picture) && !svg {
            let named = file.with_extension("svg");
            let (file, named) = (file.display(), named.display());
            bail!(misuse(format!(
                "{file}: pictures are written as SVG only; name it {named}, say"
            )));
        }
        Ok(())
    }

    /// Nothing else is there.
    fn may_replace(self, file: &Path) -> Result<()> {
        let mut begin = Vec::new();
        let open = fs::File::open(file);
        let _ = open.map(|open| open.take(64).read_to_end(&mut begin)); // other errors show when it is written
        let (what, is_one) = self.about();
        ensure!(
            begin.is_empty() || is_one(&begin),
            "{} is there already and is no {what}; remove it, or give another name",
            file.display()
        );
        Ok(())
    }
}

/// Finds out whether a file can be written, and that nothing is lost by it but what was such a file before.
///
/// # Errors
/// Names the file.
pub fn check(file: &Path, form: Form) -> Result<()> {
    if file == Path::new("-") {
        bail!(misuse("- is no name of a file to write: standard output has the results"));
    }
    if file.is_dir() {
        bail!("cannot write {}: it is a folder; name a file in it", file.display());
    }
    if !special(file) {
        form.fits(file)?;
        form.may_replace(file)?;
        let folder = folder_of(file);
        if !folder.is_dir() {
            bail!("cannot write {}: there is no folder {}", file.display(), folder.display());
        }
        draft(file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Writes a file that is whole or not there: a full disk, Ctrl-C or a crash leave what was there.
///
/// # Errors
/// Names the file.
pub fn write(file: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let place = || format!("cannot write {}", file.display());
    if special(file) {
        let mut out =
            BufWriter::new(fs::OpenOptions::new().write(true).open(file).with_context(place)?);
        return fill(&mut out).and_then(|()| out.flush()).with_context(place);
    }
    let mut out = BufWriter::new(draft(file).with_context(place)?);
    fill(&mut out).with_context(place)?;
    let whole = out.into_inner().map_err(|e| e.into_error()).with_context(place)?;
    whole.persist(file).map_err(|e| e.error).with_context(place)?;
    Ok(())
}
