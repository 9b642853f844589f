// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat report`: tables and a page from results that were kept as JSON.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use onbeat_report::html::{Page, render};
use serde_json::Value;

use crate::kind::{self, Kind};
use crate::means::Means;
use crate::mistake::{self, in_json};
use crate::output::{self, Form, folder_of, print};
use crate::results::{NO_RESULTS, Results, claims_beside, join};

/// Show results that `onbeat sim` or `onbeat lab` printed with --json
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat sim system.toml --json >sim.json; onbeat report sim.json")]
pub struct Options {
    /// Files with JSON results, of several task sets or of --repeat, too (`-`: standard input); those of one task set
    /// in several worlds are shown side by side
    #[arg(required = true, value_name = "RESULTS.json")]
    files: Vec<PathBuf>,
    /// Write a report that opens in a browser
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Head line of that report
    #[arg(long, requires = "html", value_name = "TEXT", default_value = "Onbeat: results")]
    title: String,
    /// Folder that holds the folder `claims` with what papers say
    #[arg(long, requires = "html", value_name = "DIR")]
    claims: Option<PathBuf>,
    /// Print the figures of each task, too
    #[arg(long)]
    detail: bool,
}

/// No results are larger.
const MOST_BYTES: u64 = 256 << 20;

/// A whole file of results.
fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let open: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(fs::File::open(file).context("cannot be read; check the path")?),
    };
    open.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| mistake::unread(e, "results"))?;
    let what = "is no result; give it what `onbeat sim` or `onbeat lab` printed with --json";
    anyhow::ensure!(bytes.len() as u64 <= MOST_BYTES, "{what}");
    String::from_utf8(bytes).context(what)
}

/// What an object in such a file is.
enum Kept {
    /// Runs under several policies.
    Runs(Box<Results>),
    /// Means of `--repeat`.
    Means(Box<Means>),
}

/// All that is in a file: of several task sets one object each, one behind the other.
fn load(file: &Path) -> Result<Vec<Kept>> {
    let text = read(file)?;
    let mut all = Vec::new();
    for object in serde_json::Deserializer::from_str(&text).into_iter() {
        let object: Value = object.context(NO_RESULTS)?;
        ensure!(object.is_object(), NO_RESULTS);
        all.push(match object.get("repetitions") {
            Some(_) => Kept::Means(Box::new(
                serde_json::from_value(object).map_err(|e| in_json(&e)).context(NO_RESULTS)?,
            )),
            None => Kept::Runs(Box::new(Results::from_json(object)?)),
        });
    }
    ensure!(!all.is_empty(), "is empty; {NO_RESULTS}");
    Ok(all)
}

impl Kept {
    fn text(&self, detail: bool) -> Result<String> {
        let results = match self {
            Self::Means(means) => return Ok(means.text()),
            Self::Runs(results) => results,
        };
        let world = serde_json::to_value(results.world)?;
        let world = world.as_str().unwrap_or_default();
        Ok(format!("{} ({world})\n{}", results.experiment, results.to_text(detail)))
    }

    fn runs(&self) -> Option<&Results> {
        match self {
            Self::Runs(results) => Some(results),
            Self::Means(_) => None,
        }
    }
}

/// Carries out the verb.
///
/// # Errors
/// A file cannot be read, is something else, or the page cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut all = Vec::new();
    for file in &options.files {
        let kept = load(file).with_context(|| format!("{}", file.display()));
        all.extend(kept.map_err(|why| kind::instead(file, Kind::Results, why))?);
    }
    let inputs: Vec<&Path> = options.files.iter().map(PathBuf::as_path).collect();
    output::distinct(&inputs, options.html.as_deref().as_slice())?;
    options.html.as_deref().map_or(Ok(()), |html| output::check(html, Form::Page))?;
    let mut text = String::new();
    for kept in &all {
        text.push_str(&kept.text(options.detail)?);
        text.push('\n');
    }
    print(text.trim_end_matches('\n'))?;
    print("\n")?;
    let Some(html) = &options.html else { return Ok(ExitCode::SUCCESS) };
    let runs: Vec<&Results> = all.iter().filter_map(Kept::runs).collect();
    ensure!(
        runs.len() == all.len(),
        "a page shows single runs, and means of --repeat are tables only; leave these files out"
    );
    let claims = match &options.claims {
        Some(folder) => {
            let inside = folder.join("claims");
            anyhow::ensure!(inside.is_dir(), "there is no folder {}", inside.display());
            claims_beside(folder)?
        }
        None => claims_beside(folder_of(&options.files[0]))?,
    };
    let experiments = join(runs.iter().map(|results| results.section(&claims)).collect())?;
    let page = Page { title: options.title.clone(), experiments, ..Page::default() };
    let page = render(&page)?;
    output::write(html, |out| out.write_all(page.as_bytes()).map_err(io::Error::other))?;
    complain!("onbeat report: {}", html.display());
    Ok(ExitCode::SUCCESS)
}
