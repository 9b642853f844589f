// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat report`: tables and a page from results that were kept as JSON.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onbeat_report::html::{Page, render};

use crate::kind::{self, Kind};
use crate::output::{self, folder_of, print};
use crate::results::{Results, claims_beside, join};

/// Show results that `onbeat sim` or `onbeat lab` printed with --json
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat sim system.toml --json >sim.json; onbeat report sim.json")]
pub struct Options {
    /// Files with JSON results; those of one task set in several worlds are shown side by side
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
    let open = fs::File::open(file).context("cannot be read; check the path")?;
    open.take(MOST_BYTES + 1).read_to_end(&mut bytes).context("cannot be read")?;
    let what = "is no result; give it what `onbeat sim` or `onbeat lab` printed with --json";
    anyhow::ensure!(bytes.len() as u64 <= MOST_BYTES, "{what}");
    String::from_utf8(bytes).context(what)
}

/// Carries out the verb.
///
/// # Errors
/// A file cannot be read, is something else, or the page cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut all = Vec::new();
    for file in &options.files {
        let place = || format!("{}", file.display());
        let text = read(file).with_context(place)?;
        let results = Results::from_json(&text).with_context(place);
        all.push(results.map_err(|why| kind::instead(file, Kind::Results, why))?);
    }
    let inputs: Vec<&Path> = options.files.iter().map(PathBuf::as_path).collect();
    output::distinct(&inputs, options.html.as_deref().as_slice())?;
    let mut text = String::new();
    for results in &all {
        let world = serde_json::to_value(results.world)?;
        let world = world.as_str().unwrap_or_default();
        text.push_str(&format!("{} ({world})\n", results.experiment));
        text.push_str(&results.to_text(options.detail));
        text.push('\n');
    }
    print(text.trim_end_matches('\n'))?;
    print("\n")?;
    let Some(html) = &options.html else { return Ok(ExitCode::SUCCESS) };
    let claims = match &options.claims {
        Some(folder) => {
            let inside = folder.join("claims");
            anyhow::ensure!(inside.is_dir(), "there is no folder {}", inside.display());
            claims_beside(folder)?
        }
        None => claims_beside(folder_of(&options.files[0]))?,
    };
    let experiments = join(all.iter().map(|results| results.section(&claims)).collect())?;
    let page = Page { title: options.title.clone(), experiments, ..Page::default() };
    let page = render(&page)?;
    output::write(html, |out| out.write_all(page.as_bytes()).map_err(io::Error::other))?;
    complain!("onbeat report: {}", html.display());
    Ok(ExitCode::SUCCESS)
}
