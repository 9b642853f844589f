// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat-fetch`: fills the cache with kernels and movies. Quick and quiet when it is full.

use std::process::ExitCode;

use clap::Parser;
use onbeat_lab::{Flavour, fetch, movie};

#[derive(Parser)]
#[command(
    name = "onbeat-fetch",
    version,
    about = "Downloads what the lab needs: kernels and movies"
)]
#[command(before_help = "Example: onbeat-fetch plain")]
struct Options {
    /// Kernels or movies; all of them when none is named
    #[arg(value_parser = ["plain", "rt", "movies"])]
    what: Vec<String>,
    /// Look for a newer kernel although a good one is there
    #[arg(long)]
    refresh: bool,
}

fn main() -> ExitCode {
    let options: Options = onbeat_command::parse();
    let all = ["plain", "rt", "movies"].map(str::to_owned).to_vec();
    let wanted = if options.what.is_empty() { all } else { options.what };
    for what in &wanted {
        let mut say = |line: &str| eprintln!("onbeat-fetch: {line}");
        let done = match what.as_str() {
            "movies" => movie::fetch(&mut say).map(drop),
            name => name
                .parse::<Flavour>()
                .map_err(anyhow::Error::msg)
                .and_then(|flavour| fetch::kernel(flavour, options.refresh, &mut say).map(drop)),
        };
        if let Err(error) = done {
            eprintln!("onbeat-fetch: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
