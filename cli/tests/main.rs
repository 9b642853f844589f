// SPDX-License-Identifier: GPL-2.0-only
//! The verbs of `onbeat`: one program, for to compile and link one takes seconds. `cargo test --release --workspace
//! --test cli NAME::` runs one file's. Those that play whole sets in guests are apart.

mod analysis;
mod common;
mod family;
mod left_out;
mod limit;
mod plan;
mod status;
mod tutorials;
mod varied;
mod verbs;

#[test]
fn no_file_of_tests_is_left_out() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let rust = path.extension().is_some_and(|ending| ending == "rs");
        let apart = ["main", "agreement", "lab", "run"].contains(&name.as_str());
        assert!(!rust || apart || main.contains(&format!("mod {name};")), "{name}");
    }
}
